//! A process that forks: the child has its own sessions, and does not disturb its parent's.
//!
//! Only where no other thread is in a call of the client while the process forks: what such a thread has locked, nobody unlocks in the
//! child. Who cannot see to that forgets what it has inherited in the child, and connects anew, as the preload library does.

use std::mem;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Receiving;
use super::session::Shared;

/// The process that a session belongs to.
pub(super) struct Owner(AtomicU32);

impl Owner {
    pub(super) fn new() -> Owner {
        Owner(AtomicU32::new(std::process::id()))
    }
}

impl Shared {
    /// If this is a child of the process that the session belongs to: leaves the session to the parent, and begins one of
    /// its own, in which the files that are open are opened again. Only without a thread of the client's own: the child does
    /// not have it.
    pub(super) fn notice_fork(&self) {
        // Who would not look at the answer need not ask the kernel for it.
        if self.options.receiving != Receiving::Inline {
            return;
        }
        let process = std::process::id();
        if self.owner.0.load(Ordering::Acquire) == process {
            return;
        }
        let mut state = self.lock();
        if self.owner.0.swap(process, Ordering::AcqRel) == process {
            return;
        }
        if let Some(link) = state.link.take() {
            // Closed without a word: an encrypted stream's would reach the parent's server. The rest is memory that the parent's
            // threads were using.
            // SAFETY: nobody in this process uses the descriptor any more: the link is forgotten.
            unsafe { libc::close(link.socket.fd().as_raw_fd()) };
            mem::forget(link);
        }
        self.waker.part_from_parent();
        state.reset();
        state.session.forked(self.now());
    }
}
