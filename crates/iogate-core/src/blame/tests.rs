//! The accounts against a reference that walks each instant and each request.

mod examples;
mod sampled;
mod windows;

use alloc::vec::Vec;
use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// One request of the reference.
#[derive(Clone, Copy)]
struct Known {
    app: u32,
    class: Class,
    culprit: u32,
    bytes: u32,
}

/// One dispatch of the reference.
struct Going {
    slots: Vec<SlotId>,
    /// Whose it is, by application, in 2^-16.
    weights: BTreeMap<u32, u64>,
    app: u32,
    requests: i128,
    fraction: u64,
    began: i128,
    since: (i128, i128),
}

/// Who charges what to whom, in 2^-38 ns, walked instant by instant and request by request.
#[derive(Default)]
struct Naive {
    now: u64,
    requests: BTreeMap<SlotId, Known>,
    going: BTreeMap<u32, Going>,
    standing: Option<Standing>,
    capped: BTreeMap<u32, bool>,
    busy: BTreeMap<u32, u64>,
    causes: BTreeMap<(u32, usize), i128>,
    rows: BTreeMap<(u32, u32), i128>,
    clocks: BTreeMap<u32, i128>,
    total: i128,
    own: i128,
    jumped: BTreeMap<u32, u64>,
    last: BTreeMap<u32, (u32, u64)>,
    last_app: u32,
    app_before: u32,
    dispatches: BTreeMap<u32, u64>,
}

const UNIT: i128 = 1 << 32;

impl Naive {
    fn charge(&mut self, app: u32, cause: Option<Cause>, culprits: &[(u32, i128)], amount: i128) {
        if let Some(cause) = cause {
            *self.causes.entry((app, cause as usize)).or_default() += amount;
        }
        for (culprit, amount) in culprits {
            *self.rows.entry((app, *culprit)).or_default() += amount;
        }
    }

    fn advance(&mut self, now: u64) {
        let span = i128::from(now - self.now) << 6;
        (self.now, self.standing) = (now, self.standing);
        if span == 0 {
            return;
        }
        let count = self.going.len() as i128;
        let mut weights: BTreeMap<u32, i128> = BTreeMap::new();
        for (app, weight) in self.going.values().flat_map(|going| &going.weights) {
            *weights.entry(*app).or_default() += i128::from(*weight);
        }
        let own = UNIT / count.max(1);
        let equal: Vec<(u32, i128)> =
            weights.iter().map(|(app, weight)| (*app, (span * weight * own) >> 48)).collect();
        let own_span = if count > 0 { (span * own) >> 32 } else { 0 };
        self.total += span;
        self.own += own_span;
        let mut present: BTreeMap<u32, i128> = BTreeMap::new();
        self.requests.values().for_each(|request| *present.entry(request.app).or_default() += 1);
        for (app, n) in &present {
            *self.busy.entry(*app).or_default() += (span >> 6) as u64;
            *self.clocks.entry(*app).or_default() += UNIT / n * span;
        }
        for Known { app, class, culprit, .. } in self.requests.values().copied().collect::<Vec<_>>() {
            let part = UNIT / present[&app];
            let times = |of: &[(u32, i128)]| -> Vec<(u32, i128)> {
                of.iter().map(|(app, amount)| (*app, amount * part)).collect()
            };
            let all = part * span;
            match (class, self.standing.unwrap_or_default()) {
                (Class::Held, _) if culprit == app && self.capped.get(&app) == Some(&true) => {
                    self.charge(app, Some(Cause::Cap), &[], all);
                }
                (Class::Held, _) => self.charge(app, Some(Cause::Order), &[(culprit, all)], all),
                (Class::Queued, Standing::Full) if count > 0 => {
                    self.charge(app, Some(Cause::Slots), &times(&equal), all);
                }
                (Class::Queued, Standing::Window) => self.charge(app, Some(Cause::Window), &[], all),
                (Class::Queued, Standing::Waits(column)) => {
                    self.charge(app, Some(Cause::Wait), &[(u32::from(column) + 1, all)], all);
                }
                (Class::Queued, _) => self.charge(app, Some(Cause::HandOver), &[], all),
                (Class::Deferred, _) if self.capped.get(&app) == Some(&true) => {
                    self.charge(app, Some(Cause::Cap), &[], all);
                }
                (Class::Deferred, Standing::Waits(column)) if count == 0 => {
                    self.charge(app, Some(Cause::Share), &[(u32::from(column) + 1, all)], all);
                }
                (Class::Deferred, Standing::Window) if count == 0 => {
                    self.charge(app, Some(Cause::Window), &[], all);
                }
                (Class::Deferred, _) => self.charge(app, Some(Cause::Share), &times(&equal), all),
                (Class::Served, _) => {
                    let others: Vec<_> = equal.iter().copied().filter(|(of, _)| *of != app).collect();
                    let mut row = times(&others);
                    let theirs: i128 = others.iter().map(|(_, amount)| amount).sum();
                    row.push((app, part * (span - theirs)));
                    self.charge(app, Some(Cause::Beside), &row, part * (span - own_span));
                }
                _ => unreachable!("the reference has no such requests"),
            }
        }
    }

