//! The protocol's bytes, field by field: they stay as they are, or the version changes, or the number of the message.
//!
//! `UPDATE_GOLDEN=1 cargo test -p iogate-core --test wire_golden` writes the table anew: only together with a new version or number.

use std::fmt::Write;

use iogate_core::wire::{
    Allocate, Allotments, AppendRecord, Attr, CLASS_ALLOTMENT_BYTES, CLASS_USE_BYTES, Cancel, Change, Claim,
    Close, Configure, Entry, Evict, Failure, GetAttr, GetLayout, GetLock, GetXattr, Gone, Goodbye, Granted,
    Hello, Identity, Link, ListXattr, Lock, MAGIC, MakeNode, Offset, Open, Opened, Ping, Range, ReadAccounts,
    ReadDir, ReadLink, ReadRecording, Record, Release, RemoveXattr, Rename, Renew, Renewed, ReplyHeader,
    ReportUse, Request, RequestHeader, RequestOrigin, Reserve, Reserved, Resize, Seek, SetAttr, SetLock,
    SetXattr, Settle, Space, StatFs, Status, Striping, Symlink, Sync, Synced, Timestamp, Trail, Transfer,
    Unlink, VERSION, Welcome, Written,
};

const IDENTITY: Identity = Identity { inode: 0x0102, generation: 0x0304 };
const LOCK: Lock = Lock { space: 1, kind: 2, owner: 3, first: 4, last: 5, process: 6 };
const CHANGE: Change = Change {
    which: 1,
    mode: 2,
    uid: 3,
    gid: 4,
    size: 5,
    atime: Timestamp { seconds: -6, nanoseconds: 7 },
    mtime: Timestamp { seconds: 8, nanoseconds: 9 },
};
const ATTR: Attr = Attr {
    inode: 1,
    size: 2,
    blocks: 3,
    atime: Timestamp { seconds: 4, nanoseconds: 5 },
    mtime: Timestamp { seconds: 6, nanoseconds: 7 },
    ctime: Timestamp { seconds: 8, nanoseconds: 9 },
    mode: 10,
    links: 11,
    uid: 12,
    gid: 13,
    device: 14,
    block_bytes: 15,
    flags: 16,
    object: [17; 16],
};

fn requests() -> Vec<Request<'static>> {
    let transfer = Transfer {
        handle: 1,
        flags: 2,
        offset: 3,
        bytes: 4,
        app: 5,
        client: 6,
        issued: 0x0708_090a_0b0c_0d0e,
    };
    let hello = Hello {
        magic: MAGIC,
        version: VERSION,
        auth: 1,
        session: [2; 16],
        node: 3,
        nodes: 4,
        instance: 5,
        client: [6; 16],
        flags: 7,
        export: b"e",
        name: b"na",
    };
    let claim = Claim {
        bytes: 1,
        weight: 2,
        period: 3,
        place: b"p",
        members: &[1, 0, 0, 0],
        party: b"q",
        label: b"l",
    };
    vec![
        Request::Hello(hello),
        Request::Goodbye(Goodbye {}),
        Request::Ping(Ping {}),
        Request::Trail(Trail { links: b"l" }),
        Request::Open(Open { handle: 1, flags: 2, mode: 3, identity: IDENTITY, path: b"a/b" }),
        Request::Close(Close { handle: 1 }),
        Request::Read(transfer),
        Request::Write(transfer),
        Request::Sync(Sync { handle: 1, data_only: 1 }),
        Request::Allocate(Allocate { handle: 1, mode: 2, offset: 3, bytes: 4 }),
        Request::Seek(Seek { handle: 1, hole: 1, offset: 2 }),
        Request::GetLayout(GetLayout { handle: 1 }),
        Request::Reserve(Reserve { handle: 1, ticket: 2, at_least: 3 }),
        Request::Settle(Settle { handle: 1, ticket: 2, end: 3 }),
        Request::GetAttr(GetAttr { handle: 1, path: b"a" }),
        Request::SetAttr(SetAttr { handle: 1, change: CHANGE, identity: IDENTITY, path: b"a" }),
        Request::ReadDir(ReadDir { after: 1, bytes: 2, path: b"a" }),
        Request::MakeNode(MakeNode { mode: 1, device: 2, path: b"a" }),
        Request::Symlink(Symlink { target: b"t", path: b"a" }),
        Request::Link(Link { path: b"a", to: b"b" }),
        Request::ReadLink(ReadLink { path: b"a" }),
        Request::Unlink(Unlink { directory: 1, path: b"a" }),
        Request::Rename(Rename { flags: 1, path: b"a", to: b"b" }),
        Request::StatFs(StatFs {}),
        Request::GetXattr(GetXattr { handle: 1, path: b"a", name: b"n" }),
        Request::SetXattr(SetXattr { handle: 1, flags: 2, identity: IDENTITY, path: b"a", name: b"n" }),
        Request::ListXattr(ListXattr { handle: 1, path: b"a" }),
        Request::RemoveXattr(RemoveXattr { handle: 1, identity: IDENTITY, path: b"a", name: b"n" }),
        Request::Resize(Resize { handle: 1, size: 2 }),
        Request::SetLock(SetLock { handle: 1, again: 2, session: 3, lock: LOCK }),
        Request::GetLock(GetLock { handle: 1, lock: LOCK }),
        Request::Status(Status {}),
        Request::Configure(Configure { scheduler: b"fifo" }),
        Request::ReadRecording(ReadRecording { name: 1, from: 2, bytes: 3 }),
        Request::ReadAccounts(ReadAccounts { from: 1 }),
        Request::Claim(claim),
        Request::Release(Release { token: 1, bytes: 2 }),
        Request::Renew(Renew { token: 1 }),
        Request::Cancel(Cancel { claim: 1 }),
        Request::Evict(Evict { token: 1 }),
        Request::ReportUse(ReportUse {
            gate: 1,
            terms: 2,
            number: 3,
            applied: 4,
            part: 5,
            leaves: 1,
            classes: &[6; CLASS_USE_BYTES],
        }),
    ]
}

