//! Requests that wait for the end of a file, without a thread of their own.
//!
//! A request that waits keeps the first place in its session's window: its client can soon send nothing more, not even what others
//! wait for, the end of another's wait. So who has waited for [`PATIENCE`] is sent away, and asks again: its place among those who
//! wait stays its own, and what it is given meanwhile waits for it.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

use super::Owed;
use crate::{Span, Time};

/// How long a request waits for an end before its client is to ask again.
pub const PATIENCE: Span = Span::from_millis(500);

/// Who waits, as the driver knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParkedId(u64);

/// What becomes of a request that is to be parked.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<G> {
    /// It is new: the driver is to ask for the end, and to [give](super::ServerSession::give) it.
    New(ParkedId),
    /// It was sent away and has come again: it waits on.
    Waits,
    /// It has come again and is given this: to be answered now.
    Given(Owed, G),
}

/// Those who wait.
#[derive(Debug)]
pub(super) struct Parked<G> {
    next: u64,
    waits: Vec<Wait<G>>,
}

#[derive(Debug)]
struct Wait<G> {
    id: ParkedId,
    /// Of the file; `None` once that is closed: then nobody asks again.
    handle: Option<u32>,
    asked: Box<[u8]>,
    state: State<G>,
}

#[derive(Debug)]
enum State<G> {
    /// Waits since then.
    Here(Owed, Time),
    /// Has been sent away, and will ask again.
    Away,
    /// Will ask again, and is given this then.
    Given(G),
}

impl<G> Default for Parked<G> {
    fn default() -> Parked<G> {
        Parked { next: 0, waits: Vec::new() }
    }
}

impl<G> Wait<G> {
    fn is_here(&self) -> bool {
        matches!(self.state, State::Here(..))
    }
}

impl<G> Parked<G> {
    pub(super) fn park(&mut self, owed: Owed, handle: Option<u32>, asked: &[u8], now: Time) -> Asked<G> {
        let is_same = |wait: &Wait<G>| {
            !wait.is_here() && handle.is_some() && wait.handle == handle && *wait.asked == *asked
        };
        if let Some(at) = self.waits.iter().position(is_same) {
            return match mem::replace(&mut self.waits[at].state, State::Away) {
                State::Given(given) => {
                    self.waits.remove(at);
                    Asked::Given(owed, given)
                }
                _ => {
                    self.waits[at].state = State::Here(owed, now);
                    Asked::Waits
                }
            };
        }
        let id = ParkedId(self.next);
        self.next += 1;
        self.waits.push(Wait { id, handle, asked: asked.into(), state: State::Here(owed, now) });
        Asked::New(id)
    }

    pub(super) fn give(&mut self, id: ParkedId, given: G) -> Option<(Owed, G)> {
        let at = self.waits.iter().position(|wait| wait.id == id)?;
        match mem::replace(&mut self.waits[at].state, State::Away) {
            State::Here(owed, _) => {
                self.waits.remove(at);
                Some((owed, given))
            }
            _ => {
                self.waits[at].state = State::Given(given);
                None
            }
        }
    }

    /// Those who have waited for long; none while there are more than `most`, as who does not come again takes memory.
    pub(super) fn send_away(&mut self, now: Time, most: usize) -> Vec<Owed> {
        let mut sent = Vec::new();
        if self.waits.len() > most {
            return sent;
        }
        for wait in &mut self.waits {
            match mem::replace(&mut wait.state, State::Away) {
                State::Here(owed, since) if now.since(since) >= PATIENCE => sent.push(owed),
                other => wait.state = other,
            }
        }
        self.waits.retain(|wait| wait.is_here() || wait.handle.is_some());
        sent
    }

    /// A file is closed: nobody asks again through its handle.
    pub(super) fn close(&mut self, handle: u32) {
        for wait in self.waits.iter_mut().filter(|wait| wait.handle == Some(handle)) {
            wait.handle = None;
        }
        self.waits.retain(|wait| wait.is_here() || wait.handle.is_some());
    }

    /// Nobody asks again.
    pub(super) fn end(&mut self) {
        self.waits.iter_mut().for_each(|wait| wait.handle = None);
        self.waits.retain(Wait::is_here);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waits.len()
    }
}
