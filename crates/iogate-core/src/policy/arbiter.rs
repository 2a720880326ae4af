//! Whose requests the scheduler may see.
//!
//! O(log n) for n applications that wait, a lot; O(1) a request of an open lot, and a look into a table by application. Within branches,
//! that times their depth.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem::offset_of;

use super::limits::Limits;
use super::lots::{LATE, THINK_MAX};
use super::nested::{Inner, InnerId};
use super::order::{part, tag};
use super::preempt::{Preemption, Reach};
use super::ready::TagHeaps;
use super::{Entitlement, Leaf, Policy};
use crate::hash::HashMap;
use crate::request::AppId;
use crate::stats::Recent;
use crate::time::{Span, Time};
use crate::wait::WaitReason;

/// An application that has something in the gate, or had recently. Requests of unknown applications, and of those beyond
/// [`CLASSES_MAX`], are in the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClassId(pub(crate) u16);

impl From<ClassId> for u32 {
    fn from(id: ClassId) -> u32 {
        id.0.into()
    }
}

impl ClassId {
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Most applications that have something in the gate and are told apart.
const CLASSES_MAX: usize = 1 << 16;
/// Idle applications that are remembered although they have no debts; as many as have some are.
const IDLE_MAX: usize = 4096;
/// How many of them are looked at for one that may be forgotten.
const LOOKS_MAX: usize = 32;
/// What may be ahead of a cap.
pub(super) const CAP_BURST: Span = Span::from_millis(5);
/// What is kept of one of a cap's two rates that could not be used because of the other.
const CAP_KEPT: Span = Span::from_millis(100);
/// What a floor makes up for, at most, of what it has missed, or a lot, if that is longer. When storage has hung, floors have missed all of
/// that time, and others would have nothing until it were made up for. As much may be ahead of one of a floor's two rates by the other.
const FLOOR_ACCOUNT: Span = Span::from_millis(100);

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

/// Requests of a class that are completed, and what they took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) requests: u32,
    pub(crate) bytes: u64,
    /// Device time, in nanoseconds.
    pub(crate) ns: u64,
    /// How long they were in service, the last one of them if there are several.
    pub(crate) lasted: Span,
}

/// What a class waits for, and what it has had.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    /// Its requests that wait to be admitted.
    pub(crate) deferred: u32,
    /// Device time that it was charged in the last second, in nanoseconds.
    pub(crate) ns_per_s: u64,
    /// For how long it has waited for its cap.
    pub(crate) capped: Span,
}

/// Start-time fair queueing over lots, with caps and floors.
pub(crate) struct Arbiter {
    pub(super) policy: Policy,
    pub(super) lot: Span,
    /// What going from one application to the next costs.
    pub(super) jump: Span,
    pub(super) classes: Vec<Class>,
    /// Beside each class.
    pub(super) limits: Vec<Limits>,
    pub(super) free: Vec<ClassId>,
    pub(super) of_app: HashMap<AppId, ClassId>,
    /// What classes are allotted, whether they are here or not.
    pub(super) allotments: HashMap<Leaf, u64>,
    /// Whether somebody has come since somebody asked who has nothing, as nothing is allotted to it.
    pub(super) has_lack: bool,
    /// Where the search for an idle class goes on.
    hand: usize,
    /// Those that wait and may have a lot, by start tag, or a lower one that they had before: a heap for each that they are within.
    pub(super) ready: TagHeaps,
    /// Those that wait for their cap.
    pub(super) capped: BTreeSet<(InnerId, Time, ClassId)>,
    /// Those that wait and have a floor, by what they are within and when the next request is due.
    pub(super) due: BTreeSet<(InnerId, Time, ClassId)>,
    /// What is within nothing, then each branch.
    pub(super) inners: Vec<Inner>,
    /// In which branches applications were placed, and whether some of these are none of this policy.
    pub(super) placed: HashMap<AppId, AppId>,
    pub(super) has_beside: bool,
    /// Whether an application that is not named may have a cap or a floor, be it in some branch or in none.
    pub(super) are_others_limited: bool,
    /// Branches that have come to wait for their cap, or wait no more.
    pub(super) toggled: Vec<ClassId>,
    /// For whom the lot is that was opened last.
    pub(super) last: Option<ClassId>,
    /// Since when a slot is kept free for it.
    pub(super) kept_since: Option<Time>,
    /// Device time left, in nanoseconds, of what was lent last: a run of no more goes.
    pub(super) lent: u64,
    /// How many wait that may preempt a lot.
    pub(super) may_preempt: usize,
    /// Who preempted the open lot last, until the way back is seen, and where the last dispatch of the lot ended.
    pub(super) preemption: Option<Preemption>,
    pub(super) reach: Option<Reach>,
    /// Requests that are admitted and not completed.
    pub(super) admitted: usize,
}

