//! A server that is not connected: when to try to connect again, and for how long.

use crate::{Span, Time};

/// After the first attempt; it doubles with each.
const PAUSE_MIN: Span = Span::from_millis(20);
/// Between attempts in the long run.
const PAUSE_MAX: Span = Span::from_secs(1);

/// How long to wait after an attempt to connect, by how long it was after the one before: from 20 ms on twice as long, at most a second.
pub fn next_pause(before: Span) -> Span {
    (before + before).clamp(PAUSE_MIN, PAUSE_MAX)
}

/// A loss of a connection, until there is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Loss {
    pub(super) since: Time,
    /// When to try next.
    pub(super) next_attempt: Time,
    /// Its requests have failed, and new ones do at once.
    pub(super) gave_up: bool,
    /// After the last attempt; none: there was none.
    pause: Span,
}

impl Loss {
    pub(super) fn new(now: Time) -> Loss {
        Loss { since: now, next_attempt: now, gave_up: false, pause: Span::ZERO }
    }

    /// The same loss, if the last attempt was a short time ago. To be asked only if nothing was answered since: a server that takes
    /// connections and answers nothing is as gone as before.
    pub(super) fn goes_on(self, now: Time) -> Option<Loss> {
        (now < self.next_attempt + PAUSE_MAX).then_some(Loss { gave_up: false, ..self })
    }

    /// An attempt has ended.
    pub(super) fn tried(&mut self, now: Time) {
        self.pause = next_pause(self.pause);
        self.next_attempt = now + self.pause;
    }

    /// Whether requests need wait no longer: they do so for `retry_for`, once.
    pub(super) fn is_too_long(&self, now: Time, retry_for: Span) -> bool {
        self.gave_up || now.since(self.since) >= retry_for
    }

    /// Whether there was an attempt.
    pub(super) fn was_tried(&self) -> bool {
        self.pause > Span::ZERO
    }
}
