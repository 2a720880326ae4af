//! What a server does with a request on its tree.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::wire::{NO_HANDLE, Opened, Record, Request, Synced, Written, transfer};
use iogate_engine::Origin;
use iogate_vfs::{Caller, OpenHow, Tree, TreeFile};

use super::store;

/// What a request is answered with: fields and payload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) fields: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// A reply, or the error.
pub(super) type Outcome = Result<Reply, i32>;

/// The files that a session has open.
pub(super) type Handles = Arc<Mutex<BTreeMap<u32, Arc<dyn TreeFile>>>>;

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) kind: u16,
    pub(super) fields: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) caller: Caller,
}

fn record<'a>(record: &impl Record<'a>) -> Reply {
    let mut fields = Vec::new();
    record.encode(&mut fields);
    Reply { fields, payload: Vec::new() }
}

fn bytes(payload: Vec<u8>) -> Reply {
    Reply { fields: Vec::new(), payload }
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// The error's number.
pub(super) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// What a session has open under a handle.
pub(super) fn file(handles: &Handles, handle: u32) -> io::Result<Arc<dyn TreeFile>> {
    let handles = handles.lock().unwrap_or_else(PoisonError::into_inner);
    handles.get(&handle).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
}

/// Carries out everything but what asks for ends.
pub(super) fn carry_out(tree: &dyn Tree, handles: &Handles, asked: &Asked, moves: bool) -> Outcome {
    let request = Request::decode(asked.kind, &asked.fields).map_err(|_| libc::EPROTO)?;
    on_file(tree, handles, asked, &request, moves)
        .unwrap_or_else(|| by_path(tree, asked, &request))
        .map_err(|error| errno(&error))
}

/// What is asked of an open file; `None`: it names a path.
fn on_file(
    tree: &dyn Tree,
    handles: &Handles,
    asked: &Asked,
    request: &Request<'_>,
    moves: bool,
) -> Option<io::Result<Reply>> {
    let (caller, open) = (asked.caller, |handle| file(handles, handle));
    let done = |()| Reply::default();
    Some(match *request {
        Request::Close(close) => {
            let closed = handles.lock().unwrap_or_else(PoisonError::into_inner).remove(&close.handle);
            closed.map_or_else(
                || Err(io::Error::from_raw_os_error(libc::EBADF)),
                |file| Ok(record(&file.close())),
            )
        }
        Request::Read(read) => open(read.handle)
            .and_then(|file| store::read(&*tree.store(), file.data(), read.offset, read.bytes as usize))
            .map(bytes),
        Request::Write(write) => open(write.handle).and_then(|file| {
            let verifier = file.verifier();
            if write.flags & transfer::APPEND != 0 {
                let appended = file.append(caller, Origin::default(), &asked.payload);
                let appended = appended.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EBADF)));
                return Ok(record(&Written { verifier, ..appended? }));
            }
            file.before_write(write.offset);
            let extends = write.flags & transfer::EXTEND != 0;
            let count = store::write(&*tree.store(), file.data(), write.offset, &asked.payload, extends)?;
            Ok(record(&Written { offset: write.offset, bytes: count as u32, verifier }))
        }),
        Request::Sync(sync) => open(sync.handle)
            .and_then(|file| file.sync(sync.data_only != 0))
            .map(|verifier| record(&Synced { verifier })),
        Request::Allocate(a) if a.mode & libc::FALLOC_FL_COLLAPSE_RANGE as u32 != 0 && !moves => {
            Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
        }
        Request::Allocate(a) => {
            open(a.handle).and_then(|file| file.allocate(a.mode, a.offset, a.bytes)).map(done)
        }
        Request::GetAttr(get) if get.handle != NO_HANDLE => {
            open(get.handle).and_then(|file| file.attr()).map(|attr| record(&attr))
        }
        Request::SetAttr(set) if set.handle != NO_HANDLE => {
            open(set.handle).and_then(|file| file.set_attr(caller, &set.change)).map(|attr| record(&attr))
        }
        Request::GetXattr(get) if get.handle != NO_HANDLE => {
            open(get.handle).and_then(|file| file.xattr(caller, get.name)).map(bytes)
        }
        Request::SetXattr(set) if set.handle != NO_HANDLE => open(set.handle)
            .and_then(|file| file.set_xattr(caller, set.name, &asked.payload, set.flags))
            .map(done),
        _ => return None,
    })
}

/// What is asked of names.
fn by_path(tree: &dyn Tree, asked: &Asked, request: &Request<'_>) -> io::Result<Reply> {
    let caller = asked.caller;
    Ok(match *request {
        Request::GetAttr(get) => record(&tree.attr(caller, path(get.path))?),
        Request::SetAttr(set) => record(&tree.set_attr(caller, path(set.path), set.identity, &set.change)?),
        Request::MakeNode(make) => {
            record(&tree.make_node(caller, path(make.path), make.mode, make.device)?)
        }
        Request::Symlink(link) => record(&tree.symlink(caller, path(link.target), path(link.path))?),
        Request::Link(link) => record(&tree.link(caller, path(link.path), path(link.to))?),
        Request::ReadLink(read) => bytes(tree.read_link(caller, path(read.path))?),
        Request::Unlink(unlink) => record(&tree.unlink(caller, path(unlink.path), unlink.directory != 0)?),
        Request::Rename(rename) => {
            record(&tree.rename(caller, path(rename.path), path(rename.to), rename.flags)?)
        }
        Request::StatFs(_) => record(&tree.space()?),
        Request::GetXattr(get) => bytes(tree.xattr(caller, path(get.path), get.name)?),
        Request::SetXattr(set) => {
            tree.set_xattr(caller, path(set.path), set.identity, set.name, &asked.payload, set.flags)?;
            Reply::default()
        }
        _ => return Err(io::Error::from_raw_os_error(libc::EPROTO)),
    })
}

/// Opens a file; `stripes`: for a client that stripes, which is told what objects are named by.
pub(super) fn open(tree: &dyn Tree, handles: &Handles, asked: &Asked, stripes: bool) -> Outcome {
    let Ok(Request::Open(wish)) = Request::decode(asked.kind, &asked.fields) else {
        return Err(libc::EPROTO);
    };
    let how = OpenHow { flags: wish.flags, mode: wish.mode, identity: wish.identity, stripes };
    let opened = || {
        let file = tree.open(asked.caller, path(wish.path), how)?;
        let opened = Opened {
            identity: file.identity(),
            pending_size: u64::MAX,
            is_new: (stripes && file.object().is_new).into(),
            attr: file.opened_attr()?,
        };
        handles.lock().unwrap_or_else(PoisonError::into_inner).insert(wish.handle, file);
        Ok(record(&opened))
    };
    opened().map_err(|error: io::Error| errno(&error))
}
