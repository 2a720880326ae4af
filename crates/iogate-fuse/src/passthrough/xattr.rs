//! Extended attributes.

use std::ffi::CStr;
use std::os::fd::AsFd;

use rustix::fs::XattrFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::FileSystem;
use super::attr::{change_mode, stat};
use super::inode::HeldInode;
use crate::abi::{GetxattrOut, InHeader, SETXATTR_ACL_KILL_SGID, SetxattrIn};
use crate::operations::Xattrs;

impl Xattrs for FileSystem {
    fn getxattr(&self, header: &InHeader, name: &CStr, room: u32, out: &mut Vec<u8>) -> Result<(), Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let path = inode.proc_path();
        fill(out, room, |buffer| rustix::fs::getxattr(path.as_bytes(), name, buffer))
    }

    fn listxattr(&self, header: &InHeader, room: u32, out: &mut Vec<u8>) -> Result<(), Errno> {
        let inode = self.inodes.get(header.nodeid)?;
        let path = inode.proc_path();
        fill(out, room, |buffer| rustix::fs::listxattr(path.as_bytes(), buffer))
    }

    fn setxattr(&self, header: &InHeader, arg: SetxattrIn, name: &CStr, value: &[u8]) -> Result<(), Errno> {
        may_change(header, name)?;
        let inode = self.inodes.get(header.nodeid)?;
        let flags = XattrFlags::from_bits_retain(arg.flags);
        rustix::fs::setxattr(inode.proc_path().as_bytes(), name, value, flags)?;
        if arg.setxattr_flags & SETXATTR_ACL_KILL_SGID != 0 {
            clear_sgid(&inode)?;
        }
        Ok(())
    }

    fn removexattr(&self, header: &InHeader, name: &CStr) -> Result<(), Errno> {
        may_change(header, name)?;
        let inode = self.inodes.get(header.nodeid)?;
        rustix::fs::removexattr(inode.proc_path().as_bytes(), name)
    }
}

/// The kernel checks who may change the attributes that it knows. Others of the system (as access lists of NFSv4 and CIFS) it
/// leaves to the file system, and the source's would take this process for the caller.
fn may_change(header: &InHeader, name: &CStr) -> Result<(), Errno> {
    const KNOWN: [&CStr; 2] = [c"system.posix_acl_access", c"system.posix_acl_default"];
    let is_system = name.to_bytes().starts_with(b"system.");
    let is_allowed = !is_system || KNOWN.contains(&name) || header.uid == rustix::process::geteuid().as_raw();
    if is_allowed { Ok(()) } else { Err(Errno::PERM) }
}

/// Replies with what `read` puts into a buffer of the caller's size; its size if that is zero.
fn fill(
    out: &mut Vec<u8>,
    room: u32,
    read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> Result<(), Errno> {
    if room == 0 {
        // rustix does not ask for the size when the buffer is empty.
        let size = read(&mut [0; 1 << 16])? as u32;
        out.extend_from_slice(GetxattrOut { size, padding: 0 }.as_bytes());
        return Ok(());
    }
    let begin = out.len();
    // The kernel allows 64 KiB for a value or a list.
    out.resize(begin + (room as usize).min(1 << 16), 0);
    let size = read(&mut out[begin..])?;
    out.truncate(begin + size);
    Ok(())
}

fn clear_sgid(inode: &HeldInode) -> Result<(), Errno> {
    let mode = stat(inode)?.st_mode;
    if mode & libc::S_ISGID != 0 { change_mode(inode.as_fd(), mode & !libc::S_ISGID) } else { Ok(()) }
}
