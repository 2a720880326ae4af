//! Accounts of samples beside those of all the time, of two gates that are told the same.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZero;

use super::super::sampling::{begin, window_at};
use super::*;
use crate::Gate;
use crate::gate::{Decision, DispatchId, GateConfig, Outcome};
use crate::layout::Layout;
use crate::policy::{Entitlement, Policy, Rate};
use crate::request::{ClientId, FileId, Op, Request, RequestId};
use crate::sched::{SchedulerConfig, SchedulerKind};

/// What accounts charge, in ns: who, to which cause or to whom.
type Charged = BTreeMap<(Option<AppId>, Result<usize, Option<AppId>>), i128>;

/// The account as a whole is under this.
const BUSY: usize = Cause::ALL.len();

fn charged(accounts: &[Account]) -> Charged {
    let mut charged = Charged::new();
    for account in accounts {
        let mut add =
            |to, span: Span| *charged.entry((account.app, to)).or_default() += i128::from(span.as_nanos());
        add(Ok(BUSY), account.busy);
        account.causes.iter().enumerate().for_each(|(cause, span)| add(Ok(cause), *span));
        account.apps.iter().for_each(|(app, span)| add(Err(*app), *span));
    }
    charged
}

/// A gate with exact accounts, and one with sampled ones.
struct Beside {
    exact: Gate,
    sampled: Gate,
    now: Time,
    count: u64,
    going: Vec<DispatchId>,
    /// When the gate is to be asked again.
    again: Option<Time>,
    /// The next edge, what exact accounts said at the one before, if that began a sample, and what they said of samples.
    window: u64,
    before: Option<Charged>,
    of_samples: Charged,
    samples: u64,
}

impl Beside {
    /// Both from the beginning of this window on.
    fn new(kind: SchedulerKind, depth: u32, prices: Prices, window: u64) -> Beside {
        let config = GateConfig {
            scheduler: SchedulerConfig::new(kind),
            queue_max: 1_000,
            depth,
            layout: Layout::SINGLE,
        };
        let now = Time::from_nanos(window * WINDOW.as_nanos());
        let [exact, sampled] = [Accounting::Exact, Accounting::Sampled].map(|how| {
            let mut gate = Gate::new(&config).unwrap();
            gate.set_accounting(now, Some((how, &prices)));
            gate
        });
        Beside {
            exact,
            sampled,
            now,
            count: 0,
            going: Vec::new(),
            again: None,
            window,
            before: None,
            of_samples: Charged::new(),
            samples: 0,
        }
    }

    /// Time goes on; exact accounts are looked at where samples begin and end.
    fn pass(&mut self, ns: u64) {
        self.now = self.now + Span::from_nanos(ns);
        loop {
            let first = begin(self.window);
            let edge = if self.before.is_some() { first + SAMPLE } else { first };
            if edge > self.now {
                return;
            }
            let here = charged(&self.exact.accounts(edge).unwrap());
            match self.before.take() {
                None => self.before = Some(here),
                Some(before) => {
                    add(&mut self.of_samples, &here, &before);
                    self.window += 1;
                    self.samples += 1;
                }
            }
        }
    }

    fn submit(&mut self, app: u32, file: u64, offset: u64, bytes: u32, op: Op) {
        self.count += 1;
        let request = Request {
            id: RequestId(self.count),
            file: FileId(file),
            op,
            offset,
            bytes,
            app: AppId(app),
            client: ClientId(0),
            target: None,
            issued: None,
        };
        let both = [&mut self.exact, &mut self.sampled].map(|gate| gate.submit(self.now, &request));
        assert_eq!(both[0], both[1]);
        self.ask();
    }

    /// Asks until there is nothing to dispatch.
    fn ask(&mut self) {
        loop {
            let both = [&mut self.exact, &mut self.sampled].map(|gate| gate.next(self.now));
            assert_eq!(both[0], both[1]);
            match both[0] {
                Decision::Dispatch(dispatch) => self.going.push(dispatch.id),
                Decision::WaitUntil(at, _) => return self.again = Some(at),
                Decision::Idle => return self.again = None,
            }
        }
    }

    fn complete(&mut self, which: usize) {
        if self.going.is_empty() {
            return;
        }
        let id = self.going.swap_remove(which % self.going.len());
        for gate in [&mut self.exact, &mut self.sampled] {
            gate.complete(self.now, id, Outcome::Done { bytes: 1 });
        }
        self.ask();
    }

