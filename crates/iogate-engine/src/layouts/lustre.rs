//! Lustre: the extended attribute `lustre.lov` of a file (version 2.10 and later; before, without composites).
//!
//! What it holds (`lustre_user.h`, little-endian), offsets in bytes:
//!
//! | record | fields |
//! |---|---|
//! | plain, v1 (magic 0x0BD10BD0) | pattern 4, stripe size 24, stripe count (16 bit) 28; objects from 32 on |
//! | plain, v3 (0x0BD30BD0; 0x0BD50BD0) | the same, with the name of a pool at 32; objects from 48 on |
//! | object | 24 bytes each, in stripe order; the OST's index at 20 |
//! | composite (0x0BD60BD0) | number of components (16 bit) at 14; components from 32 on |
//! | component | 48 bytes each: id 0, flags 4, start 8, end 16 (64 bit), place 24 and size 28 of its plain record |
//!
//! A target is an OST, by its index. Not known, and so left to the gate's layout, is what has no objects on OSTs:
//! components that are not instantiated yet, data that is on the metadata server (DoM), files that are released to
//! an archive (HSM). Of a mirrored file (FLR) the first mirror that is not stale counts.

use iogate_core::{Extent, TargetId};

use super::LayoutError;
use super::bytes::Record;

/// The attribute's name.
pub(super) const ATTRIBUTE: &str = "lustre.lov";

const WHAT: &str = "the attribute lustre.lov";

const PLAIN_V1: u32 = 0x0BD1_0BD0;
const PLAIN_V3: u32 = 0x0BD3_0BD0;
const PLAIN_SPECIFIC: u32 = 0x0BD5_0BD0;
const COMPOSITE: u32 = 0x0BD6_0BD0;

const PATTERN_STRIPED: u32 = 0x001;
const PATTERN_METADATA_SERVER: u32 = 0x100;
const PATTERN_RELEASED: u32 = 0x8000_0000;

const COMPONENT_STALE: u32 = 0x01;
const COMPONENT_INSTANTIATED: u32 = 0x10;

const OBJECT_BYTES: usize = 24;
const COMPONENT_BYTES: usize = 48;

/// The extents of a file from its attribute, in the order in which they are recorded.
///
/// # Errors
/// If the bytes are not a layout that is known here.
pub fn decode(bytes: &[u8]) -> Result<Vec<Extent>, LayoutError> {
    let record = Record { what: WHAT, bytes };
    if record.u32(0)? != COMPOSITE {
        return Ok(plain(record, 0, u64::MAX)?.into_iter().collect());
    }
    let count = usize::from(record.u16(14)?);
    let components = (0..count).map(|index| component(record, 32 + index * COMPONENT_BYTES));
    let components = components.collect::<Result<Vec<_>, _>>()?;
    // A mirror with one stale component is left alone as a whole.
    let is_stale =
        |mirror| components.iter().any(|each| each.mirror == mirror && each.flags & COMPONENT_STALE != 0);
    let Some(mirror) = components.iter().map(|each| each.mirror).find(|&mirror| !is_stale(mirror)) else {
        return Ok(Vec::new());
    };
    let mut extents = Vec::new();
    for each in components.iter().filter(|each| each.mirror == mirror) {
        if each.flags & COMPONENT_INSTANTIATED != 0 {
            extents.extend(plain(each.record, each.start, each.end)?);
        }
    }
    Ok(extents)
}

struct Component<'a> {
    /// In the upper half of the component's id.
    mirror: u32,
    flags: u32,
    start: u64,
    end: u64,
    record: Record<'a>,
}

