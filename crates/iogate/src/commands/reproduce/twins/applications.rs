//! Two applications, one some time after the other.

use iogate_report::Table;
use iogate_report::claims::Interval;

use super::{FIFO, GATE, HBRR, JOINED, Results, TWINS, TWINS_8MS, has, name};
use crate::commands::reproduce::claims::{Cell, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, shares, shown};
use crate::failure::Failure;

const START: &str = "app.b.start";

/// Where A is seen at some dt: equal applications, so what B suffers dt after A is what A suffers at -dt.
struct Column {
    called: String,
    dt: String,
    app: &'static str,
}

fn columns(results: &Experiment) -> Vec<Column> {
    let starts = results.values(START);
    let later = starts.iter().filter(|dt| *dt != "0s").rev();
    later
        .map(|dt| Column { called: format!("-{dt}"), dt: dt.clone(), app: "b" })
        .chain(starts.iter().map(|dt| Column { called: dt.clone(), dt: dt.clone(), app: "a" }))
        .collect()
}

pub(super) fn figure(results: &Results) -> Result<Figure<'_>, Failure> {
    let Results { two, two_direct, together, .. } = results;
    let columns = columns(two);
    let cell = |column: &Column, gate: Option<&str>, metric: &str| -> Result<Cell, Failure> {
        let start = (START, column.dt.as_str());
        match gate {
            None => two_direct.app_cell(&[start], column.app, metric),
            Some(gate) => two.app_cell(&[start, (GATE, gate)], column.app, metric),
        }
    };
    let (time, factor) = ("completion", "interference");
    // By more seeds where both have been run with more.
    let pair = |column: &Column, gate: &str, base: Option<&str>, metric: &str| match base {
        Some(base) if metric == time && column.dt == "0s" && has(together, GATE, &[gate, base]) => {
            let of = |gate| together.app_cell(&[(GATE, gate)], column.app, metric);
            Ok::<_, Failure>((of(gate)?, of(base)?))
        }
        _ => Ok((cell(column, Some(gate), metric)?, cell(column, base, metric)?)),
    };
    let lower = |gate: &str, base: Option<&str>, metric: &str| -> Result<Vec<Interval>, Failure> {
        let all = columns.iter().map(|column| {
            let (ours, other) = pair(column, gate, base, metric)?;
            Ok(ours.lower(&other))
        });
        Ok(all.collect::<Result<Vec<_>, Failure>>()?.into_iter().flatten().collect())
    };
    let mut sheet = Sheet::of("figures 5.10 and 5.11");
    for (what, gate, base, metric, thesis) in [
        ("A faster by FIFO (to-agg) than without forwarders", JOINED, None, time, 35.0),
        ("A faster by TWINS (1 ms) than by FIFO", TWINS, Some(JOINED), time, 16.0),
        ("A faster by TWINS (1 ms) than by HBRR", TWINS, Some(HBRR), time, 16.0),
        ("A faster by TWINS (1 ms) than without forwarders", TWINS, None, time, 45.0),
        ("interference lower by FIFO than without forwarders", JOINED, None, factor, 25.0),
        ("interference lower by TWINS (1 ms) than by FIFO", TWINS, Some(JOINED), factor, 12.0),
        ("interference lower by TWINS (1 ms) than without forwarders", TWINS, None, factor, 31.0),
    ] {
        let all = lower(gate, base, metric)?;
        sheet.change(format!("{what}, by up to"), thesis, most(all.into_iter()));
    }
    for (what, gate, metric) in [
        ("A is faster by TWINS (1 ms) than by FIFO", TWINS, time),
        ("it interferes less", TWINS, factor),
        ("A is faster by TWINS (8 ms)", TWINS_8MS, time),
    ] {
        let each = columns.iter().map(|column| {
            let (ours, joined) = pair(column, gate, Some(JOINED), metric)?;
            Ok(ours.less(&joined))
        });
        let each: Result<Vec<_>, Failure> = each.collect();
        sheet.everywhere(format!("at each dt: {what}"), each?);
    }
    let table = |metric: &str| {
        let mut table = Table::new(
            std::iter::once("dt".to_owned()).chain(columns.iter().map(|column| column.called.clone())),
        );
        let mut row = |called: &str, results: &Experiment, gate: Option<&str>| {
            let cells = columns.iter().map(|column| {
                let start = (START, column.dt.as_str());
                let at: Vec<(&str, &str)> =
                    std::iter::once(start).chain(gate.map(|gate| (GATE, gate))).collect();
                shown(results.app(&at, column.app, metric))
            });
            table.row(std::iter::once(called.to_owned()).chain(cells));
        };
        row("no forwarders", two_direct, None);
        for gate in [JOINED, HBRR, TWINS, TWINS_8MS] {
            row(name(gate), two, Some(gate));
        }
        table
    };
    let points: Vec<_> = [JOINED, HBRR, TWINS, TWINS_8MS]
        .map(|gate| (name(gate).to_owned(), vec![(START, "0s"), (GATE, gate)]))
        .into();
    let (caption, even) = shares(two, &points);
    Ok(Figure {
        title: "Figures 5.10 and 5.11: two applications".into(),
        results: vec![two, two_direct, together],
        setup: "The thesis: two applications of 64 processes, strided reads of a file each; dt is from the start of A to that of B (negative: \
                B first). The interference factor is the time by the time alone. `Up to` is the most over all dt. \
                Where both start together, TWINS (1 ms), FIFO and HBRR have more seeds, by which their times are compared there. How many \
                it takes was found with other seeds than are shown."
            .into(),
        sheet,
        tables: vec![
            ("Time of A".into(), table(time)),
            ("Interference factor of A".into(), table(factor)),
            ("Time of A, both started together, by more seeds".into(), more_seeds(together)),
            (format!("Both started together. {caption}"), even),
        ],
        remarks: "Times alone differ between the schedulers, so that the times compare better than the factors. Where an application is done \
                  before the other begins, its factor is one."
            .into(),
        ..Figure::default()
    })
}

