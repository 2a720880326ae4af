//! Reading directories, whatever their size: the source's own entries and positions are handed on.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;

use rustix::fs::SeekFrom;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::FileSystem;
use super::inode::HeldInode;
use crate::abi::{Dirent, EntryOut, InHeader, OpenOut, ReadIn};
use crate::operations::Directories;

const BUFFER_BYTES: usize = 64 << 10;

/// An open directory.
#[derive(Debug)]
pub(crate) struct OpenDir {
    pub(crate) stream: Mutex<DirStream>,
}

/// A directory's entries from a position on.
#[derive(Debug)]
pub(crate) struct DirStream {
    pub(crate) fd: OwnedFd,
    /// Linux's `struct linux_dirent64` records.
    buffer: Box<[u64]>,
    start: usize,
    end: usize,
    /// The position of the entry at `start`.
    position: u64,
}

/// One record of a directory.
struct Entry<'a> {
    ino: u64,
    /// The position after it.
    next: u64,
    kind: u8,
    name: &'a CStr,
    record_bytes: usize,
}

impl DirStream {
    pub(crate) fn new(fd: OwnedFd) -> DirStream {
        DirStream { fd, buffer: vec![0; BUFFER_BYTES / 8].into(), start: 0, end: 0, position: 0 }
    }

    fn seek(&mut self, position: u64) -> Result<(), Errno> {
        if position != self.position {
            rustix::fs::seek(&self.fd, SeekFrom::Start(position))?;
            (self.start, self.end, self.position) = (0, 0, position);
        } else if position == 0 && self.start == self.end {
            // From the beginning again: see what has changed.
            rustix::fs::seek(&self.fd, SeekFrom::Start(0))?;
        }
        Ok(())
    }

    /// The entry at the position, without moving on; `None` at the end.
    fn peek(&mut self) -> Result<Option<Entry<'_>>, Errno> {
        if self.start == self.end {
            // SAFETY: the kernel writes at most `BUFFER_BYTES` bytes to the buffer, which has as many.
            let read = unsafe {
                libc::syscall(
                    libc::SYS_getdents64,
                    self.fd.as_raw_fd(),
                    self.buffer.as_mut_ptr(),
                    BUFFER_BYTES as libc::c_uint,
                )
            };
            if read < 0 {
                return Err(super::last_errno());
            }
            (self.start, self.end) = (0, read as usize);
            if read == 0 {
                return Ok(None);
            }
        }
        let record = &self.buffer.as_bytes()[self.start..self.end];
        let malformed = Errno::IO;
        let (ino, rest) = record.split_first_chunk::<8>().ok_or(malformed)?;
        let (next, rest) = rest.split_first_chunk::<8>().ok_or(malformed)?;
        let (record_bytes, rest) = rest.split_first_chunk::<2>().ok_or(malformed)?;
        let (&kind, name) = rest.split_first().ok_or(malformed)?;
        Ok(Some(Entry {
            ino: u64::from_ne_bytes(*ino),
            next: u64::from_ne_bytes(*next),
            kind,
            name: CStr::from_bytes_until_nul(name).map_err(|_| malformed)?,
            record_bytes: u16::from_ne_bytes(*record_bytes).into(),
        }))
    }

    fn advance(&mut self, record_bytes: usize, next: u64) {
        self.start = (self.start + record_bytes).min(self.end);
        self.position = next;
    }
}

impl Directories for FileSystem {
    fn opendir(&self, header: &InHeader) -> Result<OpenOut, Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let fd = super::open_again(&inode, libc::O_RDONLY | libc::O_DIRECTORY)?;
        let fh = self.dirs.insert(OpenDir { stream: DirStream::new(fd).into() });
        Ok(OpenOut { fh, open_flags: 0, padding: 0 })
    }

    fn releasedir(&self, handle: u64) -> Result<(), Errno> {
        self.dirs.remove(handle).map(drop)
    }

    fn fsyncdir(&self, _: &InHeader, handle: u64, data_only: bool) -> Result<(), Errno> {
        let dir = self.dirs.get(handle)?;
        let stream = dir.stream.lock().expect("no directory operation panics");
        if data_only { rustix::fs::fdatasync(&stream.fd) } else { rustix::fs::fsync(&stream.fd) }
    }

    fn readdir(&self, header: &InHeader, arg: ReadIn, plus: bool, out: &mut Vec<u8>) -> Result<(), Errno> {
        let dir = self.dirs.get(arg.fh)?;
        let parent = self.inodes.get(header.nodeid)?;
        let mut stream = dir.stream.lock().expect("no directory operation panics");
        stream.seek(arg.offset)?;
        let begin = out.len();
        let limit = begin + (arg.size as usize).min(self.request_bytes_max as usize);
        loop {
            let entry = match stream.peek() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                // What was read so far counts; the error comes again with the next call.
                Err(_) if out.len() > begin => break,
                Err(errno) => return Err(errno),
            };
            let name = entry.name.to_bytes();
            let fixed = size_of::<Dirent>() + if plus { size_of::<EntryOut>() } else { 0 };
            let padded = (fixed + name.len()).next_multiple_of(8);
            if out.len() + padded > limit {
                if out.len() == begin {
                    return Err(Errno::INVAL);
                }
                break;
            }
            let end = out.len() + padded;
            if plus {
                out.extend_from_slice(self.entry_plus(&parent, entry.name).as_bytes());
            }
            let dirent = Dirent {
                ino: entry.ino,
                off: entry.next,
                namelen: name.len() as u32,
                kind: entry.kind.into(),
            };
            out.extend_from_slice(dirent.as_bytes());
            out.extend_from_slice(name);
            out.resize(end, 0);
            let (record_bytes, next) = (entry.record_bytes, entry.next);
            stream.advance(record_bytes, next);
        }
        Ok(())
    }
}

impl FileSystem {
    /// The attributes that go with a directory entry; none (node id 0) for `.` and `..` and for what is gone by now.
    fn entry_plus(&self, parent: &HeldInode, name: &CStr) -> EntryOut {
        if matches!(name.to_bytes(), b"." | b"..") {
            return EntryOut::default();
        }
        self.look_up(parent, name).unwrap_or_default()
    }
}
