//! Calls that a killed server was carrying out: the next one answers them as the first would have done, and what they do is done once.

mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use common::*;
use iogate_core::answers::{HEADER_BYTES, NameIntent, Note as AnswerNote, State};
use iogate_core::wire::{Identity, Record, Request as KindOf};
use iogate_engine::store::DirectoryStore;
use iogate_nfs::rpc::Call;
use iogate_nfs::wire::*;
use iogate_nfs::xdr::Reader;
use iogate_vfs::DirectoryTree;
use iogate_vfs::answers::Begun;
use iogate_vfs::held::HeldTree;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

/// The number of the first call that is noted.
const FIRST: u32 = 7000;
/// The kind of a SETATTR's intent.
const SET_ATTR: u16 = 0;

/// Handles last over the kill, whoever runs the tests.
fn keeping() -> How {
    How { keeps_answers: true, keeps_places: !is_root(), ..How::default() }
}

/// Which file has this path; none if there is none.
fn identity_of(folder: &Path, path: &str) -> Option<Identity> {
    let tree = DirectoryTree::new(folder, Arc::new(DirectoryStore::new(folder).unwrap())).unwrap();
    let held = tree.hold_path(Path::new(path)).ok()?;
    Some(tree.known(&held).unwrap().identity)
}

/// A call whose intent is in the log, and what it noted.
struct Noted<'a> {
    call: Request<'a>,
    kind: u16,
    file: Identity,
    other: Identity,
    had: u8,
}

