//! Clients that do not keep to the protocol, or to the limits, are cut off alone.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use iogate_core::wire::*;
use iogate_net::coordinator::{Coordinator, CoordinatorConfig, Limits, Local};
use iogate_net::transport::auth::{Munge, MungeError, Policy};
use iogate_net::{Endpoint, Listener};

use super::raw::Raw;
use super::{Setup, config, hello, place, wait_until};

fn header(kind: u16, id: u64, fields: u16, payload: u32) -> Vec<u8> {
    let header =
        RequestHeader { fields, payload, kind, id, acked: 1, uid: 0, gid: 0, ..RequestHeader::default() };
    [&header.to_bytes()[..], &vec![0; fields.into()]].concat()
}

#[test]
fn who_breaks_a_rule_is_told_why_and_nobody_else_notices() {
    let setup = Setup::new("lease=60s");
    let (mut holder, mut waiter) = (setup.client(), setup.client());
    let token = holder.turn(place("scratch"));
    let id = waiter.claim(place("scratch"));
    for endpoint in setup.coordinator.endpoints() {
        let cut = |bytes: &[u8], errno, text| {
            let mut raw = Raw::connect(endpoint);
            raw.write(bytes);
            raw.is_cut(errno, text);
        };
        cut(
            b"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: somebody else\r\n\r\n",
            libc::EPROTO,
            "another protocol",
        );
        cut(&[0; 100], libc::EPROTO, "expected a Hello first");
        cut(&[0xff; 100], libc::EPROTO, "another protocol");
        let bytes = |hello| Raw::bytes(0, 0, &Request::Hello(hello), &[]);
        cut(&bytes(Hello { magic: 1, ..hello() }), libc::EPROTO, "magic number");
        cut(&bytes(Hello { version: 9, ..hello() }), libc::EPROTONOSUPPORT, "version 9");
        cut(&bytes(Hello { auth: auth::MUNGE, ..hello() }), libc::EACCES, "offers a MUNGE credential");
        cut(&bytes(Hello { export: b"scratch", ..hello() }), libc::ENOENT, "whose only export is `turns`");
        cut(&header(1, 0, 0, 1 << 20), libc::EPROTO, "expected at most 8192");
        let cut_later = |bytes: &[u8], text| {
            let mut raw = Raw::greet_with(endpoint, hello());
            raw.write(bytes);
            raw.is_cut(libc::EPROTO, text);
        };
        cut_later(&bytes(hello()), "a second Hello");
        cut_later(&header(999, 1, 0, 0), "kind 999");
        // The report of a gate of 0.2.0.
        cut_later(
            &header(55, 1, 71, 0),
            "kind 55: there is no request of kind 55: the peer is of another version",
        );
        cut_later(&header(50, 1, 3, 0), "kind 50");
        cut_later(&header(50, 1, 0, 7), "expected at most 0");
        cut_later(&[0xff; 4000], "another protocol");
        let goodbye = Raw::bytes(1, 1, &Request::Goodbye(Goodbye {}), &[]);
        cut_later(
            &[goodbye, Raw::bytes(2, 1, &Request::Ping(Ping {}), &[])].concat(),
            "the session has ended",
        );
    }
    holder.release(token).done();
    waiter.granted(id);
    assert!(setup.status().counters.cut >= 28);
}

#[test]
fn silent_and_deaf_clients_are_cut_in_time() {
    let limits = Limits {
        hello_timeout: Duration::from_millis(100),
        stall_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let setup = Setup::with(CoordinatorConfig { limits, ..config("") });
    Raw::connect(setup.tcp()).is_over();
    let mut half = setup.client();
    half.write(&Raw::bytes(1, 1, &Request::Claim(place("scratch")), &[])[..40]);
    half.is_over();
    // It asks and asks, and takes no answers: the coordinator stops to read, then cuts.
    let mut deaf = Raw::greet_with(setup.tcp(), hello());
    let asks: Vec<u8> =
        (1..2000).flat_map(|id| Raw::bytes(id, 1, &Request::Status(Status {}), &[])).collect();
    while deaf.stream.write_all(&asks).is_ok() {}
    let mut client = setup.client();
    client.turn(place("scratch"));
    wait_until("only one is left", || setup.status().connections == 1);
}

/// A daemon that is asked who a client is, and does not say.
#[test]
fn who_hangs_up_before_it_is_known_is_let_go_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let silent = dir.path().join("munged");
    let daemon = UnixListener::bind(&silent).unwrap();
    if let Err(error @ MungeError::NoLibrary(_)) = Munge::new(Some(dir.path().join("nowhere"))).encode(b"") {
        return eprintln!("skipped: {error}");
    }
    let policy = Policy::Munge(Munge::new(Some(silent)));
    let listener = Listener::bind(&Endpoint::Unix(dir.path().join("socket")), policy).unwrap();
    let journal = Local::open(&dir.path().join("journal")).unwrap();
    let limits = Limits { hello_timeout: Duration::from_secs(3600), ..Limits::default() };
    let config = CoordinatorConfig { limits, ..config("") };
    let coordinator = Coordinator::start(config, vec![listener], Box::new(journal)).unwrap();
    let hello = Request::Hello(Hello { auth: auth::MUNGE, ..hello() });
    let is_let_go_at_once = || {
        let mut client = Raw::connect(&coordinator.endpoints()[0]);
        client.write(&Raw::bytes(0, 0, &hello, b"MUNGE:AAAA:"));
        let _asked = daemon.accept().unwrap();
        drop(client);
        let start = Instant::now();
        wait_until("it is let go", || coordinator.status().unwrap().connections == 0);
        // MUNGE's library gives up itself after 2 s.
        start.elapsed() < Duration::from_secs(1)
    };
    // This machine may be busy.
    assert!((0..5).any(|_| is_let_go_at_once()));
}

