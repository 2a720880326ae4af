//! Locks of a file that hold among all who use it, also past this program: of its bytes, an open file description's (`F_OFD_SETLK` of
//! `fcntl(2)`), and of the open file (`flock(2)`). Which machines they hold between is the file system's affair.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use iogate_core::file_locks::{ByteRange, Kind};
use iogate_engine::store::Nearness;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use crate::directory::reopen;

/// A file that is open to be locked.
#[derive(Debug)]
pub struct OutsideLocks {
    file: OwnedFd,
    /// It is open for reading only: the kernel takes no exclusive lock of it then.
    only_shared: bool,
}

impl OutsideLocks {
    /// Of a file that is open for reading, and for writing unless `only_shared`.
    pub fn new(file: OwnedFd, only_shared: bool) -> OutsideLocks {
        OutsideLocks { file, only_shared }
    }

    /// Of an open file: its own, if it is open for reading and writing, so that a parallel file system need not open it again; else it is
    /// opened once more, in the process's own name, and for reading only where it cannot be written. Of one open file only one of
    /// these takes locks at a time.
    ///
    /// # Errors
    /// Those of `open(2)`.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<OutsideLocks> {
        let flags = rustix::fs::fcntl_getfl(file)?;
        if flags.contains(OFlags::RDWR) && !flags.contains(OFlags::PATH) {
            return Ok(OutsideLocks::new(rustix::io::fcntl_dupfd_cloexec(file, 0)?, false));
        }
        let open = |access: OFlags| reopen(file, access | OFlags::NONBLOCK | OFlags::NOCTTY);
        match open(OFlags::RDWR) {
            Ok(file) => Ok(OutsideLocks::new(file, false)),
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM | Errno::TXTBSY | Errno::ISDIR) => {
                Ok(OutsideLocks::new(open(OFlags::RDONLY)?, true))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Takes a lock, or gives it back; replaces what there was of these bytes. `false`: somebody else has one that is in the way. What the
    /// file system has no locks for counts as taken.
    ///
    /// # Errors
    /// Those of `fcntl(2)`; `EOVERFLOW` for bytes that no file has.
    pub fn set(&self, kind: Option<Kind>, range: ByteRange) -> io::Result<bool> {
        if self.only_shared && kind == Some(Kind::Exclusive) {
            return Ok(true);
        }
        let mut lock = flock(kind, range)?;
        match self.control(libc::F_OFD_SETLK, &mut lock) {
            Ok(()) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                Some(libc::EOPNOTSUPP | libc::ENOSYS) => Ok(true),
                _ => Err(error),
            },
        }
    }

