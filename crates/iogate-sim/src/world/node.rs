//! A node with a gate: a client node, a forwarder, or a data server with its device.

use std::collections::VecDeque;

use iogate_core::{DispatchId, Gate, GateConfig, Span, Time};

use super::block::Block;
use super::cached::NodeCache;
use super::choosing::Choosing;
use super::list::ListQueue;
use super::processor::Processor;
use super::slots::Slots;
use crate::scenario::ProcessorSpec;

/// A node's gate, and what belongs to it.
pub(super) struct Node {
    pub(super) gate: Option<Gate>,
    /// What chooses the gate's scheduler.
    pub(super) choosing: Option<Box<Choosing>>,
    /// What its clock shows at the start of the run.
    pub(super) clock: Time,
    pub(super) processor: Processor,
    /// Requests that found the gate full, and since when.
    pub(super) outside: VecDeque<(u32, Time)>,
    /// How many did, and for how long those that have come in waited for that, together.
    pub(super) held_back: (u64, Span),
    /// When it will be looked at again because its gate asked for that.
    pub(super) wake: Time,
    /// Whether it is on the list of nodes to look at in this instant.
    pub(super) touched: bool,
    /// Clients: whether a fault has taken it away.
    pub(super) lost: bool,
    /// The first request of each dispatch (by its number) of its gate.
    pub(super) firsts: Vec<u32>,
    /// Forwarders and clients: requests of each dispatch (by its number) that are not complete.
    pub(super) open: Vec<u32>,
    /// Of a forwarder that joins dispatches to lists.
    pub(super) lists: Option<ListQueue>,
    /// Of a data server: what lies below its gate.
    pub(super) block: Option<Block>,
    /// Of a data server: below its gate; of a client: above the network.
    pub(super) cache: Option<Box<NodeCache>>,
    /// Of a client: the requests that it may have unanswered.
    pub(super) slots: Option<Slots>,
}

impl Node {
    pub(super) fn new(
        gate: Option<Gate>,
        clock: Time,
        processor: ProcessorSpec,
        block: Option<Block>,
    ) -> Node {
        Node {
            gate,
            choosing: None,
            clock,
            processor: Processor::new(processor),
            outside: VecDeque::new(),
            held_back: (0, Span::ZERO),
            wake: Time::MAX,
            touched: false,
            lost: false,
            firsts: Vec::new(),
            open: Vec::new(),
            lists: None,
            block,
            cache: None,
            slots: None,
        }
    }

    /// Lets its gate's scheduler be chosen, if `chooses`.
    pub(super) fn choose(&mut self, chooses: bool, choosing: impl FnOnce(&GateConfig) -> Choosing) {
        if let Some(gate) = self.gate.as_ref().filter(|_| chooses) {
            self.choosing = Some(Box::new(choosing(gate.config())));
        }
    }

    /// Notes the first request of what its gate has dispatched.
    pub(super) fn note_first(&mut self, id: DispatchId) {
        let index = id.0 as usize;
        if self.firsts.len() <= index {
            self.firsts.resize(index + 1, 0);
        }
        let first = self.gate.as_ref().and_then(|gate| gate.parts(id).next());
        self.firsts[index] = first.map_or(0, |part| part.request.0 as u32);
    }

    /// What its clock shows.
    pub(super) fn clock_at(&self, now: Time) -> Time {
        self.clock + now.since(Time::ZERO)
    }

    /// When its clock will show `clock`.
    pub(super) fn when_clock_shows(&self, clock: Time) -> Time {
        if clock == Time::MAX { clock } else { Time::ZERO + clock.since(self.clock) }
    }
}
