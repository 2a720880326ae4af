//! What the network layer costs: reads and writes through a client and a server beside the same bytes over raw sockets.
//!
//! Both ends run here, over loopback; the server's store does nothing, as the raw end. Cases run in interleaved rounds,
//! so that a noisy neighbour hits all of them; each reports its median round, and the median of the rounds' ratios to the raw
//! case beside it: of the time that passes, and of the CPU time of both ends, which others on the machine disturb less.
//! `--rounds N` (9) and `--requests N` (20000) bound the run; `--quick` is one round of 1000; `--only TEXT` takes the
//! cases whose names contain it, `--json` prints one object a line.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Instant;

use iogate_core::{FileId, GateConfig, Layout, Op, SchedulerConfig, SchedulerKind, TargetId};
use iogate_engine::store::{Io, IoDone, OpenMode, Segment, StoreFile};
use iogate_engine::{Engine, FileHandle, Origin, Store};
use iogate_net::client::{ClientOptions, Remote, RemoteFile, RemoteOptions};
use iogate_net::server::Export;
use iogate_net::transport::auth::{Credential, Policy};
use iogate_net::{Listener, Server, ServerConfig};
use iogate_vfs::{Caller, DirectoryTree, Tree, TreeFile};

const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
const CLIENTS: usize = 8;
const DEPTH: usize = 16;
/// Bytes of the header and the fields of a read, and of its answer's header.
const REQUEST_BYTES: usize = 72;
const REPLY_BYTES: usize = 16;

struct Case {
    name: &'static str,
    /// The case that it is compared with.
    raw: Option<&'static str>,
    /// It gets one request where a case of cost 1 gets so many.
    cost: usize,
    bytes: usize,
    run: Box<dyn Fn(usize)>,
    /// Nanoseconds a request, wall clock over all clients, a round each.
    rounds_ns: Vec<f64>,
    /// CPU time of the whole process likewise, so of both ends.
    cpu_ns: Vec<f64>,
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (mut json, mut rounds, mut requests, mut only) = (false, 9, 20_000_usize, String::new());
    while let Some(argument) = arguments.next() {
        let mut number = |default| arguments.next().and_then(|text| text.parse().ok()).unwrap_or(default);
        match argument.as_str() {
            "--json" => json = true,
            "--rounds" => rounds = number(9),
            "--requests" => requests = number(20_000),
            "--only" => only = arguments.next().unwrap_or_default(),
            "--quick" => (rounds, requests) = (1, 1000),
            // What `cargo bench` passes.
            _ => {}
        }
    }
    let server = Bench::new();
    let mut cases = cases(&server);
    cases.retain(|case| case.name.contains(&only));
    for _ in 0..rounds {
        for case in &mut cases {
            let requests = requests.div_ceil(case.cost);
            let (before, cpu) = (Instant::now(), cpu_ns());
            (case.run)(requests);
            case.rounds_ns.push(before.elapsed().as_nanos() as f64 / requests as f64);
            case.cpu_ns.push((cpu_ns() - cpu) / requests as f64);
        }
    }
    report(&cases, json);
}

fn cases(server: &Bench) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut case = |name, raw, cost, bytes, run| {
        cases.push(Case { name, raw, cost, bytes, run, rounds_ns: vec![], cpu_ns: vec![] });
    };
    case("raw, 4 KiB, one by one", None, 1, SMALL, raw(1, REQUEST_BYTES, REPLY_BYTES + SMALL));
    let raw_small = Some("raw, 4 KiB, one by one");
    case("read, 4 KiB, one by one", raw_small, 1, SMALL, together(server.files(1), Op::Read, SMALL));
    case("read, 4 KiB, 16 deep", raw_small, 1, SMALL, deep(server.remote(), SMALL));
    case(
        "read, 4 KiB, 16 threads",
        raw_small,
        1,
        SMALL,
        one_session(server.remote(), Op::Read, DEPTH, SMALL),
    );
    case(
        "raw, from server, 1 MiB, 8 clients",
        None,
        20,
        LARGE,
        raw(CLIENTS, REQUEST_BYTES, REPLY_BYTES + LARGE),
    );
    let raw_read = Some("raw, from server, 1 MiB, 8 clients");
    case("read, 1 MiB, 8 clients", raw_read, 20, LARGE, together(server.files(CLIENTS), Op::Read, LARGE));
    case(
        "raw, to server, 1 MiB, 8 clients",
        None,
        20,
        LARGE,
        raw(CLIENTS, REQUEST_BYTES + LARGE, REPLY_BYTES),
    );
    let raw_write = Some("raw, to server, 1 MiB, 8 clients");
    case("write, 1 MiB, 8 clients", raw_write, 20, LARGE, together(server.files(CLIENTS), Op::Write, LARGE));
    cases
}

