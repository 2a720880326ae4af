//! Widths of windows, and numbers of forwarders.

use iogate_report::Table;
use iogate_report::claims::Verdict;
use iogate_report::html::lines::lines;
use iogate_sim::metrics::Unit;

use super::{
    CONTIGUOUS, GATE, HBRR, JOINED, OP, PATTERN, PER_PROCESS, REQUEST, Results, STRIDED, TWINS, TWINS_8MS,
    name, spaced, time,
};
use crate::commands::reproduce::Experiment;
use crate::commands::reproduce::claims::{Cell, Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::failure::Failure;

const WINDOW: &str = "forwarders.ion.gate.window";
const NODES: &str = "forwarders.ion.nodes";
const PATTERNS: [&str; 3] = [PER_PROCESS, STRIDED, CONTIGUOUS];
/// From where on a difference is one.
const DIFFERENT: f64 = 1.1;
const POINTS: f64 = 10.0;

pub(super) fn figures(results: &Results) -> Result<Vec<Figure<'_>>, Failure> {
    Ok(vec![server_windows(&results.server_windows)?, windows(&results.windows)?, forwarders(results)?])
}

fn of(results: &Experiment, op: &str, request: &str, pattern: &str, window: &str) -> Result<Cell, Failure> {
    results.cell(&[(OP, op), (REQUEST, request), (PATTERN, pattern), (WINDOW, window)], "makespan")
}

fn server_windows(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("figures 4.3 and 4.4");
    for op in results.values(OP) {
        let mut alike = Vec::new();
        for (request, pattern) in
            results.values(REQUEST).iter().flat_map(|request| PATTERNS.map(|pattern| (request, pattern)))
        {
            for window in results.values(WINDOW).iter().skip(1) {
                let ratio =
                    of(results, op, request, pattern, window)?.by(&of(results, op, request, pattern, "1s")?);
                alike.push(ratio.map(|ratio| within(ratio, 1.0 / DIFFERENT, DIFFERENT)));
            }
        }
        sheet.everywhere(
            format!("{op}s: each other width takes as long as the narrowest, within {POINTS} %"),
            alike,
        );
    }
    Ok(Figure {
        title: "Figures 4.3 and 4.4: the width of server-window's window".into(),
        setup: "The thesis: from 1 to 16 s the width makes no difference.".into(),
        ..widths(results, sheet)
    })
}

fn windows(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("figures 5.3 and 5.4");
    let others = |best: &'static str| results.values(WINDOW).iter().filter(move |window| *window != best);
    let mut best = |request: &str, pattern: &str, width: &'static str| -> Result<(), Failure> {
        let ours = of(results, "read", request, pattern, width)?;
        let slower: Result<Vec<Option<Verdict>>, Failure> = others(width)
            .map(|window| Ok(ours.less(&of(results, "read", request, pattern, window)?)))
            .collect();
        let what =
            format!("reads of {}, {pattern}: {width} is better than each other width", spaced(request));
        sheet.everywhere(what, slower?);
        Ok(())
    };
    best("32KiB", STRIDED, "8ms")?;
    best("256KiB", STRIDED, "1ms")?;
    best("32KiB", CONTIGUOUS, "1ms")?;
    best("256KiB", CONTIGUOUS, "1ms")?;
    let mut gains = Vec::new();
    for (request, pattern) in
        results.values(REQUEST).iter().flat_map(|request| PATTERNS.map(|pattern| (request, pattern)))
    {
        let narrow = of(results, "write", request, pattern, "1ms")?;
        for window in others("1ms") {
            let ratio = of(results, "write", request, pattern, window)?.by(&narrow);
            gains.push(ratio.map(|ratio| within(ratio, 1.0 / DIFFERENT, f64::INFINITY)));
        }
    }
    sheet.everywhere(format!("writes: no width gains {POINTS} % over 1 ms"), gains);
    let costs = [STRIDED, CONTIGUOUS].map(|pattern| {
        let narrow = of(results, "write", "32KiB", pattern, "1ms")?;
        Ok(narrow.less(&of(results, "write", "32KiB", pattern, "32ms")?))
    });
    let costs: Result<Vec<Option<Verdict>>, Failure> = costs.into_iter().collect();
    sheet.everywhere("small writes of shared files: 32 ms cost more than 1 ms", costs?);
    Ok(Figure {
        title: "Figures 5.3 and 5.4: the width of twins's window".into(),
        setup: "The thesis: the best width depends on the pattern; for writes no width gains, and only too large a one costs, on shared files."
            .into(),
        remarks: "Within a wide window a disk serves one forwarder's processes, one front instead of several; large requests have several \
                  servers anyway, and only wait."
            .into(),
        ..widths(results, sheet)
    })
}

