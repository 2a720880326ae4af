//! Locks of files that hold among the programs of one user of one machine, by real locks on files of its own memory; among those of all
//! users where root has made a folder for that. Those of `flock` are so; POSIX locks where the server has none (`byte_locks`).
//!
//! A lock of `flock` cannot be the server's, which ends it with the session of whoever took it: `exec 9>lock; flock 9` has it taken by a
//! program that ends at once, and kept by the shell.
//!
//! POSIX locks and `flock` do not know of each other, so each has its own file.
//!
//! A lock of `flock` is an open file's, whoever has that: so children and programs that are started must have the descriptor with the
//! lock, which is open before they are there. The page says its number. Who has the open file without it gets no lock.

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::description::Description;
use crate::failed::{Result, answer};
use crate::own_descriptors::{keep, keep_inheritable};
use crate::page::{Page, borrow, link_of};
use crate::table;

/// Where the files of all users are, if root has made it. Their names say which file they stand for.
const SHARED: &str = "/dev/shm/iogate-locks";
/// Ends the names of those for `flock`.
const WHOLE: &str = "f";

/// Most locks that a process has only because others might want them: each is a descriptor and a file.
const SHARED_MAX: usize = 64;

/// The files that stand for one of ours; opened when it is first locked, or shared.
#[derive(Default)]
pub(crate) struct Locks {
    posix: Mutex<Option<OwnedFd>>,
    whole: Mutex<Whole>,
}

/// The lock of `flock`.
#[derive(Default)]
enum Whole {
    /// Nobody else has the open file.
    #[default]
    Unmade,
    Made {
        fd: OwnedFd,
        /// Nobody had asked for it: others might want it.
        ahead: bool,
    },
    /// Others have the open file, and perhaps its lock.
    Missing,
}

impl Locks {
    /// Of an open file that the process was started with.
    pub(crate) fn adopt(page: &Page) -> Locks {
        let whole = match page.lock() {
            Some((fd, file))
                if !table::is_kept(fd)
                    && table::file_behind(fd) == Ok(file)
                    && table::protect(fd, true).is_ok() =>
            {
                // SAFETY: made by `make_whole`, handed on, and nobody else's here.
                Whole::Made { fd: unsafe { OwnedFd::from_raw_fd(fd) }, ahead: true }
            }
            _ => Whole::Missing,
        };
        Locks { whole: Mutex::new(whole), ..Locks::default() }
    }

    /// The same for a child of `fork`. The original must not be dropped.
    pub(crate) fn for_child(&self) -> Locks {
        let whole = match self.whole.try_lock().as_deref() {
            Ok(Whole::Made { fd, ahead }) => {
                // SAFETY: the promise above.
                Whole::Made { fd: unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) }, ahead: *ahead }
            }
            _ => Whole::Missing,
        };
        Locks { whole: Mutex::new(whole), ..Locks::default() }
    }

    fn whole(&self) -> MutexGuard<'_, Whole> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(file: &Description, kind: &str) -> Result<OwnedFd> {
    if file.has(libc::O_PATH) {
        return Err(Errno::BADF.into());
    }
    let identity = file.page.identity();
    let name = format!("{:x}-{:x}.{kind}", identity.inode, identity.generation);
    Ok(open_file(SHARED, &name)?)
}

fn make_whole(file: &Description) -> Result<OwnedFd> {
    let kept = keep_inheritable(&open(file, WHOLE)?)?;
    file.page.set_lock(kept.as_raw_fd(), table::file_behind(kept.as_raw_fd())?);
    Ok(kept)
}

/// Others are about to have these open files: whoever locks one of them later, it is locked for all who have it. Where there are very
/// many, some get no lock.
pub(crate) fn share(files: &[Arc<Description>]) {
    let mut held = held_ahead();
    for file in files {
        let mut whole = file.locks.whole();
        if let Whole::Unmade = *whole {
            *whole = Whole::Missing;
            if held < SHARED_MAX
                && !is_listed(file)
                && let Ok(fd) = make_whole(file)
            {
                *whole = Whole::Made { fd, ahead: true };
                held += 1;
            }
        }
    }
}

