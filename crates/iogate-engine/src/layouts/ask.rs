//! Extended attributes and ioctls.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::io::Errno;

use super::LayoutError;

/// The most that the kernel lets an extended attribute have.
const VALUE_BYTES_MAX: usize = 65_536;
const VALUE_BYTES_USUAL: usize = 4096;

/// An extended attribute of an open file; `None` if the file or its file system does not have it.
pub(super) fn attribute(fd: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, LayoutError> {
    value(name, |buffer| rustix::fs::fgetxattr(fd, name, buffer))
}

/// The same of the file at a path; `None` also if there is no file.
pub(super) fn attribute_at(path: &Path, name: &str) -> Result<Option<Vec<u8>>, LayoutError> {
    match value(name, |buffer| rustix::fs::lgetxattr(path, name, buffer)) {
        Err(LayoutError::Asking { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        other => other,
    }
}

fn value(
    name: &str,
    ask: impl Fn(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Option<Vec<u8>>, LayoutError> {
    for room in [VALUE_BYTES_USUAL, VALUE_BYTES_MAX] {
        let mut value = vec![0; room];
        match ask(&mut value) {
            Ok(size) => {
                value.truncate(size);
                return Ok(Some(value));
            }
            Err(Errno::RANGE) => {}
            Err(Errno::NODATA | Errno::NOTSUP) => return Ok(None),
            Err(errno) => {
                return Err(LayoutError::Asking {
                    what: format!("the attribute {name}"),
                    cause: errno.into(),
                });
            }
        }
    }
    Err(LayoutError::Asking { what: format!("the attribute {name}"), cause: Errno::RANGE.into() })
}

/// An ioctl that reads and fills a record.
pub(super) fn ioctl<const N: usize>(
    fd: BorrowedFd<'_>,
    request: u32,
    record: &mut [u8; N],
    what: &str,
) -> Result<(), LayoutError> {
    debug_assert_eq!((request >> 16 & 0x3fff) as usize, N, "the size is part of the request's number");
    // SAFETY: the request's number says how long its record is, and this one is as long.
    match unsafe { libc::ioctl(fd.as_raw_fd(), libc::Ioctl::from(request), record.as_mut_ptr()) } {
        -1 => Err(LayoutError::Asking { what: what.into(), cause: io::Error::last_os_error() }),
        _ => Ok(()),
    }
}