    fn begin(&mut self, id: u32, range: &Range, slots: &[SlotId]) {
        let of = |slot: &SlotId| self.requests[slot];
        let app = of(&slots[0]).app;
        let goes_on = self.last.get(&app) == Some(&(range.queue, range.offset));
        self.last.insert(app, (range.queue, range.end));
        let jump = range.jump.as_nanos() << 2;
        let is_displaced = goes_on && self.last_app != app && self.app_before == app;
        let fraction = if is_displaced && jump > 0 {
            ((jump << 20) / self.jumped.get(&app).copied().unwrap_or(0).max(jump)) << 12
        } else {
            0
        };
        let all: u64 = slots.iter().map(|slot| u64::from(of(slot).bytes)).sum();
        let mut weights = BTreeMap::new();
        for (at, of_app) in slots.chunk_by(|a, b| of(a).app == of(b).app).enumerate() {
            let bytes: u64 = of_app.iter().map(|slot| u64::from(of(slot).bytes)).sum();
            let weight = (bytes << 16) / all;
            let theirs = if at == 0 { (weight * fraction) >> 32 } else { 0 };
            *weights.entry(of(&of_app[0]).app).or_default() += weight - theirs;
            *weights.entry(self.last_app).or_default() += theirs;
        }
        let requests = slots.iter().take_while(|slot| of(slot).app == app).count() as i128;
        let began = self.clocks.get(&app).copied().unwrap_or(0);
        let (slots, since) = (slots.to_vec(), (self.total, self.own));
        for slot in &slots {
            self.requests.get_mut(slot).unwrap().class = Class::Served;
        }
        if self.last_app != app {
            (self.app_before, self.last_app) = (self.last_app, app);
        }
        self.busy.entry(app).or_default();
        *self.dispatches.entry(app).or_default() += 1;
        self.going.insert(id, Going { slots, weights, app, requests, fraction, began, since });
    }

    fn charge_positioning(&mut self, going: &Going) {
        let (total, own) = going.since;
        if self.total > total {
            let part = (self.clocks[&going.app] - going.began) / (self.total - total);
            let of = |clock: i128| ((part * clock * i128::from(going.fraction)) >> 32) * going.requests;
            self.charge(going.app, Some(Cause::Positioning), &[], of(self.own - own));
        }
    }

    fn end(&mut self, id: u32) {
        let going = self.going.remove(&id).unwrap();
        self.charge_positioning(&going);
        if going.fraction > 0 && self.total > going.since.0 {
            let own = ((self.own - going.since.1) >> 4) as u64;
            let before = self.jumped.get(&going.app).copied().unwrap_or(0);
            let own = own.min(u32::MAX.into());
            self.jumped.insert(going.app, if before == 0 { own } else { (before * 7 + own) / 8 });
        }
        self.requests.retain(|slot, _| !going.slots.contains(slot));
    }

    fn accounts(&mut self) -> Vec<Account> {
        let going = core::mem::take(&mut self.going);
        let (causes, rows) = (self.causes.clone(), self.rows.clone());
        going.values().for_each(|going| self.charge_positioning(going));
        let ns = |raw: i128| Span::from_nanos((raw >> 38).max(0) as u64);
        let account = |(app, busy): (&u32, &u64)| {
            let mut of = [Span::ZERO; Cause::ALL.len()];
            let mut left = *busy;
            for cause in &Cause::ALL[..Cause::Own as usize] {
                let charged = ns(self.causes.get(&(*app, *cause as usize)).copied().unwrap_or(0));
                of[*cause as usize] = Span::from_nanos(charged.as_nanos().min(left));
                left -= of[*cause as usize].as_nanos();
            }
            of[Cause::Own as usize] = Span::from_nanos(left);
            let row = self.rows.iter().filter(|((of, _), _)| of == app);
            let mut apps: Vec<_> = row
                .map(|((_, of), raw)| (Some(AppId(*of)), ns(*raw)))
                .filter(|(_, ns)| *ns > Span::ZERO)
                .collect();
            apps.sort_by_key(|(app, span)| (core::cmp::Reverse(*span), *app));
            let mut left = *busy;
            for (_, span) in &mut apps {
                *span = Span::from_nanos(span.as_nanos().min(left));
                left -= span.as_nanos();
            }
            let dispatches = self.dispatches.get(app).copied().unwrap_or(0);
            Account { app: Some(AppId(*app)), busy: Span::from_nanos(*busy), dispatches, causes: of, apps }
        };
        let accounts = self
            .busy
            .iter()
            .filter(|(app, busy)| **busy > 0 || self.dispatches.contains_key(app))
            .map(account)
            .collect();
        (self.going, self.causes, self.rows) = (going, causes, rows);
        accounts
    }
}