/// Each of its bytes comes in time, but not the message.
#[test]
fn a_message_that_trickles_is_cut() {
    let limits = Limits { stall_timeout: Duration::from_secs(1), ..Limits::default() };
    let setup = Setup::with(CoordinatorConfig { limits, ..config("") });
    let mut patient = setup.client();
    let mut trickling = setup.client();
    // More bytes than this test can send before it gives up.
    let claim = Claim { label: &[b'x'; 60_000], ..place("scratch") };
    let mut bytes = Raw::bytes(1, 1, &Request::Claim(claim), &[]).into_iter();
    wait_until("it is cut", || trickling.try_write(&[bytes.next().expect("it is never cut")]).is_err());
    assert_eq!(setup.status().counters.cut, 1);
    // Whoever says nothing may stay.
    patient.is_silent();
}

#[test]
fn there_are_no_more_connections_than_allowed() {
    let limits = Limits { connections: 6, connections_per_client: 4, ..Limits::default() };
    let setup = Setup::with(CoordinatorConfig { limits, ..config("") });
    let mut here: Vec<_> = (0..4).map(|_| setup.client()).collect();
    Raw::connect(setup.unix()).is_cut(libc::EUSERS, "this client has 4 connections");
    let there: Vec<_> = (0..2).map(|_| Raw::greet_with(setup.tcp(), hello())).collect();
    Raw::connect(setup.tcp()).is_cut(libc::EUSERS, "the coordinator has 6 connections");
    here.iter_mut().for_each(Raw::is_silent);
    drop(there);
    wait_until("there is room again", || setup.status().connections == 4);
    Raw::greet_with(setup.tcp(), hello()).is_silent();
}

#[test]
fn many_connections_at_once() {
    let setup = Setup::new("slots=3");
    let mut clients: Vec<_> = (0..200).map(|_| setup.client()).collect();
    let mut ids = Vec::new();
    for (n, client) in clients.iter_mut().enumerate() {
        ids.push(client.claim(place("scratch")));
        wait_until("it is in line", || {
            let status = setup.status();
            status.holders.len() + status.waiting == n + 1
        });
    }
    // Whoever is at the front leaves, with and without a word.
    let mut left: Vec<_> = clients.into_iter().zip(ids).collect();
    while let Some((mut client, id)) = (!left.is_empty()).then(|| left.remove(0)) {
        let token = client.granted(id);
        client.acked = id + 1;
        client.release(token).done();
    }
    assert_eq!(setup.status().counters.released, 200);
}

/// Bytes that are almost right, cut and changed at random: the coordinator answers or cuts, and goes on.
#[test]
fn rubbish_harms_nobody() {
    let setup = Setup::new("");
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    let requests = [
        Request::Claim(place("scratch")),
        Request::Release(Release { token: 1, bytes: 0 }),
        Request::Renew(Renew { token: 1 }),
        Request::Cancel(Cancel { claim: 1 }),
        Request::Evict(Evict { token: 1 }),
        Request::Status(Status {}),
    ];
    for _ in 0..300 {
        let mut raw = setup.client();
        let mut bytes: Vec<u8> =
            (1..6).flat_map(|id| Raw::bytes(id, 1, &requests[random(requests.len())], &[])).collect();
        for _ in 0..random(4) {
            let at = random(bytes.len());
            bytes[at] = random(256) as u8;
        }
        bytes.truncate(random(bytes.len()) + 1);
        raw.write(&bytes);
    }
    let mut client = Raw::greet_with(setup.tcp(), hello());
    client.turn(place("another"));
}

#[test]
fn all_that_is_asked_at_once_is_answered_in_order() {
    let setup = Setup::new("");
    let mut client = setup.client();
    let asks: Vec<u8> = (1..=3000)
        .flat_map(|id| match id % 3 {
            0 => Raw::bytes(id, 1, &Request::Status(Status {}), &[]),
            1 => Raw::bytes(id, 1, &Request::Ping(Ping {}), &[]),
            _ => Raw::bytes(id, 1, &Request::Renew(Renew { token: 9 }), &[]),
        })
        .collect();
    client.write(&asks);
    for id in 1..=3000 {
        let reply = client.reply();
        assert_eq!((reply.id, reply.payload.is_empty()), (id, id % 3 != 0));
    }
}

#[test]
fn what_is_asked_at_once_is_not_answered_before_there_is_room() {
    let setup = Setup::new("");
    let mut client = setup.client();
    for number in 0..300 {
        let name = format!("place {number}");
        client.turn(Claim { place: name.as_bytes(), ..place("") });
    }
    let first = client.ask(&Request::Status(Status {}), &[]).payload.len();
    // More than a user may have underway, if all were made before any is sent.
    let count = (40 << 20) / first as u64;
    assert!(count * 40 < 64 << 10, "{first} bytes: they come as one piece");
    let from = client.next;
    let asks: Vec<u8> = (from..from + count)
        .flat_map(|id| Raw::bytes(id, from - 1, &Request::Status(Status {}), &[]))
        .collect();
    client.write(&asks);
    for id in from..from + count {
        let reply = client.reply();
        assert_eq!((reply.id, reply.errno), (id, 0), "{}", reply.text());
    }
}
