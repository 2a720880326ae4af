//! Requests on their way through gates on clients, on forwarders and on servers.

use iogate_core::{Op, Span};
use iogate_sim::metrics::{RUN, find};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::{Forwarders, GateSpec, Pattern, ProcessorSpec, Scenario, Sharing, Spread};

use super::common::{app, gate, scenario};
use super::observe::{run, watch};

fn layer(name: &str, nodes: u32, scheduler: &str, spread: Spread) -> Forwarders {
    Forwarders {
        name: name.into(),
        nodes,
        gate: GateSpec { depth: 16, ..gate(scheduler) },
        spread,
        transfer: 1 << 20,
        processor: ProcessorSpec::default(),
        lists: None,
    }
}

/// Four clients with gates, two layers of forwarders and two servers; four processes read a quarter of a file each, all at once.
fn cascade(first: &str) -> Scenario {
    let mut s = scenario(2, "unit:100", "fifo");
    s.cluster.clients.nodes = 4;
    s.cluster.clients.gate = Some(gate("fifo"));
    s.cluster.clients.gate.as_mut().expect("just set").depth = 64;
    s.cluster.servers.transfer = 1 << 20;
    s.cluster.servers.stripe = 256 << 10;
    s.cluster.forwarders =
        vec![layer("first", 2, first, Spread::Client), layer("second", 2, "fifo", Spread::Client)];
    s.network.latency = Span::from_micros(10);
    let mut reader = app(1, 4, 64 * 4_096, 4_096);
    (reader.nodes, reader.workload.outstanding) = (4, None);
    s.apps = vec![reader];
    s
}

#[test]
fn every_layer_sees_every_byte() {
    for op in [Op::Read, Op::Write] {
        for scheduler in ["fifo", "to-agg", "aioli", "hbrr", "twins"] {
            let mut s = cascade(scheduler);
            s.apps[0].workload.op = op;
            let result = run(&s);
            let names: Vec<&str> = result.layers.iter().map(|layer| layer.name.as_str()).collect();
            assert_eq!(names, ["clients", "first", "second", "servers"]);
            assert!(result.layers.iter().all(|layer| layer.bytes == 4 * 64 * 4_096), "{scheduler}");
            assert_eq!(result.servers.iter().map(|server| server.bytes).sum::<u64>(), 4 * 64 * 4_096);
            assert_eq!(result.apps[0].bytes, 4 * 64 * 4_096);
        }
    }
}

#[test]
fn what_one_layer_aggregates_comes_to_the_next_as_longer_requests() {
    let requests = |first: &str| {
        let mut s = cascade(first);
        // One at a time, so that there is something to aggregate.
        s.cluster.forwarders[0].gate.depth = 1;
        run(&s).layers.iter().map(|layer| layer.requests).collect::<Vec<_>>()
    };
    assert_eq!(requests("fifo"), [256; 4]);
    let aggregated = requests("to-agg");
    assert_eq!(aggregated[..2], [256; 2]);
    assert!(aggregated[2] <= 8, "{aggregated:?}");
    assert!(aggregated[3] <= 2 * aggregated[2], "{aggregated:?}");
}

#[test]
fn a_layer_takes_no_longer_requests_than_it_says() {
    let mut s = cascade("to-agg");
    s.cluster.forwarders[0].gate.depth = 1;
    s.cluster.forwarders[1].transfer = 10_000;
    let (result, seen) = watch(&s);
    assert!(seen.arrived.iter().all(|arrived| arrived.bytes <= 10_000));
    assert!(seen.arrived.iter().any(|arrived| arrived.bytes > 4_096));
    assert_eq!(result.layers[3].bytes, 4 * 64 * 4_096);
}

