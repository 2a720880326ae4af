//! Widths of windows, and numbers of forwarders.

use iogate_report::Table;
use iogate_report::html::lines::lines;
use iogate_report::reproduction::Section;
use iogate_sim::metrics::Unit;

use super::{CONTIGUOUS, GATE, OP, PATTERN, PER_PROCESS, REQUEST, STRIDED, name, spaced, time};
use crate::commands::reproduce::{Experiment, Lab};
use crate::failure::Failure;

const WINDOW: &str = "forwarders.ion.gate.window";
const NODES: &str = "forwarders.ion.nodes";
const PATTERNS: [&str; 3] = [PER_PROCESS, STRIDED, CONTIGUOUS];

pub(super) fn sections(lab: &Lab<'_>, direct: &Experiment) -> Result<Vec<Section>, Failure> {
    Ok(vec![
        windows(
            lab,
            "twins-server-windows",
            "Figures 4.3 and 4.4: the width of server-window's window",
            "The thesis: from 1 to 16 s the width makes no difference.",
            "Agrees: but for small writes of a file per process, which gain 8 % from 1 to 16 s, no width differs significantly from \
             another. Strided requests of 32 KiB have wide intervals: in some seeds the processes keep in step.",
        )?,
        windows(
            lab,
            "twins-windows",
            "Figures 5.3 and 5.4: the width of twins's window",
            "The thesis: 8 ms is best for strided reads of 32 KiB, 1 ms for other reads of shared files. For writes no width gains, \
             and only too large a one (to 32 ms) costs, on shared files.",
            "Agrees: the best width depends on the pattern. For strided reads of 32 KiB wide windows are best (in ours the wider the \
             better, 32 ms more so than the thesis's 8), for strided reads of 256 KiB those up to 1 ms; a file per process and \
             contiguous processes depend little on it; and large strided writes are as without windows up to 4 ms and suffer beyond. \
             The reason in ours: within a wide window a disk serves one forwarder's processes, one front instead of four (25,000 \
             seeks with 1 ms, 2,400 with 32 ms); large requests have several servers anyway, and only wait.",
        )?,
        forwarders(lab, direct)?,
    ])
}

fn windows(
    lab: &Lab<'_>,
    scenario: &str,
    title: &str,
    paper: &str,
    verdict: &str,
) -> Result<Section, Failure> {
    let results = lab.experiment(scenario)?;
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    for op in results.values(OP) {
        for request in results.values(REQUEST) {
            let mut table = Table::new(std::iter::once("window").chain(PATTERNS));
            for window in results.values(WINDOW) {
                let at =
                    |pattern| [(OP, op.as_str()), (REQUEST, request), (PATTERN, pattern), (WINDOW, window)];
                let cells = PATTERNS.map(|pattern| time(&results, &at(pattern)));
                table.row(std::iter::once(window.clone()).chain(cells));
            }
            tables.push((format!("{op}s of {}", spaced(request)), table));
            if request == "32KiB" {
                let line = |pattern| {
                    let at = [(OP, op.as_str()), (REQUEST, request), (PATTERN, pattern)];
                    results.series(pattern, WINDOW, &at, "makespan")
                };
                let series = PATTERNS.map(line).into();
                let title = format!("Makespan by the width of the window, {op}s of {}", spaced(request));
                let picture = results.lines(&title, WINDOW, "window", Unit::Seconds, series);
                pictures.push((title, lines(&picture)));
            }
        }
    }
    Ok(Section {
        title: title.into(),
        scenarios: vec![scenario.into()],
        paper: paper.into(),
        tables,
        pictures,
        verdict: verdict.into(),
    })
}

fn forwarders(lab: &Lab<'_>, direct: &Experiment) -> Result<Section, Failure> {
    let results = lab.experiment("twins-forwarders")?;
    let mut tables = Vec::new();
    for pattern in PATTERNS {
        let counts = results.values(NODES);
        let head =
            std::iter::once("".to_owned()).chain(counts.iter().map(|count| format!("forwarders: {count}")));
        let mut table = Table::new(head);
        for gate in results.values(GATE) {
            let cells = counts
                .iter()
                .map(|count| time(&results, &[(PATTERN, pattern), (GATE, gate), (NODES, count)]));
            table.row(std::iter::once(name(gate).to_owned()).chain(cells));
        }
        let none = time(direct, &[(OP, "read"), (REQUEST, "32KiB"), (PATTERN, pattern)]);
        tables.push((format!("{pattern}, reads of 32 KiB; without forwarders {none}"), table));
    }
    Ok(Section {
        title: "Figures 5.7 to 5.9: how many forwarders".into(),
        scenarios: ["twins-forwarders", "twins-direct"].map(String::from).into(),
        paper: "The thesis: the number of forwarders changes much, most with a file per process. With one forwarder for the 32 \
                clients FIFO and HBRR are the best schedulers; with four TWINS is, with a window above 1 ms for strided reads; with \
                eight it is with 125 us there."
            .into(),
        tables,
        pictures: Vec::new(),
        verdict: "Agrees: with one forwarder HBRR and `fifo` are the best, and TWINS costs most (up to twice the time, more with \
                  wider windows): one forwarder that serves one server at a time leaves three idle. With four, TWINS of 8 ms is \
                  better than FIFO, HBRR and SJF for strided and, by a few percent, for other reads; with eight its narrowest window \
                  is the best of its, and level with the best of all. A single forwarder makes reads of a file per process faster \
                  than none (116 against 136 s), which in the thesis any number does. Differs: joining (`to-agg`) harms strided \
                  reads with one forwarder, too; with eight each has as many dispatches as processes, so that all but MLF and TWINS \
                  do the same."
            .into(),
    })
}
