//! `preadv` and `pwritev` on a dispatch's memory, with short counts resolved.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use iogate_core::Op;

use super::Segment;

/// `IOV_MAX` of Linux: the most segments that one call takes.
pub(super) const SEGMENTS_MAX: usize = 1024;

/// Carries a contiguous range out with as few calls as possible: one, unless it has more than [`SEGMENTS_MAX`]
/// segments or a call falls short.
///
/// A short read means the end of the file; a read that fails is an error even if bytes came before. A write that
/// fails after some bytes reports those bytes. Direct I/O goes on at multiples of `align` only: a count that is not
/// one was cut off by the end of the file. Otherwise it is 1.
///
/// # Safety
/// The segments must be valid memory that nobody else uses meanwhile (writable, for [`Op::Read`]).
pub(super) unsafe fn transfer(
    fd: BorrowedFd<'_>,
    op: Op,
    offset: u64,
    mut segments: &[Segment],
    align: u64,
) -> io::Result<u64> {
    let mut done = 0u64;
    // What of the first segment is transferred already.
    let mut within = 0;
    while let Some(first) = segments.first() {
        let at = offset.saturating_add(done);
        // SAFETY: as promised by the caller.
        let result = unsafe {
            if within == 0 {
                call(fd, op, at, &segments[..segments.len().min(SEGMENTS_MAX)], 0)
            } else {
                let rest = Segment { memory: first.memory.add(within), bytes: first.bytes - within };
                call(fd, op, at, &[rest], 0)
            }
        };
        match result {
            Ok(0) => break,
            Ok(count) => {
                done += count as u64;
                if !(count as u64).is_multiple_of(align) {
                    break;
                }
                within += count;
                while let Some(first) = segments.first()
                    && within >= first.bytes
                {
                    within -= first.bytes;
                    segments = &segments[1..];
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) if op == Op::Write && done > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// One call of at most [`SEGMENTS_MAX`] segments; one segment without flags takes none that is vectored, which costs less.
///
/// # Safety
/// As [`transfer`].
pub(super) unsafe fn call(
    fd: BorrowedFd<'_>,
    op: Op,
    offset: u64,
    segments: &[Segment],
    flags: libc::c_int,
) -> io::Result<usize> {
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // `Segment` has the layout of `iovec`.
    let (vector, count) = (segments.as_ptr().cast::<libc::iovec>(), segments.len() as libc::c_int);
    // SAFETY: the vector is valid for this call, and so is the memory that it names, as promised by the caller.
    let result = unsafe {
        match (op, segments) {
            (Op::Read, [one]) if flags == 0 => {
                libc::pread(fd.as_raw_fd(), one.memory.cast(), one.bytes, offset)
            }
            (Op::Write, [one]) => libc::pwrite(fd.as_raw_fd(), one.memory.cast(), one.bytes, offset),
            (Op::Read, _) if flags == 0 => libc::preadv(fd.as_raw_fd(), vector, count, offset),
            (Op::Read, _) => libc::preadv2(fd.as_raw_fd(), vector, count, offset, flags),
            (Op::Write, _) => libc::pwritev(fd.as_raw_fd(), vector, count, offset),
        }
    };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
