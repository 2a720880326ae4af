//! What a client asks for again, and what it takes for lost.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use crate::Time;
use crate::proto::client_session::tests::CONFIG;
use crate::proto::client_session::{Attempt, ClientSession, Demand, SessionConfig};
use crate::wire::{Attr, Close, Identity, Lock, Open, Opened, Record, Request, SetLock, Welcome, lock, open};

type Session = ClientSession<String, u32>;

const ESTALE: i32 = 116;
const EBADF: i32 = 9;
const EAGAIN: i32 = 11;
const EBUSY: i32 = 16;

fn own(request: Request<'_>, _: &u32) -> String {
    match request {
        Request::Open(Open { handle, .. }) => format!("opens {handle}"),
        Request::Close(Close { handle }) => format!("closes {handle}"),
        Request::SetLock(SetLock { handle, again, lock, .. }) => {
            format!(
                "{again} {handle} {} {} {} {}-{}",
                lock.space, lock.kind, lock.owner, lock.first, lock.last
            )
        }
        other => panic!("a session asks for {other:?}"),
    }
}

fn welcome(session: u8) -> Welcome {
    Welcome { instance: session.into(), credits: 8, credit_bytes: 1000, ..Welcome::to([session; 16], false) }
}

fn opened(inode: u64) -> Vec<u8> {
    let identity = Identity { inode, generation: 0 };
    let mut fields = Vec::new();
    Opened { identity, pending_size: u64::MAX, is_new: 0, attr: Attr::default() }.encode(&mut fields);
    fields
}

/// What is to be written now, each answered by what `answer` says of it.
fn exchange(
    session: &mut Session,
    mut answer: impl FnMut(&str) -> Result<Vec<u8>, i32>,
) -> Vec<(String, Option<i32>)> {
    let mut all = Vec::new();
    while let Some(next) = session.next_to_write() {
        let (id, item) = (next.id, next.item.clone());
        let outcome = answer(&item);
        let answered = session.answered(id, outcome.as_deref().map_err(|&errno| errno)).unwrap();
        all.push((item, answered.errno));
    }
    all
}

fn open_file(session: &mut Session, inode: u64) -> u32 {
    let handle = session.open_file(b"file", open::READ, 7);
    let identity = Identity::default();
    let demand =
        Demand::of(&Request::Open(Open { handle, flags: open::READ, mode: 0, identity, path: b"file" }));
    session.submit("open".into(), demand, Time::ZERO).unwrap();
    assert_eq!(exchange(session, |_| Ok(opened(inode))), [("open".into(), None)]);
    handle
}

/// Has a session ask for a lock.
fn submit_lock<C: core::fmt::Debug, U>(
    session: &mut ClientSession<C, U>,
    handle: u32,
    wish: Lock,
    now: Time,
    call: impl FnOnce(SetLock) -> C,
) {
    let set = SetLock { handle, again: 0, session: 0, lock: wish };
    let begun = session.lock_begins(handle, &wish);
    let demand = Demand { lock: begun, ..Demand::of(&Request::SetLock(set)) };
    session.submit(call(set), demand, now).unwrap();
}

/// What opening a file under this handle takes.
fn opens(handle: u32) -> Demand {
    let (flags, identity) = (open::READ, Identity::default());
    Demand::of(&Request::Open(Open { handle, flags, mode: 0, identity, path: b"f" }))
}

/// Puts what a session writes next on its way.
fn send<C: Clone, U>(session: &mut ClientSession<C, U>, requests: &mut VecDeque<(u64, C)>) {
    if let Some(next) = session.next_to_write() {
        requests.push_back((next.id, next.item.clone()));
    }
}

/// The first of the locks given that one of this kind of a client's does not go together with.
fn taken_by_another(given: &[(usize, Lock)], client: usize, byte: u64, kind: u8) -> Option<&(usize, Lock)> {
    given.iter().find(|(to, lock)| {
        let is_of_byte = (lock.first..=lock.last).contains(&byte) && lock.kind != lock::NONE;
        *to != client && is_of_byte && (kind == lock::EXCLUSIVE || lock.kind == lock::EXCLUSIVE)
    })
}

