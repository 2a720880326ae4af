//! Applications that are drawn for each seed.

use iogate_core::Span;

use super::app::sharing;
use crate::scenario::schema::{BYTES_MAX, PROCESSES_MAX};
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
    let jobs = Jobs {
        count: table.small("count"),
        nodes,
        processes_per_node: table.small("processes_per_node"),
        submit: spans("submit"),
        iterations: table.range("iterations"),
        compute_total: spans("compute_total"),
        bytes_total: table.range("bytes_total"),
        request: table.small("request"),
        sharing: sharing(table),
    };
    check(table, &jobs);
    jobs
}

/// That the largest jobs that can be drawn are not absurd.
fn check(table: &Table<'_>, jobs: &Jobs) {
    let processes = u128::from(jobs.nodes.1) * u128::from(jobs.processes_per_node);
    let all = processes * u128::from(jobs.count);
    if all > PROCESSES_MAX.into() {
        let text =
            format!("jobs may have {all} processes in all: expected at most {PROCESSES_MAX}; draw fewer");
        table.unfit("count", text);
    }
    // Each process writes whole calls.
    let rounding = processes * u128::from(jobs.iterations.1) * u128::from(jobs.request);
    if u128::from(jobs.bytes_total.1) + rounding > BYTES_MAX.into() {
        let text = "a job may write more than 2^62 bytes: draw fewer bytes, iterations or processes, or a shorter request";
        table.unfit("bytes_total", text.into());
    }
}
