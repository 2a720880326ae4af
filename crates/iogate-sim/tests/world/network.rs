//! Ports, incast, and how flows share a port.

use iogate_core::{Op, Span};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::Scenario;

use super::common::{app, scenario};
use super::observe::run;

/// Bytes of each server in each round.
const SHARE: u32 = 256 << 10;
/// Bytes of all rounds of all servers.
const TOTAL: u64 = 128 << 20;

/// One client reads blocks that lie on all servers, one after the other: 1 Gbit/s, and 64 KiB in the switch for each port.
fn incast(servers: u32) -> Scenario {
    let mut s = scenario(servers, "unit:1", "fifo");
    (s.cluster.servers.stripe, s.cluster.servers.transfer) = (SHARE.into(), SHARE);
    s.network.latency = Span::from_micros(50);
    s.network.bandwidth = Some(125_000_000);
    s.network.buffer = Some(64 << 10);
    let block = servers * SHARE;
    s.apps = vec![app(1, 1, TOTAL, block)];
    s
}

/// Bytes per second, as a part of what the client's port can pass.
fn goodput(result: &RunResult) -> f64 {
    result.apps[0].bytes as f64 / result.makespan.as_secs_f64() / 125e6
}

#[test]
fn many_servers_that_answer_one_client_at_once_collapse() {
    let mut curve = Vec::new();
    for servers in [1, 2, 4, 8, 16, 32, 64] {
        let mut s = incast(servers);
        let result = run(&s);
        assert_eq!(result.apps[0].bytes, TOTAL, "every byte arrives");
        assert!(result.network.timeouts <= result.network.lost);
        curve.push((servers, goodput(&result), result.network.lost, result.network.timeouts));
        s.network.buffer = None;
        let unbounded = run(&s);
        assert!(goodput(&unbounded) > 0.9, "{servers} servers, unbounded: {}", goodput(&unbounded));
        assert_eq!((unbounded.network.lost, unbounded.network.timeouts), (0, 0));
        s.network.buffer = Some(1 << 30);
        let ample = run(&s);
        assert!(goodput(&ample) > 0.9, "{servers} servers, ample: {}", goodput(&ample));
        assert_eq!((ample.network.lost, ample.network.timeouts), (0, 0));
    }
    let [_, (_, two, ..), (_, four, ..), ..] = curve[..] else { unreachable!("seven points") };
    assert!(two > four && four > curve[3].1, "it goes down: {curve:?}");
    for (servers, goodput, lost, timeouts) in &curve[4..] {
        assert!(
            *goodput < two / 4.0 && *goodput < four / 1.5,
            "{servers} servers should collapse: {curve:?}"
        );
        assert!(*timeouts > 0 && lost > timeouts, "{curve:?}");
    }
}

#[test]
fn a_larger_buffer_puts_off_the_collapse() {
    let with = |buffer| {
        let mut s = incast(8);
        s.network.buffer = Some(buffer);
        goodput(&run(&s))
    };
    let curve = [64 << 10, 256 << 10, 1 << 20].map(with);
    assert!(2.0 * curve[0] < curve[1] && curve[1] < curve[2] && curve[2] > 0.6, "{curve:?}");
}

#[test]
fn short_time_outs_avert_the_collapse() {
    let mut s = incast(32);
    let collapsed = goodput(&run(&s));
    s.network.retransmit = Span::from_millis(1);
    let averted = goodput(&run(&s));
    assert!(averted > 5.0 * collapsed, "{averted} after {collapsed}");
}

#[test]
fn two_flows_share_a_port_fairly() {
    let mut s = scenario(1, "unit:1", "fifo");
    s.cluster.clients.nodes = 2;
    s.network.latency = Span::from_micros(50);
    s.network.bandwidth = Some(125_000_000);
    s.network.buffer = Some(256 << 10);
    s.apps = (0..2)
        .map(|node| {
            let mut writer = app(node + 1, 1, 256 << 20, 1 << 20);
            (writer.first_node, writer.workload.op, writer.workload.outstanding) = (node, Op::Write, Some(8));
            writer
        })
        .collect();
    let result = run(&s);
    assert!(result.network.lost > 0, "they compete");
    let ends = [0, 1].map(|app| result.apps[app].end.as_nanos() as f64);
    // Where one had all of the port until it is done, this would be 0.5.
    let ratio = ends[0].min(ends[1]) / ends[0].max(ends[1]);
    assert!(ratio > 0.75, "{ends:?}");
    assert!(result.makespan < Span::from_millis(6_000), "the port is used: {}", result.makespan);
}

#[test]
fn without_bandwidth_everything_waits_for_ever() {
    let mut s = incast(2);
    s.network.buffer = None;
    s.network.bandwidth = Some(0);
    assert!(super::observe::stall(&s).contains("app1"));
}

#[test]
fn a_slow_port_is_no_loss() {
    // A window of each flow takes the sender's port for longer than the time-out.
    let mut s = scenario(64, "unit:1", "fifo");
    s.network.bandwidth = Some(1_000_000);
    s.network.buffer = Some(1 << 20);
    let mut writer = app(1, 1, 64 * 65_536, 64 * 65_536);
    writer.workload.op = Op::Write;
    s.apps = vec![writer];
    let result = run(&s);
    assert_eq!((result.network.lost, result.network.timeouts), (0, 0));
}
