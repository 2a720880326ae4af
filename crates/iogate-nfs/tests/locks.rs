//! Locks by NLM: among clients, beside other programs of the machine, over restarts of clients and of the server; against a naive model.

mod common;

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::Path;

use iogate_core::file_locks::{ByteRange, Kind};
use iogate_nfs::Server;
use iogate_nfs::rpc::{Accepted, take_reply};
use iogate_nfs::wire::{
    FileHandle, FileLock, Holder, LOCK_PROGRAM, LOCK_VERSION, LockReply, LockRequest, LockStatus, Opaque,
    STATUS_PROGRAM, STATUS_VERSION, Share, StatusRequest,
};
use iogate_nfs::xdr::Reader;
use iogate_vfs::outside::OutsideLocks;
use proptest::prelude::*;

use common::{Client, How, eventually, serve, serve_at, user};

const COOKIE: Opaque<'static> = Opaque(b"cookie");

/// Somebody on a client's machine.
#[derive(Clone, Copy)]
struct Who {
    host: &'static [u8],
    process: u32,
}

const A: Who = Who { host: b"a", process: 1 };
const B: Who = Who { host: b"b", process: 1 };

impl Who {
    fn lock(self, file: FileHandle, offset: u64, length: u64) -> FileLock<'static> {
        let owner = Opaque(b"owner");
        FileLock { host: Opaque(self.host), file, owner, process: self.process, offset, length }
    }
}

fn call(client: &mut Client, request: &LockRequest<'_>) -> Vec<u8> {
    let mut arguments = Vec::new();
    request.put(&mut arguments);
    client.call_raw(LOCK_PROGRAM, LOCK_VERSION, request.procedure(), &arguments)
}

fn results(record: &[u8]) -> Reader<'_> {
    let mut from = Reader::new(record);
    assert_eq!(take_reply(&mut from).unwrap().1, Some(Accepted::Success));
    from
}

fn status(client: &mut Client, request: &LockRequest<'_>) -> LockStatus {
    let record = call(client, request);
    match LockReply::take(request.procedure(), &mut results(&record)).unwrap().unwrap() {
        LockReply::Done { cookie: COOKIE, status } | LockReply::Shared { cookie: COOKIE, status } => status,
        other => panic!("{other:?}"),
    }
}

