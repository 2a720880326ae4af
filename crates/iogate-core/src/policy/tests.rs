//! Policies against what they promise, on a device that is counted by hand.

mod caps;
mod floors;
mod gaps;
mod naive;
mod nested;
mod overlaps;
mod shared;
mod windows;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::sched::{Prices, SchedulerKind};
use crate::{
    Decision, FileId, Gate, GateConfig, Layout, Op, Outcome, Request, RequestId, SchedulerConfig, Time,
};

const MS: u64 = 1_000_000;

/// An application that has so many requests of a size outstanding, each asked for so long after one of them was completed.
#[derive(Clone, Copy, Debug)]
struct App {
    outstanding: u32,
    bytes: u32,
    think: u64,
    from: u64,
    /// Of each so many requests the last one is asked for so much later.
    late: (u64, u64),
    /// Whether each goes on where the one before ended.
    in_order: bool,
}

impl App {
    const fn greedy(outstanding: u32, bytes: u32) -> App {
        App { outstanding, bytes, think: 0, from: 0, late: (u64::MAX, 0), in_order: false }
    }
}

/// A gate without a scheduler's own order, that has one dispatch in service.
fn one_at_a_time() -> Gate {
    let config = GateConfig {
        scheduler: SchedulerConfig::new(SchedulerKind::Fifo),
        queue_max: 100,
        depth: 1,
        layout: Layout::SINGLE,
    };
    Gate::new(&config).unwrap()
}

/// An application's read of 4 KiB at the begin of a file of its own.
fn block(id: u64, app: u32) -> Request {
    Request {
        id: RequestId(id),
        file: FileId(id),
        op: Op::Read,
        offset: 0,
        bytes: 4096,
        app: AppId(app),
        client: crate::ClientId(0),
        target: None,
        issued: None,
    }
}

/// What happened to one request.
#[derive(Clone, Copy, Debug)]
struct Done {
    app: usize,
    bytes: u64,
    began: u64,
    ended: u64,
}

/// Of a device: what a dispatch takes, by its bytes and by whether another application had the one before.
struct World {
    policy: Policy,
    scheduler: SchedulerKind,
    depth: u32,
    jump: u64,
    prices: Option<Prices>,
}

impl World {
    fn run(&self, apps: &[App], until: u64) -> Vec<Done> {
        let named: Vec<u32> = (1..=apps.len() as u32).collect();
        self.run_as(apps, &named, until)
    }

