//! The functions `iogate_gate_...`: a gate by hand.

use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use std::sync::Mutex;

use iogate_core::stats::summary::{Numbers, Summary};
use iogate_core::{Gate, Time, WaitReason};
use iogate_engine::Clock;

use crate::Failed;
use crate::failed::answer;
use crate::hand::{Answer, Hand};
use crate::home::Home;
use crate::scheduler::{self, Aggregation};
use crate::types::{
    CConfig, CDecision, CDispatch, CRequest, DISPATCH, IDLE, NOW, WAIT, check_place, check_pointer, read,
    time,
};

/// Applications and files that statistics name.
const GROUPS_MAX: usize = 32;

/// `iogate_gate`
pub struct CGate {
    home: Home,
    clock: Clock,
    aggregation: Aggregation,
    hand: Mutex<Hand>,
}

impl CGate {
    /// # Safety
    /// `gate` is null, or a gate that nobody frees meanwhile.
    unsafe fn of<'a>(gate: *const CGate) -> Result<&'a CGate, Failed> {
        check_pointer(gate, "gate")?;
        // SAFETY: the caller's promise.
        let gate = unsafe { &*gate };
        gate.home.check()?;
        Ok(gate)
    }

    /// Uses the gate; a panic in here leaves its lock poisoned.
    fn with<R>(&self, act: impl FnOnce(&mut Hand) -> R) -> Result<R, Failed> {
        match self.hand.lock() {
            Ok(mut hand) => Ok(act(&mut hand)),
            Err(_) => Err(Failed::poisoned()),
        }
    }

    fn time(&self, now_ns: u64) -> Result<Time, Failed> {
        match now_ns {
            NOW => Ok(self.clock.now()),
            ns => time(ns, "now_ns"),
        }
    }
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn iogate_gate_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Makes a gate.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_new(config: *const CConfig, gate: *mut *mut CGate) -> c_int {
    answer(|| {
        check_pointer(gate, "gate")?;
        // SAFETY: the caller's pointers.
        let (settings, aggregation, _) = unsafe {
            gate.write(ptr::null_mut());
            scheduler::settings(&read(config, "config")?, false)?
        };
        let hand = Mutex::new(Hand::new(&settings)?);
        let made = CGate { home: Home::new()?, clock: Clock::new(), aggregation, hand };
        // SAFETY: as above.
        unsafe { gate.write(Box::into_raw(Box::new(made))) };
        Ok(())
    })
}

/// Frees a gate.
///
/// # Safety
/// `gate` is null, or what [`iogate_gate_new`] gave and nobody uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_free(gate: *mut CGate) -> c_int {
    answer(|| {
        if gate.is_null() {
            return Ok(());
        }
        // SAFETY: the caller's promise; it came from a box.
        unsafe {
            CGate::of(gate)?;
            drop(Box::from_raw(gate));
        }
        Ok(())
    })
}

/// The time of a gate's clock.
///
/// # Safety
/// `gate` is null, or a gate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_now(gate: *const CGate) -> u64 {
    // SAFETY: as above.
    unsafe { gate.as_ref() }.map_or(0, |gate| gate.clock.now().as_nanos())
}

/// Takes a request.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_submit(
    gate: *mut CGate,
    now_ns: u64,
    request: *const CRequest,
    id: *mut u64,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointers.
        let (gate, request) = unsafe { (CGate::of(gate)?, read(request, "request")?) };
        let now = gate.time(now_ns)?;
        let handle = gate.with(|hand| hand.submit(now, &request))??;
        if !id.is_null() {
            // SAFETY: the caller's pointer.
            unsafe { id.write(handle) };
        }
        Ok(())
    })
}

/// What to do now.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_next(gate: *mut CGate, now_ns: u64, decision: *mut CDecision) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointers.
        let gate = unsafe {
            check_place(decision, "decision")?;
            CGate::of(gate)?
        };
        let now = gate.time(now_ns)?;
        let (kind, until_ns, reason, dispatch) = match gate.with(|hand| hand.next(now))? {
            Answer::Dispatch(dispatch) => (DISPATCH, 0, ptr::null(), dispatch),
            Answer::Wait(until, why) => (WAIT, until.as_nanos(), reason(why).as_ptr(), CDispatch::NONE),
            Answer::Idle => (IDLE, 0, ptr::null(), CDispatch::NONE),
        };
        // SAFETY: the caller's pointer; what a later version has behind these fields stays as it is.
        unsafe {
            let size = (*decision).size;
            decision.write(CDecision { size, kind, reserved: 0, until_ns, reason, dispatch });
        }
        Ok(())
    })
}

fn reason(why: WaitReason) -> &'static CStr {
    match why {
        WaitReason::Contiguous => c"contiguous",
        WaitReason::Shift => c"shift",
        WaitReason::BetterRun => c"better-run",
        WaitReason::Window => c"window",
        WaitReason::Share => c"share",
        WaitReason::Cap => c"cap",
    }
}

