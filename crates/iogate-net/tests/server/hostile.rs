//! Clients that do not keep to the protocol, or to the limits, are cut off alone.

use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iogate_core::wire::*;
use iogate_net::Endpoint;
use iogate_net::server::Limits;

use super::raw::{RDWR, Raw, hello, transfer};
use super::{Setup, wait_until};

/// Does something while another client writes and reads back what it wrote.
fn beside_a_load(setup: &Setup, hostile: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut client = Raw::greet(setup.unix());
            client.open(1, "load", RDWR);
            let mut round = 0u64;
            while !stop.load(Ordering::SeqCst) || round < 10 {
                let data = [round as u8; 10_000];
                client.write_at(1, round % 7 * 10_000, &data).ok::<Written>();
                assert_eq!(client.read_at(1, round % 7 * 10_000, 10_000).payload, data);
                round += 1;
            }
        });
        let result = std::panic::catch_unwind(AssertUnwindSafe(hostile));
        stop.store(true, Ordering::SeqCst);
        load.join().unwrap();
        result.unwrap();
    });
}

fn small() -> Limits {
    Limits {
        credits: 8,
        credit_bytes: 1 << 20,
        transfer_bytes_max: 1 << 20,
        open_files_per_session: 3,
        ..Limits::default()
    }
}

fn header(kind: u16, id: u64, fields: u16, payload: u32) -> Vec<u8> {
    let header =
        RequestHeader { fields, payload, kind, id, acked: 1, uid: 0, gid: 0, ..RequestHeader::default() };
    [&header.to_bytes()[..], &vec![0; fields.into()]].concat()
}

#[test]
fn who_does_not_begin_with_a_hello_is_cut() {
    let setup = Setup::with(|config| config.limits.hello_timeout = Duration::from_millis(100));
    beside_a_load(&setup, || {
        let cut = |bytes: &[u8], errno, text| {
            for endpoint in setup.server.endpoints() {
                let mut raw = Raw::connect(endpoint);
                raw.write(bytes);
                raw.is_cut(errno, text);
            }
        };
        cut(
            b"GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: somebody else\r\n\r\n",
            libc::EPROTO,
            "another protocol",
        );
        cut(&[0; 100], libc::EPROTO, "expected a Hello first");
        cut(&[0xff; 100], libc::EPROTO, "another protocol");
        cut(&Raw::bytes(1, 1, &Request::Ping(Ping {}), &[]), libc::EPROTO, "expected a Hello first");
        let bytes = |id, hello| Raw::bytes(id, 0, &Request::Hello(hello), &[]);
        cut(&bytes(0, Hello { magic: 1, ..hello() }), libc::EPROTO, "magic number");
        let text = "the client speaks version 9 of the protocol, this server version 2";
        cut(&bytes(0, Hello { version: 9, ..hello() }), libc::EPROTONOSUPPORT, text);
        cut(&bytes(1, hello()), libc::EPROTO, "expected 0");
        cut(&bytes(0, Hello { auth: 99, ..hello() }), libc::EACCES, "offers something unknown");
        cut(&bytes(0, Hello { auth: auth::MUNGE, ..hello() }), libc::EACCES, "offers a MUNGE credential");
        cut(&header(1, 0, 0, 1 << 20), libc::EPROTO, "expected at most 8192");
        let mut unproven = Raw::connect(setup.tcp());
        unproven.write(&bytes(0, hello()));
        unproven.is_cut(libc::EACCES, "expected no proof");
        let mut anonymous = Raw::connect(setup.unix());
        anonymous.write(&bytes(0, Hello { auth: auth::NONE, ..hello() }));
        anonymous.is_cut(libc::EACCES, "offers nothing");
        // Silent, and silent after half a header.
        Raw::connect(setup.tcp()).is_over();
        let mut half = Raw::connect(setup.tcp());
        half.write(&bytes(0, hello())[..20]);
        half.is_over();
    });
}

