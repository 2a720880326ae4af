//! Every message is answered as the protocol says.

use iogate_core::Span;
use iogate_core::blame::Page;
use iogate_core::recording::{Chunk, Event};
use iogate_core::wire::*;

use std::sync::Arc;

use iogate_net::server::Export;
use iogate_vfs::Caller;
use iogate_vfs::users::{IdRange, Squash, Users};

use super::Setup;
use super::raw::{RDWR, Raw, hello, transfer};
use super::tree::MemoryTree;

#[test]
fn data_goes_in_and_out_over_both_kinds_of_socket() {
    let setup = Setup::new();
    for (endpoint, path) in [(setup.tcp(), "tcp"), (setup.unix(), "unix")] {
        let mut client = Raw::greet(endpoint);
        let opened: Opened = client.open(5, path, RDWR).ok();
        assert_eq!(opened.attr.size, 0);
        // From less than one read of the server to many.
        let mut offset = 0;
        for bytes in [1, 4096, 100_000, 3 << 20] {
            let data: Vec<u8> = (0..bytes).map(|at| (at * 7 + bytes) as u8).collect();
            let written: Written = client.write_at(5, offset, &data).ok();
            assert_eq!(written, Written { offset, bytes: bytes as u32, verifier: 0 });
            let reply = client.read_at(5, offset, bytes);
            assert!(reply.payload == data, "{bytes} bytes");
            offset += bytes as u64;
        }
        assert_eq!(client.read_at(5, offset - 3, 100).payload.len(), 3, "the file ends there");
        let attr: Attr = client.ask(&Request::GetAttr(GetAttr { handle: 5, path: b"" }), &[]).ok();
        assert_eq!(attr.size, offset);
        client.ask(&Request::Close(Close { handle: 5 }), &[]).done();
        assert_eq!(client.read_at(5, 0, 1).errno, libc::EBADF);
    }
}

#[test]
fn many_requests_at_once_are_all_answered() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    let mut bytes = Vec::new();
    for id in 0..200u64 {
        let write = transfer(1, id * 100, 100);
        bytes.extend(Raw::bytes(client.next + id, client.acked, &Request::Write(write), &[id as u8; 100]));
    }
    client.write(&bytes);
    let mut ids: Vec<u64> =
        (0..200).map(|_| client.reply()).inspect(|r| assert_eq!(r.errno, 0)).map(|r| r.id).collect();
    ids.sort_unstable();
    assert!(ids.into_iter().eq(client.next..client.next + 200));
    let content = setup.tree.content("f");
    assert!((0..200).all(|id| content[id * 100..][..100] == [id as u8; 100]));
}

#[test]
fn a_welcome_says_what_was_agreed() {
    let setup = Setup::new();
    let client = Raw::greet(setup.tcp());
    let welcome = client.welcome.unwrap();
    assert_eq!((welcome.uid, welcome.gid, welcome.trusted, welcome.resumed), (7, 8, 0, 0));
    assert_eq!((welcome.credits, welcome.transfer_bytes_max), (256, 4 << 20));
    let other = Raw::greet_with(setup.unix(), Hello { export: b"files", ..hello() }).welcome.unwrap();
    assert_eq!(other.uid, rustix::process::getuid().as_raw());
    assert_eq!(other.instance, welcome.instance);
    assert_ne!(other.session, welcome.session);
}

