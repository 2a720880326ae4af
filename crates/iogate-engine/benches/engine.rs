//! What a gate costs: requests through an engine beside the same requests given to the store directly.
//!
//! Cases run in interleaved rounds, so that a noisy neighbour hits all of them; each reports its median round and
//! the range. `--json` prints one object a line. `--rounds N` (9) and `--requests N` (200000) bound the run;
//! `--quick` is one round of 10000, `--only TEXT` leaves out cases without that in their names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use iogate_core::{GateConfig, Layout, Op, SchedulerConfig, SchedulerKind, TargetId};
use iogate_engine::store::{
    Backend, DirectoryOptions, DirectoryStore, Io, MemoryStore, NullStore, OpenMode, Segment,
};
use iogate_engine::{Engine, FileHandle, Origin, Store, Transfer};

const BYTES: usize = 4096;

struct Case {
    name: String,
    threads: u64,
    /// It gets one request where a case of cost 1 gets so many.
    cost: u64,
    /// Runs so many requests, on so many threads together.
    run: Box<dyn Fn(u64)>,
    /// Nanoseconds a request, wall clock over all threads, a round each.
    rounds_ns: Vec<f64>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut json, mut rounds, mut requests, mut only) = (false, 9, 200_000, String::new());
    while let Some(argument) = arguments.next() {
        if argument == "--only" {
            only = arguments.next().unwrap_or_default();
            continue;
        }
        let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
        match argument.as_str() {
            "--json" => json = true,
            "--rounds" => rounds = number(9),
            "--requests" => requests = number(200_000),
            "--quick" => (rounds, requests) = (1, 10_000),
            // What `cargo bench` passes.
            _ => {}
        }
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut cases = Vec::new();
    let stores: [(&str, Arc<dyn Store>); 3] = [
        ("null", Arc::new(NullStore::new())),
        ("memory", Arc::new(MemoryStore::new())),
        ("directory", Arc::new(DirectoryStore::new(directory.path()).expect("a directory store"))),
    ];
    for (name, store) in &stores {
        cases.extend(cases_of(name, store));
    }
    let quick = ["fifo", "to-agg", "sjf", "hbrr", "app-window", "server-window", "twins"];
    cases.extend(quick.map(many_files));
    // On a disk: the temporary directory may be in memory.
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary directory");
    cases.extend(backends(disk.path()));
    cases.retain(|case| case.name.contains(&only));
    for _ in 0..rounds {
        for case in &mut cases {
            let requests = requests / case.cost;
            let before = Instant::now();
            (case.run)(requests);
            case.rounds_ns.push(before.elapsed().as_nanos() as f64 / requests as f64);
        }
    }
    report(&mut cases, json);
}

fn cases_of(name: &str, store: &Arc<dyn Store>) -> Vec<Case> {
    let file = store.open("bench".as_ref(), OpenMode { write: true, create: true }).expect("a file");
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 1024, depth: 32, layout: Layout::SINGLE };
    let engine = Engine::new(&gate, Arc::clone(store)).expect("an engine");
    engine.write_at(&file, Origin::default(), 0, &vec![7; 64 * BYTES]).expect("the file is filled");

    let case = |what: &str, threads, run| Case {
        name: format!("{name} {what}"),
        threads,
        cost: 1,
        run,
        rounds_ns: vec![],
    };
    let mut cases = Vec::new();
    let (direct_store, direct_file) = (Arc::clone(store), file.clone());
    cases.push(case(
        "without a gate",
        1,
        Box::new(move |requests| {
            let mut memory = vec![0; BYTES];
            for index in 0..requests {
                let segments = vec![Segment { memory: memory.as_mut_ptr(), bytes: BYTES }];
                let (op, target) = (Op::Read, TargetId(0));
                let io = Io {
                    file: FileHandle::clone(&direct_file),
                    op,
                    offset: offset(index),
                    target,
                    origin: Origin::default(),
                    extends: false,
                    segments,
                };
                let result = direct_store.run(&io).expect("this store works in the calling thread");
                assert_eq!(result.expect("the store works"), BYTES as u64);
            }
        }),
    ));
    for threads in [1, 2, 4, 8] {
        let (engine, file) = (Arc::clone(&engine), file.clone());
        cases.push(case(
            "read_at",
            threads,
            Box::new(move |requests| read_at(&engine, &file, requests, threads)),
        ));
    }
    let (deep_engine, deep_file) = (Arc::clone(&engine), file.clone());
    cases.push(case(
        "submit, 16 deep",
        1,
        Box::new(move |requests| deep(&deep_engine, &deep_file, requests)),
    ));
    cases.push(case("submit", 1, Box::new(move |requests| submit(&engine, &file, requests))));
    cases
}

