//! A directory of this machine as a tree.
//!
//! Nothing outside it is ever reached, and what a caller does is done with its permissions, if the process is root.
//! A thread that calls has an empty umask from then on. Only regular files and directories can be opened: FIFOs and
//! devices belong to the client's machine.

mod beneath;
mod caller;
mod entries;
mod file;
mod file_systems;
pub(crate) mod held;
mod open_files;
mod removed;
mod stat;
mod verifier;

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use iogate_core::file_locks::Note;
use iogate_core::wire::{Attr, Change, Entry, Gone, Identity, Space, open};
use iogate_engine::Store;
use iogate_engine::layouts::OpenLayouts;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;

use crate::object_id::OBJECT;
use crate::tree::{ObjectName, OpenHow, Tree, TreeFile, WhenGone};
use crate::{Caller, private};
pub use beneath::path_of;
use beneath::{Place, ProcPath, is_another};
use caller::Names;
use file::{DirectoryFile, XATTR_BYTES_MAX, flags_of, give_object, make};
use file_systems::FileSystems;
pub(crate) use held::reopen;
use open_files::OpenFiles;
use removed::Own;
use verifier::Verifier;

/// Bytes of directory entries that are read at once.
const LIST_BYTES: usize = 8 << 10;
/// How often to try to open or create a file that others remove and create meanwhile.
const TRIES: usize = 100;

/// A directory of this machine.
pub struct DirectoryTree {
    root: Arc<OwnedFd>,
    store: Arc<dyn Store>,
    names: Arc<Names>,
    layouts: OnceLock<Arc<OpenLayouts>>,
    verifier: Arc<Verifier>,
    file_systems: Arc<FileSystems>,
    files: Arc<OpenFiles>,
}

