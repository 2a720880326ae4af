//! Figures 6 and 8 on flash, where processes have more to do: controls.

use iogate_report::Table;

use super::{BY_TURNS, FIFO, GATE, STEP, WINDOW, window_claims};
use crate::commands::reproduce::claims::Sheet;
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
