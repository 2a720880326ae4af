//! The gate with each scheduler: nothing lost, nothing twice, order where it matters.

use std::collections::HashMap;
use std::num::NonZeroU64;

use iogate_core::blame::Accounting;
use iogate_core::policy::{Entitlement, Policy, Rate};
use iogate_core::sched::Prices;
use iogate_core::stats::summary::{Numbers, Summary};
use iogate_core::{
    AppId, ClientId, Decision, FileId, Gate, GateConfig, Layout, Op, Outcome, Rejected, Request, RequestId,
    SchedulerConfig, SchedulerKind, Span, Time,
};

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

fn config(kind: SchedulerKind, depth: u32) -> GateConfig {
    GateConfig {
        scheduler: SchedulerConfig::new(kind),
        queue_max: 1 << 21,
        depth,
        layout: Layout { first_target: 0, stripe_bytes: 4096, targets: 4 },
    }
}

fn request(id: u64, file: u64, op: Op, offset: u64, bytes: u32) -> Request {
    Request {
        id: RequestId(id),
        file: FileId(file),
        op,
        offset,
        bytes,
        app: AppId(id as u32 % 3),
        client: ClientId(0),
        target: None,
        issued: None,
    }
}

/// Submits random, often overlapping requests and carries out what the gate says, checking every promise.
fn conserve(kind: SchedulerKind, seed: u64, depth: u32, switch: bool) {
    conserve_above(kind, seed, depth, switch, 3, &[None]);
}

/// The same where one in so many requests writes, with one of these policies, or one after the other.
fn conserve_above(
    kind: SchedulerKind,
    seed: u64,
    depth: u32,
    switch: bool,
    writes: u64,
    policies: &[Option<Policy>],
) {
    let mut rng = Rng(seed);
    let mut gate = Gate::new(&config(kind, depth)).unwrap();
    gate.set_policy(Time::ZERO, policies[0].as_ref()).unwrap();
    let mut open: Vec<(Request, u64)> = Vec::new(); // in the gate, with the bytes not yet served
    let mut flying = Vec::new();
    let (mut now, mut submitted, mut completed) = (0, 0u64, 0u64);
    while completed < 3_000 {
        now += rng.below(300_000);
        if submitted < 3_000 && rng.below(3) > 0 {
            let op = if rng.below(writes) == 0 { Op::Write } else { Op::Read };
            let bytes = 512 * (1 + rng.below(20) as u32);
            let request = request(submitted, rng.below(3), op, 512 * rng.below(200), bytes);
            gate.submit(Time::from_nanos(now), &request).unwrap();
            open.push((request, u64::from(bytes)));
            submitted += 1;
        } else if !flying.is_empty() {
            let (id, parts): (_, Vec<iogate_core::Part>) =
                flying.swap_remove(rng.below(flying.len() as u64) as usize);
            for part in parts {
                let index = open.iter().position(|(request, _)| request.id == part.request).unwrap();
                open[index].1 -= u64::from(part.bytes);
                if open[index].1 == 0 {
                    open.remove(index);
                    completed += 1;
                }
            }
            gate.complete(Time::from_nanos(now), id, Outcome::Done { bytes: 0 });
        }
        if switch && rng.below(20) == 0 {
            let kind = SchedulerKind::ALL[rng.below(9) as usize];
            gate.switch(Time::from_nanos(now), &SchedulerConfig::new(kind));
            let policy = &policies[rng.below(policies.len() as u64) as usize];
            gate.set_policy(Time::from_nanos(now), policy.as_ref()).unwrap();
        }
        loop {
            match gate.next(Time::from_nanos(now)) {
                Decision::Dispatch(dispatch) => {
                    let parts: Vec<_> = gate.parts(dispatch.id).collect();
                    let mut end = dispatch.offset;
                    for part in &parts {
                        assert_eq!(part.offset, end, "{kind:?}: parts are contiguous");
                        end += u64::from(part.bytes);
                        let (this, _) = open.iter().find(|(r, _)| r.id == part.request).expect("still open");
                        let earlier =
                            open.iter().take_while(|(r, _)| r.id != part.request).filter(|(r, _)| {
                                r.file == this.file
                                    && r.op.conflicts(this.op)
                                    && r.offset < end
                                    && part.offset < r.end()
                            });
                        assert_eq!(earlier.count(), 0, "{kind:?}: conflicting requests complete in order");
                    }
                    assert_eq!(end - dispatch.offset, dispatch.bytes);
                    flying.push((dispatch.id, parts));
                }
                Decision::WaitUntil(until, _) => {
                    assert!(until > Time::from_nanos(now), "{kind:?}: a wait is for the future");
                    if submitted == 3_000 {
                        now = until.as_nanos();
                        continue;
                    }
                    break;
                }
                Decision::Idle => break,
            }
        }
    }
    assert!(open.is_empty() && gate.is_empty());
    let requests: u64 = gate.stats().ops.iter().map(|op| op.request_bytes.count()).sum();
    let out: u64 = gate.stats().ops.iter().map(|op| op.dispatch_bytes.sum()).sum();
    let bytes_in: u64 = gate.stats().ops.iter().map(|op| op.request_bytes.sum()).sum();
    assert_eq!((requests, bytes_in), (3_000, out));
}

