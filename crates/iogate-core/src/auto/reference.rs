//! What requests cost by themselves, wherever on the storage they are: what work is counted in.

use super::pricing::Pricing;
use super::window::AppPart;
use crate::device::{Station, Transfer};
use crate::request::Op;
use crate::time::Time;

/// Transfers of which the mean is what a request costs, and their two sizes.
const TRANSFERS: u64 = 32;
const SIZES: [u64; 2] = [4 << 10, 1 << 20];

/// What requests cost anywhere on the storage, in ns: of both sizes, for reads and writes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference([[u64; 2]; 2]);

impl Reference {
    /// By what storage that has served nothing charges.
    pub(super) fn of(pricing: &dyn Pricing) -> Reference {
        // Multiples of an odd number are spread evenly over what a power of two divides.
        let far = |index: u64, _| index.wrapping_mul(0x9E37_79B9).wrapping_mul(1 << 20) % (1 << 40);
        Reference([Op::Read, Op::Write].map(|op| SIZES.map(|bytes| mean(pricing, op, bytes, far))))
    }

    /// The same if each went on where the one before it ended.
    pub(super) fn in_sequence(pricing: &dyn Pricing) -> Reference {
        let next = |index: u64, bytes: u64| index * bytes;
        Reference([Op::Read, Op::Write].map(|op| SIZES.map(|bytes| mean(pricing, op, bytes, next))))
    }

    /// What so many requests cost, of so many bytes together.
    pub(super) fn cost(&self, op: Op, requests: u64, bytes: u64) -> u64 {
        let [small, large] = self.0[op as usize].map(i128::from);
        let [least, most] = SIZES.map(i128::from);
        let beyond = i128::from(bytes) - i128::from(requests) * least;
        let cost = i128::from(requests) * small + beyond * (large - small) / (most - least);
        cost.clamp(0, i128::from(u64::MAX / 16)) as u64
    }

    /// What the completed requests of an application cost.
    pub(super) fn work(&self, part: &AppPart) -> u64 {
        let cost = |op: Op, requests: u32| self.cost(op, requests.into(), part.bytes[op as usize]);
        cost(Op::Read, part.reads) + cost(Op::Write, part.completed - part.reads)
    }
}

/// The mean of transfers one after another, at these addresses, on a device that has served nothing.
fn mean(pricing: &dyn Pricing, op: Op, bytes: u64, address: impl Fn(u64, u64) -> u64) -> u64 {
    let mut station = Station::new(pricing.device());
    let mut now = Time::ZERO;
    for index in 0..TRANSFERS {
        let mut visit = station.begin(now);
        visit.serve(Transfer { op, address: address(index, bytes), bytes });
        now = visit.end();
    }
    (now.as_nanos() / TRANSFERS).max(1)
}