/// How many locks had been given when a client was last given this one.
fn given_up_to(given: &[(usize, Lock)], client: usize, wish: &Lock) -> usize {
    let granted = |(to, lock): &(usize, Lock)| *to == client && lock == wish;
    given.iter().rposition(granted).map_or(0, |at| at + 1)
}

fn ask(session: &mut Session, handle: u32, kind: u8, owner: u64, first: u64, last: u64) {
    let wish = Lock { space: lock::BYTES, kind, owner, first, last, process: 1 };
    submit_lock(session, handle, wish, Time::ZERO, |_| format!("lock {kind} {owner} {first}-{last}"));
}

/// A client that has the first hundred bytes of a file alone, and the file's handle.
fn locked() -> (Session, u32) {
    let mut session = ClientSession::new(CONFIG, own, welcome(1));
    let handle = open_file(&mut session, 3);
    ask(&mut session, handle, lock::EXCLUSIVE, 5, 0, 99);
    exchange(&mut session, |_| Ok(vec![]));
    (session, handle)
}

/// The server was started anew.
fn restart(session: &mut Session, number: u8) {
    session.lost(Time::ZERO);
    assert!(matches!(session.attempt(Time::ZERO), Attempt::Connect(_)));
    assert!(session.connected(welcome(number), Time::ZERO).failed.is_empty());
}

#[test]
fn locks_are_asked_for_again_before_anything_else() {
    let mut session = ClientSession::new(CONFIG, own, welcome(1));
    let handle = open_file(&mut session, 3);
    ask(&mut session, handle, lock::EXCLUSIVE, 5, 0, 99);
    ask(&mut session, handle, lock::NONE, 5, 10, 19);
    ask(&mut session, handle, lock::SHARED, 6, 200, 300);
    assert!(exchange(&mut session, |_| Ok(vec![])).iter().all(|(_, errno)| errno.is_none()));
    // One that somebody else has is not the client's.
    ask(&mut session, handle, lock::SHARED, 6, 400, 500);
    assert_eq!(exchange(&mut session, |_| Err(EAGAIN)), [("lock 1 6 400-500".into(), Some(EAGAIN))]);
    // On its way when the server goes: asked for once more, as what it is.
    ask(&mut session, handle, lock::SHARED, 6, 600, 700);
    assert!(session.next_to_write().is_some());
    restart(&mut session, 2);
    let said = exchange(&mut session, |item| Ok(if item.starts_with("opens") { opened(3) } else { vec![] }));
    let said: Vec<&str> = said.iter().map(|(item, _)| &item[..]).collect();
    assert_eq!(
        said,
        ["opens 1", "1 1 0 2 5 0-9", "1 1 0 2 5 20-99", "1 1 0 1 6 200-300", "lock 1 6 600-700"]
    );
    restart(&mut session, 3);
    let said = exchange(&mut session, |item| Ok(if item.starts_with("opens") { opened(3) } else { vec![] }));
    assert_eq!(said.last().unwrap().0, "2 1 0 1 6 600-700");
}

/// It says so by a process that never was.
#[test]
fn where_others_give_locks_too_none_is_had_again() {
    let config = SessionConfig { has_rivals: true, ..CONFIG };
    let mut session = ClientSession::new(config, own, welcome(1));
    let handle = open_file(&mut session, 3);
    ask(&mut session, handle, lock::EXCLUSIVE, 5, 0, 99);
    exchange(&mut session, |_| Ok(vec![]));
    for number in 2..4 {
        restart(&mut session, number);
        let said =
            exchange(&mut session, |item| Ok(if item.starts_with("opens") { opened(3) } else { vec![] }));
        assert_eq!(said.last().unwrap().0, format!("{} 1 0 2 5 0-99", u64::MAX));
    }
}

