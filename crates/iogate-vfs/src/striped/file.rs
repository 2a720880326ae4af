//! An open file, or directory, of a striped tree.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use iogate_core::wire::{Attr, Change, Gone, Identity, Lock, Written, lock, set};
use iogate_core::{FileId, Layout, TargetId};
use iogate_engine::store::{Parts, StripedStore};
use iogate_engine::{Engine, FileHandle, Origin};

use super::append::End;
use super::objects::Objects;
use super::{refuse_reserved, without_reserved};
use crate::outside::OutsideLocks;
use crate::{Caller, TreeFile};

pub(super) struct StripedFile {
    /// What has the name.
    pub(super) names: Arc<dyn TreeFile>,
    pub(super) objects: Arc<Objects>,
    pub(super) data: FileHandle,
    pub(super) writes: bool,
    /// Losses that this handle has told of: objects are shared by all handles of a file.
    pub(super) told: AtomicU64,
    /// Where its end is given.
    pub(super) end: End,
    pub(super) store: Arc<StripedStore>,
    /// The gate in front of the store, if there is one.
    pub(super) engine: Option<Weak<Engine>>,
    /// It got the name of its objects when it was opened.
    pub(super) is_new: bool,
}

impl StripedFile {
    /// Attributes as clients see them.
    fn seen(&self, attr: Attr) -> Attr {
        Attr { object: [0; 16], size: 0, blocks: 0, ..attr }
    }
}

impl StripedFile {
    /// Fails if locks of the file are lost: the objects know nothing of them.
    fn check_locks(&self) -> io::Result<()> {
        if self.names.doubts_locks() { self.names.confirm_locks() } else { Ok(()) }
    }
}

impl Drop for StripedFile {
    fn drop(&mut self) {
        self.objects.let_go(&self.names);
    }
}

