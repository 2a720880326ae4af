//! The automatic choice in random worlds: against an exhaustive search, repeatable, bounded, and nothing is lost.

#[path = "auto/world.rs"]
mod world;

use std::sync::Arc;

use iogate_core::auto::Auto;
use iogate_core::auto::chooser::{Reason, Status};
use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::device;
use iogate_core::{Op, SchedulerConfig, Span, Time};
use world::{ALIKE, Mix, Near, Process, Ran, learning, run, slowdown};

/// Worlds of the exhaustive search, and the mean regret that is allowed, as a logarithm. Nobody may be more than 10 % slower.
const SEEDS: u64 = 16;
const REGRET_MAX: f64 = 0.08;

fn fifo() -> SchedulerConfig {
    SchedulerConfig::by_name("fifo").unwrap()
}

fn with_auto(mix: &Mix, first: &SchedulerConfig, per_s: u64) -> Ran {
    run(mix, first, Some(&mut mix.auto(first, per_s)), |_, _| {})
}

/// Every candidate to the end: the best that makes no application more than 10 % slower.
fn best(mix: &Mix, base: &Ran) -> f64 {
    let ran = |scheduler| slowdown(&run(mix, scheduler, None, |_, _| {}), base);
    let harmless = mix.candidates().fixed().map(ran).filter(|(_, worst)| *worst <= 1.1).collect::<Vec<_>>();
    harmless.into_iter().map(|(mean, _)| mean).fold(0.0, f64::min)
}

#[test]
fn regret_against_an_exhaustive_search_is_bounded() {
    let (mut regret, mut gain, mut harmed) = (0.0, 0.0, Vec::new());
    for seed in 0..SEEDS {
        let mix = Mix::random(seed).lasting(20);
        let base = run(&mix, &fifo(), None, |_, _| {});
        let best = best(&mix, &base);
        let (mean, worst) = slowdown(&with_auto(&mix, &fifo(), REQUESTS_PER_S), &base);
        regret += mean - best;
        gain -= best;
        harmed.extend((worst > 1.1).then_some((seed, worst)));
    }
    println!("regret {:.3} of {:.3}, harmed {harmed:?}", regret / SEEDS as f64, gain / SEEDS as f64);
    assert!(regret <= REGRET_MAX * SEEDS as f64, "{regret} of {gain}");
    assert!(harmed.is_empty(), "{harmed:?}");
}

#[test]
fn a_constant_load_does_not_make_it_change_again_and_again() {
    for seed in [5, 20, 26, 30, 35] {
        let mix = Mix::random(seed).lasting(30);
        let ran = with_auto(&mix, &fifo(), REQUESTS_PER_S);
        // About 120 windows. Each further change is waited for twice as long, and each may be taken back.
        assert!(ran.switches.len() <= 18, "seed {seed}: {:?}", ran.switches);
    }
}

/// These take up to 1.8 times as long with `aioli`, on arrays and on storage without seeks.
#[test]
fn beginning_with_aioli_harms_nobody_where_waits_do_not_pay() {
    let aioli = SchedulerConfig::by_name("aioli").unwrap();
    for seed in [8, 13, 17] {
        let mix = Mix::random(seed).lasting(20);
        let base = run(&mix, &fifo(), None, |_, _| {});
        let (_, worst) = slowdown(&run(&mix, &aioli, None, |_, _| {}), &base);
        assert!(worst > 1.1, "seed {seed}: {worst}, so this shows nothing");
        let ran = with_auto(&mix, &aioli, REQUESTS_PER_S);
        let (_, worst) = slowdown(&ran, &base);
        assert!(worst <= 1.1, "seed {seed}: {worst}, {:?}", ran.switches);
    }
}

#[test]
fn the_same_calls_give_the_same_choices() {
    for seed in [5, 20, 23, 26] {
        let mix = Mix::random(seed);
        let first = with_auto(&mix, &fifo(), REQUESTS_PER_S);
        assert_eq!(first, with_auto(&mix, &fifo(), REQUESTS_PER_S), "seed {seed}");
        assert!(!first.switches.is_empty(), "seed {seed}: nothing was chosen, so this shows nothing");
    }
}

#[test]
fn without_a_budget_nothing_changes() {
    for seed in [5, 20, 23, 26] {
        let mix = Mix::random(seed);
        let aioli = SchedulerConfig::by_name("aioli").unwrap();
        let with = with_auto(&mix, &aioli, 0);
        assert!(with.switches.is_empty(), "seed {seed}");
        assert_eq!(with.dispatches, run(&mix, &aioli, None, |_, _| {}).dispatches, "seed {seed}");
    }
}

