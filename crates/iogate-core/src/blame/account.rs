//! The account of one application.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::clocks::{Clocks, TIME_BITS};
use super::{Begun, COLUMNS, REST};
use crate::request::AppId;
use crate::time::Span;

/// Accounts are in 2^-32 of what clocks are in.
const PART_BITS: u32 = 32;
/// What a dispatch took is kept in 2^-2 ns of the integral.
const TOOK_BITS: u32 = TIME_BITS - 2;

/// Why a part of a request's time went by: the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Cause {
    /// It waits for an earlier request that overlaps it, unless both are of an application that waits for its cap.
    Order,
    /// Its application has had what a cap allows.
    Cap,
    /// A policy serves others first.
    Share,
    /// The window belongs to another target.
    Window,
    /// The gate waits deliberately, for what another one is expected to send.
    Wait,
    /// All slots are taken.
    Slots,
    /// A slot is free: it is being handed over.
    HandOver,
    /// In service: the device goes back to where it was before another application's request came between.
    Positioning,
    /// In service, beside others.
    Beside,
    /// In service: what it takes itself.
    Own,
}

impl Cause {
    /// All of them, in the order of [`Account::causes`].
    pub const ALL: [Cause; 10] = [
        Cause::Order,
        Cause::Cap,
        Cause::Share,
        Cause::Window,
        Cause::Wait,
        Cause::Slots,
        Cause::HandOver,
        Cause::Positioning,
        Cause::Beside,
        Cause::Own,
    ];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Order => "order",
            Cause::Cap => "cap",
            Cause::Share => "share",
            Cause::Window => "window",
            Cause::Wait => "wait",
            Cause::Slots => "slots",
            Cause::HandOver => "hand-over",
            Cause::Positioning => "positioning",
            Cause::Beside => "beside",
            Cause::Own => "own",
        }
    }

    /// What it means, after "because".
    pub const fn meaning(self) -> &'static str {
        match self {
            Cause::Order => "an earlier request overlaps",
            Cause::Cap => "the application has had what its cap allows",
            Cause::Share => "the policy serves others first",
            Cause::Window => "the window belongs to another target",
            Cause::Wait => "the gate waits for what somebody is expected to send",
            Cause::Slots => "all slots of the gate are taken",
            Cause::HandOver => "the request is being handed over",
            Cause::Positioning => "the device goes back to where it was before others came between",
            Cause::Beside => "the device does something else at the same time",
            Cause::Own => "the request itself takes that long",
        }
    }
}

/// What one application waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Account {
    /// The application; `None`: all that have no account of their own.
    pub app: Option<AppId>,
    /// For how long it had requests in the gate.
    pub busy: Span,
    /// Dispatches that have begun with a request of it, in samples or not.
    pub dispatches: u64,
    /// That time by cause, as [`Cause::ALL`]; it sums to `busy`.
    pub causes: [Span; Cause::ALL.len()],
    /// That time by application, itself included, the largest first; `None`: all that are not told apart. The rest of `busy` is nobody's.
    pub apps: Vec<(Option<AppId>, Span)>,
}

impl Account {
    /// How much of its time it has waited for this one.
    pub(super) fn charged_to(&self, app: AppId) -> Span {
        self.apps.iter().find(|(of, _)| *of == Some(app)).map_or(Span::ZERO, |(_, span)| *span)
    }

    /// The accounts of several gates together, by application.
    pub fn together(all: impl IntoIterator<Item = Account>) -> Vec<Account> {
        let mut sums: BTreeMap<Option<AppId>, Account> = BTreeMap::new();
        for account in all {
            let Some(sum) = sums.get_mut(&account.app) else {
                sums.insert(account.app, account);
                continue;
            };
            sum.busy += account.busy;
            sum.dispatches += account.dispatches;
            sum.causes.iter_mut().zip(account.causes).for_each(|(sum, span)| *sum += span);
            for (app, span) in account.apps {
                match sum.apps.iter_mut().find(|(of, _)| *of == app) {
                    Some((_, sum)) => *sum += span,
                    None => sum.apps.push((app, span)),
                }
            }
            sum.apps.sort_by_key(|(app, span)| (core::cmp::Reverse(*span), *app));
        }
        sums.into_values().collect()
    }
}

/// Where a request is, as far as the account is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Waits for one of another application.
    Held,
    /// Waits for one of its own application.
    HeldOwn,
    Queued,
    Deferred,
    /// What [`Class::Deferred`] and [`Class::HeldOwn`] are while the application waits for its cap.
    Capped,
    CappedOwn,
    Served,
    None,
}

