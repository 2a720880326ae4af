//! What a session does in virtual time: one rule at a time, and in a naive world.

mod world;

use alloc::string::String;
use alloc::vec::Vec;
use alloc::{format, vec};

use super::*;
use crate::refusal::errno::{EBADF, EIO, ESTALE};
use crate::wire::{
    Attr, Close, GetAttr, Identity, NO_HANDLE, Open, Opened, PATH_BYTES_MAX, Record, Rename, Request,
    Transfer, open, transfer,
};

/// What a driver knows of a request: what it is.
type Session = ClientSession<String, u32>;

pub(super) const CONFIG: SessionConfig = SessionConfig::new(Span::from_secs(10));
const REPEATABLE: Demand = Demand {
    bytes: 0,
    bound: Bound::None,
    repeatable: true,
    has_origin: false,
    handle: NO_HANDLE,
    opens: false,
    lock: 0,
};
const ONCE: Demand = Demand { repeatable: false, ..REPEATABLE };
const KNOWN: Demand = Demand { has_origin: true, ..ONCE };

/// Files are opened again by what names them all.
fn own(request: Request<'_>, uid: &u32) -> String {
    match request {
        Request::Open(Open { handle, flags, identity, path, .. }) => {
            let path = str::from_utf8(path).unwrap();
            format!("{uid} opens {path} of {} under {handle} with {flags}", identity.inode)
        }
        Request::Close(Close { handle }) => format!("{uid} closes {handle}"),
        other => panic!("a session asks for {other:?}"),
    }
}

fn at(ms: u64) -> Time {
    Time::ZERO + Span::from_millis(ms)
}

/// Of a new session.
fn welcome(session: u8, answers: u64) -> Welcome {
    Welcome {
        credits: 8,
        credit_bytes: 1000,
        transfer_bytes_max: 1000,
        append_bytes_max: 1000,
        answers,
        trusted: 1,
        ..Welcome::to([session; 16], false)
    }
}

fn resumed(session: u8) -> Welcome {
    Welcome { resumed: 1, ..welcome(session, 0) }
}

fn session() -> Session {
    ClientSession::new(CONFIG, own, welcome(1, 0))
}

fn opened(inode: u64) -> Vec<u8> {
    opened_as(inode, 0)
}

/// Of a file with these objects, or without any.
fn opened_as(inode: u64, object: u8) -> Vec<u8> {
    let identity = Identity { inode, generation: 0 };
    let attr = Attr { object: [object; 16], ..Attr::default() };
    let mut fields = Vec::new();
    Opened { identity, pending_size: u64::MAX, is_new: 0, attr }.encode(&mut fields);
    fields
}

/// Everything that is to be written now.
fn written(session: &mut Session) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    while let Some(next) = session.next_to_write() {
        all.push((next.id, next.item.clone()));
    }
    all
}

fn opening(handle: u32, flags: u32) -> Demand {
    Demand::of(&Request::Open(Open { handle, flags, mode: 0, identity: Identity::default(), path: b"" }))
}

/// A file that is open, by the request with this id.
fn open_file(session: &mut Session, id: u64, path: &str, flags: u32, inode: u64) -> u32 {
    let handle = session.open_file(path.as_bytes(), flags, 7);
    session.submit("open".into(), opening(handle, flags), at(0)).unwrap();
    assert_eq!(written(session), [(id, "open".into())]);
    assert_eq!(session.answered(id, Ok(&opened(inode))).unwrap().errno, None);
    handle
}

/// A new connection to a server that says this.
fn reconnect(session: &mut Session, said: Welcome, now: Time) -> Vec<String> {
    session.lost(now);
    let shown = session.welcome().session;
    assert_eq!(session.attempt(now), Attempt::Connect(shown));
    session.connected(said, now).failed
}

