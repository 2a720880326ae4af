//! Who slows whom down: every instant in which an application has requests in a gate, divided by cause and by application.
//!
//! An application's clock runs while it has a request in the gate. Each instant is divided equally among its requests there, and each
//! part goes to the first cause that applies: see [`Cause`]. What is charged to an application need not be what it would gain without
//! the other one; `docs/why.md` says how well they agree.
//!
//! Nothing is walked at an event but the columns in use. Between two events all is constant, so what A charges to B is a sum of
//! (A's requests in a place) x (how much an instant there is B's). The second factor is the same for all applications: its integrals
//! go up with time, and an application's account changes only when its number of requests changes, by
//! (old - new) x (the integral of now): summation by parts, in integers. All that changes at one instant is booked once, when time goes
//! on.
//!
//! Rounding: a request's part of an instant is 2^32/n, rounded down, and integrals are kept in 2^-6 ns, rounded down at each event.
//! What is lost by that, less than a thousandth, goes to [`Cause::Own`], so that causes sum to the time exactly.

mod account;
mod clocks;
pub(crate) mod sampling;
#[cfg(test)]
mod tests;
mod window;

use alloc::string::String;
use alloc::vec::Vec;

pub use self::account::{Account, Cause};
use self::account::{App, Class, Counts};
pub(crate) use self::clocks::Standing;
use self::clocks::{Clocks, WHOLE_BITS};
use self::sampling::Presence;
pub use self::sampling::{Accounting, PARTS, SAMPLE, Sampled, WINDOW};
pub use self::window::window;
use crate::hash::HashMap;
use crate::queue::SlotId;
use crate::request::{AppId, Op};
use crate::sched::Prices;
use crate::time::{Span, Time};

/// Applications that are told apart as those who slow down.
pub const COLUMNS: usize = 16;
/// The column of all the others.
const REST: u8 = COLUMNS as u8;
/// Applications that have an account of their own; the others share the first one.
pub const APPS_MAX: usize = 1024;
/// Who has nothing in the gate for so long gives up its column to somebody who needs one.
const COLUMN_KEPT: Span = Span::from_secs(10);

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Waits for another one that overlaps it.
    Held(SlotId),
    /// Waits until the policy admits it.
    Deferred,
    /// The scheduler has it.
    Queued,
}

/// A request in the gate.
#[derive(Clone, Copy)]
struct Entry {
    app: u16,
    class: Class,
    /// Whom a held one waits for.
    culprit: u8,
}

/// A dispatch in service.
#[derive(Clone, Copy)]
struct Begun {
    at: Time,
    /// For how long it was in service before it was accounted, as clocks count.
    earlier: i64,
    /// Its first application, and how many of its requests go first.
    app: u16,
    requests: u32,
    /// Of the device's time that is its own, the part that it spends on positioning that another one has made necessary, and who.
    positioning: u64,
    culprit: u8,
    /// [`Clocks::total`] and [`Clocks::own`], and the application's clock, when it began; `None`: it is not in service.
    since: Option<(i64, i64)>,
    clock: i128,
}

/// One part of a dispatch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartOf {
    pub(crate) slot: SlotId,
    pub(crate) bytes: u32,
}

/// What a dispatch is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    /// File and operation, as a number.
    pub(crate) queue: u32,
    pub(crate) offset: u64,
    pub(crate) end: u64,
    /// What a jump costs more than going on.
    pub(crate) jump: Span,
}

/// Some of the accounts of a gate, as whoever asks is told: a reply has room for so many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Page {
    /// When these are the accounts, on the gate's clock.
    pub at: Time,
    /// Since when they are kept.
    pub began: Time,
    /// What part of the time they are of, and have to be [scaled](Sampled::scaled) by; `None`: of all of it.
    pub sampled: Option<Sampled>,
    /// The accounts.
    // The name is new where amounts may have to be scaled: who does not know of that cannot read them.
    #[cfg_attr(feature = "serde", serde(rename = "amounts"))]
    pub accounts: Vec<Account>,
    /// What their applications are called.
    pub names: Vec<(AppId, String)>,
    /// What to ask for next; `None`: these were the last.
    pub next: Option<u32>,
}

/// Whether what an account charges to somebody is as much as the `most` that it charges to anybody else, as far as it can tell: nearer
/// than 15 %, which is what its amounts are to be believed to.
pub fn is_as_much(charged: f64, most: f64) -> bool {
    charged >= 0.85 * most
}

