//! A file in pieces of one size, each of which lies on a target of its own.

use iogate_core::{Extent, TargetId};

/// The extents of a file of which these are the targets of the first pieces, `None` where one is not known.
pub(super) fn pieces(piece_bytes: u64, targets: &[Option<u32>]) -> Vec<Extent> {
    let mut extents = Vec::new();
    let mut first = 0;
    for run in targets.chunk_by(|one, next| one.is_some() == next.is_some()) {
        let [start, end] = [first, first + run.len()].map(|piece| (piece as u64).saturating_mul(piece_bytes));
        if let Some(mut targets) = run.iter().map(|target| target.map(TargetId)).collect::<Option<Vec<_>>>() {
            // Stripes are counted from the file's start: piece k is at place k mod the run's length.
            targets.rotate_right(first % run.len());
            extents.push(Extent { start, end, stripe_bytes: piece_bytes, targets });
        }
        first += run.len();
    }
    extents
}

#[cfg(test)]
mod tests {
    use iogate_core::FileLayout;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_piece_is_where_it_was_said_to_be(
            piece_bytes in 1u64..4,
            targets in proptest::collection::vec(proptest::option::of(0u32..9), 0..20),
        ) {
            let layout = FileLayout::new(pieces(piece_bytes, &targets)).unwrap();
            for offset in 0..(targets.len() as u64 + 2) * piece_bytes {
                let expected = targets.get((offset / piece_bytes) as usize).copied().flatten();
                prop_assert_eq!(layout.target_of(offset), expected.map(TargetId));
            }
        }
    }
}
