//! Applications that say how much they move: what it is worth to know their ends the first time, and what becomes of it where they lie.

use super::evaluate::{HARM, Known, Slowdowns, auto};
use super::mix::{Mix, Set, fifo};
use super::run::run;
use crate::rng::Rng;

/// What is known of the storage, and whether some applications lie.
pub const WAYS: [(Known, bool); 4] =
    [(Known::Profile, false), (Known::Profile, true), (Known::Nothing, false), (Known::Nothing, true)];

/// Times what an application says is of the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// All of it.
    True,
    /// Half of it.
    Half,
    /// Twice as much.
    Twice,
}

impl Word {
    /// What is said of so many bytes.
    pub const fn of(self, bytes: u64) -> u64 {
        match self {
            Word::True => bytes,
            Word::Half => bytes / 2,
            Word::Twice => bytes * 2,
        }
    }
}

/// What became of a mix whose applications have said how much they move.
#[derive(Clone, Debug)]
pub struct Saying {
    /// Of each of [`WAYS`], against `fifo`.
    pub ways: [Slowdowns; 4],
    /// What each application says where some lie; half of all applications do.
    pub words: Vec<Word>,
}

impl Saying {
    /// Carries out the mix with this number.
    pub fn new(set: Set, number: u64) -> Saying {
        let mix = Mix::random(set, number);
        let mut rng = Rng::new(mix.seed, 3);
        let mut word = || match rng.below(4) {
            0 => Word::Half,
            1 => Word::Twice,
            _ => Word::True,
        };
        let words: Vec<Word> = (0..mix.apps()).map(|_| word()).collect();
        let base = run(&mix, &fifo(), None, u64::MAX);
        let ways = WAYS.map(|(known, lies)| {
            let said = mix.clone().saying(|app, bytes| if lies { words[app].of(bytes) } else { bytes });
            Slowdowns::of(&run(&said, &fifo(), Some(&mut auto(&said, known)), u64::MAX), &base)
        });
        Saying { ways, words }
    }

    /// How many of those that say the truth are slower than may be, where the others lie.
    pub fn honest_harmed(&self, way: usize) -> usize {
        let all = self.ways[way].0.iter().zip(&self.words);
        all.filter(|(slowdown, word)| **word == Word::True && slowdown.exp() > HARM).count()
    }
}
