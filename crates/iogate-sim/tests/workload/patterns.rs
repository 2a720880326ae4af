//! Which bytes the patterns access, against naive enumeration.

use std::collections::BTreeMap;
use std::sync::Arc;

use iogate_core::{AppId, ClientId, FileId, Op, Span, Time};
use iogate_sim::Row;
use iogate_sim::scenario::{App, Barrier, Pattern, Sharing};
use iogate_sim::workload::{Call, Step, file_end, file_id, files_needed, trace_file_id};
use proptest::prelude::*;

use super::interpreter::{app, run};

/// Regular patterns of one shared file, small enough to enumerate, which leave no holes.
pub(crate) fn covering() -> impl Strategy<Value = (u32, Pattern)> {
    let sharing = Sharing::Shared;
    prop_oneof![
        (1..9u32, 0..200u64, 1..50u32)
            .prop_map(move |(p, bytes, request)| (p, Pattern::Contiguous { sharing, bytes, request })),
        (1..9u32, 0..200u64, 1..50u32)
            .prop_map(|(p, bytes, request)| (p, Pattern::Strided { bytes, request })),
        (1..9u32, 0..200u64, 1..20u32, 1..6u32)
            .prop_map(|(p, bytes, piece, pieces)| (p, Pattern::Noncontiguous { bytes, piece, pieces })),
        (1..4u32, 1..4u32, 1..6u32, 1..6u32, 1..5u32).prop_map(|(columns, rows, width, height, element)| {
            (columns * rows, Pattern::Tile { columns, width, height, element })
        }),
    ]
}

pub(crate) fn barrier() -> impl Strategy<Value = Barrier> {
    prop_oneof![Just(Barrier::None), Just(Barrier::Phase), Just(Barrier::Call)]
}

/// The process that each byte of an iteration belongs to, piece by piece as the scenario's documentation says.
fn owners(processes: u32, pattern: &Pattern) -> Vec<u32> {
    let mut owners = Vec::new();
    let mut by_turns = |bytes: u64, piece: u64| {
        let mut left = bytes;
        while left > 0 {
            let piece = piece.min(left);
            for rank in 0..processes {
                owners.extend((0..piece).map(|_| rank));
            }
            left -= piece;
        }
    };
    match *pattern {
        Pattern::Contiguous { bytes, .. } => by_turns(bytes, bytes),
        Pattern::Strided { bytes, request } => by_turns(bytes, request.into()),
        Pattern::Noncontiguous { bytes, piece, .. } => by_turns(bytes, piece.into()),
        Pattern::Tile { columns, width, height, element } => {
            for y in 0..processes / columns * height {
                for x in 0..columns * width {
                    let rank = y / height * columns + x / width;
                    owners.extend((0..element).map(|_| rank));
                }
            }
        }
        _ => unreachable!("only patterns that leave no holes"),
    }
    owners
}

/// Which bytes of the shared file a process accesses.
fn bytes_of(calls: impl Iterator<Item = Call>) -> Vec<u64> {
    let ranges = calls.flat_map(|call| {
        let range = move |i: u32| call.offset + u64::from(i) * call.stride;
        (0..call.count).flat_map(move |i| range(i)..range(i) + u64::from(call.bytes))
    });
    ranges.collect()
}

