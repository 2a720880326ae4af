//! TLS between two sockets of this process: who is let in, who is not, and that no byte is lost or left behind.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use iogate_net::transport::{Peer, PlainSocket, Socket, TlsClient, TlsError, TlsServer, TlsSocket};
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt;

use crate::certificates::{Pair, Stage, expired, named, write_key};

fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (client, listener.accept().unwrap().0)
}

fn plain(stream: impl Into<OwnedFd>) -> PlainSocket {
    PlainSocket::new(stream.into()).unwrap()
}

fn pair_of(client: &TlsClient, server: &TlsServer) -> (TlsSocket, TlsSocket) {
    let (one, other) = connection();
    (client.connect(plain(one), "io1").unwrap(), server.accept(plain(other)).unwrap())
}

/// Waits for a socket, as users of [`Socket`] are to.
fn wait(socket: &dyn Socket, mut events: PollFlags) {
    if socket.wants_flush() {
        events |= PollFlags::OUT;
    }
    let fd = socket.fd();
    let limit = rustix::event::Timespec { tv_sec: 20, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&fd, events)], Some(&limit)).unwrap();
    assert_ne!(ready, 0, "nothing happens any more");
    if socket.wants_flush() {
        let _ = socket.flush();
    }
}

/// What comes first: `bytes` bytes, the end or an error.
fn read_exactly(socket: &dyn Socket, bytes: usize) -> io::Result<Vec<u8>> {
    let mut found = vec![0; bytes];
    let mut at = 0;
    while at < bytes {
        match socket.read(&mut [IoSliceMut::new(&mut found[at..])]) {
            Ok(0) => break,
            Ok(read) => at += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::IN),
            Err(error) => return Err(error),
        }
    }
    found.truncate(at);
    Ok(found)
}

/// Both ends greet and read each other's greeting.
fn greet(client: &dyn Socket, server: &dyn Socket) -> (io::Result<Vec<u8>>, io::Result<Vec<u8>>) {
    std::thread::scope(|scope| {
        let at_server = scope.spawn(|| {
            let hello = read_exactly(server, 5)?;
            server.write(&[IoSlice::new(b"wel"), IoSlice::new(b"come")])?;
            Ok(hello)
        });
        let at_client = client.write(&[IoSlice::new(b"hello")]).and_then(|_| read_exactly(client, 7));
        (at_client, at_server.join().unwrap())
    })
}

#[test]
fn both_ends_know_each_other() {
    let stage = Stage::new();
    let (client, server) = pair_of(&stage.client(), &stage.server());
    assert_eq!((client.peer(), server.peer()), (Peer::Unknown, Peer::Unknown), "before the handshake");
    let (at_client, at_server) = greet(&client, &server);
    assert_eq!(at_client.unwrap(), b"welcome");
    assert_eq!(at_server.unwrap(), b"hello");
    assert_eq!(server.peer(), Peer::Certificate { name: "alice".into() });
    assert_eq!(client.peer(), Peer::Certificate { name: "io1".into() });

    let nothing = client.read(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
    drop(server);
    assert_eq!(read_exactly(&client, 1).unwrap(), b"", "a goodbye is an end");
}

#[test]
fn certificates_that_do_not_fit_are_refused_by_the_end_that_sees_them() {
    let stage = Stage::new();
    let mut for_servers = named("alice");
    for_servers.insert_extended_key_usage(ExtendedKeyUsagePurpose::ServerAuth);
    let mut nameless = CertificateParams::new(vec!["alice".into()]).unwrap();
    nameless.distinguished_name = rcgen::DistinguishedName::new();
    let clients = [
        ("of another authority", stage.stranger.sign("s-alice", &named("alice")), "UnknownIssuer"),
        ("expired", stage.cluster.sign("x-alice", &expired("alice")), "expired"),
        ("for servers", stage.cluster.sign("f-alice", &for_servers), "server"),
        ("nameless", stage.cluster.sign("n-alice", &nameless), "common name"),
    ];
    for (what, pair, reason) in clients {
        let (client, server) = pair_of(&stage.client_with(&pair), &stage.server());
        let (at_client, at_server) = greet(&client, &server);
        let error = at_server.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "a client's certificate {what}: {error}");
        assert!(error.to_string().contains(reason), "a client's certificate {what}: {error}");
        assert_eq!(server.peer(), Peer::Unknown, "a client's certificate {what}");
        let again = server.read(&mut [IoSliceMut::new(&mut [0; 8])]).unwrap_err();
        assert_eq!(again.to_string(), error.to_string(), "an error is final");
        assert!(server.write(&[IoSlice::new(b"x")]).is_err(), "for both directions");
        match at_client {
            Ok(found) => assert!(found.is_empty() && what == "nameless", "a client's certificate {what}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied, "and the client is told: {error}");
            }
        }
    }
    let servers = [
        ("of another authority", stage.stranger.sign("s-io1", &named("io1")), "UnknownIssuer"),
        ("expired", stage.cluster.sign("x-io1", &expired("io1")), "expired"),
        ("for another name", stage.cluster.sign("io2", &named("io2")), "io2"),
    ];
    for (what, pair, reason) in servers {
        let (client, server) = pair_of(&stage.client(), &stage.server_with(&pair));
        let (at_client, at_server) = greet(&client, &server);
        let error = at_client.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "a server's certificate {what}: {error}");
        assert!(error.to_string().contains(reason), "a server's certificate {what}: {error}");
        assert_eq!(at_server.unwrap_err().kind(), ErrorKind::PermissionDenied, "and the server is told");
    }
}

