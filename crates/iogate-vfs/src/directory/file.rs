//! An open file of a directory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iogate_core::wire::{Attr, Change, Gone, Identity, attr, open};
use iogate_engine::layouts::OpenLayout;
use iogate_engine::store::AppendFile;
use iogate_engine::{FileHandle, Store};
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

use super::beneath::{Place, ProcPath, path_of};
use super::caller::Names;
use super::open_files::OpenFiles;
use super::removed::sync_names;
use super::stat;
use super::verifier::Verifier;
use crate::Caller;
use crate::object_id::{OBJECT, ObjectId};
use crate::outside::OutsideLocks;
use crate::tree::{ObjectName, TreeFile};

/// Most bytes of an extended attribute's value, or of a list of their names, in Linux.
pub(super) const XATTR_BYTES_MAX: usize = 64 << 10;

pub(super) struct DirectoryFile {
    /// For everything but reads and writes.
    pub(super) fd: OwnedFd,
    /// Of the tree.
    pub(super) root: Arc<OwnedFd>,
    pub(super) data: FileHandle,
    pub(super) identity: Identity,
    pub(super) store: Arc<dyn Store>,
    pub(super) names: Arc<Names>,
    pub(super) verifier: Arc<Verifier>,
    /// Held for as long as the file is open.
    pub(super) layout: Option<OpenLayout>,
    pub(super) object: ObjectName,
    /// As the kernel had them when it was opened, and of which file system.
    pub(super) opened: Attr,
    /// Where it counts as open, if it does.
    pub(super) counted: Option<Arc<OpenFiles>>,
    pub(super) is_closed: AtomicBool,
    /// It is the folder whose sync covers all names.
    pub(super) syncs_names: bool,
}

