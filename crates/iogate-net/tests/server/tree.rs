//! A flat tree of files in memory, with little more than a server's tests need.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, RwLock};

use iogate_core::FileId;
use iogate_core::wire::{Attr, Change, Entry, Gone, Identity, Space, open};
use iogate_engine::store::{AppendFile, Io, IoDone, MemoryStore, OpenMode, Segment};
use iogate_engine::{FileHandle, Store};
use iogate_vfs::{Caller, OpenHow, Tree, TreeFile};

/// Where threads wait until a test lets them go on.
#[derive(Default)]
pub(crate) struct Door {
    is_shut: Mutex<bool>,
    opened: Condvar,
    /// Threads that wait.
    pub(crate) waiting: AtomicU64,
}

impl Door {
    pub(crate) fn shut(&self) {
        *self.is_shut.lock().unwrap() = true;
    }

    pub(crate) fn open(&self) {
        *self.is_shut.lock().unwrap() = false;
        self.opened.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let is_shut = self.is_shut.lock().unwrap();
        drop(self.opened.wait_while(is_shut, |is_shut| *is_shut).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Files in memory, of whose dispatches those of one file can be held up.
#[derive(Default)]
pub(crate) struct SlowStore {
    files: MemoryStore,
    held: RwLock<Option<FileId>>,
    may_go_on: (Mutex<bool>, Condvar),
    /// Dispatches that are held up.
    pub(crate) waiting: AtomicU64,
    /// The next dispatch that was held up is not taken.
    pub(crate) rejects: AtomicBool,
}

impl SlowStore {
    /// Holds up what comes for a file.
    pub(crate) fn hold(&self, path: &str) {
        let file = self.files.open(Path::new(path), OpenMode { write: true, create: true }).unwrap();
        *self.may_go_on.0.lock().unwrap() = false;
        *self.held.write().unwrap() = Some(file.id());
    }

    pub(crate) fn release(&self) {
        *self.may_go_on.0.lock().unwrap() = true;
        self.may_go_on.1.notify_all();
    }
}

impl Store for SlowStore {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.files.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.files.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        self.files.start(io, done);
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        if *self.held.read().unwrap() == Some(io.file.id()) {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let may_go_on = self.may_go_on.0.lock().unwrap();
            drop(self.may_go_on.1.wait_while(may_go_on, |may_go_on| !*may_go_on).unwrap());
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            if self.rejects.swap(false, Ordering::SeqCst) {
                return Some(Err(io::ErrorKind::InvalidInput.into()));
            }
        }
        self.files.run(io)
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.files.sync(file, data_only)
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        self.files.size(file)
    }
}

/// Files in memory.
#[derive(Default)]
pub(crate) struct MemoryTree {
    pub(crate) store: Arc<SlowStore>,
    names: Mutex<BTreeMap<PathBuf, u32>>,
    /// How often the tree was asked to make something.
    pub(crate) made: AtomicU64,
    /// Everything is done in the process's own name.
    pub(crate) own_only: AtomicBool,
    /// Files cannot be opened for appends.
    pub(crate) no_descriptors: Arc<AtomicBool>,
    /// Of the last operation.
    pub(crate) caller: Mutex<Option<Caller>>,
    /// In front of the attributes of `door`, and of making anything below it.
    pub(crate) door: Door,
}

struct MemoryTreeFile {
    store: Arc<SlowStore>,
    no_descriptors: Arc<AtomicBool>,
    data: FileHandle,
}

fn errno(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl MemoryTree {
    fn file(&self, path: &Path) -> io::Result<MemoryTreeFile> {
        if !self.names.lock().unwrap().contains_key(path) {
            return Err(errno(libc::ENOENT));
        }
        let data = self.store.open(path, OpenMode { write: true, create: true })?;
        let (store, no_descriptors) = (self.store.clone(), self.no_descriptors.clone());
        Ok(MemoryTreeFile { store, no_descriptors, data })
    }

    /// What is in a file.
    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        let file = self.file(Path::new(path)).unwrap();
        let mut bytes = vec![0; file.attr().unwrap().size as usize];
        let segments = vec![Segment { memory: bytes.as_mut_ptr(), bytes: bytes.len() }];
        let (op, offset) = (iogate_core::Op::Read, 0);
        let io = Io {
            file: file.data,
            op,
            offset,
            target: Default::default(),
            origin: Default::default(),
            extends: false,
            segments,
        };
        self.store.run(&io).unwrap().unwrap();
        bytes
    }
}

impl Tree for MemoryTree {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    fn acts_for_others(&self) -> bool {
        !self.own_only.load(Ordering::SeqCst)
    }

    fn open(&self, caller: Caller, path: &Path, how: OpenHow) -> io::Result<Arc<dyn TreeFile>> {
        *self.caller.lock().unwrap() = Some(caller);
        assert_ne!(path, Path::new("defect"), "no file of this tree");
        let mut names = self.names.lock().unwrap();
        if how.flags & open::EXCLUSIVE != 0 && names.contains_key(path) {
            return Err(errno(libc::EEXIST));
        }
        if how.flags & open::CREATE != 0 {
            names.entry(path.into()).or_insert(how.mode);
        }
        drop(names);
        Ok(Arc::new(self.file(path)?))
    }

    fn attr(&self, caller: Caller, path: &Path) -> io::Result<Attr> {
        *self.caller.lock().unwrap() = Some(caller);
        if path.starts_with("door") {
            self.door.pass();
        }
        if path.as_os_str().is_empty() || path == Path::new("door") {
            return Ok(Attr { mode: libc::S_IFDIR | 0o755, ..Attr::default() });
        }
        self.file(path)?.attr()
    }

    fn set_attr(&self, _: Caller, path: &Path, _: Identity, _: &Change) -> io::Result<Attr> {
        self.file(path)?.attr()
    }

    fn read_dir(
        &self,
        _: Caller,
        _: &Path,
        after: u64,
        each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()> {
        for (index, name) in self.names.lock().unwrap().keys().enumerate().skip(after as usize) {
            let name = name.as_os_str().as_encoded_bytes();
            let entry =
                Entry { next: index as u64 + 1, name_bytes: name.len() as u16, attr: Attr::default() };
            if !each(&entry, name) {
                break;
            }
        }
        Ok(())
    }

    fn make_node(&self, _: Caller, path: &Path, mode: u32, _: u32) -> io::Result<Attr> {
        self.made.fetch_add(1, Ordering::SeqCst);
        if self.names.lock().unwrap().insert(path.into(), mode).is_some() {
            return Err(errno(libc::EEXIST));
        }
        self.file(path)?.attr()
    }

    fn symlink(&self, _: Caller, _: &Path, _: &Path) -> io::Result<Attr> {
        Err(errno(libc::EPERM))
    }

    fn link(&self, _: Caller, _: &Path, _: &Path) -> io::Result<Attr> {
        Err(errno(libc::EMLINK))
    }

    fn read_link(&self, _: Caller, path: &Path) -> io::Result<Vec<u8>> {
        Ok(path.as_os_str().as_encoded_bytes().to_ascii_uppercase())
    }

    fn unlink(&self, _: Caller, path: &Path, _: bool) -> io::Result<Gone> {
        self.names.lock().unwrap().remove(path).map(|_| Gone::NONE).ok_or_else(|| errno(libc::ENOENT))
    }

    fn rename(&self, _: Caller, path: &Path, to: &Path, _: u32) -> io::Result<Gone> {
        let mut names = self.names.lock().unwrap();
        let mode = names.remove(path).ok_or_else(|| errno(libc::ENOENT))?;
        names.insert(to.into(), mode);
        Ok(Gone::NONE)
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space { blocks: 77, ..Space::default() })
    }

    fn xattr(&self, _: Caller, _: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
        Ok(name.to_vec())
    }

    fn set_xattr(
        &self,
        _: Caller,
        _: &Path,
        _: Identity,
        name: &[u8],
        value: &[u8],
        _: u32,
    ) -> io::Result<()> {
        if name == value { Ok(()) } else { Err(errno(libc::ERANGE)) }
    }

    fn xattrs(&self, _: Caller, _: &Path) -> io::Result<Vec<u8>> {
        Ok(b"user.a\0user.iogate.object\0".to_vec())
    }

    fn remove_xattr(&self, _: Caller, _: &Path, _: Identity, _: &[u8]) -> io::Result<()> {
        Err(errno(libc::ENODATA))
    }
}

impl TreeFile for MemoryTreeFile {
    fn data(&self) -> &FileHandle {
        &self.data
    }

    fn identity(&self) -> Identity {
        Identity { inode: self.data.id().0, generation: 1 }
    }

    fn attr(&self) -> io::Result<Attr> {
        let size = self.store.size(&self.data)?;
        Ok(Attr { inode: self.data.id().0, size, mode: libc::S_IFREG | 0o644, ..Attr::default() })
    }

    fn set_attr(&self, _: Caller, _: &Change) -> io::Result<Attr> {
        self.attr()
    }

    fn sync(&self, _: bool) -> io::Result<u64> {
        Ok(self.verifier())
    }

    fn allocate(&self, _: u32, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn append_file(&self) -> io::Result<Option<Arc<AppendFile>>> {
        if self.no_descriptors.load(Ordering::SeqCst) { Err(errno(libc::EMFILE)) } else { Ok(None) }
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        if hole { Ok(self.attr()?.size) } else { Ok(offset) }
    }
}
