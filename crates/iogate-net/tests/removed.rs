//! Files that are removed or replaced while others have them open, through other forwarders and over restarts of servers.

mod common;

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{GRACE, directory, engine, errno, own, read, serve, write};
use iogate_core::wire::{Change, Identity, Timestamp, open, set};
use iogate_core::{ClientId, Layout};
use iogate_engine::Origin;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions, Spread};
use iogate_net::transport::auth::Credential;
use iogate_net::{Endpoint, Server};
use iogate_vfs::{OpenHow, StripedTree, Swept, Tree, TreeFile};

const LAYOUT: Layout = Layout { first_target: 0, stripe_bytes: 64 << 10, targets: 4 };
const NEW: u32 = open::READ | open::WRITE | open::CREATE;
const BYTES: usize = 256 << 10;

fn connect(server: &Server, stripes: bool) -> Arc<Remote> {
    let client = ClientOptions { auth: Credential::None, stripes, ..ClientOptions::default() };
    Arc::new(
        Remote::connect(server.endpoints(), &RemoteOptions { client, ..RemoteOptions::default() }).unwrap(),
    )
}

/// A server of names and four of data, each with a directory of its own.
struct Place {
    dir: tempfile::TempDir,
    names: Option<Server>,
    targets: Vec<Server>,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let server = |name: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            serve(directory(&dir.path().join(name)), &any, None, GRACE)
        };
        let (names, targets) = (server("names"), ["0", "1", "2", "3"].map(server).into());
        Place { dir, names: Some(names), targets }
    }

    /// A forwarder's tree: each with connections of its own.
    fn forwarder(&self) -> StripedTree {
        let targets = self.targets.iter().map(|server| connect(server, false) as Arc<dyn Tree>).collect();
        StripedTree::new(connect(self.names.as_ref().unwrap(), true), targets, LAYOUT).unwrap()
    }

    /// Ends the server of names, does something, and starts it again.
    fn restart_names(&mut self, grace: Duration, meanwhile: impl FnOnce(&Path)) {
        let names = self.names.take().unwrap();
        let endpoint = names.endpoints()[0].clone();
        drop(names);
        meanwhile(&self.dir.path().join("names"));
        self.names = Some(serve(directory(&self.dir.path().join("names")), &endpoint, None, grace));
    }

    /// The machine of the server of names crashes: something is lost, and what the server says of itself is new.
    fn crash_names(&mut self, loses: impl FnOnce(&Path)) {
        let names = self.names.take().unwrap();
        let endpoint = names.endpoints()[0].clone();
        drop(names);
        let path = self.dir.path().join("names");
        loses(&path);
        let tree = common::Far::new(directory(&path));
        tree.machine.boots.store(1, Ordering::SeqCst);
        self.names = Some(serve(Arc::new(tree), &endpoint, None, GRACE));
    }

    fn objects(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for target in 0..4 {
            for entry in fs::read_dir(self.dir.path().join(target.to_string()).join("OBJECTS")).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    found.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
                }
            }
        }
        found
    }

    fn orphans(&self) -> usize {
        fs::read_dir(self.dir.path().join("names/.iogate/orphans")).map_or(0, Iterator::count)
    }
}

fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn open_file(tree: &dyn Tree, path: &str, flags: u32) -> Arc<dyn TreeFile> {
    common::open(tree, own(), path, flags).unwrap()
}

fn pattern(seed: u8) -> Vec<u8> {
    (0..BYTES).map(|at| (at / 1000) as u8 ^ seed).collect()
}

fn fill(tree: &dyn Tree, path: &str, seed: u8) {
    let file = open_file(tree, path, NEW);
    assert_eq!(write(&engine(tree), &*file, 0, &pattern(seed)).unwrap(), BYTES);
}

