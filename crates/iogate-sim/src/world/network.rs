//! The network: one switch, with one port to each node.
//!
//! A message leaves its sender's port when those before it have left, takes the latency to the switch's port of the receiver, and
//! comes in when those that were there first have come in; each port passes `bandwidth` bytes a second in each direction. Nothing
//! is lost, unless the switch's buffers are bounded: then each pair of nodes has a [`Flow`], which sends again what was lost.
//!
//! Left out: several switches, processor time per message (a layer's `overhead` has it), acknowledgements' bandwidth.

mod flow;

use iogate_core::device::Divisor;
use iogate_core::hash::HashMap;
use iogate_core::{Span, Time};

use self::flow::{Flow, SEGMENT_BYTES, Segment};
use super::event::EventQueue;
use super::fault::Delays;
use crate::result::NetworkResult;
use crate::rng::{Distribution, Rng};
use crate::scenario::Network;
use crate::slab::Slab;

/// What the network wants to be told again, at its time.
#[derive(Clone, Copy, Debug)]
pub(super) enum NetEvent {
    /// A segment reaches the switch's port of its receiver.
    Segment(u32),
    /// A segment has come in.
    Received(u32),
    /// A sender learns how much has come in.
    Ack(u32),
    /// A sender may have waited long enough for an acknowledgement.
    Alarm(u32),
}

/// An event of the world that this network causes.
pub(super) trait WorldEvent<M>: Copy {
    /// The first byte of a message of `bytes` bytes of data reaches the switch's port of `to`.
    fn arrive(message: M, to: u32, bytes: u64) -> Self;
    /// The message has come in.
    fn deliver(message: M) -> Self;
    /// For [`Net::handle`].
    fn net(event: NetEvent) -> Self;
}

/// A time for each pair of nodes, at the beginning zero.
enum Lasts {
    /// Row by row, from the first use on.
    Table { nodes: usize, times: Vec<Time> },
    /// Where a table would be large.
    Map(HashMap<(u32, u32), Time>),
}

/// A table of 2 MiB.
const TABLE_NODES: usize = 512;

impl Lasts {
    fn new(nodes: usize) -> Lasts {
        if nodes <= TABLE_NODES {
            Lasts::Table { nodes, times: Vec::new() }
        } else {
            Lasts::Map(HashMap::default())
        }
    }

    #[inline]
    fn of(&mut self, from: u32, to: u32) -> &mut Time {
        match self {
            Lasts::Table { nodes, times } => {
                if times.is_empty() {
                    times.resize(*nodes * *nodes, Time::ZERO);
                }
                &mut times[from as usize * *nodes + to as usize]
            }
            Lasts::Map(times) => times.entry((from, to)).or_insert(Time::ZERO),
        }
    }
}

/// The ports, and what is between them. `M` names a message.
pub(super) struct Net<M> {
    config: Network,
    wire: Wire,
    delays: Delays,
    out_free: Vec<Time>,
    in_free: Vec<Time>,
    /// Where latencies vary: when the last message of a pair of nodes arrives.
    last: Lasts,
    flow_of: HashMap<(u32, u32), u32>,
    flows: Vec<Flow<M>>,
    segments: Slab<Segment>,
    rng: Rng,
    pub(super) result: NetworkResult,
}

impl<M: Copy> Net<M> {
    pub(super) fn new(config: &Network, delays: Delays, nodes: usize, rng: Rng) -> Net<M> {
        Net {
            config: config.clone(),
            wire: Wire::new(config.bandwidth),
            delays,
            out_free: vec![Time::ZERO; nodes],
            in_free: vec![Time::ZERO; nodes],
            last: Lasts::new(nodes),
            flow_of: HashMap::default(),
            flows: Vec::new(),
            segments: Slab::new(),
            rng,
            result: NetworkResult::default(),
        }
    }

    /// Sends a message of `bytes` bytes of data.
    pub(super) fn send<E: WorldEvent<M>>(
        &mut self,
        queue: &mut EventQueue<E>,
        from: u32,
        to: u32,
        bytes: u64,
        message: M,
    ) {
        let now = queue.now();
        if from == to {
            queue.add(now, E::deliver(message));
            return;
        }
        let data = bytes;
        let bytes = data + u64::from(self.config.header);
        self.result.messages += 1;
        self.result.bytes += bytes;
        if self.config.buffer.is_some() {
            let flow = *self.flow_of.entry((from, to)).or_insert_with(|| {
                self.flows.push(Flow::new(from, to));
                (self.flows.len() - 1) as u32
            });
            // A stream carries no message of nothing.
            self.flows[flow as usize].push(bytes.max(1), message);
            self.send_segments(queue, flow);
            return;
        }
        let left = self.leave(now, from, bytes);
        let arrival = left + self.latency(from, to, left);
        match self.config.bandwidth {
            None => queue.add(arrival, E::deliver(message)),
            Some(_) => queue.add(arrival, E::arrive(message, to, data)),
        }
    }

    /// A message of `bytes` bytes of data has reached the switch's port of `to`: when it will have come in, no earlier than those before.
    pub(super) fn arrive(&mut self, now: Time, to: u32, bytes: u64) -> Time {
        self.come_in(now, to, bytes + u64::from(self.config.header))
    }

    /// Occupies the sender's port: when it begins to send.
    fn leave(&mut self, now: Time, from: u32, bytes: u64) -> Time {
        let free = &mut self.out_free[from as usize];
        let begin = now.max(*free);
        *free = begin + self.wire.time(bytes);
        begin
    }