/// Leaves a log as a server does that is killed when it has noted these calls and answered none of them.
fn note(folder: &Path, client: &mut Client, calls: &[Noted<'_>]) {
    let answers = Arc::new(kept_answers(folder));
    for (xid, Noted { call, kind, file, other, had }) in (FIRST..).zip(calls) {
        client.xid = xid;
        let record = client.record(call);
        let key = iogate_nfs::answers::key([127, 0, 0, 1].into(), xid, call.procedure(), &record);
        let (kind, file, other, had) = (*kind, *file, *other, *had);
        let Begun::New(running) = answers.begin(key, 0, &[]) else { panic!("it is known") };
        running.intend(&NameIntent { kind, file, other, had, path: &record, to: &[] }).unwrap();
    }
}

/// Has a call carried out by a server that is killed before the answer is in its log, and sends it again to the next server. `between` is
/// done to the folder before that one. Returns both answers, and the second server with its client.
fn twice(
    folder: &Path,
    call: &dyn Fn(&mut Client) -> Request<'static>,
    between: &dyn Fn(&Path),
) -> (Reply, Reply, iogate_nfs::Server, Client) {
    let server = serve(folder, keeping());
    let mut client = Client::connect(&server);
    let call = call(&mut client);
    let first = client.call(&call);
    let (xid, credential) = (client.xid, client.credential);
    drop(server);
    // The log ends within the note of the answer, behind that of the intent.
    let log = std::fs::OpenOptions::new().write(true).open(folder.join(".iogate/nfs-answers")).unwrap();
    log.set_len(log.metadata().unwrap().len() - 1).unwrap();
    drop(log);
    between(folder);

    let server = serve(folder, keeping());
    let mut client = Client::connect(&server);
    (client.xid, client.credential) = (xid - 1, credential);
    let again = client.call(&call);
    (first, again, server, client)
}

/// What an answer says that is the same whenever it is given: the status, the handle, and attributes without times.
fn said(reply: &Reply) -> (Status, Option<FileHandle>, Option<Fattr>) {
    let timeless = |attr: Option<Fattr>| {
        let none = Time { seconds: 0, nanoseconds: 0 };
        attr.map(|attr| Fattr { atime: none, mtime: none, ctime: none, ..attr })
    };
    match reply {
        Reply::SetAttr(status, wcc) => (*status, None, timeless(wcc.after)),
        Reply::Made { result: Ok((file, attr)), .. } => (Status::Ok, *file, timeless(*attr)),
        Reply::Made { result: Err(status), .. } => (*status, None, None),
        other => panic!("{other:?}"),
    }
}

/// Sets the times of a file to others.
fn touch(path: &Path) {
    let then = Timespec { tv_sec: 1_234_567, tv_nsec: 0 };
    let times = Timestamps { last_access: then, last_modification: then };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Of calls that a killed server had noted, some before and some after they took effect.
#[test]
fn what_was_underway_at_a_kill_is_done_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let root = client.root;
    for name in ["removed", "kept", "from", "stays"] {
        std::fs::write(path(name), name).unwrap();
    }
    let file = client.look_up(root, b"kept").unwrap();
    let place = |name| Place { dir: root, name };
    let attr = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    let rename = |from, to| Request::Rename { from: place(from), to: place(to) };
    let link = |name| Request::Link { file, place: place(name) };
    // What is called, the kind of its intent, the two files that it concerns, and whether it took effect.
    let calls = [
        (Request::Remove(place(b"removed")), KindOf::UNLINK, "removed", "", true),
        (Request::Remove(place(b"kept")), KindOf::UNLINK, "kept", "", false),
        (rename(b"from", b"to"), KindOf::RENAME, "from", "to", true),
        (rename(b"stays", b"went"), KindOf::RENAME, "stays", "went", false),
        (Request::MkDir { place: place(b"dir"), attr }, KindOf::MAKE_NODE, "dir", "", true),
        (
            Request::Create { place: place(b"new"), how: CreateHow::Guarded(attr) },
            KindOf::OPEN,
            "new",
            "",
            true,
        ),
        (
            Request::SymLink { place: place(b"link"), attr: SetAttr::default(), target: b"x" },
            KindOf::SYMLINK,
            "link",
            "",
            false,
        ),
        (link(b"second"), KindOf::LINK, "kept", "second", true),
    ];
    drop(server);
    let identity = |name: &str| match name {
        "" => Identity::default(),
        name => identity_of(folder.path(), name).unwrap_or_default(),
    };
    let noted = calls.map(|(call, kind, first, second, _)| Noted {
        call,
        kind,
        file: identity(first),
        other: identity(second),
        had: 0,
    });
    note(folder.path(), &mut client, &noted);
    std::fs::hard_link(path("kept"), path("second")).unwrap();
    std::fs::remove_file(path("removed")).unwrap();
    std::fs::rename(path("from"), path("to")).unwrap();
    std::fs::create_dir(path("dir")).unwrap();
    std::fs::write(path("new"), "").unwrap();
    let new = std::fs::metadata(path("new")).unwrap().ino();

    let server = serve(folder.path(), How { keeps_answers: true, ..How::default() });
    let mut client = Client::connect(&server);
    client.xid = FIRST - 1;
    for (call, .., was_done) in &calls {
        let status = match client.call(call) {
            Reply::Removed(status, _) | Reply::Rename { status, .. } | Reply::Link { status, .. } => status,
            Reply::Made { result, .. } => result.err().unwrap_or(Status::Ok),
            other => panic!("{other:?}"),
        };
        assert_eq!(status, Status::Ok, "{call:?}, done before: {was_done}");
    }
    let there = |name: &str| path(name).symlink_metadata().is_ok();
    for (name, is_there) in [
        ("removed", false),
        ("kept", false),
        ("from", false),
        ("to", true),
        ("stays", false),
        ("went", true),
        ("dir", true),
        ("link", true),
        ("second", true),
    ] {
        assert_eq!(there(name), is_there, "{name}");
    }
    assert_eq!(std::fs::metadata(path("new")).unwrap().ino(), new);
}

/// A name that no file system has: its look-up fails, and not because nothing is there.
#[test]
fn what_cannot_be_looked_up_after_a_kill_is_not_taken_for_removed() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let call = Request::Remove(Place { dir: client.root, name: &[b'x'; 256] });
    drop(server);
    let identity = |inode| Identity { inode, generation: inode };
    let noted = Noted { call, kind: KindOf::UNLINK, file: identity(5), other: identity(0), had: 0 };
    note(folder.path(), &mut client, &[noted]);
    let server = serve(folder.path(), How { keeps_answers: true, ..How::default() });
    let mut client = Client::connect(&server);
    client.xid = FIRST - 1;
    let Reply::Removed(status, _) = client.call(&call) else { panic!("another answer") };
    assert_eq!(status, Status::Io);
}

