//! Applications that are drawn for each seed.

use iogate_core::Span;

use super::app::sharing;
use crate::scenario::table::Table;
use crate::scenario::{Cluster, Jobs};

pub(super) fn read(table: &Table<'_>, cluster: &Cluster) -> Jobs {
    let spans = |key| {
        let (low, high) = table.range(key);
        (Span::from_nanos(low), Span::from_nanos(high))
    };
    let nodes = table.range("nodes");
    if nodes.1 > u64::from(cluster.clients.nodes) {
        let (most, there) = (nodes.1, cluster.clients.nodes);
        table
            .unfit("nodes", format!("jobs.nodes: a job of {most} nodes, but there are {there} client nodes"));
    }
    Jobs {
        count: table.small("count"),
        nodes,
        processes_per_node: table.small("processes_per_node"),
        submit: spans("submit"),
        iterations: table.range("iterations"),
        compute_total: spans("compute_total"),
        bytes_total: table.range("bytes_total"),
        request: table.small("request"),
        sharing: sharing(table),
    }
}