#[test]
fn every_scheduler_serves_everything_once_and_in_order() {
    for kind in SchedulerKind::ALL {
        for (seed, depth) in [(1, 1), (2, 4), (3, 64)] {
            conserve(kind, seed, depth, false);
        }
    }
}

#[test]
fn switching_under_load_loses_nothing() {
    for seed in 0..9 {
        conserve(SchedulerKind::ALL[seed as usize], 10 + seed, 3, true);
    }
}

/// What a write waits for is found, whether it is deferred or not, and however many reads were deferred before it came.
#[test]
fn policies_lose_nothing_and_keep_the_order() {
    let capped = Entitlement {
        max: Rate { bytes: NonZeroU64::new(40 << 20), requests: None },
        ..Entitlement::default()
    };
    let policies = [None, Some(Policy::default()), Some(Policy { others: capped, ..Policy::default() })];
    for (seed, kind) in (20..).zip(SchedulerKind::ALL) {
        for writes in [3, 20, 200] {
            conserve_above(kind, seed, 1, false, writes, &policies[1..2]);
            conserve_above(kind, seed, 4, false, writes, &policies[2..]);
            conserve_above(kind, seed, 4, true, writes, &policies);
        }
    }
}

#[test]
fn refusals() {
    let mut gate = Gate::new(&GateConfig { queue_max: 1, ..config(SchedulerKind::Fifo, 1) }).unwrap();
    let now = Time::ZERO;
    let refuse = |gate: &mut Gate, request| gate.submit(now, &request).unwrap_err();
    assert_eq!(refuse(&mut gate, request(0, 0, Op::Read, 0, 0)), Rejected::Malformed { offset: 0, bytes: 0 });
    let far = request(0, 0, Op::Read, u64::MAX, 2);
    assert_eq!(refuse(&mut gate, far), Rejected::Malformed { offset: u64::MAX, bytes: 2 });
    gate.submit(now, &request(1, 0, Op::Read, 0, 1)).unwrap();
    assert_eq!(refuse(&mut gate, request(2, 0, Op::Read, 0, 1)), Rejected::Full { max: 1 });
    gate.drain(now);
    assert_eq!(refuse(&mut gate, request(2, 0, Op::Read, 0, 1)), Rejected::Closed);
    assert!(matches!(gate.next(now), Decision::Dispatch(_)), "what was accepted is still served");
    assert!(Gate::new(&GateConfig { depth: 0, ..config(SchedulerKind::Fifo, 1) }).is_err());
}

#[test]
fn a_hot_block_is_served_in_order_and_without_delay() {
    let mut gate = Gate::new(&config(SchedulerKind::Sjf, 8)).unwrap();
    for id in 0..20_000 {
        gate.submit(Time::ZERO, &request(id, 0, Op::Write, 0, 512)).unwrap();
    }
    for id in 0..20_000 {
        let Decision::Dispatch(dispatch) = gate.next(Time::ZERO) else { panic!("request {id} can run") };
        assert_eq!(gate.parts(dispatch.id).next().map(|part| part.request), Some(RequestId(id)));
        assert_eq!(gate.next(Time::ZERO), Decision::Idle);
        gate.complete(Time::ZERO, dispatch.id, Outcome::Done { bytes: 512 });
    }
}

#[test]
fn memory_of_a_queued_request() {
    for kind in SchedulerKind::ALL {
        let mut gate = Gate::new(&config(kind, 1)).unwrap();
        let mut rng = Rng(7);
        let n = 1 << 18;
        for id in 0..n {
            let offset = 8192 * rng.below(n);
            gate.submit(Time::ZERO, &request(id, id % 32, Op::Read, offset, 8192)).unwrap();
        }
        let each = gate.allocated_bytes() as f64 / n as f64;
        assert!(each <= 128.0, "{}: {each:.1} bytes a queued request", kind.name());
    }
}

