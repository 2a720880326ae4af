//! Whose requests the scheduler may see.
//!
//! O(log n) for n applications that wait, a lot; O(1) a request of an open lot, and a look into a table by application.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::Policy;
use super::bucket::Bucket;
use crate::hash::HashMap;
use crate::request::AppId;
use crate::stats::Recent;
use crate::time::{Span, Time};
use crate::wait::WaitReason;

/// An application that has something in the gate, or had recently. Requests of unknown applications, and of those beyond
/// [`CLASSES_MAX`], are in the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(pub(crate) u16);

impl ClassId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Most applications that have something in the gate and are told apart.
const CLASSES_MAX: usize = 1 << 16;
/// Idle applications whose debts are kept.
const IDLE_MAX: usize = 4096;
/// How many of them are looked at for one that may be forgotten.
const LOOKS_MAX: usize = 32;
/// A lot where nothing is known of the device.
const LOT: Span = Span::from_millis(2);
/// A lot in jumps: at most a twentieth of the time goes into going from one application to the next.
const LOT_JUMPS: u64 = 20;
/// What may be ahead of a cap.
pub(super) const CAP_BURST: Span = Span::from_millis(5);
/// No lot is held open for somebody who thinks for longer.
const THINK_MAX: u64 = 8_000_000;
/// Tags are device time in 2^-10 ns, divided by the weight.
const TAG_BITS: u32 = 10;

/// What to do for the applications that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Admit the first request of this one, then more while it [goes on](Arbiter::goes_on).
    Admit(ClassId),
    /// Ask again then.
    Wait(Time, WaitReason),
    /// Nobody may.
    Idle,
}

/// Start-time fair queueing over lots, with caps and floors.
pub(crate) struct Arbiter {
    pub(super) policy: Policy,
    lot: Span,
    /// One lot at a time, as going from one application to the next costs something.
    one_at_a_time: bool,
    pub(super) classes: Vec<Class>,
    free: Vec<ClassId>,
    pub(super) of_app: HashMap<AppId, ClassId>,
    /// What applications are allotted, whether they have a class or not.
    pub(super) allotments: HashMap<AppId, u64>,
    /// Whether somebody has come since somebody asked who has nothing, as nothing is allotted to it.
    pub(super) has_lack: bool,
    /// Where the search for an idle class goes on.
    hand: usize,
    /// Those that wait and may have a lot, by start tag.
    ready: BTreeSet<(u128, ClassId)>,
    /// Those that wait for their cap.
    capped: BTreeSet<(Time, ClassId)>,
    /// Those that wait and have a floor, by when the next request is due.
    due: BTreeSet<(Time, ClassId)>,
    /// The start tag of the lot that was opened last.
    virtual_time: u128,
    /// The largest tag that a completion has led to: the virtual time when nobody asks for anything any more.
    finish_max: u128,
    /// Whose lot that was.
    last: Option<ClassId>,
    /// Requests that are admitted and not completed.
    admitted: usize,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Class {
    pub(super) app: AppId,
    /// Start tag of its next lot, if it waited all the time.
    finish: u128,
    /// The virtual time when it began to wait.
    since: u128,
    /// Its key in `ready`, `capped` and `due`, if it is there.
    ready: Option<u128>,
    capped: Option<Time>,
    due: Option<Time>,
    /// Device time left of its lot, in nanoseconds.
    budget: u64,
    /// What a request of it takes, and what is in `finish` for those that are not completed, as a tag.
    estimate: u64,
    outstanding: u128,
    /// From a completion that leaves it without a request to its next request, and when the last such was.
    think: u64,
    idle_since: Time,
    waiting: u32,
    admitted: u32,
    pub(super) cap: Bucket,
    floor: Bucket,
    /// Device time that it was charged of late, in nanoseconds.
    recent: Recent<1>,
    /// Where caps are shared: what it is allotted, if that is not nothing; else what it was before.
    pub(super) allotted: Option<NonZeroU64>,
    /// Nothing of it may go: nothing is allotted to it.
    pub(super) is_stopped: bool,
    /// Bytes that were admitted; that wait.
    pub(super) admitted_bytes: u64,
    pub(super) waiting_bytes: u64,
    /// Since when it waits for its cap, if it does, and for how long it has before.
    pub(super) capped_since: Option<Time>,
    pub(super) capped_for: Span,
}

impl Class {
    pub(super) fn new(app: AppId) -> Class {
        Class { app, ..Class::default() }
    }

