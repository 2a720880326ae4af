//! fsync means it: on every server, and not when what was written before is lost.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iogate_core::wire::{Change, Identity, open, set};
use iogate_net::client::{ClientOptions, Receiving, Remote, RemoteFile, RemoteOptions, Spread};
use iogate_net::server::Export;
use iogate_net::transport::auth::{Credential, Policy};
use iogate_net::{Endpoint, Listener, Server, ServerConfig};
use iogate_testkit::ports::bound;
use iogate_vfs::{Caller, Tree, TreeFile};

use super::common::engine;
use super::peer::Peer;
use super::{both, connect, options};

fn lost(result: io::Result<()>) {
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO));
}

/// The server's machine boots: whatever was written is as good as gone, sessions are, too.
fn reboot(peer: Peer) -> Peer {
    let (port, files) = (peer.port(), Arc::clone(&peer.files));
    drop(peer);
    files.boot.fetch_add(1, Ordering::SeqCst);
    Peer::on(port, files)
}

#[test]
fn a_sync_behind_a_reboot_fails_once_for_each_handle() {
    both(|receiving| {
        let peer = Peer::start();
        let remote = connect(&peer, receiving);
        let [one, two] = [(); 2].map(|()| remote.create("file".as_ref(), 0o644).unwrap());
        one.write_at(0, b"lost").unwrap();
        let peer = reboot(peer);
        lost(one.sync(false));
        lost(two.sync(true));
        one.sync(false).unwrap();
        two.sync(false).unwrap();
        one.write_at(0, b"kept").unwrap();
        one.sync(false).unwrap();
        let late = remote.create("file".as_ref(), 0o644).unwrap();
        late.sync(false).unwrap();
        drop(peer);
    });
}

