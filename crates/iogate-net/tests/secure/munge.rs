//! MUNGE credentials with a real daemon.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use iogate_core::wire::auth;
use iogate_net::transport::Peer;
use iogate_net::transport::auth::{
    AuthError, Binding, CREDENTIAL_BYTES_MAX, Credential, Munge, MungeError, Policy,
};

use crate::daemon::Daemon;

/// Both ends of a TCP connection.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    Ok((client, listener.accept()?.0))
}

fn authenticate(
    munge: Munge,
    server: &TcpStream,
    export: &[u8],
    credential: &[u8],
) -> Result<(u32, u32), AuthError> {
    let binding = Binding::of_server(server.as_fd(), export).unwrap();
    let user = Policy::Munge(munge).authenticate(&Peer::Unknown, &binding, auth::MUNGE, credential)?;
    Ok((user.uid, user.gid))
}

#[test]
fn a_credential_says_who_made_it_for_whom_and_once() {
    let daemon = Daemon::start(1);
    let (client, server) = connection().unwrap();
    let (_other_client, other_server) = connection().unwrap();
    let me = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let shown = Credential::Munge(daemon.munge());
    assert_eq!(shown.kind(), auth::MUNGE);
    let prove = || shown.prove(&Binding::of_client(client.as_fd(), b"scratch").unwrap()).unwrap();

    let credential = prove();
    assert_eq!(authenticate(daemon.munge(), &server, b"scratch", &credential).unwrap(), me);
    let error = authenticate(daemon.munge(), &server, b"scratch", &credential).unwrap_err();
    assert!(matches!(error, AuthError::Munge(MungeError::Replayed)), "{error}");

    let error = authenticate(daemon.munge(), &server, b"home", &prove()).unwrap_err();
    assert!(matches!(error, AuthError::Binding { .. }), "another export: {error}");
    let error = authenticate(daemon.munge(), &other_server, b"scratch", &prove()).unwrap_err();
    assert!(matches!(error, AuthError::Binding { .. }), "passed on by another server: {error}");
    let foreign = daemon.munge().encode(b"for the batch system").unwrap();
    let error = authenticate(daemon.munge(), &server, b"scratch", &foreign).unwrap_err();
    assert!(error.to_string().contains("for the batch system"), "the log says what came: {error}");
    assert!(!error.for_peer().contains("127.0.0.1"), "the peer is not told addresses: {}", error.for_peer());
    let nothing = daemon.munge().encode(b"").unwrap();
    let error = authenticate(daemon.munge(), &server, b"scratch", &nothing).unwrap_err();
    assert!(matches!(error, AuthError::Binding { .. }), "without a payload: {error}");
}

#[test]
fn what_is_not_a_credential_of_this_realm_is_refused() {
    let daemon = Daemon::start(2);
    let stranger = Daemon::start(3);
    let (client, server) = connection().unwrap();
    let binding = Binding::of_client(client.as_fd(), b"scratch").unwrap();
    let good = Credential::Munge(daemon.munge()).prove(&binding).unwrap();
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] = if damaged[middle] == b'A' { b'B' } else { b'A' };
    let of_another_key = Credential::Munge(stranger.munge()).prove(&binding).unwrap();
    for (what, credential) in [
        ("nothing", &b""[..]),
        ("words", b"let me in"),
        ("an empty one", b"MUNGE::"),
        ("a cut one", &good[..good.len() / 2]),
        ("a damaged one", &damaged),
        ("one of another key", &of_another_key),
    ] {
        let error = authenticate(daemon.munge(), &server, b"scratch", credential).unwrap_err();
        assert!(matches!(error, AuthError::Munge(MungeError::Invalid { .. })), "{what}: {error}");
        assert_eq!(error.errno(), libc::EACCES, "{what}");
    }
    let error = authenticate(daemon.munge(), &server, b"scratch", b"MUNGE:a\0b:").unwrap_err();
    assert!(matches!(error, AuthError::Munge(MungeError::ZeroByte { .. })), "{error}");
    let error =
        authenticate(daemon.munge(), &server, b"scratch", &vec![b'A'; CREDENTIAL_BYTES_MAX + 1]).unwrap_err();
    assert!(matches!(error, AuthError::Munge(MungeError::TooLong { .. })), "{error}");
    assert!(
        authenticate(daemon.munge(), &server, b"scratch", &good).is_ok(),
        "and the good one is still good"
    );
}

#[test]
fn many_threads_ask_at_once() {
    let daemon = Daemon::start(4);
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let munge = daemon.munge();
            scope.spawn(move || {
                for round in 0..20 {
                    let credential = munge.encode(&[thread, round]).unwrap();
                    assert_eq!(munge.decode(&credential).unwrap().payload, [thread, round]);
                }
            });
        }
    });
}

#[test]
fn a_daemon_that_does_not_run_is_named_and_is_nobodys_fault() {
    let daemon = Daemon::start(5);
    let credential = daemon.munge().encode(b"x").unwrap();
    let gone = Munge::new(Some(daemon.dir.path().join("nowhere")));
    for error in [gone.encode(b"x").unwrap_err(), gone.decode(&credential).unwrap_err()] {
        assert!(matches!(error, MungeError::NoDaemon { .. }), "{error}");
        assert!(error.to_string().contains("munged"), "{error}");
        assert_eq!(AuthError::from(error).errno(), libc::EAGAIN, "a later try may succeed");
    }
}

#[test]
fn an_old_credential_is_refused() {
    let daemon = Daemon::start(6);
    let (client, server) = connection().unwrap();
    let binding = Binding::of_client(client.as_fd(), b"scratch").unwrap();
    let mut munge = Command::new("munge")
        .arg(format!("--socket={}", daemon.socket().display()))
        .args(["--ttl=1", "--input=-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    munge.stdin.take().unwrap().write_all(binding.as_bytes()).unwrap();
    let credential = munge.wait_with_output().unwrap().stdout.trim_ascii().to_vec();
    // Credentials count whole seconds.
    std::thread::sleep(Duration::from_millis(2100));
    let error = authenticate(daemon.munge(), &server, b"scratch", &credential).unwrap_err();
    assert!(matches!(error, AuthError::Munge(MungeError::Expired)), "{error}");
}
