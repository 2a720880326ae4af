//! Who has a lot and for how long, and what is done with slots that it leaves free.
//!
//! Clients that send the next request when they have an answer leave the gate without one of theirs again and again. A lot for somebody
//! else would then have them wait for all of it, and what they are entitled to would be forgotten. So a gap does not end a lot, as long as
//! whoever has it is not away: for [`LATE`] after it is expected back. The slots are *lent* meanwhile, a dispatch at a time. Where a device
//! has an arm, nobody else is in service during a lot, and who is back before it were worth the way there and back is waited for; only the
//! gaps of others are lent, one dispatch at once.
//!
//! Who thinks for longer has one request at a time in the midst of others' lots ([preempt](super::preempt)).
//!
//! Above `twins` a lot that is opened because nothing that was admitted is for the window's target is for the least tag of those that have
//! something for it, and only that is admitted: what is for other targets stays with the policy, or it would all be served by arrival.
//! What waits for another window's target keeps nobody out.

use super::arbiter::{Arbiter, Class, ClassId, Next};
use super::nested::InnerId;
use super::order::{first, tag};
use crate::request::AppId;
use crate::time::{Span, Time};
use crate::wait::WaitReason;

/// A lot where nothing is known of the device.
const LOT: Span = Span::from_millis(2);
/// A lot in jumps: at most a twentieth of the time goes into going from one application to the next.
const LOT_JUMPS: u64 = 20;
/// What is lent is owed to whoever has the lot, up to so many lots: others have theirs in between, and it has to catch up.
const CLAIM_LOTS: u64 = 4;
/// A device where a jump costs as much as this has an arm to move: two at once get less of it than one after the other.
const ARM: Span = Span::from_millis(1);
/// No lot is held open for somebody who thinks for longer.
pub(super) const THINK_MAX: u64 = 8_000_000;
/// For how long a lot is kept for somebody who is late.
pub(super) const LATE: Span = Span::from_millis(8);

/// What the scheduler has left of what was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Something that it may do now.
    Here,
    /// Nothing, or something for another window beside what is in service.
    Nothing,
    /// Something for another window, and nothing is in service.
    OtherWindow,
}

/// Whether an application has something for a window.
pub(crate) type Has<'a> = dyn Fn(ClassId) -> bool + 'a;

/// What becomes of a slot that whoever has the lot leaves free.
enum Gap {
    /// It stays free until then, or until something happens.
    Kept(Option<Time>),
    /// Somebody else may have it.
    Lent,
    /// The lot is over.
    Over,
}

impl Arbiter {
    /// What the device charges for a jump is known better.
    pub(crate) fn set_jump(&mut self, jump: Span) {
        self.jump = jump;
        let jumps = Span::from_nanos(jump.as_nanos().saturating_mul(LOT_JUMPS));
        self.lot = self.policy.lot.unwrap_or(if jump > Span::ZERO { jumps } else { LOT });
        // A lot that was opened when more was thought to be charged is no longer than those that come.
        if let Some(last) = self.last {
            let class = &mut self.classes[last.index()];
            class.budget = class.budget.min(self.lot.as_nanos());
        }
    }

    /// Whether nobody else is in service during a lot.
    fn is_exclusive(&self) -> bool {
        self.jump >= ARM
    }

    /// Whose request to admit now. If the scheduler has something to do, only those of floors that are due.
    pub(crate) fn next(&mut self, now: Time, work: Work) -> Next {
        self.next_of(now, work, None)
    }

    /// The same, of those that have something for the window, if there is one.
    #[inline]
    pub(crate) fn next_of(&mut self, now: Time, work: Work, has: Option<&Has<'_>>) -> Next {
        self.lent = 0;
        // Most policies have no caps and no floors, or nobody who waits for one.
        let is_plain = self.capped.is_empty() && self.due.is_empty();
        let idle = if is_plain { Next::Idle } else { self.next_limited(now) };
        if matches!(idle, Next::Admit(_)) {
            return idle;
        }
        if self.may_preempt > 0
            && let Some(id) = self.preempts(now)
        {
            return Next::Admit(id);
        }
        let first = has.map(|has| self.first_with(InnerId::NONE, has));
        if work == Work::Here || first == Some(None) {
            return idle;
        }
        self.next_slot(now, work, first.flatten(), idle)
    }

    /// Who is due by a floor; else when the first cap is over, or the first floor is due.
    #[inline(never)]
    fn next_limited(&mut self, now: Time) -> Next {
        while self.release_one(now).is_some() {}
        let due = first(&self.due).map(|(at, _)| at);
        if due.is_some_and(|at| at <= now) {
            return Next::Admit(self.due_by(now));
        }
        let capped = self.capped.first().map(|(_, at, _)| *at);
        let soonest = [capped, due].into_iter().flatten().min();
        soonest.map_or(Next::Idle, |at| Next::Wait(at, WaitReason::Cap))
    }