/// How many locks the process has because others might want them.
fn held_ahead() -> usize {
    table::all().iter().filter(|file| matches!(*file.locks.whole(), Whole::Made { ahead: true, .. })).count()
}

/// Whether it was opened as a directory, to be listed, which nobody locks: `flock DIRECTORY` opens it as any file. `O_TMPFILE` has that
/// flag, too.
fn is_listed(file: &Description) -> bool {
    file.page.flags() & libc::O_TMPFILE == libc::O_DIRECTORY
}

/// Whether a descriptor that the process was started with is of a lock of `flock`, and perhaps of an open file that it was not given.
pub(crate) fn is_of_lock(fd: c_int) -> bool {
    rustix::fs::readlinkat(rustix::fs::CWD, link_of(fd), Vec::with_capacity(64)).is_ok_and(|link| {
        let link = link.to_bytes();
        link.starts_with(SHARED.as_bytes()) && link.ends_with(b".f")
    })
}

/// A lock file: of all users in the folder `shared` if root has made that, else of the calling one's in a folder beside it. `ENOLCK` if
/// somebody else has put something in the way.
fn open_file(shared: &str, name: &str) -> rustix::io::Result<OwnedFd> {
    let (folder, mode) = folder(shared).map_err(|_| Errno::NOLCK)?;
    // A FIFO with the name must not make anybody wait.
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    // Not to create what is there: in a shared folder the kernel may refuse that even to root.
    let opened: OwnedFd = rustix::fs::openat(&folder, name, flags, mode)
        .or_else(|_| {
            let made = rustix::fs::openat(&folder, name, flags | OFlags::CREATE, mode)?;
            let _ = rustix::fs::fchmod(&made, mode);
            Ok::<_, Errno>(made)
        })
        .map_err(|_| Errno::NOLCK)?;
    if FileType::from_raw_mode(rustix::fs::fstat(&opened)?.st_mode) != FileType::RegularFile {
        return Err(Errno::NOLCK);
    }
    Ok(opened)
}

/// The folder of lock files, and the mode of files there: root's folder for all users, in which nobody can remove what is
/// another's; without it the user's own. Whatever else has such a name is not believed.
fn folder(shared: &str) -> rustix::io::Result<(OwnedFd, Mode)> {
    if let Ok((folder, stat)) = open_folder(shared)
        && stat.st_uid == 0
        && stat.st_mode & libc::S_ISVTX != 0
    {
        return Ok((folder, Mode::from_raw_mode(0o666)));
    }
    let user = rustix::process::geteuid().as_raw();
    let path = format!("{shared}-{user}");
    match rustix::fs::mkdir(&path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno),
    }
    let (folder, stat) = open_folder(&path)?;
    if stat.st_uid != user || stat.st_mode & 0o022 != 0 {
        tracing::error!("{path}: expected a folder of user {user} that only this user can write to");
        return Err(Errno::PERM);
    }
    Ok((folder, Mode::RUSR | Mode::WUSR))
}

fn open_folder(path: &str) -> rustix::io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&folder)?;
    Ok((folder, stat))
}

fn posix_lock(file: &Description) -> Result<c_int> {
    let mut posix = file.locks.posix.lock().unwrap_or_else(PoisonError::into_inner);
    if posix.is_none() {
        *posix = Some(keep(open(file, "p")?)?);
    }
    Ok(posix.as_ref().map_or(-1, |kept| kept.as_fd().as_raw_fd()))
}

/// `fcntl` with `F_GETLK`, `F_SETLK` or `F_SETLKW`, of bytes from the file's begin on.
pub(crate) fn control_here(file: &Description, command: c_int, lock: &mut libc::flock) -> Result<()> {
    let fd = posix_lock(file)?;
    // SAFETY: our descriptor, and a lock of our own. By the system call, as `fcntl` is stood in for.
    let result = unsafe { libc::syscall(libc::SYS_fcntl, fd, command, ptr::from_mut(lock)) };
    if result < 0 { Err(std::io::Error::last_os_error().into()) } else { Ok(()) }
}

