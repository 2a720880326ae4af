//! Appends and sizes of striped files: one at a time has a file's end, whichever forwarder it comes by.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{Far, GRACE, Held, HeldState, any_port, directory, errno, own, serve};
use iogate_core::Layout;
use iogate_core::wire::{AppendRecord, Change, RequestOrigin, open, range, set};
use iogate_engine::{Origin, Store};
use iogate_net::Server;
use iogate_net::client::{ClientOptions, Remote, RemoteFile, RemoteOptions};
use iogate_net::transport::auth::Credential;
use iogate_vfs::{OpenHow, StripedTree, Tree, TreeFile};

const RECORD: usize = 64;
const LAYOUT: Layout = Layout { first_target: 0, stripe_bytes: 4096, targets: 2 };
/// For what must happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn connect(server: &Server) -> Remote {
    connect_as(server, false)
}

/// `stripes`: as who stripes files over several servers.
fn connect_as(server: &Server, stripes: bool) -> Remote {
    let client = ClientOptions { auth: Credential::None, stripes, ..ClientOptions::default() };
    let options = RemoteOptions { client, ..RemoteOptions::default() };
    Remote::connect(server.endpoints(), &options).unwrap()
}

/// A server of names and two of data.
struct Cluster {
    folders: [tempfile::TempDir; 3],
    names: Option<Server>,
    data: [Server; 2],
}

impl Cluster {
    fn new() -> Cluster {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let start = |index: usize| serve(directory(folders[index].path()), &any_port(), None, GRACE);
        let (names, data) = (Some(start(0)), [start(1), start(2)]);
        Cluster { folders, names, data }
    }

    fn names(&self) -> &Server {
        self.names.as_ref().unwrap()
    }

    fn restart_names(&mut self) {
        let at = self.names().endpoints()[0].clone();
        drop(self.names.take());
        self.names = Some(serve(directory(self.folders[0].path()), &at, None, GRACE));
    }

    fn forwarder(&self) -> Server {
        let far = |server: &Server, stripes| Arc::new(connect_as(server, stripes)) as Arc<dyn Tree>;
        let targets = self.data.iter().map(|server| far(server, false)).collect();
        let tree = Arc::new(StripedTree::new(far(self.names(), true), targets, LAYOUT).unwrap());
        serve(tree, &any_port(), None, GRACE)
    }
}

fn append_to(remote: &Remote, name: &str) -> RemoteFile {
    remote.open_with(Path::new(name), open::READ | open::WRITE | open::CREATE | open::APPEND, 0o644).unwrap()
}

fn record(writer: u32, index: u32) -> [u8; RECORD] {
    let mut record = [b'.'; RECORD];
    let text = format!("writer {writer} record {index}");
    record[..text.len()].copy_from_slice(text.as_bytes());
    record[RECORD - 1] = b'\n';
    record
}

fn content(file: &RemoteFile) -> Vec<u8> {
    let mut bytes = vec![0; file.attr().unwrap().size as usize];
    let read = file.read_at(0, &mut bytes).unwrap();
    assert_eq!(read, bytes.len());
    bytes
}

/// The numbers of each writer's records, in the order in which they lie in the file.
fn records(bytes: &[u8]) -> BTreeMap<u32, Vec<u32>> {
    assert_eq!(bytes.len() % RECORD, 0);
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for chunk in bytes.chunks(RECORD) {
        let text = String::from_utf8_lossy(chunk);
        let mut numbers =
            text.trim_end().trim_end_matches('.').split(' ').filter_map(|word| word.parse().ok());
        let (Some(writer), Some(index)) = (numbers.next(), numbers.next()) else { panic!("torn: {text:?}") };
        assert_eq!(chunk, record(writer, index));
        found.entry(writer).or_default().push(index);
    }
    found
}

/// Runs in a thread, and fails if it takes for ever.
fn in_time<R: Send + 'static>(what: &str, run: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = mpsc::channel();
    let thread = thread::spawn(move || done.send(run()));
    let result = result.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{what} hangs, or has failed"));
    thread.join().unwrap().unwrap();
    result
}

#[test]
fn several_files_are_appended_to_at_once_through_one_forwarder() {
    let cluster = Cluster::new();
    let forwarder = cluster.forwarder();
    let remote = Arc::new(connect(&forwarder));
    let writers = remote.clone();
    in_time("appending", move || {
        thread::scope(|scope| {
            for writer in 0..4 {
                let file = append_to(&writers, if writer % 2 == 0 { "a" } else { "b" });
                scope.spawn(move || {
                    for index in 0..100 {
                        assert_eq!(file.append(&record(writer, index)).unwrap().bytes, RECORD as u32);
                    }
                });
            }
        });
    });
    for (name, writers) in [("a", [0, 2]), ("b", [1, 3])] {
        let found = records(&content(&append_to(&remote, name)));
        assert_eq!(found, writers.map(|writer| (writer, (0..100).collect())).into(), "{name}");
    }
}

