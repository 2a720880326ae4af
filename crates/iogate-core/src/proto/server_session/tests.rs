//! Sessions against what a naive observer keeps, and one test for each rule.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;

use proptest::prelude::*;

use super::*;
use crate::wire::Written;

type Session = ServerSession<&'static str, u32, u32>;

const LIMITS: SessionLimits = SessionLimits { credits: 4, credit_bytes: 100, open_files: 3 };

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * 1_000_000)
}

fn session() -> Session {
    let mut session = Session::new(LIMITS, at(0));
    assert_eq!(session.attach(1).unwrap(), None);
    session
}

fn reply(offset: u64) -> CachedReply {
    CachedReply::Written(Written { offset, bytes: 1, verifier: 0 })
}

/// A request that is to be carried out.
fn new(session: &mut Session, from: u32, id: u64, bytes: u32) -> Owed {
    match session.admit(&from, id, 1, bytes) {
        Ok(Admission::New(owed)) => owed,
        other => panic!("request {id}: {other:?}"),
    }
}

fn errno_of<T>(result: Result<T, Refusal>) -> i32 {
    result.err().map_or(0, |refusal| refusal.errno)
}

#[test]
fn a_reply_that_finds_nobody_is_there_when_the_request_comes_again() {
    let mut session = session();
    let (one, two) = (new(&mut session, 1, 1, 10), new(&mut session, 1, 2, 0));
    session.detach(&1, at(1));
    assert_eq!(session.finish(one, Some(reply(1))), None);
    assert_eq!(session.attach(2).unwrap(), Some(1), "requests of it may still be in hand");
    assert_eq!(session.finish(two, Some(reply(2))), None, "not asked for on this connection");
    for id in [1, 2] {
        let admission = session.admit(&2, id, 1, 0);
        assert!(matches!(admission, Ok(Admission::Repeated(again)) if again == reply(id)), "{id}");
    }
    assert_eq!((session.in_flight(), session.bytes_in_flight), (0, 0));
}

#[test]
fn a_connection_that_was_replaced_brings_nothing_and_ends_nothing() {
    let mut session = session();
    session.attach(2).unwrap();
    assert!(matches!(session.admit(&1, 1, 1, 0), Ok(Admission::Nothing)));
    session.detach(&1, at(5));
    assert!(session.is_current(&2));
    let owed = new(&mut session, 2, 1, 0);
    assert_eq!(session.finish(owed, None), Some(&2));
}

#[test]
fn a_session_is_abandoned_once_nobody_has_come_back_for_long() {
    let mut session = session();
    let grace = Span::from_millis(100);
    assert!(!session.is_abandoned(at(1_000), grace), "it has a connection");
    session.detach(&1, at(1_000));
    assert!(!session.is_abandoned(at(1_100), grace));
    assert!(session.is_abandoned(at(1_101), grace));
    session.attach(2).unwrap();
    assert!(!session.is_abandoned(at(2_000), grace));
}

/// A process that was killed has nobody who comes back; what it has asked for is carried out before another one has its locks.
#[test]
fn who_has_left_is_not_waited_for_long() {
    let (mut session, grace) = (session(), Span::from_secs(60));
    session.leave(&1, at(1_000));
    assert!(!session.is_abandoned(at(2_000), grace));
    assert!(session.is_abandoned(at(2_001), grace));
    assert!(session.is_abandoned(at(1_101), Span::from_millis(100)), "no longer than anybody else");
    session.attach(2).unwrap();
    let owed = new(&mut session, 2, 1, 0);
    session.leave(&1, at(3_000));
    assert!(session.is_current(&2), "another connection has ended");
    session.leave(&2, at(3_000));
    assert!(!session.is_abandoned(at(62_999), grace));
    session.forget(owed);
    assert!(session.is_abandoned(at(4_001), grace));
    // Lost is not left.
    session.attach(3).unwrap();
    session.detach(&3, at(5_000));
    assert!(!session.is_abandoned(at(60_000), grace));
}

