//! Names and appends over servers that are killed, and forwarders that come back before their servers do.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{GRACE, any_port, directory, own, serve};
use iogate_core::Layout;
use iogate_core::answers::{HEADER_BYTES, NameIntent, Note, State};
use iogate_core::ends::UNKNOWN;
use iogate_core::wire::{AppendRecord, Range, Record, open, range};
use iogate_net::client::{ClientOptions, Remote, RemoteFile, RemoteOptions};
use iogate_net::server::{Answers, Keeping};
use iogate_net::transport::auth::Credential;
use iogate_net::transport::{Dial, dial};
use iogate_net::{Endpoint, Server};
use iogate_vfs::{OpenHow, StripedTree, Tree, TreeFile};

/// For what must happen.
const PATIENCE: Duration = Duration::from_secs(60);
const KILLS: u32 = 32;
const RECORD: usize = 64;
const LAYOUT: Layout = Layout { first_target: 0, stripe_bytes: 256, targets: 2 };
/// Tells a process of this test to be a server: of this folder.
const FOLDER: &str = "IOGATE_TEST_KILLED_SERVER";

fn endpoint_of(folder: &Path) -> Endpoint {
    format!("unix:{}/socket", folder.display()).parse().unwrap()
}

fn serve_folder(folder: &Path) -> Server {
    let files = folder.join("files");
    let answers = Answers::open(&folder.join("answers/log"), Keeping::Boot).unwrap();
    serve(directory(&files), &endpoint_of(folder), Some(Arc::new(answers)), GRACE)
}

/// A process that serves a folder until it is killed, or the test is over.
struct Killed {
    folder: tempfile::TempDir,
    process: Child,
}

impl Killed {
    fn start() -> Killed {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("files")).unwrap();
        let process = Killed::process(folder.path());
        Killed { folder, process }
    }

    fn process(folder: &Path) -> Child {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_server_of_another_process", "--nocapture"])
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap()).lines();
        assert!(said.map_while(Result::ok).any(|line| line.ends_with("ready")), "it does not start");
        process
    }

    fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        self.process = Killed::process(self.folder.path());
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// No test: what [`Killed`] starts.
#[test]
fn a_server_of_another_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let _server = serve_folder(folder.as_ref());
    println!("ready");
    // Until the test that has started it is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

fn connect(endpoint: &Endpoint, stripes: bool) -> Remote {
    let client = ClientOptions { auth: Credential::None, stripes, ..ClientOptions::default() };
    let options = RemoteOptions { client, ..RemoteOptions::default() };
    Remote::connect(std::slice::from_ref(endpoint), &options).unwrap()
}

fn stripes(names: &Endpoint, data: [&Endpoint; 2]) -> Arc<StripedTree> {
    let targets = data.map(|data| Arc::new(connect(data, false)) as Arc<dyn Tree>);
    Arc::new(StripedTree::new(Arc::new(connect(names, true)), targets.into(), LAYOUT).unwrap())
}

fn append_to(remote: &Remote, name: &str) -> RemoteFile {
    remote.open_with(Path::new(name), open::READ | open::WRITE | open::CREATE | open::APPEND, 0o644).unwrap()
}

fn record(writer: u32, index: u32) -> [u8; RECORD] {
    let mut record = [b'.'; RECORD];
    let text = format!("writer {writer} record {index}");
    record[..text.len()].copy_from_slice(text.as_bytes());
    record
}

