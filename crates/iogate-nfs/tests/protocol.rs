//! What clients send that is wrong, too much, or sent again.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use iogate_nfs::rpc::{Accepted, take_reply};
use iogate_nfs::wire::*;
use iogate_nfs::xdr::Reader;
use iogate_nfs::{Access, Lasting, Limits, Server, ServerConfig};

fn accepted(record: &[u8]) -> Option<Accepted> {
    take_reply(&mut Reader::new(record)).unwrap().1
}

#[test]
fn what_is_not_there_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let versions = Some(Accepted::Versions { low: 3, high: 3 });
    const NFSACL: u32 = 100_227;
    for (program, version, procedure, expected) in [
        (NFSACL, 3, 0, Some(Accepted::NoProgram)),
        (LOCK_PROGRAM, 4, 1, Some(Accepted::GarbageArgs)),
        (STATUS_PROGRAM, 1, 2, Some(Accepted::NoProcedure)),
        (NFS_PROGRAM, 4, 0, versions),
        (NFS_PROGRAM, 2, 1, versions),
        (MOUNT_PROGRAM, 1, 1, versions),
        (NFS_PROGRAM, 3, 22, Some(Accepted::NoProcedure)),
        (MOUNT_PROGRAM, 3, 6, Some(Accepted::NoProcedure)),
        (NFS_PROGRAM, 3, 0, Some(Accepted::Success)),
        (MOUNT_PROGRAM, 3, 0, Some(Accepted::Success)),
        (NFS_PROGRAM, 3, procedure::GETATTR, Some(Accepted::GarbageArgs)),
        (NFS_PROGRAM, 3, procedure::WRITE, Some(Accepted::GarbageArgs)),
    ] {
        let record = client.call_raw(program, version, procedure, &[]);
        assert_eq!(accepted(&record), expected, "{program} {version} {procedure}");
    }
    assert!(matches!(client.mount(b"/elsewhere"), MountReply::Mount(Err(2))));
    assert!(matches!(client.mount(b"/export/../etc"), MountReply::Mount(Err(2))));
    assert!(matches!(client.mount(b"/"), MountReply::Mount(Ok((root, _))) if root == client.root));
    let dir = client.mkdir(client.root, b"dir").unwrap();
    assert!(matches!(client.mount(b"/export/dir/"), MountReply::Mount(Ok((root, _))) if root == dir));
    let exports = client.call_raw(MOUNT_PROGRAM, 3, MountRequest::Exports.procedure(), &[]);
    let exports = MountReply::take(5, &mut Reader::new(&exports[24..])).unwrap();
    let export = Export { path: b"/export".into(), clients: vec![] };
    assert_eq!(exports, Some(MountReply::Exports(vec![export])));
    let mounts = client.call_raw(MOUNT_PROGRAM, 3, MountRequest::Dump.procedure(), &[]);
    let Some(MountReply::Mounts(mounts)) = MountReply::take(2, &mut Reader::new(&mounts[24..])).unwrap()
    else {
        panic!("no list")
    };
    assert!(mounts.iter().any(|mounted| mounted.host == "127.0.0.1" && mounted.path == b"/export/dir/"));
}

#[test]
fn a_path_to_mount_may_lead_through_links_but_not_out_of_the_export() {
    let folder = tempfile::tempdir().unwrap();
    let links = [
        ("relative", "dir"),
        ("dir/back", "../dir/deep"),
        ("absolute", "/export/relative/deep"),
        ("through", "absolute/.."),
        ("above", ".."),
        ("outside", "/etc"),
        ("dir/beside", "../../etc"),
        ("loop", "loop"),
        ("gone", "nothing"),
    ];
    std::fs::create_dir_all(folder.path().join("dir/deep")).unwrap();
    for (name, target) in links {
        std::os::unix::fs::symlink(target, folder.path().join(name)).unwrap();
    }
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let dir = client.look_up(client.root, b"dir").unwrap();
    let deep = client.look_up(dir, b"deep").unwrap();
    let mut mounted = |path: &str| match client.mount(path.as_bytes()) {
        MountReply::Mount(result) => result.map(|(root, _)| root),
        other => panic!("{other:?}"),
    };
    for (path, expected) in [
        ("relative", dir),
        ("relative/./deep", deep),
        ("dir/back", deep),
        ("absolute/", deep),
        ("through", dir),
        ("through/deep/../deep", deep),
    ] {
        assert_eq!(mounted(&format!("/export/{path}")), Ok(expected), "{path}");
    }
    for path in ["above", "outside", "outside/hosts", "dir/beside", "gone", "relative/../.."] {
        assert_eq!(mounted(&format!("/export/{path}")), Err(Status::NoEnt as u32), "{path}");
    }
    assert_eq!(mounted("/export/loop"), Err(Status::Inval as u32));
}

