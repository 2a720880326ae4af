//! Stores that are slow or fail, behind a mount.

mod common;

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{Mount, all_options, can_mount};
use iogate_core::Op;
use iogate_engine::store::{Io, IoDone, OpenMode};
use iogate_engine::{FileHandle, Store};
use iogate_fuse::{CacheMode, MountOptions, Transport};

/// Longer than anything takes that is not stuck, on a busy machine, too.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long something is stuck if nobody lets it go, as the test has failed.
const STUCK_MAX: Duration = Duration::from_secs(90);

/// A directory whose transfers get stuck, or fail, or whose opens get stuck.
struct Troubled {
    store: Arc<dyn Store>,
    is_stuck: AtomicBool,
    does_not_open: AtomicBool,
    /// Transfers and opens that are stuck now.
    stuck: AtomicUsize,
    failing: AtomicBool,
}

impl Troubled {
    fn new(store: Arc<dyn Store>) -> Arc<Troubled> {
        Arc::new(Troubled {
            store,
            is_stuck: AtomicBool::new(false),
            does_not_open: AtomicBool::new(false),
            stuck: AtomicUsize::new(0),
            failing: AtomicBool::new(false),
        })
    }

    fn wait_while(&self, is_stuck: &AtomicBool) {
        self.stuck.fetch_add(1, Ordering::Relaxed);
        let begin = Instant::now();
        while is_stuck.load(Ordering::Relaxed) && begin.elapsed() < STUCK_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.stuck.fetch_sub(1, Ordering::Relaxed);
    }
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}: not in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl Store for Troubled {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.store.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.wait_while(&self.does_not_open);
        self.store.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        self.wait_while(&self.is_stuck);
        if self.failing.load(Ordering::Relaxed) {
            let errno = if io.op == Op::Write { libc::ENOSPC } else { libc::EIO };
            return done(io, Err(io::Error::from_raw_os_error(errno)));
        }
        self.store.start(io, done);
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        if self.failing.load(Ordering::Relaxed) {
            return Err(io::Error::from_raw_os_error(libc::EDQUOT));
        }
        self.store.sync(file, data_only)
    }
}

/// Runs a test over each transport.
fn over_each_transport(test: impl Fn(&MountOptions)) {
    if !can_mount() {
        return;
    }
    for options in all_options().into_iter().filter(|options| options.cache == CacheMode::Direct) {
        eprintln!("with {:?}", options.transport);
        test(&options);
    }
}

fn troubled(options: &MountOptions, queue_max: u32) -> (Mount, Arc<Troubled>) {
    let mut troubled = None;
    let mount = Mount::with_gate(options, queue_max, |store| troubled.insert(Troubled::new(store)).clone());
    (mount, troubled.unwrap())
}

fn on_troubled_mounts(test: impl Fn(&Mount, &Troubled)) {
    over_each_transport(|options| {
        let (mount, troubled) = troubled(options, 1024);
        test(&mount, &troubled);
    });
}

/// Makes 100 folders. Where that waits for what is stuck, it would take for ever: lets that go then, and fails.
fn folders_are_made(mount: &Mount, is_stuck: &AtomicBool) {
    let done = Arc::new(AtomicBool::new(false));
    let maker = std::thread::spawn({
        let (path, done) = (mount.path.clone(), done.clone());
        move || {
            for number in 0..100 {
                std::fs::create_dir(path.join(format!("d{number}"))).unwrap();
            }
            done.store(true, Ordering::Relaxed);
        }
    });
    let begin = Instant::now();
    while !done.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(5));
    }
    let is_done = done.load(Ordering::Relaxed);
    is_stuck.store(false, Ordering::Relaxed);
    maker.join().unwrap();
    assert!(is_done, "100 folders were not made while others were stuck");
}

const READERS: u64 = 24;

