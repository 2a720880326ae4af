//! BeeGFS: two ioctls of its client (`beegfs_client.h`, 2015.03 and later), little-endian, offsets in bytes:
//!
//! | ioctl | argument |
//! |---|---|
//! | `GET_STRIPEINFO` ('f', 25; 12 bytes) | out: pattern 0 (32 bit), chunk size 4 (32 bit), number of targets 8 (16 bit) |
//! | `GET_STRIPETARGET` ('f', 26; 262 bytes) | in: place in the pattern 0; out: target's number 2, node's number 4 (16 bit each), the node's name from 6 on |
//!
//! A target is a storage target (of a mirrored file, what the client names in its stead). Chunks go round the
//! pattern's targets in their order.

use std::os::fd::BorrowedFd;

use iogate_core::{Extent, TargetId};

use super::LayoutError;
use super::ask::ioctl;
use super::bytes::Record;

const INFO: &str = "the stripe pattern of BeeGFS";
const INFO_BYTES: usize = 12;
const TARGET: &str = "the stripe target of BeeGFS";
const TARGET_BYTES: usize = 262;

/// `_IOR('f', number, bytes)`.
const fn request(number: u32, bytes: usize) -> u32 {
    2 << 30 | (bytes as u32) << 16 | (b'f' as u32) << 8 | number
}

/// A file's pattern, and how many targets it goes round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeInfo {
    /// Bytes of a chunk.
    pub chunk_bytes: u32,
    /// Number of targets.
    pub targets: u16,
}

/// The answer to `GET_STRIPEINFO`.
///
/// # Errors
/// If it is too short, or not a pattern that goes round its targets.
pub fn decode_info(bytes: &[u8]) -> Result<StripeInfo, LayoutError> {
    let record = Record { what: INFO, bytes };
    match record.u32(0)? {
        // RAID0, RAID10, mirrored by buddy groups.
        1..=3 => Ok(StripeInfo { chunk_bytes: record.u32(4)?, targets: record.u16(8)? }),
        pattern => Err(record.unexpected("a pattern from 1 to 3", &pattern.to_string())),
    }
}

/// The number of a target, from the answer to `GET_STRIPETARGET`.
///
/// # Errors
/// If it is too short.
pub fn decode_target(bytes: &[u8]) -> Result<u16, LayoutError> {
    Record { what: TARGET, bytes }.u16(2)
}

/// Asks for a file's layout; `number` makes a target of the file system's number for one.
pub(super) fn extents(
    fd: BorrowedFd<'_>,
    number: impl Fn(u16) -> TargetId,
) -> Result<Vec<Extent>, LayoutError> {
    let mut info = [0; INFO_BYTES];
    ioctl(fd, request(25, INFO_BYTES), &mut info, INFO)?;
    let StripeInfo { chunk_bytes, targets } = decode_info(&info)?;
    let target = |index: u16| {
        let mut answer = [0; TARGET_BYTES];
        answer[..2].copy_from_slice(&index.to_le_bytes());
        ioctl(fd, request(26, TARGET_BYTES), &mut answer, TARGET)?;
        decode_target(&answer).map(&number)
    };
    let targets = (0..targets).map(target).collect::<Result<Vec<_>, _>>()?;
    Ok(vec![Extent { start: 0, end: u64::MAX, stripe_bytes: chunk_bytes.into(), targets }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_ioctls() {
        // As the C compiler makes them of the published definitions.
        assert_eq!(request(25, INFO_BYTES), 0x800c_6619);
        assert_eq!(request(26, TARGET_BYTES), 0x8106_661a);
    }

    #[test]
    fn answers_are_taken_apart() {
        let info = [1, 0, 0, 0, 0, 0, 8, 0, 4, 0, 0xff, 0xff];
        assert_eq!(decode_info(&info).unwrap(), StripeInfo { chunk_bytes: 512 << 10, targets: 4 });
        let mut target = [0; TARGET_BYTES];
        target[..6].copy_from_slice(&[2, 0, 0xf6, 0x01, 5, 0]);
        target[6..12].copy_from_slice(b"node05");
        assert_eq!(decode_target(&target).unwrap(), 502);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let error = decode_info(&[0; INFO_BYTES]).unwrap_err().to_string();
        assert!(error.contains("pattern from 1 to 3, got 0"), "{error}");
        assert!(decode_info(&[1, 0, 0, 0]).is_err());
        assert!(decode_target(&[0; 3]).is_err());
    }
}
