//! The processor of a forwarder or a server: it does one thing after the other.
//!
//! What it charges: a time for each read, write or list of them, before the gate; and, with each, a time for each connection that is
//! open, for one loop of events looks at all of them. A connection is open from the first request of a node on. And, on a server,
//! a time for each dispatch of its gate when what is below has done it: for the call of the kernel that it is, which is one for joined
//! requests.
//!
//! Left out: several cores; the answers' way out; COMMITs; the time of schedulers, caches and elevators; what a request costs by its
//! length.
//!
//! Sources: the numbers are keys of a scenario, as nobody has published them for PVFS2. The thesis on TWINS (Bez, 2016, section 3.4.3)
//! has 26.09 us between two reads, and 50.92 us between two writes of 32 KiB, as the first 128 come in at one I/O node (medians): the
//! network is in that, so it bounds what the I/O node's processor takes for one from above.

use std::collections::BTreeSet;

use iogate_core::{Op, Span, Time};

use crate::scenario::ProcessorSpec;

/// The processor of a node.
#[derive(Debug)]
pub(super) struct Processor {
    spec: ProcessorSpec,
    free_at: Time,
    /// Nodes that have a connection open.
    connected: BTreeSet<u32>,
}

impl Processor {
    pub(super) fn new(spec: ProcessorSpec) -> Processor {
        Processor { spec, free_at: Time::ZERO, connected: BTreeSet::new() }
    }

    /// Takes in a message of requests from a node: when it has, if that takes any time.
    pub(super) fn take_in(&mut self, now: Time, op: Op, from: u32) -> Option<Time> {
        let ProcessorSpec { read, write, connection, .. } = self.spec;
        let mut cost = if op == Op::Read { read } else { write };
        if connection > Span::ZERO {
            self.connected.insert(from);
            let all = connection.as_nanos().saturating_mul(self.connected.len() as u64);
            cost += Span::from_nanos(all);
        }
        self.work(now, cost)
    }

    /// Ends the call for a dispatch: when it has, if that takes any time.
    pub(super) fn end_call(&mut self, now: Time) -> Option<Time> {
        self.work(now, self.spec.dispatch)
    }

    fn work(&mut self, now: Time, cost: Span) -> Option<Time> {
        if cost == Span::ZERO {
            return None;
        }
        self.free_at = self.free_at.max(now) + cost;
        Some(self.free_at)
    }
}
