//! Of a directory of this machine: what changes when writes that were answered may be lost.

use std::collections::HashMap;
use std::hash::Hasher;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use iogate_core::hash::IdHasher;
use iogate_core::wire::Identity;

/// Most files whose failed write-backs are kept apart; further ones count for all files.
const FAILED_MAX: usize = 65_536;

/// The verifier of a directory's files. It stays the same when the process starts again, for what it has written is the system's by
/// then; a reboot changes it. The number of the mount is no part of it: a service gets new ones each time it is started.
#[derive(Debug)]
pub(super) struct Verifier {
    base: u64,
    any_failed: AtomicBool,
    failed: Mutex<Failed>,
}

/// Write-backs that failed.
#[derive(Debug, Default)]
struct Failed {
    files: HashMap<Identity, u64>,
    others: u64,
}

impl Verifier {
    /// The one of the file system that a directory lies on, in the system's present life.
    pub(super) fn of(directory: impl AsFd) -> io::Result<Verifier> {
        let mut hasher = IdHasher::default();
        hasher.write(crate::boot_id()?.as_bytes());
        hasher.write_u64(rustix::fs::fstatvfs(&directory)?.f_fsid);
        hasher.write_u64(rustix::fs::fstat(&directory)?.st_dev);
        Ok(Verifier { base: hasher.finish(), any_failed: false.into(), failed: Mutex::default() })
    }

    /// Of a file about which nothing is known.
    pub(super) fn base(&self) -> u64 {
        let others = if self.any_failed.load(Ordering::Acquire) { self.lock().others } else { 0 };
        self.base ^ others
    }

    /// Of a file.
    pub(super) fn of_file(&self, identity: Identity) -> u64 {
        if !self.any_failed.load(Ordering::Acquire) {
            return self.base;
        }
        let failed = self.lock();
        let count = failed.files.get(&identity).copied().unwrap_or_default();
        self.base ^ failed.others ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// How often a file could not be written back.
    pub(super) fn losses(&self, identity: Identity) -> u64 {
        if !self.any_failed.load(Ordering::Acquire) {
            return 0;
        }
        self.lock().files.get(&identity).copied().unwrap_or_default()
    }

    /// A file could not be written back: the system has told it once, and forgets it.
    pub(super) fn write_back_failed(&self, identity: Identity) {
        let mut failed = self.lock();
        if failed.files.len() < FAILED_MAX || failed.files.contains_key(&identity) {
            *failed.files.entry(identity).or_default() += 1;
        } else {
            failed.others += 1;
        }
        self.any_failed.store(true, Ordering::Release);
    }

    /// A process before has found that a file could not be written back so often.
    pub(super) fn restore(&self, identity: Identity, count: u64) {
        self.lock().files.insert(identity, count);
        self.any_failed.store(true, Ordering::Release);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_back_changes_the_file_s_verifier_and_no_other() {
        let directory = std::fs::File::open("/proc").unwrap();
        let verifier = Verifier::of(&directory).unwrap();
        let [one, other] = [1, 2].map(|inode| Identity { inode, generation: 0 });
        let before = verifier.base();
        assert_eq!(verifier.of_file(one), before);
        verifier.write_back_failed(one);
        assert_ne!(verifier.of_file(one), before);
        assert_eq!((verifier.of_file(other), verifier.base()), (before, before));
        let next = Verifier::of(&directory).unwrap();
        assert_eq!(next.base(), before, "another process finds the same");
        next.restore(one, verifier.losses(one));
        assert_eq!(next.of_file(one), verifier.of_file(one), "also of a file of which it is told");
    }
}