#[test]
fn a_file_whose_lock_is_lost_is_of_no_use_any_more() {
    let (mut session, handle) = locked();
    restart(&mut session, 2);
    let said = exchange(&mut session, |item| match item {
        "opens 1" => Ok(opened(3)),
        "closes 1" => Ok(vec![]),
        _ => Err(ESTALE),
    });
    let said: Vec<&str> = said.iter().map(|(item, _)| &item[..]).collect();
    let all = format!("1 1 0 0 5 0-{}", u64::MAX);
    assert_eq!(said, ["opens 1", "1 1 0 2 5 0-99", &all, "closes 1"]);
    ask(&mut session, handle, lock::NONE, 5, 0, 99);
    let said = exchange(&mut session, |_| Err(EBADF));
    assert_eq!(said, [("lock 0 5 0-99".into(), Some(ESTALE))]);
}

/// The first ones are given again just before the server's grace ends, the last one after it: nobody would ever give the first ones back.
#[test]
fn who_has_lost_one_lock_of_a_file_gives_back_the_others() {
    let (mut session, handle) = locked();
    ask(&mut session, handle, lock::SHARED, 6, 200, 300);
    exchange(&mut session, |_| Ok(vec![]));
    restart(&mut session, 2);
    let said = exchange(&mut session, |item| match item {
        "opens 1" => Ok(opened(3)),
        "1 1 0 1 6 200-300" => Err(ESTALE),
        _ => Ok(vec![]),
    });
    let said: Vec<&str> = said.iter().map(|(item, _)| &item[..]).collect();
    let all = |owner| format!("1 1 0 0 {owner} 0-{}", u64::MAX);
    assert_eq!(said, ["opens 1", "1 1 0 2 5 0-99", "1 1 0 1 6 200-300", &all(5), &all(6), "closes 1"]);
}

#[test]
fn a_file_that_is_open_twice_has_its_locks_asked_for_again_once() {
    let (mut session, _) = locked();
    assert_eq!(open_file(&mut session, 3), 2);
    for number in 2..4 {
        restart(&mut session, number);
        let said =
            exchange(&mut session, |item| Ok(if item.starts_with("opens") { opened(3) } else { vec![] }));
        let said: Vec<&str> = said.iter().map(|(item, _)| &item[..]).collect();
        let again = format!("{} 1 0 2 5 0-99", number - 1);
        assert_eq!(said, ["opens 1", "opens 2", &again]);
    }
}

#[test]
fn what_was_given_back_is_not_asked_for_again_whatever_was_answered() {
    let (mut session, handle) = locked();
    ask(&mut session, handle, lock::NONE, 5, 0, u64::MAX);
    exchange(&mut session, |_| Err(EAGAIN));
    restart(&mut session, 2);
    let said = exchange(&mut session, |_| Ok(opened(3)));
    assert_eq!(said, [("opens 1".into(), None)]);
}

/// Others may share it since then, though the client is told in the grace to ask once more.
#[test]
fn what_was_asked_for_again_as_shared_is_not_had_alone_any_more() {
    let (mut session, handle) = locked();
    ask(&mut session, handle, lock::SHARED, 5, 0, 99);
    let again = |session: &mut Session| {
        let said = exchange(session, |item| match item {
            "opens 1" => Ok(opened(3)),
            "lock 1 5 0-99" => Err(EBUSY),
            _ => Ok(vec![]),
        });
        let said = said.into_iter().map(|(item, _)| item).filter(|item| !item.starts_with("opens"));
        said.collect::<Vec<_>>()
    };
    restart(&mut session, 2);
    assert_eq!(again(&mut session), ["1 1 0 1 5 0-99", "lock 1 5 0-99"]);
    restart(&mut session, 3);
    assert_eq!(again(&mut session), ["2 1 0 1 5 0-99"]);
}

#[test]
fn a_copy_of_the_process_has_no_locks() {
    let (mut session, _) = locked();
    session.forked(Time::ZERO);
    assert!(matches!(session.attempt(Time::ZERO), Attempt::Connect(_)));
    session.connected(welcome(2), Time::ZERO);
    let said = exchange(&mut session, |_| Ok(opened(3)));
    assert_eq!(said, [("opens 1".into(), None)]);
}

mod through;
mod world;
