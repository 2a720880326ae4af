//! What the storage behind a gate charges, for a simulation of it.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;

use crate::device::{Device, Placement, Station, Transfer};
use crate::profile::Coverage;
use crate::request::Op;
use crate::time::Time;

/// What the storage behind a gate charges.
pub trait Pricing: Send + Sync {
    /// A device that has served nothing yet.
    fn device(&self) -> Box<dyn Device>;

    /// Bytes of a file that lie together on it, as [`Placement`] has it.
    fn extent_bytes(&self) -> u64 {
        Placement::EXTENT_BYTES
    }

    /// Of which transfers it has been measured what they take; none if it is known of all, or to be taken for that.
    fn coverage(&self) -> Option<Coverage> {
        None
    }

    /// The rate with `n` transfers in flight, in transfers of 64 KiB a second from all over a device that has not served anything.
    fn rate(&self, n: u32) -> u64 {
        const TRANSFERS: u64 = 256;
        let mut station = Station::new(self.device());
        let mut ends = BinaryHeap::new();
        let mut now = Time::ZERO;
        for index in 0..TRANSFERS {
            if ends.len() as u32 >= n.max(1) {
                now = ends.pop().map_or(now, |Reverse(end)| end);
            }
            // Multiples of an odd number are spread evenly over what a power of two divides.
            let address = index.wrapping_mul(0x9E37_79B9).wrapping_mul(65_536) % (1 << 40);
            let mut visit = station.begin(now);
            visit.serve(Transfer { op: Op::Read, address, bytes: 65_536 });
            ends.push(Reverse(visit.end()));
        }
        let end = ends.into_iter().map(|Reverse(end)| end).max().unwrap_or(now);
        TRANSFERS * 1_000_000_000 / end.as_nanos().max(1)
    }
}

impl<F: Fn() -> Box<dyn Device> + Send + Sync> Pricing for F {
    fn device(&self) -> Box<dyn Device> {
        self()
    }
}
