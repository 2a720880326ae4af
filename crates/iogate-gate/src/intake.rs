//! Requests on their way into an engine whose dispatches take no time: one thread at a time brings in what all have submitted.
//!
//! The gate's lock would else be fought for twice a request. Who submits puts his request into a list; if nobody is bringing in, he
//! does, with all that comes meanwhile, in the order of the list. Who has done so for a while leaves the rest to a thread of the
//! intake's, so that no submitter works for the others without end. Where dispatches keep their threads, requests go in directly: what
//! waits here, the gate cannot see.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use iogate_engine::{Completion, Engine, Transfer};

/// Batches that a submitter brings in before he leaves the rest.
const BATCHES_MAX: u32 = 4;

type Batch = Vec<(Transfer, Completion)>;

pub(crate) struct Intake {
    engine: Arc<Engine>,
    list: Mutex<List>,
    /// The thread is to bring in, or to end.
    wanted: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct List {
    requests: Batch,
    /// An empty one, used before.
    spare: Batch,
    /// Somebody brings in.
    busy: bool,
    /// That is left to the thread.
    left: bool,
    stop: bool,
}

impl Intake {
    /// An intake with its thread.
    ///
    /// # Errors
    /// If no thread can be started.
    pub(crate) fn start(engine: Arc<Engine>) -> std::io::Result<Arc<Intake>> {
        let made =
            Intake { engine, list: Mutex::default(), wanted: Condvar::new(), thread: Mutex::new(None) };
        let intake = Arc::new(made);
        let for_thread = Arc::clone(&intake);
        let thread = thread::Builder::new().name("iogate-intake".into()).spawn(move || for_thread.run())?;
        *intake.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(intake)
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a request in.
    ///
    /// # Safety
    /// As [`Engine::submit`].
    pub(crate) unsafe fn submit(&self, transfer: Transfer, done: Completion) {
        let mut list = self.lock();
        list.requests.push((transfer, done));
        if list.busy {
            return;
        }
        list.busy = true;
        for _ in 0..BATCHES_MAX {
            match self.bring_in(list) {
                Some(again) => list = again,
                None => return,
            }
        }
        list.left = true;
        drop(list);
        // Who stops may wait, too.
        self.wanted.notify_all();
    }

    /// Brings in what is in the list; none if nothing has come meanwhile, and it is nobody's business any more.
    fn bring_in<'a>(&'a self, mut list: MutexGuard<'a, List>) -> Option<MutexGuard<'a, List>> {
        let spare = std::mem::take(&mut list.spare);
        let mut batch = std::mem::replace(&mut list.requests, spare);
        drop(list);
        // SAFETY: each submitter has promised that of his request.
        unsafe { self.engine.submit_all_and_stay(batch.drain(..)) };
        let mut list = self.lock();
        list.spare = batch;
        if list.requests.is_empty() {
            list.busy = false;
            if list.stop {
                self.wanted.notify_all();
            }
            return None;
        }
        Some(list)
    }

    fn run(&self) {
        let mut list = self.lock();
        loop {
            if list.left {
                list.left = false;
                let mut going = Some(list);
                while let Some(more) = going {
                    going = self.bring_in(more);
                }
                list = self.lock();
            } else if list.stop {
                return;
            } else {
                list = self.wanted.wait(list).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Waits until all is in, and ends the thread. Not in a callback, whose thread may be the one that brings in.
    pub(crate) fn stop(&self) {
        let mut list = self.lock();
        list.stop = true;
        while list.busy {
            list = self.wanted.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        drop(list);
        self.wanted.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}
