//! Creating files in the caller's name: owner, group and umask are the thread's.

use std::cell::Cell;

use iogate_engine::privileges;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::thread::{CapabilitiesSecureBits, UnshareFlags};

use crate::abi::InHeader;

thread_local! {
    static UMASK: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Gives the calling thread a umask of its own, takes away what would let callers pass disk quotas, and lets it change
/// its file system ids without losing capabilities: the kernel has checked the caller's permissions
/// (`default_permissions`), by groups that are not known here.
pub(crate) fn prepare_thread() -> Result<(), Errno> {
    // SAFETY: only the file system attributes (umask, working directory) stop being shared; nothing here relies on
    // threads sharing them.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS)? };
    rustix::process::umask(Mode::empty());
    UMASK.set(Some(0));
    privileges::limit_thread_or_warn();
    if rustix::process::geteuid().is_root() {
        let bits = rustix::thread::capabilities_secure_bits()?;
        rustix::thread::set_capabilities_secure_bits(bits | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    }
    Ok(())
}

/// Runs `create` with the ids of the request's caller and its umask. The umask is left to the source's file
/// system, which must not apply it below a directory with a default access list.
pub(crate) fn in_name_of<R>(header: &InHeader, umask: u32, create: impl FnOnce() -> R) -> R {
    if UMASK.get() != Some(umask) {
        rustix::process::umask(Mode::from_bits_truncate(umask & 0o777));
        UMASK.set(Some(umask));
    }
    let _ids = FileSystemIds::set(header.uid, header.gid);
    create()
}

/// The thread's file system ids, until dropped.
struct FileSystemIds {
    uid: Option<libc::uid_t>,
    gid: Option<libc::gid_t>,
}

impl FileSystemIds {
    fn set(uid: u32, gid: u32) -> FileSystemIds {
        let own_uid = rustix::process::geteuid().as_raw();
        let own_gid = rustix::process::getegid().as_raw();
        // The group first, while the user is still allowed to change it.
        let gid = (gid != own_gid).then(|| set_gid(gid));
        let uid = (uid != own_uid).then(|| set_uid(uid));
        FileSystemIds { uid, gid }
    }
}

impl Drop for FileSystemIds {
    fn drop(&mut self) {
        if let Some(uid) = self.uid {
            set_uid(uid);
        }
        if let Some(gid) = self.gid {
            set_gid(gid);
        }
    }
}

fn set_uid(uid: libc::uid_t) -> libc::uid_t {
    // SAFETY: changes the calling thread's credentials only, no memory.
    unsafe { libc::setfsuid(uid) as libc::uid_t }
}

fn set_gid(gid: libc::gid_t) -> libc::gid_t {
    // SAFETY: changes the calling thread's credentials only, no memory.
    unsafe { libc::setfsgid(gid) as libc::gid_t }
}