/// What a file's objects are named by: it gets a name if it has none.
pub(super) fn give_object(fd: BorrowedFd<'_>, writes: bool) -> io::Result<ObjectName> {
    loop {
        if let Some(object) = stat::find_object(fd)? {
            return Ok(ObjectName { object, is_new: false });
        }
        match give_new_object(fd) {
            Ok(object) => return Ok(object),
            Err(Errno::EXIST) => {}
            // Nobody can write it here, and nobody has.
            Err(Errno::ROFS | Errno::PERM) if !writes => return Ok(ObjectName::default()),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Gives a file a name for its objects; `EEXIST` if it has one.
fn give_new_object(fd: BorrowedFd<'_>) -> Result<ObjectName, Errno> {
    let id = ObjectId::random().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let text = id.to_string();
    let give = || rustix::fs::fsetxattr(fd, OBJECT, text.as_bytes(), XattrFlags::CREATE);
    let mut given = give();
    if given == Err(Errno::ACCESS) {
        // Made without permission to write, in a process that is not root.
        let mode = Mode::from_raw_mode(rustix::fs::fstat(fd)?.st_mode & 0o7777);
        rustix::fs::fchmod(fd, mode | Mode::RUSR | Mode::WUSR)?;
        given = give();
        rustix::fs::fchmod(fd, mode)?;
    }
    given.map(|()| ObjectName { object: id.0, is_new: true })
}

/// Makes a file where there is none; if it `stripes`, with a name for its objects, where that is possible.
pub(super) fn make(
    place: &Place<'_>,
    flags: OFlags,
    mode: Mode,
    stripes: bool,
) -> Result<(OwnedFd, Option<ObjectName>), Errno> {
    if stripes {
        match make_with_object(place, flags, mode) {
            Ok((fd, object)) => return Ok((fd, Some(object))),
            Err(Errno::EXIST) => return Err(Errno::EXIST),
            Err(_) => {}
        }
    }
    let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    Ok((rustix::fs::openat(&place.dir, place.name, flags, mode)?, None))
}

/// Makes a file that gets its name when it has one for its objects. So nobody sees it without that; nor after a crash, as file systems
/// with a journal keep the order of such changes.
fn make_with_object(place: &Place<'_>, flags: OFlags, mode: Mode) -> Result<(OwnedFd, ObjectName), Errno> {
    let flags = flags.difference(OFlags::TRUNC) | OFlags::TMPFILE | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(&place.dir, c".", flags, mode)?;
    let object = give_new_object(fd.as_fd())?;
    let path = ProcPath::new(&fd);
    rustix::fs::linkat(CWD, path.as_bytes(), &place.dir, place.name, AtFlags::SYMLINK_FOLLOW)?;
    Ok((fd, object))
}

/// The flags of `open(2)` for those of a message, but for those that create.
pub(super) fn flags_of(flags: u32) -> Result<OFlags, Errno> {
    let mut found = match (flags & open::READ != 0, flags & open::WRITE != 0) {
        (true, true) => OFlags::RDWR,
        (true, false) => OFlags::RDONLY,
        (false, true) => OFlags::WRONLY,
        (false, false) => return Err(Errno::INVAL),
    };
    for (flag, adds) in [(open::TRUNCATE, OFlags::TRUNC), (open::DIRECTORY, OFlags::DIRECTORY)] {
        if flags & flag != 0 {
            found |= adds;
        }
    }
    let refused = match () {
        () if flags & open::AGAIN != 0 => open::TRUNCATE | open::EXCLUSIVE | open::TEMPORARY,
        () if flags & open::CREATE != 0 => open::DIRECTORY | open::TEMPORARY,
        () => 0,
    };
    if flags & refused != 0 { Err(Errno::INVAL) } else { Ok(found) }
}

impl DirectoryFile {
    /// Completes attributes by what the extended ones say, and by what counts as open.
    fn complete(&self, mut found: Attr) -> io::Result<Attr> {
        let listed = stat::list_of(&self.fd);
        listed.note(&mut found);
        found.set_file_system(self.opened.file_system());
        if listed.has_object {
            found.object = match self.object.object {
                object if object != [0; 16] => object,
                _ => stat::find_object(&self.fd)?.unwrap_or_default(),
            };
        }
        if let Some(files) = &self.counted {
            let (extra, is_kept) = files.extra(self.identity);
            found.links = found.links.saturating_sub(extra);
            if found.links == 0 && is_kept {
                found.flags |= attr::KEPT;
            }
        }
        Ok(found)
    }
}

impl Drop for DirectoryFile {
    fn drop(&mut self) {
        if let Some(files) = &self.counted
            && !self.is_closed.swap(true, Ordering::Relaxed)
        {
            files.tell(files.lost(self.identity, self.fd.as_fd()));
        }
    }
}

impl TreeFile for DirectoryFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn path(&self) -> Option<PathBuf> {
        path_of(&*self.root, &self.fd)
    }

    fn identity(&self) -> Identity {
        self.identity
    }

    fn attr(&self) -> io::Result<Attr> {
        self.complete(stat::of(&self.fd)?.attr)
    }

    fn opened_attr(&self) -> io::Result<Attr> {
        self.complete(self.opened)
    }

    fn object(&self) -> ObjectName {
        self.object
    }

    fn close(&self) -> Gone {
        match &self.counted {
            Some(files) if !self.is_closed.swap(true, Ordering::Relaxed) => {
                files.closed(self.identity, self.fd.as_fd())
            }
            _ => Gone::NONE,
        }
    }

    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr> {
        self.names.act(caller, || {
            stat::change(self.fd.as_fd(), change, |fd, size| rustix::fs::ftruncate(fd, size))
        })?;
        self.attr()
    }

    fn sync(&self, data_only: bool) -> io::Result<u64> {
        let synced =
            if self.syncs_names { sync_names(&self.fd) } else { self.store.sync(&self.data, data_only) };
        if let Err(error) = &synced
            && error.kind() != io::ErrorKind::Interrupted
        {
            self.verifier.write_back_failed(self.identity);
        }
        synced.map(|()| self.verifier())
    }

    fn losses(&self) -> u64 {
        self.verifier.losses(self.identity)
    }

    fn verifier(&self) -> u64 {
        self.verifier.of_file(self.identity)
    }

    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()> {
        rustix::fs::fallocate(&self.fd, FallocateFlags::from_bits_retain(mode), offset, bytes)?;
        // As a write does. Not every file system does it itself.
        Ok(stat::clear_privileges(&self.fd)?)
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        let from = if hole { SeekFrom::Hole(offset) } else { SeekFrom::Data(offset) };
        Ok(rustix::fs::seek(&self.fd, from)?)
    }

    fn outside_locks(&self) -> io::Result<Option<OutsideLocks>> {
        OutsideLocks::of(self.fd.as_fd()).map(Some)
    }

    fn append_file(&self) -> io::Result<Option<Arc<AppendFile>>> {
        let flags = OFlags::APPEND | OFlags::CLOEXEC;
        let path = ProcPath::new(&self.fd);
        let open = |access| rustix::fs::openat(CWD, path.as_bytes(), flags | access, Mode::empty());
        // To be read by those who look for records that were torn.
        let fd = open(OFlags::RDWR).or_else(|_| open(OFlags::WRONLY));
        match fd.map_err(io::Error::from).and_then(|fd| self.store.adopt_appending(fd)) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(None),
            Err(error) if may_go_better(&error) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "a file cannot be opened for appends: its size says where they go");
                Ok(None)
            }
        }
    }

    fn before_write(&self, offset: u64) {
        if let Some(layout) = &self.layout {
            layout.before_write(self.fd.as_fd(), offset);
        }
    }

    fn xattr(&self, caller: Caller, name: &[u8]) -> io::Result<Vec<u8>> {
        self.names.look(caller, || {
            let mut value = Vec::with_capacity(XATTR_BYTES_MAX);
            rustix::fs::fgetxattr(&self.fd, name, rustix::buffer::spare_capacity(&mut value))?;
            value.shrink_to_fit();
            Ok(value)
        })
    }

    fn set_xattr(&self, caller: Caller, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        let flags = XattrFlags::from_bits_retain(flags);
        self.names.act(caller, || rustix::fs::fsetxattr(&self.fd, name, value, flags))
    }

    fn xattrs(&self, caller: Caller) -> io::Result<Vec<u8>> {
        self.names.look(caller, || {
            let mut names = Vec::with_capacity(XATTR_BYTES_MAX);
            rustix::fs::flistxattr(&self.fd, rustix::buffer::spare_capacity(&mut names))?;
            names.shrink_to_fit();
            Ok(names)
        })
    }

    fn remove_xattr(&self, caller: Caller, name: &[u8]) -> io::Result<()> {
        self.names.act(caller, || rustix::fs::fremovexattr(&self.fd, name))
    }
}

/// Whether what has failed may succeed later.
fn may_go_better(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EAGAIN | libc::EINTR)
    )
}