/// A server of a directory, whose data is elsewhere.
struct Bench {
    server: Server,
    _directory: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let tree = DirectoryTree::new(directory.path(), Arc::new(Nothing::default())).expect("a tree");
        let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
        let gate = GateConfig { scheduler, queue_max: 1024, depth: 32, layout: Layout::SINGLE };
        let engine = Engine::new(&gate, tree.store()).expect("an engine");
        let export = Export {
            forwarders: vec![rustix::process::geteuid().as_raw()],
            ..Export::new("bench", engine, Arc::new(tree))
        };
        let config = ServerConfig::alone(vec![export]);
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let policy = Policy::None { user: Caller::new(uid, gid), on_any_network: false };
        let endpoint = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::bind(&endpoint, policy).expect("a port");
        let server = Server::start(config, vec![listener]).expect("a server");
        Bench { server, _directory: directory }
    }

    fn remote(&self) -> Remote {
        let client = ClientOptions { auth: Credential::None, ..ClientOptions::default() };
        let options = RemoteOptions { client, ..RemoteOptions::default() };
        Remote::connect(self.server.endpoints(), &options).expect("a server")
    }

    /// One open file on each of so many connections.
    fn files(&self, count: usize) -> Vec<RemoteFile> {
        (0..count).map(|_| self.remote().create("bench".as_ref(), 0o644).expect("a file")).collect()
    }
}

/// A store that does nothing: what it reads is what was in the memory before.
#[derive(Default)]
struct Nothing {
    files: AtomicU64,
}

#[derive(Debug)]
struct NoFile(FileId);

impl StoreFile for NoFile {
    fn id(&self) -> FileId {
        self.0
    }
}

impl Store for Nothing {
    fn open(&self, _path: &Path, _mode: OpenMode) -> io::Result<FileHandle> {
        Ok(Arc::new(NoFile(FileId(self.files.fetch_add(1, Ordering::Relaxed)))))
    }

    fn adopt(&self, _fd: OwnedFd) -> io::Result<FileHandle> {
        self.open(Path::new(""), OpenMode::default())
    }

    fn start(&self, io: Io, done: IoDone) {
        let result = self.run(&io).unwrap_or(Ok(0));
        done(io, result);
    }

    fn run(&self, io: &Io) -> Option<io::Result<u64>> {
        Some(Ok(io.segments.iter().map(|segment| segment.bytes as u64).sum()))
    }

    fn blocks(&self) -> bool {
        false
    }

    fn sync(&self, _file: &FileHandle, _data_only: bool) -> io::Result<()> {
        Ok(())
    }
}

/// Raw sockets: so many bytes there, so many back, on each of `clients` connections.
fn raw(clients: usize, there: usize, back: usize) -> Box<dyn Fn(usize)> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            thread::spawn(move || {
                let (mut request, reply) = (vec![0; there], vec![7; back]);
                while stream.read_exact(&mut request).is_ok() {
                    stream.write_all(&reply).expect("the other end reads");
                }
            });
        }
    });
    let connect = || TcpStream::connect(address).expect("it listens");
    let streams: Vec<TcpStream> = (0..clients).map(|_| connect()).collect();
    Box::new(move |requests| {
        thread::scope(|scope| {
            for mut stream in &streams {
                stream.set_nodelay(true).expect("a socket");
                scope.spawn(move || {
                    let (request, mut reply) = (vec![0; there], vec![0; back]);
                    for _ in 0..requests.div_ceil(clients) {
                        stream.write_all(&request).expect("the other end reads");
                        stream.read_exact(&mut reply).expect("the other end answers");
                    }
                });
            }
        });
    })
}

/// One thread for each file, which waits for each request.
fn together(files: Vec<RemoteFile>, op: Op, bytes: usize) -> Box<dyn Fn(usize)> {
    Box::new(move |requests| {
        thread::scope(|scope| {
            for file in &files {
                let requests = requests.div_ceil(files.len());
                scope.spawn(move || one_by_one(file, op, bytes, requests));
            }
        });
    })
}