/// Requests by class.
pub(super) type Counts = [u32; Class::None as usize];

/// The classes that [`App::book`] books, in its order.
const BOOKED: [Class; 6] =
    [Class::Queued, Class::Deferred, Class::Capped, Class::CappedOwn, Class::HeldOwn, Class::Served];

/// A request's part of an instant where there are so many.
const PARTS: [i64; 64] = {
    let mut parts = [0; 64];
    let mut requests = 1;
    while requests < parts.len() {
        parts[requests] = (1 << PART_BITS) / requests as i64;
        requests += 1;
    }
    parts
};

#[inline]
fn part_of(counts: &Counts) -> i64 {
    let requests: u32 = counts.iter().sum();
    PARTS.get(requests as usize).copied().unwrap_or_else(|| (1 << PART_BITS) / i64::from(requests))
}

/// The account while it is kept.
#[derive(Clone)]
pub(super) struct App {
    /// What is charged to each column, without what the clocks add for the requests that are in the gate.
    row: [i128; COLUMNS + 1],
    /// The same by cause; [`Cause::Own`] is what is left.
    causes: [i128; Cause::ALL.len() - 1],
    /// The integral of a request's part of the time.
    clock: i128,
    /// For how long it had something in the gate, in ns.
    pub(super) busy: u64,
    /// Until when that is added up, by [`Clocks::total`].
    pub(super) at: i64,
    /// How many dispatches have begun with a request of it.
    pub(super) dispatches: u64,
    /// Where its last dispatch ended.
    end: u64,
    queue: u32,
    pub(super) app: AppId,
    counts: Counts,
    /// What dispatches took that had to go back, of the device's time.
    took: u32,
    /// Its weight in service.
    pub(super) serving: u32,
    pub(super) column: u8,
    pub(super) is_capped: bool,
    /// Its requests have changed at this instant, which is not booked.
    is_changed: bool,
}

const _: () = assert!(size_of::<App>() <= 512, "an application costs at most 512 bytes");

impl App {
    pub(super) fn new(app: AppId, at: i64) -> App {
        App {
            row: [0; COLUMNS + 1],
            causes: [0; Cause::ALL.len() - 1],
            clock: 0,
            busy: 0,
            at,
            dispatches: 0,
            end: 0,
            queue: u32::MAX,
            app,
            counts: [0; Class::None as usize],
            took: 0,
            serving: 0,
            column: REST,
            is_capped: false,
            is_changed: false,
        }
    }

    fn requests(&self) -> u32 {
        self.counts.iter().sum()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.requests() == 0
    }

    /// A request's part of an instant.
    fn part(&self) -> i64 {
        part_of(&self.counts)
    }

    /// Its requests are about to change: the time up to now goes by as they are. Returns what they were, the first time at an instant.
    #[inline]
    pub(super) fn begin_change(&mut self, clocks: &Clocks) -> Option<Counts> {
        if self.is_changed {
            return None;
        }
        self.is_changed = true;
        let part = self.part();
        self.pass(clocks, part);
        Some(self.counts)
    }

    /// Requests go from one class to another.
    #[inline]
    pub(super) fn shift(&mut self, from: Class, to: Class, count: u32) {
        let (from, to) = (self.class(from), self.class(to));
        if from != Class::None {
            self.counts[from as usize] -= count;
        }
        if to != Class::None {
            self.counts[to as usize] += count;
        }
    }

    /// Books what has changed since [`App::begin_change`], at the same instant.
    #[inline]
    pub(super) fn book_changes(&mut self, clocks: &Clocks, was: &Counts) {
        self.is_changed = false;
        let (before, after) = (part_of(was), self.part());
        let by = |class: Class| {
            let (was, is) = (was[class as usize], self.counts[class as usize]);
            i64::from(was) * before - i64::from(is) * after
        };
        self.book(clocks, BOOKED.map(by));
    }

    /// The time since the last change goes by.
    fn pass(&mut self, clocks: &Clocks, part: i64) {
        let span = clocks.total - core::mem::replace(&mut self.at, clocks.total);
        if part > 0 {
            self.busy += (span >> TIME_BITS) as u64;
            self.clock += product(part, span);
        }
    }

