//! Nothing of a client that is gone follows what comes after its end.

use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

use iogate_core::wire::*;

use super::raw::{RDWR, Raw, transfer};
use super::{Setup, wait_until};

/// A server whose gate takes few requests.
fn with_little_room() -> Setup {
    Setup::with(|config| {
        let tree = config.exports[0].tree.clone();
        config.exports = vec![super::export_with(4, 1, "files", tree)];
    })
}

#[test]
fn writes_of_a_client_that_is_gone_do_not_undo_its_successors() {
    for bytes in [100, 40_000] {
        let setup = with_little_room();
        for endpoint in setup.server.endpoints() {
            let path = endpoint.to_string().replace(['/', ':', '.'], "-");
            let mut gone = Raw::greet(endpoint);
            gone.open(1, &path, RDWR).ok::<Opened>();
            setup.tree.store.hold(&path);
            for _ in 0..50 {
                let write =
                    Raw::bytes(gone.next, 1, &Request::Write(transfer(1, 0, bytes)), &vec![b'X'; bytes]);
                gone.next += 1;
                // What does not fit the sockets stays here.
                if gone.try_write(&write).is_err() {
                    break;
                }
            }
            wait_until("the gate is full", || setup.server.status().exports[0].queued == 4);
            drop(gone);
            let mut successor = Raw::greet(endpoint);
            successor.open(1, &path, RDWR).ok::<Opened>();
            successor.send(&Request::Write(transfer(1, 0, bytes)), &vec![b'Y'; bytes]);
            setup.tree.store.release();
            successor.reply().ok::<Written>();
            wait_until("all is done", || {
                let status = setup.server.status();
                (status.underway, status.connection_count) == (0, 1)
            });
            assert!(setup.tree.content(&path) == vec![b'Y'; bytes], "{bytes} bytes at {endpoint}");
            drop(successor);
            wait_until("all have gone", || setup.server.status().connection_count == 0);
        }
    }
}

#[test]
fn operations_of_a_client_that_is_gone_do_not_undo_its_successors() {
    let setup = Setup::new();
    let mut successor = Raw::greet(setup.unix());
    let mut gone = Raw::greet(setup.unix());
    setup.tree.door.shut();
    for _ in 0..72 {
        gone.send(&Request::GetAttr(GetAttr { handle: NO_HANDLE, path: b"door" }), &[]);
    }
    gone.send(&Request::Unlink(Unlink { directory: 0, path: b"f" }), &[]);
    wait_until("all have come", || setup.server.status().underway == 73);
    drop(gone);
    wait_until("it has gone", || setup.server.status().connection_count == 1);
    successor.open(1, "f", RDWR).ok::<Opened>();
    setup.tree.door.open();
    wait_until("all is done", || setup.server.status().underway == 0);
    successor.open(2, "f", RDWR & !open::CREATE).ok::<Opened>();
}

#[test]
fn a_client_that_comes_back_has_everything_carried_out() {
    let setup = with_little_room();
    let mut client = Raw::greet(setup.unix());
    client.open(1, "f", RDWR).ok::<Opened>();
    setup.tree.store.hold("f");
    let write = |at: u64| Raw::bytes(at + 2, 2, &Request::Write(transfer(1, at, 1)), &[at as u8]);
    let all: Vec<u8> = (0..100).flat_map(write).collect();
    client.write(&all);
    wait_until("the gate is full", || setup.server.status().exports[0].queued == 4);
    let mut again = Raw::resume(setup.unix(), &client);
    drop(client);
    // And once more, while the connection before waits.
    let mut once_more = Raw::resume(setup.unix(), &again);
    again.is_over();
    once_more.write(&all);
    setup.tree.store.release();
    for _ in 0..100 {
        once_more.reply().ok::<Written>();
    }
    assert_eq!(setup.tree.content("f"), (0..100).collect::<Vec<u8>>());
}

