//! Trees over temporary directories, and engines over trees.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use iogate_core::sched::SchedulerKind;
use iogate_core::wire::{Attr, Change, Entry, Gone, Identity, Space, open};
use iogate_core::{GateConfig, Layout, Op, SchedulerConfig};
use iogate_engine::store::{DirectoryStore, Io, IoDone, OpenMode};
use iogate_engine::{Engine, FileHandle, Origin, Store};
use iogate_vfs::{Caller, DirectoryTree, ObjectName, OpenHow, StripedTree, Tree, TreeFile, WhenGone};

pub(crate) const ROOT: Caller = Caller::new(0, 0);
pub(crate) const USER: Caller = Caller::new(12345, 12345);

/// The tree below a directory.
pub(crate) fn directory(root: &Path) -> Arc<dyn Tree> {
    let store = Arc::new(DirectoryStore::new(root).unwrap());
    Arc::new(DirectoryTree::new(root, store).unwrap())
}

/// Names in `names` and data in `0`, `1` and so on, below a directory.
pub(crate) fn striped(below: &Path, layout: Layout, far: bool) -> Arc<StripedTree> {
    let part = |name: String| {
        let path = below.join(name);
        if !path.exists() {
            std::fs::create_dir(&path).unwrap();
        }
        if far { Arc::new(Far::new(directory(&path))) } else { directory(&path) }
    };
    let targets = (0..layout.targets).map(|index| part(index.to_string())).collect();
    Arc::new(StripedTree::new(part("names".into()), targets, layout).unwrap())
}

/// An engine over a tree's store.
pub(crate) fn engine(tree: &dyn Tree) -> Arc<Engine> {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 1000, depth: 4, layout: Layout::SINGLE };
    Engine::new(&gate, tree.store()).unwrap()
}

/// Opens by name, with flags only.
pub(crate) fn open(tree: &dyn Tree, caller: Caller, path: &str, flags: u32) -> io::Result<Arc<dyn TreeFile>> {
    tree.open(caller, Path::new(path), OpenHow { flags, mode: 0o644, ..OpenHow::default() })
}

/// Who the tests are, if not root.
pub(crate) fn own() -> Caller {
    Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// The number of an error.
pub(crate) fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap_or_else(|| panic!("{error} has no number")),
    }
}

/// Writes through an engine.
pub(crate) fn write(
    engine: &Arc<Engine>,
    file: &dyn TreeFile,
    offset: u64,
    bytes: &[u8],
) -> io::Result<usize> {
    engine.write_at(file.data(), Origin::default(), offset, bytes)
}

/// Reads through an engine.
pub(crate) fn read(
    engine: &Arc<Engine>,
    file: &dyn TreeFile,
    offset: u64,
    bytes: usize,
) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0xAA; bytes];
    let read = engine.read_at(file.data(), Origin::default(), offset, &mut buffer)?;
    buffer.truncate(read);
    Ok(buffer)
}

/// A store whose writes wait until it is let go.
pub(crate) struct Held {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) gate: Arc<(Mutex<HeldState>, Condvar)>,
}

#[derive(Default)]
pub(crate) struct HeldState {
    pub(crate) waiting: usize,
    pub(crate) is_free: bool,
}

impl Store for Held {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.store.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.store.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        if io.op == Op::Read {
            return self.store.start(io, done);
        }
        let (store, gate) = (self.store.clone(), self.gate.clone());
        std::thread::spawn(move || {
            let mut state = gate.0.lock().unwrap();
            state.waiting += 1;
            gate.1.notify_all();
            drop(gate.1.wait_while(state, |state| !state.is_free).unwrap());
            store.start(io, done);
        });
    }

    fn asks_afar(&self) -> bool {
        self.store.asks_afar()
    }

    fn size(&self, file: &FileHandle) -> io::Result<u64> {
        self.store.size(file)
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.store.sync(file, data_only)
    }
}

/// A tree that says it is on another machine, and knows extended attributes by path only, as one over a connection.
pub(crate) struct Far {
    pub(crate) tree: Arc<dyn Tree>,
    /// In place of the tree's.
    pub(crate) store: Option<Arc<dyn Store>>,
    pub(crate) has_xattrs: bool,
    /// How often directories were made durable.
    pub(crate) synced: Arc<AtomicUsize>,
    pub(crate) machine: Arc<Machine>,
}

/// What became of the machine of a [`Far`].
#[derive(Default)]
pub(crate) struct Machine {
    /// How often it has booted.
    pub(crate) boots: AtomicU64,
    /// Files that were open are not found again, and nothing becomes durable.
    pub(crate) is_stale: AtomicBool,
    /// How often a file was asked for its attributes.
    pub(crate) asked: AtomicUsize,
    /// What is written is not durable.
    pub(crate) is_dirty: AtomicBool,
    /// It has no descriptor left for a file.
    pub(crate) is_crowded: AtomicBool,
}

