//! Who waits for whom: the three synchronisations of the server coordination paper (figure 1), and calls in progress at once. A
//! server takes a millisecond for a request.

use iogate_core::{Op, Span};
use iogate_sim::result::RunResult;
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{App, Barrier, Collective, Pattern, Scenario};

use super::common::{app, scenario};
use super::observe::{run, watch};

const PIECE: u64 = 65_536;

fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn cluster(servers: u32, apps: Vec<App>) -> Scenario {
    let mut s = scenario(servers, "unit:1000", "fifo");
    s.apps = apps;
    s
}

/// When each application ended, in milliseconds.
fn ends(result: &RunResult) -> Vec<u64> {
    result.apps.iter().map(|app| app.end.as_nanos() / 1_000_000).collect()
}

#[test]
fn a_request_waits_for_its_slowest_server() {
    // Application 1 keeps server 0 busy with two requests; then 2 asks both servers.
    let busy = app(1, 2, PIECE / 2, PIECE as u32 / 2);
    let both = app(2, 1, 2 * PIECE, 2 * PIECE as u32);
    let result = run(&cluster(2, vec![busy, both]));
    assert_eq!(ends(&result), [2, 3]);
    let finish = &result.apps[1].server_finish;
    assert_eq!(finish.iter().flatten().map(|at| at.as_nanos() / 1_000_000).collect::<Vec<_>>(), [3, 1]);
    assert_eq!(result.apps[1].call_time_max, ms(3));
}

#[test]
fn processes_that_synchronise_after_each_call_wait_for_the_slowest() {
    // Each of two processes reads from a server of its own, twice; application 1 is in the way at server 0 first.
    let busy = app(1, 2, PIECE / 2, PIECE as u32 / 2);
    let mut steps = app(2, 2, 4 * PIECE, PIECE as u32);
    steps.workload.pattern = Pattern::Strided { bytes: 2 * PIECE, request: PIECE as u32 };
    let mut s = cluster(2, vec![busy.clone(), steps.clone()]);
    // Without a barrier rank 1 is done at 2 ms, and rank 0 at 2 + 2.
    let (result, seen) = watch(&s);
    assert_eq!(ends(&result), [2, 4]);
    let rank_1 = |phases: &[iogate_sim::world::Phase]| {
        let io = phases.iter().find(|phase| phase.app.0 == 2 && phase.rank == 1 && phase.io);
        io.expect("it did I/O").end.as_nanos() / 1_000_000
    };
    assert_eq!(rank_1(&seen.phases), 2);
    // With one, the first step lasts until 3 ms and the second until 4, for both.
    s.apps[1].workload.barrier = Barrier::Call;
    let (result, seen) = watch(&s);
    assert_eq!(ends(&result), [2, 4]);
    assert_eq!(rank_1(&seen.phases), 4);
    assert_eq!((result.apps[1].steps, result.apps[1].step_time), (2, ms(4)));
}

#[test]
fn a_collective_call_waits_for_its_slowest_aggregator() {
    // Each of two aggregators has a stripe, on a server of its own; application 1 is in the way at server 0 first.
    let busy = app(1, 2, PIECE / 2, PIECE as u32 / 2);
    let mut together = app(2, 4, PIECE / 2, PIECE as u32 / 2);
    together.workload.collective = Some(Collective { aggregators: 2, buffer: PIECE as u32 });
    let (result, seen) = watch(&cluster(2, vec![busy, together]));
    assert_eq!(ends(&result), [2, 3]);
    let own = seen.phases.iter().filter(|phase| phase.app.0 == 2 && phase.io);
    // None goes on before, not even those whose bytes were there after 1 ms.
    assert_eq!(own.map(|phase| phase.end.as_nanos() / 1_000_000).collect::<Vec<_>>(), [3; 4]);
    assert_eq!(result.requests, 2 + 2);
}

#[test]
fn the_next_request_of_a_process_waits_for_the_last() {
    // Application 2 reads from server 0, behind application 1, then from server 1, where application 3 is then in the way.
    let first = app(1, 1, PIECE / 2, PIECE as u32 / 2);
    let chain = app(2, 1, 2 * PIECE, PIECE as u32);
    let mut other = app(3, 2, 2 * PIECE, PIECE as u32);
    other.workload.pattern = Pattern::Strided { bytes: 2 * PIECE, request: PIECE as u32 };
    other.start = Span::from_micros(1_500);
    // Of application 3, rank 0 reads stripes 0 and 2 (server 0), rank 1 stripes 1 and 3 (server 1).
    let result = run(&cluster(2, vec![first, chain, other]));
    // Server 0: 1 to 1 ms, 2 to 2 ms, 3 to 3 and 4 ms. Server 1: 3 from 1.5 to 2.5, 2 (asked at 2 ms) to 3.5, 3 (asked at 2.5 ms) to 4.5.
    assert_eq!(result.apps[0].end.as_nanos(), 1_000_000);
    assert_eq!(result.apps[1].end.as_nanos(), 3_500_000);
    assert_eq!(result.apps[2].end.as_nanos(), 4_500_000);
}

#[test]
fn barriers_of_many_processes_and_phases() {
    let mut phased = app(1, 1_000, 64, 64);
    (phased.workload.barrier, phased.workload.iterations) = (Barrier::Phase, 3);
    phased.workload.op = Op::Write;
    let result = run(&cluster(1, vec![phased]));
    let phases: Vec<_> = result.apps[0]
        .phases
        .iter()
        .map(|phase| (phase.start.as_nanos() / 1_000_000, phase.end.as_nanos() / 1_000_000, phase.bytes))
        .collect();
    assert_eq!(phases, [(0, 1_000, 64_000), (1_000, 2_000, 64_000), (2_000, 3_000, 64_000)]);
}

/// Forty reads over a network that takes 2 ms in each direction.
fn with_outstanding(outstanding: Option<u32>) -> u64 {
    let mut reader = app(1, 1, 40 * PIECE, PIECE as u32);
    reader.workload.outstanding = outstanding;
    let mut s = cluster(1, vec![reader]);
    s.network.latency = ms(2);
    run(&s).makespan.as_nanos() / 1_000_000
}

#[test]
fn calls_in_progress_hide_the_network() {
    // A call takes 5 ms alone. Of four at once, the last is back after 8 ms, and the next one of each is issued when it is back.
    assert_eq!(with_outstanding(Some(1)), 40 * 5);
    assert_eq!(with_outstanding(Some(4)), 9 * 5 + 8);
    // From five on the server is always busy.
    assert_eq!(with_outstanding(Some(5)), 2 + 40 + 2);
    assert_eq!(with_outstanding(None), 2 + 40 + 2);
}

#[test]
fn calls_by_the_clock_do_not_wait_for_earlier_ones() {
    // A call a millisecond, by each of two processes: the server falls behind by a request a millisecond, and the last of 20 waits for all.
    let mut open = app(1, 2, 10 * PIECE, PIECE as u32);
    (open.workload.think, open.workload.outstanding) = (Distribution::Constant(ms(1)), None);
    let (result, seen) = watch(&cluster(1, vec![open]));
    assert_eq!(ends(&result), [1 + 20]);
    let arrived: Vec<u64> = seen.served.iter().map(|served| served.end.as_nanos() / 1_000_000).collect();
    assert_eq!(arrived, (2..=21).collect::<Vec<_>>(), "never idle from the first on");
    assert_eq!(result.apps[0].call_time_max, ms(21 - 10), "issued at 10 ms, served at 21");
}
