//! What each policy lets in, and what it refuses.

use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};

use super::*;

const UNKNOWN: Caller = Caller::new(4_000_000_000, 7);

fn binding() -> Binding {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    Binding::of_client(stream.as_fd(), b"scratch").unwrap()
}

fn authenticate(policy: &Policy, peer: &Peer, kind: u8) -> Result<User, AuthError> {
    policy.authenticate(peer, &binding(), kind, b"")
}

fn process() -> Peer {
    Peer::Process { uid: UNKNOWN.uid, gid: UNKNOWN.gid, pid: 1 }
}

fn certificate(name: &str) -> Peer {
    Peer::Certificate { name: name.into() }
}

fn tls(users: &[(&str, Caller)]) -> Policy {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("crt"), dir.path().join("key"));
    let made = rcgen::generate_simple_self_signed(vec!["io1".into()]).unwrap();
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    Policy::Tls {
        server: TlsServer::load(&certificate, &key, &certificate).unwrap(),
        users: users.iter().map(|&(name, user)| (name.to_owned(), user)).collect(),
    }
}

fn open(on_any_network: bool) -> Policy {
    Policy::None { user: Caller::NOBODY, on_any_network }
}

#[test]
fn nobody_is_asked_only_where_it_is_said() {
    let policy = open(true);
    for peer in [Peer::Unknown, process(), certificate("root")] {
        let user = authenticate(&policy, &peer, auth::NONE).unwrap();
        assert_eq!((user.uid, user.gid), (65534, 65534), "and who it is does not count: {peer:?}");
    }
}

#[test]
fn the_kernel_vouches_for_local_processes() {
    let user = authenticate(&Policy::Peer, &process(), auth::SOCKET).unwrap();
    assert_eq!(user, User { uid: UNKNOWN.uid, gid: UNKNOWN.gid, name: "4000000000".into() });
    for peer in [Peer::Unknown, certificate("root")] {
        assert!(
            matches!(authenticate(&Policy::Peer, &peer, auth::SOCKET), Err(AuthError::NoPeer { .. })),
            "{peer:?}"
        );
    }
}

#[test]
fn a_certificate_is_the_user_that_its_name_says() {
    let root = authenticate(&tls(&[]), &certificate("root"), auth::SOCKET).unwrap();
    assert_eq!(root, User { uid: 0, gid: 0, name: "root".into() });
    let mapped = tls(&[("node7", UNKNOWN)]);
    let user = authenticate(&mapped, &certificate("node7"), auth::SOCKET).unwrap();
    assert_eq!(user, User { uid: UNKNOWN.uid, gid: UNKNOWN.gid, name: "node7".into() });

    for (policy, name) in
        [(&mapped, "root"), (&mapped, "node"), (&tls(&[]), "no such user"), (&tls(&[]), "0")]
    {
        let error = authenticate(policy, &certificate(name), auth::SOCKET).unwrap_err();
        assert!(error.to_string().contains(name), "the log says who: {error}");
        assert!(matches!(error, AuthError::UnknownName { .. }));
    }
    for peer in [Peer::Unknown, process()] {
        assert!(
            matches!(authenticate(&mapped, &peer, auth::SOCKET), Err(AuthError::NoPeer { .. })),
            "{peer:?}"
        );
    }
}

#[test]
fn another_kind_of_proof_is_refused_by_every_policy() {
    let wanted = [
        (open(true), auth::NONE, Peer::Unknown),
        (Policy::Peer, auth::SOCKET, process()),
        (Policy::Munge(Munge::default()), auth::MUNGE, process()),
        (tls(&[]), auth::SOCKET, certificate("root")),
    ];
    for (policy, wanted, peer) in wanted {
        for kind in (0..=255).filter(|&kind| kind != wanted) {
            let error = authenticate(&policy, &peer, kind).unwrap_err();
            assert!(matches!(error, AuthError::Kind { .. }), "{policy:?} with {kind}: {error}");
            assert!(error.to_string().contains(policy.name()), "it says what to set: {error}");
            assert_eq!(error.errno(), libc::EACCES);
        }
    }
}

