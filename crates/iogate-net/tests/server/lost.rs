//! Connections are lost and come back: each request takes effect once.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iogate_core::answers::{Key, NameIntent};
use iogate_core::wire::*;
use iogate_engine::store::DirectoryStore;
use iogate_net::server::{Answers, Keeping};
use iogate_vfs::DirectoryTree;
use iogate_vfs::answers::Begun;

use super::raw::{RDWR, Raw, USER, hello, transfer};
use super::{Setup, wait_until};

fn append(bytes: usize) -> Request<'static> {
    Request::Write(Transfer { flags: transfer::APPEND, ..transfer(1, 0, bytes) })
}

#[test]
fn a_write_whose_reply_was_lost_is_not_made_again() {
    let setup = Setup::new();
    for endpoint in [setup.tcp(), setup.unix()] {
        let path = endpoint.to_string().replace(['/', ':', '.'], "-");
        let mut client = Raw::greet(endpoint);
        client.open(1, &path, RDWR);
        for round in 0..20 {
            let id = client.send(&append(4), b"data");
            // Cut before or after it is done: either way it is sent again.
            if round % 2 == 0 {
                client.reply();
            }
            let mut again = Raw::resume(endpoint, &client);
            assert_eq!(again.welcome.unwrap().resumed, 1);
            again.write(&Raw::bytes(id, again.acked, &append(4), b"data"));
            let reply = again.reply();
            assert_eq!(reply.id, id);
            assert_eq!(reply.ok::<Written>(), Written { offset: 4 * round, bytes: 4, verifier: 0 });
            again.acked = id + 1;
            client = again;
        }
        assert_eq!(setup.tree.content(&path).len(), 80);
    }
}

#[test]
fn handles_stay_and_names_are_made_once() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    client.write_at(1, 0, b"content");
    let make = Request::MakeNode(MakeNode { mode: libc::S_IFREG, device: 0, path: b"a" });
    let id = client.send(&make, &[]);
    let read = client.send(&Request::Read(transfer(1, 0, 7)), &[]);
    while setup.tree.made.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let mut again = Raw::resume(setup.tcp(), &client);
    again.write(&Raw::bytes(id, again.acked, &make, &[]));
    again.write(&Raw::bytes(read, again.acked, &Request::Read(transfer(1, 0, 7)), &[]));
    let mut replies = [again.reply(), again.reply()];
    replies.sort_by_key(|reply| reply.id);
    assert_eq!(replies[0].errno, 0, "else it was made twice");
    assert_eq!((replies[1].id, &replies[1].payload[..]), (read, &b"content"[..]), "read again");
    assert_eq!(setup.tree.made.load(Ordering::SeqCst), 1);
    while client.try_reply().is_ok() {}
}

#[test]
fn half_a_write_leaves_nothing_behind() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    let data = vec![3; 1 << 20];
    let write = Raw::bytes(client.next, client.acked, &append(data.len()), &data);
    client.write(&write[..write.len() / 2]);
    let mut again = Raw::resume(setup.tcp(), &client);
    again.write(&write);
    assert_eq!(again.reply().ok::<Written>(), Written { offset: 0, bytes: 1 << 20, verifier: 0 });
    assert_eq!(setup.tree.content("f").len(), 1 << 20);
}

#[test]
fn sessions_are_their_users_and_end() {
    let setup = Setup::with(|config| config.session_grace = Duration::from_millis(50));
    let client = Raw::greet(setup.unix());
    let session = client.welcome.unwrap().session;
    let mut thief = Raw::connect(setup.tcp());
    let wish = Hello { session, auth: auth::NONE, ..hello() };
    thief.write(&Raw::bytes(0, 0, &Request::Hello(wish), &[]));
    thief.is_cut(libc::EACCES, "another user's");
    drop(client);
    wait_until("nobody comes back", || setup.server.status().sessions == 0);
    let late = Raw::greet_with(setup.unix(), Hello { session, ..hello() });
    assert_eq!(late.welcome.unwrap().resumed, 0);
    assert_ne!(late.welcome.unwrap().session, session);
}

