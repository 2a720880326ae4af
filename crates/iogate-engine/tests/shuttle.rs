//! Many interleavings of the engine's threads, its callers and its stores: `cargo test -p iogate-engine --features shuttle --test shuttle`.
//!
//! Shuttle runs one thread at a time and chooses at each lock, wait and atomic access which. What hangs is found as a deadlock.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use iogate_core::{
    Extent, FileId, FileLayout, GateConfig, Layout, Op, SchedulerConfig, SchedulerKind, TargetId,
};
use iogate_engine::store::{Finished, Io, IoDone, OpenMode, StoreFile};
use iogate_engine::{Engine, FileHandle, Origin, Store, Transfer};
use shuttle::scheduler::RandomScheduler;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::sync::{Condvar, Mutex};
use shuttle::{Config, Runner, thread};

const INTERLEAVINGS: usize = 1000;

#[derive(Debug)]
struct File(u64);

impl StoreFile for File {
    fn id(&self) -> FileId {
        FileId(self.0)
    }
}

fn file(number: u64) -> FileHandle {
    Arc::new(File(number))
}

/// How a store completes a dispatch.
#[derive(Clone, Copy)]
enum Completes {
    InRun,
    /// As it runs, without keeping its thread: the gate is told of several together.
    Together,
    InStart,
    /// In a thread of its own, one after another: as the thread that receives a server's answers.
    Later,
}

/// Keeps nothing: a dispatch is as good as done.
struct Quick {
    completes: Completes,
    /// It says that it submits: the engine looks once for all dispatches that go together at what has turned up.
    submits: bool,
    queue: Arc<Queue>,
    /// Of what it is told, the places of the memory.
    told: Mutex<Vec<usize>>,
}

#[derive(Default)]
struct Queue {
    begun: Mutex<(VecDeque<(Io, IoDone)>, bool)>,
    changed: Condvar,
}

fn bytes(io: &Io) -> io::Result<u64> {
    Ok(io.segments.iter().map(|segment| segment.bytes as u64).sum())
}

impl Quick {
    fn new(completes: Completes) -> Quick {
        Quick { completes, submits: false, queue: Arc::default(), told: Mutex::default() }
    }

    /// Starts the thread that completes; it ends with [`Queue::end`].
    fn completer(&self) -> thread::JoinHandle<()> {
        let queue = Arc::clone(&self.queue);
        thread::spawn(move || {
            loop {
                let begun = queue.begun.lock().unwrap();
                let mut begun =
                    queue.changed.wait_while(begun, |(list, over)| list.is_empty() && !*over).unwrap();
                let Some((io, done)) = begun.0.pop_front() else { return };
                drop(begun);
                let result = bytes(&io);
                done(io, result);
            }
        })
    }
}

impl Queue {
    fn end(&self) {
        self.begun.lock().unwrap().1 = true;
        self.changed.notify_all();
    }
}

impl Store for Quick {
    fn open(&self, _: &Path, _: OpenMode) -> io::Result<FileHandle> {
        Ok(file(1))
    }

    fn adopt(&self, _: OwnedFd) -> io::Result<FileHandle> {
        Ok(file(1))
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        matches!(self.completes, Completes::InRun | Completes::Together).then(|| bytes(io))
    }

    fn start(&self, io: Io, done: IoDone) {
        if matches!(self.completes, Completes::Later) {
            self.queue.begun.lock().unwrap().0.push_back((io, done));
            self.queue.changed.notify_one();
        } else {
            let result = bytes(&io);
            done(io, result);
        }
    }

    fn blocks(&self) -> bool {
        matches!(self.completes, Completes::InRun)
    }

    fn submits(&self) -> bool {
        self.submits
    }

    fn finished(&self, finished: &mut Vec<Finished>) {
        for Finished { memory, result } in finished.drain(..) {
            assert_eq!(result.unwrap(), 8);
            self.told.lock().unwrap().push(memory.addr());
        }
    }

    fn sync(&self, _: &FileHandle, _: bool) -> io::Result<()> {
        Ok(())
    }
}