/// What each request asks of a class: two lines of the cache, and the next two are those of the next class, so that they come by themselves
/// where classes that came one after the other are served so. Whose tag is compared is in the first one.
#[derive(Clone, Debug, Default)]
#[repr(C, align(128))]
pub(super) struct Class {
    /// Start tag of its next lot, if it waited all the time.
    pub(super) finish: u128,
    /// The virtual time when it began to wait.
    pub(super) since: u128,
    /// What a request of it takes, in nanoseconds.
    pub(super) estimate: u64,
    pub(super) waiting: u32,
    pub(super) admitted: u32,
    /// Device time that was charged to those who have preempted its lots and that its own dispatches take, in nanoseconds: 4 s at most.
    pub(super) credit: u32,
    /// What it is within, and what is within it; nothing of an application.
    pub(super) within: InnerId,
    pub(super) inner: InnerId,
    /// Its weight, and whether it may have a cap or a floor, wherever it is: what it is entitled to says so, and is looked up once.
    pub(super) weight: u16,
    pub(super) is_limited: bool,
    /// Its oldest request that waits may preempt a lot: it came when no lot would have been kept for it. One that has is in service.
    pub(super) may_preempt: bool,
    pub(super) has_preempted: bool,
    /// What is in `finish` for requests that are not completed.
    pub(super) outstanding: u128,
    /// Device time left of its lot, in nanoseconds.
    pub(super) budget: u64,
    /// When a completion left it without a request, and from then to its next request, in nanoseconds: no more than is kept of one.
    pub(super) idle_since: Time,
    pub(super) think: u32,
    pub(super) app: AppId,
    /// Device time that it was charged of late, in nanoseconds.
    pub(super) recent: Recent<1>,
}

const _: () =
    assert!(offset_of!(Class, outstanding) == 64 && size_of::<Class>() == 128, "lines of the cache");
const _: () = assert!(2 * THINK_MAX <= u32::MAX as u64, "`Class::think`");

impl Class {
    pub(super) fn new(app: AppId) -> Class {
        Class { app, ..Class::default() }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.admitted == 0
    }

    /// The start tag of its next lot.
    pub(super) fn start_tag(&self) -> u128 {
        self.finish.max(self.since)
    }

    /// From when on it is away if it has no request.
    pub(super) fn late_from(&self) -> Time {
        self.idle_since + Span::from_nanos(self.think.into()) + LATE
    }
}

