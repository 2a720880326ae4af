//! One policy over all gates of a layer.

use iogate_core::Span;

use super::fault::layer_named;
use crate::scenario::table::Table;
use crate::scenario::{Cluster, GlobalSpec};

pub(super) fn read(root: &Table<'_>, cluster: &Cluster) -> Option<GlobalSpec> {
    let table = root.table("global")?;
    let (layer, _) = layer_named(&table, "gates", cluster)?;
    let gate = match layer as usize {
        0 => cluster.clients.gate.as_ref(),
        layer => Some(cluster.forwarders.get(layer - 1).map_or(&cluster.servers.gate, |layer| &layer.gate)),
    };
    if !gate.is_some_and(|gate| gate.fair) {
        let name = table.text("gates");
        table.unfit(
            "gates",
            format!("global.gates = {name}: expected gates that are fair; set {name}.gate.fair"),
        );
    }
    let (lease, every): (Span, Span) = (table.span("lease"), table.span("report"));
    if every.as_nanos() > lease.as_nanos() / 3 {
        let text = format!("global.report = {every}: expected at most a third of the lease ({lease})");
        table.unfit("report", text);
    }
    Some(GlobalSpec {
        layer,
        total: table.optional("total").and_then(|total| total.try_into().ok()),
        lease,
        every,
        skew: table.span("skew"),
        absent: table.span("absent"),
    })
}
