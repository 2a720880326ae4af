//! Worked examples behind a gate.

use alloc::vec;
use alloc::vec::Vec;
use core::num::NonZero;

use super::super::*;
use crate::Gate;
use crate::gate::{Decision, Dispatch, GateConfig, Outcome};
use crate::layout::Layout;
use crate::policy::{Entitlement, Policy, Rate};
use crate::request::{ClientId, FileId, Op, Request, RequestId, TargetId};
use crate::sched::{SchedulerConfig, SchedulerKind};
use crate::wait::WaitReason;

/// By cause and by application, in ms.
type Charged = (Vec<(Cause, u64)>, Vec<(u32, u64)>);

/// A gate with accounts, at a time in ms.
struct Example {
    gate: Gate,
    count: u64,
}

impl Example {
    fn new(kind: SchedulerKind, depth: u32) -> Example {
        let scheduler = SchedulerConfig::new(kind);
        let config = GateConfig { scheduler, queue_max: 100, depth, layout: Layout::SINGLE };
        let mut gate = Gate::new(&config).unwrap();
        gate.set_accounting(Time::ZERO, Some((Accounting::Exact, &Prices::default())));
        Example { gate, count: 0 }
    }

    /// One in which application 1 may have ten requests a second.
    fn capped() -> Example {
        let mut gate = Example::new(SchedulerKind::Fifo, 1);
        let max = Rate { requests: NonZero::new(10), ..Rate::default() };
        let capped = Entitlement { max, ..Entitlement::default() };
        let policy = Policy { apps: [(AppId(1), capped)].into_iter().collect(), ..Policy::default() };
        gate.gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
        gate
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    fn submit(&mut self, ms: u64, app: u32, file: u64, offset: u64) {
        self.submit_to(ms, app, file, offset, 0);
    }

    fn submit_to(&mut self, ms: u64, app: u32, file: u64, offset: u64, target: u32) {
        self.count += 1;
        let request = Request {
            id: RequestId(self.count),
            file: FileId(file),
            op: Op::Write,
            offset,
            bytes: 4096,
            app: AppId(app),
            client: ClientId(0),
            target: Some(TargetId(target)),
            issued: None,
        };
        self.gate.submit(Example::at(ms), &request).unwrap();
    }

    fn next(&mut self, ms: u64) -> Option<Dispatch> {
        match self.gate.next(Example::at(ms)) {
            Decision::Dispatch(dispatch) => Some(dispatch),
            _ => None,
        }
    }

    fn complete(&mut self, ms: u64, dispatch: Option<Dispatch>) {
        self.gate.complete(Example::at(ms), dispatch.unwrap().id, Outcome::Done { bytes: 4096 });
    }

    /// Of an application: causes and culprits, in ms.
    fn of(&mut self, ms: u64, app: u32) -> Charged {
        let accounts = self.gate.accounts(Example::at(ms)).unwrap();
        let account = accounts.into_iter().find(|account| account.app == Some(AppId(app))).unwrap();
        let ms = |span: Span| (span.as_nanos() + 500_000) / 1_000_000;
        let causes = Cause::ALL.into_iter().zip(account.causes).map(|(cause, span)| (cause, ms(span)));
        let apps = account.apps.into_iter().map(|(app, span)| (app.map_or(0, |app| app.0), ms(span)));
        (causes.filter(|(_, ms)| *ms > 0).collect(), apps.filter(|(_, ms)| *ms > 0).collect())
    }
}

#[test]
fn who_waits_for_a_slot_waits_for_those_in_service() {
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    gate.submit(0, 1, 1, 0);
    let first = gate.next(0);
    gate.submit(0, 2, 2, 0);
    gate.submit(0, 2, 2, 1 << 20);
    assert_eq!(gate.next(0), None);
    gate.complete(10, first);
    let second = gate.next(10);
    assert_eq!(gate.next(10), None);
    // Half of what application 2 has is in service, half waits for it.
    assert_eq!(gate.of(14, 2), (vec![(Cause::Slots, 12), (Cause::Own, 2)], vec![(1, 10), (2, 4)]));
    gate.complete(20, second);
    // Nobody asks the gate for a while.
    let third = gate.next(23);
    gate.complete(30, third);
    let causes = vec![(Cause::Slots, 15), (Cause::HandOver, 3), (Cause::Own, 12)];
    assert_eq!(gate.of(99, 2), (causes, vec![(2, 17), (1, 10)]));
    assert_eq!(gate.of(99, 1), (vec![(Cause::Own, 10)], vec![(1, 10)]));
}

#[test]
fn who_overlaps_waits_for_whom_it_overlaps() {
    let mut gate = Example::new(SchedulerKind::Fifo, 4);
    gate.submit(0, 1, 1, 0);
    let first = gate.next(0);
    gate.submit(2, 2, 1, 0);
    assert_eq!(gate.next(2), None);
    gate.complete(10, first);
    let second = gate.next(10);
    gate.complete(15, second);
    assert_eq!(gate.of(15, 2), (vec![(Cause::Order, 8), (Cause::Own, 5)], vec![(1, 8), (2, 5)]));
}

#[test]
fn positioning_is_charged_to_who_came_between() {
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    gate.gate.set_prices(Prices::of_jumps([Span::from_millis(8); 2], [1; 6]));
    gate.submit(0, 1, 1, 0);
    let first = gate.next(0);
    gate.complete(2, first);
    gate.submit(2, 2, 2, 0);
    let second = gate.next(2);
    gate.complete(12, second);
    // It goes on where it was; what a jump costs of what such a one takes is known from the second on.
    for (from, offset) in [(20, 4096), (40, 8192)] {
        gate.submit(from, 1, 1, offset);
        let dispatch = gate.next(from);
        gate.complete(from + 10, dispatch);
        gate.submit(from + 10, 2, 2, from << 20);
        let dispatch = gate.next(from + 10);
        gate.complete(from + 14, dispatch);
    }
    let causes = vec![(Cause::Positioning, 18), (Cause::Own, 4)];
    assert_eq!(gate.of(99, 1), (causes, vec![(2, 18), (1, 4)]));
    // That it jumps by itself is nobody's fault.
    assert_eq!(gate.of(99, 2), (vec![(Cause::Own, 18)], vec![(2, 18)]));
}

#[test]
fn caps_and_shares_of_a_policy_are_told_apart() {
    let mut gate = Example::capped();
    let mut going = None;
    for ms in 0..1000 {
        if ms == 0 {
            (0..4).for_each(|number| gate.submit(0, 1, 1, number << 20));
        }
        if going.is_none() {
            going = gate.next(ms).map(|dispatch| (ms + 5, dispatch));
        }
        if let Some((end, dispatch)) = going.filter(|(end, _)| *end == ms) {
            gate.complete(end, Some(dispatch));
            going = gate.next(ms).map(|dispatch| (ms + 5, dispatch));
        }
    }
    let (causes, apps) = gate.of(1000, 1);
    let of = |cause| causes.iter().find(|(of, _)| *of == cause).map_or(0, |(_, ms)| *ms);
    assert!(of(Cause::Cap) > 150 && of(Cause::Share) == 0, "{causes:?}");
    assert!(apps.iter().all(|(app, _)| *app == 1), "{apps:?}");
    // Another one fills the device: the share is what is waited for.
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    gate.gate.set_policy(Time::ZERO, Some(&Policy::default())).unwrap();
    (0..20).for_each(|number| gate.submit(0, 2, 2, number << 20));
    let mut dispatch = gate.next(0);
    gate.submit(0, 1, 1, 0);
    for end in 1..=21 {
        gate.complete(5 * end, dispatch);
        dispatch = gate.next(5 * end);
    }
    let (causes, apps) = gate.of(1000, 1);
    assert!(causes.iter().any(|(cause, ms)| *cause == Cause::Share && *ms >= 5), "{causes:?}");
    assert!(apps.contains(&(2, 5)), "{apps:?}");
}

/// What is for another target than the window waits for that window, admitted or not, whatever else there is to look at before.
#[test]
fn who_waits_for_a_window_waits_for_no_cap_and_no_share() {
    let mut scheduler = SchedulerConfig::new(SchedulerKind::Twins);
    scheduler.set("window", "100ms").unwrap();
    let policy = Example::capped().gate.policy().cloned();
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    gate.gate.switch(Time::ZERO, &scheduler);
    gate.gate.set_policy(Time::ZERO, policy.as_ref()).unwrap();
    gate.submit(0, 1, 1, 0);
    let first = gate.next(0);
    gate.complete(6, first);
    // The cap is over at 95, and the window at 100.
    gate.submit(6, 1, 1, 0);
    (0..2).for_each(|number| gate.submit_to(6, 2, 2, number << 20, 1));
    let decision = Decision::WaitUntil(Example::at(95), WaitReason::Window);
    assert_eq!(gate.gate.next(Example::at(6)), decision);
    assert_eq!(gate.of(90, 2), (vec![(Cause::Window, 84)], vec![]));
    assert_eq!(gate.of(90, 1).0, vec![(Cause::Cap, 84), (Cause::Own, 6)]);
    let second = gate.next(95);
    gate.complete(99, second);
    assert_eq!(gate.gate.next(Example::at(99)), Decision::WaitUntil(Example::at(100), WaitReason::Window));
    assert!(gate.next(100).is_some());
}

/// One that waits behind one of its own application, which waits for its cap, waits for the cap; behind one in service, for that.
#[test]
fn who_waits_behind_its_own_request_at_a_cap_waits_for_the_cap() {
    let mut gate = Example::capped();
    (0..3).for_each(|_| gate.submit(0, 1, 1, 0));
    let first = gate.next(0);
    assert_eq!(gate.next(0), None);
    assert_eq!(gate.of(6, 1), (vec![(Cause::Order, 4), (Cause::Own, 2)], vec![(1, 6)]), "in thirds");
    gate.complete(6, first);
    assert_eq!(gate.next(6), None);
    // The cap is over at 95.
    let causes = vec![(Cause::Order, 4), (Cause::Cap, 84), (Cause::Own, 2)];
    assert_eq!(gate.of(90, 1), (causes, vec![(1, 6)]));
    let second = gate.next(95);
    let causes = vec![(Cause::Order, 7), (Cause::Cap, 89), (Cause::Own, 5)];
    assert_eq!(gate.of(101, 1), (causes, vec![(1, 12)]));
    gate.complete(101, second);
}

/// Without a policy nobody waits for a cap.
#[test]
fn who_waits_behind_its_own_request_does_not_wait_for_a_cap_that_is_gone() {
    let mut gate = Example::capped();
    (0..3).for_each(|_| gate.submit(0, 1, 1, 0));
    let first = gate.next(0);
    gate.complete(6, first);
    assert_eq!(gate.next(6), None);
    assert_eq!(gate.of(50, 1), (vec![(Cause::Order, 4), (Cause::Cap, 44), (Cause::Own, 2)], vec![(1, 6)]));
    gate.gate.set_policy(Example::at(50), None).unwrap();
    assert!(gate.next(50).is_some());
    assert_eq!(gate.of(60, 1), (vec![(Cause::Order, 9), (Cause::Cap, 44), (Cause::Own, 7)], vec![(1, 16)]));
}

/// Of what was put together into one dispatch, the part that somebody overlaps.
#[test]
fn who_waits_behind_a_merged_dispatch_waits_for_the_part_that_it_overlaps() {
    for is_late in [false, true] {
        let mut gate = Example::new(SchedulerKind::ToAgg, 2);
        if is_late {
            gate.gate.set_accounting(Time::ZERO, None);
        }
        // The second one is told apart, as it is in service by itself, too.
        gate.submit(0, 2, 2, 0);
        assert!(gate.next(0).is_some());
        gate.submit(0, 1, 1, 0);
        gate.submit(0, 2, 1, 4096);
        let both = gate.next(0);
        assert_eq!(both.map(|dispatch| dispatch.parts), Some(2));
        gate.submit(0, 3, 1, 4096);
        assert_eq!(gate.next(0), None);
        if is_late {
            gate.gate.set_accounting(Time::ZERO, Some((Accounting::Exact, &Prices::default())));
        }
        assert_eq!(gate.of(10, 3), (vec![(Cause::Order, 10)], vec![(2, 10)]), "from the middle: {is_late}");
        gate.complete(10, both);
    }
}

#[test]
fn a_deliberate_wait_is_charged_to_whom_it_is_for() {
    let mut gate = Example::new(SchedulerKind::Aioli, 1);
    let mut waited = None;
    // A reader in sequence: the gate waits for it before it goes to the other one.
    for step in 0..50 {
        let ms = 10 * step;
        gate.submit(ms, 1, 1, step * 4096);
        if step == 5 {
            gate.submit(ms, 2, 2, 0);
        }
        while let Some(dispatch) = gate.next(ms) {
            gate.complete(ms, Some(dispatch));
        }
        let accounts = gate.gate.accounts(Example::at(ms + 1)).unwrap();
        let of_wait = |account: &&Account| account.causes[Cause::Wait as usize] > Span::ZERO;
        waited = waited.or_else(|| accounts.iter().find(of_wait).cloned());
    }
    let waited = waited.expect("the gate has waited");
    assert_eq!(waited.apps[0].0, Some(AppId(1)), "{waited:?}");
}

#[test]
fn accounts_can_begin_in_the_middle_and_switching_changes_nothing() {
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    gate.gate.set_accounting(Time::ZERO, None);
    assert_eq!(gate.gate.accounts(Time::ZERO), None);
    gate.submit(0, 1, 1, 0);
    let first = gate.next(0);
    gate.submit(0, 2, 2, 0);
    gate.submit(0, 3, 1, 0);
    assert_eq!(gate.next(0), None);
    gate.gate.set_accounting(Example::at(5), Some((Accounting::Exact, &Prices::default())));
    assert_eq!(gate.next(5), None);
    gate.gate.switch(Example::at(7), &SchedulerConfig::new(SchedulerKind::Sjf));
    gate.complete(10, first);
    assert_eq!(gate.of(10, 1), (vec![(Cause::Own, 5)], vec![(1, 5)]));
    assert_eq!(gate.of(10, 2), (vec![(Cause::Slots, 5)], vec![(1, 5)]));
    assert_eq!(gate.of(10, 3), (vec![(Cause::Order, 5)], vec![(1, 5)]));
}

#[test]
fn accounts_of_many_applications_are_bounded() {
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    for app in 0..5_000 {
        gate.submit(app, app as u32, app, 0);
        let dispatch = gate.next(app);
        gate.complete(app + 1, dispatch);
    }
    let accounts = gate.gate.accounts(Example::at(6_000)).unwrap();
    assert_eq!(accounts.len(), APPS_MAX + 1);
    let sum: u64 = accounts.iter().map(|account| account.busy.as_nanos()).sum();
    assert_eq!(sum, 5_000_000_000, "the others are together in one");
    assert_eq!(accounts[0].app, None);
    assert!(gate.gate.blame.as_ref().unwrap().allocated_bytes() < 700 * (APPS_MAX + 1) * 2);
}

#[test]
fn who_comes_back_after_its_column_was_taken_has_waited_for_itself() {
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    let mut once = |from: u64, to: u64, app: u32| {
        gate.submit(from, app, app.into(), 0);
        let dispatch = gate.next(from);
        gate.complete(to, dispatch);
        gate.of(to, 1)
    };
    once(0, 1_000, 1);
    // As many others as there are columns.
    for app in 2..=COLUMNS as u64 + 1 {
        let from = 12_000 + 10 * app;
        assert_eq!(once(from, from + 1, app as u32), (vec![(Cause::Own, 1_000)], vec![(1, 1_000)]));
    }
    assert_eq!(once(30_000, 30_001, 1), (vec![(Cause::Own, 1_001)], vec![(1, 1_001)]));
}

#[test]
fn who_comes_back_keeps_apart_what_it_waited_for_others() {
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    let mut both = |from: u64, first: u32, second: u32| {
        gate.submit(from, first, first.into(), 0);
        let dispatch = gate.next(from);
        gate.submit(from, second, second.into(), 0);
        assert_eq!(gate.next(from), None);
        gate.complete(from + 600, dispatch);
        let dispatch = gate.next(from + 600);
        gate.complete(from + 1_000, dispatch);
        gate.of(from + 1_000, 1)
    };
    // It waits for application 2, whose column is taken, too.
    assert_eq!(both(0, 2, 1).1, [(2, 600), (1, 400)]);
    for app in (3..=COLUMNS as u32 + 2).step_by(2) {
        both(12_000 + 1_000 * u64::from(app), app, app + 1);
    }
    let (causes, apps) = both(60_000, 1, 2);
    assert_eq!(causes, [(Cause::Slots, 600), (Cause::Own, 1_000)]);
    assert_eq!(apps, [(1, 1_000), (0, 600)]);
}

#[test]
fn a_clock_that_jumps_breaks_nothing() {
    let mut gate = Example::new(SchedulerKind::Fifo, 1);
    let mut at = Time::ZERO;
    for jump in [1, 1 << 62, 0, 1 << 63, u64::MAX, 7] {
        gate.submit(0, 1, 1, 0);
        let dispatch = gate.next(0);
        at = at.max(Time::from_nanos(jump));
        gate.gate.complete(at, dispatch.unwrap().id, Outcome::Done { bytes: 1 });
        let accounts = gate.gate.accounts(at).unwrap();
        assert!(accounts.iter().all(|account| account.busy <= Span::from_secs(6 * 86_400)), "{accounts:?}");
    }
}