impl Arbiter {
    /// Nobody waits. `jump` is what the device charges for going from one stream to another, as far as that is known.
    pub(crate) fn new(policy: &Policy, jump: Span) -> Arbiter {
        let mut arbiter = Arbiter {
            policy: policy.clone(),
            lot: Span::ZERO,
            jump: Span::ZERO,
            classes: Vec::new(),
            limits: Vec::new(),
            free: Vec::new(),
            of_app: HashMap::default(),
            allotments: HashMap::default(),
            has_lack: false,
            hand: 1,
            ready: TagHeaps::default(),
            capped: BTreeSet::new(),
            due: BTreeSet::new(),
            inners: [Inner::around(policy.others)].into(),
            placed: HashMap::default(),
            has_beside: false,
            are_others_limited: policy.is_shared || policy.others_within().any(Entitlement::is_limited),
            toggled: Vec::new(),
            last: None,
            kept_since: None,
            lent: 0,
            may_preempt: 0,
            preemption: None,
            reach: None,
            admitted: 0,
        };
        arbiter.classes.push(Class::default());
        arbiter.limits.push(Limits::default());
        arbiter.entitle(ClassId::default());
        arbiter.go_by_allotment(Time::ZERO, ClassId::default());
        arbiter.open_branches();
        arbiter.set_jump(jump);
        arbiter
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A request that is in the gate already, and that the scheduler has had, is of this class.
    pub(crate) fn adopt(&mut self, now: Time, app: AppId) -> ClassId {
        let id = self.open(now, app);
        let mut at = Some(id);
        while let Some(of) = at {
            self.classes[of.index()].admitted += 1;
            at = self.branch_of(of);
        }
        self.admitted += 1;
        id
    }

    /// A request that may run has come. True if it is admitted; else it waits behind the others of its class.
    pub(crate) fn arrives(&mut self, now: Time, app: AppId, bytes: u64) -> (ClassId, bool) {
        let id = self.open(now, app);
        let may_preempt = self.classes[id.index()].is_idle() && self.end_think(now, id);
        let class = &self.classes[id.index()];
        let is_first = class.waiting == 0;
        if is_first && (class.budget > 0 || self.begins(class)) && self.all_conform_at(id) <= now {
            if class.budget == 0 {
                self.come(id);
                self.begin_lot(id);
            }
            if self.take(now, id, bytes) {
                self.rank_branches(now, id);
            }
            return (id, true);
        }
        let class = &mut self.classes[id.index()];
        if class.is_limited {
            let limits = &mut self.limits[id.index()];
            limits.waiting_bytes += bytes;
            self.has_lack |= limits.is_stopped;
        }
        if is_first {
            class.may_preempt = may_preempt;
            self.may_preempt += usize::from(may_preempt);
        }
        let mut at = Some(id);
        while let Some(of) = at {
            self.wait(now, of);
            // Who has something that waits already is where it is to be found, and so is what it is within.
            if is_first {
                self.rank_grown(now, of);
            }
            at = self.branch_of(of);
        }
        (id, false)
    }

    /// Whether a class that has no lot and nothing that waits has one opened by its next request, as it is alone. It has a lot's worth of
    /// requests admitted at any time: no run of its own ends where a lot would.
    fn begins(&self, class: &Class) -> bool {
        let is_alone = !self.is_asked() && self.admitted == class.admitted as usize;
        let ahead = || class.estimate.saturating_mul(class.admitted.into());
        is_alone && (class.admitted == 0 || class.estimate > 0 && ahead() < self.lot.as_nanos())
    }

    /// A request of those that wait is admitted: as [`Arbiter::next`] says, or because somebody else's waits for it.
    pub(crate) fn admit(&mut self, now: Time, id: ClassId, bytes: u64) {
        let class = &mut self.classes[id.index()];
        if class.is_limited {
            self.limits[id.index()].waiting_bytes -= bytes;
        }
        self.may_preempt -= usize::from(core::mem::take(&mut class.may_preempt));
        let estimate = self.spend(id, bytes);
        let mut at = Some(id);
        while let Some(of) = at {
            self.classes[of.index()].waiting -= 1;
            self.take_one(now, of, bytes, estimate);
            self.rank_grown(now, of);
            at = self.branch_of(of);
        }
    }

    /// Requests of a class are completed.
    pub(crate) fn completed(&mut self, now: Time, id: ClassId, mut served: Served) {
        self.admitted -= served.requests as usize;
        served.ns = self.charge_preemption(now, id, &served);
        let each =
            if served.requests > 1 { served.ns / u64::from(served.requests) } else { served.ns }.max(1);
        let class = &mut self.classes[id.index()];
        class.estimate = if class.estimate == 0 { each } else { (class.estimate * 7 + each).div_ceil(8) };
        let (mut at, mut is_misplaced) = (Some(id), false);
        while let Some(of) = at {
            is_misplaced |= self.settle(now, of, served);
            at = self.branch_of(of);
        }
        if is_misplaced {
            self.rank(now, id);
        }
        // Who is within something and waits has it wait, too, or wait for its cap.
        if self.admitted == 0 && !self.has_deferred() {
            self.inners[0].catch_up();
        }
    }

    /// Corrects by what it took what was charged to a class before. True if it may have its next lot before it would be found, or while
    /// caps run out; but where nobody waits for a cap or has a floor, it is put right here.
    fn settle(&mut self, now: Time, id: ClassId, Served { requests, bytes, ns: took, .. }: Served) -> bool {
        let class = &mut self.classes[id.index()];
        class.recent.add(now, [took]);
        let estimated = part(class.outstanding, requests, class.admitted);
        class.admitted -= requests;
        class.outstanding -= estimated;
        let before = class.finish;
        class.finish = (before + tag(took, class.weight.into())).saturating_sub(estimated);
        let (within, finish, inner, start) = (class.within, class.finish, class.inner, class.start_tag());
        let is_limited = class.is_limited;
        let is_idle = class.is_idle();
        if is_idle {
            class.idle_since = now;
        }
        if inner != InnerId::NONE {
            let inner = &mut self.inners[inner.index()];
            if is_idle {
                inner.catch_up();
            }
            inner.served(requests, bytes);
        }
        self.inners[within.index()].finished(finish);
        let is_capping = !self.capped.is_empty();
        if is_limited || is_capping || !self.due.is_empty() {
            return self.ready_key(id).is_some_and(|key| is_capping || key > start);
        }
        // While its tag only grows it is found by the one that it had.
        if finish < before {
            self.ready.lower_there(within.index(), id.0, start);
        }
        false
    }

    /// The application of a class, and whether it waits for its cap.
    pub(crate) fn is_capped(&self, id: ClassId) -> (AppId, bool) {
        let class = &self.classes[id.index()];
        (class.app, class.waiting > 0 && self.is_held_back(id))
    }

    /// Of those that wait for their cap, the first for which it is over by then: when that was, and which.
    pub(crate) fn first_over(&self, now: Time) -> Option<(Time, ClassId)> {
        self.capped.first().filter(|(_, at, _)| *at <= now).map(|(_, at, id)| (*at, *id))
    }

    /// That one waits for it no more.
    pub(crate) fn release_one(&mut self, now: Time) -> Option<(Time, ClassId)> {
        let (at, id) = self.first_over(now)?;
        self.rank(at, id);
        debug_assert!(self.capped.first().is_none_or(|first| (first.1, first.2) != (at, id)), "it conforms");
        Some((at, id))
    }

    /// The applications that wait, and whether they do for their cap. O(applications).
    pub(crate) fn caps(&self) -> impl Iterator<Item = (AppId, bool)> + '_ {
        let ids = (0..self.classes.len()).map(|index| ClassId(index as u16));
        let waiting = ids.filter(|id| !self.is_branch(*id) && self.classes[id.index()].waiting > 0);
        waiting.map(|id| self.is_capped(id))
    }

