//! Records that are appended: each once and whole, behind all that is there, whoever writes to the file besides.

mod common;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{GRACE, any_port, directory, errno, own, serve};
use iogate_core::Layout;
use iogate_core::wire::{Change, set};
use iogate_net::Server;
use iogate_net::client::{ClientOptions, Remote, RemoteFile, RemoteOptions};
use iogate_net::server::{Answers, Keeping};
use iogate_net::transport::auth::Credential;
use iogate_vfs::{StripedTree, Tree, TreeFile};
use rustix::mount::{MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

fn connect(server: &Server) -> Remote {
    let client = ClientOptions { auth: Credential::None, ..ClientOptions::default() };
    Remote::connect(server.endpoints(), &RemoteOptions { client, ..RemoteOptions::default() }).unwrap()
}

fn create(remote: &Remote, path: &str) -> RemoteFile {
    remote.create(Path::new(path), 0o644).unwrap()
}

struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Runs `meanwhile` while 16 threads of four clients append records of 64 bytes, all the time.
fn while_others_append(server: &Server, path: &str, meanwhile: impl FnOnce()) -> u64 {
    let (stop, appended) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for client in 0..4 {
            let (stop, appended) = (&stop, &appended);
            scope.spawn(move || {
                let remote = connect(server);
                let file = create(&remote, path);
                thread::scope(|scope| {
                    for thread in 0..4 {
                        let file = &file;
                        scope.spawn(move || {
                            for number in 0.. {
                                if stop.load(Ordering::SeqCst) {
                                    return;
                                }
                                let record = format!("{client} {thread} {number:>59}\n");
                                assert_eq!(file.append(record.as_bytes()).unwrap().bytes, 64);
                                appended.fetch_add(1, Ordering::SeqCst);
                            }
                        });
                    }
                });
            });
        }
        // Also when this thread fails.
        let _stop = Stop(&stop);
        let wait_for = |count: u64| {
            let until = Instant::now() + Duration::from_secs(60);
            while appended.load(Ordering::SeqCst) < count {
                assert!(Instant::now() < until, "nothing is appended any more");
                thread::yield_now();
            }
        };
        wait_for(100);
        meanwhile();
        wait_for(appended.load(Ordering::SeqCst) + 100);
    });
    appended.load(Ordering::SeqCst)
}

#[test]
fn appends_do_not_overwrite_what_others_have_written_behind_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(directory(dir.path()), &any_port(), None, GRACE);
    let remote = connect(&server);
    let file = create(&remote, "log");
    let block = [b'#'; 4096];
    let mut places = Vec::new();
    while_others_append(&server, "log", || {
        for _ in 0..20 {
            // Far enough behind what others append meanwhile.
            let place = file.attr().unwrap().size + (8 << 20);
            assert_eq!(file.write_at(place, &block).unwrap(), block.len());
            file.sync(true).unwrap();
            places.push(place);
            let written = file.append(b"mine\n").unwrap();
            assert!(written.offset >= place + 4096, "{} is before the end {}", written.offset, place + 4096);
        }
    });
    for place in places {
        let mut memory = [0; 4096];
        assert_eq!(file.read_at(place, &mut memory).unwrap(), 4096);
        assert!(memory == block, "at {place}");
    }
}

/// Mounts a small file system that knows no times of birth, for this thread and those that it starts. `false` where that is not possible.
fn mount(at: &Path, image: &Path) -> bool {
    File::create(image).unwrap().set_len(1 << 20).unwrap();
    std::fs::create_dir(at).unwrap();
    let is_done = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let old = ["-q", "-F", "-O", "^has_journal", "-I", "128"];
    is_done(Command::new("mkfs.ext4").env("PATH", path).args(old).arg(image))
        && is_done(Command::new("mount").args(["-o", "loop"]).arg(image).arg(at))
}

/// What may have been mounted: as long as it is, its folder cannot be removed.
struct Unmount([PathBuf; 2]);

impl Drop for Unmount {
    fn drop(&mut self) {
        for at in &self.0 {
            // It fails where nothing was mounted.
            let _ = rustix::mount::unmount(at, UnmountFlags::DETACH);
        }
    }
}