#[test]
fn nothing_is_taken_after_the_end_and_what_is_in_flight_is_answered() {
    let mut session = session();
    session.reserve(1).unwrap();
    session.reserve(2).unwrap();
    assert_eq!(session.fill(1, "file"), None);
    let owed = new(&mut session, 1, 1, 0);
    assert_eq!(session.end(), (2, vec!["file"]));
    assert_eq!(session.finish(owed, Some(reply(1))), Some(&1), "the answer to the Goodbye");
    assert_eq!(session.fill(2, "late"), Some("late"), "to be closed");
    assert_eq!(errno_of(session.reserve(3)), errno::ESTALE, "nobody would close it");
    assert_eq!(errno_of(session.admit(&1, 2, 1, 0)), errno::EPROTO);
    assert_eq!(errno_of(session.attach(2)), errno::ESTALE);
    assert_eq!(session.end(), (0, vec![]));
}

#[test]
fn more_bytes_than_agreed_are_refused_and_stay_refused() {
    let mut session = session();
    let owed = new(&mut session, 1, 1, 60);
    let Ok(Admission::Refused(first, refusal)) = session.admit(&1, 2, 1, 41) else { panic!("admitted") };
    assert!(refusal.text.contains("101 bytes of data are in flight, expected at most 100"), "{refusal}");
    session.attach(2).unwrap();
    assert!(matches!(session.admit(&2, 2, 1, 41), Ok(Admission::Repeated(again)) if again == first));
    session.finish(owed, None);
    let _all = new(&mut session, 2, 3, 100);
}

#[test]
fn a_request_that_has_waited_is_forgotten_once_its_client_is_gone() {
    let mut session = session();
    session.reserve(7).unwrap();
    let owed = new(&mut session, 1, 1, 10);
    // Another connection has come since the driver saw the first one dead.
    session.attach(2).unwrap();
    for seen in [Some(1), None] {
        let admission = session.give_up(Owed { ..owed_like(&owed) }, seen.as_ref(), Some(7));
        assert!(matches!(admission, GivenUp::Wanted(again) if again == owed));
    }
    let forgotten = session.give_up(owed, Some(&2), Some(7));
    assert!(matches!(forgotten, GivenUp::Forgotten { is_released: true }));
    assert_eq!((session.in_flight(), session.bytes_in_flight, session.open_files()), (0, 0, 0));
    session.detach(&2, at(1));
    session.attach(3).unwrap();
    session.reserve(7).unwrap();
    let again = new(&mut session, 3, 1, 10);
    session.detach(&3, at(2));
    assert!(matches!(session.give_up(again, None, None), GivenUp::Forgotten { is_released: false }));
}

fn owed_like(owed: &Owed) -> Owed {
    Owed { id: owed.id, bytes: owed.bytes }
}

#[test]
fn a_handle_means_one_file_from_when_it_is_taken() {
    let mut session = session();
    assert_eq!(errno_of(session.reserve(crate::wire::NO_HANDLE)), errno::EINVAL);
    session.reserve(1).unwrap();
    assert_eq!(errno_of(session.reserve(1)), errno::EINVAL);
    assert_eq!(errno_of(session.file(1)), errno::EBADF, "it is being opened");
    assert_eq!(errno_of(session.close(1)), errno::EBADF);
    assert_eq!(session.fill(1, "a"), None);
    assert_eq!(session.fill(1, "b"), Some("b"));
    assert!(!session.release(1), "it is open");
    assert_eq!(session.file(1).unwrap(), "a");
    (2..4).for_each(|handle| session.reserve(handle).unwrap());
    assert_eq!(errno_of(session.reserve(4)), errno::EMFILE);
    assert_eq!(session.close(1).unwrap(), "a");
    assert_eq!(errno_of(session.close(1)), errno::EBADF);
    assert!(session.release(2) && !session.release(2));
    assert_eq!(session.open_files(), 1);
}

/// A session with a file, and somebody who waits for its end since 0.
fn waiting() -> (Session, ParkedId) {
    let mut session = session();
    session.reserve(1).unwrap();
    session.fill(1, "file");
    let owed = new(&mut session, 1, 1, 0);
    let Asked::New(parked) = session.park(owed, 1, b"ask", at(0)) else { panic!("it is new") };
    (session, parked)
}