#[test]
fn a_session_that_goes_on_sends_again_what_is_unanswered() {
    let mut session = session();
    for name in ["one", "two", "three"] {
        session.submit(name.into(), ONCE, at(0)).unwrap();
    }
    assert_eq!(session.next_to_write().unwrap().id, 1);
    assert_eq!(session.next_to_write().unwrap().id, 2);
    assert_eq!(session.answered(1, Ok(b"")).unwrap().call, "one");
    assert!(session.lost(at(5)));
    assert!(!session.is_connected() && session.next_to_write().is_none());
    assert_eq!(session.attempt(at(5)), Attempt::Connect([1; 16]), "at once");
    let back = session.connected(resumed(1), at(9));
    let expected =
        Reconnected { is_resumed: true, gone: Span::from_millis(4), is_news: true, failed: vec![] };
    assert_eq!(back, expected);
    assert_eq!(session.attempt(at(9)), Attempt::Nothing);
    assert_eq!(written(&mut session), [(2, "two".into()), (3, "three".into())]);
    assert!(session.answered(1, Ok(b"")).is_none(), "answered before");
    assert!(session.answered(4, Ok(b"")).is_none(), "not asked");
}

#[test]
fn what_an_earlier_session_may_have_carried_out_fails_at_a_server_that_has_forgotten() {
    let mut session = ClientSession::new(CONFIG, own, welcome(1, 5));
    session.submit("known".into(), KNOWN, at(0)).unwrap();
    assert_eq!(written(&mut session).len(), 1);
    assert!(reconnect(&mut session, welcome(2, 5), at(1)).is_empty(), "the server would know it");
    // Lost before it was written again.
    assert_eq!(reconnect(&mut session, welcome(3, 6), at(3000)), ["known"]);
    assert!(session.is_idle());
}

#[test]
fn a_new_session_repeats_what_it_may() {
    for (before, after, is_known) in [(5, 5, true), (5, 6, false), (0, 0, false), (5, 0, false)] {
        let mut session = ClientSession::new(CONFIG, own, welcome(1, before));
        session.submit("once".into(), ONCE, at(0)).unwrap();
        session.submit("known".into(), KNOWN, at(0)).unwrap();
        session.submit("set".into(), REPEATABLE, at(0)).unwrap();
        assert_eq!(written(&mut session).len(), 3);
        session.submit("unwritten".into(), ONCE, at(0)).unwrap();
        let failed = reconnect(&mut session, welcome(2, after), at(1));
        let again: Vec<String> = written(&mut session).into_iter().map(|(_, name)| name).collect();
        if is_known {
            assert_eq!(
                (failed, again),
                (
                    vec!["once".into()],
                    vec!["known", "set", "unwritten"].into_iter().map(String::from).collect()
                )
            );
        } else {
            assert_eq!(
                (failed, again),
                (vec!["once".into(), "known".into()], vec!["set".into(), "unwritten".into()])
            );
        }
    }
}

/// The waits before attempts that all fail, from a loss at 0 on.
fn waits(session: &mut Session, attempts: usize) -> Vec<u64> {
    let mut now = at(0);
    session.lost(now);
    (0..attempts)
        .map(|_| {
            let before = now;
            if let Attempt::WaitUntil(time) = session.attempt(now) {
                now = time;
            }
            assert_eq!(session.attempt(now), Attempt::Connect([1; 16]));
            assert_eq!(session.could_not_connect(now), None);
            now.since(before).as_nanos() / 1_000_000
        })
        .collect()
}

#[test]
fn attempts_become_rarer_down_to_one_a_second() {
    assert_eq!(waits(&mut session(), 9), [0, 20, 40, 80, 160, 320, 640, 1000, 1000]);
}

#[test]
fn a_server_that_is_gone_for_too_long_is_given_up_until_it_is_back() {
    let mut session = session();
    open_file(&mut session, 1, "file", open::READ, 3);
    let late = session.open_file(b"late", open::READ, 7);
    session.submit("first".into(), REPEATABLE, at(0)).unwrap();
    session.submit("opens".into(), opening(late, open::READ), at(0)).unwrap();
    session.lost(at(0));
    assert_eq!(session.attempt(at(9_999)), Attempt::Connect([1; 16]));
    assert_eq!(session.could_not_connect(at(9_999)), None, "not yet");
    let Attempt::WaitUntil(due) = session.attempt(at(9_999)) else { panic!("it waits") };
    assert_eq!(due, at(10_019));
    assert_eq!(
        session.attempt(at(10_000)),
        Attempt::GiveUp(GivenUp { failed: vec!["first".into(), "opens".into()], is_news: true })
    );
    assert!(session.is_idle() && session.path_of(late).is_none());
    assert_eq!(session.submit("refused".into(), REPEATABLE, at(60_000)), Err("refused".into()));
    assert_eq!(
        session.attempt(at(60_000)),
        Attempt::Connect(NO_SESSION),
        "the session is not asked for again"
    );
    assert_eq!(session.could_not_connect(at(60_001)), Some(GivenUp { failed: vec![], is_news: false }));
    assert_eq!(session.attempt(at(61_000)), Attempt::Connect(NO_SESSION));
    let back = session.connected(welcome(2, 0), at(61_000));
    assert!(back.is_news && !back.is_resumed && back.gone == Span::from_secs(61));
    session.submit("taken".into(), REPEATABLE, at(61_000)).unwrap();
    let flags = open::READ | open::AGAIN;
    assert_eq!(written(&mut session), [(1, format!("7 opens file of 3 under 1 with {flags}"))]);
}

