//! Names and attributes: what does not pass the gate.

use std::io;
use std::sync::Arc;

use iogate_core::wire::{Change, Identity, Timestamp, set};
use iogate_vfs::Caller;
use iogate_vfs::held::HeldTree;
use rustix::fs::Access;

use super::attr::{change, status, time};
use super::open_files::OpenFile;
use super::{Lasting, Named, Service};
use crate::handle::export_of;
use crate::wire::{
    CreateHow, Fattr, FileHandle, FsInfo, FsStat, Kind, Node, PathConf, Place, Reply, SetAttr, Status,
    TRANSFER_BYTES_MAX, Time, Wcc,
};

/// What MKDIR, SYMLINK and MKNOD make.
#[derive(Clone, Copy)]
pub(super) enum Made<'a> {
    /// A directory, a FIFO, a socket or a device: its type and its number.
    Node(u32, u64),
    /// A symbolic link.
    Link(&'a [u8]),
}

/// What is about to lose a name, and what is open of it and not synced.
type Going<H> = (Identity, Vec<Arc<OpenFile<H>>>);

/// The bits of ACCESS.
mod access {
    pub(super) const READ: u32 = 1;
    pub(super) const LOOKUP: u32 = 2;
    pub(super) const MODIFY: u32 = 4;
    pub(super) const EXTEND: u32 = 8;
    pub(super) const DELETE: u32 = 16;
    pub(super) const EXECUTE: u32 = 32;
}

/// Links, symbolic links, the same for all files, and times can be set.
const PROPERTIES: u32 = 0x1b;
/// Bytes of an answer to READDIR that clients best ask for.
const READ_DIR_BYTES: u32 = 64 << 10;

