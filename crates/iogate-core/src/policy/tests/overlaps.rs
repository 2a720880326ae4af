//! What overlaps: who waits for a request that waits for its cap.

use super::*;
use crate::wait::WaitReason;

/// A gate in which application 1, that may have a block a second, has three writes of one block, numbers 0 to 2.
fn capped_writer_of_one_block() -> Gate {
    let mut gate = one_at_a_time();
    let capped = Entitlement { max: rate(4096), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), capped)].into(), ..Policy::default() };
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    (0..3).for_each(|id| gate.submit(Time::ZERO, &of_the_block(id, 1, Op::Write)).unwrap());
    gate
}

fn of_the_block(id: u64, app: u32, op: Op) -> Request {
    Request { op, file: FileId(1), ..block(id, app) }
}

/// Serves what may go by then, and returns which requests that were, and when each one went.
fn served(gate: &mut Gate, from: u64, until: u64) -> Vec<(u64, u64)> {
    let (mut now, mut served) = (from, Vec::new());
    loop {
        let time = Time::from_nanos(now);
        match gate.next(time) {
            Decision::Dispatch(dispatch) => {
                served.extend(gate.parts(dispatch.id).map(|part| (part.request.0, now)));
                gate.complete(time, dispatch.id, Outcome::Done { bytes: 4096 });
            }
            Decision::WaitUntil(at, _) if at <= Time::from_nanos(until) => now = at.as_nanos(),
            _ => return served,
        }
    }
}

fn numbers(served: &[(u64, u64)]) -> Vec<u64> {
    served.iter().map(|one| one.0).collect()
}

#[test]
fn a_capped_writer_of_one_block_stops_nobody_else() {
    let mut gate = capped_writer_of_one_block();
    gate.submit(Time::ZERO, &of_the_block(3, 2, Op::Read)).unwrap();
    assert_eq!(numbers(&served(&mut gate, 0, 0)), [0, 1, 2, 3], "what is waited for is admitted");
    // By itself it waits, and pays for those.
    gate.submit(Time::ZERO, &block(4, 1)).unwrap();
    assert!(matches!(gate.next(Time::ZERO), Decision::WaitUntil(at, _) if at > Time::from_nanos(2_900 * MS)));
}

/// Else nobody would have a cap who writes one block with two threads.
#[test]
fn a_capped_writer_of_one_block_waits_for_its_cap() {
    let mut gate = capped_writer_of_one_block();
    assert_eq!(numbers(&served(&mut gate, 0, 0)), [0], "one block is within the cap");
    gate.submit(Time::ZERO, &of_the_block(3, 1, Op::Read)).unwrap();
    let served = served(&mut gate, 0, 10_000 * MS);
    assert_eq!(numbers(&served), [1, 2, 3]);
    for (number, at) in served {
        assert!(at.abs_diff(number * 1_000 * MS) <= 5 * MS, "{number} went at {at} ns");
    }
    assert!(gate.is_empty());
}

#[test]
fn who_comes_while_others_wait_for_a_cap_is_not_stopped() {
    let mut gate = capped_writer_of_one_block();
    assert_eq!(numbers(&served(&mut gate, 0, 500 * MS)), [0]);
    let now = Time::from_nanos(500 * MS);
    gate.submit(now, &of_the_block(3, 2, Op::Read)).unwrap();
    // It waits for the last one, which waits for the one that waits for its cap. What comes later is nothing that it waits for.
    gate.submit(now, &of_the_block(4, 1, Op::Write)).unwrap();
    assert_eq!(numbers(&served(&mut gate, 500 * MS, 500 * MS)), [1, 2, 3]);
    assert_eq!(numbers(&served(&mut gate, 500 * MS, 10_000 * MS)), [4]);
}

/// Once one that it waits for is completed, it waits for another one: who waits for it is not forgotten.
#[test]
fn who_waits_for_several_is_let_go_by_each() {
    let mut gate = one_at_a_time();
    let capped = Entitlement { max: rate(4096), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), capped)].into(), ..Policy::default() };
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    gate.submit(Time::ZERO, &block(9, 1)).unwrap();
    assert_eq!(numbers(&served(&mut gate, 0, 0)), [9], "the cap is spent");
    // Two blocks, and then both of them; somebody else wants the first one.
    gate.submit(Time::ZERO, &of_the_block(0, 1, Op::Write)).unwrap();
    gate.submit(Time::ZERO, &Request { offset: 4096, ..of_the_block(1, 1, Op::Write) }).unwrap();
    gate.submit(Time::ZERO, &Request { bytes: 8192, ..of_the_block(2, 1, Op::Write) }).unwrap();
    gate.submit(Time::ZERO, &of_the_block(3, 2, Op::Read)).unwrap();
    let went = numbers(&served(&mut gate, 0, 0));
    assert_eq!((went.len(), &went[2..]), (4, &[2, 3][..]), "{went:?}");
}