    /// Loads of these applications, several of which may be one's.
    fn run_as(&self, apps: &[App], named: &[u32], until: u64) -> Vec<Done> {
        let config = GateConfig {
            scheduler: SchedulerConfig::new(self.scheduler),
            queue_max: 100_000,
            depth: self.depth,
            layout: Layout::SINGLE,
        };
        let mut gate = Gate::new(&config).unwrap();
        if let Some(prices) = self.prices {
            gate.set_prices(prices);
        }
        gate.set_policy(Time::ZERO, Some(&self.policy)).unwrap();
        let mut comes: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        let mut number = 0;
        for (app, of) in apps.iter().enumerate() {
            for _ in 0..of.outstanding {
                number += 1;
                comes.insert((of.from, number), app);
            }
        }
        let (mut offsets, mut of_request) = (alloc::vec![0u64; apps.len()], BTreeMap::new());
        let mut serving: VecDeque<(u64, crate::DispatchId, u64)> = VecDeque::new();
        let mut counts = alloc::vec![0u64; apps.len()];
        let (mut now, mut last_app, mut free_at, mut done) = (0, usize::MAX, 0, Vec::new());
        loop {
            while let Some((&(at, id), &app)) = comes.first_key_value().filter(|((at, _), _)| *at <= now) {
                comes.remove(&(at, id));
                let bytes = apps[app].bytes;
                let request = Request {
                    id: RequestId(id),
                    file: FileId(app as u64),
                    op: Op::Read,
                    offset: offsets[app],
                    bytes,
                    app: AppId(named[app]),
                    client: crate::ClientId(0),
                    target: None,
                    issued: None,
                };
                // Where runs are taken, each is a dispatch nevertheless.
                let gap = if apps[app].in_order { 0 } else { u64::from(bytes) };
                offsets[app] += u64::from(bytes) + gap;
                of_request.insert(id, app);
                gate.submit(Time::from_nanos(now), &request).unwrap();
            }
            let mut wake = u64::MAX;
            loop {
                match gate.next(Time::from_nanos(now)) {
                    Decision::Dispatch(dispatch) => {
                        let app = dispatch.app.0 as usize;
                        let jump = if app == last_app { 0 } else { self.jump };
                        last_app = app;
                        // One after another, as a disk does.
                        free_at = free_at.max(now) + jump + 10_000 + dispatch.bytes * 10;
                        serving.push_back((free_at, dispatch.id, now));
                    }
                    Decision::WaitUntil(at, _) => {
                        assert!(at.as_nanos() > now, "it waits for what was");
                        wake = at.as_nanos();
                        break;
                    }
                    Decision::Idle => break,
                }
            }
            let next_done = serving.front().map_or(u64::MAX, |one| one.0);
            let next_come = comes.first_key_value().map_or(u64::MAX, |((at, _), _)| *at);
            now = next_done.min(next_come).min(wake);
            if now >= until {
                return done;
            }
            while let Some(&(ended, id, began)) = serving.front().filter(|one| one.0 <= now) {
                serving.pop_front();
                let parts: Vec<_> = gate.parts(id).collect();
                gate.complete(Time::from_nanos(now), id, Outcome::Done { bytes: 0 });
                for part in parts {
                    let app = of_request.remove(&part.request.0).unwrap();
                    done.push(Done { app, bytes: part.bytes.into(), began, ended });
                    number += 1;
                    let App { think, late: (every, by), .. } = apps[app];
                    counts[app] += 1;
                    let late = if counts[app].is_multiple_of(every) { by } else { 0 };
                    comes.insert((now + think + late, number), app);
                }
            }
        }
    }
}

/// What a device says that charges this for any jump.
fn jumps_of(jump: u64) -> Prices {
    Prices::of_jumps([Span::from_nanos(jump); 2], [1; 6])
}

fn weights(weights: &[u32]) -> Policy {
    let each = weights
        .iter()
        .zip(1..)
        .map(|(&weight, app)| (AppId(app), Entitlement { weight, ..Entitlement::default() }));
    Policy { apps: each.collect(), ..Policy::default() }
}

fn rate(bytes: u64) -> Rate {
    Rate { bytes: NonZeroU64::new(bytes), requests: None }
}

/// Device time that each application has had, one dispatch being in service at a time.
fn used(done: &[Done], apps: usize) -> Vec<u64> {
    let (mut used, mut before) = (alloc::vec![0; apps], 0);
    for one in done {
        used[one.app] += one.ended - before.max(one.began);
        before = one.ended;
    }
    used
}