/// The numbers of each writer's records, in the order in which they lie in the file.
fn records(file: &RemoteFile) -> BTreeMap<u32, Vec<u32>> {
    let mut bytes = vec![0; file.attr().unwrap().size as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    let mut found: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (place, chunk) in bytes.chunks(RECORD).enumerate() {
        let text = String::from_utf8_lossy(chunk);
        let mut numbers = text.trim_end_matches('.').split(' ').filter_map(|word| word.parse().ok());
        let numbers = numbers.next().zip(numbers.next());
        let (writer, index) = numbers.unwrap_or_else(|| panic!("torn at record {place}: {text:?}"));
        assert_eq!(chunk, record(writer, index));
        found.entry(writer).or_default().push(index);
    }
    found
}

/// Makes, renames and removes files: each call does what it says, once, and a file stays open under its new name. Returns when `is_over`.
fn change_names(remote: &Remote, folder: &str, calls: &AtomicU64, is_over: &AtomicBool) {
    remote.make_node(own(), folder.as_ref(), libc::S_IFDIR | 0o755, 0).unwrap();
    for index in 0.. {
        let [new, old] = ["new", "old"].map(|name| format!("{folder}/{name}-{index}"));
        let flags = open::WRITE | open::CREATE | open::EXCLUSIVE;
        let file = remote.open_with(new.as_ref(), flags, 0o644);
        let file = file.unwrap_or_else(|error| panic!("open {new}: {error}"));
        let renamed = remote.rename(own(), new.as_ref(), old.as_ref(), libc::RENAME_NOREPLACE);
        renamed.unwrap_or_else(|error| panic!("rename {new}: {error}"));
        file.attr().unwrap_or_else(|error| panic!("{old}, opened as {new}: {error}"));
        drop(file);
        remote.unlink(own(), old.as_ref(), false).unwrap_or_else(|error| panic!("unlink {old}: {error}"));
        calls.fetch_add(4, Ordering::SeqCst);
        if is_over.load(Ordering::SeqCst) {
            return;
        }
    }
}

#[test]
fn names_and_appends_go_on_over_many_kills() {
    let mut servers = [Killed::start(), Killed::start(), Killed::start()];
    let [names, data @ ..] = servers.each_ref().map(|server| endpoint_of(server.folder.path()));
    let forwarders: [Server; 2] =
        [(); 2].map(|()| serve(stripes(&names, data.each_ref()), &any_port(), None, GRACE));
    let remotes = forwarders.each_ref().map(|forwarder| Arc::new(connect(&forwarder.endpoints()[0], false)));
    let calls: Arc<[AtomicU64; 4]> = Arc::default();
    let is_over = Arc::new(AtomicBool::new(false));
    let appending = |writer: usize| {
        let (remote, calls, is_over) = (remotes[writer % 2].clone(), calls.clone(), is_over.clone());
        thread::spawn(move || {
            let file = append_to(&remote, "log");
            for index in 0.. {
                file.append(&record(writer as u32, index)).unwrap();
                calls[writer].fetch_add(1, Ordering::SeqCst);
                if is_over.load(Ordering::SeqCst) {
                    return index + 1;
                }
            }
            0
        })
    };
    let appenders = [0, 1].map(appending);
    let others = [2, 3].map(|at| {
        let (remote, calls, is_over) = (remotes[at % 2].clone(), calls.clone(), is_over.clone());
        thread::spawn(move || change_names(&remote, &format!("folder-{at}"), &calls[at], &is_over))
    });
    for kill in 0..KILLS as usize {
        // Everybody has done something since the last kill.
        let before = calls.each_ref().map(|calls| calls.load(Ordering::SeqCst));
        let since = Instant::now();
        while calls.iter().zip(before).any(|(calls, before)| calls.load(Ordering::SeqCst) <= before) {
            assert!(since.elapsed() < PATIENCE, "somebody hangs after {kill} kills, or has failed");
            thread::sleep(Duration::from_millis(1));
        }
        // Every second one is that of names.
        servers[if kill % 2 == 0 { 0 } else { 1 + kill / 2 % 2 }].kill();
    }
    is_over.store(true, Ordering::SeqCst);
    let counts = appenders.map(|appender| appender.join().unwrap());
    others.into_iter().for_each(|other| other.join().unwrap());
    let expected = counts.iter().enumerate().map(|(writer, count)| (writer as u32, (0..*count).collect()));
    assert_eq!(records(&append_to(&remotes[0], "log")), expected.collect());
}

/// Makes a file that many want to make, and removes it. Meanwhile nobody else has made it.
fn take_turns(remote: &Remote, is_held: &AtomicBool, takes: &AtomicU64, is_over: &AtomicBool) {
    let (lock, flags) = (Path::new("lock"), open::WRITE | open::CREATE | open::EXCLUSIVE);
    while !is_over.load(Ordering::SeqCst) {
        match remote.open_with(lock, flags, 0o644) {
            Ok(file) => {
                assert!(!is_held.swap(true, Ordering::SeqCst), "two have made it");
                drop(file);
                is_held.store(false, Ordering::SeqCst);
                remote.unlink(own(), lock, false).unwrap();
                takes.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EEXIST), "{error}"),
        }
    }
}