    /// What samples say, and what exact accounts say of the same time.
    fn both(&mut self) -> (Charged, Charged) {
        let mut exact = self.of_samples.clone();
        if let Some(before) = &self.before {
            add(&mut exact, &charged(&self.exact.accounts(self.now).unwrap()), before);
        }
        (charged(&self.sampled.accounts(self.now).unwrap()), exact)
    }

    /// Of an application, in us: its time in samples, and the causes that are not nothing.
    fn of(&mut self, app: u32) -> (u64, Vec<(Cause, u64)>) {
        let accounts = self.sampled.accounts(self.now).unwrap();
        let account = accounts.into_iter().find(|account| account.app == Some(AppId(app))).unwrap();
        let us = |span: Span| (span.as_nanos() + 500) / 1_000;
        let causes = Cause::ALL.into_iter().zip(account.causes).map(|(cause, span)| (cause, us(span)));
        (us(account.busy), causes.filter(|(_, us)| *us > 0).collect())
    }

    fn sampled(&mut self) -> Sampled {
        self.sampled.accounts_page(self.now, 0).unwrap().sampled.unwrap()
    }

    /// Goes on to the middle of the sample of a window.
    fn go_into(&mut self, window: u64) {
        let middle = begin(window) + Span::from_nanos(SAMPLE.as_nanos() / 2);
        self.pass(middle.since(self.now).as_nanos());
    }
}

fn add(sum: &mut Charged, here: &Charged, before: &Charged) {
    for (key, amount) in here {
        *sum.entry(*key).or_default() += amount - before.get(key).copied().unwrap_or(0);
    }
}

/// What is charged in one and not in the other, but for what is rounded.
fn differ(one: &Charged, other: &Charged, rounded: i128, counts: impl Fn(usize) -> bool) -> Vec<String> {
    let keys: BTreeSet<_> =
        one.keys().chain(other.keys()).filter(|(_, to)| to.is_err() || to.is_ok_and(&counts)).collect();
    let of = |charged: &Charged, key: &_| charged.get(key).copied().unwrap_or(0);
    let differing = keys.into_iter().filter(|key| (of(one, key) - of(other, key)).abs() > rounded);
    differing.map(|key| alloc::format!("{key:?}: {} {}", of(one, key), of(other, key))).collect()
}

/// Something happens, after so many us.
type Event = (u8, u8, u16, u32);

fn event() -> impl Strategy<Value = Event> {
    // Mostly much less than a window, now and then several.
    let us = prop_oneof![6 => 0u32..200, 3 => 0u32..8_000, 1 => 0u32..200_000];
    (any::<u8>(), any::<u8>(), any::<u16>(), us)
}

fn happens(beside: &mut Beside, (what, app, number, us): Event) {
    // As a driver does, unless it is late.
    let until = beside.now + Span::from_micros(us.into());
    while let Some(again) = beside.again.filter(|again| *again <= until && what % 8 != 7) {
        beside.pass(again.since(beside.now).as_nanos());
        let before = beside.again;
        beside.ask();
        if beside.again == before {
            break;
        }
    }
    beside.pass(until.since(beside.now).as_nanos());
    let app = 1 + u32::from(app) % 5;
    let (offset, bytes) = (u64::from(number % 32) * 4096, 1 + u32::from(number / 32) % 5 * 4096);
    match what % 5 {
        0 | 1 => beside.submit(app, u64::from(app), offset, bytes, Op::Read),
        // One file of all, and what overlaps waits.
        2 => beside.submit(app, 9, offset, bytes, if number % 3 == 0 { Op::Read } else { Op::Write }),
        _ => beside.complete(number.into()),
    }
}

