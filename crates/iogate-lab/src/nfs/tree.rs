//! The files of a modelled machine, as a process there holds them.
//!
//! Each call of the system is a step: the process may be killed before it, and others may have their turn. What only looks is none, as
//! it is done under locks.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iogate_core::FileId;
use iogate_core::wire::{Attr, Change, Gone, Identity, Space, Timestamp, set};
use iogate_engine::FileHandle;
use iogate_vfs::held::{Found, HeldTree, Known};
use iogate_vfs::{Caller, Clock, TreeFile};
use rustix::fs::Access;

use super::Planted;
use super::world::{MS, Shared, lock, wait};
use crate::data::disk::Disk;
use crate::data::store::{Data, Held as StoreFile};

/// The type of this file system's handles.
const HANDLE_KIND: i32 = 1;
/// The root's number: the disk makes it first.
const ROOT: u64 = 1;
/// Under which a file has its times and its permissions, if they were set.
const TIMES: [&[u8]; 2] = [b"atime", b"mtime"];
const MODE: &[u8] = b"mode";

pub(super) fn errno<T>(errno: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(errno))
}

/// A call of the system that changes something or waits, for so many nanoseconds at most. Fails if the process is killed before it.
pub(super) fn step(shared: &Shared, life: u64, waits: u64) -> io::Result<()> {
    let until = {
        let mut world = lock(shared);
        if world.server.life != life || world.is_killed_here() {
            return errno(libc::EIO);
        }
        let waits = if world.is_slow { 10 * waits } else { waits };
        world.now + world.rng.below(waits + 1)
    };
    wait(shared, until, |_| None::<()>);
    if lock(shared).server.life == life { Ok(()) } else { errno(libc::EIO) }
}

/// The files, for one of the processes of the server.
#[derive(Clone)]
pub(super) struct SimTree {
    shared: Shared,
    disk: Arc<Mutex<Disk>>,
    life: u64,
    planted: Option<Planted>,
    clock: Clock,
    /// What the process knows of write-backs that failed: the system tells of each once.
    losses: Arc<Mutex<BTreeMap<u64, u64>>>,
}

impl SimTree {
    /// For the process that runs now.
    pub(super) fn new(shared: &Shared) -> SimTree {
        let world = lock(shared);
        SimTree {
            shared: Arc::clone(shared),
            disk: Arc::clone(&world.server.disk),
            life: world.server.life,
            planted: world.planted,
            clock: world.clock(),
            losses: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk, for a look: also of a process that is killed, if it does not notice yet.
    fn look(&self) -> io::Result<MutexGuard<'_, Disk>> {
        let disk = self.lock();
        if disk.lives == self.life { Ok(disk) } else { errno(libc::EIO) }
    }

    /// A call of the system, carried out if the process lives then.
    fn step(&self, waits: u64) -> io::Result<MutexGuard<'_, Disk>> {
        step(&self.shared, self.life, waits)?;
        self.look()
    }

    /// A call of the system that takes little time.
    fn quick(&self) -> io::Result<MutexGuard<'_, Disk>> {
        self.step(MS / 5)
    }

    /// Makes a file durable.
    fn sync(&self, inode: u64) -> io::Result<()> {
        let mut disk = self.step(4 * MS)?;
        if self.planted == Some(Planted::LateSync) || disk.sync(inode) {
            return Ok(());
        }
        drop(disk);
        *self.known_losses().entry(inode).or_default() += 1;
        lock(&self.shared).spare_next_step();
        errno(libc::EIO)
    }

    fn known_losses(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn make(&self, dir: &Held, name: &[u8], mode: u32) -> io::Result<Held> {
        let mut disk = self.quick()?;
        let path = dir.path(&disk)?.join(OsStr::from_bytes(name));
        if disk.names.by_path.contains_key(&path) {
            return errno(libc::EEXIST);
        }
        let inode = disk.make(mode, &path);
        Held::of(&disk, inode)
    }
}

/// A file that is held: it is the same one whatever becomes of its names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held(Identity);

impl Held {
    fn of(disk: &Disk, inode: u64) -> io::Result<Held> {
        let Some(found) = disk.inodes.get(&inode) else { return errno(libc::ESTALE) };
        Ok(Held(Identity { inode, generation: found.generation }))
    }

