//! The file of a log of answers: locked, and with some room kept behind its end. What is written to it, and when, the core decides.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use iogate_core::medium::Medium;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::LogFile;

/// Room that is kept behind the end, so that files can be removed when the file system is full.
const RESERVE_BYTES: u64 = 256 << 10;
/// How long a log may be held by a process that ends.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(10) };
/// How often to look whether it is free.
const LOOK: Duration = Duration::from_millis(20);

/// The file, locked: the only one on its medium, whatever it is called there.
pub(super) struct File {
    fd: OwnedFd,
    path: PathBuf,
    boot: String,
    /// What is written is durable before it counts.
    sync: bool,
    /// Up to here there is room.
    reserved: u64,
}

impl File {
    /// Locks the file, which is made if it is not there.
    pub(super) fn open(path: &Path, sync: bool) -> io::Result<File> {
        if let Some(folder) = path.parent() {
            own_folder(folder)?;
        }
        let (fd, path) = (locked(path)?, path.to_path_buf());
        let boot = crate::boot_id()?;
        Ok(File { fd, path, boot, sync, reserved: 0 })
    }

    /// The log's, before anything of this process.
    fn begin(&mut self) -> io::Result<Vec<u8>> {
        let bytes = read_all(&self.fd)?;
        if self.sync {
            // What the process before did not get to make durable is answered from now on.
            rustix::fs::fsync(&self.fd)?;
            sync_folder(&self.path)?;
        }
        Ok(bytes)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut name = OsString::from(self.path.as_os_str());
        name.push(".new");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&name, flags, Mode::from_raw_mode(0o600))?;
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
        write_all(fd.as_fd(), bytes, 0)?;
        if self.sync {
            rustix::fs::fdatasync(&fd)?;
        }
        rustix::fs::rename(&name, &self.path)?;
        (self.fd, self.reserved) = (fd, 0);
        Ok(())
    }
}

impl LogFile for File {
    fn path(&self) -> &Path {
        &self.path
    }

    /// Without any room, or where it cannot be kept, it is asked for again after as many bytes.
    fn reserve(&mut self, end: u64) {
        let _ = rustix::fs::fallocate(&self.fd, FallocateFlags::KEEP_SIZE, end, RESERVE_BYTES);
        self.reserved = end + RESERVE_BYTES;
    }
}

impl Medium for File {
    type Error = io::Error;

    fn boot(&self) -> &str {
        &self.boot
    }

    fn read(&mut self, _: &str) -> io::Result<Option<Vec<u8>>> {
        self.begin().map(Some)
    }

    fn replace(&mut self, _: &str, bytes: &[u8]) -> io::Result<io::Result<()>> {
        self.put(bytes)?;
        Ok(if self.sync { sync_folder(&self.path) } else { Ok(()) })
    }

    fn append(&mut self, _: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        write_all(self.fd.as_fd(), bytes, at)?;
        if self.sync {
            rustix::fs::fdatasync(&self.fd)?;
        }
        let end = at + bytes.len() as u64;
        if end + RESERVE_BYTES / 2 > self.reserved {
            self.reserve(end);
        }
        Ok(())
    }

    /// Gives back the room behind the end, too.
    fn cut(&mut self, _: &str, bytes: u64) -> io::Result<()> {
        rustix::fs::ftruncate(&self.fd, bytes)?;
        self.reserved = 0;
        Ok(())
    }
}

fn refused(path: &Path, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {what}", path.display()))
}

/// Sees to it that there is a folder that only this user can look into.
fn own_folder(folder: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(folder, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let found = rustix::fs::statat(CWD, folder, AtFlags::SYMLINK_NOFOLLOW)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Directory {
        return Err(refused(folder, "expected a folder"));
    }
    if found.st_uid != rustix::process::geteuid().as_raw() {
        return Err(refused(folder, "expected a folder of the server's own user"));
    }
    if found.st_mode & 0o077 != 0 {
        rustix::fs::chmod(folder, Mode::RWXU)?;
    }
    Ok(())
}

/// Opens the file and locks it: the one that has the name then, not one that was replaced meanwhile.
fn locked(path: &Path) -> io::Result<OwnedFd> {
    let until = Instant::now() + PATIENCE;
    loop {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::open(path, flags, Mode::from_raw_mode(0o600))?;
        let found = rustix::fs::fstat(&fd)?;
        if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile
            || found.st_uid != rustix::process::geteuid().as_raw()
        {
            return Err(refused(path, "expected a file of the server's own user"));
        }
        match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let named = rustix::fs::stat(path)?;
                if (named.st_dev, named.st_ino) == (found.st_dev, found.st_ino) {
                    return Ok(fd);
                }
            }
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(LOOK),
            Err(Errno::WOULDBLOCK) => {
                let text = format!("{}: another server uses this log of answers", path.display());
                return Err(io::Error::new(io::ErrorKind::WouldBlock, text));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn read_all(fd: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; rustix::fs::fstat(fd)?.st_size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::pread(fd, &mut bytes[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn write_all(fd: std::os::fd::BorrowedFd<'_>, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(fd, bytes, at) {
            Ok(0) => return Err(Errno::NOSPC.into()),
            Ok(count) => {
                bytes = &bytes[count..];
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let Some(folder) = path.parent() else { return Ok(()) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::fsync(rustix::fs::open(folder, flags, Mode::empty())?)?)
}

/// What a boot of the machine is known by in a log.
pub(super) fn boot_number(text: &str) -> io::Result<[u8; 16]> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        let digit = |at: usize| char::from(pair[at]).to_digit(16).unwrap_or(0) as u8;
        *byte = digit(0) << 4 | digit(1);
    }
    if id == [0; 16] {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel has no boot id"));
    }
    Ok(id)
}
