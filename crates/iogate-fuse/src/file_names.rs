//! What the files that were opened are called, for people.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use iogate_core::FileId;

/// Files remembered; those opened later go by their numbers.
const FILES_MAX: usize = 65_536;

/// What the files of a tree that were opened are called.
#[derive(Debug, Default)]
pub struct FileNames {
    paths: Mutex<HashMap<FileId, PathBuf>>,
}

impl FileNames {
    /// The path below the root by which a file was last opened; `None` if it was not (or too many were).
    pub fn get(&self, file: FileId) -> Option<PathBuf> {
        self.paths.lock().expect("no map operation panics").get(&file).cloned()
    }

    pub(crate) fn add(&self, file: FileId, path: &Path) {
        let mut paths = self.paths.lock().expect("no map operation panics");
        if paths.len() < FILES_MAX || paths.contains_key(&file) {
            paths.insert(file, path.to_owned());
        }
    }
}