impl Blame {
    /// Requests of an application that wait for others of it.
    pub(crate) fn held_own(&self, app: AppId) -> usize {
        let is_its = |entry: &&Entry| self.apps[usize::from(entry.app)].app == app;
        self.entries.iter().filter(is_its).filter(|entry| entry.class == Class::HeldOwn).count()
    }
}

/// What happens next: any numbers mean something.
type Step = (u8, u8, u8, u16);

struct Both {
    blame: Blame,
    naive: Naive,
    now: Time,
    slots: u32,
    dispatches: u32,
    ends: [[u64; 4]; 8],
    seen: BTreeSet<u32>,
}

impl Both {
    fn new(prices: Prices) -> Both {
        let naive = Naive::default();
        let blame = Blame::new(Time::ZERO, Accounting::Exact, &prices);
        let seen = BTreeSet::new();
        Both { blame, naive, now: Time::ZERO, slots: 0, dispatches: 0, ends: [[0; 4]; 8], seen }
    }

    fn arrive(&mut self, app: u32, place: Place, bytes: u32) -> SlotId {
        let (class, culprit) = match place {
            Place::Held(of) => (Class::Held, self.naive.requests[&of].app),
            Place::Deferred => (Class::Deferred, 0),
            Place::Queued => (Class::Queued, 0),
        };
        let slot = self.slots;
        self.slots += 1;
        self.seen.insert(app);
        self.blame.place(self.now, slot, AppId(app), place);
        self.naive.requests.insert(slot, Known { app, class, culprit, bytes });
        slot
    }

    fn begin(&mut self, slots: &[SlotId], file: u8, jump: u16) {
        let app = self.naive.requests[&slots[0]].app;
        let bytes: u64 = slots.iter().map(|slot| u64::from(self.naive.requests[slot].bytes)).sum();
        let end = &mut self.ends[app as usize % 8][usize::from(file % 4)];
        let range = Range {
            queue: u32::from(file % 4),
            offset: *end,
            end: *end + bytes,
            jump: Span::from_nanos(u64::from(jump) * 3),
        };
        *end = range.end;
        let part = |slot: &SlotId| PartOf { slot: *slot, bytes: self.naive.requests[slot].bytes };
        let parts: Vec<PartOf> = slots.iter().map(part).collect();
        self.blame.notes(self.now, self.dispatches, AppId(app), slots[0], &range);
        self.blame.begins(self.now, self.dispatches, &parts);
        self.naive.begin(self.dispatches, &range, slots);
        self.dispatches += 1;
    }

    fn end(&mut self, id: u32) {
        let going = &self.naive.going[&id];
        let part = |slot: &SlotId| PartOf { slot: *slot, bytes: self.naive.requests[slot].bytes };
        let parts: Vec<PartOf> = going.slots.iter().map(part).collect();
        self.blame.ends(self.now, id, &parts);
        self.naive.end(id);
    }

    fn pass(&mut self, ns: u64) {
        self.now = self.now + Span::from_nanos(ns);
        self.naive.advance(self.now.as_nanos());
        self.blame.advance(self.now);
    }

    fn slots_of(&self, class: Class) -> Vec<SlotId> {
        let of = self.naive.requests.iter().filter(|(_, request)| request.class == class);
        of.map(|(slot, _)| *slot).collect()
    }