#[test]
fn a_server_that_is_not_to_be_used_is_given_up_at_once_and_may_come_back() {
    let mut session = session();
    assert_eq!(session.give_up_at_once(at(0)), None, "there is a connection");
    session.submit("first".into(), REPEATABLE, at(0)).unwrap();
    session.lost(at(1));
    assert_eq!(session.give_up_at_once(at(1)), Some(GivenUp { failed: vec!["first".into()], is_news: true }));
    assert_eq!(session.give_up_at_once(at(2)), None, "once");
    assert_eq!(session.submit("refused".into(), REPEATABLE, at(3)), Err("refused".into()));
    assert!(matches!(session.attempt(at(3)), Attempt::WaitUntil(_)), "not at once again");
    assert_eq!(session.attempt(at(1_000)), Attempt::Connect(NO_SESSION));
    session.connected(welcome(2, 0), at(1_000));
    session.submit("taken".into(), REPEATABLE, at(1_000)).unwrap();
    assert_eq!(written(&mut session).len(), 1);
}

#[test]
fn who_has_nobody_that_looks_looks_when_asked() {
    let config = SessionConfig { tries_unasked: false, ..CONFIG };
    let mut session: Session = ClientSession::new(config, own, welcome(1, 0));
    session.lost(at(0));
    session.submit("one".into(), REPEATABLE, at(0)).unwrap();
    assert_eq!(session.attempt(at(10_000)), Attempt::Connect([1; 16]));
    let given_up = session.could_not_connect(at(10_000)).unwrap();
    assert_eq!(given_up, GivenUp { failed: vec!["one".into()], is_news: true });
    assert!(session.submit("two".into(), REPEATABLE, at(10_019)).is_err(), "an attempt is not due");
    session.submit("three".into(), REPEATABLE, at(10_020)).unwrap();
    assert_eq!(session.attempt(at(10_020)), Attempt::Connect(NO_SESSION));
    let given_up = session.could_not_connect(at(10_020)).unwrap();
    assert_eq!(given_up, GivenUp { failed: vec!["three".into()], is_news: false });
    assert!(session.submit("four".into(), REPEATABLE, at(10_059)).is_err());
}

/// It takes connections, and loses each before it answers anything.
fn takes_connections(session: &mut Session, until: u64) -> (u64, Vec<String>) {
    let mut now = at(0);
    assert!(session.lost(now));
    loop {
        match session.attempt(now) {
            Attempt::WaitUntil(time) => now = time,
            Attempt::Connect(_) => {
                session.connected(resumed(1), now);
                written(session);
                assert!(!session.lost(now), "it is the same loss");
            }
            Attempt::GiveUp(given_up) => return (now.as_nanos() / 1_000_000, given_up.failed),
            Attempt::Nothing => panic!("there is no connection"),
        }
        assert!(now < at(until), "it is not given up");
    }
}

#[test]
fn a_server_that_takes_connections_and_answers_nothing_is_gone() {
    let mut session = session();
    session.submit("one".into(), REPEATABLE, at(0)).unwrap();
    let (when, failed) = takes_connections(&mut session, 12_000);
    assert!((10_000..11_001).contains(&when), "{when} ms");
    assert_eq!(failed, ["one"]);
}

