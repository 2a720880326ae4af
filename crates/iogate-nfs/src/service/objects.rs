//! From handles to files, and back.
//!
//! As root, and where the file system has handles of its own, the kernel finds a file by what is in the client's handle, after renames and
//! restarts, too. Elsewhere a table ([`Places`]) has the directory and the name of each file that a client has a handle of; a file that
//! others rename is then stale.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use iogate_core::wire::Identity;
use iogate_engine::lock;
use iogate_vfs::held::{HeldTree, Known};

use super::lru::Lru;
use super::places::Places;
use crate::handle::{KernelHandle, Key, Sealer};
use crate::wire::{FileHandle, Status};

/// For how long handles stay good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lasting {
    /// As long as the server runs, and until others rename the file.
    UntilEnd,
    /// Until others rename the file.
    UntilRenamed,
    /// As long as the file is there.
    Always,
}

/// A file that is held.
#[derive(Debug)]
pub(crate) struct Object<H> {
    pub(crate) held: H,
    pub(crate) key: Key,
    pub(crate) identity: Identity,
}

/// A file of a tree that several hold.
type Shared<T> = Arc<Object<<T as HeldTree>::Held>>;

/// The files of an export.
pub(crate) struct Objects<T: HeldTree> {
    tree: Arc<T>,
    sealer: Sealer,
    /// The root, open for reading, if the kernel finds files.
    mount: Option<T::Held>,
    root: Arc<Object<T::Held>>,
    device: u64,
    held: Mutex<Lru<Key, Arc<Object<T::Held>>>>,
    places: Mutex<Places>,
    are_kept: bool,
}

impl<T: HeldTree> Objects<T> {
    /// Of a tree. `kernel`: the kernel may find files, if it can; else what finds them is kept in a folder, if there is one.
    /// At most `held_max` files are held beside those in use.
    pub(crate) fn new(
        tree: Arc<T>,
        sealer: Sealer,
        kernel: bool,
        kept: Option<OwnedFd>,
        held_max: usize,
    ) -> io::Result<Objects<T>> {
        let held = tree.hold_root()?;
        let Known { identity, device, .. } = tree.known(&held)?;
        let root = Arc::new(Object { held, key: Key::Root, identity });
        let mount = tree.open_root()?;
        let found = tree.handle_of(&root.held, |kind, bytes| tree.hold_handle(&mount, kind, bytes));
        let does = kernel
            && matches!(found, Ok(Ok(fd)) if tree.known(&fd).is_ok_and(|known| known.identity == identity));
        let kept = kept.filter(|_| !does).and_then(|folder| match Places::open(folder) {
            Ok(places) => Some(places),
            Err(error) => {
                tracing::warn!(%error, "the places of files are not kept");
                None
            }
        });
        Ok(Objects {
            tree,
            sealer,
            mount: does.then_some(mount),
            root,
            device,
            held: Mutex::new(Lru::new(held_max)),
            are_kept: kept.is_some(),
            places: Mutex::new(kept.unwrap_or_default()),
        })
    }

    /// For how long handles stay good.
    pub(crate) fn lasting(&self) -> Lasting {
        match (&self.mount, self.are_kept) {
            (Some(_), _) => Lasting::Always,
            (None, true) => Lasting::UntilRenamed,
            (None, false) => Lasting::UntilEnd,
        }
    }

    /// The same for all files here.
    pub(crate) fn fsid(&self) -> u64 {
        self.sealer.fsid()
    }

    /// The root.
    pub(crate) fn root(&self) -> &Arc<Object<T::Held>> {
        &self.root
    }

    /// The handle of a file.
    pub(crate) fn handle(&self, object: &Object<T::Held>) -> FileHandle {
        self.sealer.seal(&object.key)
    }

    /// The file that a handle leads to, if it is held already; whether it still has a name was not looked at.
    pub(crate) fn held(&self, handle: &FileHandle) -> Option<Arc<Object<T::Held>>> {
        let key = self.sealer.open(handle)?;
        lock(&self.held).get(&key).map(Arc::clone)
    }

