//! Turns of a chooser: what is tried is in force for two slices, and what it shows decides.

use alloc::boxed::Box;

use super::{Because, Chooser, GAIN_MIN, Proposal, Reason};
use crate::auto::objective::Ln;
use crate::auto::ring::Ring;
use crate::auto::turns::{Turns, Verdict, WORTH};
use crate::auto::window::Window;
use crate::sched::SchedulerConfig;
use crate::time::Time;

impl Chooser {
    /// A slice of turns is over: with what it shows they go on, or end.
    pub(super) fn slice(&mut self, mut turns: Box<Turns>, ring: &Ring, now: Time) {
        let with_b = turns.is_with_b();
        if with_b {
            self.allowance.spend(now.since(ring.began()));
        }
        let window = self.reader.slice(ring, now);
        if let Some(window) = &window {
            self.has_read(window);
        }
        let window = window.filter(|window| !window.changed);
        let verdict = window.map_or(Verdict::Spoilt, |window| turns.add(&window, GAIN_MIN));
        match verdict {
            Verdict::More => {
                let next = turns.is_with_b();
                if next != with_b {
                    if next { self.give_turn(turns.scheduler.clone()) } else { self.turn_back() }
                }
                self.status.turns = Some((turns.scheduler.clone(), turns.slices()));
                self.turns = Some(turns);
                return;
            }
            Verdict::Over(shown, enough) => {
                self.learn(turns.measured(self.used, shown));
                if enough {
                    let Turns { index, scheduler, expected, .. } = *turns;
                    let because = Because::Change(Reason::Gain, expected, Some(shown));
                    self.proposal = Some(Proposal { index, scheduler, because });
                } else {
                    self.bar(turns.index);
                }
            }
            // Less than can be measured, in all the time that it has: it is not tried again soon.
            Verdict::Spoilt if with_b => self.bar(turns.index),
            Verdict::Spoilt => {}
        }
        self.end_turns(with_b);
    }

    /// Turns are over; what is in use is in force again, unless it is or something else is to be.
    fn end_turns(&mut self, with_b: bool) {
        self.status.turns = None;
        if with_b && self.proposal.is_none() {
            self.turn_back();
        }
    }

    pub(super) fn give_turn(&mut self, scheduler: SchedulerConfig) {
        self.proposal = Some(Proposal { index: self.used, scheduler, because: Because::Turn });
    }

    /// What is in use is to be in force again.
    pub(super) fn turn_back(&mut self) {
        self.give_turn(self.status.change.to.clone());
    }

    /// Nothing can be measured any more: what is tried in turns is in force no longer.
    pub fn give_up_turns(&mut self) {
        if self.probing.give_up() {
            self.turn_back();
        }
        if let Some(turns) = self.turns.take() {
            self.proposal = None;
            self.end_turns(turns.is_with_b());
        }
    }

    /// Begins turns with a candidate of which the gain may be an error, if there is time for that.
    pub(super) fn begin_turns(&mut self, index: usize, gain: Ln, window: &Window, now: Time) {
        if gain < WORTH || 2 * window.span.as_nanos() > self.allowance.left(now).as_nanos() {
            return;
        }
        let candidate = (index, self.candidates.with_wait(index, self.wait));
        let gains = (self.gain_at_once(index), gain);
        if let Some(turns) = Turns::new(candidate, gains, window, &*self.pricing) {
            self.give_turn(turns.scheduler.clone());
            self.status.turns = Some((turns.scheduler.clone(), turns.slices()));
            self.turns = Some(turns);
        }
    }

    /// A turn could not be given, as too much is queued.
    pub(super) fn turn_refused(&mut self, proposal: Proposal) {
        self.status.turns = None;
        if self.probing.give_up() {
            return;
        }
        if self.turns.take().is_none_or(|turns| !turns.is_with_b()) {
            // What is tried must not stay in force: once more, as soon as it can be.
            self.proposal = Some(proposal);
        }
    }
}