/// Four threads that submit to a null store, at random places of 32 files at random.
fn many_files(scheduler: &str) -> Case {
    const THREADS: u64 = 4;
    let store = Arc::new(NullStore::new());
    let mode = OpenMode { write: true, create: true };
    let open = |number: usize| store.open(number.to_string().as_ref(), mode).expect("a file");
    let files: Vec<FileHandle> = (0..32).map(open).collect();
    let settings = SchedulerConfig::by_name(scheduler).expect("a scheduler");
    let gate = GateConfig { scheduler: settings, queue_max: 1024, depth: 32, layout: Layout::SINGLE };
    let engine = Engine::new(&gate, store).expect("an engine");
    let run = move |requests: u64| {
        // Each submitter's are counted alone: one count for all would be a line of the cache that all change.
        let completed: Vec<Arc<AtomicU64>> = (0..THREADS).map(|_| Arc::default()).collect();
        thread::scope(|scope| {
            for (seed, completed) in (1..).zip(&completed) {
                let (engine, files) = (&engine, &files);
                scope.spawn(move || {
                    let mut random: u64 = seed;
                    for _ in 0..requests / THREADS {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let transfer = Transfer {
                            file: FileHandle::clone(&files[random as usize % files.len()]),
                            op: Op::Read,
                            offset: (random >> 16) % (1 << 20) * BYTES as u64,
                            // Nobody looks at it.
                            memory: std::ptr::dangling_mut(),
                            bytes: BYTES as u32,
                            origin: Origin::default(),
                            extends: false,
                        };
                        let completed = Arc::clone(completed);
                        let done = Box::new(move |_| {
                            completed.fetch_add(1, Ordering::Relaxed);
                        });
                        // SAFETY: a null store does not touch the memory.
                        unsafe { engine.submit(transfer, done) }.expect("the engine is open");
                    }
                });
            }
        });
        while completed.iter().any(|completed| completed.load(Ordering::Relaxed) < requests / THREADS) {
            thread::yield_now();
        }
    };
    Case {
        name: format!("null submit, 32 files, {scheduler}"),
        threads: THREADS,
        cost: 1,
        run: Box::new(run),
        rounds_ns: vec![],
    }
}

/// Direct reads from the disk and cached reads, as calls and through the ring, from one thread and from eight.
fn backends(root: &std::path::Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, backend, direct) in [
        ("cached, calls", Backend::Calls, false),
        ("cached, ring", Backend::Ring, false),
        ("cached, auto", Backend::Auto, false),
        ("direct, calls", Backend::Calls, true),
        ("direct, ring", Backend::Ring, true),
    ] {
        let options = DirectoryOptions { backend, direct };
        let store: Arc<dyn Store> = match DirectoryStore::with(root, options) {
            Ok(store) => Arc::new(store),
            Err(error) => {
                eprintln!("{name}: left out: {error}");
                continue;
            }
        };
        for mut case in cases_of(name, &store) {
            // The ring's completions come from its own thread, where `submit` measures something else.
            let waits = case.name.ends_with("read_at") && matches!(case.threads, 1 | 8);
            if waits || case.name.ends_with("deep") {
                case.cost = if direct { 200 } else { 10 };
                cases.push(case);
            }
        }
    }
    cases
}

