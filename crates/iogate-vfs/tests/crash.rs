//! What a crash of the machine with the names, or of a target, may take from a striped file, and what is noticed of it.

mod common;

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::{Far, directory, engine, errno, open, own, read, striped, write};
use iogate_core::Layout;
use iogate_core::wire::open;
use iogate_vfs::{StripedTree, Tree};

const LAYOUT: Layout = Layout { first_target: 0, stripe_bytes: 4096, targets: 2 };
const NEW: u32 = open::READ | open::WRITE | open::CREATE;
const OBJECT: &str = "user.iogate.object";

fn c_string(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// Whether files can be made without a name there.
fn makes_nameless(directory: &Path) -> bool {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    // SAFETY: the path ends with a zero byte.
    let fd = unsafe { libc::open(c_string(directory).as_ptr(), flags, 0o600) };
    // SAFETY: the descriptor is new, and nobody else's.
    fd >= 0 && unsafe { libc::close(fd) } == 0
}

/// What happens to named files in a directory: `(what, name)`.
struct Watch(std::fs::File);

impl Watch {
    fn new(directory: &Path) -> Watch {
        // SAFETY: makes a descriptor, which is nobody else's.
        let file = unsafe {
            let fd = libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
            assert!(fd >= 0, "no inotify: {}", std::io::Error::last_os_error());
            std::fs::File::from_raw_fd(fd)
        };
        let mask = libc::IN_CREATE | libc::IN_ATTRIB;
        // SAFETY: the path ends with a zero byte.
        let watch = unsafe { libc::inotify_add_watch(file.as_raw_fd(), c_string(directory).as_ptr(), mask) };
        assert!(watch >= 0, "no watch: {}", std::io::Error::last_os_error());
        Watch(file)
    }

    fn events(&mut self) -> Vec<(u32, String)> {
        let mut buffer = [0; 4096];
        let count = self.0.read(&mut buffer).unwrap_or(0);
        let (mut rest, mut found) = (&buffer[..count], Vec::new());
        while let Some((header, behind)) = rest.split_first_chunk::<16>() {
            let number = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
            let (name, next) = behind.split_at(number(12) as usize);
            let name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
            // The kernel has such names for what has none.
            if !name.starts_with('#') {
                found.push((number(4), name));
            }
            rest = next;
        }
        found
    }
}

/// File systems with a journal keep the order of the two.
#[test]
fn a_new_file_has_what_leads_to_its_objects_before_it_has_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let tree = striped(dir.path(), LAYOUT, false);
    let names = dir.path().join("names");
    if !makes_nameless(&names) {
        println!("skipped: no files without a name in {}", names.display());
        return;
    }
    let mut watch = Watch::new(&names);
    drop(open(&*tree, own(), "f", NEW).unwrap());
    drop(open(&*tree, own(), "exclusive", NEW | open::EXCLUSIVE).unwrap());
    let events = watch.events();
    let created = [(libc::IN_CREATE, "f".to_owned()), (libc::IN_CREATE, "exclusive".to_owned())];
    assert_eq!(events, created, "an attribute comes after the name");
    assert_eq!(errno(open(&*tree, own(), "f", NEW | open::EXCLUSIVE)), libc::EEXIST);
    drop(open(&*tree, own(), "f", NEW).unwrap());
    assert_eq!(watch.events(), []);
}

/// A crash has taken away what led to its objects, so that it has got others.
#[test]
fn a_file_with_other_objects_has_another_verifier() {
    let dir = tempfile::tempdir().unwrap();
    let tree = striped(dir.path(), LAYOUT, false);
    let verifier = |path| open(&*tree, own(), path, NEW).unwrap().verifier();
    let before = verifier("f");
    assert_eq!(verifier("f"), before);
    let (path, name) = (c_string(&dir.path().join("names/f")), CString::new(OBJECT).unwrap());
    // SAFETY: path and name end with a zero byte.
    assert_eq!(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) }, 0);
    assert_ne!(verifier("f"), before);
}

#[test]
fn what_nothing_leads_to_after_a_boot_is_neither_read_nor_written() {
    let dir = tempfile::tempdir().unwrap();
    drop(striped(dir.path(), LAYOUT, false));
    let far = Far::new(directory(&dir.path().join("names")));
    let machine = Arc::clone(&far.machine);
    let targets = [0, 1].map(|target| directory(&dir.path().join(target.to_string())));
    let tree: Arc<dyn Tree> = Arc::new(StripedTree::new(Arc::new(far), targets.into(), LAYOUT).unwrap());
    let engine = engine(&*tree);
    let file = open(&*tree, own(), "f", NEW).unwrap();
    assert_eq!(write(&engine, &*file, 0, &[1; 8192]).unwrap(), 8192);
    let asked = || machine.asked.swap(0, Ordering::SeqCst);
    asked();
    // It is there, which is asked for once.
    machine.boots.store(1, Ordering::SeqCst);
    for _ in 0..3 {
        assert_eq!(write(&engine, &*file, 0, &[2; 100]).unwrap(), 100);
    }
    assert_eq!(asked(), 1);
    // It is not.
    machine.boots.store(2, Ordering::SeqCst);
    machine.is_stale.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        assert_eq!(errno(write(&engine, &*file, 0, &[3; 8192])), libc::ESTALE);
        assert_eq!(errno(read(&engine, &*file, 0, 100)), libc::ESTALE);
        assert_eq!(errno(file.sync(false)), libc::ESTALE);
    }
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    assert_eq!(errno(file.allocate(punch as u32, 0, 4096)), libc::ESTALE);
}

/// The machine of a target loses an object that a closed file had written, and there is no handle that could tell.
#[test]
fn an_object_that_a_crash_has_taken_is_told_of_by_the_next_sync() {
    for is_made_again in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        drop(striped(dir.path(), LAYOUT, false));
        let far = Far::new(directory(&dir.path().join("1")));
        let machine = Arc::clone(&far.machine);
        let part = |name: &str| directory(&dir.path().join(name));
        let tree = StripedTree::new(part("names"), vec![part("0"), Arc::new(far)], LAYOUT).unwrap();
        let tree: Arc<dyn Tree> = Arc::new(tree);
        let engine = engine(&*tree);
        let fill = |bytes: usize| {
            let file = open(&*tree, own(), "f", NEW).unwrap();
            let handles = Arc::strong_count(file.data());
            assert_eq!(write(&engine, &*file, 0, &vec![1; bytes]).unwrap(), bytes);
            // A thread of the engine may let go of it a little later.
            let patience = Instant::now() + Duration::from_secs(30);
            while Arc::strong_count(file.data()) > handles {
                assert!(Instant::now() < patience);
                std::thread::yield_now();
            }
            file
        };
        machine.is_dirty.store(true, Ordering::SeqCst);
        drop(fill(8192));
        let objects = dir.path().join("1/OBJECTS");
        let crash = || {
            for directory in fs::read_dir(&objects).unwrap().map(|entry| entry.unwrap().path()) {
                fs::remove_dir_all(directory).unwrap();
            }
            machine.boots.fetch_add(1, Ordering::SeqCst);
            machine.is_dirty.store(false, Ordering::SeqCst);
        };
        crash();
        let file = fill(if is_made_again { 8192 } else { 4096 });
        assert_eq!((errno(file.sync(false)), errno(file.sync(false))), (libc::EIO, 0), "once");
        drop(file);
        // What is durable is not missed: who has synced it answers for it.
        drop(fill(8192));
        crash();
        assert_eq!(errno(fill(4096).sync(false)), 0);
    }
}
