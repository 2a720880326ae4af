//! Floors, and caps, of bytes and requests: what is reached, what is not exceeded, and what is made up for.

use super::*;

/// The storage hangs for a minute, in which a floor is missed: that is not made up for at the cost of who has none.
#[test]
fn a_floor_starves_nobody_when_storage_goes_on_that_has_hung() {
    let floored = Entitlement { min: rate(50 << 20), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), floored)].into(), ..Policy::default() };
    let mut gate = one_at_a_time();
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    let mut number = 0;
    let mut comes = |gate: &mut Gate, now: u64, app: u32| {
        number += 1;
        gate.submit(Time::from_nanos(now), &Request { bytes: 64 * 1024, ..block(number, app) }).unwrap();
    };
    for _ in 0..16 {
        comes(&mut gate, 0, 1);
        comes(&mut gate, 0, 2);
    }
    let (hangs, mut now, mut took) = (60_000 * MS, 0, 60_000 * MS);
    let mut served = [0u64; 2];
    while now < hangs + 1_000 * MS {
        let Decision::Dispatch(dispatch) = gate.next(Time::from_nanos(now)) else {
            panic!("there is always something to do")
        };
        now += took;
        took = MS;
        gate.complete(Time::from_nanos(now), dispatch.id, Outcome::Done { bytes: 64 * 1024 });
        served[dispatch.app.0 as usize - 1] += dispatch.bytes;
        comes(&mut gate, now, dispatch.app.0);
    }
    assert!(served[1] > 0, "who has no floor has nothing for a second");
    assert!(served[0] >= 50 << 20, "the floor holds in that second: {served:?}");
}

/// For each request of 1 MiB 25 of 4 KiB: 52 ms at 500 a second, and 55 ms at 20 MiB/s.
const MIX: [App; 2] = [App::greedy(1, 1 << 20), App::greedy(25, 4 << 10)];
const BOTH: Rate = Rate { bytes: NonZeroU64::new(20 << 20), requests: NonZeroU64::new(500) };

/// What the mix gets in four seconds, in bytes and requests, beside one that is entitled to nearly all.
fn mixed(entitlement: Entitlement, others: u32) -> (u64, u64) {
    let heavy = Entitlement { weight: WEIGHT_MAX, ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), entitlement), (AppId(2), heavy)].into(), ..Policy::default() };
    let world = World { policy, scheduler: SchedulerKind::Fifo, depth: 1, jump: 0, prices: None };
    let loads = [MIX[0], MIX[1], App::greedy(others, 64 * 1024)];
    let done = world.run_as(&loads, &[1, 1, 2], 4_000 * MS);
    let its = done.iter().filter(|one| one.app < 2);
    its.fold((0, 0), |(bytes, requests), one| (bytes + one.bytes, requests + 1))
}

#[test]
fn a_floor_in_bytes_and_requests_holds_for_sizes_that_differ() {
    let (bytes, requests) = mixed(Entitlement { min: BOTH, ..Entitlement::default() }, 16);
    assert!(bytes >= 78 << 20 && requests >= 1_970, "{bytes} bytes, {requests} requests");
    // The one that is reached later, and what is ahead at first.
    assert!(requests <= 2_100, "{requests} requests by a floor of 2,000");
}

#[test]
fn a_cap_in_bytes_and_requests_is_reached_by_sizes_that_differ() {
    let (bytes, requests) = mixed(Entitlement { max: BOTH, ..Entitlement::default() }, 0);
    assert!((78 << 20..=82 << 20).contains(&bytes), "{bytes} bytes, {requests} requests");
    assert!(requests <= 2_000, "{requests} requests");
}
