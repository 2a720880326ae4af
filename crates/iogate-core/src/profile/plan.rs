//! What to measure: few sizes, as SeRRa does (Boito et al., SAC 2015), in an order in which each step finds the storage as it needs it.

use alloc::vec::Vec;

use super::IN_FLIGHT;
use crate::request::Op;
use crate::units::{KIB, MIB};

/// In which places a step reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// One after the other.
    Sequential,
    /// So many streams in turn, each of which goes on where it was.
    Interleaved(u64),
    /// Anywhere, at multiples of the size.
    Random,
    /// One after the other until a write cache must be full: what comes first tells its size.
    Fill,
}

/// One thing to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Read or write.
    pub op: Op,
    /// Where.
    pub access: Access,
    /// Bytes of each dispatch.
    pub bytes: u64,
    /// How many are always in flight.
    pub in_flight: u32,
    /// How many there are, if there is time for them.
    pub dispatches: u32,
    /// How many of them are not counted, as they find the storage as the step before left it.
    pub warm_up: u32,
}

const SIZES: [u64; 6] = [4 * MIB, MIB, 256 * KIB, 64 * KIB, 16 * KIB, 4 * KIB];
/// Sizes for X(n), one in each interval.
const PARALLEL: [u64; 2] = [4 * KIB, 256 * KIB];
/// A size at which streams are interleaved, and how many: others between are 1, 7 and 31.
const INTERLEAVED: (u64, [u64; 3]) = (16 * KIB, [2, 8, 32]);

/// All of them, in order. Writes in sequence come right after the write cache was filled, from the largest to the smallest, so that
/// it stays full.
pub fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for op in [Op::Write, Op::Read] {
        let mut add = |access, bytes, in_flight, dispatches: u32| {
            // With many in flight the first ones have not met their like, and a write cache takes some more.
            let warm_up = 2 * in_flight + if op == Op::Write { 96 } else { 24 };
            steps.push(Step { op, access, bytes, in_flight, dispatches: dispatches + warm_up, warm_up });
        };
        if op == Op::Write {
            add(Access::Fill, 4 * MIB, 1, 256);
        }
        for bytes in SIZES {
            add(Access::Sequential, bytes, 1, 240);
        }
        for streams in INTERLEAVED.1 {
            add(Access::Interleaved(streams), INTERLEAVED.0, 1, 240);
        }
        for bytes in SIZES {
            add(Access::Random, bytes, 1, 240);
        }
        for bytes in PARALLEL {
            for in_flight in IN_FLIGHT.into_iter().skip(1) {
                add(Access::Random, bytes, in_flight, 240);
            }
        }
    }
    steps
}
