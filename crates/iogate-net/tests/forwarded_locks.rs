//! Locks of files hold among the clients of several forwarders, over restarts of the server of names and of forwarders.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{GRACE, any_port, directory, serve};
use iogate_core::Layout;
use iogate_core::wire::{Change, Lock, lock, set};
use iogate_net::client::{ClientOptions, Remote, RemoteFile, RemoteOptions, Spread};
use iogate_net::transport::auth::Credential;
use iogate_net::{Endpoint, Server};
use iogate_vfs::{Caller, StripedTree, Tree, TreeFile};

const LAYOUT: Layout = Layout { first_target: 0, stripe_bytes: 4096, targets: 2 };
const PATIENCE: Duration = Duration::from_secs(60);

fn connect_to(endpoints: &[Endpoint], stripes: bool, spread: Spread) -> Remote {
    let client = ClientOptions { auth: Credential::None, stripes, ..ClientOptions::default() };
    let options = RemoteOptions { client, spread, server: Some(0), ..RemoteOptions::default() };
    Remote::connect(endpoints, &options).unwrap()
}

/// A server of names, two of data, and two forwarders in front of them.
struct Place {
    dir: tempfile::TempDir,
    names: Option<Server>,
    targets: Vec<Server>,
    forwarders: Vec<Option<Server>>,
}

impl Place {
    fn new() -> Place {
        Place::with_grace(GRACE)
    }

    /// How long servers keep what is a forwarder's that has gone.
    fn with_grace(grace: Duration) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let server = |name: &str| {
            fs::create_dir(dir.path().join(name)).unwrap();
            serve(directory(&dir.path().join(name)), &any_port(), None, grace)
        };
        let (names, targets) = (server("names"), ["0", "1"].map(server).into());
        let mut place = Place { dir, names: Some(names), targets, forwarders: Vec::new() };
        for number in 0..2 {
            let forwarder = place.forwarder(number, &any_port());
            place.forwarders.push(Some(forwarder));
        }
        place
    }

    fn forwarder(&self, number: u32, at: &Endpoint) -> Server {
        let forwarder = Some(iogate_net::client::forwarder(number, 2).unwrap());
        let remote = |server: &Server, stripes| {
            let client =
                ClientOptions { auth: Credential::None, stripes, forwarder, ..ClientOptions::default() };
            let options = RemoteOptions { client, ..RemoteOptions::default() };
            Arc::new(Remote::connect(server.endpoints(), &options).unwrap())
        };
        let targets = self.targets.iter().map(|server| remote(server, false) as Arc<dyn Tree>).collect();
        let names = remote(self.names.as_ref().unwrap(), true);
        let tree = StripedTree::new(names, targets, LAYOUT).unwrap();
        serve(Arc::new(tree), at, None, GRACE)
    }

    fn endpoint(&self, forwarder: usize) -> Endpoint {
        self.forwarders[forwarder].as_ref().unwrap().endpoints()[0].clone()
    }

    fn client(&self, forwarder: usize) -> Client {
        Client::of(connect_to(&[self.endpoint(forwarder)], false, Spread::default()))
    }

    /// Ends the server of names, does something, and starts it again; clients may come back for so long.
    fn restart_names(&mut self, grace: Duration, meanwhile: impl FnOnce()) {
        let names = self.names.take().unwrap();
        let endpoint = names.endpoints()[0].clone();
        drop(names);
        meanwhile();
        self.names = Some(serve(directory(&self.dir.path().join("names")), &endpoint, None, grace));
    }

    fn restart_forwarder(&mut self, forwarder: usize) {
        let endpoint = self.endpoint(forwarder);
        drop(self.forwarders[forwarder].take());
        self.forwarders[forwarder] = Some(self.forwarder(forwarder as u32, &endpoint));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Before what they would wait for.
        self.forwarders.clear();
    }
}

/// A client with its file open.
struct Client {
    remote: Remote,
    file: RemoteFile,
}

impl Client {
    fn of(remote: Remote) -> Client {
        let file = remote.create(Path::new("file"), 0o644).unwrap();
        Client { remote, file }
    }

    fn lock(&self, wish: &Lock) -> Result<(), i32> {
        errno(self.file.set_lock(wish))
    }