const LONGEST: u64 = 1_300_000;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    /// The bound of start-time fair queueing, at every completion.
    #[test]
    fn shares_are_those_of_the_weights(
        kind in prop::sample::select(SchedulerKind::ALL.to_vec()),
        apps in prop::collection::vec((1u32..8, 4u32..24, 1u32..128), 2..5),
        jump in prop_oneof![Just(0u64), 1_000u64..400_000],
    ) {
        let policy = weights(&apps.iter().map(|app| app.0).collect::<Vec<_>>());
        let world = World { policy, scheduler: kind, depth: 1, jump, prices: (jump > 0).then(|| jumps_of(jump)) };
        let loads: Vec<App> = apps.iter().map(|app| App::greedy(app.1, app.2 * 1024)).collect();
        let done = world.run(&loads, 1_500 * MS);
        let lot = if jump > 0 { 20 * jump } else { 2 * MS };
        // A lot is left when its estimate is used up: what is learnt of requests that are all alike is exact but for the jumps.
        let slack = lot + lot / 2 + 24 * (LONGEST + jump);
        for at in (0..done.len()).step_by(97) {
            let used = used(&done[..at], loads.len());
            for i in 0..loads.len() {
                for j in 0..i {
                    let (a, b) = (used[i] / u64::from(apps[i].0), used[j] / u64::from(apps[j].0));
                    let bound = slack / u64::from(apps[i].0) + slack / u64::from(apps[j].0);
                    prop_assert!(a.abs_diff(b) <= bound, "{kind:?}: {a} and {b}, expected within {bound}; {used:?}");
                }
            }
        }
    }

    /// No window of time sees more than the rate and a burst; and no less than the rate, as long as there is as much.
    #[test]
    fn a_cap_holds_in_every_window(
        kind in prop::sample::select(SchedulerKind::ALL.to_vec()),
        bytes in 4u32..256,
        mib in 1u64..40,
    ) {
        let bytes = bytes * 1024;
        let cap = mib << 20;
        let capped = Entitlement { max: rate(cap), ..Entitlement::default() };
        let policy = Policy { apps: [(AppId(1), capped)].into(), ..Policy::default() };
        let world = World { policy, scheduler: kind, depth: 1, jump: 0, prices: None };
        let done = world.run(&[App::greedy(8, bytes)], 2_000 * MS);
        let burst = cap / 200 + u64::from(bytes);
        let mut sums: Vec<(u64, u64)> = alloc::vec![(0, 0)];
        for one in &done {
            let sum = sums.last().unwrap().1 + one.bytes;
            sums.push((one.ended, sum));
        }
        for (index, &(from, before)) in sums.iter().enumerate() {
            for &(to, sum) in sums[index..].iter().step_by(7) {
                let most = (u128::from(to - from) * u128::from(cap) / 1_000_000_000) as u64 + burst + u64::from(bytes);
                prop_assert!(sum - before <= most, "{} bytes in {} ns, at most {most}", sum - before, to - from);
            }
        }
        let (_, all) = sums.last().copied().unwrap();
        let free = 1_000_000_000 / (10_000 + u64::from(bytes) * 10) * u64::from(bytes);
        if free > 2 * cap {
            prop_assert!(all + burst + u64::from(bytes) >= 2 * cap, "{all} bytes in 2 s of {cap} a second");
        }
    }

    /// Whatever conflicts, is switched, capped or changed: each request is carried out once, and what overlaps in its order.
    #[test]
    fn nothing_is_lost_whatever_the_policy(
        kinds in prop::collection::vec(prop::sample::select(SchedulerKind::ALL.to_vec()), 3),
        requests in prop::collection::vec((0u32..4, 0u64..6, 1u32..4, any::<bool>(), 0u8..20), 1..200),
        depth in 1u32..5,
        caps in any::<bool>(),
    ) {
        let config = GateConfig {
            scheduler: SchedulerConfig::new(kinds[0]),
            queue_max: 1_000,
            depth,
            layout: Layout::SINGLE,
        };
        let mut gate = Gate::new(&config).unwrap();
        let max = if caps { rate(1 << 20) } else { Rate::default() };
        let floor = Entitlement { min: rate(1 << 16), max, weight: 3 };
        let policy = Policy { apps: [(AppId(1), floor)].into(), ..weights(&[5, 1, 2]) };
        let (mut now, mut order, mut ended) = (0, BTreeMap::new(), Vec::new());
        let mut serving: Vec<crate::DispatchId> = Vec::new();
        let step = |gate: &mut Gate, serving: &mut Vec<_>, now: &mut u64, ended: &mut Vec<u64>, all: bool| {
            let mut rounds = 0;
            loop {
                rounds += 1;
                assert!(rounds < 100_000, "it never ends");
                match gate.next(Time::from_nanos(*now)) {
                    Decision::Dispatch(dispatch) => serving.push(dispatch.id),
                    Decision::WaitUntil(at, _) if serving.is_empty() => *now = at.as_nanos(),
                    Decision::Idle if serving.is_empty() => return,
                    _ => {
                        let id = serving.remove(0);
                        ended.extend(gate.parts(id).map(|part| part.request.0));
                        *now += 100_000;
                        gate.complete(Time::from_nanos(*now), id, Outcome::Done { bytes: 0 });
                        if !all {
                            return;
                        }
                    }
                }
            }
        };
        for (number, &(app, offset, len, writes, then)) in requests.iter().enumerate() {
            let op = if writes { Op::Write } else { Op::Read };
            let (offset, bytes) = (offset * 4096, len * 4096);
            let request = Request {
                id: RequestId(number as u64),
                file: FileId(1),
                op,
                offset,
                bytes,
                app: AppId(app),
                client: crate::ClientId(0),
                target: None,
                issued: None,
            };
            gate.submit(Time::from_nanos(now), &request).unwrap();
            order.insert(number as u64, (offset, offset + u64::from(bytes), op));
            match then {
                0 => gate.set_policy(Time::from_nanos(now), Some(&policy)).unwrap(),
                1 => gate.set_policy(Time::from_nanos(now), None).unwrap(),
                2 => gate.switch(Time::from_nanos(now), &SchedulerConfig::new(kinds[number % 3])),
                3 => gate.set_prices(Prices::of_jumps([Span::from_millis(1); 2], [1; 6])),
                4..10 => step(&mut gate, &mut serving, &mut now, &mut ended, false),
                _ => {}
            }
        }
        gate.drain(Time::from_nanos(now));
        step(&mut gate, &mut serving, &mut now, &mut ended, true);
        prop_assert!(gate.is_empty());
        let mut sorted = ended.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, (0..requests.len() as u64).collect::<Vec<_>>());
        for (index, one) in ended.iter().enumerate() {
            for other in &ended[index + 1..] {
                let ((from, to, op), (other_from, other_to, other_op)) = (order[one], order[other]);
                let conflict = op.conflicts(other_op) && from < other_to && other_from < to;
                prop_assert!(!conflict || one < other, "{other} ended after {one}");
            }
        }
    }
}