/// A descriptor of the file is being closed: its POSIX locks end, as those of any file do.
pub(crate) fn closed_here(file: &Description) {
    file.locks.posix.lock().unwrap_or_else(PoisonError::into_inner).take();
}

fn lock_whole(file: &Description, operation: c_int) -> Result<c_int> {
    if file.has(libc::O_PATH) {
        return Err(Errno::BADF.into());
    }
    let blocks = operation & libc::LOCK_NB == 0;
    let operation = match (operation & !libc::LOCK_NB, blocks) {
        (libc::LOCK_SH, true) => FlockOperation::LockShared,
        (libc::LOCK_SH, false) => FlockOperation::NonBlockingLockShared,
        (libc::LOCK_EX, true) => FlockOperation::LockExclusive,
        (libc::LOCK_EX, false) => FlockOperation::NonBlockingLockExclusive,
        (libc::LOCK_UN, _) => FlockOperation::Unlock,
        _ => return Err(Errno::INVAL.into()),
    };
    let fd = {
        let mut whole = file.locks.whole();
        if let Whole::Unmade = *whole {
            *whole = Whole::Made { fd: make_whole(file)?, ahead: false };
        }
        match &*whole {
            Whole::Made { fd, .. } => fd.as_raw_fd(),
            _ => return Err(Errno::NOLCK.into()),
        }
    };
    Ok(rustix::fs::flock(borrow(fd)?, operation).map(|()| 0)?)
}

interpose! {
    fn flock[real](fd: c_int, operation: c_int) -> c_int {
        match table::find(fd) {
            None => real(fd, operation),
            Some(file) => answer(|| lock_whole(&file, operation)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    use super::*;

    /// The folder for all users, and the calling user's own, in one where anybody may make them first.
    fn place() -> (tempfile::TempDir, String, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("locks").to_str().unwrap().to_owned();
        let own = PathBuf::from(format!("{shared}-{}", rustix::process::geteuid().as_raw()));
        (dir, shared, own)
    }

    fn set_mode(path: &std::path::Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn what_others_have_put_in_the_way_is_not_believed() {
        let (dir, shared, own) = place();
        let theirs = dir.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        // In place of the folder for all users: a link, and a folder that anybody may remove from.
        symlink(&theirs, &shared).unwrap();
        open_file(&shared, "1").unwrap();
        fs::remove_file(&shared).unwrap();
        fs::create_dir(&shared).unwrap();
        set_mode(shared.as_ref(), 0o777);
        open_file(&shared, "1").unwrap();
        assert!(own.join("1").exists() && fs::read_dir(&shared).unwrap().next().is_none());
        assert!(fs::read_dir(&theirs).unwrap().next().is_none());
        // In place of the user's own: a folder that others may write to, one of another's, and a link.
        set_mode(&own, 0o777);
        assert_eq!(open_file(&shared, "1").unwrap_err(), Errno::NOLCK);
        set_mode(&own, 0o700);
        if rustix::process::geteuid().is_root() {
            chown(&own, Some(61_234), None).unwrap();
            assert_eq!(open_file(&shared, "1").unwrap_err(), Errno::NOLCK);
        }
        fs::remove_dir_all(&own).unwrap();
        symlink(&theirs, &own).unwrap();
        assert_eq!(open_file(&shared, "1").unwrap_err(), Errno::NOLCK);
    }

    #[test]
    fn a_lock_file_is_a_plain_file() {
        let (_dir, shared, own) = place();
        let file = open_file(&shared, "1").unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_ino, own.join("1").metadata().unwrap().ino());
        symlink(own.join("1"), own.join("link")).unwrap();
        // Nobody has it open: opening it for reading and writing does not wait, and is no lock.
        rustix::fs::mknodat(rustix::fs::CWD, own.join("fifo"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        for name in ["link", "fifo"] {
            assert_eq!(open_file(&shared, name).unwrap_err(), Errno::NOLCK, "{name}");
        }
    }
}