fn widths<'a>(results: &'a Experiment, sheet: Sheet) -> Figure<'a> {
    let (mut tables, mut pictures) = (Vec::new(), Vec::new());
    for op in results.values(OP) {
        for request in results.values(REQUEST) {
            let mut table = Table::new(std::iter::once("window").chain(PATTERNS));
            for window in results.values(WINDOW) {
                let at =
                    |pattern| [(OP, op.as_str()), (REQUEST, request), (PATTERN, pattern), (WINDOW, window)];
                let cells = PATTERNS.map(|pattern| time(results, &at(pattern)));
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
    Figure { results: vec![results], sheet, tables, pictures, ..Figure::default() }
}

fn forwarders(results: &Results) -> Result<Figure<'_>, Failure> {
    let Results { direct, forwarders, .. } = results;
    let mut tables = Vec::new();
    for pattern in PATTERNS {
        let counts = forwarders.values(NODES);
        let head =
            std::iter::once("".to_owned()).chain(counts.iter().map(|count| format!("forwarders: {count}")));
        let mut table = Table::new(head);
        for gate in forwarders.values(GATE) {
            let cells = counts
                .iter()
                .map(|count| time(forwarders, &[(PATTERN, pattern), (GATE, gate), (NODES, count)]));
            table.row(std::iter::once(name(gate).to_owned()).chain(cells));
        }
        let none = time(direct, &[(OP, "read"), (REQUEST, "32KiB"), (PATTERN, pattern)]);
        tables.push((format!("{pattern}, reads of 32 KiB; without forwarders {none}"), table));
    }
    let mut sheet = Sheet::of("figures 5.7 to 5.9");
    let of = |pattern: &str, gate: &str, count: &str| {
        forwarders.cell(&[(PATTERN, pattern), (GATE, gate), (NODES, count)], "makespan")
    };
    let mut best = |what: &str, pattern: &str, gates: &[&str], count: &str| -> Result<(), Failure> {
        let mut better = Vec::new();
        for gate in gates {
            let ours = of(pattern, gate, count)?;
            for other in forwarders.values(GATE).iter().filter(|other| !gates.contains(&other.as_str())) {
                better.push(ours.less(&of(pattern, other, count)?));
            }
        }
        sheet.everywhere(format!("{what}, {pattern}: better than each other"), better);
        Ok(())
    };
    for pattern in PATTERNS {
        best("one forwarder: FIFO (to-agg) and HBRR", pattern, &[JOINED, HBRR], "1")?;
    }
    best("four forwarders: TWINS (8 ms)", STRIDED, &[TWINS_8MS], "4")?;
    best("four forwarders: TWINS (1 ms)", CONTIGUOUS, &[TWINS], "4")?;
    best("eight forwarders: TWINS (125 us)", STRIDED, &["twins(window=125us)"], "8")?;
    let mut faster = Vec::new();
    let none = direct.cell(&[(OP, "read"), (REQUEST, "32KiB"), (PATTERN, PER_PROCESS)], "makespan")?;
    for count in forwarders.values(NODES) {
        faster.push(of(PER_PROCESS, JOINED, count)?.less(&none));
    }
    sheet.everywhere("a file per process: any number with FIFO is faster than none", faster);
    Ok(Figure {
        title: "Figures 5.7 to 5.9: how many forwarders".into(),
        results: vec![forwarders, direct],
        setup: "The thesis: small reads with one to eight forwarders for the 32 clients.".into(),
        sheet,
        tables,
        remarks: "One forwarder that serves one server at a time leaves the others idle.".into(),
        ..Figure::default()
    })
}