/// A handle that the next server cannot find does not tell that its directory is gone.
#[test]
fn what_a_lost_handle_leads_to_is_not_taken_for_removed() {
    if is_root() {
        // Its handles are the kernel's, which are not lost.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("dir")).unwrap();
    std::fs::write(folder.path().join("dir/f"), "there").unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let dir = client.look_up(client.root, b"dir").unwrap();
    let call = Request::Remove(Place { dir, name: b"f" });
    drop(server);
    let file = identity_of(folder.path(), "dir/f").unwrap();
    let noted = Noted { call, kind: KindOf::UNLINK, file, other: Identity::default(), had: 0 };
    note(folder.path(), &mut client, &[noted]);
    let server = serve(folder.path(), How { keeps_answers: true, ..How::default() });
    let mut client = Client::connect(&server);
    client.xid = FIRST - 1;
    let Reply::Removed(status, _) = client.call(&call) else { panic!("another answer") };
    assert_ne!(status, Status::Ok);
}

/// What tells after a kill what each has done: the name was no other's between its look-up and its outcome.
#[test]
fn a_name_has_one_intent_at_a_time_in_the_log() {
    const CLIENTS: u32 = 4;
    const ROUNDS: u32 = 100;
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How { keeps_answers: true, ..How::default() });
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let server = &server;
            scope.spawn(move || {
                let mut connected = Client::connect(server);
                // All are from the same address.
                connected.xid = (client + 1) << 16;
                let dir = connected.root;
                for index in 0..ROUNDS {
                    let (name, other) = (format!("{index}"), format!("other-{}", index % 7));
                    let (place, to) =
                        (Place { dir, name: name.as_bytes() }, Place { dir, name: other.as_bytes() });
                    connected.call(&Request::MkDir { place, attr: SetAttr::default() });
                    connected.call(&Request::Rename { from: place, to });
                    connected.call(&Request::RmDir(to));
                }
            });
        }
    });
    drop(server);
    let log = std::fs::read(folder.path().join(".iogate/nfs-answers")).unwrap();
    let (mut rest, mut underway, mut intents) = (&log[HEADER_BYTES..], BTreeMap::new(), 0);
    while let Some((note, behind)) = AnswerNote::split_from(rest) {
        rest = behind;
        let State::Intent = note.state else {
            underway.retain(|_, key| *key != note.key);
            continue;
        };
        let intent = NameIntent::decode(note.bytes).unwrap();
        let mut from = Reader::new(intent.path);
        let call = Call::take(&mut from).unwrap();
        let names = match Request::take(call.procedure, &mut from).unwrap().unwrap() {
            Request::MkDir { place, .. } | Request::RmDir(place) => vec![place.name],
            Request::Rename { from, to } => vec![from.name, to.name],
            other => panic!("{other:?}"),
        };
        for name in names {
            let before = underway.insert(name.to_vec(), note.key);
            assert_eq!(before, None, "{} of two", String::from_utf8_lossy(name));
        }
        intents += 1;
    }
    assert_eq!((underway.len(), intents), (0, CLIENTS * ROUNDS * 3));
}

#[test]
fn a_guarded_change_is_answered_as_it_would_have_been() {
    let new = || {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "content").unwrap();
        // Servers have no umask.
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
        folder
    };
    let of = |folder: &Path| {
        let found = std::fs::metadata(folder.join("file")).unwrap();
        (found.permissions().mode() & 0o7777, found.len())
    };
    let attr = SetAttr { mode: Some(0o640), size: Some(3), ..SetAttr::default() };
    let guarded = |client: &mut Client, later: u32| {
        let file = client.look_up(client.root, b"file").unwrap();
        let ctime = client.attr(file).unwrap().ctime;
        Request::SetAttr { file, attr, guard: Some(Time { seconds: ctime.seconds + later, ..ctime }) }
    };

    // It was done: its guard does not fit any more because of that.
    let folder = new();
    let (first, again, _server, mut client) = twice(folder.path(), &|client| guarded(client, 0), &|_| {});
    assert_eq!(said(&first).0, Status::Ok);
    assert_eq!(said(&again), said(&first));
    assert_eq!(of(folder.path()), (0o640, 3));
    let other = guarded(&mut client, 1);
    assert_eq!(said(&client.call(&other)).0, Status::NotSync, "another call has its own guard");

    // It was to fail, by its guard and by its permissions.
    let folder = new();
    let before = of(folder.path());
    let (first, again, ..) = twice(folder.path(), &|client| guarded(client, 1), &|_| {});
    assert_eq!(said(&first).0, Status::NotSync);
    assert_eq!(said(&again), said(&first));
    if is_root() {
        let as_another = |client: &mut Client| {
            let call = guarded(client, 0);
            client.credential = user(1001, 1001, &[]);
            call
        };
        let (first, again, ..) = twice(folder.path(), &as_another, &|_| {});
        assert_eq!(said(&first).0, Status::Access);
        assert_eq!(said(&again), said(&first));
    }
    assert_eq!(of(folder.path()), before);

    // It was not done, and its guard does not fit because of another one, whose data stays.
    let folder = new();
    let server = serve(folder.path(), keeping());
    let mut client = Client::connect(&server);
    let call = guarded(&mut client, 0);
    drop(server);
    let none = Identity::default();
    note(folder.path(), &mut client, &[Noted { call, kind: SET_ATTR, file: none, other: none, had: 1 }]);
    std::fs::write(folder.path().join("file"), "written since").unwrap();
    let server = serve(folder.path(), keeping());
    let mut client = Client::connect(&server);
    client.xid = FIRST - 1;
    assert_eq!(said(&client.call(&call)).0, Status::Io);
    assert_eq!(of(folder.path()), (0o644, 13));
    drop(server);

    // It was not done.
    let folder = new();
    let server = serve(folder.path(), keeping());
    let mut client = Client::connect(&server);
    let before = of(folder.path());
    let call = guarded(&mut client, 0);
    drop(server);
    let (file, other, had) = (Identity::default(), Identity::default(), 1);
    note(folder.path(), &mut client, &[Noted { call, kind: SET_ATTR, file, other, had }]);
    let server = serve(folder.path(), keeping());
    let mut client = Client::connect(&server);
    client.xid = FIRST - 1;
    assert_eq!(of(folder.path()), before);
    assert_eq!(said(&client.call(&call)).0, Status::Ok);
    assert_eq!(of(folder.path()), (0o640, 3));
}

