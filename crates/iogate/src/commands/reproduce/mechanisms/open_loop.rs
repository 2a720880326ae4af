//! Load by the clock: how long lookups take at which rate.

use iogate_report::Table;
use iogate_report::html::lines::{Lines, Series, lines};
use iogate_sim::metrics::Unit;

use crate::commands::reproduce::claims::{Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, shown};
use crate::failure::Failure;

const RATE: &str = "rate";
const GATE: &str = "servers.gate";
const NONE: &str = "fifo";
const APP: &str = "lookups";
const STREAMS: [&str; 2] = ["stream-1", "stream-2"];
/// Faster means by so much.
const FASTER: f64 = 0.02;
/// Quantiles of a lookup's time.
const QUANTILES: [(&str, &str); 2] =
    [("Half of the lookups", "call_time_p50"), ("99 % of the lookups", "call_time_p99")];

pub(super) fn figure(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::expected("by the clock");
    for gate in results.values(GATE).iter().filter(|gate| *gate != NONE) {
        let mut verdicts = Vec::new();
        for rate in results.values(RATE) {
            let cell = |gate| results.app_cell(&[(RATE, rate), (GATE, gate)], APP, "call_time_p99");
            verdicts.push(cell(gate)?.by(&cell(NONE)?).map(|change| within(change, 0.0, 1.0 - FASTER)));
        }
        sheet.everywhere(format!("{gate}: slow lookups are faster at each rate"), verdicts);
    }
    let mut tables: Vec<(String, Table)> = QUANTILES
        .map(|(called, metric)| {
            (format!("{called} take at most"), table(results, |at| shown(results.app(at, APP, metric))))
        })
        .into();
    let stream = |at: &[(&str, &str)]| {
        let each = STREAMS.map(|stream| shown(results.app(at, stream, "throughput")));
        each.join(", ")
    };
    tables.push(("Throughput of each stream".into(), table(results, stream)));
    Ok(Figure {
        title: "By the clock: lookups beside two streams".into(),
        results: vec![results],
        setup: "A closed loop asks slow storage less: what it measures as a longer time is in truth a longer queue that never formed. Here \
                lookups come at so many a second, as a Poisson process, whatever becomes of them; the streams beside them take what they get. \
                One disk with a command queue, a gate that lets four through at once."
            .into(),
        sheet,
        tables,
        pictures: QUANTILES
            .map(|(called, metric)| {
                let picture = picture(results, called, metric);
                (picture.title.clone(), lines(&picture))
            })
            .into(),
        ..Figure::default()
    })
}

/// A row for each scheduler, a column for each rate.
fn table(results: &Experiment, cell: impl Fn(&[(&str, &str)]) -> String) -> Table {
    let rates = results.values(RATE);
    let head = rates.iter().map(|rate| format!("{rate} a second"));
    let mut table = Table::new(std::iter::once("scheduler".to_owned()).chain(head));
    for gate in results.values(GATE) {
        let cells = rates.iter().map(|rate| cell(&[(RATE, rate), (GATE, gate)]));
        table.row(std::iter::once(gate.clone()).chain(cells));
    }
    table
}

fn picture(results: &Experiment, called: &str, metric: &str) -> Lines {
    let series = results.values(GATE).iter().map(|gate| {
        let points = results.values(RATE).iter().zip(results.numbers(RATE)).filter_map(|(rate, x)| {
            let estimate = results.app(&[(RATE, rate), (GATE, gate)], APP, metric)?.estimate;
            Some((x, estimate.mean, estimate.half_width.unwrap_or(0.0)))
        });
        Series { name: gate.clone(), points: points.collect() }
    });
    let title = format!("{called} take at most");
    results.lines(&title, RATE, "lookups a second", Unit::Seconds, series.collect())
}
