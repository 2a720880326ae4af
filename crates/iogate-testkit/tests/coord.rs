//! The lock table and the naive one give the same answers to the same random operations, and what must hold does.

use std::collections::BTreeMap;

use iogate_core::coord::{
    Admission, Change, Claim, ClaimId, CoordConfig, Decision, Entry, Grant, Order, Passing, PlaceId,
    SessionId, Standing, Table, Targets, Token,
};
use iogate_core::{Span, Time};
use iogate_testkit::generate::cases;
use iogate_testkit::reference::ReferenceTable;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};

#[derive(Clone, Debug)]
enum Act {
    Claim(Claim),
    /// Of the claims that hold, this one is released, renewed, or taken away.
    Release(Index, u64),
    Renew(Index),
    Evict(Index),
    /// A token and a session that may fit nothing.
    ReleaseAny(u64, u64),
    Cancel(u64, u64),
    Disconnect(u64),
    Connect(u64),
    Goodbye(u64),
    Wait(Span),
    /// All holders renew.
    RenewAll,
    Next,
    Drain,
    Restart,
}

const SESSIONS: u64 = 6;

fn claim() -> impl Strategy<Value = Claim> {
    let period = select(vec![0, 0, 2, 30, 33, 90, 1000]);
    let members = prop_oneof![
        1 => Just(vec![]),
        4 => subsequence(vec![0, 1, 2, 3], 1..=3),
        1 => vec(0..4u32, 1..4),
    ];
    let who = (0..SESSIONS, 0..8u64, 0..4u64);
    let what = (prop_oneof![5 => Just(0), 1 => Just(1)], members, 0..5u64, 0..4u32, period);
    (who, what).prop_map(|((session, request, party), (place, members, bytes, weight, period))| Claim {
        session: SessionId(session),
        request,
        targets: Targets { place: PlaceId(place), members },
        party,
        bytes: bytes * 700,
        weight,
        period: Span::from_millis(period * 1000),
    })
}

fn act() -> impl Strategy<Value = Act> {
    let index = any::<Index>();
    prop_oneof![
        12 => claim().prop_map(Act::Claim),
        8 => (index, 0..900u64).prop_map(|(index, bytes)| Act::Release(index, bytes)),
        2 => any::<Index>().prop_map(Act::Renew),
        1 => any::<Index>().prop_map(Act::Evict),
        1 => (0..20u64, 0..SESSIONS).prop_map(|(token, session)| Act::ReleaseAny(token, session)),
        2 => (0..SESSIONS, 0..8u64).prop_map(|(session, request)| Act::Cancel(session, request)),
        1 => (0..SESSIONS).prop_map(Act::Disconnect),
        1 => (0..SESSIONS).prop_map(Act::Connect),
        1 => (0..SESSIONS).prop_map(Act::Goodbye),
        6 => (0..4_000u64).prop_map(|ms| Act::Wait(Span::from_millis(ms))),
        1 => (0..60_000u64).prop_map(|ms| Act::Wait(Span::from_millis(ms))),
        3 => Just(Act::RenewAll),
        6 => Just(Act::Next),
        12 => Just(Act::Drain),
        1 => Just(Act::Restart),
    ]
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        Just(Order::Fcfs),
        select(vec![0, 300, 1_000_000]).prop_map(|ageing| Order::Shortest { ageing }),
        Just(Order::Weighted),
        Just(Order::Sets),
    ]
}

fn config(order: impl Strategy<Value = Order>) -> impl Strategy<Value = CoordConfig> {
    let passing = select(vec![Passing::Preserve, Passing::Relaxed]);
    let spans = (select(vec![3, 8, 1000]), select(vec![0, 1, 6]));
    (order, passing, spans, 1..4u32, select(vec![5, 1000]), select(vec![0, 3, 12])).prop_map(
        |(order, passing, (block_max, join), slots, claims_max, turn_max)| CoordConfig {
            order,
            passing,
            block_max: Span::from_secs(block_max),
            slots,
            lease: Span::from_secs(5),
            join: Span::from_secs(join),
            claims_max,
            turn_max: Span::from_secs(turn_max),
        },
    )
}

/// Both tables, what a journal has, and what became of each claim.
struct Pair {
    table: Table,
    reference: ReferenceTable,
    now: Time,
    journal: BTreeMap<ClaimId, Entry>,
    last_token: Token,
    /// Claims that came, each with how often it ended.
    ends: BTreeMap<ClaimId, u32>,
    /// Those that hold beside others.
    beside: Vec<ClaimId>,
}