    /// Adds so many of each class ([`BOOKED`]) times what the clocks show.
    #[inline]
    fn book(&mut self, clocks: &Clocks, by: [i64; BOOKED.len()]) {
        let [queued, deferred, capped, capped_own, held_own, served] = by;
        let capped = capped + capped_own;
        let rest = usize::from(REST);
        let used = clocks.used;
        let mut add = |by: i64, of: &[i64; COLUMNS + 1]| {
            if by != 0 {
                self.row[..used].iter_mut().zip(of).for_each(|(sum, of)| *sum += product(by, *of));
                self.row[rest] += product(by, of[rest]);
            }
        };
        add(queued, &clocks.queued);
        add(deferred + served, &clocks.others);
        if queued != 0 {
            self.causes[Cause::Slots as usize] += product(queued, clocks.full);
            self.causes[Cause::Window as usize] += product(queued, clocks.window);
            self.causes[Cause::Wait as usize] += product(queued, clocks.waits);
            let free = clocks.total - clocks.full - clocks.window - clocks.waits;
            self.causes[Cause::HandOver as usize] += product(queued, free);
        }
        if deferred != 0 || capped != 0 {
            // What the gate could serve it would have admitted.
            self.causes[Cause::Window as usize] += product(deferred, clocks.idle_window);
            self.causes[Cause::Share as usize] += product(deferred, clocks.total - clocks.idle_window);
            self.causes[Cause::Cap as usize] += product(capped, clocks.total);
        }
        if held_own != 0 {
            self.causes[Cause::Order as usize] += product(held_own, clocks.total);
            self.row[usize::from(self.column)] += product(held_own, clocks.total);
        }
        if served != 0 {
            self.causes[Cause::Beside as usize] += product(served, clocks.total - clocks.own);
            // What is not the others'.
            self.row[usize::from(self.column)] += product(served, clocks.total - clocks.others_sum);
        }
    }

    /// What was among the others is in a column.
    pub(super) fn give_back(&mut self, own: Span, column: u8) {
        let own = i128::from(own.as_nanos()) << (PART_BITS + TIME_BITS);
        self.row[usize::from(REST)] -= own;
        self.row[usize::from(column)] += own;
    }

    /// What it takes itself, and waits for itself, is in this column from now on.
    pub(super) fn set_column(&mut self, clocks: &Clocks, column: u8) {
        let times = |class: Class| i64::from(self.counts[class as usize]) * self.part();
        let own = product(times(Class::Served), clocks.total - clocks.others_sum)
            + product(times(Class::HeldOwn), clocks.total);
        self.row[usize::from(self.column)] += own;
        self.row[usize::from(column)] -= own;
        self.column = column;
    }

    /// Its deferred requests wait for its cap, or do no more, and with them those that wait for its own.
    pub(super) fn set_capped(&mut self, clocks: &Clocks, is_capped: bool) {
        let moved = [Class::Deferred, Class::HeldOwn];
        let moved = moved.map(|class| (class, self.counts[self.class(class) as usize]));
        let was = self.begin_change(clocks).unwrap_or(self.counts);
        moved.iter().for_each(|(class, count)| self.shift(*class, Class::None, *count));
        self.is_capped = is_capped;
        moved.iter().for_each(|(class, count)| self.shift(Class::None, *class, *count));
        self.book_changes(clocks, &was);
    }

    fn class(&self, class: Class) -> Class {
        match class {
            Class::Deferred if self.is_capped => Class::Capped,
            Class::HeldOwn if self.is_capped => Class::CappedOwn,
            class => class,
        }
    }

    /// Somebody else gets a column.
    pub(super) fn give_up_column(&mut self, clocks: &Clocks, column: u8) {
        let (part, at) = (self.part(), usize::from(column));
        let times = |class: Class| i64::from(self.counts[class as usize]) * part;
        let left = product(times(Class::Queued), clocks.queued[at])
            + product(times(Class::Deferred) + times(Class::Served), clocks.others[at]);
        self.row[usize::from(REST)] += self.row[at] + left;
        // It begins at nothing again, as the clocks go on.
        self.row[at] = -left;
    }

    /// A request begins to wait for one of a column.
    pub(super) fn hold(&mut self, clocks: &Clocks, culprit: u8) {
        let clock = self.clock_at(clocks);
        self.row[usize::from(culprit)] -= clock;
        self.causes[Cause::Order as usize] -= clock;
    }

    /// It waits no more.
    pub(super) fn release(&mut self, clocks: &Clocks, culprit: u8) {
        let clock = self.clock_at(clocks);
        self.row[usize::from(culprit)] += clock;
        self.causes[Cause::Order as usize] += clock;
    }

    pub(super) fn clock_at(&self, clocks: &Clocks) -> i128 {
        self.clock + product(self.part(), clocks.total - self.at)
    }