/// What was waited for before there was a policy is so below one that comes.
#[test]
fn who_is_waited_for_is_known_to_a_policy_that_comes() {
    let mut gate = one_at_a_time();
    gate.submit(Time::ZERO, &of_the_block(0, 1, Op::Write)).unwrap();
    let Decision::Dispatch(dispatch) = gate.next(Time::ZERO) else { panic!("nothing limits it") };
    gate.submit(Time::ZERO, &of_the_block(1, 1, Op::Write)).unwrap();
    gate.submit(Time::ZERO, &of_the_block(2, 1, Op::Write)).unwrap();
    gate.submit(Time::ZERO, &of_the_block(3, 2, Op::Read)).unwrap();
    let capped = Entitlement { max: rate(4096), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), capped)].into(), ..Policy::default() };
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    gate.complete(Time::ZERO, dispatch.id, Outcome::Done { bytes: 4096 });
    assert_eq!(numbers(&served(&mut gate, 0, 0)), [1, 2, 3]);
}

/// A gate in which each application may have so many blocks a second, or those of one group may together.
fn capped_at(blocks: u64, is_group: bool) -> Gate {
    let (capped, group) =
        (Entitlement { max: rate(4096 * blocks), ..Entitlement::default() }, AppId(1_000_000));
    let branch = Branch { entitlement: capped, ..Branch::default() };
    let policy = match is_group {
        true => Policy {
            branches: [(group, branch)].into(),
            within: [1, 2, 3].map(|app| (AppId(app), group)).into(),
            ..Policy::default()
        },
        false => Policy { others: capped, ..Policy::default() },
    };
    let mut gate = one_at_a_time();
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    gate
}

/// Three applications write one block again and again, each with so many requests at a time. Returns how many each has written by then.
fn rewritten(gate: &mut Gate, each: u64, until: u64) -> [u64; 3] {
    let (mut now, mut written, mut number) = (0, [0; 3], 0);
    let mut write = |gate: &mut Gate, now: u64, app: u32| {
        number += 1;
        gate.submit(Time::from_nanos(now), &of_the_block(number, app, Op::Write)).unwrap();
    };
    for _ in 0..each {
        (1..=3).for_each(|app| write(gate, 0, app));
    }
    while now < until {
        match gate.next(Time::from_nanos(now)) {
            Decision::Dispatch(dispatch) => {
                now += 10_000;
                gate.complete(Time::from_nanos(now), dispatch.id, Outcome::Done { bytes: 4096 });
                written[dispatch.app.0 as usize - 1] += 1;
                write(gate, now, dispatch.app.0);
            }
            Decision::WaitUntil(at, _) => now = at.as_nanos(),
            Decision::Idle => break,
        }
    }
    written
}

/// Else each would be let go as the next one waits for it, at the speed of the device, and all would owe more and more.
#[test]
fn caps_of_several_who_write_one_block_hold() {
    for each in [1, 4] {
        let mut gate = capped_at(100, false);
        let written = rewritten(&mut gate, each, 3_000 * MS);
        // All may be served in turn: nobody has to wait for longer than its own cap says.
        assert!(
            written.iter().all(|written| (290..=305).contains(written)),
            "{written:?} of 300, {each} at a time"
        );
        let arbiter = gate.arbiter().unwrap();
        let debts =
            arbiter.limits.iter().map(|limits| limits.conforms_at().since(Time::from_nanos(3_000 * MS)));
        assert!(debts.max().unwrap() < Span::from_millis(100), "{each} at a time");
    }
}

#[test]
fn the_cap_of_a_group_holds_where_its_users_write_one_block() {
    for each in [1, 4] {
        let written = rewritten(&mut capped_at(100, true), each, 3_000 * MS);
        assert!((290..=305).contains(&written.iter().sum::<u64>()), "{written:?} of 300, {each} at a time");
    }
}

/// A gate in which application 1 has used up its cap for ten seconds, and application 2 for one, and 2 waits for what 1 would write.
fn who_waits_at_two_caps() -> Gate {
    let mut gate = capped_at(1, false);
    gate.submit(Time::ZERO, &Request { bytes: 40_960, ..block(0, 1) }).unwrap();
    gate.submit(Time::ZERO, &block(1, 2)).unwrap();
    assert_eq!(numbers(&served(&mut gate, 0, 0)), [0, 1]);
    gate.submit(Time::ZERO, &of_the_block(2, 1, Op::Write)).unwrap();
    gate.submit(Time::ZERO, &of_the_block(3, 2, Op::Read)).unwrap();
    assert_eq!((numbers(&served(&mut gate, 0, 0)), gate.later()), ([].to_vec(), 1));
    gate
}

#[test]
fn a_cap_gives_way_when_that_of_who_waits_is_over() {
    let mut gate = who_waits_at_two_caps();
    assert_eq!(served(&mut gate, 0, 9_000 * MS), [(2, 995 * MS), (3, 995 * MS)]);
    assert_eq!(gate.later(), 0);
}