fn request(lock: FileLock<'static>, exclusive: bool) -> LockRequest<'static> {
    LockRequest::Lock {
        cookie: COOKIE,
        block: false,
        exclusive,
        lock,
        reclaim: false,
        state: 0,
        monitored: true,
    }
}

fn take(client: &mut Client, lock: FileLock<'static>, exclusive: bool) -> LockStatus {
    status(client, &request(lock, exclusive))
}

fn wait(client: &mut Client, lock: FileLock<'static>) -> LockStatus {
    let LockRequest::Lock { cookie, exclusive, lock, reclaim, state, monitored, .. } = request(lock, true)
    else {
        unreachable!()
    };
    status(client, &LockRequest::Lock { cookie, block: true, exclusive, lock, reclaim, state, monitored })
}

fn reclaim(client: &mut Client, lock: FileLock<'static>) -> LockStatus {
    let LockRequest::Lock { cookie, block, exclusive, lock, state, monitored, .. } = request(lock, true)
    else {
        unreachable!()
    };
    status(client, &LockRequest::Lock { cookie, block, exclusive, lock, reclaim: true, state, monitored })
}

fn unlock(client: &mut Client, lock: FileLock<'static>) -> LockStatus {
    status(client, &LockRequest::Unlock { cookie: COOKIE, lock })
}

/// Who has a lock that is in the way of all of a file.
fn test(client: &mut Client, who: Who, file: FileHandle) -> Option<(bool, u32, u64, u64)> {
    let request = LockRequest::Test { cookie: COOKIE, exclusive: true, lock: who.lock(file, 0, 0) };
    let record = call(client, &request);
    match LockReply::take(request.procedure(), &mut results(&record)).unwrap().unwrap() {
        LockReply::Tested { cookie: COOKIE, result } => result
            .err()
            .map(|Holder { exclusive, process, offset, length, .. }| (exclusive, process, offset, length)),
        other => panic!("{other:?}"),
    }
}

/// A program of the server's machine.
fn outside(path: &Path) -> OutsideLocks {
    OutsideLocks::new(File::options().read(true).write(true).open(path).unwrap().into(), false)
}

fn served() -> (tempfile::TempDir, Server, Client, FileHandle) {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let root = client.root;
    let file = client.create(root, b"file", 0o600).unwrap();
    (folder, server, client, file)
}

#[test]
fn a_lock_is_one_owners_until_it_is_given_back() {
    let (_folder, _server, mut client, file) = served();
    assert_eq!(test(&mut client, B, file), None);
    assert_eq!(take(&mut client, A.lock(file, 10, 10), true), LockStatus::Granted);
    assert_eq!(take(&mut client, A.lock(file, 10, 10), true), LockStatus::Granted);
    assert_eq!(take(&mut client, B.lock(file, 19, 1), false), LockStatus::Denied);
    assert_eq!(take(&mut client, B.lock(file, 20, 0), true), LockStatus::Granted);
    assert_eq!(test(&mut client, B, file), Some((true, 1, 10, 10)));
    assert_eq!(test(&mut client, A, file), Some((true, 1, 20, 0)));
    // Another process of the same client.
    let other = Who { process: 2, ..A };
    assert_eq!(take(&mut client, other.lock(file, 12, 1), true), LockStatus::Denied);
    // From the middle of it.
    assert_eq!(unlock(&mut client, A.lock(file, 12, 2)), LockStatus::Granted);
    assert_eq!(take(&mut client, other.lock(file, 12, 2), false), LockStatus::Granted);
    assert_eq!(take(&mut client, B.lock(file, 13, 1), false), LockStatus::Granted);
    assert_eq!(take(&mut client, B.lock(file, 13, 1), true), LockStatus::Denied);
    assert_eq!(unlock(&mut client, other.lock(file, 0, 0)), LockStatus::Granted);
    assert_eq!(take(&mut client, B.lock(file, 13, 1), true), LockStatus::Granted);
}

#[test]
fn programs_of_the_machine_see_them_and_are_seen() {
    let (folder, _server, mut client, file) = served();
    let local = outside(&folder.path().join("file"));
    let range = |first, last| ByteRange::new(first, last).unwrap();
    assert!(local.set(Some(Kind::Exclusive), range(0, 9)).unwrap());
    assert_eq!(test(&mut client, A, file), Some((true, 0, 0, 10)));
    assert_eq!(take(&mut client, A.lock(file, 5, 10), true), LockStatus::Denied);
    assert_eq!(take(&mut client, A.lock(file, 10, 10), false), LockStatus::Granted);
    assert_eq!(take(&mut client, B.lock(file, 15, 10), false), LockStatus::Granted);
    assert!(!local.set(Some(Kind::Exclusive), range(12, 12)).unwrap());
    assert!(local.set(Some(Kind::Shared), range(12, 12)).unwrap());
    assert!(local.set(None, range(12, 12)).unwrap());
    // What both have had stays the other one's.
    assert_eq!(unlock(&mut client, A.lock(file, 0, 0)), LockStatus::Granted);
    assert_eq!(
        local.in_the_way(Kind::Exclusive, ByteRange::ALL).unwrap(),
        Some((Kind::Shared, range(15, 24)))
    );
    // Who waits for somebody outside has it soon after that one has gone.
    assert_eq!(wait(&mut client, A.lock(file, 0, 5)), LockStatus::Blocked);
    drop(local);
    let local = outside(&folder.path().join("file"));
    eventually("the lock is given", || {
        local.in_the_way(Kind::Shared, ByteRange::ALL).unwrap() == Some((Kind::Exclusive, range(0, 4)))
    });
    assert_eq!(wait(&mut client, A.lock(file, 0, 5)), LockStatus::Granted);
    assert_eq!(unlock(&mut client, A.lock(file, 0, 0)), LockStatus::Granted);
    assert_eq!(unlock(&mut client, B.lock(file, 0, 0)), LockStatus::Granted);
    assert_eq!(local.in_the_way(Kind::Exclusive, ByteRange::ALL).unwrap(), None);
}

#[test]
fn who_waits_is_given_the_lock_in_turn() {
    let (_folder, _server, mut client, file) = served();
    let [c, d] = [&b"c"[..], b"d"].map(|host| Who { host, process: 1 });
    assert_eq!(take(&mut client, A.lock(file, 0, 10), true), LockStatus::Granted);
    assert_eq!(wait(&mut client, B.lock(file, 0, 10)), LockStatus::Blocked);
    assert_eq!(wait(&mut client, c.lock(file, 0, 10)), LockStatus::Blocked);
    assert_eq!(wait(&mut client, d.lock(file, 0, 10)), LockStatus::Blocked);
    assert_eq!(wait(&mut client, B.lock(file, 0, 10)), LockStatus::Blocked);
    let cancel =
        LockRequest::Cancel { cookie: COOKIE, block: true, exclusive: true, lock: c.lock(file, 0, 10) };
    assert_eq!(status(&mut client, &cancel), LockStatus::Granted);
    assert_eq!(unlock(&mut client, A.lock(file, 0, 10)), LockStatus::Granted);
    // It cannot be told here, but asks again.
    assert_eq!(test(&mut client, A, file), Some((true, 1, 0, 10)));
    assert_eq!(wait(&mut client, B.lock(file, 0, 10)), LockStatus::Granted);
    assert_eq!(wait(&mut client, A.lock(file, 0, 10)), LockStatus::Blocked);
    assert_eq!(unlock(&mut client, B.lock(file, 0, 10)), LockStatus::Granted);
    assert_eq!(wait(&mut client, A.lock(file, 0, 10)), LockStatus::Blocked);
    assert_eq!(wait(&mut client, d.lock(file, 0, 10)), LockStatus::Granted);
    // Who is given a lock that it does not know of gives it back so, too.
    assert_eq!(unlock(&mut client, d.lock(file, 0, 10)), LockStatus::Granted);
    let cancel =
        LockRequest::Cancel { cookie: COOKIE, block: true, exclusive: true, lock: A.lock(file, 0, 10) };
    assert_eq!(status(&mut client, &cancel), LockStatus::Granted);
    assert_eq!(test(&mut client, B, file), None);
}

#[test]
fn a_late_copy_of_a_call_does_nothing() {
    let (_folder, _server, mut client, file) = served();
    assert_eq!(take(&mut client, A.lock(file, 0, 10), true), LockStatus::Granted);
    let give_back = LockRequest::Unlock { cookie: COOKIE, lock: A.lock(file, 0, 10) };
    assert_eq!(status(&mut client, &give_back), LockStatus::Granted);
    let xid = client.xid;
    assert_eq!(take(&mut client, A.lock(file, 0, 10), true), LockStatus::Granted);
    client.xid = xid - 1;
    assert_eq!(status(&mut client, &give_back), LockStatus::Granted);
    assert_eq!(test(&mut client, B, file), Some((true, 1, 0, 10)));
    client.xid = xid + 10;
    assert_eq!(status(&mut client, &give_back), LockStatus::Granted);
    assert_eq!(test(&mut client, B, file), None);
}

#[test]
fn what_cannot_be_locked_is_refused() {
    let (_folder, server, mut client, file) = served();
    let root = client.root;
    assert_eq!(take(&mut client, A.lock(root, 0, 0), true), LockStatus::Failed);
    let far = [(1 << 63, 1), (u64::MAX, 0), (u64::MAX, 2), (2, u64::MAX)];
    for (offset, length) in far {
        assert_eq!(take(&mut client, A.lock(file, offset, length), true), LockStatus::FBig);
    }
    // What Linux takes for the end.
    assert_eq!(take(&mut client, A.lock(file, 7, i64::MAX as u64 - 7 + 1), true), LockStatus::Granted);
    assert_eq!(test(&mut client, B, file), Some((true, 1, 7, 0)));
    assert_eq!(client.remove(root, b"file"), iogate_nfs::wire::Status::Ok);
    assert_eq!(take(&mut client, A.lock(file, 0, 1), true), LockStatus::Stale);
    assert_eq!(unlock(&mut client, A.lock(file, 0, 0)), LockStatus::Granted);
    let nonsense = FileHandle::new(b"nonsense").unwrap();
    assert_eq!(take(&mut client, A.lock(nonsense, 0, 1), true), LockStatus::Stale);
    for procedure in [6, 11, 24] {
        let record = client.call_raw(LOCK_PROGRAM, LOCK_VERSION, procedure, &[]);
        assert_eq!(take_reply(&mut Reader::new(&record)).unwrap().1, Some(Accepted::NoProcedure));
    }
    let record = client.call_raw(LOCK_PROGRAM, LOCK_VERSION, 2, &[0; 5]);
    assert_eq!(take_reply(&mut Reader::new(&record)).unwrap().1, Some(Accepted::GarbageArgs));
    let record = client.call_raw(LOCK_PROGRAM, 3, 0, &[]);
    let versions = Some(Accepted::Versions { low: 4, high: 4 });
    assert_eq!(take_reply(&mut Reader::new(&record)).unwrap().1, versions);
    drop(server);
}

#[test]
fn who_may_neither_read_nor_write_may_not_lock() {
    if !common::is_root() {
        return;
    }
    let (_folder, server, mut client, file) = served();
    let mut other = Client::connect(&server);
    other.credential = user(1000, 1000, &[]);
    assert_eq!(take(&mut other, B.lock(file, 0, 1), false), LockStatus::Failed);
    let root = client.root;
    let readable = client.create(root, b"readable", 0o644).unwrap();
    assert_eq!(take(&mut other, B.lock(readable, 0, 1), true), LockStatus::Granted);
}

#[test]
fn nothing_is_locked_for_itself_where_nothing_can_be_changed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"").unwrap();
    let server = serve(folder.path(), How { read_only: true, ..How::default() });
    let mut client = Client::connect(&server);
    let root = client.root;
    let file = client.look_up(root, b"file").unwrap();
    assert_eq!(take(&mut client, A.lock(file, 0, 0), true), LockStatus::RoFs);
    assert_eq!(take(&mut client, A.lock(file, 0, 0), false), LockStatus::Granted);
    assert_eq!(take(&mut client, B.lock(file, 0, 0), false), LockStatus::Granted);
}