#[test]
fn a_lock_file_is_one_clients_over_many_kills() {
    let mut server = Killed::start();
    let endpoint = endpoint_of(server.folder.path());
    let (is_held, takes, is_over) = (AtomicBool::new(false), AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let clients = [(); 4].map(|()| {
            let remote = connect(&endpoint, false);
            let (is_held, takes, is_over) = (&is_held, &takes, &is_over);
            scope.spawn(move || take_turns(&remote, is_held, takes, is_over))
        });
        for kill in 0..KILLS {
            let (before, since) = (takes.load(Ordering::SeqCst), Instant::now());
            while takes.load(Ordering::SeqCst) < before + 4
                && !clients.iter().any(|client| client.is_finished())
            {
                assert!(since.elapsed() < PATIENCE, "nobody gets it after {kill} kills");
                thread::sleep(Duration::from_millis(1));
            }
            server.kill();
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

/// What tells after a kill what each has done: the name was nobody else's between its look-up and its outcome.
#[test]
fn a_name_has_one_intent_at_a_time_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("files")).unwrap();
    let server = serve_folder(folder.path());
    let endpoint = endpoint_of(folder.path());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let remote = connect(&endpoint, false);
                for index in 0..200 {
                    let (path, link) = (format!("{index}"), format!("link-{}", index % 7));
                    let _ = remote.make_node(own(), path.as_ref(), libc::S_IFREG | 0o644, 0);
                    let _ = remote.link(own(), path.as_ref(), link.as_ref());
                    let _ = remote.unlink(own(), link.as_ref(), false);
                }
            });
        }
    });
    drop(server);
    let names = |intent: &NameIntent<'_>| [intent.path.to_vec(), intent.to.to_vec()];
    // What is to fail by what is there is not noted.
    assert!(intents_one_at_a_time(folder.path(), names) >= 200);
}

/// By whatever name of it they come.
#[test]
fn an_attribute_of_a_file_has_one_intent_at_a_time_in_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("one"), "").unwrap();
    std::fs::hard_link(files.join("one"), files.join("two")).unwrap();
    let server = serve_folder(folder.path());
    let endpoint = endpoint_of(folder.path());
    thread::scope(|scope| {
        // Two by each of two names, and two for the root.
        for path in ["one", "two", ""].into_iter().cycle().take(6) {
            let endpoint = &endpoint;
            scope.spawn(move || {
                let remote = connect(endpoint, false);
                let file = remote.identity(own(), path.as_ref()).unwrap();
                let name = b"user.lock";
                for _ in 0..100 {
                    let _ =
                        remote.set_xattr(own(), path.as_ref(), file, name, b"", libc::XATTR_CREATE as u32);
                    let _ = remote.remove_xattr(own(), path.as_ref(), file, name);
                }
            });
        }
    });
    drop(server);
    let file = |intent: &NameIntent<'_>| {
        assert_ne!(intent.kind, NameIntent::UNTOLD, "the name does not change");
        let mut file = Vec::new();
        intent.file.encode(&mut file);
        [file, Vec::new()]
    };
    assert!(intents_one_at_a_time(folder.path(), file) >= 2);
}

/// How many intents there are in the log of answers, none of which has something of another that has no outcome yet.
fn intents_one_at_a_time(folder: &Path, own: impl Fn(&NameIntent<'_>) -> [Vec<u8>; 2]) -> usize {
    let log = std::fs::read(folder.join("answers/log")).unwrap();
    let (mut rest, mut underway, mut intents) = (&log[HEADER_BYTES..], BTreeMap::new(), 0);
    while let Some((note, behind)) = Note::split_from(rest) {
        rest = behind;
        match note.state {
            State::Intent => {
                let intent = NameIntent::decode(note.bytes).unwrap();
                for own in own(&intent).into_iter().filter(|own| !own.is_empty()) {
                    let before = underway.insert(own.clone(), note.key);
                    assert_eq!(before, None, "{} of two", String::from_utf8_lossy(&own));
                }
                intents += 1;
            }
            _ => underway.retain(|_, key| *key != note.key),
        }
    }
    assert!(underway.is_empty(), "{underway:?}");
    intents
}

/// Where a record goes, after looking as told.
fn range_of(file: &dyn TreeFile, number: u64, size: u64) -> Range {
    let record = AppendRecord { client: [7; 16], number, step: 0, uid: 0, bytes: RECORD as u32 };
    let given = file.reserve(0, 0, &[record]).unwrap().unwrap();
    let given = match given.reserved.look {
        0 => given,
        _ => file.reserve(given.reserved.ticket, size, &[record]).unwrap().unwrap(),
    };
    file.settle(given.reserved.ticket, UNKNOWN, true).unwrap().unwrap();
    given.ranges[0]
}

#[test]
fn a_range_that_is_in_the_log_only_is_not_given_to_others() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("files")).unwrap();
    let server = serve_folder(folder.path());
    let remote = connect(&endpoint_of(folder.path()), true);
    let flags = open::WRITE | open::CREATE | open::APPEND;
    let how = OpenHow { flags, mode: 0o644, ..OpenHow::default() };
    let file = remote.open(own(), "log".as_ref(), how).unwrap();
    assert_eq!(range_of(&*file, 1, 0), Range { offset: 0, is_there: range::NEW });
    drop(server);
    // As if it had been killed before it noted with the file what it had in the log.
    let names_file = std::fs::File::options().write(true).open(folder.path().join("files/log")).unwrap();
    assert_eq!(names_file.metadata().unwrap().len(), RECORD as u64);
    names_file.set_len(0).unwrap();
    let _server = serve_folder(folder.path());
    assert_eq!(range_of(&*file, 2, 0), Range { offset: RECORD as u64, is_there: range::NEW });
    assert_eq!(range_of(&*file, 1, 0), Range { offset: 0, is_there: range::EARLIER });
    drop((file, remote));
}

