//! Two-phase collective I/O: the same bytes as without, the messages that it takes, and no process stuck.

use iogate_core::{Op, Span};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{App, Barrier, Collective, Pattern, Sharing};
use iogate_sim::workload::{Call, Step, file_id};
use proptest::prelude::*;

use super::interpreter::{Done, app, run};
use super::patterns::{barrier, covering};

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![Just(Op::Read), Just(Op::Write)]
}

/// Who accesses each byte of the shared file: the rank, or `None` where nobody does.
fn owners(done: &Done, bytes: usize) -> Vec<Option<u32>> {
    let mut owners = vec![None; bytes];
    for rank in 0..done.steps.len() {
        for call in done.calls(rank) {
            for range in 0..u64::from(call.count) {
                let start = (call.offset + range * call.stride) as usize;
                for owner in &mut owners[start..start + call.bytes as usize] {
                    assert_eq!(owner.replace(rank as u32), None, "accessed twice");
                }
            }
        }
    }
    owners
}

fn sent(steps: &[Step]) -> u64 {
    steps.iter().map(|step| if let Step::Send { bytes, .. } = step { *bytes } else { 0 }).sum()
}

proptest! {
    #[test]
    fn the_same_bytes_as_without(
        (processes, pattern) in covering(),
        iterations in 1..3u32,
        aggregators in 1..10u32,
        buffer in 1..300u32,
        op in op(),
        barrier in barrier(),
        think in 0..2u64,
    ) {
        let mut independent = app(processes, pattern);
        independent.workload.iterations = iterations;
        independent.workload.op = op;
        independent.workload.barrier = barrier;
        let mut collective = independent.clone();
        collective.workload.collective = Some(Collective { aggregators, buffer });
        collective.workload.think = Distribution::Constant(Span::from_nanos(think));

        let (alone, together) = (run(&independent, 1), run(&collective, 1));
        let bytes: u64 = alone.all_calls().map(|call| call.total_bytes()).sum();
        let (own, by) = (owners(&alone, bytes as usize), owners(&together, bytes as usize));
        prop_assert!(own.iter().all(Option::is_some));
        prop_assert!(by.iter().all(Option::is_some));

        // Each byte goes between the process that wants it and the one that moves it, unless they are the same.
        let pairs: Vec<(u32, u32)> = own.iter().flatten().copied().zip(by.iter().flatten().copied()).collect();
        for rank in 0..processes {
            let away = pairs.iter().filter(|(own, by)| own != by && *own == rank).count() as u64;
            let through = pairs.iter().filter(|(own, by)| own != by && *by == rank).count() as u64;
            let (sends, receives) = if op == Op::Write { (away, through) } else { (through, away) };
            prop_assert_eq!(sent(&together.steps[rank as usize]), sends);
            prop_assert_eq!(together.received[rank as usize].1, receives);
            let waited = together.steps[rank as usize].iter().filter_map(|step| match step {
                Step::Receive { messages } => Some(*messages),
                _ => None,
            });
            prop_assert_eq!(waited.max().unwrap_or(0), together.received[rank as usize].0, "all are waited for");
        }
        prop_assert!(together.all_calls().all(|call| call.count == 1 && call.bytes <= buffer));
        let movers: std::collections::BTreeSet<u32> = by.into_iter().flatten().collect();
        prop_assert!(movers.len() <= aggregators.min(processes) as usize);
    }
}

fn strided(op: Op) -> App {
    // Four processes with two pieces of ten bytes each; two aggregators with forty bytes each, in rounds of thirty.
    let mut app = app(4, Pattern::Strided { bytes: 20, request: 10 });
    app.workload.op = op;
    app.workload.collective = Some(Collective { aggregators: 2, buffer: 30 });
    app
}

fn call(op: Op, offset: u64, bytes: u32) -> Step {
    Step::Call(Call { file: file_id(1, 0), op, offset, bytes, stride: bytes.into(), count: 1 })
}

use Step::{Barrier as Wait, Finish, Phase};

fn send(to: u32) -> Step {
    Step::Send { to, bytes: 10 }
}

fn receive(messages: u64) -> Step {
    Step::Receive { messages }
}

#[test]
fn a_write_sends_first() {
    let steps = run(&strided(Op::Write), 1).steps;
    let write = |offset, bytes| call(Op::Write, offset, bytes);
    assert_eq!(
        steps[0],
        [Phase(true), send(2), receive(2), write(0, 30), Finish, Wait]
            .into_iter()
            .chain([receive(3), write(30, 10), Finish, Wait, Finish, Phase(false)])
            .collect::<Vec<_>>()
    );
    assert_eq!(steps[1], [Phase(true), send(0), send(2), Wait, Wait, Finish, Phase(false)]);
    assert_eq!(steps[3], [Phase(true), Wait, send(0), send(2), Wait, Finish, Phase(false)]);
}

#[test]
fn a_read_sends_last() {
    let steps = run(&strided(Op::Read), 1).steps;
    let read = |offset, bytes| call(Op::Read, offset, bytes);
    assert_eq!(
        steps[2],
        [Phase(true), read(40, 30), Finish, send(0), send(1), receive(1), Wait]
            .into_iter()
            .chain([read(70, 10), Finish, send(3), Wait, Finish, Phase(false)])
            .collect::<Vec<_>>()
    );
    assert_eq!(steps[3], [Phase(true), Wait, receive(2), Wait, Finish, Phase(false)]);
}

#[test]
fn aggregators_are_spread_evenly() {
    let mut app = app(8, Pattern::Strided { bytes: 64, request: 1 });
    app.workload.collective = Some(Collective { aggregators: 3, buffer: 1000 });
    let done = run(&app, 1);
    let movers: Vec<usize> = (0..8).filter(|rank| done.calls(*rank).next().is_some()).collect();
    assert_eq!(movers, [0, 2, 5]);
}

#[test]
fn what_cannot_be_collective_is_independent() {
    for pattern in [
        Pattern::Contiguous { sharing: Sharing::PerProcess, bytes: 20, request: 10 },
        Pattern::Random { sharing: Sharing::Shared, bytes: 20, request: 10, file_bytes: 100 },
        // Three processes leave a hole in a grid of two columns.
        Pattern::Tile { columns: 2, width: 1, height: 2, element: 1 },
    ] {
        let independent = app(3, pattern);
        let mut collective = independent.clone();
        collective.workload.collective = Some(Collective { aggregators: 2, buffer: 30 });
        assert_eq!(run(&independent, 1).steps, run(&collective, 1).steps);
    }
}

#[test]
fn a_great_file_takes_no_time_to_divide() {
    let mut app = app(64, Pattern::Noncontiguous { bytes: 1 << 40, piece: 1000, pieces: 100 });
    app.workload.collective = Some(Collective { aggregators: 16, buffer: u32::MAX });
    app.workload.barrier = Barrier::Phase;
    let done = run(&app, 1);
    assert_eq!(done.all_calls().map(|call| call.total_bytes()).sum::<u64>(), 64 << 40);
}
