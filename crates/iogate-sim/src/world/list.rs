//! List I/O: a forwarder sends several dispatches of its gate to the servers in one call.
//!
//! What the gate dispatches goes into a queue. From there a call takes the dispatch that has waited for longest, and with it those of the
//! same file and operation that have come since, in their order, adjacent or not, up to `batch` requests. A forwarder has so many `calls`
//! in service at once; meanwhile more comes to be joined. A call is complete when all of it has been answered, and then each dispatch in
//! it is. Each server that has a part in it gets its regions in one message, or several of at most 64, and answers each message when all
//! of that is done: less wire, and less processor time. To a server's gate each region is a request like others.
//!
//! Left out: PVFS's flows of 8 buffers of 256 KiB, the time of joining, and lists by applications themselves.
//!
//! Sources: Ali et al., Scalable I/O forwarding framework for high-performance computing systems, Cluster 2009; the thesis on TWINS (Bez,
//! 2016, sections 3.1 and 3.4.1: from IOFSL's dispatch queue, behind any scheduler, up to 16 requests of a file and operation); Ching et
//! al., Noncontiguous I/O through PVFS, Cluster 2002 (64 regions). How many calls IOFSL has in service nobody says: a key.

use std::collections::VecDeque;

use iogate_core::{Dispatch, DispatchId};

use super::request::{Parent, Range};
use super::{Event, Message, SimError, World};
use crate::scenario::ListSpec;

/// Most regions of a message.
const REGIONS_MAX: usize = 64;

/// What a forwarder's gate has dispatched and no call has taken.
#[derive(Debug)]
pub(super) struct ListQueue {
    requests_max: u32,
    calls_free: u32,
    waiting: VecDeque<Dispatch>,
    /// Calls so far, and their bytes.
    pub(super) sent: (u64, u64),
}

impl ListQueue {
    pub(super) fn new(spec: ListSpec) -> ListQueue {
        let ListSpec { requests, calls } = spec;
        ListQueue { requests_max: requests, calls_free: calls, waiting: VecDeque::new(), sent: (0, 0) }
    }

    pub(super) fn add(&mut self, dispatch: Dispatch) {
        self.waiting.push_back(dispatch);
    }

    /// What the next call takes, if one may begin and there is something.
    fn next(&mut self) -> Option<Vec<Dispatch>> {
        if self.calls_free == 0 {
            return None;
        }
        let first = self.waiting.pop_front()?;
        self.calls_free -= 1;
        let (mut requests, mut taken, mut left) = (first.parts, vec![first], VecDeque::new());
        while let Some(dispatch) = self.waiting.pop_front() {
            let is_alike = (dispatch.file, dispatch.op) == (first.file, first.op);
            if is_alike && requests + dispatch.parts > self.requests_max {
                // Those behind it are not to pass it.
                left.push_back(dispatch);
                break;
            }
            if is_alike {
                requests += dispatch.parts;
                taken.push(dispatch);
            } else {
                left.push_back(dispatch);
            }
        }
        left.append(&mut self.waiting);
        self.waiting = left;
        self.sent.0 += 1;
        self.sent.1 += taken.iter().map(|dispatch| dispatch.bytes).sum::<u64>();
        Some(taken)
    }

    /// A call is complete.
    fn ended(&mut self) {
        self.calls_free += 1;
    }
}

/// A call in service.
#[derive(Debug)]
pub(super) struct ListCall {
    node: u32,
    dispatches: Vec<DispatchId>,
    /// Its requests to the next layer; empty when they have been sent.
    pieces: Vec<u32>,
    /// Messages that are not answered.
    open: u32,
}

/// The regions of a call that go to one node.
#[derive(Debug)]
pub(super) struct ListMessage {
    call: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    pieces: Vec<u32>,
    /// Regions that are not served.
    left: u32,
    /// Bytes of data there, and back.
    pub(super) data: (u64, u64),
}