/// Who waits for one that is waited for by somebody whom no cap holds is let through with it.
#[test]
fn caps_give_way_to_whom_none_holds_whoever_is_between() {
    let mut gate = who_waits_at_two_caps();
    gate.submit(Time::ZERO, &of_the_block(4, 1, Op::Write)).unwrap();
    gate.submit(Time::ZERO, &of_the_block(5, 3, Op::Read)).unwrap();
    assert_eq!(numbers(&served(&mut gate, 0, 0)), [2, 3, 4, 5]);
    assert!(gate.is_empty() && gate.later() == 0);
}

/// Of a policy that many gates share: who has come but for what it waits for has nothing yet, and is looked at again when it has.
#[test]
fn a_cap_does_not_give_way_to_whom_nothing_is_allotted() {
    for allotted in [1, 2] {
        let mut gate = one_at_a_time();
        let capped = Entitlement { max: rate(1 << 20), ..Entitlement::default() };
        let policy = Policy { others: capped, is_shared: true, ..Policy::default() };
        gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
        gate.submit(Time::ZERO, &of_the_block(0, 1, Op::Write)).unwrap();
        gate.submit(Time::ZERO, &of_the_block(1, 2, Op::Read)).unwrap();
        assert_eq!(gate.next(Time::ZERO), Decision::Idle);
        gate.allot(Time::ZERO, [(Leaf::from(AppId(allotted)), 1 << 20)]);
        let both = [0, 1];
        assert_eq!(numbers(&served(&mut gate, 0, 0)), both[..allotted as usize], "{allotted} has something");
    }
}

#[test]
fn who_waits_is_known_to_the_next_policy() {
    let mut gate = who_waits_at_two_caps();
    // Nothing is allotted to the first one, and the other one has no cap.
    let capped = Entitlement { max: rate(4096), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), capped)].into(), is_shared: true, ..Policy::default() };
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    assert_eq!(numbers(&served(&mut gate, 0, 0)), [2, 3]);
    let mut gate = who_waits_at_two_caps();
    gate.set_policy(Time::ZERO, None).unwrap();
    assert_eq!(numbers(&served(&mut gate, 0, 0)), [2, 3]);
}

/// What is in the gate when it is closed goes, whatever it waits for.
#[test]
fn who_would_wait_for_its_cap_goes_when_the_gate_is_closed() {
    for is_group in [false, true] {
        let mut gate = capped_at(1, is_group);
        for (id, app, blocks) in [(0, 1, 30), (1, 2, 10), (2, 3, 20)] {
            gate.submit(Time::ZERO, &Request { bytes: blocks * 4096, ..block(id, app) }).unwrap();
        }
        let before = numbers(&served(&mut gate, 0, 0));
        for app in 1..=3 {
            gate.submit(Time::ZERO, &of_the_block(3 + u64::from(app), app, Op::Write)).unwrap();
        }
        gate.drain(Time::ZERO);
        let went = [before, numbers(&served(&mut gate, 0, 0))].concat();
        assert_eq!(went, [0, 1, 2, 4, 5, 6], "in a group: {is_group}");
        assert!(gate.is_empty() && gate.later() == 0);
    }
}

/// Who waits for a request that is in service already waits for no cap, and the gate for nothing but its end.
#[test]
fn what_is_in_service_is_no_wait_for_a_cap() {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let config = GateConfig { scheduler, queue_max: 100, depth: 4, layout: Layout::SINGLE };
    let mut gate = Gate::new(&config).unwrap();
    let capped = |blocks: u64| Entitlement { max: rate(4096 * blocks), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), capped(10)), (AppId(2), capped(1))].into(), ..Policy::default() };
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    gate.submit(Time::ZERO, &block(8, 1)).unwrap();
    gate.submit(Time::ZERO, &block(9, 2)).unwrap();
    assert_eq!(served(&mut gate, 0, 0).len(), 2, "both have spent their caps");
    gate.submit(Time::ZERO, &of_the_block(0, 1, Op::Write)).unwrap();
    gate.submit(Time::ZERO, &of_the_block(1, 2, Op::Write)).unwrap();
    let Decision::WaitUntil(goes, WaitReason::Cap) = gate.next(Time::ZERO) else { panic!("it has a cap") };
    let Decision::Dispatch(first) = gate.next(goes) else { panic!("it may go") };
    assert_eq!(gate.next(goes), Decision::Idle, "the second one waits for the first, which is in service");
    let done = Time::from_nanos(500 * MS);
    gate.complete(done, first.id, Outcome::Done { bytes: 4096 });
    let Decision::WaitUntil(later, WaitReason::Cap) = gate.next(done) else { panic!("it has a cap, too") };
    assert!(matches!(gate.next(later), Decision::Dispatch(_)));
    let waited = gate.stats().waits[WaitReason::Cap as usize];
    assert_eq!((waited.count, waited.total), (2, goes.since(Time::ZERO) + later.since(done)));
}
