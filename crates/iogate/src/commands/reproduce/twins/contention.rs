//! Losses in the network, and variants of the windows.

use iogate_report::Table;

use super::{GATE, JOINED, PATTERN, REQUEST, Results, TWINS, TWINS_8MS, name, spaced, time};
use crate::commands::reproduce::Experiment;
use crate::commands::reproduce::claims::{Cell, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::failure::Failure;

pub(super) fn congestion(results: &Results) -> Result<Figure<'_>, Failure> {
    let Results { contention, contention_direct, .. } = results;
    let mut tables = Vec::new();
    let mut sheet = Sheet::of("figure 5.5");
    for case in contention.values(PATTERN) {
        for request in contention.values(REQUEST) {
            let mut table = Table::new(["", "makespan", "segments lost", "time-outs"]);
            let at = [(PATTERN, case.as_str()), (REQUEST, request.as_str())];
            let metrics = ["makespan", "network_lost", "network_timeouts"];
            let cells = metrics.map(|metric| contention_direct.shown(&at, metric));
            table.row(std::iter::once("no forwarders".to_owned()).chain(cells));
            for gate in contention.values(GATE) {
                let [case, request] = at;
                let cells = metrics.map(|metric| contention.shown(&[case, request, (GATE, gate)], metric));
                table.row(std::iter::once(name(gate).to_owned()).chain(cells));
            }
            let lost = |gate| -> Result<Cell, Failure> {
                let [case, request] = at;
                // One more, so that none can be compared, too.
                Ok(contention.cell(&[case, request, (GATE, gate)], "network_lost")?.map(|lost| lost + 1.0))
            };
            let (joined, narrow, wide) = (lost(JOINED)?, lost(TWINS)?, lost(TWINS_8MS)?);
            let name = format!("{case}, reads of {}", spaced(request));
            sheet.lowest(format!("{name}: TWINS (1 ms) loses less than FIFO"), &narrow, [&joined]);
            sheet.lowest(format!("{name}: TWINS (8 ms) loses less than 1 ms"), &wide, [&narrow]);
            tables.push((name, table));
        }
    }
    Ok(Figure {
        title: "Figure 5.5: contention in the network".into(),
        results: vec![contention, contention_direct],
        setup: "The thesis: the servers' TCP congestion windows are larger with TWINS than with FIFO and TO, larger with 8 ms than with 1 ms \
                (a picture, strided reads of 32 KiB), and so there is less contention. Ours counts what makes these windows small: segments \
                that do not fit in the switch's buffer, and losses that only a time-out of 200 ms reveals. Strided reads of 1 GiB (a \
                quarter of the thesis's size), by the model of TCP in docs/simulator.md; 64 or 128 KiB of buffer for each port. `memory` \
                stands for servers that need 20 us for any request, so that the network is the bottleneck."
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