#[test]
fn an_answer_begins_a_new_loss() {
    let mut session = session();
    session.submit("one".into(), REPEATABLE, at(0)).unwrap();
    session.submit("two".into(), REPEATABLE, at(0)).unwrap();
    waits(&mut session, 8);
    session.connected(resumed(1), at(9_000));
    assert_eq!(written(&mut session).len(), 2);
    assert!(session.answered(1, Err(EIO)).is_some());
    assert!(session.lost(at(9_100)), "another loss");
    assert_eq!(session.attempt(at(9_100)), Attempt::Connect([1; 16]));
    assert_eq!(session.could_not_connect(at(19_099)), None);
    assert!(matches!(session.attempt(at(19_100)), Attempt::GiveUp(_)));
}

#[test]
fn a_loss_long_after_the_last_attempt_is_another() {
    let mut session = session();
    waits(&mut session, 8);
    session.connected(resumed(1), at(3_000));
    assert!(session.lost(at(5_000)), "the last attempt was 2 s ago");
}

#[test]
fn files_are_opened_again_where_they_are_by_now() {
    let mut session = session();
    let flags = open::READ | open::WRITE | open::CREATE | open::TRUNCATE | open::EXCLUSIVE;
    let moved = open_file(&mut session, 1, "a/b", flags, 11);
    open_file(&mut session, 2, "ab", open::READ | open::SPREAD, 12);
    open_file(&mut session, 3, "c", open::WRITE | open::APPEND, 13);
    let closed = open_file(&mut session, 4, "closed", open::READ, 14);
    session.renamed(b"a", b"x/y", false);
    session.renamed(b"c", b"ab", true);
    session.close_file(closed);
    assert_eq!(session.path_of(moved), Some(&b"x/y/b"[..]));
    session.submit("waits".into(), REPEATABLE, at(0)).unwrap();
    assert_eq!(reconnect(&mut session, welcome(2, 0), at(0)), [""; 0]);
    let expected = [
        format!("7 opens x/y/b of 11 under 1 with {}", open::READ | open::WRITE | open::AGAIN),
        format!("7 opens c of 12 under 2 with {}", open::READ | open::AGAIN),
        format!("7 opens ab of 13 under 3 with {}", open::WRITE | open::APPEND | open::AGAIN),
    ];
    assert_eq!(written(&mut session), (1..).zip(expected).collect::<Vec<_>>());
    assert!(session.answered(1, Ok(&opened(11))).is_some());
    assert!(session.answered(2, Err(EIO)).is_some());
    assert_eq!(written(&mut session), [], "until all are answered");
    assert!(session.answered(3, Ok(&opened(13))).is_some());
    assert_eq!(written(&mut session), [(4, "waits".into())]);
}

/// Its server was killed after it had renamed the file, and before it said so.
#[test]
fn a_file_that_was_being_renamed_is_opened_again_when_it_is_known_where_it_is() {
    for is_done in [true, false] {
        let mut session: Session = ClientSession::new(CONFIG, own, welcome(1, 5));
        let file = open_file(&mut session, 1, "old/file", open::READ, 3);
        let other = open_file(&mut session, 2, "older", open::READ, 4);
        let look = |handle| Demand::of(&Request::GetAttr(GetAttr { handle, path: b"" }));
        session.submit("before".into(), look(file), at(0)).unwrap();
        session.rename_begins(b"old", b"new");
        session.submit("rename".into(), KNOWN, at(0)).unwrap();
        session.submit("behind".into(), look(file), at(0)).unwrap();
        assert_eq!(written(&mut session).len(), 3);
        assert_eq!(reconnect(&mut session, welcome(2, 5), at(0)), [""; 0]);
        session.submit("other".into(), look(other), at(0)).unwrap();
        let again = |path, inode, handle| {
            format!("7 opens {path} of {inode} under {handle} with {}", open::READ | open::AGAIN)
        };
        assert_eq!(written(&mut session), [(1, again("older", 4, other))]);
        assert!(session.answered(1, Ok(&opened(4))).is_some());
        assert_eq!(
            written(&mut session),
            [(2, "rename".into()), (3, "other".into())],
            "those of the file wait"
        );
        let answer = if is_done { Ok(&b""[..]) } else { Err(EIO) };
        assert_eq!(session.answered(2, answer).unwrap().errno, answer.err());
        assert_eq!(written(&mut session), [], "until its path is known");
        if is_done {
            session.renamed(b"old", b"new", false);
        }
        session.rename_ended(b"old", b"new");
        let path = if is_done { "new/file" } else { "old/file" };
        assert_eq!(written(&mut session), [(4, again(path, 3, file))]);
        assert!(session.answered(4, Ok(&opened(3))).is_some());
        assert_eq!(written(&mut session), [(5, "before".into()), (6, "behind".into())]);
    }
}

