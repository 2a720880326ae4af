//! The functions `iogate_engine_...`: an engine whose dispatches the program's functions carry out.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::{GateConfig, RequestId};
use iogate_engine::Engine;

use crate::Failed;
use crate::c_gate::{summary, write_json};
use crate::callbacks::{CStore, Common, How, is_inside};
use crate::failed::answer;
use crate::home::Home;
use crate::intake::Entry;
use crate::scheduler::{self, Aggregation, Chosen};
use crate::slots::{Cancel, Kept};
use crate::types::{CEngineConfig, CRequest, NONBLOCK, QUICK, check_pointer, read};

/// Most requests of an engine: their slots are found by a table.
const QUEUE_MAX: u32 = 1 << 24;

/// `iogate_engine`, in other lines of the cache than the count of its users: a completion changes that, and who submits reads this.
#[repr(align(128))]
pub struct CEngine {
    home: Home,
    aggregation: Aggregation,
    engine: Arc<Engine>,
    common: Arc<Common>,
    /// The intake's, where dispatches take no time.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl CEngine {
    /// The engine, kept until the call is over: a completion may let another thread free it.
    ///
    /// # Safety
    /// `engine` is null, or an engine that has not been freed.
    unsafe fn of(engine: *const CEngine) -> Result<Arc<CEngine>, Failed> {
        check_pointer(engine, "engine")?;
        // SAFETY: the caller's promise.
        let engine = unsafe {
            (*engine).home.check()?;
            CEngine::keep(engine)
        };
        Ok(engine)
    }

    /// # Safety
    /// `engine` is an engine that has not been freed.
    unsafe fn keep(engine: *const CEngine) -> Arc<CEngine> {
        // SAFETY: the caller's promise: it came from an `Arc`.
        unsafe {
            Arc::increment_strong_count(engine);
            Arc::from_raw(engine)
        }
    }

    /// Waits until all is over, and ends the threads.
    fn shutdown(&self) {
        // What is on its way in first.
        self.common.intake.stop();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
        self.engine.shutdown();
        self.common.starting.wait();
    }

    /// # Safety
    /// `engine` is an engine that has not been freed, and `id` a pointer or null.
    unsafe fn submit(engine: *const CEngine, request: &CRequest, id: *mut u64) -> Result<(), Failed> {
        let wanted = request.request(RequestId(0), NONBLOCK)?;
        if wanted.bytes == 0 || wanted.offset.checked_add(wanted.bytes.into()).is_none() {
            let (offset, bytes) = (wanted.offset, wanted.bytes);
            return Err(iogate_core::Rejected::Malformed { offset, bytes }.into());
        }
        // SAFETY: the caller's promise.
        let common = unsafe { &(*engine).common };
        let may_wait = request.flags & NONBLOCK == 0 && !is_inside();
        let mut state = common.intake.enter(may_wait).ok_or_else(|| {
            Failed::new(
                libc::EAGAIN,
                "the engine is full, and this call may not wait; retry when a request is over",
            )
        })?;
        let handle = state.handle();
        if !id.is_null() {
            // SAFETY: the caller's pointer.
            unsafe { id.write(handle) };
        }
        let entry = Entry {
            handle,
            kept: Kept { user: request.user, memory: request.memory, done: request.done },
            bytes: wanted.bytes,
            file: wanted.file,
            offset: wanted.offset,
            issued: wanted.issued,
            app: wanted.app,
            client: wanted.client,
            op: wanted.op,
        };
        if !common.how.is_quick() {
            // SAFETY: the caller's promise, and the request is not in yet.
            let engine = unsafe { CEngine::keep(engine) };
            drop(state);
            // SAFETY: the handle has just been given. What stands for memory is never followed: the store is `CStore`.
            unsafe { engine.engine.submit_for_store([entry.transfer(&engine.common.slots)], false) };
        } else if state.put(entry) {
            // SAFETY: as above: whoever frees the engine waits for the lock, and until nobody brings in.
            let engine = unsafe { CEngine::keep(engine) };
            common.intake.bring_in(&engine.engine, &common.slots, state);
        }
        // Else another thread brings it in, and may have done so: nothing of the engine's may be touched behind the lock.
        Ok(())
    }
}