#[test]
fn records_of_several_forwarders_are_there_once_and_in_order() {
    let cluster = Cluster::new();
    let forwarders = [cluster.forwarder(), cluster.forwarder()];
    let remotes: Vec<_> = forwarders.iter().map(|forwarder| Arc::new(connect(forwarder))).collect();
    let writers = remotes.clone();
    in_time("appending", move || {
        thread::scope(|scope| {
            for writer in 0..8u32 {
                let file = append_to(&writers[writer as usize % 2], "log");
                scope.spawn(move || {
                    for index in 0..100 {
                        file.append(&record(writer, index)).unwrap();
                    }
                    file.sync(false).unwrap();
                });
            }
        });
    });
    let found = records(&content(&append_to(&remotes[0], "log")));
    assert_eq!(found, (0..8).map(|writer| (writer, (0..100).collect())).collect());
}

#[test]
fn a_long_record_is_one() {
    let cluster = Cluster::new();
    let forwarders = [cluster.forwarder(), cluster.forwarder()];
    let remotes = forwarders.each_ref().map(connect);
    thread::scope(|scope| {
        for (writer, remote) in remotes.iter().enumerate() {
            scope.spawn(move || {
                let file = append_to(remote, "log");
                for _ in 0..10 {
                    file.append(&vec![writer as u8 + 1; 100_000]).unwrap();
                }
            });
        }
    });
    let bytes = content(&append_to(&remotes[0], "log"));
    assert_eq!(bytes.len(), 2_000_000);
    for chunk in bytes.chunks(100_000) {
        assert!(chunk.iter().all(|&byte| byte == chunk[0] && byte > 0));
    }
}

#[test]
fn appends_go_on_at_the_start_of_a_file_that_is_cut() {
    let cluster = Cluster::new();
    let forwarders = [cluster.forwarder(), cluster.forwarder()];
    let remotes = forwarders.each_ref().map(|forwarder| Arc::new(connect(forwarder)));
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4u32)
        .map(|writer| {
            let (remote, is_over) = (remotes[writer as usize % 2].clone(), is_over.clone());
            thread::spawn(move || {
                let file = append_to(&remote, "log");
                for index in 0.. {
                    file.append(&record(writer, index)).unwrap();
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                }
            })
        })
        .collect();
    let cutter = remotes[1].clone();
    in_time("cutting", move || {
        let file = append_to(&cutter, "log");
        for round in 0..40 {
            while file.attr().unwrap().size < 20 * RECORD as u64 {
                thread::yield_now();
            }
            if round % 2 == 0 {
                let change = Change { which: set::SIZE, size: 0, ..Change::default() };
                file.set_attr(own(), &change).unwrap();
            } else {
                cutter.open_with(Path::new("log"), open::WRITE | open::TRUNCATE | open::APPEND, 0).unwrap();
            }
            let mut first = [0; RECORD];
            if file.read_at(0, &mut first).unwrap() == RECORD {
                assert_ne!(first[0], 0, "zeros at the start, in round {round}");
            }
        }
    });
    is_over.store(true, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    for indices in records(&content(&append_to(&remotes[0], "log"))).values() {
        assert!(indices.windows(2).all(|pair| pair[0] + 1 == pair[1]), "in order: {indices:?}");
    }
}

#[test]
fn what_is_written_elsewhere_survives_appends() {
    let cluster = Cluster::new();
    let forwarders = [cluster.forwarder(), cluster.forwarder()];
    let remotes = forwarders.each_ref().map(|forwarder| Arc::new(connect(forwarder)));
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..3u32)
        .map(|writer| {
            let (remote, is_over) = (remotes[0].clone(), is_over.clone());
            thread::spawn(move || {
                let file = append_to(&remote, "log");
                for index in 0.. {
                    file.append(&record(writer, index)).unwrap();
                    if is_over.load(Ordering::SeqCst) {
                        return index + 1;
                    }
                }
                0
            })
        })
        .collect();
    let plain = remotes[1].create(Path::new("log"), 0o644).unwrap();
    let mut written = Vec::new();
    for index in 0..40 {
        // Somewhere behind the end, which others move meanwhile.
        let offset = (plain.attr().unwrap().size / RECORD as u64 + 5) * RECORD as u64;
        plain.write_at(offset, &record(100, index)).unwrap();
        plain.sync(true).unwrap();
        let mut found = [0; RECORD];
        plain.read_at(offset, &mut found).unwrap();
        // An append that began before may lie there; then the write was over it, and is what counts.
        written.push((offset, record(100, index)));
    }
    is_over.store(true, Ordering::SeqCst);
    let counts: Vec<u32> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let bytes = content(&append_to(&remotes[0], "log"));
    for (index, (offset, record)) in written.iter().enumerate() {
        if written[index + 1..].iter().any(|(later, _)| later == offset) {
            continue;
        }
        let at = *offset as usize;
        assert!(bytes[at..at + RECORD] == record[..], "write {index} at {offset} is gone");
    }
    assert!(counts.iter().all(|&count| count > 0));
}

