//! Disks that are full: small ones, which only this process's threads see.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{directory, engine, errno, open, own, read};
use iogate_core::Layout;
use iogate_core::wire::{RequestOrigin, open};
use iogate_engine::Origin;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::server::{Answers, Export, Keeping};
use iogate_net::transport::auth::{Credential, Policy};
use iogate_net::{Listener, Server, ServerConfig};
use iogate_vfs::{StripedTree, Tree};
use rustix::mount::{MountFlags, MountPropagationFlags};
use rustix::thread::UnshareFlags;

/// Mounts an empty disk of so many bytes, for this thread and those that it starts. `false` where that is not allowed.
fn mount_small(at: &Path, bytes: usize) -> bool {
    // SAFETY: what this thread shares no more are mounts, and the folder and mask that it works with.
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) };
    let mounted = unshared
        .and_then(|()| {
            rustix::mount::mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        })
        .and_then(|()| {
            let size = std::ffi::CString::new(format!("size={bytes}")).unwrap();
            rustix::mount::mount("none", at, "tmpfs", MountFlags::empty(), size.as_c_str())
        });
    if let Err(error) = &mounted {
        eprintln!("skipped: a small disk cannot be mounted: {error}");
    }
    mounted.is_ok()
}

/// Writes to a file until nothing more fits.
fn fill(path: &Path) {
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    for bytes in [4096, 1] {
        while file.write_all(&vec![b'x'; bytes]).is_ok() {}
    }
}

#[test]
fn an_append_that_does_not_fit_leaves_nothing() {
    const LAYOUT: Layout = Layout { first_target: 0, stripe_bytes: 4096, targets: 2 };
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let path = dir.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (names, whole, small) = (folder("names"), folder("0"), folder("1"));
    if !mount_small(&small, 256 << 10) {
        return;
    }
    let [names, whole, small] = [names, whole, small].map(|path| serve(directory(&path), None, GRACE));
    let far = |server, stripes| Arc::new(connect(server, stripes)) as Arc<dyn Tree>;
    let targets = vec![far(&whole, false), far(&small, false)];
    let tree = StripedTree::new(far(&names, true), targets, LAYOUT).unwrap();
    let file = open(&tree, own(), "log", open::READ | open::WRITE | open::CREATE | open::APPEND).unwrap();
    let ballast = dir.path().join("1/ballast");
    let mut acknowledged = Vec::new();
    let mut number = 0u8;
    let mut append = |bytes: usize| {
        number += 1;
        let record = vec![number; bytes];
        let origin = RequestOrigin { client: [7; 16], number: number.into(), ..RequestOrigin::default() };
        let written = file.append(own().with_origin(origin), Origin::default(), &record).unwrap();
        if let Ok(written) = &written {
            assert_eq!(written.offset, acknowledged.len() as u64);
            assert_eq!(written.bytes as usize, bytes);
            acknowledged.extend_from_slice(&record);
        }
        let size = file.attr().unwrap().size;
        assert_eq!(size, acknowledged.len() as u64, "what did not fit is no part of the file");
        assert_eq!(read(&engine(&tree), &*file, 0, acknowledged.len() + 100_000).unwrap(), acknowledged);
        errno(written)
    };
    assert_eq!(append(10_000), 0);
    fill(&ballast);
    // The first stripes of these fit, and so does the last one of the second.
    assert_eq!(append(10_000), libc::ENOSPC);
    assert_eq!(append(12_000), libc::ENOSPC);
    assert_eq!(append(100_000), libc::ENOSPC);
    File::options().write(true).open(&ballast).unwrap().set_len(0).unwrap();
    assert_eq!(append(10_000), 0);
    assert_eq!(append(5), 0);
}

const GRACE: Duration = Duration::from_secs(60);

fn serve(tree: Arc<dyn Tree>, answers: Option<Arc<Answers>>, grace: Duration) -> Server {
    let export = Export {
        striping: Layout { first_target: 0, stripe_bytes: 4096, targets: 2 },
        forwarders: vec![own().uid],
        answers,
        ..Export::new("files", engine(&*tree), tree)
    };
    let config = ServerConfig { session_grace: grace, ..ServerConfig::alone(vec![export]) };
    let endpoint = "127.0.0.1:0".parse().unwrap();
    let listener = Listener::bind(&endpoint, Policy::None { user: own(), on_any_network: false }).unwrap();
    Server::start(config, vec![listener]).unwrap()
}

fn connect(server: &Server, stripes: bool) -> Remote {
    let client = ClientOptions { auth: Credential::None, stripes, ..ClientOptions::default() };
    Remote::connect(server.endpoints(), &RemoteOptions { client, ..RemoteOptions::default() }).unwrap()
}

/// Takes the room that is kept behind the end of a log.
fn take_room(log: &Path) {
    let log = File::options().write(true).open(log).unwrap();
    log.set_len(log.metadata().unwrap().len()).unwrap();
}

#[test]
fn a_full_disk_can_be_made_empty() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    if !mount_small(root, 1 << 20) {
        return;
    }
    let start = || {
        let answers = Answers::open(&root.join(".iogate/answers"), Keeping::Boot).unwrap();
        serve(directory(root), Some(Arc::new(answers)), Duration::from_secs(1))
    };
    let server = start();
    let remote = connect(&server, false);
    for name in ["one", "two", "three"] {
        fs::write(root.join(name), "some").unwrap();
    }
    fs::create_dir(root.join("folder")).unwrap();
    fill(&root.join("ballast"));
    // There is room for what must be noted.
    remote.unlink(own(), Path::new("one"), false).unwrap();
    drop((remote, server));
    // It outlives the server.
    fill(&root.join("ballast"));
    let server = start();
    let remote = connect(&server, false);
    remote.unlink(own(), Path::new("two"), false).unwrap();
    for number in 0..100 {
        remote.symlink(own(), Path::new("nothing"), Path::new(&format!("early{number}"))).unwrap();
    }
    // And it is possible without.
    take_room(&root.join(".iogate/answers"));
    fill(&root.join("ballast"));
    // What is left of the log's last page is used up.
    let noted = |number| remote.symlink(own(), Path::new("nothing"), Path::new(&format!("late{number}")));
    assert!((0..100).any(|number| noted(number).is_err()), "the disk is not full");
    remote.unlink(own(), Path::new("three"), false).unwrap();
    remote.unlink(own(), Path::new("folder"), true).unwrap();
    remote.unlink(own(), Path::new("ballast"), false).unwrap();
    // What was there before the server is kept for a while, as somebody may come back to it.
    let until = Instant::now() + Duration::from_secs(30);
    while let Err(error) = fs::write(root.join("new"), [1; 100_000]) {
        assert!(Instant::now() < until, "{error}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!root.join("three").exists() && !root.join("folder").exists());
}
