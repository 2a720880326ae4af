//! What goes wrong, and what that does.

use iogate_core::{Span, Time};
use iogate_sim::rng::Distribution;
use iogate_sim::scenario::{Batch, Fault, FaultKind, Scenario};

use super::common::{app, scenario};
use super::observe::{run, stall, watch};

const PIECE: u32 = 65_536;

fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

fn at(ms: u64) -> Time {
    Time::ZERO + self::ms(ms)
}

fn fault(from_ms: u64, until_ms: Option<u64>, kind: FaultKind) -> Fault {
    Fault { from: ms(from_ms), until: until_ms.map(ms), kind }
}

/// One process reads `calls` pieces; each takes a millisecond.
fn reader(calls: u64) -> Scenario {
    let mut s = scenario(1, "unit:1000", "fifo");
    s.apps = vec![app(1, 1, calls * u64::from(PIECE), PIECE)];
    s
}

#[test]
fn a_slow_server_is_busy_for_longer() {
    let mut s = scenario(2, "unit:1000", "fifo");
    s.apps = vec![app(1, 1, 20 * u64::from(PIECE), 2 * PIECE)];
    s.faults = vec![fault(0, None, FaultKind::SlowServer { server: 0, factor: 2.0 })];
    let result = run(&s);
    assert_eq!([result.servers[0].busy, result.servers[1].busy], [ms(20), ms(10)]);
    assert_eq!(result.makespan, ms(20));
}

#[test]
fn a_slow_server_is_slow_for_what_begins_meanwhile() {
    let mut s = reader(10);
    s.faults = vec![fault(3, Some(6), FaultKind::SlowServer { server: 0, factor: 4.0 })];
    // Three, then one that lasts until 7 ms, then six.
    assert_eq!(run(&s).makespan, ms(13));
}

#[test]
fn a_stopped_server_begins_nothing_and_serves_everything_later() {
    for depth in [1, 16] {
        let mut s = reader(40);
        s.cluster.servers.gate.depth = depth;
        s.apps[0].workload.outstanding = Some(8);
        s.faults = [(10, 30), (35, 40)]
            .map(|(from, until)| fault(from, Some(until), FaultKind::StoppedServer { server: 0 }))
            .into();
        let (result, seen) = watch(&s);
        assert_eq!((seen.served.len(), result.apps[0].calls), (40, 40));
        for served in &seen.served {
            let stopped = |from, until| served.start >= at(from) && served.start < at(until);
            assert!(!stopped(10, 30) && !stopped(35, 40), "depth {depth}: {served:?}");
        }
        assert_eq!(result.makespan, ms(40 + 20 + 5), "depth {depth}");
        assert_eq!(result.servers[0].busy, ms(40));
    }
}

#[test]
fn a_stop_for_good_ends_in_an_error_that_names_who_waits() {
    let mut s = reader(10);
    s.faults = vec![fault(5, None, FaultKind::StoppedServer { server: 0 })];
    let error = stall(&s);
    assert!(error.contains("app1 wait, the first for requests to be answered"), "{error}");
    assert!(error.contains("at 0.005 s"), "{error}");
}

#[test]
fn a_run_is_cut_off_at_its_time_limit() {
    let mut s = reader(10);
    s.time_max = ms(7);
    let mut late = app(2, 1, 10, 10);
    late.start = ms(50);
    s.apps.push(late);
    let result = run(&s);
    assert!(result.cut_off);
    assert_eq!((result.apps[0].calls, result.apps[0].end), (7, at(7)));
    assert_eq!((result.apps[1].start, result.apps[1].end), (at(50), at(50)));
}

#[test]
fn faults_after_the_end_change_nothing() {
    let mut s = reader(10);
    s.time_max = ms(100);
    let undisturbed = format!("{:?}", run(&s));
    s.faults = vec![
        fault(200, None, FaultKind::LostClient { node: 0 }),
        fault(200, Some(300), FaultKind::StoppedServer { server: 0 }),
        fault(200, Some(300), FaultKind::SlowServer { server: 0, factor: 9.0 }),
        // One that ends before it begins never holds.
        fault(8, Some(3), FaultKind::StoppedServer { server: 0 }),
    ];
    assert_eq!(format!("{:?}", run(&s)), undisturbed);
}

#[test]
fn a_lost_client_takes_its_applications_with_it_and_no_others() {
    let mut s = reader(10);
    s.cluster.clients.nodes = 3;
    // On two nodes, of which one is lost; and one that starts there later.
    let mut lost = app(2, 2, 20 * u64::from(PIECE), PIECE);
    (lost.first_node, lost.nodes, lost.workload.outstanding) = (1, 2, Some(4));
    let mut later = app(3, 1, u64::from(PIECE), PIECE);
    (later.first_node, later.start) = (1, ms(20));
    s.apps.extend([lost, later]);
    s.faults = vec![fault(5, None, FaultKind::LostClient { node: 1 })];
    let (result, seen) = watch(&s);
    let [reader, lost, later] = &result.apps[..] else { unreachable!("three applications") };
    assert_eq!((reader.lost, reader.calls), (false, 10));
    assert_eq!((lost.lost, lost.end), (true, at(5)));
    assert!(lost.calls < 40);
    assert_eq!((later.lost, later.start, later.end, later.calls), (true, at(20), at(20), 0));
    // What was sent is served: what was done, and what eight calls had in progress.
    let sent = seen.arrived.iter().filter(|arrived| arrived.app.0 == 2).count() as u64;
    assert_eq!(sent, lost.calls + 8);
    assert_eq!(seen.served.len(), seen.arrived.len());
}

