//! Which operations come, and what a jump costs a policy by those.

use crate::request::Op;
use crate::sched::Prices;
use crate::time::Span;

/// Requests of the other operation after which one that has not come is forgotten.
const COMES: u8 = 64;

/// Which operations come. What a device charges for one that does not may never be measured: it says nothing.
#[derive(Default)]
pub(super) struct Comes {
    /// By operation, how many of the other one may come before it is forgotten.
    left: [u8; 2],
}

impl Comes {
    /// A request comes. True if that changes which operations do.
    pub(super) fn count(&mut self, op: Op) -> bool {
        let [this, other] = match op {
            Op::Read => [0, 1],
            Op::Write => [1, 0],
        };
        let (is_new, is_last) = (self.left[this] == 0, self.left[other] == 1);
        self.left[this] = COMES;
        self.left[other] = self.left[other].saturating_sub(1);
        is_new || is_last
    }

    /// What going from one stream to another costs, at most; before anything has come, of any operation.
    pub(super) fn jump(&self, prices: &Prices) -> Span {
        let comes = |op: &Op| self.left == [0; 2] || self.left[*op as usize] > 0;
        let jumps = [Op::Read, Op::Write].into_iter().filter(comes).map(|op| prices.saving(op, 0));
        jumps.max().unwrap_or_default()
    }
}
