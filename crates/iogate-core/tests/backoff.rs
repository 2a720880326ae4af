//! Backing off, against algorithm 1 of the thesis.

use iogate_core::coord::backoff::{Backoff, BackoffConfig, Step, Verdict};
use iogate_core::{Span, Time};

const SECOND: u64 = 1_000_000_000;

/// 100 MB/s when it is quiet, and one probe an attempt.
fn config() -> BackoffConfig {
    BackoffConfig { quiet: 100_000_000, probes: 1, ..BackoffConfig::default() }
}

/// How long a probe takes at this many MB/s.
fn at_speed(megabytes: u64) -> Span {
    Span::from_nanos((3 << 20) * 1000 / megabytes)
}

/// One attempt after another, each measuring this many MB/s. Returns the sleeps, and how it ended.
fn run(config: &BackoffConfig, seed: u64, speed: impl Fn(u32) -> u64) -> (Vec<Span>, Verdict) {
    let mut backoff = Backoff::new(config.clone(), seed);
    let (mut now, mut sleeps) = (Time::from_nanos(SECOND), Vec::new());
    loop {
        match backoff.next(now) {
            Step::Probe { bytes, .. } => {
                let elapsed = at_speed(speed(backoff.attempts()));
                now = now + elapsed;
                backoff.probed(now, bytes, elapsed);
            }
            Step::Sleep(until) => {
                sleeps.push(until.since(now));
                now = until;
            }
            Step::Proceed(verdict) => return (sleeps, verdict),
        }
    }
}

fn seconds(sleeps: &[Span]) -> Vec<u64> {
    sleeps.iter().map(|sleep| sleep.as_nanos() / SECOND).collect()
}

#[test]
fn quiet_storage_is_used_at_once() {
    assert_eq!(run(&config(), 1, |_| 100), (vec![], Verdict::Quiet));
    assert_eq!(run(&config(), 1, |_| 86), (vec![], Verdict::Quiet));
    assert_eq!(run(&config(), 1, |_| 84).1, Verdict::TriedEnough);
}

#[test]
fn the_threshold_is_met_when_it_is_reached() {
    let mut backoff = Backoff::new(config(), 1);
    backoff.probed(Time::ZERO, 85_000_000, Span::from_secs(1));
    assert_eq!(backoff.next(Time::ZERO), Step::Proceed(Verdict::Quiet));
    let mut backoff = Backoff::new(config(), 1);
    backoff.probed(Time::ZERO, 84_999_999, Span::from_secs(1));
    assert!(matches!(backoff.next(Time::ZERO), Step::Sleep(_)));
}

#[test]
fn it_begins_when_it_has_tried_enough_or_it_gets_quiet() {
    let (sleeps, verdict) = run(&config(), 3, |_| 10);
    assert_eq!((sleeps.len(), verdict), (7, Verdict::TriedEnough), "no sleep after the last attempt");
    let (sleeps, verdict) = run(&config(), 3, |attempts| if attempts < 4 { 10 } else { 99 });
    assert_eq!((sleeps.len(), verdict), (4, Verdict::Quiet));
    let once = BackoffConfig { attempts_max: 1, ..config() };
    assert_eq!(run(&once, 3, |_| 10), (vec![], Verdict::TriedEnough));
}

/// A change of these is a change of every simulated result.
#[test]
fn the_same_seed_gives_the_same_sleeps() {
    let golden = |seed| seconds(&run(&config(), seed, |_| 1).0);
    assert_eq!(golden(0), [2, 4, 2, 8, 32, 3, 89]);
    assert_eq!(golden(1), [1, 4, 6, 15, 28, 60, 78]);
}