#[test]
fn a_forwarder_that_stops_delays_others_and_no_more() {
    let cluster = Cluster::new();
    let (forwarder, stopped) = (cluster.forwarder(), connect_as(cluster.names(), true));
    let remote = connect(&forwarder);
    let file = append_to(&remote, "log");
    file.append(&record(0, 0)).unwrap();
    let how = OpenHow { flags: open::WRITE | open::APPEND, ..OpenHow::default() };
    let held = stopped.open(own(), Path::new("log"), how).unwrap();
    let reservation = AppendRecord { client: [7; 16], number: 1, step: 0, uid: 0, bytes: RECORD as u32 };
    let given = held.reserve(0, 0, &[reservation]).unwrap().unwrap();
    let given = match given.reserved.look {
        0 => given,
        _ => held.reserve(given.reserved.ticket, RECORD as u64, &[reservation]).unwrap().unwrap(),
    };
    assert_eq!(given.ranges[0].offset, RECORD as u64);
    let begun = Instant::now();
    file.append(&record(0, 1)).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(500), "behind one who may still write");
    assert_eq!(file.attr().unwrap().size, 3 * RECORD as u64);
    // Who asks again gets what was given: by another forwarder too.
    let again = held.reserve(0, 0, &[reservation]).unwrap().unwrap();
    let again = match again.reserved.look {
        0 => again,
        _ => held.reserve(again.reserved.ticket, 3 * RECORD as u64, &[reservation]).unwrap().unwrap(),
    };
    assert_eq!((again.ranges[0].offset, again.ranges[0].is_there), (RECORD as u64, range::EARLIER));
}

/// A record over two stripes is at one data server, and on its way to the other, when somebody else appends behind it.
#[test]
fn a_late_record_over_two_stripes_is_whole() {
    for held in [0, 1] {
        let cluster = Cluster::new();
        let gate = Arc::<(Mutex<HeldState>, Condvar)>::default();
        let far = |server: &Server| Arc::new(connect_as(server, false)) as Arc<dyn Tree>;
        let mut targets: Vec<_> = cluster.data.iter().map(far).collect();
        let (tree, store) = (targets[held].clone(), targets[held].store());
        let store: Arc<dyn Store> = Arc::new(Held { store, gate: gate.clone() });
        targets[held] = Arc::new(Far { store: Some(store), ..Far::new(tree) });
        let names = Arc::new(connect_as(cluster.names(), true));
        let late = StripedTree::new(names, targets, LAYOUT).unwrap();
        let forwarder = cluster.forwarder();
        let remote = connect(&forwarder);
        let file = append_to(&remote, "log");
        let before = vec![1; 2 * LAYOUT.stripe_bytes as usize - RECORD / 2];
        file.append(&before).unwrap();
        // Somebody may write elsewhere, so that appends are refused by a file that has been extended.
        let _elsewhere = remote.open_with(Path::new("log"), open::WRITE, 0).unwrap();
        let how = OpenHow { flags: open::WRITE | open::APPEND, ..OpenHow::default() };
        let opened = late.open(own(), Path::new("log"), how).unwrap();
        let origin = RequestOrigin { client: [7; 16], number: 1, ..RequestOrigin::NONE };
        let caller = own().with_origin(origin);
        let appended =
            thread::spawn(move || opened.append(caller, Origin::default(), &[2; RECORD]).unwrap().unwrap());
        let state = gate.0.lock().unwrap();
        drop(gate.1.wait_timeout_while(state, PATIENCE, |state| state.waiting == 0).unwrap());
        // It reaches over both.
        let behind = vec![3; 2 * LAYOUT.stripe_bytes as usize];
        assert_eq!(file.append(&behind).unwrap().offset as usize, before.len() + RECORD);
        gate.0.lock().unwrap().is_free = true;
        gate.1.notify_all();
        assert_eq!(appended.join().unwrap().offset as usize, before.len());
        let expected = [&before[..], &[2; RECORD], &behind].concat();
        assert!(content(&file) == expected, "at {held}");
    }
}