/// Requests that come to each of two forwarders.
fn spread(spread: Spread, change: impl FnOnce(&mut Scenario)) -> (u64, u64) {
    let mut s = scenario(2, "unit:1", "fifo");
    s.cluster.clients.nodes = 4;
    s.cluster.forwarders = vec![layer("ion", 2, "fifo", spread)];
    s.apps = vec![app(1, 1, 16 * 65_536, 65_536)];
    change(&mut s);
    let result: RunResult = run(&s);
    let first = result.layers[0].first_gate.ops.iter().map(|op| op.request_bytes.count()).sum();
    (first, result.layers[0].requests - first)
}

#[test]
fn requests_spread_by_client_in_blocks() {
    let from = |node| spread(Spread::Client, |s| s.apps[0].first_node = node);
    assert_eq!([0, 1, 2, 3].map(from), [(16, 0), (16, 0), (0, 16), (0, 16)]);
}

#[test]
fn requests_spread_by_file() {
    let of = |file| spread(Spread::File, |s| s.apps[0].files = file);
    let files: Vec<_> = (0..64).map(of).collect();
    assert!(files.iter().all(|requests| [(16, 0), (0, 16)].contains(requests)), "a file is at one forwarder");
    let first = files.iter().filter(|requests| requests.0 == 16).count();
    assert!((16..=48).contains(&first), "{first} of 64 files are at the first forwarder");
    let per_process = spread(Spread::File, |s| {
        s.apps[0].processes = 64;
        s.apps[0].workload.pattern =
            Pattern::Contiguous { sharing: Sharing::PerProcess, bytes: 65_536, request: 65_536 };
    });
    assert!((16..=48).contains(&per_process.0), "{per_process:?}");
}

#[test]
fn requests_spread_by_target() {
    let reading = |bytes| spread(Spread::Target, |s| s.apps = vec![app(1, 1, bytes, 65_536)]);
    assert_eq!([reading(65_536), reading(2 * 65_536), reading(16 * 65_536)], [(1, 0), (1, 1), (8, 8)]);
    let three_servers = spread(Spread::Target, |s| s.cluster.servers.nodes = 3);
    // Servers 0 and 2 belong to the first: stripes 0 and 2 of each three.
    assert_eq!(three_servers, (11, 5));
}

#[test]
fn twins_on_more_forwarders_than_servers() {
    let mut s = scenario(2, "unit:1", "fifo");
    s.cluster.clients.nodes = 5;
    s.cluster.forwarders = vec![layer("ion", 5, "twins", Spread::Client)];
    s.apps = (0..5)
        .map(|node| {
            let mut reader = app(node + 1, 1, 4 * 65_536, 65_536);
            reader.first_node = node;
            reader
        })
        .collect();
    assert_eq!(run(&s).layers[0].bytes, 20 * 65_536);
}

#[test]
fn requests_wait_outside_of_a_full_gate() {
    let mut s = scenario(1, "unit:100", "fifo");
    s.cluster.servers.gate.queue = 3;
    s.apps = vec![app(1, 10, 65_536, 65_536)];
    let (result, seen) = watch(&s);
    assert_eq!(result.layers[0].held_back, 7);
    assert_eq!(result.makespan, Span::from_micros(1_000));
    assert!(seen.served.iter().map(|served| served.offset).is_sorted(), "they come in in their order");
    // The first waits for nobody, the last for nine: outside, and then within.
    assert_eq!(result.layers[0].waiting_mean, Span::from_micros(450));
}

#[test]
fn dispatches_are_measured_by_what_has_left_and_distances_where_there_are_some() {
    let mut s = scenario(1, "unit:100", "fifo");
    s.time_max = Span::from_micros(350);
    s.apps = vec![app(1, 10, 1_000, 1_000)];
    let of = |s: &Scenario, name: &str| find(RUN, name).expect("a metric").of(&run(s));
    assert!(run(&s).cut_off);
    assert_eq!(of(&s, "dispatch_bytes"), Some(1_000.0), "four of ten have left");
    assert_eq!(of(&s, "offset_distance"), Some(0.0), "each goes on where the one before it has ended");
    s.time_max = Span::from_micros(50);
    assert_eq!(of(&s, "offset_distance"), None, "there is one dispatch");
}