impl World<'_> {
    /// Begins as many calls of a forwarder as may be in service.
    pub(super) fn begin_lists(&mut self, node: u32) {
        while let Some(queue) = &mut self.nodes[node as usize].lists
            && let Some(dispatches) = queue.next()
        {
            self.begin_list(node, &dispatches);
        }
    }

    fn begin_list(&mut self, node: u32, dispatches: &[Dispatch]) {
        let ids = dispatches.iter().map(|dispatch| dispatch.id).collect();
        let call = self.list_calls.add(ListCall { node, dispatches: ids, pieces: Vec::new(), open: 0 });
        let layer = self.layer_of(node);
        for dispatch in dispatches {
            let Some(sender) = self.sender_of(node, dispatch.id) else { continue };
            let Dispatch { file, op, offset, bytes, .. } = *dispatch;
            self.forward(Parent::List(call), node, layer, &Range { file, op, offset, bytes }, sender);
        }
        let mut pieces = std::mem::take(&mut self.list_calls[call].pieces);
        // In the order in which they are for each.
        pieces.sort_by_key(|piece| self.pieces[*piece].to);
        let (mut open, mut rest) = (0, pieces.as_slice());
        while let Some(first) = rest.first() {
            let to = self.pieces[*first].to;
            let alike = rest.iter().take_while(|piece| self.pieces[**piece].to == to);
            let (regions, others) = rest.split_at(alike.take(REGIONS_MAX).count());
            self.send_list(call, regions);
            (open, rest) = (open + 1, others);
        }
        self.list_calls[call].open = open;
    }

    /// A region of a call, to be sent with the others.
    pub(super) fn add_region(&mut self, call: u32, piece: u32) {
        self.list_calls[call].pieces.push(piece);
    }

    fn send_list(&mut self, call: u32, regions: &[u32]) {
        let (from, to) = (self.pieces[regions[0]].from, self.pieces[regions[0]].to);
        let mut data = (0, 0);
        for piece in regions {
            let (there, back) = self.pieces[*piece].data();
            data = (data.0 + there, data.1 + back);
        }
        let left = regions.len() as u32;
        let message = ListMessage { call, from, to, pieces: regions.to_vec(), left, data };
        let message = self.list_messages.add(message);
        for piece in regions {
            self.pieces[*piece].parent = Parent::List(message);
        }
        self.net.send(&mut self.queue, from, to, data.0, Message::List(message));
    }

    /// A list has come in at a node.
    pub(super) fn take_in_list(&mut self, message: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let ListMessage { from, to, ref pieces, .. } = self.list_messages[message];
        let op = self.pieces[pieces[0]].op;
        match self.nodes[to as usize].processor.take_in(now, op, from) {
            None => self.enter_list(message),
            Some(at) => {
                self.queue.add(at, Event::ListTaken(message));
                Ok(())
            }
        }
    }

    /// The regions of a list enter the gate of their node.
    pub(super) fn enter_list(&mut self, message: u32) -> Result<(), SimError> {
        let pieces = std::mem::take(&mut self.list_messages[message].pieces);
        let result = pieces.iter().try_for_each(|piece| self.enter(*piece));
        self.list_messages[message].pieces = pieces;
        result
    }

    /// A region has been served; the last one of a message answers it.
    pub(super) fn served_region(&mut self, message: u32) {
        let this = &mut self.list_messages[message];
        this.left -= 1;
        if this.left == 0 {
            let ListMessage { from, to, data, .. } = *this;
            self.net.send(&mut self.queue, to, from, data.1, Message::ListReply(message));
        }
    }

    /// The answer to a list is back where it was sent from.
    pub(super) fn list_replied(&mut self, message: u32) -> Result<(), SimError> {
        let call = self.list_messages[message].call;
        for piece in std::mem::take(&mut self.list_messages[message].pieces) {
            self.pieces.free(piece);
        }
        self.list_messages.free(message);
        self.list_calls[call].open -= 1;
        if self.list_calls[call].open > 0 {
            return Ok(());
        }
        let node = self.list_calls[call].node;
        let dispatches = std::mem::take(&mut self.list_calls[call].dispatches);
        self.list_calls.free(call);
        if let Some(queue) = &mut self.nodes[node as usize].lists {
            queue.ended();
        }
        self.touch(node);
        dispatches.into_iter().try_for_each(|id| self.served(node, id))
    }
}

#[cfg(test)]
mod tests;