/// Jobs that compute for ten milliseconds each.
fn jobs(clients: u32, nodes: &[u32]) -> Scenario {
    let mut s = scenario(1, "unit:1", "fifo");
    s.cluster.clients.nodes = clients;
    s.batch = Some(Batch { backfill: true });
    s.apps = (1..)
        .zip(nodes)
        .map(|(id, &nodes)| {
            let mut job = app(id, nodes, 0, 1);
            (job.nodes, job.walltime) = (nodes, Some(ms(10)));
            job.workload.compute = Distribution::Constant(ms(10));
            job
        })
        .collect();
    s
}

#[test]
fn a_batch_scheduler_does_without_a_lost_node() {
    let mut s = jobs(3, &[2, 1, 2, 1]);
    s.faults = vec![fault(5, None, FaultKind::LostClient { node: 0 })];
    let result = run(&s);
    let apps: Vec<_> = result.apps.iter().map(|app| (app.lost, app.start, app.end)).collect();
    assert_eq!(apps[0], (true, at(0), at(5)));
    assert_eq!(apps[1], (false, at(0), at(10)));
    assert_eq!(apps[2], (false, at(10), at(20)));
    assert!(!apps[3].0);
    assert!(result.apps[2..].iter().all(|app| app.start >= at(5)));
}

#[test]
fn a_job_that_no_longer_fits_is_named() {
    let mut s = jobs(2, &[1, 2]);
    s.faults = vec![fault(5, None, FaultKind::LostClient { node: 0 })];
    assert!(stall(&s).contains("app2 waits for 2 nodes"), "{}", stall(&s));
}

#[test]
fn a_delay_lasts_as_long_as_any_of_those_that_overlap() {
    let mut s = scenario(1, "unit:1", "fifo");
    s.apps = vec![app(1, 1, 400 * u64::from(PIECE), PIECE)];
    let undelayed = run(&s).makespan;
    assert_eq!(undelayed, Span::from_micros(400));
    // Each call is delayed twice, by 10 ms together in the mean: 400 of them take about 4 s.
    let delay = |until| fault(0, Some(until), FaultKind::Delay { extra: ms(10) });
    s.faults = vec![delay(1_000), delay(100)];
    let delayed = run(&s).makespan;
    assert!(delayed >= ms(1_000) && delayed <= ms(1_021), "{delayed}");
}

#[test]
fn nothing_is_sent_again_for_a_delay_that_ends_while_it_is_sent() {
    let mut s = reader(1);
    s.network.bandwidth = Some(1_000_000);
    s.network.buffer = Some(1 << 40);
    s.network.retransmit = ms(1);
    // A request of four frames, of which the delay concerns the first two.
    s.network.header = 5_000;
    s.faults = vec![fault(0, Some(2), FaultKind::Delay { extra: ms(10_000) })];
    let result = run(&s);
    assert!(result.makespan > ms(100), "it was delayed: {:?}", result.makespan);
    assert_eq!(result.network.timeouts, 0);
}

#[test]
fn messages_stay_in_order_when_a_delay_ends() {
    let mut s = scenario(1, "unit:1", "fifo");
    let mut open = app(1, 1, 200 * u64::from(PIECE), PIECE);
    open.workload.outstanding = None;
    open.workload.think = Distribution::Constant(Span::from_micros(100));
    s.apps = vec![open];
    s.faults = vec![fault(5, Some(10), FaultKind::Delay { extra: ms(50) })];
    let (_, seen) = watch(&s);
    assert!(seen.arrived.iter().map(|arrived| arrived.offset).is_sorted());
    assert_eq!(seen.arrived.len(), 200);
}

#[test]
fn only_clocks_that_are_too_far_off_are_not_believed() {
    let skewed = |layer, ahead_ms: i64| {
        let mut s = reader(10);
        s.cluster.servers.gate = super::common::gate("app-window");
        s.cluster.servers.gate.scheduler.set("skew_max", "100ms").expect("it has this");
        let ahead_ns = ahead_ms * 1_000_000;
        s.faults = vec![fault(0, None, FaultKind::Skew { layer, node: 0, ahead_ns })];
        let result = run(&s);
        assert_eq!(result.makespan, ms(10), "a skew alone delays nothing");
        result.layers[0].skewed
    };
    assert_eq!([skewed(0, 0), skewed(0, -100), skewed(0, -101), skewed(0, 1)], [0, 0, 10, 10]);
    assert_eq!([skewed(1, 100), skewed(1, 101), skewed(1, -1)], [0, 10, 10]);
    assert_eq!(skewed(0, i64::MAX / 1_000_000), 10);
}
