//! CephFS: the virtual attribute `ceph.file.layout`, and the kernel client's ioctl `CEPH_IOC_GET_DATALOC`.
//!
//! The attribute says how a file is cut into objects: stripes of `stripe_unit` bytes go round `stripe_count` objects
//! until each has `object_size` bytes; then come the next objects. Which server (OSD) has an object follows from the
//! cluster's map by CRUSH. The kernel client has that map, and the ioctl gives the OSD of an object: the one
//! that serves its reads and takes its writes first (copies are on others). It is asked for each object that
//! the file has, and for some to come. A client in user space (ceph-fuse) does not say: the layout is then not known.
//!
//! A target is an OSD, by its number. The map can change while a file is open; its layout is then as it was.
//!
//! The ioctl's argument (0x97, 3; `fs/ceph/ioctl.h`) has 248 bytes: in, offset in the file 0 (64 bit); out,
//! OSD 112 (64 bit, signed, negative if there is none).

use std::os::fd::BorrowedFd;

use iogate_core::{Extent, TargetId};

use super::LayoutError;
use super::ask::ioctl;
use super::bytes::Record;
use super::pieces::pieces;

/// The attribute's name.
pub(super) const ATTRIBUTE: &str = "ceph.file.layout";

const WHAT: &str = "the attribute ceph.file.layout";
const LOCATION: &str = "the location of an object in CephFS";
const LOCATION_BYTES: usize = 248;
/// `_IOWR(0x97, 3, struct ceph_ioctl_dataloc)`.
const GET_DATALOC: u32 = 3 << 30 | (LOCATION_BYTES as u32) << 16 | 0x97 << 8 | 3;

/// Objects beyond the end of the file that are asked for, so that a growing file is known for a while.
const OBJECTS_AHEAD: u64 = 16;
/// Most objects that are asked for.
const OBJECTS_MAX: u64 = 4096;

/// How a file is cut into objects. All sizes in bytes; none is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// A stripe.
    pub stripe_unit: u64,
    /// How many objects stripes go round.
    pub stripe_count: u64,
    /// An object; a multiple of the stripe.
    pub object_size: u64,
}

/// The cut of a file from its attribute:
/// `stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cephfs_data`, with or without more words.
///
/// # Errors
/// If a part lacks, or does not go with the others.
pub fn decode(text: &[u8]) -> Result<Cut, LayoutError> {
    let record = Record { what: WHAT, bytes: text };
    let shown = String::from_utf8_lossy(text);
    let value = |name: &str| {
        let value = shown
            .split_ascii_whitespace()
            .filter_map(|word| word.split_once('='))
            .find(|word| word.0 == name);
        let value = value
            .and_then(|word| word.1.parse().ok())
            .filter(|value| (1..=u64::from(u32::MAX)).contains(value));
        value.ok_or_else(|| {
            record.unexpected(&format!("{name}=NUMBER (32 bit, not 0)"), &format!("'{shown}'"))
        })
    };
    let cut = Cut {
        stripe_unit: value("stripe_unit")?,
        stripe_count: value("stripe_count")?,
        object_size: value("object_size")?,
    };
    if !cut.object_size.is_multiple_of(cut.stripe_unit) {
        return Err(record.unexpected("an object of whole stripes", &format!("'{shown}'")));
    }
    Ok(cut)
}

/// The OSD of an object, from the ioctl's answer; `None` if it has none now.
///
/// # Errors
/// If the answer is too short.
pub fn decode_location(bytes: &[u8]) -> Result<Option<u32>, LayoutError> {
    let osd = Record { what: LOCATION, bytes }.u64(112)?;
    Ok(u32::try_from(osd.cast_signed()).ok())
}

impl Cut {
    /// How many objects the first `bytes` bytes touch, and those of a round begun are all counted.
    fn objects(&self, bytes: u64) -> u64 {
        let round = self.stripe_count.saturating_mul(self.object_size);
        bytes.div_ceil(round).saturating_mul(self.stripe_count)
    }

    /// The offset of an object's first byte in the file.
    fn start_of(&self, object: u64) -> u64 {
        let (round, place) = (object / self.stripe_count, object % self.stripe_count);
        round * self.stripe_count * self.object_size + place * self.stripe_unit
    }

