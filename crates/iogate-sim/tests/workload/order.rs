//! In which order a process does what.

use iogate_core::{Op, Span};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{App, Barrier, Pattern, Sharing};
use iogate_sim::workload::{Call, Step, file_id};

use super::interpreter::{app, run};

fn two_calls() -> App {
    let mut app = app(2, Pattern::Contiguous { sharing: Sharing::Shared, bytes: 15, request: 10 });
    app.workload.compute = Distribution::Constant(Span::from_secs(1));
    app
}

fn call(offset: u64, bytes: u32) -> Step {
    Step::Call(Call { file: file_id(1, 0), op: Op::Write, offset, bytes, stride: bytes.into(), count: 1 })
}

const COMPUTE: Step = Step::Compute(Span::from_secs(1));
const THINK: Step = Step::Compute(Span::from_millis(1));
use Step::{Barrier as Wait, Finish, Phase};

#[test]
fn without_barriers() {
    let mut app = two_calls();
    app.workload.think = Distribution::Constant(Span::from_millis(1));
    assert_eq!(
        run(&app, 1).steps[1],
        [COMPUTE, Phase(true), THINK, call(15, 10), THINK, call(25, 5), Finish, Phase(false)]
    );
}

#[test]
fn barriers_around_the_phase() {
    let mut app = two_calls();
    app.workload.barrier = Barrier::Phase;
    app.workload.iterations = 2;
    let io = |first, second| vec![COMPUTE, Wait, Phase(true), first, second, Finish, Phase(false), Wait];
    let expected = [io(call(0, 10), call(10, 5)), io(call(30, 10), call(40, 5))].concat();
    let done = run(&app, 1);
    assert_eq!(done.steps[0], expected);
    assert_eq!(done.barriers, 4);
}

#[test]
fn barriers_after_each_call() {
    let mut app = two_calls();
    app.workload.barrier = Barrier::Call;
    app.workload.compute = Distribution::ZERO;
    let calls = [call(0, 10), Finish, Wait, call(10, 5), Finish, Wait];
    assert_eq!(
        run(&app, 1).steps[0],
        [&[Wait, Phase(true)], &calls[..], &[Finish, Phase(false), Wait]].concat()
    );
}

#[test]
fn all_processes_compute_equally_long_and_each_iteration_anew() {
    let mut app = two_calls();
    app.workload.compute = Distribution::Exponential(Span::from_secs(1));
    app.workload.think = Distribution::Exponential(Span::from_micros(1));
    app.workload.iterations = 5;
    let computes = |app: &App, rank: usize, seed| -> Vec<Step> {
        let steps = run(app, seed).steps.swap_remove(rank);
        // What stands before a phase, not before a call.
        steps.windows(2).filter(|pair| pair[1] == Phase(true)).map(|pair| pair[0]).collect()
    };
    let first = computes(&app, 0, 1);
    assert_eq!(first.len(), 5);
    assert!((1..5).all(|i| first[i] != first[0]));
    assert_eq!(first, computes(&app, 1, 1));
    assert_ne!(first, computes(&app, 0, 2));
    app.id = 2;
    assert_ne!(first, computes(&app, 0, 1));
}

#[test]
fn processes_think_independently() {
    let mut app = two_calls();
    app.workload.compute = Distribution::ZERO;
    app.workload.think = Distribution::Exponential(Span::from_secs(1));
    let steps = run(&app, 1).steps;
    let thoughts: Vec<Step> =
        steps.concat().into_iter().filter(|step| matches!(step, Step::Compute(_))).collect();
    assert_eq!(thoughts.len(), 4);
    assert!((0..4).all(|i| (0..i).all(|j| thoughts[i] != thoughts[j])));
}
