//! The engine under load and under stores that fail, fall short, are slow or full.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use iogate_core::{GateConfig, Layout, Op, SchedulerConfig, SchedulerKind};
use iogate_engine::store::{
    Backend, DirectoryOptions, DirectoryStore, Io, IoDone, MemoryStore, NullStore, OpenMode,
};
use iogate_engine::{Engine, FileHandle, Origin, Store, SubmitError, Transfer};

const CREATE: OpenMode = OpenMode { write: true, create: true };

fn config(scheduler: SchedulerConfig, queue_max: u32, depth: u32) -> GateConfig {
    GateConfig { scheduler, queue_max, depth, layout: Layout::SINGLE }
}

fn fifo(queue_max: u32, depth: u32) -> GateConfig {
    config(SchedulerConfig::new(SchedulerKind::Fifo), queue_max, depth)
}

fn aggregating(queue_max: u32, depth: u32) -> GateConfig {
    config(SchedulerConfig::new(SchedulerKind::ToAgg), queue_max, depth)
}

/// What a [`Faulty`] store does with a dispatch instead of carrying it out.
type Fault = dyn Fn(&Io) -> Option<io::Result<u64>> + Send + Sync;

/// A memory store with injected faults, that can be held and answers in the calling thread or in another.
struct Faulty {
    memory: MemoryStore,
    fault: Box<Fault>,
    answer_later: bool,
    held: Mutex<bool>,
    released: Condvar,
    calls: AtomicUsize,
}

impl Faulty {
    fn new(answer_later: bool, fault: Box<Fault>) -> Arc<Faulty> {
        Arc::new(Faulty {
            memory: MemoryStore::new(),
            fault,
            answer_later,
            held: Mutex::new(false),
            released: Condvar::new(),
            calls: AtomicUsize::new(0),
        })
    }

    fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.released.notify_all();
    }
}

impl Store for Faulty {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<FileHandle> {
        self.memory.open(path, mode)
    }

    fn adopt(&self, fd: OwnedFd) -> io::Result<FileHandle> {
        self.memory.adopt(fd)
    }

    fn start(&self, io: Io, done: IoDone) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mut held = self.held.lock().unwrap();
        while *held {
            held = self.released.wait(held).unwrap();
        }
        drop(held);
        let result = (self.fault)(&io).unwrap_or_else(|| self.memory.run(&io).unwrap());
        if self.answer_later {
            thread::spawn(move || done(io, result));
        } else {
            done(io, result);
        }
    }

    fn sync(&self, file: &FileHandle, data_only: bool) -> io::Result<()> {
        self.memory.sync(file, data_only)
    }
}

/// Submits one transfer; its result comes through the channel, with its number.
fn submit(
    engine: &Arc<Engine>,
    file: &FileHandle,
    op: Op,
    offset: u64,
    memory: &mut [u8],
    number: usize,
    results: &mpsc::Sender<(usize, io::Result<usize>)>,
) -> Result<(), SubmitError> {
    let results = results.clone();
    let transfer = Transfer {
        file: file.clone(),
        op,
        offset,
        memory: memory.as_mut_ptr(),
        bytes: memory.len() as u32,
        origin: Origin::default(),
        extends: false,
    };
    // SAFETY: the callers keep the memory until they have all results.
    unsafe { engine.submit(transfer, Box::new(move |result| drop(results.send((number, result))))) }
}

