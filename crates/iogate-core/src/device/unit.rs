//! A device that takes the same time for every transfer.
//!
//! It models nothing: it is for examples that are worked out by hand, and for measuring what is around the device.

use super::{Device, Transfer};
use crate::time::{Span, Time};

/// Serves every transfer in the same time.
#[derive(Clone, Debug)]
pub struct Unit {
    span: Span,
}

impl Unit {
    /// A device that takes `span` for every transfer.
    pub const fn new(span: Span) -> Unit {
        Unit { span }
    }
}

impl Device for Unit {
    fn serve(&mut self, _now: Time, _transfer: Transfer) -> Span {
        self.span
    }

    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }

    /// All addresses.
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn repositions(&self) -> u64 {
        0
    }
}
