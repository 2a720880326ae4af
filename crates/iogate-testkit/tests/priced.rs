//! How long a wait is worth its price: the core's rule, the naive one, and optimal stopping by going back from the end.

use iogate_core::Span;
use iogate_core::sched::WHOLE;
use iogate_core::sched::think::{BINS, Think, edge};
use iogate_testkit::generate::cases;
use iogate_testkit::reference::ThinkCounts;
use proptest::collection::vec;
use proptest::prelude::*;

/// Stopping is looked at so often within each bin.
const STEPS: u64 = 8;

/// How many of the chances come later, in floating point.
fn later(counts: &[f64], at: f64) -> f64 {
    let of_bin = |bin: usize| {
        let from = if bin == 0 { 0.0 } else { edge(bin - 1).as_nanos() as f64 };
        let to = edge(bin).as_nanos() as f64;
        counts[bin] * (to - at.clamp(from, to)) / (to - from)
    };
    (0..BINS).map(of_bin).sum::<f64>() + counts[BINS]
}

/// What the best rule for stopping is worth: at each point of a grid, to stop, or to go on to the next point.
fn optimal(counts: &[f64], gone: u64, saving: f64, loss: f64, longest: u64) -> f64 {
    let mut grid = vec![gone];
    for bin in 0..BINS {
        let (from, to) = (if bin == 0 { 0 } else { edge(bin - 1).as_nanos() }, edge(bin).as_nanos());
        if to > gone && to <= longest {
            let from = from.max(gone);
            grid.extend((1..=STEPS).map(|step| from + (to - from) * step / STEPS).filter(|&at| at > gone));
        }
    }
    let on = grid.windows(2).rev().fold(0.0, |on: f64, step| {
        let (here, next) = (later(counts, step[0] as f64), later(counts, step[1] as f64));
        let idle = (here + next) / 2.0 * (step[1] - step[0]) as f64;
        (saving * (here - next) - loss * idle + on).max(0.0)
    });
    on / later(counts, gone as f64)
}

/// Think times of a few kinds, so that some bins are full and others empty.
fn think() -> impl Strategy<Value = Option<Span>> {
    let ns = prop_oneof![
        3 => 0u64..3_000,
        3 => 50_000u64..400_000,
        1 => 0u64..100_000_000,
        1 => (0u32..40).prop_map(|log2| 1 << log2),
    ];
    prop_oneof![6 => ns.prop_map(|ns| Some(Span::from_nanos(ns))), 1 => Just(None)]
}

fn gone() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0u64), 2 => 0u64..1_000_000, 1 => 0u64..80_000_000, 1 => (0u32..28).prop_map(|log2| 1 << log2)]
}

fn loss() -> impl Strategy<Value = u32> {
    prop_oneof![2 => Just(WHOLE), 1 => Just(0), 3 => 0..WHOLE]
}

fn saving() -> impl Strategy<Value = u64> {
    prop_oneof![1 => 0u64..10_000, 2 => 0u64..1_000_000, 2 => 0u64..30_000_000, 1 => Just(1u64 << 40)]
}

#[test]
fn the_wait_is_the_best_there_is() {
    proptest!(cases(800), |(thinks in vec(think(), 0..600), gone in gone(), loss in loss(), saving in saving(), over in any::<bool>())| {
        let (mut think, mut naive) = (Think::default(), ThinkCounts::default());
        for &one in &thinks {
            think.record(one);
            naive.record(one);
        }
        prop_assert_eq!(u64::from(think.chances()), naive.total());
        let longest = if over { gone + 2 * saving } else { saving };
        let [wait, limit] = [gone, longest].map(Span::from_nanos);
        let best = think.best_wait(wait, Span::from_nanos(saving), loss, limit);
        prop_assert_eq!(best.map(|best| (best.until.as_nanos(), best.gain)), naive.best(gone, saving, loss, longest));

        let counts = naive.counts().map(|count| count as f64);
        let share = f64::from(loss) / f64::from(WHOLE);
        let value = if later(&counts, gone as f64) > 0.0 { optimal(&counts, gone, saving as f64, share, longest) } else { 0.0 };
        let found = best.map_or(0.0, |best| best.gain as f64 / f64::from(WHOLE));
        prop_assert!((value - found).abs() <= 0.001 + value * 1e-9, "worth {found} ns, and {value} ns when one may stop anywhere");
    });
}