/// Times of A at a dt of 0.
fn more_seeds(together: &Experiment) -> Table {
    let mut table = Table::new(["dt", "0s"]);
    for gate in together.values(GATE) {
        table.row([name(gate).to_owned(), shown(together.app(&[(GATE, gate)], "a", "completion"))]);
    }
    table
}

/// The same with forwarders that join what is not adjacent: a control.
pub(super) fn lists(two: &Experiment) -> Result<Figure<'_>, Failure> {
    let columns = columns(two);
    let cell = |column: &Column, gate: &str, metric: &str| {
        two.app_cell(&[(START, column.dt.as_str()), (GATE, gate)], column.app, metric)
    };
    let mut sheet = Sheet::of("figures 5.10 and 5.11, lists");
    let (time, factor) = ("completion", "interference");
    for (what, base, metric, thesis) in [
        ("A faster by TWINS (1 ms) than by FIFO", FIFO, time, 16.0),
        ("A faster by TWINS (1 ms) than by HBRR", HBRR, time, 16.0),
        ("interference lower by TWINS (1 ms) than by FIFO", FIFO, factor, 12.0),
    ] {
        let all = columns
            .iter()
            .map(|column| Ok(cell(column, TWINS, metric)?.lower(&cell(column, base, metric)?)))
            .collect::<Result<Vec<_>, Failure>>()?;
        sheet.change(format!("{what}, by up to"), thesis, most(all.into_iter().flatten()));
    }
    let table = |metric: &str| {
        let head = columns.iter().map(|column| column.called.clone());
        let mut table = Table::new(std::iter::once("dt".to_owned()).chain(head));
        for gate in [FIFO, HBRR, TWINS] {
            let cells = columns.iter().map(|column| {
                shown(two.app(&[(START, column.dt.as_str()), (GATE, gate)], column.app, metric))
            });
            table.row(std::iter::once(name(gate).to_owned()).chain(cells));
        }
        table
    };
    Ok(Figure {
        title: "Control: two applications, and forwarders that join what is not adjacent".into(),
        results: vec![two],
        setup: "Figures 5.10 and 5.11 with IOFSL's queue behind the scheduler, from which up to 16 requests of a file go on in one call.".into(),
        sheet,
        tables: vec![("Time of A".into(), table(time)), ("Interference factor of A".into(), table(factor))],
        ..Figure::default()
    })
}

fn most(all: impl Iterator<Item = Interval>) -> Option<Interval> {
    all.max_by(|one, other| one.mean.total_cmp(&other.mean))
}
