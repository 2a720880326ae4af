//! The answers of NFS version 3.

use super::{
    Fattr, FileHandle, NAME_BYTES_MAX, PATH_BYTES_MAX, Stable, Status, TRANSFER_BYTES_MAX, Time, Wcc,
    procedure,
};
use crate::xdr::{Reader, Xdr, XdrError, padding, put_opaque, record};

record! {
    /// The space of a file system.
    #[allow(missing_docs, reason = "the names are those of the specification")]
    FsStat {
        total_bytes: u64,
        free_bytes: u64,
        available_bytes: u64,
        total_files: u64,
        free_files: u64,
        available_files: u64,
        invariant_seconds: u32,
    }
}

record! {
    /// What a server can do.
    #[allow(missing_docs, reason = "the names are those of the specification")]
    FsInfo {
        read_max: u32,
        read_preferred: u32,
        read_multiple: u32,
        write_max: u32,
        write_preferred: u32,
        write_multiple: u32,
        read_dir_preferred: u32,
        file_bytes_max: u64,
        time_delta: Time,
        properties: u32,
    }
}

record! {
    /// What names and links there may be.
    #[allow(missing_docs, reason = "the names are those of the specification")]
    PathConf {
        links_max: u32,
        name_bytes_max: u32,
        no_truncation: bool,
        chown_restricted: bool,
        case_insensitive: bool,
        case_preserving: bool,
    }
}

record! {
    /// What became of a write.
    WriteOk {
        /// Bytes written.
        count: u32,
        /// How durable they are.
        stable: Stable,
        /// Changes when what was written and not committed may be lost.
        verifier: u64,
    }
}

record! {
    /// What became of a COMMIT.
    CommitOk {
        /// As of [`WriteOk`].
        verifier: u64,
    }
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainEntry {
    /// Its number.
    pub fileid: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// Where the next READDIR goes on.
    pub cookie: u64,
}

/// An entry of a directory, with what it leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlusEntry {
    /// The entry.
    pub entry: PlainEntry,
    /// The attributes, if they are known.
    pub attr: Option<Fattr>,
    /// The handle, if the caller may have it.
    pub file: Option<FileHandle>,
}

/// A piece of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<E> {
    /// Zero: cookies stay good.
    pub verifier: [u8; 8],
    /// The entries.
    pub entries: Vec<E>,
    /// There are no more.
    pub is_end: bool,
}

/// Bytes of an entry in an answer.
pub fn entry_bytes(name: &[u8]) -> usize {
    4 + 8 + 4 + name.len() + padding(name.len()) + 8
}

/// Bytes of an entry with all that there may be in an answer.
pub fn plus_entry_bytes(name: &[u8], file: Option<&FileHandle>) -> usize {
    let handle = file.map_or(0, |file| 4 + file.as_bytes().len() + padding(file.as_bytes().len()));
    entry_bytes(name) + 4 + FATTR_BYTES + 4 + handle
}

/// Bytes of attributes.
const FATTR_BYTES: usize = 5 * 4 + 2 * 8 + 2 * 4 + 2 * 8 + 3 * 8;

impl Xdr<'_> for PlainEntry {
    fn put(&self, out: &mut Vec<u8>) {
        self.fileid.put(out);
        put_opaque(out, &self.name);
        self.cookie.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<PlainEntry, XdrError> {
        Ok(PlainEntry {
            fileid: Xdr::take(from)?,
            name: from.opaque(NAME_BYTES_MAX)?.to_vec(),
            cookie: Xdr::take(from)?,
        })
    }
}

impl Xdr<'_> for PlusEntry {
    fn put(&self, out: &mut Vec<u8>) {
        self.entry.put(out);
        self.attr.put(out);
        self.file.put(out);
    }

    fn take(from: &mut Reader<'_>) -> Result<PlusEntry, XdrError> {
        Ok(PlusEntry { entry: Xdr::take(from)?, attr: Xdr::take(from)?, file: Xdr::take(from)? })
    }
}

impl<'a, E: Xdr<'a>> Xdr<'a> for Listing<E> {
    fn put(&self, out: &mut Vec<u8>) {
        self.verifier.put(out);
        for entry in &self.entries {
            true.put(out);
            entry.put(out);
        }
        false.put(out);
        self.is_end.put(out);
    }

    fn take(from: &mut Reader<'a>) -> Result<Listing<E>, XdrError> {
        let verifier = Xdr::take(from)?;
        let mut entries = Vec::new();
        while bool::take(from)? {
            entries.push(E::take(from)?);
        }
        Ok(Listing { verifier, entries, is_end: Xdr::take(from)? })
    }
}

