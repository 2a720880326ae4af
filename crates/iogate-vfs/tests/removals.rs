//! The objects of removed files go when the removal is durable, and not before; whoever has to see to that may die.

mod common;

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::{Far, Machine, directory, engine, errno, open, own, read, striped, write};
use iogate_core::wire::{Identity, open};
use iogate_core::{Layout, Op};
use iogate_engine::store::{DirectoryStore, Io, IoDone, OpenMode};
use iogate_engine::{FileHandle, Store};
use iogate_vfs::{DirectoryTree, OpenHow, StripedTree, Tree, TreeFile};

const LAYOUT: Layout = Layout { first_target: 0, stripe_bytes: 4096, targets: 2 };
const NEW: u32 = open::READ | open::WRITE | open::CREATE;
const BYTES: usize = 20_000;

/// Names on a machine of their own, and two targets.
struct Place {
    dir: tempfile::TempDir,
    machine: Arc<Machine>,
    synced: Arc<std::sync::atomic::AtomicUsize>,
    tree: StripedTree,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        drop(striped(dir.path(), LAYOUT, false));
        let names = Far::new(directory(&dir.path().join("names")));
        let (machine, synced) = (Arc::clone(&names.machine), Arc::clone(&names.synced));
        let targets = ["0", "1"].map(|name| directory(&dir.path().join(name)));
        let tree = StripedTree::new(Arc::new(names), targets.into(), LAYOUT).unwrap();
        Place { dir, machine, synced, tree }
    }

    fn fill(&self, path: &str, byte: u8) {
        let file = open(&self.tree, own(), path, NEW).unwrap();
        assert_eq!(write(&engine(&self.tree), &*file, 0, &[byte; BYTES]).unwrap(), BYTES);
    }

    fn unlink(&self, path: &str) {
        self.tree.unlink(own(), Path::new(path), false).unwrap();
    }

    fn has(&self, path: &str, byte: u8) -> bool {
        let file = open(&self.tree, own(), path, open::READ).unwrap();
        read(&engine(&self.tree), &*file, 0, BYTES + 1).unwrap() == [byte; BYTES]
    }

    fn name(&self, path: &str) -> PathBuf {
        self.dir.path().join("names").join(path)
    }

    /// The files that are noted as removed.
    fn noted(&self) -> Vec<PathBuf> {
        files(&self.name(".iogate/removed"))
    }

    fn objects(&self) -> Vec<PathBuf> {
        objects(self.dir.path())
    }

    /// From now on, nothing becomes durable, or again.
    fn hold(&self, holds: bool) {
        self.machine.is_stale.store(holds, Ordering::SeqCst);
    }
}

