//! Every procedure over a real directory, by a client that speaks for itself.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use common::*;
use iogate_nfs::Lasting;
use iogate_nfs::wire::*;
use iogate_vfs::users::Squash;

#[test]
fn names_are_made_found_listed_and_removed() {
    for kernel_handles in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let server = serve(folder.path(), How { kernel_handles, ..How::default() });
        let mut client = Client::connect(&server);
        let root = client.root;
        let dir = client.mkdir(root, b"dir").unwrap();
        assert_eq!(client.mkdir(root, b"dir"), Err(Status::Exist));
        let file = client.create(dir, b"file", 0o640).unwrap();
        assert_eq!(client.look_up(dir, b"file"), Ok(file));
        assert_eq!(client.look_up(dir, b"."), Ok(dir));
        assert_eq!(client.look_up(dir, b".."), Ok(root));
        assert_eq!(client.look_up(root, b".."), Ok(root), "there is nothing above");
        assert_eq!(client.look_up(file, b"x"), Err(Status::NotDir));
        for (name, status) in [
            (&b"a/b"[..], Status::Inval),
            (b"", Status::Inval),
            (b"x", Status::NoEnt),
            (&[b'n'; 256], Status::NameTooLong),
        ] {
            assert_eq!(client.look_up(dir, name), Err(status), "{name:?}");
        }
        let attr = client.attr(file).unwrap();
        let meta = folder.path().join("dir/file").metadata().unwrap();
        assert_eq!((attr.kind, attr.mode, attr.size, attr.fileid), (Kind::Regular, 0o640, 0, meta.ino()));
        assert_eq!(client.attr(root).unwrap().fsid, attr.fsid);

        let link = Request::SymLink {
            place: Place { dir, name: b"link" },
            attr: SetAttr::default(),
            target: b"../somewhere",
        };
        let link = client.made(&link).unwrap();
        let said = client.call(&Request::ReadLink(link));
        assert!(matches!(said, Reply::ReadLink { result: Ok(target), .. } if target == b"../somewhere"));
        let fifo = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        let fifo = Request::MkNod { place: Place { dir, name: b"fifo" }, node: Node::Fifo(fifo) };
        let fifo = client.made(&fifo).unwrap();
        assert_eq!(client.attr(fifo).unwrap().kind, Kind::Fifo);
        assert_eq!(client.read(fifo, 0, 10), Err(Status::Inval));
        let linked = client.call(&Request::Link { file, place: Place { dir: root, name: b"again" } });
        assert!(
            matches!(linked, Reply::Link { status: Status::Ok, attr: Some(attr), .. } if attr.links == 2)
        );

        assert_eq!(client.list(dir, 4096), [".", "..", "fifo", "file", "link"]);
        // The server's own folder is not there.
        assert!(folder.path().join(".iogate").exists());
        assert_eq!(client.list(root, 4096), [".", "..", "again", "dir"]);
        assert_eq!(client.look_up(root, b".iogate"), Err(Status::NoEnt));
        assert_eq!(client.mkdir(root, b".iogate"), Err(Status::NoEnt));
        assert!(client.mkdir(dir, b".iogate").is_ok(), "elsewhere it is a name as any other");
        let removed = client.call(&Request::RmDir(Place { dir, name: b".iogate" }));
        assert!(matches!(removed, Reply::Removed(Status::Ok, _)));

        let full = client.call(&Request::RmDir(Place { dir: root, name: b"dir" }));
        assert!(matches!(full, Reply::Removed(Status::NotEmpty, _)), "{full:?}");
        assert_eq!(client.remove(root, b"dir"), Status::IsDir);
        for name in [&b"fifo"[..], b"link", b"file"] {
            assert_eq!(client.remove(dir, name), Status::Ok);
        }
        assert_eq!(client.remove(dir, b"file"), Status::NoEnt);
        assert_eq!(client.attr(link), Err(Status::Stale));
        assert_eq!(client.attr(fifo), Err(Status::Stale));
        // Where a table says where files are, it has the name that was used last.
        assert_eq!(client.attr(file).is_ok(), server.lasting() == Lasting::Always);
        assert!(client.look_up(root, b"again").is_ok());
        let Reply::Removed(Status::Ok, wcc) = client.call(&Request::RmDir(Place { dir: root, name: b"dir" }))
        else {
            panic!("the directory is not removed")
        };
        assert!(wcc.before.is_some() && wcc.after.is_some());
        assert_eq!(client.attr(dir), Err(Status::Stale));
    }
}