#[test]
fn an_open_listener_on_a_network_needs_a_word_of_its_own() {
    let at = |endpoint: &str, addresses: &[&str]| {
        let addresses: Vec<_> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        (endpoint.parse::<Endpoint>().unwrap(), addresses)
    };
    for (endpoint, addresses) in [
        at("0.0.0.0:7000", &["0.0.0.0:7000"]),
        at("[::]:7000", &["[::]:7000"]),
        at("io1:7000", &["192.0.2.1:7000"]),
        at("io1:7000", &["127.0.0.1:7000", "192.0.2.1:7000"]),
        at("[::ffff:192.0.2.1]:7000", &["[::ffff:192.0.2.1]:7000"]),
    ] {
        let error = open(false).check_listener(&endpoint, &addresses).unwrap_err();
        assert!(matches!(error, ListenerError::Open { .. }));
        assert!(error.to_string().contains("allow_unauthenticated_network"), "{error}");
        open(true).check_listener(&endpoint, &addresses).unwrap();
        Policy::Munge(Munge::default()).check_listener(&endpoint, &addresses).unwrap();
        tls(&[]).check_listener(&endpoint, &addresses).unwrap();
    }
    for (endpoint, addresses) in [
        at("localhost:7000", &["127.0.0.1:7000", "[::1]:7000"]),
        at("127.9.9.9:7000", &["127.9.9.9:7000"]),
        at("[::ffff:127.0.0.1]:7000", &["[::ffff:127.0.0.1]:7000"]),
        at("unix:/run/iogate/socket", &[]),
    ] {
        open(false).check_listener(&endpoint, &addresses).unwrap();
    }
}

#[test]
fn peer_credentials_need_a_unix_socket() {
    let unix = "unix:/run/iogate/socket".parse().unwrap();
    Policy::Peer.check_listener(&unix, &[]).unwrap();
    let tcp = "127.0.0.1:7000".parse().unwrap();
    let error = Policy::Peer.check_listener(&tcp, &["127.0.0.1:7000".parse().unwrap()]).unwrap_err();
    assert!(error.to_string().contains("unix:PATH"), "{error}");
}

#[test]
fn both_ends_of_a_connection_agree_on_its_binding_and_no_others_do() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    let mut check = |client: &dyn AsFd, server: &dyn AsFd| {
        let client = Binding::of_client(client.as_fd(), b"scratch").unwrap();
        let server_side = Binding::of_server(server.as_fd(), b"scratch").unwrap();
        assert_eq!(client, server_side);
        assert_ne!(client, Binding::of_server(server.as_fd(), b"home").unwrap(), "another export");
        assert!(!all.contains(&client), "another server");
        all.push(client);
    };
    for address in ["127.0.0.1:0", "127.0.0.1:0", "[::1]:0"] {
        // A machine may have no IPv6.
        let Ok(listener) = TcpListener::bind(address) else { continue };
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        check(&client, &listener.accept().unwrap().0);
    }
    for name in ["one", "other"] {
        let listener = UnixListener::bind(dir.path().join(name)).unwrap();
        let client = UnixStream::connect(dir.path().join(name)).unwrap();
        check(&client, &listener.accept().unwrap().0);
    }
}

#[test]
fn users_are_two_numbers() {
    assert_eq!("1000:100".parse(), Ok(Caller::new(1000, 100)));
    for text in
        ["", "1000", "root:root", "1:2:3", "-1:0", "4294967295:0", "0:4294967295", "4294967296:0", " 1:2"]
    {
        let error = text.parse::<Caller>().unwrap_err().to_string();
        assert!(error.contains("UID:GID") && error.contains(text), "{error}");
    }
}
