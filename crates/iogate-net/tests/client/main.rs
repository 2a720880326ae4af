//! The client against a scripted server: what each request does, and what becomes of it when the server misbehaves.

#[path = "../common/mod.rs"]
mod common;
mod durability;
mod peer;
mod recovery;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use iogate_core::wire::{Failure, Identity, Record, ReplyHeader, open};
use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::{Engine, Origin};
use iogate_net::Server;
use iogate_net::client::{ClientError, ClientOptions, Receiving, Remote, RemoteOptions, Spread};
use iogate_net::transport::auth::Credential;
use iogate_net::transport::{ConnectError, PlainSocket};
use iogate_vfs::{Caller, OpenHow, Tree, TreeFile};

use peer::Peer;

/// Most bytes of an extended attribute's value that servers take.
const VALUE_BYTES_MAX: usize = 64 << 10;

const ME: Caller = Caller::new(1000, 1000);

fn options(receiving: Receiving) -> RemoteOptions {
    let client = ClientOptions { receiving, retry_for: Duration::from_secs(20), ..ClientOptions::default() };
    RemoteOptions { client, ..RemoteOptions::default() }
}

fn connect(peer: &Peer, receiving: Receiving) -> Remote {
    Remote::connect(std::slice::from_ref(&peer.endpoint), &options(receiving)).unwrap()
}

/// Of a server to whom everybody is the same user.
fn remote_of(server: &Server, receiving: Receiving) -> Remote {
    let mut options = options(receiving);
    options.client.auth = Credential::None;
    Remote::connect(server.endpoints(), &options).unwrap()
}

fn both(test: impl Fn(Receiving)) {
    test(Receiving::Background);
    test(Receiving::Inline);
}

/// Bytes that differ everywhere.
fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).flat_map(|index| index.wrapping_mul(0x9E37_79B9).to_le_bytes()).take(bytes).collect()
}

#[test]
fn what_is_written_is_read_whatever_its_size() {
    both(|receiving| {
        let peer = Peer::start();
        let remote = connect(&peer, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        for bytes in [1, 4096, 20_000, 200_000, 4 << 20, (9 << 20) + 13] {
            let data = pattern(bytes);
            assert_eq!(file.write_at(5, &data).unwrap(), bytes);
            let mut memory = vec![0; bytes];
            assert_eq!(file.read_at(5, &mut memory).unwrap(), bytes);
            assert!(memory == data, "{bytes} bytes differ");
        }
        let size = file.attr().unwrap().size;
        assert_eq!(size, (9 << 20) + 18);
        let mut memory = vec![0; 100];
        assert_eq!(file.read_at(size - 10, &mut memory).unwrap(), 10, "the end of the file");
        let written = file.append(b"end").unwrap();
        assert_eq!((written.offset, written.bytes), (size, 3));
        file.sync(false).unwrap();
    });
}

#[test]
fn a_server_with_another_time_is_noticed() {
    let peer = Peer::start();
    let client = |peer: &Peer| connect(peer, Receiving::Background);
    let remote = client(&peer);
    assert!(!remote.clients()[0].has_other_clock(), "{}", remote.clients()[0].clock());
    assert!(!remote.state().unwrap().text.contains("clock"));
    peer.settings.clock_ahead.store(-3_600_000_000_000, Ordering::SeqCst);
    let remote = client(&peer);
    assert!(remote.clients()[0].has_other_clock());
    let state = remote.state().unwrap().text;
    assert!(state.contains("whose clock is 3") && state.contains(" s behind"), "{state}");
}

#[test]
fn names_and_attributes_come_through_the_tree() {
    both(|receiving| {
        let peer = Peer::start();
        let remote = connect(&peer, receiving);
        let missing = remote.open(ME, Path::new("other"), OpenHow::default()).err().unwrap();
        assert_eq!(missing.raw_os_error(), Some(libc::ENOENT));
        assert_eq!(remote.attr(ME, Path::new("file")).unwrap().inode, 7);
        let mut names = Vec::new();
        let mut take = |_: &_, name: &[u8]| {
            names.push(String::from_utf8_lossy(name).into_owned());
            true
        };
        remote.read_dir(ME, Path::new(""), 0, &mut take).unwrap();
        assert_eq!(names, ["entry 1", "entry 2", "entry 3"]);
        let value = pattern(VALUE_BYTES_MAX);
        remote.set_xattr(ME, Path::new("file"), Identity::default(), b"user.x", &value, 0).unwrap();
        assert!(remote.xattr(ME, Path::new("file"), b"user.x").unwrap() == value, "a large value");
    });
}

/// A server would cut it off, and everything else that the client waits for.
#[test]
fn a_value_that_no_server_takes_is_refused_by_the_client() {
    both(|receiving| {
        let dir = tempfile::tempdir().unwrap();
        let server = common::serve(common::directory(dir.path()), &common::any_port(), None, common::GRACE);
        let remote = remote_of(&server, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        for bytes in [VALUE_BYTES_MAX + 1, 100_000, (4 << 20) + 1] {
            let value = pattern(bytes);
            let by_name = remote.set_xattr(ME, Path::new("file"), Identity::default(), b"user.x", &value, 0);
            assert_eq!(common::errno(by_name), libc::E2BIG, "{bytes} bytes");
            assert_eq!(common::errno(file.set_xattr(ME, b"user.x", &value, 0)), libc::E2BIG, "{bytes} bytes");
        }
        file.write_at(0, b"goes on").unwrap();
    });
}

#[test]
fn many_threads_share_a_session() {
    both(|receiving| {
        let peer = Peer::start();
        let remote = connect(&peer, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        thread::scope(|scope| {
            for index in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..50 {
                        let bytes = if round % 10 == 0 { 100_000 } else { 1000 };
                        let data = vec![index as u8 * 16 + round as u8; bytes];
                        let offset = index * 100_000;
                        assert_eq!(file.write_at(offset, &data).unwrap(), bytes);
                        let mut memory = vec![0; bytes];
                        assert_eq!(file.read_at(offset, &mut memory).unwrap(), bytes);
                        assert!(memory == data, "thread {index} round {round}");
                    }
                });
            }
        });
    });
}