#[test]
fn everything_but_data_is_answered() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.unix());
    let Opened { identity, .. } = client.open(1, "b", RDWR).ok();
    assert_eq!(identity.generation, 1);
    client.write_at(1, 0, b"12345");
    let time: Offset = client.ask(&Request::Ping(Ping {}), &[]).ok();
    assert!(time.offset > 1_600_000_000_000_000_000);
    client.ask(&Request::Sync(Sync { handle: 1, data_only: 1 }), &[]).done();
    client.ask(&Request::Allocate(Allocate { handle: 1, mode: 0, offset: 0, bytes: 9 }), &[]).done();
    let hole: Offset = client.ask(&Request::Seek(Seek { handle: 1, hole: 1, offset: 0 }), &[]).ok();
    assert_eq!(hole.offset, 5);
    let striping: Striping = client.ask(&Request::GetLayout(GetLayout { handle: 1 }), &[]).ok();
    assert_eq!(striping.targets, 1);
    let attr: Attr = client.ask(&Request::GetAttr(GetAttr { handle: NO_HANDLE, path: b"b" }), &[]).ok();
    assert_eq!(attr.size, 5);
    let change = Change::default();
    let set =
        Request::SetAttr(SetAttr { handle: NO_HANDLE, change, identity: Identity::default(), path: b"b" });
    assert_eq!(client.ask(&set, &[]).ok::<Attr>().size, 5);
    let set = Request::SetAttr(SetAttr { handle: 1, change, identity: Identity::default(), path: b"" });
    assert_eq!(client.ask(&set, &[]).ok::<Attr>().size, 5);
    let make = Request::MakeNode(MakeNode { mode: libc::S_IFREG, device: 0, path: b"a" });
    client.ask(&make, &[]).ok::<Attr>();
    let again = client.ask(&make, &[]);
    assert_eq!((again.errno, again.text()), (libc::EEXIST, String::new()));
    client.ask(&Request::Rename(Rename { flags: 0, path: b"a", to: b"c" }), &[]).done();
    let listed = client.ask(&Request::ReadDir(ReadDir { after: 0, bytes: 4096, path: b"" }), &[]).payload;
    let (first, name, rest) = Entry::split_from(&listed).unwrap();
    assert_eq!((first.next, name), (1, &b"b"[..]));
    assert_eq!(Entry::split_from(rest).unwrap().1, b"c");
    let bytes = ENTRY_BYTES as u32 + 3;
    let rest = client.ask(&Request::ReadDir(ReadDir { after: 1, bytes, path: b"" }), &[]).payload;
    assert_eq!(rest.len(), ENTRY_BYTES + 1);
    let tiny = client.ask(&Request::ReadDir(ReadDir { after: 0, bytes: 10, path: b"" }), &[]);
    assert_eq!(tiny.errno, libc::EINVAL);
    let link = Request::Symlink(Symlink { target: b"../x", path: b"l" });
    assert_eq!(client.ask(&link, &[]).errno, libc::EPERM);
    assert_eq!(client.ask(&Request::Link(Link { path: b"b", to: b"l" }), &[]).errno, libc::EMLINK);
    assert_eq!(client.ask(&Request::ReadLink(ReadLink { path: b"link" }), &[]).payload, b"LINK");
    client.ask(&Request::Unlink(Unlink { directory: 0, path: b"c" }), &[]).done();
    assert_eq!(client.ask(&Request::StatFs(StatFs {}), &[]).ok::<Space>().blocks, 77);
    let get = Request::GetXattr(GetXattr { handle: NO_HANDLE, path: b"b", name: b"user.a" });
    assert_eq!(client.ask(&get, &[]).payload, b"user.a");
    let set = Request::SetXattr(SetXattr {
        handle: NO_HANDLE,
        flags: 0,
        identity: Identity::default(),
        path: b"b",
        name: b"user.a",
    });
    client.ask(&set, b"user.a").done();
    assert_eq!(client.ask(&set, b"").errno, libc::ERANGE);
    assert_eq!(
        client.ask(&Request::ListXattr(ListXattr { handle: NO_HANDLE, path: b"b" }), &[]).payload,
        b"user.a\0user.iogate.object\0"
    );
    let remove = Request::RemoveXattr(RemoveXattr {
        handle: NO_HANDLE,
        identity: Identity::default(),
        path: b"b",
        name: b"user.a",
    });
    assert_eq!(client.ask(&remove, &[]).errno, libc::ENODATA);
    client.ask(&Request::Goodbye(Goodbye {}), &[]).done();
    client.write(&Raw::bytes(client.next, client.acked, &Request::Ping(Ping {}), &[]));
    client.is_cut(libc::EPROTO, "a Goodbye is the last request");
}

