//! Probes of a chooser: dispatches as have never been measured are tried for a moment, so that it is known what they take.
//!
//! What storage charges is learnt from what is in use, and `fifo` does not show what larger dispatches cost, nor those that go on.
//! A scheduler whose dispatches are mostly such ones is simulated by a guess, which can as well hide a gain as promise one. So it is in
//! force for a moment, of which nothing but the prices of its dispatches is learnt.

use super::Chooser;
use crate::auto::judging::Judging;
use crate::auto::ring::{Limits, Ring};
use crate::auto::turns::Allowance;
use crate::time::{Span, Time};

/// The share of time, as one part in so many, that may be spent with probes.
const SHARE: u64 = 20;
/// Completions after which a probe has shown enough.
const COMPLETIONS: usize = 64;
/// The shortest probe that is worth it.
const SHORTEST: Span = Span::from_millis(2);
/// Probes of one kind of load: what has not been seen by then does not happen.
const PROBES_MAX: u32 = 8;

/// What is spent with probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probing {
    allowance: Allowance,
    /// Of this kind of load.
    probes: u32,
    /// How long the one may take that is in force.
    longest: Option<Span>,
}

impl Probing {
    pub(super) fn new(now: Time) -> Probing {
        Probing { allowance: Allowance::new(SHARE, now), probes: 0, longest: None }
    }

    /// The load has become another one.
    pub(super) fn forget(&mut self) {
        self.probes = 0;
    }

    /// Nothing is probed any more; whether it was.
    pub(super) fn give_up(&mut self) -> bool {
        self.longest.take().is_some()
    }

    /// How much of what happens a probe is to be of, if one is in force.
    pub(super) fn limits(&self) -> Option<Limits> {
        self.longest.map(|longest| Limits { completions: COMPLETIONS, shortest: Span::ZERO, longest })
    }
}

impl Chooser {
    /// Has a candidate in force for a moment whose dispatches nobody has measured.
    pub(super) fn begin_probe(&mut self, judging: &Judging, now: Time) {
        let Some(index) = judging.guess.filter(|index| *index != self.used) else { return };
        let longest = self.probing.allowance.left(now);
        if self.probing.probes >= PROBES_MAX || longest < SHORTEST {
            return;
        }
        self.probing.probes += 1;
        self.status.probes += 1;
        self.probing.longest = Some(longest);
        let scheduler = self.candidates.with_wait(index, self.wait);
        self.give_turn(scheduler);
    }

    /// Whether a probe was in force; what is in use is to be so again.
    pub(super) fn end_probe(&mut self, ring: &Ring, now: Time) -> bool {
        if !self.probing.give_up() {
            return false;
        }
        self.probing.allowance.spend(now.since(ring.began()));
        // What was simulated before was by a guess.
        self.history.clear();
        self.age = 0;
        self.turn_back();
        true
    }
}