#[test]
fn a_call_that_is_sent_again_is_answered_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let root = client.root;
    client.create(root, b"file", 0o600).unwrap();
    let remove = Request::Remove(Place { dir: root, name: b"file" });
    assert!(matches!(client.call(&remove), Reply::Removed(Status::Ok, _)));
    let again = |client: &mut Client| {
        client.xid -= 1;
        client.call(&remove)
    };
    assert!(matches!(again(&mut client), Reply::Removed(Status::Ok, _)));
    // Also by another connection, as a client comes back.
    let mut other = Client::connect(&server);
    other.xid = client.xid;
    assert!(matches!(again(&mut other), Reply::Removed(Status::Ok, _)));
    assert!(
        matches!(client.call(&remove), Reply::Removed(Status::NoEnt, _)),
        "another number is another call"
    );
    // The number again for something else.
    client.xid -= 1;
    let rmdir = client.call(&Request::Remove(Place { dir: root, name: b"other" }));
    assert!(matches!(rmdir, Reply::Removed(Status::NoEnt, _)));
}

#[test]
fn an_answer_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let how = How { keeps_answers: true, ..How::default() };
    let server = serve(folder.path(), how);
    let mut client = Client::connect(&server);
    let root = client.root;
    client.create(root, b"file", 0o600).unwrap();
    let place = |name| Place { dir: root, name };
    let calls = [
        Request::MkDir { place: place(b"dir"), attr: SetAttr::default() },
        Request::Rename { from: place(b"file"), to: place(b"moved") },
        Request::Remove(place(b"moved")),
        Request::RmDir(place(b"dir")),
    ];
    let first = client.xid;
    let answers: Vec<Reply> = calls.iter().map(|call| client.call(call)).collect();
    drop(server);
    let server = serve(folder.path(), how);
    let mut client = Client::connect(&server);
    client.xid = first;
    let again: Vec<Reply> = calls.iter().map(|call| client.call(call)).collect();
    assert_eq!(again, answers);
    assert!(matches!(client.call(&calls[2]), Reply::Removed(Status::NoEnt, _)), "another number");
}

/// Whether a connection is ended by the server.
fn is_ended(mut stream: &TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    match stream.read(&mut [0; 16]) {
        Ok(count) => count == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

#[test]
fn nonsense_ends_its_connection_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let address = server.address().unwrap();
    let long = (RECORD_BYTES_MAX as u32 + 1) | 1 << 31;
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &long.to_be_bytes(), &[0x80, 0, 0, 4, 1, 2, 3, 4], &[0; 400]]
    {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(bytes).unwrap();
        assert!(is_ended(&stream), "{bytes:?}");
    }
    // Half a record, and nothing more: it costs nobody anything.
    let mut half = TcpStream::connect(address).unwrap();
    half.write_all(&[0x80, 0x10, 0, 0, 1, 2, 3]).unwrap();
    assert!(client.attr(client.root).is_ok());
    drop(half);
    // A call in many fragments, byte by byte.
    let mut record = Vec::new();
    let call = iogate_nfs::rpc::Call {
        xid: 9,
        program: NFS_PROGRAM,
        version: 3,
        procedure: 0,
        credential: iogate_nfs::rpc::Credential::None,
    };
    call.put(&mut record);
    let mut stream = TcpStream::connect(address).unwrap();
    let chunks = record.chunks(7).collect::<Vec<_>>();
    for (index, chunk) in chunks.iter().enumerate() {
        let mark = chunk.len() as u32 | u32::from(index + 1 == chunks.len()) << 31;
        for byte in mark.to_be_bytes().iter().chain(*chunk) {
            stream.write_all(&[*byte]).unwrap();
        }
    }
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut answer = [0; 28];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(accepted(&answer[4..]), Some(Accepted::Success));
}

