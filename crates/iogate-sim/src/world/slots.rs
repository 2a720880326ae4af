//! Slots of a client: how many requests it may have unanswered.
//!
//! As the table of RPC slots of a mount in Linux (`net/sunrpc/xprt.c`): a request that finds none free waits, in the order in which it
//! came, and takes the slot of the next answer. A COMMIT takes one as well. Left out: that the table grows (from 3.1 on, up to what the
//! server permits), and that the requests of several processes share it by turns.

use std::collections::VecDeque;

/// The slots of a client node.
#[derive(Debug)]
pub(super) struct Slots {
    free: u32,
    waiting: VecDeque<u32>,
}

impl Slots {
    pub(super) fn new(slots: u32) -> Slots {
        Slots { free: slots, waiting: VecDeque::new() }
    }

    /// Whether a request goes now; else it waits.
    pub(super) fn take(&mut self, piece: u32) -> bool {
        if self.free == 0 {
            self.waiting.push_back(piece);
            return false;
        }
        self.free -= 1;
        true
    }

    /// A request has been answered: which one goes in its place.
    pub(super) fn give_back(&mut self) -> Option<u32> {
        let next = self.waiting.pop_front();
        self.free += u32::from(next.is_none());
        next
    }
}