#[test]
fn goodbye_ends_a_session_at_once() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.unix());
    client.open(1, "f", RDWR);
    client.ask(&Request::Goodbye(Goodbye {}), &[]).done();
    let status = setup.server.status();
    assert_eq!((status.sessions, status.connections[0].open_files), (0, 0));
}

#[test]
fn what_was_accepted_is_completed_when_the_server_stops() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    let ids: Vec<u64> = (0..32).map(|_| client.send(&append(1000), &[7; 1000])).collect();
    let first = client.reply();
    assert_eq!(first.errno, 0);
    setup.server.shutdown();
    let mut answered = vec![first.id];
    while let Ok(reply) = client.try_reply() {
        assert_eq!(reply.errno, 0);
        answered.push(reply.id);
    }
    answered.sort_unstable();
    assert!(answered.iter().eq(&ids[..answered.len()]));
    assert_eq!(setup.tree.content("f").len(), answered.len() * 1000, "each that took effect is answered");
}

#[test]
fn whatever_is_lost_when_each_append_is_there_once() {
    let setup = Setup::with(|config| config.limits.memory_bytes = 4 << 20);
    std::thread::scope(|scope| {
        for name in 0..4u8 {
            let setup = &setup;
            scope.spawn(move || {
                let endpoint = &setup.server.endpoints()[usize::from(name % 2)];
                let mut random = u64::from(name) + 1;
                let mut next = |below: u64| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (random >> 33) % below
                };
                let mut client = Raw::greet(endpoint);
                client.open(1, "log", RDWR);
                let first = client.next;
                let record = |id: u64| {
                    let mut record = vec![name; 1000 + (id % 7) as usize * 5000];
                    record[..8].copy_from_slice(&(id - first).to_le_bytes());
                    record
                };
                let request = |id: u64, acked: u64| {
                    let data = record(id);
                    Raw::bytes(id, acked, &append(data.len()), &data)
                };
                let mut answered = std::collections::BTreeSet::new();
                while client.acked < first + 100 {
                    // Some whole requests, perhaps a part of one, some replies, and the connection is gone.
                    let unanswered = (client.acked..client.next).filter(|id| !answered.contains(id));
                    let fresh = client.next..(client.next + next(8)).min(first + 100);
                    client.next = fresh.end;
                    let bytes: Vec<u8> =
                        unanswered.chain(fresh).flat_map(|id| request(id, client.acked)).collect();
                    let cut = bytes.len() - next(2) as usize * next(bytes.len() as u64 / 2 + 1) as usize;
                    client.write(&bytes[..cut]);
                    let expected = if cut < bytes.len() {
                        0
                    } else {
                        client.next - client.acked - answered.len() as u64
                    };
                    for _ in 0..next(expected + 1) {
                        let reply = client.reply();
                        assert_eq!(reply.errno, 0);
                        assert!(answered.insert(reply.id), "a reply came twice");
                    }
                    while answered.remove(&client.acked) {
                        client.acked += 1;
                    }
                    client = Raw::resume(endpoint, &client);
                    assert_eq!(client.welcome.unwrap().resumed, 1);
                }
            });
        }
    });
    let log = setup.tree.content("log");
    let mut rest = &log[..];
    let mut seen = std::collections::BTreeSet::new();
    while !rest.is_empty() {
        let (name, number) = (rest[8], u64::from_le_bytes(*rest.first_chunk().unwrap()));
        assert!(seen.insert((name, number)), "record {number} of {name} is there twice");
        // The first id is 2: the file was opened by request 1.
        let bytes = 1000 + ((number + 2) % 7) as usize * 5000;
        assert!(rest[8..bytes].iter().all(|byte| *byte == name));
        rest = &rest[bytes..];
    }
    assert_eq!(seen.len(), 400);
}