/// Reads in as many threads.
fn readers(mount: &Mount) -> Vec<JoinHandle<io::Result<usize>>> {
    std::fs::write(mount.source.join("f"), vec![1; 1 << 20]).unwrap();
    let read = |reader| {
        let path = mount.at("f");
        std::thread::spawn(move || File::open(path)?.read_at(&mut [0; 4096], reader * 4096))
    };
    (0..READERS).map(read).collect()
}

fn all_have_read(readers: Vec<JoinHandle<io::Result<usize>>>) {
    for reader in readers {
        assert_eq!(reader.join().unwrap().unwrap(), 4096);
    }
}

#[test]
fn metadata_does_not_wait_behind_data() {
    on_troubled_mounts(|mount, troubled| {
        troubled.is_stuck.store(true, Ordering::Relaxed);
        let readers = readers(mount);
        // All that the gate lets through at once are stuck in the store, the others behind them.
        wait_until("reads are stuck", || troubled.stuck.load(Ordering::Relaxed) > 1);
        wait_until("all reads have come", || {
            mount.engine.with_gate(|gate, _| gate.len()) == READERS as usize
        });
        folders_are_made(mount, &troubled.is_stuck);
        all_have_read(readers);
    });
}

#[test]
fn metadata_does_not_wait_for_room_in_the_gate() {
    const ROOM: usize = 4;
    over_each_transport(|options| {
        let (mount, troubled) = troubled(options, ROOM as u32);
        troubled.is_stuck.store(true, Ordering::Relaxed);
        let readers = readers(&mount);
        wait_until("the gate is full", || mount.engine.with_gate(|gate, _| gate.len()) == ROOM);
        folders_are_made(&mount, &troubled.is_stuck);
        all_have_read(readers);
    });
}

/// The source is another mount, whose program hangs.
#[test]
fn an_open_that_is_stuck_in_the_source_holds_up_nothing_else() {
    over_each_transport(|options| {
        let behind = MountOptions { transport: Transport::Device, ..options.clone() };
        let (source, troubled) = troubled(&behind, 1024);
        let mount = Mount::of(&source.path, options);
        std::fs::write(source.source.join("f"), vec![1; 1 << 20]).unwrap();
        troubled.does_not_open.store(true, Ordering::Relaxed);
        let path = mount.at("f");
        let openers: Vec<_> = (0..READERS)
            .map(|_| {
                std::thread::spawn({
                    let path = path.clone();
                    move || File::open(path).map(drop)
                })
            })
            .collect();
        wait_until("opens are stuck", || troubled.stuck.load(Ordering::Relaxed) > 8);
        folders_are_made(&mount, &troubled.does_not_open);
        for opener in openers {
            opener.join().unwrap().unwrap();
        }
    });
}

#[test]
fn errors_of_the_store_reach_the_program() {
    on_troubled_mounts(|mount, troubled| {
        std::fs::write(mount.at("f"), b"before").unwrap();
        let file = File::options().read(true).write(true).open(mount.at("f")).unwrap();
        troubled.failing.store(true, Ordering::Relaxed);
        let errno = |result: io::Result<usize>| result.unwrap_err().raw_os_error();
        assert_eq!(errno(file.read_at(&mut [0; 8], 0)), Some(libc::EIO));
        assert_eq!(errno(file.write_at(b"x", 0)), Some(libc::ENOSPC));
        assert_eq!(errno(file.sync_all().map(|()| 0)), Some(libc::EDQUOT));
        troubled.failing.store(false, Ordering::Relaxed);
        let mut buffer = [0; 8];
        assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 6);
        assert_eq!(&buffer[..6], b"before");
    });
}

#[test]
fn a_closed_gate_answers_with_an_error() {
    on_troubled_mounts(|mount, _| {
        std::fs::write(mount.at("f"), b"before").unwrap();
        let file = File::open(mount.at("f")).unwrap();
        mount.engine.shutdown();
        assert_eq!(file.read_at(&mut [0; 8], 0).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(file.metadata().unwrap().len(), 6, "metadata is still served");
    });
}