impl DirectoryTree {
    /// The tree below an existing directory. The store takes over the open files ([`Store::adopt`]), so it is a
    /// [`DirectoryStore`](iogate_engine::store::DirectoryStore), or one around it. Fails if the directory cannot be opened, or without
    /// `/proc`.
    pub fn new(root: &Path, store: Arc<dyn Store>) -> io::Result<DirectoryTree> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = Arc::new(rustix::fs::open(root, flags, Mode::empty())?);
        rustix::fs::stat(ProcPath::new(&root).as_bytes())
            .map_err(|errno| io::Error::other(format!("/proc is needed, and not there: {errno}")))?;
        let verifier = Arc::new(Verifier::of(&root)?);
        let file_systems = Arc::new(FileSystems::below(&root)?);
        let files = Arc::new(OpenFiles::new(Arc::clone(&root), Arc::clone(&file_systems)));
        Ok(DirectoryTree {
            root,
            verifier,
            store,
            names: Arc::new(Names::new()),
            layouts: OnceLock::new(),
            file_systems,
            files,
        })
    }

    /// Has each file's own layout asked for while it is open, for an engine over this tree's store. The first call counts.
    pub fn learn_layouts(&self, layouts: Arc<OpenLayouts>) {
        let _ = self.layouts.set(layouts);
    }

    fn find<'a>(&'a self, path: &'a Path) -> Result<Place<'a>, Errno> {
        reachable(path)?;
        Place::find(self.root.as_fd(), path)
    }

    /// Opens a path below the root.
    fn open_beneath(&self, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        reachable(path)?;
        beneath::open(self.root.as_fd(), path, flags, mode)
    }

    /// Runs an operation on what has a name, in the caller's name.
    fn with_held<R>(
        &self,
        caller: Caller,
        path: &Path,
        operation: impl FnOnce(OwnedFd) -> Result<R, Errno>,
    ) -> io::Result<R> {
        self.names.act(caller, || operation(self.find(path)?.hold()?))
    }

    /// As [`DirectoryTree::with_held`], for what only looks.
    fn look_held<R>(
        &self,
        caller: Caller,
        path: &Path,
        operation: impl FnOnce(OwnedFd) -> Result<R, Errno>,
    ) -> io::Result<R> {
        self.names.look(caller, || operation(self.find(path)?.hold()?))
    }

    /// Opens a file. One that is made now may have been given a name for its objects.
    fn open_fd(
        &self,
        caller: Caller,
        path: &Path,
        how: &OpenHow,
    ) -> io::Result<(OwnedFd, Option<ObjectName>)> {
        let has = |flag| how.flags & flag != 0;
        let exclusive = has(open::CREATE) && has(open::EXCLUSIVE);
        let flags = flags_of(how.flags)?;
        let mode = Mode::from_raw_mode(how.mode & 0o7777);
        if has(open::TEMPORARY) {
            let flags = flags | OFlags::TMPFILE;
            let made = self.names.act(caller, || self.open_beneath(path, flags, mode))?;
            let object = how.stripes.then(|| give_object(made.as_fd(), true)).transpose()?;
            return Ok((made, object));
        }
        for _ in 0..TRIES {
            if !exclusive {
                match self.open_existing(caller, path, how, flags) {
                    Err(error) if has(open::CREATE) && error.raw_os_error() == Some(libc::ENOENT) => {}
                    opened => return opened.map(|fd| (fd, None)),
                }
            }
            let uid = if self.acts_for_others() { caller.uid } else { rustix::process::geteuid().as_raw() };
            let follows = (!exclusive && !has(open::NO_FOLLOW)).then_some(uid);
            let created = self.names.act(caller, || {
                reachable(path)?;
                let stripes = how.stripes && has(open::WRITE);
                beneath::create(self.root.as_fd(), path, follows, |place| make(place, flags, mode, stripes))
            });
            match created {
                // Somebody else created it, or removed it.
                Err(error) if !exclusive && error.raw_os_error() == Some(libc::EEXIST) => {}
                created => return created,
            }
        }
        Err(Errno::BUSY.into())
    }

    /// Opens what is there, by holding it first: to open a FIFO or a device may block, or do something.
    fn open_existing(
        &self,
        caller: Caller,
        path: &Path,
        how: &OpenHow,
        flags: OFlags,
    ) -> io::Result<OwnedFd> {
        let mut hold = OFlags::PATH;
        if how.flags & open::NO_FOLLOW != 0 {
            hold |= OFlags::NOFOLLOW;
        }
        self.open_held(caller, how, flags, || self.open_beneath(path, hold, Mode::empty()))
    }

    /// Opens what `hold` holds in the caller's name.
    fn open_held(
        &self,
        caller: Caller,
        how: &OpenHow,
        flags: OFlags,
        hold: impl FnOnce() -> Result<OwnedFd, Errno>,
    ) -> io::Result<OwnedFd> {
        let again = how.flags & open::AGAIN != 0;
        let mut owner = None;
        let open = || {
            let held = hold()?;
            let known = stat::of(&held)?;
            if again && self.file_systems.identity(&known, &held)? != how.identity {
                return Err(Errno::STALE);
            }
            match FileType::from_raw_mode(known.attr.mode) {
                FileType::Directory if how.flags & open::CREATE != 0 => return Err(Errno::ISDIR),
                FileType::RegularFile | FileType::Directory => {}
                FileType::Symlink if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
                FileType::Symlink => return Err(Errno::LOOP),
                _ if flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
                _ => return Err(Errno::NXIO),
            }
            match reopen(&held, flags) {
                Err(Errno::ACCESS) if again => {
                    owner = Some((known.attr.uid, held));
                    Err(Errno::ACCESS)
                }
                opened => opened,
            }
        };
        let opened = if how.flags & open::TRUNCATE != 0 {
            self.names.act(caller, open)
        } else {
            self.names.look(caller, open)
        };
        match (opened, owner) {
            // Who created a file may write it, whatever its permissions are, as long as it is open; and the owner
            // could change them.
            (Err(_), Some((uid, held))) if uid == caller.uid => Ok(reopen(&held, flags)?),
            (opened, _) => opened,
        }
    }

    /// An open file, which is not counted yet.
    fn file_of(&self, fd: OwnedFd, known: &stat::Known, object: ObjectName) -> io::Result<DirectoryFile> {
        let identity = self.file_systems.identity(known, &fd)?;
        let data = self.store.adopt(rustix::io::fcntl_dupfd_cloexec(&fd, 0)?)?;
        let layout = self.layouts.get().map(|layouts| layouts.open(data.id(), fd.as_fd()));
        Ok(DirectoryFile {
            fd,
            root: Arc::clone(&self.root),
            data,
            layout,
            identity,
            store: Arc::clone(&self.store),
            names: Arc::clone(&self.names),
            object,
            opened: self.file_systems.attr(known),
            counted: None,
            verifier: Arc::clone(&self.verifier),
            is_closed: AtomicBool::new(false),
            syncs_names: false,
        })
    }

    /// Opens a file and counts it. `None`: its last name went meanwhile.
    fn open_counted(
        &self,
        caller: Caller,
        path: &Path,
        how: &OpenHow,
    ) -> io::Result<Option<Arc<dyn TreeFile>>> {
        let again = how.flags & open::AGAIN != 0;
        let mut is_orphan = false;
        let syncs_names = Own::of(path) == Some(Own::Removed);
        let opened = if syncs_names {
            self.open_removed(caller).map(|fd| (fd, None))
        } else {
            self.open_fd(caller, path, how)
        };
        let (fd, given) = match opened {
            // Renamed, removed, replaced.
            Err(error) if again && is_another(&error) => {
                let held = self.files.orphan(how.identity).map_err(|_| Errno::STALE)?;
                is_orphan = true;
                (self.open_held(caller, how, flags_of(how.flags)?, || Ok(held))?, None)
            }
            opened => opened?,
        };
        let known = stat::of(&fd)?;
        let is_file = match FileType::from_raw_mode(known.attr.mode) {
            FileType::RegularFile => true,
            FileType::Directory => false,
            _ => return Err(Errno::NXIO.into()),
        };
        let mut file = self.file_of(fd, &known, given.unwrap_or_default())?;
        file.syncs_names = syncs_names;
        if !is_file {
            return Ok(Some(Arc::new(file)));
        }
        let is_temporary = how.flags & open::TEMPORARY != 0;
        if is_temporary {
            // It has no name, and can be opened again all the same.
            is_orphan = self.files.link(file.fd.as_fd(), file.identity).is_ok();
        }
        self.files.opened(file.identity, is_orphan, is_temporary || is_orphan && known.attr.links <= 1);
        file.counted = Some(Arc::clone(&self.files));
        if how.stripes && given.is_none() {
            file.object = give_object(file.fd.as_fd(), how.flags & open::WRITE != 0)?;
            // It has a name already, so that others could give it other objects after a crash.
            if file.object.is_new {
                rustix::fs::fsync(&file.fd)?;
            }
        }
        file.opened = self.file_systems.attr(&stat::of(&file.fd)?);
        // Whoever has taken its last name since it was found may not have seen that it is open.
        let (links, object) = (file.opened.links, file.object.object);
        if !is_temporary && self.files.is_nameless(file.identity, links, object) {
            return Ok(None);
        }
        Ok(Some(Arc::new(file)))
    }
}