#[test]
fn the_same_calls_give_the_same_answers() {
    let run = || {
        let mut gate = Gate::new(&config(SchedulerKind::Aioli, 4)).unwrap();
        let mut rng = Rng(5);
        let mut log = Vec::new();
        let mut names = HashMap::new();
        for id in 0..2_000u64 {
            let now = Time::from_nanos(id * 10_000);
            names.insert(id * 7919, id); // would perturb an address-dependent order
            gate.submit(now, &request(id, rng.below(40), Op::Read, 4096 * rng.below(100), 4096)).unwrap();
            while let Decision::Dispatch(dispatch) = gate.next(now) {
                log.push(dispatch);
                gate.complete(now, dispatch.id, Outcome::Done { bytes: 0 });
            }
        }
        log
    };
    assert_eq!(run(), run());
}

/// Application 1 reads, application 2 writes and waits behind the policy; a second later that is what there is to see.
#[test]
fn what_applications_get_now_is_told_by_operation_with_latency_and_queue() {
    let at = |us: u64| Time::from_nanos(us * 1_000);
    let of = |id, app, op| Request { app: AppId(app), ..request(id, id, op, 0, 4_096) };
    let mut gate = Gate::new(&config(SchedulerKind::Fifo, 1)).unwrap();
    gate.submit(at(0), &of(1, 1, Op::Read)).unwrap();
    gate.submit(at(0), &of(2, 2, Op::Write)).unwrap();
    gate.submit(at(0), &of(3, 3, Op::Read)).unwrap();
    for (begins, ends) in [(100, 400), (400, 1_000)] {
        let Decision::Dispatch(dispatch) = gate.next(at(begins)) else { panic!("there is something to do") };
        gate.complete(at(ends), dispatch.id, Outcome::Done { bytes: 4_096 });
    }
    let now = gate.apps_now(at(2_000));
    let seen: Vec<_> = (now.iter())
        .map(|now| (now.app, now.read_bytes_per_s, now.written_bytes_per_s, now.latency_ns, now.queued))
        .collect();
    let expected = [
        (1, 4_096, 0, Some(400_000), Some(0)),
        (2, 0, 4_096, Some(1_000_000), Some(0)),
        (3, 0, 0, None, Some(1)),
    ];
    assert_eq!(seen, expected, "the third one has not been served yet, and is there");
    assert!(now.iter().all(|now| now.device_ns_per_s.is_none() && now.weight.is_none()));
    assert_eq!((now[0].bytes_per_s, now[0].requests_per_s), (4_096, 1));
}

#[test]
fn who_comes_after_many_others_is_seen_as_they_were() {
    let mut gate = Gate::new(&config(SchedulerKind::Fifo, 1)).unwrap();
    gate.set_policy(Time::ZERO, Some(&Policy::default())).unwrap();
    for app in 1..=2_000 {
        let now = Time::from_nanos(u64::from(app) * 1_000_000);
        for id in [1, 2] {
            let id = u64::from(app) * 2 + id;
            gate.submit(now, &Request { app: AppId(app), ..request(id, id, Op::Write, 0, 4_096) }).unwrap();
            let Decision::Dispatch(dispatch) = gate.next(now) else { panic!("there is something to do") };
            gate.complete(now, dispatch.id, Outcome::Done { bytes: 4_096 });
        }
        let seen = gate.apps_now(now);
        let seen = seen.iter().find(|now| now.app == app).map(|now| (now.served_bytes, now.bytes_per_s));
        assert_eq!(seen, Some((8_192, 8_192)), "application {app}");
    }
    let apps = &gate.stats().apps;
    assert_eq!(apps.len(), 1_024);
    let listed: u64 = apps.iter().map(|(_, sums)| sums.bytes).sum();
    assert_eq!(listed + apps.other().bytes, 2_000 * 8_192, "and nothing is lost");
}