#[test]
fn who_breaks_the_rules_of_a_session_is_cut() {
    let setup = Setup::with(|config| config.limits = small());
    beside_a_load(&setup, || {
        let cut = |bytes: &[u8], text| {
            for endpoint in setup.server.endpoints() {
                let mut raw = Raw::greet(endpoint);
                raw.open(1, "f", RDWR);
                // It may be cut before all has been sent.
                let _ = raw.stream.write_all(bytes);
                raw.is_cut(libc::EPROTO, text);
            }
        };
        let request = |id, acked, request| Raw::bytes(id, acked, &request, &[]);
        cut(&header(999, 2, 0, 0), "no request of kind 999");
        cut(&header(20, 2, 3, 0), "is truncated");
        cut(&header(3, 2, 3, 0), "3 bytes behind its last field");
        cut(&header(3, 2, 0, 1), "expected at most 0");
        cut(&header(3, 2, 0, u32::MAX), "another protocol");
        cut(&request(0, 0, Request::Hello(hello())), "a second Hello");
        cut(&request(1, 1, Request::Ping(Ping {})), "sent twice");
        cut(&request(9, 1, Request::Ping(Ping {})), "beyond the credits");
        cut(&request(2, 3, Request::Ping(Ping {})), "after its reply was acknowledged");
        let (one, two) = (request(2, 2, Request::Ping(Ping {})), request(2, 2, Request::Ping(Ping {})));
        cut(&[one, two].concat(), "sent twice");
        let large = transfer(1, 0, (1 << 20) + 1);
        cut(&Raw::bytes(2, 2, &Request::Write(large), &vec![0; (1 << 20) + 1]), "expected at most 1048576");
        cut(&Raw::bytes(2, 2, &Request::Write(transfer(1, 0, 5)), &[0; 6]), "a write of 5 bytes has 6");
    });
}

/// Its client may have asked by what another server said: to be cut off would not tell it, and cost everything else.
#[test]
fn what_is_too_large_is_refused_for_itself_where_nothing_has_to_be_skipped() {
    let limits = Limits { credit_bytes: 2 << 20, transfer_bytes_max: 1 << 20, ..small() };
    let setup = Setup::with(|config| config.limits = limits);
    for endpoint in setup.server.endpoints() {
        let mut raw = Raw::greet(endpoint);
        raw.open(1, "f", RDWR).ok::<Opened>();
        for bytes in [(1 << 20) + 1, 2 << 20, u32::MAX as usize] {
            let reply = raw.read_at(1, 0, bytes);
            assert_eq!(reply.errno, libc::EINVAL);
            assert!(reply.text().contains("expected at most 1048576"), "{}", reply.text());
        }
        let reply = raw.write_at(1, 0, &vec![0; (1 << 20) + 1]);
        assert_eq!(reply.errno, libc::EINVAL);
        assert!(reply.text().contains("expected at most 1048576"), "{}", reply.text());
        raw.write_at(1, 0, &vec![1; 1 << 20]).ok::<Written>();
        let record = Transfer { flags: transfer::APPEND, ..transfer(1, 0, 2 << 20) };
        raw.ask(&Request::Write(record), &vec![2; 2 << 20]).ok::<Written>();
        assert_eq!(raw.read_at(1, 0, 1 << 20).payload.len(), 1 << 20);
    }
    wait_until("all memory is free", || setup.server.status().memory_bytes == 0);
}

#[test]
fn more_data_underway_than_agreed_is_cut() {
    // The appends of a handle wait for each other, so that they are underway together.
    let setup = Setup::with(|config| {
        config.limits = Limits { credit_bytes: 1000, transfer_bytes_max: 1000, ..small() }
    });
    beside_a_load_of_little(&setup, || {
        let mut cut = 0;
        let mut client = Raw::greet(setup.tcp());
        client.open(1, "f", RDWR);
        let append = Transfer { flags: transfer::APPEND | transfer::SYNC, ..transfer(1, 0, 600) };
        while cut == 0 {
            let both = [0, 1]
                .map(|more| Raw::bytes(client.next + more, client.acked, &Request::Write(append), &[0; 600]));
            client.write(&both.concat());
            for _ in 0..2 {
                match client.reply() {
                    reply if reply.errno == 0 => {}
                    reply => {
                        assert!(reply.text().contains("bytes of data are in flight, expected at most 1000"));
                        cut += 1;
                    }
                }
            }
            client.next += 2;
            client.acked = client.next;
        }
    });
}

fn beside_a_load_of_little(setup: &Setup, hostile: impl FnOnce()) {
    let mut client = Raw::greet(setup.unix());
    client.open(1, "load", RDWR);
    hostile();
    client.write_at(1, 0, b"still here").ok::<Written>();
    assert_eq!(client.read_at(1, 0, 10).payload, b"still here");
}

