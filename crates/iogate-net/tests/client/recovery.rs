//! Lost connections, restarted servers, servers that are gone.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use iogate_core::wire::open;
use iogate_net::client::{Receiving, Remote, RemoteFile};
use iogate_net::server::Limits;
use iogate_net::{Endpoint, Server};

use super::peer::Peer;
use super::{both, common, connect, options, pattern, remote_of};

const RECORD_BYTES: usize = 16;

/// How often each record is in the file.
fn records(bytes: &[u8]) -> BTreeMap<[u8; RECORD_BYTES], u32> {
    let mut counts = BTreeMap::new();
    for record in bytes.chunks_exact(RECORD_BYTES) {
        *counts.entry(record.try_into().unwrap()).or_insert(0) += 1;
    }
    counts
}

fn record(thread: u64, index: u64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&thread.to_le_bytes());
    record[8..].copy_from_slice(&index.to_le_bytes());
    record
}

#[test]
fn appends_take_effect_once_although_connections_are_lost() {
    both(|receiving| {
        let peer = Peer::start();
        let remote = connect(&peer, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        peer.settings.cut_after.store(13, Ordering::SeqCst);
        thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for index in 0..50 {
                        file.append(&record(thread, index)).unwrap();
                    }
                });
            }
        });
        let bytes = peer.files.bytes.lock().unwrap().clone();
        let counts = records(&bytes);
        assert_eq!(counts.len(), 200);
        assert!(counts.values().all(|count| *count == 1), "{receiving:?}");
    });
}

#[test]
fn a_restarted_server_is_found_again_and_its_files_are_opened_again() {
    both(|receiving| {
        let peer = Peer::start();
        let (port, files) = (peer.port(), Arc::clone(&peer.files));
        let remote = connect(&peer, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let load: Vec<_> = (0..3u64)
                .map(|thread| {
                    let (file, is_over) = (&file, &is_over);
                    scope.spawn(move || {
                        let mut rounds = 0;
                        while !is_over.load(Ordering::SeqCst) || rounds == 0 {
                            let data = vec![(rounds % 251) as u8 + 1; 40_000];
                            assert_eq!(file.write_at(thread * 40_000, &data).unwrap(), data.len());
                            let mut memory = vec![0; data.len()];
                            assert_eq!(file.read_at(thread * 40_000, &mut memory).unwrap(), data.len());
                            assert!(memory == data, "what was answered is there");
                            rounds += 1;
                        }
                    })
                })
                .collect();
            // Each of its servers is at work before it goes.
            let works = |peer: &Peer| {
                let start = Instant::now();
                while peer.settings.messages.load(Ordering::SeqCst) < 20 {
                    assert!(start.elapsed() < Duration::from_secs(60), "it is not found");
                    thread::sleep(Duration::from_millis(1));
                }
            };
            let mut peer = Some(peer);
            for _ in 0..3 {
                works(peer.as_ref().unwrap());
                drop(peer.take());
                peer = Some(Peer::on(port, Arc::clone(&files)));
            }
            works(peer.as_ref().unwrap());
            is_over.store(true, Ordering::SeqCst);
            load.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(peer.unwrap().settings.opens.load(Ordering::SeqCst) >= 1, "opened again");
        });
    });
}

#[test]
fn a_file_that_is_another_one_after_a_restart_is_stale() {
    both(|receiving| {
        let peer = Peer::start();
        let (port, files) = (peer.port(), Arc::clone(&peer.files));
        let remote = connect(&peer, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        file.write_at(0, b"before").unwrap();
        drop(peer);
        files.generation.store(1, Ordering::SeqCst);
        let _peer = Peer::on(port, files);
        let error = file.read_at(0, &mut [0; 6]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ESTALE));
        let new = remote.create("file".as_ref(), 0o644).unwrap();
        assert_eq!(new.read_at(0, &mut [0; 6]).unwrap(), 6);
        assert_eq!(file.write_at(0, b"x").unwrap_err().raw_os_error(), Some(libc::ESTALE), "for good");
    });
}

#[test]
fn a_server_that_is_gone_for_too_long_costs_an_error_until_it_is_back() {
    both(|receiving| {
        let peer = Peer::start();
        let (port, files) = (peer.port(), Arc::clone(&peer.files));
        let mut options = options(receiving);
        options.client.retry_for = Duration::from_millis(50);
        let remote = Remote::connect(std::slice::from_ref(&peer.endpoint), &options).unwrap();
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        let data = pattern(1 << 20);
        file.write_at(0, &data).unwrap();
        drop(peer);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let error = file.read_at(0, &mut [0; 4096]).unwrap_err();
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                });
            }
        });
        assert_eq!(file.append(b"x").unwrap_err().raw_os_error(), Some(libc::EIO));
        let _peer = Peer::on(port, files);
        let start = Instant::now();
        let mut memory = vec![0; data.len()];
        while file.read_at(0, &mut memory).is_err() {
            assert!(start.elapsed() < Duration::from_secs(60), "it is never found again");
            thread::sleep(Duration::from_millis(20));
        }
        assert!(memory == data);
    });
}