#[test]
fn renames_are_followed_and_what_they_replace_is_stale() {
    for kernel_handles in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let server = serve(folder.path(), How { kernel_handles, ..How::default() });
        let mut client = Client::connect(&server);
        let root = client.root;
        let [one, two] = [b"one", b"two"].map(|name| client.mkdir(root, name).unwrap());
        let [moved, replaced] =
            [(one, b"a"), (two, b"b")].map(|(dir, name)| client.create(dir, name, 0o600).unwrap());
        client.write(replaced, 0, b"old", Stable::Unstable).unwrap();
        assert_eq!(client.rename((one, b"a"), (two, b"b")), Status::Ok);
        assert_eq!(client.rename((one, b"a"), (two, b"b")), Status::NoEnt);
        assert_eq!(client.look_up(two, b"b"), Ok(moved));
        client.write(moved, 0, b"new", Stable::FileSync).unwrap();
        assert_eq!(client.attr(replaced), Err(Status::Stale));
        assert_eq!(client.rename((root, b"two"), (one, b"two")), Status::Ok);
        assert_eq!(client.read(moved, 0, 9), Ok((b"new".into(), true)), "its directory was renamed");
        assert_eq!(client.rename((root, b"one"), (two, b"x")), Status::Inval, "into itself");
        // By somebody else.
        std::fs::rename(folder.path().join("one/two/b"), folder.path().join("c")).unwrap();
        drop(client);
        let mut client = Client::connect(&server);
        match server.lasting() == Lasting::Always {
            true => assert_eq!(client.read(moved, 0, 9), Ok((b"new".into(), true))),
            false => {
                // It is held for a while; then it is looked for.
                assert_eq!(client.look_up(root, b"c"), Ok(moved));
                assert_eq!(client.read(moved, 0, 9), Ok((b"new".into(), true)));
            }
        }
    }
}

#[test]
fn data_comes_back_and_each_write_says_what_was_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let file = client.create(client.root, b"data", 0o600).unwrap();
    let data: Vec<u8> =
        (0..1u32 << 18).flat_map(|word| word.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect();
    let (ok, first) = client.write(file, 5, &data, Stable::Unstable).unwrap();
    assert_eq!((ok.count, ok.stable), (1 << 20, Stable::Unstable));
    let (synced, second) = client.write(file, 0, b"begin", Stable::FileSync).unwrap();
    assert_eq!((synced.count, synced.stable, synced.verifier), (5, Stable::FileSync, ok.verifier));
    assert_eq!(first.after.as_ref().map(WccAttr::from), second.before);
    assert_eq!(first.before.map(|before| before.size), Some(0));
    assert_eq!(client.commit(file), Ok(ok.verifier));
    assert_eq!(std::fs::read(folder.path().join("data")).unwrap()[5..], data);
    assert_eq!(client.read(file, 5, 1 << 20), Ok((data.clone(), true)));
    assert_eq!(client.read(file, 3, 4), Ok(([&b"in"[..], &data[..2]].concat(), false)));
    assert_eq!(client.read(file, 5 + (1 << 20), 10), Ok((vec![], true)));
    assert_eq!(client.read(file, 1 << 40, 10), Ok((vec![], true)));
    assert_eq!(client.read(file, u64::MAX, 10), Err(Status::Inval));
    assert_eq!(client.write(file, u64::MAX, b"x", Stable::Unstable).unwrap_err(), Status::FBig);
    let (none, _) = client.write(file, 0, b"", Stable::Unstable).unwrap();
    assert_eq!(none.count, 0);
    // Many at once, answered as they are done.
    for at in 0..64u64 {
        client.begin(&Request::Read { file, offset: at * 4096, count: 4096 });
    }
    for _ in 0..64 {
        client.receive();
    }
    let size = SetAttr { size: Some(7), ..SetAttr::default() };
    let Reply::SetAttr(Status::Ok, wcc) = client.call(&Request::SetAttr { file, attr: size, guard: None })
    else {
        panic!("the size is not set")
    };
    assert_eq!(wcc.after.unwrap().size, 7);
    let guard = Some(Time { seconds: 1, nanoseconds: 1 });
    let guarded = client.call(&Request::SetAttr { file, attr: size, guard });
    assert!(matches!(guarded, Reply::SetAttr(Status::NotSync, _)));
    let guard = Some(client.attr(file).unwrap().ctime);
    let guarded = client.call(&Request::SetAttr { file, attr: size, guard });
    assert!(matches!(guarded, Reply::SetAttr(Status::Ok, _)));
}