/// Each says where it is only when all have ended.
#[test]
fn a_file_that_is_renamed_by_several_waits_for_all_of_them() {
    let mut session = session();
    let handle = open_file(&mut session, 1, "a/f", open::READ, 3);
    session.rename_begins(b"a", b"b");
    session.rename_begins(b"b/f", b"c");
    reconnect(&mut session, welcome(2, 0), at(0));
    assert_eq!(written(&mut session), []);
    session.renamed(b"a", b"b", false);
    session.rename_ended(b"a", b"b");
    assert_eq!(written(&mut session), []);
    session.renamed(b"b/f", b"c", false);
    session.rename_ended(b"b/f", b"c");
    let again = format!("7 opens c of 3 under {handle} with {}", open::READ | open::AGAIN);
    assert_eq!(written(&mut session), [(1, again)]);
}

/// The driver hears of a rename's answer, and says so, a little after the connection is lost again.
#[test]
fn a_file_that_has_moved_while_it_is_opened_again_is_asked_for_once_more() {
    let mut session = session();
    let handle = open_file(&mut session, 1, "old", open::READ, 3);
    reconnect(&mut session, welcome(2, 0), at(0));
    assert_eq!(written(&mut session).len(), 1);
    session.renamed(b"old", b"new", false);
    assert_eq!(written(&mut session), [], "it may yet be found");
    assert!(session.answered(1, Err(ESTALE)).is_some());
    let again = |path| format!("7 opens {path} of 3 under {handle} with {}", open::READ | open::AGAIN);
    assert_eq!(written(&mut session), [(2, again("new"))]);
    assert!(session.answered(2, Err(ESTALE)).is_some());
    assert_eq!(written(&mut session), [], "it is elsewhere");
    // Nor is a file asked for that was closed meanwhile.
    session.close_file(handle);
    session.renamed(b"new", b"old", false);
    assert_eq!(written(&mut session), []);
}

#[test]
fn what_cannot_be_opened_again_is_stale() {
    let mut session = session();
    let gone = open_file(&mut session, 1, "gone", open::READ, 1);
    let kept = open_file(&mut session, 2, "kept", open::READ, 3);
    reconnect(&mut session, welcome(2, 0), at(0));
    assert_eq!(written(&mut session).len(), 2);
    assert_eq!(session.answered(1, Err(ESTALE)).unwrap().errno, Some(ESTALE));
    assert_eq!(session.answered(2, Ok(&opened(3))).unwrap().errno, None);
    for (id, handle, errno) in [(3, gone, ESTALE), (4, kept, EBADF), (5, 99, EBADF)] {
        let demand = Demand::of(&Request::GetAttr(GetAttr { handle, path: b"" }));
        session.submit("attr".into(), demand, at(0)).unwrap();
        assert_eq!(written(&mut session).len(), 1);
        assert_eq!(session.answered(id, Err(EBADF)).unwrap().errno, Some(errno), "handle {handle}");
    }
    // Its next server may be luckier.
    reconnect(&mut session, welcome(3, 0), at(0));
    assert_eq!(written(&mut session).len(), 2);
}

/// By renames of what is above it, each of which a server takes. One that it does not would cut off all the others.
#[test]
fn a_file_whose_path_has_become_too_long_is_stale() {
    let mut session = session();
    let handle = open_file(&mut session, 1, "a/f", open::READ, 3);
    open_file(&mut session, 2, "b/f", open::READ, 4);
    let deep = [b"d/".repeat(PATH_BYTES_MAX / 2 - 1), b"a".to_vec()].concat();
    session.renamed(b"a", &deep, false);
    session.renamed(b"d", &deep, false);
    assert!(session.path_of(handle).unwrap().len() > PATH_BYTES_MAX);
    reconnect(&mut session, welcome(2, 0), at(0));
    let other = format!("7 opens b/f of 4 under 2 with {}", open::READ | open::AGAIN);
    assert_eq!(written(&mut session), [(1, other)]);
    assert!(session.answered(1, Ok(&opened(4))).is_some());
    let look = Demand::of(&Request::GetAttr(GetAttr { handle, path: b"" }));
    session.submit("look".into(), look, at(0)).unwrap();
    assert_eq!(written(&mut session), [(2, "look".into())]);
    assert_eq!(session.answered(2, Err(EBADF)).unwrap().errno, Some(ESTALE));
    // It is found again where its path is short enough.
    let back = session.path_of(handle).unwrap().strip_suffix(b"/f").unwrap().to_vec();
    session.renamed(&back, b"a", false);
    let again = format!("7 opens a/f of 3 under {handle} with {}", open::READ | open::AGAIN);
    assert_eq!(written(&mut session), [(3, again)]);
}