#[test]
fn nothing_is_lost_when_the_scheduler_changes_every_millisecond() {
    for seed in [1, 5, 19, 22, 27, 31] {
        let mix = Mix::random(seed);
        let candidates: Vec<SchedulerConfig> = mix.candidates().fixed().cloned().collect();
        let (mut next, mut switches) = (Time::ZERO, 0);
        let mut auto = mix.auto(&fifo(), REQUESTS_PER_S);
        // `run` checks that each process has got all that it asked for.
        let ran = run(&mix, &fifo(), Some(&mut auto), |now, gate| {
            if now >= next {
                next = now + Span::from_millis(1);
                switches += 1;
                let other = &candidates[switches % candidates.len()];
                gate.switch(now, other);
            }
        });
        assert!(switches > 100, "seed {seed}: {switches}");
        let bytes: u64 = ran.dispatches.iter().map(|(.., bytes)| bytes).sum();
        let asked: u64 = mix.processes.iter().map(|of| u64::from(of.bytes) * u64::from(of.requests)).sum();
        assert_eq!(bytes, asked, "seed {seed}: served once");
    }
}

/// Small requests beside large ones: whoever serves the small ones first, always, starves the others, and whoever never does lets them wait
/// for nothing. A bound that follows what requests wait gives much to the one and takes little from the other.
#[test]
fn a_bound_on_waiting_lets_small_requests_pass_and_nobody_starve() {
    let process = |app: u32, index: u64, bytes: u32, requests: u32| Process {
        app,
        file: u64::from(app) * 100 + index,
        op: Op::Read,
        bytes,
        stride: 0,
        start: 0,
        outstanding: 1,
        think: Span::ZERO,
        requests,
    };
    let large = (0..6).map(|index| process(1, index, 1 << 20, 8_000));
    let small = (0..2).map(|index| process(2, index, 4_096, 8_000));
    let mix =
        Mix { device: "pcie-ssd-100g", going_on: ALIKE, depth: 1, processes: large.chain(small).collect() };
    let base = run(&mix, &fifo(), None, |_, _| {});
    let ran = with_auto(&mix, &fifo(), REQUESTS_PER_S);
    let (mean, worst) = slowdown(&ran, &base);
    assert!(ran.switches.iter().any(|(_, name)| name.contains("age_max")), "{:?}", ran.switches);
    assert!(worst <= 1.1 && mean < -0.3, "mean {mean:.3}, worst {worst:.3}, {:?}", ran.switches);
}

#[test]
fn memory_is_bounded_whatever_the_load() {
    // 3,000 clients, each with one request at a time, all of an application of their own.
    let process = |index: u32| Process {
        app: index + 1,
        file: index.into(),
        op: Op::Read,
        bytes: 4_096,
        stride: 4_096,
        start: 0,
        outstanding: 2,
        think: Span::ZERO,
        requests: 8,
    };
    let mix =
        Mix { device: "unit:20us", going_on: ALIKE, depth: 16, processes: (0..3_000).map(process).collect() };
    let ran = with_auto(&mix, &fifo(), REQUESTS_PER_S);
    assert!(ran.memory_max > 1 << 20, "{}: it has seen something", ran.memory_max);
    assert!(ran.memory_max <= 4 << 20, "{} bytes", ran.memory_max);
}

const CONSTANT: &str = "unit:1ms";

/// Eight clients of two applications that read in sequence, each a file of its own, from storage that takes 1 ms for each, or `going_on`
/// thousandths of that: with `fifo` none goes on where another ended, so what is said of that is not seen to be wrong.
fn readers(seconds: u64, think: Span, going_on: u64) -> Mix {
    let process = |index: u32| Process {
        app: 1 + index / 4,
        file: 100 + u64::from(index),
        op: Op::Read,
        bytes: 65_536,
        stride: 65_536,
        start: 0,
        outstanding: 1,
        think,
        requests: seconds as u32 * 125,
    };
    Mix { device: CONSTANT, going_on, depth: 1, processes: (0..8).map(process).collect() }
}

/// A choice for `mix` with a profile that says that the storage takes as long as `far`, and so many thousandths of that for what goes on.
fn told(mix: &Mix, far: &'static str, going_on: u64) -> Auto {
    let profile = move || Near::boxed(device::parse(far).unwrap(), going_on);
    mix.believing(Arc::new(profile), &fifo(), REQUESTS_PER_S)
}