/// Accounts in a [`Page`]: as JSON, with names of 100 bytes, they have less than 60 KiB.
pub const PAGE_ACCOUNTS: u32 = 40;

/// The accounts of a gate's applications.
pub(crate) struct Blame {
    /// Since when there are any.
    began: Time,
    how: Accounting,
    /// Whether what happens is booked; it is not between samples.
    is_open: bool,
    presence: Presence,
    clocks: Clocks,
    /// The first is of all that have none of their own.
    apps: Vec<App>,
    of_app: HashMap<AppId, u16>,
    /// The application of the last request, which is often that of the next.
    recent: (AppId, u16),
    /// Who has a column.
    columns: [Option<u16>; COLUMNS],
    /// What a jump costs, by operation.
    jumps: [Span; 2],
    /// By slot.
    entries: Vec<Entry>,
    /// By number of the dispatch.
    begun: Vec<Begun>,
    /// Whose dispatch was the last, and whose the last one before that was somebody else's.
    last: u16,
    before: u16,
    /// Whose requests have changed at this instant, and what they were before.
    changed: Vec<(u16, Counts)>,
    /// For the gate to fill.
    pub(crate) parts: Vec<PartOf>,
}

impl Blame {
    /// Nothing is in the gate.
    pub(crate) fn new(now: Time, how: Accounting, prices: &Prices) -> Blame {
        Blame {
            began: now,
            how,
            is_open: true,
            presence: Presence::default(),
            clocks: Clocks::new(now),
            apps: [App::new(AppId::default(), 0)].into(),
            of_app: HashMap::default(),
            recent: (AppId::default(), 0),
            columns: [None; COLUMNS],
            jumps: jumps(prices),
            entries: Vec::new(),
            begun: Vec::new(),
            last: 0,
            before: 0,
            changed: Vec::new(),
            parts: Vec::new(),
        }
    }

    /// What a jump costs more than going on.
    pub(crate) fn jump(&self, op: Op) -> Span {
        self.jumps[op as usize]
    }

    pub(crate) fn how(&self) -> Accounting {
        self.how
    }

    fn is_sampled(&self) -> bool {
        self.how == Accounting::Sampled
    }

    /// Something is in the gate from now on.
    pub(crate) fn enters(&mut self, now: Time) {
        self.presence.enters(now, self.is_open);
    }

    /// Nothing is in the gate from now on.
    pub(crate) fn leaves(&mut self, now: Time) {
        self.presence.leaves(now);
    }

    /// A sample begins: who has closed books is to [place](Blame::place) what is in the gate.
    pub(crate) fn opens(&mut self, at: Time) {
        self.is_open = true;
        self.presence.opens(at);
        self.clocks.now = at;
    }

    /// A sample ends, or so many that were all alike: to what was booked nothing is added by what is in the gate.
    pub(crate) fn closes(&mut self, at: Time, samples: u64) {
        self.advance(at);
        self.book();
        self.presence.closes(at, samples);
        for app in self.apps.iter_mut().filter(|app| !app.is_idle()) {
            app.settle(&self.clocks);
            app.empty();
        }
        for entry in self.entries.drain(..).filter(|entry| entry.class == Class::Held) {
            self.apps[usize::from(entry.app)].release(&self.clocks, entry.culprit);
        }
        for begun in &mut self.begun {
            self.apps[usize::from(begun.app)].charge_positioning(&self.clocks, begun);
            begun.since = None;
        }
        self.clocks.empty();
        self.is_open = false;
    }

    /// Goes on to `now`.
    #[inline]
    fn advance(&mut self, now: Time) {
        if now > self.clocks.now && self.is_open {
            self.book();
            self.clocks.advance(now);
        }
    }

    /// Books what has changed at this instant.
    #[inline]
    fn book(&mut self) {
        for (index, was) in self.changed.drain(..) {
            self.apps[usize::from(index)].book_changes(&self.clocks, &was);
        }
    }

    /// Requests of an application go from one class to another.
    #[inline]
    fn shift(&mut self, index: u16, from: Class, to: Class, count: u32) {
        let this = &mut self.apps[usize::from(index)];
        if let Some(was) = this.begin_change(&self.clocks) {
            self.changed.push((index, was));
        }
        this.shift(from, to, count);
    }

    /// What the device charges is known better.
    pub(crate) fn set_prices(&mut self, now: Time, prices: &Prices) {
        self.advance(now);
        self.jumps = jumps(prices);
    }

