//! The messages of NFS version 3 (RFC 1813): what is common to calls and answers.

mod lock;
mod mount;
mod reply;
mod request;

pub use lock::{
    FileLock, Holder, LOCK_PROGRAM, LOCK_VERSION, LockReply, LockRequest, LockStatus, Opaque, STATUS_PROGRAM,
    STATUS_VERSION, Share, StatusRequest,
};
pub use mount::{Export, MountReply, MountRequest, Mounted};
pub use reply::{
    CommitOk, FsInfo, FsStat, Listing, PathConf, PlainEntry, PlusEntry, Reply, WriteOk, entry_bytes,
    plus_entry_bytes, put_read_head,
};
pub use request::{CreateHow, Node, Place, Request, SetAttr, SetTime, procedure};

use crate::xdr::{Reader, Xdr, XdrError, numbers, put_opaque, record};

/// The program of NFS.
pub const NFS_PROGRAM: u32 = 100_003;
/// The program of MOUNT.
pub const MOUNT_PROGRAM: u32 = 100_005;
/// The version of both.
pub const VERSION: u32 = 3;
/// Most bytes of a file handle.
pub const HANDLE_BYTES_MAX: u32 = 64;
/// Most bytes of a name: no file system here has longer ones, and what is longer is answered, not refused.
pub const NAME_BYTES_MAX: u32 = 4096;
/// Most bytes of a path, of a symbolic link or to mount.
pub const PATH_BYTES_MAX: u32 = 4096;
/// Most bytes of a read or a write.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of a record: a write, and what is around it.
pub const RECORD_BYTES_MAX: usize = TRANSFER_BYTES_MAX as usize + 4096;

numbers! {
    /// What became of a call.
    #[allow(missing_docs, reason = "the names are those of the specification")]
    Status("a status of NFS") {
        Ok = 0,
        Perm = 1,
        NoEnt = 2,
        Io = 5,
        NxIo = 6,
        Access = 13,
        Exist = 17,
        XDev = 18,
        NoDev = 19,
        NotDir = 20,
        IsDir = 21,
        Inval = 22,
        FBig = 27,
        NoSpc = 28,
        RoFs = 30,
        MLink = 31,
        NameTooLong = 63,
        NotEmpty = 66,
        DQuot = 69,
        Stale = 70,
        BadHandle = 10_001,
        NotSync = 10_002,
        BadCookie = 10_003,
        NotSupp = 10_004,
        TooSmall = 10_005,
        ServerFault = 10_006,
        BadType = 10_007,
        Jukebox = 10_008,
    }
}

impl Status {
    /// Whether it says that something is wrong with the server, the disk or the client's handles; not what people are told every day.
    pub fn is_trouble(self) -> bool {
        use Status::{BadHandle, Io, Jukebox, NoSpc, NxIo, ServerFault, Stale};
        matches!(self, Io | NxIo | NoSpc | Stale | BadHandle | ServerFault | Jukebox)
    }
}

numbers! {
    /// What a file is.
    #[allow(missing_docs, reason = "the names say it")]
    Kind("a type of file") {
        Regular = 1,
        Directory = 2,
        Block = 3,
        Character = 4,
        Link = 5,
        Socket = 6,
        Fifo = 7,
    }
}

numbers! {
    /// How durable a write is to be, or is.
    Stable("how durable a write is to be") {
        /// It may be lost until a COMMIT.
        Unstable = 0,
        /// The data is durable, and what is needed to find it.
        DataSync = 1,
        /// All is durable.
        FileSync = 2,
    }
}

record! {
    /// A time: seconds since the Unix epoch, and nanoseconds.
    #[derive(Default)]
    Time {
        /// Seconds.
        seconds: u32,
        /// Nanoseconds below one second.
        nanoseconds: u32,
    }
}

record! {
    /// The attributes of a file.
    Fattr {
        /// What it is.
        kind: Kind,
        /// Permissions.
        mode: u32,
        /// Names.
        links: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
        /// Bytes.
        size: u64,
        /// Bytes of the disk.
        used: u64,
        /// Of a device, its major number.
        major: u32,
        /// Of a device, its minor number.
        minor: u32,
        /// The file system.
        fsid: u64,
        /// Its number there.
        fileid: u64,
        /// Last access.
        atime: Time,
        /// Last change of the data.
        mtime: Time,
        /// Last change of anything.
        ctime: Time,
    }
}

record! {
    /// What a client compares with what it has of a file from before a change.
    WccAttr {
        /// Bytes.
        size: u64,
        /// Last change of the data.
        mtime: Time,
        /// Last change of anything.
        ctime: Time,
    }
}

impl From<&Fattr> for WccAttr {
    fn from(attr: &Fattr) -> WccAttr {
        WccAttr { size: attr.size, mtime: attr.mtime, ctime: attr.ctime }
    }
}

record! {
    /// The attributes of a file before and after a change, as far as they are known to belong to just that change.
    #[derive(Default)]
    Wcc {
        /// Before.
        before: Option<WccAttr>,
        /// After.
        after: Option<Fattr>,
    }
}

/// What a client names a file by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileHandle {
    bytes: [u8; HANDLE_BYTES_MAX as usize],
    length: u8,
}

impl FileHandle {
    /// Of these bytes; `None` if they are too many.
    pub fn new(handle: &[u8]) -> Option<FileHandle> {
        let mut bytes = [0; HANDLE_BYTES_MAX as usize];
        bytes.get_mut(..handle.len())?.copy_from_slice(handle);
        Some(FileHandle { bytes, length: handle.len() as u8 })
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::fmt::Debug for FileHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileHandle({:02x?})", self.as_bytes())
    }
}

impl Xdr<'_> for FileHandle {
    fn put(&self, out: &mut Vec<u8>) {
        put_opaque(out, self.as_bytes());
    }

    fn take(from: &mut Reader<'_>) -> Result<FileHandle, XdrError> {
        let handle = from.opaque(HANDLE_BYTES_MAX)?;
        FileHandle::new(handle).ok_or(XdrError::TooLong { found: handle.len() as u32, max: HANDLE_BYTES_MAX })
    }
}