fn component(record: Record<'_>, at: usize) -> Result<Component<'_>, LayoutError> {
    let (place, size) = (record.u32(at + 24)? as usize, record.u32(at + 28)? as usize);
    Ok(Component {
        mirror: record.u32(at)? >> 16 & 0x7fff,
        flags: record.u32(at + 4)?,
        start: record.u64(at + 8)?,
        end: record.u64(at + 16)?,
        record: record.part(place, size)?,
    })
}

/// The extent that a plain record is about; `None` if it has no objects on OSTs.
fn plain(record: Record<'_>, start: u64, end: u64) -> Result<Option<Extent>, LayoutError> {
    let objects = match record.u32(0)? {
        PLAIN_V1 => 32,
        PLAIN_V3 | PLAIN_SPECIFIC => 48,
        magic => {
            return Err(record
                .unexpected("the magic number of a plain or composite layout", &format!("{magic:#010x}")));
        }
    };
    let pattern = record.u32(4)?;
    let count = usize::from(record.u16(28)?);
    if count == 0 || pattern & (PATTERN_RELEASED | PATTERN_METADATA_SERVER) != 0 {
        return Ok(None);
    }
    if pattern & PATTERN_STRIPED == 0 {
        return Err(record.unexpected("a striped file's pattern", &format!("{pattern:#x}")));
    }
    let index = |stripe: usize| record.u32(objects + stripe * OBJECT_BYTES + 20).map(TargetId);
    let targets = (0..count).map(index).collect::<Result<Vec<_>, _>>()?;
    Ok(Some(Extent { start, end, stripe_bytes: record.u32(24)?.into(), targets }))
}

#[cfg(test)]
mod tests {
    use iogate_core::FileLayout;

    use super::*;

    /// A plain record as the file system writes it: the objects' ids (unused here) are made up.
    fn plain_record(magic: u32, pattern: u32, stripe_bytes: u32, targets: &[u32]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(magic.to_le_bytes());
        bytes.extend(pattern.to_le_bytes());
        bytes.extend(0x0002_0000_1390_u64.to_le_bytes()); // the file's object id
        bytes.extend(0x0002_0000_0401_u64.to_le_bytes());
        bytes.extend(stripe_bytes.to_le_bytes());
        bytes.extend((targets.len() as u16).to_le_bytes());
        bytes.extend(3u16.to_le_bytes()); // generation of the layout
        if magic != PLAIN_V1 {
            bytes.extend(*b"flash\0\0\0\0\0\0\0\0\0\0\0");
        }
        for (number, target) in targets.iter().enumerate() {
            bytes.extend((0x4000_0000_u64 + number as u64).to_le_bytes()); // the object's id
            bytes.extend(0x0001_0000_0000_u64.to_le_bytes());
            bytes.extend(0u32.to_le_bytes());
            bytes.extend(target.to_le_bytes());
        }
        bytes
    }

    fn composite(components: &[(u32, u32, u64, u64, Vec<u8>)]) -> Vec<u8> {
        let place = 32 + components.len() * COMPONENT_BYTES;
        let size = place + components.iter().map(|each| each.4.len()).sum::<usize>();
        let mut bytes = Vec::new();
        bytes.extend(COMPOSITE.to_le_bytes());
        bytes.extend((size as u32).to_le_bytes());
        bytes.extend(5u32.to_le_bytes());
        bytes.extend(0u16.to_le_bytes());
        bytes.extend((components.len() as u16).to_le_bytes());
        bytes.resize(32, 0);
        let mut at = place;
        for (id, flags, start, end, record) in components {
            bytes.extend(id.to_le_bytes());
            bytes.extend(flags.to_le_bytes());
            bytes.extend(start.to_le_bytes());
            bytes.extend(end.to_le_bytes());
            bytes.extend((at as u32).to_le_bytes());
            bytes.extend((record.len() as u32).to_le_bytes());
            bytes.resize(bytes.len() + 16, 0);
            at += record.len();
        }
        bytes.extend(components.iter().flat_map(|each| each.4.iter()));
        bytes
    }

    fn extent(start: u64, end: u64, stripe_bytes: u64, targets: &[u32]) -> Extent {
        Extent { start, end, stripe_bytes, targets: targets.iter().map(|&target| TargetId(target)).collect() }
    }

    /// A file of two stripes of 1 MiB, byte for byte.
    #[test]
    fn a_plain_layout() {
        let written = "d00bd10b01000000 0104000002000000 9013000000000000 00001000 0200 0000 \
            0a00000000000000 0000000001000000 00000000 03000000 0b00000000000000 0000000001000000 00000000 00000000";
        let digits: Vec<u32> = written.chars().filter_map(|digit| digit.to_digit(16)).collect();
        let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect();
        assert_eq!(decode(&bytes).unwrap(), [extent(0, u64::MAX, 1 << 20, &[3, 0])]);
    }

    #[test]
    fn targets_come_in_any_order_and_more_than_once() {
        let bytes = plain_record(PLAIN_V3, 0x201, 65_536, &[7, 2, 5, 7]);
        assert_eq!(decode(&bytes).unwrap(), [extent(0, u64::MAX, 65_536, &[7, 2, 5, 7])]);
    }

    #[test]
    fn a_progressive_layout_has_an_extent_for_each_component_that_has_objects() {
        let (mib, gib) = (1 << 20, 1 << 30);
        let bytes = composite(&[
            (1, COMPONENT_INSTANTIATED, 0, mib, plain_record(PLAIN_V1, 0x100, mib as u32, &[])),
            (2, COMPONENT_INSTANTIATED, mib, gib, plain_record(PLAIN_V1, 1, mib as u32, &[7, 2, 5])),
            (3, COMPONENT_INSTANTIATED, gib, 4 * gib, plain_record(PLAIN_V3, 1, 4 << 20, &[0, 1, 2, 3])),
            (4, 0, 4 * gib, u64::MAX, plain_record(PLAIN_V3, 1, 4 << 20, &[])),
        ]);
        let extents = decode(&bytes).unwrap();
        let expected = [extent(mib, gib, mib, &[7, 2, 5]), extent(gib, 4 * gib, 4 * mib, &[0, 1, 2, 3])];
        assert_eq!(extents, expected);
        let layout = FileLayout::new(extents).unwrap();
        // Stripe 1 of the file: stripes count from the file's start.
        assert_eq!(layout.target_of(mib), Some(TargetId(2)));
        assert_eq!((layout.target_of(0), layout.target_of(4 * gib)), (None, None));
    }

    #[test]
    fn of_mirrors_the_first_that_is_not_stale_counts() {
        let record = |target| plain_record(PLAIN_V1, 1, 65_536, &[target]);
        let mirrored = |first, second| {
            composite(&[
                (0x1_0001, first, 0, u64::MAX, record(4)),
                (0x2_0002, second, 0, u64::MAX, record(9)),
            ])
        };
        let targets =
            |bytes: &[u8]| decode(bytes).unwrap().iter().map(|each| each.targets[0].0).collect::<Vec<_>>();
        assert_eq!(targets(&mirrored(0x10, 0x10)), [4]);
        assert_eq!(targets(&mirrored(0x11, 0x10)), [9]);
        assert!(targets(&mirrored(0x11, 0x11)).is_empty());
    }

    #[test]
    fn what_has_no_objects_is_not_known() {
        assert_eq!(decode(&plain_record(PLAIN_V1, 1, 65_536, &[])).unwrap(), []);
        assert_eq!(decode(&plain_record(PLAIN_V1, 0x8000_0001, 65_536, &[1])).unwrap(), []);
    }

    #[test]
    fn what_is_no_layout_is_refused_in_words() {
        let refused = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
        assert!(refused(b"").contains("expected 4 bytes at 0, got 0"), "{}", refused(b""));
        assert!(refused(&[0; 64]).contains("magic"), "{}", refused(&[0; 64]));
        let whole = plain_record(PLAIN_V1, 1, 65_536, &[1, 2]);
        assert!(refused(&whole[..whole.len() - 1]).contains("expected 4 bytes at 76"));
        assert!(refused(&plain_record(PLAIN_V1, 0x400, 65_536, &[1])).contains("pattern"));
    }
}
