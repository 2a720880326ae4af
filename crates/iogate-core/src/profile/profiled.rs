//! A device made from a profile.
//!
//! **Modelled:** what the profile has: the price of a dispatch by operation, size and pattern, and how it grows with those in service,
//! so that the rate with n always in service is X(n); a write cache that takes a burst and is free again after as much idle time as it
//! needs to drain; and what a hand-over costs.
//!
//! **Left out:** how far a jump goes, caches of reads, and whatever else a profile averages over.

use alloc::vec::Vec;

use super::{Class, Costs, IN_FLIGHT, Profile, Streams};
use crate::device::{Device, Transfer};
use crate::request::Op;
use crate::time::{Span, Time};

/// Addresses wrap around this.
const CAPACITY: u64 = 1 << 50;

/// A device made from a profile.
#[derive(Clone, Debug)]
pub struct Profiled {
    costs: Costs,
    slots: u32,
    streams: Streams,
    jumps: u64,
    /// Ends of what is in service, and of what was, up to the most slots.
    ends: Vec<u64>,
    idle_from: u64,
    cache_bytes: u64,
    cache_free: u64,
    fill_bytes_per_s: u64,
    drain_bytes_per_s: u64,
    hand_over: Span,
}

impl Profiled {
    /// A device that charges as `profile` says.
    pub fn new(profile: &Profile) -> Profiled {
        let costs = profile.costs();
        let gate = profile.gate;
        Profiled {
            slots: costs.slots(),
            costs,
            streams: Streams::default(),
            jumps: 0,
            ends: Vec::with_capacity(IN_FLIGHT[5] as usize),
            idle_from: 0,
            cache_bytes: profile.cache.bytes.value,
            cache_free: profile.cache.bytes.value,
            fill_bytes_per_s: profile.cache.fill.value.max(1_000),
            drain_bytes_per_s: profile.cache.drain.value.max(1_000),
            hand_over: Span::from_nanos(gate.handed_over.value.saturating_sub(gate.inline.value)),
        }
    }

    /// Whether the write cache takes a write at once. It drains while nothing is in service. How many scattered writes it would take
    /// is not known, so it takes none.
    fn is_cached(&mut self, now: u64, class: Class, transfer: &Transfer) -> bool {
        if self.cache_bytes == 0 {
            return false;
        }
        let idle_ns = now.saturating_sub(self.idle_from);
        let drained = u128::from(idle_ns) * u128::from(self.drain_bytes_per_s) / 1_000_000_000;
        self.cache_free = self.cache_bytes.min(self.cache_free.saturating_add(drained.min(1 << 50) as u64));
        if transfer.op == Op::Write && class != Class::Jump && self.cache_free >= transfer.bytes {
            self.cache_free -= transfer.bytes;
            return true;
        }
        false
    }
}

impl Device for Profiled {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        let now_ns = now.as_nanos();
        let bytes = transfer.bytes.clamp(1, CAPACITY);
        let address = transfer.address % CAPACITY;
        let class = self.streams.class(0, transfer.op, address, bytes);
        self.jumps += u64::from(class == Class::Jump);
        let in_service = self.ends.iter().filter(|end| **end > now_ns).count() + 1;
        let mut ns = self.costs.shared_ns(transfer.op, class, bytes, in_service.min(self.slots as usize));
        if self.is_cached(now_ns, class, &transfer) {
            let filled = u128::from(bytes) * 1_000_000_000 / u128::from(self.fill_bytes_per_s);
            ns = ns.min((filled as u64).max(1));
        }
        let end = now_ns.saturating_add(ns);
        self.idle_from = self.idle_from.max(end);
        match self.ends.iter_mut().find(|end| **end <= now_ns) {
            Some(free) => *free = end,
            None => self.ends.push(end),
        }
        Time::from_nanos(end).since(now)
    }

    fn flush(&mut self, _now: Time) -> Span {
        let dirty = self.cache_bytes - self.cache_free;
        self.cache_free = self.cache_bytes;
        let ns = u128::from(dirty) * 1_000_000_000 / u128::from(self.drain_bytes_per_s);
        Span::from_nanos(ns as u64)
    }

    fn capacity(&self) -> u64 {
        CAPACITY
    }

    fn repositions(&self) -> u64 {
        self.jumps
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    fn hand_over(&self) -> Span {
        self.hand_over
    }
}
