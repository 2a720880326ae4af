//! What overlaps: who waits for a request that waits for its cap.

use super::*;

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
