//! Mixes that come again, as jobs do: what it is worth to expect that applications end as they did before.

use iogate_core::Span;

use super::evaluate::{Known, Slowdowns, auto};
use super::mix::{Mix, Set, fifo};
use super::run::run;

/// How often each mix is carried out: who is to expect anything must have seen it twice.
pub const ROUNDS: u32 = 4;
/// How long nothing is in between.
pub const PAUSE: Span = Span::from_secs(5);

/// What is known of the storage, and whether ends are expected.
pub const WAYS: [(Known, bool); 4] =
    [(Known::Profile, true), (Known::Profile, false), (Known::Nothing, true), (Known::Nothing, false)];

/// What became of a mix that came again.
#[derive(Clone, Debug)]
pub struct Again {
    /// Of each of [`WAYS`], each round against the same round with `fifo`.
    pub ways: [Vec<Slowdowns>; 4],
    /// The most memory that a choice took, in bytes.
    pub memory_max: usize,
}

impl Again {
    /// Carries out the mix with this number.
    pub fn new(set: Set, number: u64) -> Again {
        let mix = Mix::random(set, number).again(ROUNDS, PAUSE);
        let base = run(&mix, &fifo(), None, u64::MAX);
        let mut memory_max = 0;
        let ways = WAYS.map(|(known, expects)| {
            let auto = auto(&mix, known);
            let mut auto = if expects { auto } else { auto.expecting_no_ends() };
            let ran = run(&mix, &fifo(), Some(&mut auto), u64::MAX);
            memory_max = memory_max.max(ran.memory_max);
            (0..ROUNDS as usize).map(|round| Slowdowns::of_round(&ran, &base, round)).collect()
        });
        Again { ways, memory_max }
    }
}
