//! How requests come into an engine: the room for them, their slots, and one thread at a time that brings in what all have submitted.
//!
//! All that a submitter needs is behind one lock, which is taken once for a request: room, a free handle, and the list of what is on its
//! way in. The list is all that he writes: lines of the cache that come in their order to who brings in, who fills the slots. If nobody is
//! bringing in, he does, with all that comes meanwhile, in the order of the list. Who has done so for a while leaves the rest to a thread
//! of the intake's, so that no submitter works for the others without end. What is over gives its room back under a lock of its own, which
//! submitters take only when they have used up what was given before: where one dispatch at a time is in service, each gives back by
//! itself. Where dispatches keep their threads, requests go in directly: what waits here, the gate cannot see.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use iogate_core::{AppId, ClientId, FileId, Op, Time};
use iogate_engine::{Engine, Origin, Transfer};

use crate::callbacks::{file, token};
use crate::slots::{Kept, Slots};
use std::sync::Arc;

/// Batches that a submitter brings in before he leaves the rest.
const BATCHES_MAX: u32 = 4;
/// How long to sleep where room is not noticed otherwise: a program may keep the rest in service.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// A request on its way in. Its handle on the file is made by who brings it in: what counts handles is then one thread's.
pub(crate) struct Entry {
    pub(crate) handle: u64,
    pub(crate) kept: Kept,
    pub(crate) bytes: u32,
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    pub(crate) issued: Option<Time>,
    pub(crate) app: AppId,
    pub(crate) client: ClientId,
    pub(crate) op: Op,
}

// SAFETY: the pointers are the program's, and are never followed here.
unsafe impl Send for Entry {}

impl Entry {
    /// Goes into its slot, and on to the engine.
    ///
    /// # Safety
    /// As [`Slots::put`].
    pub(crate) unsafe fn transfer(self, slots: &Slots) -> Transfer {
        // SAFETY: the caller's promise.
        unsafe { slots.put(self.handle, self.kept) };
        Transfer {
            file: file(self.file.0),
            op: self.op,
            offset: self.offset,
            memory: token(self.handle as u32),
            bytes: self.bytes,
            origin: Origin { app: self.app, client: self.client, issued: self.issued, ..Origin::default() },
            extends: false,
        }
    }
}

pub(crate) struct Intake {
    max: usize,
    /// Who waits is woken when only so much is taken: to be woken for each request costs more than the request.
    low: usize,
    state: Mutex<State>,
    given: Given,
    /// There is room again.
    freed: Condvar,
    /// The thread is to bring in, or to end.
    wanted: Condvar,
}

/// Handles of slots of what is over, until who has the intake's lock gathers them; in lines of the cache that submitters leave alone.
#[derive(Default)]
#[repr(align(128))]
struct Given {
    handles: Mutex<Vec<u64>>,
    /// How many they are.
    count: AtomicUsize,
    /// With how many somebody who waits is to be woken.
    enough: AtomicUsize,
}

/// What the intake's lock guards.
#[derive(Default)]
pub(crate) struct State {
    /// The next handles of slots that have been in use, and are not, but for those that have just been given back.
    free: Vec<u64>,
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

