//! A cluster's folder: private, and one process's while that starts or stops nodes.

use std::fs::File;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use super::FILE;
use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::output::open_alone;

/// Who has this file's lock starts and stops nodes. No node is called so.
const LOCK: &str = ".lock";

/// Makes a cluster's folder, or sees that nobody else can use it. Returns it as nodes find it, which are started from elsewhere.
pub(super) fn make(folder: &Path) -> Result<PathBuf, Failure> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.with_context(|| Attempt::make(format_args!("the cluster's folder {}", folder.display())))?;
    let folder = folder.canonicalize().context("the cluster's folder")?;
    let found = folder.metadata().context("the cluster's folder")?;
    if found.uid() != rustix::process::geteuid().as_raw() {
        let error = anyhow!("the folder {} is another user's", folder.display());
        return Err(Failure::failed(error).hint("give --dir DIRECTORY, one of your own"));
    }
    let mut entries = std::fs::read_dir(&folder).context("the cluster's folder")?;
    // Nothing but the lock is there where the first `up` has just begun.
    let is_taken = entries.any(|entry| !entry.is_ok_and(|entry| entry.file_name() == LOCK));
    if !folder.join(FILE).is_file() && is_taken {
        let error = anyhow!("the folder {} has something else in it", folder.display());
        return Err(Failure::failed(error).hint(
            "give --dir a new or an empty directory: `iogate cluster down --purge` removes all that is there",
        ));
    }
    if found.mode() & 0o077 != 0 {
        // One of an earlier release, or one that was made for this.
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(&folder, private).context("the cluster's folder")?;
    }
    Ok(folder)
}

/// Removes a folder in which no cluster has ever been. Who holds it has made it, or has found it empty.
pub(super) fn remove_if_unused(folder: &Path) {
    if !folder.join(FILE).exists() {
        let _ = std::fs::remove_dir_all(folder);
    }
}

/// Keeps others from starting and stopping nodes for as long as it is held.
pub(super) fn hold(folder: &Path) -> Result<File, Failure> {
    open_alone(&folder.join(LOCK), || {
        let error = anyhow!("the cluster in {} is just being started or stopped", folder.display());
        Failure::failed(error).hint("by another `iogate cluster`: try again when that has ended")
    })
}