    fn lock_in_time(&self, wish: &Lock) {
        let begun = Instant::now();
        while let Err(error) = self.lock(wish) {
            assert!(matches!(error, libc::EAGAIN | libc::EBUSY), "{error}");
            assert!(begun.elapsed() < PATIENCE, "the lock is not given");
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn write(&self, offset: u64) -> Result<usize, i32> {
        errno(self.file.write_at(offset, b"here"))
    }
}

fn errno<T>(result: std::io::Result<T>) -> Result<T, i32> {
    result.map_err(|error| error.raw_os_error().unwrap())
}

fn wish(kind: u8, owner: u64, first: u64, last: u64) -> Lock {
    Lock { space: lock::BYTES, kind, owner, first, last, process: 77 }
}

fn all(kind: u8) -> Lock {
    wish(kind, 1, 0, u64::MAX)
}

#[test]
fn locks_hold_among_clients_of_two_forwarders() {
    let place = Place::new();
    let [one, near, far] = [0, 0, 1].map(|forwarder| place.client(forwarder));
    assert!(one.remote.shares_locks());
    one.lock(&wish(lock::EXCLUSIVE, 1, 10, 19)).unwrap();
    for other in [&near, &far] {
        assert_eq!(other.lock(&wish(lock::SHARED, 1, 0, 10)), Err(libc::EAGAIN));
        let holder = other.file.get_lock(&wish(lock::SHARED, 1, 0, 100)).unwrap();
        assert_eq!((holder.kind, holder.first, holder.last, holder.process), (lock::EXCLUSIVE, 10, 19, 0));
    }
    let own = one.file.get_lock(&wish(lock::SHARED, 2, 0, 100)).unwrap();
    assert_eq!((own.kind, own.owner, own.process), (lock::EXCLUSIVE, 1, 77));
    // The other kind is free, and so is what is given back.
    far.lock(&Lock { space: lock::FILE, ..all(lock::EXCLUSIVE) }).unwrap();
    one.lock(&wish(lock::NONE, 1, 10, 15)).unwrap();
    near.lock(&wish(lock::SHARED, 1, 0, 15)).unwrap();
    far.lock(&wish(lock::SHARED, 1, 0, 15)).unwrap();
    assert_eq!(one.lock(&wish(lock::EXCLUSIVE, 1, 15, 15)), Err(libc::EAGAIN));
    // Who goes leaves nothing.
    drop((one, near));
    far.lock_in_time(&all(lock::EXCLUSIVE));
    assert_eq!(errno(far.file.get_lock(&wish(lock::NONE, 1, 0, 9))), Err(libc::EINVAL));
    assert_eq!(far.lock(&wish(3, 1, 0, 9)), Err(libc::EINVAL));
}

#[test]
fn what_is_changed_under_a_lock_loses_nothing() {
    const EACH: u64 = 50;
    let place = Place::new();
    // Over a boundary of stripes.
    let at = LAYOUT.stripe_bytes - 4;
    thread::scope(|scope| {
        for number in 0..4 {
            let client = place.client(number % 2);
            scope.spawn(move || {
                for _ in 0..EACH {
                    client.lock_in_time(&all(lock::EXCLUSIVE));
                    let mut count = [0; 8];
                    let read = client.file.read_at(at, &mut count).unwrap();
                    let next = if read == 0 { 0 } else { u64::from_le_bytes(count) } + 1;
                    assert_eq!(client.file.write_at(at, &next.to_le_bytes()).unwrap(), 8);
                    client.lock(&all(lock::NONE)).unwrap();
                }
            });
        }
    });
    let mut count = [0; 8];
    place.client(0).file.read_at(at, &mut count).unwrap();
    assert_eq!(u64::from_le_bytes(count), 4 * EACH);
}

/// A file that a forwarder has just made counts as its own, for attributes, until somebody asks for a lock of it.
#[test]
fn who_has_a_lock_sees_how_long_a_new_file_is() {
    let place = Place::new();
    let [one, two] = [0, 1].map(|forwarder| place.client(forwarder));
    assert_eq!(two.write(4096), Ok(4));
    one.lock(&all(lock::EXCLUSIVE)).unwrap();
    let change = Change { which: set::MODE, mode: 0o600, ..Change::default() };
    let caller = Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    assert_eq!(one.file.set_attr(caller, &change).unwrap().size, 4100);
}

#[test]
fn a_lock_survives_the_server_of_names() {
    let mut place = Place::new();
    let [one, two] = [0, 1].map(|forwarder| place.client(forwarder));
    one.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
    place.restart_names(Duration::from_secs(3), || {});
    assert_eq!(two.lock(&wish(lock::EXCLUSIVE, 1, 100, 109)), Err(libc::EBUSY));
    assert_eq!(one.write(0), Ok(4));
    two.lock_in_time(&wish(lock::EXCLUSIVE, 1, 100, 109));
    assert_eq!(two.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)), Err(libc::EAGAIN));
    one.lock(&all(lock::NONE)).unwrap();
    two.lock(&all(lock::EXCLUSIVE)).unwrap();
}