#[test]
fn an_exclusive_file_is_made_once() {
    const MINE: [u8; 8] = [0xff, 2, 3, 4, 0xff, 6, 7, 8];
    let create = |client: &Client, verifier| {
        let place = Place { dir: client.root, name: b"lock" };
        Request::Create { place, how: CreateHow::Exclusive(verifier) }
    };
    let lock = |folder: &Path| folder.join("lock");

    // It was done, wholly or without the verifier.
    for between in [&(|_: &Path| {}) as &dyn Fn(&Path), &|folder: &Path| touch(&lock(folder))] {
        let folder = tempfile::tempdir().unwrap();
        let (first, again, _server, mut client) =
            twice(folder.path(), &|client| create(client, MINE), between);
        let (status, made, _) = said(&first);
        assert_eq!(status, Status::Ok);
        assert_eq!(said(&again), said(&first));
        // The file knows by whom it was made.
        let (mine, other) = (create(&client, MINE), create(&client, [0xff, 2, 3, 5, 0xff, 6, 7, 8]));
        assert_eq!(client.made(&mine), Ok(made.unwrap()));
        assert_eq!(client.made(&other), Err(Status::Exist));
    }

    // It was not done.
    let folder = tempfile::tempdir().unwrap();
    let remove = |folder: &Path| std::fs::remove_file(lock(folder)).unwrap();
    let (first, again, ..) = twice(folder.path(), &|client| create(client, MINE), &remove);
    assert_eq!((said(&first).0, said(&again).0), (Status::Ok, Status::Ok));
    assert_eq!(std::fs::metadata(lock(folder.path())).unwrap().len(), 0);

    // It was to fail: somebody else's file is there.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(lock(folder.path()), "another's").unwrap();
    let (first, again, ..) = twice(folder.path(), &|client| create(client, MINE), &|_| {});
    assert_eq!((said(&first).0, said(&again).0), (Status::Exist, Status::Exist));
    assert_eq!(std::fs::read(lock(folder.path())).unwrap(), b"another's");
}

#[test]
fn a_node_is_made_once_with_all_its_attributes() {
    const THEN: Time = Time { seconds: 1_000_000_000, nanoseconds: 0 };
    let attr = SetAttr { mode: Some(0o640), mtime: SetTime::To(THEN), ..SetAttr::default() };
    let node = |folder: &Path| folder.join("node");
    for (made, is_fifo) in [(Node::Fifo(attr), true), (Node::Socket(attr), false)] {
        let make = |client: &mut Client| Request::MkNod {
            place: Place { dir: client.root, name: b"node" },
            node: made,
        };
        // It was done, wholly or without the times; or it was not.
        let (whole, half) = (|_: &Path| {}, |folder: &Path| touch(&node(folder)));
        let remove = |folder: &Path| std::fs::remove_file(node(folder)).unwrap();
        for (between, is_there) in [(&whole as &dyn Fn(&Path), true), (&half, true), (&remove, false)] {
            let folder = tempfile::tempdir().unwrap();
            let (first, again, ..) = twice(folder.path(), &make, between);
            assert_eq!(said(&first).0, Status::Ok);
            if is_there {
                assert_eq!(said(&again), said(&first));
            }
            let Reply::Made { result: Ok((_, Some(attr))), .. } = again else { panic!("{again:?}") };
            assert_eq!((attr.mode, attr.mtime), (0o640, THEN));
            let kind = std::fs::metadata(node(folder.path())).unwrap().file_type();
            assert!(if is_fifo { kind.is_fifo() } else { kind.is_socket() }, "{kind:?}");
        }
        // It was to fail.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(node(folder.path()), "another's").unwrap();
        let (first, again, ..) = twice(folder.path(), &make, &|_| {});
        assert_eq!((said(&first).0, said(&again).0), (Status::Exist, Status::Exist));
        assert_eq!(std::fs::read(node(folder.path())).unwrap(), b"another's");
    }
    let folder = tempfile::tempdir().unwrap();
    let make = |client: &mut Client| {
        let place = Place { dir: client.root, name: b"node" };
        Request::MkNod { place, node: Node::Other(Kind::Regular) }
    };
    let (first, again, ..) = twice(folder.path(), &make, &|_| {});
    assert_eq!((said(&first).0, said(&again).0), (Status::BadType, Status::BadType));
    assert!(!node(folder.path()).exists());
}