/// A server cuts off who sends it more at once than it takes, and would do so again and again.
#[test]
fn what_a_new_server_does_not_take_fails_alone() {
    let data = |flags, bytes| Transfer { handle: 3, flags, offset: 0, bytes, app: 0, client: 0, issued: 0 };
    let read = |bytes| Demand::of(&Request::Read(data(0, bytes)));
    let write = |bytes| Demand::of(&Request::Write(data(0, bytes)));
    let append = |bytes| Demand::of(&Request::Write(data(transfer::APPEND, bytes)));
    let all = [("read", read(501)), ("write", write(501)), ("append", append(701))];
    let fitting = [("short read", read(500)), ("short write", write(500)), ("short append", append(700))];
    for is_written in [false, true] {
        let first = Welcome { credit_bytes: 10_000, ..welcome(1, 5) };
        let mut session = ClientSession::new(CONFIG, own, first);
        if !is_written {
            session.lost(at(0));
        }
        for (name, demand) in all.into_iter().chain(fitting) {
            session.submit(name.into(), Demand { has_origin: true, ..demand }, at(0)).unwrap();
        }
        assert_eq!(written(&mut session).len(), if is_written { 6 } else { 0 });
        let smaller =
            Welcome { credit_bytes: 10_000, transfer_bytes_max: 500, append_bytes_max: 700, ..welcome(2, 5) };
        let failed = match is_written {
            true => reconnect(&mut session, smaller, at(0)),
            false => session.connected(smaller, at(0)).failed,
        };
        assert_eq!(failed, ["read", "write", "append"]);
        let sent: Vec<String> = written(&mut session).into_iter().map(|(_, name)| name).collect();
        assert_eq!(sent, ["short read", "short write", "short append"]);
        // Who has cut it by what the last server said is too late.
        for (name, demand) in all {
            assert_eq!(session.submit(name.into(), demand, at(0)), Err(name.into()));
        }
        // Other requests have other bounds.
        session.submit("value".into(), Demand { bytes: 900, ..ONCE }, at(0)).unwrap();
    }
}

/// A server may keep it, and finds it by its identity.
#[test]
fn a_file_without_a_name_is_asked_for_by_the_folder_that_it_was_made_in() {
    let mut session = session();
    open_file(&mut session, 1, "folder", open::WRITE | open::TEMPORARY | open::EXCLUSIVE, 2);
    reconnect(&mut session, welcome(2, 0), at(0));
    let again = format!("7 opens folder of 2 under 1 with {}", open::WRITE | open::AGAIN);
    assert_eq!(written(&mut session), [(1, again)]);
}

/// What led to them went with a crash of the server's machine, and somebody was faster to open the file.
#[test]
fn a_file_whose_objects_are_others_by_now_is_stale_and_closed() {
    let mut session = session();
    let handle = open_file(&mut session, 1, "file", open::READ, 3);
    let look = Demand::of(&Request::GetAttr(GetAttr { handle, path: b"" }));
    // It has none, gets some, and keeps them.
    for object in [0, 5, 5] {
        reconnect(&mut session, welcome(2, 0), at(0));
        assert_eq!(written(&mut session).len(), 1);
        assert_eq!(session.answered(1, Ok(&opened_as(3, object))).unwrap().errno, None);
        session.submit("look".into(), look, at(0)).unwrap();
        assert_eq!(written(&mut session), [(2, "look".into())]);
        assert_eq!(session.answered(2, Ok(b"")).unwrap().errno, None);
    }
    for object in [6, 0] {
        reconnect(&mut session, welcome(2, 0), at(0));
        session.submit("look".into(), look, at(0)).unwrap();
        assert_eq!(written(&mut session).len(), 1);
        assert!(session.answered(1, Ok(&opened_as(3, object))).is_some());
        assert_eq!(written(&mut session), [(2, format!("7 closes {handle}"))], "before anything else");
        assert_eq!(session.answered(2, Ok(b"")).unwrap().errno, None);
        assert_eq!(written(&mut session), [(3, "look".into())]);
        assert_eq!(session.answered(3, Err(EBADF)).unwrap().errno, Some(ESTALE));
    }
    session.close_file(handle);
    session.submit("close".into(), Demand::of(&Request::Close(Close { handle })), at(0)).unwrap();
    assert_eq!(written(&mut session), [(4, "close".into())]);
}

