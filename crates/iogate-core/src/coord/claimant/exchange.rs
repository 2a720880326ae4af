//! What a driver does next for a request: connect, send, wait.

use super::{Calls, MILLISECOND, Reply, SECOND};
use crate::wire::Request;

/// What to do next. Before that, what [`Calls::unsent`] has goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<End> {
    /// To connect, and go on with the session, in time; then there is a [`Event::Connected`] or [`Event::Unreached`].
    Connect {
        /// Until then.
        until: u64,
    },
    /// To wait for what comes: [`Event::Answered`] or [`Event::Disconnected`].
    Wait {
        /// Until then at most.
        until: u64,
    },
    /// Nothing: there is no use in a connection before.
    Rest {
        /// Until then at most.
        until: u64,
    },
    /// To close the connection. The session goes on.
    Unlink,
    /// To close the connection, and to forget the session.
    Part,
    /// Nothing more: this comes of it.
    Over(End),
}

/// What happens to a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// There is one.
    Connected {
        /// It carries the session that there was: what has no answer is sent again.
        is_same: bool,
    },
    /// There was none to be had.
    Unreached {
        /// And there will not be one.
        is_final: bool,
        /// Any number: clients come back at different times.
        random: u8,
    },
    /// It is lost.
    Disconnected {
        /// As above.
        random: u8,
    },
    /// An answer has come, to this request or to one before it.
    Answered(Reply),
}

/// A request that is underway.
///
/// A driver asks for the [`next`](Exchange::next) step, whenever something has happened and when a step's time has
/// come, and takes it. It may ask at any other time, too. One that does not connect at once does not ask before it has.
pub trait Exchange {
    /// What comes of it.
    type End;

    /// What to do next. May post the request, in the session of `calls`.
    fn next(&mut self, now: u64, calls: &mut Calls, request: &Request<'_>) -> Step<Self::End>;

    /// Something has happened to the connection.
    fn happened(&mut self, now: u64, event: Event);
}

/// Whether there is a connection, and when to try to have one again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) is_up: bool,
    /// Not before.
    pub(super) again_at: u64,
    /// How long to wait after the next attempt.
    pause: u64,
}

/// The first pause between two attempts to connect. Each is longer than the one before.
const PAUSE_FIRST: u64 = 50 * MILLISECOND;
/// The longest.
pub(super) const PAUSE_LONGEST: u64 = SECOND;

impl Link {
    pub(super) fn new(is_up: bool) -> Link {
        Link { is_up, again_at: 0, pause: PAUSE_FIRST }
    }

    pub(super) fn up(&mut self) {
        self.is_up = true;
    }

    /// The peer is there: the next pause is short again.
    pub(super) fn heard(&mut self) {
        self.pause = PAUSE_FIRST;
    }

    /// It is down, and to be had again at once.
    pub(super) fn down(&mut self, now: u64) {
        (self.is_up, self.again_at) = (false, now);
    }

    /// It is down, and to be had again after a pause, which is not the same in all clients.
    pub(super) fn failed(&mut self, now: u64, random: u8) {
        self.down(now + self.pause * (128 + u64::from(random) / 2) / 255);
        self.pause = (2 * self.pause).min(PAUSE_LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_differ_among_clients() {
        let mut link = Link::new(true);
        let mut pause = |random| {
            link.failed(0, random);
            link.again_at / MILLISECOND
        };
        assert_eq!([(); 7].map(|()| pause(255)), [50, 100, 200, 400, 800, 1000, 1000]);
        assert_eq!(pause(0), 501);
        link.heard();
        link.failed(SECOND, 255);
        assert_eq!(link.again_at, SECOND + 50 * MILLISECOND);
    }
}