#[test]
fn a_size_that_a_forwarder_has_begun_to_set_is_set_by_the_next_one() {
    let cluster = Cluster::new();
    let forwarder = cluster.forwarder();
    let remote = connect(&forwarder);
    let file = append_to(&remote, "log");
    for index in 0..10 {
        file.append(&record(0, index)).unwrap();
    }
    let died = connect_as(cluster.names(), true);
    let how = OpenHow { flags: open::WRITE, ..OpenHow::default() };
    let begun = died.open(own(), Path::new("log"), how).unwrap();
    begun.resize(3 * RECORD as u64).unwrap().unwrap();
    drop((begun, died));
    // Whoever appends next.
    assert_eq!(file.append(&record(0, 3)).unwrap().offset, 3 * RECORD as u64);
    assert_eq!(records(&content(&file))[&0], [0, 1, 2, 3]);
    // Or opens it next, after a restart too.
    let died = connect_as(cluster.names(), true);
    let begun = died.open(own(), Path::new("log"), how).unwrap();
    begun.resize(RECORD as u64).unwrap().unwrap();
    drop(file);
    let mut cluster = cluster;
    cluster.restart_names();
    drop((begun, died));
    let file = append_to(&remote, "log");
    assert_eq!(records(&content(&file))[&0], [0]);
}

/// A file for which somebody has the end, to set its size; and by which ticket.
fn begun_by(remote: &Remote, name: &str, size: usize) -> (Arc<dyn TreeFile>, u64) {
    drop(append_to(remote, name));
    let how = OpenHow { flags: open::WRITE, ..OpenHow::default() };
    let file = remote.open(own(), Path::new(name), how).unwrap();
    let ticket = file.resize(size as u64).unwrap().unwrap().reserved.ticket;
    (file, ticket)
}

#[test]
fn what_is_written_while_a_size_is_begun_is_not_cut_off_later() {
    let cluster = Cluster::new();
    let forwarder = cluster.forwarder();
    let remote = Arc::new(connect(&forwarder));
    append_to(&remote, "log").append(&record(0, 0)).unwrap();
    let dying = connect_as(cluster.names(), true);
    let (begun, _) = begun_by(&dying, "log", 0);
    let opener = Arc::clone(&remote);
    let opening =
        thread::spawn(move || opener.open_with(Path::new("log"), open::READ | open::WRITE, 0).unwrap());
    until(|| cluster.names().status().underway > 0);
    // It never sets the size.
    drop((begun, dying));
    let file = in_time("opening", || opening.join().unwrap());
    file.write_at(0, &record(1, 0)).unwrap();
    drop(append_to(&remote, "log"));
    assert_eq!(records(&content(&file)), BTreeMap::from([(1, vec![0])]));
}

fn numbered(number: u64) -> AppendRecord {
    AppendRecord { client: [1; 16], number, step: 0, uid: 0, bytes: RECORD as u32 }
}

#[test]
fn who_waits_for_an_end_does_not_hold_up_what_else_its_client_asks() {
    let cluster = Cluster::new();
    let remote = Arc::new(connect_as(cluster.names(), true));
    let (file, ticket) = begun_by(&remote, "log", 3 * RECORD);
    let waiting = Arc::new(append_to(&remote, "log"));
    let reserving = thread::spawn(move || waiting.reserve(0, 0, &[numbered(1)]).unwrap());
    until(|| cluster.names().status().underway > 0);
    in_time("what is asked meanwhile", move || {
        // More than there are credits.
        for _ in 0..600 {
            remote.attr(own(), Path::new("log")).unwrap();
        }
        file.settle(ticket, 3 * RECORD as u64, true).unwrap().unwrap();
    });
    // After a look, as it is a file of others too.
    assert_eq!(in_time("the wait", || reserving.join().unwrap()).unwrap().reserved.look, 1);
}