    /// A dispatch has ended, or is as good as ended: what it spent on positioning has that as its cause, by the application's mean
    /// number of requests meanwhile. Who made that necessary is charged by its weight in service.
    pub(super) fn charge_positioning(&mut self, clocks: &Clocks, begun: &Begun) {
        let Some((total, own)) = begun.since.filter(|_| begun.positioning > 0) else { return };
        let (all, own) = (clocks.total - total, clocks.own - own);
        if all == 0 {
            return;
        }
        let part = ((self.clock_at(clocks) - begun.clock) / i128::from(all)) as i64;
        let each = (product(part, own) * i128::from(begun.positioning)) >> 32;
        self.causes[Cause::Positioning as usize] += each * i128::from(begun.requests);
    }

    /// What a dispatch that had to go back took is known now.
    pub(super) fn learn_took(&mut self, clocks: &Clocks, begun: &Begun) {
        let Some((total, own)) = begun.since.filter(|_| begun.positioning > 0) else { return };
        if clocks.total - total + begun.earlier == 0 {
            return;
        }
        let own = clocks.own - own + clocks.own_part(begun.earlier);
        let own = (own >> TOOK_BITS).min(u32::MAX.into()) as u64;
        let took = u64::from(self.took);
        self.took = if took == 0 { own } else { (took * 7 + own) / 8 } as u32;
    }

    /// Whether a dispatch begins where the last one ended.
    pub(super) fn goes_on(&self, queue: u32, offset: u64) -> bool {
        (self.queue, self.end) == (queue, offset)
    }

    pub(super) fn remember(&mut self, queue: u32, end: u64) {
        (self.queue, self.end) = (queue, end);
    }

    /// Of what a dispatch that has to go back takes, the part of the jump, in 2^-32.
    pub(super) fn share_of(&self, jump: Span) -> u64 {
        let jump = jump.as_nanos().min(1 << 40) << 2;
        if jump == 0 { 0 } else { ((jump << 20) / u64::from(self.took).max(jump)) << 12 }
    }

    /// An account that is given up is part of this one.
    pub(super) fn merge(&mut self, gone: &App) {
        self.row.iter_mut().zip(gone.row).for_each(|(sum, of)| *sum += of);
        self.causes.iter_mut().zip(gone.causes).for_each(|(sum, of)| *sum += of);
        self.busy += gone.busy;
        self.dispatches += gone.dispatches;
    }

    /// It has nothing in the gate that is accounted from now on.
    pub(super) fn empty(&mut self) {
        self.counts = [0; Class::None as usize];
        self.serving = 0;
        // When the next sample begins it is asked who waits for a cap.
        self.is_capped = false;
    }

    /// Adds what the clocks show for the requests in the gate: the account is at its end then.
    pub(super) fn settle(&mut self, clocks: &Clocks) {
        let part = self.part();
        self.pass(clocks, part);
        let times = |class: Class| i64::from(self.counts[class as usize]) * part;
        self.book(clocks, BOOKED.map(times));
    }

    /// The account in nanoseconds.
    pub(super) fn account(&self, app: Option<AppId>, names: &[Option<AppId>; COLUMNS]) -> Account {
        let ns = |raw: i128| (raw >> (PART_BITS + TIME_BITS)).max(0) as u64;
        let mut causes = [Span::ZERO; Cause::ALL.len()];
        let mut left = self.busy;
        for (cause, raw) in causes.iter_mut().zip(&self.causes) {
            let part = ns(*raw).min(left);
            (*cause, left) = (Span::from_nanos(part), left - part);
        }
        causes[Cause::Own as usize] = Span::from_nanos(left);
        let mut row = self.row.map(ns);
        let mut apps = Vec::new();
        if self.column == REST && app.is_some() {
            // What is its own is among the others.
            let own = left.min(row[COLUMNS]);
            row[COLUMNS] -= own;
            apps.push((app, own));
        }
        apps.extend(names.iter().copied().chain([None]).zip(row));
        let mut apps: Vec<_> =
            apps.into_iter().filter(|(_, ns)| *ns > 0).map(|(app, ns)| (app, Span::from_nanos(ns))).collect();
        apps.sort_by_key(|(app, span)| (core::cmp::Reverse(*span), *app));
        let mut left = self.busy;
        for (_, span) in &mut apps {
            let part = span.as_nanos().min(left);
            (*span, left) = (Span::from_nanos(part), left - part);
        }
        Account { app, busy: Span::from_nanos(self.busy), dispatches: self.dispatches, causes, apps }
    }
}

#[inline]
fn product(by: i64, of: i64) -> i128 {
    i128::from(by) * i128::from(of)
}