    /// The handle of a request, where there is room.
    pub(crate) fn handle(&mut self) -> u64 {
        self.free.pop().unwrap_or_else(|| {
            self.used += 1;
            Slots::first(self.used - 1)
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
            given: Given { enough: AtomicUsize::new(usize::MAX), ..Given::default() },
            freed: Condvar::new(),
            wanted: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much room is taken.
    pub(crate) fn taken(&self) -> usize {
        let mut state = self.lock();
        self.gather(&mut state);
        state.taken()
    }

    /// Goes where there is room for one request; none if there is none, and the caller may not wait.
    pub(crate) fn enter(&self, may_wait: bool) -> Option<MutexGuard<'_, State>> {
        let mut state = self.lock();
        if state.free.is_empty() {
            self.gather(&mut state);
        }
        while state.taken() >= self.max {
            if !may_wait {
                return None;
            }
            state.waiting += 1;
            self.say_when(&state);
            // Who gave before that was said wakes nobody.
            self.gather(&mut state);
            if state.taken() >= self.max {
                state = self.freed.wait_timeout(state, LOOK_AGAIN).unwrap_or_else(PoisonError::into_inner).0;
            }
            state.waiting -= 1;
            state.woken = false;
            self.gather(&mut state);
            self.say_when(&state);
        }
        Some(state)
    }

    /// Whether a handle, if it is its slot's newest, has been given out.
    pub(crate) fn has_given(&self, handle: u64) -> bool {
        let mut state = self.lock();
        self.gather(&mut state);
        (handle as u32) < state.used && !state.free.contains(&handle)
    }

    /// Takes slots back, by their next handles.
    pub(crate) fn give(&self, handles: impl Iterator<Item = u64>) {
        let mut given = self.given.handles.lock().unwrap_or_else(PoisonError::into_inner);
        given.extend(handles);
        let count = given.len();
        self.given.count.store(count, Ordering::SeqCst);
        drop(given);
        if count >= self.given.enough.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wakes one of those who wait, if half is free. One, and the next only if that one does not keep up: all together would take the
    /// processor of who brings in, and then sleep.
    fn wake(&self) {
        let mut state = self.lock();
        self.gather(&mut state);
        let wakes = state.waiting > 0 && !state.woken && state.taken() <= self.low;
        state.woken |= wakes;
        self.say_when(&state);
        drop(state);
        if wakes {
            self.freed.notify_one();
        }
    }

    /// Frees the slots that were given back.
    fn gather(&self, state: &mut State) {
        if self.given.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut given = self.given.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if state.free.is_empty() {
            std::mem::swap(&mut state.free, &mut given);
        } else {
            state.free.append(&mut given);
        }
        self.given.count.store(0, Ordering::Release);
        drop(given);
        if state.waiting > 0 {
            self.say_when(state);
        }
    }

    /// Says with how many slots somebody is to be woken: whenever somebody begins or ends to wait, and while somebody does.
    fn say_when(&self, state: &State) {
        let enough = match state.waiting > 0 && !state.woken {
            true => state.taken().saturating_sub(self.low).max(1),
            false => usize::MAX,
        };
        self.given.enough.store(enough, Ordering::SeqCst);
    }

    /// Brings in what is in the list, for a while.
    pub(crate) fn bring_in<'a>(
        &'a self,
        engine: &Arc<Engine>,
        slots: &Slots,
        mut state: MutexGuard<'a, State>,
    ) {
        for _ in 0..BATCHES_MAX {
            match self.bring_batch(engine, slots, state) {
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
        slots: &Slots,
        mut state: MutexGuard<'a, State>,
    ) -> Option<MutexGuard<'a, State>> {
        let spare = std::mem::take(&mut state.spare);
        let mut batch = std::mem::replace(&mut state.list, spare);
        drop(state);
        // SAFETY: handles are given out once, and nobody else brings these in.
        let transfers = batch.drain(..).map(|entry| unsafe { entry.transfer(slots) });
        // SAFETY: what stands for memory is never followed: the store is `CStore`.
        unsafe { engine.submit_for_store(transfers, true) };
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
    pub(crate) fn run(&self, engine: &Arc<Engine>, slots: &Slots) {
        let mut state = self.lock();
        loop {
            if state.left {
                state.left = false;
                let mut going = Some(state);
                while let Some(more) = going {
                    going = self.bring_batch(engine, slots, more);
                }
                state = self.lock();
            } else if state.stop && !state.busy {
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
    use std::ptr;
    use std::sync::atomic::AtomicBool;

    use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};

    use crate::callbacks::{CStore, Common, How};
    use crate::types::CDispatch;

    #[test]
    fn what_is_given_back_one_by_one_is_nobody_elses_until_it_is_taken() {
        const ROOM: usize = 8;
        const EACH: usize = 2000;
        let intake = Intake::new(ROOM as u32);
        let in_use = [const { AtomicBool::new(false) }; ROOM];
        let (give, over) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            for give in [give.clone(), give.clone(), give] {
                let (intake, in_use) = (&intake, &in_use);
                scope.spawn(move || {
                    for _ in 0..EACH {
                        let handle = intake.enter(true).unwrap().handle();
                        assert!(!in_use[handle as u32 as usize].swap(true, Ordering::Relaxed));
                        give.send(handle).unwrap();
                    }
                });
            }
            for handle in over {
                in_use[handle as u32 as usize].store(false, Ordering::Relaxed);
                intake.give(std::iter::once(handle));
            }
        });
        assert_eq!(intake.taken(), 0);
    }

    #[test]
    fn who_finds_no_room_waits_until_half_is_free() {
        let intake = Intake::new(4);
        let handles: Vec<u64> = (0..4).map(|_| intake.enter(false).unwrap().handle()).collect();
        assert_eq!(handles, [0, 1, 2, 3].map(Slots::first));
        assert!(intake.enter(false).is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| intake.enter(true).unwrap().handle());
            intake.give(handles[2..].iter().copied());
            assert_eq!(waits.join().unwrap(), handles[3]);
        });
        assert_eq!(intake.taken(), 3);
        assert!(intake.has_given(handles[3]) && !intake.has_given(handles[2]));
        assert!(!intake.has_given(Slots::first(4)), "nobody had a fifth slot");
        intake.give([0, 1, 3].into_iter().map(Slots::first));
        assert_eq!(intake.taken(), 0);
    }

    unsafe extern "C" fn carry_out(_user: *mut std::ffi::c_void, dispatch: *const CDispatch) -> i64 {
        // SAFETY: the library's, until this returns.
        unsafe { (*dispatch).bytes as i64 }
    }

    #[test]
    fn the_thread_does_not_end_while_somebody_brings_in_who_may_leave_it_the_rest() {
        let common = Arc::new(Common::new(How::CarryOut(carry_out, false), ptr::null_mut(), 8));
        let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
        let gate = GateConfig { scheduler, queue_max: 8, depth: 1, layout: Layout::SINGLE };
        let engine = Engine::new(&gate, Arc::new(CStore(Arc::clone(&common)))).unwrap();
        let intake = &common.intake;
        let mut state = intake.enter(false).unwrap();
        let entry = Entry {
            handle: state.handle(),
            kept: Kept { user: ptr::null_mut(), memory: ptr::null_mut(), done: None },
            bytes: 1,
            file: FileId(7),
            offset: 0,
            issued: None,
            app: AppId(0),
            client: ClientId(0),
            op: Op::Read,
        };
        assert!(state.put(entry), "this thread is to bring in");
        state.stop = true;
        drop(state);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| intake.run(&engine, &common.slots));
            // It has seen that by then, or sees it later, which is as good.
            for _ in 0..50 {
                if !thread.is_finished() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            intake.lock().left = true;
            intake.wanted.notify_all();
        });
        let state = intake.lock();
        assert!(state.list.is_empty() && !state.busy, "nobody brings it in");
        drop(state);
        engine.shutdown();
        assert_eq!(intake.taken(), 0);
    }
}
