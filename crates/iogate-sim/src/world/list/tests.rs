//! What goes in which list.

use iogate_core::{AppId, Dispatch, DispatchId, FileId, Op, TargetId};

use super::{ListQueue, ListSpec};

fn dispatch(id: u32, file: u64, op: Op, parts: u32) -> Dispatch {
    let (offset, bytes) = (u64::from(id) * 1_000_000, 4_096 * u64::from(parts));
    let (target, app) = (TargetId(0), AppId(1));
    Dispatch { id: DispatchId(id), file: FileId(file), op, offset, bytes, parts, target, app }
}

fn queue(requests: u32, calls: u32, all: &[Dispatch]) -> ListQueue {
    let mut queue = ListQueue::new(ListSpec { requests, calls });
    all.iter().for_each(|dispatch| queue.add(*dispatch));
    queue
}

fn lists(mut queue: ListQueue) -> Vec<Vec<u32>> {
    std::iter::from_fn(|| queue.next())
        .map(|list| list.iter().map(|dispatch| dispatch.id.0).collect())
        .collect()
}

#[test]
fn a_list_has_one_file_and_operation_adjacent_or_not() {
    let all = [
        dispatch(0, 7, Op::Read, 1),
        dispatch(1, 8, Op::Read, 1),
        dispatch(2, 7, Op::Write, 1),
        dispatch(3, 7, Op::Read, 2),
        dispatch(4, 8, Op::Read, 1),
    ];
    assert_eq!(lists(queue(16, 10, &all)), [vec![0, 3], vec![1, 4], vec![2]]);
    assert_eq!(lists(queue(1, 10, &all)), [vec![0], vec![1], vec![2], vec![3], vec![4]]);
}

#[test]
fn who_does_not_fit_is_not_passed_by_those_behind() {
    let parts = [10, 7, 1, 20, 1];
    let all: Vec<Dispatch> = (0..).zip(parts).map(|(id, parts)| dispatch(id, 7, Op::Read, parts)).collect();
    // A run of twenty goes alone: it is one dispatch.
    assert_eq!(lists(queue(16, 10, &all)), [vec![0], vec![1, 2], vec![3], vec![4]]);
}

#[test]
fn so_many_calls_at_a_time() {
    let all: Vec<Dispatch> = (0..6).map(|id| dispatch(id, u64::from(id), Op::Read, 1)).collect();
    let mut queue = queue(16, 2, &all);
    assert!(queue.next().is_some() && queue.next().is_some() && queue.next().is_none());
    queue.ended();
    assert_eq!(queue.next().map(|list| list[0].id.0), Some(2));
    assert_eq!(queue.sent, (3, 3 * 4_096));
}

/// Whatever comes: each dispatch in exactly one list, those of a file and operation in order, none longer than it may be.
#[test]
fn each_dispatch_is_in_exactly_one_list_and_in_order() {
    let mut random = 12_345_u64;
    let mut next = |most: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % most
    };
    for _ in 0..200 {
        let mut queue = queue(16, 3, &[]);
        let (mut added, mut in_service, mut seen) = (0, 0, Vec::new());
        while seen.len() < 300 {
            if added < 300 && next(2) == 0 {
                let op = if next(2) == 0 { Op::Read } else { Op::Write };
                queue.add(dispatch(added, next(3), op, 1 + next(5) as u32));
                added += 1;
            } else if let Some(list) = queue.next() {
                in_service += 1;
                assert!(in_service <= 3);
                let first = list[0];
                assert!(list.iter().map(|dispatch| dispatch.parts).sum::<u32>() <= 16);
                assert!(list.iter().all(|each| (each.file, each.op) == (first.file, first.op)));
                seen.extend(list);
            } else if in_service > 0 {
                queue.ended();
                in_service -= 1;
            }
        }
        for file in 0..3 {
            for op in [Op::Read, Op::Write] {
                let of = seen.iter().filter(|each| (each.file, each.op) == (FileId(file), op));
                assert!(of.map(|dispatch| dispatch.id).is_sorted());
            }
        }
        seen.sort_by_key(|dispatch| dispatch.id);
        assert!((0..300).eq(seen.iter().map(|dispatch| dispatch.id.0)));
    }
}