#[test]
fn limits_are_told_and_hold_for_one_alone() {
    let setup = Setup::with(|config| {
        config.limits = Limits { connections: 4, connections_per_client: 3, ..small() };
    });
    let mut clients: Vec<Raw> = (0..3).map(|_| Raw::greet(setup.tcp())).collect();
    Raw::connect(setup.tcp()).is_cut(libc::EUSERS, "this client has 3 connections");
    wait_until("the one that was refused ends", || setup.server.status().connection_count == 3);
    let mut local = Raw::greet(setup.unix());
    Raw::connect(setup.unix()).is_cut(libc::EUSERS, "the server has 4 connections");
    for handle in 1..=3 {
        clients[0].open(handle, "f", RDWR).ok::<Opened>();
    }
    assert!(clients[0].open(4, "f", RDWR).text().contains("3 files are open"));
    clients[0].ask(&Request::Close(Close { handle: 2 }), &[]).done();
    clients[0].open(4, "f", RDWR).ok::<Opened>();
    local.open(1, "f", RDWR).ok::<Opened>();
    drop(clients);
    wait_until("the connections end", || setup.server.status().connection_count == 1);
    Raw::greet(setup.tcp());
}

#[test]
fn sessions_that_nobody_ends_are_counted() {
    let setup = Setup::with(|config| config.limits.connections_per_client = 1);
    for _ in 0..2 {
        drop(Raw::greet(setup.unix()));
        wait_until("the connection ends", || setup.server.status().connection_count == 0);
    }
    let mut third = Raw::connect(setup.unix());
    third.write(&Raw::bytes(0, 0, &Request::Hello(hello()), &[]));
    third.is_cut(libc::EUSERS, "has 2 sessions, which is the limit");
    Raw::greet(setup.tcp());
}

#[test]
fn who_does_not_read_is_cut_and_others_go_on() {
    for endpoint in [0, 1] {
        let limits = Limits { stall_timeout: Duration::from_millis(300), ..Limits::default() };
        let setup = Setup::with(|config| config.limits = limits);
        beside_a_load(&setup, || {
            let endpoint: &Endpoint = &setup.server.endpoints()[endpoint];
            let mut stalled = Raw::greet(endpoint);
            stalled.open(1, "large", RDWR);
            stalled.write_at(1, 0, &vec![1; 4 << 20]).ok::<Written>();
            for _ in 0..16 {
                stalled.send(&Request::Read(transfer(1, 0, 4 << 20)), &[]);
            }
            // And one that stops within a message.
            let mut half = Raw::greet(endpoint);
            half.open(1, "half", RDWR);
            let write = Raw::bytes(
                half.next,
                half.acked,
                &Request::Write(transfer(1, 0, 1 << 20)),
                &vec![1; 1 << 20],
            );
            half.write(&write[..write.len() / 3]);
            wait_until("the connections end", || setup.server.status().connection_count == 1);
            half.is_over();
        });
        wait_until("what they had is free", || {
            let status = setup.server.status();
            (status.memory_bytes, status.underway) == (0, 0)
        });
    }
}

#[test]
fn with_little_memory_everybody_waits_and_all_is_done() {
    let limits = Limits { memory_bytes: 1 << 20, transfer_bytes_max: 1 << 20, ..Limits::default() };
    let setup = Setup::with(|config| config.limits = limits);
    std::thread::scope(|scope| {
        for name in 0..8u8 {
            let setup = &setup;
            scope.spawn(move || {
                let mut client = Raw::greet(&setup.server.endpoints()[usize::from(name % 2)]);
                client.open(1, &name.to_string(), RDWR);
                let bytes = 300_000;
                // Eight at once, and their replies; what is read is ten times what the server may have in memory.
                for round in 0..4u64 {
                    for slot in 0..8u64 {
                        let data = vec![name + slot as u8; bytes];
                        let write = transfer(1, slot * bytes as u64, bytes);
                        let id = client.send(&Request::Write(write), &data);
                        assert!(id > round);
                    }
                    (0..8).for_each(|_| assert_eq!(client.reply().errno, 0));
                    client.acked = client.next;
                    let first = client.next;
                    for slot in 0..8 {
                        client.send(&Request::Read(transfer(1, slot * bytes as u64, bytes)), &[]);
                    }
                    for _ in 0..8 {
                        let reply = client.reply();
                        let slot = (reply.id - first) as u8;
                        assert!(reply.payload == vec![name + slot; bytes]);
                    }
                    client.acked = client.next;
                }
            });
        }
    });
    wait_until("all memory is free", || setup.server.status().memory_bytes == 0);
}