    /// The file that a handle leads to, and what there is to know of it.
    pub(crate) fn find(&self, handle: &FileHandle) -> Result<(Shared<T>, Known), Status> {
        let key = self.sealer.open(handle).ok_or(Status::BadHandle)?;
        if key == Key::Root {
            let known = self.tree.known(&self.root.held).map_err(|_| Status::Io)?;
            return Ok((Arc::clone(&self.root), known));
        }
        let held = lock(&self.held).get(&key).map(Arc::clone);
        if let Some(object) = held {
            let known = self.tree.known(&object.held).map_err(|_| Status::Io)?;
            if known.attr.links > 0 {
                return Ok((object, known));
            }
            lock(&self.held).remove(&key);
            return Err(Status::Stale);
        }
        let fd = self.hold(&key)?;
        let known = self.tree.known(&fd).map_err(|_| Status::Io)?;
        let is_it = match key {
            Key::Number { inode, generation } => known.identity == Identity { inode, generation },
            _ => known.device == self.device,
        };
        if !is_it || known.attr.links == 0 {
            return Err(Status::Stale);
        }
        let object = Arc::new(Object { held: fd, key, identity: known.identity });
        let _gone = lock(&self.held).put(key, Arc::clone(&object));
        Ok((object, known))
    }

    fn hold(&self, key: &Key) -> Result<T::Held, Status> {
        let held = match (key, &self.mount) {
            (Key::Kernel(handle), Some(mount)) => {
                self.tree.hold_handle(mount, handle.kind(), handle.as_bytes())
            }
            (Key::Number { .. }, None) => {
                let path = lock(&self.places).path(*key).ok_or(Status::Stale)?;
                self.tree.hold_path(&path)
            }
            // Of a server that ran as somebody else.
            _ => return Err(Status::Stale),
        };
        held.map_err(|error| match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Status::Jukebox,
            _ => Status::Stale,
        })
    }

    /// Takes in a file that was just found in a directory, or made there.
    pub(crate) fn adopt(
        &self,
        fd: T::Held,
        known: &Known,
        dir: &Object<T::Held>,
        name: &[u8],
    ) -> io::Result<Arc<Object<T::Held>>> {
        let key = self.key(&fd, known, dir, name)?;
        if key == Key::Root {
            return Ok(Arc::clone(&self.root));
        }
        let mut held = lock(&self.held);
        if let Some(object) = held.get(&key) {
            return Ok(Arc::clone(object));
        }
        let object = Arc::new(Object { held: fd, key, identity: known.identity });
        let gone = held.put(key, Arc::clone(&object));
        drop((held, gone));
        Ok(object)
    }

    /// The handle of an entry of a directory, which need not be held.
    pub(crate) fn handle_of_entry(
        &self,
        fd: &T::Held,
        known: &Known,
        dir: &Object<T::Held>,
        name: &[u8],
    ) -> io::Result<FileHandle> {
        Ok(self.sealer.seal(&self.key(fd, known, dir, name)?))
    }

    fn key(&self, fd: &T::Held, known: &Known, dir: &Object<T::Held>, name: &[u8]) -> io::Result<Key> {
        if known.device != self.device {
            return Err(io::Error::from_raw_os_error(libc::EXDEV));
        }
        if known.identity == self.root.identity {
            return Ok(Key::Root);
        }
        if self.mount.is_some() {
            let handle = self.tree.handle_of(fd, KernelHandle::new)?;
            return handle
                .map(Key::Kernel)
                .ok_or_else(|| io::Error::other("the file system's handles are too long"));
        }
        let Identity { inode, generation } = known.identity;
        let key = Key::Number { inode, generation };
        match name {
            b"." => {}
            // It is known: who asks for it came through it.
            b".." => {
                if !lock(&self.places).contains(&key) {
                    return Err(io::Error::from_raw_os_error(libc::ESTALE));
                }
            }
            _ => lock(&self.places).put(key, dir.key, name),
        }
        Ok(key)
    }

    /// A file has lost a name, and shall not be kept on the disk by being held.
    pub(crate) fn let_go(&self, identity: Identity) {
        let mut held = lock(&self.held);
        let going = held.remove_if_value(|object| object.identity == identity);
        drop(held);
        drop(going);
    }

    /// Lets go what was not used since the last sweep.
    pub(crate) fn sweep(&self) {
        let gone = lock(&self.held).sweep();
        drop(gone);
    }
}