/// A profile that is wrong: what goes on is said to cost an eighth of the rest, and costs as much. Clients think for less than a transfer
/// takes.
fn lied_to(seconds: u64) -> (Mix, Auto) {
    let mix = readers(seconds, Span::from_micros(300), ALIKE);
    let auto = told(&mix, CONSTANT, 125);
    (mix, auto)
}

/// What was in force, from when on.
fn in_force(mix: &Mix, auto: &mut Auto) -> (Ran, Vec<(Time, String)>) {
    let mut in_force: Vec<(Time, String)> = Vec::new();
    let ran = run(mix, &fifo(), Some(auto), |now, gate| {
        let is_new = in_force.last().is_none_or(|(_, last)| *last != gate.scheduler().to_string());
        in_force.extend(is_new.then(|| (now, gate.scheduler().to_string())));
    });
    (ran, in_force)
}

/// How often something else than `fifo` was in force, and for how long altogether.
fn excursions(in_force: &[(Time, String)]) -> (usize, Span) {
    let mut sum = (0, Span::ZERO);
    for (index, (since, _)) in in_force.iter().enumerate().filter(|(_, (_, name))| name != "fifo") {
        let until = in_force.get(index + 1).map_or(*since, |(until, _)| *until);
        sum = (sum.0 + 1, sum.1 + until.since(*since));
    }
    sum
}

#[test]
fn what_is_predicted_wrongly_is_left_and_not_believed_again() {
    let (mix, mut auto) = lied_to(120);
    let (ran, in_force) = in_force(&mix, &mut auto);
    let (_, worst) = slowdown(&ran, &run(&mix, &fifo(), None, |_, _| {}));
    let (times, span) = excursions(&in_force);
    // It is tried; what is like it is not; and again when its correction has faded, ever later.
    assert!((1..=4).contains(&times), "{in_force:?}");
    assert!(span <= Span::from_millis(2_000) && worst <= 1.01, "{span}, {worst}: {in_force:?}");
    // A slice is 0.25 s with `fifo`: none is much longer.
    let ends = in_force.windows(2).filter(|two| two[0].1 != "fifo").map(|two| two[1].0.since(two[0].0));
    assert!(ends.max().unwrap() <= Span::from_millis(700), "{in_force:?}");
    // Why not is said.
    let corrected = auto.choice(Time::ZERO).corrected;
    assert!(corrected.iter().any(|of| of.scheduler.starts_with("aioli") && of.factor < 0.6), "{corrected:?}");
}

#[test]
fn the_same_calls_give_the_same_turns() {
    let (mix, mut auto) = lied_to(60);
    let (first, turns) = in_force(&mix, &mut auto);
    assert!(excursions(&turns).0 >= 1, "{turns:?}: nothing was tried, so this shows nothing");
    let mut other = lied_to(60).1;
    assert_eq!(in_force(&mix, &mut other), (first, turns));
    assert_eq!(other.choice(Time::ZERO), auto.choice(Time::ZERO));
}

/// A profile that says twice the time of everything, and that going on saves a quarter: that it is predicted to gain could as well be an
/// error of the prediction.
fn doubted(seconds: u64, going_on: u64) -> (Mix, Auto) {
    let mix = readers(seconds, Span::ZERO, going_on);
    let auto = told(&mix, "unit:2ms", 750);
    (mix, auto)
}

#[test]
fn a_gain_that_could_be_an_error_is_had_once_turns_have_shown_it() {
    let (mix, mut auto) = doubted(90, 750);
    let (ran, in_force) = in_force(&mix, &mut auto);
    let [(_, first), (tried, other), (back, fifo), (since, last)] = &in_force[..] else {
        panic!("{in_force:?}")
    };
    assert!(other.starts_with("aioli") && (first, fifo, last) == (fifo, first, other), "{in_force:?}");
    // A B B A, of 0.25 s each, as soon as two of them are one hundredth of the time.
    let spans = [tried.since(Time::ZERO), back.since(*tried), since.since(*back)]
        .map(|span| span.as_nanos() / 10_000_000);
    assert!((5_000..=5_100).contains(&spans[0]) && spans[1..] == [50, 25], "{in_force:?}");
    assert_eq!(ran.turns, [1, 2, 3].map(|slices| (other.clone(), slices)));
    // It has shown what it promised before it was changed to, once.
    let Status { change, error, .. } = auto.status();
    assert_eq!((change.reason, ran.switches.len()), (Reason::Gain, 1));
    assert!(
        change.predicted < 2 * error.unwrap(),
        "{:?}: so large that nothing had to be measured",
        auto.status()
    );
    let measured = change.measured.unwrap();
    assert!(measured > 200_000 && measured.abs_diff(change.predicted) < 20_000, "{change:?}");
    let (mean, worst) = slowdown(&ran, &run(&mix, &self::fifo(), None, |_, _| {}));
    assert!(mean < -0.1 && worst < 1.0, "{mean} {worst}");
}