#[test]
fn who_has_lost_a_lock_reaches_no_data_of_its_file() {
    let mut place = Place::new();
    let [one, near, far] = [0, 0, 1].map(|forwarder| place.client(forwarder));
    one.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
    for stripe in 0..2 {
        // The objects are open.
        assert_eq!(one.write(4096 * stripe), Ok(4));
    }
    // No time for the forwarder to come back in. It looks once a second whether the server is there, which has it notice far within any
    // grace that is one.
    place.restart_names(Duration::ZERO, || thread::sleep(Duration::from_secs(2)));
    far.lock_in_time(&wish(lock::EXCLUSIVE, 1, 0, 9));
    for stripe in 0..2 {
        assert_eq!(one.write(4096 * stripe), Err(libc::ESTALE), "others have the lock");
        assert_eq!(errno(one.file.read_at(4096 * stripe, &mut [0; 4])), Err(libc::ESTALE));
        assert_eq!(far.write(4096 * stripe), Ok(4));
    }
    assert_eq!(errno(one.file.append(b"record")).unwrap_err(), libc::ESTALE);
    assert_eq!(errno(TreeFile::allocate(&one.file, 0, 0, 8192)), Err(libc::ESTALE));
    assert_eq!(one.lock(&all(lock::NONE)), Err(libc::ESTALE));
    // Who opens the file anew asks for a lock anew.
    drop(near);
    let again = Client::of(one.remote);
    assert_eq!(again.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)), Err(libc::EAGAIN));
    drop(far);
    again.lock_in_time(&all(lock::EXCLUSIVE));
    assert_eq!(again.write(0), Ok(4));
}

#[test]
fn a_file_with_locks_waits_for_the_server_that_has_them() {
    let mut place = Place::new();
    let (one, two) = (place.client(0), place.client(1));
    one.lock(&all(lock::EXCLUSIVE)).unwrap();
    let free = two.remote.create(Path::new("free"), 0o644).unwrap();
    for stripe in 0..2 {
        assert_eq!((one.write(4096 * stripe), free.write_at(4096 * stripe, b"here").unwrap()), (Ok(4), 4));
    }
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        place.restart_names(GRACE, || {
            // The forwarders notice that it is gone.
            thread::sleep(Duration::from_secs(2));
            scope.spawn(move || done.send(one.write(4096)).unwrap());
            assert!(is_done.recv_timeout(Duration::from_secs(1)).is_err(), "nobody knows who has the lock");
            assert_eq!(free.write_at(4096, b"here").unwrap(), 4, "a file without locks does not wait");
        });
        assert_eq!(is_done.recv_timeout(PATIENCE).unwrap(), Ok(4));
    });
}

#[test]
fn a_forwarder_that_is_started_again_has_lost_the_locks_of_its_clients() {
    let mut place = Place::with_grace(Duration::from_secs(4));
    let [one, two] = [0, 1].map(|forwarder| place.client(forwarder));
    one.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
    let free = one.remote.create(Path::new("free"), 0o644).unwrap();
    place.restart_forwarder(0);
    // What its clients have on its way when they hear of it may still be done as who has the lock.
    assert_eq!(two.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)), Err(libc::EAGAIN));
    two.lock_in_time(&wish(lock::EXCLUSIVE, 1, 0, 9));
    assert_eq!(one.write(0), Err(libc::ESTALE));
    assert_eq!(errno(one.file.attr()).unwrap_err(), libc::ESTALE);
    assert_eq!(free.write_at(0, b"here").unwrap(), 4, "of other files nothing is lost");
    let again = Client::of(one.remote);
    assert_eq!(again.lock(&wish(lock::SHARED, 1, 0, 9)), Err(libc::EAGAIN));
}