    /// A request has come, or goes to another place.
    #[inline]
    pub(crate) fn place(&mut self, now: Time, slot: SlotId, app: AppId, place: Place) {
        self.advance(now);
        let before = self.entry(slot);
        let index = if before.class == Class::None { self.open(app) } else { before.app };
        let (class, culprit) = match place {
            Place::Held(blocker) => match self.entry(blocker).app {
                own if own == index => (Class::HeldOwn, REST),
                other => (Class::Held, self.column_of(other)),
            },
            Place::Deferred => (Class::Deferred, REST),
            Place::Queued => (Class::Queued, REST),
        };
        if before.class == class && class != Class::Held {
            return;
        }
        if self.entries.len() <= slot as usize {
            self.entries.resize(slot as usize + 1, Entry { app: 0, class: Class::None, culprit: REST });
        }
        self.entries[slot as usize] = Entry { app: index, class, culprit };
        if before.class == Class::Held {
            self.apps[usize::from(index)].release(&self.clocks, before.culprit);
        }
        self.shift(index, before.class, class, 1);
        if class == Class::Held {
            self.apps[usize::from(index)].hold(&self.clocks, culprit);
        }
    }

    /// What the gate waits for has changed.
    #[inline]
    pub(crate) fn stands(&mut self, now: Time, standing: Standing) {
        self.advance(now);
        self.clocks.standing = standing;
    }

    /// The gate waits deliberately, for this application or else for the one that was dispatched last.
    pub(crate) fn waits(&mut self, now: Time, app: Option<AppId>) {
        let index = app.and_then(|app| self.of_app.get(&app).copied()).unwrap_or(self.last);
        self.stands(now, Standing::Waits(self.column_of(index)));
    }

    /// The deferred requests of an application wait for its cap now, or for others.
    pub(crate) fn capped(&mut self, now: Time, app: AppId, is_capped: bool) {
        self.advance(now);
        let Some(&index) = self.of_app.get(&app) else { return };
        if self.apps[usize::from(index)].is_capped != is_capped {
            self.book();
            self.apps[usize::from(index)].set_capped(&self.clocks, is_capped);
        }
    }

    /// There are other caps, or none: who waits for one is said again.
    pub(crate) fn nobody_capped(&mut self, now: Time) {
        self.advance(now);
        self.book();
        for app in self.apps.iter_mut().filter(|app| app.is_capped) {
            app.set_capped(&self.clocks, false);
        }
    }

    /// A dispatch goes into service, with this slot first: notes what is known of it between samples, too.
    #[inline]
    pub(crate) fn notes(&mut self, now: Time, id: u32, app: AppId, slot: SlotId, range: &Range) {
        self.advance(now);
        let entry = self.entry(slot);
        let index = if entry.class == Class::None { self.open(app) } else { entry.app };
        self.give_column(index);
        let culprit = self.column_of(self.last);
        let this = &mut self.apps[usize::from(index)];
        this.dispatches += 1;
        let goes_on = this.goes_on(range.queue, range.offset);
        this.remember(range.queue, range.end);
        // Without the last one it would have gone on where it was; of several that came between, none alone is to blame.
        let is_displaced = goes_on && self.last != index && self.before == index;
        let positioning = if is_displaced { this.share_of(range.jump) } else { 0 };
        let begun = Begun {
            at: now,
            earlier: 0,
            app: index,
            requests: 0,
            positioning,
            culprit,
            since: None,
            clock: 0,
        };
        if self.begun.len() <= id as usize {
            self.begun.resize(id as usize + 1, begun);
        }
        self.begun[id as usize] = begun;
        if self.last != index {
            (self.before, self.last) = (self.last, index);
        }
    }

    /// What has been noted of a dispatch is accounted from now on.
    pub(crate) fn begins(&mut self, now: Time, id: u32, parts: &[PartOf]) {
        self.advance(now);
        let (Some(first), Some(&noted)) = (parts.first(), self.begun.get(id as usize)) else { return };
        let index = self.entry(first.slot).app;
        let of_first = |part: &&PartOf| self.entries[part.slot as usize].app == index;
        let requests = parts.iter().take_while(of_first).count() as u32;
        let clock = self.apps[usize::from(index)].clock_at(&self.clocks);
        let since = Some((self.clocks.total, self.clocks.own));
        let earlier = Clocks::ticks(now.since(noted.at));
        let begun = Begun { app: index, requests, earlier, since, clock, ..noted };
        self.begun[id as usize] = begun;
        self.weigh(&begun, parts, true);
        self.move_parts(parts, Class::Served);
    }