#[test]
fn what_is_wrong_with_a_request_is_told_and_nothing_more_happens() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.unix());
    for path in ["/etc/passwd", "../x", "a/../../b", "./a", "a\0b"] {
        let reply = client.open(1, path, RDWR);
        assert_eq!(reply.errno, libc::EINVAL, "{path}");
    }
    assert_eq!(client.open(1, &"x".repeat(5000), RDWR).errno, libc::ENAMETOOLONG);
    assert_eq!(client.open(1, "nothing", open::READ).errno, libc::ENOENT);
    assert_eq!(client.open(NO_HANDLE, "f", RDWR).errno, libc::EINVAL);
    client.open(1, "f", open::CREATE | open::READ).ok::<Opened>();
    assert!(client.open(1, "g", RDWR).text().contains("handle 1 is in use"));
    let refused = client.write_at(1, 0, b"x");
    assert_eq!((refused.errno, &refused.text()[..]), (libc::EBADF, "handle 1 is not open for writing"));
    client.open(2, "f", open::WRITE).ok::<Opened>();
    assert_eq!(client.read_at(2, 0, 1).errno, libc::EBADF);
    assert_eq!(client.write_at(2, u64::MAX, b"xx").errno, libc::EINVAL);
    assert_eq!(client.ask(&Request::Close(Close { handle: 9 }), &[]).errno, libc::EBADF);
    assert_eq!(client.read_at(1, 0, 0).payload, b"");
    assert_eq!(client.write_at(2, 7, b"").ok::<Written>(), Written { offset: 7, bytes: 0, verifier: 0 });
}

#[test]
fn callers_are_whom_the_server_takes_them_for() {
    let own = Caller::new(rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let named = Caller::new(4321, 1234);
    let squashed = Caller::new(5, 6);
    let opened_by = |change: &dyn Fn(&mut Export)| {
        let setup = Setup::with(|config| change(&mut config.exports[0]));
        let mut by = [setup.tcp(), setup.unix()].map(|endpoint| {
            Raw::greet(endpoint).open(1, "f", RDWR).ok::<Opened>();
            let caller = setup.tree.caller.lock().unwrap().unwrap();
            Caller::new(caller.uid, caller.gid)
        });
        by.reverse();
        by
    };
    let anonymous = Caller::new(7, 8);
    let trusted = named;
    assert_eq!(opened_by(&|export| export.forwarders = vec![own.uid]), [trusted, anonymous]);
    assert_eq!(opened_by(&|export| export.forwarders = Vec::new()), [own, anonymous]);
    let users = Users::new(Squash::All, squashed, Vec::new(), Vec::new()).unwrap();
    assert_eq!(opened_by(&|export| export.users = users.clone()), [squashed; 2]);
}

#[test]
fn ids_are_mapped_both_ways() {
    let range = IdRange { client: 100, server: 0, count: 1 };
    let users = Users::new(Squash::None, Caller::NOBODY, vec![range], vec![range]).unwrap();
    let setup = Setup::with(|config| config.exports[0].users = users);
    let mut client = Raw::greet(setup.unix());
    let opened: Opened = client.open(1, "f", RDWR).ok();
    assert_eq!((opened.attr.uid, opened.attr.gid), (100, 100), "the file is root's");
    let attr: Attr = client.ask(&Request::GetAttr(GetAttr { handle: 1, path: b"" }), &[]).ok();
    assert_eq!(attr.uid, 100);
    let listed = client.ask(&Request::ReadDir(ReadDir { after: 0, bytes: 4096, path: b"" }), &[]).payload;
    assert_eq!(Entry::split_from(&listed).unwrap().0.attr.gid, 100);
    let change = Change { which: set::UID, uid: 7, ..Change::default() };
    let refused = client
        .ask(&Request::SetAttr(SetAttr { handle: 1, change, identity: Identity::default(), path: b"" }), &[]);
    assert_eq!(refused.errno, libc::EINVAL, "{}", refused.text());
}

#[test]
fn a_read_only_export_is_only_read() {
    let setup = Setup::with(|config| config.exports[0].read_only = true);
    let mut client = Raw::greet(setup.tcp());
    assert_eq!(client.open(1, "f", RDWR).errno, libc::EROFS);
    assert_eq!(client.open(1, "f", open::READ).errno, libc::ENOENT);
    let make = Request::MakeNode(MakeNode { mode: libc::S_IFREG, device: 0, path: b"a" });
    assert_eq!(client.ask(&make, &[]).errno, libc::EROFS);
    assert_eq!(client.ask(&Request::StatFs(StatFs {}), &[]).ok::<Space>().blocks, 77);
}

#[test]
fn exports_are_chosen_by_name() {
    let other = Arc::new(MemoryTree::default());
    let setup = Setup::with(|config| config.exports.push(super::export("other", other.clone())));
    let refused = |export: &'static [u8]| {
        let mut raw = Raw::connect(setup.unix());
        raw.write(&Raw::bytes(0, 0, &Request::Hello(Hello { export, ..hello() }), &[]));
        raw
    };
    refused(b"none").is_cut(libc::ENOENT, "there is no export `none`: this server has files, other");
    let mut client = Raw::greet_with(setup.unix(), Hello { export: b"other", ..hello() });
    client.open(1, "f", RDWR).ok::<Opened>();
    client.write_at(1, 0, b"x");
    assert_eq!(other.content("f"), b"x");
    let mut first = Raw::greet(setup.unix());
    assert_eq!(first.open(1, "f", open::READ).errno, libc::ENOENT, "without a name it is the first one");
}

