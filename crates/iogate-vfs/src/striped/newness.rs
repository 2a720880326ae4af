//! Whether a file is new, and its objects as good as this process's only.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use iogate_core::{Span, Time};

use crate::Clock;

/// How long a new file's objects count as this process's only, for its attributes: as long as attributes may be old anyway.
const NEW_FOR: Span = Span::from_secs(1);

/// Since when this process has given a file the name of its objects, if it has.
#[derive(Debug, Default)]
pub(super) struct Newness {
    since: OnceLock<Time>,
    /// Somebody has asked for a lock of it: whoever had that may have made objects.
    is_over: AtomicBool,
}

impl Newness {
    /// The file has just got the name of its objects: there are none but those that this process makes, as far as other nodes see its
    /// attributes by now.
    pub(super) fn begin(&self, now: Time) {
        let _ = self.since.set(now);
    }

    /// Other nodes' objects count from now on.
    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether this process has made the file: most likely nobody else has made an object yet.
    pub(super) fn is_likely(&self) -> bool {
        self.since.get().is_some()
    }

    /// Whether what other nodes have made need not be seen yet.
    pub(super) fn counts(&self, clock: &Clock) -> bool {
        !self.is_over.load(Ordering::Acquire)
            && self.since.get().is_some_and(|&since| clock.since(since) < NEW_FOR)
    }
}