#[test]
fn a_client_that_comes_back_late_has_everything_carried_out() {
    let setup = with_little_room();
    let mut client = Raw::greet(setup.unix());
    client.open(1, "f", RDWR).ok::<Opened>();
    setup.tree.door.shut();
    let attr = Request::GetAttr(GetAttr { handle: NO_HANDLE, path: b"door" });
    let attr = Raw::bytes(102, 2, &attr, &[]);
    client.write(&attr);
    wait_until("it is held up", || setup.tree.door.waiting.load(Ordering::SeqCst) == 1);
    setup.tree.store.hold("f");
    let write = |at: u64| Raw::bytes(at + 2, 2, &Request::Write(transfer(1, at, 1)), &[at as u8]);
    let writes: Vec<u8> = (0..100).flat_map(write).collect();
    client.write(&writes);
    wait_until("the gate is full", || setup.server.status().exports[0].queued == 4);
    // Most likely the fifth waits for room by then; else it is just not wanted, and the test shows nothing.
    std::thread::sleep(Duration::from_millis(50));
    client.stream = Box::new(UnixStream::pair().unwrap().0);
    // The reply finds nobody: the connection is over while what it has brought waits for room in the gate.
    setup.tree.door.open();
    wait_until("the connection is over", || setup.server.status().connection_count == 0);
    let mut again = Raw::resume(setup.unix(), &client);
    again.write(&writes);
    again.write(&attr);
    // A server that does not wait has read all of it when this is answered, and takes the writes for underway.
    again.stream.be_patient(Duration::from_millis(300));
    let early = again.try_reply().is_ok();
    again.stream.be_patient(Duration::from_secs(30));
    setup.tree.store.release();
    for _ in usize::from(early)..101 {
        assert_eq!(again.reply().errno, 0);
    }
    assert_eq!(setup.tree.content("f"), (0..100).collect::<Vec<u8>>());
}

#[test]
fn an_open_that_was_forgotten_comes_again() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.unix());
    setup.tree.door.shut();
    for _ in 0..72 {
        client.send(&Request::GetAttr(GetAttr { handle: NO_HANDLE, path: b"door" }), &[]);
    }
    let identity = Identity::default();
    let open = Request::Open(Open { handle: 1, flags: RDWR, mode: 0o644, identity, path: b"f" });
    let id = client.send(&open, &[]);
    wait_until("all have come", || setup.server.status().underway == 73);
    client.stream = Box::new(UnixStream::pair().unwrap().0);
    wait_until("it has gone", || setup.server.status().connection_count == 0);
    setup.tree.door.open();
    wait_until("all is done", || setup.server.status().underway == 0);
    let mut again = Raw::resume(setup.unix(), &client);
    again.write(&Raw::bytes(id, again.acked, &open, &[]));
    again.reply().ok::<Opened>();
}

#[test]
fn who_says_goodbye_and_does_not_wait_has_ended_its_session() {
    let setup = Setup::new();
    for endpoint in setup.server.endpoints() {
        for _ in 0..200 {
            let mut client = Raw::greet(endpoint);
            client.open(1, "f", RDWR).ok::<Opened>();
            client.send(&Request::Goodbye(Goodbye {}), &[]);
        }
        wait_until("all sessions end", || setup.server.status().sessions == 0);
    }
}

#[test]
fn a_range_is_not_written_to_after_a_fence_unless_its_handle_is_renewed() {
    let setup = Setup::new();
    let [mut late, mut cuts] = [(); 2].map(|()| Raw::greet(setup.unix()));
    late.open(1, "f", RDWR).ok::<Opened>();
    cuts.open(1, "f", RDWR).ok::<Opened>();
    let to_range = Request::Write(Transfer { flags: transfer::RANGE, ..transfer(1, 0, 1) });
    let set = |which| {
        let change = Change { which, ..Change::default() };
        Request::SetAttr(SetAttr { handle: 1, change, identity: Identity::default(), path: b"" })
    };
    late.ask(&to_range, b"1").ok::<Written>();
    cuts.ask(&set(set::SIZE | set::FENCE), &[]).ok::<Attr>();
    assert_eq!(late.ask(&to_range, b"2").errno, libc::ECANCELED);
    assert_eq!(setup.tree.content("f"), b"1");
    late.ask(&Request::Write(transfer(1, 0, 1)), b"3").ok::<Written>();
    late.ask(&set(set::RENEW), &[]).ok::<Attr>();
    late.ask(&to_range, b"4").ok::<Written>();
    assert_eq!(setup.tree.content("f"), b"4");
    // Who only reads keeps nobody from writing.
    let mut reads = Raw::greet(setup.unix());
    reads.open(1, "f", open::READ).ok::<Opened>();
    for which in [set::FENCE, set::RENEW] {
        assert_eq!(reads.ask(&set(which), &[]).errno, libc::EBADF);
    }
    late.ask(&to_range, b"5").ok::<Written>();
}