/// Fails if a path leads into the server's own folder.
fn reachable(path: &Path) -> Result<(), Errno> {
    if private::contains(path) { Err(Errno::NOENT) } else { Ok(()) }
}

impl Tree for DirectoryTree {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    fn restore_losses(&self, file: Identity, count: u64) {
        self.verifier.restore(file, count);
    }

    fn is_local(&self) -> bool {
        true
    }

    fn acts_for_others(&self) -> bool {
        self.names.acts_for_others()
    }

    fn gives_ends(&self) -> bool {
        true
    }

    fn open(&self, caller: Caller, path: &Path, how: OpenHow) -> io::Result<Arc<dyn TreeFile>> {
        let mut how = how;
        if how.flags & open::AGAIN != 0 {
            how.flags &= !open::CREATE;
        }
        for _ in 0..TRIES {
            if let Some(file) = self.open_counted(caller, path, &how)? {
                return Ok(file);
            }
        }
        Err(Errno::BUSY.into())
    }

    fn verifier(&self) -> u64 {
        self.verifier.base()
    }

    fn attr(&self, caller: Caller, path: &Path) -> io::Result<Attr> {
        if let Some(Own::RemovedFile(name)) = Own::of(path) {
            return self.removed_attr(caller, name);
        }
        let (place, found) = self.names.look(caller, || {
            let place = self.find(path)?;
            let found = if place.is_root() {
                (stat::of(&place.dir)?, stat::list_of(&place.dir))
            } else {
                stat::look_at(&place)?
            };
            Ok((place, found))
        })?;
        self.attr_at(&place, found)
    }