#[test]
fn a_server_that_is_only_started_again_has_lost_nothing() {
    both(|receiving| {
        let peer = Peer::start();
        let remote = connect(&peer, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        file.write_at(0, b"kept").unwrap();
        let (port, files) = (peer.port(), Arc::clone(&peer.files));
        drop(peer);
        let _peer = Peer::on(port, files);
        file.sync(false).unwrap();
    });
}

#[test]
fn what_was_synced_before_a_reboot_is_not_missed() {
    let peer = Peer::start();
    let remote = connect(&peer, Receiving::Background);
    let file = remote.create("file".as_ref(), 0o644).unwrap();
    file.write_at(0, b"kept").unwrap();
    file.sync(false).unwrap();
    let _peer = reboot(peer);
    file.sync(false).unwrap();
}

#[test]
fn a_close_does_not_make_a_loss_forgotten() {
    both(|receiving| {
        let peer = Peer::start();
        let remote = connect(&peer, receiving);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        file.write_at(0, b"lost").unwrap();
        drop(file);
        let _peer = reboot(peer);
        let file = remote.create("file".as_ref(), 0o644).unwrap();
        lost(file.sync(false));
        file.sync(false).unwrap();
    });
}

#[test]
fn a_close_tells_of_a_loss_that_a_later_write_has_shown() {
    let peer = Peer::start();
    let remote = connect(&peer, Receiving::Background);
    let file = remote.create("file".as_ref(), 0o644).unwrap();
    file.write_at(0, b"lost").unwrap();
    file.tell_losses().unwrap();
    let _peer = reboot(peer);
    file.write_at(4, b"kept").unwrap();
    lost(file.tell_losses());
    file.tell_losses().unwrap();
    file.sync(false).unwrap();
}

#[test]
fn a_failed_sync_is_told_to_every_handle() {
    let peer = Peer::start();
    let remote = connect(&peer, Receiving::Background);
    let [one, two] = [(); 2].map(|()| remote.create("file".as_ref(), 0o644).unwrap());
    one.write_at(0, b"lost").unwrap();
    peer.settings.sync_fails.store(true, Ordering::SeqCst);
    lost(one.sync(false));
    peer.settings.sync_fails.store(false, Ordering::SeqCst);
    lost(two.sync(false));
    one.sync(false).unwrap();
    two.sync(false).unwrap();
}

/// The ways to change a file's size, or what of it has room.
const CHANGES: [fn(&Remote, &RemoteFile); 4] = [
    |_, file| _ = file.set_attr(OWN, &to_size(3)).unwrap(),
    |remote, _| _ = remote.set_attr(OWN, "file".as_ref(), Identity::default(), &to_size(3)).unwrap(),
    |remote, _| drop(remote.open_with("file".as_ref(), open::WRITE | open::TRUNCATE, 0).unwrap()),
    |_, file| file.allocate(0, 0, 100).unwrap(),
];
const OWN: Caller = Caller::new(0, 0);

fn to_size(size: u64) -> Change {
    Change { which: set::SIZE, size, ..Change::default() }
}

#[test]
fn a_change_of_the_size_that_a_reboot_may_have_taken_back_is_told() {
    for (way, change) in CHANGES.iter().enumerate() {
        both(|receiving| {
            let peer = Peer::start();
            let remote = connect(&peer, receiving);
            let file = remote.create("file".as_ref(), 0o644).unwrap();
            change(&remote, &file);
            file.sync(false).unwrap();
            let peer = reboot(peer);
            file.sync(false).unwrap();
            change(&remote, &file);
            let peer = reboot(peer);
            let failed = file.sync(false).err().and_then(|error| error.raw_os_error());
            assert_eq!(failed, Some(libc::EIO), "way {way}");
            file.sync(false).unwrap();
            // A close does not make it forgotten.
            change(&remote, &file);
            drop(file);
            let _peer = reboot(peer);
            let file = remote.create("file".as_ref(), 0o644).unwrap();
            lost(file.sync(true));
            file.sync(true).unwrap();
        });
    }
}

#[test]
fn a_forwarder_passes_on_that_a_change_of_the_size_is_lost() {
    for starts_again in [false, true] {
        let peer = Peer::start();
        let first = forwarder(&peer, &"127.0.0.1:0".parse().unwrap());
        let endpoint = first.endpoints()[0].clone();
        let client = client_of(&first);
        let file = client.create("file".as_ref(), 0o644).unwrap();
        file.set_attr(OWN, &to_size(3)).unwrap();
        let (peer, _forwarder) = match starts_again {
            false => (reboot(peer), first),
            true => {
                drop(first);
                let peer = reboot(peer);
                let again = forwarder(&peer, &endpoint);
                (peer, again)
            }
        };
        lost(file.sync(false));
        file.sync(false).unwrap();
        drop(peer);
    }
}

fn spread(peers: &[Peer; 2], spread: Spread) -> Remote {
    let endpoints: Vec<Endpoint> = peers.iter().map(|peer| peer.endpoint.clone()).collect();
    let options = RemoteOptions { spread, server: Some(0), ..options(Receiving::Background) };
    Remote::connect(&endpoints, &options).unwrap()
}

/// Whichever process has written through whichever server: `sync(1)`, and a database's checkpointer, open the file only for that.
#[test]
fn a_sync_reaches_every_server_that_may_have_data_of_the_file() {
    for way in [Spread::File, Spread::Process, Spread::Target] {
        let first = Peer::start();
        let peers = [Peer::on(0, Arc::clone(&first.files)), first];
        let writer: RemoteFile = spread(&peers, way).create("file".as_ref(), 0o644).unwrap();
        writer.write_at(0, &[1; 100]).unwrap();
        writer.write_at(1 << 20, &[1; 100]).unwrap();
        let syncing = spread(&peers, way).open_file("file".as_ref()).unwrap();
        syncing.sync(false).unwrap();
        let syncs = peers.each_ref().map(|peer| peer.settings.syncs.load(Ordering::SeqCst));
        // Of a file's one server and that of the names, which may be the same.
        let expected = if way == Spread::File { syncs[0] == 1 && syncs[1] <= 1 } else { syncs == [1, 1] };
        assert!(expected, "{way:?}: {syncs:?}");
    }
}

#[test]
fn a_sync_reaches_the_file_s_own_server() {
    let mut other = 0;
    for generation in 0..16 {
        let first = Peer::start();
        first.files.generation.store(generation, Ordering::SeqCst);
        let peers = [Peer::on(0, Arc::clone(&first.files)), first];
        let remote = spread(&peers, Spread::File);
        remote.create("file".as_ref(), 0o644).unwrap().write_at(0, &[1; 100]).unwrap();
        let wrote = peers[1].settings.opens.load(Ordering::SeqCst) > 0;
        remote.open_file("file".as_ref()).unwrap().sync(false).unwrap();
        let synced = peers[1].settings.syncs.load(Ordering::SeqCst);
        assert_eq!(synced, u64::from(wrote), "{generation}");
        other += synced;
    }
    assert!(other > 0, "of 16 files none has its data on the second server");
}

/// A forwarder, which has no disk: what its servers lose, its clients are told.
fn forwarder(peer: &Peer, endpoint: &Endpoint) -> Server {
    let tree = Arc::new(connect(peer, Receiving::Background));
    let export = Export { forwarders: vec![0], ..Export::new("files", engine(&*tree), tree) };
    let config = ServerConfig::alone(vec![export]);
    let policy = Policy::None { user: Caller::new(0, 0), on_any_network: false };
    Server::start(config, vec![bound(|| Listener::bind(endpoint, policy.clone()))]).unwrap()
}

fn client_of(forwarder: &Server) -> Remote {
    let client = ClientOptions { auth: Credential::None, ..ClientOptions::default() };
    let options = RemoteOptions { client, ..RemoteOptions::default() };
    Remote::connect(forwarder.endpoints(), &options).unwrap()
}

#[test]
fn a_forwarder_passes_on_what_its_servers_have_lost() {
    let peer = Peer::start();
    let forwarder = forwarder(&peer, &"127.0.0.1:0".parse().unwrap());
    let clients = [(); 2].map(|()| client_of(&forwarder));
    let files = clients.each_ref().map(|client| client.create("file".as_ref(), 0o644).unwrap());
    files.iter().for_each(|file| assert_eq!(file.write_at(0, b"lost").unwrap(), 4));
    let _peer = reboot(peer);
    for file in &files {
        lost(file.sync(false));
        file.sync(false).unwrap();
        file.write_at(0, b"kept").unwrap();
        file.sync(false).unwrap();
    }
}

#[test]
fn a_loss_is_not_missed_when_the_forwarder_is_started_again_too() {
    let peer = Peer::start();
    let first = forwarder(&peer, &"127.0.0.1:0".parse().unwrap());
    let endpoint = first.endpoints()[0].clone();
    let client = client_of(&first);
    let file = client.create("file".as_ref(), 0o644).unwrap();
    file.write_at(0, b"kept").unwrap();
    drop(first);
    let second = forwarder(&peer, &endpoint);
    file.sync(false).unwrap();
    file.write_at(0, b"lost").unwrap();
    drop(second);
    let peer = reboot(peer);
    let _third = forwarder(&peer, &endpoint);
    lost(file.sync(false));
    file.sync(false).unwrap();
}
