//! Waits for a turn, in virtual time.

use alloc::vec::Vec;

use super::super::MILLISECOND;
use super::*;
use crate::wire::{Claim, REQUEST_HEADER_BYTES, RequestHeader};

const LIMITS: Limits = Limits { patience: 30 * SECOND, timeout: None };
const LEASE: u64 = 9 * SECOND;

/// A wait, and what goes over its connection.
struct Wait {
    now: u64,
    calls: Calls,
    claim: PendingClaim,
}

type Next = Step<Result<Granting, Failure>>;

impl Wait {
    /// One that is in line, as request 1.
    fn begun(limits: Limits) -> Wait {
        let mut calls = Calls::default();
        calls.linked([1; 16], false, (0, 0));
        let mut wait = Wait { now: 0, calls, claim: PendingClaim::new(0, &limits, true) };
        assert!(matches!(wait.next(), Step::Wait { .. }));
        assert_eq!(wait.sent(), ["Claim"]);
        wait
    }

    fn next(&mut self) -> Next {
        let request = Request::Claim(Claim {
            bytes: 0,
            weight: 0,
            period: 0,
            place: b"scratch",
            members: b"",
            party: b"",
            label: b"",
        });
        self.claim.next(self.now, &mut self.calls, &request)
    }

    fn at(&mut self, seconds: u64) -> Next {
        self.now = seconds * SECOND;
        self.next()
    }

    /// What has gone out since it was asked last.
    fn sent(&mut self) -> Vec<&'static str> {
        let kind = |bytes: &[u8]| {
            let header = RequestHeader::from_bytes(bytes.first_chunk().unwrap()).unwrap();
            match Request::decode(header.kind, &bytes[REQUEST_HEADER_BYTES..]).unwrap() {
                Request::Claim(_) => "Claim",
                Request::Ping(_) => "Ping",
                Request::Cancel(Cancel { claim: 1 }) => "Cancel",
                Request::Renew(Renew { token: 7 }) => "Renew",
                Request::Goodbye(_) => "Goodbye",
                other => panic!("{other:?}"),
            }
        };
        let sent = self.calls.unsent().map(kind).collect();
        self.calls.all_sent();
        sent
    }

    fn answer(&mut self, id: u64, errno: i32) {
        self.claim.answered(self.now, &Reply { id, errno, ..Reply::default() });
    }

    /// The coordinator grants the first claim; it has waited for as long as it takes.
    fn grant(&mut self, waited: u64) {
        let granted = Granted { token: 7, lease: LEASE, waited, share: 1000, admission: 0 };
        let mut reply = Reply { id: 1, ..Reply::default() };
        granted.encode(&mut reply.fields);
        self.claim.answered(self.now, &reply);
    }

    fn renew(&mut self, id: u64) {
        let mut reply = Reply { id, ..Reply::default() };
        Renewed { lease: LEASE }.encode(&mut reply.fields);
        self.claim.answered(self.now, &reply);
    }

    /// It is connected, with this session.
    fn connect(&mut self, session: u8, is_resumed: bool) {
        let is_same = self.calls.linked([session; 16], is_resumed, (0, 0));
        self.claim.connected(self.now, is_same);
    }

    fn is_over(&mut self, failure: Failure) {
        assert_eq!(self.next(), Step::Over(Err(failure)));
    }
}

#[test]
fn a_wait_asks_every_second_whether_to_go_on_and_ends_with_the_grant() {
    let mut wait = Wait::begun(LIMITS);
    for second in 1..9 {
        assert_eq!(wait.at(second), Step::Wait { until: (second + 1) * SECOND });
    }
    assert!(wait.sent().is_empty());
    wait.grant(7 * SECOND);
    let Step::Over(Ok(granting)) = wait.next() else { panic!() };
    assert_eq!((granting.granted.token, granting.lease), (7, Lease::from(7 * SECOND, LEASE)));
}

#[test]
fn who_hears_nothing_asks_and_then_connects_anew() {
    let mut wait = Wait::begun(LIMITS);
    assert!(matches!(wait.at(10), Step::Wait { .. }));
    assert_eq!(wait.sent(), ["Ping"]);
    wait.now += SECOND;
    wait.answer(2, 0);
    assert!(matches!(wait.at(20), Step::Wait { .. }));
    assert!(wait.sent().is_empty(), "it has been heard of");
    assert!(matches!(wait.at(21), Step::Wait { .. }));
    assert_eq!(wait.sent(), ["Ping"]);
    assert_eq!(wait.at(30), Step::Wait { until: 31 * SECOND });
    assert_eq!(wait.at(31), Step::Unlink);
    assert_eq!(wait.next(), Step::Connect { until: u64::MAX });
    assert_eq!(wait.claim.unreached_since(), None, "it has not tried yet");
}

