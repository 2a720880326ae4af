//! Submitting from a thread that must not get stuck.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::ThreadId;

use iogate_core::{GateConfig, Layout, Op, SchedulerConfig, SchedulerKind, TargetId};
use iogate_engine::store::{DirectoryStore, Io, IoDone, MemoryStore, Nearness, OpenMode, Segment};
use iogate_engine::{Completion, Engine, FileHandle, Origin, Store, Transfer};

const CREATE: OpenMode = OpenMode { write: true, create: true };
/// Longer than anything takes that does not hang.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

fn engine(store: Arc<dyn Store>, kind: SchedulerKind, queue_max: u32, depth: u32) -> Arc<Engine> {
    let gate = GateConfig { scheduler: SchedulerConfig::new(kind), queue_max, depth, layout: Layout::SINGLE };
    Engine::new(&gate, store).unwrap()
}

/// A memory store that does small transfers at once, and keeps the others until it is let go.
struct Keeping {
    memory: MemoryStore,
    at_once_max: usize,
    kept: Mutex<bool>,
    let_go: Condvar,
}

impl Keeping {
    fn new(at_once_max: usize) -> Arc<Keeping> {
        let (kept, let_go) = (Mutex::new(true), Condvar::new());
        Arc::new(Keeping { memory: MemoryStore::new(), at_once_max, kept, let_go })
    }

    fn let_go(&self) {
        *self.kept.lock().unwrap() = false;
        self.let_go.notify_all();
    }
}

impl Store for Keeping {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.memory.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.memory.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        let kept = self.kept.lock().unwrap();
        drop(self.let_go.wait_while(kept, |kept| *kept).unwrap());
        self.memory.start(io, done);
    }

    fn run_at_once(&self, io: &Io) -> Option<io::Result<u64>> {
        let bytes = io.segments.iter().map(|segment| segment.bytes).sum::<usize>();
        if bytes <= self.at_once_max { self.memory.run(io) } else { None }
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.memory.sync(file, data_only)
    }
}

type Told = (usize, io::Result<usize>, ThreadId);

/// Submits writes of these lengths, one behind the other, each of which tells its number, its result and its thread. Returns those that
/// have found no room, and what is told.
fn submit_at_once(
    engine: &Arc<Engine>,
    file: &FileHandle,
    lengths: &[u32],
) -> (Vec<(Transfer, Completion)>, mpsc::Receiver<Told>) {
    let (tell, told) = mpsc::channel();
    let mut offset = 0;
    let write = |(number, bytes): (usize, &u32)| {
        let transfer = Transfer {
            file: FileHandle::clone(file),
            op: Op::Write,
            offset,
            memory: BYTES.as_ptr().cast_mut(),
            bytes: *bytes,
            origin: Origin::default(),
            extends: false,
        };
        offset += u64::from(*bytes);
        let tell = tell.clone();
        let done: Completion =
            Box::new(move |result| tell.send((number, result, std::thread::current().id())).unwrap());
        (transfer, done)
    };
    let mut batch = lengths.iter().enumerate().map(write).collect();
    // SAFETY: the memory is never written to, and lives for ever.
    unsafe { engine.submit_at_once(&mut batch) };
    (batch, told)
}

static BYTES: [u8; 8192] = [7; 8192];

#[test]
fn what_is_done_at_once_is_done_by_the_caller() {
    for kind in [SchedulerKind::Fifo, SchedulerKind::ToAgg] {
        let store = Arc::new(MemoryStore::new());
        let file = store.open("f".as_ref(), CREATE).unwrap();
        let engine = engine(store.clone(), kind, 100, 4);
        let (batch, told) = submit_at_once(&engine, &file, &[100; 16]);
        assert!(batch.is_empty());
        let mut numbers: Vec<_> = told
            .try_iter()
            .map(|(number, result, thread)| {
                assert_eq!((result.unwrap(), thread), (100, std::thread::current().id()));
                number
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..16).collect::<Vec<_>>());
        assert_eq!(store.size(&file).unwrap(), 1600);
    }
}