    /// Somebody is back, or comes for the first time. True if no lot was kept for it, or would be for others that think like that.
    fn end_think(&mut self, now: Time, id: ClassId) -> bool {
        self.charge_kept(now, id);
        let class = &mut self.classes[id.index()];
        if class.estimate == 0 {
            // It has not been there before: nothing says how long it thinks.
            return true;
        }
        let thought = now.since(class.idle_since).as_nanos().min(2 * THINK_MAX);
        let before = u64::from(class.think);
        let think = if before == 0 { thought } else { (before * 7 + thought) / 8 };
        class.think = think as u32;
        thought.max(think) >= self.kept_for(id)
    }

    /// Somebody comes to where nobody of it waits: it has no claim to what was before.
    fn come(&mut self, id: ClassId) {
        let mut at = Some(id);
        while let Some(of) = at {
            let class = &mut self.classes[of.index()];
            if class.waiting == 0 {
                class.since = self.inners[class.within.index()].virtual_time;
            }
            at = self.branch_of(of);
        }
    }

    /// A request of a class waits from here on. Where nobody of it waited, it has no claim to what was before.
    #[inline]
    fn wait(&mut self, now: Time, id: ClassId) {
        let class = &mut self.classes[id.index()];
        if class.waiting == 0 {
            class.since = self.inners[class.within.index()].virtual_time;
            if class.is_limited {
                self.limits[id.index()].floor.begin(now);
            }
        }
        class.waiting += 1;
    }

    /// A request goes. True if that changes more of what it is within than tags: caps or floors.
    fn take(&mut self, now: Time, id: ClassId, bytes: u64) -> bool {
        let estimate = self.spend(id, bytes);
        let (mut at, mut is_limited) = (Some(id), !self.capped.is_empty());
        while let Some(of) = at {
            is_limited |= self.take_one(now, of, bytes, estimate);
            at = self.branch_of(of);
        }
        is_limited
    }

    /// A request goes, by what its class has left of a lot or of what is lent. How long it may take; 0: nothing is known.
    fn spend(&mut self, id: ClassId, bytes: u64) -> u64 {
        let class = &mut self.classes[id.index()];
        if class.is_limited {
            self.limits[id.index()].admitted_bytes += bytes;
        }
        let known = class.estimate;
        // Of one of which nothing is known yet, one request is enough.
        let estimate = if known == 0 { class.budget } else { known };
        class.budget = class.budget.saturating_sub(estimate.max(1));
        self.lent = self.lent.saturating_sub(if known == 0 { self.lent } else { known });
        self.admitted += 1;
        known
    }

