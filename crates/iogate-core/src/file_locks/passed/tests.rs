//! Locks that are passed on hold as if each client had asked where they are kept.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::Time;
use crate::file_locks::FileLocks;

/// The forwarder's session with the server that keeps the locks, and another one's.
const FORWARDER: u64 = 77;
const ANOTHER: u64 = 78;
const FILES: u64 = 2;

fn file(inode: u64) -> Identity {
    Identity { inode, generation: 5 }
}

fn bytes(kind: u8, owner: u64, first: u64, last: u64) -> Lock {
    Lock { space: lock::BYTES, kind, owner, first, last, process: 7 }
}

/// What the server has said, if it was asked.
type Answer = Option<Result<(), Denied>>;

/// A forwarder in front of a server.
struct World {
    passed: Passed<u64>,
    server: FileLocks,
    /// What is on its way: for which file, and whether it has been carried out.
    underway: Vec<(u64, Lock, Answer)>,
}

impl World {
    fn new() -> World {
        World { passed: Passed::default(), server: FileLocks::default(), underway: Vec::new() }
    }

    fn set(&mut self, inode: u64, lock: &Lock) -> Result<(), Denied> {
        self.server.set(Time::ZERO, FORWARDER, file(inode), lock, None)
    }

    fn give_back(&mut self, all: Vec<(u64, Lock)>) {
        for (inode, lock) in all {
            assert_eq!(self.set(inode, &lock), Ok(()));
        }
    }

    fn begin(&mut self, session: u64, inode: u64, wish: &Lock) -> bool {
        let passed = self.passed.begin(session, file(inode), wish, &inode).unwrap();
        self.underway.extend(passed.map(|passed| (inode, passed, None)));
        passed.is_some()
    }

    fn carry_out(&mut self, at: usize) {
        let (inode, lock, None) = self.underway[at] else { return };
        self.underway[at].2 = Some(self.set(inode, &lock));
    }

    fn settle(&mut self, at: usize, is_known: bool) -> Answer {
        let (inode, lock, done) = self.underway.swap_remove(at);
        let outcome = match &done {
            _ if !is_known => Outcome::Unknown,
            // Nothing of it has reached the server, and the client knows.
            None => Outcome::Refused,
            Some(Ok(())) => Outcome::Done,
            Some(Err(_)) => Outcome::Refused,
        };
        let over = self.passed.settle(&lock, &inode, outcome);
        self.give_back(over);
        done
    }

    fn end(&mut self, session: u64) {
        let over = self.passed.end_session(session);
        self.give_back(over);
    }

    /// Passes a lock on while nothing else is underway.
    fn ask(&mut self, session: u64, inode: u64, wish: &Lock) -> Result<(), Denied> {
        if !self.begin(session, inode, wish) {
            return Ok(());
        }
        self.carry_out(0);
        self.settle(0, true).unwrap()
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A session asks.
    Ask(u64, u64, Lock),
    /// A session ends.
    End(u64),
    /// Somebody asks the server itself.
    Directly(u64, Lock),
    CarryOut(usize),
    Settle(usize, bool),
}

fn wishes() -> impl Strategy<Value = Lock> {
    (0..2_u8, 0..3_u8, 0..2_u64, 0..8_u64, 0..8_u64).prop_map(|(space, kind, owner, one, other)| Lock {
        space,
        ..bytes(kind, owner, one.min(other), one.max(other))
    })
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..3_u64, 0..FILES, wishes()).prop_map(|(session, inode, wish)| Step::Ask(session, inode, wish)),
        2 => (0..FILES, wishes()).prop_map(|(inode, wish)| Step::Directly(inode, wish)),
        1 => (0..3_u64).prop_map(Step::End),
        6 => (0..8_usize).prop_map(Step::CarryOut),
        6 => (0..8_usize, prop::bool::weighted(0.8)).prop_map(|(at, is_known)| Step::Settle(at, is_known)),
    ]
}

/// What is refused, without who has it: numbers differ.
fn plain(answer: Result<(), Denied>) -> Result<(), bool> {
    answer.map_err(|denied| matches!(denied, Denied::Held(_)))
}

