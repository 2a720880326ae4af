//! The automatic choice in random worlds: it is repeatable, bounded, and loses nothing.

#[path = "auto/world.rs"]
mod world;

use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::{Op, SchedulerConfig, Span, Time};
use world::{Mix, Process, Ran, run};

fn fifo() -> SchedulerConfig {
    SchedulerConfig::by_name("fifo").unwrap()
}

fn with_auto(mix: &Mix, first: &SchedulerConfig, per_s: u64) -> Ran {
    run(mix, first, Some(&mut mix.auto(first, per_s)), |_, _| {})
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
        let candidates = mix.candidates();
        let (mut next, mut switches) = (Time::ZERO, 0);
        let mut auto = mix.auto(&fifo(), REQUESTS_PER_S);
        // `run` checks that each process has got all that it asked for.
        let ran = run(&mix, &fifo(), Some(&mut auto), |now, gate| {
            if now >= next {
                next = now + Span::from_millis(1);
                switches += 1;
                let other = &candidates.all()[switches % candidates.all().len()];
                gate.switch(now, other);
            }
        });
        assert!(switches > 100, "seed {seed}: {switches}");
        let bytes: u64 = ran.dispatches.iter().map(|(.., bytes)| bytes).sum();
        let asked: u64 = mix.processes.iter().map(|of| u64::from(of.bytes) * u64::from(of.requests)).sum();
        assert_eq!(bytes, asked, "seed {seed}: served once");
    }
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
    let mix = Mix { device: "unit:20us", depth: 16, processes: (0..3_000).map(process).collect() };
    let ran = with_auto(&mix, &fifo(), REQUESTS_PER_S);
    assert!(ran.memory_max > 1 << 20, "{}: it has seen something", ran.memory_max);
    assert!(ran.memory_max <= 4 << 20, "{} bytes", ran.memory_max);
}