    /// Who has a slot that the scheduler has nothing for: of those that have something for the window, if there is one, `first`. `idle` is
    /// what to do if nobody may have it.
    #[inline(never)]
    fn next_slot(&mut self, now: Time, work: Work, first: Option<ClassId>, idle: Next) -> Next {
        if let Some(last) = self.last.filter(|last| self.is_between_requests(*last)) {
            match self.gap(now, last, work) {
                Gap::Kept(None) => return idle,
                Gap::Kept(Some(back)) => {
                    let until = if let Next::Wait(at, _) = idle { at.min(back) } else { back };
                    return Next::Wait(until, WaitReason::Share);
                }
                Gap::Lent => return Next::Admit(self.lend(last, first)),
                Gap::Over => self.classes[last.index()].budget = 0,
            }
        }
        if !self.is_asked() {
            return idle;
        }
        let id = first.unwrap_or_else(|| self.least());
        if let Some(last) = self.last.filter(|last| first.is_some() && *last != id) {
            // It may have something left that is for other windows.
            self.classes[last.index()].budget = 0;
        }
        self.begin_lot(id);
        Next::Admit(id)
    }

    /// No lot is kept for a class that thinks for as long, in nanoseconds. An arm goes to somebody else and back meanwhile.
    pub(super) fn kept_for(&self, id: ClassId) -> u64 {
        match self.is_exclusive() {
            true => self.classes[id.index()].estimate.max(self.jump.as_nanos()).min(THINK_MAX),
            false => THINK_MAX,
        }
    }

    /// What becomes of a slot that whoever has the lot leaves free: nothing that it has waits.
    fn gap(&mut self, now: Time, id: ClassId, work: Work) -> Gap {
        let class = &self.classes[id.index()];
        let kept_for = self.kept_for(id);
        let is_near = class.admitted > 0 || u64::from(class.think) < kept_for && class.late_from() > now;
        if !self.is_exclusive() {
            // As long as it would have the next lot, too, this one is not over.
            let keeps = is_near && self.is_asked() && (class.budget > 0 || self.is_first(id));
            return if keeps { Gap::Lent } else { Gap::Over };
        }
        if class.budget > 0 && class.admitted > 0 {
            // What waits for another window keeps no arm from those who wait for this one.
            return if work == Work::OtherWindow && self.is_asked() { Gap::Lent } else { Gap::Kept(None) };
        }
        let back = class.idle_since + Span::from_nanos(u64::from(class.think) + kept_for);
        if class.budget > 0 && u64::from(class.think) < kept_for && back > now && self.is_asked() {
            if self.admitted == 0 {
                self.kept_since.get_or_insert(now);
            }
            return Gap::Kept(Some(back));
        }
        self.charge_kept(now, id);
        let keeps = is_near && self.is_asked() && self.classes[id.index()].budget > 0;
        // One arm goes there and back once for what is lent.
        match (keeps, self.admitted) {
            (false, _) => Gap::Over,
            (true, 0) => Gap::Lent,
            // What is lent may be for another window, too.
            (true, _) if work == Work::OtherWindow => Gap::Lent,
            (true, _) => Gap::Kept(None),
        }
    }

    /// Charges device time to somebody, beside what its requests take.
    pub(super) fn charge_more(&mut self, now: Time, id: ClassId, ns: u64) {
        let mut at = Some(id);
        while let Some(of) = at {
            let class = &mut self.classes[of.index()];
            class.finish += tag(ns, class.weight.into());
            at = self.branch_of(of);
        }
        self.rank_branches(now, id);
    }

    /// What a class has is charged from its start tag on.
    pub(super) fn start(&mut self, id: ClassId) {
        let mut at = Some(id);
        while let Some(of) = at {
            let class = &mut self.classes[of.index()];
            class.finish = class.start_tag();
            at = self.branch_of(of);
        }
    }

    /// Who takes a slot that whoever has the lot leaves free: one request of it goes, or a run, and the lot stays where it is.
    fn lend(&mut self, from: ClassId, to: Option<ClassId>) -> ClassId {
        let least = self.bound_claim(from);
        self.lent = self.lot.as_nanos();
        let Some(id) = to else { return self.start_least(least) };
        self.start(id);
        id
    }

    /// Who has the least tag at each level, from the first of those that are within nothing on. What it has is charged from its start tag
    /// on, and so is what each class on the way has.
    fn start_least(&mut self, mut least: Option<(u128, ClassId)>) -> ClassId {
        while let Some((tag, id)) = least {
            let class = &mut self.classes[id.index()];
            class.finish = tag;
            let inner = class.inner;
            if inner == InnerId::NONE {
                return id;
            }
            least = self.first_ready(inner);
        }
        ClassId::default()
    }

