//! Open files, apart from reading and writing them.

use std::ffi::CStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iogate_core::wire::{Change, open, set};
use iogate_engine::{FileHandle, Origin, PathClass};
use iogate_vfs::{Caller, OpenHow, TreeFile};
use rustix::io::Errno;

use super::FileSystem;
use super::node::Node;
use crate::abi::{CreateIn, EntryOut, FallocateIn, InHeader, LseekIn, OpenIn, OpenOut, fopen};
use crate::append::AppendGuard;
use crate::coherence::Coherence;
use crate::file_system::{Opened, errno_of};
use crate::operations::Files;
use crate::options::CacheMode;

/// An open file.
pub(super) struct OpenFile {
    pub(super) file: Arc<dyn TreeFile>,
    pub(super) node: Arc<Node>,
    class: PathClass,
    /// What it was opened for.
    flags: u32,
    /// Losses of writes that this handle has told of: several handles may share the file.
    told: AtomicU64,
}

impl OpenFile {
    /// Fails with `EIO`, once, if writes to the file are known to be lost.
    fn tell_losses(&self) -> Result<(), Errno> {
        let losses = self.file.losses();
        if self.told.swap(losses, Ordering::AcqRel) == losses { Ok(()) } else { Err(Errno::IO) }
    }
}

impl Opened for OpenFile {
    fn data(&self) -> &FileHandle {
        self.file.data()
    }

    fn class(&self) -> &PathClass {
        &self.class
    }

    fn coherence(&self) -> &Arc<Coherence> {
        &self.node.coherence
    }

    fn may_have_suid_sgid(&self) -> bool {
        self.node.mode() & (libc::S_ISUID | libc::S_ISGID) != 0
    }

    /// In the owner's name: whoever may write takes the bits away, and only the owner may say so.
    fn clear_suid_sgid(&self) -> Result<bool, Errno> {
        let clear = || {
            let attr = self.file.attr()?;
            let sgid = if attr.mode & libc::S_IXGRP != 0 { libc::S_ISGID } else { 0 };
            let mode = attr.mode & !(libc::S_ISUID | sgid);
            if mode == attr.mode {
                return Ok((attr, false));
            }
            let change = Change { which: set::MODE, mode: mode & 0o7777, ..Change::default() };
            Ok((self.file.set_attr(Caller::new(attr.uid, attr.gid), &change)?, true))
        };
        let (attr, cleared) = clear().map_err(|error: io::Error| errno_of(&error))?;
        self.node.saw(&attr);
        Ok(cleared)
    }

    fn begin_append(&self, bytes: u32) -> Result<AppendGuard, Errno> {
        self.node.appends.begin(bytes, || self.file.attr().map(|attr| attr.size).map_err(|e| errno_of(&e)))
    }

    fn append(&self, origin: Origin, bytes: &[u8]) -> Option<Result<usize, Errno>> {
        let appended = self.file.append(Caller::default(), origin, bytes)?;
        Some(appended.map(|written| written.bytes as usize).map_err(|error| errno_of(&error)))
    }

    fn sync(&self, data_only: bool) -> Result<(), Errno> {
        let synced = self.file.sync(data_only).map(drop).map_err(|error| errno_of(&error));
        let told = self.tell_losses();
        synced.and(told)
    }

    fn is_far(&self) -> bool {
        true
    }
}

/// The access that a file is opened for, as a tree wants it.
fn access_of(flags: u32) -> u32 {
    let access = match flags as i32 & libc::O_ACCMODE {
        libc::O_RDONLY => open::READ,
        libc::O_WRONLY => open::WRITE,
        _ => open::READ | open::WRITE,
    };
    // To cut a file is to write to it, whatever else is done.
    access | if flags as i32 & libc::O_TRUNC != 0 { open::TRUNCATE | open::WRITE } else { 0 }
}

/// What `O_TRUNC` does to a file, once it is known to be the right one.
fn cut(file: &dyn TreeFile, caller: Caller, flags: u32) -> io::Result<()> {
    if flags & open::TRUNCATE != 0 {
        file.set_attr(caller, &Change { which: set::SIZE, ..Change::default() })?;
    }
    Ok(())
}

impl FileSystem {
    pub(super) fn open_at(
        &self,
        caller: Caller,
        path: &Path,
        flags: u32,
        mode: u32,
    ) -> io::Result<Arc<dyn TreeFile>> {
        let flags = flags | open::NO_FOLLOW;
        let file = self.tree.open(caller, path, OpenHow { flags, mode, ..OpenHow::default() })?;
        self.names.add(file.data().id(), path);
        Ok(file)
    }

