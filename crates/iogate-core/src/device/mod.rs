//! Models of storage devices: how long a device takes to serve a transfer, given what it served before.

use crate::request::Op;
use crate::time::{Span, Time};

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

/// A device model. It serves one transfer at a time; its state (head position, caches) is what it served before.
pub trait Device: Send {
    /// How long the device takes for `transfer` if it begins at `now`, and the new state. `now` never
    /// decreases and is not before the end of the previous transfer.
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span;

    /// Capacity in bytes; addresses wrap around it.
    fn capacity(&self) -> u64;

    /// Times that the device had to reposition (a seek, for a disk); 0 for devices without a notion of it.
    fn repositions(&self) -> u64;
}
