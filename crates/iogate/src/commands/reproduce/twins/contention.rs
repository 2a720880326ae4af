//! Losses in the network, and variants of the windows.

use iogate_report::Table;
use iogate_report::reproduction::Section;

use super::{GATE, PATTERN, REQUEST, name, spaced, time};
use crate::commands::reproduce::Lab;
use crate::failure::Failure;

pub(super) fn congestion(lab: &Lab<'_>) -> Result<Section, Failure> {
    let results = lab.experiment("twins-contention")?;
    let direct = lab.experiment("twins-contention-direct")?;
    let mut tables = Vec::new();
    for case in results.values(PATTERN) {
        for request in results.values(REQUEST) {
            let mut table = Table::new(["", "makespan", "segments lost", "time-outs"]);
            let at = [(PATTERN, case.as_str()), (REQUEST, request.as_str())];
            let metrics = ["makespan", "network_lost", "network_timeouts"];
            let cells = metrics.map(|metric| direct.shown(&at, metric));
            table.row(std::iter::once("no forwarders".to_owned()).chain(cells));
            for gate in results.values(GATE) {
                let [case, request] = at;
                let cells = metrics.map(|metric| results.shown(&[case, request, (GATE, gate)], metric));
                table.row(std::iter::once(name(gate).to_owned()).chain(cells));
            }
            tables.push((format!("{case}, reads of {}", spaced(request)), table));
        }
    }
    Ok(Section {
        title: "Figure 5.5: contention in the network".into(),
        scenarios: ["twins-contention", "twins-contention-direct"].map(String::from).into(),
        paper: "The thesis: the servers' TCP congestion windows are larger with TWINS than with FIFO and TO, larger with 8 ms than \
                with 1 ms (a picture, strided reads of 32 KiB), and so there is less contention. Ours counts what makes these \
                windows small: segments that do not fit in the switch's buffer, and losses that only a time-out of 200 ms reveals. \
                Strided reads of 1 GiB (a quarter of the thesis's size), by the model of TCP in docs/simulator.md; 64 or 128 KiB of \
                buffer for each port. `memory` stands for servers that need 20 us for any request, so that the network is the \
                bottleneck."
            .into(),
        tables,
        pictures: Vec::new(),
        verdict: "Agrees where the network is the bottleneck: with TWINS a forwarder hears one server at a time, so that four no \
                  longer fill its port at once. For strided reads of 32 KiB losses and time-outs have the order of the thesis's \
                  windows: many with FIFO and TO, fewer with TWINS of 1 ms, fewest with 8 ms. With 256 KiB, where each request asks \
                  all four servers at once, TWINS of 1 ms halves the time-outs all the same, and `split`, which sends each piece in \
                  its own server's window, saves another third to half, and half of FIFO's time. The times follow, but most of their \
                  intervals overlap: a run has few time-outs, and each is 200 ms. Differs with disks, which is the thesis's case: \
                  four of them give at most 1 GB/s, less than one port's 1.25 GB/s; small reads lose next to nothing whatever the \
                  scheduler, and the gain of TWINS comes from the disks. TCP's window also grows with what is sent at a time, which \
                  TWINS makes larger in the thesis: larger windows need not mean less congestion. Without forwarders times are the \
                  shortest: a client's port has to take the answers of four processes only."
            .into(),
    })
}

pub(super) fn variants(lab: &Lab<'_>) -> Result<Section, Failure> {
    let results = lab.experiment("twins-variants")?;
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
            time(&results, &[(PATTERN, &disks)]),
            time(&results, &memory),
            results.shown(&memory, "network_lost"),
            results.shown(&memory, "network_timeouts"),
        ]);
    }
    Ok(Section {
        title: "Beyond the thesis: variants of the windows".into(),
        scenarios: vec!["twins-variants".into()],
        paper: "Not in the thesis. Strided reads of 1 GiB, four forwarders, windows of 1 ms: in requests of 32 KiB from disks, and \
                in requests of 256 KiB from memory with 64 KiB of buffer for each port."
            .into(),
        tables: vec![(String::new(), table)],
        pictures: Vec::new(),
        verdict: "Whether windows agree matters less than expected. From disks windows since the epoch are no faster than the \
                  thesis's or than windows so far apart that all forwarders are at one server at a time; on the fast network they \
                  save time-outs (19 against 28 and 25), but the times do not differ significantly. More forwarders than servers \
                  help in both: each has 16 processes and 16 dispatches, so that hardly anything waits for more than its window. \
                  `skip` makes requests wait less, but on the fast network it is as if there were no windows: a forwarder goes on to \
                  a server that another one is at. `split` matters only to requests of more than a stripe, and saves the most time \
                  there."
            .into(),
    })
}
