//! Locks that are taken on the source's files, so that they hold among this mount's programs and whoever uses the files past it.

use std::io;
use std::os::fd::AsFd;

use iogate_core::Time;
use iogate_core::file_locks::Asker;
use iogate_core::wire::{Identity, Lock, lock};
use iogate_vfs::outside::OutsideLocks;
use iogate_vfs::taken_locks::{Lockable, NotTaken, TakenLocks};
use rustix::io::Errno;

use super::FileSystem;
use super::file::OpenFile;
use crate::abi::{FileLock, LkIn};
use crate::file_system::errno_of;
use crate::locks::{found_of, wish};
use crate::operations::Locks;

/// The one session that a mount's locks have; it has them for many programs.
const MOUNT: Asker = Asker { session: 1, is_forwarder: true };

impl Lockable for OpenFile {
    fn identity(&self) -> Identity {
        let (device, inode) = self.inode.key();
        Identity { inode, generation: device }
    }

    fn outside_locks(&self) -> io::Result<Option<OutsideLocks>> {
        OutsideLocks::of(self.fd.as_fd()).map(Some)
    }
}

impl Locks for FileSystem {
    fn set_lock(&self, arg: LkIn) -> Result<(), Errno> {
        let (open, wish) = (self.files.get(arg.fh)?, wish(&arg)?);
        let is_open = || self.files.get(arg.fh).is_ok();
        self.locks()?.set(Time::ZERO, MOUNT, &*open, &wish, None, is_open).map_err(failed)
    }

    fn get_lock(&self, arg: LkIn) -> Result<FileLock, Errno> {
        let open = self.files.get(arg.fh)?;
        let found = self.locks()?.get(MOUNT.session, &*open, &wish(&arg)?);
        found.map(|found| found_of(&found)).map_err(failed)
    }

    fn unlock_bytes(&self, handle: u64, owner: u64) {
        self.unlock(handle, lock::BYTES, owner);
    }

    fn unlock_file(&self, handle: u64, owner: u64) {
        self.unlock(handle, lock::FILE, owner);
    }
}

impl FileSystem {
    fn locks(&self) -> Result<&TakenLocks, Errno> {
        self.locks.as_ref().ok_or(Errno::NOSYS)
    }

    /// Gives back all that an owner has of a file.
    fn unlock(&self, handle: u64, space: u8, owner: u64) {
        let (Some(locks), Ok(open)) = (&self.locks, self.files.get(handle)) else { return };
        // Most files that are closed were never locked.
        if locks.table().is_free(open.identity()) {
            return;
        }
        if let Err(why) = locks.set(Time::ZERO, MOUNT, &*open, &Lock::all_back(space, owner), None, || true) {
            tracing::warn!(error = %io::Error::from(why), "a lock is not given back before the mount ends");
        }
    }
}

fn failed(why: NotTaken) -> Errno {
    errno_of(&why.into())
}