    fn is_idle(&self) -> bool {
        self.waiting == 0 && self.admitted == 0
    }
}

impl Arbiter {
    /// Nobody waits. `jump` is what the device charges for going from one stream to another, as far as that is known.
    pub(crate) fn new(policy: &Policy, jump: Span) -> Arbiter {
        let mut arbiter = Arbiter {
            policy: policy.clone(),
            lot: LOT,
            one_at_a_time: false,
            classes: Vec::new(),
            free: Vec::new(),
            of_app: HashMap::default(),
            allotments: HashMap::default(),
            has_lack: false,
            hand: 1,
            ready: BTreeSet::new(),
            capped: BTreeSet::new(),
            due: BTreeSet::new(),
            virtual_time: 0,
            finish_max: 0,
            last: None,
            admitted: 0,
        };
        arbiter.classes.push(arbiter.allotted_class(AppId::default()));
        arbiter.set_jump(jump);
        arbiter
    }

    /// What the device charges for a jump is known better.
    pub(crate) fn set_jump(&mut self, jump: Span) {
        self.one_at_a_time = jump > Span::ZERO;
        let jumps = Span::from_nanos(jump.as_nanos().saturating_mul(LOT_JUMPS));
        let by_default = if self.one_at_a_time { jumps } else { LOT };
        self.lot = self.policy.lot.unwrap_or(by_default);
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A request that is in the gate already, and that the scheduler has had, is of this class.
    pub(crate) fn adopt(&mut self, app: AppId) -> ClassId {
        let id = self.open(app);
        self.classes[id.index()].admitted += 1;
        self.admitted += 1;
        id
    }

    /// A request that may run has come. True if it is admitted; else it waits behind the others of its class.
    pub(crate) fn arrives(&mut self, now: Time, app: AppId, bytes: u64) -> (ClassId, bool) {
        let id = self.open(app);
        if self.classes[id.index()].is_idle() {
            self.end_think(now, id);
        }
        let is_alone = self.ready.is_empty() && self.admitted == self.classes[id.index()].admitted as usize;
        let class = &mut self.classes[id.index()];
        let conforms = class.conforms_at() <= now;
        // Who is alone has a lot's worth of requests admitted at any time: no run of its own ends where a lot would.
        let ahead = class.estimate.saturating_mul(class.admitted.into());
        let begins = is_alone && (class.admitted == 0 || class.estimate > 0 && ahead < self.lot.as_nanos());
        if class.waiting == 0 && conforms && (class.budget > 0 || begins) {
            if class.budget == 0 {
                class.since = self.virtual_time;
                self.begin_lot(id);
            }
            self.take(now, id, bytes);
            return (id, true);
        }
        class.waiting += 1;
        class.waiting_bytes += bytes;
        self.has_lack |= class.is_stopped;
        if class.waiting == 1 {
            class.since = self.virtual_time;
            class.floor.begin(now);
            self.rank(now, id);
        }
        (id, false)
    }

    /// Whose request to admit now. If the scheduler has something `to_do`, only those of floors that are due.
    pub(crate) fn next(&mut self, now: Time, to_do: bool) -> Next {
        while let Some(&(at, id)) = self.capped.first().filter(|(at, _)| *at <= now) {
            self.rank(now, id);
            debug_assert!(self.capped.first() != Some(&(at, id)), "it conforms by then");
        }
        if let Some(&(_, id)) = self.due.first().filter(|(at, _)| *at <= now) {
            return Next::Admit(id);
        }
        let capped = self.capped.first().map(|(at, _)| *at);
        let due = self.due.first().map(|(at, _)| *at);
        let soonest = [capped, due].into_iter().flatten().min();
        let idle = soonest.map_or(Next::Idle, |at| Next::Wait(at, WaitReason::Cap));
        if to_do {
            return idle;
        }
        if let Some(last) = self.last.filter(|_| self.one_at_a_time) {
            let class = &mut self.classes[last.index()];
            if class.budget > 0 && class.ready.is_none() && class.capped.is_none() {
                // It is the only one in service, or will be back before another one were worth it.
                let back = class.idle_since + Span::from_nanos(2 * class.think);
                if class.admitted > 0 {
                    return idle;
                }
                if class.think < class.estimate.min(THINK_MAX) && back > now && !self.ready.is_empty() {
                    let until = soonest.map_or(back, |at| at.min(back));
                    return Next::Wait(until, WaitReason::Share);
                }
                self.charge_wait(now, last);
                self.classes[last.index()].budget = 0;
            }
        }
        let Some(&(_, id)) = self.ready.first() else { return idle };
        self.begin_lot(id);
        Next::Admit(id)
    }

    /// A request of those that wait is admitted: as [`Arbiter::next`] says, or because another one waits for it.
    pub(crate) fn admit(&mut self, now: Time, id: ClassId, bytes: u64) {
        let class = &mut self.classes[id.index()];
        class.waiting -= 1;
        class.waiting_bytes -= bytes;
        self.take(now, id, bytes);
        self.rank(now, id);
    }

    /// Whether the next request of a class may follow the one that was admitted.
    pub(crate) fn goes_on(&self, id: ClassId) -> bool {
        let class = &self.classes[id.index()];
        class.budget > 0 && class.waiting > 0 && class.capped.is_none()
    }

    /// Requests of a class are completed, which took so much device time, in nanoseconds.
    pub(crate) fn completed(&mut self, now: Time, id: ClassId, requests: u32, took: u64) {
        let weight = self.weight(id);
        let class = &mut self.classes[id.index()];
        self.admitted -= requests as usize;
        class.recent.add(now, [took]);
        let estimated = class.outstanding * u128::from(requests) / u128::from(class.admitted.max(1));
        class.admitted -= requests;
        class.outstanding -= estimated;
        class.finish = (class.finish + tag(took, weight)).saturating_sub(estimated);
        let each = (took / u64::from(requests.max(1))).max(1);
        class.estimate = if class.estimate == 0 { each } else { (class.estimate * 7 + each).div_ceil(8) };
        if class.is_idle() {
            class.idle_since = now;
        }
        self.finish_max = self.finish_max.max(class.finish);
        if class.ready.is_some() {
            self.rank(now, id);
        }
        if self.admitted == 0 && self.ready.is_empty() && self.capped.is_empty() {
            self.virtual_time = self.virtual_time.max(self.finish_max);
        }
    }

    /// For whom the open lot is.
    pub(crate) fn lot_of(&self) -> Option<AppId> {
        self.last.map(|last| self.classes[last.index()].app)
    }

    /// The application of a class, and whether it waits for its cap.
    pub(crate) fn is_capped(&self, id: ClassId) -> (AppId, bool) {
        let class = &self.classes[id.index()];
        (class.app, class.capped.is_some())
    }

    /// The applications that have waited for their cap for long enough.
    pub(crate) fn uncapped(&self, now: Time) -> impl Iterator<Item = AppId> + '_ {
        let over = self.capped.iter().take_while(move |(at, _)| *at <= now);
        over.map(|(_, id)| self.classes[id.index()].app)
    }