impl TreeFile for StripedFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn path(&self) -> Option<PathBuf> {
        self.names.path()
    }

    fn identity(&self) -> Identity {
        self.names.identity()
    }

    fn attr(&self) -> io::Result<Attr> {
        self.objects.attr(|| self.names.attr())
    }

    fn close(&self) -> Gone {
        self.objects.let_go(&self.names);
        let stripes = &self.objects.stripes;
        let verifier = stripes.names.verifier();
        stripes.discard(self.names.close(), verifier);
        Gone::NONE
    }

    fn opened_attr(&self) -> io::Result<Attr> {
        if self.is_new {
            // It has no objects yet.
            return Ok(self.seen(self.names.opened_attr()?));
        }
        self.attr()
    }

    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr> {
        if change.which & set::SIZE != 0 && !self.writes {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        // The names-file decides on permissions, and has no bytes itself.
        let others = Change { which: change.which & !set::SIZE, ..*change };
        let sets_names = others.which != 0 || change.which == 0;
        if change.which & set::SIZE != 0 {
            if sets_names {
                self.names.set_attr(caller, &others)?;
            }
            self.resize_to(change.size)?;
            if change.which & (set::ATIME | set::MTIME) != 0 {
                let attr = self.names.attr()?;
                return self.objects.complete(attr, self.objects.set_times(change)?);
            }
            return self.objects.changed_attr(|| self.names.attr());
        }
        if change.which & (set::ATIME | set::MTIME) != 0 {
            let attr = self.names.set_attr(caller, &others)?;
            return self.objects.complete(attr, self.objects.set_times(change)?);
        }
        self.objects.changed_attr(|| self.names.set_attr(caller, &others))
    }

    fn sync(&self, data_only: bool) -> io::Result<u64> {
        // What leads to the objects is an attribute of the names-file, which `fdatasync(2)` need not write.
        self.names.sync(false)?;
        let synced = self.objects.sync(data_only);
        let losses = self.losses();
        if self.told.swap(losses, Ordering::AcqRel) != losses {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        synced.map(|()| self.verifier())
    }

    fn verifier(&self) -> u64 {
        self.objects.verifier()
    }

    fn losses(&self) -> u64 {
        self.objects.losses()
    }

    /// Preallocates, frees or zeroes; a range cannot be taken out of a striped file or put into it.
    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()> {
        let fails = |errno| Err(io::Error::from_raw_os_error(errno));
        let known = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        if !self.writes {
            return fails(libc::EBADF);
        }
        if bytes == 0 {
            return fails(libc::EINVAL);
        }
        if mode & !(known as u32) != 0 {
            return fails(libc::EOPNOTSUPP);
        }
        let Some(end) = offset.checked_add(bytes).filter(|&end| i64::try_from(end).is_ok()) else {
            return fails(libc::EFBIG);
        };
        self.check_locks()?;
        self.objects.check_led_to()?;
        let frees = mode & libc::FALLOC_FL_PUNCH_HOLE as u32 != 0;
        let stripes = &self.objects.stripes;
        let allocate = || {
            stripes.each(|target| {
                let (from, to) = (stripes.inner_size(target, offset), stripes.inner_size(target, end));
                if from < to
                    && let Some(object) = self.objects.object(target, !frees)?
                {
                    object.allocate(mode, from, to - from)?;
                }
                Ok(())
            })
        };
        let extends = !frees && mode & libc::FALLOC_FL_KEEP_SIZE as u32 == 0;
        let allocate = || if extends { self.with_end(allocate) } else { allocate() }.map(drop);
        match allocate() {
            Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && stripes.make_room() => allocate(),
            allocated => allocated,
        }
    }

    fn outside_locks(&self) -> io::Result<Option<OutsideLocks>> {
        self.names.outside_locks()
    }

    fn set_lock(&self, wish: &Lock) -> io::Result<()> {
        if wish.kind != lock::NONE {
            // Whoever had it may have written where this process has not.
            self.objects.newness.end();
        }
        self.names.set_lock(wish)
    }

    fn get_lock(&self, wish: &Lock) -> io::Result<Lock> {
        self.names.get_lock(wish)
    }

    fn doubts_locks(&self) -> bool {
        self.names.doubts_locks()
    }

    fn confirm_locks(&self) -> io::Result<()> {
        self.names.confirm_locks()
    }

    fn appends_elsewhere(&self) -> bool {
        true
    }

    fn append(&self, caller: Caller, origin: Origin, bytes: &[u8]) -> Option<io::Result<Written>> {
        Some(self.append_record(caller, origin, bytes))
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        let nothing_there = || io::Error::from_raw_os_error(libc::ENXIO);
        let size = self.attr()?.size;
        if offset >= size {
            return Err(nothing_there());
        }
        let stripes = &self.objects.stripes;
        let found = stripes.each(|target| {
            let inner = stripes.inner_size(target, offset);
            let found = match self.objects.object(target, false)? {
                Some(object) => match object.seek(inner, hole) {
                    Err(error) if error.raw_os_error() == Some(libc::ENXIO) => None,
                    found => Some(found?),
                },
                None => None,
            };
            // What an object does not have is a hole.
            let found = found.or(hole.then_some(inner));
            Ok(found.map(|inner| stripes.layout.outer_offset(TargetId(target as u32), inner)))
        })?;
        match found.into_iter().flatten().min() {
            Some(first) if hole => Ok(first.min(size)),
            Some(first) if first < size => Ok(first),
            _ => Err(nothing_there()),
        }
    }

    fn xattr(&self, caller: Caller, name: &[u8]) -> io::Result<Vec<u8>> {
        refuse_reserved(name, libc::ENODATA)?;
        self.names.xattr(caller, name)
    }

    fn set_xattr(&self, caller: Caller, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        refuse_reserved(name, libc::EPERM)?;
        self.names.set_xattr(caller, name, value, flags)
    }

    fn xattrs(&self, caller: Caller) -> io::Result<Vec<u8>> {
        self.names.xattrs(caller).map(|names| without_reserved(&names))
    }

    fn remove_xattr(&self, caller: Caller, name: &[u8]) -> io::Result<()> {
        refuse_reserved(name, libc::EPERM)?;
        self.names.remove_xattr(caller, name)
    }

    fn layout(&self) -> Option<Layout> {
        Some(self.objects.stripes.layout)
    }
}

/// A directory: all of it is in the names.
pub(super) struct StripedDirectory {
    names: Arc<dyn TreeFile>,
    data: FileHandle,
}

impl StripedDirectory {
    pub(super) fn new(names: Arc<dyn TreeFile>) -> StripedDirectory {
        let data = StripedStore::file(Arc::new(NoParts(names.data().id())), true, false);
        StripedDirectory { names, data }
    }
}

/// What a directory has to read.
#[derive(Debug)]
struct NoParts(FileId);

impl Parts for NoParts {
    fn id(&self) -> FileId {
        self.0
    }

    fn part(&self, _target: usize, _create: bool) -> io::Result<Option<FileHandle>> {
        Err(io::Error::from_raw_os_error(libc::EISDIR))
    }
}

impl TreeFile for StripedDirectory {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn identity(&self) -> Identity {
        self.names.identity()
    }

    fn attr(&self) -> io::Result<Attr> {
        self.names.attr()
    }

    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr> {
        self.names.set_attr(caller, change)
    }

    fn sync(&self, data_only: bool) -> io::Result<u64> {
        self.names.sync(data_only)
    }

    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()> {
        self.names.allocate(mode, offset, bytes)
    }

    fn outside_locks(&self) -> io::Result<Option<OutsideLocks>> {
        self.names.outside_locks()
    }

    fn set_lock(&self, wish: &Lock) -> io::Result<()> {
        self.names.set_lock(wish)
    }

    fn get_lock(&self, wish: &Lock) -> io::Result<Lock> {
        self.names.get_lock(wish)
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        self.names.seek(offset, hole)
    }

    fn xattr(&self, caller: Caller, name: &[u8]) -> io::Result<Vec<u8>> {
        refuse_reserved(name, libc::ENODATA)?;
        self.names.xattr(caller, name)
    }

    fn set_xattr(&self, caller: Caller, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        refuse_reserved(name, libc::EPERM)?;
        self.names.set_xattr(caller, name, value, flags)
    }

    fn xattrs(&self, caller: Caller) -> io::Result<Vec<u8>> {
        self.names.xattrs(caller).map(|names| without_reserved(&names))
    }

    fn remove_xattr(&self, caller: Caller, name: &[u8]) -> io::Result<()> {
        refuse_reserved(name, libc::EPERM)?;
        self.names.remove_xattr(caller, name)
    }
}