#[test]
fn who_waits_for_a_slow_file_holds_up_nobody_else() {
    let setup = Setup::new();
    setup.tree.store.hold("slow");
    let mut held: Vec<Raw> = (0..8u32)
        .map(|index| {
            let mut client = Raw::greet(&setup.server.endpoints()[index as usize % 2]);
            client.open(1, "slow", RDWR).ok::<Opened>();
            client.open(2, "fast", RDWR).ok::<Opened>();
            client.send(&Request::Read(transfer(1, 0, 10)), &[]);
            client
        })
        .collect();
    // The gate lets eight be in service at once.
    wait_until("all are held up", || setup.tree.store.waiting.load(Ordering::SeqCst) >= 7);
    let mut other = Raw::greet(setup.tcp());
    other.ask(&Request::Ping(Ping {}), &[]).ok::<Offset>();
    other.open(1, "fast", RDWR).ok::<Opened>();
    setup.tree.store.release();
    for client in &mut held {
        assert_eq!(client.reply().payload, b"");
    }
    assert_eq!(other.write_at(1, 0, b"x").ok::<Written>().bytes, 1);
}

/// A message that is known again, in another session too.
fn known(id: u64, request: &Request<'_>, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Raw::bytes(id, 2, request, payload);
    let mut header = RequestHeader::from_bytes(bytes.first_chunk().unwrap()).unwrap();
    header.origin = RequestOrigin { client: [7; 16], number: id, step: 0, unanswered: 1 };
    bytes[..REQUEST_HEADER_BYTES].copy_from_slice(&header.to_bytes());
    bytes
}

#[test]
fn a_record_that_was_not_taken_and_then_forgotten_is_appended_when_it_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let answers = Arc::new(Answers::open(&dir.path().join("own/answers"), Keeping::Boot).unwrap());
    let setup = Setup::with(|config| config.exports[0].answers = Some(answers));
    let mut client = Raw::greet(setup.unix());
    client.open(1, "f", RDWR).ok::<Opened>();
    let record = |id: u64, text: &[u8]| known(id, &append(text.len()), text);
    let both = [record(2, b"one"), record(3, b"two")].concat();
    // They go together, which the store does not take, and by then nobody waits for them.
    setup.tree.store.hold("f");
    setup.tree.store.rejects.store(true, Ordering::SeqCst);
    client.write(&both);
    wait_until("they are tried", || setup.tree.store.waiting.load(Ordering::SeqCst) == 1);
    client.stream = Box::new(UnixStream::pair().unwrap().0);
    wait_until("it has gone", || setup.server.status().connection_count == 0);
    setup.tree.store.release();
    wait_until("both are forgotten", || setup.server.status().underway == 0);
    let mut again = Raw::resume(setup.unix(), &client);
    again.write(&both);
    let mut replies = [again.reply(), again.reply()];
    replies.sort_by_key(|reply| reply.id);
    let offsets = replies.map(|reply| reply.ok::<Written>().offset);
    assert_eq!((offsets, &setup.tree.content("f")[..]), ([0, 3], &b"onetwo"[..]));
}

#[test]
fn an_append_that_finds_no_descriptor_fails_and_the_next_does_not() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR).ok::<Opened>();
    setup.tree.no_descriptors.store(true, Ordering::SeqCst);
    assert_eq!(client.ask(&append(3), b"one").errno, libc::EMFILE);
    setup.tree.no_descriptors.store(false, Ordering::SeqCst);
    assert_eq!(client.ask(&append(3), b"two").ok::<Written>().offset, 0);
    assert_eq!(setup.tree.content("f"), b"two");
}

#[test]
fn a_handle_is_free_again_when_its_open_has_panicked() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    assert_eq!(client.open(1, "defect", RDWR).errno, libc::EIO);
    client.open(1, "f", RDWR).ok::<Opened>();
}

/// A folder that servers serve one after the other, each with the log of the one before.
struct Kept(tempfile::TempDir);

impl Kept {
    fn new() -> Kept {
        let kept = Kept(tempfile::tempdir().unwrap());
        std::fs::create_dir(kept.files()).unwrap();
        std::fs::set_permissions(kept.files(), std::fs::Permissions::from_mode(0o777)).unwrap();
        kept
    }

    fn files(&self) -> PathBuf {
        self.0.path().join("files")
    }

    fn log(&self) -> PathBuf {
        self.0.path().join("own/answers")
    }

    fn answers(&self) -> Arc<Answers> {
        Arc::new(Answers::open(&self.log(), Keeping::Boot).unwrap())
    }

