//! What a chooser begins with: after the first requests a prior says what situations like this one gained by.

use super::{Chooser, Reason, Status};
use crate::auto::prior::{Prior, Traits};
use crate::auto::ring::{Limits, Ring};
use crate::time::Span;

impl Chooser {
    /// Lets a prior say what to begin with. Its candidates are those of [`Candidates::every`](crate::auto::Candidates::every).
    pub fn beginning_with(mut self, prior: Prior) -> Chooser {
        self.prior = (!prior.nodes().is_empty()).then_some(prior);
        self
    }

    /// Goes on counting where the one before it was given up, which was a change.
    pub(in crate::auto) fn counting_on(self, before: &Status) -> Chooser {
        let Status { switches, probes, windows, simulated, memory_max, .. } = *before;
        let status = Status { switches: switches + 1, probes, windows, simulated, memory_max, ..self.status };
        Chooser { status, ..self }
    }

    /// What the prior was told, once it was.
    pub fn traits(&self) -> Option<&Traits> {
        self.traits.as_ref()
    }

    /// How much of what happens the next window is to be of.
    pub fn limits(&self) -> Limits {
        if let Some(limits) = self.probing.limits() {
            return limits;
        }
        match (&self.prior, &self.turns) {
            (Some(_), _) => Limits::EARLY,
            // Who is slower with what is tried is not so for long.
            (None, Some(turns)) => Limits { longest: turns.longest, ..Limits::USUAL },
            (None, None) => Limits::USUAL,
        }
    }

    /// The first requests are there: what situations like this one gained by.
    pub(super) fn begin_with(&mut self, prior: &Prior, ring: &Ring) {
        let window = self.reader.look(ring);
        let traits = Traits::of(&window, &*self.pricing, self.config.depth);
        self.traits = Some(traits);
        let (index, gain) = prior.choose(&traits);
        // It was grown from situations that began with `fifo`, and says nothing of what else one may have begun with.
        let is_any = index != 0 && self.used == 0 && index < self.candidates.len();
        if is_any && self.candidates.suits(index, self.one) {
            let completed = (window.completed() as u64).max(1);
            self.wait = Span::from_nanos(window.waited.as_nanos() / completed);
            self.set_proposal(index, Reason::Prior, gain);
        }
    }
}
