//! Models of storage devices: how long a device takes to serve a transfer, given what it served before.
//!
//! | file | model |
//! |---|---|
//! | `unit` | a constant time |
//! | `linear` | a time for a jump, and a rate |
//! | `disk` | a hard disk: seeks ([`SeekTimes`]), rotation, zones, read-ahead and write cache |
//! | `command_queue` | a disk that holds several commands and orders them by itself |
//! | `flash` | a flash drive: channels, pages, write buffer, read-ahead |
//! | `memory` | storage at the speed of memory: cores, hand-overs |
//! | `nvme` | a solid-state drive down to its dies: buffer, garbage collection |
//! | `raid0` | stripes over other devices |
//! | `array` | RAID-5 and RAID-6 over other devices, with a controller's cache |
//! | `station` | a device with a queue in front: who begins when |
//! | `parameters` | the numbers of the models, each with its range and its source |
//! | `allocation` | where a file system puts the blocks of files that grow |
//! | `placement` | where on a device a file lies |
//! | `preset` | named devices |
//! | `spec` | the text that names one, as `--device` takes it |
//! | `ratio` | sequential against random throughput of a device |
//! | `narrow` | a device of which fewer slots are used than it has, as by a driver without command queueing |
//! | `seek` | how long a disk's arm takes over a distance |
//! | `write_cache` | what a disk holds back from its medium, by address |
//! | `recency` | which part of a disk's read cache was used least recently |
//! | `divisor` | division by a number that is known beforehand |
//!
//! A model has no random source: the angle of a platter follows from the time, so that the same calls give
//! the same answers.

mod allocation;
mod array;
mod command_queue;
mod disk;
mod divisor;
mod flash;
mod linear;
mod memory;
mod narrow;
mod nvme;
mod parameters;
mod placement;
mod preset;
mod raid0;
mod ratio;
mod recency;
mod seek;
mod spec;
mod station;
mod unit;
mod write_cache;

use alloc::boxed::Box;

use crate::request::Op;
use crate::time::{Span, Time};

pub use allocation::Rules;
pub use array::{Array, ArrayConfig};
pub use command_queue::CommandQueue;
pub use disk::{Disk, DiskConfig};
pub use divisor::Divisor;
pub use flash::{Flash, FlashConfig};
pub use linear::Linear;
pub use memory::{Memory, MemoryConfig};
pub use narrow::Narrow;
pub use nvme::{Nvme, NvmeConfig, NvmeState};
pub use parameters::{PARAMETERS, Parameter};
pub use placement::Placement;
pub use preset::Preset;
pub use raid0::Raid0;
pub use ratio::{RATIO_FILE_BYTES, sequential_to_random_ratio};
pub use seek::SeekTimes;
pub use spec::{DeviceSpecError, parse, parse_numbered};
pub use station::{Ended, Station, Visit};
pub use unit::Unit;

/// One transfer as a device sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Read or write.
    pub op: Op,
    /// First byte on the device.
    pub address: u64,
    /// Length in bytes, not zero.
    pub bytes: u64,
}

/// A device model. Its state (head position, caches, what is in service) is what it was given to serve before.
/// [`Station`] keeps what is asked of those who call it.
pub trait Device: Send {
    /// How long the device takes for `transfer` if it begins at `now`, and the new state. `now` never
    /// decreases, and fewer than [`Device::slots`] transfers are in service then.
    ///
    /// Any address and length are served: addresses wrap around the capacity, and a transfer longer than
    /// the device counts as one of the whole device.
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span;

    /// How long the device takes, from `now`, until everything written so far is on its medium: what a
    /// flush command costs. Zero for a device that holds nothing back. Nothing is in service at `now`.
    fn flush(&mut self, now: Time) -> Span;

    /// Capacity in bytes; addresses wrap around it.
    fn capacity(&self) -> u64;

    /// Times that the device had to reposition (a seek, for a disk); 0 for devices without a notion of it.
    fn repositions(&self) -> u64;

    /// Most transfers in service at once. How they slow each other down is in the times that [`Device::serve`] gives.
    fn slots(&self) -> u32 {
        1
    }

    /// What it costs the machine that has the device to let another thread carry out a dispatch than the one that
    /// brought it: what has waited in a gate is carried out by whoever asks the gate next.
    fn hand_over(&self) -> Span {
        Span::ZERO
    }

    /// The device as one that decides by itself what it serves next; none if it serves in the order of arrival. For such a one
    /// [`Device::serve`] is one transfer at a time.
    fn queueing(&mut self) -> Option<&mut dyn Queueing> {
        None
    }
}

/// A device that holds several transfers, and knows when one ends only as it goes: what comes later may go first.
pub trait Queueing {
    /// Takes a transfer, which [`Queueing::ended`] will call by `tag`. `now` is no earlier than what has been told of.
    fn submit(&mut self, now: Time, tag: u64, transfer: Transfer);

    /// When something happens in it next: a transfer may have ended then.
    fn next_event(&mut self) -> Option<Time>;

    /// The next transfer that has ended by `now`, and when.
    fn ended(&mut self, now: Time) -> Option<(u64, Time)>;
}

/// How long a transfer takes when nothing else comes until it has ended.
fn serve_alone(device: &mut dyn Queueing, now: Time, transfer: Transfer) -> Span {
    const ALONE: u64 = u64::MAX;
    device.submit(now, ALONE, transfer);
    let mut at = now;
    loop {
        match device.ended(at) {
            Some((ALONE, end)) => return end.since(now),
            Some(_) => {}
            None => match device.next_event() {
                Some(next) => at = at.max(next),
                None => return at.since(now),
            },
        }
    }
}

impl Device for Box<dyn Device> {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        (**self).serve(now, transfer)
    }

    fn flush(&mut self, now: Time) -> Span {
        (**self).flush(now)
    }

    fn capacity(&self) -> u64 {
        (**self).capacity()
    }

    fn repositions(&self) -> u64 {
        (**self).repositions()
    }

    fn slots(&self) -> u32 {
        (**self).slots()
    }

    fn hand_over(&self) -> Span {
        (**self).hand_over()
    }

    fn queueing(&mut self) -> Option<&mut dyn Queueing> {
        (**self).queueing()
    }
}

/// Calls `piece(address, end)` for each contiguous piece of `transfer` on a device of `capacity` bytes: one,
/// or two if it wraps around the end.
fn for_each_piece(capacity: u64, transfer: Transfer, mut piece: impl FnMut(u64, u64)) {
    // Few go beyond the end, and divisions are slow.
    let address = if transfer.address < capacity { transfer.address } else { transfer.address % capacity };
    let bytes = transfer.bytes.clamp(1, capacity);
    let first = bytes.min(capacity - address);
    piece(address, address + first);
    if first < bytes {
        piece(0, bytes - first);
    }
}

/// How long `bytes` take at `bytes_per_s` (not zero), in nanoseconds, rounded up.
fn transfer_ns(bytes: u64, bytes_per_s: u64) -> u64 {
    // 18 GB in nanoseconds fit 64 bits, which are several times faster to divide than 128.
    match bytes.checked_mul(1_000_000_000) {
        Some(scaled) => scaled.div_ceil(bytes_per_s),
        None => {
            (u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_s)).min(u128::from(u64::MAX)) as u64
        }
    }
}