fn bytes<'a>(record: &impl Record<'a>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

fn values() -> Vec<(&'static str, Vec<u8>)> {
    let striping = Striping { first_target: 1, stripe_bytes: 2, targets: 3 };
    let welcome = Welcome {
        version: VERSION,
        resumed: 1,
        session: [2; 16],
        instance: 3,
        credits: 4,
        credit_bytes: 5,
        transfer_bytes_max: 6,
        append_bytes_max: 7,
        answers: 8,
        verifier: 9,
        uid: 10,
        gid: 11,
        trusted: 1,
        locks: 1,
        node: 12,
        nodes: 13,
        striping,
        time: 14,
    };
    let space = Space {
        block_bytes: 1,
        blocks: 2,
        blocks_free: 3,
        blocks_available: 4,
        files: 5,
        files_free: 6,
        name_bytes_max: 7,
    };
    let origin = RequestOrigin { client: [9; 16], number: 10, step: 11, unanswered: 12 };
    let header =
        RequestHeader { fields: 1, payload: 2, kind: 3, id: 4, acked: 5, uid: 6, gid: 7, groups: 8, origin };
    let reply = ReplyHeader { fields: 1, payload: 2, errno: 3, id: 4 };
    let record = AppendRecord { client: [1; 16], number: 2, step: 3, uid: 4, bytes: 5 };
    vec![
        ("RequestHeader", header.to_bytes().to_vec()),
        ("ReplyHeader", reply.to_bytes().to_vec()),
        ("AppendRecord", bytes(&record)),
        ("Welcome", bytes(&welcome)),
        ("Failure", bytes(&Failure { text: b"no" })),
        ("Opened", bytes(&Opened { identity: IDENTITY, pending_size: 1, is_new: 1, attr: ATTR })),
        ("Written", bytes(&Written { offset: 1, bytes: 2, verifier: 3 })),
        ("Synced", bytes(&Synced { verifier: 1 })),
        ("Gone", bytes(&Gone { object: [1; 16] })),
        ("Reserved", bytes(&Reserved { ticket: 1, lease: 2, look: 1, writers: 3 })),
        ("Range", bytes(&Range { offset: 1, is_there: 1 })),
        ("Entry", bytes(&Entry { next: 1, name_bytes: 2, attr: ATTR })),
        ("Offset", bytes(&Offset { offset: 1 })),
        ("Lock", bytes(&LOCK)),
        ("Space", bytes(&space)),
        ("Striping", bytes(&striping)),
        (
            "Allotments",
            bytes(&Allotments {
                number: 1,
                lease: 2,
                every: 3,
                part: 4,
                learns: 1,
                classes: &[5; CLASS_ALLOTMENT_BYTES],
            }),
        ),
        ("Granted", bytes(&Granted { token: 1, lease: 2, waited: 3, share: 4, admission: 1 })),
        ("Renewed", bytes(&Renewed { lease: 1 })),
    ]
}

#[test]
fn the_bytes_of_this_version_stay_as_they_are() {
    let requests = requests();
    for (kind, name) in Request::KINDS {
        assert!(requests.iter().any(|request| request.kind() == *kind), "{name} is not in the table");
    }
    let mut table = format!("version {VERSION}\n");
    let mut line = |name: &str, bytes: &[u8]| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(table, "{name} {hex}").unwrap();
    };
    for request in &requests {
        let mut fields = Vec::new();
        request.encode(&mut fields);
        let (kind, name) = Request::KINDS.iter().find(|(kind, _)| *kind == request.kind()).unwrap();
        line(&format!("{kind} {name}"), &fields);
    }
    values().iter().for_each(|(name, bytes)| line(name, bytes));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wire.golden");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap();
    for (found, expected) in table.lines().zip(golden.lines()) {
        assert_eq!(found, expected, "the protocol has changed: that takes a new version");
    }
    assert_eq!(table.lines().count(), golden.lines().count());
}
