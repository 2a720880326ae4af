//! Handles of the kernel's: what finds a file again without its name, also after a restart of the process or of the machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Most bytes of a handle, in Linux.
const BYTES_MAX: usize = 128;

/// The handle and what it leads to, as the kernel wants it: the system's structure, with room behind it.
#[repr(C)]
struct Raw {
    bytes: u32,
    kind: i32,
    handle: [u8; BYTES_MAX],
}

/// Calls `take` with the type and the bytes of the handle of what a descriptor holds. Fails with `EOPNOTSUPP` where a file system has none.
pub fn handle_of<R>(held: impl AsFd, take: impl FnOnce(i32, &[u8]) -> R) -> io::Result<R> {
    let mut raw = Raw { bytes: BYTES_MAX as u32, kind: 0, handle: [0; BYTES_MAX] };
    let mut mount_id = 0;
    let fd = held.as_fd().as_raw_fd();
    let handle = (&raw mut raw).cast();
    // SAFETY: the structure is laid out as the system's, and says how much room there is.
    let result =
        unsafe { libc::name_to_handle_at(fd, c"".as_ptr(), handle, &mut mount_id, libc::AT_EMPTY_PATH) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(take(raw.kind, &raw.handle[..BYTES_MAX.min(raw.bytes as usize)]))
}

/// Holds (`O_PATH`) what a handle leads to on the file system of `mount`, which must be open for reading. `ESTALE` if it is not there any
/// more. Takes `CAP_DAC_READ_SEARCH`.
pub fn hold(mount: BorrowedFd<'_>, kind: i32, handle: &[u8]) -> io::Result<OwnedFd> {
    let mut raw = Raw { bytes: handle.len() as u32, kind, handle: [0; BYTES_MAX] };
    let room = raw.handle.get_mut(..handle.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(handle);
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the structure is laid out as the system's, and says how much there is.
    let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut raw).cast(), flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