#[test]
fn the_device_time_of_the_last_second_is_divided_as_the_weights_are() {
    let mut gate = Gate::new(&config(SchedulerKind::Fifo, 1)).unwrap();
    let entitled = |weight| Entitlement { weight, ..Entitlement::default() };
    let apps = [(AppId(1), entitled(1)), (AppId(2), entitled(3))].into();
    let policy = Policy { apps, lot: Some(Span::from_millis(10)), ..Policy::default() };
    gate.set_policy(Time::ZERO, Some(&policy)).unwrap();
    let (mut now, mut next) = (Time::ZERO, 0);
    let mut submit = |gate: &mut Gate, now, app| {
        next += 1;
        gate.submit(now, &Request { app, ..request(next, next, Op::Read, 0, 4_096) }).unwrap();
    };
    for _ in 0..8 {
        submit(&mut gate, now, AppId(1));
        submit(&mut gate, now, AppId(2));
    }
    while now < Time::from_nanos(5_000_000_000) {
        let Decision::Dispatch(dispatch) = gate.next(now) else { panic!("there always is something to do") };
        now = now + Span::from_millis(1);
        gate.complete(now, dispatch.id, Outcome::Done { bytes: 4_096 });
        submit(&mut gate, now, dispatch.app);
    }
    let used: Vec<u64> = gate.apps_now(now).iter().filter_map(|now| now.device_ns_per_s).collect();
    // A lot more or less.
    assert!(
        used[0].abs_diff(250_000_000) <= 20_000_000 && used[1].abs_diff(750_000_000) <= 20_000_000,
        "{used:?}"
    );
}

/// How long one who comes during a sequential reader's turn waits. The reader came after a crowd of others, whose dispatches of 100 us its
/// quantum has grown with; it always asks for more, and a piece takes 10 ms.
fn waits_for_a_turn(kind: SchedulerKind, crowd: u64) -> Span {
    const PIECE: u32 = 65_536;
    const READER: u64 = 1_000_000;
    let mut gate = Gate::new(&config(kind, 1)).unwrap();
    let mut now = Time::ZERO;
    for id in 1..=crowd {
        gate.submit(now, &request(id, id, Op::Read, 0, 4096)).unwrap();
    }
    let reads = |place: u64| request(READER + place, READER, Op::Read, place * u64::from(PIECE), PIECE);
    gate.submit(now, &reads(0)).unwrap();
    let (victim, mut pieces, mut came) = (crowd + 1, 0, None);
    loop {
        let Decision::Dispatch(dispatch) = gate.next(now) else { panic!("nothing waits for time") };
        if dispatch.file == FileId(victim) {
            return now.since(came.expect("it has come"));
        }
        let reads_on = dispatch.file == FileId(READER);
        if reads_on {
            if pieces == 0 {
                gate.submit(now, &request(victim, victim, Op::Read, 0, 4096)).unwrap();
                came = Some(now);
            }
            // The next piece is there before this one is complete.
            pieces += 1;
            gate.submit(now, &reads(pieces)).unwrap();
        }
        now = now + if reads_on { Span::from_millis(10) } else { Span::from_micros(100) };
        gate.complete(now, dispatch.id, Outcome::Done { bytes: dispatch.bytes });
    }
}

#[test]
fn who_has_aged_does_not_wait_for_all_that_a_crowd_has_made_of_a_turn() {
    for kind in [SchedulerKind::Aioli, SchedulerKind::Mlf] {
        let after_some = waits_for_a_turn(kind, 100);
        assert!(
            after_some > Span::from_millis(100) && after_some < Span::from_secs(1),
            "{kind:?}: {after_some}"
        );
        // A quantum of 313 MB takes 50 s. The 32 MB that a turn may have at any rate take as long as `age_max`, 5 s.
        let after_many = waits_for_a_turn(kind, 10_000);
        assert!(after_many <= Span::from_millis(5_200), "{kind:?}: {after_many}");
    }
}

#[test]
fn twins_serves_what_has_aged_in_the_midst_of_a_long_window() {
    let seconds = |seconds| Time::ZERO + Span::from_secs(seconds);
    let mut config = config(SchedulerKind::Twins, 1);
    config.scheduler.set("window", "60s").unwrap();
    for (age_max, until) in [("5s", 5), ("0s", 60), ("2min", 60)] {
        config.scheduler.set("age_max", age_max).unwrap();
        let mut gate = Gate::new(&config).unwrap();
        // For the second target, in the window of the first one.
        gate.submit(Time::ZERO, &request(1, 1, Op::Read, 4096, 512)).unwrap();
        let Decision::WaitUntil(at, _) = gate.next(Time::ZERO) else { panic!("it is not its window") };
        assert_eq!(at, seconds(until), "{age_max}");
        assert!(matches!(gate.next(at), Decision::Dispatch(_)), "{age_max}");
    }
}