#[test]
fn a_new_small_file_takes_few_messages() {
    const FILES: u64 = 300;
    let place = Place::new();
    let tree = place.forwarder();
    let engine = engine(&tree);
    let taken = || -> u64 {
        let servers = place.targets.iter().chain(&place.names);
        servers.flat_map(|server| server.status().connections).map(|connection| connection.requests).sum()
    };
    let use_one = |index: u64| {
        let path = PathBuf::from(format!("file-{index}"));
        assert_eq!(errno(tree.attr(own(), &path)), libc::ENOENT);
        let file = open_file(&tree, path.to_str().unwrap(), NEW | open::EXCLUSIVE);
        assert_eq!(file.opened_attr().unwrap().size, 0);
        assert_eq!(write(&engine, &*file, 0, &[1; 1000]).unwrap(), 1000);
        let at = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
        let times = Change { which: set::ATIME | set::MTIME, atime: at, mtime: at, ..Change::default() };
        let attr = file.set_attr(own(), &times).unwrap();
        assert_eq!((attr.size, attr.mtime), (1000, at));
    };
    // The directories of the objects are made with the first ones.
    (0..FILES).for_each(use_one);
    let before = taken();
    (FILES..2 * FILES).for_each(use_one);
    let each = (taken() - before) as f64 / FILES as f64;
    // Look, open, open the object, write, set the times of both, close both.
    assert!(each < 10.0, "{each} messages for each file");
    eprintln!("{each} messages for each file");
}

#[test]
fn a_file_that_another_forwarder_replaces_reads_on() {
    let place = Place::new();
    let (one, other) = (place.forwarder(), place.forwarder());
    fill(&one, "model", 1);
    let (engine_one, engine_other) = (engine(&one), engine(&other));
    let reader = open_file(&one, "model", open::READ);
    assert!(read(&engine_one, &*reader, 0, 1000).unwrap() == pattern(1)[..1000]);
    fill(&other, "model.new", 2);
    other.rename(own(), Path::new("model.new"), Path::new("model"), 0).unwrap();
    assert!(read(&engine_one, &*reader, 0, BYTES + 10).unwrap() == pattern(1));
    assert_eq!(reader.attr().unwrap().size, BYTES as u64);
    let new = open_file(&other, "model", open::READ);
    assert!(read(&engine_other, &*new, 0, BYTES + 10).unwrap() == pattern(2));
    assert_eq!(place.objects().len(), 8);
    drop((reader, engine_one));
    eventually("the old objects go", || place.objects().len() == 4);
    eventually("the orphan goes", || place.orphans() == 0);
}

#[test]
fn a_file_that_another_forwarder_removes_is_written_on() {
    let place = Place::new();
    let (one, other) = (place.forwarder(), place.forwarder());
    let engine = engine(&one);
    let writer = open_file(&one, "log", NEW);
    write(&engine, &*writer, 0, &[7; 1000]).unwrap();
    other.unlink(own(), Path::new("log"), false).unwrap();
    assert_eq!(errno(other.attr(own(), Path::new("log"))), libc::ENOENT);
    // Its objects on the other targets are made only now.
    write(&engine, &*writer, 1000, &pattern(3)[1000..]).unwrap();
    writer.sync(false).unwrap();
    assert_eq!(writer.attr().unwrap().links, 0);
    assert!(read(&engine, &*writer, 1000, BYTES).unwrap() == pattern(3)[1000..]);
    assert_eq!(other.sweep().unwrap(), Swept::default(), "it is open somewhere");
    drop((writer, engine));
    eventually("the objects go", || place.objects().is_empty());
    assert_eq!(place.orphans(), 0);
}

#[test]
fn a_removed_file_outlives_a_restart_of_the_server_of_names() {
    let mut place = Place::new();
    let (one, other) = (place.forwarder(), place.forwarder());
    fill(&one, "f", 1);
    fill(&one, "late", 2);
    let how =
        OpenHow { flags: open::READ | open::WRITE | open::TEMPORARY, mode: 0o600, ..OpenHow::default() };
    let (reader, late) = (open_file(&one, "f", open::READ), open_file(&one, "late", open::READ));
    other.unlink(own(), Path::new("f"), false).unwrap();
    place.restart_names(GRACE, |_| {});
    other.space().unwrap();
    // Perhaps nobody has come back to this one when its name goes.
    other.unlink(own(), Path::new("late"), false).unwrap();
    let engine = engine(&one);
    for (file, seed) in [(&reader, 1), (&late, 2)] {
        assert!(read(&engine, &**file, 0, BYTES).unwrap() == pattern(seed));
        assert_eq!((file.attr().unwrap().size, file.attr().unwrap().links), (BYTES as u64, 0));
    }
    let temporary = one.open(own(), Path::new(""), how).unwrap();
    write(&engine, &*temporary, 0, &[1; 100]).unwrap();
    assert_eq!(one.sweep().unwrap(), Swept::default());
    drop((temporary, engine));
    eventually("the temporary file's object goes", || place.objects().len() == 8);
}

