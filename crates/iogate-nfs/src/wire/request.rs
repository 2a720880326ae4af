//! The calls of NFS version 3.

use super::{FileHandle, Kind, NAME_BYTES_MAX, PATH_BYTES_MAX, Stable, TRANSFER_BYTES_MAX, Time};
use crate::xdr::{Reader, Xdr, XdrError, put_opaque};

/// The procedures' numbers.
#[allow(missing_docs, reason = "the names are those of the specification")]
pub mod procedure {
    pub const NULL: u32 = 0;
    pub const GETATTR: u32 = 1;
    pub const SETATTR: u32 = 2;
    pub const LOOKUP: u32 = 3;
    pub const ACCESS: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const READ: u32 = 6;
    pub const WRITE: u32 = 7;
    pub const CREATE: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const SYMLINK: u32 = 10;
    pub const MKNOD: u32 = 11;
    pub const REMOVE: u32 = 12;
    pub const RMDIR: u32 = 13;
    pub const RENAME: u32 = 14;
    pub const LINK: u32 = 15;
    pub const READDIR: u32 = 16;
    pub const READDIRPLUS: u32 = 17;
    pub const FSSTAT: u32 = 18;
    pub const FSINFO: u32 = 19;
    pub const PATHCONF: u32 = 20;
    pub const COMMIT: u32 = 21;
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The directory.
    pub dir: FileHandle,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> Xdr<'a> for Place<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.dir.put(out);
        put_opaque(out, self.name);
    }

    fn take(from: &mut Reader<'a>) -> Result<Place<'a>, XdrError> {
        Ok(Place { dir: Xdr::take(from)?, name: from.opaque(NAME_BYTES_MAX)? })
    }
}

/// What a time is set to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// It stays.
    #[default]
    Keep,
    /// The server's time.
    Now,
    /// This one.
    To(Time),
}

impl Xdr<'_> for SetTime {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SetTime::Keep => 0u32.put(out),
            SetTime::Now => 1u32.put(out),
            SetTime::To(time) => {
                2u32.put(out);
                time.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<SetTime, XdrError> {
        match u32::take(from)? {
            0 => Ok(SetTime::Keep),
            1 => Ok(SetTime::Now),
            2 => Time::take(from).map(SetTime::To),
            found => Err(XdrError::NoSuchValue { expected: "how to set a time", found }),
        }
    }
}

crate::xdr::record! {
    /// Attributes to set.
    #[derive(Default)]
    SetAttr {
        /// Permissions.
        mode: Option<u32>,
        /// Owner.
        uid: Option<u32>,
        /// Group.
        gid: Option<u32>,
        /// Bytes.
        size: Option<u64>,
        /// Last access.
        atime: SetTime,
        /// Last change of the data.
        mtime: SetTime,
    }
}

/// How to create a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Whether it is there or not.
    Unchecked(SetAttr),
    /// Not if it is there.
    Guarded(SetAttr),
    /// Not if it is there, unless by this very call.
    Exclusive([u8; 8]),
}

impl Xdr<'_> for CreateHow {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            CreateHow::Unchecked(attr) => {
                0u32.put(out);
                attr.put(out);
            }
            CreateHow::Guarded(attr) => {
                1u32.put(out);
                attr.put(out);
            }
            CreateHow::Exclusive(verifier) => {
                2u32.put(out);
                verifier.put(out);
            }
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<CreateHow, XdrError> {
        match u32::take(from)? {
            0 => Xdr::take(from).map(CreateHow::Unchecked),
            1 => Xdr::take(from).map(CreateHow::Guarded),
            2 => Xdr::take(from).map(CreateHow::Exclusive),
            found => Err(XdrError::NoSuchValue { expected: "how to create a file", found }),
        }
    }
}

/// What MKNOD makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// A device.
    Device {
        /// A block device, and not a character device.
        is_block: bool,
        /// Its attributes.
        attr: SetAttr,
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
    /// A socket.
    Socket(SetAttr),
    /// A FIFO.
    Fifo(SetAttr),
    /// What MKNOD does not make.
    Other(Kind),
}

