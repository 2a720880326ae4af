//! Attaching a connection to a directory and taking it off again: mount(2) as root, fusermount3 otherwise.

use std::ffi::{CString, OsStr};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use iogate_engine::layouts::mounts::Mount;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
};

use crate::error::MountError;
use crate::options::MountOptions;

/// The type of iogate mounts, of the kind `fuse` and the subtype `iogate`.
const FS_TYPE: &str = "fuse.iogate";

/// How long a mount that is in use may take to say that it is served.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// A source and a mount point that fit each other.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) source: PathBuf,
    pub(crate) root: OwnedFd,
    pub(crate) mountpoint: PathBuf,
}

impl Places {
    pub(crate) fn check(source: &Path, mountpoint: &Path) -> Result<Places, MountError> {
        let root = open_source(source)?;
        let source = source
            .canonicalize()
            .map_err(|cause| MountError::SourceUnreadable { path: source.to_owned(), cause })?;
        let mountpoint = check_mountpoint(mountpoint)?;
        if mountpoint.starts_with(&source) {
            return Err(MountError::MountpointInSource { mountpoint, source_path: source });
        }
        if source.starts_with(&mountpoint) {
            return Err(MountError::SourceInMountpoint { mountpoint, source_path: source });
        }
        check_empty(&mountpoint)?;
        Ok(Places { source, root, mountpoint })
    }
}

fn open_source(source: &Path) -> Result<OwnedFd, MountError> {
    let unreadable =
        |errno: Errno| MountError::SourceUnreadable { path: source.to_owned(), cause: errno.into() };
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(source, flags | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::NOTDIR) => return Err(MountError::SourceNotDirectory { path: source.to_owned() }),
        Err(errno) => return Err(unreadable(errno)),
        Ok(_) => {}
    }
    rustix::fs::open(source, flags | OFlags::PATH, Mode::empty()).map_err(unreadable)
}

pub(crate) fn check_mountpoint(path: &Path) -> Result<PathBuf, MountError> {
    let unusable = |cause: io::Error| MountError::MountpointUnusable { path: path.to_owned(), cause };
    let mountpoint = path.canonicalize().map_err(unusable)?;
    match is_mount_root(&mountpoint) {
        Ok(false) => {}
        // ENOTCONN: a FUSE mount whose process is gone.
        Ok(true) | Err(Errno::NOTCONN) => return Err(MountError::MountpointBusy { path: mountpoint }),
        Err(errno) => return Err(unusable(errno.into())),
    }
    match mountpoint.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(mountpoint),
        Ok(_) => Err(MountError::MountpointNotDirectory { path: mountpoint }),
        Err(cause) => Err(unusable(cause)),
    }
}

pub(crate) fn check_empty(mountpoint: &Path) -> Result<(), MountError> {
    let unusable = |cause| MountError::MountpointUnusable { path: mountpoint.to_owned(), cause };
    match mountpoint.read_dir().map_err(unusable)?.next() {
        None => Ok(()),
        Some(entry) => Err(MountError::MountpointNotEmpty {
            path: mountpoint.to_owned(),
            found: entry.map_err(unusable)?.file_name(),
        }),
    }
}

/// `STATX_ATTR_MOUNT_ROOT` without asking the file system (which may not answer).
fn is_mount_root(path: &Path) -> Result<bool, Errno> {
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let statx = rustix::fs::statx(CWD, path, flags, StatxFlags::empty())?;
    Ok(statx.stx_attributes.contains(rustix::fs::StatxAttributes::MOUNT_ROOT))
}

/// Mounts what people call `source` and returns the connection's device.
pub(crate) fn attach(
    source: &OsStr,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = rustix::fs::open("/dev/fuse", flags, Mode::empty());
    if let Err(errno @ (Errno::NOENT | Errno::NODEV | Errno::NXIO)) = device {
        // Nor would fusermount3 find it.
        return Err(MountError::NoDevice { cause: errno.into() });
    }
    if !rustix::process::geteuid().is_root() {
        return attach_by_program(source, mountpoint, options);
    }
    let device = device.map_err(|errno| MountError::NoDevice { cause: errno.into() })?;
    let mut data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,default_permissions,max_read={}",
        device.as_raw_fd(),
        options.request_bytes_max
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    let data = CString::new(data).expect("numbers and words");
    let mut flags = MountFlags::NOSUID | MountFlags::NODEV;
    if options.read_only {
        flags |= MountFlags::RDONLY;
    }
    match rustix::mount::mount(source, mountpoint, FS_TYPE, flags, &*data) {
        Ok(()) => Ok(device),
        Err(Errno::INVAL) if !is_fuse_device(&device) => {
            Err(MountError::NoDevice { cause: io::Error::other("it is not the FUSE device") })
        }
        Err(Errno::NODEV) => Err(MountError::NoDevice { cause: Errno::NODEV.into() }),
        Err(Errno::PERM) => {
            Err(MountError::NoPermission { found: "the kernel refused root's mount (a container?)".into() })
        }
        Err(Errno::BUSY) => Err(MountError::MountpointBusy { path: mountpoint.to_owned() }),
        Err(errno) => Err(MountError::system("mounting", errno)),
    }
}

/// Sandboxes put other files in its place, which then open.
fn is_fuse_device(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| stat.st_rdev == rustix::fs::makedev(10, 229))
}