/// Has `count` contiguous requests of 100 bytes carried out as one dispatch (the store is held while they arrive
/// behind another one), and returns their results and memory.
fn one_dispatch(store: &Arc<Faulty>, op: Op, count: usize) -> Vec<(io::Result<usize>, Vec<u8>)> {
    let engine = Engine::new(&aggregating(1000, 1), Arc::clone(store) as Arc<dyn Store>).unwrap();
    let file = store.open("file".as_ref(), CREATE).unwrap();
    let plug = store.open("plug".as_ref(), CREATE).unwrap();
    store.hold(true);
    let mut memory: Vec<Vec<u8>> = (0..count).map(|i| vec![i as u8 + 1; 100]).collect();
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| engine.write_at(&plug, Origin::default(), 0, &[0]).unwrap());
        while engine.with_gate(|gate, _| gate.in_service()) == 0 {
            thread::yield_now();
        }
        for (index, memory) in memory.iter_mut().enumerate() {
            submit(&engine, &file, op, index as u64 * 100, memory, index, &sender).unwrap();
        }
        store.hold(false);
    });
    drop(sender);
    let mut results: Vec<_> = (0..count).map(|_| receiver.recv().unwrap()).collect();
    engine.shutdown();
    assert!(receiver.recv().is_err(), "each request completes once");
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).zip(memory).collect()
}

fn covers(io: &Io, byte: u64) -> bool {
    let bytes = io.segments.iter().map(|segment| segment.bytes as u64).sum::<u64>();
    (io.offset..io.offset + bytes).contains(&byte)
}

#[test]
fn only_the_guilty_request_of_an_aggregate_gets_the_error() {
    for (answer_later, op) in [(false, Op::Read), (true, Op::Read), (false, Op::Write), (true, Op::Write)] {
        let fault = |io: &Io| covers(io, 350).then(|| Err(io::Error::from_raw_os_error(libc::EIO)));
        let store = Faulty::new(answer_later, Box::new(fault));
        let file = store.open("file".as_ref(), CREATE).unwrap();
        let mut zeros = vec![9; 350];
        let segment = iogate_engine::store::Segment { memory: zeros.as_mut_ptr(), bytes: 350 };
        let target = iogate_core::TargetId(0);
        let fill = |offset| Io {
            file: file.clone(),
            op: Op::Write,
            offset,
            target,
            origin: Origin::default(),
            extends: false,
            segments: vec![segment],
        };
        for offset in [0, 350, 700] {
            store.memory.run(&fill(offset)).unwrap().unwrap();
        }
        let results = one_dispatch(&store, op, 8);
        // The plug, the aggregate, and each of its parts.
        assert_eq!(store.calls.load(Ordering::SeqCst), 1 + 1 + 8);
        for (index, (result, memory)) in results.iter().enumerate() {
            match (index, result) {
                (3, Err(error)) => assert_eq!(error.raw_os_error(), Some(libc::EIO)),
                (_, Ok(100)) if op == Op::Read => assert_eq!(memory, &[9; 100]),
                (_, Ok(100)) => {}
                (index, result) => panic!("request {index}: {result:?}"),
            }
        }
    }
}

#[test]
fn a_short_write_is_full_for_those_before_and_tried_again_for_those_behind() {
    for answer_later in [false, true] {
        // The device takes 250 bytes of a long write; of a short one, nothing beyond byte 600.
        let fault = |io: &Io| match (io.segments.len(), io.offset) {
            (2.., _) => Some(Ok(250)),
            (_, 600..) => Some(Err(io::Error::from_raw_os_error(libc::ENOSPC))),
            _ => None,
        };
        let results = one_dispatch(&Faulty::new(answer_later, Box::new(fault)), Op::Write, 8);
        let results: Vec<Result<usize, i32>> = results
            .into_iter()
            .map(|(result, _)| result.map_err(|error| error.raw_os_error().unwrap()))
            .collect();
        let full = Err(libc::ENOSPC);
        assert_eq!(results, [Ok(100), Ok(100), Ok(50), Ok(100), Ok(100), Ok(100), full, full]);
    }
}

#[test]
fn the_end_of_the_file_cuts_an_aggregated_read() {
    let store = Faulty::new(false, Box::new(|_| None));
    let file = store.open("file".as_ref(), CREATE).unwrap();
    let engine = Engine::new(&fifo(8, 8), Arc::clone(&store) as Arc<dyn Store>).unwrap();
    engine.write_at(&file, Origin::default(), 0, &[7; 230]).unwrap();
    let results = one_dispatch(&store, Op::Read, 5);
    let counts: Vec<usize> = results.iter().map(|(result, _)| *result.as_ref().unwrap()).collect();
    assert_eq!(counts, [100, 100, 30, 0, 0]);
    assert_eq!(results[2].1[..30], [7; 30]);
}