impl Xdr<'_> for Node {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Node::Device { is_block, attr, major, minor } => {
                if *is_block { Kind::Block } else { Kind::Character }.put(out);
                attr.put(out);
                major.put(out);
                minor.put(out);
            }
            Node::Socket(attr) => {
                Kind::Socket.put(out);
                attr.put(out);
            }
            Node::Fifo(attr) => {
                Kind::Fifo.put(out);
                attr.put(out);
            }
            Node::Other(kind) => kind.put(out),
        }
    }

    fn take(from: &mut Reader<'_>) -> Result<Node, XdrError> {
        match Kind::take(from)? {
            kind @ (Kind::Block | Kind::Character) => Ok(Node::Device {
                is_block: kind == Kind::Block,
                attr: Xdr::take(from)?,
                major: Xdr::take(from)?,
                minor: Xdr::take(from)?,
            }),
            Kind::Socket => Xdr::take(from).map(Node::Socket),
            Kind::Fifo => Xdr::take(from).map(Node::Fifo),
            other => Ok(Node::Other(other)),
        }
    }
}

/// A call of NFS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the specification")]
pub enum Request<'a> {
    Null,
    GetAttr(FileHandle),
    SetAttr { file: FileHandle, attr: SetAttr, guard: Option<Time> },
    LookUp(Place<'a>),
    Access { file: FileHandle, access: u32 },
    ReadLink(FileHandle),
    Read { file: FileHandle, offset: u64, count: u32 },
    Write { file: FileHandle, offset: u64, count: u32, stable: Stable, data: &'a [u8] },
    Create { place: Place<'a>, how: CreateHow },
    MkDir { place: Place<'a>, attr: SetAttr },
    SymLink { place: Place<'a>, attr: SetAttr, target: &'a [u8] },
    MkNod { place: Place<'a>, node: Node },
    Remove(Place<'a>),
    RmDir(Place<'a>),
    Rename { from: Place<'a>, to: Place<'a> },
    Link { file: FileHandle, place: Place<'a> },
    ReadDir { dir: FileHandle, cookie: u64, verifier: [u8; 8], count: u32 },
    ReadDirPlus { dir: FileHandle, cookie: u64, verifier: [u8; 8], dir_count: u32, count: u32 },
    FsStat(FileHandle),
    FsInfo(FileHandle),
    PathConf(FileHandle),
    Commit { file: FileHandle, offset: u64, count: u32 },
}

/// The arguments of a call, one after another.
macro_rules! put_all {
    ($out:ident, $($field:expr),*) => {{ $($field.put($out);)* }};
}

impl<'a> Request<'a> {
    /// Takes the arguments of a procedure, all of them; `None`: there is no such procedure.
    pub fn take(number: u32, from: &mut Reader<'a>) -> Result<Option<Request<'a>>, XdrError> {
        let request = match number {
            procedure::NULL => Request::Null,
            procedure::GETATTR => Request::GetAttr(Xdr::take(from)?),
            procedure::SETATTR => {
                Request::SetAttr { file: Xdr::take(from)?, attr: Xdr::take(from)?, guard: Xdr::take(from)? }
            }
            procedure::LOOKUP => Request::LookUp(Xdr::take(from)?),
            procedure::ACCESS => Request::Access { file: Xdr::take(from)?, access: Xdr::take(from)? },
            procedure::READLINK => Request::ReadLink(Xdr::take(from)?),
            procedure::READ => {
                Request::Read { file: Xdr::take(from)?, offset: Xdr::take(from)?, count: Xdr::take(from)? }
            }
            procedure::WRITE => Request::Write {
                file: Xdr::take(from)?,
                offset: Xdr::take(from)?,
                count: Xdr::take(from)?,
                stable: Xdr::take(from)?,
                data: from.opaque(TRANSFER_BYTES_MAX)?,
            },
            procedure::CREATE => Request::Create { place: Xdr::take(from)?, how: Xdr::take(from)? },
            procedure::MKDIR => Request::MkDir { place: Xdr::take(from)?, attr: Xdr::take(from)? },
            procedure::SYMLINK => Request::SymLink {
                place: Xdr::take(from)?,
                attr: Xdr::take(from)?,
                target: from.opaque(PATH_BYTES_MAX)?,
            },
            procedure::MKNOD => Request::MkNod { place: Xdr::take(from)?, node: Xdr::take(from)? },
            procedure::REMOVE => Request::Remove(Xdr::take(from)?),
            procedure::RMDIR => Request::RmDir(Xdr::take(from)?),
            procedure::RENAME => Request::Rename { from: Xdr::take(from)?, to: Xdr::take(from)? },
            procedure::LINK => Request::Link { file: Xdr::take(from)?, place: Xdr::take(from)? },
            procedure::READDIR => Request::ReadDir {
                dir: Xdr::take(from)?,
                cookie: Xdr::take(from)?,
                verifier: Xdr::take(from)?,
                count: Xdr::take(from)?,
            },
            procedure::READDIRPLUS => Request::ReadDirPlus {
                dir: Xdr::take(from)?,
                cookie: Xdr::take(from)?,
                verifier: Xdr::take(from)?,
                dir_count: Xdr::take(from)?,
                count: Xdr::take(from)?,
            },
            procedure::FSSTAT => Request::FsStat(Xdr::take(from)?),
            procedure::FSINFO => Request::FsInfo(Xdr::take(from)?),
            procedure::PATHCONF => Request::PathConf(Xdr::take(from)?),
            procedure::COMMIT => {
                Request::Commit { file: Xdr::take(from)?, offset: Xdr::take(from)?, count: Xdr::take(from)? }
            }
            _ => return Ok(None),
        };
        from.end()?;
        Ok(Some(request))
    }

    /// The procedure's number.
    pub fn procedure(&self) -> u32 {
        match self {
            Request::Null => procedure::NULL,
            Request::GetAttr(_) => procedure::GETATTR,
            Request::SetAttr { .. } => procedure::SETATTR,
            Request::LookUp(_) => procedure::LOOKUP,
            Request::Access { .. } => procedure::ACCESS,
            Request::ReadLink(_) => procedure::READLINK,
            Request::Read { .. } => procedure::READ,
            Request::Write { .. } => procedure::WRITE,
            Request::Create { .. } => procedure::CREATE,
            Request::MkDir { .. } => procedure::MKDIR,
            Request::SymLink { .. } => procedure::SYMLINK,
            Request::MkNod { .. } => procedure::MKNOD,
            Request::Remove(_) => procedure::REMOVE,
            Request::RmDir(_) => procedure::RMDIR,
            Request::Rename { .. } => procedure::RENAME,
            Request::Link { .. } => procedure::LINK,
            Request::ReadDir { .. } => procedure::READDIR,
            Request::ReadDirPlus { .. } => procedure::READDIRPLUS,
            Request::FsStat(_) => procedure::FSSTAT,
            Request::FsInfo(_) => procedure::FSINFO,
            Request::PathConf(_) => procedure::PATHCONF,
            Request::Commit { .. } => procedure::COMMIT,
        }
    }

    /// Whether a repetition of the call could do something else than the call did, so that its answer is to be kept, also over a kill. That
    /// of a WRITE need not outlive one.
    pub fn is_kept(number: u32) -> bool {
        use procedure as p;
        matches!(
            number,
            p::SETATTR
                | p::CREATE
                | p::MKDIR
                | p::SYMLINK
                | p::MKNOD
                | p::REMOVE
                | p::RMDIR
                | p::RENAME
                | p::LINK
        )
    }

    /// Appends the arguments, as a client sends them.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Request::Null => {}
            Request::GetAttr(file)
            | Request::ReadLink(file)
            | Request::FsStat(file)
            | Request::FsInfo(file)
            | Request::PathConf(file) => file.put(out),
            Request::SetAttr { file, attr, guard } => put_all!(out, file, attr, guard),
            Request::LookUp(place) | Request::Remove(place) | Request::RmDir(place) => place.put(out),
            Request::Access { file, access } => put_all!(out, file, access),
            Request::Read { file, offset, count } | Request::Commit { file, offset, count } => {
                put_all!(out, file, offset, count);
            }
            Request::Write { file, offset, count, stable, data } => {
                put_all!(out, file, offset, count, stable);
                put_opaque(out, data);
            }
            Request::Create { place, how } => put_all!(out, place, how),
            Request::MkDir { place, attr } => put_all!(out, place, attr),
            Request::SymLink { place, attr, target } => {
                put_all!(out, place, attr);
                put_opaque(out, target);
            }
            Request::MkNod { place, node } => put_all!(out, place, node),
            Request::Rename { from, to } => put_all!(out, from, to),
            Request::Link { file, place } => put_all!(out, file, place),
            Request::ReadDir { dir, cookie, verifier, count } => put_all!(out, dir, cookie, verifier, count),
            Request::ReadDirPlus { dir, cookie, verifier, dir_count, count } => {
                put_all!(out, dir, cookie, verifier, dir_count, count);
            }
        }
    }
}