#[test]
fn objects_that_nobody_was_told_of_go_all_the_same() {
    let place = Place::new();
    let (one, other) = (place.forwarder(), place.forwarder());
    fill(&one, "f", 1);
    // The last handle is that of a client that cannot discard objects, and does not get to know their names.
    let plain = connect(place.names.as_ref().unwrap(), false);
    let held = plain.open_file(Path::new("f")).unwrap();
    assert_eq!(plain.attr(own(), Path::new("f")).unwrap().object, [0; 16]);
    one.unlink(own(), Path::new("f"), false).unwrap();
    assert_eq!((place.objects().len(), place.orphans()), (4, 1));
    drop(held);
    eventually("the orphan goes", || place.orphans() == 0);
    eventually("the next forwarder that closes something is told", || {
        drop(open_file(&other, "g", NEW));
        place.objects().is_empty()
    });
    // A forwarder that is gone may have been told: then a sweep finds them.
    fill(&one, "h", 1);
    let held = open_file(&one, "h", open::READ);
    other.unlink(own(), Path::new("h"), false).unwrap();
    drop((held, one));
    eventually("the orphan goes", || place.orphans() == 0);
    eventually("the objects go", || {
        other.sweep().unwrap();
        place.objects().is_empty()
    });
}

#[test]
fn a_file_whose_handle_is_lost_is_stale_and_never_zeros() {
    let mut place = Place::new();
    let one = place.forwarder();
    fill(&one, "f", 1);
    let file = open_file(&one, "f", open::READ | open::WRITE);
    let fresh = open_file(&one, "fresh", NEW);
    let engine = engine(&one);
    place.restart_names(GRACE, |names| {
        for name in ["f", "fresh"] {
            fs::remove_file(names.join(name)).unwrap();
        }
    });
    let sweeper = place.forwarder();
    assert_eq!(sweeper.sweep().unwrap(), Swept { objects: 4, bytes: BYTES as u64 });
    std::thread::sleep(Duration::from_secs(1));
    for (file, path) in [(&file, "f"), (&fresh, "fresh")] {
        assert_eq!(errno(read(&engine, &**file, 0, 1000)), libc::ESTALE, "{path}");
        assert_eq!(errno(write(&engine, &**file, 0, &[1; 1000])), libc::ESTALE, "{path}");
        assert_eq!(errno(file.attr()), libc::ESTALE, "{path}");
        assert_eq!(errno(file.sync(false)), libc::ESTALE, "{path}");
    }
    assert!(place.objects().is_empty());
}

