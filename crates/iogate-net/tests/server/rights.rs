//! What a client may do, and what is only for forwarders that the server trusts.

use std::sync::atomic::Ordering;

use iogate_core::wire::*;
use iogate_net::server::Export;
use iogate_net::transport::auth::{Access, Policy};
use iogate_net::{Endpoint, Listener, Server};
use iogate_vfs::users::Squash;
use iogate_vfs::{Caller, Users};

use super::Setup;
use super::raw::{RDWR, Raw, hello};

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[track_caller]
fn refused(endpoint: &Endpoint, hello: Hello<'_>, said: &str) {
    let mut raw = Raw::connect(endpoint);
    let auth = if matches!(endpoint, Endpoint::Tcp { .. }) { auth::NONE } else { hello.auth };
    raw.write(&Raw::bytes(0, 0, &Request::Hello(Hello { auth, ..hello }), &[]));
    raw.is_cut(libc::EPERM, said);
}

#[test]
fn whoever_is_not_trusted_is_no_forwarder() {
    let setup = Setup::new();
    let windows = Hello { node: 0, nodes: 2, instance: 1, ..hello() };
    let stripes = Hello { flags: hello::STRIPES, ..hello() };
    for claim in [windows, stripes] {
        refused(setup.tcp(), claim, "`forwarders`");
        Raw::greet_with(setup.unix(), claim);
    }
    let nobody = Setup::with(|config| config.exports[0].forwarders.clear());
    refused(nobody.unix(), windows, "`forwarders`");
    let client = Raw::greet(nobody.unix());
    assert_eq!(client.welcome.unwrap().trusted, 0, "nobody is trusted unless it is said, not even root");
}

#[test]
fn names_of_iogates_own_are_for_forwarders_only() {
    let setup = Setup::new();
    let (mut forwarder, mut outsider) = (Raw::greet(setup.unix()), Raw::greet(setup.tcp()));
    for path in ["f", ".iogate/orphans"] {
        forwarder.open(1, path, RDWR).ok::<Opened>();
        forwarder.ask(&Request::Close(Close { handle: 1 }), &[]).done();
    }
    let name = b"user.iogate.object";
    let identity = Identity::default();
    let get = Request::GetXattr(GetXattr { handle: NO_HANDLE, path: b"f", name });
    let set = Request::SetXattr(SetXattr { handle: NO_HANDLE, flags: 0, identity, path: b"f", name });
    let remove = Request::RemoveXattr(RemoveXattr { handle: NO_HANDLE, identity, path: b"f", name });
    assert_eq!(outsider.ask(&get, &[]).errno, libc::ENODATA);
    assert_eq!(outsider.ask(&set, name).errno, libc::EPERM);
    assert_eq!(outsider.ask(&remove, &[]).errno, libc::EPERM);
    assert_eq!(forwarder.ask(&get, &[]).payload, name);
    forwarder.ask(&set, name).done();
    let list = Request::ListXattr(ListXattr { handle: NO_HANDLE, path: b"f" });
    assert_eq!(outsider.ask(&list, &[]).payload, b"user.a\0");
    assert_eq!(forwarder.ask(&list, &[]).payload, b"user.a\0user.iogate.object\0");

    let (own, below) = (&b".iogate"[..], &b".iogate/orphans"[..]);
    assert_eq!(outsider.open(1, ".iogate/orphans", open::READ).errno, libc::ENOENT);
    assert_eq!(outsider.open(1, ".iogate/orphans", RDWR).errno, libc::EPERM);
    let attr = |path| Request::GetAttr(GetAttr { handle: NO_HANDLE, path });
    assert_eq!(outsider.ask(&attr(below), &[]).errno, libc::ENOENT);
    forwarder.ask(&attr(below), &[]).ok::<Attr>();
    for change in [
        Request::Unlink(Unlink { directory: 0, path: below }),
        Request::Rename(Rename { flags: 0, path: below, to: b"mine" }),
        Request::Rename(Rename { flags: 0, path: b"f", to: below }),
        Request::Link(Link { path: b"f", to: below }),
        Request::Link(Link { path: below, to: b"mine" }),
        Request::Symlink(Symlink { path: own, target: b"x" }),
        Request::MakeNode(MakeNode { mode: libc::S_IFDIR | 0o755, device: 0, path: own }),
    ] {
        assert_eq!(outsider.ask(&change, &[]).errno, libc::EPERM, "{change:?}");
    }
}