fn engine(store: Arc<Quick>, queue_max: u32, depth: u32) -> Arc<Engine> {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max, depth, layout: Layout::SINGLE };
    Engine::new(&gate, store).unwrap()
}

/// Memory that lives as long as the test, for transfers that nobody looks into.
fn memory() -> *mut u8 {
    static MEMORY: std::sync::OnceLock<usize> = std::sync::OnceLock::new();
    *MEMORY.get_or_init(|| Box::leak(vec![0u8; 64].into_boxed_slice()).as_mut_ptr() as usize) as *mut u8
}

fn transfer(number: u64, offset: u64) -> Transfer {
    Transfer {
        file: file(number),
        op: Op::Write,
        offset,
        memory: memory(),
        bytes: 8,
        origin: Origin::default(),
        extends: false,
    }
}

fn try_many(test: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    // What chooses a scheduler, and what reads settings, takes more than is usual.
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new(INTERLEAVINGS), config).run(test);
}

/// Two threads that wait and one that does not, at a gate with room for two, of which one is carried out at a time.
fn each_is_completed_once(completes: Completes, submits: bool) {
    let store = Arc::new(Quick { submits, ..Quick::new(completes) });
    let (queue, completer) = (Arc::clone(&store.queue), store.completer());
    let engine = engine(store, 2, 1);
    let completed = Arc::new(AtomicUsize::new(0));
    let waiting: Vec<_> = (0..2)
        .map(|number| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                for step in 0..2 {
                    // The same range: the second waits for the first.
                    let wrote = engine.write_at(&file(number), Origin::default(), step % 2 * 4, b"12345678");
                    assert_eq!(wrote.unwrap(), 8);
                }
            })
        })
        .collect();
    for step in 0..3 {
        let completed = Arc::clone(&completed);
        let done = move |result: io::Result<usize>| {
            assert_eq!(result.unwrap(), 8);
            completed.fetch_add(1, Ordering::SeqCst);
        };
        // SAFETY: the memory is never freed, and nobody looks at it.
        unsafe { engine.submit(transfer(0, step * 8), Box::new(done)) }.unwrap();
    }
    waiting.into_iter().for_each(|thread| thread.join().unwrap());
    engine.shutdown();
    assert_eq!(completed.load(Ordering::SeqCst), 3, "shutdown waits for all");
    queue.end();
    completer.join().unwrap();
}

#[test]
fn each_is_completed_once_by_a_store_that_runs() {
    for submits in [false, true] {
        try_many(move || each_is_completed_once(Completes::InRun, submits));
        try_many(move || each_is_completed_once(Completes::Together, submits));
    }
}

#[test]
fn the_store_is_told_once_of_each_that_it_wants_to_be_told_of() {
    try_many(|| is_told_once(false));
    try_many(|| is_told_once(true));
}

