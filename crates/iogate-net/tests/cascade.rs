//! A client, a forwarder and a data server: the client against real servers, and a server behind a server.

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use common::{GRACE, any_port, directory, engine, errno, own, serve};
use iogate_core::Layout;
use iogate_core::wire::{Change, open, set};
use iogate_net::client::{ClientOptions, Receiving, Remote, RemoteOptions, Spread};
use iogate_net::transport::auth::Credential;
use iogate_net::{Endpoint, Server};
use iogate_vfs::{StripedTree, Tree, TreeFile};

fn options(receiving: Receiving) -> RemoteOptions {
    let client = ClientOptions { auth: Credential::None, receiving, ..ClientOptions::default() };
    RemoteOptions { client, ..RemoteOptions::default() }
}

fn connect(server: &Server, receiving: Receiving) -> Remote {
    Remote::connect(server.endpoints(), &options(receiving)).unwrap()
}

fn pattern(bytes: usize, seed: u32) -> Vec<u8> {
    (seed..).flat_map(|index| index.wrapping_mul(0x9E37_79B9).to_le_bytes()).take(bytes).collect()
}

/// What there is of the tree, through a client.
fn use_it(remote: &Remote) {
    let me = own();
    let path = Path::new;
    remote.make_node(me, path("dir"), libc::S_IFDIR | 0o755, 0).unwrap();
    let file = remote.create(path("dir/one"), 0o644).unwrap();
    let data = pattern((5 << 20) + 7, 1);
    assert_eq!(file.write_at(0, &data).unwrap(), data.len());
    let mut memory = vec![0; data.len() + 10];
    assert_eq!(file.read_at(0, &mut memory).unwrap(), data.len(), "and then the file ends");
    assert!(memory[..data.len()] == data);
    let written = file.append(b"more").unwrap();
    assert_eq!((written.offset, written.bytes), (data.len() as u64, 4));
    file.sync(true).unwrap();
    assert_eq!(file.attr().unwrap().size, data.len() as u64 + 4);
    let change = Change { which: set::SIZE, size: 100, ..Change::default() };
    assert_eq!(file.set_attr(me, &change).unwrap().size, 100);
    file.allocate(0, 0, 8192).unwrap();
    assert_eq!(TreeFile::attr(&file).unwrap().size, 8192);
    assert_eq!(file.seek(0, false).unwrap(), 0);

    remote.symlink(me, path("one"), path("dir/link")).unwrap();
    assert_eq!(remote.read_link(me, path("dir/link")).unwrap(), b"one");
    remote.link(me, path("dir/one"), path("dir/two")).unwrap();
    remote.rename(me, path("dir/two"), path("dir/three"), 0).unwrap();
    for index in 0..300 {
        remote.make_node(me, path(&format!("dir/entry-{index:03}")), libc::S_IFREG | 0o600, 0).unwrap();
    }
    let mut names = Vec::new();
    let mut take = |_: &_, name: &[u8]| {
        names.push(String::from_utf8_lossy(name).into_owned());
        true
    };
    remote.read_dir(me, path("dir"), 0, &mut take).unwrap();
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    assert_eq!(names.len(), 303);
    assert_eq!((&*names[300], &*names[301], &*names[302]), ("link", "one", "three"));
    remote.unlink(me, path("dir/three"), false).unwrap();
    assert_eq!(errno(remote.unlink(me, path("dir"), true)), libc::ENOTEMPTY);
    assert_eq!(errno(remote.attr(me, path("dir/three"))), libc::ENOENT);
    assert_eq!(
        errno(remote.open_with(path("dir/one"), open::WRITE | open::CREATE | open::EXCLUSIVE, 0o600)),
        libc::EEXIST
    );
    assert!(remote.space().unwrap().blocks > 0);
}

#[test]
fn a_client_uses_a_server() {
    for receiving in [Receiving::Background, Receiving::Inline] {
        let dir = tempfile::tempdir().unwrap();
        let server = serve(directory(dir.path()), &any_port(), None, GRACE);
        use_it(&connect(&server, receiving));
    }
}