#[test]
fn who_else_is_connected_is_not_everybodys_business() {
    let setup = Setup::new();
    let (mut own, mut other) = (Raw::greet(setup.unix()), Raw::greet(setup.tcp()));
    let status = Request::Status(Status {});
    let seen = |raw: &mut Raw| -> iogate_net::server::Status {
        serde_json::from_slice(&raw.ask(&status, &[]).payload).unwrap()
    };
    assert_eq!(seen(&mut own).connections.len(), 2, "the server's own user sees all");
    let status = seen(&mut other);
    assert_eq!(status.connections.iter().map(|one| one.uid).collect::<Vec<_>>(), [Some(7)]);
    assert_eq!(status.connection_count, 2);
}

#[test]
fn a_listener_lets_in_whom_it_is_told_to() {
    let setup = Setup::new();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str, users: &[u32]| {
        let access = Access { users: Some(users.iter().copied().collect()), ..Policy::Peer.into() };
        Listener::bind(&Endpoint::Unix(dir.path().join(name)), access).unwrap()
    };
    let config = iogate_net::ServerConfig::alone(vec![super::export("files", setup.tree.clone())]);
    let server =
        Server::start(config, vec![at("mine", &[own_uid()]), at("others", &[own_uid() + 1])]).unwrap();
    Raw::greet(&server.endpoints()[0]);
    let mut raw = Raw::connect(&server.endpoints()[1]);
    raw.write(&Raw::bytes(0, 0, &Request::Hello(hello()), &[]));
    raw.is_cut(libc::EACCES, "none of the users that this server lets in");
}

#[test]
fn a_server_that_acts_in_its_own_name_serves_nobody_else() {
    let setup = Setup::new();
    setup.tree.own_only.store(true, Ordering::SeqCst);
    refused(setup.tcp(), hello(), "its own user's name only");
    let mut own = Raw::greet(setup.unix());
    assert_eq!(own.welcome.unwrap().trusted, 0, "whoever is let in cannot say another name");
    own.open(1, "f", RDWR).ok::<Opened>();
    assert_eq!(setup.tree.caller.lock().unwrap().unwrap().uid, own_uid());

    // Unless that is what its owner wants.
    let squash = |export: &mut Export| {
        let own = Caller::new(own_uid(), rustix::process::getegid().as_raw());
        export.users = Users::new(Squash::All, own, Vec::new(), Vec::new()).unwrap();
    };
    let setup = Setup::with(|config| squash(&mut config.exports[0]));
    setup.tree.own_only.store(true, Ordering::SeqCst);
    Raw::greet(setup.tcp()).open(1, "f", RDWR).ok::<Opened>();
    assert_eq!(setup.tree.caller.lock().unwrap().unwrap().uid, own_uid());

    // A server behind that does not trust this one any more: nothing more is done for others.
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR).ok::<Opened>();
    setup.tree.own_only.store(true, Ordering::SeqCst);
    assert_eq!(client.open(2, "f", RDWR).errno, libc::EPERM);
    client.ask(&Request::Status(Status {}), &[]);
}

#[test]
fn root_of_an_export_that_squashes_it_is_not_in_its_group() {
    let squash = |export: &mut Export| {
        export.users = Users::new(Squash::Root, Caller::new(99, 98), Vec::new(), Vec::new()).unwrap();
    };
    let setup = Setup::with(|config| squash(&mut config.exports[0]));
    let mut client = Raw::greet(setup.unix());
    let groups = |client: &mut Raw, groups: &[u32]| {
        client.open_of(groups, 1, "f", RDWR).ok::<Opened>();
        client.ask(&Request::Close(Close { handle: 1 }), &[]).done();
        setup.tree.caller.lock().unwrap().unwrap().groups.list()
    };
    assert_eq!(groups(&mut client, &[5, 0, 7]), Some(&[5, 7][..]));
    assert_eq!(groups(&mut client, &[]), Some(&[][..]));
    // What others than forwarders say of their groups does not count.
    let mut other = Raw::greet(setup.tcp());
    assert_eq!(groups(&mut other, &[5, 6]), None);
}