/// A way to one server or another, and the connections that have gone it.
#[derive(Default)]
struct Way {
    to: Mutex<Option<Endpoint>>,
    connections: Mutex<Vec<OwnedFd>>,
}

impl Way {
    fn dial(self: &Arc<Way>) -> Dial {
        let way = Arc::clone(self);
        Arc::new(move |_, timeout| {
            let to = way.to.lock().unwrap().clone().ok_or(std::io::ErrorKind::ConnectionRefused)?;
            let socket = dial(&to, timeout)?;
            way.connections.lock().unwrap().push(socket.fd().try_clone_to_owned()?);
            Ok(socket)
        })
    }

    fn lead_to(&self, to: &Server) {
        *self.to.lock().unwrap() = Some(to.endpoints()[0].clone());
        for connection in self.connections.lock().unwrap().drain(..) {
            let _ = rustix::net::shutdown(connection, rustix::net::Shutdown::Both);
        }
    }
}

#[test]
fn a_forwarder_that_is_back_before_its_servers_waits_for_them() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("files")).unwrap();
    let server = serve_folder(folder.path());
    let behind = [(); 2].map(|()| Arc::new(connect(&endpoint_of(folder.path()), false)));
    let forwarders = behind.each_ref().map(|tree| serve(tree.clone(), &any_port(), None, GRACE));
    let way = Arc::new(Way::default());
    way.lead_to(&forwarders[0]);
    let client = ClientOptions { auth: Credential::None, dial: way.dial(), ..ClientOptions::default() };
    // The way decides where that is.
    let remote = Remote::connect(&[any_port()], &RemoteOptions { client, ..Default::default() }).unwrap();
    let remote = Arc::new(remote);
    drop(remote.create("file".as_ref(), 0o644).unwrap());
    let wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let since = Instant::now();
        while !is_so() {
            assert!(since.elapsed() < PATIENCE, "{what}");
            thread::sleep(Duration::from_millis(1));
        }
    };
    wait("the file is closed", &|| forwarders[0].status().underway == 0);
    drop(server);
    wait("the server's end is noticed", &|| behind.iter().all(|tree| !tree.is_reached()));
    // Underway at the first forwarder when its clients lose it, and the second takes its place.
    let unlinking = remote.clone();
    let unlinked = thread::spawn(move || unlinking.unlink(own(), "file".as_ref(), false));
    wait("the first forwarder has the request", &|| forwarders[0].status().underway > 0);
    way.lead_to(&forwarders[1]);
    // It has been refused at least once, or let in.
    wait("the second forwarder is asked", &|| {
        way.connections.lock().unwrap().len() > 1 || unlinked.is_finished()
    });
    assert!(!unlinked.is_finished(), "{:?}", unlinked.join());
    let _server = serve_folder(folder.path());
    unlinked.join().unwrap().unwrap();
    assert_eq!(common::errno(remote.attr(own(), "file".as_ref())), libc::ENOENT);
    // The first one has the request still, and waits for the server.
    drop(forwarders);
}