impl Machine {
    fn check(&self) -> io::Result<()> {
        let is_stale = self.is_stale.load(Ordering::SeqCst);
        if is_stale { Err(io::Error::from_raw_os_error(libc::ESTALE)) } else { Ok(()) }
    }
}

impl Far {
    pub(crate) fn new(tree: Arc<dyn Tree>) -> Far {
        Far { tree, store: None, has_xattrs: true, synced: Arc::default(), machine: Arc::default() }
    }
}

struct FarFile(Arc<dyn TreeFile>, Option<Arc<AtomicUsize>>, Arc<Machine>);

impl TreeFile for FarFile {
    fn data(&self) -> &FileHandle {
        self.0.data()
    }

    fn identity(&self) -> Identity {
        self.0.identity()
    }

    fn attr(&self) -> io::Result<Attr> {
        self.2.asked.fetch_add(1, Ordering::SeqCst);
        self.2.check()?;
        self.0.attr()
    }

    fn opened_attr(&self) -> io::Result<Attr> {
        self.0.opened_attr()
    }

    fn object(&self) -> ObjectName {
        self.0.object()
    }

    fn close(&self) -> Gone {
        self.0.close()
    }

    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr> {
        self.0.set_attr(caller, change)
    }

    fn sync(&self, data_only: bool) -> io::Result<u64> {
        if let Some(synced) = &self.1 {
            synced.fetch_add(1, Ordering::SeqCst);
        }
        self.2.check()?;
        self.0.sync(data_only)?;
        Ok(self.verifier())
    }

    fn verifier(&self) -> u64 {
        self.2.boots.load(Ordering::SeqCst)
    }

    fn is_clean(&self) -> bool {
        !self.2.is_dirty.load(Ordering::SeqCst)
    }

    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()> {
        self.0.allocate(mode, offset, bytes)
    }

    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64> {
        self.0.seek(offset, hole)
    }
}

impl Tree for Far {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().unwrap_or_else(|| self.tree.store())
    }

    fn open(&self, caller: Caller, path: &Path, how: OpenHow) -> io::Result<Arc<dyn TreeFile>> {
        if self.machine.is_crowded.load(Ordering::SeqCst) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
        let is_directory = how.flags & open::DIRECTORY != 0;
        let synced = is_directory.then(|| Arc::clone(&self.synced));
        Ok(Arc::new(FarFile(self.tree.open(caller, path, how)?, synced, Arc::clone(&self.machine))))
    }

    fn verifier(&self) -> u64 {
        self.machine.boots.load(Ordering::SeqCst)
    }

    fn attr(&self, caller: Caller, path: &Path) -> io::Result<Attr> {
        self.tree.attr(caller, path)
    }

    fn set_attr(&self, caller: Caller, path: &Path, identity: Identity, change: &Change) -> io::Result<Attr> {
        self.tree.set_attr(caller, path, identity, change)
    }

    fn read_dir(
        &self,
        caller: Caller,
        path: &Path,
        after: u64,
        each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()> {
        self.tree.read_dir(caller, path, after, each)
    }

    fn make_node(&self, caller: Caller, path: &Path, mode: u32, device: u32) -> io::Result<Attr> {
        self.tree.make_node(caller, path, mode, device)
    }

    fn symlink(&self, caller: Caller, target: &Path, path: &Path) -> io::Result<Attr> {
        self.tree.symlink(caller, target, path)
    }

    fn link(&self, caller: Caller, path: &Path, to: &Path) -> io::Result<Attr> {
        self.tree.link(caller, path, to)
    }

    fn read_link(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        self.tree.read_link(caller, path)
    }

    fn unlink(&self, caller: Caller, path: &Path, directory: bool) -> io::Result<Gone> {
        self.tree.unlink(caller, path, directory)
    }

    fn rename(&self, caller: Caller, path: &Path, to: &Path, flags: u32) -> io::Result<Gone> {
        self.tree.rename(caller, path, to, flags)
    }

    fn space(&self) -> io::Result<Space> {
        self.tree.space()
    }

    fn when_gone(&self, tell: WhenGone) {
        self.tree.when_gone(tell);
    }

    fn xattr(&self, caller: Caller, path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
        self.tree.xattr(caller, path, name)
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
        if !self.has_xattrs {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        self.tree.set_xattr(caller, path, identity, name, value, flags)
    }

    fn xattrs(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>> {
        self.tree.xattrs(caller, path)
    }

    fn remove_xattr(&self, caller: Caller, path: &Path, identity: Identity, name: &[u8]) -> io::Result<()> {
        self.tree.remove_xattr(caller, path, identity, name)
    }
}