fn files(below: &Path) -> Vec<PathBuf> {
    fs::read_dir(below).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn objects(below: &Path) -> Vec<PathBuf> {
    let directories = ["0", "1"].into_iter().flat_map(|target| files(&below.join(target).join("OBJECTS")));
    directories.filter(|path| path.is_dir()).flat_map(|path| files(&path)).collect()
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn objects_go_when_the_removal_is_durable() {
    let place = Place::new();
    let paths: Vec<String> = (0..50).map(|number| format!("f{number}")).collect();
    paths.iter().for_each(|path| place.fill(path, 1));
    place.fill("kept", 2);
    place.hold(true);
    paths.iter().for_each(|path| place.unlink(path));
    assert_eq!(errno(place.tree.attr(own(), Path::new("f0"))), libc::ENOENT);
    place.tree.finish_removals();
    assert_eq!((place.objects().len(), place.noted().len()), (102, 50), "nothing is durable yet");
    let before = place.synced.load(Ordering::SeqCst);
    place.hold(false);
    eventually("the objects go", || place.objects().len() == 2);
    eventually("nothing is noted any more", || place.noted().is_empty());
    let syncs = place.synced.load(Ordering::SeqCst) - before;
    assert!(syncs < 5, "{syncs} syncs for files that were removed together");
    assert!(place.has("kept", 2));
}

#[test]
fn a_name_that_a_crash_brings_back_has_its_data() {
    let place = Place::new();
    for (path, byte) in [("removed", 1), ("replaced", 2), ("new", 3), ("unnoted", 4), ("gone", 5)] {
        place.fill(path, byte);
    }
    place.hold(true);
    let note_of = |remove: &dyn Fn()| {
        let before = place.noted();
        remove();
        place.noted().into_iter().find(|note| !before.contains(note)).unwrap()
    };
    let removed = note_of(&|| place.unlink("removed"));
    let rename = || place.tree.rename(own(), Path::new("new"), Path::new("replaced"), 0).map(drop).unwrap();
    let replaced = note_of(&rename);
    let unnoted = note_of(&|| place.unlink("unnoted"));
    place.unlink("gone");
    // The machine of the names crashes. What was noted before a name went may be there, beside the name, or not.
    fs::hard_link(&removed, place.name("removed")).unwrap();
    fs::rename(place.name("replaced"), place.name("new")).unwrap();
    fs::hard_link(&replaced, place.name("replaced")).unwrap();
    fs::rename(&unnoted, place.name("unnoted")).unwrap();
    place.machine.boots.fetch_add(1, Ordering::SeqCst);
    place.hold(false);
    eventually("what is removed still goes", || place.objects().len() == 8);
    eventually("nothing is noted any more", || place.noted().is_empty());
    for (path, byte) in [("removed", 1), ("replaced", 2), ("new", 3), ("unnoted", 4)] {
        assert!(place.has(path, byte), "{path}");
        assert_eq!(fs::metadata(place.name(path)).unwrap().len(), 0);
    }
    // They can be removed again.
    ["removed", "replaced", "new", "unnoted"].iter().for_each(|path| place.unlink(path));
    eventually("the objects go", || place.objects().is_empty());
}

#[test]
fn a_successor_removes_what_was_left() {
    let place = Place::new();
    place.fill("f", 1);
    place.fill("back", 2);
    place.hold(true);
    place.unlink("f");
    let before = place.noted();
    place.unlink("back");
    let back = place.noted().into_iter().find(|note| !before.contains(note)).unwrap();
    fs::hard_link(back, place.name("back")).unwrap();
    let Place { dir, tree, .. } = place;
    drop(tree);
    assert_eq!(objects(dir.path()).len(), 4, "its names were not reached");
    let next = striped(dir.path(), LAYOUT, false);
    eventually("the objects go", || objects(dir.path()).len() == 2);
    eventually("nothing is noted any more", || files(&dir.path().join("names/.iogate/removed")).is_empty());
    let file = open(&*next, own(), "back", open::READ).unwrap();
    assert!(read(&engine(&*next), &*file, 0, BYTES + 1).unwrap() == [2; BYTES]);
}

/// A store that is full as long as a file is there.
struct Full {
    store: Arc<dyn Store>,
    while_there: PathBuf,
}

impl Store for Full {
    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<FileHandle> {
        self.store.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> std::io::Result<FileHandle> {
        self.store.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        if io.op == Op::Write && self.while_there.exists() {
            return done(io, Err(std::io::Error::from_raw_os_error(libc::ENOSPC)));
        }
        self.store.start(io, done);
    }

    fn size(&self, file: &FileHandle) -> std::io::Result<u64> {
        self.store.size(file)
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> std::io::Result<()> {
        self.store.sync(file, data_only)
    }
}

#[test]
fn a_full_target_has_the_room_of_what_was_removed() {
    let place = Place::new();
    place.fill("old", 1);
    let on_first = place.dir.path().join("0");
    let while_there = place.objects().into_iter().find(|object| object.starts_with(&on_first)).unwrap();
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(&on_first).unwrap());
    let full = Far { store: Some(Arc::new(Full { store, while_there })), ..Far::new(directory(&on_first)) };
    let part = |name: &str| directory(&place.dir.path().join(name));
    let tree = StripedTree::new(part("names"), vec![Arc::new(full), part("1")], LAYOUT).unwrap();
    let engine = engine(&tree);
    let file = open(&tree, own(), "new", NEW).unwrap();
    assert_eq!(errno(write(&engine, &*file, 0, &[2; 100])), libc::ENOSPC, "nothing was removed");
    tree.unlink(own(), Path::new("old"), false).unwrap();
    assert_eq!(write(&engine, &*file, 0, &[2; BYTES]).unwrap(), BYTES);
    assert!(read(&engine, &*file, 0, BYTES + 1).unwrap() == [2; BYTES]);
}

type Hook = Box<dyn FnOnce() + Send>;

/// A store in front of which something is done, once, when a file has been found and is not counted as open yet.
struct Hooked {
    store: DirectoryStore,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Store for Hooked {
    fn open(&self, path: &Path, mode: OpenMode) -> std::io::Result<FileHandle> {
        self.store.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> std::io::Result<FileHandle> {
        let hook = self.hook.lock().unwrap().take();
        hook.into_iter().for_each(|hook| hook());
        self.store.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        self.store.start(io, done);
    }

    fn size(&self, file: &FileHandle) -> std::io::Result<u64> {
        self.store.size(file)
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> std::io::Result<()> {
        self.store.sync(file, data_only)
    }
}

/// Stripes with a file `f`, and what opens it with flags, while something is done that may be too early for it to be seen as open.
struct Race {
    dir: tempfile::TempDir,
    tree: Arc<StripedTree>,
    hook: Arc<Mutex<Option<Hook>>>,
}

impl Race {
    fn new() -> Race {
        let dir = tempfile::tempdir().unwrap();
        drop(striped(dir.path(), LAYOUT, false));
        let (names, hook) = (dir.path().join("names"), Arc::<Mutex<Option<Hook>>>::default());
        let store = Arc::new(Hooked { store: DirectoryStore::new(&names).unwrap(), hook: Arc::clone(&hook) });
        let names = Arc::new(DirectoryTree::new(&names, store).unwrap());
        let targets = ["0", "1"].map(|name| directory(&dir.path().join(name)));
        let tree = Arc::new(StripedTree::new(names, targets.into(), LAYOUT).unwrap());
        let file = open(&*tree, own(), "f", NEW).unwrap();
        assert_eq!(write(&engine(&*tree), &*file, 0, &[1; BYTES]).unwrap(), BYTES);
        Race { dir, tree, hook }
    }

    fn open(&self, flags: u32, identity: Identity, meanwhile: Hook) -> std::io::Result<Arc<dyn TreeFile>> {
        *self.hook.lock().unwrap() = Some(meanwhile);
        let opened = self.tree.open(own(), Path::new("f"), OpenHow { flags, identity, ..OpenHow::default() });
        assert!(self.hook.lock().unwrap().is_none(), "nothing was done meanwhile");
        opened
    }

    fn unlinks(&self, path: &'static str) -> Hook {
        let tree = Arc::clone(&self.tree);
        Box::new(move || assert!(tree.unlink(own(), Path::new(path), false).is_ok()))
    }

    fn is_gone(&self) -> bool {
        self.tree.finish_removals();
        objects(self.dir.path()).is_empty()
            && files(&self.dir.path().join("names/.iogate/removed")).is_empty()
    }
}

#[test]
fn a_file_that_is_removed_while_it_is_opened_is_there_or_not() {
    let race = Race::new();
    let opened = race.open(open::READ, Identity::default(), race.unlinks("f"));
    assert_eq!(errno(opened), libc::ENOENT);
    eventually("its objects go", || race.is_gone());

    let race = Race::new();
    race.tree.link(own(), Path::new("f"), Path::new("g")).unwrap();
    let opened = race.open(open::READ, Identity::default(), race.unlinks("g")).unwrap();
    assert!(read(&engine(&*race.tree), &*opened, 0, BYTES + 1).unwrap() == [1; BYTES]);
    assert!(!race.is_gone());
}

#[test]
fn a_removed_file_that_is_closed_while_it_is_opened_again_is_gone() {
    let race = Race::new();
    let file = open(&*race.tree, own(), "f", open::READ).unwrap();
    let identity = file.identity();
    race.unlinks("f")();
    assert!(!race.is_gone());
    let opened = race.open(open::READ | open::AGAIN, identity, Box::new(move || drop(file)));
    assert_eq!(errno(opened), libc::ESTALE);
    eventually("its objects go", || race.is_gone());
}