/// What a client of another program gets, and what the server says of it.
fn refused(
    stage: &Stage,
    client: impl FnOnce(
        rustls::ConfigBuilder<rustls::ClientConfig, rustls::client::WantsClientCert>,
    ) -> rustls::ClientConfig,
) -> (std::io::Result<usize>, std::io::Error) {
    use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(&stage.cluster.certificate).unwrap()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let config = client(config);
    let (mut stream, other) = connection();
    let server = stage.server().accept(plain(other)).unwrap();
    let client = std::thread::spawn(move || {
        let mut connection =
            rustls::ClientConnection::new(config.into(), ServerName::try_from("io1").unwrap()).unwrap();
        let mut client = rustls::Stream::new(&mut connection, &mut stream);
        client.write_all(b"hello").and_then(|()| io::Read::read(&mut client, &mut [0; 8]))
    });
    let error = read_exactly(&server, 5).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    (client.join().unwrap(), error)
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let (at_client, at_server) = refused(&Stage::new(), |config| config.with_no_client_auth());
    assert!(at_server.to_string().contains("no certificate"), "{at_server}");
    assert!(at_client.unwrap_err().to_string().contains("CertificateRequired"));
}

/// Its certificate is for another service of the same authority, which names no protocol.
#[test]
fn a_client_that_names_no_protocol_is_refused() {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
    let stage = Stage::new();
    let Pair { certificate, key } = &stage.client;
    let (at_client, at_server) = refused(&stage, |config| {
        let certificates = vec![CertificateDer::from_pem_file(certificate).unwrap()];
        config.with_client_auth_cert(certificates, PrivateKeyDer::from_pem_file(key).unwrap()).unwrap()
    });
    assert!(at_server.to_string().contains("by ALPN"), "{at_server}");
    assert!(matches!(at_client, Ok(0) | Err(_)), "{at_client:?}");
}

