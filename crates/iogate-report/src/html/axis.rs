//! A horizontal axis of time.

use maud::{Markup, html};

use super::{LEFT, WIDTH};
use crate::units::time;

/// Room at the right for numbers.
const RIGHT: f64 = 84.0;

/// Maps times from 0 to `end_ns` to the picture.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    end_ns: f64,
}

impl Axis {
    pub(super) fn new(end_ns: u64) -> Axis {
        Axis { end_ns: end_ns.max(1) as f64 }
    }

    pub(super) fn x(&self, ns: u64) -> f64 {
        LEFT + self.length(ns)
    }

    pub(super) fn length(&self, ns: u64) -> f64 {
        (ns as f64 / self.end_ns) * (WIDTH - LEFT - RIGHT)
    }

    pub(super) fn right(&self) -> f64 {
        WIDTH - RIGHT
    }

    /// Lines from `top` to `bottom` at round times, with their labels below.
    pub(super) fn grid(&self, top: f64, bottom: f64) -> Markup {
        let step = round_step(self.end_ns / 6.0);
        let ticks = (0u32..).map(|i| f64::from(i) * step).take_while(|at| *at <= self.end_ns * 1.0001);
        html! {
            @for at in ticks {
                @let x = format!("{:.1}", self.x(at as u64));
                line.grid x1=(x) x2=(x) y1=(top) y2=(bottom) {}
                text.soft x=(x) y=(bottom + 17.0) text-anchor="middle" { (if at == 0.0 { "0".into() } else { time(at) }) }
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, at least `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(least)
}

#[cfg(test)]
mod tests {
    #[test]
    fn steps_are_round() {
        assert_eq!([1.0, 3.0, 5.1, 120.0, 99.0].map(super::round_step), [1.0, 5.0, 10.0, 200.0, 100.0]);
    }
}
