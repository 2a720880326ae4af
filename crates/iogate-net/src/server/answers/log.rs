//! The file of a log.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use iogate_core::answers::{HEADER_BYTES, Header, Note};
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// A log below this is not made smaller.
const SHRINK_BYTES: u64 = 4 << 20;
/// Room that is kept behind the end, so that files can be removed when the file system is full.
const RESERVE_BYTES: u64 = 256 << 10;
/// How long a log may be held by a process that ends.
const PATIENCE: Duration = if cfg!(test) { Duration::from_millis(100) } else { Duration::from_secs(10) };
/// How often to look whether it is free.
const LOOK: Duration = Duration::from_millis(20);

/// Notes that are written together.
#[derive(Default)]
pub(super) struct Batch {
    result: OnceLock<Result<(), i32>>,
}

impl Batch {
    /// What became of it, if that is known.
    pub(super) fn result(&self) -> Option<io::Result<()>> {
        self.result.get().map(|result| result.map_err(io::Error::from_raw_os_error))
    }

    pub(super) fn settle(&self, result: &io::Result<()>) {
        let errno = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EIO);
        let _ = self.result.set(result.as_ref().copied().map_err(errno));
    }
}

/// The file, locked. One thread at a time writes.
pub(super) struct File {
    fd: OwnedFd,
    path: PathBuf,
    header: Header,
    /// Behind the last whole note.
    end: AtomicU64,
    /// Up to here there is room.
    reserved: AtomicU64,
    /// It is not made smaller before it is this long.
    shrink_at: AtomicU64,
}

impl File {
    /// Opens the log, gives each of its notes to `each`, and cuts off a torn end. Returns it with its number.
    pub(super) fn open(path: &Path, sync: bool, mut each: impl FnMut(&Note<'_>)) -> io::Result<(File, u64)> {
        if let Some(folder) = path.parent() {
            own_folder(folder)?;
        }
        let fd = locked(path)?;
        // A log that is synced does not depend on the boot.
        let boot = if sync { [0; 16] } else { boot_id()? };
        let bytes = read_all(&fd)?;
        let header = Header::from_bytes(&bytes).filter(|header| header.boot == boot);
        let mut file = File {
            fd,
            path: path.to_path_buf(),
            header: Header { id: [0; 16], boot },
            end: AtomicU64::new(HEADER_BYTES as u64),
            reserved: AtomicU64::new(0),
            shrink_at: AtomicU64::new(SHRINK_BYTES),
        };
        if let Some(header) = header {
            file.header = header;
            let mut rest = &bytes[HEADER_BYTES..];
            while let Some((note, behind)) = Note::split_from(rest) {
                each(&note);
                rest = behind;
            }
            *file.end.get_mut() = (bytes.len() - rest.len()) as u64;
        } else {
            crate::server::random(&mut file.header.id)?;
            rustix::fs::ftruncate(&file.fd, 0)?;
            write_all(file.fd.as_fd(), &file.header.to_bytes(), 0)?;
        }
        let end = *file.end.get_mut();
        // Even to the size that it has, this would give back the room behind it.
        if rustix::fs::fstat(&file.fd)?.st_size as u64 != end {
            rustix::fs::ftruncate(&file.fd, end)?;
        }
        file.reserve(end);
        if sync {
            rustix::fs::fsync(&file.fd)?;
            sync_folder(path)?;
        }
        let part = |bytes: &[u8; 16]| bytes.first_chunk().map_or(0, |half| u64::from_le_bytes(*half));
        let number = (part(&file.header.id) ^ part(&boot).rotate_left(32)).max(1);
        Ok((file, number))
    }

    /// Writes notes behind the others; all of them, or none.
    pub(super) fn append(&self, bytes: &[u8], sync: bool) -> io::Result<()> {
        let end = self.end.load(Ordering::Relaxed);
        let behind = end + bytes.len() as u64;
        let written = write_all(self.fd.as_fd(), bytes, end)
            .and_then(|()| if sync { Ok(rustix::fs::fdatasync(&self.fd)?) } else { Ok(()) });
        if let Err(error) = written {
            // What was written of them must not be found later behind shorter ones.
            let _ = rustix::fs::ftruncate(&self.fd, end);
            self.reserved.store(0, Ordering::Relaxed);
            return Err(error);
        }
        self.end.store(behind, Ordering::Relaxed);
        if behind + RESERVE_BYTES / 2 > self.reserved.load(Ordering::Relaxed) {
            self.reserve(behind);
        }
        Ok(())
    }

    /// Keeps room behind the end. Without any, or where it cannot be kept, it is asked for again after as many bytes.
    fn reserve(&self, end: u64) {
        let _ = rustix::fs::fallocate(&self.fd, FallocateFlags::KEEP_SIZE, end, RESERVE_BYTES);
        self.reserved.store(end + RESERVE_BYTES, Ordering::Relaxed);
    }

    /// Whether most of it is of no use, if `live` bytes are.
    pub(super) fn is_worth_shrinking(&self, live: usize) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        end > self.shrink_at.load(Ordering::Relaxed) && end / 4 > live as u64
    }

    /// A file in its place that has these notes only. `None` if that fails: the old one goes on.
    pub(super) fn shrink(&self, notes: &[u8], sync: bool) -> Option<File> {
        match self.replace(notes, sync) {
            Ok(file) => Some(file),
            Err(error) => {
                tracing::warn!(%error, path = %self.path.display(), "a log of answers could not be made smaller");
                let later = self.end.load(Ordering::Relaxed) + SHRINK_BYTES;
                self.shrink_at.store(later, Ordering::Relaxed);
                None
            }
        }
    }

    fn replace(&self, notes: &[u8], sync: bool) -> io::Result<File> {
        let mut name = OsString::from(self.path.as_os_str());
        name.push(".new");
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&name, flags, Mode::from_raw_mode(0o600))?;
        rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive)?;
        write_all(fd.as_fd(), &self.header.to_bytes(), 0)?;
        write_all(fd.as_fd(), notes, HEADER_BYTES as u64)?;
        if sync {
            rustix::fs::fdatasync(&fd)?;
        }
        rustix::fs::rename(&name, &self.path)?;
        if sync && let Err(error) = sync_folder(&self.path) {
            // The new file is the log from here on, whatever a reboot would find.
            tracing::error!(%error, "a folder could not be made durable");
        }
        Ok(File {
            fd,
            path: self.path.clone(),
            header: self.header,
            end: AtomicU64::new((HEADER_BYTES + notes.len()) as u64),
            reserved: AtomicU64::new(0),
            shrink_at: AtomicU64::new(SHRINK_BYTES),
        })
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

/// Changes with each boot of the machine.
fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
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

#[cfg(test)]
impl File {
    /// The log at `path`, which cannot be written.
    pub(super) fn broken(path: &Path) -> File {
        let fd = rustix::fs::open(path, OFlags::RDONLY, Mode::empty()).expect("it is there");
        File {
            fd,
            path: path.to_path_buf(),
            header: Header { id: [0; 16], boot: [0; 16] },
            end: AtomicU64::new(HEADER_BYTES as u64),
            reserved: AtomicU64::new(u64::MAX),
            shrink_at: AtomicU64::new(u64::MAX),
        }
    }
}