proptest! {
    #[test]
    fn every_byte_of_every_iteration_has_its_process(
        (processes, pattern) in covering(),
        iterations in 1..4u32,
        barrier in barrier(),
    ) {
        let mut app = app(processes, pattern);
        app.workload.iterations = iterations;
        app.workload.barrier = barrier;
        app.workload.op = Op::Read;
        let done = run(&app, 1);
        let owners = owners(processes, &app.workload.pattern);
        let all = owners.repeat(iterations as usize);
        for rank in 0..processes {
            let expected: Vec<u64> =
                (0..all.len()).filter(|at| all[*at] == rank).map(|at| at as u64).collect();
            // In ascending order, too.
            prop_assert_eq!(bytes_of(done.calls(rank as usize)), expected);
        }
        prop_assert_eq!(files_needed(&app), vec![(file_id(1, 0), all.len() as u64)]);
    }

    #[test]
    fn files_of_their_own_are_covered_each(bytes in 1..300u64, request in 1..40u32, iterations in 1..4u32) {
        let mut app = app(3, Pattern::Contiguous { sharing: Sharing::PerProcess, bytes, request });
        app.workload.iterations = iterations;
        app.workload.op = Op::Read;
        let all = vec![1; (bytes * u64::from(iterations)) as usize];
        let expected: BTreeMap<_, _> = (0..3).map(|rank| (file_id(1, rank), all.clone())).collect();
        prop_assert_eq!(run(&app, 1).touched(), expected);
        let needed: Vec<_> = (0..3).map(|rank| (file_id(1, rank), all.len() as u64)).collect();
        prop_assert_eq!(files_needed(&app), needed);
    }

    #[test]
    fn random_calls_are_aligned_inside_the_file_and_repeatable(
        seed: u64, bytes in 1..500u64, request in 1..40u32, slots in 1..10u64,
    ) {
        let file_bytes = slots * u64::from(request);
        let app = app(2, Pattern::Random { sharing: Sharing::Shared, bytes, request, file_bytes });
        let done = run(&app, seed);
        for rank in 0..2 {
            let total: u64 = done.calls(rank).map(|call| call.total_bytes()).sum();
            prop_assert_eq!(total, bytes);
        }
        for call in done.all_calls() {
            prop_assert!(call.offset.is_multiple_of(request.into()));
            prop_assert!(call.offset + call.total_bytes() <= file_bytes);
        }
        prop_assert_eq!(&run(&app, seed).steps, &done.steps);
    }
}

#[test]
fn random_calls_differ_by_seed_rank_and_application() {
    let pattern =
        Pattern::Random { sharing: Sharing::PerProcess, bytes: 6400, request: 64, file_bytes: 1 << 30 };
    let offsets =
        |app: &App, rank, seed| -> Vec<u64> { run(app, seed).calls(rank).map(|call| call.offset).collect() };
    let one = app(2, pattern);
    let two = App { id: 2, ..one.clone() };
    let first = offsets(&one, 0, 1);
    assert_ne!(first, offsets(&one, 0, 2));
    assert_ne!(first, offsets(&one, 1, 1));
    assert_ne!(first, offsets(&two, 0, 1));
    let mut thinking = one.clone();
    thinking.workload.think = iogate_sim::rng::Distribution::Exponential(Span::from_millis(1));
    assert_eq!(first, offsets(&thinking, 0, 1), "the time to think changes no offsets");
}

#[test]
fn a_tile_is_one_call() {
    // 2 x 2 tiles of 3 x 2 elements of 10 bytes: lines of 60 bytes.
    let done = run(&app(4, Pattern::Tile { columns: 2, width: 3, height: 2, element: 10 }), 1);
    let call = |offset| Call { file: file_id(1, 0), op: Op::Write, offset, bytes: 30, stride: 60, count: 2 };
    let calls: Vec<_> = done.all_calls().collect();
    assert_eq!(calls, [call(0), call(30), call(120), call(150)]);
}

#[test]
fn a_noncontiguous_call_has_many_pieces_and_the_last_what_is_left() {
    let done = run(&app(2, Pattern::Noncontiguous { bytes: 52, piece: 10, pieces: 3 }), 1);
    let call = |offset, bytes, stride, count| Call {
        file: file_id(1, 0),
        op: Op::Write,
        offset,
        bytes,
        stride,
        count,
    };
    let calls: Vec<_> = done.calls(1).collect();
    assert_eq!(calls, [call(10, 10, 20, 3), call(70, 10, 20, 2), call(102, 2, 2, 1)]);
}

fn row(time_us: u64, file: u64, op: Op, offset: u64, bytes: u32) -> Row {
    Row {
        number: 1,
        time: Time::from_nanos(time_us * 1000),
        app: AppId(0),
        client: ClientId(0),
        file: FileId(file),
        op,
        offset,
        bytes,
        target: None,
        issued: None,
        done: None,
        lost: 0,
    }
}