#[test]
fn a_client_that_was_started_again_has_nothing() {
    let (_folder, _server, mut client, file) = served();
    let all = |who: Who| who.lock(file, 0, 0);
    assert_eq!(take(&mut client, all(A), true), LockStatus::Granted);
    let free = LockRequest::FreeAll { host: Opaque(b"a"), state: 3 };
    call(&mut client, &free);
    assert_eq!(take(&mut client, all(B), true), LockStatus::Granted);
    // By its machine, which says its name.
    assert_eq!(wait(&mut client, all(A)), LockStatus::Blocked);
    let mut arguments = Vec::new();
    let notify = StatusRequest::Notify { host: Opaque(b"b"), state: 5 };
    notify.put(&mut arguments);
    let record = client.call_raw(STATUS_PROGRAM, STATUS_VERSION, notify.procedure(), &arguments);
    results(&record).end().unwrap();
    assert_eq!(wait(&mut client, all(A)), LockStatus::Granted);
    // By itself, when it locks again: its number has grown, over its end, too.
    let other = |state| {
        let LockRequest::Lock { cookie, block, exclusive, reclaim, monitored, .. } = request(all(A), true)
        else {
            unreachable!()
        };
        let lock = Who { process: 9, ..A }.lock(file, 0, 0);
        LockRequest::Lock { cookie, block, exclusive, lock, reclaim, state, monitored }
    };
    assert_eq!(status(&mut client, &other(0)), LockStatus::Denied);
    assert_eq!(status(&mut client, &other(u32::MAX)), LockStatus::Denied);
    assert_eq!(status(&mut client, &other(u32::MAX - 2)), LockStatus::Denied);
    assert_eq!(status(&mut client, &other(1)), LockStatus::Granted);
}

