//! What one client can take of memory, files and threads leaves enough to others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iogate_core::wire::*;
use iogate_net::server::Limits;

use super::raw::{RDWR, Raw, hello, transfer};
use super::{Setup, wait_until};

const MIB: usize = 1 << 20;

/// A server with room for sixteen of the largest messages.
fn with_little_memory() -> Setup {
    let limits = Limits { memory_bytes: 16 * MIB, transfer_bytes_max: MIB as u32, ..Limits::default() };
    Setup::with(|config| config.limits = limits)
}

/// A client of another user writes and reads.
fn another_goes_on(setup: &Setup, rounds: usize) {
    let mut other = Raw::greet(setup.unix());
    other.open(1, "other", RDWR).ok::<Opened>();
    for round in 0..rounds {
        let data = vec![round as u8; MIB];
        other.write_at(1, 0, &data).ok::<Written>();
        assert!(other.read_at(1, 0, MIB).payload == data);
    }
}

#[test]
fn messages_that_trickle_hold_nobody_up_and_are_cut() {
    let limits = Limits {
        memory_bytes: 16 * MIB,
        transfer_bytes_max: MIB as u32,
        stall_timeout: Duration::from_secs(3),
        ..Limits::default()
    };
    let setup = Setup::with(|config| config.limits = limits);
    // More than fit, so that some of them wait for the memory of others.
    let mut trickling: Vec<_> = (0..24).map(|_| Raw::greet(setup.tcp())).collect();
    let write = Raw::bytes(1, 1, &Request::Write(transfer(1, 0, MIB)), &vec![0; MIB]);
    trickling.iter_mut().for_each(|client| client.write(&write[..write.len() - MIB + 1]));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                // Those that are cut fail.
                trickling.iter_mut().for_each(|client| drop(client.try_write(&[0])));
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            another_goes_on(&setup, 20);
            wait_until("all of them are cut", || setup.server.status().connection_count == 0);
        }));
        stop.store(true, Ordering::SeqCst);
        result.unwrap();
    });
    assert_eq!(setup.server.status().memory_bytes, 0);
}

#[test]
fn greetings_that_trickle_hold_nobody_up() {
    let setup = with_little_memory();
    let greeting = Raw::bytes(0, 0, &Request::Hello(Hello { auth: auth::MUNGE, ..hello() }), &[0; 8192]);
    let mut silent: Vec<_> = (0..1_500).map(|_| Raw::connect(setup.tcp())).collect();
    silent.iter_mut().for_each(|client| client.write(&greeting[..greeting.len() - 1]));
    another_goes_on(&setup, 3);
    Raw::greet(setup.unix());
}

#[test]
fn replies_that_nobody_reads_are_bounded() {
    let setup = with_little_memory();
    let mut maker = Raw::greet(setup.unix());
    for number in 0..4_000 {
        let path = format!("{number:0200}");
        maker
            .ask(&Request::MakeNode(MakeNode { mode: libc::S_IFREG, device: 0, path: path.as_bytes() }), &[]);
    }
    let mut greedy: Vec<_> = (0..4).map(|_| Raw::greet(setup.tcp())).collect();
    let list = Request::ReadDir(ReadDir { after: 0, bytes: MIB as u32, path: b"" });
    let first = maker.ask(&list, &[]);
    assert!(first.payload.len() > MIB * 3 / 4, "{} bytes", first.payload.len());
    for client in &mut greedy {
        (0..12).for_each(|_| drop(client.try_send(&list)));
    }
    wait_until("they have what they may have", || setup.server.status().memory_bytes > 6 * MIB);
    another_goes_on(&setup, 5);
    assert!(setup.server.status().memory_bytes <= 10 * MIB);
    // Who reads gets everything.
    std::thread::scope(|scope| {
        for client in &mut greedy {
            let read = || (1..client.next).for_each(|_| assert!(client.reply().payload == first.payload));
            scope.spawn(read);
        }
    });
    wait_until("all memory is free", || setup.server.status().memory_bytes == 0);
}

#[test]
fn statuses_hold_no_greeting_up() {
    let setup = Setup::new();
    let mut flood: Vec<_> = (0..16).map(|_| Raw::greet(setup.tcp())).collect();
    for client in &mut flood {
        for _ in 0..256 {
            client.send(&Request::Status(Status {}), &[]);
        }
    }
    another_goes_on(&setup, 1);
    for client in &mut flood {
        (0..256).for_each(|_| assert_eq!(client.reply().errno, 0));
    }
}

#[test]
fn who_acknowledges_what_it_has_not_read_is_cut() {
    let setup = Setup::new();
    let mut blind = Raw::greet(setup.unix());
    let mut sent = 0;
    let cut = loop {
        let ping = |at: u64| Raw::bytes(sent + at, sent + at, &Request::Ping(Ping {}), &[]);
        let pings: Vec<u8> = (1..=1_000).flat_map(ping).collect();
        sent += 1_000;
        if blind.try_write(&pings).is_err() {
            break true;
        }
        if sent > 2_000_000 {
            break false;
        }
    };
    assert!(cut, "all were taken");
}

#[test]
fn one_user_leaves_files_to_others() {
    let setup = Setup::with(|config| config.limits.open_files = 8);
    let mut greedy = [Raw::greet(setup.tcp()), Raw::greet(setup.tcp())];
    let mut open = Vec::new();
    for handle in 1..=4 {
        for (at, client) in greedy.iter_mut().enumerate() {
            let reply = client.open(handle, "f", RDWR);
            match reply.errno {
                0 => open.push((at, handle)),
                errno => {
                    assert_eq!(errno, libc::EMFILE);
                    assert!(
                        reply.text().contains("user 7 has as many files open as may be"),
                        "{}",
                        reply.text()
                    );
                }
            }
        }
    }
    assert_eq!(open.len(), 4, "half");
    let mut other = Raw::greet(setup.unix());
    other.open(1, "f", RDWR).ok::<Opened>();
    let (at, handle) = open[0];
    assert_eq!(greedy[at].ask(&Request::Close(Close { handle }), &[]).errno, 0);
    other.ask(&Request::Close(Close { handle: 1 }), &[]);
    greedy[at].open(9, "f", RDWR).ok::<Opened>();
    drop(greedy);
    // A session that ends gives back what it has.
    let mut last = Raw::greet(setup.tcp());
    last.open(1, "not there", open::READ);
    assert_eq!(last.open(2, "f", RDWR).errno, libc::EMFILE, "sessions wait for their clients");
}