    /// A file that is open already, for what `flags` say; `ESTALE` if it is not.
    fn opened_before(&self, caller: Caller, node: &Node, flags: u32) -> Result<Arc<dyn TreeFile>, Errno> {
        let file = node.open_for(flags & (open::READ | open::WRITE)).ok_or(Errno::STALE)?;
        cut(&*file, caller, flags).map_err(|error| errno_of(&error))?;
        Ok(file)
    }

    fn opened(&self, file: Arc<dyn TreeFile>, node: Arc<Node>, flags: u32, appends: bool) -> OpenOut {
        node.opened(&file, flags);
        let told = file.losses().into();
        let fh = self.files.insert(OpenFile { file, node, class: PathClass::default(), flags, told });
        // What was only read cannot have been lost.
        let tells_of_closes = flags & open::WRITE != 0 || self.agreed.shares_locks;
        let no_flush = if tells_of_closes { 0 } else { fopen::NO_FLUSH };
        let open_flags = no_flush
            | match self.cache {
                CacheMode::Direct => fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES,
                // Through its cache the kernel would write records where it believes the end to be, in pieces: other nodes append, too.
                CacheMode::Page if appends => fopen::DIRECT_IO | fopen::KEEP_CACHE,
                CacheMode::Page => fopen::KEEP_CACHE,
            };
        OpenOut { fh, open_flags, padding: 0 }
    }
}

impl Files for FileSystem {
    fn open(&self, header: &InHeader, arg: OpenIn) -> Result<OpenOut, Errno> {
        let appends = arg.flags as i32 & libc::O_APPEND != 0;
        let node = self.nodes.get(header.nodeid)?;
        let flags = access_of(arg.flags);
        let caller = self.caller(header);
        let opened = self.at([(node.id, b"")], |[path]| {
            let file = self.open_at(caller, path, flags & !open::TRUNCATE, 0)?;
            if node.is(file.identity()) {
                cut(&*file, caller, flags)?;
                return Ok(file);
            }
            // The kernel looks the name up again, and finds another node.
            self.nodes.is_another(&node, file.identity(), &file.opened_attr()?);
            Err(io::Error::from_raw_os_error(libc::ESTALE))
        });
        let file = match opened {
            // It has no name any more, and is still open.
            Err(Errno::STALE) => self.opened_before(caller, &node, flags)?,
            // Removed by others: the kernel looks the name up again, and has the file created if it is to be.
            Err(Errno::NOENT) => return Err(Errno::STALE),
            opened => opened?,
        };
        Ok(self.opened(file, node, flags, appends))
    }

    fn create(&self, header: &InHeader, arg: CreateIn, name: &CStr) -> Result<(EntryOut, OpenOut), Errno> {
        let appends = arg.flags as i32 & libc::O_APPEND != 0;
        let place = (header.nodeid, name.to_bytes());
        let caller = self.caller(header);
        let exclusive = if arg.flags as i32 & libc::O_EXCL != 0 { open::EXCLUSIVE } else { 0 };
        let flags = access_of(arg.flags) | open::CREATE | exclusive;
        let mode = self.new_mode(caller, header.nodeid, arg.mode & 0o7777, arg.umask)?;
        let file = self.at([place], |[path]| self.open_at(caller, path, flags, mode))?;
        let attr = file.opened_attr().map_err(|error| errno_of(&error))?;
        let mut node = self.nodes.enter(place, &attr)?;
        if !node.is(file.identity()) {
            self.nodes.is_another(&node, file.identity(), &attr);
            let another = self.nodes.enter(place, &attr);
            self.nodes.forget(node.id, 1);
            node = another?;
        }
        let entry = self.entry_out(&node, &attr);
        Ok((entry, self.opened(file, node, flags, appends)))
    }

    /// Tells of what is known to be lost.
    fn flush(&self, handle: u64) -> Result<(), Errno> {
        self.files.get(handle)?.tell_losses()
    }

    fn release(&self, handle: u64) -> Result<(), Errno> {
        let open = self.files.remove(handle)?;
        open.node.closed(&open.file, open.flags);
        Ok(())
    }

    fn fsync(&self, handle: u64, data_only: bool) -> Result<(), Errno> {
        self.files.get(handle)?.sync(data_only)
    }

    fn fallocate(&self, _: &InHeader, arg: FallocateIn) -> Result<(), Errno> {
        let open = self.files.get(arg.fh)?;
        open.file.allocate(arg.mode, arg.offset, arg.length).map_err(|error| errno_of(&error))
    }

    fn lseek(&self, arg: LseekIn) -> Result<u64, Errno> {
        let open = self.files.get(arg.fh)?;
        let hole = match arg.whence as i32 {
            libc::SEEK_DATA => false,
            libc::SEEK_HOLE => true,
            // The kernel knows the others itself.
            _ => return Err(Errno::INVAL),
        };
        open.file.seek(arg.offset, hole).map_err(|error| errno_of(&error))
    }
}