#[test]
fn handles_outlive_the_server_also_where_the_kernel_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let how = How { kernel_handles: false, keeps_places: true, ..How::default() };
    let server = serve(folder.path(), how);
    assert_eq!(server.lasting(), Lasting::UntilRenamed);
    let mut client = Client::connect(&server);
    let root = client.root;
    let dir = client.mkdir(root, b"dir").unwrap();
    let [kept, moved, theirs, removed] =
        [b"a", b"b", b"c", b"d"].map(|name| client.create(dir, name, 0o600).unwrap());
    client.write(kept, 0, b"kept", Stable::Unstable).unwrap();
    client.write(moved, 0, b"moved", Stable::Unstable).unwrap();
    assert_eq!(client.rename((dir, b"b"), (root, b"x")), Status::Ok);
    assert_eq!(client.rename((root, b"dir"), (root, b"renamed")), Status::Ok);
    drop((client, server));
    std::fs::rename(folder.path().join("renamed/c"), folder.path().join("renamed/e")).unwrap();
    std::fs::remove_file(folder.path().join("renamed/d")).unwrap();
    std::fs::write(folder.path().join("renamed/d"), b"another").unwrap();
    let server = serve(folder.path(), how);
    let mut client = Client::connect(&server);
    assert_eq!(client.root, root);
    assert_eq!(client.read(kept, 0, 10), Ok((b"kept".into(), true)), "its directory was renamed by a client");
    assert_eq!(client.read(moved, 0, 10), Ok((b"moved".into(), true)));
    assert_eq!(client.look_up(dir, b".."), Ok(root));
    assert_eq!(client.attr(theirs), Err(Status::Stale), "others have renamed it");
    assert_eq!(client.attr(removed), Err(Status::Stale), "it is another file");
    assert_eq!(client.look_up(dir, b"e"), Ok(theirs));
    assert!(client.attr(theirs).is_ok(), "it was found again");
}

#[test]
fn handles_outlive_the_server_and_cannot_be_made_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let (lasting, address) = (server.lasting() == Lasting::Always, server.address().unwrap());
    assert!(lasting || !is_root(), "as root on a file system of this machine");
    let mut client = Client::connect(&server);
    let root = client.root;
    let dir = client.mkdir(root, b"dir").unwrap();
    let file = client.create(dir, b"file", 0o600).unwrap();
    let (ok, _) = client.write(file, 0, b"kept", Stable::Unstable).unwrap();
    for at in 0..file.as_bytes().len() {
        let mut bytes = file.as_bytes().to_vec();
        bytes[at] ^= 1;
        assert_eq!(client.attr(FileHandle::new(&bytes).unwrap()), Err(Status::BadHandle));
    }
    assert_eq!(client.attr(FileHandle::new(&[]).unwrap()), Err(Status::BadHandle));
    drop((client, server));
    std::fs::rename(folder.path().join("dir"), folder.path().join("renamed")).unwrap();
    let server = serve(folder.path(), How::default());
    assert_ne!(address, server.address().unwrap());
    let mut client = Client::connect(&server);
    assert_eq!(client.root, root);
    if !lasting {
        assert_eq!(client.attr(file), Err(Status::Stale));
        return;
    }
    assert_eq!(client.read(file, 0, 10), Ok((b"kept".into(), true)));
    assert_eq!(client.commit(file), Ok(ok.verifier), "nothing was lost with the server");
    std::fs::remove_file(folder.path().join("renamed/file")).unwrap();
    assert_eq!(client.attr(file), Err(Status::Stale));
    // The number may be used again: the old handle stays what it was.
    for name in 0..100 {
        std::fs::write(folder.path().join(name.to_string()), b"new").unwrap();
    }
    assert_eq!(client.attr(file), Err(Status::Stale));
}