#[test]
fn a_client_of_several_forwarders_has_its_locks_at_one() {
    let mut place = Place::with_grace(Duration::from_secs(4));
    let endpoints = [place.endpoint(0), place.endpoint(1)];
    let both = Client::of(connect_to(&endpoints, false, Spread::Target));
    assert!(both.remote.shares_locks());
    let two = place.client(1);
    both.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
    assert_eq!(two.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)), Err(libc::EAGAIN));
    for stripe in 0..2 {
        assert_eq!(both.write(4096 * stripe), Ok(4));
    }
    place.restart_forwarder(0);
    two.lock_in_time(&wish(lock::EXCLUSIVE, 1, 0, 9));
    // Whichever of the two forwarders it goes through.
    for stripe in 0..2 {
        assert_eq!(both.write(4096 * stripe), Err(libc::ESTALE));
    }
    let again = Client::of(both.remote);
    assert_eq!(again.write(4096), Ok(4));
}

/// Forwarders over a parallel file system: here it is a directory of the machine.
#[test]
fn several_servers_of_one_directory_take_locks_on_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let start = |at: &Endpoint| serve(directory(dir.path()), at, None, Duration::ZERO);
    let servers = [(); 2].map(|()| start(&any_port()));
    let [first, second] = servers.each_ref().map(|server| server.endpoints()[0].clone());
    let endpoints = [first, second];
    let both = Client::of(connect_to(&endpoints, false, Spread::Target));
    let second = Client::of(connect_to(&endpoints[1..], false, Spread::default()));
    assert!(both.remote.shares_locks() && second.remote.shares_locks());
    both.lock(&wish(lock::EXCLUSIVE, 1, 0, 9)).unwrap();
    assert_eq!(second.lock(&wish(lock::EXCLUSIVE, 1, 9, 9)), Err(libc::EAGAIN));
    second.lock(&wish(lock::EXCLUSIVE, 1, 10, 19)).unwrap();
    assert_eq!(both.lock(&wish(lock::SHARED, 1, 0, 10)), Err(libc::EAGAIN));
    both.lock(&wish(lock::NONE, 1, 0, 9)).unwrap();
    second.lock(&all(lock::EXCLUSIVE)).unwrap();
    second.lock(&all(lock::NONE)).unwrap();

    // A server that is started again knows nothing of what another one has given meanwhile.
    both.lock(&all(lock::EXCLUSIVE)).unwrap();
    let [server, _other] = servers;
    drop(server);
    second.lock_in_time(&all(lock::EXCLUSIVE));
    second.lock(&all(lock::NONE)).unwrap();
    let _again = start(&endpoints[0]);
    for stripe in 0..2 {
        assert_eq!(both.write(4096 * stripe), Err(libc::ESTALE), "by whichever server");
    }
    let again = Client::of(both.remote);
    again.lock_in_time(&all(lock::EXCLUSIVE));
    assert_eq!(again.write(0), Ok(4));
}

#[test]
fn a_server_with_stripes_in_directories_keeps_locks() {
    let dir = tempfile::tempdir().unwrap();
    let part = |name: &str| {
        fs::create_dir(dir.path().join(name)).unwrap();
        directory(&dir.path().join(name)) as Arc<dyn Tree>
    };
    let tree = StripedTree::new(part("names"), vec![part("0"), part("1")], LAYOUT).unwrap();
    let server = serve(Arc::new(tree), &any_port(), None, GRACE);
    let [one, two] = [(); 2].map(|()| Client::of(connect_to(server.endpoints(), false, Spread::default())));
    one.lock(&all(lock::EXCLUSIVE)).unwrap();
    assert_eq!(two.lock(&all(lock::SHARED)), Err(libc::EAGAIN));
    assert!(dir.path().join("names/.iogate/locked").exists());
}

#[test]
fn a_forwarder_of_one_server_passes_locks_on() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(directory(dir.path()), &any_port(), None, GRACE);
    let forwarders = [(); 2].map(|()| {
        let remote = connect_to(server.endpoints(), false, Spread::default());
        serve(Arc::new(remote), &any_port(), None, GRACE)
    });
    let [one, two] = forwarders
        .each_ref()
        .map(|server| Client::of(connect_to(server.endpoints(), false, Spread::default())));
    let direct = Client::of(connect_to(server.endpoints(), false, Spread::default()));
    one.lock(&all(lock::EXCLUSIVE)).unwrap();
    assert_eq!(two.lock(&all(lock::SHARED)), Err(libc::EAGAIN));
    assert_eq!(direct.lock(&all(lock::SHARED)), Err(libc::EAGAIN));
    drop(one);
    two.lock_in_time(&all(lock::EXCLUSIVE));
    assert_eq!(direct.lock(&all(lock::SHARED)), Err(libc::EAGAIN));
}