impl Pair {
    fn new(config: &CoordConfig) -> Pair {
        Pair {
            table: Table::new(config.clone(), Token(0)),
            reference: ReferenceTable::new(config.clone(), Token(0)),
            now: Time::from_nanos(1 << 60),
            journal: BTreeMap::new(),
            last_token: Token(0),
            ends: BTreeMap::new(),
            beside: Vec::new(),
        }
    }

    fn held(&self, index: &Index) -> Option<(SessionId, Token)> {
        let held: Vec<_> = self.reference.entries().filter(|entry| entry.token().is_some()).collect();
        let entry = (!held.is_empty()).then(|| index.get(&held))?;
        Some((entry.claim.session, entry.token()?))
    }

    fn run(&mut self, act: &Act) -> Result<(), TestCaseError> {
        let now = self.now;
        let (table, reference) = (&mut self.table, &mut self.reference);
        match act {
            Act::Claim(claim) => {
                let id = table.claim(now, claim.clone());
                prop_assert_eq!(&id, &reference.claim(now, claim.clone()));
                if let Ok(id) = id {
                    self.ends.entry(id).or_default();
                }
            }
            Act::Release(index, bytes) => {
                let Some((session, token)) = self.held(index) else { return Ok(()) };
                prop_assert_eq!(self.table.release(now, session, token, *bytes), Ok(()));
                prop_assert_eq!(self.reference.release(now, session, token, *bytes), Ok(()));
            }
            Act::Renew(index) => {
                let Some((session, token)) = self.held(index) else { return Ok(()) };
                let until = self.table.renew(now, session, token);
                prop_assert_eq!(self.reference.renew(now, session, token), until);
            }
            Act::RenewAll => {
                let held: Vec<_> =
                    reference.entries().filter_map(|e| Some((e.claim.session, e.token()?))).collect();
                for (session, token) in held {
                    prop_assert_eq!(table.renew(now, session, token), reference.renew(now, session, token));
                }
            }
            Act::Evict(index) => {
                let Some((_, token)) = self.held(index) else { return Ok(()) };
                prop_assert_eq!(self.table.evict(now, token), Ok(()));
                prop_assert_eq!(self.reference.evict(now, token), Ok(()));
            }
            Act::ReleaseAny(token, session) => {
                let (token, session) = (Token(*token), SessionId(*session));
                let released = table.release(now, session, token, 0);
                prop_assert_eq!(released, reference.release(now, session, token, 0));
            }
            Act::Cancel(session, request) => {
                let cancelled = table.cancel(now, SessionId(*session), *request);
                prop_assert_eq!(cancelled, reference.cancel(now, SessionId(*session), *request));
            }
            Act::Disconnect(session) => {
                table.disconnected(now, SessionId(*session));
                reference.disconnected(now, SessionId(*session));
            }
            Act::Connect(session) => {
                table.connected(now, SessionId(*session));
                reference.connected(now, SessionId(*session));
            }
            Act::Goodbye(session) => {
                table.goodbye(now, SessionId(*session));
                reference.goodbye(now, SessionId(*session));
            }
            Act::Wait(span) => self.now = now + *span,
            Act::Next => {
                self.next()?;
            }
            Act::Drain => self.drain()?,
            Act::Restart => {
                self.drain()?;
                let entries: Vec<Entry> = self.journal.values().cloned().collect();
                // Numbers of claims that are over may come again.
                self.ends.retain(|id, _| self.journal.contains_key(id));
                let config = self.table.config().clone();
                self.table = Table::restore(config.clone(), now, self.last_token, entries.clone());
                self.reference = ReferenceTable::restore(config, now, self.last_token, entries);
                let kept = self.journal.values().filter_map(Entry::token).max();
                prop_assert!(kept <= Some(self.last_token));
            }
        }
        self.check()
    }

    fn next(&mut self) -> Result<Decision, TestCaseError> {
        let decision = self.table.next(self.now);
        prop_assert_eq!(&decision, &self.reference.next(self.now));
        match &decision {
            Decision::Granted(grant) => {
                let is_again = grant.token <= self.last_token;
                prop_assert!(
                    !is_again || self.journal.get(&grant.claim).and_then(Entry::token) == Some(grant.token)
                );
                self.last_token = self.last_token.max(grant.token);
                if !is_again {
                    self.note_beside(grant);
                }
            }
            Decision::WaitUntil(until) => prop_assert!(*until > self.now),
            Decision::Lost(_) | Decision::Idle => {}
        }
        Ok(decision)
    }

    fn drain(&mut self) -> Result<(), TestCaseError> {
        while matches!(self.next()?, Decision::Granted(_) | Decision::Lost(_)) {
            self.check()?;
        }
        prop_assert_eq!(self.reference.choose(self.now), None, "a claim that could be granted is not");
        Ok(())
    }

