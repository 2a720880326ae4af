//! A device of which fewer slots are used than it has, as by a driver without command queueing.

use alloc::boxed::Box;

use super::{Device, Queueing, Transfer};
use crate::time::{Span, Time};

/// A device with a bound on the transfers in service at once.
pub struct Narrow {
    device: Box<dyn Device>,
    slots: u32,
}

impl Narrow {
    /// `device` with at most `slots` transfers at once; no more than it has, and at least one.
    pub fn new(device: Box<dyn Device>, slots: u32) -> Narrow {
        let slots = slots.clamp(1, device.slots().max(1));
        Narrow { device, slots }
    }
}

impl Device for Narrow {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        self.device.serve(now, transfer)
    }

    fn flush(&mut self, now: Time) -> Span {
        self.device.flush(now)
    }

    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn repositions(&self) -> u64 {
        self.device.repositions()
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    fn hand_over(&self) -> Span {
        self.device.hand_over()
    }

    fn queueing(&mut self) -> Option<&mut dyn Queueing> {
        self.device.queueing()
    }
}