#[test]
fn a_server_can_serve_another_one() {
    let dir = tempfile::tempdir().unwrap();
    let data = serve(directory(dir.path()), &any_port(), None, GRACE);
    let forwarder = serve(Arc::new(connect(&data, Receiving::Background)), &any_port(), None, GRACE);
    use_it(&connect(&forwarder, Receiving::Background));
}

#[test]
fn several_servers_of_the_same_files_are_one_tree() {
    for spread in [Spread::Client, Spread::Process, Spread::File, Spread::Target] {
        let dir = tempfile::tempdir().unwrap();
        let servers = [
            serve(directory(dir.path()), &any_port(), None, GRACE),
            serve(directory(dir.path()), &any_port(), None, GRACE),
        ];
        let endpoints: Vec<Endpoint> =
            servers.iter().flat_map(|server| server.endpoints().to_vec()).collect();
        let options = RemoteOptions { spread, ..options(Receiving::Background) };
        let remote = Remote::connect(&endpoints, &options).unwrap();
        use_it(&remote);
        let engine = engine(&remote);
        let file = common::open(&remote, own(), "shared", open::READ | open::WRITE | open::CREATE).unwrap();
        let data = pattern(3 << 20, 5);
        assert_eq!(common::write(&engine, &*file, 0, &data).unwrap(), data.len());
        assert!(common::read(&engine, &*file, 0, data.len()).unwrap() == data, "{spread:?}");
    }
}

#[test]
fn what_was_answered_is_there_although_servers_restart() {
    let dir = tempfile::tempdir().unwrap();
    let mut data = Some(serve(directory(dir.path()), &any_port(), None, GRACE));
    let data_at = data.as_ref().unwrap().endpoints()[0].clone();
    let behind = Arc::new(connect(data.as_ref().unwrap(), Receiving::Background));
    let mut forwarder = Some(serve(behind.clone(), &any_port(), None, GRACE));
    let forwarder_at = forwarder.as_ref().unwrap().endpoints()[0].clone();
    let remote = connect(forwarder.as_ref().unwrap(), Receiving::Background);
    let file = remote.create("file".as_ref(), 0o644).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..4u32 {
            let (file, is_over) = (&file, &is_over);
            scope.spawn(move || {
                let offset = u64::from(thread) << 20;
                for round in 0.. {
                    let bytes = if round % 2 == 0 { 4096 } else { 300_000 };
                    let data = pattern(bytes, thread * 1000 + round);
                    assert_eq!(file.write_at(offset, &data).unwrap(), bytes);
                    let mut memory = vec![0; bytes];
                    assert_eq!(file.read_at(offset, &mut memory).unwrap(), bytes);
                    assert!(memory == data, "thread {thread}, round {round}");
                    if is_over.load(Ordering::SeqCst) {
                        break;
                    }
                }
            });
        }
        for _ in 0..3 {
            thread::sleep(Duration::from_millis(60));
            drop(data.take());
            data = Some(serve(directory(dir.path()), &data_at, None, GRACE));
            thread::sleep(Duration::from_millis(60));
            drop(forwarder.take());
            forwarder = Some(serve(behind.clone(), &forwarder_at, None, GRACE));
        }
        thread::sleep(Duration::from_millis(60));
        is_over.store(true, Ordering::SeqCst);
    });
}