#[test]
fn who_is_sent_away_while_it_waits_for_an_end_keeps_its_place() {
    let cluster = Cluster::new();
    let remotes = [(); 4].map(|()| Arc::new(connect_as(cluster.names(), true)));
    let (file, ticket) = begun_by(&remotes[0], "log", 3 * RECORD);
    let requests = || cluster.names().status().connections.iter().map(|one| one.requests).sum::<u64>();
    let (tell, told) = mpsc::channel();
    let mut threads = Vec::new();
    for (number, remote) in remotes.iter().enumerate().skip(1) {
        let (waiting, tell) = (append_to(remote, "log"), tell.clone());
        let before = requests();
        threads.push(thread::spawn(move || {
            let given = waiting.reserve(0, 0, &[numbered(number as u64)]).unwrap().unwrap();
            tell.send(number).unwrap();
            waiting.settle(given.reserved.ticket, u64::MAX, true).unwrap().unwrap();
        }));
        // It has asked, and somebody has been sent away and come again.
        until(|| requests() >= before + 2);
    }
    let before = requests();
    until(|| requests() >= before + 6);
    file.settle(ticket, 3 * RECORD as u64, true).unwrap().unwrap();
    let next = || told.recv_timeout(PATIENCE).unwrap();
    assert_eq!([(); 3].map(|()| next()), [1, 2, 3]);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "it does not come to be so");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn acknowledged_records_are_there_once_although_the_server_of_names_restarts() {
    let mut cluster = Cluster::new();
    let forwarders = [cluster.forwarder(), cluster.forwarder()];
    let remotes = forwarders.each_ref().map(|forwarder| Arc::new(connect(forwarder)));
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4u32)
        .map(|writer| {
            let (remote, is_over) = (remotes[writer as usize % 2].clone(), is_over.clone());
            thread::spawn(move || {
                let file = append_to(&remote, "log");
                for index in 0.. {
                    file.append(&record(writer, index)).unwrap();
                    if is_over.load(Ordering::SeqCst) {
                        return index + 1;
                    }
                }
                0
            })
        })
        .collect();
    let watched = append_to(&remotes[0], "log");
    let grown = |by: u64| {
        let from = watched.attr().unwrap().size;
        let since = Instant::now();
        while watched.attr().unwrap().size < from + by {
            assert!(since.elapsed() < PATIENCE, "nothing is appended");
            thread::yield_now();
        }
    };
    for _ in 0..3 {
        grown(20 * RECORD as u64);
        cluster.restart_names();
    }
    grown(20 * RECORD as u64);
    is_over.store(true, Ordering::SeqCst);
    let counts: Vec<u32> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
    let found = records(&content(&watched));
    for (writer, count) in counts.iter().enumerate() {
        assert_eq!(found[&(writer as u32)], (0..*count).collect::<Vec<_>>());
    }
}

#[test]
fn a_file_that_cannot_be_so_large_is_as_it_was() {
    let cluster = Cluster::new();
    let forwarder = cluster.forwarder();
    let remote = connect(&forwarder);
    let file = append_to(&remote, "log");
    file.append(&record(0, 0)).unwrap();
    // Too large for its name only, where the file system has such a size.
    let probe = tempfile::tempfile_in(cluster.folders[0].path()).unwrap();
    let size = (40..63).map(|bit| 1 << bit).find(|&size| probe.set_len(size).is_err());
    let change = Change { which: set::SIZE, size: size.unwrap_or(i64::MAX as u64), ..Change::default() };
    let refused = errno(file.set_attr(own(), &change));
    assert!([libc::EFBIG, libc::EINVAL, libc::ENOSPC].contains(&refused), "{refused}");
    // Nor does who opens it next make it so large.
    drop(file);
    let file = append_to(&remote, "log");
    assert_eq!(file.attr().unwrap().size, RECORD as u64);
    file.append(&record(0, 1)).unwrap();
    file.allocate(0, 0, 4 * RECORD as u64).unwrap();
    assert_eq!(file.append(&record(0, 2)).unwrap().offset, 4 * RECORD as u64);
}

#[test]
fn one_process_with_names_and_data_appends_behind_what_others_write() {
    let folder = tempfile::tempdir().unwrap();
    let tree = common::striped(folder.path(), LAYOUT, false);
    let server = serve(tree, &any_port(), None, GRACE);
    let remotes = [connect(&server), connect(&server)];
    let plain = remotes[1].create(Path::new("log"), 0o644).unwrap();
    thread::scope(|scope| {
        for writer in 0..4u32 {
            let file = append_to(&remotes[writer as usize % 2], "log");
            scope.spawn(move || {
                for index in 0..50 {
                    file.append(&record(writer, index)).unwrap();
                }
            });
        }
    });
    assert_eq!(records(&content(&plain)), (0..4).map(|writer| (writer, (0..50).collect())).collect());
    plain.write_at(300 * RECORD as u64, &record(9, 0)).unwrap();
    let file = append_to(&remotes[0], "log");
    assert_eq!(file.append(&record(9, 1)).unwrap().offset, 301 * RECORD as u64);
    let change = Change { which: set::SIZE, size: 0, ..Change::default() };
    plain.set_attr(own(), &change).unwrap();
    assert_eq!(file.append(&record(9, 2)).unwrap().offset, 0);
}
