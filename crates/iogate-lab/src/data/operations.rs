//! What a server does with a request on its tree.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use iogate_core::wire::{Opened, Record, Request, Synced, Written, transfer};
use iogate_engine::Origin;
use iogate_vfs::ends::EndHandle;
use iogate_vfs::fence::Pass;
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

/// An open file of a session.
pub(super) struct OpenFile {
    pub(super) file: Arc<dyn TreeFile>,
    /// Through which its end is asked for.
    pub(super) end_handle: Option<EndHandle>,
    pub(super) pass: Pass,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) kind: u16,
    pub(super) fields: Vec<u8>,
    pub(super) payload: Vec<u8>,
    pub(super) caller: Caller,
}

pub(super) fn record<'a>(record: &impl Record<'a>) -> Reply {
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

/// Carries out everything but opening and what asks for ends; `file` is what is open under the request's handle.
pub(super) fn carry_out(tree: &dyn Tree, open: Option<&OpenFile>, asked: &Asked, moves: bool) -> Outcome {
    let request = Request::decode(asked.kind, &asked.fields).map_err(|_| libc::EPROTO)?;
    let carried_out = match open {
        Some(open) => on_file(tree, open, asked, &request, moves),
        None => by_path(tree, asked, &request),
    };
    carried_out.map_err(|error| errno(&error))
}

/// What is asked of an open file.
fn on_file(
    tree: &dyn Tree,
    open: &OpenFile,
    asked: &Asked,
    request: &Request<'_>,
    moves: bool,
) -> io::Result<Reply> {
    let (file, caller) = (&open.file, asked.caller);
    Ok(match *request {
        Request::Close(_) => record(&file.close()),
        Request::Read(read) => {
            bytes(store::read(&*tree.store(), file.data(), read.offset, read.bytes as usize)?)
        }
        Request::Write(write) => {
            let verifier = file.verifier();
            if write.flags & transfer::APPEND != 0 {
                let appended = file.append(caller, Origin::default(), &asked.payload);
                let appended = appended.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EBADF)));
                return Ok(record(&Written { verifier, ..appended? }));
            }
            let is_range = write.flags & transfer::RANGE != 0;
            let _underway = is_range.then(|| open.pass.enter(&**file)).transpose()?;
            file.before_write(write.offset);
            let extends = write.flags & transfer::EXTEND != 0;
            let count = store::write(&*tree.store(), file.data(), write.offset, &asked.payload, extends)?;
            record(&Written { offset: write.offset, bytes: count as u32, verifier })
        }
        Request::Sync(sync) => record(&Synced { verifier: file.sync(sync.data_only != 0)? }),
        Request::Allocate(a) if a.mode & libc::FALLOC_FL_COLLAPSE_RANGE as u32 != 0 && !moves => {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        Request::Allocate(a) => {
            file.allocate(a.mode, a.offset, a.bytes)?;
            Reply::default()
        }
        Request::GetAttr(_) => record(&file.attr()?),
        Request::SetAttr(set) => record(&open.pass.set_attr(&**file, caller, &set.change)?),
        Request::GetXattr(get) => bytes(file.xattr(caller, get.name)?),
        Request::SetXattr(set) => {
            file.set_xattr(caller, set.name, &asked.payload, set.flags)?;
            Reply::default()
        }
        _ => return Err(io::Error::from_raw_os_error(libc::EPROTO)),
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

/// Opens a file; `stripes`: for a client that stripes, which is told what objects are named by. Returns the file and,
/// once it is known whether somebody has begun to set its size, what to answer.
pub(super) fn open(
    tree: &dyn Tree,
    asked: &Asked,
    stripes: bool,
) -> Result<(Arc<dyn TreeFile>, Opened, u32), i32> {
    let Ok(Request::Open(wish)) = Request::decode(asked.kind, &asked.fields) else {
        return Err(libc::EPROTO);
    };
    let how = OpenHow { flags: wish.flags, mode: wish.mode, identity: wish.identity, stripes };
    let file = tree.open(asked.caller, path(wish.path), how).map_err(|error| errno(&error))?;
    let opened = Opened {
        identity: file.identity(),
        pending_size: u64::MAX,
        is_new: (stripes && file.object().is_new).into(),
        attr: file.opened_attr().map_err(|error| errno(&error))?,
    };
    Ok((file, opened, wish.flags))
}
