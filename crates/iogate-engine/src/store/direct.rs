//! Direct I/O of a directory store: dispatches of any offset, length and memory, over a file that takes aligned ones.
//!
//! - Aligned dispatches go as they are.
//! - Other reads are widened to whole blocks, read into aligned memory and copied out.
//! - Other writes are cut in three: the whole blocks in the middle go directly (copied to aligned memory first, if
//!   theirs is not), the partial blocks at both ends through the page cache. So no byte outside the request is ever
//!   written, and no file is extended beyond it: with read-modify-write, a write to the rest of the block at the
//!   same time could be lost.
//!
//! A block is at least a page. Thus the page that a buffered end touches is never touched directly at the same
//! time: such a request would overlap it, and a gate keeps overlapping requests apart when one of them writes. In
//! sequence the kernel keeps both views the same: direct I/O flushes and drops cached pages in its range first.

use std::alloc::{self, Layout};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use iogate_core::Op;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use super::{Segment, vectored};

/// Most bytes of aligned memory that a dispatch takes.
const BOUNCE_BYTES_MAX: usize = 1 << 20;

/// A file opened for direct I/O.
#[derive(Debug)]
pub(super) struct DirectFile {
    pub(super) fd: OwnedFd,
    memory_align: u64,
    /// At least a page, and what offsets and lengths must be multiples of.
    pub(super) block: u64,
}

