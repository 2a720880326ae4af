//! Who keeps a lot while it has nothing that waits, and who has the slots meanwhile.

use alloc::format;

use super::*;

/// Of all requests, the parts that three applications with weights 4, 2 and 1 have, in thousandths, at a device that takes 51 us for each.
fn parts_of_thinkers(outstanding: [u32; 3], depth: u32, think: u64) -> [usize; 3] {
    let scheduler = SchedulerKind::Fifo;
    let world = World { policy: weights(&[4, 2, 1]), scheduler, depth, jump: 0, prices: None };
    let apps = outstanding.map(|outstanding| App { think, ..App::greedy(outstanding, 4096) });
    let done = world.run(&apps, 1_000 * MS);
    // Nobody is waited for: the device is never without work.
    assert!(done.len() as u64 * 50_960 >= 990 * MS, "{} of {outstanding:?}, {depth}, {think}", done.len());
    [0, 1, 2].map(|app| 1_000 * done.iter().filter(|one| one.app == app).count() / done.len())
}

/// Clients that send the next request when they have an answer leave a gate without one of theirs again and again: others may use the slots
/// then, but no more.
#[test]
fn clients_that_think_between_requests_have_their_shares() {
    for (outstanding, depth, think) in [
        ([8, 8, 8], 4, 200_000),
        ([4, 4, 4], 2, 200_000),
        ([4, 8, 16], 4, 51_000),
        ([4, 8, 16], 1, 200_000),
        ([2, 8, 32], 1, 51_000),
    ] {
        let parts = parts_of_thinkers(outstanding, depth, think);
        let is_off = parts.iter().zip([571, 286, 143]).any(|(part, due)| part.abs_diff(due) > 10);
        assert!(!is_off, "{parts:?} of {outstanding:?}, {depth} at once, thinking for {think} ns");
    }
}

/// Where the slots are more than the heaviest one's share of them asks for, it has as many as it asks for, and the others divide the rest.
#[test]
fn who_asks_for_fewer_slots_than_its_share_has_those() {
    for (outstanding, depth, think, most) in
        [([8, 8, 8], 16, 0, 500), ([8, 8, 8], 16, 51_000, 444), ([2, 8, 32], 4, 51_000, 333)]
    {
        let [heaviest, middle, lightest] = parts_of_thinkers(outstanding, depth, think);
        let is_off = heaviest.abs_diff(most) > 10 || middle.abs_diff(2 * lightest) > 10;
        assert!(!is_off, "{heaviest}, {middle}, {lightest} of {outstanding:?}, {depth} at once");
    }
}

/// A slot that is lent takes what one dispatch takes: one request, or a run where the scheduler makes any.
#[test]
fn what_is_lent_is_one_dispatch() {
    for (kind, parts) in [(SchedulerKind::Fifo, 1), (SchedulerKind::ToAgg, 7)] {
        let scheduler = SchedulerConfig::new(kind);
        let config = GateConfig { scheduler, queue_max: 100, depth: 2, layout: Layout::SINGLE };
        let mut gate = Gate::new(&config).unwrap();
        gate.set_policy(Time::ZERO, Some(&weights(&[1, 1]))).unwrap();
        let take = |gate: &mut Gate, at: u64| match gate.next(Time::from_nanos(at)) {
            Decision::Dispatch(dispatch) => dispatch,
            other => panic!("{other:?} at {at}"),
        };
        // The first one has the lot, and nothing that waits.
        gate.submit(Time::ZERO, &block(100, 1)).unwrap();
        take(&mut gate, 0);
        for id in 0..8 {
            let request = Request { file: FileId(1), offset: id * 4096, ..block(id, 2) };
            gate.submit(Time::ZERO, &request).unwrap();
        }
        // Of the other one it is not known yet how long it takes.
        let first = take(&mut gate, 0);
        assert_eq!((first.app, first.parts), (AppId(2), 1), "{kind:?}");
        gate.complete(Time::from_nanos(20_000), first.id, Outcome::Done { bytes: 4096 });
        let lent = take(&mut gate, 20_000);
        assert_eq!((lent.app, lent.parts), (AppId(2), parts), "{kind:?}");
        gate.submit(Time::from_nanos(21_000), &block(101, 1)).unwrap();
        gate.complete(Time::from_nanos(40_000), lent.id, Outcome::Done { bytes: 4096 });
        assert_eq!(take(&mut gate, 40_000).app, AppId(1), "{kind:?}: whose lot it is comes first");
    }
}

/// The parts of all requests in thousandths that three applications of eight processes with weights 4, 2 and 1 have.
fn parts_by(world: &World, load: App, until: u64) -> [usize; 3] {
    let done = world.run(&[load; 3], until);
    [0, 1, 2].map(|app| 1_000 * done.iter().filter(|one| one.app == app).count() / done.len())
}

fn is_due(parts: [usize; 3], points: usize) -> bool {
    parts.iter().zip([571, 286, 143]).all(|(part, due)| part.abs_diff(due) <= 10 * points)
}