    /// The path of a directory.
    fn path(self, disk: &Disk) -> io::Result<PathBuf> {
        let found = disk.names.by_path.iter().find(|(_, inode)| **inode == self.0.inode);
        found.map_or_else(|| errno(libc::ENOENT), |(path, _)| Ok(path.clone()))
    }

    /// What a directory has under a name.
    fn entry(self, disk: &Disk, name: &[u8]) -> io::Result<(PathBuf, u64)> {
        let path = self.path(disk)?.join(OsStr::from_bytes(name));
        let inode = disk.names.by_path.get(&path).copied();
        inode.map_or_else(|| errno(libc::ENOENT), |inode| Ok((path, inode)))
    }

    fn attr(self, disk: &Disk) -> io::Result<Attr> {
        let Some(inode) = disk.inodes.get(&self.0.inode) else { return errno(libc::ESTALE) };
        let attribute = |name: &[u8]| disk.names.attributes.get(&(self.0.inode, name.to_vec()));
        let number = |name| {
            attribute(name).and_then(|value| value.first_chunk()).map(|value| i64::from_le_bytes(*value))
        };
        let [atime, mtime] =
            TIMES.map(|name| Timestamp { seconds: number(name).unwrap_or_default(), ..Timestamp::default() });
        let permissions = number(MODE).map_or(inode.mode & 0o7777, |mode| mode as u32);
        Ok(Attr {
            inode: self.0.inode,
            size: inode.bytes.len() as u64,
            blocks: inode.bytes.len().div_ceil(512) as u64,
            mode: inode.mode & libc::S_IFMT | permissions,
            links: disk.links(self.0.inode),
            block_bytes: 4096,
            atime,
            mtime,
            ..Attr::default()
        })
    }
}

impl HeldTree for SimTree {
    type Held = Held;

    fn known(&self, held: &Held) -> io::Result<Known> {
        let disk = self.look()?;
        let attr = match held.attr(&disk) {
            // Its last name is gone, and its bytes are: whoever holds it still sees that.
            Err(_) => Attr { inode: held.0.inode, mode: libc::S_IFREG, ..Attr::default() },
            Ok(attr) => attr,
        };
        Ok(Known { attr, identity: held.0, device: 1 })
    }

    fn clock(&self) -> Clock {
        self.clock.clone()
    }

    fn free_space(&self) -> io::Result<Space> {
        Ok(Space { block_bytes: 4096, name_bytes_max: 255, ..Space::default() })
    }

    fn hold_root(&self) -> io::Result<Held> {
        Held::of(&*self.look()?, ROOT)
    }

    fn open_root(&self) -> io::Result<Held> {
        self.hold_root()
    }

    fn handle_of<R>(&self, held: &Held, take: impl FnOnce(i32, &[u8]) -> R) -> io::Result<R> {
        let Identity { inode, generation } = held.0;
        Ok(take(HANDLE_KIND, &[inode.to_le_bytes(), generation.to_le_bytes()].concat()))
    }

    fn hold_handle(&self, _root: &Held, kind: i32, handle: &[u8]) -> io::Result<Held> {
        let disk = self.quick()?;
        let number = |at: usize| handle.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        match (kind, number(0), number(8)) {
            (HANDLE_KIND, Some(inode), Some(generation)) => {
                let held = Held(Identity { inode, generation });
                let is_there = disk.links(inode) > 0 && Held::of(&disk, inode)?.0 == held.0;
                if is_there { Ok(held) } else { errno(libc::ESTALE) }
            }
            _ => errno(libc::ESTALE),
        }
    }

    fn hold_path(&self, path: &Path) -> io::Result<Held> {
        let disk = self.quick()?;
        match disk.names.by_path.get(path) {
            Some(&inode) => Held::of(&disk, inode),
            None => errno(libc::ENOENT),
        }
    }

