//! Axes: round values and where they lie.

use iogate_sim::metrics::Unit;
use maud::{Markup, html};

use super::{LEFT, WIDTH};
use crate::claims::Interval;
use crate::units::{bytes, number, time};

/// Room at the right for numbers.
const RIGHT: f64 = 84.0;

/// A horizontal axis.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    low: f64,
    end: f64,
    unit: Unit,
    right: f64,
}

impl Axis {
    /// Of times from 0 to `end_ns`.
    pub(super) fn new(end_ns: u64) -> Axis {
        Axis { low: 0.0, end: end_ns.max(1) as f64 / 1e9, unit: Unit::Seconds, right: WIDTH - RIGHT }
    }

    /// Of a [`range`] of values, with so much room at the right.
    pub(super) fn of((low, end): (f64, f64), unit: Unit, room: f64) -> Axis {
        Axis { low, end, unit, right: WIDTH - room }
    }

    pub(super) fn x(&self, ns: u64) -> f64 {
        self.at(ns as f64 / 1e9)
    }

    pub(super) fn length(&self, ns: u64) -> f64 {
        self.x(ns) - LEFT
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        LEFT + (value.max(self.low) - self.low) / (self.end - self.low) * (self.right - LEFT)
    }

    pub(super) fn right(&self) -> f64 {
        self.right
    }

    /// Lines from `top` to `bottom` at round values, with their labels below.
    pub(super) fn grid(&self, top: f64, bottom: f64) -> Markup {
        html! {
            @for (at, label) in ticks((self.low, self.end), self.unit, 6.0) {
                @let x = format!("{:.1}", self.at(at));
                line.grid x1=(x) x2=(x) y1=(top) y2=(bottom) {}
                text.soft x=(x) y=(bottom + 17.0) text-anchor="middle" { (label) }
            }
        }
    }
}

/// From 0, or below where values (each with the ends of its interval) are, to the highest end of an interval; never empty. An interval
/// alone does not reach below 0: most of what is measured cannot.
pub(super) fn range(values: impl Iterator<Item = Interval>) -> (f64, f64) {
    let (low, end) = values.fold((0.0f64, 0.0f64), |(low, end), value| {
        (low.min(if value.mean < 0.0 { value.low } else { 0.0 }), end.max(value.high))
    });
    (low, if end > low { end } else { low + 1.0 })
}

/// Round values from `low` to `end` with their labels, about `most` of them.
pub(super) fn ticks((low, end): (f64, f64), unit: Unit, most: f64) -> Vec<(f64, String)> {
    let span = end - low;
    let percent: fn(f64) -> String = |value| format!("{} %", number(value));
    let (factor, step, label): (f64, f64, fn(f64) -> String) = match unit {
        Unit::Seconds => (1e9, round_step(span * 1e9 / most), time),
        Unit::Bytes => (1.0, binary_step(span / most), bytes),
        Unit::BytesPerSecond => (1.0, binary_step(span / most), |value| format!("{}/s", bytes(value))),
        Unit::Percent => (1.0, round_step(span / most), percent),
        Unit::CoreHours => (1.0, round_step(span / most), |value| format!("{} core h", number(value))),
        Unit::Count => (1.0, round_step((span / most).max(1.0)), number),
        Unit::Ratio => (1.0, round_step(span / most), number),
    };
    let first = (low * factor / step).ceil();
    (0u32..=2 * most as u32)
        .map(|i| (first + f64::from(i)) * step)
        .take_while(|at| *at <= end * factor * 1.0001)
        .map(|at| (at / factor, if at == 0.0 { "0".into() } else { label(at) }))
        .collect()
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(least)
}

/// 1, 2 or 5 of a binary unit, ten or a hundred times that, or 256 or 512 of it; at least `least`.
fn binary_step(least: f64) -> f64 {
    const STEPS: [f64; 11] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 256.0, 512.0, 1024.0];
    let mut unit = 1.0;
    while unit * 1024.0 <= least {
        unit *= 1024.0;
    }
    STEPS.map(|factor| factor * unit).into_iter().find(|step| *step >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!([1.0, 3.0, 5.1, 120.0, 99.0].map(round_step), [1.0, 5.0, 10.0, 200.0, 100.0]);
        assert_eq!([0.5, 3.0, 201.0, 700.0, 1025.0].map(binary_step), [1.0, 5.0, 256.0, 1024.0, 2048.0]);
    }

    #[test]
    fn ticks_are_labelled_for_people() {
        let labels =
            |end, unit| ticks((0.0, end), unit, 4.0).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        assert_eq!(labels(0.007, Unit::Seconds), ["0", "2 ms", "4 ms", "6 ms"]);
        assert_eq!(labels(35.0 * 1048576.0, Unit::BytesPerSecond), ["0", "10 MiB/s", "20 MiB/s", "30 MiB/s"]);
        assert_eq!(labels(2.0, Unit::Count), ["0", "1", "2"]);
        let below = ticks((-30.0, 20.0), Unit::Percent, 4.0);
        assert_eq!(below.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [-20.0, 0.0, 20.0]);
    }

    #[test]
    fn a_range_has_0_in_it() {
        let of = |low, mean, high| Interval { low, mean, high };
        assert_eq!(range([of(2.0, 3.0, 4.0), of(-1.0, 1.0, 5.0)].into_iter()), (0.0, 5.0));
        assert_eq!(range([of(-4.0, -3.0, -2.0), of(-1.5, -1.0, -0.5)].into_iter()), (-4.0, 0.0));
        assert_eq!(range([Interval::exact(0.0)].into_iter()), (0.0, 1.0));
    }
}
