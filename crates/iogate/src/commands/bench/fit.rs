//! What of a scenario can be run on this machine: what cannot is refused, what is different here is said.

use anyhow::anyhow;
use iogate_core::Span;
use iogate_report::units;
use iogate_sim::scenario::{Network, Scenario};

use crate::failure::Failure;

/// The most data servers, each a gate with a mount.
pub(super) const SERVERS_MAX: u32 = 16;
/// The most processes of all applications.
pub(super) const PROCESSES_MAX: u64 = 256;
/// The longest request that the kernel passes to a mount whole.
const TRANSFER_MAX: u32 = 1 << 20;

/// Refuses what one machine cannot do: the key, and what to change.
pub(super) fn check(scenario: &Scenario) -> Result<(), Failure> {
    let refuse = |what: String, hint: &str| Err(Failure::usage(anyhow!("{what}")).hint(hint));
    let cluster = &scenario.cluster;
    if cluster.clients.gate.is_some() {
        return refuse(
            "clients.gate: a real run has gates on its servers only".into(),
            "leave clients.gate out, or use `iogate sim`",
        );
    }
    if let Some(layer) = cluster.forwarders.first() {
        return refuse(
            format!(
                "forwarders.{}: a real run has no forwarders, its processes go to the servers",
                layer.name
            ),
            "leave forwarders out and set clients.to=servers, or use `iogate sim`",
        );
    }
    if cluster.servers.nodes > SERVERS_MAX {
        return refuse(
            format!(
                "servers.nodes: expected at most {SERVERS_MAX} on one machine, found {}",
                cluster.servers.nodes
            ),
            "--set servers.nodes=4",
        );
    }
    if scenario.batch.is_some() {
        return refuse(
            "batch: a real run has no nodes to give away, each application starts at its time".into(),
            "leave batch out, or use `iogate sim`",
        );
    }
    if !scenario.faults.is_empty() {
        return refuse(
            "fault: nothing goes wrong on purpose in a real run".into(),
            "leave the faults out, or use `iogate sim`",
        );
    }
    Ok(())
}

/// Refuses more processes than one machine runs well.
pub(super) fn check_processes(processes: u64) -> Result<(), Failure> {
    if processes <= PROCESSES_MAX {
        return Ok(());
    }
    let error = anyhow!(
        "app.processes: expected at most {PROCESSES_MAX} processes of all applications on one machine, found {processes}"
    );
    Err(Failure::usage(error).hint("--set app.NAME.processes=8"))
}

/// The scenario as it is here, for the simulator too: without a network, and with requests that the kernel does not cut.
pub(super) fn adapt(scenario: &mut Scenario) {
    scenario.network = Network {
        latency: Span::ZERO,
        jitter: Span::ZERO,
        bandwidth: None,
        buffer: None,
        ..scenario.network
    };
    scenario.cluster.servers.overhead = Span::ZERO;
    let transfer = &mut scenario.cluster.servers.transfer;
    *transfer = TRANSFER_MAX.min(*transfer);
}

/// Gives the simulation the way that requests have in reality: half of `path` there, half back. It is drawn from half as
/// long to one and a half times as long, for without a difference simulated processes keep step as real ones never do.
pub(super) fn add_path(scenario: &mut Scenario, path: Span) {
    // Each process on a node of its own: what goes from node to node stays in order.
    let mut node = 0;
    for app in &mut scenario.apps {
        (app.first_node, app.nodes) = (node, app.processes);
        node += app.processes;
    }
    let nodes = &mut scenario.cluster.clients.nodes;
    *nodes = node.max(*nodes);
    let quarter = path.as_nanos() / 4;
    scenario.network.latency = Span::from_nanos(quarter);
    scenario.network.jitter = Span::from_nanos(2 * quarter);
}

/// What is different here, a sentence each.
pub(super) fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = Vec::new();
    let Network { latency, jitter, bandwidth, buffer, .. } = scenario.network;
    if (latency, jitter, bandwidth, buffer) != (Span::ZERO, Span::ZERO, None, None) {
        notes.push("The scenario's network is left out: everything is on one machine.".into());
    }
    if scenario.cluster.servers.overhead != Span::ZERO {
        notes.push("servers.overhead is left out: real gates take their own time.".into());
    }
    if scenario.cluster.servers.transfer > TRANSFER_MAX {
        let (most, found) = (f64::from(TRANSFER_MAX), f64::from(scenario.cluster.servers.transfer));
        notes.push(format!(
            "servers.transfer is {} instead of {}, in the simulation too: the kernel passes no longer requests.",
            units::bytes(most),
            units::bytes(found)
        ));
    }
    notes
}