/// Passes connections on to a server, until they are cut.
struct Cuttable {
    endpoint: Endpoint,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Cuttable {
    fn new(server: &Server) -> Cuttable {
        let Endpoint::Tcp { port: to, .. } = server.endpoints()[0] else { unreachable!("it listens on TCP") };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let streams: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let all = Arc::clone(&streams);
        // Ends with the test's process.
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(("127.0.0.1", to)).unwrap());
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    thread::spawn(move || pass_on(from, to));
                }
                all.lock().unwrap().extend([client, server]);
            }
        });
        Cuttable { endpoint: Endpoint::Tcp { host: "127.0.0.1".into(), port }, streams }
    }

    fn cut(&self) {
        for stream in self.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let mut memory = [0; 5000];
    while let Ok(bytes @ 1..) = from.read(&mut memory) {
        if to.write_all(&memory[..bytes]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn appends_and_new_names_take_effect_once_although_connections_are_cut() {
    let dir = tempfile::tempdir().unwrap();
    let server = serve(directory(dir.path()), &any_port(), None, GRACE);
    let way = Cuttable::new(&server);
    for receiving in [Receiving::Background, Receiving::Inline] {
        let remote = Remote::connect(std::slice::from_ref(&way.endpoint), &options(receiving)).unwrap();
        let name = format!("{receiving:?}");
        let file = remote.create(Path::new(&name), 0o644).unwrap();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let appending: Vec<_> = (0..4u64)
                .map(|thread| {
                    let (file, remote, name) = (&file, &remote, &name);
                    scope.spawn(move || {
                        for index in 0..60u64 {
                            let record = [thread.to_le_bytes(), index.to_le_bytes()].concat();
                            assert_eq!(file.append(&record).unwrap().bytes, 16);
                            let node = format!("{name}-{thread}-{index}");
                            remote.make_node(own(), Path::new(&node), libc::S_IFREG | 0o600, 0).unwrap();
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    thread::sleep(Duration::from_millis(7));
                    way.cut();
                }
            });
            appending.into_iter().for_each(|thread| thread.join().unwrap());
            is_over.store(true, Ordering::SeqCst);
        });
        let bytes = std::fs::read(dir.path().join(&name)).unwrap();
        let records: BTreeSet<&[u8]> = bytes.chunks_exact(16).collect();
        assert_eq!((records.len(), bytes.len()), (240, 240 * 16), "each once");
    }
}

/// Two data servers, with the names on the first, as one tree in front of a server of its own.
#[test]
fn a_forwarder_stripes_over_servers() {
    let layout = Layout { first_target: 0, stripe_bytes: 64 << 10, targets: 2 };
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let servers = folders.each_ref().map(|folder| serve(directory(folder.path()), &any_port(), None, GRACE));
    let far = |server: &Server| Arc::new(connect(server, Receiving::Background)) as Arc<dyn Tree>;
    let targets = servers[1..].iter().map(far).collect();
    let mut names = options(Receiving::Background);
    names.client.stripes = true;
    let names = Arc::new(Remote::connect(servers[0].endpoints(), &names).unwrap());
    let tree = Arc::new(StripedTree::new(names, targets, layout).unwrap());
    let forwarder = serve(tree, &any_port(), None, GRACE);
    use_it(&connect(&forwarder, Receiving::Background));

    // The end of a file, and holes, are found by asking the servers, while their answers to others come in. Files are new to the
    // forwarder each time.
    let data = pattern(150_000, 3);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (forwarder, data) = (&forwarder, &data);
            let receiving = if thread % 2 == 0 { Receiving::Inline } else { Receiving::Background };
            scope.spawn(move || {
                let remote = connect(forwarder, receiving);
                for round in 0..20 {
                    let path = format!("file-{thread}-{round}");
                    let file = remote.create(path.as_ref(), 0o644).unwrap();
                    let mut memory = vec![1; data.len() + 1000];
                    assert_eq!(file.read_at(0, &mut memory).unwrap(), 0);
                    file.write_at(300_000, data).unwrap();
                    assert_eq!(file.read_at(150_000, &mut memory[..1000]).unwrap(), 1000);
                    assert_eq!(memory[..1000], [0; 1000], "a hole");
                    assert_eq!(file.read_at(300_000, &mut memory).unwrap(), data.len(), "and the end");
                    assert!(memory[..data.len()] == data[..]);
                    assert_eq!(file.read_at(1 << 40, &mut memory).unwrap(), 0);
                }
            });
        }
    });
}