    fn hold_entry(&self, _caller: Caller, dir: &Held, name: &[u8]) -> io::Result<Held> {
        let disk = self.quick()?;
        let path = dir.path(&disk)?;
        match name {
            b"." => Ok(*dir),
            b".." => {
                let above = path.parent().and_then(|above| disk.names.by_path.get(above));
                Held::of(&disk, above.copied().unwrap_or(ROOT))
            }
            name => Held::of(&disk, dir.entry(&disk, name)?.1),
        }
    }

    fn permitted(&self, _caller: Caller, _held: &Held, asked: Access) -> io::Result<Access> {
        Ok(asked)
    }

    fn open_held_file(&self, _caller: Caller, held: &Held, _writes: bool) -> io::Result<Arc<dyn TreeFile>> {
        let mut disk = self.quick()?;
        match disk.inodes.get_mut(&held.0.inode) {
            Some(inode) => inode.handles += 1,
            None => return errno(libc::ESTALE),
        }
        drop(disk);
        let of = Arc::new(Opened { tree: self.clone(), held: *held });
        let data: FileHandle = Arc::new(StoreFile(Arc::clone(&of) as Arc<dyn Data>));
        Ok(Arc::new(SimFile { of, data }))
    }

    fn change_held(&self, _caller: Caller, held: &Held, change: &Change) -> io::Result<()> {
        let mut disk = self.quick()?;
        let inode = held.0.inode;
        held.attr(&disk)?;
        if change.which & set::SIZE != 0 {
            disk.set_size(inode, change.size);
        }
        let now = self.clock.wall() as i64 / 1_000_000_000;
        let time = |flag, is_now, to: Timestamp| match change.which {
            which if which & is_now != 0 => Some(now),
            which if which & flag != 0 => Some(to.seconds),
            _ => None,
        };
        let mode = (change.which & set::MODE != 0).then_some(i64::from(change.mode));
        let set = [
            (TIMES[0], time(set::ATIME, set::ATIME_NOW, change.atime)),
            (TIMES[1], time(set::MTIME, set::MTIME_NOW, change.mtime)),
            (MODE, mode),
        ];
        disk.changes();
        for (name, value) in set {
            if let Some(value) = value {
                disk.names.attributes.insert((inode, name.to_vec()), value.to_le_bytes().to_vec());
            }
        }
        Ok(())
    }

    fn sync_held(&self, held: &Held) -> io::Result<()> {
        self.sync(held.0.inode)
    }

    fn losses(&self, file: Identity) -> u64 {
        self.known_losses().get(&file.inode).copied().unwrap_or_default()
    }

    fn restore_losses(&self, file: Identity, count: u64) {
        if self.planted != Some(Planted::FailureForgotten) {
            self.known_losses().insert(file.inode, count);
        }
    }

    fn create_entry(&self, _caller: Caller, dir: &Held, name: &[u8], mode: u32) -> io::Result<Held> {
        self.make(dir, name, libc::S_IFREG | mode)
    }

    fn make_entry(
        &self,
        _caller: Caller,
        dir: &Held,
        name: &[u8],
        mode: u32,
        _device: u64,
    ) -> io::Result<Held> {
        self.make(dir, name, mode)
    }

    /// It has no links of any kind.
    fn symlink_entry(&self, _caller: Caller, _dir: &Held, _name: &[u8], _target: &[u8]) -> io::Result<Held> {
        errno(libc::EPERM)
    }

    fn link_entry(&self, _caller: Caller, _held: &Held, _dir: &Held, _name: &[u8]) -> io::Result<()> {
        errno(libc::EPERM)
    }

    fn unlink_entry(&self, _caller: Caller, dir: &Held, name: &[u8], directory: bool) -> io::Result<Gone> {
        let mut disk = self.quick()?;
        let (path, inode) = dir.entry(&disk, name)?;
        let is_dir = disk.inodes.get(&inode).is_some_and(|inode| inode.mode & libc::S_IFMT == libc::S_IFDIR);
        match (is_dir, directory) {
            (true, false) => return errno(libc::EISDIR),
            (false, true) => return errno(libc::ENOTDIR),
            (true, true) if disk.names.by_path.keys().any(|at| at.parent() == Some(&path)) => {
                return errno(libc::ENOTEMPTY);
            }
            _ => {}
        }
        disk.changes();
        disk.names.by_path.remove(&path);
        Ok(Gone::NONE)
    }