#[test]
fn a_short_division_gives_what_a_long_one_does() {
    let times = [0, 1, 299, (1 << 54) - 1, 1 << 54, u64::MAX];
    for (ns, weight) in times.into_iter().flat_map(|ns| [1, 3, WEIGHT_MAX].map(|weight| (ns, weight))) {
        assert_eq!(order::tag(ns, weight), (u128::from(ns) << 10) / u128::from(weight), "{ns} by {weight}");
        for (requests, admitted) in [(0, 0), (1, 1), (3, 7), (u32::MAX, u32::MAX)] {
            for all in [u128::from(ns), u128::from(ns) << 30] {
                let expected = all * u128::from(requests) / u128::from(admitted.max(1));
                assert_eq!(
                    order::part(all, requests, admitted),
                    expected,
                    "{requests} of {admitted} of {all}"
                );
            }
        }
    }
}

#[test]
fn a_floor_holds_beside_a_hundred_greedy_ones() {
    let floored = Entitlement { min: rate(8 << 20), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(1), floored)].into(), ..Policy::default() };
    let mut apps = [App::greedy(16, 64 * 1024); 101];
    apps[0] = App::greedy(16, 16 * 1024);
    let world = World { policy, scheduler: SchedulerKind::Fifo, depth: 4, jump: 0, prices: None };
    let done = world.run(&apps, 4_000 * MS);
    let mut windows = [0u64; 40];
    done.iter()
        .filter(|one| one.app == 0)
        .for_each(|one| windows[(one.ended / (100 * MS)) as usize] += one.bytes);
    let short = windows[1..].iter().filter(|&&bytes| bytes < (8 << 20) / 10 - 2 * 16 * 1024).count();
    assert_eq!(short, 0, "{windows:?}");
    // Without it, its share is a hundredth.
    let world = World { policy: Policy::default(), ..world };
    let bytes: u64 =
        world.run(&apps, 4_000 * MS).iter().filter(|one| one.app == 0).map(|one| one.bytes).sum();
    assert!(bytes < 8 << 20, "{bytes}");
}

#[test]
fn who_comes_late_gets_its_share_and_no_more() {
    let world =
        World { policy: Policy::default(), scheduler: SchedulerKind::Fifo, depth: 1, jump: 0, prices: None };
    let late = App { from: 500 * MS, ..App::greedy(8, 64 * 1024) };
    let done = world.run(&[App::greedy(8, 64 * 1024), late], 1_000 * MS);
    let after: Vec<Done> = done.iter().copied().filter(|one| one.began > 500 * MS).collect();
    let used = used(&after, 2);
    assert!(used[0].abs_diff(used[1]) < 8 * MS, "{used:?}");
}