    /// Who has the least tag within a branch, or within nothing, of those that may have a lot and have something for the window. But who
    /// has nothing for it is owed no more than [`CLAIM_LOTS`]: then it comes first, and what it has waits for its windows in the scheduler.
    /// Else who asks for one target would have that one's windows alone once others ask for it, and who asks for targets whose windows no
    /// dispatch begins in would have nothing. O(classes) where nearly nobody has something.
    fn first_with(&self, inner: InnerId, has: &Has<'_>) -> Option<ClassId> {
        let (mut least, mut first) = (None, None);
        self.ready.up_to(inner.index(), u128::MAX, &mut |index| {
            let id = ClassId(index);
            let class = &self.classes[id.index()];
            let at = (class.start_tag(), id);
            least = least.filter(|least| *least < at).or(Some(at));
            if first.is_none_or(|(best, _)| at < best) {
                let found = match class.inner {
                    InnerId::NONE => has(id).then_some(id),
                    inner => self.first_with(inner, has),
                };
                first = found.map(|found| (at, found)).or(first);
            }
            first.map_or(u128::MAX, |((tag, _), _)| tag)
        });
        let ((least, behind), ((tag_of_first, _), found)) = (least?, first?);
        let claim = tag(self.claim(), self.classes[behind.index()].weight.into());
        if tag_of_first - least <= claim {
            return Some(found);
        }
        match self.classes[behind.index()].inner {
            InnerId::NONE => Some(behind),
            inner => self.first_with(inner, &|_| true),
        }
    }

    /// What may be owed to a class, in nanoseconds of device time at a weight of 1.
    fn claim(&self) -> u64 {
        self.lot.as_nanos().saturating_mul(CLAIM_LOTS)
    }

    /// What others have had meanwhile is owed to whoever has the lot, as far as that is no more than [`CLAIM_LOTS`]. Else who asks for
    /// little for long, and then for much, would have all that there is for as long. Returns the first of those that are within nothing.
    fn bound_claim(&mut self, id: ClassId) -> Option<(u128, ClassId)> {
        let (mut of, claim) = (id, self.claim());
        loop {
            let Class { within, weight, .. } = self.classes[of.index()];
            let first = self.first_ready(within);
            let inner = &mut self.inners[within.index()];
            if let Some((rival, _)) = first.filter(|(_, rival)| *rival != of) {
                inner.opened(rival.saturating_sub(tag(claim, weight.into())));
            }
            if within == InnerId::NONE {
                return first;
            }
            of = inner.class;
        }
    }

    /// Whether the next request of a class may follow the one that was admitted.
    pub(crate) fn goes_on(&self, id: ClassId) -> bool {
        let class = &self.classes[id.index()];
        class.budget > 0 && class.waiting > 0 && !self.is_held_back(id)
    }

    /// Whether the next request of a class that a slot was lent to may go with the one that was admitted, if it goes on where that ends.
    pub(crate) fn lends_on(&self, id: ClassId) -> bool {
        self.lent > 0 && self.classes[id.index()].waiting > 0 && !self.is_held_back(id)
    }

    /// Somebody who waits, whatever for: who would wait for a cap for the shortest time, if anybody does.
    pub(crate) fn anybody(&mut self) -> Option<ClassId> {
        let Some(&(_, _, mut id)) = self.capped.first() else {
            return self.is_asked().then(|| self.least());
        };
        // A branch that waits for its cap has somebody within it who waits for nothing else.
        while self.is_branch(id) {
            id = self.first_ready(self.classes[id.index()].inner)?.1;
        }
        Some(id)
    }

    /// Whether a slot is kept free for whoever has the lot.
    pub(crate) fn keeps_slot(&self) -> bool {
        self.kept_since.is_some()
    }

    /// Whether the lot that was opened last is this one's, and nothing is lent of it.
    pub(crate) fn has_lot(&self, id: ClassId) -> bool {
        self.last == Some(id)
    }

    /// For whom the open lot is.
    pub(crate) fn lot_of(&self) -> Option<AppId> {
        self.last.map(|last| self.classes[last.index()].app)
    }

    /// While a slot is kept free for whoever has the lot, others wait for it: that is its time, too.
    pub(super) fn charge_kept(&mut self, now: Time, id: ClassId) {
        let Some(since) = self.kept_since.filter(|_| self.last == Some(id)) else { return };
        self.kept_since = None;
        let class = &mut self.classes[id.index()];
        let kept = now.since(since).as_nanos().min(class.budget);
        class.budget -= kept;
        self.charge_more(now, id, kept);
    }

    pub(super) fn begin_lot(&mut self, id: ClassId) {
        self.classes[id.index()].budget = self.lot.as_nanos();
        let mut at = Some(id);
        while let Some(of) = at {
            let class = &mut self.classes[of.index()];
            class.finish = class.start_tag();
            self.inners[class.within.index()].opened(class.finish);
            at = self.branch_of(of);
        }
        (self.last, self.kept_since) = (Some(id), None);
        self.forget_preemption();
    }
}