#[test]
fn a_connection_that_comes_back_keeps_the_place_in_line_if_its_session_does() {
    let mut wait = Wait::begun(LIMITS);
    wait.claim.disconnected(wait.now, 0);
    assert_eq!(wait.next(), Step::Connect { until: u64::MAX }, "at once");
    wait.connect(1, true);
    assert!(matches!(wait.next(), Step::Wait { .. }));
    assert_eq!(wait.sent(), ["Claim", "Ping"], "the first one again, with its number");
    wait.answer(2, 0);
    wait.claim.disconnected(wait.now, 0);
    wait.next();
    wait.connect(2, false);
    assert!(matches!(wait.next(), Step::Wait { .. }));
    assert_eq!(wait.sent(), ["Claim"], "nobody knows the one before");
    wait.grant(0);
    assert!(matches!(wait.next(), Step::Over(Ok(_))));
}

#[test]
fn patience_ends_while_no_coordinator_answers_however_often_one_takes_the_connection() {
    let mut wait = Wait::begun(LIMITS);
    wait.now = SECOND;
    wait.claim.disconnected(wait.now, 0);
    wait.next();
    let mut tries = 0;
    let end = loop {
        match wait.next() {
            Step::Connect { .. } => {
                tries += 1;
                match tries % 2 {
                    0 => wait.claim.unreached(wait.now, false, 255),
                    _ => wait.connect(1, true),
                }
            }
            Step::Wait { .. } => wait.claim.disconnected(wait.now, 255),
            Step::Rest { until } => wait.now = until,
            other => break other,
        }
    };
    assert_eq!(end, Step::Over(Err(Failure::Unreachable)));
    assert_eq!(wait.now / SECOND, 31);
    assert!((30..40).contains(&tries), "{tries} attempts");
    let mut wait = Wait::begun(LIMITS);
    wait.claim.unreached(0, true, 0);
    wait.is_over(Failure::Unusable);
}

#[test]
fn a_word_of_the_coordinator_renews_patience() {
    let mut wait = Wait::begun(LIMITS);
    for _ in 0..100 {
        wait.claim.disconnected(wait.now, 0);
        assert!(matches!(wait.next(), Step::Connect { .. }));
        wait.connect(1, true);
        wait.now += SECOND;
        wait.answer(0, 0);
    }
    assert!(matches!(wait.next(), Step::Wait { .. }));
}

#[test]
fn patience_counts_anew_once_a_coordinator_takes_the_claim() {
    let mut wait = Wait { now: 0, calls: Calls::default(), claim: PendingClaim::new(0, &LIMITS, false) };
    wait.claim.unreached(0, false, 255);
    wait.now = 29 * SECOND;
    assert!(matches!(wait.next(), Step::Connect { .. }));
    wait.connect(1, false);
    assert_eq!(wait.claim.unreached_since(), None);
    assert!(matches!(wait.next(), Step::Wait { .. }));
    wait.now = 38 * SECOND;
    wait.claim.disconnected(wait.now, 0);
    assert_eq!(wait.next(), Step::Connect { until: u64::MAX }, "at once");
}

#[test]
fn who_is_out_of_time_leaves_the_line_unless_the_turn_comes_just_then() {
    let timeout = Limits { timeout: Some(5 * SECOND), ..LIMITS };
    let mut wait = Wait::begun(timeout);
    assert_eq!(wait.at(4), Step::Wait { until: 5 * SECOND });
    assert_eq!(wait.at(5), Step::Wait { until: 7 * SECOND });
    assert_eq!(wait.sent(), ["Cancel"]);
    let mut late = Wait { calls: wait.calls.clone(), claim: wait.claim.clone(), ..wait };
    let mut silent = Wait { calls: wait.calls.clone(), claim: wait.claim.clone(), ..wait };
    wait.answer(1, errno::ECANCELED);
    wait.is_over(Failure::TimedOut);
    late.grant(4 * SECOND);
    assert!(matches!(late.next(), Step::Over(Ok(_))));
    assert_eq!(silent.at(7), Step::Part, "the session may still have the claim");
    assert_eq!(silent.sent(), ["Goodbye"]);
    silent.is_over(Failure::TimedOut);
    let mut down = Wait::begun(timeout);
    down.claim.unreached(0, false, 0);
    assert!(matches!(down.next(), Step::Rest { .. }));
    assert_eq!(down.at(5), Step::Part, "there is no coming back to this session");
    down.is_over(Failure::TimedOut);
}