fn answer(session: &mut Session, owed: Owed) -> u64 {
    let id = owed.id();
    session.finish(owed, Some(reply(id)));
    id
}

#[test]
fn who_waits_for_an_end_is_sent_away_and_keeps_its_place() {
    let (mut session, parked) = waiting();
    assert_eq!(session.send_away(at(499)), []);
    let mut sent = session.send_away(at(500));
    assert_eq!(answer(&mut session, sent.remove(0)), 1);
    assert_eq!(session.send_away(at(5_000)), []);
    let again = new(&mut session, 1, 2, 0);
    assert_eq!(session.park(again, 1, b"ask", at(600)), Asked::Waits);
    let other = new(&mut session, 1, 3, 0);
    assert!(matches!(session.park(other, 1, b"another", at(600)), Asked::New(_)));
    assert_eq!(session.send_away(at(1_099)), []);
    let Some((owed, 9)) = session.give(parked, 9) else { panic!("it is here") };
    assert_eq!(answer(&mut session, owed), 2);
}

#[test]
fn what_is_given_while_nobody_is_there_waits_for_who_comes_again() {
    let (mut session, parked) = waiting();
    session.send_away(at(500)).into_iter().for_each(|owed| session.forget(owed));
    assert_eq!(session.give(parked, 9), None);
    let again = new(&mut session, 1, 2, 0);
    let Asked::Given(owed, 9) = session.park(again, 1, b"ask", at(600)) else { panic!("it was given") };
    assert_eq!(answer(&mut session, owed), 2);
    let anew = new(&mut session, 1, 3, 0);
    assert!(matches!(session.park(anew, 1, b"ask", at(700)), Asked::New(_)), "the same, once more");
}

#[test]
fn nobody_gets_what_was_given_through_a_handle_that_was_closed() {
    let (mut session, parked) = waiting();
    session.send_away(at(500)).into_iter().for_each(|owed| session.forget(owed));
    session.close(1).unwrap();
    assert_eq!(session.give(parked, 9), None);
    session.reserve(1).unwrap();
    session.fill(1, "another file");
    let owed = new(&mut session, 1, 2, 0);
    let Asked::New(parked) = session.park(owed, 1, b"ask", at(600)) else { panic!("it is of another file") };
    // Who is there when the handle is closed is answered, or sent away for good.
    session.close(1).unwrap();
    let sent = session.send_away(at(1_100));
    assert_eq!(sent.len(), 1);
    assert_eq!((session.give(parked, 9), session.parked.len()), (None, 0));
}

#[test]
fn nobody_is_sent_away_while_many_do_not_come_again() {
    let mut session = session();
    session.reserve(1).unwrap();
    session.fill(1, "file");
    let mut sent = 0;
    for id in 1..=10 {
        let owed = match session.admit(&1, id, id, 0) {
            Ok(Admission::New(owed)) => owed,
            // Its window is full of those who wait.
            _ => break,
        };
        assert!(matches!(session.park(owed, 1, &id.to_le_bytes(), at(1_000 * id)), Asked::New(_)));
        for owed in session.send_away(at(1_000 * id + 500)) {
            sent += 1;
            answer(&mut session, owed);
        }
    }
    assert_eq!((sent, session.parked.len()), (4, 5), "one more than there are credits");
}

#[derive(Clone, Debug)]
enum Step {
    Attach,
    Detach(u32),
    /// The connection, id and acknowledgement, each near what they may be; bytes.
    Admit(u32, u64, u64, u32),
    Finish(usize, Option<u32>),
    Forget(usize),
    GiveUp(usize, Option<u32>),
    End,
}

