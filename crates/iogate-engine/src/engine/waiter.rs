//! One thread that waits for one result, on its own stack: no allocation, no channel, and no system call if the
//! result is there before it waits.

use std::cell::UnsafeCell;
use std::io;
use std::marker::PhantomPinned;

use crate::sync::atomic::{AtomicU32, Ordering};

const PENDING: u32 = 0;
const PARKED: u32 = 1;
const DONE: u32 = 2;

/// The place where the result arrives.
pub(super) struct Mailbox {
    state: AtomicU32,
    result: UnsafeCell<Option<io::Result<usize>>>,
    /// Who waits.
    #[cfg(feature = "shuttle")]
    thread: crate::sync::thread::Thread,
    _pinned: PhantomPinned,
}

/// The other end: delivers one result to a [`Mailbox`].
pub(super) struct Waiter(*const Mailbox);

// SAFETY: the mailbox outlives the waiter (the promise of `Mailbox::waiter`), and what it shares goes through
// its atomic state.
unsafe impl Send for Waiter {}

impl Mailbox {
    pub(super) fn new() -> Mailbox {
        Mailbox {
            state: AtomicU32::new(PENDING),
            result: UnsafeCell::new(None),
            #[cfg(feature = "shuttle")]
            thread: crate::sync::thread::current(),
            _pinned: PhantomPinned,
        }
    }

    /// The end to hand over.
    ///
    /// # Safety
    /// The mailbox must neither move nor go away before [`Mailbox::wait`] has returned, unless the waiter is
    /// dropped without [`Waiter::deliver`]. At most one waiter may be made.
    pub(super) unsafe fn waiter(&self) -> Waiter {
        Waiter(self)
    }

    /// Whether the result is there.
    pub(super) fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Waits until the result is delivered, and takes it.
    pub(super) fn wait(&self) -> io::Result<usize> {
        let mut state = self.state.load(Ordering::Acquire);
        while state != DONE {
            if state == PENDING {
                state = match self.state.compare_exchange(
                    PENDING,
                    PARKED,
                    Ordering::Acquire,
                    Ordering::Acquire,
                ) {
                    Ok(_) => PARKED,
                    Err(now) => now,
                };
                continue;
            }
            sleep_while_parked(&self.state);
            state = self.state.load(Ordering::Acquire);
        }
        // SAFETY: after DONE (acquired above) the deliverer no longer touches the result.
        unsafe { (*self.result.get()).take() }.expect("a result comes before DONE")
    }
}

impl Waiter {
    /// Delivers the result and wakes the waiting thread, if it sleeps already.
    pub(super) fn deliver(self, result: io::Result<usize>) {
        let mailbox = self.0;
        // SAFETY: the mailbox lives until DONE is seen, which is stored below; until then only this end touches
        // the result.
        unsafe {
            *(*mailbox).result.get() = Some(result);
            finish(mailbox);
        }
    }
}

/// Sleeps, unless the state is no longer `PARKED`. May return early.
#[cfg(not(feature = "shuttle"))]
fn sleep_while_parked(state: &AtomicU32) {
    // SAFETY: FUTEX_WAIT reads the word at the address, which is live; it returns at a wake-up, a signal,
    // or at once if the word is no longer PARKED.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            state.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            PARKED,
            std::ptr::null::<libc::timespec>(),
        );
    }
}

/// Stores `DONE`, and wakes who sleeps.
///
/// # Safety
/// The mailbox must be live until `DONE` is there; it may be gone as soon as it is.
#[cfg(not(feature = "shuttle"))]
unsafe fn finish(mailbox: *const Mailbox) {
    // SAFETY: the caller's promise; a raw pointer is kept, because what it points to may be gone after the store.
    let (word, before) =
        unsafe { ((*mailbox).state.as_ptr(), (*mailbox).state.swap(DONE, Ordering::AcqRel)) };
    if before == PARKED {
        // SAFETY: FUTEX_WAKE does not access the word; if another futex lives at the address by now, its
        // waiter sees a spurious wake-up, which futex waiters must expect.
        unsafe {
            libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1);
        }
    }
}

#[cfg(feature = "shuttle")]
fn sleep_while_parked(state: &AtomicU32) {
    if state.load(Ordering::Acquire) == PARKED {
        crate::sync::thread::park();
    }
}

/// As the other one.
#[cfg(feature = "shuttle")]
unsafe fn finish(mailbox: *const Mailbox) {
    // SAFETY: the caller's promise.
    let thread = unsafe {
        let thread = (*mailbox).thread.clone();
        (*mailbox).state.store(DONE, Ordering::Release);
        thread
    };
    thread.unpark();
}