fn is_told_once(submits: bool) {
    let store = Arc::new(Quick { submits, ..Quick::new(Completes::Together) });
    // Room for three, of which two are in service at once: who submits may wait, with others' in its hands.
    let engine = engine(Arc::clone(&store), 3, 2);
    let threads: Vec<_> = (0..2)
        .map(|number| {
            let engine = Arc::clone(&engine);
            thread::spawn(move || {
                let batch = (0..2).map(|step| Transfer {
                    memory: std::ptr::without_provenance_mut(number * 2 + step + 1),
                    ..transfer(0, step as u64 * 4)
                });
                // SAFETY: the store follows no memory.
                unsafe { engine.submit_for_store(batch, number == 0) };
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    engine.shutdown();
    let mut told = std::mem::take(&mut *store.told.lock().unwrap());
    told.sort_unstable();
    assert_eq!(told, [1, 2, 3, 4]);
}

#[test]
fn each_is_completed_once_by_a_store_that_completes_before_it_returns() {
    for submits in [false, true] {
        try_many(move || each_is_completed_once(Completes::InStart, submits));
    }
}

#[test]
fn each_is_completed_once_by_a_store_that_completes_later() {
    for submits in [false, true] {
        try_many(move || each_is_completed_once(Completes::Later, submits));
    }
}

#[test]
fn completions_may_submit() {
    try_many(|| {
        let store = Arc::new(Quick::new(Completes::Later));
        let (queue, completer) = (Arc::clone(&store.queue), store.completer());
        let engine = engine(store, 4, 2);
        let completed = Arc::new(AtomicUsize::new(0));
        for number in 0..3 {
            let (again, counted) = (Arc::clone(&engine), Arc::clone(&completed));
            let first = move |_| {
                let done = move |_| assert!(counted.fetch_add(1, Ordering::SeqCst) < 3);
                // SAFETY: the memory is never freed, and nobody looks at it.
                let submitted = unsafe { again.submit(transfer(number, 8), Box::new(done)) };
                assert!(submitted.is_ok());
            };
            // SAFETY: as above.
            unsafe { engine.submit(transfer(number, 0), Box::new(first)) }.unwrap();
        }
        while completed.load(Ordering::SeqCst) < 3 {
            thread::yield_now();
        }
        engine.shutdown();
        queue.end();
        completer.join().unwrap();
    });
}

/// The scheduler is chosen, a file with several targets is opened, for which it cannot be, and somebody says which it is to be.
#[test]
fn who_says_which_scheduler_it_is_to_be_is_heard_whatever_is_opened() {
    try_many(|| {
        let engine = engine(Arc::new(Quick::new(Completes::InRun)), 8, 8);
        engine.choose(1_000).unwrap();
        let opening = Arc::clone(&engine);
        let targets = vec![TargetId(0), TargetId(1)];
        let extent = Extent { start: 0, end: u64::MAX, stripe_bytes: 4096, targets };
        let striped = Arc::new(FileLayout::new(vec![extent]).unwrap());
        let other = thread::spawn(move || opening.set_layout(FileId(1), Some(striped)));
        let sjf = SchedulerConfig::new(SchedulerKind::Sjf);
        engine.switch(&sjf);
        other.join().unwrap();
        assert_eq!(engine.with_gate(|gate, _| gate.scheduler().clone()), sjf);
        engine.shutdown();
    });
}

/// Two say at once what is to be otherwise: both are heard.
#[test]
fn who_changes_one_parameter_undoes_no_other_change() {
    try_many(|| {
        let engine = engine(Arc::new(Quick::new(Completes::InRun)), 8, 8);
        engine.switch(&SchedulerConfig::new(SchedulerKind::Sjf));
        let changing = Arc::clone(&engine);
        let other = thread::spawn(move || changing.set("age_max=1s", 0).unwrap());
        engine.set("run_requests_max=7", 0).unwrap();
        other.join().unwrap();
        let mut both = SchedulerConfig::new(SchedulerKind::Sjf);
        both.set("age_max", "1s").unwrap();
        both.set("run_requests_max", "7").unwrap();
        assert_eq!(engine.with_gate(|gate, _| gate.scheduler().clone()), both);
        engine.shutdown();
    });
}

/// A completion takes a lock that somebody holds across a call which the completing thread must answer: what hung forwarders once, and
/// what ARCHITECTURE.md forbids.
#[test]
#[should_panic(expected = "deadlock")]
fn a_lock_across_a_call_that_a_completion_takes_is_found() {
    try_many(|| {
        let store = Arc::new(Quick::new(Completes::Later));
        let (queue, completer) = (Arc::clone(&store.queue), store.completer());
        let engine = engine(store, 8, 8);
        let ends = Arc::new(Mutex::new(0));
        let (own, others) = (Arc::clone(&engine), Arc::clone(&ends));
        let other = thread::spawn(move || {
            let done = move |_| drop(others.lock().unwrap());
            // SAFETY: the memory is never freed, and nobody looks at it.
            unsafe { own.submit(transfer(1, 0), Box::new(done)) }.unwrap();
        });
        let held = ends.lock().unwrap();
        engine.write_at(&file(2), Origin::default(), 0, b"12345678").unwrap();
        drop(held);
        other.join().unwrap();
        engine.shutdown();
        queue.end();
        completer.join().unwrap();
    });
}