    /// Occupies the receiver's port: when all has come in.
    fn come_in(&mut self, now: Time, to: u32, bytes: u64) -> Time {
        let free = &mut self.in_free[to as usize];
        *free = now.max(*free) + self.wire.time(bytes);
        *free
    }

    fn latency(&mut self, from: u32, to: u32, left: Time) -> Span {
        if self.config.jitter == Span::ZERO && self.config.buffer.is_none() && self.delays.is_empty() {
            return self.config.latency;
        }
        let varying = Distribution::Uniform(Span::ZERO, self.varying(left));
        let latency = self.config.latency + self.rng.span(varying);
        let last = self.last.of(from, to);
        *last = (left + latency).max(*last);
        last.since(left)
    }

    /// What is added at most to the latency of what leaves at `at`.
    fn varying(&self, at: Time) -> Span {
        // Senders in lock step would have all losses hit the same one of them: the traffic phase effect of Floyd and Jacobson
        // (1991), who remedy it with a random time of up to a segment's.
        let phase = match self.config.buffer {
            Some(_) => self.wire.time(SEGMENT_BYTES),
            None => Span::ZERO,
        };
        self.config.jitter + self.delays.extra(at) + phase
    }

    fn send_segments<E: WorldEvent<M>>(&mut self, queue: &mut EventQueue<E>, flow: u32) {
        while let Some((start, bytes)) = self.flows[flow as usize].next_segment() {
            self.send_segment(queue, flow, start, bytes);
        }
        self.arm(queue, flow);
    }

    fn send_segment<E: WorldEvent<M>>(
        &mut self,
        queue: &mut EventQueue<E>,
        flow: u32,
        start: u64,
        bytes: u32,
    ) {
        let (from, to) = self.flows[flow as usize].ends();
        let left = self.leave(queue.now(), from, bytes.into());
        let arrival = left + self.latency(from, to, left);
        let segment = self.segments.add(Segment { flow, start, bytes });
        queue.add(arrival, E::net(NetEvent::Segment(segment)));
    }

    /// Has the flow woken when what is on its way has not been acknowledged for too long.
    fn arm<E: WorldEvent<M>>(&mut self, queue: &mut EventQueue<E>, flow: u32) {
        let (from, to) = self.flows[flow as usize].ends();
        // What still waits at a port or is on its way cannot have been acknowledged: senders know the round trip.
        let sent = queue.now().max(self.out_free[from as usize]);
        let mut reached = sent + self.config.latency + self.varying(sent);
        // What follows something that was delayed is late as well, though the delay may be over.
        reached = reached.max(*self.last.of(from, to));
        let received = reached.max(self.in_free[to as usize]);
        let answered = received + self.wire.time(SEGMENT_BYTES) + self.config.latency;
        if let Some(at) = self.flows[flow as usize].arm(answered, self.config.retransmit) {
            queue.add(at, E::net(NetEvent::Alarm(flow)));
        }
    }

    /// Goes on with one of its own events.
    pub(super) fn handle<E: WorldEvent<M>>(&mut self, queue: &mut EventQueue<E>, event: NetEvent) {
        let now = queue.now();
        match event {
            NetEvent::Segment(id) => {
                let Segment { flow, bytes, .. } = self.segments[id];
                let (_, to) = self.flows[flow as usize].ends();
                let waiting = self.in_free[to as usize].since(now);
                let queued = waiting.as_nanos() as f64 * self.config.bandwidth.unwrap_or(0) as f64 / 1e9;
                if queued + f64::from(bytes) > self.config.buffer.unwrap_or(u64::MAX) as f64 && queued > 0.0 {
                    self.result.lost += 1;
                    self.segments.free(id);
                    return;
                }
                let done = self.come_in(now, to, bytes.into());
                queue.add(done, E::net(NetEvent::Received(id)));
            }
            NetEvent::Received(id) => {
                let segment = self.segments[id];
                self.segments.free(id);
                let flow = &mut self.flows[segment.flow as usize];
                flow.received(&segment, |message| queue.add(now, E::deliver(message)));
                queue.add(now + self.config.latency, E::net(NetEvent::Ack(segment.flow)));
            }
            NetEvent::Ack(flow) => {
                if let Some((start, bytes)) = self.flows[flow as usize].acknowledged() {
                    self.send_segment(queue, flow, start, bytes);
                }
                self.send_segments(queue, flow);
            }
            NetEvent::Alarm(flow) => {
                if self.flows[flow as usize].timed_out(now) {
                    self.result.timeouts += 1;
                }
                self.send_segments(queue, flow);
            }
        }
    }
}

/// The bytes that a port passes in a second.
#[derive(Clone, Copy)]
enum Wire {
    Unlimited,
    Passes(Divisor),
    Stuck,
}

impl Wire {
    fn new(bandwidth: Option<u64>) -> Wire {
        match bandwidth {
            None => Wire::Unlimited,
            Some(0) => Wire::Stuck,
            Some(bandwidth) => Wire::Passes(Divisor::new(bandwidth)),
        }
    }

    /// How long a port takes for so many bytes; one without bandwidth takes for ever.
    fn time(self, bytes: u64) -> Span {
        Span::from_nanos(match self {
            Wire::Unlimited => 0,
            Wire::Passes(bandwidth) => bandwidth.div_rem(bytes.saturating_mul(1_000_000_000)).0,
            Wire::Stuck => u64::MAX,
        })
    }
}
