//! Who keeps a lot while it has nothing that waits, and who has the slots meanwhile.

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

#[test]
fn experiment() {
    extern crate std;
    let us = |us: u64| Span::from_micros(us);
    let assumed = |read: u64, write: u64| Some(Prices::of_jumps([us(read), us(write)], [1; 6]));
    let parts = |world: &World, apps: &[App], until: u64| {
        let done = world.run(apps, until);
        let count = |app| done.iter().filter(|one| one.app == app).count();
        let counts: Vec<usize> = (0..apps.len()).map(count).collect();
        let time = used(&done, apps.len());
        let all: u64 = time.iter().sum();
        let mut longest = alloc::vec![0u64; apps.len()];
        let mut before = alloc::vec![0u64; apps.len()];
        for one in &done {
            longest[one.app] = longest[one.app].max(one.ended - before[one.app]);
            before[one.app] = one.ended;
        }
        let share: Vec<u64> = time.iter().map(|one| 1000 * one / all.max(1)).collect();
        std::format!("n {} counts {counts:?} time {share:?} longest wait ms {:?}", done.len(), longest.iter().map(|x| x / MS).collect::<Vec<_>>())
    };
    let policy = weights(&[4, 2, 1]);
    for (name, jump, prices) in [("none", 0, None), ("assumed write", 0, assumed(100, 12_000)), ("small", 100_000, assumed(100, 100)), ("arm", 12 * MS, assumed(12_000, 12_000))] {
        for depth in [1, 4] {
            for (outstanding, think, late) in [([8, 8, 8], 200_000, (u64::MAX, 0)), ([4, 8, 16], 200_000, (u64::MAX, 0)), ([1, 8, 16], 20_000, (u64::MAX, 0)), ([1,1,1], 200_000, (u64::MAX, 0)), ([1, 8, 16], 2_000_000, (u64::MAX, 0)),([8, 8, 8], 200_000, (7, 3 * MS)),([8, 8, 8], 2_000_000, (u64::MAX, 0))] {
                let world = World { policy: policy.clone(), scheduler: SchedulerKind::Fifo, depth, jump, prices };
                let apps = outstanding.map(|outstanding| App { think, late, ..App::greedy(outstanding, 4096) });
                std::println!("{name} depth {depth} {outstanding:?} think {think} late {late:?}: {}", parts(&world, &apps, if jump > MS { 20_000 * MS } else { 2_000 * MS }));
            }
        }
    }
    // Thin for long, then greedy.
    for depth in [1, 4] {
        for think in [51_000, 500_000, 5_000_000] {
            let world = World { policy: weights(&[1, 1, 1]), scheduler: SchedulerKind::Fifo, depth, jump: 0, prices: None };
            let thin = App { think, ..App::greedy(1, 4096) };
            let burst = App { from: 2_000 * MS, ..App::greedy(16, 4096) };
            let other = App::greedy(16, 4096);
            // The same application: thin and burst are one.
            let done = world.run_as(&[thin, burst, other], &[1, 1, 2], 3_000 * MS);
            let mut longest = 0;
            let mut before = 0;
            for one in done.iter().filter(|one| one.app == 2) { longest = longest.max(one.ended - before); before = one.ended; }
            let after = |app| done.iter().filter(|one| one.app == app && one.began > 2_000 * MS && one.ended < 2_100 * MS).count();
            std::println!("thin {think} depth {depth}: longest {} us; in 100 ms {:?}", longest / 1000, [after(0), after(1), after(2)]);
        }
    }
}