/// All have their places.
fn all_have_been_there(beside: &mut Beside) {
    for app in 1..=5 {
        beside.submit(app, app.into(), 1 << 30, 4096, Op::Read);
        beside.pass(1_000);
        while !beside.going.is_empty() {
            beside.complete(0);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// In samples exactly what exact accounts book there is booked, whatever is held, waits, is deferred or in service at their edges.
    #[test]
    fn samples_have_what_exact_accounts_book_there(
        events in prop::collection::vec(event(), 1..300),
        kind in prop::sample::select(vec![SchedulerKind::Fifo, SchedulerKind::Sjf, SchedulerKind::Aioli]),
        depth in 1u32..5,
        cap in prop::option::of(1u64..200),
        is_far in any::<bool>(),
        window in 0u64..10_000,
    ) {
        let jump = if is_far { Span::from_millis(1) } else { Span::ZERO };
        let mut beside = Beside::new(kind, depth, Prices::of_jumps([jump; 2], [1; 6]), window);
        if let Some(cap) = cap {
            let max = Rate { requests: NonZero::new(cap), ..Rate::default() };
            let capped = Entitlement { max, ..Entitlement::default() };
            let policy = Policy { apps: [(AppId(1), capped)].into(), ..Policy::default() };
            for gate in [&mut beside.exact, &mut beside.sampled] {
                gate.set_policy(beside.now, Some(&policy)).unwrap();
            }
        }
        all_have_been_there(&mut beside);
        for (at, event) in events.into_iter().enumerate() {
            happens(&mut beside, event);
            if at % 16 == 0 {
                let (sampled, exact) = beside.both();
                // Each look at exact accounts is rounded, twice a sample.
                let rounded = 8 * (1 + i128::from(beside.samples));
                let is_positioning = |cause| cause == Cause::Positioning as usize || cause == Cause::Own as usize;
                let differing = differ(&sampled, &exact, rounded, |cause| !is_far || !is_positioning(cause));
                // What a dispatch spends on positioning is estimated until it ends: then exact accounts book it for all its time.
                let differing = differing.into_iter().filter(|of| !is_far || of.contains("Ok("));
                prop_assert_eq!(differing.collect::<Vec<_>>(), Vec::<String>::new());
                let is_whole = |account: Account| {
                    account.busy == account.causes.iter().fold(Span::ZERO, |sum, span| sum + *span)
                };
                let of = beside.sampled();
                for account in beside.sampled.accounts(beside.now).unwrap() {
                    prop_assert!(account.busy <= of.sampled && of.sampled <= of.occupied);
                    prop_assert!(of.scaled(&account).busy <= of.occupied);
                    prop_assert!(is_whole(of.scaled(&account)) && is_whole(account));
                }
            }
        }
    }
}

#[test]
fn each_window_has_one_sample_somewhere() {
    let mut parts = BTreeSet::new();
    for window in 0..2_000 {
        let into = begin(window).as_nanos() - window * WINDOW.as_nanos();
        assert!(into.is_multiple_of(SAMPLE.as_nanos()) && into + SAMPLE.as_nanos() <= WINDOW.as_nanos());
        parts.insert(into / SAMPLE.as_nanos());
        assert_eq!(window_at(begin(window) + Span::from_nanos(SAMPLE.as_nanos() - 1)), window);
        assert_eq!(window_at(begin(window) + SAMPLE), window + 1);
    }
    assert_eq!(parts.len() as u64, PARTS);
}

/// The samples of windows 142 and 143 are the last parts of these: each ends where the next window begins.
#[test]
fn a_window_after_a_sample_at_the_very_end_of_one_is_sampled_too() {
    let last = |window: u64| begin(window) + SAMPLE == Time::from_nanos((window + 1) * WINDOW.as_nanos());
    assert!([142, 143].map(last) == [true; 2] && !last(144));
    let mut beside = Beside::new(SchedulerKind::Fifo, 1, Prices::default(), 140);
    beside.submit(1, 1, 0, 4096, Op::Read);
    for window in 140..146 {
        beside.go_into(window);
        beside.submit(1, 1, 0, 4096, Op::Read);
    }
    beside.go_into(146);
    let sampled = beside.sampled();
    assert_eq!((sampled.samples, sampled.sampled.as_nanos()), (7, SAMPLE.as_nanos() * 13 / 2));
}

#[test]
fn a_dispatch_across_edges_counts_in_samples_only() {
    let mut beside = Beside::new(SchedulerKind::Fifo, 1, Prices::default(), 0);
    beside.go_into(3);
    beside.submit(1, 1, 0, 4096, Op::Read);
    beside.submit(2, 2, 0, 4096, Op::Read);
    // The other half of this sample, four whole ones, and half of another one.
    beside.go_into(8);
    let sample = SAMPLE.as_nanos() as f64 / 1_000.0;
    let us = (5.0 * sample).round() as u64;
    assert_eq!(beside.of(1), (us, vec![(Cause::Own, us)]));
    assert_eq!(beside.of(2), (us, vec![(Cause::Slots, us)]));
    beside.complete(0);
    beside.complete(0);
    beside.pass(1 << 40);
    assert_eq!(beside.of(2), (us, vec![(Cause::Slots, us)]));
    let sampled = beside.sampled();
    assert_eq!(sampled.samples, 6);
    assert_eq!(sampled.occupied, begin(8).since(begin(3)));
    // The one that samples have twice is said to have been there for all the time.
    let accounts = beside.sampled.accounts(beside.now).unwrap();
    assert_eq!(sampled.scaled(&accounts[0]).busy, sampled.occupied);
}

#[test]
fn a_request_that_is_held_across_an_edge_waits_for_the_same_one() {
    let mut beside = Beside::new(SchedulerKind::Fifo, 2, Prices::default(), 0);
    all_have_been_there(&mut beside);
    beside.pass(begin(2).since(beside.now).as_nanos() - 10_000);
    for app in [1, 2, 3] {
        beside.submit(app, 9, 0, 4096, Op::Write);
    }
    beside.go_into(2);
    let half = (SAMPLE.as_nanos() + 1_000) / 2_000;
    assert_eq!(beside.of(2), (half, vec![(Cause::Order, half)]));
    let (sampled, exact) = beside.both();
    assert_eq!(differ(&sampled, &exact, 8, |_| true), Vec::<String>::new());
    assert!(
        sampled[&(Some(AppId(3)), Err(Some(AppId(2))))] > 0
            || sampled[&(Some(AppId(3)), Err(Some(AppId(1))))] > 0
    );
}

#[test]
fn who_was_there_between_samples_only_is_known_to_be_too_little_sampled() {
    let mut beside = Beside::new(SchedulerKind::Fifo, 1, Prices::default(), 0);
    beside.pass((begin(4) + SAMPLE).since(beside.now).as_nanos());
    beside.submit(1, 1, 0, 4096, Op::Read);
    beside.pass(1_000);
    beside.complete(0);
    // Nothing happens for many windows.
    beside.pass(100 * WINDOW.as_nanos());
    let page = beside.sampled.accounts_page(beside.now, 0).unwrap();
    assert_eq!((page.accounts.len(), page.accounts[0].busy, page.accounts[0].dispatches), (1, Span::ZERO, 1));
    let sampled = page.sampled.unwrap();
    assert_eq!((sampled.occupied.as_nanos(), sampled.samples), (1_000, 0));
    assert_eq!(sampled.plus_minus(Span::ZERO), sampled.occupied, "nothing is known");
}

#[test]
fn a_clock_that_jumps_breaks_no_samples() {
    let mut gate = Beside::new(SchedulerKind::Fifo, 1, Prices::default(), 0).sampled;
    for jump in [1, 1 << 62, 0, 1 << 63, u64::MAX - 1, u64::MAX, u64::MAX, 7] {
        let at = Time::from_nanos(jump);
        let request = Request {
            id: RequestId(jump),
            file: FileId(1),
            op: Op::Read,
            offset: 0,
            bytes: 1,
            app: AppId(1),
            client: ClientId(0),
            target: None,
            issued: None,
        };
        gate.submit(at, &request).unwrap();
        while let Decision::Dispatch(dispatch) = gate.next(at) {
            // It is in service until the clock jumps again.
            if jump != 1 {
                gate.complete(at, dispatch.id, Outcome::Done { bytes: 1 });
            }
        }
        let page = gate.accounts_page(at, 0).unwrap();
        let sampled = page.sampled.unwrap();
        page.accounts.iter().for_each(|account| drop(sampled.scaled(account)));
    }
}

#[test]
fn intervals_are_of_the_number_of_samples() {
    let of = |samples: u64| Sampled {
        occupied: Span::from_nanos(samples * WINDOW.as_nanos()),
        sampled: Span::from_nanos(samples * SAMPLE.as_nanos()),
        samples,
        squares: samples * (SAMPLE.as_nanos() >> 6).pow(2),
    };
    let part = |samples: u64, percent: u64| {
        let occupied = of(samples).occupied.as_nanos();
        let sure = of(samples).plus_minus(Span::from_nanos(occupied / 100 * percent));
        100.0 * sure.as_nanos() as f64 / occupied as f64
    };
    // Two deviations of half of 400, of which four are added.
    assert!((part(400, 50) - 4.97).abs() < 0.01, "{}", part(400, 50));
    assert!(part(400, 5) < 2.5 && part(400, 100) < 1.0 && part(4, 100) > 30.0);
    assert!(part(40_000, 50) < 0.51);
}
