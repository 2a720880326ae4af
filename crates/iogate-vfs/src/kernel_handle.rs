//! Handles of the kernel's: what finds a file again without its name, also after a restart of the process or of the machine.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Most bytes of a handle, in Linux.
const BYTES_MAX: usize = 128;
/// How often, and after which rest, a handle is looked up while its number is being given to a new file: Linux then says that it has no
/// memory. That takes microseconds, unless who makes the file waits for the journal.
const TRIES: usize = 1000;
const REST: Duration = Duration::from_millis(1);

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
/// more, or a file without a name as long as somebody else has it. Takes `CAP_DAC_READ_SEARCH`.
pub fn hold(mount: BorrowedFd<'_>, kind: i32, handle: &[u8]) -> io::Result<OwnedFd> {
    let mut raw = Raw { bytes: handle.len() as u32, kind, handle: [0; BYTES_MAX] };
    let room = raw.handle.get_mut(..handle.len()).ok_or(io::ErrorKind::InvalidInput)?;
    room.copy_from_slice(handle);
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let mut tries = 0;
    loop {
        // SAFETY: the structure is laid out as the system's, and says how much there is.
        let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut raw).cast(), flags) };
        if fd >= 0 {
            // SAFETY: the descriptor is new, and nobody else has it.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        tries += 1;
        if error.raw_os_error() != Some(libc::ENOMEM) || tries == TRIES {
            return Err(error);
        }
        match tries {
            ..10 => std::thread::yield_now(),
            _ => std::thread::sleep(REST),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{OpenOptionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_that_is_gone_is_stale_also_while_its_number_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let mount = File::open(folder.path()).unwrap();
        let gone = |name: &str| {
            let path = folder.path().join(name);
            symlink("anywhere", &path).unwrap();
            let link = File::options().read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(&path);
            let handle = handle_of(link.unwrap(), |kind, bytes| (kind, bytes.to_vec()));
            std::fs::remove_file(path).unwrap();
            let held = handle.and_then(|(kind, bytes)| hold(mount.as_fd(), kind, &bytes));
            match held.map_err(|error| error.raw_os_error()) {
                // Another thread looks at the number at the same moment.
                Ok(fd) => assert_eq!(rustix::fs::fstat(fd).unwrap().st_nlink, 0),
                Err(errno) => return errno,
            }
            Some(libc::ESTALE)
        };
        if matches!(gone("first"), Some(libc::EPERM | libc::EOPNOTSUPP)) {
            return eprintln!("skipped: not root, or no handles here");
        }
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let gone = &gone;
                scope.spawn(move || {
                    for _ in 0..1_000 {
                        assert_eq!(gone(&thread.to_string()), Some(libc::ESTALE));
                    }
                });
            }
        });
    }
}
