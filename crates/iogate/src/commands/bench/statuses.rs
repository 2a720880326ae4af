//! From what servers say of themselves to the measures of a run.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use iogate_core::stats::summary::{Distribution, OpSummary};
use iogate_core::{Span, Time, WaitReason};
use iogate_net::server::{GateStatus, Status};
use iogate_sim::metrics::SERVERS;
use iogate_sim::result::{LayerResult, ServerResult};

use super::collect::{Clock, Measures, note_choices};
use super::launcher::Outcome;
use crate::commands::cluster::config::Role;

/// What one node says.
pub(super) struct NodeStatus {
    scheduler: String,
    gate: GateStatus,
}

impl NodeStatus {
    /// Of the gate that data goes through: the first export's.
    pub(super) fn of(status: Status, role: Role) -> Result<NodeStatus> {
        let what = if role == Role::Server { "data server" } else { "forwarder" };
        let export =
            status.exports.into_iter().next().with_context(|| format!("a {what} without an export"))?;
        Ok(NodeStatus { scheduler: export.scheduler, gate: export.gate })
    }

    fn ops(&self) -> [&OpSummary; 2] {
        [&self.gate.summary.read, &self.gate.summary.write]
    }
}

/// What was measured at all nodes.
pub(super) fn of_nodes(
    outcome: &Outcome,
    layer: Option<&str>,
    forwarders: &[NodeStatus],
    servers: &[NodeStatus],
) -> Measures {
    let clock = Clock::new(outcome);
    let of = |name: &str, nodes: &[NodeStatus]| layer_result(name, nodes, clock.end);
    let layers = [layer.and_then(|name| of(name, forwarders)), of(SERVERS, servers)];
    let finish = |node: &NodeStatus| -> BTreeMap<u32, Time> {
        node.gate.last_served.iter().map(|&(app, unix)| (app, clock.at_unix(unix))).collect()
    };
    let finish: Vec<_> = servers.iter().map(finish).collect();
    let server = |(node, finish): (&NodeStatus, &BTreeMap<u32, Time>)| {
        let gate = &node.gate.summary;
        ServerResult {
            busy: Span::from_nanos(node.gate.devices.iter().map(|device| device.busy_ns).sum()),
            repositions: node.gate.devices.iter().map(|device| device.repositions).sum(),
            requests: gate.requests(),
            dispatches: gate.dispatches(),
            bytes: gate.bytes(),
            finish: finish.values().copied().max().unwrap_or(Time::ZERO),
        }
    };
    Measures {
        layers: layers.into_iter().flatten().collect(),
        servers: servers.iter().zip(&finish).map(server).collect(),
        path: path_time(outcome, forwarders, servers),
        dispatches: Vec::new(),
        finish,
    }
}

fn layer_result(name: &str, nodes: &[NodeStatus], now: Time) -> Option<LayerResult> {
    let first = nodes.first()?;
    let gates = || nodes.iter().map(|node| &node.gate.summary);
    let waits = WaitReason::ALL.into_iter().map(|reason| {
        let of = || gates().flat_map(|gate| &gate.waits).filter(move |wait| wait.name == reason.name());
        let total = of().map(|wait| wait.total_ns).sum();
        (reason, of().map(|wait| wait.count).sum(), Span::from_nanos(total))
    });
    let mut layer = LayerResult {
        name: name.into(),
        scheduler: first.scheduler.clone(),
        requests: gates().map(|gate| gate.requests()).sum(),
        bytes: gates().map(|gate| gate.bytes()).sum(),
        dispatches: gates().map(|gate| gate.dispatches()).sum(),
        dispatched: sum(nodes, |op| &op.dispatch_bytes).1.round() as u64,
        offset_distance_mean: mean(nodes, |op| &op.offset_distance_bytes),
        waiting_mean: Span::from_nanos(mean(nodes, |op| &op.waiting_ns).unwrap_or_default() as u64),
        waits: waits.collect(),
        held_back: gates().map(|gate| gate.rejected_full).sum(),
        lists: 0,
        list_bytes: 0,
        skewed: gates().map(|gate| gate.skewed).sum(),
        // Its histograms are not in a status.
        first_gate: Box::default(),
        changes: None,
        chosen: Vec::new(),
    };
    note_choices(&mut layer, nodes.iter().map(|node| node.gate.summary.choice.as_ref()), now);
    Some(layer)
}

/// How many values there are at all nodes, and their sum.
fn sum(nodes: &[NodeStatus], of: impl Fn(&OpSummary) -> &Distribution) -> (u64, f64) {
    let values = nodes.iter().flat_map(NodeStatus::ops).map(of);
    values.fold((0, 0.0), |(count, sum), of| (count + of.count, sum + of.mean * of.count as f64))
}

/// The mean over all values at all nodes, if there are some.
fn mean(nodes: &[NodeStatus], of: impl Fn(&OpSummary) -> &Distribution) -> Option<f64> {
    let (count, sum) = sum(nodes, of);
    (count > 0).then(|| sum / count as f64)
}

/// What a request spent outside of gates and devices: from the means of all. Of a request that a forwarder sends to several
/// servers, one of them counts.
fn path_time(outcome: &Outcome, forwarders: &[NodeStatus], servers: &[NodeStatus]) -> Span {
    let tallies = || outcome.processes.iter().flatten().map(|measured| &measured.tally);
    let requests: u64 = tallies().map(|tally| tally.requests).sum();
    let total: u64 = tallies().map(|tally| tally.request_time_ns).sum();
    let mean = |nodes, of: fn(&OpSummary) -> &Distribution| mean(nodes, of).unwrap_or_default();
    let waited = mean(forwarders, |op| &op.waiting_ns) + mean(servers, |op| &op.waiting_ns);
    let served = mean(servers, |op| &op.service_ns);
    let path = total as f64 / requests.max(1) as f64 - waited - served;
    Span::from_nanos(path.max(0.0) as u64)
}
