//! All mechanisms and loads on one kind of storage.

use iogate_report::Table;
use iogate_report::claims::{Interval, Verdict};
use iogate_report::html::heat::{Cell as Coloured, Heat, heat};
use iogate_report::reproduction::Pictures;
use iogate_report::units;

use super::measures::{MEASURES, Measure, World, shown};
use super::{LOAD, MECHANISM, NONE, STORAGE};
use crate::commands::reproduce::Experiment;
use crate::commands::reproduce::claims::{Cell, Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::failure::Failure;

/// A change counts as one from so many percent on.
const CHANGE: f64 = 0.02;
/// What a mechanism may cost.
const COST: f64 = 0.05;
const HARM: f64 = 0.10;

pub(super) fn figure<'a>(
    results: &'a Experiment,
    world: &World,
    storage: &str,
) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::expected(storage);
    for mechanism in results.values(MECHANISM).iter().filter(|name| *name != NONE) {
        let loads = results.values(LOAD).iter();
        let throughput = loads.clone().map(|load| {
            Some(within(world.change(&MEASURES[0], storage, load, mechanism)?, 1.0 - COST, f64::INFINITY))
        });
        sheet.everywhere(format!("{mechanism} costs no throughput"), throughput);
        let apps =
            loads.filter_map(|load| world.found(storage, load, mechanism)).flat_map(|found| &found.apps);
        let slower = apps.map(|app| Some(within(app.interval()?, 0.0, 1.0 + HARM)));
        sheet.everywhere(format!("{mechanism} harms no application"), slower);
    }
    let mut tables = vec![(
        "In how many of the loads a mechanism is better, and in how many worse".into(),
        counts(results, world, storage),
    )];
    let mut pictures: Pictures = Vec::new();
    for measure in &MEASURES {
        tables.push((measure.called.into(), table(results, world, measure, storage)));
        pictures.push((measure.called.into(), heat(&coloured(results, world, measure, storage))));
    }
    Ok(Figure {
        title: format!("On {}", if storage == "NVMe" { "NVMe drives" } else { storage }),
        results: vec![results],
        setup: "Two promises that a mechanism might make: in no load has it less throughput than none (by more than 5 %), and no application of \
                any load takes longer than with none (by more than 10 %). Better and worse are counted where the whole interval is beyond 2 %."
            .into(),
        sheet,
        tables,
        pictures,
        ..Figure::default()
    })
}

/// Better (1), worse (-1), or neither for sure.
fn side(measure: &Measure, change: Interval) -> i32 {
    let is = |least, most| within(change, least, most) == Verdict::Agrees;
    let (more, less) = (is(1.0 + CHANGE, f64::INFINITY), is(0.0, 1.0 - CHANGE));
    let sign = i32::from(more) - i32::from(less);
    if measure.more { sign } else { -sign }
}

fn counts(results: &Experiment, world: &World, storage: &str) -> Table {
    let mut table = Table::new(std::iter::once("").chain(MEASURES.iter().map(|measure| measure.called)));
    for mechanism in results.values(MECHANISM).iter().filter(|name| *name != NONE) {
        let cells = MEASURES.iter().map(|measure| {
            let loads = results.values(LOAD).iter();
            let sides: Vec<i32> = loads
                .filter_map(|load| Some(side(measure, world.change(measure, storage, load, mechanism)?)))
                .collect();
            let count = |sign: i32| sides.iter().filter(|side| **side == sign).count();
            format!("{} better, {} worse", count(1), count(-1))
        });
        table.row(std::iter::once(mechanism.clone()).chain(cells));
    }
    table
}

fn table(results: &Experiment, world: &World, measure: &Measure, storage: &str) -> Table {
    let loads = results.values(LOAD);
    let mut table = Table::new(std::iter::once("").chain(loads.iter().map(String::as_str)));
    for mechanism in results.values(MECHANISM) {
        let cells = loads.iter().map(|load| match mechanism == NONE {
            true => absolute(results, world, measure, storage, load),
            false => world.change(measure, storage, load, mechanism).map_or("-".into(), shown),
        });
        table.row(std::iter::once(mechanism.clone()).chain(cells));
    }
    table
}

/// What was measured without a mechanism.
fn absolute(results: &Experiment, world: &World, measure: &Measure, storage: &str, load: &str) -> String {
    let metric = match measure.called {
        "Throughput" => "bandwidth",
        "Calls, 99 %" => "call_time_p99",
        _ => {
            let found = world.cell(measure, storage, load, NONE).and_then(Cell::interval);
            return found.map_or("-".into(), |Interval { low, mean, high }| {
                let [low, mean, high] = [low, mean, high].map(units::number);
                format!("{mean} ({low} to {high})")
            });
        }
    };
    results.shown(&[(STORAGE, storage), (LOAD, load), (MECHANISM, NONE)], metric)
}

fn coloured(results: &Experiment, world: &World, measure: &Measure, storage: &str) -> Heat {
    let loads = results.values(LOAD);
    let row = |mechanism: &String| {
        let cell = |load: &String| {
            let change = world.change(measure, storage, load, mechanism)?;
            let text = shown(change);
            let (short, interval) = text
                .split_once(" (")
                .map_or((text.as_str(), ""), |(short, rest)| (short, rest.trim_end_matches(')')));
            let size = change.mean.ln().abs();
            Some(Coloured {
                text: short.into(),
                small: interval.into(),
                good: f64::from(side(measure, change)) * size.max(0.1),
                tip: format!("{mechanism}, {load}: {text}"),
            })
        };
        (mechanism.clone(), loads.iter().map(cell).collect())
    };
    let mechanisms = results.values(MECHANISM).iter().filter(|name| *name != NONE);
    Heat { corner: "mechanism".into(), columns: loads.to_vec(), rows: mechanisms.map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_count_where_the_whole_interval_does() {
        let (throughput, slowdown) = (&MEASURES[0], &MEASURES[1]);
        let interval = |low: f64, high: f64| Interval { low, mean: f64::midpoint(low, high), high };
        for (low, high, sign) in
            [(1.03, 1.2, 1), (1.01, 1.2, 0), (0.9, 1.2, 0), (0.5, 0.97, -1), (0.5, 0.99, 0)]
        {
            assert_eq!(side(throughput, interval(low, high)), sign, "{low} to {high}");
            assert_eq!(side(slowdown, interval(low, high)), -sign, "{low} to {high}");
        }
    }
}