#[test]
fn what_the_store_keeps_does_not_keep_the_caller() {
    let store = Keeping::new(100);
    let file = store.open("f".as_ref(), CREATE).unwrap();
    let engine = engine(store.clone(), SchedulerKind::Fifo, 100, 16);
    let (batch, told) = submit_at_once(&engine, &file, &[100, 4096, 100, 4096]);
    assert!(batch.is_empty());
    let at_once: Vec<_> = told.try_iter().map(|(number, result, _)| (number, result.unwrap())).collect();
    assert_eq!(at_once, [(0, 100), (2, 100)]);
    store.let_go();
    let mut later: Vec<_> = (0..2).map(|_| told.recv_timeout(PATIENCE).unwrap().0).collect();
    later.sort_unstable();
    assert_eq!(later, [1, 3]);
}

#[test]
fn what_finds_no_room_stays_with_the_caller() {
    let store = Keeping::new(0);
    let file = store.open("f".as_ref(), CREATE).unwrap();
    let engine = engine(store.clone(), SchedulerKind::Fifo, 2, 1);
    let (batch, told) = submit_at_once(&engine, &file, &[100; 5]);
    assert_eq!(batch.iter().map(|(transfer, _)| transfer.offset).collect::<Vec<_>>(), [200, 300, 400]);
    assert_eq!(told.try_iter().count(), 0);
    store.let_go();
    // SAFETY: as of those before.
    unsafe { engine.submit_all(batch) };
    let mut numbers: Vec<_> = (0..5).map(|_| told.recv_timeout(PATIENCE).unwrap().0).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2, 3, 4]);
}

#[test]
fn a_closed_gate_tells_at_once() {
    let store = Arc::new(MemoryStore::new());
    let file = store.open("f".as_ref(), CREATE).unwrap();
    let engine = engine(store, SchedulerKind::Fifo, 2, 1);
    engine.shutdown();
    let (batch, told) = submit_at_once(&engine, &file, &[100; 2]);
    assert!(batch.is_empty());
    let told: Vec<_> = told.try_iter().map(|(_, result, _)| result.unwrap_err().kind()).collect();
    assert_eq!(told, [io::ErrorKind::BrokenPipe; 2]);
}

#[test]
fn a_directory_does_at_once_what_its_file_system_does() {
    let places = [std::env::temp_dir(), "/dev/shm".into()];
    for place in places.iter().filter(|place| place.exists()) {
        let dir = tempfile::tempdir_in(place).unwrap();
        let nearness = Nearness::of_directory(std::fs::File::open(dir.path()).unwrap());
        let store = DirectoryStore::new(dir.path()).unwrap();
        std::fs::write(dir.path().join("f"), [1; 5000]).unwrap();
        let file = store.open("f".as_ref(), OpenMode { write: true, create: false }).unwrap();
        let run = |op, offset, memory: &mut [u8]| {
            let segments = vec![Segment { memory: memory.as_mut_ptr(), bytes: memory.len() }];
            let (file, target, origin) = (FileHandle::clone(&file), TargetId(0), Origin::default());
            let io = Io { file, op, offset, target, origin, extends: false, segments };
            store.run_at_once(&io).map(Result::unwrap)
        };
        let mut memory = [0; 4096];
        let if_near = |bytes| (nearness > Nearness::Far).then_some(bytes);
        assert_eq!(run(Op::Read, 0, &mut memory), if_near(4096), "{nearness:?}");
        assert_eq!(run(Op::Read, 4096, &mut memory), if_near(904), "{nearness:?}");
        assert_eq!(run(Op::Write, 4096, &mut memory), if_near(4096), "{nearness:?}");
        assert_eq!(memory, [u8::from(nearness > Nearness::Far); 4096]);
        // Out of the page cache, where there is one below; it need not go.
        let open = std::fs::File::open(dir.path().join("f")).unwrap();
        open.sync_all().unwrap();
        rustix::fs::fadvise(&open, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let again = run(Op::Read, 0, &mut memory);
        assert!(again == if_near(4096) || nearness == Nearness::Disk && again.is_none(), "{again:?}");
    }
}
