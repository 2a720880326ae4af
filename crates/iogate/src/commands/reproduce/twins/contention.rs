//! Losses in the network, and variants of the windows.

use iogate_report::Table;

use super::{GATE, JOINED, PATTERN, REQUEST, Results, TWINS, TWINS_8MS, name, spaced, time};
use crate::commands::reproduce::claims::{Cell, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, Settings};
use crate::failure::Failure;

const METRICS: [&str; 3] = ["makespan", "network_lost", "network_timeouts"];
/// Where most runs lose nothing: the widths of windows are compared there by more seeds.
const MORE_SEEDS: (&str, &str) = ("disks", "32KiB");

/// How many segments are lost, and one more, so that none can be compared, too.
fn lost(results: &Experiment, settings: &Settings<'_>) -> Result<Cell, Failure> {
    Ok(results.cell(settings, "network_lost")?.map(|lost| lost + 1.0))
}

fn losses_table() -> Table {
    Table::new(["", "makespan", "segments lost", "time-outs"])
}

fn losses_row(table: &mut Table, who: &str, results: &Experiment, settings: &Settings<'_>) {
    let cells = METRICS.map(|metric| results.shown(settings, metric));
    table.row(std::iter::once(who.to_owned()).chain(cells));
}

pub(super) fn congestion(results: &Results) -> Result<Figure<'_>, Failure> {
    let Results { contention, contention_direct, contention_windows, .. } = results;
    let mut tables = Vec::new();
    let mut sheet = Sheet::of("figure 5.5");
    for case_name in contention.values(PATTERN) {
        for request_bytes in contention.values(REQUEST) {
            let mut table = losses_table();
            let [case, request] = [(PATTERN, case_name.as_str()), (REQUEST, request_bytes.as_str())];
            losses_row(&mut table, "no forwarders", contention_direct, &[case, request]);
            for gate in contention.values(GATE) {
                losses_row(&mut table, name(gate), contention, &[case, request, (GATE, gate)]);
            }
            let usual = |gate| lost(contention, &[case, request, (GATE, gate)]);
            let name = format!("{case_name}, reads of {}", spaced(request_bytes));
            let narrow = usual(TWINS)?;
            sheet.lowest(format!("{name}: TWINS (1 ms) loses less than FIFO"), &narrow, [&usual(JOINED)?]);
            let (narrow, wide) = if (case_name.as_str(), request_bytes.as_str()) == MORE_SEEDS {
                let more = |gate| lost(contention_windows, &[(GATE, gate)]);
                (more(TWINS)?, more(TWINS_8MS)?)
            } else {
                (narrow, usual(TWINS_8MS)?)
            };
            sheet.lowest(format!("{name}: TWINS (8 ms) loses less than 1 ms"), &wide, [&narrow]);
            tables.push((name, table));
        }
    }
    let mut table = losses_table();
    for gate in [TWINS, TWINS_8MS] {
        losses_row(&mut table, name(gate), contention_windows, &[(GATE, gate)]);
    }
    let (case, request) = MORE_SEEDS;
    tables.push((format!("{case}, reads of {}, by more seeds", spaced(request)), table));
    Ok(Figure {
        title: "Figure 5.5: contention in the network".into(),
        results: vec![contention, contention_direct, contention_windows],
        setup: "The thesis: the servers' TCP congestion windows are larger with TWINS than with FIFO and TO, larger with 8 ms than with 1 ms \
                (a picture, strided reads of 32 KiB), and so there is less contention. Ours counts what makes these windows small: segments \
                that do not fit in the switch's buffer, and losses that only a time-out of 200 ms reveals. Strided reads of 1 GiB (a \
                quarter of the thesis's size), by the model of TCP in docs/simulator.md; 64 or 128 KiB of buffer for each port. `memory` \
                stands for servers that need 20 us for any request, so that the network is the bottleneck. Where the thesis has its picture, \
                the two widths of windows are compared by more seeds; how many it takes was found with other seeds than are shown."
            .into(),
        sheet,
        tables,
        remarks: "With TWINS a forwarder hears one server at a time, so that several do not fill its port at once. TCP's window also grows with \
                  what is sent at a time, which TWINS makes larger in the thesis: larger windows need not mean less congestion."
            .into(),
        ..Figure::default()
    })
}

pub(super) fn variants(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut table =
        Table::new(["", "disks: makespan", "memory: makespan", "memory: segments lost", "time-outs"]);
    for (variant, called) in [
        ("clocks in step", "windows since the epoch (the default)"),
        ("from the first request", "windows since the gate's first request (the thesis's)"),
        ("clocks apart", "windows so far apart that all forwarders are at one server at a time"),
        ("eight forwarders", "eight forwarders, two at each server"),
        ("skip", "`idle = skip`: go on where the server's queue is empty"),
        ("split", "`split`: a request for several servers in pieces"),
        ("skip and split", "both"),
    ] {
        let (disks, memory) = (format!("disks: {variant}"), format!("memory: {variant}"));
        let memory = [(PATTERN, memory.as_str())];
        table.row([
            called.to_owned(),
            time(results, &[(PATTERN, &disks)]),
            time(results, &memory),
            results.shown(&memory, "network_lost"),
            results.shown(&memory, "network_timeouts"),
        ]);
    }
    Ok(Figure {
        title: "Beyond the thesis: variants of the windows".into(),
        results: vec![results],
        setup: "Not in the thesis. Strided reads of 1 GiB, four forwarders, windows of 1 ms: in requests of 32 KiB from disks, and in \
                requests of 256 KiB from memory with 64 KiB of buffer for each port."
            .into(),
        tables: vec![(String::new(), table)],
        remarks: "With `skip` a forwarder goes on to a server that another one is at. `split` matters only to requests of more than a stripe."
            .into(),
        ..Figure::default()
    })
}