fn sys(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl<T: HeldTree> Service<T> {
    /// A directory that a call names.
    pub(super) fn named_dir(&self, handle: &FileHandle) -> Result<Named<T::Held>, (Status, Option<Fattr>)> {
        let named = self.named(handle).map_err(|status| (status, None))?;
        if named.attr.kind == Kind::Directory { Ok(named) } else { Err((Status::NotDir, Some(named.attr))) }
    }

    pub(super) fn look_up(&self, caller: Caller, place: &Place<'_>) -> Reply {
        let dir = match self.named_dir(&place.dir) {
            Ok(dir) => dir,
            Err((status, dir)) => return Reply::LookUp { result: Err(status), dir },
        };
        // Above the root there is nothing.
        let is_root = dir.object.identity == self.objects.root().identity;
        let name = if is_root && place.name == b".." { b"." } else { place.name };
        let found = self.export.tree.hold_entry(caller, &dir.object.held, name).and_then(|fd| {
            let known = self.export.tree.known(&fd)?;
            Ok((self.objects.adopt(fd, &known, &dir.object, name)?, self.attr_of(&known)))
        });
        let result = match found {
            Ok((object, attr)) => Ok((self.objects.handle(&object), Some(attr))),
            // A directory on which another file system is mounted.
            Err(error) if error.raw_os_error() == Some(libc::EXDEV) => Err(Status::Access),
            Err(error) => Err(status(&error)),
        };
        let dir = if result.is_ok() { Some(dir.attr) } else { self.look(&dir.object) };
        Reply::LookUp { result, dir }
    }

    pub(super) fn access(&self, caller: Caller, file: &FileHandle, asked: u32) -> Reply {
        let named = match self.named(file) {
            Ok(named) => named,
            Err(status) => return Reply::Access { result: Err(status), attr: None },
        };
        let (execute, change) = match named.attr.kind {
            Kind::Directory => (access::LOOKUP, access::MODIFY | access::EXTEND | access::DELETE),
            _ => (access::EXECUTE, access::MODIFY | access::EXTEND),
        };
        let mut rights = Access::empty();
        for (bits, right) in
            [(access::READ, Access::READ_OK), (execute, Access::EXEC_OK), (change, Access::WRITE_OK)]
        {
            if asked & bits != 0 {
                rights |= right;
            }
        }
        if named.attr.kind == Kind::Directory && rights.contains(Access::WRITE_OK) {
            rights |= Access::EXEC_OK;
        }
        let permitted = self.export.tree.permitted(caller, &named.object.held, rights);
        let result = permitted.map_err(|error| status(&error)).map(|permitted| {
            let has = |right, bits| if permitted.contains(right) { bits } else { 0 };
            let changes = match named.attr.kind {
                _ if self.export.read_only => 0,
                // A name is changed by who may search the directory, too.
                Kind::Directory => has(Access::WRITE_OK | Access::EXEC_OK, change),
                _ => has(Access::WRITE_OK, change),
            };
            asked & (has(Access::READ_OK, access::READ) | has(Access::EXEC_OK, execute) | changes)
        });
        Reply::Access { result, attr: Some(named.attr) }
    }

    pub(super) fn read_link(&self, caller: Caller, file: &FileHandle) -> Reply {
        let named = match self.named(file) {
            Ok(named) => named,
            Err(status) => return Reply::ReadLink { result: Err(status), attr: None },
        };
        let result = match named.attr.kind {
            Kind::Link => {
                self.export.tree.read_held_link(caller, &named.object.held).map_err(|error| status(&error))
            }
            _ => Err(Status::Inval),
        };
        Reply::ReadLink { result, attr: self.look(&named.object) }
    }

    pub(super) fn set_attr(
        &self,
        caller: Caller,
        file: &FileHandle,
        attr: &SetAttr,
        guard: Option<Time>,
    ) -> Reply {
        let named = match self.named(file) {
            Ok(named) => named,
            Err(status) => return Reply::SetAttr(status, Wcc::default()),
        };
        if guard.is_some_and(|guard| guard != time(named.known.attr.ctime)) {
            return Reply::SetAttr(Status::NotSync, Wcc { before: None, after: Some(named.attr) });
        }
        let (result, wcc) = self.changing(&named, || self.set(caller, &named.object.held, attr));
        Reply::SetAttr(result.err().unwrap_or(Status::Ok), wcc)
    }

    /// Sets what is to be set: the size by itself, as its owner may set it without permission to write.
    fn set(&self, caller: Caller, held: &T::Held, attr: &SetAttr) -> io::Result<()> {
        let mut whole = change(attr);
        if attr.size.is_some_and(|size| size > i64::MAX as u64) {
            return Err(sys(libc::EFBIG));
        }
        if attr.size.is_some() {
            let size = Change { which: set::SIZE, size: whole.size, ..Change::default() };
            self.export.tree.change_held(caller, held, &size)?;
            whole.which &= !set::SIZE;
        }
        if whole.which != 0 {
            self.export.tree.change_held(caller, held, &whole)?;
        }
        Ok(())
    }

    pub(super) fn create(&self, caller: Caller, place: &Place<'_>, how: &CreateHow) -> Reply {
        self.making(place, |dir| self.create_in(caller, dir, place.name, how))
    }

    fn create_in(
        &self,
        caller: Caller,
        dir: &Named<T::Held>,
        name: &[u8],
        how: &CreateHow,
    ) -> io::Result<T::Held> {
        let tree = &self.export.tree;
        let mode = match how {
            CreateHow::Unchecked(attr) | CreateHow::Guarded(attr) => attr.mode.unwrap_or(0o600),
            // The client sets them when it knows that it has made the file.
            CreateHow::Exclusive(_) => 0,
        };
        match (tree.create_entry(caller, &dir.object.held, name, mode), how) {
            (Ok(fd), CreateHow::Exclusive(verifier)) => {
                tree.change_held(caller, &fd, &verifier_change(verifier))?;
                Ok(fd)
            }
            (Ok(fd), CreateHow::Unchecked(attr) | CreateHow::Guarded(attr)) => {
                self.set_new(caller, &fd, &SetAttr { size: attr.size.filter(|size| *size > 0), ..*attr })?;
                Ok(fd)
            }
            (Err(error), _) if error.raw_os_error() != Some(libc::EEXIST) => Err(error),
            (Err(exists), CreateHow::Guarded(_)) => Err(exists),
            (Err(exists), CreateHow::Unchecked(attr)) => {
                let fd = tree.hold_entry(caller, &dir.object.held, name)?;
                let known = tree.known(&fd)?;
                if self.attr_of(&known).kind != Kind::Regular {
                    return Err(exists);
                }
                if let Some(size) = attr.size {
                    self.set(caller, &fd, &SetAttr { size: Some(size), ..SetAttr::default() })?;
                    // The sync of the directory is for what is new in it.
                    self.make_durable(&fd, &known)?;
                }
                Ok(fd)
            }
            (Err(exists), CreateHow::Exclusive(verifier)) => {
                let fd = tree.hold_entry(caller, &dir.object.held, name)?;
                let (found, wanted) = (tree.known(&fd)?.attr, verifier_change(verifier));
                let is_same = found.size == 0
                    && found.mode == libc::S_IFREG
                    && found.mtime.seconds == wanted.mtime.seconds
                    && found.atime.seconds == wanted.atime.seconds;
                if is_same { Ok(fd) } else { Err(exists) }
            }
        }
    }

    /// Sets what a new file is to have and does not have yet: its permissions are set.
    pub(super) fn set_new(&self, caller: Caller, fd: &T::Held, attr: &SetAttr) -> io::Result<()> {
        let found = self.export.tree.known(fd)?.attr;
        let attr = SetAttr {
            mode: None,
            uid: attr.uid.filter(|uid| *uid != found.uid),
            gid: attr.gid.filter(|gid| *gid != found.gid),
            ..*attr
        };
        self.set(caller, fd, &attr)
    }

    pub(super) fn make(&self, caller: Caller, place: &Place<'_>, attr: &SetAttr, made: Made<'_>) -> Reply {
        self.making(place, |dir| {
            let (tree, dir) = (&self.export.tree, &dir.object.held);
            let fd = match made {
                Made::Node(kind, device) => {
                    let mode = attr.mode.unwrap_or(0o777) & 0o7777;
                    tree.make_entry(caller, dir, place.name, kind | mode, device)?
                }
                Made::Link(target) if target.is_empty() || target.contains(&0) => {
                    return Err(sys(libc::EINVAL));
                }
                Made::Link(target) => tree.symlink_entry(caller, dir, place.name, target)?,
            };
            self.set_new(caller, &fd, &SetAttr { size: None, ..*attr })?;
            Ok(fd)
        })
    }

    pub(super) fn make_node(&self, caller: Caller, place: &Place<'_>, node: &Node) -> Reply {
        let (kind, attr, device) = match node {
            Node::Device { is_block, attr, major, minor } => {
                let kind = if *is_block { libc::S_IFBLK } else { libc::S_IFCHR };
                (kind, attr, rustix::fs::makedev(*major, *minor))
            }
            Node::Socket(attr) => (libc::S_IFSOCK, attr, 0),
            Node::Fifo(attr) => (libc::S_IFIFO, attr, 0),
            Node::Other(_) => {
                let after = self.named(&place.dir).ok().map(|dir| dir.attr);
                return Reply::Made { result: Err(Status::BadType), dir: Wcc { before: None, after } };
            }
        };
        self.make(caller, place, attr, Made::Node(kind, device))
    }

    /// Makes an entry of a directory.
    pub(super) fn making(
        &self,
        place: &Place<'_>,
        make: impl FnOnce(&Named<T::Held>) -> io::Result<T::Held>,
    ) -> Reply {
        let dir = match self.named_dir(&place.dir) {
            Ok(dir) => dir,
            Err((status, after)) => {
                return Reply::Made { result: Err(status), dir: Wcc { before: None, after } };
            }
        };
        if matches!(place.name, b"." | b"..") {
            let wcc = Wcc { before: None, after: Some(dir.attr) };
            return Reply::Made { result: Err(Status::Exist), dir: wcc };
        }
        let (result, wcc) = self.changing(&dir, || {
            let fd = make(&dir)?;
            let known = self.export.tree.known(&fd)?;
            let object = self.objects.adopt(fd, &known, &dir.object, place.name)?;
            Ok((Some(self.objects.handle(&object)), Some(self.attr_of(&known))))
        });
        Reply::Made { result, dir: wcc }
    }

    pub(super) fn remove(&self, caller: Caller, place: &Place<'_>, directory: bool) -> Reply {
        let dir = match self.named_dir(&place.dir) {
            Ok(dir) => dir,
            Err((status, after)) => return Reply::Removed(status, Wcc { before: None, after }),
        };
        if matches!(place.name, b"." | b"..") {
            let status = if place.name == b"." { Status::Inval } else { Status::Exist };
            return Reply::Removed(status, Wcc { before: None, after: Some(dir.attr) });
        }
        let (result, wcc) = self.changing(&dir, || {
            let going = self.goes(caller, &dir, place.name);
            let removed = self.export.tree.unlink_entry(caller, &dir.object.held, place.name, directory);
            self.gone(going, removed.map(drop))
        });
        Reply::Removed(result.err().unwrap_or(Status::Ok), wcc)
    }

    /// What an entry is that is about to be removed or replaced.
    fn goes(&self, caller: Caller, dir: &Named<T::Held>, name: &[u8]) -> Option<Going<T::Held>> {
        let fd = self.export.tree.hold_entry(caller, &dir.object.held, name).ok()?;
        let identity = self.export.tree.known(&fd).ok()?.identity;
        Some((identity, self.open_files.take_out(identity)))
    }

    /// The end of a removal, which may have failed.
    fn gone(&self, going: Option<Going<T::Held>>, removed: io::Result<()>) -> io::Result<()> {
        if let Some((identity, open)) = going {
            self.open_files.let_go(open, removed.is_ok());
            if removed.is_ok() {
                self.objects.let_go(identity);
            }
        }
        removed
    }

    pub(super) fn rename(&self, caller: Caller, from: &Place<'_>, to: &Place<'_>) -> Reply {
        let wcc = |after| Wcc { before: None, after };
        if export_of(&from.dir) != export_of(&to.dir) {
            return Reply::Rename { status: Status::XDev, from: wcc(None), to: wcc(None) };
        }
        let from_dir = match self.named_dir(&from.dir) {
            Ok(dir) => dir,
            Err((status, after)) => {
                return Reply::Rename { status, from: wcc(after), to: Wcc::default() };
            }
        };
        let to_dir = match self.named_dir(&to.dir) {
            Ok(dir) => dir,
            Err((status, after)) => {
                return Reply::Rename { status, from: wcc(Some(from_dir.attr)), to: wcc(after) };
            }
        };
        let is_one = from_dir.object.identity == to_dir.object.identity;
        let rename = || {
            let victim = self.goes(caller, &to_dir, to.name);
            let (old, new) = (&from_dir.object.held, &to_dir.object.held);
            let renamed = self.export.tree.rename_entry(caller, (old, from.name), (new, to.name));
            self.gone(victim, renamed.map(drop))?;
            // Where a table says where files are, it learns of it.
            let moved = self.export.tree.hold_entry(caller, new, to.name);
            if let Ok(fd) = moved
                && self.objects.lasting() != Lasting::Always
                && let Ok(known) = self.export.tree.known(&fd)
            {
                let _ = self.objects.adopt(fd, &known, &to_dir.object, to.name);
            }
            Ok(())
        };
        let (result, from, to) = if is_one {
            let (result, wcc) = self.changing(&from_dir, rename);
            (result, wcc, wcc)
        } else {
            let ((result, to), from) = {
                let mut inner = None;
                let (outer, from) = self.changing(&from_dir, || {
                    inner = Some(self.changing(&to_dir, rename));
                    Ok(())
                });
                // Both directories are to be durable.
                let (result, to) = inner.unwrap_or((Ok(()), wcc(Some(to_dir.attr))));
                ((result.and(outer), to), from)
            };
            (result, from, to)
        };
        Reply::Rename { status: result.err().unwrap_or(Status::Ok), from, to }
    }

    pub(super) fn link(&self, caller: Caller, file: &FileHandle, place: &Place<'_>) -> Reply {
        if export_of(file) != export_of(&place.dir) {
            return Reply::Link { status: Status::XDev, attr: None, dir: Wcc::default() };
        }
        let named = match self.named(file) {
            Ok(named) => named,
            Err(status) => return Reply::Link { status, attr: None, dir: Wcc::default() },
        };
        let dir = match self.named_dir(&place.dir) {
            Ok(dir) => dir,
            Err((status, after)) => {
                let dir = Wcc { before: None, after };
                return Reply::Link { status, attr: Some(named.attr), dir };
            }
        };
        let (result, wcc) = self.changing(&dir, || match named.attr.kind {
            Kind::Directory => Err(sys(libc::EISDIR)),
            _ if matches!(place.name, b"." | b"..") => Err(sys(libc::EEXIST)),
            _ => self.export.tree.link_entry(caller, &named.object.held, &dir.object.held, place.name),
        });
        let status = result.err().unwrap_or(Status::Ok);
        Reply::Link { status, attr: self.look(&named.object), dir: wcc }
    }

    pub(super) fn fs_stat(&self, file: &FileHandle) -> Reply {
        let named = match self.named(file) {
            Ok(named) => named,
            Err(status) => return Reply::FsStat { result: Err(status), attr: None },
        };
        let space = self.export.tree.free_space();
        let result = space.map_err(|error| status(&error)).map(|space| {
            let bytes = |blocks: u64| blocks.saturating_mul(space.block_bytes);
            FsStat {
                total_bytes: bytes(space.blocks),
                free_bytes: bytes(space.blocks_free),
                available_bytes: bytes(space.blocks_available),
                total_files: space.files,
                free_files: space.files_free,
                available_files: space.files_free,
                invariant_seconds: 0,
            }
        });
        Reply::FsStat { result, attr: Some(named.attr) }
    }

    pub(super) fn fs_info(&self, file: &FileHandle) -> Reply {
        let attr = self.named(file).map(|named| named.attr);
        let result = attr.map(|_| FsInfo {
            read_max: TRANSFER_BYTES_MAX,
            read_preferred: TRANSFER_BYTES_MAX,
            read_multiple: 4096,
            write_max: TRANSFER_BYTES_MAX,
            write_preferred: TRANSFER_BYTES_MAX,
            write_multiple: 4096,
            read_dir_preferred: READ_DIR_BYTES,
            file_bytes_max: i64::MAX as u64,
            time_delta: Time { seconds: 0, nanoseconds: 1 },
            properties: PROPERTIES,
        });
        Reply::FsInfo { result, attr: attr.ok() }
    }

    pub(super) fn path_conf(&self, file: &FileHandle) -> Reply {
        let attr = self.named(file).map(|named| named.attr);
        let names = self.export.tree.free_space().map(|space| space.name_bytes_max);
        let result = attr.map(|_| PathConf {
            links_max: 32_000,
            name_bytes_max: names.unwrap_or(255),
            no_truncation: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        });
        Reply::PathConf { result, attr: attr.ok() }
    }
}

/// Where a new file has the verifier of the call that made it, until the client sets its times: 31 bits in each, as a time before 1970
/// is not one that every file system keeps.
pub(super) fn verifier_change(verifier: &[u8; 8]) -> Change {
    let number = u64::from_be_bytes(*verifier);
    let seconds = |bits: u64| Timestamp { seconds: (bits & 0x7fff_ffff) as i64, nanoseconds: 0 };
    let (atime, mtime) = (seconds(number), seconds(number >> 32));
    Change { which: set::ATIME | set::MTIME, atime, mtime, ..Change::default() }
}