fn offset(index: u64) -> u64 {
    index % 64 * BYTES as u64
}

fn read_at(engine: &Arc<Engine>, file: &FileHandle, requests: u64, threads: u64) {
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(move || {
                // A page, so that direct I/O takes it as it is.
                let mut memory = vec![0; 2 * BYTES];
                let start = memory.as_ptr().align_offset(BYTES);
                let page = &mut memory[start..start + BYTES];
                for index in 0..requests / threads {
                    let read = engine.read_at(file, Origin::default(), offset(index), page);
                    assert_eq!(read.expect("the store works"), BYTES);
                }
            });
        }
    });
}

fn submit(engine: &Arc<Engine>, file: &FileHandle, requests: u64) {
    let mut memory = vec![0; BYTES];
    let completed = Arc::new(AtomicU64::new(0));
    for index in 0..requests {
        let transfer = Transfer {
            file: FileHandle::clone(file),
            op: Op::Read,
            offset: offset(index),
            memory: memory.as_mut_ptr(),
            bytes: BYTES as u32,
            origin: Origin::default(),
            extends: false,
        };
        let count = Arc::clone(&completed);
        let done = Box::new(move |result: std::io::Result<usize>| {
            count.fetch_add(result.expect("the store works") as u64 / BYTES as u64, Ordering::Relaxed);
        });
        // SAFETY: with one submitter and room in the gate each transfer completes before `submit` returns, as the
        // stores measured here work in the calling thread; so nobody else uses the memory.
        unsafe { engine.submit(transfer, done) }.expect("the engine is open");
    }
    assert_eq!(completed.load(Ordering::Relaxed), requests);
}

/// One thread that keeps 16 requests in flight, as far as the store lets it.
fn deep(engine: &Arc<Engine>, file: &FileHandle, requests: u64) {
    let mut memory = vec![0; 17 * BYTES];
    let start = memory.as_ptr().align_offset(BYTES);
    let (free, pages) = mpsc::channel();
    for page in memory[start..].chunks_exact_mut(BYTES).take(16) {
        free.send(page.as_mut_ptr() as usize).expect("the receiver is here");
    }
    let mut submitted = 0;
    while submitted < requests {
        let page = pages.recv().expect("a sender is here");
        let free = free.clone();
        let done = Box::new(move |result: std::io::Result<usize>| {
            assert_eq!(result.expect("the store works"), BYTES);
            free.send(page).expect("the receiver waits for all pages");
        });
        let (op, offset, memory, bytes) = (Op::Read, offset(submitted), page as *mut u8, BYTES as u32);
        let file = FileHandle::clone(file);
        // SAFETY: a page is free when its last transfer has completed, and all are waited for below.
        unsafe {
            engine.submit(
                Transfer { file, op, offset, memory, bytes, origin: Origin::default(), extends: false },
                done,
            )
        }
        .expect("the engine is open");
        submitted += 1;
    }
    for _ in 0..16 {
        pages.recv().expect("a sender is here");
    }
}

fn report(cases: &mut [Case], json: bool) {
    if !json {
        println!(
            "{:<28} {:>7} {:>10} {:>10} {:>10} {:>12}",
            "case", "threads", "ns median", "min", "max", "requests/s"
        );
    }
    for Case { name, threads, rounds_ns, .. } in cases {
        rounds_ns.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (rounds_ns.first(), rounds_ns.last()) else { continue };
        let median = rounds_ns[rounds_ns.len() / 2];
        let per_second = 1e9 / median;
        if json {
            println!(
                r#"{{"case":"{name}","threads":{threads},"ns_median":{median:.1},"ns_min":{min:.1},"ns_max":{max:.1},"requests_per_s":{per_second:.0}}}"#
            );
        } else {
            println!("{name:<28} {threads:>7} {median:>10.1} {min:>10.1} {max:>10.1} {per_second:>12.0}");
        }
    }
}