fn trace(timed: bool) -> App {
    let rows = vec![
        vec![row(5, 7, Op::Read, 100, 50), row(9, 8, Op::Write, 0, 10), row(9, 7, Op::Read, 0, 20)],
        vec![row(6, 7, Op::Write, 500, 500)],
    ];
    app(3, Pattern::Trace { rows: Arc::new(rows), timed })
}

#[test]
fn traces_are_issued_at_their_times_or_one_after_the_other() {
    let call = |file, op, offset, bytes: u32| {
        Step::Call(Call {
            file: trace_file_id(1, FileId(file)),
            op,
            offset,
            bytes,
            stride: bytes.into(),
            count: 1,
        })
    };
    let calls = [call(7, Op::Read, 100, 50), call(8, Op::Write, 0, 10), call(7, Op::Read, 0, 20)];
    let until = |us| Step::Until(Span::from_micros(us));
    let io = |steps: &[Step]| [&[Step::Phase(true)], steps, &[Step::Finish, Step::Phase(false)]].concat();

    let timed = run(&trace(true), 1).steps;
    assert_eq!(timed[0], io(&[until(5), calls[0], until(9), calls[1], until(9), calls[2]]));
    assert_eq!(timed[1], io(&[until(6), call(7, Op::Write, 500, 500)]));
    assert_eq!(timed[2], io(&[]), "a process without rows");
    assert_eq!(run(&trace(false), 1).steps[0], io(&calls));
}

#[test]
fn traces_need_what_they_read() {
    assert_eq!(
        files_needed(&trace(false)),
        [(trace_file_id(1, FileId(7)), 150), (trace_file_id(1, FileId(8)), 0)]
    );
}

#[test]
fn processes_with_fewer_calls_make_up_for_the_barriers() {
    let mut app = trace(true);
    app.workload.barrier = Barrier::Call;
    app.workload.iterations = 2;
    let done = run(&app, 1);
    // Before, after each of three calls, after: twice.
    assert_eq!(done.barriers, 10);
    assert_eq!(done.calls(0).count(), 6);
    assert_eq!(done.calls(2).count(), 0);
}

#[test]
fn only_equal_numbers_share_files() {
    let files = |files| {
        let mut app = trace(false);
        app.files = files;
        let regular = App {
            workload: super::interpreter::app(1, Pattern::Strided { bytes: 1, request: 1 }).workload,
            ..app.clone()
        };
        [files_needed(&app), files_needed(&regular)].concat()
    };
    let (one, two) = (files(1), files(2));
    assert!(one.iter().all(|(file, _)| two.iter().all(|(other, _)| file != other)), "{one:?} {two:?}");
}

#[test]
fn files_that_no_offset_can_reach_have_no_end() {
    let sharing = Sharing::Shared;
    let end = |iterations, pattern| {
        let mut app = app(4, pattern);
        app.workload.iterations = iterations;
        file_end(&app)
    };
    assert_eq!(end(3, Pattern::Strided { bytes: 100, request: 7 }), Some(1200));
    assert_eq!(end(3, Pattern::Strided { bytes: 1 << 62, request: 7 }), None);
    assert_eq!(end(1 << 31, Pattern::Contiguous { sharing, bytes: 1 << 40, request: 7 }), None);
    let most = u32::MAX;
    assert_eq!(end(1, Pattern::Tile { columns: most, width: most, height: most, element: most }), None);
    assert_eq!(end(9, Pattern::Random { sharing, bytes: 1, request: 1, file_bytes: 500 }), Some(500));
    let trace = |offset| {
        let rows = Arc::new(vec![vec![row(0, 1, Op::Read, 10, 5), row(0, 1, Op::Read, offset, 5)]]);
        end(1, Pattern::Trace { rows, timed: false })
    };
    assert_eq!(trace(7), Some(15));
    assert_eq!(trace(u64::MAX), None);
}
