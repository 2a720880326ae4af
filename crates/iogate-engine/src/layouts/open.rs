//! The layouts of open files, in an engine's gate for as long as they are open.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use iogate_core::{FileId, FileLayout};

use super::{Layouts, lock};
use crate::Engine;

/// Where asking has brought nothing new, bytes to go on before asking again.
const ASK_AGAIN_BYTES: u64 = 1 << 20;

/// Gives an engine the layouts of the files that are open.
pub struct OpenLayouts {
    layouts: Arc<Layouts>,
    engine: Arc<Engine>,
    /// How often each file is open.
    open: Mutex<HashMap<FileId, usize>>,
}

/// A file that is open. When the last of a file's is dropped, the gate forgets its layout.
pub struct OpenLayout {
    among: Arc<OpenLayouts>,
    file: FileId,
    /// A write from this offset on is a reason to ask again.
    ask_at: AtomicU64,
}

impl OpenLayouts {
    /// No file is open yet.
    pub fn new(layouts: Arc<Layouts>, engine: Arc<Engine>) -> Arc<OpenLayouts> {
        Arc::new(OpenLayouts { layouts, engine, open: Mutex::default() })
    }

    /// Asks for the layout of a file that was just opened; it holds until what is returned is dropped. Where it cannot
    /// be learnt, the gate's layout holds ([`Layouts::learn_or_warn`]).
    pub fn open(self: &Arc<Self>, file: FileId, fd: BorrowedFd<'_>) -> OpenLayout {
        let layout = self.layouts.learn_or_warn(fd);
        let ask_at = AtomicU64::new(layout.as_deref().map_or(u64::MAX, known_until));
        // Under the lock, so that another's close does not take it away again.
        let mut open = lock(&self.open);
        *open.entry(file).or_default() += 1;
        self.engine.set_layout(file, layout);
        OpenLayout { among: self.clone(), file, ask_at }
    }
}

impl OpenLayout {
    /// To be called before each write: one beyond what is known has the file system asked again now and then, for by
    /// now it may have placed what was written before.
    pub fn before_write(&self, fd: BorrowedFd<'_>, offset: u64) {
        let ask_at = self.ask_at.load(Ordering::Relaxed);
        if offset < ask_at {
            return;
        }
        // Of several writers, one asks.
        let again = offset.saturating_add(ASK_AGAIN_BYTES);
        if self.ask_at.compare_exchange(ask_at, again, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        if let Some(layout) = self.among.layouts.learn_or_warn(fd) {
            let known = known_until(&layout);
            if known > offset {
                self.ask_at.store(known, Ordering::Relaxed);
            }
            self.among.engine.set_layout(self.file, Some(layout));
        }
    }
}

impl Drop for OpenLayout {
    fn drop(&mut self) {
        let mut open = lock(&self.among.open);
        if let Some(count) = open.get_mut(&self.file) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.file);
                self.among.engine.set_layout(self.file, None);
            }
        }
    }
}

impl std::fmt::Debug for OpenLayouts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenLayouts").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for OpenLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenLayout").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The end of the last extent.
fn known_until(layout: &FileLayout) -> u64 {
    layout.extents().last().map_or(0, |extent| extent.end)
}
