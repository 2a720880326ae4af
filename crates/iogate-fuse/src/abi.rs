//! The kernel's FUSE protocol: the records and constants of `linux/fuse.h` (7.31 to 7.42) that this crate uses.
//!
//! Names are the kernel's without their `fuse_` prefix. Every record is plain bytes without padding, which the
//! derives check.

use rustix::io::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Major version spoken.
pub(crate) const MAJOR: u32 = 7;
/// Highest minor version spoken.
pub(crate) const MINOR: u32 = 42;
/// Lowest minor version spoken: `max_pages` and everything that a request carries here are there since 5.4.
pub(crate) const MINOR_MIN: u32 = 31;
/// The root's node id.
pub(crate) const ROOT_ID: u64 = 1;
/// Bytes that a read of the device must offer beyond the largest write.
pub(crate) const HEADER_ROOM: usize = size_of::<InHeader>() + size_of::<WriteIn>();

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident { $($field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[allow(missing_docs)]
            pub(crate) struct $name { $(pub(crate) $field: $type),* }
        )*
    };
}

records! {
    /// Precedes every request.
    InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
    /// Precedes every reply; `error` is zero or a negative errno.
    OutHeader { len: u32, error: i32, unique: u64 }
    Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32,
        mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64,
        entry_valid_nsec: u32, attr_valid_nsec: u32, attr: Attr,
    }
    AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32 }
    InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }
    ForgetIn { nlookup: u64 }
    ForgetOne { nodeid: u64, nlookup: u64 }
    BatchForgetIn { count: u32, dummy: u32 }
    GetattrIn { flags: u32, dummy: u32, fh: u64 }
    SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn { mode: u32, umask: u32 }
    RenameIn { newdir: u64 }
    Rename2In { newdir: u64, flags: u32, padding: u32 }
    LinkIn { oldnodeid: u64 }
    OpenIn { flags: u32, open_flags: u32 }
    CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    OpenOut { fh: u64, open_flags: u32, padding: u32 }
    ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FileLock { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    FlushIn { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteOut { size: u32, padding: u32 }
    StatfsOut {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn { size: u32, flags: u32, setxattr_flags: u32, padding: u32 }
    GetxattrIn { size: u32, padding: u32 }
    GetxattrOut { size: u32, padding: u32 }
    FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    LseekOut { offset: u64 }
    InterruptIn { unique: u64 }
    CopyFileRangeIn { fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64 }
    Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    /// Tells the kernel to drop what it has cached of a node; `off < 0`: its attributes only.
    NotifyInvalInodeOut { ino: u64, off: i64, len: i64 }
    /// The tail of a ring entry's header memory.
    UringEntInOut { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// The command bytes of a ring submission.
    UringCmdReq { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

/// The header memory of a ring entry.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
pub(crate) struct UringHeader {
    /// An [`InHeader`] from the kernel, an [`OutHeader`] to it.
    pub(crate) in_out: [u8; 128],
    /// The operation's first record.
    pub(crate) op_in: [u8; 128],
    pub(crate) entry: UringEntInOut,
}

macro_rules! opcodes {
    ($($name:ident = $value:literal),* $(,)?) => {
        /// Operation codes.
        #[allow(missing_docs)]
        pub(crate) mod op { $(pub(crate) const $name: u32 = $value;)* }
    };
}

opcodes! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9, UNLINK = 10,
    RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17, RELEASE = 18, FSYNC = 20,
    SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24, FLUSH = 25, INIT = 26, OPENDIR = 27,
    READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30, GETLK = 31, SETLK = 32, SETLKW = 33, CREATE = 35, INTERRUPT = 36, DESTROY = 38, IOCTL = 39,
    BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46, COPY_FILE_RANGE = 47,
    SYNCFS = 50, TMPFILE = 51,
}

/// `FUSE_INIT` flags; bits from 32 travel in `flags2`.
pub(crate) mod init {
    pub(crate) const ASYNC_READ: u64 = 1 << 0;
    pub(crate) const POSIX_LOCKS: u64 = 1 << 1;
    pub(crate) const ATOMIC_O_TRUNC: u64 = 1 << 3;
    pub(crate) const BIG_WRITES: u64 = 1 << 5;
    pub(crate) const DONT_MASK: u64 = 1 << 6;
    pub(crate) const FLOCK_LOCKS: u64 = 1 << 10;
    pub(crate) const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub(crate) const DO_READDIRPLUS: u64 = 1 << 13;
    pub(crate) const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub(crate) const ASYNC_DIO: u64 = 1 << 15;
    pub(crate) const PARALLEL_DIROPS: u64 = 1 << 18;
    pub(crate) const POSIX_ACL: u64 = 1 << 20;
    pub(crate) const MAX_PAGES: u64 = 1 << 22;
    pub(crate) const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub(crate) const SETXATTR_EXT: u64 = 1 << 29;
    pub(crate) const INIT_EXT: u64 = 1 << 30;
    pub(crate) const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    pub(crate) const OVER_IO_URING: u64 = 1 << 41;
}

/// Flags of a reply to an open.
pub(crate) mod fopen {
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    pub(crate) const KEEP_CACHE: u32 = 1 << 1;
    pub(crate) const NO_FLUSH: u32 = 1 << 5;
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Which attributes a `SETATTR` changes.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// `LkIn::lk_flags`: as of `flock(2)`.
pub(crate) const LK_FLOCK: u32 = 1 << 0;
/// `ReleaseIn::release_flags`: the lock of `flock(2)` is to be given back.
pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
/// `GetattrIn::flags`: the handle is given.
pub(crate) const GETATTR_FH: u32 = 1 << 0;
/// `ReadIn::read_flags`: asked for by a process, not to fill the page cache.
pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
/// `WriteIn::write_flags`: written back from the page cache.
pub(crate) const WRITE_CACHE: u32 = 1 << 0;
/// `WriteIn::write_flags`: clear set-user-id and set-group-id.
pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
/// `OpenIn::open_flags`: the same, for a truncating open.
pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
/// `SetxattrIn::setxattr_flags`: clear set-group-id with the access list.
pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
/// `FsyncIn::fsync_flags`: data only.
pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
/// `OutHeader::error` of a [`NotifyInvalInodeOut`].
pub(crate) const NOTIFY_INVAL_INODE: i32 = 2;
/// Size of a [`SetxattrIn`] where `SETXATTR_EXT` was not agreed on.
pub(crate) const SETXATTR_IN_COMPAT_SIZE: usize = 8;

/// `FUSE_DEV_IOC_CLONE`.
pub(crate) const DEV_IOC_CLONE: libc::c_ulong = 0x8004_e500;
/// `FUSE_IO_URING_CMD_REGISTER`.
pub(crate) const URING_REGISTER: u32 = 1;
/// `FUSE_IO_URING_CMD_COMMIT_AND_FETCH`.
pub(crate) const URING_COMMIT_AND_FETCH: u32 = 2;

const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<AttrOut>() == 104);
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<SetattrIn>() == 88);
    assert!(size_of::<WriteIn>() == 40);
    assert!(size_of::<StatfsOut>() == 80);
    assert!(size_of::<Dirent>() == 24);
    assert!(std::mem::offset_of!(UringHeader, entry) == 256);
    assert!(size_of::<UringCmdReq>() == 24);
};

/// The arguments of a request: the operation's own record, then names or data.
///
/// Through the device they follow each other; through a ring the record has memory of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'a> {
    record: &'a [u8],
    payload: Option<&'a [u8]>,
}

impl<'a> Input<'a> {
    /// From a request read from the device, without its header.
    pub(crate) fn contiguous(bytes: &'a [u8]) -> Input<'a> {
        Input { record: bytes, payload: None }
    }

    /// From a ring entry.
    pub(crate) fn split(record: &'a [u8], payload: &'a [u8]) -> Input<'a> {
        Input { record, payload: Some(payload) }
    }

    /// Takes the operation's record; `None` if the request is too short.
    pub(crate) fn record<T: FromBytes>(&mut self) -> Option<T> {
        self.record_of(size_of::<T>())
    }

    /// Takes a record of which the kernel sends the first `sent` bytes only.
    pub(crate) fn record_of<T: FromBytes>(&mut self, sent: usize) -> Option<T> {
        let bytes = self.record.get(..sent)?;
        if self.payload.is_none() {
            self.record = &self.record[sent..];
        }
        if sent == size_of::<T>() {
            return T::read_from_bytes(bytes).ok();
        }
        let mut whole = [0; 64];
        whole.get_mut(..sent)?.copy_from_slice(bytes);
        T::read_from_prefix(&whole).ok().map(|(record, _)| record)
    }

    /// What is left: names, or data.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.payload.unwrap_or(self.record)
    }

    /// Takes a name; `None` if it is not terminated.
    pub(crate) fn name(&mut self) -> Option<&'a std::ffi::CStr> {
        let rest = self.rest();
        let name = std::ffi::CStr::from_bytes_until_nul(rest).ok()?;
        let rest = &rest[name.to_bytes_with_nul().len()..];
        match self.payload {
            Some(_) => self.payload = Some(rest),
            None => self.record = rest,
        }
        Some(name)
    }

    /// Takes a name in a directory: not a path, so that nothing outside what is mounted is ever reached.
    pub(crate) fn file_name(&mut self) -> Result<&'a std::ffi::CStr, Errno> {
        let name = self.name().ok_or(Errno::INVAL)?;
        let bytes = name.to_bytes();
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.contains(&b'/') {
            return Err(Errno::INVAL);
        }
        Ok(name)
    }

    /// Calls `each` with the node ids of a forgetting request and how many lookups of each are taken back.
    pub(crate) fn forgotten(mut self, header: &InHeader, mut each: impl FnMut(u64, u64)) {
        if header.opcode == op::FORGET {
            if let Some(arg) = self.record::<ForgetIn>() {
                each(header.nodeid, arg.nlookup);
            }
        } else if let Some(batch) = self.record::<BatchForgetIn>() {
            for _ in 0..batch.count {
                let Some(one) = self.record::<ForgetOne>() else { return };
                each(one.nodeid, one.nlookup);
            }
        }
    }
}