/// The n-th sleep is the fixed part and 0 to 2^n - 1 units, each as often as the others.
#[test]
fn sleeps_are_spread_evenly_over_a_growing_range() {
    let config =
        BackoffConfig { sleep_unit: Span::from_secs(10), sleep_fixed: Span::from_millis(1500), ..config() };
    let seeds = 16_000;
    let mut seen: Vec<Vec<u32>> = (1..8).map(|attempt| vec![0; 1 << attempt]).collect();
    for seed in 0..seeds {
        for (counts, sleep) in seen.iter_mut().zip(run(&config, seed, |_| 1).0) {
            let units = sleep.as_nanos() - 1_500_000_000;
            assert_eq!(units % (10 * SECOND), 0);
            counts[(units / (10 * SECOND)) as usize] += 1;
        }
    }
    for counts in seen {
        let fair = seeds as f64 / counts.len() as f64;
        let chi2: f64 = counts.iter().map(|count| (f64::from(*count) - fair).powi(2) / fair).sum();
        // Its mean is the number of values less one, its variance twice that: five deviations.
        let free = counts.len() as f64 - 1.0;
        assert!(chi2 < free + 5.0 * (2.0 * free).sqrt(), "{counts:?}");
    }
}

#[test]
fn base_and_exponent_set_the_range() {
    let config = BackoffConfig { base: 3, exponent_start: 2, ..config() };
    let mut largest = [0; 3];
    for seed in 0..2000 {
        for (largest, sleep) in largest.iter_mut().zip(seconds(&run(&config, seed, |_| 1).0)) {
            *largest = (sleep - 1).max(*largest);
        }
    }
    assert_eq!(largest, [8, 26, 80]);
}

#[test]
fn the_smallest_of_several_probes_counts() {
    let config = BackoffConfig { probes: 3, ..config() };
    for (speeds, verdict) in [([90, 95, 99], true), ([99, 95, 80], false), ([80, 99, 99], false)] {
        let mut backoff = Backoff::new(config.clone(), 1);
        let mut now = Time::from_nanos(SECOND);
        let mut probes = 0;
        for speed in speeds {
            let Step::Probe { prime, bytes } = backoff.next(now) else { break };
            assert_eq!((prime, bytes), (256 << 10, 3 << 20), "each is primed");
            probes += 1;
            backoff.probed(now, bytes, at_speed(speed));
            if backoff.attempts() == 0 {
                let Step::Sleep(until) = backoff.next(now) else { panic!("a pause between probes") };
                assert_eq!(until.since(now), Span::from_millis(100));
                now = until;
            }
        }
        assert_eq!(backoff.attempts(), 1);
        assert_eq!(matches!(backoff.next(now), Step::Proceed(Verdict::Quiet)), verdict);
        assert_eq!(probes == 3, speeds[0] > 85, "a slow one settles it");
    }
}

/// What was measured before a sleep says nothing after it.
#[test]
fn each_attempt_begins_anew() {
    let config = BackoffConfig { probes: 2, ..config() };
    let mut backoff = Backoff::new(config, 1);
    backoff.probed(Time::ZERO, 3 << 20, at_speed(10));
    let Step::Sleep(until) = backoff.next(Time::ZERO) else { panic!("it is slow") };
    assert!(matches!(backoff.next(until), Step::Probe { .. }));
    backoff.probed(until, 3 << 20, at_speed(99));
    let Step::Sleep(until) = backoff.next(until) else { panic!("a pause") };
    backoff.probed(until, 3 << 20, at_speed(99));
    assert_eq!(backoff.next(until), Step::Proceed(Verdict::Quiet));
    backoff.probed(until, 3 << 20, at_speed(1));
    assert_eq!(backoff.next(until), Step::Proceed(Verdict::Quiet), "it has begun");
}

#[test]
fn odd_settings_do_no_harm() {
    let config = BackoffConfig {
        probes: 0,
        base: u32::MAX,
        exponent_start: u32::MAX,
        attempts_max: 5,
        sleep_unit: Span::MAX,
        ..config()
    };
    assert_eq!(run(&config, u64::MAX, |_| 1).1, Verdict::TriedEnough);
    let mut backoff = Backoff::new(config, 0);
    backoff.probed(Time::MAX, u64::MAX, Span::ZERO);
    assert_eq!(backoff.next(Time::MAX), Step::Proceed(Verdict::Quiet));
}