#[test]
fn locks_are_kept_for_who_had_them_when_the_server_is_started_again() {
    if !common::is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let how = How { keeps_places: true, ..How::default() };
    let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
    let server = serve_at(folder.path(), how, listener());
    let mut client = Client::connect(&server);
    let root = client.root;
    let file = client.create(root, b"file", 0o600).unwrap();
    assert_eq!(reclaim(&mut client, A.lock(file, 0, 10)), LockStatus::Grace);
    assert_eq!(take(&mut client, A.lock(file, 0, 10), true), LockStatus::Granted);
    // A test says nothing of who has nothing.
    assert_eq!(test(&mut client, B, file), Some((true, 1, 0, 10)));
    drop(server);

    let server = serve_at(folder.path(), how, listener());
    let mut client = Client::connect(&server);
    assert_eq!(take(&mut client, B.lock(file, 0, 10), true), LockStatus::Grace);
    assert_eq!(take(&mut client, A.lock(file, 0, 10), true), LockStatus::Grace);
    assert_eq!(reclaim(&mut client, B.lock(file, 20, 10)), LockStatus::Denied);
    assert_eq!(reclaim(&mut client, A.lock(file, 0, 10)), LockStatus::Granted);
    let local = outside(&folder.path().join("file"));
    assert!(!local.set(Some(Kind::Shared), ByteRange::ALL).unwrap());
    assert_eq!(unlock(&mut client, A.lock(file, 0, 10)), LockStatus::Granted);
    assert!(local.set(Some(Kind::Shared), ByteRange::ALL).unwrap());
    drop(server);
}

