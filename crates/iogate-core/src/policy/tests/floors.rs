//! Floors: what they make up for, and what they do not.

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