proptest! {
    /// One after another, whatever is asked through a forwarder is answered as if the clients had sessions at the server.
    #[test]
    fn a_forwarder_is_as_none(steps in prop::collection::vec(steps(), 1..80)) {
        let (mut world, mut naive) = (World::new(), FileLocks::default());
        for step in steps {
            match step {
                Step::Ask(session, inode, wish) => {
                    let expected = naive.set(Time::ZERO, session, file(inode), &wish, None);
                    prop_assert_eq!(plain(world.ask(session, inode, &wish)), plain(expected));
                }
                Step::Directly(inode, wish) => {
                    let expected = naive.set(Time::ZERO, ANOTHER, file(inode), &wish, None);
                    let found = world.server.set(Time::ZERO, ANOTHER, file(inode), &wish, None);
                    prop_assert_eq!(plain(found), plain(expected));
                }
                Step::End(session) => {
                    world.end(session);
                    naive.end_session(session);
                }
                Step::CarryOut(_) | Step::Settle(..) => {}
            }
            for (session, inode, owner) in [(0, 0, 0), (1, 1, 1), (2, 0, 1)] {
                prop_assert_eq!(world.passed.has(session), naive.has(session));
                let wish = bytes(lock::EXCLUSIVE, owner, 2, 6);
                let expected = naive.holder(session, file(inode), &wish).unwrap();
                let number = world.passed.number(session, file(inode), owner);
                let passed = Lock { owner: number, ..wish };
                let found = world.server.holder(FORWARDER, file(inode), &passed).unwrap();
                let whose = |owner: crate::file_locks::Owner| match owner {
                    (FORWARDER, number) => world.passed.owner(number).unwrap(),
                    another => another,
                };
                let found = found.map(|held| (whose(held.owner), held.kind, held.range));
                prop_assert_eq!(found.map(|(_, kind, range)| (kind, range)), expected.map(|held| (held.kind, held.range)));
                // Of several that begin at one byte, any may be the first.
                if let Some((whose, ..)) = found {
                    prop_assert_ne!(whose, (session, owner));
                }
            }
        }
    }

    /// In whatever order things are carried out and answered, and whatever is not known of them: who has gone leaves nothing.
    #[test]
    fn who_has_gone_leaves_nothing(steps in prop::collection::vec(steps(), 1..120)) {
        let mut world = World::new();
        let mut ended = BTreeMap::new();
        for step in steps {
            match step {
                // A session's number is not used again.
                Step::Ask(session, inode, wish) => {
                    let session = session + 10 * ended.get(&session).unwrap_or(&0);
                    world.begin(session, inode, &wish);
                }
                Step::End(session) => {
                    let count = ended.entry(session).or_insert(0);
                    world.end(session + 10 * *count);
                    *count += 1;
                }
                Step::Directly(..) => {}
                Step::CarryOut(at) if at < world.underway.len() => world.carry_out(at),
                Step::Settle(at, is_known) if at < world.underway.len() => {
                    world.settle(at, is_known);
                }
                Step::CarryOut(_) | Step::Settle(..) => {}
            }
        }
        while !world.underway.is_empty() {
            world.carry_out(0);
            world.settle(0, true);
        }
        for session in 0..3 {
            world.end(session + 10 * ended.get(&session).unwrap_or(&0));
        }
        prop_assert!(world.server.is_empty(Time::ZERO), "{:?}", world.server);
        prop_assert!(world.passed.owners.is_empty() && world.passed.by_number.is_empty());
        prop_assert!(world.passed.counts.is_empty());
    }
}

#[test]
fn what_is_given_back_while_it_is_asked_for_ends_with_its_session() {
    let mut world = World::new();
    // Both are underway; the one that was asked for first is carried out last, and answered first.
    assert!(world.begin(1, 0, &bytes(lock::EXCLUSIVE, 5, 0, 9)));
    assert!(world.begin(1, 0, &bytes(lock::NONE, 5, 0, 9)));
    world.carry_out(1);
    world.carry_out(0);
    assert_eq!(world.settle(0, true), Some(Ok(())));
    assert_eq!(world.settle(0, true), Some(Ok(())));
    assert!(!world.server.is_empty(Time::ZERO));
    world.end(1);
    assert!(world.server.is_empty(Time::ZERO));
}

#[test]
fn a_session_that_ends_while_it_asks_gets_nothing() {
    let mut world = World::new();
    assert!(world.begin(1, 0, &bytes(lock::EXCLUSIVE, 5, 0, 9)));
    world.end(1);
    world.carry_out(0);
    assert_eq!(world.settle(0, true), Some(Ok(())));
    assert!(world.server.is_empty(Time::ZERO) && world.passed.owners.is_empty());
}

#[test]
fn what_is_given_back_goes_through_the_file_that_was_last_of_use() {
    let mut passed = Passed::default();
    let wish = bytes(lock::EXCLUSIVE, 1, 0, 9);
    for (through, outcome) in [(1, Outcome::Done), (2, Outcome::Done), (1, Outcome::Refused)] {
        let asked = passed.begin(1, file(0), &wish, &through).unwrap().unwrap();
        assert!(passed.settle(&asked, &through, outcome).is_empty());
    }
    let back = passed.end_session(1);
    assert_eq!(back.iter().map(|(through, _)| *through).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_session_has_so_many_and_no_more() {
    let mut passed = Passed::default();
    let wish = bytes(lock::SHARED, 1, 0, 9);
    for inode in 0..LOCKS_PER_SESSION_MAX as u64 {
        let asked = passed.begin(1, file(inode), &wish, &()).unwrap().unwrap();
        assert!(passed.settle(&asked, &(), Outcome::Done).is_empty());
    }
    let further = file(LOCKS_PER_SESSION_MAX as u64);
    assert_eq!(passed.begin(1, further, &wish, &()), Err(Denied::TooMany));
    assert!(passed.begin(2, further, &wish, &()).is_ok());
    let none = passed.begin(1, file(0), &bytes(lock::NONE, 1, 0, 9), &()).unwrap().unwrap();
    passed.settle(&none, &(), Outcome::Done);
    assert!(passed.begin(1, further, &wish, &()).is_ok());
    assert_eq!(passed.begin(1, further, &bytes(3, 1, 0, 9), &()), Err(Denied::Malformed));
}
