//! Locks of files hold among the clients of a server, beside whoever else uses the files, and over its restart.

mod common;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{GRACE, any_port, serve};
use iogate_core::file_locks::{ByteRange, Kind};
use iogate_core::wire::{Lock, lock, open};
use iogate_engine::store::DirectoryStore;
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::transport::auth::Credential;
use iogate_net::{Endpoint, Server};
use iogate_vfs::outside::OutsideLocks;
use iogate_vfs::{Caller, DirectoryTree, OpenHow, Tree, TreeFile};

fn start(folder: &Path, at: &Endpoint, grace: Duration) -> Server {
    let tree = DirectoryTree::new(folder, Arc::new(DirectoryStore::new(folder).unwrap())).unwrap();
    serve(Arc::new(tree), at, None, grace)
}

/// A client with its file open.
struct Client {
    remote: Remote,
    file: Arc<dyn TreeFile>,
}

impl Client {
    fn new(endpoint: &Endpoint) -> Client {
        let client = ClientOptions { auth: Credential::None, ..ClientOptions::default() };
        let options = RemoteOptions { client, ..RemoteOptions::default() };
        let remote = Remote::connect(std::slice::from_ref(endpoint), &options).unwrap();
        let file = Client::open(&remote);
        Client { remote, file }
    }

    fn open(remote: &Remote) -> Arc<dyn TreeFile> {
        let how =
            OpenHow { flags: open::READ | open::WRITE | open::CREATE, mode: 0o644, ..OpenHow::default() };
        let caller = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        remote.open(caller, "file".as_ref(), how).unwrap()
    }

    fn lock(&self, wish: &Lock) -> Result<(), i32> {
        errno(self.file.set_lock(wish))
    }
}

fn errno<T>(result: io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap())
}

fn wish(kind: u8, owner: u64, first: u64, last: u64) -> Lock {
    Lock { space: lock::BYTES, kind, owner, first, last, process: 77 }
}

#[test]
fn locks_hold_among_clients() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &any_port(), GRACE);
    let [one, two] = [(); 2].map(|()| Client::new(&server.endpoints()[0]));
    assert!(one.remote.shares_locks());
    one.lock(&wish(lock::EXCLUSIVE, 1, 10, 19)).unwrap();
    // Of the same number, but another client's.
    assert_eq!(two.lock(&wish(lock::SHARED, 1, 0, 10)), Err(libc::EAGAIN));
    let holder = two.file.get_lock(&wish(lock::SHARED, 1, 0, 100)).unwrap();
    assert_eq!((holder.kind, holder.first, holder.last, holder.process), (lock::EXCLUSIVE, 10, 19, 0));
    let own = one.file.get_lock(&wish(lock::SHARED, 2, 0, 100)).unwrap();
    assert_eq!((own.owner, own.process), (1, 77));
    two.lock(&wish(lock::EXCLUSIVE, 1, 20, u64::MAX)).unwrap();
    // Another handle is the same owner's.
    let again = Client::open(&one.remote);
    again.set_lock(&wish(lock::NONE, 1, 10, 19)).unwrap();
    two.lock(&wish(lock::SHARED, 1, 0, 10)).unwrap();
    assert_eq!(two.file.get_lock(&wish(lock::EXCLUSIVE, 1, 0, u64::MAX)).unwrap().kind, lock::NONE);
    // And who goes leaves nothing.
    drop(two);
    let begun = Instant::now();
    while one.lock(&wish(lock::EXCLUSIVE, 1, 0, u64::MAX)) == Err(libc::EAGAIN) {
        assert!(begun.elapsed() < Duration::from_secs(20), "a client that has gone still has its lock");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program of the server's machine, which opens the file past the server.
#[test]
fn locks_hold_beside_programs_of_the_servers_machine() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &any_port(), GRACE);
    let one = Client::new(&server.endpoints()[0]);
    let file = std::fs::File::options().read(true).write(true).open(folder.path().join("file")).unwrap();
    let program = OutsideLocks::new(file.into(), false);
    let range = |first, last| ByteRange::new(first, last).unwrap();
    one.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
    assert!(!program.set(Some(Kind::Shared), range(9, 9)).unwrap());
    assert!(program.set(Some(Kind::Exclusive), range(10, 19)).unwrap());
    assert_eq!(one.lock(&wish(lock::SHARED, 1, 0, 10)), Err(libc::EAGAIN));
    let holder = one.file.get_lock(&wish(lock::SHARED, 1, 5, 100)).unwrap();
    assert_eq!((holder.kind, holder.first, holder.last, holder.process), (lock::EXCLUSIVE, 10, 19, 0));
    let whole = Lock { space: lock::FILE, ..wish(lock::SHARED, 1, 0, u64::MAX) };
    one.lock(&whole).unwrap();
    assert!(
        !program.set_whole(Some(Kind::Exclusive)).unwrap() && program.set_whole(Some(Kind::Shared)).unwrap()
    );
    // Who goes leaves nothing.
    drop(one);
    let begun = Instant::now();
    while !(program.set(Some(Kind::Exclusive), ByteRange::ALL).unwrap()
        && program.set_whole(Some(Kind::Exclusive)).unwrap())
    {
        assert!(begun.elapsed() < Duration::from_secs(20), "a client that has gone still has its lock");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn who_held_a_lock_has_it_over_a_restart_and_nobody_else() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &any_port(), GRACE);
    let endpoint = server.endpoints()[0].clone();
    let [one, two] = [(); 2].map(|()| Client::new(&endpoint));
    one.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
    drop(server);
    let server = start(folder.path(), &endpoint, Duration::from_secs(3));
    // Whoever is first: the lock is still the one's, and all others are kept for a while.
    assert_eq!(two.lock(&wish(lock::EXCLUSIVE, 1, 100, 109)), Err(libc::EBUSY));
    one.file.attr().unwrap();
    let begun = Instant::now();
    while two.lock(&wish(lock::EXCLUSIVE, 1, 100, 109)) == Err(libc::EBUSY) {
        assert!(begun.elapsed() < Duration::from_secs(20), "the grace has no end");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(two.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)), Err(libc::EAGAIN));
    one.lock(&wish(lock::NONE, 1, 0, 9)).unwrap();
    two.lock(&wish(lock::NONE, 1, 0, 200)).unwrap();
    // Nobody holds one: the next server keeps none.
    drop(server);
    let _server = start(folder.path(), &endpoint, GRACE);
    two.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
}

#[test]
fn what_is_no_lock_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &any_port(), GRACE);
    let one = Client::new(&server.endpoints()[0]);
    assert_eq!(one.lock(&wish(3, 1, 0, 9)), Err(libc::EINVAL));
    assert_eq!(one.lock(&wish(lock::SHARED, 1, 9, 0)), Err(libc::EINVAL));
    assert_eq!(errno(one.file.get_lock(&wish(lock::NONE, 1, 0, 9))), Err(libc::EINVAL));
}

#[test]
fn who_comes_back_too_late_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &any_port(), GRACE);
    let endpoint = server.endpoints()[0].clone();
    let one = Client::new(&endpoint);
    one.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
    let other = Client::open(&one.remote);
    drop(server);
    // No time to come back in.
    let _server = start(folder.path(), &endpoint, Duration::ZERO);
    assert_eq!(errno(one.file.attr()).unwrap_err(), libc::ESTALE, "others may have had the lock");
    drop(other);
    let two = Client::new(&endpoint);
    two.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
}
