//! What goes wrong, on nodes that are there.

use iogate_core::nearest::nearest;

use crate::scenario::table::Table;
use crate::scenario::{Cluster, Fault, FaultKind, GlobalSpec};

/// Keys that only some kinds have.
const KEYS: [&str; 8] = ["from", "until", "server", "factor", "layer", "node", "extra", "ahead"];

pub(super) fn read(root: &Table<'_>, cluster: &Cluster, global: Option<&GlobalSpec>) -> Vec<Fault> {
    root.tables("fault").iter().filter_map(|(_, table)| fault(table, cluster, global)).collect()
}

/// How many gates have a policy together.
fn gates(global: Option<&GlobalSpec>, cluster: &Cluster) -> u32 {
    let Some(global) = global else { return 0 };
    let forwarders = cluster.forwarders.iter().map(|layer| layer.nodes);
    let mut layers = std::iter::once(cluster.clients.nodes).chain(forwarders).chain([cluster.servers.nodes]);
    layers.nth(global.layer as usize).unwrap_or(0)
}

fn fault(table: &Table<'_>, cluster: &Cluster, global: Option<&GlobalSpec>) -> Option<Fault> {
    let kind = table.choice("kind");
    if global.is_none() && ["lost-coordinator", "cut-gate"].contains(&kind) {
        table
            .unfit("kind", format!("a fault of kind {kind} without [global]: add that, or remove the fault"));
    }
    let uses: &[&str] = match kind {
        "slow-server" => &["from", "until", "server", "factor"],
        "stopped-server" => &["from", "until", "server"],
        "lost-client" => &["from", "node"],
        "delay" => &["from", "until", "extra"],
        "lost-coordinator" => &["from", "until"],
        "cut-gate" => &["from", "until", "node"],
        _ => &["layer", "node", "ahead"],
    };
    let others: Vec<_> = KEYS.into_iter().filter(|key| !uses.contains(key)).collect();
    table.refuse(&others, &format!("a fault of kind {kind}"));
    let server = || node(table, "server", cluster.servers.nodes, ("server", "servers"));
    let kind = match kind {
        "slow-server" => FaultKind::SlowServer { server: server(), factor: table.needed_float("factor") },
        "stopped-server" => FaultKind::StoppedServer { server: server() },
        "lost-client" => FaultKind::LostClient {
            node: node(table, "node", cluster.clients.nodes, ("client node", "client nodes")),
        },
        "delay" => FaultKind::Delay { extra: iogate_core::Span::from_nanos(table.needed("extra")) },
        "lost-coordinator" => FaultKind::LostCoordinator,
        "cut-gate" => FaultKind::CutGate {
            node: node(table, "node", gates(global, cluster), ("such gate", "such gates")),
        },
        _ => {
            let (layer, nodes) = layer(table, cluster)?;
            let node = node(table, "node", nodes, ("node in that layer", "nodes in that layer"));
            FaultKind::Skew { layer, node, ahead_ns: table.needed_signed("ahead") }
        }
    };
    let from = table.span("from");
    let until = table.optional("until").map(iogate_core::Span::from_nanos);
    if until.is_some_and(|until| until <= from) {
        let path = table.path_of("until");
        table.unfit("until", format!("{path} is not after its beginning ({from}): expected a later time"));
    }
    Some(Fault { from, until, kind })
}

fn node(table: &Table<'_>, key: &str, nodes: u32, (one, more): (&str, &str)) -> u32 {
    let node = table.needed_small(key);
    if table.has(key) && node >= nodes {
        let path = table.path_of(key);
        let text = match nodes {
            1 => format!("{path} = {node}: there is 1 {one}; expected 0"),
            _ => format!(
                "{path} = {node}: there are {nodes} {more}; expected 0 to {}",
                nodes.saturating_sub(1)
            ),
        };
        table.unfit(key, text);
    }
    node
}

/// The index of a layer and how many nodes it has.
fn layer(table: &Table<'_>, cluster: &Cluster) -> Option<(u32, u32)> {
    layer_named(table, "layer", cluster)
}

/// The index of the layer that a key names, and how many nodes it has.
pub(super) fn layer_named(table: &Table<'_>, key: &'static str, cluster: &Cluster) -> Option<(u32, u32)> {
    let name = table.needed_text(key);
    let forwarders = cluster.forwarders.iter().map(|layer| (layer.name.as_str(), layer.nodes));
    let mut layers = std::iter::once(("clients", cluster.clients.nodes))
        .chain(forwarders)
        .chain([("servers", cluster.servers.nodes)])
        .zip(0u32..);
    let names: Vec<_> = layers.clone().map(|((name, _), _)| name).collect();
    match layers.find(|((label, _), _)| *label == name) {
        Some(((_, nodes), index)) => Some((index, nodes)),
        None => {
            if table.has(key) {
                let near = nearest(&name, names.iter().copied());
                let near = near.map_or(String::new(), |near| format!("did you mean '{near}'? "));
                let path = table.path_of(key);
                let known = names.join(", ");
                table.unfit(key, format!("{path} = {name}: no such layer; {near}expected one of: {known}"));
            }
            None
        }
    }
}
