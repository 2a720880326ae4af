//! Mixes that come again, as jobs do: what it is worth to expect that applications end as they did before.

use super::evaluate::{Known, Slowdowns, auto};
use super::mix::{Mix, Set, fifo};
use super::run::run;

/// How often each mix is carried out: who is to expect anything must have seen it twice.
pub const ROUNDS: u32 = 4;

/// What became of a mix that came again.
#[derive(Clone, Debug)]
pub struct Again {
    /// Of the choice with a profile and without one, and of the same if it expects no ends: each round, against the same round with `fifo`.
    pub ways: [Vec<Slowdowns>; 4],
}

impl Again {
    /// Carries out the mix with this number.
    pub fn new(set: Set, number: u64) -> Again {
        let mix = Mix::random(set, number).again(ROUNDS);
        let base = run(&mix, &fifo(), None, u64::MAX);
        let ways = [
            (Known::Profile, true),
            (Known::Profile, false),
            (Known::Nothing, true),
            (Known::Nothing, false),
        ];
        Again {
            ways: ways.map(|(known, expects)| {
                let auto = auto(&mix, known);
                let mut auto = if expects { auto } else { auto.expecting_no_ends() };
                let ran = run(&mix, &fifo(), Some(&mut auto), u64::MAX);
                (0..ROUNDS as usize).map(|round| Slowdowns::of_round(&ran, &base, round)).collect()
            }),
        }
    }
}