    /// Charges a request that goes, which may take so long, to a class. True if it has a cap or a floor.
    #[inline(always)]
    fn take_one(&mut self, now: Time, id: ClassId, bytes: u64, estimate: u64) -> bool {
        let class = &mut self.classes[id.index()];
        let ahead = tag(estimate, class.weight.into());
        class.outstanding += ahead;
        class.finish += ahead;
        class.admitted += 1;
        class.is_limited && self.take_limited(now, id, bytes)
    }

    /// Counts a request that goes by the cap and the floor of a class. True if it has one.
    #[inline(never)]
    fn take_limited(&mut self, now: Time, id: ClassId, bytes: u64) -> bool {
        let Entitlement { min, mut max, .. } = *self.entitlement(id);
        let limits = &mut self.limits[id.index()];
        if self.policy.is_shared {
            // That of a branch is kept by what those within it are allotted.
            max.bytes = limits.allotted;
        }
        if !max.is_none() {
            limits.count_capped(now);
            limits.cap.take(now, &max, bytes, CAP_KEPT);
        }
        if !min.is_none() {
            limits.floor.take_due(now, &min, bytes, self.lot.max(FLOOR_ACCOUNT));
        }
        !max.is_none() || !min.is_none()
    }

    /// The class of an application, a new one if need be.
    fn open(&mut self, now: Time, app: AppId) -> ClassId {
        if app == AppId::default() {
            return ClassId::default();
        }
        if let Some(&id) = self.of_app.get(&app) {
            // Who is called as a branch is, is one of its many.
            return if self.is_branch(id) { self.many_of(self.classes[id.index()].inner) } else { id };
        }
        if self.of_app.len() >= IDLE_MAX {
            self.forget_one(now);
        }
        let within = self.place_of(app);
        match self.vacant(app) {
            Some(id) => {
                self.of_app.insert(app, id);
                self.classes[id.index()].within = within;
                self.entitle(id);
                self.go_by_allotment(Time::ZERO, id);
                id
            }
            // Nobody escapes the cap of what it is within.
            None => self.many_of(within),
        }
    }

    /// Whether one more class can be told apart.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.classes.len() < CLASSES_MAX
    }

    /// A class that is within nothing, and that no application leads to; `None`: there is no room.
    pub(super) fn vacant(&mut self, app: AppId) -> Option<ClassId> {
        let id = match self.free.pop() {
            Some(id) => id,
            None if self.classes.len() < CLASSES_MAX => {
                self.classes.push(Class::default());
                self.limits.push(Limits::default());
                ClassId((self.classes.len() - 1) as u16)
            }
            None => return None,
        };
        let class = &mut self.classes[id.index()];
        // Nothing has been noted of who has neither cap nor floor.
        if class.is_limited {
            self.limits[id.index()] = Limits::default();
        }
        *class = Class::new(app);
        Some(id)
    }

    /// Forgets an application that has nothing in the gate and no debt that counts: neither to the others nor to its cap.
    fn forget_one(&mut self, now: Time) {
        for _ in 0..LOOKS_MAX {
            self.hand = if self.hand + 1 < self.classes.len() { self.hand + 1 } else { 1 };
            let class = &self.classes[self.hand];
            let id = ClassId(self.hand as u16);
            let is_known = self.of_app.get(&class.app) == Some(&id) && !self.is_branch(id);
            let virtual_time = self.inners[class.within.index()].virtual_time;
            let has_debts = class.finish > virtual_time
                || class.is_limited && self.limits[self.hand].cap.conforms_at(Span::ZERO) > now;
            if is_known && class.is_idle() && !has_debts {
                self.preemption = self.preemption.filter(|one| one.by != id);
                self.of_app.remove(&class.app);
                self.free.push(id);
                return;
            }
        }
    }

    /// What a class waits for, and what it has had.
    pub(crate) fn standing(&self, now: Time, id: ClassId) -> Standing {
        let (class, limits) = (&self.classes[id.index()], &self.limits[id.index()]);
        Standing { deferred: class.waiting, ns_per_s: class.recent.rates(now)[0], capped: limits.capped(now) }
    }

    /// Bytes of memory in use.
    pub(crate) fn allocated_bytes(&self) -> usize {
        let entries = self.capped.len() + self.due.len();
        self.classes.capacity() * size_of::<Class>()
            + self.limits.capacity() * size_of::<Limits>()
            + self.of_app.allocation_size()
            + self.allotments.allocation_size()
            + self.placed.allocation_size()
            + self.inners.capacity() * size_of::<Inner>()
            + self.free.capacity() * size_of::<ClassId>()
            + self.ready.allocated_bytes()
            + entries * size_of::<(InnerId, Time, ClassId)>()
    }
}