#[test]
fn a_split_request_has_one_result() {
    let mut twins = SchedulerConfig::new(SchedulerKind::Twins);
    twins.set("split", "true").unwrap();
    twins.set("window", "200us").unwrap();
    let layout = Layout { first_target: 0, stripe_bytes: 1000, targets: 3 };
    let gate = GateConfig { scheduler: twins, queue_max: 100, depth: 4, layout };
    let fault = |io: &Io| covers(io, 7500).then(|| Err(io::Error::from_raw_os_error(libc::EIO)));
    let store = Faulty::new(false, Box::new(fault));
    let engine = Engine::new(&gate, Arc::clone(&store) as Arc<dyn Store>).unwrap();
    let file = store.open("file".as_ref(), CREATE).unwrap();
    let bytes: Vec<u8> = (0..6500u32).map(|i| (i % 251) as u8).collect();
    let origin = Origin::default();
    assert_eq!(engine.write_at(&file, origin, 100, &bytes).unwrap(), 6500);
    let mut back = vec![0; 6900];
    // Ends in the seventh stripe: the parts are read in any order, the result counts from the start.
    assert_eq!(engine.read_at(&file, origin, 100, &mut back[..6890]).unwrap(), 6500);
    assert!(back[..6500] == bytes);
    // The eighth stripe fails: what was written before it counts; a read fails as a whole.
    assert_eq!(engine.write_at(&file, origin, 5500, &[1; 3000]).unwrap(), 1500);
    assert!(engine.read_at(&file, origin, 5500, &mut [0; 3000]).is_err());
    // More pieces than the gate has room for.
    let error = engine.write_at(&file, origin, 0, &vec![0; 200_000]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
}

#[test]
fn a_full_gate_of_one_holds_submitters_back_and_loses_none() {
    for answer_later in [false, true] {
        let slow = |_: &Io| {
            thread::sleep(Duration::from_micros(50));
            None
        };
        let store = Faulty::new(answer_later, Box::new(slow));
        let file = store.open("file".as_ref(), CREATE).unwrap();
        let engine = Engine::new(&fifo(1, 1), store).unwrap();
        let (sender, receiver) = mpsc::channel();
        let mut memory: Vec<Vec<u8>> = (0..8).map(|i| vec![i; 10]).collect();
        thread::scope(|scope| {
            for (index, memory) in memory.iter_mut().enumerate() {
                let (engine, file, sender) = (&engine, &file, sender.clone());
                scope.spawn(move || {
                    for _ in 0..20 {
                        submit(engine, file, Op::Write, index as u64 * 10, memory, index, &sender).unwrap();
                        let other = 1000 + index as u64;
                        assert_eq!(engine.write_at(file, Origin::default(), other, &[1]).unwrap(), 1);
                    }
                });
            }
        });
        engine.shutdown();
        drop(sender);
        assert_eq!(receiver.iter().filter(|(_, result)| matches!(result, Ok(10))).count(), 8 * 20);
    }
}

#[test]
fn completions_may_submit_without_nesting() {
    // A chain as long as this would overflow the stack if each link were a call within the one before.
    const LINKS: usize = 100_000;
    for queue_max in [1, 100] {
        let store = Arc::new(NullStore::new());
        let file = store.open("file".as_ref(), CREATE).unwrap();
        let engine = Engine::new(&fifo(queue_max, 1), store).unwrap();
        let (sender, receiver) = mpsc::channel();
        fn link(engine: &Arc<Engine>, file: FileHandle, left: usize, end: mpsc::Sender<()>) {
            let transfer = Transfer {
                file: file.clone(),
                op: Op::Read,
                offset: 0,
                memory: std::ptr::NonNull::dangling().as_ptr(),
                bytes: 1,
                origin: Origin::default(),
                extends: false,
            };
            let next = Arc::clone(engine);
            let done = Box::new(move |result: io::Result<usize>| {
                assert_eq!(result.unwrap(), 1);
                match left {
                    0 => end.send(()).unwrap(),
                    left => link(&next, file, left - 1, end),
                }
            });
            // SAFETY: the null store does not touch the memory.
            unsafe { engine.submit(transfer, done) }.unwrap();
        }
        link(&engine, file, LINKS, sender);
        receiver.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}

#[test]
fn shutdown_under_load_completes_what_was_accepted() {
    for answer_later in [false, true] {
        let slow = |_: &Io| {
            thread::sleep(Duration::from_micros(100));
            None
        };
        let store = Faulty::new(answer_later, Box::new(slow));
        let file = store.open("file".as_ref(), CREATE).unwrap();
        let engine = Engine::new(&aggregating(50, 3), store).unwrap();
        let (sender, receiver) = mpsc::channel();
        let accepted = AtomicUsize::new(0);
        let mut memory: Vec<Vec<u8>> = (0..6).map(|_| vec![1; 10]).collect();
        thread::scope(|scope| {
            for (index, memory) in memory.iter_mut().enumerate() {
                let (engine, file, sender, accepted) = (&engine, &file, sender.clone(), &accepted);
                scope.spawn(move || {
                    for round in 0.. {
                        let offset = (round * 6 + index as u64) * 10;
                        match submit(engine, file, Op::Write, offset, memory, index, &sender) {
                            Ok(()) => accepted.fetch_add(1, Ordering::SeqCst),
                            Err(SubmitError::Closed) => break,
                            Err(error) => panic!("{error}"),
                        };
                    }
                });
            }
            thread::sleep(Duration::from_millis(30));
            scope.spawn(|| engine.shutdown());
            engine.shutdown();
        });
        engine.shutdown();
        let completed = receiver.try_iter().filter(|(_, result)| matches!(result, Ok(10))).count();
        assert_eq!(completed, accepted.load(Ordering::SeqCst));
        assert!(completed > 0);
    }
}

#[test]
fn an_engine_dropped_in_its_own_completion_ends() {
    let store = Arc::new(NullStore::new());
    let file = store.open("file".as_ref(), CREATE).unwrap();
    let engine = Engine::new(&fifo(10, 1), Arc::clone(&store) as Arc<dyn Store>).unwrap();
    let (sender, receiver) = mpsc::channel();
    let last = Arc::new(Mutex::new(Some(Arc::clone(&engine))));
    let transfer = Transfer {
        file,
        op: Op::Read,
        offset: 0,
        memory: std::ptr::NonNull::dangling().as_ptr(),
        bytes: 1,
        origin: Origin::default(),
        extends: false,
    };
    let taken = Arc::clone(&last);
    let done = Box::new(move |_: io::Result<usize>| {
        drop(taken.lock().unwrap().take());
        sender.send(()).unwrap();
    });
    // SAFETY: the null store does not touch the memory.
    unsafe { engine.submit(transfer, done) }.unwrap();
    drop(engine);
    receiver.recv_timeout(Duration::from_secs(10)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while Arc::strong_count(&store) > 1 {
        assert!(Instant::now() < deadline, "the engine's threads have ended and let go of the store");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn many_threads_and_every_algorithm_keep_the_data_straight() {
    const THREADS: usize = 6;
    let root = tempfile::tempdir().unwrap();
    for backend in [Backend::Calls, Backend::Auto] {
        let store = DirectoryStore::with(root.path(), DirectoryOptions { backend, direct: false }).unwrap();
        let store: Arc<dyn Store> = Arc::new(store);
        let engine = Engine::new(&aggregating(64, 4), Arc::clone(&store)).unwrap();
        let running = AtomicUsize::new(THREADS);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (engine, store, running) = (&engine, &store, &running);
                scope.spawn(move || {
                    let file = store.open(format!("{}", thread % 2).as_ref(), CREATE).unwrap();
                    let origin = Origin { app: iogate_core::AppId(thread as u32), ..Origin::default() };
                    for round in 0..150u64 {
                        let offset = (round * THREADS as u64 + thread as u64) * 700;
                        let bytes: Vec<u8> = (0..700).map(|i| (offset + i * 31) as u8).collect();
                        assert_eq!(engine.write_at(&file, origin, offset, &bytes).unwrap(), 700);
                        let mut back = vec![0; 700];
                        assert_eq!(engine.read_at(&file, origin, offset, &mut back).unwrap(), 700);
                        assert!(back == bytes, "thread {thread}, round {round}");
                    }
                    running.fetch_sub(1, Ordering::SeqCst);
                });
            }
            // Each algorithm in turn, under load, until all threads are done.
            for kind in SchedulerKind::ALL.into_iter().cycle() {
                let mut scheduler = SchedulerConfig::new(kind);
                if scheduler.kind().params().iter().any(|param| param.name == "window") {
                    scheduler.set("window", "100us").unwrap();
                }
                engine.switch(&scheduler);
                if running.load(Ordering::SeqCst) == 0 {
                    break;
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        assert!(engine.with_gate(|gate, _| gate.is_empty()));
    }
}

#[test]
fn a_wait_of_the_scheduler_ends_in_its_window() {
    // Everything is on target 1 of 2: with windows of 30 ms it is up to 30 ms away.
    let twins = SchedulerConfig::new(SchedulerKind::Twins).changed("window=30ms", 0).unwrap();
    let layout = Layout { first_target: 1, stripe_bytes: 1 << 40, targets: 2 };
    let gate = GateConfig { scheduler: twins, queue_max: 10, depth: 4, layout };
    let store = Arc::new(NullStore::new());
    let file = store.open("file".as_ref(), CREATE).unwrap();
    let engine = Engine::new(&gate, store).unwrap();
    // On a busy machine this thread may see too late when its write was served: some tries count.
    let window = || engine.with_gate(|_, now| now.as_nanos() / 30_000_000);
    let is_served_next = |_: &i32| {
        let before = std::iter::repeat_with(window).find(|window| window % 2 == 0);
        engine.write_at(&file, Origin::default(), 0, &[1]).unwrap();
        Some(window()) == before.map(|window| window + 1)
    };
    assert_eq!(
        (0..200).filter(is_served_next).take(4).count(),
        4,
        "of 200 writes, served in their target's window"
    );
}

/// A small file system of its own, unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    /// `None` without the right to mount.
    fn mount(bytes: u64) -> Option<Tmpfs> {
        let at = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "iogate-test"]).arg(at.path()).output();
        status.is_ok_and(|output| output.status.success()).then(|| Tmpfs(at))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let at = self.0.path();
        let unmount = || Command::new("umount").arg(at).status().is_ok_and(|status| status.success());
        // The kernel closes a ring, and the files that it held, some time after the process did.
        let tries = std::iter::repeat_with(unmount).take(600);
        if tries.inspect(|_| thread::sleep(Duration::from_millis(50))).any(|is_done| is_done) {
            return;
        }
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(thread::panicking(), "{:?} was busy for thirty seconds", self.0.path());
    }
}

#[test]
fn a_full_device_is_told_to_exactly_those_whose_bytes_it_did_not_take() {
    let Some(tmpfs) = Tmpfs::mount(1 << 20) else {
        println!("skipped: needs the right to mount");
        return;
    };
    for backend in [Backend::Calls, Backend::Ring] {
        let options = DirectoryOptions { backend, direct: false };
        let store = Arc::new(DirectoryStore::with(tmpfs.0.path(), options).unwrap());
        let path = tmpfs.0.path().join("file");
        let file = store.open("file".as_ref(), CREATE).unwrap();
        let engine = Engine::new(&aggregating(1000, 1), store).unwrap();
        let (sender, receiver) = mpsc::channel();
        // Twice what fits, in pieces that do not divide the device, from several threads so that some aggregate.
        const BYTES: usize = 10_000;
        let mut memory: Vec<Vec<u8>> = (0..210).map(|i| vec![i as u8 + 1; BYTES]).collect();
        thread::scope(|scope| {
            for (part, memory) in memory.chunks_mut(70).enumerate() {
                let (engine, file, sender) = (&engine, &file, sender.clone());
                scope.spawn(move || {
                    for (index, memory) in memory.iter_mut().enumerate() {
                        let index = part * 70 + index;
                        submit(engine, file, Op::Write, (index * BYTES) as u64, memory, index, &sender)
                            .unwrap();
                    }
                });
            }
        });
        engine.shutdown();
        drop(sender);
        let content = std::fs::read(&path).unwrap();
        let (mut written, mut refused) = (0, 0);
        for (index, result) in receiver.iter() {
            let count = match result {
                Ok(count) => count,
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
                    refused += 1;
                    continue;
                }
            };
            written += count;
            let kept = &content[index * BYTES..][..count];
            assert!(kept.iter().all(|byte| *byte == index as u8 + 1), "request {index}: {count} bytes");
        }
        assert!(refused >= 90, "{refused} were refused");
        assert!(written > 900_000 && written <= 1 << 20, "{written} bytes were written");
        let present = content.iter().filter(|byte| **byte != 0).count();
        assert_eq!(present, written, "what was reported is what is there");
        drop(engine);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_batch_is_ordered_and_aggregated_as_a_whole() {
    for answer_later in [false, true] {
        let store = Faulty::new(answer_later, Box::new(|_| None));
        let engine = Engine::new(&aggregating(1000, 1), Arc::clone(&store) as Arc<dyn Store>).unwrap();
        let file = store.open("file".as_ref(), CREATE).unwrap();
        let (sender, receiver) = mpsc::channel();
        // Backwards: sent one after another, the first would go alone.
        let mut memory: Vec<Vec<u8>> = (0..8).map(|i| vec![i as u8; 100]).collect();
        let batch = memory.iter_mut().enumerate().rev().map(|(index, memory)| {
            let sender = sender.clone();
            let (file, offset, memory) = (file.clone(), index as u64 * 100, memory.as_mut_ptr());
            let origin = Origin::default();
            let transfer =
                Transfer { file, op: Op::Write, offset, memory, bytes: 100, origin, extends: false };
            let done: iogate_engine::Completion = Box::new(move |result| drop(sender.send((index, result))));
            (transfer, done)
        });
        // SAFETY: the memory is kept until all results are there.
        unsafe { engine.submit_all(batch) };
        for _ in 0..8 {
            assert_eq!(receiver.recv().unwrap().1.unwrap(), 100);
        }
        assert_eq!(store.calls.load(Ordering::SeqCst), 1);
        engine.shutdown();
    }
}

#[test]
fn a_batch_larger_than_the_gate_goes_through_and_what_is_refused_is_told() {
    let store = Faulty::new(true, Box::new(|_| None));
    let engine = Engine::new(&fifo(4, 2), Arc::clone(&store) as Arc<dyn Store>).unwrap();
    let file = store.open("file".as_ref(), CREATE).unwrap();
    let (sender, receiver) = mpsc::channel();
    let mut memory = [7u8; 64];
    let memory = memory.as_mut_ptr();
    let transfer = |offset, bytes| {
        let sender = sender.clone();
        let origin = Origin::default();
        let transfer =
            Transfer { file: file.clone(), op: Op::Write, offset, memory, bytes, origin, extends: false };
        let done: iogate_engine::Completion = Box::new(move |result| drop(sender.send(result)));
        (transfer, done)
    };
    let batch: Vec<_> =
        (0..50).map(|index| transfer(index * 64, 64)).chain([transfer(u64::MAX, 64)]).collect();
    // SAFETY: the memory is kept until all results are there; a write only reads it.
    unsafe { engine.submit_all(batch) };
    let results: Vec<_> = (0..51).map(|_| receiver.recv().unwrap()).collect();
    assert_eq!(results.iter().filter(|result| matches!(result, Ok(64))).count(), 50);
    assert_eq!(results.iter().filter(|result| result.is_err()).count(), 1);
    engine.shutdown();
}