/// A disk that only says that it rotates is taken for one with an arm until reads and writes have been measured. Where nobody writes, a
/// write is never measured.
#[test]
fn what_an_operation_costs_that_does_not_come_says_nothing() {
    let jumps = [100, 12_000].map(Span::from_micros);
    for depth in [1, 4] {
        let world = World {
            policy: weights(&[4, 2, 1]),
            scheduler: SchedulerKind::Fifo,
            depth,
            jump: 0,
            prices: Some(Prices::of_jumps(jumps, [1; 6])),
        };
        let parts = parts_by(&world, App { think: 200_000, ..App::greedy(8, 4096) }, 1_000 * MS);
        assert!(is_due(parts, 2), "{parts:?}, {depth} at once");
    }
}

/// As a small jump is, a gap is lent; as it is one of an arm, the arm stays for who is back before it had gone there and back. Both think
/// for longer than a request takes, and are late now and then.
#[test]
fn who_thinks_for_longer_than_a_request_takes_keeps_its_lot() {
    for (jump, think, until, points) in [
        (100_000, 200_000, 2_000 * MS, 3),
        (12 * MS, 2 * MS, 20_000 * MS, 3),
        (12 * MS, 200_000, 10_000 * MS, 3),
    ] {
        let world = World {
            policy: weights(&[4, 2, 1]),
            scheduler: SchedulerKind::Fifo,
            depth: 1,
            jump,
            prices: Some(jumps_of(jump)),
        };
        let load = App { think, late: (50, 3 * MS), ..App::greedy(8, 4096) };
        let parts = parts_by(&world, load, until);
        assert!(is_due(parts, points), "{parts:?}, {jump} ns for a jump, {think} ns between");
    }
}

/// The arm goes from one application to the next once a lot, not at each gap.
#[test]
fn an_arm_does_not_go_there_and_back_at_each_gap() {
    let jump = 12 * MS;
    let world = World {
        policy: Policy::default(),
        scheduler: SchedulerKind::Fifo,
        depth: 1,
        jump,
        prices: Some(jumps_of(jump)),
    };
    let done = world.run(&[App { think: 2 * MS, ..App::greedy(4, 4096) }; 2], 5_000 * MS);
    let jumps = done.iter().zip(&done[1..]).filter(|(one, next)| one.app != next.app).count();
    assert!(jumps < 30, "{jumps} jumps for {} requests", done.len());
}

/// What was lent to others while somebody asked for little is not all owed to it.
#[test]
fn who_asked_for_little_for_long_does_not_have_everything_then() {
    for (depth, think) in [(1, 51_000), (1, 5 * MS), (4, 51_000), (4, 5 * MS)] {
        let world =
            World { policy: Policy::default(), scheduler: SchedulerKind::Fifo, depth, jump: 0, prices: None };
        let little = App { think, ..App::greedy(1, 4096) };
        let much = App { from: 1_000 * MS, ..App::greedy(16, 4096) };
        let done = world.run_as(&[little, much, App::greedy(16, 4096)], &[1, 1, 2], 1_500 * MS);
        let ends = done.iter().filter(|one| one.app == 2).map(|one| one.ended);
        let ends: Vec<u64> = ends.chain([1_500 * MS]).collect();
        let longest = ends.iter().zip(&ends[1..]).map(|(before, next)| next - before).max().unwrap();
        assert!(
            longest < 16 * MS,
            "{longest} ns without any of the other's, {depth} at once, {think} ns between"
        );
    }
}

/// Who asks for one request now and then has its share of an arm, the way there and back included: it does not wait for whole lots of
/// those who ask for much, and these have theirs of what they have alone.
#[test]
fn who_asks_for_one_now_and_then_has_its_share_of_an_arm() {
    // Behind requests of 1 MiB that are in service already it waits for longer than it thinks.
    for (jump, think, depth, bytes, percent) in [
        (8, 10, 1, 4 << 10, 95),
        (8, 10, 4, 4 << 10, 95),
        (8, 10, 16, 4 << 10, 95),
        (8, 10, 1, 1 << 20, 60),
        (8, 10, 4, 1 << 20, 60),
        (2, 4, 1, 64 << 10, 85),
        (2, 4, 4, 64 << 10, 85),
    ] {
        let (jump, until) = (jump * MS, if bytes == 1 << 20 { 20_000 * MS } else { 4_000 * MS });
        let world = World {
            policy: Policy::default(),
            scheduler: SchedulerKind::Fifo,
            depth,
            jump,
            prices: Some(jumps_of(jump)),
        };
        let little = App { think: think * MS, ..App::greedy(1, 4096) };
        let much = App { in_order: true, ..App::greedy(4, bytes) };
        let done = world.run(&[little, much, much], until);
        let [had, much_had, more_had] =
            [0, 1, 2].map(|app| done.iter().filter(|one| one.app == app).count() as u64);
        let alone = world.run(&[much], until).len() as u64;
        let parts = [much_had, more_had].map(|had| 1_000 * had / alone);
        let due = until / 3 / (2 * jump + 50_960);
        let what = format!(
            "{had} requests, {due} are due, {parts:?} of what the others have alone: {jump} ns for a jump, {depth} at once of {bytes}"
        );
        assert!(parts.iter().all(|part| *part >= 300), "{what}");
        assert!(had * 100 >= due * percent, "{what}");
    }
}
