//! Figures 7 and 8 with an elevator and a page cache below the servers' own queues: a control.

use iogate_report::Table;

use super::{FLAT, PROCESSES, STEP};
use crate::commands::reproduce::claims::{Cell, Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percents};
use crate::failure::Failure;

const BELOW: &str = "below";
const GATE: &str = super::GATE;
/// Without coordination and with it: as many in the elevator as PVFS2 hands over, and all against one.
const PAIRS: [(&str, &str, &str); 2] = [
    ("16 requests below at once", "fifo(depth=16)", "app-window(window=1s,depth=16)"),
    ("all below, coordinated one by one", "fifo(depth=128)", "app-window(window=1s,depth=1)"),
];
/// The fewest and the most servers of the paper.
const ENDS: [&str; 2] = ["2", "64"];

pub(super) fn servers(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("figure 7, elevator and cache below");
    let mut tables = Vec::new();
    let time = |below: &str, processes: &str, case: &str, gate: &str| -> Result<Cell, Failure> {
        results.cell(&[(BELOW, below), (PROCESSES, processes), ("case", case), (GATE, gate)], STEP)
    };
    for below in results.values(BELOW) {
        for (called, alone, together) in PAIRS {
            let (mut grows, mut waits, mut gains) = (Vec::new(), Vec::new(), Vec::new());
            for processes in results.values(PROCESSES) {
                let at = |case, gate| time(below, processes, case, gate);
                let [few, many] = ENDS.map(|case| -> Result<Cell, Failure> {
                    Ok(at(case, together)?.with(&at(case, alone)?, |window, base| window / base))
                });
                grows.push(many?.less(&few?));
                let growth = at(ENDS[1], alone)?.by(&at(ENDS[0], alone)?);
                waits.push(growth.map(|growth| within(growth, FLAT, f64::INFINITY)));
                gains.extend(at(ENDS[1], together)?.lower(&at(ENDS[1], alone)?));
            }
            let name = |what: &str| format!("{below}; {called}: {what}");
            sheet.everywhere(name("coordination gains more with the most servers than with two"), grows);
            sheet.everywhere(name("without it the completion time grows with servers"), waits);
            sheet.changes(name("with the most servers, coordination is shorter by"), (46.0, 46.0), gains);
        }
    }
    for processes in results.values(PROCESSES) {
        for (called, alone, together) in PAIRS {
            let counts = results.values("case");
            let mut table = Table::new(
                std::iter::once(String::new()).chain(counts.iter().map(|n| format!("servers: {n}"))),
            );
            for below in results.values(BELOW) {
                let own = |case: &str, gate: &str| {
                    let own = [(BELOW, below.as_str()), (PROCESSES, processes.as_str())];
                    own.map(|(key, value)| (key.to_owned(), value.to_owned()))
                        .into_iter()
                        .chain([("case".to_owned(), case.to_owned()), (GATE.to_owned(), gate.to_owned())])
                        .collect::<Vec<_>>()
                };
                let cells = counts.iter().map(|case| {
                    let [alone, together] = [own(case, alone), own(case, together)];
                    let [alone, together] = [&alone, &together].map(|at| {
                        at.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>()
                    });
                    let less = percents(results.lower(&together, &alone, STEP));
                    format!("{}; shorter by {less}", results.shown(&alone, STEP))
                });
                table.row(std::iter::once(below.clone()).chain(cells.collect::<Vec<_>>()));
            }
            tables.push((
                format!("{processes} processes, {called}: completion time without coordination, and with it"),
                table,
            ));
        }
    }
    Ok(Figure {
        title: "Control: figure 7 with an elevator and a page cache below".into(),
        results: vec![results],
        setup: SETUP.into(),
        sheet,
        tables,
        remarks: "Where PVFS2 holds requests back, the elevator sorts the few that it has, and the gain falls with servers instead of \
                  growing. Where all requests are below and come from a pool of threads, CFQ favours whom it waits for, on each server \
                  somebody else: then the time without coordination grows with servers, and with it what coordination saves, as in \
                  the paper; on one server coordination costs. Where each file has a thread of its own, and in front of an elevator by \
                  deadlines, it does not grow from two servers on."
            .into(),
        ..Figure::default()
    })
}

const SETUP: &str = "Not in the paper, whose servers had CFQ and a page cache below PVFS2. As figure 7, with both switched on one after the other. \
                     Which thread submits a request, and how many are below at once, is not known: each is shown both ways.";

pub(super) fn windows(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let key = "app.*.processes";
    let mut sheet = Sheet::of("figure 8, elevator and cache below");
    let mut tables = Vec::new();
    for below in results.values(BELOW) {
        let cell = |processes: &str, gate: &str, metric| {
            results.cell(&[(BELOW, below), (key, processes), (GATE, gate)], metric)
        };
        for (called, alone, best) in PAIRS {
            let depth = best.split("depth").nth(1).unwrap_or("");
            let windows: Vec<&String> = results
                .values(GATE)
                .iter()
                .filter(|gate| gate.starts_with("app-window") && gate.ends_with(depth))
                .collect();
            let (mut better, mut first, mut rates) = (Vec::new(), Vec::new(), Vec::new());
            for processes in results.values(key) {
                for window in &windows {
                    better.push(cell(processes, window, STEP)?.less(&cell(processes, alone, STEP)?));
                    let rate = |gate| cell(processes, gate, "bandwidth");
                    rates.extend(rate(window)?.higher(&rate(alone)?));
                    if window.as_str() != best {
                        first.push(cell(processes, best, STEP)?.less(&cell(processes, window, STEP)?));
                    }
                }
            }
            let name = |what: &str| format!("{below}; {called}: {what}");
            sheet.everywhere(name("each window is better than none"), better);
            sheet.everywhere(name("a second is the best width"), first);
            sheet.changes(name("bandwidth is higher by"), (-1.2, 10.9), rates);
        }
    }
    for processes in results.values(key) {
        for (metric, what) in [(STEP, "completion time of a request"), ("bandwidth", "bandwidth")] {
            let gates = results.values(GATE);
            let mut table = Table::new(std::iter::once(String::new()).chain(gates.iter().cloned()));
            for below in results.values(BELOW) {
                let at = |gate| results.shown(&[(BELOW, below), (key, processes), (GATE, gate)], metric);
                let cells: Vec<String> = gates.iter().map(|gate| at(gate)).collect();
                table.row(std::iter::once(below.clone()).chain(cells));
            }
            tables.push((format!("{processes} processes: {what}"), table));
        }
    }
    Ok(Figure {
        title: "Control: figure 8 with an elevator and a page cache below".into(),
        results: vec![results],
        setup: SETUP.replace("figure 7", "figure 8"),
        sheet,
        tables,
        ..Figure::default()
    })
}