#[test]
fn permissions_are_those_of_the_caller_and_the_owner_may_write_its_file() {
    if !is_root() {
        eprintln!("skipped: not root");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).unwrap();
    let server = serve(folder.path(), How { squash: Squash::Root, ..How::default() });
    let mut client = Client::connect(&server);
    let root = client.root;
    client.credential = user(1000, 1000, &[2000]);
    // As git has its objects: without permission to write, and written all the same.
    let file = client.create(root, b"object", 0o444).unwrap();
    let attr = client.attr(file).unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (1000, 1000, 0o444));
    client.write(file, 0, b"mine", Stable::Unstable).unwrap();
    let size = SetAttr { size: Some(2), ..SetAttr::default() };
    let sized = client.call(&Request::SetAttr { file, attr: size, guard: None });
    assert!(matches!(sized, Reply::SetAttr(Status::Ok, _)), "{sized:?}");
    let secret = client.create(root, b"secret", 0o600).unwrap();
    let group = client.create(root, b"group", 0o640).unwrap();
    let to = SetAttr { gid: Some(2000), ..SetAttr::default() };
    let given = client.call(&Request::SetAttr { file: group, attr: to, guard: None });
    assert!(matches!(given, Reply::SetAttr(Status::Ok, _)), "it is one of the user's groups");
    let run = client.create(root, b"run", 0o711).unwrap();

    for (credential, of_secret, of_group) in [
        (user(1001, 1000, &[]), Err(Status::Access), Err(Status::Access)),
        (user(1001, 1001, &[7, 2000]), Err(Status::Access), Ok((vec![], true))),
        (user(1001, 2000, &[]), Err(Status::Access), Ok((vec![], true))),
        // Root is nobody.
        (user(0, 0, &[]), Err(Status::Access), Err(Status::Access)),
        (iogate_nfs::rpc::Credential::None, Err(Status::Access), Err(Status::Access)),
    ] {
        client.credential = credential;
        assert_eq!(client.read(secret, 0, 1), of_secret, "{credential:?}");
        assert_eq!(client.read(group, 0, 1), of_group, "{credential:?}");
        assert_eq!(client.write(file, 0, b"x", Stable::Unstable).unwrap_err(), Status::Access);
        assert_eq!(client.read(run, 0, 1), Ok((vec![], true)), "who may execute may read");
        assert_eq!(client.remove(root, b"secret"), Status::Perm, "the directory is sticky");
        let Reply::Access { result, .. } = client.call(&Request::Access { file: secret, access: 0x3f })
        else {
            panic!("another answer")
        };
        assert_eq!(result, Ok(0));
    }
    client.credential = user(1000, 1000, &[]);
    let Reply::Access { result, .. } = client.call(&Request::Access { file: root, access: 0x3f }) else {
        panic!("another answer")
    };
    assert_eq!(result, Ok(0x1f), "all but to execute");
    // A permission that goes is gone at the next call, though the file is open.
    client.credential = user(1001, 1001, &[2000]);
    assert!(client.read(group, 0, 1).is_ok());
    std::fs::set_permissions(folder.path().join("group"), PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(client.read(group, 0, 1), Err(Status::Access));
    // And a file that somebody removes on the server is gone, though it is open.
    client.credential = user(1000, 1000, &[]);
    assert!(client.write(run, 0, b"#!", Stable::Unstable).is_ok() && client.read(run, 0, 2).is_ok());
    std::fs::remove_file(folder.path().join("run")).unwrap();
    assert_eq!(client.read(run, 0, 2), Err(Status::Stale));
    assert_eq!(client.write(run, 0, b"#!", Stable::Unstable).unwrap_err(), Status::Stale);
    let chown = SetAttr { uid: Some(1001), ..SetAttr::default() };
    client.credential = user(1000, 1000, &[]);
    let given = client.call(&Request::SetAttr { file, attr: chown, guard: None });
    assert!(matches!(given, Reply::SetAttr(Status::Perm, _)), "{given:?}");
}

#[test]
fn an_exclusive_file_is_made_once_by_its_verifier() {
    let folder = tempfile::tempdir().unwrap();
    let (server, place) = (serve(folder.path(), How::default()), |dir| Place { dir, name: b"lock" });
    let mut client = Client::connect(&server);
    let create = |client: &mut Client, verifier| {
        client.made(&Request::Create { place: place(client.root), how: CreateHow::Exclusive(verifier) })
    };
    let file = create(&mut client, [0xff, 2, 3, 4, 0xff, 6, 7, 8]).unwrap();
    assert_eq!(create(&mut client, [0xff, 2, 3, 4, 0xff, 6, 7, 8]), Ok(file), "asked again");
    assert_eq!(create(&mut client, [0xff, 2, 3, 5, 0xff, 6, 7, 8]), Err(Status::Exist));
    drop(server);
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    assert!(create(&mut client, [0xff, 2, 3, 4, 0xff, 6, 7, 8]).is_ok(), "also by another server");
    let attr = SetAttr { mode: Some(0o600), mtime: SetTime::Now, atime: SetTime::Now, ..SetAttr::default() };
    let file = client.look_up(client.root, b"lock").unwrap();
    let set = client.call(&Request::SetAttr { file, attr, guard: None });
    assert!(matches!(set, Reply::SetAttr(Status::Ok, _)));
    assert_eq!(
        create(&mut client, [0xff, 2, 3, 4, 0xff, 6, 7, 8]),
        Err(Status::Exist),
        "it is another's by now"
    );
    // Unchecked: what is there is taken, and cut.
    client.write(file, 0, b"content", Stable::Unstable).unwrap();
    let attr = SetAttr { mode: Some(0o777), size: Some(0), ..SetAttr::default() };
    let how = CreateHow::Unchecked(attr);
    let again = client.made(&Request::Create { place: place(client.root), how });
    assert_eq!(again, Ok(file));
    let attr = client.attr(file).unwrap();
    assert_eq!((attr.size, attr.mode), (0, 0o600));
}

