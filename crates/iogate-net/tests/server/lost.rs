//! Connections are lost and come back: each request takes effect once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use iogate_core::wire::*;

use super::raw::{RDWR, Raw, hello, transfer};
use super::{Setup, wait_until};

fn append(bytes: usize) -> Request<'static> {
    Request::Write(Transfer { flags: transfer::APPEND, ..transfer(1, 0, bytes) })
}

#[test]
fn a_write_whose_reply_was_lost_is_not_made_again() {
    let setup = Setup::new();
    for endpoint in [setup.tcp(), setup.unix()] {
        let path = endpoint.to_string().replace(['/', ':', '.'], "-");
        let mut client = Raw::greet(endpoint);
        client.open(1, &path, RDWR);
        for round in 0..20 {
            let id = client.send(&append(4), b"data");
            // Cut before or after it is done: either way it is sent again.
            if round % 2 == 0 {
                client.reply();
            }
            let mut again = Raw::resume(endpoint, &client);
            assert_eq!(again.welcome.unwrap().resumed, 1);
            again.write(&Raw::bytes(id, again.acked, &append(4), b"data"));
            let reply = again.reply();
            assert_eq!(reply.id, id);
            assert_eq!(reply.ok::<Written>(), Written { offset: 4 * round, bytes: 4 });
            again.acked = id + 1;
            client = again;
        }
        assert_eq!(setup.tree.content(&path).len(), 80);
    }
}

#[test]
fn handles_stay_and_names_are_made_once() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    client.write_at(1, 0, b"content");
    let make = Request::MakeNode(MakeNode { mode: libc::S_IFREG, device: 0, path: b"a" });
    let id = client.send(&make, &[]);
    let read = client.send(&Request::Read(transfer(1, 0, 7)), &[]);
    while setup.tree.made.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let mut again = Raw::resume(setup.tcp(), &client);
    again.write(&Raw::bytes(id, again.acked, &make, &[]));
    again.write(&Raw::bytes(read, again.acked, &Request::Read(transfer(1, 0, 7)), &[]));
    let mut replies = [again.reply(), again.reply()];
    replies.sort_by_key(|reply| reply.id);
    assert_eq!(replies[0].errno, 0, "else it was made twice");
    assert_eq!((replies[1].id, &replies[1].payload[..]), (read, &b"content"[..]), "read again");
    assert_eq!(setup.tree.made.load(Ordering::SeqCst), 1);
    while client.try_reply().is_ok() {}
}

#[test]
fn half_a_write_leaves_nothing_behind() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    let data = vec![3; 1 << 20];
    let write = Raw::bytes(client.next, client.acked, &append(data.len()), &data);
    client.write(&write[..write.len() / 2]);
    let mut again = Raw::resume(setup.tcp(), &client);
    again.write(&write);
    assert_eq!(again.reply().ok::<Written>(), Written { offset: 0, bytes: 1 << 20 });
    assert_eq!(setup.tree.content("f").len(), 1 << 20);
}

#[test]
fn sessions_are_their_users_and_end() {
    let setup = Setup::with(|config| config.session_grace = Duration::from_millis(50));
    let client = Raw::greet(setup.unix());
    let session = client.welcome.unwrap().session;
    let mut thief = Raw::connect(setup.tcp());
    let wish = Hello { session, auth: auth::NONE, ..hello() };
    thief.write(&Raw::bytes(0, 0, &Request::Hello(wish), &[]));
    thief.is_cut(libc::EACCES, "another user's");
    drop(client);
    wait_until("nobody comes back", || setup.server.status().sessions == 0);
    let late = Raw::greet_with(setup.unix(), Hello { session, ..hello() });
    assert_eq!(late.welcome.unwrap().resumed, 0);
    assert_ne!(late.welcome.unwrap().session, session);
}

#[test]
fn goodbye_ends_a_session_at_once() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.unix());
    client.open(1, "f", RDWR);
    client.ask(&Request::Goodbye(Goodbye {}), &[]).done();
    let status = setup.server.status();
    assert_eq!((status.sessions, status.connections[0].open_files), (0, 0));
}

#[test]
fn what_was_accepted_is_completed_when_the_server_stops() {
    let setup = Setup::new();
    let mut client = Raw::greet(setup.tcp());
    client.open(1, "f", RDWR);
    let ids: Vec<u64> = (0..32).map(|_| client.send(&append(1000), &[7; 1000])).collect();
    let first = client.reply();
    assert_eq!(first.errno, 0);
    setup.server.shutdown();
    let mut answered = vec![first.id];
    while let Ok(reply) = client.try_reply() {
        assert_eq!(reply.errno, 0);
        answered.push(reply.id);
    }
    answered.sort_unstable();
    assert!(answered.iter().eq(&ids[..answered.len()]));
    assert_eq!(setup.tree.content("f").len(), answered.len() * 1000, "each that took effect is answered");
}
