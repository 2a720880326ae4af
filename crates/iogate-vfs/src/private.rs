//! The folder of an export that is the server's own: clients neither see nor reach it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use iogate_core::reserved;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Its name, in the root of the export.
pub(crate) const NAME: &str = ".iogate";
/// The folder for files that are open and have no name.
pub(crate) const ORPHANS: &str = "orphans";
/// The folder for files that have no other name, until their objects are removed. Each has the name of its objects.
pub(crate) const REMOVED: &str = "removed";
/// From which processes of a server clients may hold locks: their numbers.
pub(crate) const LOCKED: &str = "locked";

/// Whether a path below the export's root is the folder, or leads into it.
pub(crate) fn contains(path: &Path) -> bool {
    reserved::is_path(path.as_os_str().as_bytes())
}

/// Opens a folder in it, and makes both where they are missing; only for the process's own user.
pub(crate) fn folder(root: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let own = make_and_open(root, NAME)?;
    make_and_open(own.as_fd(), name)
}

/// Sets what a file in it says, durably; `None`: there is no such file.
pub(crate) fn set_file(root: BorrowedFd<'_>, name: &str, content: Option<&[u8]>) -> Result<(), Errno> {
    set_file_in(make_and_open(root, NAME)?.as_fd(), name, content)?;
    // The folder itself may be new. What the root is held by cannot be synced.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::openat(root, ".", flags, Mode::empty())?)
}

/// The same of a file in a folder.
pub(crate) fn set_file_in(own: BorrowedFd<'_>, name: &str, content: Option<&[u8]>) -> Result<(), Errno> {
    match content {
        None => match rustix::fs::unlinkat(own, name, rustix::fs::AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        },
        Some(content) => {
            let new = format!("{name}.{}", std::process::id());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(own, &new, flags, Mode::RUSR | Mode::WUSR)?;
            let set = match rustix::io::write(&file, content) {
                Ok(count) if count < content.len() => Err(Errno::NOSPC),
                written => written.and_then(|_| rustix::fs::fsync(&file)),
            };
            if let Err(errno) = set.and_then(|()| rustix::fs::renameat(own, &new, own, name)) {
                let _ = rustix::fs::unlinkat(own, &new, rustix::fs::AtFlags::empty());
                return Err(errno);
            }
        }
    }
    rustix::fs::fsync(own)
}

/// What a file in it says, if there is one.
pub(crate) fn file(root: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    file_in(root, &format!("{NAME}/{name}"))
}

/// What a file in a folder says, if there is one.
pub(crate) fn file_in(folder: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        file => file?,
    };
    let mut content = Vec::new();
    match std::io::Read::read_to_end(&mut std::fs::File::from(file), &mut content) {
        Ok(_) => Ok(Some(content)),
        Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
    }
}

/// Opens it, and makes it where it is missing.
pub(crate) fn own_folder(root: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    make_and_open(root, NAME)
}

/// A secret that is kept in it, made when it is first needed.
pub(crate) fn secret(root: BorrowedFd<'_>, name: &str) -> Result<[u8; 16], Errno> {
    let own = make_and_open(root, NAME)?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..2 {
        match rustix::fs::openat(&own, name, flags, Mode::empty()) {
            Ok(file) => {
                let mut secret = [0; 16];
                let count = rustix::io::read(&file, &mut secret[..])?;
                return if count == secret.len() { Ok(secret) } else { Err(Errno::IO) };
            }
            Err(Errno::NOENT) => make_secret(&own, name)?,
            Err(errno) => return Err(errno),
        }
    }
    Err(Errno::NOENT)
}

/// Bytes that nobody can guess.
pub(crate) fn random() -> Result<[u8; 16], Errno> {
    let mut bytes = [0; 16];
    rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    Ok(bytes)
}

/// Nobody sees it before it is whole and durable; another process may be first.
fn make_secret(own: &OwnedFd, name: &str) -> Result<(), Errno> {
    let secret = random()?;
    let new = format!("{name}.{}", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(own, &new, flags, Mode::RUSR | Mode::WUSR)?;
    let made = rustix::io::write(&file, &secret)
        .and_then(|_| rustix::fs::fsync(&file))
        .and_then(|()| rustix::fs::linkat(own, &new, own, name, rustix::fs::AtFlags::empty()));
    let _ = rustix::fs::unlinkat(own, &new, rustix::fs::AtFlags::empty());
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => made.and_then(|()| rustix::fs::fsync(own)),
    }
}

fn make_and_open(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => rustix::fs::openat(dir, name, flags, Mode::empty()),
            Err(errno) => Err(errno),
        },
        opened => opened,
    }
}