fn step() -> impl Strategy<Value = Step> {
    let request = (0u32..8, 0u64..6, 0u64..3, 0u32..40);
    prop_oneof![
        4 => Just(Step::Attach),
        2 => (0u32..2).prop_map(Step::Detach),
        16 => request.prop_map(|(from, id, acked, bytes)| Step::Admit(from / 7, id, acked, bytes)),
        12 => (any::<usize>(), any::<Option<u32>>()).prop_map(|(at, reply)| Step::Finish(at, reply)),
        2 => any::<usize>().prop_map(Step::Forget),
        2 => (any::<usize>(), prop::option::of(0u32..2)).prop_map(|(at, back)| Step::GiveUp(at, back)),
        1 => Just(Step::End),
    ]
}

/// What became of a request, and on which connection it was seen last.
#[derive(Clone, Debug)]
enum Seen {
    InFlight { on: u32, bytes: u64 },
    Done { on: u32, reply: Option<CachedReply> },
}

/// Every request ever seen, by id.
#[derive(Default)]
struct Model {
    requests: BTreeMap<u64, Seen>,
    connection: Option<u32>,
    attached: u32,
    acked: u64,
    is_ended: bool,
}

/// What is expected of a request.
#[derive(Debug, PartialEq)]
enum Expected {
    New,
    Nothing,
    Repeated(CachedReply),
    Refused,
    Error,
}

impl Model {
    fn bytes(&self) -> u64 {
        let bytes = |seen: &Seen| if let Seen::InFlight { bytes, .. } = seen { *bytes } else { 0 };
        self.requests.values().map(bytes).sum()
    }

    fn admit(&mut self, from: u32, id: u64, acked: u64, bytes: u64) -> Expected {
        if self.is_ended {
            return Expected::Error;
        }
        if self.connection != Some(from) {
            return Expected::Nothing;
        }
        let acked = acked.max(self.acked);
        if self.requests.range(..acked).any(|(_, seen)| matches!(seen, Seen::InFlight { .. })) {
            return Expected::Error;
        }
        self.acked = acked;
        if id < acked || id >= acked + u64::from(LIMITS.credits) {
            return Expected::Error;
        }
        let on = from;
        match self.requests.get(&id).cloned() {
            Some(Seen::InFlight { on, .. } | Seen::Done { on, .. }) if on == from => Expected::Error,
            Some(Seen::InFlight { bytes, .. }) => {
                self.requests.insert(id, Seen::InFlight { on, bytes });
                Expected::Nothing
            }
            Some(Seen::Done { reply: Some(reply), .. }) => {
                self.requests.insert(id, Seen::Done { on, reply: Some(reply.clone()) });
                Expected::Repeated(reply)
            }
            _ if self.bytes() + bytes > LIMITS.credit_bytes => Expected::Refused,
            _ => {
                self.requests.insert(id, Seen::InFlight { on, bytes });
                Expected::New
            }
        }
    }
}

/// Which of them is meant.
fn pick(owed: &mut Vec<Owed>, at: usize) -> Option<Owed> {
    (!owed.is_empty()).then(|| owed.swap_remove(at % owed.len()))
}

fn is_as_expected(found: Result<Admission, Refusal>, owed: &mut Vec<Owed>, expected: &Expected) -> bool {
    match (found, expected) {
        (Ok(Admission::New(new)), Expected::New) => {
            owed.push(new);
            true
        }
        (Ok(Admission::Nothing), Expected::Nothing) | (Err(_), Expected::Error) => true,
        (Ok(Admission::Repeated(found)), Expected::Repeated(reply)) => found == *reply,
        (Ok(Admission::Refused(..)), Expected::Refused) => true,
        _ => false,
    }
}

