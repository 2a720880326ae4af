//! How much faster a device is when it is accessed in sequence: what tells algorithms which device they are on.

use super::{Device, DeviceSpecError, Transfer, parse};
use crate::request::Op;
use crate::time::{Span, Time};

/// Size of the file that [`sequential_to_random_ratio`] accesses, at the start of the device.
pub const RATIO_FILE_BYTES: u64 = 4 << 30;
/// Most requests of one measurement; more do not change the ratio.
const REQUESTS_MAX: u64 = 16_384;

/// Throughput of sequential accesses over throughput of random accesses, both of `request_bytes` (at least 1)
/// over a file of [`RATIO_FILE_BYTES`], on the device that `spec` names (see [`parse`]).
///
/// The method is that of SeRRa (Boito et al., Towards fast profiling of storage devices regarding access
/// sequentiality, SAC 2015), without the file system: each of the two accesses begins on a fresh device and
/// issues the same number of requests one after the other, the random one at multiples of the request's size
/// drawn with `seed`; writes count as done when they are on the medium.
pub fn sequential_to_random_ratio(
    spec: &str,
    op: Op,
    request_bytes: u64,
    seed: u64,
) -> Result<f64, DeviceSpecError> {
    let bytes = request_bytes.clamp(1, RATIO_FILE_BYTES);
    let slots = RATIO_FILE_BYTES / bytes;
    let requests = slots.min(REQUESTS_MAX);
    let mut random = SplitMix(seed);
    let sequential = run(&mut *parse(spec)?, op, bytes, (0..requests).map(|slot| slot * bytes));
    let random = run(&mut *parse(spec)?, op, bytes, (0..requests).map(|_| random.next() % slots * bytes));
    Ok(if sequential == Span::ZERO { 1.0 } else { random.as_secs_f64() / sequential.as_secs_f64() })
}

fn run(device: &mut dyn Device, op: Op, bytes: u64, addresses: impl Iterator<Item = u64>) -> Span {
    let mut now = Time::ZERO;
    for address in addresses {
        now = now + device.serve(now, Transfer { op, address, bytes });
    }
    now = now + device.flush(now);
    now.since(Time::ZERO)
}

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