/// The results of a call. Where a call may fail, `Err` has the status and what there is beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the specification")]
pub enum Reply {
    Null,
    GetAttr(Result<Fattr, Status>),
    SetAttr(Status, Wcc),
    LookUp {
        result: Result<(FileHandle, Option<Fattr>), Status>,
        dir: Option<Fattr>,
    },
    Access {
        result: Result<u32, Status>,
        attr: Option<Fattr>,
    },
    ReadLink {
        result: Result<Vec<u8>, Status>,
        attr: Option<Fattr>,
    },
    /// Data and whether the file ends with it. The server writes it by [`put_read_head`].
    Read {
        result: Result<(Vec<u8>, bool), Status>,
        attr: Option<Fattr>,
    },
    Write {
        result: Result<WriteOk, Status>,
        wcc: Wcc,
    },
    /// Of CREATE, MKDIR, SYMLINK and MKNOD.
    Made {
        result: Result<(Option<FileHandle>, Option<Fattr>), Status>,
        dir: Wcc,
    },
    /// Of REMOVE and RMDIR.
    Removed(Status, Wcc),
    Rename {
        status: Status,
        from: Wcc,
        to: Wcc,
    },
    Link {
        status: Status,
        attr: Option<Fattr>,
        dir: Wcc,
    },
    ReadDir {
        result: Result<Listing<PlainEntry>, Status>,
        dir: Option<Fattr>,
    },
    ReadDirPlus {
        result: Result<Listing<PlusEntry>, Status>,
        dir: Option<Fattr>,
    },
    FsStat {
        result: Result<FsStat, Status>,
        attr: Option<Fattr>,
    },
    FsInfo {
        result: Result<FsInfo, Status>,
        attr: Option<Fattr>,
    },
    PathConf {
        result: Result<PathConf, Status>,
        attr: Option<Fattr>,
    },
    Commit {
        result: Result<CommitOk, Status>,
        wcc: Wcc,
    },
}

/// A status, then what there is in any case, then the results.
fn put_result<'a, T: Xdr<'a>, B: Xdr<'a>>(out: &mut Vec<u8>, result: &Result<T, Status>, beside: &B) {
    match result {
        Ok(value) => {
            Status::Ok.put(out);
            beside.put(out);
            value.put(out);
        }
        Err(status) => {
            status.put(out);
            beside.put(out);
        }
    }
}