#[test]
fn a_file_that_could_not_be_opened_has_no_handle() {
    let mut session = session();
    let open = |session: &mut Session| {
        let handle = session.open_file(b"file", open::READ, 7);
        session.submit("open".into(), opening(handle, open::READ | open::EXCLUSIVE), at(0)).unwrap();
        assert_eq!(written(session).len(), 1);
        handle
    };
    let refused = open(&mut session);
    assert!(session.answered(1, Err(ESTALE)).is_some());
    assert_eq!(session.path_of(refused), None);
    let strange = open(&mut session);
    assert!(session.answered(2, Ok(b"what?")).is_some());
    assert_eq!(session.path_of(strange), None);
    let unknown = open(&mut session);
    assert_eq!(reconnect(&mut session, welcome(2, 0), at(0)), ["open"]);
    assert_eq!(session.path_of(unknown), None);
    assert_eq!(written(&mut session), []);
}

#[test]
fn a_forked_process_begins_a_session_of_its_own() {
    let mut session = session();
    open_file(&mut session, 1, "file", open::READ, 3);
    session.submit("of the parent".into(), REPEATABLE, at(0)).unwrap();
    written(&mut session);
    session.forked(at(1));
    session.submit("of the child".into(), ONCE, at(1)).unwrap();
    assert_eq!(session.attempt(at(1)), Attempt::Connect(NO_SESSION));
    let said = Welcome { resumed: 1, ..welcome(2, 0) };
    let begun = session.connected(said, at(1));
    assert_eq!(begun, Reconnected { is_resumed: false, gone: Span::ZERO, is_news: false, failed: vec![] });
    assert_eq!(written(&mut session).len(), 1, "the file is opened first");
    assert!(session.answered(1, Ok(&opened(3))).is_some());
    assert_eq!(written(&mut session), [(2, "of the child".into())]);
}

#[test]
fn a_closed_session_takes_and_tries_nothing() {
    let mut session = session();
    session.submit("one".into(), REPEATABLE, at(0)).unwrap();
    session.close();
    assert_eq!(session.submit("two".into(), REPEATABLE, at(0)), Err("two".into()));
    assert!(session.next_to_write().is_none());
    assert!(!session.lost(at(0)));
    assert_eq!(session.attempt(at(20_000)), Attempt::Nothing);
    assert_eq!(session.requests().count(), 1);
}

#[test]
fn what_is_to_be_known_of_a_request_is_in_it() {
    let transfer =
        Transfer { handle: 3, flags: transfer::APPEND, offset: 0, bytes: 77, app: 0, client: 0, issued: 0 };
    let append = Demand::of(&Request::Write(transfer));
    assert_eq!(append, Demand { bytes: 77, bound: Bound::Append, handle: 3, ..ONCE });
    assert!(append.needs_origin() && !KNOWN.needs_origin() && !REPEATABLE.needs_origin());
    let read = Demand { bytes: 77, bound: Bound::Transfer, handle: 3, ..REPEATABLE };
    assert_eq!(Demand::of(&Request::Read(transfer)), read);
    assert_eq!(Demand::of(&Request::Close(Close { handle: 4 })), Demand { handle: 4, ..REPEATABLE });
    assert_eq!(Demand::of(&Request::Rename(Rename { flags: 0, path: b"a", to: b"b" })), ONCE);
    assert_eq!(opening(5, open::READ), Demand { handle: 5, opens: true, ..REPEATABLE });
    assert!(!opening(NO_HANDLE, open::READ).opens);
}
