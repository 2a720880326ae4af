//! Figures 6 and 8 on flash, where processes have more to do, or messages are less late: controls.

use iogate_report::Table;

use super::{BY_TURNS, FIFO, GATE, STEP, WINDOW, window_claims};
use crate::commands::reproduce::claims::{Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percents};
use crate::failure::Failure;

pub(super) fn calls(results: &Experiment) -> Result<Figure<'_>, Failure> {
    const CALLS: &str = "app.ior.outstanding";
    let (count, processes) = ("app.ior.count", "app.ior.processes");
    let mut sheet = Sheet::of("figure 6, several calls at once");
    let mut tables = Vec::new();
    for calls in results.values(CALLS) {
        for (base, called) in [(BY_TURNS, "by turns"), (FIFO, FIFO)] {
            let head = results.values(processes).iter().map(|value| format!("{value} processes"));
            let mut table = Table::new(std::iter::once("applications".to_owned()).chain(head));
            let mut all = Vec::new();
            for applications in results.values(count) {
                let cells = results.values(processes).iter().map(|p| {
                    let at =
                        |gate| [(CALLS, calls.as_str()), (count, applications), (processes, p), (GATE, gate)];
                    let less = results.lower(&at(WINDOW), &at(base), "completion_mean");
                    all.extend(less);
                    percents(less)
                });
                let cells: Vec<String> = cells.collect();
                table.row(std::iter::once(applications.clone()).chain(cells));
            }
            sheet.changes(
                format!("flash, calls of a process: {calls}; shorter than {called} by"),
                (11.0, 43.0),
                all,
            );
            tables.push((
                format!("Calls of a process at once: {calls}; completion time is shorter than {called} by"),
                table,
            ));
        }
    }
    Ok(Figure {
        title: "Control: figure 6 on flash with several calls of a process at once".into(),
        results: vec![results],
        setup: "In the paper processes wait for each other after each call. Here they do not, and have so many calls on their way: if servers \
                without work are why two small applications lose, they gain with more."
            .into(),
        sheet,
        tables,
        remarks: "With several calls on its way a process has work for every server, whoever's turn it is at one of them.".into(),
        ..Figure::default()
    })
}

pub(super) fn longer(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let key = "app.*.processes";
    let mut sheet = Sheet::of("figure 8, longer runs");
    window_claims(&mut sheet, "flash", super::FLASH_WINDOW, results, key)?;
    let mut tables = Vec::new();
    for (metric, what) in
        [(STEP, "completion time of a request"), ("bandwidth", "bandwidth"), ("makespan", "makespan")]
    {
        let head = results.values(key).iter().map(|value| format!("{value} processes"));
        let mut table = Table::new(std::iter::once(String::new()).chain(head));
        for gate in results.values(GATE) {
            let cells =
                results.values(key).iter().map(|count| results.shown(&[(key, count), (GATE, gate)], metric));
            let name = if gate == BY_TURNS { "by turns" } else { gate };
            table.row(std::iter::once(name.to_owned()).chain(cells));
        }
        tables.push((what.to_owned(), table));
    }
    Ok(Figure {
        title: "Control: figure 8 on flash with longer runs".into(),
        results: vec![results],
        setup: "The paper does not say how much each process reads. Figure 8 on flash again, where it is ten times as much.".into(),
        sheet,
        tables,
        ..Figure::default()
    })
}

pub(super) fn quieter(results: &Experiment) -> Result<Figure<'_>, Failure> {
    const JITTER: &str = "network.jitter";
    let processes = "app.*.processes";
    let mut sheet = Sheet::of("figure 8, less noise");
    let mut tables = Vec::new();
    for jitter in results.values(JITTER) {
        let at = |count, gate| [(JITTER, jitter.as_str()), (processes, count), (GATE, gate)];
        let (mut better, mut rates) = (Vec::new(), Vec::new());
        let head = results.values(processes).iter().map(|value| format!("{value} processes"));
        let mut table = Table::new(std::iter::once(String::new()).chain(head));
        for gate in results.values(GATE) {
            let mut cells = vec![if gate == BY_TURNS { "by turns" } else { gate }.to_owned()];
            for count in results.values(processes) {
                cells.push(results.shown(&at(count, gate), "bandwidth"));
                if gate.starts_with("app-window") {
                    let than = |metric| -> Result<_, Failure> {
                        Ok((results.cell(&at(count, gate), metric)?, results.cell(&at(count, FIFO), metric)?))
                    };
                    let (step, base) = than(STEP)?;
                    better.push(step.less(&base));
                    let (rate, base) = than("bandwidth")?;
                    rates.extend(rate.higher(&base));
                }
            }
            table.row(cells);
        }
        let where_ = format!("flash, messages late by up to {jitter}");
        sheet.everywhere(format!("{where_}: each window is better than fifo"), better);
        sheet.everywhere(
            format!("{where_}: bandwidth higher than fifo by 0 or more"),
            rates.into_iter().map(|rate| Some(within(rate, 0.0, f64::INFINITY))),
        );
        tables.push((format!("bandwidth, messages late by up to {jitter}"), table));
    }
    Ok(Figure {
        title: "Control: figure 8 on flash, on a network with less noise".into(),
        results: vec![results],
        setup: "How late messages are on its InfiniBand the paper does not say. Who is served alone has nothing else on the servers while \
                its processes wait for the latest one of them. Figure 8 on flash again, where messages are less late than elsewhere here."
            .into(),
        sheet,
        tables,
        ..Figure::default()
    })
}