/// It would get one request a round: the device is kept for it while it thinks.
#[test]
fn who_asks_for_one_at_a_time_has_its_share_where_going_to_and_fro_costs() {
    let world = World {
        policy: Policy::default(),
        scheduler: SchedulerKind::Fifo,
        depth: 1,
        jump: 4 * MS,
        prices: Some(jumps_of(4 * MS)),
    };
    let alone = App { think: 50_000, ..App::greedy(1, 64 * 1024) };
    let done = world.run(&[alone, App::greedy(16, 64 * 1024)], 8_000 * MS);
    let requests = |app| done.iter().filter(|one| one.app == app).count();
    assert!(requests(0) * 4 > requests(1) * 3, "{} and {}", requests(0), requests(1));
}

/// Before it came, it did not think.
#[test]
fn who_comes_late_and_asks_for_one_at_a_time_has_its_share_from_the_start() {
    let world = World {
        policy: Policy::default(),
        scheduler: SchedulerKind::Fifo,
        depth: 1,
        jump: 4 * MS,
        prices: Some(jumps_of(4 * MS)),
    };
    let late = App { think: 50_000, from: 4_000 * MS, ..App::greedy(1, 64 * 1024) };
    let done = world.run(&[late, App::greedy(16, 64 * 1024)], 5_000 * MS);
    let requests = |app| done.iter().filter(|one| one.app == app && one.began > 4_000 * MS).count();
    assert!(requests(0) * 2 > requests(1), "{} and {}", requests(0), requests(1));
}

#[test]
fn applications_come_and_go_in_little_memory() {
    let mut gate = one_at_a_time();
    gate.set_policy(Time::ZERO, Some(&Policy::default())).unwrap();
    for app in 1..100_000u64 {
        let request = Request {
            id: RequestId(app),
            file: FileId(1),
            op: Op::Read,
            offset: 0,
            bytes: 4096,
            app: AppId(app as u32),
            client: crate::ClientId(0),
            target: None,
            issued: None,
        };
        gate.submit(Time::from_nanos(app * 1_000), &request).unwrap();
        let Decision::Dispatch(dispatch) = gate.next(Time::from_nanos(app * 1_000)) else { panic!() };
        gate.complete(Time::from_nanos(app * 1_000 + 500), dispatch.id, Outcome::Done { bytes: 4096 });
    }
    assert!(gate.allocated_bytes() < 4 << 20, "{}", gate.allocated_bytes());
}

#[test]
fn what_cannot_be_is_refused() {
    let with = |entitlement| Policy { others: entitlement, ..Policy::default() };
    for (policy, name) in [
        (with(Entitlement { weight: 0, ..Entitlement::default() }), "weight"),
        (with(Entitlement { weight: WEIGHT_MAX + 1, ..Entitlement::default() }), "weight"),
        (with(Entitlement { min: rate(10), max: rate(9), weight: 1 }), "min"),
        (Policy { lot: Some(Span::ZERO), ..Policy::default() }, "lot"),
    ] {
        let error = alloc::format!("{}", policy.check().unwrap_err());
        assert!(error.contains(name), "{error}");
    }
}

/// An idle application whose cap is spent is not forgotten for others that come: it would have all of its cap anew.
#[test]
fn nobody_escapes_a_cap_by_being_forgotten() {
    let others = Entitlement { max: rate(1 << 20), ..Entitlement::default() };
    let mut gate = one_at_a_time();
    gate.set_policy(Time::ZERO, Some(&Policy { others, ..Policy::default() })).unwrap();
    let mut is_served = |at: u64, app: u32, bytes: u32| {
        let now = Time::from_nanos(at);
        gate.submit(now, &Request { bytes, ..block(app.into(), app) }).unwrap();
        let Decision::Dispatch(dispatch) = gate.next(now) else { return false };
        gate.complete(now, dispatch.id, Outcome::Done { bytes: bytes.into() });
        true
    };
    for app in 1..=5000 {
        assert!(is_served(0, app, if app == 2 { 100 << 20 } else { 1 }));
    }
    assert!(is_served(1_000_000_000, 3, 1));
    assert!(!is_served(1_000_000_000, 2, 1), "its cap is spent for 100 s");
}
