//! Several exports of one server: which is mounted by which path, what is each one's own, and what does not go from one to another.

mod common;

use std::net::TcpListener;

use common::*;
use iogate_core::AppId;
use iogate_nfs::wire::*;
use iogate_nfs::{Access, Limits, Server, ServerConfig};
use iogate_vfs::app::{AppFile, application_of_word};

fn serve_two(folders: [&std::path::Path; 2], listener: TcpListener) -> Server {
    let served = |folder, path: &[u8]| {
        let mut export = export(folder, How::default());
        export.path = path.into();
        export
    };
    let exports = vec![served(folders[0], b"/export"), served(folders[1], b"/export/deep")];
    let access = Access { networks: vec![], any_port: true };
    Server::start(ServerConfig { exports, access, limits: Limits::default() }, listener).unwrap()
}

fn root(client: &mut Client, path: &[u8]) -> FileHandle {
    match client.mount(path) {
        MountReply::Mount(Ok((root, _))) => root,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_path_is_of_one_export_and_handles_outlive_the_server() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths = [folders[0].path(), folders[1].path()];
    let server = serve_two(paths, TcpListener::bind("127.0.0.1:0").unwrap());
    let address = server.address().unwrap();
    let mut client = Client::connect_to(address);
    let roots = [client.root, root(&mut client, b"/export/deep")];
    std::fs::create_dir(paths[0].join("deep")).unwrap();
    assert_eq!(root(&mut client, b"/export/deep"), roots[1], "the longest path counts");
    assert_eq!(root(&mut client, b"/export/"), roots[0]);
    for nothing in [&b"/"[..], b"/exports", b"/export/deeper", b""] {
        assert!(matches!(client.mount(nothing), MountReply::Mount(Err(2))), "{nothing:?}");
    }
    assert_ne!(client.attr(roots[0]).unwrap().fsid, client.attr(roots[1]).unwrap().fsid);

    let files = roots.map(|root| client.create(root, b"file", 0o600).unwrap());
    assert_ne!(files[0], files[1]);
    let from = Place { dir: roots[0], name: b"file" };
    let moved = client.call(&Request::Rename { from, to: Place { dir: roots[1], name: b"other" } });
    assert!(matches!(moved, Reply::Rename { status: Status::XDev, .. }), "{moved:?}");
    let linked = Request::Link { file: files[0], place: Place { dir: roots[1], name: b"other" } };
    assert!(matches!(client.call(&linked), Reply::Link { status: Status::XDev, .. }));

    // A handle that says to be another export's, or of none.
    for number in [1, 2, 255] {
        let mut bytes = files[0].as_bytes().to_vec();
        bytes[1] = number;
        let forged = FileHandle::new(&bytes).unwrap();
        assert_eq!(client.attr(forged), Err(Status::BadHandle));
        assert_eq!(client.read(forged, 0, 1), Err(Status::BadHandle));
        assert!(client.write(forged, 0, b"x", Stable::Unstable).is_err());
    }
    if !is_root() {
        return;
    }
    drop(server);
    let _again = serve_two(paths, TcpListener::bind(address).unwrap());
    let mut client = Client::connect_to(address);
    assert!(files.iter().all(|file| client.attr(*file).is_ok()));
}

#[test]
fn calls_that_come_together_reach_their_own_gates() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let paths = [folders[0].path(), folders[1].path()];
    let server = serve_two(paths, TcpListener::bind("127.0.0.1:0").unwrap());
    let mut client = Client::connect(&server);
    let roots = [client.root, root(&mut client, b"/export/deep")];
    let files = roots.map(|root| client.create(root, b"file", 0o600).unwrap());
    for round in 0..50u8 {
        let data = [[round, 1], [round, 2]].map(|[round, which]| [round ^ which << 6; 512]);
        for at in 0..20u64 {
            let which = (at % 3 % 2) as usize;
            let (count, stable) = (512, Stable::Unstable);
            client.begin(&Request::Write {
                file: files[which],
                offset: at * 512,
                count,
                stable,
                data: &data[which],
            });
        }
        for _ in 0..20 {
            client.receive();
        }
        for at in 0..20u64 {
            let which = (at % 3 % 2) as usize;
            assert_eq!(client.read(files[which], at * 512, 512).unwrap().0, data[which]);
        }
    }
    for (path, which) in paths.iter().zip([0, 1]) {
        let found = std::fs::read(path.join("file")).unwrap();
        let last = (0..20usize).rfind(|at| at % 3 % 2 == which).unwrap();
        assert_eq!(found.len(), (last + 1) * 512, "what is the other export's is not there");
    }
}

#[test]
fn users_of_clients_may_have_fixed_applications() {
    let (folder, side) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lines = side.path().join("applications");
    std::fs::write(&lines, "127.0.0.1/1000 3 # of one user\n127.0.0.*/100? simulation\n10.*/* 5\n").unwrap();
    let mut export = export(folder.path(), How::default());
    export.applications = AppFile::read(&lines).unwrap();
    let engine = export.engine.clone();
    let access = Access { networks: vec![], any_port: true };
    let config = ServerConfig { exports: vec![export], access, limits: Limits::default() };
    let server = Server::start(config, TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"file", 0o666).unwrap();
    for (uid, bytes) in [(1000, 100), (1001, 20), (1002, 3), (2000, 7)] {
        client.credential = user(uid, uid, &[]);
        client.write(file, 0, &vec![1; bytes], Stable::Unstable).unwrap();
    }
    let written = |app| engine.with_gate(|gate, _| gate.stats().apps.get(app).map(|sums| sums.bytes));
    assert_eq!(written(AppId(3)), Some(100));
    assert_eq!(written(application_of_word("simulation")), Some(23), "the first line that fits counts");
    assert_eq!(written(application_of_word("127.0.0.1 2000")), Some(7), "who has none is an application");
    assert_eq!(written(AppId(5)), None);
}
