//! What hangs stops its own export only, and new clients are always answered.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use iogate_core::wire::*;

use super::raw::{RDWR, Raw, hello, transfer};
use super::tree::MemoryTree;
use super::{Setup, export, wait_until};

fn two_exports() -> Setup {
    Setup::with(|config| config.exports.push(export("other", Arc::new(MemoryTree::default()))))
}

fn attr(path: &[u8]) -> Request<'_> {
    Request::GetAttr(GetAttr { handle: NO_HANDLE, path })
}

/// Everything but what hangs is answered, to clients that were there before and to new ones.
fn others_go_on(setup: &Setup, before: &mut Raw) {
    assert_eq!(before.ask(&attr(b""), &[]).errno, 0);
    for endpoint in setup.server.endpoints() {
        let mut other = Raw::greet_with(endpoint, Hello { export: b"other", ..hello() });
        other.open(1, "f", RDWR).ok::<Opened>();
        other.write_at(1, 0, b"goes on").ok::<Written>();
        assert_eq!(other.read_at(1, 0, 7).payload, b"goes on");
        // Also of the export that hangs, as far as nothing is asked of its storage.
        let mut new = Raw::greet(endpoint);
        assert_eq!(new.ask(&Request::Status(Status {}), &[]).errno, 0);
    }
}

#[test]
fn operations_that_hang_stop_their_export_only() {
    let setup = two_exports();
    let mut before = Raw::greet_with(setup.tcp(), Hello { export: b"other", ..hello() });
    setup.tree.door.shut();
    let mut hung: Vec<_> = (0..6).map(|_| Raw::greet(setup.unix())).collect();
    for client in &mut hung {
        for _ in 0..20 {
            client.send(&attr(b"door"), &[]);
        }
    }
    wait_until("half of the workers hang", || setup.tree.door.waiting.load(Ordering::SeqCst) == 30);
    others_go_on(&setup, &mut before);
    assert_eq!(setup.tree.door.waiting.load(Ordering::SeqCst), 30, "and no more");
    setup.tree.door.open();
    for client in &mut hung {
        (0..20).for_each(|_| assert_eq!(client.reply().errno, 0));
    }
}

#[test]
fn operations_of_one_session_leave_workers_to_others() {
    let setup = Setup::new();
    setup.tree.door.shut();
    let mut hung = Raw::greet(setup.unix());
    for _ in 0..72 {
        hung.send(&attr(b"door"), &[]);
    }
    wait_until("its workers hang", || setup.tree.door.waiting.load(Ordering::SeqCst) == 16);
    let mut other = Raw::greet(setup.unix());
    assert_eq!(other.ask(&attr(b""), &[]).errno, 0);
    assert_eq!(setup.tree.door.waiting.load(Ordering::SeqCst), 16);
    setup.tree.door.open();
    (0..72).for_each(|_| assert_eq!(hung.reply().errno, 0));
}

#[test]
fn reads_that_hang_stop_their_export_only() {
    let setup = two_exports();
    let mut before = Raw::greet_with(setup.tcp(), Hello { export: b"other", ..hello() });
    // More than the gate takes, so that the threads which bring them wait.
    let mut hung: Vec<_> = (0..100).map(|_| Raw::greet(setup.unix())).collect();
    for client in &mut hung {
        client.open(1, "held", RDWR).ok::<Opened>();
    }
    setup.tree.store.hold("held");
    for client in &mut hung {
        for at in 0..20 {
            client.send(&Request::Read(transfer(1, at, 1)), &[]);
        }
    }
    wait_until("the gate is full", || setup.server.status().exports[0].queued == 1024);
    others_go_on(&setup, &mut before);
    setup.tree.store.release();
    for client in &mut hung {
        (0..20).for_each(|_| assert_eq!(client.reply().errno, 0));
    }
}

#[test]
fn a_session_of_a_hung_export_comes_back() {
    let setup = two_exports();
    let mut before = Raw::greet_with(setup.tcp(), Hello { export: b"other", ..hello() });
    let mut hung: Vec<_> = (0..20).map(|_| Raw::greet(setup.unix())).collect();
    for client in &mut hung {
        client.open(1, "held", RDWR).ok::<Opened>();
    }
    setup.tree.store.hold("held");
    for client in &mut hung {
        for at in 0..100 {
            client.send(&Request::Read(transfer(1, at, 1)), &[]);
        }
    }
    wait_until("the gate is full", || setup.server.status().exports[0].queued == 1024);
    // The greeting does not wait for what the connection before has brought.
    let mut back: Vec<_> = hung.iter().map(|client| Raw::resume(setup.unix(), client)).collect();
    assert!(back.iter().all(|client| client.welcome.unwrap().resumed == 1));
    others_go_on(&setup, &mut before);
    for client in &mut back {
        let again = |at: u64| Raw::bytes(at + 2, client.acked, &Request::Read(transfer(1, at, 1)), &[]);
        let again: Vec<_> = (0..100).flat_map(again).collect();
        client.write(&again);
    }
    setup.tree.store.release();
    for client in &mut back {
        (0..100).for_each(|_| assert_eq!(client.reply().errno, 0));
    }
}