    /// What holds after each operation.
    fn check(&mut self) -> Result<(), TestCaseError> {
        for change in self.table.changes() {
            match change {
                Change::Put(entry) => drop(self.journal.insert(entry.id, entry)),
                Change::Gone(id) => {
                    prop_assert!(self.journal.remove(&id).is_some());
                    self.beside.retain(|other| *other != id);
                    *self.ends.entry(id).or_default() += 1;
                }
            }
        }
        let mut entries: Vec<Entry> = self.table.entries().cloned().collect();
        entries.sort_by_key(|entry| entry.id);
        prop_assert!(entries.iter().eq(self.reference.entries()));
        prop_assert_eq!(self.table.stats(), &self.reference.stats);
        prop_assert_eq!(self.table.len(), entries.len());
        // The journal has it all, but for renewals.
        prop_assert!(
            entries.into_iter().map(without_until).eq(self.journal.values().cloned().map(without_until))
        );
        let is_over = |id: &ClaimId| !self.journal.contains_key(id);
        prop_assert!(self.ends.iter().all(|(id, ends)| *ends == u32::from(is_over(id))), "each ends once");
        self.check_exclusion()
    }

    /// No more parties on a target than there may be, but for those that were let in beside others.
    fn check_exclusion(&self) -> Result<(), TestCaseError> {
        let config = self.table.config();
        let is_held = |entry: &&Entry| entry.token().is_some() && !self.beside.contains(&entry.id);
        let held: Vec<&Entry> = self.table.entries().filter(is_held).collect();
        // All that overlap a single target share it.
        for entry in held.iter().filter(|entry| entry.claim.targets.members.len() == 1) {
            let targets = &entry.claim.targets;
            let is_there = |other: &&&Entry| {
                other.claim.targets.overlaps(targets)
                    && (config.order != Order::Sets || set_of(other) == set_of(entry))
            };
            let mut parties: Vec<(u64, ClaimId)> =
                held.iter().filter(is_there).map(|other| party_of(other)).collect();
            parties.sort_unstable();
            parties.dedup();
            prop_assert!(parties.len() <= config.slots as usize, "{parties:?} hold {targets:?}");
        }
        Ok(())
    }

    /// Notes whether a claim that was granted a turn is beside others: because it was overdue, or with one of its party that was.
    fn note_beside(&mut self, grant: &Grant) {
        let Some(entry) = self.table.entries().find(|entry| entry.id == grant.claim) else { return };
        let is_companion = |other: &Entry| {
            self.beside.contains(&other.id)
                && party_of(other) == party_of(entry)
                && other.claim.targets.place == entry.claim.targets.place
        };
        if grant.admission == Admission::Overdue || self.table.entries().any(is_companion) {
            self.beside.push(grant.claim);
        }
    }
}

fn party_of(entry: &Entry) -> (u64, ClaimId) {
    (entry.claim.party, if entry.claim.party == 0 { entry.id } else { ClaimId(0) })
}

fn set_of(entry: &Entry) -> i32 {
    let period = entry.claim.period;
    if period == Span::ZERO { 3 } else { period.as_secs_f64().log10().round() as i32 }
}

fn without_until(mut entry: Entry) -> Entry {
    if let Standing::Held { until, .. } = &mut entry.standing {
        *until = Time::ZERO;
    }
    entry
}

fn agrees(order: impl Strategy<Value = Order> + 'static, runs: u32, length: usize) {
    proptest!(cases(runs), |(config in config(order), acts in vec(act(), 0..length))| {
        let mut pair = Pair::new(&config);
        for act in &acts {
            pair.run(act)?;
        }
    });
}

#[test]
fn fcfs() {
    agrees(Just(Order::Fcfs), 1500, 80);
}

#[test]
fn shortest() {
    agrees(select(vec![0, 300, 1_000_000]).prop_map(|ageing| Order::Shortest { ageing }), 1000, 80);
}

#[test]
fn weighted() {
    agrees(Just(Order::Weighted), 1000, 80);
}

#[test]
fn sets() {
    agrees(Just(Order::Sets), 1000, 80);
}

/// Many claims pile up on few targets.
#[test]
fn long_lines() {
    proptest!(cases(60), |(config in config(order()), acts in vec(act(), 400..700))| {
        let mut pair = Pair::new(&CoordConfig { claims_max: 1000, lease: Span::from_secs(10_000), ..config });
        for act in acts {
            let act = match act {
                Act::Claim(claim) => {
                    let session = SessionId(claim.session.0 * 97 + claim.request * 13 + claim.bytes);
                    Act::Claim(Claim { session, ..claim })
                }
                Act::Goodbye(_) | Act::Restart => Act::Drain,
                act => act,
            };
            pair.run(&act)?;
        }
    });
}
