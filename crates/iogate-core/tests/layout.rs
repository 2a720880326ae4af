//! Layouts of single files: which target, which stripe, what is refused; and that a gate splits by them.

use std::sync::Arc;

use iogate_core::layout::ExtentError;
use iogate_core::layout::TARGETS_MAX;
use iogate_core::{
    AppId, ClientId, Decision, Extent, FileId, FileLayout, Gate, GateConfig, Layout, Op, Outcome, Request,
    RequestId, SchedulerConfig, TargetId, Time,
};
use proptest::collection::vec;
use proptest::prelude::*;

fn extent(start: u64, end: u64, stripe_bytes: u64, targets: &[u32]) -> Extent {
    Extent { start, end, stripe_bytes, targets: targets.iter().map(|&target| TargetId(target)).collect() }
}

/// What a gate that splits makes of a write: offset, bytes and target of each piece, in offset order.
fn split(own: Option<FileLayout>, gate: Layout, offset: u64, bytes: u32) -> Vec<(u64, u64, u32)> {
    let mut scheduler = SchedulerConfig::by_name("twins").unwrap();
    scheduler.set("split", "true").unwrap();
    let mut gate = Gate::new(&GateConfig { scheduler, queue_max: 10_000, depth: 1, layout: gate }).unwrap();
    gate.set_layout(FileId(1), own.map(Arc::new));
    let (id, file, op) = (RequestId(0), FileId(1), Op::Write);
    let (app, client) = (AppId(0), ClientId(0));
    let request = Request { id, file, op, offset, bytes, app, client, target: None, issued: None };
    gate.submit(Time::ZERO, &request).unwrap();
    gate.drain(Time::ZERO);
    let mut pieces = Vec::new();
    while let Decision::Dispatch(dispatch) = gate.next(Time::ZERO) {
        pieces.push((dispatch.offset, dispatch.bytes, dispatch.target.0));
        gate.complete(Time::ZERO, dispatch.id, Outcome::Done { bytes: dispatch.bytes });
    }
    assert!(gate.is_empty());
    pieces.sort_unstable();
    pieces
}

#[test]
fn a_composite_layout_has_its_own_stripes_and_targets_in_each_extent() {
    let layout = FileLayout::new(vec![
        extent(0, 4, 4, &[3]),
        extent(4, 16, 2, &[7, 2, 5]),
        extent(20, u64::MAX, 8, &[1, 0]),
    ])
    .unwrap();
    let targets: Vec<_> = (0..34).map(|offset| layout.target_of(offset).map(|target| target.0)).collect();
    let expected = [
        (4, Some(3)), // one target: one stripe
        (2, Some(5)), // the file's stripe 2 of 2 bytes, the third of [7, 2, 5]
        (2, Some(7)),
        (2, Some(2)),
        (2, Some(5)),
        (2, Some(7)),
        (2, Some(2)),
        (4, None),
        (4, Some(1)), // the rest of the file's stripe 2 of 8 bytes
        (8, Some(0)),
        (2, Some(1)),
    ];
    let expected: Vec<_> = expected.iter().flat_map(|&(count, target)| vec![target; count]).collect();
    assert_eq!(targets, expected);
    assert_eq!(layout.targets(), 8);

    let gate = Layout { first_target: 4, stripe_bytes: 100, targets: 5 };
    let pieces = split(Some(layout), gate, 1, 24);
    let expected = [
        (1, 3, 3),
        (4, 2, 5),
        (6, 2, 7),
        (8, 2, 2),
        (10, 2, 5),
        (12, 2, 7),
        (14, 2, 2),
        (16, 4, 4),
        (20, 4, 1),
        (24, 1, 0),
    ];
    assert_eq!(pieces, expected);
}

#[test]
fn what_is_no_layout_is_refused() {
    let refused = |extents: Vec<Extent>| FileLayout::new(extents).unwrap_err();
    let overlap = vec![extent(0, 10, 4, &[0]), extent(9, 20, 4, &[0])];
    assert_eq!(refused(overlap), ExtentError::Order { index: 1, after: 10, start: 9, end: 20 });
    assert!(matches!(refused(vec![extent(5, 5, 4, &[0])]), ExtentError::Order { .. }));
    assert!(matches!(refused(vec![extent(0, 5, 0, &[0])]), ExtentError::Empty { stripe_bytes: 0, .. }));
    assert!(matches!(refused(vec![extent(0, 5, 4, &[])]), ExtentError::Empty { targets: 0, .. }));
    let target = refused(vec![extent(0, 5, 4, &[0, TARGETS_MAX])]);
    assert_eq!(target, ExtentError::Target { index: 0, target: TARGETS_MAX, max: TARGETS_MAX });
    for (stripe_bytes, targets) in [(0, 1), (1, 0), (1, u32::MAX)] {
        assert!(FileLayout::try_from(Layout { first_target: 0, stripe_bytes, targets }).is_err());
    }
}

prop_compose! {
    fn file_layout()(list in vec((0u64..9, 1u64..40, 1u64..12, vec(0u32..6, 1..5)), 0..6)) -> FileLayout {
        let mut end = 0;
        let place = |(gap, bytes, stripe_bytes, targets): (u64, u64, u64, Vec<u32>)| {
            let start = end + gap;
            end = start + bytes;
            extent(start, end, stripe_bytes, &targets)
        };
        FileLayout::new(list.into_iter().map(place).collect()).unwrap()
    }
}

prop_compose! {
    fn round_robin()(first_target in 0u32..9, stripe_bytes in 1u64..20, targets in 1u32..7) -> Layout {
        Layout { first_target, stripe_bytes, targets }
    }
}

proptest! {
    #[test]
    fn round_robin_is_the_same_in_both_forms(layout in round_robin(), offset in 0u64..1000) {
        let own = FileLayout::try_from(layout).unwrap();
        prop_assert_eq!(own.target_of(offset), Some(layout.target_of(offset)));
    }

    /// Byte by byte: the pieces cover the request in order, each lies on one target, and they are as few as the
    /// stripes are.
    #[test]
    fn a_gate_splits_where_stripes_end(
        own in file_layout(), gate in round_robin(), offset in 0u64..200, bytes in 1u32..150,
    ) {
        // Extent (or gap, by its start), stripe and target of a byte.
        let naive = |at: u64| {
            let found = own.extents().iter().find(|extent| extent.start <= at && at < extent.end);
            let Some(extent) = found else {
                let before = own.extents().iter().filter(|extent| extent.end <= at).count();
                return (true, before, at / gate.stripe_bytes, gate.target_of(at).0);
            };
            let count = extent.targets.len() as u64;
            let stripe = at / extent.stripe_bytes;
            let target = extent.targets[(stripe % count) as usize].0;
            (false, extent.start as usize, if count == 1 { 0 } else { stripe }, target)
        };
        let mut expected: Vec<(u64, u64, u32)> = Vec::new();
        for at in offset..offset + u64::from(bytes) {
            match expected.last_mut() {
                Some((_, length, _)) if naive(at) == naive(at - 1) => *length += 1,
                _ => expected.push((at, 1, naive(at).3)),
            }
        }
        prop_assert_eq!(split(Some(own), gate, offset, bytes), expected);
    }
}
