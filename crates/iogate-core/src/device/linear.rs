//! A device that takes a fixed time for a jump, and moves bytes at a fixed rate.
//!
//! **Charged:** bytes over the rate; and the time of a jump, where a transfer does not go on at the address at which the one before
//! it ended.
//!
//! **Left out:** how far a jump goes, caches, operations. It is what formulas are about, and what is left if only two rates of a
//! storage are known: alone, and with others in between.

use super::{Device, Transfer, transfer_ns};
use crate::time::{Span, Time};

/// Serves one transfer after the other.
#[derive(Clone, Debug)]
pub struct Linear {
    jump: Span,
    bytes_per_s: u64,
    /// Where the last transfer ended.
    end: Option<u64>,
    jumps: u64,
}

impl Linear {
    /// A device that moves `bytes_per_s`, at least one, and takes `jump` for each jump. The first transfer jumps.
    pub fn new(jump: Span, bytes_per_s: u64) -> Linear {
        Linear { jump, bytes_per_s: bytes_per_s.max(1), end: None, jumps: 0 }
    }
}

impl Device for Linear {
    fn serve(&mut self, _now: Time, transfer: Transfer) -> Span {
        let moved = Span::from_nanos(transfer_ns(transfer.bytes, self.bytes_per_s));
        let goes_on = self.end == Some(transfer.address);
        self.end = Some(transfer.address.wrapping_add(transfer.bytes));
        if goes_on {
            return moved;
        }
        self.jumps += 1;
        self.jump + moved
    }

    fn flush(&mut self, _now: Time) -> Span {
        Span::ZERO
    }

    /// All addresses.
    fn capacity(&self) -> u64 {
        u64::MAX
    }

    fn repositions(&self) -> u64 {
        self.jumps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    #[test]
    fn a_jump_costs_its_time_and_going_on_does_not() {
        let mut device = Linear::new(Span::from_millis(10), 1_000_000);
        let mut took =
            |op, address| device.serve(Time::ZERO, Transfer { op, address, bytes: 1_000 }).as_nanos() / 1_000;
        assert_eq!(took(Op::Write, 0), 11_000);
        assert_eq!(took(Op::Write, 1_000), 1_000);
        assert_eq!(took(Op::Read, 2_000), 1_000, "whichever the operation");
        assert_eq!(took(Op::Write, 2_000), 11_000, "back to where it was");
        assert_eq!(device.repositions(), 2);
    }
}