    fn start(&self) -> Setup {
        let (files, answers) = (self.files(), self.answers());
        let tree = DirectoryTree::new(&files, Arc::new(DirectoryStore::new(&files).unwrap())).unwrap();
        Setup::with(|config| {
            (config.exports[0].tree, config.exports[0].answers) = (Arc::new(tree), Some(answers));
        })
    }

    /// As if the server had been killed within its last note.
    fn tear_log(&self) {
        let log = std::fs::OpenOptions::new().write(true).open(self.log()).unwrap();
        log.set_len(log.metadata().unwrap().len() - 1).unwrap();
    }
}

/// The server was killed when that was done, and before the log knew.
#[test]
fn an_attribute_of_an_open_file_is_set_and_removed_once() {
    let kept = Kept::new();
    let (name, identity) = (b"user.x", Identity::default());
    let flags = libc::XATTR_CREATE as u32;
    let requests = [
        Request::SetXattr(SetXattr { handle: 1, flags, identity, path: b"", name }),
        Request::RemoveXattr(RemoveXattr { handle: 1, identity, path: b"", name }),
    ];
    for (number, request) in (2..).zip(&requests) {
        for _ in 0..2 {
            let setup = kept.start();
            let mut client = Raw::greet(setup.unix());
            client.open(1, "f", RDWR).ok::<Opened>();
            let value: &[u8] = if matches!(request, Request::SetXattr(_)) { b"value" } else { b"" };
            client.write(&known(number, request, value));
            assert_eq!(client.reply().errno, 0, "{request:?}");
            drop(setup);
            kept.tear_log();
        }
    }
}

/// Where the look-up after the kill fails, that does not tell that the file is gone.
#[test]
fn what_cannot_be_looked_up_after_a_kill_is_not_taken_for_removed() {
    let kept = Kept::new();
    // No file system has such a name: its look-up fails, and not because nothing is there.
    let path = [b'x'; 300];
    let unlink = Request::Unlink(Unlink { path: &path, directory: 0 });
    // Root's server acts for the user that the client names.
    let own = rustix::process::geteuid().as_raw();
    let (uid, kind) = (if own == 0 { USER } else { own }, unlink.kind());
    {
        let key = Key { uid, client: [7; 16], number: 2, step: 0 };
        let Begun::New(running) = kept.answers().begin(key, 1, &[]) else { panic!("it is known") };
        let (file, other) = (Identity { inode: 5, generation: 5 }, Identity::default());
        running.intend(&NameIntent { kind, file, other, had: 0, path: &path, to: b"" }).unwrap();
    }
    let setup = kept.start();
    let mut client = Raw::greet(setup.unix());
    client.write(&known(2, &unlink, &[]));
    assert_eq!(client.reply().errno, libc::EIO);
}

/// Its name is another file's by now, which has the attribute.
#[test]
fn an_attribute_of_a_file_that_is_gone_is_not_taken_for_that_of_another() {
    let kept = Kept::new();
    let (name, identity) = (b"user.x", Identity::default());
    let flags = libc::XATTR_CREATE as u32;
    let request = Request::SetXattr(SetXattr { handle: 1, flags, identity, path: b"", name });
    let setup = kept.start();
    let mut client = Raw::greet(setup.unix());
    client.open(1, "f", RDWR).ok::<Opened>();
    std::fs::remove_file(kept.files().join("f")).unwrap();
    let mut other = Raw::greet(setup.unix());
    other.open(1, "f", RDWR).ok::<Opened>();
    let set =
        rustix::fs::setxattr(kept.files().join("f"), "user.x", b"another's", rustix::fs::XattrFlags::CREATE);
    set.unwrap();
    client.write(&known(2, &request, b"value"));
    assert_eq!(client.reply().errno, 0);
    drop(setup);
    kept.tear_log();
    let setup = kept.start();
    let mut client = Raw::greet(setup.unix());
    client.open(1, "f", RDWR).ok::<Opened>();
    client.write(&known(2, &request, b"value"));
    assert_eq!(client.reply().errno, libc::EIO, "nobody can tell");
}