/// A dispatch is over.
///
/// # Safety
/// `gate` is null, or a gate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_complete(
    gate: *mut CGate,
    now_ns: u64,
    dispatch: u64,
    bytes: u64,
    error: c_int,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointer.
        let gate = unsafe { CGate::of(gate) }?;
        if error < 0 {
            return Err(Failed::invalid(format!("error is {error}: expected 0, or an errno number above")));
        }
        let now = gate.time(now_ns)?;
        gate.with(|hand| hand.complete(now, dispatch, bytes, error != 0))?
    })
}

/// Takes a request back.
///
/// # Safety
/// `gate` is null, or a gate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_cancel(gate: *mut CGate, request: u64) -> c_int {
    // SAFETY: the caller's pointer.
    answer(|| unsafe { CGate::of(gate) }?.with(|hand| hand.cancel(request))?)
}

/// Changes the scheduler.
///
/// # Safety
/// As C has it: valid pointers, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_switch(
    gate: *mut CGate,
    now_ns: u64,
    scheduler: *const c_char,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointers.
        let (gate, text) = unsafe { (CGate::of(gate)?, scheduler::text(scheduler, "scheduler")?) };
        let settings = scheduler::parse(text, gate.aggregation)?;
        let now = gate.time(now_ns)?;
        gate.with(|hand| hand.switch(now, &settings))
    })
}

/// The gate takes no more.
///
/// # Safety
/// `gate` is null, or a gate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_drain(gate: *mut CGate, now_ns: u64) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointer.
        let gate = unsafe { CGate::of(gate) }?;
        let now = gate.time(now_ns)?;
        gate.with(|hand| hand.drain(now))
    })
}

/// Requests in the gate.
///
/// # Safety
/// `gate` is null, or a gate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_len(gate: *const CGate) -> u64 {
    let mut length = 0;
    answer(|| {
        // SAFETY: the caller's pointer.
        length = unsafe { CGate::of(gate) }?.with(|hand| hand.gate().len() as u64)?;
        Ok(())
    });
    length
}

/// Statistics as JSON.
///
/// # Safety
/// As C has it: valid pointers, or null; `buffer` has `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn iogate_gate_stats(
    gate: *const CGate,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's pointers.
        unsafe {
            let summary = CGate::of(gate)?.with(|hand| summary(hand.gate()))?;
            write_json(&summary, buffer, room, needed)
        }
    })
}

/// What a gate did.
pub(crate) fn summary(gate: &Gate) -> Summary {
    Summary::new(gate.stats(), gate.scheduler(), gate.config().depth, &Numbers, GROUPS_MAX)
}

/// Writes statistics into a buffer of the program's, if there is room for them.
///
/// # Safety
/// `buffer` has `room` bytes, or is null; `needed` may be null.
pub(crate) unsafe fn write_json(
    summary: &Summary,
    buffer: *mut c_char,
    room: usize,
    needed: *mut usize,
) -> Result<(), Failed> {
    let mut json = serde_json::to_vec(summary).map_err(|error| Failed::new(libc::EIO, error.to_string()))?;
    json.push(0);
    if !needed.is_null() {
        // SAFETY: the caller's pointer.
        unsafe { needed.write(json.len()) };
    }
    if json.len() > room {
        let text = format!("the statistics take {} bytes, and the room is {room}", json.len());
        return Err(Failed::new(libc::ERANGE, text));
    }
    check_pointer(buffer, "buffer")?;
    // SAFETY: there is as much room.
    unsafe { ptr::copy_nonoverlapping(json.as_ptr(), buffer.cast(), json.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A gate with its defaults.
    fn gate() -> *mut CGate {
        // SAFETY: zero is null pointers and numbers.
        let mut config: CConfig = unsafe { std::mem::zeroed() };
        config.size = size_of::<CConfig>();
        let mut gate = ptr::null_mut();
        // SAFETY: both live.
        assert_eq!(unsafe { iogate_gate_new(&raw const config, &raw mut gate) }, 0);
        gate
    }

    #[test]
    fn a_panic_is_a_code_and_the_instance_answers_nothing_else() {
        let gate = gate();
        let broken = answer(|| {
            // SAFETY: it lives.
            unsafe { CGate::of(gate) }?.with(|_| panic!("a defect"))
        });
        assert_eq!(broken, libc::ENOTRECOVERABLE);
        // SAFETY: it lives, until it is freed.
        unsafe {
            assert_eq!(iogate_gate_cancel(gate, 1), libc::ENOTRECOVERABLE);
            assert!(
                CStr::from_ptr(crate::failed::iogate_gate_error()).to_str().unwrap().contains("panicked")
            );
            assert_eq!(iogate_gate_free(gate), 0);
        }
    }
}