#[test]
fn who_takes_no_answers_is_bounded_and_costs_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { calls_per_client: 64, bytes_per_client: 4 << 20, ..Limits::default() };
    let server = serve(folder.path(), How { limits, ..How::default() });
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"file", 0o600).unwrap();
    client.write(file, 0, &vec![7; 1 << 20], Stable::Unstable).unwrap();

    let mut greedy = TcpStream::connect(server.address().unwrap()).unwrap();
    let mut record = vec![0; 4];
    let request = Request::Read { file, offset: 0, count: 1 << 20 };
    let credential = user(0, 0, &[]);
    let call = iogate_nfs::rpc::Call {
        xid: 5,
        program: NFS_PROGRAM,
        version: 3,
        procedure: procedure::READ,
        credential,
    };
    call.put(&mut record);
    request.put(&mut record);
    let mark = iogate_nfs::rpc::records::mark(record.len() - 4);
    record[..4].copy_from_slice(&mark);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (stop, record) = (&stop, &record);
        let sender = greedy.try_clone().unwrap();
        scope.spawn(move || {
            let mut sender = sender;
            for _ in 0..100_000 {
                if stop.load(Ordering::SeqCst) || sender.write_all(record).is_err() {
                    return;
                }
            }
        });
        eventually("it has more than it may have", || server.counts().bytes >= 4 << 20);
        for _ in 0..20 {
            let counts = server.counts();
            assert!(counts.underway <= 64, "{counts:?}");
            // One call goes beyond.
            assert!(counts.bytes <= 6 << 20, "{counts:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        // It goes on as it takes its answers.
        let mut answer = vec![0; 1 << 20];
        for _ in 0..200 {
            greedy.read_exact(&mut answer).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
        greedy.shutdown(std::net::Shutdown::Both).unwrap();
    });
    drop(greedy);
    eventually("all is given back", || server.counts().underway == 0);
    assert_eq!(client.read(file, 0, 3), Ok((vec![7; 3], false)), "the same client by another connection");
}

#[test]
fn calls_that_have_begun_to_come_are_bounded_and_come_to_their_end() {
    const CONNECTIONS: usize = 48;
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { bytes_per_client: 4 << 20, ..Limits::default() };
    let server = serve(folder.path(), How { limits, ..How::default() });
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"file", 0o600).unwrap();
    let data = vec![7; 1 << 20];
    let count = data.len() as u32;
    let write =
        client.record(&Request::Write { file, offset: 0, count, stable: Stable::Unstable, data: &data });
    let mut record = iogate_nfs::rpc::records::mark(write.len()).to_vec();
    record.extend_from_slice(&write);

    let (goes_on, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
            let (record, goes_on, answered) = (&record, &goes_on, &answered);
            scope.spawn(move || {
                // The kernel takes some of what the server does not read.
                let (first, rest) = record.split_at(300_000);
                stream.write_all(first).unwrap();
                while !goes_on.load(Ordering::SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
                stream.write_all(rest).unwrap();
                let mut mark = [0; 4];
                stream.read_exact(&mut mark).unwrap();
                answered.fetch_add(1, Ordering::SeqCst);
            });
        }
        eventually("it has as much as it may have", || server.counts().bytes >= 4 << 20);
        for _ in 0..20 {
            // Each thread may have begun one more when there was room.
            let bytes = server.counts().bytes;
            assert!((4 << 20..9 << 20).contains(&bytes), "{bytes}");
            std::thread::sleep(Duration::from_millis(5));
        }
        goes_on.store(true, Ordering::SeqCst);
    });
    assert_eq!(answered.load(Ordering::SeqCst), CONNECTIONS);
    eventually("all is given back", || server.counts().bytes == 0);

    // Nor does a call that never ends keep anything when its connection is over.
    let mut stream = TcpStream::connect(server.address().unwrap()).unwrap();
    stream.write_all(&record[..300_000]).unwrap();
    eventually("it counts", || server.counts().bytes > 1 << 20);
    drop(stream);
    eventually("it counts no more", || server.counts().bytes == 0);
}

#[test]
fn calls_that_come_together_are_all_answered() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"file", 0o600).unwrap();
    // More at once than are taken at once, by number and by bytes; nothing comes behind them that the server would be told of.
    for (count, bytes) in [(500, 0), (12, 1 << 20), (100, 65_000)] {
        let data = vec![1; bytes];
        let mut sender = Client { stream: client.stream.try_clone().unwrap(), ..client };
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for offset in 0..count {
                    let stable = Stable::Unstable;
                    sender.begin(&Request::Write { file, offset, count: bytes as u32, stable, data: &data });
                }
            });
            for _ in 0..count {
                client.receive();
            }
        });
    }
    assert!(client.read(file, 0, 1).is_ok());
}