impl DirectFile {
    /// Opens the file behind `fd` again. `None` if its file system has no direct I/O, or if the file's permissions do not let it be opened
    /// again: who has made a file may use it for as long as it is open, also if nobody may open it.
    pub(super) fn reopen(fd: &OwnedFd) -> io::Result<Option<DirectFile>> {
        // SAFETY: takes and returns a number.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
        let (mut memory_align, mut block) = (page, page);
        if stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0 {
            if stat.stx_dio_offset_align == 0 {
                return Ok(None);
            }
            memory_align = u64::from(stat.stx_dio_mem_align).max(1);
            block = page.max(stat.stx_dio_offset_align.into());
        }
        let mode = rustix::fs::fcntl_getfl(fd)? & OFlags::RWMODE;
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
        match rustix::fs::open(path, mode | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => Ok(Some(DirectFile { fd, memory_align, block })),
            Err(Errno::INVAL | Errno::ACCESS | Errno::PERM) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a range in this memory can go as it is.
    pub(super) fn takes(&self, offset: u64, segments: &[Segment]) -> bool {
        offset.is_multiple_of(self.block)
            && segments.iter().all(|segment| {
                (segment.bytes as u64).is_multiple_of(self.block)
                    && (segment.memory as u64).is_multiple_of(self.memory_align)
            })
    }

    /// Carries out a dispatch, whatever its alignment. `buffered` is the same file without direct I/O.
    ///
    /// # Safety
    /// As [`vectored::transfer`].
    pub(super) unsafe fn transfer(
        &self,
        buffered: &OwnedFd,
        op: Op,
        offset: u64,
        segments: &[Segment],
    ) -> io::Result<u64> {
        let bytes = segments.iter().map(|segment| segment.bytes as u64).sum::<u64>();
        let end = offset.checked_add(bytes).ok_or_else(|| io::Error::from_raw_os_error(libc::EFBIG))?;
        // SAFETY: the promise of this function's caller.
        unsafe {
            if self.takes(offset, segments) {
                return vectored::transfer(self.fd.as_fd(), op, offset, segments, self.block);
            }
            if op == Op::Read {
                return self.read(offset, end, segments);
            }
        }
        let middle = offset.next_multiple_of(self.block).min(end);
        let tail = (end - end % self.block).max(middle);
        let mut written = 0;
        for (from, to, whole) in [(offset, middle, false), (middle, tail, true), (tail, end, false)] {
            let part = slice(segments, from - offset, to - from);
            // SAFETY: the parts lie in the segments that this function's caller promised.
            let result = unsafe {
                if part.is_empty() {
                    Ok(0)
                } else if !whole {
                    vectored::transfer(buffered.as_fd(), op, from, &part, 1)
                } else if self.takes(from, &part) {
                    vectored::transfer(self.fd.as_fd(), op, from, &part, self.block)
                } else {
                    self.write_copied(from, to, &part)
                }
            };
            match result {
                Ok(count) => {
                    written += count;
                    if count < to - from {
                        break;
                    }
                }
                Err(_) if written > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(written)
    }

    /// Reads whole blocks around the range and copies out what was asked for.
    ///
    /// # Safety
    /// As [`vectored::transfer`].
    unsafe fn read(&self, offset: u64, end: u64, segments: &[Segment]) -> io::Result<u64> {
        let wide_end = end.checked_next_multiple_of(self.block).unwrap_or(end);
        let mut at = offset - offset % self.block;
        let bounce = Bounce::new(self.block, wide_end - at)?;
        let mut copied = 0;
        while at < wide_end {
            let piece = bounce.segment(wide_end - at);
            // SAFETY: the bounce memory is ours.
            let got = unsafe { vectored::transfer(self.fd.as_fd(), Op::Read, at, &[piece], self.block)? };
            let (from, to) = (offset.max(at), end.min(at + got));
            if from < to {
                let mut memory = piece.memory.wrapping_add((from - at) as usize);
                for segment in slice(segments, from - offset, to - from) {
                    // SAFETY: `to - from` bytes lie in the bounce memory, and the segments were promised.
                    unsafe { segment.memory.copy_from_nonoverlapping(memory, segment.bytes) };
                    memory = memory.wrapping_add(segment.bytes);
                }
                copied = to - offset;
            }
            if got < piece.bytes as u64 {
                break;
            }
            at += got;
        }
        Ok(copied)
    }

    /// Writes whole blocks from memory that is not aligned.
    ///
    /// # Safety
    /// As [`vectored::transfer`].
    unsafe fn write_copied(&self, offset: u64, end: u64, segments: &[Segment]) -> io::Result<u64> {
        let bounce = Bounce::new(self.block, end - offset)?;
        let mut at = offset;
        while at < end {
            let piece = bounce.segment(end - at);
            let mut memory = piece.memory;
            for segment in slice(segments, at - offset, piece.bytes as u64) {
                // SAFETY: the piece has room for what is sliced, and the segments were promised.
                unsafe { memory.copy_from_nonoverlapping(segment.memory, segment.bytes) };
                memory = memory.wrapping_add(segment.bytes);
            }
            // SAFETY: the bounce memory is ours.
            let result = unsafe { vectored::transfer(self.fd.as_fd(), Op::Write, at, &[piece], self.block) };
            match result {
                Ok(count) => {
                    at += count;
                    if count < piece.bytes as u64 {
                        break;
                    }
                }
                Err(_) if at > offset => break,
                Err(error) => return Err(error),
            }
        }
        Ok(at - offset)
    }
}

/// `bytes` bytes from byte `skip` on.
fn slice(segments: &[Segment], skip: u64, bytes: u64) -> Vec<Segment> {
    let (mut skip, mut left) = (skip as usize, bytes as usize);
    let mut part = Vec::new();
    for segment in segments {
        let from = skip.min(segment.bytes);
        skip -= from;
        let count = (segment.bytes - from).min(left);
        left -= count;
        if count > 0 {
            part.push(Segment { memory: segment.memory.wrapping_add(from), bytes: count });
        }
    }
    part
}

/// Aligned memory.
struct Bounce {
    memory: *mut u8,
    layout: Layout,
}

impl Bounce {
    fn new(align: u64, bytes: u64) -> io::Result<Bounce> {
        let out_of_memory = || io::Error::from_raw_os_error(libc::ENOMEM);
        let bytes = (bytes.min(BOUNCE_BYTES_MAX as u64)).next_multiple_of(align) as usize;
        let layout = Layout::from_size_align(bytes.max(1), align as usize).map_err(|_| out_of_memory())?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc::alloc(layout) };
        if memory.is_null() { Err(out_of_memory()) } else { Ok(Bounce { memory, layout }) }
    }

    /// As much of it as `left` bytes need.
    fn segment(&self, left: u64) -> Segment {
        Segment { memory: self.memory, bytes: self.layout.size().min(left as usize) }
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { alloc::dealloc(self.memory, self.layout) };
    }
}