fn take_result<'a, T, B: Xdr<'a>>(
    from: &mut Reader<'a>,
    take: impl FnOnce(&mut Reader<'a>) -> Result<T, XdrError>,
) -> Result<(Result<T, Status>, B), XdrError> {
    let status = Status::take(from)?;
    let beside = B::take(from)?;
    Ok((if status == Status::Ok { Ok(take(from)?) } else { Err(status) }, beside))
}

/// Appends the results of a READ up to its data, which follows with its padding.
pub fn put_read_head(out: &mut Vec<u8>, attr: Option<&Fattr>, bytes: usize, is_end: bool) {
    Status::Ok.put(out);
    attr.copied().put(out);
    (bytes as u32).put(out);
    is_end.put(out);
    (bytes as u32).put(out);
}

impl Reply {
    /// What became of the call.
    pub fn status(&self) -> Status {
        fn of<T>(result: &Result<T, Status>) -> Status {
            result.as_ref().err().copied().unwrap_or(Status::Ok)
        }
        match self {
            Reply::Null => Status::Ok,
            Reply::GetAttr(result) => of(result),
            Reply::SetAttr(status, _) | Reply::Removed(status, _) => *status,
            Reply::Rename { status, .. } | Reply::Link { status, .. } => *status,
            Reply::LookUp { result, .. } => of(result),
            Reply::Access { result, .. } => of(result),
            Reply::ReadLink { result, .. } => of(result),
            Reply::Read { result, .. } => of(result),
            Reply::Write { result, .. } => of(result),
            Reply::Made { result, .. } => of(result),
            Reply::ReadDir { result, .. } => of(result),
            Reply::ReadDirPlus { result, .. } => of(result),
            Reply::FsStat { result, .. } => of(result),
            Reply::FsInfo { result, .. } => of(result),
            Reply::PathConf { result, .. } => of(result),
            Reply::Commit { result, .. } => of(result),
        }
    }

    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Null => {}
            Reply::GetAttr(Ok(attr)) => {
                Status::Ok.put(out);
                attr.put(out);
            }
            Reply::GetAttr(Err(status)) => status.put(out),
            Reply::SetAttr(status, wcc) | Reply::Removed(status, wcc) => {
                status.put(out);
                wcc.put(out);
            }
            Reply::LookUp { result: Ok((file, attr)), dir } => {
                Status::Ok.put(out);
                file.put(out);
                attr.put(out);
                dir.put(out);
            }
            Reply::LookUp { result: Err(status), dir } => {
                status.put(out);
                dir.put(out);
            }
            Reply::Access { result, attr } => put_result(out, result, attr),
            Reply::ReadLink { result: Ok(target), attr } => {
                Status::Ok.put(out);
                attr.put(out);
                put_opaque(out, target);
            }
            Reply::Read { result: Ok((data, is_end)), attr } => {
                put_read_head(out, attr.as_ref(), data.len(), *is_end);
                out.extend_from_slice(data);
                out.extend_from_slice(&[0; 3][..padding(data.len())]);
            }
            Reply::ReadLink { result: Err(status), attr } | Reply::Read { result: Err(status), attr } => {
                status.put(out);
                attr.put(out);
            }
            Reply::Write { result, wcc } => put_result(out, result, wcc),
            Reply::Made { result: Ok((file, attr)), dir } => {
                Status::Ok.put(out);
                file.put(out);
                attr.put(out);
                dir.put(out);
            }
            Reply::Made { result: Err(status), dir } => {
                status.put(out);
                dir.put(out);
            }
            Reply::Rename { status, from, to } => {
                status.put(out);
                from.put(out);
                to.put(out);
            }
            Reply::Link { status, attr, dir } => {
                status.put(out);
                attr.put(out);
                dir.put(out);
            }
            Reply::ReadDir { result, dir } => put_result(out, result, dir),
            Reply::ReadDirPlus { result, dir } => put_result(out, result, dir),
            Reply::FsStat { result, attr } => put_result(out, result, attr),
            Reply::FsInfo { result, attr } => put_result(out, result, attr),
            Reply::PathConf { result, attr } => put_result(out, result, attr),
            Reply::Commit { result, wcc } => put_result(out, result, wcc),
        }
    }

    /// Takes the results of a procedure, all of them, as a client does; `None`: there is no such procedure.
    pub fn take(number: u32, from: &mut Reader<'_>) -> Result<Option<Reply>, XdrError> {
        let reply = match number {
            procedure::NULL => Reply::Null,
            procedure::GETATTR => Reply::GetAttr(match Status::take(from)? {
                Status::Ok => Ok(Xdr::take(from)?),
                status => Err(status),
            }),
            procedure::SETATTR => Reply::SetAttr(Xdr::take(from)?, Xdr::take(from)?),
            procedure::REMOVE | procedure::RMDIR => Reply::Removed(Xdr::take(from)?, Xdr::take(from)?),
            procedure::LOOKUP => {
                let result = match Status::take(from)? {
                    Status::Ok => Ok((Xdr::take(from)?, Xdr::take(from)?)),
                    status => Err(status),
                };
                Reply::LookUp { result, dir: Xdr::take(from)? }
            }
            procedure::ACCESS => {
                let (result, attr) = take_result(from, Xdr::take)?;
                Reply::Access { result, attr }
            }
            procedure::READLINK => {
                let take = |from: &mut Reader<'_>| Ok(from.opaque(PATH_BYTES_MAX)?.to_vec());
                let (result, attr) = take_result(from, take)?;
                Reply::ReadLink { result, attr }
            }
            procedure::READ => {
                let take = |from: &mut Reader<'_>| {
                    let (_count, is_end) = (u32::take(from)?, bool::take(from)?);
                    Ok((from.opaque(TRANSFER_BYTES_MAX)?.to_vec(), is_end))
                };
                let (result, attr) = take_result(from, take)?;
                Reply::Read { result, attr }
            }
            procedure::WRITE => {
                let (result, wcc) = take_result(from, Xdr::take)?;
                Reply::Write { result, wcc }
            }
            procedure::CREATE | procedure::MKDIR | procedure::SYMLINK | procedure::MKNOD => {
                let result = match Status::take(from)? {
                    Status::Ok => Ok((Xdr::take(from)?, Xdr::take(from)?)),
                    status => Err(status),
                };
                Reply::Made { result, dir: Xdr::take(from)? }
            }
            procedure::RENAME => {
                Reply::Rename { status: Xdr::take(from)?, from: Xdr::take(from)?, to: Xdr::take(from)? }
            }
            procedure::LINK => {
                Reply::Link { status: Xdr::take(from)?, attr: Xdr::take(from)?, dir: Xdr::take(from)? }
            }
            procedure::READDIR => {
                let (result, dir) = take_result(from, Xdr::take)?;
                Reply::ReadDir { result, dir }
            }
            procedure::READDIRPLUS => {
                let (result, dir) = take_result(from, Xdr::take)?;
                Reply::ReadDirPlus { result, dir }
            }
            procedure::FSSTAT => {
                let (result, attr) = take_result(from, Xdr::take)?;
                Reply::FsStat { result, attr }
            }
            procedure::FSINFO => {
                let (result, attr) = take_result(from, Xdr::take)?;
                Reply::FsInfo { result, attr }
            }
            procedure::PATHCONF => {
                let (result, attr) = take_result(from, Xdr::take)?;
                Reply::PathConf { result, attr }
            }
            procedure::COMMIT => {
                let (result, wcc) = take_result(from, Xdr::take)?;
                Reply::Commit { result, wcc }
            }
            _ => return Ok(None),
        };
        from.end()?;
        Ok(Some(reply))
    }
}