/// A crash takes away what leads to its objects, and it gets others.
#[test]
fn a_file_is_stale_whose_objects_are_others_after_a_crash() {
    let mut place = Place::new();
    let (one, other) = (place.forwarder(), place.forwarder());
    fill(&one, "f", 1);
    fill(&one, "kept", 1);
    let (file, kept) = (open_file(&one, "f", NEW), open_file(&one, "kept", NEW));
    let engine = engine(&one);
    let write_to = |file: &dyn TreeFile, seed| write(&engine, file, 0, &pattern(seed));
    write_to(&*file, 2).unwrap();
    place.crash_names(|names| {
        let path = CString::new(names.join("f").into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: both end with a zero byte.
        assert_eq!(unsafe { libc::removexattr(path.as_ptr(), c"user.iogate.object".as_ptr()) }, 0);
    });
    fill(&other, "f", 3);
    // It is known when the connection to the names is back.
    assert_eq!(errno(file.attr()), libc::ESTALE);
    assert_eq!(errno(write_to(&*file, 4)), libc::ESTALE);
    assert_eq!(errno(read(&engine, &*file, 0, 1000)), libc::ESTALE);
    assert_eq!(errno(file.sync(false)), libc::ESTALE);
    let again = open_file(&one, "f", NEW);
    assert!(read(&engine, &*again, 0, BYTES).unwrap() == pattern(3));
    assert_eq!(write_to(&*kept, 2).unwrap(), BYTES);
    kept.sync(false).unwrap();
}

#[test]
fn a_file_without_a_name_outlives_a_restart() {
    let mut place = Place::new();
    let tree = place.forwarder();
    let how =
        OpenHow { flags: open::READ | open::WRITE | open::TEMPORARY, mode: 0o600, ..OpenHow::default() };
    let file = tree.open(own(), Path::new(""), how).unwrap();
    let engine = engine(&tree);
    write(&engine, &*file, 0, &pattern(1)).unwrap();
    place.restart_names(GRACE, |_| {});
    file.sync(false).unwrap();
    assert_eq!((file.attr().unwrap().size, file.attr().unwrap().links), (BYTES as u64, 0));
    write(&engine, &*file, 0, &pattern(2)).unwrap();
    assert!(read(&engine, &*file, 0, BYTES).unwrap() == pattern(2));
}

#[test]
fn a_removed_file_of_a_plain_directory_outlives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(directory(dir.path()), &"127.0.0.1:0".parse().unwrap(), None, GRACE);
    let (one, other) = (connect(&server, false), connect(&server, false));
    let file = one.create(Path::new("f"), 0o600).unwrap();
    let spare = one.create(Path::new("spare"), 0o600).unwrap();
    file.write_at(0, b"before").unwrap();
    other.unlink(own(), Path::new("f"), false).unwrap();
    let endpoint = server.endpoints()[0].clone();
    drop(server);
    let _server = serve(directory(dir.path()), &endpoint, None, GRACE);
    other.space().unwrap();
    other.rename(own(), Path::new("spare"), Path::new("g"), 0).unwrap();
    other.unlink(own(), Path::new("g"), false).unwrap();
    file.write_at(6, b" and after").unwrap();
    let mut memory = [0; 100];
    assert_eq!(file.read_at(0, &mut memory).unwrap(), 16);
    assert_eq!(&memory[..16], b"before and after");
    assert_eq!(file.attr().unwrap().links, 0);
    drop(spare);
    // The folder is nobody's business.
    let mut names = Vec::new();
    let mut take = |_: &_, name: &[u8]| {
        names.push(String::from_utf8_lossy(name).into_owned());
        true
    };
    other.read_dir(own(), Path::new(""), 0, &mut take).unwrap();
    assert!(names.is_empty(), "{names:?}");
    for path in [".iogate", ".iogate/orphans"] {
        assert_eq!(errno(other.attr(own(), Path::new(path))), libc::ENOENT);
        assert_eq!(errno(other.open_with(Path::new(path), open::READ, 0)), libc::ENOENT);
        assert_eq!(errno(other.unlink(own(), Path::new(path), true)), libc::ENOENT);
    }
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(dir.path().join(".iogate")).unwrap().permissions().mode() & 0o777, 0o700);
}

/// Writes and reads on both servers of a file that is open.
fn use_everywhere(remote: &Remote, file: &dyn TreeFile, seed: u8) {
    let engine = engine(remote);
    for client in 0..4 {
        let origin = Origin { client: ClientId(client), ..Origin::default() };
        let data = pattern(seed);
        assert_eq!(engine.write_at(file.data(), origin, 0, &data).unwrap(), BYTES);
        let mut memory = vec![0; BYTES];
        assert_eq!(engine.read_at(file.data(), origin, 0, &mut memory).unwrap(), BYTES);
        assert!(memory == data);
    }
}

/// A directory by two servers.
fn two_servers(folder: &Path, spread: Spread) -> ([Server; 2], Remote) {
    let any = "127.0.0.1:0".parse().unwrap();
    let servers = [(); 2].map(|()| serve(directory(folder), &any, None, GRACE));
    let endpoints: Vec<Endpoint> = servers.iter().flat_map(|server| server.endpoints().to_vec()).collect();
    let client = ClientOptions { auth: Credential::None, ..ClientOptions::default() };
    let options = RemoteOptions { client, spread, ..RemoteOptions::default() };
    let remote = Remote::connect(&endpoints, &options).unwrap();
    (servers, remote)
}

