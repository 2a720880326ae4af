//! What goes wrong, on nodes that are there.

use iogate_core::nearest::nearest;

use crate::scenario::table::Table;
use crate::scenario::{Cluster, Fault, FaultKind};

/// Keys that only some kinds have.
const KEYS: [&str; 8] = ["from", "until", "server", "factor", "layer", "node", "extra", "ahead"];

pub(super) fn read(root: &Table<'_>, cluster: &Cluster) -> Vec<Fault> {
    root.tables("fault").iter().filter_map(|(_, table)| fault(table, cluster)).collect()
}

fn fault(table: &Table<'_>, cluster: &Cluster) -> Option<Fault> {
    let kind = table.choice("kind");
    let uses: &[&str] = match kind {
        "slow-server" => &["from", "until", "server", "factor"],
        "stopped-server" => &["from", "until", "server"],
        "lost-client" => &["from", "node"],
        "delay" => &["from", "until", "extra"],
        _ => &["layer", "node", "ahead"],
    };
    let others: Vec<_> = KEYS.into_iter().filter(|key| !uses.contains(key)).collect();
    table.refuse(&others, &format!("a fault of kind {kind}"));
    let server = || node(table, "server", cluster.servers.nodes, "servers");
    let kind = match kind {
        "slow-server" => FaultKind::SlowServer { server: server(), factor: table.needed_float("factor") },
        "stopped-server" => FaultKind::StoppedServer { server: server() },
        "lost-client" => {
            FaultKind::LostClient { node: node(table, "node", cluster.clients.nodes, "client nodes") }
        }
        "delay" => FaultKind::Delay { extra: iogate_core::Span::from_nanos(table.needed("extra")) },
        _ => {
            let (layer, nodes) = layer(table, cluster)?;
            let node = node(table, "node", nodes, "nodes in that layer");
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

fn node(table: &Table<'_>, key: &str, nodes: u32, what: &str) -> u32 {
    let node = table.needed_small(key);
    if table.has(key) && node >= nodes {
        let (path, last) = (table.path_of(key), nodes.saturating_sub(1));
        table.unfit(key, format!("{path} = {node}: there are {nodes} {what}; expected 0 to {last}"));
    }
    node
}

/// The index of a layer and how many nodes it has.
fn layer(table: &Table<'_>, cluster: &Cluster) -> Option<(u32, u32)> {
    let name = table.needed_text("layer");
    let forwarders = cluster.forwarders.iter().map(|layer| (layer.name.as_str(), layer.nodes));
    let mut layers = std::iter::once(("clients", cluster.clients.nodes))
        .chain(forwarders)
        .chain([("servers", cluster.servers.nodes)])
        .zip(0u32..);
    let names: Vec<_> = layers.clone().map(|((name, _), _)| name).collect();
    match layers.find(|((label, _), _)| *label == name) {
        Some(((_, nodes), index)) => Some((index, nodes)),
        None => {
            if table.has("layer") {
                let near = nearest(&name, names.iter().copied());
                let near = near.map_or(String::new(), |near| format!("did you mean '{near}'? "));
                let path = table.path_of("layer");
                let known = names.join(", ");
                table.unfit(
                    "layer",
                    format!("{path} = {name}: no such layer; {near}expected one of: {known}"),
                );
            }
            None
        }
    }
}