#[test]
fn ways_to_open_a_file_are_denied() {
    let (_folder, _server, mut client, file) = served();
    let share = |who: Who, denies, does| Share {
        host: Opaque(who.host),
        file,
        owner: Opaque(b"owner"),
        denies,
        does,
    };
    let mut ask = |share| status(&mut client, &LockRequest::Share { cookie: COOKIE, share, reclaim: false });
    assert_eq!(ask(share(A, 2, 1)), LockStatus::Granted);
    assert_eq!(ask(share(B, 0, 2)), LockStatus::Denied);
    assert_eq!(ask(share(B, 1, 1)), LockStatus::Denied);
    assert_eq!(ask(share(B, 2, 1)), LockStatus::Granted);
    let unshare = LockRequest::Unshare { cookie: COOKIE, share: share(A, 2, 1), reclaim: false };
    assert_eq!(status(&mut client, &unshare), LockStatus::Granted);
    let mut ask = |share| status(&mut client, &LockRequest::Share { cookie: COOKIE, share, reclaim: false });
    assert_eq!(ask(share(B, 3, 3)), LockStatus::Granted);
    assert_eq!(ask(share(A, 0, 1)), LockStatus::Denied);
}

/// What somebody does to the first bytes of a file.
#[derive(Clone, Copy, Debug)]
enum Step {
    Take { who: usize, first: u64, length: u64, exclusive: bool },
    GiveBack { who: usize, first: u64, length: u64 },
    Restart { host: usize },
}

const BYTES: u64 = 12;
const OWNERS: [Who; 4] = [
    Who { host: b"a", process: 1 },
    Who { host: b"a", process: 2 },
    Who { host: b"b", process: 1 },
    Who { host: b"b", process: 2 },
];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let span = || (0..OWNERS.len(), 0..BYTES, 1..BYTES);
    let step = prop_oneof![
        6 => (span(), any::<bool>()).prop_map(|((who, first, length), exclusive)| {
            Step::Take { who, first, length, exclusive }
        }),
        4 => span().prop_map(|(who, first, length)| Step::GiveBack { who, first, length }),
        1 => (0..2usize).prop_map(|host| Step::Restart { host }),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Byte by byte: who has it, and how. What is taken on the file is what all have together.
    #[test]
    fn a_naive_model_has_the_same_locks(steps in steps()) {
        let (folder, _server, mut client, file) = served();
        let local = outside(&folder.path().join("file"));
        let mut model: BTreeMap<(usize, u64), bool> = BTreeMap::new();
        let bytes = |first: u64, length: u64| first..first + length;
        for step in steps {
            match step {
                Step::Take { who, first, length, exclusive } => {
                    let is_free = !model.iter().any(|(&(other, byte), &theirs)| {
                        other != who && bytes(first, length).contains(&byte) && (exclusive || theirs)
                    });
                    let said = take(&mut client, OWNERS[who].lock(file, first, length), exclusive);
                    prop_assert_eq!(said == LockStatus::Granted, is_free);
                    if is_free {
                        model.extend(bytes(first, length).map(|byte| ((who, byte), exclusive)));
                    }
                }
                Step::GiveBack { who, first, length } => {
                    unlock(&mut client, OWNERS[who].lock(file, first, length));
                    model.retain(|&(other, byte), _| other != who || !bytes(first, length).contains(&byte));
                }
                Step::Restart { host } => {
                    let name = OWNERS[host * 2].host;
                    call(&mut client, &LockRequest::FreeAll { host: Opaque(name), state: 1 });
                    model.retain(|&(other, _), _| OWNERS[other].host != name);
                }
            }
            for byte in 0..2 * BYTES {
                let range = ByteRange::new(byte, byte).unwrap();
                let had: Vec<bool> =
                    model.iter().filter(|((_, at), _)| *at == byte).map(|(_, exclusive)| *exclusive).collect();
                let expected = match had.as_slice() {
                    [] => None,
                    [true] => Some(Kind::Exclusive),
                    _ => Some(Kind::Shared),
                };
                let found = local.in_the_way(Kind::Exclusive, range).unwrap().map(|(kind, _)| kind);
                prop_assert_eq!(found, expected, "byte {}", byte);
            }
        }
    }
}