proptest! {
    #[test]
    fn each_request_takes_effect_once_over_any_connections(steps in prop::collection::vec(step(), 0..200)) {
        let mut session = Session::new(LIMITS, at(0));
        let (mut model, mut owed) = (Model { acked: 1, ..Model::default() }, Vec::new());
        for step in steps {
            match step {
                Step::Attach => {
                    let before = (model.attached > 0).then_some(model.attached);
                    let attached = session.attach(model.attached + 1);
                    prop_assert_eq!(attached.is_err(), model.is_ended);
                    if let Ok(found) = attached {
                        prop_assert_eq!(found, before);
                        model.attached += 1;
                        model.connection = Some(model.attached);
                    }
                }
                Step::Detach(back) => {
                    let gone = model.attached.saturating_sub(back);
                    session.detach(&gone, at(0));
                    model.connection = model.connection.filter(|&current| current != gone);
                }
                Step::Admit(back, id, acked, bytes) => {
                    let from = model.attached.saturating_sub(back);
                    let (id, acked) = (model.acked + id, model.acked + acked);
                    let found = session.admit(&from, id, acked, bytes);
                    if let Ok(Admission::Refused(reply, _)) = &found {
                        let done = Seen::Done { on: from, reply: Some(reply.clone()) };
                        prop_assert_eq!(model.admit(from, id, acked, bytes.into()), Expected::Refused);
                        model.requests.insert(id, done);
                        continue;
                    }
                    let expected = model.admit(from, id, acked, bytes.into());
                    prop_assert!(is_as_expected(found, &mut owed, &expected), "expected {expected:?}");
                }
                Step::Finish(at, offset) => {
                    let Some(done) = pick(&mut owed, at) else { continue };
                    let id = done.id();
                    let reply = offset.map(|offset| reply(offset.into()));
                    let Some(Seen::InFlight { on, .. }) = model.requests.get(&id).cloned() else {
                        return Err(TestCaseError::fail("it is owed twice"));
                    };
                    model.requests.insert(id, Seen::Done { on, reply: reply.clone() });
                    let to = session.finish(done, reply).copied();
                    prop_assert_eq!(to, model.connection.filter(|&current| current == on));
                }
                Step::Forget(at) => {
                    let Some(gone) = pick(&mut owed, at) else { continue };
                    model.requests.remove(&gone.id());
                    session.forget(gone);
                }
                Step::GiveUp(at, back) => {
                    let Some(waited) = pick(&mut owed, at) else { continue };
                    let (id, dead) = (waited.id(), back.map(|back| model.attached.saturating_sub(back)));
                    let is_back = model.connection.is_some() && model.connection != dead;
                    match session.give_up(waited, dead.as_ref(), None) {
                        GivenUp::Wanted(again) => {
                            prop_assert!(is_back);
                            owed.push(again);
                        }
                        GivenUp::Forgotten { .. } => {
                            prop_assert!(!is_back);
                            model.requests.remove(&id);
                        }
                    }
                }
                Step::End => {
                    session.end();
                    model.is_ended = true;
                }
            }
            prop_assert_eq!(session.in_flight() as usize, owed.len());
            prop_assert_eq!(session.bytes_in_flight, model.bytes());
            prop_assert!(session.bytes_in_flight <= LIMITS.credit_bytes);
        }
    }

    /// Handles against a plain table, of which a file that is closed is gone for good.
    #[test]
    fn handles_are_as_a_plain_table(steps in prop::collection::vec((0u32..6, 0u32..5), 0..100)) {
        let mut session = session();
        let mut model: BTreeMap<u32, Option<&'static str>> = BTreeMap::new();
        let mut opened = 0;
        for (handle, what) in steps {
            let open = model.get(&handle).copied();
            match what {
                0 => {
                    let may = handle != 0 && open.is_none() && model.len() < LIMITS.open_files;
                    prop_assert_eq!(session.reserve(handle).is_ok(), may);
                    if may {
                        model.insert(handle, None);
                    }
                }
                1 => {
                    opened += 1;
                    let file: &'static str = Box::leak(format!("file {opened}").into_boxed_str());
                    let back = session.fill(handle, file);
                    prop_assert_eq!(back.is_none(), open == Some(None));
                    if back.is_none() {
                        model.insert(handle, Some(file));
                    }
                }
                2 => {
                    prop_assert_eq!(session.release(handle), open == Some(None));
                    if open == Some(None) {
                        model.remove(&handle);
                    }
                }
                3 => {
                    prop_assert_eq!(session.close(handle).ok(), open.flatten());
                    if open.flatten().is_some() {
                        model.remove(&handle);
                    }
                }
                _ => prop_assert_eq!(session.file(handle).ok(), open.flatten()),
            }
            prop_assert_eq!(session.open_files(), model.len());
        }
    }
}
