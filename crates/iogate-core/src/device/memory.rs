//! Storage at the speed of memory: a file system in memory, or one whose pages are all cached.
//!
//! **Modelled:** a fixed cost of each dispatch, paid by the core that carries it out; copying, at the rate of one core and, for
//! all of them together, that of memory; and what it costs to wake another thread for a dispatch that could not be carried
//! out where it was submitted. The last is what makes a scheduler that keeps one dispatch in service several times slower here
//! than none.
//!
//! **Left out:** caches of processors, page faults, locks of files, and whatever is in front of the gate.

use super::{Device, Transfer, transfer_ns};
use crate::time::{Span, Time};

/// What memory takes. Zero rates are brought to 1 MB/s, zero cores and capacities to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Dispatches that are carried out at the same time.
    pub cores: u32,
    /// What each costs a core.
    pub dispatch: Span,
    /// What it costs to wake another thread for it.
    pub hand_over: Span,
    /// Rate at which one core copies.
    pub core_bytes_per_s: u64,
    /// Rate at which all of them do.
    pub bytes_per_s: u64,
}

/// Storage at the speed of memory.
#[derive(Clone, Debug)]
pub struct Memory {
    config: MemoryConfig,
    /// When memory will have moved what it was given.
    moved_ns: u64,
}

impl Memory {
    /// Idle memory.
    pub fn new(config: MemoryConfig) -> Memory {
        let config = MemoryConfig {
            capacity: config.capacity.max(1),
            cores: config.cores.max(1),
            core_bytes_per_s: config.core_bytes_per_s.max(1_000_000),
            bytes_per_s: config.bytes_per_s.max(1_000_000),
            ..config
        };
        Memory { config, moved_ns: 0 }
    }
}

impl Device for Memory {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        let now_ns = now.as_nanos();
        let bytes = transfer.bytes.clamp(1, self.config.capacity);
        let copied_ns = now_ns
            .saturating_add(self.config.dispatch.as_nanos())
            .saturating_add(transfer_ns(bytes, self.config.core_bytes_per_s));
        self.moved_ns = self.moved_ns.max(now_ns).saturating_add(transfer_ns(bytes, self.config.bytes_per_s));
        Time::from_nanos(copied_ns.max(self.moved_ns)).since(now)
    }

    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }

    fn capacity(&self) -> u64 {
        self.config.capacity
    }

    fn repositions(&self) -> u64 {
        0
    }

    fn slots(&self) -> u32 {
        self.config.cores
    }

    fn hand_over(&self) -> Span {
        self.config.hand_over
    }
}
