//! Why a mount does not come about.

use std::io;
use std::path::PathBuf;

/// Why a source could not be mounted, or a mount not be taken down.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's message says it")]
pub enum MountError {
    #[error("the source {path} must be a directory, and is not: name the directory to mount")]
    SourceNotDirectory { path: PathBuf },
    #[error(
        "the source {path} must be a directory that can be read: {cause}; create it or check its permissions"
    )]
    SourceUnreadable { path: PathBuf, cause: io::Error },
    #[error("the root of {name} cannot be read: {cause}")]
    TreeUnreadable {
        name: String,
        #[source]
        cause: io::Error,
    },
    #[error("the mount point {path} must be a directory, and is not: create one with mkdir")]
    MountpointNotDirectory { path: PathBuf },
    #[error("the mount point {path} cannot be used: {cause}; create it with mkdir or check its permissions")]
    MountpointUnusable { path: PathBuf, cause: io::Error },
    #[error(
        "the mount point {path} must be empty and contains {found:?}: what is below it would be hidden; use an empty directory"
    )]
    MountpointNotEmpty { path: PathBuf, found: std::ffi::OsString },
    #[error("the mount point {path} is a mount point already: unmount it first, or use another directory")]
    MountpointBusy { path: PathBuf },
    #[error(
        "the mount point {mountpoint} must be outside the source {source_path}, and is in it: use a directory elsewhere"
    )]
    MountpointInSource { mountpoint: PathBuf, source_path: PathBuf },
    #[error(
        "the source {source_path} must be outside the mount point {mountpoint}, and is in it: mount it elsewhere"
    )]
    SourceInMountpoint { mountpoint: PathBuf, source_path: PathBuf },
    #[error(
        "/dev/fuse cannot be used: {cause}; load the kernel's fuse module (modprobe fuse), or give the container the device"
    )]
    NoDevice { cause: io::Error },
    #[error(
        "mounting needs root, or the program fusermount3 of the fuse3 package, and {found}: run as root or install fuse3"
    )]
    NoPermission { found: String },
    #[error(
        "/dev/fuse may not be opened by this user ({found}): have root allow it (chmod 666 /dev/fuse), or mount as root"
    )]
    DeviceRefused { found: String },
    #[error(
        "the kernel speaks FUSE {major}.{minor}, and 7.31 (Linux 5.4) or later is needed: use a newer kernel"
    )]
    KernelTooOld { major: u32, minor: u32 },
    #[error("{path} is not a mount point: name the directory given to the mount")]
    NotMounted { path: PathBuf },
    #[error("{path} is a mount of type {found}, not of iogate, and was left alone: use umount(8) for it")]
    NotOurs { path: PathBuf, found: String },
    #[error("{path} was not unmounted ({found}): do it as root or as the user who mounted it")]
    UnmountRefused { path: PathBuf, found: String },
    #[error("{path} is in use: close the files that are open below it, or detach it")]
    InUse { path: PathBuf },
    #[error("{action}: {cause}")]
    System {
        action: &'static str,
        #[source]
        cause: io::Error,
    },
}

impl MountError {
    pub(crate) fn system(action: &'static str, cause: impl Into<io::Error>) -> MountError {
        MountError::System { action, cause: cause.into() }
    }
}
