//! What of a scenario can be run on this machine: what cannot is refused, what is different here is said.

use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_core::Span;
use iogate_report::units;
use iogate_sim::scenario::{Network, ProcessorSpec, Scenario, Spread};

use crate::cli::{BenchStore, BenchWay};
use crate::failure::Failure;

/// The most data servers, each a gate with a mount or a process.
pub(super) const SERVERS_MAX: u32 = 16;
/// The most forwarders, each a process.
pub(super) const FORWARDERS_MAX: u32 = 16;
/// Of the free space, what a run may fill at most, in percent.
const SPACE_PERCENT: u64 = 80;
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
    let clients = &cluster.clients;
    if clients.cache.is_some() || clients.slots.is_some() || cluster.servers.cache.is_some() {
        return refuse(
            "cache, slots: a real run has the caches of its machine".into(),
            "leave clients.cache, clients.slots and servers.cache out, or use `iogate sim`",
        );
    }
    if cluster.servers.elevator.is_some() || cluster.forwarders.iter().any(|layer| layer.lists.is_some()) {
        return refuse(
            "elevator, batch: a real run has neither behind its gates".into(),
            "leave servers.elevator and the forwarders' batch out, or use `iogate sim`",
        );
    }
    if cluster.servers.gate.fair || cluster.forwarders.iter().any(|layer| layer.gate.fair) {
        return refuse(
            "fair: gates of a real run have no policy".into(),
            "leave fair, weight, min, max and groups out, or use `iogate sim`",
        );
    }
    if let Some(layer) = cluster.forwarders.get(1) {
        return refuse(
            format!("forwarders.{}: a real run has one layer of forwarders", layer.name),
            "leave all but one out, or use `iogate sim`",
        );
    }
    if let Some(layer) = cluster.forwarders.first() {
        let name = &layer.name;
        if layer.spread != Spread::Client {
            return refuse(
                format!(
                    "forwarders.{name}.spread: in a real run a process has one forwarder, by its client node"
                ),
                &format!("--set forwarders.{name}.spread=client"),
            );
        }
        if layer.nodes > FORWARDERS_MAX {
            return refuse(
                format!(
                    "forwarders.{name}.nodes: expected at most {FORWARDERS_MAX} on one machine, found {}",
                    layer.nodes
                ),
                &format!("--set forwarders.{name}.nodes=4"),
            );
        }
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
    if scenario.batch.is_some() && !cluster.forwarders.is_empty() {
        return refuse(
            "batch: processes find their forwarder by their node, which they would not know before they start".into(),
            "leave out batch or the forwarders, or use `iogate sim`",
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

/// How the processes of a scenario reach the servers, and whether that goes with the store.
pub(super) fn way(
    scenario: &Scenario,
    chosen: Option<BenchWay>,
    store: BenchStore,
) -> Result<BenchWay, Failure> {
    let forwarders = !scenario.cluster.forwarders.is_empty();
    let way = match chosen {
        Some(way) => way,
        None if forwarders => BenchWay::Network,
        None => BenchWay::Mount,
    };
    let refuse = |what: String, hint: &str| Err(Failure::usage(anyhow!("{what}")).hint(hint));
    if way != BenchWay::Network && forwarders {
        let name = if way == BenchWay::Mount { "mount" } else { "nfs" };
        let what = format!("--through {name}: forwarders are reached through the network only");
        return refuse(what, "leave --through out, or leave forwarders out and set clients.to=servers");
    }
    if scenario.coordination.backoff.is_some()
        && (way != BenchWay::Mount || scenario.cluster.servers.nodes > 1)
    {
        return refuse(
            "coordination.mechanism: what is probed in a real run is the mount of a single server".into(),
            "--set coordination.mechanism=lock, or --set servers.nodes=1 and --through mount",
        );
    }
    if way != BenchWay::Mount && store == BenchStore::Directory {
        return refuse("--store directory: goes with --through mount only".into(), "--store modelled");
    }
    let device = &scenario.cluster.servers.device;
    if way != BenchWay::Mount && store == BenchStore::Modelled && device.starts_with("exponential:") {
        let what = format!("servers.device = \"{device}\": server processes have no device of random speed");
        return refuse(what, "--set servers.device=hdd, or --through mount");
    }
    Ok(way)
}

/// Refuses a run that would fill the file system of a folder.
pub(super) fn check_space(needed: u64, folder: &Path) -> Result<(), Failure> {
    let space = rustix::fs::statvfs(folder).context("the free space of the folder")?;
    let free = space.f_bavail.saturating_mul(space.f_frsize) / 100 * SPACE_PERCENT;
    if needed <= free {
        return Ok(());
    }
    let bytes = |bytes: u64| units::bytes(bytes as f64);
    let error = anyhow!(
        "the run needs {} in {}, and {} of the free space may be used",
        bytes(needed),
        folder.display(),
        bytes(free)
    );
    Err(Failure::usage(error)
        .hint("let the applications access fewer bytes, or name a larger file system with --dir"))
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
    scenario.cluster.servers.processor = ProcessorSpec::default();
    let transfer = &mut scenario.cluster.servers.transfer;
    *transfer = TRANSFER_MAX.min(*transfer);
    for layer in &mut scenario.cluster.forwarders {
        layer.processor = ProcessorSpec::default();
        layer.transfer = TRANSFER_MAX.min(layer.transfer);
    }
}

/// Gives the simulation the way that requests have in reality: half of `path` there, half back, in equal parts between the
/// layers. It is drawn from half as long to one and a half times as long, for without a difference simulated processes keep
/// step as real ones never do.
pub(super) fn add_path(scenario: &mut Scenario, path: Span) {
    let forwarders = scenario.cluster.forwarders.len() as u64;
    if forwarders == 0 && scenario.batch.is_none() {
        // Each process on a node of its own: what goes from node to node stays in order. With forwarders its node also
        // says which one it has, and a batch scheduler gives nodes to applications as it has them.
        let mut node = 0;
        for app in &mut scenario.apps {
            (app.first_node, app.nodes) = (node, app.processes);
            node += app.processes;
        }
        let nodes = &mut scenario.cluster.clients.nodes;
        *nodes = node.max(*nodes);
    }
    let half_message = path.as_nanos() / (4 * (1 + forwarders));
    scenario.network.latency = Span::from_nanos(half_message);
    scenario.network.jitter = Span::from_nanos(2 * half_message);
}

/// What is different here, a sentence each.
pub(super) fn notes(scenario: &Scenario) -> Vec<String> {
    let mut notes = Vec::new();
    let Network { latency, jitter, bandwidth, buffer, .. } = scenario.network;
    if (latency, jitter, bandwidth, buffer) != (Span::ZERO, Span::ZERO, None, None) {
        notes.push("The scenario's network is left out: everything is on one machine.".into());
    }
    let processors = scenario.cluster.forwarders.iter().map(|layer| layer.processor);
    if processors.chain([scenario.cluster.servers.processor]).any(|spec| spec != ProcessorSpec::default()) {
        notes.push("overhead and processor are left out: real gates take their own time.".into());
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