#[test]
fn open_files_work_on_under_other_names_with_every_spread() {
    for spread in [Spread::Client, Spread::Process, Spread::File, Spread::Target] {
        let dir = tempfile::tempdir().unwrap();
        let (_servers, remote) = two_servers(dir.path(), spread);
        // Several files, as it depends on a file's number where it goes.
        for index in 0..4 {
            let at = |name: &str| PathBuf::from(format!("{name}-{index}"));
            let path = |name: &str| at(name).to_str().unwrap().to_owned();
            for flags in [0, libc::RENAME_NOREPLACE] {
                let file = open_file(&remote, &path("a"), NEW);
                remote.rename(own(), &at("a"), &at("b"), flags).unwrap();
                use_everywhere(&remote, &*file, 1);
                remote.unlink(own(), &at("b"), false).unwrap();
                use_everywhere(&remote, &*file, 2);
            }
            let replaced = open_file(&remote, &path("a"), NEW);
            drop(open_file(&remote, &path("new"), NEW));
            remote.rename(own(), &at("new"), &at("a"), 0).unwrap();
            use_everywhere(&remote, &*replaced, 3);
            remote.unlink(own(), &at("a"), false).unwrap();
            let (one, other) = (open_file(&remote, &path("a"), NEW), open_file(&remote, &path("b"), NEW));
            remote.rename(own(), &at("a"), &at("b"), libc::RENAME_EXCHANGE).unwrap();
            use_everywhere(&remote, &*one, 3);
            use_everywhere(&remote, &*other, 4);
            assert!(fs::read(dir.path().join(at("b"))).unwrap() == pattern(3));
            let replaced = open_file(&remote, &path("c"), NEW);
            remote.rename(own(), &at("a"), &at("c"), 0).unwrap();
            use_everywhere(&remote, &*replaced, 5);
            use_everywhere(&remote, &*other, 6);
            assert!(fs::read(dir.path().join(at("c"))).unwrap() == pattern(6));
        }
    }
}

/// Of the file itself, and of the directory that it lies in.
#[test]
fn a_first_transfer_on_a_server_may_meet_a_rename() {
    for spread in [Spread::Client, Spread::Process, Spread::File, Spread::Target] {
        let dir = tempfile::tempdir().unwrap();
        let (_servers, remote) = two_servers(dir.path(), spread);
        let path = |top: &str, index: u32| format!("{top}/file-{index}");
        fs::create_dir(dir.path().join("a")).unwrap();
        let files: Vec<_> = (0..15).map(|index| open_file(&remote, &path("a", index), NEW)).collect();
        thread::scope(|scope| {
            let user = scope.spawn(|| files.iter().for_each(|file| use_everywhere(&remote, &**file, 1)));
            let rename = |from: &str, to: &str| remote.rename(own(), from.as_ref(), to.as_ref(), 0).unwrap();
            for round in 0.. {
                let index = round % files.len() as u32;
                rename(&path("a", index), &path("a", 1000));
                rename("a", "b");
                rename(&path("b", 1000), &path("b", index));
                rename("b", "a");
                if user.is_finished() {
                    break;
                }
            }
        });
    }
}

/// By default all that a client does goes through one server.
#[test]
fn a_rename_does_not_wait_for_a_server_that_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let any = "127.0.0.1:0".parse().unwrap();
    let [used, other] = [(); 2].map(|()| serve(directory(dir.path()), &any, None, GRACE));
    let endpoints = [used.endpoints()[0].clone(), other.endpoints()[0].clone()];
    let retry_for = Duration::from_secs(3600);
    let client = ClientOptions { auth: Credential::None, retry_for, ..ClientOptions::default() };
    let options = RemoteOptions { client, server: Some(0), ..RemoteOptions::default() };
    let remote = Remote::connect(&endpoints, &options).unwrap();
    let file = open_file(&remote, "a", NEW);
    drop(other);
    let (done, renamed) = mpsc::channel();
    thread::spawn(move || {
        remote.rename(own(), "a".as_ref(), "b".as_ref(), 0).unwrap();
        use_everywhere(&remote, &*file, 1);
        done.send(()).unwrap();
    });
    renamed.recv_timeout(Duration::from_secs(60)).expect("it waits");
}

/// As on file systems without hard links: then only who has a removed file open has it.
#[test]
fn open_files_work_on_where_they_get_no_other_name() {
    for spread in [Spread::Process, Spread::File, Spread::Target] {
        let dir = tempfile::tempdir().unwrap();
        let orphans = dir.path().join(".iogate/orphans");
        fs::DirBuilder::new().mode(0o700).recursive(true).create(&orphans).unwrap();
        let (_servers, remote) = two_servers(dir.path(), spread);
        for index in 0..4 {
            let (path, new) = (format!("file-{index}"), Path::new("new"));
            for way in ["replaced", "removed"] {
                let file = open_file(&remote, &path, NEW);
                let Identity { inode, generation } = file.identity();
                fs::write(orphans.join(format!("{inode}-{generation}")), "in the way").unwrap();
                if way == "replaced" {
                    drop(open_file(&remote, "new", NEW));
                    remote.rename(own(), new, path.as_ref(), 0).unwrap();
                } else {
                    remote.unlink(own(), path.as_ref(), false).unwrap();
                }
                use_everywhere(&remote, &*file, 1);
            }
        }
    }
}