#[test]
fn an_engine_reads_and_writes_through_the_store() {
    let peer = Peer::start();
    let remote = connect(&peer, Receiving::Background);
    let how = OpenHow { flags: open::READ | open::WRITE, ..OpenHow::default() };
    let file = remote.open(ME, Path::new("file"), how).unwrap();
    let again = remote.open(ME, Path::new("file"), how).unwrap();
    assert_eq!(file.data().id(), again.data().id());
    let gate = GateConfig {
        scheduler: SchedulerConfig::new(SchedulerKind::Fifo),
        queue_max: 1024,
        depth: 8,
        layout: Layout::SINGLE,
    };
    let engine = Engine::new(&gate, remote.store()).unwrap();
    let data = pattern(6 << 20);
    thread::scope(|scope| {
        for (index, piece) in data.chunks(64 << 10).enumerate() {
            let (engine, file) = (&engine, &file);
            scope.spawn(move || {
                let offset = index as u64 * (64 << 10);
                assert_eq!(
                    engine.write_at(file.data(), Origin::default(), offset, piece).unwrap(),
                    piece.len()
                );
            });
        }
    });
    let mut memory = vec![0; data.len()];
    assert_eq!(engine.read_at(again.data(), Origin::default(), 0, &mut memory).unwrap(), data.len());
    assert!(memory == data);
}

#[test]
fn credits_make_callers_wait() {
    both(|receiving| {
        let peer = Peer::start();
        peer.settings.credits.store(2, Ordering::SeqCst);
        let remote = connect(&peer, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        thread::scope(|scope| {
            for index in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    (0..20).for_each(|_| assert_eq!(file.write_at(index * 100, &[1; 100]).unwrap(), 100));
                });
            }
        });
        assert!(peer.settings.underway_max.load(Ordering::SeqCst) <= 2);
        assert_eq!(file.attr().unwrap().size, 800);
    });
}

#[test]
fn another_version_is_refused_in_words() {
    let peer = Peer::start();
    let mut options = options(Receiving::Background);
    options.client.name = "old".into();
    let error = Remote::connect(std::slice::from_ref(&peer.endpoint), &options).err().unwrap();
    assert!(matches!(error, ClientError::Connect(ConnectError::Refused { .. })), "{error:?}");
    assert!(error.to_string().contains("expected version 7"), "{error}");
}

/// A server that has no room says so when somebody connects, and hangs up: perhaps before it is told who that is.
#[test]
fn who_is_refused_before_it_says_hello_hears_why() {
    let (client, mut server) = UnixStream::pair().unwrap();
    let mut fields = Vec::new();
    Failure { text: b"the server has 1 connections" }.encode(&mut fields);
    let header =
        ReplyHeader { fields: fields.len() as u16, errno: libc::EUSERS as u16, ..ReplyHeader::default() };
    server.write_all(&[&header.to_bytes()[..], &fields].concat()).unwrap();
    drop(server);
    let reached = Mutex::new(Some(client));
    let mut options = options(Receiving::Background);
    options.client.dial = Arc::new(move |_, _| {
        let client = reached.lock().unwrap().take().expect("it is tried once");
        Ok(Box::new(PlainSocket::new(client.into())?))
    });
    let error = Remote::connect(&["unix:/somewhere".parse().unwrap()], &options).err().unwrap();
    assert!(error.to_string().contains("the server has 1 connections"), "{error}");
}

