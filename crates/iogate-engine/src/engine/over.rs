//! Flights that are over: the gate is told of several together, and requests get their results.

use std::mem;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use iogate_core::Time;

use super::Shared;
use super::choosing::Choosing;
use super::flight::{self, Flights, Over};
use super::frame::{self, List, Work};
use super::table::Done;
use crate::store::Finished;
use crate::sync::atomic::Ordering;

impl Shared {
    /// Tells the gate that flights are over, collects what the gate then says, and gives the requests that are
    /// complete their results. Returns the time.
    pub(super) fn end(self: &Arc<Self>, over: &mut Over, list: &mut List) -> Time {
        let (mut calls, mut shares, mut ripe) = (0, 0, false);
        // Read before the lock is taken, so that it is held for less; the gate puts times that come late right.
        let now = self.clock.now();
        let mut guard = self.lock();
        let state = &mut *guard;
        for flight in &mut over.flights {
            state.gate.complete(now, flight.id, flight.outcome());
            shares += flight.shares.len();
            let began = flight.began;
            for share in &mut flight.shares {
                let bytes = share.bytes();
                let pending = state.table.get(share.request);
                if let Choosing::On(noting) = &mut state.choosing {
                    noting.completed(now, share.request, pending.origin.app, bytes);
                }
                if !pending.account(share.offset, bytes, share.got, share.error.take()) {
                    continue;
                }
                if let Some(seen) = &mut state.seen {
                    seen.completed(now, pending.origin.app, pending.origin.client);
                }
                state.recordings.completed(now, share.request, began);
                if let Done::Tell(memory) = pending.done {
                    over.told.push(Finished { memory, result: pending.take_result() });
                    state.table.discard(share.request);
                } else {
                    calls += usize::from(matches!(pending.done, Done::Call(_)));
                    over.finished.push(state.table.remove(share.request));
                }
            }
            if let Choosing::On(noting) = &mut state.choosing {
                ripe |= noting.served(now, flight);
            }
        }
        calls += over.told.len();
        let wake_at = state.drain(now, list);
        if calls > 0 {
            self.calls.fetch_add(calls, Ordering::SeqCst);
        }
        let waiting = state.waiting;
        drop(guard);
        if ripe {
            self.ripe.notify_one();
        }

        // A piece of a split request makes room too.
        if waiting > 0 {
            if shares == 1 {
                self.room.notify_one();
            } else {
                self.room.notify_all();
            }
        }
        if let Some(time) = wake_at {
            self.pool.arm(self, time);
        }
        self.deliver(over, calls, list);
        now
    }

    fn deliver(self: &Arc<Self>, over: &mut Over, calls: usize, list: &mut List) {
        if calls > 0 {
            frame::open(Arc::as_ptr(self), mem::take(list));
        }
        // First: whoever waits may expect that its file is closed when it drops its own handle.
        over.flights.drain(..).for_each(flight::recycle);
        for pending in over.finished.drain(..) {
            match pending.into_result() {
                (Done::Wake(waiter), result) => waiter.deliver(result),
                (Done::Call(done), result) => {
                    // One front end's mistake must not cost the others their results.
                    if panic::catch_unwind(AssertUnwindSafe(|| done(result))).is_err() {
                        tracing::error!("a completion panicked");
                    }
                }
                (Done::Tell(_), _) => {}
            }
        }
        if !over.told.is_empty() {
            self.tell(&mut over.told);
            over.told.clear();
        }
        if calls > 0 {
            *list = frame::close();
            self.calls.fetch_sub(calls, Ordering::SeqCst);
        }
        if self.closed.load(Ordering::SeqCst) {
            // Under the lock, so that `shutdown` either sees the new state or already sleeps.
            let _state = self.lock();
            self.emptied.notify_all();
        }
    }

    /// Tells the store what has become of requests that were submitted for it.
    pub(super) fn tell(&self, told: &mut Vec<Finished>) {
        if panic::catch_unwind(AssertUnwindSafe(|| self.store.finished(told))).is_err() {
            tracing::error!("a completion panicked");
        }
    }
}

/// Takes the flights that are over from the list's end, in their order.
pub(super) fn take_ends(list: &mut List, over: &mut Flights) {
    let first = over.len();
    while let Some(Work::End(flight)) = list.pop_back_if(|last| matches!(last, Work::End(_))) {
        over.push(flight);
    }
    over[first..].reverse();
}
