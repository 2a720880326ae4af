//! Whether the load is still of the same kind: what it reads, how much at once, and whether in sequence.

use crate::request::Op;

/// Some arrivals in numbers that do not depend on how fast they came.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LoadKind {
    pub(super) requests: u32,
    reads: u32,
    contiguous: u32,
    /// Sum of the logarithms (base 2) of the sizes.
    log_bytes: u32,
}

impl LoadKind {
    /// Arrivals that are looked at together.
    pub(super) const BLOCK: u32 = 128;

    pub(super) fn add(&mut self, op: Op, bytes: u32, contiguous: bool) {
        self.requests += 1;
        self.reads += u32::from(op == Op::Read);
        self.contiguous += u32::from(contiguous);
        self.log_bytes += bytes.max(1).ilog2();
    }

    /// Whether `block` is of another kind: half of all requests went over to the other operation, into or out of sequence, or
    /// sizes are more than four times as large or small.
    pub(super) fn differs(&self, block: &LoadKind) -> bool {
        let share = |part: u32, of: &LoadKind| part * 100 / of.requests.max(1);
        let apart = |a: u32, b: u32, most: u32| share(a, self).abs_diff(share(b, block)) > most;
        apart(self.reads, block.reads, 50)
            || apart(self.contiguous, block.contiguous, 50)
            || apart(self.log_bytes, block.log_bytes, 200)
    }

    /// Lets a block count in; the older ones count ever less.
    pub(super) fn mix(&mut self, block: &LoadKind) {
        if self.requests >= 4 * LoadKind::BLOCK {
            for count in [&mut self.requests, &mut self.reads, &mut self.contiguous, &mut self.log_bytes] {
                *count -= *count / 4;
            }
        }
        self.requests += block.requests;
        self.reads += block.reads;
        self.contiguous += block.contiguous;
        self.log_bytes += block.log_bytes;
    }
}