#[test]
fn several_servers_carry_out_what_the_spread_says() {
    for (spread, expected) in
        [(Spread::Client, 1), (Spread::File, 1), (Spread::Process, 1), (Spread::Target, 2)]
    {
        let files = Arc::default();
        let peers = [Peer::on(0, Arc::clone(&files)), Peer::on(0, files)];
        let endpoints = [peers[0].endpoint.clone(), peers[1].endpoint.clone()];
        let options = RemoteOptions { spread, ..options(Receiving::Background) };
        let remote = Remote::connect(&endpoints, &options).unwrap();
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        let before: Vec<u64> =
            peers.iter().map(|peer| peer.settings.messages.load(Ordering::SeqCst)).collect();
        let data = pattern(5 << 20);
        assert_eq!(file.write_at(0, &data).unwrap(), data.len());
        let mut memory = vec![0; data.len()];
        assert_eq!(file.read_at(0, &mut memory).unwrap(), data.len());
        assert!(memory == data, "{spread:?}");
        let used = peers
            .iter()
            .zip(before)
            .filter(|(peer, before)| peer.settings.messages.load(Ordering::SeqCst) > *before);
        assert_eq!(used.count(), expected, "{spread:?}");
    }
}

/// By renames of what is above it. A server would cut off who sends it such a path.
#[test]
fn a_file_is_open_on_all_servers_before_its_path_becomes_too_long() {
    let files = Arc::default();
    let peers = [Peer::on(0, Arc::clone(&files)), Peer::on(0, files)];
    let endpoints = [peers[0].endpoint.clone(), peers[1].endpoint.clone()];
    let options = RemoteOptions { spread: Spread::Target, ..options(Receiving::Background) };
    let remote = Remote::connect(&endpoints, &options).unwrap();
    let file = remote.create("file".as_ref(), 0o644).unwrap();
    let opens = || peers.each_ref().map(|peer| peer.settings.opens.load(Ordering::SeqCst));
    assert_eq!(opens().iter().sum::<u64>(), 1);
    let deep = "d/".repeat(2000);
    remote.rename(ME, Path::new("file"), Path::new(&format!("{deep}file")), 0).unwrap();
    remote.rename(ME, Path::new("d"), Path::new(&format!("{deep}d")), 0).unwrap();
    assert_eq!([0, 1 << 20].map(|at| file.write_at(at, b"x").unwrap()), [1, 1]);
    assert_eq!(opens(), [1, 1]);
}

#[test]
fn what_would_end_behind_the_last_offset_is_refused() {
    let peer = Peer::start();
    let remote = connect(&peer, Receiving::Inline);
    let file = remote.create("file".as_ref(), 0o644).unwrap();
    assert_eq!(common::errno(file.read_at(u64::MAX, &mut [0])), libc::EFBIG);
    assert_eq!(common::errno(file.write_at(u64::MAX - 4, b"5 bytes")), libc::EFBIG);
}

#[test]
fn a_child_has_a_session_of_its_own_and_leaves_its_parents_alone() {
    let peer = Peer::start();
    let remote = connect(&peer, Receiving::Inline);
    let file = remote.create("file".as_ref(), 0o644).unwrap();
    let other = remote.create("file".as_ref(), 0o644).unwrap();
    file.write_at(0, b"parent").unwrap();
    let opens = peer.settings.opens.load(Ordering::SeqCst);
    let (is_over, turn) = (std::sync::atomic::AtomicBool::new(false), std::sync::Mutex::new(()));
    thread::scope(|scope| {
        let busy = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                // Nobody may be in a call while the process forks.
                let _turn = turn.lock().unwrap();
                assert_eq!(other.read_at(0, &mut [0; 6]).unwrap(), 6);
            }
        });
        for round in 0..5 {
            let forking = turn.lock().unwrap();
            // SAFETY: the child uses no lock but the client's, which the other thread does not hold now, and the allocator's,
            // which the C library keeps in order.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            drop(forking);
            if child == 0 {
                let mut memory = [0; 6];
                let read = file.read_at(0, &mut memory);
                let is_right = matches!(read, Ok(6)) && &memory == b"parent";
                let written = file.write_at(100 + round, b"c");
                // SAFETY: nothing of the parent's is run down.
                unsafe { libc::_exit(i32::from(!(is_right && written.is_ok()))) };
            }
            assert_eq!(file.write_at(200, b"p").unwrap(), 1);
            let mut status = 0;
            // SAFETY: the child was started above, and the status is ours.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "the child reads and writes");
            assert_eq!(file.read_at(0, &mut [0; 6]).unwrap(), 6);
        }
        is_over.store(true, Ordering::SeqCst);
        busy.join().unwrap();
    });
    let again = peer.settings.opens.load(Ordering::SeqCst) - opens;
    assert_eq!(again, 10, "each child opens both files again, and the parent none");
}