    fn identity(&self, caller: Caller, path: &Path) -> io::Result<Identity> {
        let is_nested = path.as_os_str().as_bytes().contains(&b'/');
        self.names.look(caller, || {
            // One call where nothing has the name, as before most names are made.
            if is_nested {
                let held = self.open_beneath(path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
                return self.file_systems.identity_of(held);
            }
            let place = self.find(path)?;
            let known =
                if place.is_root() { stat::of(&place.dir) } else { stat::at(&place.dir, place.name) }?;
            let own = self.file_systems.own_identity(&known);
            own.map_or_else(|| self.file_systems.identity_of(place.hold()?), Ok)
        })
    }

    fn set_attr(&self, caller: Caller, path: &Path, identity: Identity, change: &Change) -> io::Result<Attr> {
        let held = self.with_held(caller, path, |held| {
            self.file_systems.expect(&held, identity)?;
            stat::change(held.as_fd(), change, stat::truncate_held)?;
            Ok(held)
        })?;
        self.complete_held(&held)
    }

    fn read_dir(
        &self,
        caller: Caller,
        path: &Path,
        after: u64,
        each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()> {
        if let Some(own) = Own::of(path) {
            return if after == 0 { self.read_own(caller, &own, each) } else { Ok(()) };
        }
        let is_root = path.as_os_str().is_empty();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let dir = self.names.look(caller, || {
            let dir = self.open_beneath(path, flags, Mode::empty())?;
            if after != 0 {
                rustix::fs::seek(&dir, SeekFrom::Start(after))?;
            }
            Ok(dir)
        })?;
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        let mut batch: Vec<(Entry, Vec<u8>)> = Vec::new();
        let mut found_at = Vec::new();
        loop {
            batch.clear();
            found_at.clear();
            let mut list = rustix::fs::RawDir::new(&dir, buffer.spare_capacity_mut());
            self.names.look(caller, || {
                while let Some(found) = list.next() {
                    let found = found?;
                    let name = found.file_name();
                    let is_private = is_root && name.to_bytes() == private::NAME.as_bytes();
                    if !is_private && !matches!(name.to_bytes(), b"." | b"..") {
                        let attr = match stat::at(&dir, name) {
                            Ok(known) => {
                                found_at.push((batch.len(), known, stat::list_at(&dir, name.to_bytes())));
                                Some(known.attr)
                            }
                            Err(Errno::NOENT) => None,
                            // To list needs no permission to look.
                            Err(_) => Some(Attr {
                                inode: found.ino(),
                                mode: found.file_type().as_raw_mode(),
                                ..Attr::default()
                            }),
                        };
                        if let Some(attr) = attr {
                            let name = name.to_bytes().to_vec();
                            let name_bytes = name.len() as u16;
                            batch.push((Entry { next: found.next_entry_cookie(), name_bytes, attr }, name));
                        }
                    }
                    if list.is_buffer_empty() && !batch.is_empty() {
                        break;
                    }
                }
                Ok(())
            })?;
            for &(index, known, listed) in &found_at {
                let (entry, name) = &mut batch[index];
                let name = OsStr::from_bytes(name);
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                entry.attr =
                    self.complete(known, listed, || rustix::fs::openat(&dir, name, flags, Mode::empty()))?;
            }
            if batch.is_empty() || !batch.iter().all(|(entry, name)| each(entry, name)) {
                return Ok(());
            }
        }
    }

    fn make_node(&self, caller: Caller, path: &Path, mode: u32, device: u32) -> io::Result<Attr> {
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        let (place, found) = self.names.act(caller, || {
            let place = self.find(path)?;
            match FileType::from_raw_mode(mode) {
                FileType::Directory => rustix::fs::mkdirat(&place.dir, place.name, permissions)?,
                kind => rustix::fs::mknodat(&place.dir, place.name, kind, permissions, device.into())?,
            }
            let found = stat::look_at(&place)?;
            Ok((place, found))
        })?;
        self.attr_at(&place, found)
    }

    fn symlink(&self, caller: Caller, target: &Path, path: &Path) -> io::Result<Attr> {
        let (place, found) = self.names.act(caller, || {
            let place = self.find(path)?;
            rustix::fs::symlinkat(target, &place.dir, place.name)?;
            let found = stat::look_at(&place)?;
            Ok((place, found))
        })?;
        self.attr_at(&place, found)
    }

    fn link(&self, caller: Caller, path: &Path, to: &Path) -> io::Result<Attr> {
        let (to, found) = self.names.act(caller, || {
            let (from, to) = (self.find(path)?, self.find(to)?);
            rustix::fs::linkat(&from.dir, from.name, &to.dir, to.name, AtFlags::empty())?;
            let found = stat::look_at(&to)?;
            Ok((to, found))
        })?;
        self.attr_at(&to, found)
    }

    fn read_link(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        let target = self.names.look(caller, || {
            let place = self.find(path)?;
            rustix::fs::readlinkat(&place.dir, place.name, Vec::new())
        })?;
        Ok(target.into_bytes())
    }

    fn unlink(&self, caller: Caller, path: &Path, directory: bool) -> io::Result<Gone> {
        if let Some(Own::RemovedFile(name)) = Own::of(path) {
            return self.forget_removed(caller, name);
        }
        let look = || {
            let place = self.find(path)?;
            let held = if directory { None } else { Some(place.hold()?) };
            Ok((place, held))
        };
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        self.remove(caller, false, look, |place| rustix::fs::unlinkat(&place.dir, place.name, flags))
    }

    fn rename(&self, caller: Caller, path: &Path, to: &Path, flags: u32) -> io::Result<Gone> {
        let flags = RenameFlags::from_bits_retain(flags);
        let replaces = !flags.intersects(RenameFlags::EXCHANGE | RenameFlags::NOREPLACE);
        let look = || {
            let (from, to) = (self.find(path)?, self.find(to)?);
            let held = if replaces { to.hold().ok() } else { None };
            Ok(((from, to), held))
        };
        self.remove(caller, true, look, |(from, to)| {
            rustix::fs::renameat_with(&from.dir, from.name, &to.dir, to.name, flags)
        })
    }

    fn when_gone(&self, tell: WhenGone) {
        self.files.when_gone(tell);
    }

    fn keeps_locks(&self) -> bool {
        true
    }

    fn note_locks(&self, note: Option<&Note>) -> io::Result<()> {
        Ok(private::set_file(self.root.as_fd(), private::LOCKED, note.map(Note::to_bytes).as_deref())?)
    }

    fn noted_locks(&self) -> io::Result<Option<Note>> {
        let content = private::file(self.root.as_fd(), private::LOCKED)?;
        Ok(content.as_deref().map(Note::from_bytes))
    }

    fn begin_grace(&self, time: Duration) -> io::Result<()> {
        self.files.begin_grace(time)
    }

    fn space(&self) -> io::Result<Space> {
        Ok(stat::space(&self.root)?)
    }

    fn xattr(&self, caller: Caller, path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
        self.look_held(caller, path, |held| {
            let mut value = Vec::with_capacity(XATTR_BYTES_MAX);
            let path = ProcPath::new(&held);
            rustix::fs::getxattr(path.as_bytes(), name, rustix::buffer::spare_capacity(&mut value))?;
            value.shrink_to_fit();
            Ok(value)
        })
    }

    fn set_xattr(
        &self,
        caller: Caller,
        path: &Path,
        identity: Identity,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> io::Result<()> {
        if name == OBJECT {
            self.files.have_objects();
        }
        let flags = XattrFlags::from_bits_retain(flags);
        self.with_held(caller, path, |held| {
            self.file_systems.expect(&held, identity)?;
            rustix::fs::setxattr(ProcPath::new(&held).as_bytes(), name, value, flags)
        })
    }

    fn xattrs(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        self.look_held(caller, path, |held| {
            let mut names = Vec::with_capacity(XATTR_BYTES_MAX);
            let path = ProcPath::new(&held);
            rustix::fs::listxattr(path.as_bytes(), rustix::buffer::spare_capacity(&mut names))?;
            names.shrink_to_fit();
            Ok(names)
        })
    }

    fn remove_xattr(&self, caller: Caller, path: &Path, identity: Identity, name: &[u8]) -> io::Result<()> {
        self.with_held(caller, path, |held| {
            self.file_systems.expect(&held, identity)?;
            rustix::fs::removexattr(ProcPath::new(&held).as_bytes(), name)
        })
    }
}