/// Whoever asked for less is told, and does not wait for ever.
#[test]
fn a_server_that_sends_more_than_was_asked_for_is_not_believed() {
    both(|receiving| {
        let peer = Peer::start();
        let remote = Arc::new(connect(&peer, receiving));
        peer.settings.reads_more.store(true, Ordering::SeqCst);
        let (sender, answer) = std::sync::mpsc::channel();
        let asking = Arc::clone(&remote);
        thread::spawn(move || {
            let file = asking.create("file".as_ref(), 0o644).unwrap();
            file.write_at(0, b"bytes").unwrap();
            let _ = sender.send(file.read_at(0, &mut [0; 5]).map_err(|error| error.kind()));
        });
        let answer = answer.recv_timeout(Duration::from_secs(30)).expect("it waits for ever");
        assert_eq!(answer, Err(std::io::ErrorKind::InvalidData), "{receiving:?}");
        assert!(remote.clients()[0].is_connected());
    });
}

#[test]
fn a_server_that_takes_connections_and_answers_nothing_is_gone() {
    both(|receiving| {
        let peer = Peer::start();
        let mut options = options(receiving);
        options.client.retry_for = Duration::from_millis(100);
        let remote = Remote::connect(std::slice::from_ref(&peer.endpoint), &options).unwrap();
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        peer.settings.is_silent.store(true, Ordering::SeqCst);
        peer.settings.cut_after.store(1, Ordering::SeqCst);
        let error = file.read_at(0, &mut [0; 6]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        peer.settings.is_silent.store(false, Ordering::SeqCst);
    });
}

/// Servers of one folder, one after another, at one endpoint.
struct Restarted {
    dir: tempfile::TempDir,
    server: Option<Server>,
}

impl Restarted {
    fn new() -> Restarted {
        let mut new = Restarted { dir: tempfile::tempdir().unwrap(), server: None };
        new.start(&common::any_port(), Limits::default());
        new
    }

    fn start(&mut self, endpoint: &Endpoint, limits: Limits) {
        let tree = common::directory(self.dir.path());
        let engine = common::engine(&*tree);
        self.server = Some(common::serve_within(limits, tree, engine, endpoint, None, common::GRACE));
    }

    /// The next one takes less at once.
    fn restart(&mut self) {
        let endpoint = self.server().endpoints()[0].clone();
        self.server = None;
        let limits = Limits {
            transfer_bytes_max: 64 << 10,
            credit_bytes: 128 << 10,
            memory_bytes: 1 << 20,
            ..Limits::default()
        };
        self.start(&endpoint, limits);
    }

    fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }
}

#[test]
fn a_server_that_takes_less_at_once_after_a_restart_is_sent_less_at_once() {
    both(|receiving| {
        let mut servers = Restarted::new();
        let remote = remote_of(servers.server(), receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        let data = pattern(1 << 20);
        let mut memory = vec![0; data.len()];
        assert_eq!(file.write_at(0, &data).unwrap(), data.len());
        servers.restart();
        assert_eq!(file.read_at(0, &mut memory[..10]).unwrap(), 10, "it finds the next one");
        assert_eq!((remote.transfer_bytes_max(), remote.append_bytes_max()), (64 << 10, 128 << 10));
        assert_eq!(file.write_at(5, &data).unwrap(), data.len());
        assert_eq!(file.read_at(5, &mut memory).unwrap(), data.len());
        assert!(memory == data);
        let appended = file.append(&data).unwrap();
        assert_eq!((appended.offset, appended.bytes), (data.len() as u64 + 5, 128 << 10), "one message's");
        let engine = common::engine(&remote);
        let file = common::open(&remote, common::own(), "file", open::READ).unwrap();
        assert!(common::read(&engine, &*file, 5, data.len()).unwrap() == data, "through a gate");
    });
}

/// Without a thread of its own a client learns of a restart by what it sends.
#[test]
fn what_was_on_its_way_to_a_server_that_took_more_fails_alone() {
    type Way = fn(&RemoteFile, &[u8]) -> io::Result<usize>;
    let ways: [Way; 3] = [
        |file, data| file.write_at(0, data),
        |file, data| file.read_at(0, &mut data.to_vec()),
        |file, data| file.append(data).map(|written| written.bytes as usize),
    ];
    for way in ways {
        let mut servers = Restarted::new();
        let remote = remote_of(servers.server(), Receiving::Inline);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        let data = pattern(1 << 20);
        file.write_at(0, &data).unwrap();
        servers.restart();
        assert_eq!(common::errno(way(&file, &data)), libc::EIO);
        assert!(way(&file, &data).unwrap() >= 64 << 10);
    }
}
