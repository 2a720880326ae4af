//! A file that one process has for itself.

use std::fs::{File, TryLockError};
use std::ops::Deref;

/// A file with a lock that nobody else gets as long as this lives (`flock`, exclusive). Dropped, it is free at once: closing it alone would
/// not do, as a process that another thread just starts has a copy of each descriptor until its program begins.
#[derive(Debug)]
pub struct LockedFile(File);

impl LockedFile {
    /// Locks an open file, and does not wait. Fails with [`TryLockError::WouldBlock`] if somebody else has the lock, and with
    /// [`TryLockError::Error`] where there are no locks.
    pub fn new(file: File) -> Result<LockedFile, TryLockError> {
        file.try_lock().map(|()| LockedFile(file))
    }
}

impl Deref for LockedFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_a_starting_process_has_keeps_nobody_out() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let again = || LockedFile::new(File::options().write(true).open(file.path()).unwrap());
        let locked = again().unwrap();
        let copy = locked.try_clone().unwrap();
        assert!(matches!(again(), Err(TryLockError::WouldBlock)));
        drop(locked);
        assert!(again().is_ok());
        drop(copy);
    }
}