#[test]
fn the_state_says_in_words_what_requests_look_like() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    for index in 0..32 {
        client.write_at(1, index * 4096, &[0; 4096]);
    }
    let json = client.ask(&Request::Status(Status {}), &[]).payload;
    let status: iogate_net::server::Status = serde_json::from_slice(&json).unwrap();
    let words: Vec<_> = status.exports[0].gate.summary.patterns.iter().map(|of| &of.words[..]).collect();
    assert!(
        matches!(words[..], [one] if one.contains("writes 4 KiB") && one.contains("contiguously")),
        "{words:?}"
    );
}

#[test]
fn the_state_is_told_and_the_scheduler_changed() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    client.write_at(1, 0, &[0; 5000]);
    let json = client.ask(&Request::Status(Status {}), &[]).payload;
    let status: iogate_net::server::Status = serde_json::from_slice(&json).unwrap();
    assert_eq!((status.exports[0].gate.summary.bytes(), status.connection_count), (5000, 1));
    let connection = &status.connections[0];
    assert_eq!((connection.uid, connection.open_files, connection.underway), (Some(7), 1, 1));
    assert_eq!((&connection.name[..], connection.requests), ("test", 3));
    assert!(connection.bytes_in > 5000 && connection.bytes_out > 100);
    assert_eq!(connection.request_sizes.len(), 1);
    assert!(connection.request_sizes[0].bytes >= 5000);
    assert!(connection.tcp.unwrap().congestion_window > 0);
    assert!(connection.peer.starts_with("127.0.0.1:"));

    let configure = Request::Configure(Configure { scheduler: b"scheduler=sjf,age_max=1s" });
    let refused = client.ask(&configure, &[]);
    assert_eq!(refused.errno, libc::EPERM, "user 7 is nobody");
    let recording = |name, from| Request::ReadRecording(ReadRecording { name, from, bytes: 1 << 16 });
    assert_eq!(client.ask(&recording(1, 0), &[]).errno, libc::EPERM, "nor may it see what others do");
    let mut owner = Raw::greet(setup.unix());
    let mut recorded = |name, from| owner.ask(&recording(name, from), &[]);
    assert_eq!(Chunk::decode(&recorded(1, 0).payload), Some(Chunk::default()));
    client.write_at(1, 100, &[0; 7]);
    let chunk = Chunk::decode(&recorded(1, 0).payload).unwrap();
    assert!(matches!(
        chunk.events[..],
        [Event::Arrived { offset: 100, bytes: 7, .. }, Event::Completed { began: Some(_), .. }]
    ));
    assert_eq!(
        Chunk::decode(&recorded(1, 0).payload).unwrap(),
        chunk,
        "the same again until it is acknowledged"
    );
    assert!(Chunk::decode(&recorded(1, 2).payload).unwrap().events.is_empty());
    assert!((2..5).all(|name| recorded(name, 0).errno == 0));
    assert_eq!(recorded(5, 0).errno, libc::EUSERS, "there are four at most");
    assert_eq!((recorded(1, u64::MAX).errno, recorded(1, 2).errno), (0, libc::ESTALE), "it has ended");
    owner.ask(&configure, &[]).done();
    assert_eq!(setup.server.status().exports[0].scheduler, "sjf(age_max=1s)");
    let wrong = owner.ask(&Request::Configure(Configure { scheduler: b"scheduler=sfj" }), &[]);
    assert!(wrong.text().contains("did you mean"), "{}", wrong.text());
}