#[test]
fn who_gives_up_has_no_turn_even_if_it_comes_just_then() {
    let mut wait = Wait::begun(LIMITS);
    wait.claim.give_up(0);
    assert!(matches!(wait.next(), Step::Wait { .. }));
    assert_eq!(wait.sent(), ["Cancel"]);
    let mut late = Wait { calls: wait.calls.clone(), claim: wait.claim.clone(), ..wait };
    let mut cut = Wait { calls: wait.calls.clone(), claim: wait.claim.clone(), ..wait };
    wait.answer(1, errno::ECANCELED);
    wait.is_over(Failure::GivenUp);
    late.grant(0);
    assert_eq!(late.next(), Step::Part);
    assert_eq!(late.sent(), ["Goodbye"], "which ends the turn");
    late.is_over(Failure::GivenUp);
    cut.claim.disconnected(1, 0);
    assert_eq!(cut.next(), Step::Part);
    assert!(cut.sent().is_empty());
    cut.is_over(Failure::GivenUp);
}

#[test]
fn a_refusal_has_its_remedy() {
    let mut full = Wait::begun(LIMITS);
    full.answer(1, errno::EAGAIN);
    assert_eq!(full.next(), Step::Rest { until: SECOND });
    assert!(matches!(full.at(1), Step::Wait { .. }));
    assert_eq!(full.sent(), ["Claim"]);
    let mut again = Wait::begun(LIMITS);
    again.answer(1, errno::EDEADLK);
    assert_eq!(again.next(), Step::Part);
    assert_eq!(again.sent(), ["Goodbye"]);
    again.calls = Calls::default();
    assert!(matches!(again.next(), Step::Connect { .. }));
    again.connect(2, false);
    assert!(matches!(again.next(), Step::Wait { .. }));
    assert_eq!(again.sent(), ["Claim"]);
    let mut refused = Wait::begun(LIMITS);
    refused.answer(1, errno::EIO);
    refused.is_over(Failure::Refused { errno: errno::EIO, text: String::new() });
}

/// A grant that has come so late that the turn may be over.
fn late() -> Wait {
    let mut wait = Wait::begun(LIMITS);
    wait.now = 4 * SECOND;
    wait.grant(0);
    assert!(matches!(wait.next(), Step::Wait { .. }));
    assert_eq!(wait.sent(), ["Renew"]);
    wait
}

#[test]
fn a_late_grant_is_renewed_before_it_counts() {
    let mut wait = late();
    wait.now += 10 * MILLISECOND;
    wait.renew(2);
    let Step::Over(Ok(granting)) = wait.next() else { panic!() };
    assert_eq!(granting.lease, Lease::from(4 * SECOND, LEASE), "from when the renewal was sent");
    let mut later = late();
    later.now += LEASE;
    later.renew(2);
    assert!(matches!(later.next(), Step::Wait { .. }));
    assert_eq!(later.sent(), ["Renew"], "that has come too late, too");
    let mut lost = late();
    lost.answer(2, errno::ESTALE);
    assert!(matches!(lost.next(), Step::Wait { .. }));
    assert_eq!(lost.sent(), ["Claim"], "it waits on");
    let mut forgotten = late();
    forgotten.claim.disconnected(forgotten.now, 0);
    forgotten.next();
    forgotten.connect(2, false);
    forgotten.next();
    assert_eq!(forgotten.sent(), ["Claim"]);
    let mut interrupted = late();
    interrupted.claim.give_up(interrupted.now);
    assert_eq!(interrupted.next(), Step::Part);
    interrupted.is_over(Failure::GivenUp);
}

/// The clock of the coordinator that has taken over lies an hour ahead.
#[test]
fn what_another_coordinator_says_of_the_time_before_it_is_not_believed() {
    for (seconds, counts) in [(1, true), (8, false)] {
        let mut wait = Wait::begun(LIMITS);
        wait.claim.disconnected(wait.now, 0);
        wait.next();
        wait.connect(1, true);
        assert!(matches!(wait.at(seconds), Step::Wait { .. }));
        assert_eq!(wait.sent(), ["Claim", "Ping"]);
        wait.grant(3600 * SECOND);
        match wait.next() {
            Step::Over(Ok(granting)) => assert_eq!((granting.lease, counts), (Lease::from(0, LEASE), true)),
            next => {
                assert!(matches!(next, Step::Wait { .. }) && !counts);
                assert_eq!(wait.sent(), ["Renew"]);
            }
        }
    }
}

#[test]
fn a_late_grant_that_nobody_confirms_counts_while_its_lease_does() {
    let mut wait = late();
    assert!(matches!(wait.at(6), Step::Wait { .. }));
    let Step::Over(Ok(granting)) = wait.at(7) else { panic!() };
    assert_eq!(granting.lease, Lease::from(0, LEASE));
    let mut over = Wait::begun(LIMITS);
    over.now = 10 * SECOND;
    over.grant(0);
    assert!(matches!(over.next(), Step::Wait { .. }));
    assert_eq!(over.at(13), Step::Part, "it is over by its own clock");
    over.calls = Calls::default();
    assert!(matches!(over.next(), Step::Connect { .. }));
}
