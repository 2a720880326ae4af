//! Submitting from a thread that must not get stuck: it carries out what the store does at once, and the engine's threads the rest.

use std::mem;
use std::sync::Arc;

use iogate_core::Rejected;

use super::abort::AbortOnUnwind;
use super::flight::{self, Flight};
use super::frame::{self, List, Work};
use super::shared::{Shared, TOGETHER_BYTES_MAX, TOGETHER_MAX};
use super::table::Done;
use super::{Completion, Engine, Transfer};

impl Engine {
    /// As [`Engine::submit_all`], from a thread that must not get stuck: it waits neither for room nor for the store. What the store does
    /// at once ([`Store::run_at_once`](crate::Store::run_at_once)) it carries out, the engine's threads the rest. What the gate
    /// has no room for stays in `batch`, and has not been submitted.
    ///
    /// # Safety
    /// As [`Engine::submit`], for each that does not stay.
    pub unsafe fn submit_at_once(self: &Arc<Self>, batch: &mut Vec<(Transfer, Completion)>) {
        let mut list = frame::list();
        self.shared.accept_at_once(batch, &mut list);
        if frame::is_open(Arc::as_ptr(&self.shared)) {
            self.carry_out(&mut list, None);
        } else {
            self.shared.work_at_once(&mut list);
        }
        frame::recycle(list);
    }
}

impl Shared {
    /// Puts transfers into the gate as long as there is room and nobody waits for it, and collects what the gate then says.
    fn accept_at_once(self: &Arc<Self>, batch: &mut Vec<(Transfer, Completion)>, list: &mut List) {
        let guard = AbortOnUnwind::new();
        let (mut refused, mut left) = (Vec::new(), Vec::new());
        let now = self.clock.now();
        let mut state = self.lock();
        let mut is_full = state.waiting > 0;
        for (transfer, done) in batch.drain(..) {
            if is_full {
                left.push((transfer, done));
                continue;
            }
            match state.offer(now, transfer, Done::Call(done)) {
                Err((Rejected::Full { .. }, transfer, Done::Call(done))) if !state.gate.is_empty() => {
                    is_full = true;
                    left.push((transfer, done));
                }
                Err((rejected, _, Done::Call(done))) => refused.push((rejected, done)),
                _ => {}
            }
        }
        self.settle(state, now, list);
        drop(guard);
        batch.append(&mut left);
        for (rejected, done) in refused {
            done(Err(super::SubmitError::from(rejected).into()));
        }
    }

    /// Carries out what is in the list and what follows from it, as far as the store does it at once, and not for long: a thread that
    /// must not get stuck should not serve all that others submit either.
    fn work_at_once(self: &Arc<Self>, list: &mut List) {
        let _guard = AbortOnUnwind::new();
        let mut over = flight::over();
        let (mut flights, mut bytes) = (0, 0);
        while !list.is_empty() {
            let mut left = frame::list();
            while let Some(work) = list.pop_front() {
                let goes_on = flights < TOGETHER_MAX && bytes < TOGETHER_BYTES_MAX;
                match work {
                    Work::Begin(flight) if goes_on => match self.run_at_once(flight) {
                        Ok(flight) => {
                            flights += 1;
                            bytes += flight.bytes();
                            over.flights.push(flight);
                        }
                        Err(flight) => left.push_back(Work::Begin(flight)),
                    },
                    Work::Begin(flight) => left.push_back(Work::Begin(flight)),
                    Work::End(flight) => over.flights.push(flight),
                }
            }
            if !left.is_empty() {
                // Without a thread for it there is only this one.
                let mut refused = self.pool.push(self, mem::take(&mut left));
                self.work(&mut refused, None);
            }
            frame::recycle(left);
            if !over.flights.is_empty() {
                self.end(&mut over, list);
            }
        }
        flight::recycle_over(over);
    }

    fn run_at_once(&self, flight: Box<Flight>) -> Result<Box<Flight>, Box<Flight>> {
        // Whether one that extends its file is refused takes a look at the file.
        self.carry_out_by(flight, |io| if io.extends { None } else { self.store.run_at_once(io) })
    }
}