#[test]
fn files_of_two_file_systems_are_two() {
    let dir = tempfile::tempdir().unwrap();
    // Dropped before the folder is.
    let _unmount = Unmount(["a", "b"].map(|name| dir.path().join("export").join(name)));
    // SAFETY: what this thread shares no more are mounts, and the folder and mask that it works with.
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }.and_then(|()| {
        rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
    });
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("export")).unwrap();
    let is_mounted = |name| mount(&at("export").join(name), &at(name));
    if unshared.is_err() || !is_mounted("a") || !is_mounted("b") {
        return eprintln!("skipped: no file systems can be mounted");
    }
    let inode = |name: &str| {
        let path = at("export").join(name).join("log");
        File::create(&path).unwrap();
        (path.metadata().unwrap().ino(), path)
    };
    let ((a_inode, a_path), (b_inode, b_path)) = (inode("a"), inode("b"));
    assert_eq!(a_inode, b_inode, "as on any two fresh ones");
    let server = serve(directory(&at("export")), &any_port(), None, GRACE);
    let remote = connect(&server);
    let (a, b) = (create(&remote, "a/log"), create(&remote, "b/log"));
    assert_ne!(a.identity(), b.identity());
    assert_ne!(a.data().id(), b.data().id(), "a gate joins writes of one file");
    a.append(b"of a").unwrap();
    b.append(b"of b").unwrap();
    assert_eq!([a_path, b_path].map(|path| std::fs::read_to_string(path).unwrap()), ["of a", "of b"]);
    // It is the same after a restart.
    let before = [a.identity(), b.identity()];
    drop((a, b, remote, server));
    let server = serve(directory(&at("export")), &any_port(), None, GRACE);
    let remote = connect(&server);
    assert_eq!(["a/log", "b/log"].map(|path| create(&remote, path).identity()), before);
}

#[test]
fn an_append_that_fails_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log");
    // The longest file that there can be.
    let log = File::create(&path).unwrap();
    let (mut least, mut most) = (0, i64::MAX as u64);
    while least < most {
        let middle = most - (most - least) / 2;
        if log.set_len(middle).is_ok() { least = middle } else { most = middle - 1 }
    }
    let size = least - 10;
    log.set_len(size).unwrap();
    let server = serve(directory(dir.path()), &any_port(), None, GRACE);
    let file = create(&connect(&server), "log");
    assert_eq!(errno(file.append(&[b'x'; 100])), libc::EFBIG);
    assert_eq!(path.metadata().unwrap().len(), size, "the ten bytes that there was room for are no record");
}

#[test]
fn appends_follow_a_truncation() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(directory(dir.path()), &any_port(), None, GRACE);
    let remote = connect(&server);
    let file = create(&remote, "log");
    let change = Change { which: set::SIZE, size: 0, ..Change::default() };
    let mut cuts = 0;
    let appended = while_others_append(&server, "log", || {
        for _ in 0..30 {
            while file.attr().unwrap().size < 64 {
                thread::yield_now();
            }
            file.set_attr(own(), &change).unwrap();
            cuts += 1;
        }
        // A program on the server's machine is another writer.
        let mut local = std::fs::OpenOptions::new().append(true).open(dir.path().join("log")).unwrap();
        for _ in 0..100 {
            local.write_all(&[b'l'; 64]).unwrap();
        }
    });
    let bytes = std::fs::read(dir.path().join("log")).unwrap();
    assert_eq!((bytes.len() % 64, cuts), (0, 30));
    assert!(bytes.len() as u64 <= (appended + 100) * 64);
    assert!(!bytes.contains(&0), "no hole, and no zeros at the beginning");
    for record in bytes.chunks_exact(64) {
        assert!(record == [b'l'; 64] || record[1] == b' ' && record[3] == b' ', "a torn record");
    }
    assert_eq!(bytes.chunks_exact(64).filter(|record| **record == [b'l'; 64]).count(), 100);
}

#[test]
fn a_large_record_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(directory(dir.path()), &any_port(), None, GRACE);
    let remote = connect(&server);
    let file = create(&remote, "log");
    assert_eq!(remote.append_bytes_max(), 16 << 20);
    let large: Vec<u8> = (0..16 << 20).map(|index: u32| (index / 64) as u8 | 0x80).collect();
    let mut places = Vec::new();
    while_others_append(&server, "log", || {
        for _ in 0..3 {
            let written = file.append(&large).unwrap();
            assert_eq!(written.bytes as usize, large.len(), "not cut");
            places.push(written.offset);
        }
    });
    let bytes = std::fs::read(dir.path().join("log")).unwrap();
    for place in places {
        assert!(bytes[place as usize..][..large.len()] == large, "whole, where it was said to be");
    }
    assert_eq!(file.append(&vec![1; (16 << 20) + 1]).unwrap().bytes, 16 << 20, "longer ones are cut");
}