    /// The extents of a file of which these are the OSDs of the first objects (as many as fill whole rounds).
    fn extents(&self, osds: &[Option<u32>]) -> Vec<Extent> {
        if self.stripe_count == 1 {
            return pieces(self.object_size, osds);
        }
        let mut extents = Vec::new();
        for (round, osds) in osds.chunks_exact(self.stripe_count as usize).enumerate() {
            // A round of which an OSD is missing is left out.
            if let Some(targets) = osds.iter().map(|osd| osd.map(TargetId)).collect::<Option<Vec<_>>>() {
                let bytes = self.stripe_count * self.object_size;
                let start = round as u64 * bytes;
                extents.push(Extent { start, end: start + bytes, stripe_bytes: self.stripe_unit, targets });
            }
        }
        extents
    }
}

/// Asks for the layout of a file of `size` bytes with this attribute.
pub(super) fn extents(fd: BorrowedFd<'_>, attribute: &[u8], size: u64) -> Result<Vec<Extent>, LayoutError> {
    let cut = decode(attribute)?;
    let objects = cut.objects(size).saturating_add(OBJECTS_AHEAD).next_multiple_of(cut.stripe_count);
    let objects = objects.min(OBJECTS_MAX - OBJECTS_MAX % cut.stripe_count);
    let osd = |object| {
        let mut answer = [0; LOCATION_BYTES];
        answer[..8].copy_from_slice(&cut.start_of(object).to_le_bytes());
        ioctl(fd, GET_DATALOC, &mut answer, LOCATION)?;
        decode_location(&answer)
    };
    let osds = (0..objects).map(osd).collect::<Result<Vec<_>, _>>()?;
    Ok(cut.extents(&osds))
}

#[cfg(test)]
mod tests {
    use iogate_core::FileLayout;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_attribute_is_taken_apart() {
        let text = b"stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=cephfs_data";
        let cut = decode(text).unwrap();
        assert_eq!(cut, Cut { stripe_unit: 4 << 20, stripe_count: 1, object_size: 4 << 20 });
        let text = b"stripe_unit=65536 stripe_count=4 object_size=1048576 pool=fast pool_namespace=a b";
        assert_eq!(decode(text).unwrap().stripe_count, 4);
    }

    #[test]
    fn what_is_no_attribute_is_refused() {
        for (text, said) in [
            ("", "stripe_unit=NUMBER"),
            ("stripe_unit=4096 stripe_count=0 object_size=4096", "stripe_count=NUMBER"),
            ("stripe_unit=4096 stripe_count=1 object_size=99999999999", "object_size=NUMBER"),
            ("stripe_unit=4096 stripe_count=1 object_size=5000", "whole stripes"),
        ] {
            let error = decode(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn the_location_is_taken_apart() {
        assert_eq!(GET_DATALOC, 0xc0f8_9703);
        let mut answer = [0xff; LOCATION_BYTES];
        assert_eq!(decode_location(&answer).unwrap(), None);
        answer[112..120].copy_from_slice(&11u64.to_le_bytes());
        assert_eq!(decode_location(&answer).unwrap(), Some(11));
        assert!(decode_location(&answer[..119]).is_err());
    }

    proptest! {
        /// Against the placement that Ceph documents, byte by byte.
        #[test]
        fn stripes_go_round_the_objects_of_a_round(
            stripe_unit in 1u64..5, stripe_count in 1u64..4, stripes_each in 1u64..4,
            osds in proptest::collection::vec(proptest::option::weighted(0.9, 0u32..20), 12),
        ) {
            let cut = Cut { stripe_unit, stripe_count, object_size: stripe_unit * stripes_each };
            let layout = FileLayout::new(cut.extents(&osds)).unwrap();
            for offset in 0..osds.len() as u64 * cut.object_size {
                let (stripe, place) = (offset / stripe_unit / stripe_count, offset / stripe_unit % stripe_count);
                let object = stripe / stripes_each * stripe_count + place;
                let round = (object - place) as usize;
                let known = osds[round..round + stripe_count as usize].iter().all(Option::is_some);
                let expected = osds[object as usize].filter(|_| known).map(TargetId);
                prop_assert_eq!(layout.target_of(offset), expected);
                prop_assert!(cut.start_of(object) <= offset);
            }
            prop_assert_eq!(layout.target_of(osds.len() as u64 * cut.object_size), None);
            for object in 0..12 {
                let start = cut.start_of(object);
                prop_assert_eq!(start / stripe_unit % stripe_count, object % stripe_count);
                prop_assert!(cut.objects(start + 1) > object && cut.objects(start) <= object + stripe_count);
            }
        }
    }
}