#[test]
fn a_large_directory_is_listed_in_pieces_while_it_changes() {
    let folder = tempfile::tempdir().unwrap();
    let server = serve(folder.path(), How::default());
    let mut client = Client::connect(&server);
    let root = client.root;
    for name in 0..300 {
        std::fs::write(folder.path().join(format!("file-{name:04}")), b"x").unwrap();
    }
    assert_eq!(client.list(root, 1000).len(), 302);
    assert_eq!(client.list(root, 1 << 20).len(), 302);
    let tiny = client.call(&Request::ReadDir { dir: root, cookie: 0, verifier: [0; 8], count: 100 });
    assert!(matches!(tiny, Reply::ReadDir { result: Err(Status::TooSmall), .. }));
    let (mut cookie, mut seen) = (0, Vec::new());
    loop {
        let request = Request::ReadDirPlus { dir: root, cookie, verifier: [0; 8], dir_count: 0, count: 3000 };
        client.begin(&request);
        let record = client.receive();
        assert!(record.len() <= 24 + 3000, "{}", record.len());
        let mut from = iogate_nfs::xdr::Reader::new(&record[24..]);
        let Some(Reply::ReadDirPlus { result: Ok(listing), .. }) = Reply::take(17, &mut from).unwrap() else {
            panic!("no listing")
        };
        for PlusEntry { entry, attr, file } in listing.entries {
            cookie = entry.cookie;
            if entry.name.starts_with(b"file") {
                assert_eq!(attr.map(|attr| attr.fileid), Some(entry.fileid));
                assert_eq!(client.attr(file.unwrap()).unwrap().fileid, entry.fileid);
                // What is listed goes, and nothing that is still to come is missed.
                assert_eq!(client.remove(root, &entry.name), Status::Ok);
                seen.push(entry.name);
            }
        }
        if listing.is_end {
            break;
        }
    }
    assert_eq!(seen.len(), 300);
    assert_eq!(client.list(root, 4096), [".", ".."]);
}

#[test]
fn nothing_is_changed_where_nothing_may_be() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"content").unwrap();
    let server = serve(folder.path(), How { read_only: true, ..How::default() });
    let mut client = Client::connect(&server);
    let root = client.root;
    let file = client.look_up(root, b"file").unwrap();
    assert_eq!(client.read(file, 0, 100), Ok((b"content".into(), true)));
    assert_eq!(client.write(file, 0, b"x", Stable::Unstable).unwrap_err(), Status::RoFs);
    assert_eq!(client.create(root, b"new", 0o600), Err(Status::RoFs));
    assert_eq!(client.remove(root, b"file"), Status::RoFs);
    assert_eq!(client.rename((root, b"file"), (root, b"x")), Status::RoFs);
    let Reply::Access { result, .. } = client.call(&Request::Access { file: root, access: 0x3f }) else {
        panic!("another answer")
    };
    assert_eq!(result.map(|granted| granted & 0x1c), Ok(0));
    for request in [Request::FsStat(root), Request::FsInfo(root), Request::PathConf(root)] {
        match client.call(&request) {
            Reply::FsStat { result: Ok(space), .. } => assert!(space.total_bytes > 0),
            Reply::FsInfo { result: Ok(info), .. } => assert_eq!(info.read_max, 1 << 20),
            Reply::PathConf { result: Ok(names), .. } => assert_eq!(names.name_bytes_max, 255),
            other => panic!("{other:?}"),
        }
    }
}