/// Makes an engine.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_engine_new(config: *const CEngineConfig, engine: *mut *mut CEngine) -> c_int {
    answer(|| {
        check_pointer(engine, "engine")?;
        // SAFETY: the caller's pointers.
        let config = unsafe {
            engine.write(ptr::null_mut());
            read(config, "config")?
        };
        let gate = config.gate()?;
        if config.flags & !QUICK != 0 {
            return Err(Failed::invalid(format!(
                "flags are {:#x}: expected none but IOGATE_QUICK",
                config.flags
            )));
        }
        let how = match (config.carry_out, config.start) {
            (Some(function), None) => How::CarryOut(function, config.flags & QUICK == 0),
            (None, Some(function)) => How::Start(function),
            _ => {
                return Err(Failed::invalid(
                    "expected one of `carry_out` and `start`, and the other one null",
                ));
            }
        };
        // SAFETY: as above.
        let (settings, aggregation, auto) = unsafe { scheduler::settings(gate, true) }?;
        let queue_max = settings.queue_max;
        if queue_max > QUEUE_MAX {
            return Err(Failed::invalid(format!("queue_max is {queue_max}: expected at most {QUEUE_MAX}")));
        }
        let common = Arc::new(Common::new(how, config.user, queue_max));
        // There is room for what the intake lets in, however many stripes that has: a callback must not wait for the gate.
        let settings = GateConfig { queue_max: u32::MAX - 1, ..settings };
        let made = Engine::new(&settings, Arc::new(CStore(Arc::clone(&common))))?;
        if auto {
            made.choose(REQUESTS_PER_S)?;
        }
        let home = Home::new()?;
        let thread = match how.is_quick() {
            true => {
                let (engine, common) = (Arc::clone(&made), Arc::clone(&common));
                let thread = std::thread::Builder::new().name("iogate-intake".into());
                Some(thread.spawn(move || common.intake.run(&engine, &common.slots))?)
            }
            false => None,
        };
        let made = CEngine { home, aggregation, engine: made, common, thread: Mutex::new(thread) };
        // SAFETY: as above.
        unsafe { engine.write(Arc::into_raw(Arc::new(made)).cast_mut()) };
        Ok(())
    })
}

/// Ends and frees an engine.
///
/// # Safety
/// `engine` is null, or what [`iogate_engine_new`] gave and has not been freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_engine_free(engine: *mut CEngine) -> c_int {
    answer(|| {
        if engine.is_null() {
            return Ok(());
        }
        check_pointer(engine, "engine")?;
        // SAFETY: the caller's promise; it came from an `Arc`.
        let engine = unsafe {
            (*engine).home.check()?;
            Arc::from_raw(engine.cast_const())
        };
        if !is_inside() {
            engine.shutdown();
            return Ok(());
        }
        // What this thread is in must return before all is over.
        let given = Arc::clone(&engine);
        let thread = std::thread::Builder::new().name("iogate-free".into());
        if let Err(error) = thread.spawn(move || given.shutdown()) {
            // It is the caller's as before.
            std::mem::forget(engine);
            return Err(error.into());
        }
        Ok(())
    })
}

/// Submits a request.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_engine_submit(
    engine: *mut CEngine,
    request: *const CRequest,
    id: *mut u64,
) -> c_int {
    answer(|| {
        check_pointer(engine, "engine")?;
        // The engine is not kept: its count would be the one thing that all submitters change.
        // SAFETY: the caller's pointers.
        unsafe {
            (*engine).home.check()?;
            let request = read(request, "request")?;
            CEngine::submit(engine, &request, id)
        }
    })
}

/// A dispatch that was started is over.
///
/// # Safety
/// `engine` is null, or an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_engine_complete(
    engine: *mut CEngine,
    dispatch: u64,
    bytes: u64,
    error: c_int,
) -> c_int {
    answer(|| {
        check_pointer(engine, "engine")?;
        // SAFETY: the caller's pointer. In a function that the engine has called, that waits for it, and need not be kept.
        unsafe {
            (*engine).home.check()?;
            let common = &(*engine).common;
            if common.is_calling() {
                return common.complete(dispatch, bytes, error);
            }
            CEngine::keep(engine).common.complete(dispatch, bytes, error)
        }
    })
}

/// Takes a request back.
///
/// # Safety
/// `engine` is null, or an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_engine_cancel(engine: *mut CEngine, request: u64) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointer.
        let engine = unsafe { CEngine::of(engine) }?;
        let is_on_its_way = |handle| engine.common.intake.has_given(handle);
        let (errno, text) = match engine.common.slots.cancel(request, is_on_its_way) {
            Cancel::Done => return Ok(()),
            Cancel::Before => (libc::EALREADY, "the request has been cancelled before"),
            Cancel::Begun => (libc::EBUSY, "the request is in a dispatch: complete that"),
            Cancel::Over => {
                (libc::ESTALE, "no such request is in the engine: it is over, or never was there")
            }
        };
        Err(Failed::new(errno, text))
    })
}

/// Changes the scheduler.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_engine_switch(engine: *mut CEngine, scheduler: *const c_char) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointers.
        let (engine, text) = unsafe { (CEngine::of(engine)?, scheduler::text(scheduler, "scheduler")?) };
        match scheduler::choose(text, engine.aggregation)? {
            Chosen::Auto => engine.engine.choose(REQUESTS_PER_S)?,
            Chosen::One(settings) => engine.engine.switch(&settings),
        }
        Ok(())
    })
}

/// Requests that are not over.
///
/// # Safety
/// `engine` is null, or an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_engine_len(engine: *const CEngine) -> u64 {
    let mut length = 0;
    answer(|| {
        // SAFETY: the caller's pointer.
        length = unsafe { CEngine::of(engine) }?.common.intake.taken() as u64;
        Ok(())
    });
    length
}

/// Statistics as JSON.
///
/// # Safety
/// As C has it: valid pointers, or null; `buffer` has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_engine_stats(
    engine: *const CEngine,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointers.
        unsafe {
            let engine = &CEngine::of(engine)?.engine;
            let mut summary = engine.with_gate(|gate, _| summary(gate));
            summary.choice = engine.choice();
            write_json(&summary, buffer, room, needed)
        }
    })
}
