//! The calls and answers of MOUNT version 3 (RFC 1813, appendix I).

use super::{FileHandle, PATH_BYTES_MAX};
use crate::xdr::{Reader, Xdr, XdrError, put_opaque};

const NULL: u32 = 0;
const MNT: u32 = 1;
const DUMP: u32 = 2;
const UMNT: u32 = 3;
const UMNTALL: u32 = 4;
const EXPORT: u32 = 5;

/// Most bytes of a client's name.
const HOST_BYTES_MAX: u32 = 255;
/// Flavours of authentication that an answer may name.
const FLAVOURS_MAX: usize = 16;

/// A call of MOUNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountRequest<'a> {
    /// Nothing.
    Null,
    /// The handle of what has a path.
    Mount(&'a [u8]),
    /// Who has mounted what.
    Dump,
    /// A path is not mounted any more.
    Unmount(&'a [u8]),
    /// Nothing is.
    UnmountAll,
    /// What there is to mount.
    Exports,
}

impl<'a> MountRequest<'a> {
    /// Takes the arguments of a procedure; `None`: there is no such procedure.
    pub fn take(procedure: u32, from: &mut Reader<'a>) -> Result<Option<MountRequest<'a>>, XdrError> {
        let request = match procedure {
            NULL => MountRequest::Null,
            MNT => MountRequest::Mount(from.opaque(PATH_BYTES_MAX)?),
            DUMP => MountRequest::Dump,
            UMNT => MountRequest::Unmount(from.opaque(PATH_BYTES_MAX)?),
            UMNTALL => MountRequest::UnmountAll,
            EXPORT => MountRequest::Exports,
            _ => return Ok(None),
        };
        from.end()?;
        Ok(Some(request))
    }

    /// The procedure's number.
    pub fn procedure(&self) -> u32 {
        match self {
            MountRequest::Null => NULL,
            MountRequest::Mount(_) => MNT,
            MountRequest::Dump => DUMP,
            MountRequest::Unmount(_) => UMNT,
            MountRequest::UnmountAll => UMNTALL,
            MountRequest::Exports => EXPORT,
        }
    }

    /// Appends the arguments, as a client sends them.
    pub fn put(&self, out: &mut Vec<u8>) {
        if let MountRequest::Mount(path) | MountRequest::Unmount(path) = self {
            put_opaque(out, path);
        }
    }
}

/// Who has mounted what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The client.
    pub host: String,
    /// The path, as the client asked for it.
    pub path: Vec<u8>,
}

/// What may be mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Its path.
    pub path: Vec<u8>,
    /// Who may; none: everybody.
    pub clients: Vec<String>,
}

/// The results of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountReply {
    /// Of what has none.
    Nothing,
    /// A handle and the flavours of authentication that are taken, or an error: a number that NFS has, too.
    Mount(Result<(FileHandle, Vec<u32>), u32>),
    /// What is mounted.
    Mounts(Vec<Mounted>),
    /// What may be.
    Exports(Vec<Export>),
}

impl MountReply {
    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            MountReply::Nothing => {}
            MountReply::Mount(Ok((file, flavours))) => {
                0u32.put(out);
                file.put(out);
                (flavours.len() as u32).put(out);
                flavours.iter().for_each(|flavour| flavour.put(out));
            }
            MountReply::Mount(Err(status)) => status.put(out),
            MountReply::Mounts(mounts) => {
                for mounted in mounts {
                    true.put(out);
                    put_opaque(out, mounted.host.as_bytes());
                    put_opaque(out, &mounted.path);
                }
                false.put(out);
            }
            MountReply::Exports(exports) => {
                for export in exports {
                    true.put(out);
                    put_opaque(out, &export.path);
                    for client in &export.clients {
                        true.put(out);
                        put_opaque(out, client.as_bytes());
                    }
                    false.put(out);
                }
                false.put(out);
            }
        }
    }

    /// Takes the results of a procedure, as a client does; `None`: there is no such procedure.
    pub fn take(procedure: u32, from: &mut Reader<'_>) -> Result<Option<MountReply>, XdrError> {
        let host = |from: &mut Reader<'_>| -> Result<String, XdrError> {
            Ok(String::from_utf8_lossy(from.opaque(HOST_BYTES_MAX)?).into_owned())
        };
        let reply = match procedure {
            NULL | UMNT | UMNTALL => MountReply::Nothing,
            MNT => match u32::take(from)? {
                0 => {
                    let (file, count) = (FileHandle::take(from)?, u32::take(from)?);
                    if count as usize > FLAVOURS_MAX {
                        return Err(XdrError::TooLong { found: count, max: FLAVOURS_MAX as u32 });
                    }
                    let flavours = (0..count).map(|_| u32::take(from)).collect::<Result<_, _>>()?;
                    MountReply::Mount(Ok((file, flavours)))
                }
                status => MountReply::Mount(Err(status)),
            },
            DUMP => {
                let mut mounts = Vec::new();
                while bool::take(from)? {
                    mounts.push(Mounted { host: host(from)?, path: from.opaque(PATH_BYTES_MAX)?.to_vec() });
                }
                MountReply::Mounts(mounts)
            }
            EXPORT => {
                let mut exports = Vec::new();
                while bool::take(from)? {
                    let path = from.opaque(PATH_BYTES_MAX)?.to_vec();
                    let mut clients = Vec::new();
                    while bool::take(from)? {
                        clients.push(host(from)?);
                    }
                    exports.push(Export { path, clients });
                }
                MountReply::Exports(exports)
            }
            _ => return Ok(None),
        };
        from.end()?;
        Ok(Some(reply))
    }
}