#[test]
fn files_are_appended_to_side_by_side_where_the_end_is_asked_for_afar() {
    let layout = Layout { first_target: 0, stripe_bytes: 64 << 10, targets: 2 };
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let servers = folders.each_ref().map(|folder| serve(directory(folder.path()), &any_port(), None, GRACE));
    let far = |server: &Server| Arc::new(connect(server)) as Arc<dyn Tree>;
    let client = ClientOptions { auth: Credential::None, stripes: true, ..ClientOptions::default() };
    let options = RemoteOptions { client, ..RemoteOptions::default() };
    let names = Arc::new(Remote::connect(servers[0].endpoints(), &options).unwrap());
    let tree = StripedTree::new(names, servers[1..].iter().map(far).collect(), layout).unwrap();
    let forwarder = serve(Arc::new(tree), &any_port(), None, GRACE);
    let remote = connect(&forwarder);
    let (done, finished) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let (remote, done) = (&remote, done.clone());
            scope.spawn(move || {
                let file = create(remote, name);
                for number in 0..200u64 {
                    assert_eq!(file.append(&[b'x'; 64]).unwrap().offset, number * 64);
                }
                done.send(()).unwrap();
            });
        }
        for _ in 0..4 {
            if finished.recv_timeout(Duration::from_secs(60)).is_err() {
                eprintln!("appends to several files wait for each other for ever");
                std::process::abort();
            }
        }
    });
}

#[test]
fn ranges_are_not_moved_between_machines() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(directory(dir.path()), &any_port(), None, GRACE);
    let file = create(&connect(&server), "file");
    file.write_at(0, &[1; 16384]).unwrap();
    for mode in [libc::FALLOC_FL_COLLAPSE_RANGE, libc::FALLOC_FL_INSERT_RANGE] {
        assert_eq!(errno(file.allocate(mode as u32, 4096, 4096)), libc::EOPNOTSUPP);
    }
    assert_eq!(file.attr().unwrap().size, 16384);
}

#[test]
fn records_that_were_underway_when_a_server_ended_are_found_or_cut_off() {
    use iogate_core::answers::{AppendIntent, HEADER_BYTES, Header, Key, Note, State};
    use iogate_core::wire::Record;

    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join(".iogate/answers");
    let open = || Some(Arc::new(Answers::open(&log, Keeping::Boot).unwrap()));
    drop(open());
    // What a process leaves that was killed: a whole record without an outcome, and a torn one.
    let (whole, torn) = ([b'w'; 1000], [b't'; 9000]);
    std::fs::write(dir.path().join("file"), [&whole[..], &torn[..8192 - 1000]].concat()).unwrap();
    let identity = {
        let tree = directory(dir.path());
        tree.identity(own(), Path::new("file")).unwrap()
    };
    let mut bytes = std::fs::read(&log).unwrap();
    assert!(Header::from_bytes(&bytes).is_some() && bytes.len() == HEADER_BYTES);
    for (number, place, record) in [(1, 0, &whole[..]), (2, 1000, &torn[..])] {
        let mut intent = Vec::new();
        AppendIntent::new(identity, place, record, 4096).encode(&mut intent);
        let key = Key { uid: own().uid, client: [7; 16], number, step: 0 };
        let time = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
        Note { key, below: 1, time, state: State::Intent, bytes: &intent }.encode(&mut bytes);
    }
    std::fs::write(&log, &bytes).unwrap();
    let answers = open();
    let server = serve(directory(dir.path()), &any_port(), answers.clone(), GRACE);
    let remote = connect(&server);
    let file = create(&remote, "file");
    assert_eq!(file.attr().unwrap().size, 1000, "the torn one is cut off when the file is opened");
    assert_eq!(file.append(b"next").unwrap().offset, 1000);
    drop((file, remote, server));
    drop(answers);
    let left = Answers::open(&log, Keeping::Boot).unwrap();
    assert_eq!(left.len(), 2, "the whole one and the next: the torn one may come again");
}
