//! Mapping files.
//!
//! The kernel cannot map a file of ours. A mapping that is never written back is a copy: memory into which the file is read
//! at once. It does not see later changes. Any other mapping is refused with `ENODEV`.

use std::ffi::{c_int, c_void};

use iogate_core::Op;
use iogate_engine::store::Segment;
use libc::{off_t, size_t};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::description::Description;
use crate::failed::{Result, fail_as, guarded};
use crate::table;

fn copy(
    file: &Description,
    address: *mut c_void,
    bytes: size_t,
    protection: c_int,
    flags: c_int,
    offset: off_t,
) -> Result<*mut c_void> {
    if bytes == 0 || offset < 0 || offset % rustix::param::page_size() as off_t != 0 {
        return Err(Errno::INVAL.into());
    }
    if file.page.flags() & libc::O_ACCMODE == libc::O_WRONLY {
        return Err(Errno::ACCESS.into());
    }
    let is_private = flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
    let is_read_only = file.page.flags() & libc::O_ACCMODE == libc::O_RDONLY;
    if !is_private && protection & libc::PROT_WRITE != 0 && is_read_only {
        return Err(Errno::ACCESS.into());
    }
    // What is open for writing could still be made writable in memory, and would not be written back.
    if !is_private && !is_read_only {
        return Err(Errno::NODEV.into());
    }
    let kept = (flags & !libc::MAP_TYPE & !libc::MAP_ANONYMOUS) as u32;
    let map_flags = MapFlags::from_bits_retain(kept) | MapFlags::PRIVATE;
    let writable = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the caller says where, and answers for what is there.
    let memory = unsafe { rustix::mm::mmap_anonymous(address, bytes, writable, map_flags)? };
    let filled = fill(file, memory, bytes, offset).and_then(|()| {
        let wanted = MprotectFlags::from_bits_retain(protection as u32);
        // SAFETY: our mapping.
        unsafe { rustix::mm::mprotect(memory, bytes, wanted)? };
        Ok(())
    });
    if let Err(failed) = filled {
        // SAFETY: our mapping, which nobody has seen.
        let _ = unsafe { rustix::mm::munmap(memory, bytes) };
        return Err(failed);
    }
    Ok(memory)
}

/// Reads the file into memory, up to its end.
fn fill(file: &Description, memory: *mut c_void, bytes: usize, offset: off_t) -> Result<()> {
    let mut done = 0;
    while done < bytes {
        let segment = Segment { memory: memory.cast::<u8>().wrapping_add(done), bytes: bytes - done };
        match file.transfer_at(Op::Read, offset + done as off_t, &[segment])? {
            0 => break,
            count => done += count as usize,
        }
    }
    Ok(())
}

interpose! {
    fn mmap | mmap64 [real](
        address: *mut c_void,
        bytes: size_t,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: off_t,
    ) -> *mut c_void {
        if flags & libc::MAP_ANONYMOUS != 0 {
            return real(address, bytes, protection, flags, fd, offset);
        }
        match table::find(fd) {
            None => real(address, bytes, protection, flags, fd, offset),
            Some(file) => fail_as(
                libc::MAP_FAILED,
                guarded(|| copy(&file, address, bytes, protection, flags, offset)),
            ),
        }
    }
}