#[test]
fn accounts_are_told_where_they_are_kept() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    let mut asked = |from| {
        let reply = client.ask(&Request::ReadAccounts(ReadAccounts { from }), &[]);
        serde_json::from_slice::<Option<Page>>(&reply.payload).unwrap()
    };
    assert_eq!(asked(0), None);
    let mut owner = Raw::greet(setup.unix());
    let mut set =
        |text: &'static [u8]| owner.ask(&Request::Configure(Configure { scheduler: text }), &[]).errno;
    assert_eq!(set(b"accounts=on"), 0);
    assert_eq!(asked(0).map(|page| (page.accounts.len(), page.next)), Some((0, None)));
    let mut writer = Raw::greet(setup.unix());
    writer.open(1, "f", RDWR);
    writer.write_at(1, 0, &[0; 5000]);
    let page = asked(0).unwrap();
    assert_eq!((page.accounts.len(), page.names.len()), (1, 1), "{page:?}");
    assert!(page.accounts[0].busy > Span::ZERO && page.at > page.began);
    assert_eq!(asked(u32::MAX).map(|page| page.accounts.len()), Some(0));
    // They go on when they are begun again, and are forgotten when they end.
    assert_eq!((set(b"accounts=on"), asked(0).unwrap().accounts.len()), (0, 1));
    assert_eq!((set(b"accounts=none"), asked(0).unwrap().accounts.len()), (libc::EINVAL, 1));
    // Others are begun anew.
    assert_eq!((set(b"accounts=sampled"), asked(0).unwrap().accounts.len()), (0, 0));
    assert!(asked(0).unwrap().sampled.is_some());
    assert_eq!((set(b"accounts=off"), asked(0)), (0, None));
}

#[test]
fn writes_that_must_be_durable_and_appends_are_answered() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    for (index, flags) in [0, transfer::SYNC, transfer::DATA_SYNC].into_iter().enumerate() {
        let append = Transfer { flags: flags | transfer::APPEND, ..transfer(1, 99, 2) };
        let written: Written = client.ask(&Request::Write(append), b"ab").ok();
        assert_eq!(written, Written { offset: 2 * index as u64, bytes: 2, verifier: 0 });
    }
    let durable = Transfer { flags: transfer::SYNC, ..transfer(1, 1, 2) };
    client.ask(&Request::Write(durable), b"xy").ok::<Written>();
    assert_eq!(setup.tree.content("f"), b"axybab");
}

#[test]
fn appends_of_many_clients_follow_each_other() {
    let setup = Setup::new();
    std::thread::scope(|scope| {
        for name in 0..4u8 {
            let setup = &setup;
            scope.spawn(move || {
                let mut client = Raw::greet(setup.tcp());
                client.open(1, "log", RDWR);
                for count in 0..50u8 {
                    let record = [name, count, 0, 0, 0, 0, 0, 0];
                    let append = Transfer { flags: transfer::APPEND, ..transfer(1, 0, 8) };
                    client.send(&Request::Write(append), &record);
                }
                (0..50).for_each(|_| assert_eq!(client.reply().errno, 0));
            });
        }
    });
    let log = setup.tree.content("log");
    assert_eq!(log.len(), 4 * 50 * 8);
    for name in 0..4 {
        let counts: Vec<u8> =
            log.chunks(8).filter(|record| record[0] == name).map(|record| record[1]).collect();
        assert!(counts.iter().copied().eq(0..50), "in the order in which they were sent: {counts:?}");
    }
}

#[test]
fn locks_are_kept_where_the_files_are_and_nowhere_else() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.unix());
    client.open(1, "f", RDWR).ok::<Opened>();
    let lock = Lock { kind: lock::SHARED, last: 9, ..Lock::default() };
    let refused = client.ask(&Request::SetLock(SetLock { handle: 1, again: 0, session: 0, lock }), &[]);
    assert_eq!(refused.errno, libc::EOPNOTSUPP);
    let refused = client.ask(&Request::GetLock(GetLock { handle: 1, lock }), &[]);
    assert_eq!(refused.errno, libc::EOPNOTSUPP);
}

#[test]
fn the_documentation_has_every_message() {
    let page = include_str!("../../../../docs/protocol.md");
    let headings: Vec<&str> = page.lines().filter(|line| line.starts_with("### ")).collect();
    for (kind, name) in Request::KINDS {
        let named = format!(" {kind} {name}");
        assert!(
            headings.iter().any(|line| line.ends_with(&named) || line.contains(&format!("{named},"))),
            "{named}"
        );
    }
    assert!(page.contains(&format!("The protocol's version: {VERSION}.")));
}