fn one_by_one(file: &RemoteFile, op: Op, bytes: usize, requests: usize) {
    let mut memory = vec![0; bytes];
    for index in 0..requests {
        let offset = (index % 64 * bytes) as u64;
        let transferred = match op {
            Op::Read => file.read_at(offset, &mut memory),
            Op::Write => file.write_at(offset, &memory),
        };
        assert_eq!(transferred.expect("the server works"), bytes);
    }
}

/// Threads that share a session.
fn one_session(remote: Remote, op: Op, threads: usize, bytes: usize) -> Box<dyn Fn(usize)> {
    let file = remote.create("bench".as_ref(), 0o644).expect("a file");
    Box::new(move |requests| {
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| one_by_one(&file, op, bytes, requests.div_ceil(threads)));
            }
        });
        let _ = &remote;
    })
}

/// So many requests in flight that nobody waits for: each submits the next when it completes.
fn deep(remote: Remote, bytes: usize) -> Box<dyn Fn(usize)> {
    let file = remote.create("bench".as_ref(), 0o644).expect("a file");
    let store = remote.store();
    Box::new(move |requests| {
        let (over, waiting) = mpsc::channel();
        let mut memory = vec![0; DEPTH * bytes];
        for piece in memory.chunks_exact_mut(bytes) {
            let segments = vec![Segment { memory: piece.as_mut_ptr(), bytes }];
            let io = Io {
                file: FileHandle::clone(file.data()),
                op: Op::Read,
                offset: 0,
                target: TargetId(0),
                origin: Origin::default(),
                extends: false,
                segments,
            };
            next(&store, io, requests.div_ceil(DEPTH), over.clone());
        }
        for _ in 0..DEPTH {
            waiting.recv().expect("each chain ends");
        }
        let _ = &remote;
    })
}

fn next(store: &Arc<dyn Store>, io: Io, left: usize, over: mpsc::Sender<()>) {
    if left == 0 {
        return over.send(()).expect("it is waited for");
    }
    let again = Arc::clone(store);
    let done = Box::new(move |mut io: Io, result: io::Result<u64>| {
        result.expect("the server works");
        io.offset = (io.offset + SMALL as u64) % (64 * SMALL as u64);
        next(&again, io, left - 1, over);
    });
    store.start(io, done);
}

/// CPU time of this process so far.
fn cpu_ns() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// The median, least and most of some figures.
fn spread(mut figures: Vec<f64>) -> [f64; 3] {
    figures.sort_by(f64::total_cmp);
    [figures.len() / 2, 0, figures.len() - 1].map(|index| figures[index])
}

fn report(cases: &[Case], json: bool) {
    if !json {
        println!(
            "{:<36} {:>10} {:>8} {:>8} {:>10} {:>7} {:>7} {:>7} {:>7}",
            "case", "us median", "min", "max", "requests/s", "MB/s", "of raw", "cpu us", "to raw"
        );
    }
    for case in cases.iter().filter(|case| !case.rounds_ns.is_empty()) {
        let [ns, min, max] = spread(case.rounds_ns.clone());
        let [cpu, ..] = spread(case.cpu_ns.clone());
        let raw = cases.iter().find(|other| Some(other.name) == case.raw).unwrap_or(case);
        let ratio =
            |raw: &[f64], own: &[f64]| spread(raw.iter().zip(own).map(|(raw, own)| raw / own).collect());
        let [of_raw, ..] = ratio(&raw.rounds_ns, &case.rounds_ns);
        let [cpu_to_raw, ..] = ratio(&case.cpu_ns, &raw.cpu_ns);
        let (per_second, rate) = (1e9 / ns, case.bytes as f64 * 1e3 / ns);
        let [ns, min, max, cpu] = [ns, min, max, cpu].map(|ns| ns / 1e3);
        let name = case.name;
        if json {
            println!(
                r#"{{"case":"{name}","us_median":{ns:.2},"us_min":{min:.2},"us_max":{max:.2},"requests_per_s":{per_second:.0},"of_raw":{of_raw:.3},"cpu_us":{cpu:.2},"cpu_to_raw":{cpu_to_raw:.3}}}"#
            );
        } else {
            println!(
                "{name:<36} {ns:>10.2} {min:>8.2} {max:>8.2} {per_second:>10.0} {rate:>7.0} {of_raw:>7.2} {cpu:>7.2} {cpu_to_raw:>7.2}"
            );
        }
    }
}