/// fusermount3 mounts, and sends the device over a socket.
fn attach_by_program(
    source: &OsStr,
    mountpoint: &Path,
    options: &MountOptions,
) -> Result<OwnedFd, MountError> {
    let failed = |errno: Errno| MountError::system("talking to fusermount3", errno);
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None)
            .map_err(failed)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
    let mut words = format!("default_permissions,subtype=iogate,max_read={}", options.request_bytes_max);
    if options.allow_other {
        words.push_str(",allow_other");
    }
    if options.read_only {
        words.push_str(",ro");
    }
    let mut arguments = std::ffi::OsString::from(words);
    if !source.as_bytes().contains(&b',') {
        arguments.push(",fsname=");
        arguments.push(source);
    }
    let run = Command::new("fusermount3")
        .arg("-o")
        .arg(&arguments)
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .output();
    drop(theirs);
    let output = run.map_err(|error| MountError::NoPermission { found: format!("fusermount3: {error}") })?;
    if !output.status.success() {
        return Err(refused(in_a_line(&output.stderr)));
    }
    receive_device(&ours).map_err(failed)
}

/// What fusermount3 has refused a mount for: the device is there and the program, too, but the program opens it in the user's name.
fn refused(found: String) -> MountError {
    let of_device = ["/dev/fuse", "Permission denied"].iter().all(|part| found.contains(part));
    if of_device { MountError::DeviceRefused { found } } else { MountError::NoPermission { found } }
}

/// What a program said, for a message that is one line.
fn in_a_line(said: &[u8]) -> String {
    String::from_utf8_lossy(said).trim().replace('\n', "; ")
}

fn receive_device(socket: impl AsFd) -> Result<OwnedFd, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    rustix::net::recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(device) = descriptors.next()
        {
            return Ok(device);
        }
    }
    Err(Errno::BADMSG)
}

/// Unmounts the iogate mount at `mountpoint`; with `detach` even while it is in use (it then goes away when the last file is
/// closed). One whose process is gone is detached in any case. Mounts of other file systems are left alone.
pub fn unmount(mountpoint: &Path, detach: bool) -> Result<(), MountError> {
    let path = mountpoint.to_owned();
    match mounted_type(mountpoint).map_err(|cause| MountError::system("reading the list of mounts", cause))? {
        None => return Err(MountError::NotMounted { path }),
        Some(found) if found != FS_TYPE => return Err(MountError::NotOurs { path, found }),
        Some(_) => {}
    }
    match unmount_ours(mountpoint, detach) {
        // What is open there is of no use any more.
        Err(MountError::InUse { .. }) if is_dead(mountpoint) => unmount_ours(mountpoint, true),
        result => result,
    }
}

/// Whether nobody serves a mount any more. One that does not answer in time is not dead.
fn is_dead(mountpoint: &Path) -> bool {
    let (said, answer) = std::sync::mpsc::channel();
    let mountpoint = mountpoint.to_owned();
    let asking = std::thread::Builder::new().name("iogate-ask".into()).spawn(move || {
        let _ = said.send(rustix::fs::statfs(&mountpoint).err());
    });
    let errno = asking.ok().and_then(|_| answer.recv_timeout(ANSWER_MAX).ok().flatten());
    matches!(errno, Some(Errno::NOTCONN | Errno::CONNABORTED))
}

fn unmount_ours(mountpoint: &Path, detach: bool) -> Result<(), MountError> {
    if !rustix::process::geteuid().is_root() {
        return unmount_by_program(mountpoint, detach);
    }
    let flags = if detach { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::INVAL | Errno::NOENT) => Err(MountError::NotMounted { path: mountpoint.to_owned() }),
        Err(Errno::BUSY) => Err(MountError::InUse { path: mountpoint.to_owned() }),
        Err(errno) => Err(MountError::system("unmounting", errno)),
    }
}

/// The type of the file system mounted at `path`, if one is. Asks the kernel only, for the file system may be dead.
fn mounted_type(path: &Path) -> io::Result<Option<String>> {
    // Resolves all but the last component, which may be the root of a dead mount.
    let path = std::path::absolute(path)?;
    let path = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => match folder.canonicalize() {
            Ok(folder) => folder.join(name),
            Err(_) => return Ok(None),
        },
        _ => path.canonicalize()?,
    };
    // Of several on top of each other, the last is the one in sight.
    let mount = Mount::all()?.into_iter().rfind(|mount| mount.point == path);
    Ok(mount.map(|mount| mount.fs_type))
}

fn unmount_by_program(mountpoint: &Path, detach: bool) -> Result<(), MountError> {
    let mut arguments = vec![OsStr::new("-u")];
    if detach {
        arguments.push(OsStr::new("-z"));
    }
    let run = Command::new("fusermount3").args(arguments).arg("--").arg(mountpoint).output();
    let output = run.map_err(|error| MountError::NoPermission { found: format!("fusermount3: {error}") })?;
    if output.status.success() {
        return Ok(());
    }
    let path = mountpoint.to_owned();
    let found = in_a_line(&output.stderr);
    match found.contains("busy") {
        true => Err(MountError::InUse { path }),
        false => Err(MountError::UnmountRefused { path, found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_this_user_may_not_open_is_no_missing_program() {
        let said = |found: &str| refused(found.into()).to_string();
        let of_device = said("fusermount3: failed to open /dev/fuse: Permission denied");
        assert!(of_device.contains("chmod 666 /dev/fuse") && !of_device.contains("install"), "{of_device}");
        assert!(said("fusermount3: user has no write access to mountpoint /m").contains("install fuse3"));
    }
}