    fn rename_entry(
        &self,
        _caller: Caller,
        (dir, name): (&Held, &[u8]),
        (to_dir, to_name): (&Held, &[u8]),
    ) -> io::Result<Gone> {
        let mut disk = self.quick()?;
        let (path, inode) = dir.entry(&disk, name)?;
        let to = to_dir.path(&disk)?.join(OsStr::from_bytes(to_name));
        disk.changes();
        disk.names.by_path.remove(&path);
        disk.names.by_path.insert(to, inode);
        Ok(Gone::NONE)
    }

    fn read_held_link(&self, _caller: Caller, _held: &Held) -> io::Result<Vec<u8>> {
        errno(libc::EINVAL)
    }

    fn list_held(
        &self,
        _caller: Caller,
        dir: &Held,
        after: u64,
        _holds: bool,
        each: &mut dyn FnMut(Found<'_, Held>) -> bool,
    ) -> io::Result<bool> {
        let disk = self.look()?;
        let path = dir.path(&disk)?;
        let entries = disk.names.by_path.iter().filter(|(at, _)| at.parent() == Some(&path));
        for (next, (at, &inode)) in (1..).zip(entries).skip(after as usize) {
            let name = at.file_name().unwrap_or_default().as_bytes();
            if !each(Found { name, inode, next, held: None }) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// An open file, as a store has it. Nobody waits within the gate: its threads would carry out what others have there meanwhile.
struct Opened {
    tree: SimTree,
    held: Held,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Ok(mut disk) = self.tree.look()
            && let Some(inode) = disk.inodes.get_mut(&self.held.0.inode)
        {
            inode.handles = inode.handles.saturating_sub(1);
        }
    }
}

impl Data for Opened {
    fn id(&self) -> FileId {
        FileId(self.held.0.inode)
    }

    fn read(&self, offset: u64, bytes: usize) -> io::Result<Vec<u8>> {
        let disk = self.tree.look()?;
        let Some(inode) = disk.inodes.get(&self.held.0.inode) else { return errno(libc::ESTALE) };
        let from = inode.bytes.get(offset as usize..).unwrap_or_default();
        let found = from[..bytes.min(from.len())].to_vec();
        drop(disk);
        // Others may change the file before the reader has another look at it.
        drop(self.tree.step(4 * MS)?);
        Ok(found)
    }

    fn write(&self, offset: u64, bytes: &[u8], _extends: bool) -> io::Result<usize> {
        Ok(self.tree.look()?.write(self.held.0.inode, offset, bytes))
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.held.attr(&*self.tree.look()?)?.size)
    }
}

/// An open file.
struct SimFile {
    of: Arc<Opened>,
    data: FileHandle,
}

impl TreeFile for SimFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn identity(&self) -> Identity {
        self.of.held.0
    }

    fn attr(&self) -> io::Result<Attr> {
        self.of.held.attr(&*self.of.tree.look()?)
    }

    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr> {
        self.of.tree.change_held(caller, &self.of.held, change)?;
        self.attr()
    }

    fn sync(&self, _data_only: bool) -> io::Result<u64> {
        self.of.tree.sync(self.of.held.0.inode)?;
        Ok(self.verifier())
    }

    fn verifier(&self) -> u64 {
        let SimTree { planted, life, .. } = self.of.tree;
        let boots = self.of.tree.lock().boots;
        let losses = self.losses();
        match planted {
            Some(Planted::SameVerifier) => 1 + (losses << 32),
            Some(Planted::FailureUntold) => 1 + boots,
            Some(Planted::OwnVerifier) => 1 + boots + (losses << 32) + (life << 48),
            _ => 1 + boots + (losses << 32),
        }
    }

    fn losses(&self) -> u64 {
        self.of.tree.losses(self.of.held.0)
    }

    fn allocate(&self, _mode: u32, _offset: u64, _bytes: u64) -> io::Result<()> {
        errno(libc::EOPNOTSUPP)
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        match self.attr()?.size {
            size if offset >= size => errno(libc::ENXIO),
            size => Ok(if hole { size } else { offset }),
        }
    }
}
