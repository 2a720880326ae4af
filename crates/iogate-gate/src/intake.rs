//! How requests come into an engine: the room for them, their slots, and one thread at a time that brings in what all have submitted.
//!
//! All that a submitter needs is behind one lock, which is taken once for a request: room, a free slot, and the list of what is on its way
//! in. If nobody is bringing in, he does, with all that comes meanwhile, in the order of the list. Who has done so for a while leaves
//! the rest to a thread of the intake's, so that no submitter works for the others without end. What is over gives its room back in
//! batches. Where dispatches keep their threads, requests go in directly: what waits here, the gate cannot see.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iogate_core::{AppId, ClientId, FileId, Op, Time};
use iogate_engine::{Engine, Origin, Transfer};

use crate::callbacks::{file, token};
use std::sync::Arc;

/// Batches that a submitter brings in before he leaves the rest.
const BATCHES_MAX: u32 = 4;
/// How long to sleep where room is not noticed otherwise: a program may keep the rest in service.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A request on its way in. Its handle on the file is made by who brings it in: what counts handles is then one thread's.
pub(crate) struct Entry {
    pub(crate) slot: u32,
    pub(crate) bytes: u32,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) issued: Option<Time>,
    pub(crate) app: AppId,
    pub(crate) client: ClientId,
    pub(crate) op: Op,
}

impl Entry {
    pub(crate) fn transfer(self) -> Transfer {
        Transfer {
            file: file(self.file.0),
            op: self.op,
            offset: self.offset,
            memory: token(self.slot),
            bytes: self.bytes,
            origin: Origin { app: self.app, client: self.client, issued: self.issued },
            extends: false,
        }
    }
}

pub(crate) struct Intake {
    max: usize,
    /// Who waits is woken when only so much is taken: to be woken for each request costs more than the request.
    low: usize,
    state: Mutex<State>,
    /// There is room again.
    freed: Condvar,
    /// The thread is to bring in, or to end.
    wanted: Condvar,
}

/// What the intake's lock guards.
#[derive(Default)]
pub(crate) struct State {
    /// Slots that have been in use, and are not.
    free: Vec<u32>,
    /// Slots that have been in use.
    used: u32,
    /// Who waits for room.
    waiting: u32,
    /// One of them has been woken, and has not looked yet.
    woken: bool,
    list: Vec<Entry>,
    /// An empty one, used before.
    spare: Vec<Entry>,
    /// Somebody brings in.
    busy: bool,
    /// That is left to the thread.
    left: bool,
    stop: bool,
}

impl State {
    fn taken(&self) -> usize {
        self.used as usize - self.free.len()
    }

    /// A slot, where there is room.
    pub(crate) fn slot(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        })
    }

    /// Puts a request into the list. True if it is now the caller's to bring in.
    pub(crate) fn put(&mut self, entry: Entry) -> bool {
        self.list.push(entry);
        !std::mem::replace(&mut self.busy, true)
    }
}

impl Intake {
    /// Room for so many requests.
    pub(crate) fn new(max: u32) -> Intake {
        let max = max as usize;
        Intake {
            max,
            low: max - (max / 2).max(1),
            state: Mutex::default(),
            freed: Condvar::new(),
            wanted: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much room is taken.
    pub(crate) fn taken(&self) -> usize {
        self.lock().taken()
    }

    /// Goes where there is room for one request; none if there is none, and the caller may not wait.
    pub(crate) fn enter(&self, may_wait: bool) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        while state.taken() >= self.max {
            if !may_wait {
                return None;
            }
            state.waiting += 1;
            state = self.freed.wait_timeout(state, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
            state.woken = false;
        }
        Some(state)
    }

    /// Takes slots back.
    pub(crate) fn give(&self, slots: impl Iterator<Item = u32>) {
        let mut state = self.lock();
        state.free.extend(slots);
        let wakes = state.waiting > 0 && !state.woken && state.taken() <= self.low;
        state.woken |= wakes;
        drop(state);
        // One, and the next only if that one does not keep up: all together would take the processor of who brings in, and then sleep.
        if wakes {
            self.freed.notify_one();
        }
    }

    /// Brings in what is in the list, for a while.
    pub(crate) fn bring_in<'a>(&'a self, engine: &Arc<Engine>, mut state: MutexGuard<'a, State>) {
        for _ in 0..BATCHES_MAX {
            match self.bring_batch(engine, state) {
                Some(again) => state = again,
                None => return,
            }
        }
        state.left = true;
        drop(state);
        // Who stops may wait, too.
        self.wanted.notify_all();
    }

    /// Brings in what is in the list; none if nothing has come meanwhile, and it is nobody's business any more.
    fn bring_batch<'a>(
        &'a self,
        engine: &Arc<Engine>,
        mut state: MutexGuard<'a, State>,
    ) -> Option<MutexGuard<'a, State>> {
        let spare = std::mem::take(&mut state.spare);
        let mut batch = std::mem::replace(&mut state.list, spare);
        drop(state);
        // SAFETY: what stands for memory is never followed: the store is `CStore`.
        unsafe { engine.submit_for_store(batch.drain(..).map(Entry::transfer), true) };
        let mut state = self.lock();
        state.spare = batch;
        if state.list.is_empty() {
            state.busy = false;
            if state.stop {
                self.wanted.notify_all();
            }
            return None;
        }
        Some(state)
    }

    /// What the intake's thread does.
    pub(crate) fn run(&self, engine: &Arc<Engine>) {
        let mut state = self.lock();
        loop {
            if state.left {
                state.left = false;
                let mut going = Some(state);
                while let Some(more) = going {
                    going = self.bring_batch(engine, more);
                }
                state = self.lock();
            } else if state.stop {
                return;
            } else {
                state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits until all is in, and has the thread end. Not in a callback, whose thread may be the one that brings in.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stop = true;
        while state.busy {
            state = self.wanted.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        self.wanted.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_finds_no_room_waits_until_half_is_free() {
        let intake = Intake::new(4);
        let slots: Vec<u32> = (0..4).map(|_| intake.enter(false).unwrap().slot()).collect();
        assert_eq!(slots, [0, 1, 2, 3]);
        assert!(intake.enter(false).is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| intake.enter(true).unwrap().slot());
            intake.give([2, 3].into_iter());
            assert_eq!(waits.join().unwrap(), 3);
        });
        assert_eq!(intake.taken(), 3);
        intake.give([0, 1, 3].into_iter());
        assert_eq!(intake.taken(), 0);
    }
}