    /// A dispatch has ended.
    pub(crate) fn ends(&mut self, now: Time, id: u32, parts: &[PartOf]) {
        self.advance(now);
        let Some(&begun) = self.begun.get(id as usize) else { return };
        let this = &mut self.apps[usize::from(begun.app)];
        this.charge_positioning(&self.clocks, &begun);
        this.learn_took(&self.clocks, &begun);
        self.weigh(&begun, parts, false);
        self.move_parts(parts, Class::None);
        self.begun[id as usize].since = None;
    }

    /// Adds a dispatch to what is in service, or takes it away: it counts for its applications by their bytes, and for who is to blame
    /// for its positioning.
    fn weigh(&mut self, begun: &Begun, parts: &[PartOf], begins: bool) {
        let all: u64 = parts.iter().map(|part| u64::from(part.bytes)).sum();
        let add = |to: &mut u32, weight: u32| *to = if begins { *to + weight } else { *to - weight };
        let mut positioning = begun.positioning;
        let app = |part: &PartOf| self.entries[part.slot as usize].app;
        for of_app in parts.chunk_by(|a, b| app(a) == app(b)) {
            let index = app(&of_app[0]);
            let bytes: u64 = of_app.iter().map(|part| u64::from(part.bytes)).sum();
            let weight = match of_app.len() == parts.len() {
                true => 1 << WHOLE_BITS,
                false => ((bytes << WHOLE_BITS) / all.max(1)) as u32,
            };
            let theirs = ((u64::from(weight) * core::mem::take(&mut positioning)) >> 32) as u32;
            let this = &mut self.apps[usize::from(index)];
            add(&mut this.serving, weight - theirs);
            add(&mut self.clocks.weights[usize::from(this.column)], weight - theirs);
            add(&mut self.clocks.weights[usize::from(begun.culprit)], theirs);
        }
        self.clocks.set_in_service(if begins {
            self.clocks.in_service + 1
        } else {
            self.clocks.in_service - 1
        });
    }

    fn move_parts(&mut self, parts: &[PartOf], class: Class) {
        let mut rest = parts;
        while let [first, ..] = rest {
            let this = self.entries[first.slot as usize];
            let is_its = |part: &&PartOf| self.entries[part.slot as usize].app == this.app;
            let count = rest.iter().take_while(is_its).count();
            self.shift(this.app, this.class, class, count as u32);
            rest = &rest[count..];
        }
        for part in parts {
            self.entries[part.slot as usize].class = class;
        }
    }

    fn entry(&self, slot: SlotId) -> Entry {
        let none = Entry { app: 0, class: Class::None, culprit: REST };
        self.entries.get(slot as usize).copied().unwrap_or(none)
    }

    fn column_of(&self, index: u16) -> u8 {
        self.apps[usize::from(index)].column
    }

    /// The account of an application, a new one if need be.
    #[inline]
    fn open(&mut self, app: AppId) -> u16 {
        if self.recent == (app, self.recent.1) && self.recent.1 != 0 {
            return self.recent.1;
        }
        let index = self.of_app.get(&app).copied().unwrap_or_else(|| self.begin_account(app));
        self.recent = (app, index);
        index
    }

    #[cold]
    fn begin_account(&mut self, app: AppId) -> u16 {
        let now = self.clocks.total;
        if self.apps.len() <= APPS_MAX {
            self.apps.push(App::new(app, now));
            let index = (self.apps.len() - 1) as u16;
            self.of_app.insert(app, index);
            return index;
        }
        // The one that has been away for longest.
        self.book();
        let idle = (1..self.apps.len()).filter(|&index| self.apps[index].is_idle());
        let Some(index) = idle.min_by_key(|&index| self.apps[index].at) else { return 0 };
        if let Some(column) = self.columns.iter().position(|of| *of == Some(index as u16)) {
            self.take_column(column as u8);
        }
        let gone = core::mem::replace(&mut self.apps[index], App::new(app, now));
        self.apps[0].merge(&gone);
        self.of_app.remove(&gone.app);
        self.of_app.insert(app, index as u16);
        for of in [&mut self.last, &mut self.before] {
            if usize::from(*of) == index {
                *of = 0;
            }
        }
        index as u16
    }