#[test]
fn a_gain_that_is_an_error_is_tried_in_turns_and_left_alone() {
    let (mix, mut auto) = doubted(120, ALIKE);
    let (ran, in_force) = in_force(&mix, &mut auto);
    let (times, span) = excursions(&in_force);
    // All four slices: nobody is harmed by it, it gains nothing.
    let tried = in_force.get(1).map(|(_, name)| name.clone()).unwrap_or_default();
    assert!(tried.starts_with("aioli"), "{in_force:?}");
    assert_eq!(ran.turns, [1, 2, 3].map(|slices| (tried.clone(), slices)));
    // That is known from then on.
    assert!(times == 1 && span <= Span::from_millis(510) && ran.switches.is_empty(), "{in_force:?}");
    let corrected = auto.choice(Time::ZERO).corrected;
    assert!(corrected.iter().any(|of| of.scheduler == tried && of.factor < 0.9), "{corrected:?}");
}

/// Four processes that read in sequence, four requests of 256 KiB at a time, from storage that takes as long for many bytes as for few.
fn constant_times(stride: u64) -> Mix {
    let process = |index: u32| Process {
        app: 1,
        file: 100 + u64::from(index),
        op: Op::Read,
        bytes: 262_144,
        stride,
        start: 0,
        outstanding: 4,
        think: Span::ZERO,
        requests: 4_000,
    };
    Mix { device: CONSTANT, going_on: ALIKE, depth: 1, processes: (0..4).map(process).collect() }
}

#[test]
fn what_larger_dispatches_take_is_found_out_in_a_moment() {
    let mix = constant_times(262_144);
    let mut auto = learning(&mix, &fifo(), REQUESTS_PER_S);
    let (ran, in_force) = in_force(&mix, &mut auto);
    let (mean, _) = slowdown(&ran, &run(&mix, &fifo(), None, |_, _| {}));
    assert!(mean < -0.7, "{mean}: {in_force:?}");
    // Before the first change it has been tried, for no more than a twentieth of the time.
    let changed = Time::from_nanos(ran.switches.first().expect("it was changed").0);
    let probes: Vec<_> = in_force.iter().take_while(|(at, _)| *at <= changed).cloned().collect();
    let (times, span) = excursions(&probes);
    assert!(times as u64 >= auto.status().probes && auto.status().probes > 0, "{probes:?}");
    assert!(span.as_nanos() * 20 <= changed.as_nanos() + 20_000_000, "{span}: {probes:?}");
}

#[test]
fn what_is_known_or_cannot_be_is_not_probed() {
    // Nobody joins what is read at random; and of a profile all is believed.
    let random = constant_times(0);
    let mut auto = learning(&random, &fifo(), REQUESTS_PER_S);
    let (_, seen) = in_force(&random, &mut auto);
    assert_eq!((seen.len(), auto.status().probes), (1, 0), "{seen:?}");
    let mix = constant_times(262_144);
    let mut auto = mix.auto(&fifo(), REQUESTS_PER_S);
    in_force(&mix, &mut auto);
    assert_eq!(auto.status().probes, 0);
}

/// Of storage of which nothing is known, what it is assumed to charge is no reason for a choice: a window of fewer dispatches than show
/// what it does charge is not judged.
#[test]
fn a_window_of_too_few_dispatches_to_learn_from_is_not_judged() {
    let scheduler = SchedulerConfig::by_name("to-agg").unwrap();
    let process = Process {
        app: 1,
        file: 1,
        op: Op::Write,
        bytes: 65_536,
        stride: 65_536,
        start: 0,
        outstanding: 128,
        think: Span::ZERO,
        requests: 7_000,
    };
    let mix = Mix { device: "hdd", going_on: ALIKE, depth: 1, processes: [process].into() };
    let mut auto = learning(&mix, &scheduler, REQUESTS_PER_S);
    let ran = run(&mix, &scheduler, Some(&mut auto), |_, _| {});
    let dispatches = ran.dispatches.len();
    assert!(dispatches < 64, "{dispatches} dispatches");
    assert_eq!(auto.status().windows, 0);
}