    /// Takes the lock of the open file, or gives it back; replaces what there was, which is given up even if `false` is returned: somebody
    /// else has one that is in the way. What the file system has no such locks for, or none for a file that is open for reading, counts
    /// as taken.
    ///
    /// # Errors
    /// Those of `flock(2)`.
    pub fn set_whole(&self, kind: Option<Kind>) -> io::Result<bool> {
        let operation = match kind {
            None => FlockOperation::NonBlockingUnlock,
            Some(Kind::Shared) => FlockOperation::NonBlockingLockShared,
            Some(Kind::Exclusive) => FlockOperation::NonBlockingLockExclusive,
        };
        match rustix::fs::flock(&self.file, operation) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(true),
            Err(Errno::BADF) if self.only_shared => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Gives back all.
    ///
    /// # Errors
    /// As of [`OutsideLocks::set`] and [`OutsideLocks::set_whole`].
    pub fn give_all_back(&self) -> io::Result<()> {
        self.set_whole(None)?;
        self.set(None, ByteRange::ALL).map(drop)
    }

    /// Whether other machines may use the file, too.
    pub fn reaches_afar(&self) -> bool {
        // The upper layer of an overlay is on this machine, even where it is not known which file system it is.
        let found = rustix::fs::fstatfs(&self.file);
        let is_overlay = found.is_ok_and(|found| found.f_type == libc::OVERLAYFS_SUPER_MAGIC);
        Nearness::of_directory(&self.file) == Nearness::Far && !is_overlay
    }

    /// A lock of somebody else that such a one would not go together with.
    ///
    /// # Errors
    /// As of [`OutsideLocks::set`].
    pub fn in_the_way(&self, kind: Kind, range: ByteRange) -> io::Result<Option<(Kind, ByteRange)>> {
        let mut lock = flock(Some(kind), range)?;
        match self.control(libc::F_OFD_GETLK, &mut lock) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS)) => {
                return Ok(None);
            }
            done => done?,
        }
        let found = match i32::from(lock.l_type) {
            libc::F_UNLCK => return Ok(None),
            libc::F_RDLCK => Kind::Shared,
            _ => Kind::Exclusive,
        };
        let first = lock.l_start.unsigned_abs();
        let last = match lock.l_len.unsigned_abs() {
            0 => u64::MAX,
            length => first.saturating_add(length - 1),
        };
        Ok(ByteRange::new(first, last).map(|range| (found, range)))
    }

    fn control(&self, command: libc::c_int, lock: &mut libc::flock) -> io::Result<()> {
        // SAFETY: the descriptor is open, and the structure is what the command reads and writes.
        match unsafe { libc::fcntl(self.file.as_raw_fd(), command, std::ptr::from_mut(lock)) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn flock(kind: Option<Kind>, range: ByteRange) -> io::Result<libc::flock> {
    let far = || io::Error::from_raw_os_error(libc::EOVERFLOW);
    let start = i64::try_from(range.first()).map_err(|_| far())?;
    // The last byte that a file can have is the end of all.
    let length = match i64::try_from(range.last()) {
        Ok(last) if last < i64::MAX => last - start + 1,
        _ => 0,
    };
    let how = match kind {
        None => libc::F_UNLCK,
        Some(Kind::Shared) => libc::F_RDLCK,
        Some(Kind::Exclusive) => libc::F_WRLCK,
    };
    Ok(libc::flock {
        l_type: how as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: start,
        l_len: length,
        l_pid: 0,
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn another_open_file_is_somebody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"").unwrap();
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let [ours, theirs] = [open(), open()].map(|file| OutsideLocks::new(file.into(), false));
        let range = |first, last| ByteRange::new(first, last).unwrap();
        let all = range(10, u64::MAX);
        assert!(ours.set(Some(Kind::Exclusive), all).unwrap());
        assert!(ours.set(Some(Kind::Shared), range(20, 29)).unwrap());
        assert!(!theirs.set(Some(Kind::Exclusive), range(0, 10)).unwrap());
        assert!(theirs.set(Some(Kind::Exclusive), range(0, 9)).unwrap());
        assert!(theirs.set(Some(Kind::Shared), range(22, 25)).unwrap());
        let found = theirs.in_the_way(Kind::Shared, range(25, 40)).unwrap();
        assert_eq!(found, Some((Kind::Exclusive, range(30, u64::MAX))));
        assert_eq!(theirs.in_the_way(Kind::Shared, range(0, 9)).unwrap(), None);
        assert!(ours.set(None, all).unwrap());
        assert!(theirs.set(Some(Kind::Exclusive), all).unwrap());
        let far = ours.set(None, range(1 << 63, u64::MAX)).unwrap_err();
        assert_eq!(far.raw_os_error(), Some(libc::EOVERFLOW));
        drop(theirs);
        assert!(ours.set(Some(Kind::Exclusive), all).unwrap());
    }

    #[test]
    fn a_file_that_is_open_for_reading_has_shared_locks_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"").unwrap();
        let ours = OutsideLocks::new(File::open(&path).unwrap().into(), true);
        assert!(ours.set(Some(Kind::Exclusive), ByteRange::ALL).unwrap());
        assert!(ours.set(Some(Kind::Shared), ByteRange::ALL).unwrap());
        assert!(ours.set(None, ByteRange::ALL).unwrap());
    }

    #[test]
    fn the_lock_of_an_open_file_knows_nothing_of_those_of_bytes() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let open = || File::options().read(true).write(true).open(file.path()).unwrap();
        let [ours, theirs] = [open(), open()].map(|file| OutsideLocks::new(file.into(), false));
        assert!(ours.set(Some(Kind::Exclusive), ByteRange::ALL).unwrap());
        assert!(theirs.set_whole(Some(Kind::Shared)).unwrap());
        assert!(ours.set_whole(Some(Kind::Shared)).unwrap());
        assert!(!ours.set_whole(Some(Kind::Exclusive)).unwrap());
        assert!(theirs.set_whole(Some(Kind::Exclusive)).unwrap(), "who is refused has given up what it had");
        assert!(!ours.set_whole(Some(Kind::Shared)).unwrap());
        assert!(theirs.set_whole(None).unwrap() && ours.set_whole(Some(Kind::Exclusive)).unwrap());
        assert!(!ours.reaches_afar());
    }
}
