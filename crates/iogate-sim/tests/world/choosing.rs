//! Gates whose scheduler is chosen: when, why, and the same again.

use iogate_core::{Op, Span, Time};
use iogate_sim::result::{Chosen, RunResult};
use iogate_sim::scenario::{Fault, FaultKind, Forwarders, Pattern, ProcessorSpec, Scenario, Sharing, Spread};

use super::common::{app, gate, scenario};
use super::observe::run;

/// Two applications of four strided readers each, on two disks.
fn readers() -> Scenario {
    let mut s = scenario(2, "hdd", "fifo");
    s.cluster.servers.gate.depth = 4;
    let apps = [1, 2].map(|id| {
        let mut reader = app(id, 4, 0, 0);
        reader.workload.pattern = Pattern::Strided { bytes: 48 << 20, request: 64 << 10 };
        reader
    });
    s.apps = apps.to_vec();
    s
}

fn chosen(result: &RunResult) -> &[Chosen] {
    &result.layers.last().expect("servers").chosen
}

/// As in AGIOS: 8 processes read a file each, over the stripes of four servers, and wait for all of these. One server alone gains nothing
/// by a better order, as the clients wait for the others.
#[test]
fn servers_that_clients_wait_for_together_all_spare_their_disks() {
    let mut s = scenario(4, "pastel", "fifo");
    s.cluster.clients.nodes = 8;
    (s.cluster.servers.stripe, s.cluster.servers.transfer) = (32 << 10, 8 << 10);
    s.network.latency = Span::from_micros(50);
    s.network.jitter = Span::from_micros(100);
    s.network.bandwidth = Some(125_000_000);
    let mut reader = app(1, 8, 0, 0);
    reader.nodes = 8;
    reader.workload.pattern =
        Pattern::Contiguous { sharing: Sharing::PerProcess, bytes: 64 << 20, request: 16 << 10 };
    s.apps = vec![reader];
    let pinned = run(&s).makespan;
    s.cluster.servers.gate.auto = true;
    let result = run(&s);
    assert!(result.makespan.as_nanos() * 5 < pinned.as_nanos() * 2, "{} of {pinned}", result.makespan);
}

#[test]
fn a_better_scheduler_is_found_and_the_same_seed_finds_the_same() {
    let pinned = run(&readers());
    let layer = &pinned.layers[0];
    assert_eq!((layer.scheduler.as_str(), layer.changes, layer.chosen.len()), ("fifo", None, 0));

    let mut s = readers();
    s.cluster.servers.gate.auto = true;
    let result = run(&s);
    let layer = &result.layers[0];
    assert_eq!((layer.scheduler.as_str(), layer.changes), ("auto", Some(layer.chosen.len() as u64)));
    assert!(
        layer.chosen.iter().any(|chosen| chosen.node == 0)
            && layer.chosen.iter().any(|chosen| chosen.node == 1)
    );
    assert!(layer.chosen.is_sorted_by_key(|chosen| chosen.at) && layer.chosen[0].why.starts_with("fifo -> "));
    assert!(layer.chosen.iter().all(|chosen| chosen.at < Time::ZERO + result.makespan));
    assert!(
        result.makespan.as_nanos() * 2 < pinned.makespan.as_nanos(),
        "{} of {}",
        result.makespan,
        pinned.makespan
    );
    let again = run(&s);
    assert_eq!((chosen(&again), again.makespan), (chosen(&result), result.makespan));
}

#[test]
fn what_a_nodes_clock_shows_makes_no_difference() {
    let mut s = readers();
    s.cluster.servers.gate.auto = true;
    let right = run(&s);
    let skew = FaultKind::Skew { layer: 1, node: 1, ahead_ns: -3_000_000_000 };
    s.faults = vec![Fault { from: Span::ZERO, until: None, kind: skew }];
    let wrong = run(&s);
    assert_eq!((chosen(&wrong), wrong.makespan), (chosen(&right), right.makespan));
}

#[test]
fn behind_forwarders_prices_are_learnt() {
    let mut s = readers();
    s.cluster.servers.nodes = 1;
    s.cluster.forwarders = vec![Forwarders {
        name: "ion".into(),
        nodes: 2,
        gate: gate("fifo"),
        spread: Spread::Client,
        transfer: 1 << 20,
        processor: ProcessorSpec::default(),
        lists: None,
    }];
    s.cluster.forwarders[0].gate.auto = true;
    s.apps[1].workload.op = Op::Write;
    let result = run(&s);
    let names: Vec<_> =
        result.layers.iter().map(|layer| (layer.name.as_str(), layer.scheduler.as_str())).collect();
    assert_eq!(names, [("ion", "auto"), ("servers", "fifo")]);
    assert_eq!(result.layers[0].bytes, 8 * (48 << 20));
    assert_eq!(result.layers[0].changes, run(&s).layers[0].changes);
}