    fn step(&mut self, (what, app, which, number): Step, apps: u32) {
        let app = 1 + u32::from(app) % apps;
        let pick = |of: &[SlotId]| of.get(usize::from(which) % of.len().max(1)).copied();
        match what % 10 {
            0 | 1 => drop(self.arrive(app, Place::Queued, 1 + u32::from(number))),
            2 => drop(self.arrive(app, Place::Deferred, 1 + u32::from(number))),
            3 => {
                let all: Vec<SlotId> = self.naive.requests.keys().copied().collect();
                if let Some(blocker) = pick(&all) {
                    self.arrive(app, Place::Held(blocker), 1 + u32::from(number));
                }
            }
            4 => {
                let waiting = [self.slots_of(Class::Held), self.slots_of(Class::Deferred)].concat();
                if let Some(slot) = pick(&waiting) {
                    self.naive.requests.get_mut(&slot).unwrap().class = Class::Queued;
                    let app = self.naive.requests[&slot].app;
                    self.blame.place(self.now, slot, AppId(app), Place::Queued);
                }
            }
            5 | 6 => {
                let queued = self.slots_of(Class::Queued);
                let count = 1 + usize::from(number) % 4;
                let first = usize::from(which) % queued.len().max(1);
                let taken: Vec<SlotId> = queued.into_iter().skip(first).take(count).collect();
                if !taken.is_empty() {
                    self.begin(&taken, which, number);
                }
            }
            7 => {
                let going: Vec<u32> = self.naive.going.keys().copied().collect();
                if let Some(id) = pick(&going) {
                    self.end(id);
                }
            }
            8 => {
                let standing = match which % 4 {
                    0 => Standing::Free,
                    1 => Standing::Window,
                    2 => Standing::Waits(if apps > 16 { REST } else { (app - 1) as u8 }),
                    _ => Standing::Full,
                };
                self.blame.stands(self.now, standing);
                self.naive.standing = Some(standing);
            }
            _ if self.seen.contains(&app) => {
                self.blame.capped(self.now, AppId(app), which % 2 == 0);
                self.naive.capped.insert(app, which % 2 == 0);
            }
            // Of who has never been there nothing is known.
            _ => {}
        }
        self.pass(u64::from(number) % 5 * u64::from(number) % 100_000);
    }
}

fn step() -> impl Strategy<Value = Step> {
    (any::<u8>(), any::<u8>(), any::<u8>(), any::<u16>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// To the last bit, at each step.
    #[test]
    fn accounts_are_what_walking_each_instant_gives(
        steps in prop::collection::vec(step(), 1..120),
        rate in prop::option::of(1u32..3000),
    ) {
        let rate = rate.map_or([0; 6], |more| [0, 1, 2, 3, 4, 5].map(|step| 1000 + step * more));
        let mut both = Both::new(Prices { rate, ..Prices::default() });
        // All have their columns, in their order.
        for app in 1..=6 {
            let slot = both.arrive(app, Place::Queued, 1);
            both.begin(&[slot], 0, 0);
            both.pass(10);
            both.end(both.dispatches - 1);
        }
        for step in steps {
            both.step(step, 6);
            let accounts = both.blame.accounts(both.now);
            prop_assert_eq!(&accounts, &both.naive.accounts());
            for account in &accounts {
                let causes: u64 = account.causes.iter().map(|span| span.as_nanos()).sum();
                prop_assert_eq!(causes, account.busy.as_nanos());
                let apps: u64 = account.apps.iter().map(|(_, span)| span.as_nanos()).sum();
                prop_assert!(apps <= account.busy.as_nanos());
            }
        }
    }

    /// With more applications than are told apart, and columns that change hands, by cause nothing is different.
    #[test]
    fn who_is_not_told_apart_is_among_the_others(steps in prop::collection::vec(step(), 1..120)) {
        let mut both = Both::new(Prices::default());
        for (at, step) in steps.into_iter().enumerate() {
            both.step(step, 40);
            if at % 16 == 15 {
                both.pass(COLUMN_KEPT.as_nanos());
            }
            let (accounts, mut naive) = (both.blame.accounts(both.now), both.naive.accounts());
            naive.sort_by_key(|account| account.app);
            let mut sorted = accounts.clone();
            sorted.sort_by_key(|account| account.app);
            prop_assert_eq!(sorted.len(), naive.len());
            for (account, naive) in sorted.iter().zip(&naive) {
                prop_assert_eq!((account.app, account.busy), (naive.app, naive.busy));
                for cause in [Cause::Order, Cause::Slots, Cause::Beside, Cause::HandOver, Cause::Wait] {
                    // Nobody's price is asked for: the numbers in service are the same.
                    prop_assert_eq!(account.causes[cause as usize], naive.causes[cause as usize]);
                }
                let sum = |of: &Account| of.apps.iter().map(|(_, span)| span.as_nanos()).sum::<u64>();
                prop_assert!(sum(account).abs_diff(sum(naive)) <= 64, "{account:?} {naive:?}");
            }
        }
    }
}