/// A gate that counts sums only does as any other one, and has the same sums.
#[test]
fn sums_alone_are_those_of_a_gate_that_counts_all() {
    let run = |sums_only: bool| {
        let mut gate = Gate::new(&config(SchedulerKind::Aioli, 1)).unwrap();
        if sums_only {
            gate.count_sums_only();
        }
        for id in 0..100 {
            // Some are read twice, some are read while they are written, and the other way about.
            let op = if id % 10 == 9 { Op::Write } else { Op::Read };
            let request = request(id, id % 3, op, id / 6 * 512, 512);
            gate.submit(Time::from_nanos(id), &request).unwrap();
        }
        let (mut now, mut served) = (100, Vec::new());
        loop {
            match gate.next(Time::from_nanos(now)) {
                Decision::Dispatch(dispatch) => {
                    now += 1_000;
                    served.push((dispatch.file, dispatch.offset, dispatch.bytes));
                    let outcome = match served.len() % 7 {
                        6 => Outcome::Failed,
                        _ => Outcome::Done { bytes: dispatch.bytes },
                    };
                    gate.complete(Time::from_nanos(now), dispatch.id, outcome);
                }
                Decision::WaitUntil(at, _) => now = at.as_nanos(),
                Decision::Idle => return (gate, served),
            }
        }
    };
    let ((all, order), (sums, same_order)) = (run(false), run(true));
    assert_eq!(order, same_order);
    let (all, sums) = (all.stats(), sums.stats());
    let read = |stats: &iogate_core::stats::Stats| {
        let op = stats.op(Op::Read);
        let sizes = [&op.request_bytes, &op.dispatch_bytes, &op.dispatch_requests];
        let times = [&op.offset_distance_bytes, &op.waiting_ns, &op.service_ns];
        [sizes, times].map(|of| of.map(|sum| (sum.count(), sum.sum(), sum.min(), sum.max())))
    };
    assert_eq!(read(all), read(sums));
    let held = |stats: &iogate_core::stats::Stats| {
        stats.held_ns.each_ref().map(|sum| (sum.count(), sum.sum(), sum.min(), sum.max()))
    };
    assert_eq!(held(all), held(sums));
    let waits = |stats: &iogate_core::stats::Stats| stats.waits.map(|one| (one.count, one.total));
    assert_eq!(waits(all), waits(sums));
    let failed = |stats: &iogate_core::stats::Stats| [Op::Read, Op::Write].map(|op| stats.op(op).failed);
    assert_eq!(failed(all), failed(sums));
    let is_seen = [
        all.held_ns.iter().any(|sum| sum.count() > 0),
        all.waits.iter().any(|one| one.count > 0),
        failed(all)[0] > 0,
    ];
    assert_eq!(is_seen, [true; 3], "there is something to compare");
    assert_eq!([all.files.len(), all.apps.len()], [3, 3]);
    assert!(sums.files.is_empty() && sums.apps.is_empty() && sums.targets.is_empty());
    assert_eq!(sums.op(Op::Read).waiting_ns.iter().count(), 0);
}

/// As on a clock that jumps, or in a trace whose times are far apart.
#[test]
fn times_of_centuries_are_summed_without_an_end() {
    for kind in SchedulerKind::ALL {
        let mut gate = Gate::new(&config(kind, 2)).unwrap();
        gate.set_accounting(Time::ZERO, Some((Accounting::Exact, &Prices::default())));
        let mut flying = Vec::new();
        for id in 0..6 {
            gate.submit(Time::ZERO, &request(id, id, Op::Read, 0, 4096)).unwrap();
        }
        let mut now = Time::ZERO;
        let mut done = 0;
        // The first ones are in service from the first instant to the last, the others wait for as long.
        for _ in 0..1_000 {
            match gate.next(now) {
                Decision::Dispatch(dispatch) => flying.push(dispatch.id),
                _ => {
                    now = Time::MAX;
                    done += flying.len();
                    flying.drain(..).for_each(|id| gate.complete(now, id, Outcome::Done { bytes: 4096 }));
                }
            }
            if done == 6 {
                break;
            }
        }
        assert_eq!(done, 6, "{}", kind.name());
        let stats = gate.stats();
        let reads = stats.op(Op::Read);
        assert_eq!((reads.service_ns.sum(), reads.waiting_ns.sum()), (u64::MAX, u64::MAX), "{}", kind.name());
        assert!(stats.apps.iter().any(|(_, sums)| sums.waiting == Span::MAX), "{}", kind.name());
        let scheduler = SchedulerConfig::new(kind);
        drop(Summary::new(stats, &scheduler, 2, &Numbers, 32));
        drop(gate.apps_now(now));
    }
}