    /// Somebody is back, or comes for the first time.
    fn end_think(&mut self, now: Time, id: ClassId) {
        self.charge_wait(now, id);
        let class = &mut self.classes[id.index()];
        if class.estimate == 0 {
            // It has not been there before: nothing says how long it thinks.
            return;
        }
        let thought = now.since(class.idle_since).as_nanos().min(2 * THINK_MAX);
        class.think = if class.think == 0 { thought } else { (class.think * 7 + thought) / 8 };
    }

    /// While its lot is open and it has no request, others wait for it: that is its time, too.
    fn charge_wait(&mut self, now: Time, id: ClassId) {
        if !self.one_at_a_time || self.last != Some(id) || self.ready.is_empty() {
            return;
        }
        let weight = self.weight(id);
        let class = &mut self.classes[id.index()];
        let waited = now.since(class.idle_since).as_nanos().min(class.budget);
        class.budget -= waited;
        class.finish += tag(waited, weight);
    }

    fn weight(&self, id: ClassId) -> u32 {
        self.policy.of(self.classes[id.index()].app).weight
    }

    fn begin_lot(&mut self, id: ClassId) {
        let lot = self.lot.as_nanos();
        let class = &mut self.classes[id.index()];
        let start = class.finish.max(class.since);
        class.finish = start;
        class.budget = lot;
        self.virtual_time = self.virtual_time.max(start);
        self.last = Some(id);
    }