#[test]
fn what_is_not_tls_is_refused_at_either_end() {
    let stage = Stage::new();
    let rubbish: Vec<u8> = (0..70_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut tls_then_rubbish = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec();
    tls_then_rubbish.extend_from_slice(&rubbish[..2000]);
    let hello = iogate_core::wire::RequestHeader { kind: 1, ..Default::default() }.to_bytes();
    for bytes in [&hello[..], b"GET / HTTP/1.1\r\n\r\n", &rubbish, &tls_then_rubbish, &[0; 1000]] {
        for at_client in [false, true] {
            let (mut stream, other) = connection();
            let socket = match at_client {
                true => stage.client().connect(plain(other), "io1").unwrap(),
                false => stage.server().accept(plain(other)).unwrap(),
            };
            // It may be cut off before all of it is sent.
            let _ = stream.write_all(bytes);
            let error = read_exactly(&socket, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
            assert!(error.to_string().starts_with("TLS: "), "{error}");
            assert_eq!(socket.peer(), Peer::Unknown);
        }
    }
}

#[test]
fn a_stream_that_is_cut_is_not_an_end() {
    let stage = Stage::new();
    let (one, other) = connection();
    let cut = one.try_clone().unwrap();
    let (client, server) =
        (stage.client().connect(plain(one), "io1").unwrap(), stage.server().accept(plain(other)).unwrap());
    let (at_client, at_server) = greet(&client, &server);
    assert!(at_client.is_ok() && at_server.is_ok());
    cut.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_exactly(&server, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);

    let (one, other) = connection();
    let server = stage.server().accept(plain(other)).unwrap();
    drop(one);
    assert_eq!(
        read_exactly(&server, 1).unwrap_err().kind(),
        ErrorKind::UnexpectedEof,
        "before the handshake"
    );
}

/// The byte at a place of a stream.
fn byte_at(at: usize, seed: usize) -> u8 {
    ((at + seed).wrapping_mul(2_654_435_761) >> 11) as u8
}

/// Writes a stream in pieces of several buffers, waiting for room only when there is none.
fn send(socket: &dyn Socket, bytes: usize, seed: usize) {
    let stream: Vec<u8> = (0..bytes).map(|at| byte_at(at, seed)).collect();
    let mut at = 0;
    while at < bytes {
        let end = bytes.min(at + 1 + (at * 31) % 200_000);
        let (head, body) = stream[at..end].split_at((end - at).min(32));
        match socket.write(&[IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(body)]) {
            Ok(written) => at += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::OUT),
            Err(error) => panic!("{error}"),
        }
    }
    while let Err(error) = socket.flush() {
        assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
        wait(socket, PollFlags::OUT);
    }
    assert!(!socket.wants_flush());
}

/// Reads a stream into two buffers of changing sizes. Waits only after a short read, so that bytes left inside would never come.
fn receive(socket: &dyn Socket, bytes: usize, seed: usize) {
    let (mut small, mut large) = ([0; 32], vec![0; 70_000]);
    let mut at = 0;
    while at < bytes {
        let room = (1 + (at * 17) % large.len()).min(bytes - at);
        let first = room.min(small.len());
        let mut buffers = [IoSliceMut::new(&mut small[..first]), IoSliceMut::new(&mut large[..room - first])];
        match socket.read(&mut buffers) {
            Ok(0) => panic!("an end after {at} of {bytes} bytes"),
            Ok(read) => {
                for (i, byte) in small[..first].iter().chain(&large).take(read).enumerate() {
                    assert_eq!(*byte, byte_at(at + i, seed), "byte {}", at + i);
                }
                at += read;
                if read < room {
                    wait(socket, PollFlags::IN);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => wait(socket, PollFlags::IN),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn much_goes_both_ways_at_once() {
    let (one, other) = connection();
    both_ways_at_once(plain(one), plain(other), 8_000_001);
}

#[test]
fn little_buffers_change_nothing() {
    let (one, other) = UnixStream::pair().unwrap();
    for stream in [&one, &other] {
        sockopt::set_socket_send_buffer_size(stream, 2048).unwrap();
        sockopt::set_socket_recv_buffer_size(stream, 2048).unwrap();
    }
    both_ways_at_once(plain(one), plain(other), 3_000_001);
}

fn both_ways_at_once(one: PlainSocket, other: PlainSocket, bytes: usize) {
    let stage = Stage::new();
    let (client, server) =
        (stage.client().connect(one, "io1").unwrap(), stage.server().accept(other).unwrap());
    let (at_client, at_server) = greet(&client, &server);
    assert!(at_client.is_ok() && at_server.is_ok());
    std::thread::scope(|scope| {
        scope.spawn(|| send(&client, bytes, 1));
        scope.spawn(|| receive(&client, bytes, 2));
        scope.spawn(|| send(&server, bytes, 2));
        scope.spawn(|| receive(&server, bytes, 1));
    });
}

#[test]
fn what_is_decrypted_is_handed_out_before_there_is_nothing() {
    let stage = Stage::new();
    let (client, server) = pair_of(&stage.client(), &stage.server());
    let (at_client, at_server) = greet(&client, &server);
    assert!(at_client.is_ok() && at_server.is_ok());
    // Three small records that the kernel hands over as one piece.
    for text in [b"one", b"two", b"six"] {
        assert_eq!(client.write(&[IoSlice::new(text)]).unwrap(), 3);
    }
    wait(&server, PollFlags::IN);
    let begin = Instant::now();
    while rustix::io::ioctl_fionread(server.fd()).unwrap() < 3 * 25 {
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
    let mut found = Vec::new();
    let mut two = [0; 2];
    let stopped = loop {
        match server.read(&mut [IoSliceMut::new(&mut two)]) {
            Ok(read) => found.extend_from_slice(&two[..read]),
            Err(error) => break error,
        }
    };
    assert_eq!(stopped.kind(), ErrorKind::WouldBlock);
    assert_eq!(found, b"onetwosix");
}

#[test]
fn files_that_do_not_fit_are_named() {
    let stage = Stage::new();
    let at = |name: &str| stage.dir.path().join(name);
    let Pair { certificate, key } = stage.server.clone();
    let authority = stage.cluster.certificate.clone();
    let other_key = stage.client.key.clone();
    std::fs::write(at("words"), "no certificate").unwrap();
    std::fs::write(at("broken"), "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").unwrap();
    std::fs::write(at("open.key"), std::fs::read(&key).unwrap()).unwrap();
    std::fs::set_permissions(at("open.key"), std::fs::Permissions::from_mode(0o644)).unwrap();
    write_key(&at("words.key"), "no key");
    for (certificate, key, authority, culprit) in [
        (at("nowhere"), key.clone(), authority.clone(), "nowhere"),
        (at("words"), key.clone(), authority.clone(), "words"),
        (at("broken"), key.clone(), authority.clone(), "broken"),
        (key.clone(), key.clone(), authority.clone(), "io1.key"),
        (certificate.clone(), at("nowhere"), authority.clone(), "nowhere"),
        (certificate.clone(), at("words.key"), authority.clone(), "words.key"),
        (certificate.clone(), at("open.key"), authority.clone(), "open.key"),
        (certificate.clone(), other_key, authority, "alice.key"),
        (certificate.clone(), key.clone(), at("nowhere"), "nowhere"),
        (certificate.clone(), key.clone(), at("words"), "words"),
    ] {
        let at_server = TlsServer::load(&certificate, &key, &authority).unwrap_err();
        let at_client = TlsClient::load(&authority, &certificate, &key).unwrap_err();
        for error in [at_server, at_client] {
            assert!(error.to_string().contains(culprit), "expected `{culprit}`: {error}");
        }
    }
    let error = stage.client().connect(plain(connection().0), "io 1").unwrap_err();
    assert!(matches!(&error, TlsError::ServerName(name) if name == "io 1"), "{error}");
}

#[test]
fn the_documented_commands_make_certificates_that_work() {
    let dir = tempfile::tempdir().unwrap();
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md")).unwrap();
    let commands = page.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let made = Command::new("sh").args(["-e", "-c", commands]).current_dir(dir.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let at = |name: &str| dir.path().join(name);
    let server = TlsServer::load(&at("io1.crt"), &at("io1.key"), &at("ca.crt")).unwrap();
    for name in ["io1", "io1.example.org"] {
        let client = TlsClient::load(&at("ca.crt"), &at("alice.crt"), &at("alice.key")).unwrap();
        let (one, other) = connection();
        let (client, server) =
            (client.connect(plain(one), name).unwrap(), server.accept(plain(other)).unwrap());
        let (at_client, at_server) = greet(&client, &server);
        assert_eq!((at_client.unwrap(), at_server.unwrap()), (b"welcome".to_vec(), b"hello".to_vec()));
        assert_eq!(server.peer(), Peer::Certificate { name: "alice".into() });
    }
    let swapped = TlsServer::load(&at("alice.crt"), &at("alice.key"), &at("ca.crt")).unwrap();
    let client = TlsClient::load(&at("ca.crt"), &at("io1.crt"), &at("io1.key")).unwrap();
    let (one, other) = connection();
    let (client, server) =
        (client.connect(plain(one), "alice").unwrap(), swapped.accept(plain(other)).unwrap());
    let (at_client, at_server) = greet(&client, &server);
    assert!(at_client.is_err() && at_server.is_err(), "a user's certificate is no server's");
}