#[test]
fn the_end_of_a_connection_is_seen_whatever_came_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let client = Client::connect(&server);
    let mut gone = Vec::new();
    for calls in 0..60 {
        let stream = TcpStream::connect(server.address().unwrap()).unwrap();
        let mut one = Client { stream, ..client };
        for _ in 0..calls {
            one.begin(&Request::GetAttr(one.root));
        }
        one.stream.shutdown(std::net::Shutdown::Write).unwrap();
        gone.push(one);
    }
    let began = Instant::now();
    while server.counts().connections > 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", server.counts());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn from_a_port_that_anybody_may_have_only_null_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let access = Access { networks: vec![], any_port: false };
    let limits = Limits { connections_per_client: 5, ..Limits::default() };
    let config = ServerConfig { exports: vec![export(folder.path(), How::default())], access, limits };
    let server = Server::start(config, TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let connect = || TcpStream::connect(server.address().unwrap()).unwrap();
    let root = FileHandle::new(&[]).unwrap();
    let mut client = Client { stream: connect(), xid: 1, credential: user(0, 0, &[]), root };
    for (program, version, procedure, answered) in [
        (NFS_PROGRAM, 3, procedure::NULL, Some(Accepted::Success)),
        (MOUNT_PROGRAM, 3, procedure::NULL, Some(Accepted::Success)),
        (NFS_PROGRAM, 4, 0, Some(Accepted::Versions { low: 3, high: 3 })),
        (NFS_PROGRAM, 3, procedure::FSINFO, None),
        (NFS_PROGRAM, 3, procedure::READ, None),
        (MOUNT_PROGRAM, 3, MountRequest::Exports.procedure(), None),
    ] {
        let record = client.call_raw(program, version, procedure, &[]);
        let (_, accepted) = take_reply(&mut Reader::new(&record)).unwrap();
        assert_eq!(accepted, answered, "{program} {version} {procedure}");
        if answered.is_none() {
            assert_eq!(
                record[4..],
                [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 5],
                "authentication: too weak"
            );
        }
    }
    assert_eq!(server.counts().refused, 3);
    // There is no memory for more than such a call.
    client.send(NFS_PROGRAM, 3, procedure::NULL, &[0; 2000]);
    assert!(is_ended(&client.stream));
    // Half of the room is for who may do more.
    eventually("it is gone", || server.counts().connections == 0);
    let stay = [connect(), connect()];
    assert!(is_ended(&connect()));
    drop(stay);
}

#[test]
fn connections_are_bounded_and_what_was_taken_is_answered_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { connections_per_client: 3, ..Limits::default() };
    let server = serve(folder.path(), How { limits, ..How::default() });
    let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(&server)).collect();
    let refused = TcpStream::connect(server.address().unwrap()).unwrap();
    assert!(is_ended(&refused));
    assert_eq!(server.counts().refused, 1);
    drop(clients.pop());
    eventually("there is room again", || server.counts().connections == 2);
    let client = &mut Client::connect(&server);
    let file = client.create(client.root, b"file", 0o600).unwrap();
    let write = Request::Write { file, offset: 0, count: 4, stable: Stable::FileSync, data: b"last" };
    client.begin(&write);
    // Each of the four clients has asked for the root, and the last one has made the file.
    eventually("it has come", || server.counts().calls >= 6);
    drop(server);
    assert_eq!(std::fs::read(folder.path().join("file")).unwrap(), b"last");
    assert!(matches!(client.end(procedure::WRITE), Reply::Write { result: Ok(_), .. }));
}

#[test]
fn what_is_carried_out_while_a_server_ends_is_answered() {
    for round in 0..100 {
        let folder = tempfile::tempdir().unwrap();
        let server = serve(folder.path(), How::default());
        let client = &mut Client::connect(&server);
        let file = client.create(client.root, b"file", 0o600).unwrap();
        let write = Request::Write { file, offset: 0, count: 4, stable: Stable::FileSync, data: b"last" };
        client.begin(&write);
        // So that the end comes before, while and after it is taken.
        (0..round * 20).for_each(|_| std::hint::spin_loop());
        drop(server);
        if std::fs::read(folder.path().join("file")).unwrap() == b"last" {
            assert!(matches!(client.end(procedure::WRITE), Reply::Write { result: Ok(_), .. }));
        }
    }
}

#[test]
fn a_server_that_comes_back_on_its_port_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let address = server.address().unwrap();
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"file", 0o600).unwrap();
    let (first, _) = client.write(file, 0, b"abc", Stable::Unstable).unwrap();
    drop(server);
    assert!(is_ended(&client.stream));
    let server = serve_at(folder.path(), How::default(), TcpListener::bind(address).unwrap());
    client.stream = TcpStream::connect(address).unwrap();
    if server.lasting() == Lasting::Always {
        let (second, _) = client.write(file, 3, b"def", Stable::Unstable).unwrap();
        assert_eq!(first.verifier, second.verifier, "nothing was lost");
        assert_eq!(client.read(file, 0, 9), Ok((b"abcdef".into(), true)));
    }
}