    fn take(&mut self, now: Time, id: ClassId, bytes: u64) {
        let app = self.classes[id.index()].app;
        let entitlement = self.policy.of(app);
        let (weight, min, mut max) = (entitlement.weight, entitlement.min, entitlement.max);
        let class = &mut self.classes[id.index()];
        max.bytes = class.allotted.or(max.bytes);
        class.admitted_bytes += bytes;
        // Of one of which nothing is known yet, one request is enough.
        let estimate = if class.estimate == 0 { class.budget } else { class.estimate };
        class.budget = class.budget.saturating_sub(estimate.max(1));
        let ahead = tag(class.estimate, weight);
        class.outstanding += ahead;
        class.finish += ahead;
        class.admitted += 1;
        if !max.is_none() {
            class.cap.take(now, max.cost(bytes));
        }
        if !min.is_none() {
            class.floor.take_due(now, min.cost(bytes));
        }
        self.admitted += 1;
    }

    /// Puts a class where it is to be found, by what it waits for.
    pub(super) fn rank(&mut self, now: Time, id: ClassId) {
        let min = self.policy.of(self.classes[id.index()].app).min;
        let class = &mut self.classes[id.index()];
        let waits = class.waiting > 0;
        let conforms = class.conforms_at();
        let is_capped = waits && conforms > now;
        class.note_capped(now, is_capped);
        let ready = (waits && !is_capped).then(|| class.finish.max(class.since));
        let capped = is_capped.then_some(conforms);
        let due = (waits && !is_capped && !min.is_none()).then(|| class.floor.conforms_at(Span::ZERO));
        replace(&mut self.ready, &mut class.ready, ready, id);
        replace(&mut self.capped, &mut class.capped, capped, id);
        replace(&mut self.due, &mut class.due, due, id);
    }

    /// The class of an application, a new one if need be.
    fn open(&mut self, app: AppId) -> ClassId {
        if app == AppId::default() {
            return ClassId::default();
        }
        if let Some(&id) = self.of_app.get(&app) {
            return id;
        }
        if self.of_app.len() >= IDLE_MAX {
            self.forget_one();
        }
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.classes.len() < CLASSES_MAX => {
                self.classes.push(Class::default());
                ClassId((self.classes.len() - 1) as u16)
            }
            None => return ClassId::default(),
        };
        self.classes[id.index()] = self.allotted_class(app);
        self.of_app.insert(app, id);
        id
    }

    /// Forgets an application that has nothing in the gate and no debt that counts.
    fn forget_one(&mut self) {
        for _ in 0..LOOKS_MAX {
            self.hand = if self.hand + 1 < self.classes.len() { self.hand + 1 } else { 1 };
            let class = &self.classes[self.hand];
            let id = ClassId(self.hand as u16);
            let is_known = self.of_app.get(&class.app) == Some(&id);
            if is_known && class.is_idle() && class.finish <= self.virtual_time {
                self.of_app.remove(&class.app);
                self.free.push(id);
                return;
            }
        }
    }

    /// Of an application: its requests that wait to be admitted, and the device time that it was charged in the last second, in ns.
    pub(crate) fn of(&self, now: Time, app: AppId) -> (u32, u64) {
        let id = match self.of_app.get(&app) {
            Some(id) => *id,
            None if app == AppId::default() => ClassId::default(),
            None => return (0, 0),
        };
        let class = &self.classes[id.index()];
        (class.waiting, class.recent.rates(now)[0])
    }

    /// Bytes of memory in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let entries = self.ready.len() + self.capped.len() + self.due.len();
        self.classes.capacity() * size_of::<Class>()
            + self.of_app.allocation_size()
            + self.allotments.allocation_size()
            + self.free.capacity() * size_of::<ClassId>()
            + entries * size_of::<(u128, ClassId)>()
    }
}

/// Device time as a tag.
fn tag(ns: u64, weight: u32) -> u128 {
    (u128::from(ns) << TAG_BITS) / u128::from(weight)
}

/// Moves a class in a list from one key to another.
fn replace<K: Ord + Copy>(
    list: &mut BTreeSet<(K, ClassId)>,
    key: &mut Option<K>,
    new: Option<K>,
    id: ClassId,
) {
    if *key == new {
        return;
    }
    if let Some(old) = key.take() {
        list.remove(&(old, id));
    }
    if let Some(new) = new {
        list.insert((new, id));
        *key = Some(new);
    }
}