    /// An application that is dispatched is told apart from now on, if there is room.
    #[inline]
    fn give_column(&mut self, index: u16) {
        if self.apps[usize::from(index)].column == REST && index != 0 {
            self.find_column(index);
        }
    }

    #[cold]
    fn find_column(&mut self, index: u16) {
        self.book();
        let now = self.clocks.total;
        // The clocks of samples are slower.
        let kept = Clocks::ticks(COLUMN_KEPT) / if self.is_sampled() { PARTS as i64 } else { 1 };
        let away = |of: &Option<u16>| match of {
            None => Some(i64::MIN),
            Some(of) => {
                let of = &self.apps[usize::from(*of)];
                (of.is_idle() && now - of.at >= kept).then_some(of.at)
            }
        };
        let free = self.columns.iter().zip(0u8..).filter_map(|(of, column)| Some((away(of)?, column)));
        let Some((_, column)) = free.min() else { return };
        self.take_column(column);
        // What was its own was among the others while it was.
        let all = usize::from(index);
        let account = self.some(self.clocks.now, all..all + 1).pop();
        let own = account.map_or(Span::ZERO, |account| account.charged_to(self.apps[all].app));
        self.columns[usize::from(column)] = Some(index);
        self.clocks.used = self.clocks.used.max(usize::from(column) + 1);
        let this = &mut self.apps[usize::from(index)];
        this.give_back(own, column);
        this.set_column(&self.clocks, column);
        self.clocks.weights[usize::from(REST)] -= this.serving;
        self.clocks.weights[usize::from(column)] += this.serving;
    }

    /// All that was charged to a column goes to the rest.
    fn take_column(&mut self, column: u8) {
        for app in &mut self.apps {
            app.give_up_column(&self.clocks, column);
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.class == Class::Held) {
            if entry.culprit == column {
                entry.culprit = REST;
            }
        }
        for begun in self.begun.iter_mut().filter(|begun| begun.culprit == column) {
            begun.culprit = REST;
        }
        if let Some(before) = self.columns[usize::from(column)].take() {
            self.apps[usize::from(before)].set_column(&self.clocks, REST);
        }
        self.clocks.give_up_column(column);
    }

    /// All accounts up to `now`.
    pub(crate) fn accounts(&self, now: Time) -> Vec<Account> {
        self.some(now, 0..self.apps.len())
    }

    /// The accounts from number `from` on, as many as a page has.
    pub(crate) fn page(&self, now: Time, from: u32) -> Page {
        let all = self.apps.len();
        let first = (from as usize).min(all);
        let end = (first + PAGE_ACCOUNTS as usize).min(all);
        Page {
            at: now,
            began: self.began,
            sampled: self.is_sampled().then(|| self.presence.sampled(now)),
            accounts: self.some(now, first..end),
            names: Vec::new(),
            next: (end < all).then_some(end as u32),
        }
    }

    /// Those of some applications, by number.
    fn some(&self, now: Time, which: core::ops::Range<usize>) -> Vec<Account> {
        let mut clocks = self.clocks.clone();
        let mut raw = self.apps[which.clone()].to_vec();
        let at = |app: u16| usize::from(app).checked_sub(which.start).filter(|at| *at < which.len());
        for (index, was) in &self.changed {
            if let Some(at) = at(*index) {
                raw[at].book_changes(&clocks, was);
            }
        }
        clocks.advance(now);
        raw.iter_mut().for_each(|app| app.settle(&clocks));
        for entry in self.entries.iter().filter(|entry| entry.class == Class::Held) {
            if let Some(at) = at(entry.app) {
                raw[at].release(&clocks, entry.culprit);
            }
        }
        for begun in &self.begun {
            if let Some(at) = at(begun.app) {
                raw[at].charge_positioning(&clocks, begun);
            }
        }
        let names = self.columns.map(|of| of.map(|of| self.apps[usize::from(of)].app));
        let known = which.zip(&raw).filter(|(_, app)| app.busy > 0 || app.dispatches > 0);
        known.map(|(index, app)| app.account((index > 0).then_some(app.app), &names)).collect()
    }

    /// Bytes of memory in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        size_of::<Blame>()
            + self.apps.capacity() * size_of::<App>()
            + self.of_app.allocation_size()
            + self.entries.capacity() * size_of::<Entry>()
            + self.begun.capacity() * size_of::<Begun>()
    }
}

fn jumps(prices: &Prices) -> [Span; 2] {
    [Op::Read, Op::Write].map(|op| prices.saving(op, 0))
}
