//! What is compared: five measures of each point, seed by seed.

use std::collections::BTreeMap;

use iogate_report::Table;
use iogate_report::claims::Interval;

use super::{LOAD, MECHANISM, NONE, STORAGE};
use crate::commands::reproduce::Experiment;
use crate::commands::reproduce::claims::Cell;
use crate::failure::Failure;

/// One of what is compared.
pub(super) struct Measure {
    pub(super) called: &'static str,
    /// Whether more of it is better.
    pub(super) more: bool,
    index: usize,
}

pub(super) const MEASURES: [Measure; 5] = [
    Measure { called: "Throughput", more: true, index: 0 },
    Measure { called: "Slowdown, mean", more: false, index: 1 },
    Measure { called: "Slowdown, worst", more: false, index: 2 },
    Measure { called: "Jain's index", more: true, index: 3 },
    Measure { called: "Calls, 99 %", more: false, index: 4 },
];

/// Storage, load, mechanism.
type Key = (String, String, String);

/// What was found at a point.
pub(super) struct Found {
    measures: [Cell; 5],
    /// Each application's time by its time without a mechanism.
    pub(super) apps: Vec<Cell>,
}

/// All points.
pub(super) struct World(BTreeMap<Key, Found>);

impl World {
    pub(super) fn new(results: &Experiment) -> Result<World, Failure> {
        let mut all = BTreeMap::new();
        for storage in results.values(STORAGE) {
            for load in results.values(LOAD) {
                for mechanism in results.values(MECHANISM) {
                    let found = found(results, storage, load, mechanism)?;
                    all.insert((storage.clone(), load.clone(), mechanism.clone()), found);
                }
            }
        }
        Ok(World(all))
    }

    pub(super) fn found(&self, storage: &str, load: &str, mechanism: &str) -> Option<&Found> {
        self.0.get(&(storage.to_owned(), load.to_owned(), mechanism.to_owned()))
    }

    pub(super) fn cell(
        &self,
        measure: &Measure,
        storage: &str,
        load: &str,
        mechanism: &str,
    ) -> Option<&Cell> {
        Some(&self.found(storage, load, mechanism)?.measures[measure.index])
    }

    /// By which factor a mechanism changes a measure.
    pub(super) fn change(
        &self,
        measure: &Measure,
        storage: &str,
        load: &str,
        mechanism: &str,
    ) -> Option<Interval> {
        let of = |mechanism| self.cell(measure, storage, load, mechanism);
        of(mechanism)?.by(of(NONE)?)
    }

    /// The geometric mean of that over all loads.
    pub(super) fn mean_factor(
        &self,
        results: &Experiment,
        measure: &Measure,
        storage: &str,
        mechanism: &str,
    ) -> Option<Interval> {
        let loads = results.values(LOAD);
        let share = 1.0 / loads.len() as f64;
        let mut product: Option<Cell> = None;
        for load in loads {
            let of = |mechanism| self.cell(measure, storage, load, mechanism);
            let ratio = of(mechanism)?.with(of(NONE)?, |this, none| (this / none).powf(share));
            product = Some(match product {
                Some(product) => product.with(&ratio, |product, ratio| product * ratio),
                None => ratio,
            });
        }
        product?.interval()
    }

    /// [`World::mean_factor`] of each mechanism and storage.
    pub(super) fn table_of_means(&self, results: &Experiment, measure: &Measure) -> Table {
        let storage = results.values(STORAGE);
        let mut table = Table::new(std::iter::once("").chain(storage.iter().map(String::as_str)));
        for mechanism in results.values(MECHANISM).iter().filter(|name| *name != NONE) {
            let cells = storage.iter().map(|storage| {
                self.mean_factor(results, measure, storage, mechanism).map_or("-".into(), shown)
            });
            table.row(std::iter::once(mechanism.clone()).chain(cells));
        }
        table
    }
}

fn found(results: &Experiment, storage: &str, load: &str, mechanism: &str) -> Result<Found, Failure> {
    let this = [(STORAGE, storage), (LOAD, load), (MECHANISM, mechanism)];
    let none = [(STORAGE, storage), (LOAD, load), (MECHANISM, NONE)];
    let names: Vec<&str> =
        results.point(&this).iter().flat_map(|point| &point.apps).map(|app| app.name.as_str()).collect();
    let (mut slowdowns, mut apps) = (Vec::new(), Vec::new());
    for app in names {
        let time = |at: &[(&str, &str)]| results.app_cell(at, app, "turnaround");
        let (with, without) = (time(&this)?, time(&none)?);
        let alone =
            without.with(&results.app_cell(&none, app, "slowdown")?, |time, slowdown| time / slowdown);
        slowdowns.push(with.with(&alone, |time, alone| time / alone));
        apps.push(with.with(&without, |with, without| with / without));
    }
    let count = slowdowns.len() as f64;
    let sum = |of: &dyn Fn(f64) -> f64| fold(&slowdowns, of, |sum, next| sum + next);
    // Of speeds x: (sum x)^2 / (n sum x^2).
    let jain = sum(&|slowdown| 1.0 / slowdown)
        .with(&sum(&|slowdown| slowdown.powi(-2)), |speeds, squares| speeds.powi(2) / (count * squares));
    let measures = [
        results.cell(&this, "bandwidth")?,
        sum(&|slowdown| slowdown).map(|sum| sum / count),
        fold(&slowdowns, &|slowdown| slowdown, f64::max),
        jain,
        results.cell(&this, "call_time_p99")?,
    ];
    Ok(Found { measures, apps })
}

/// One of several cells, seed by seed.
fn fold(cells: &[Cell], of: &dyn Fn(f64) -> f64, join: fn(f64, f64) -> f64) -> Cell {
    let mut cells = cells.iter().map(|cell| cell.map(of));
    let first = cells.next().unwrap_or_default();
    cells.fold(first, |so_far, next| so_far.with(&next, join))
}

/// A change in percent, or as a factor where that is more than twice.
pub(super) fn shown(change: Interval) -> String {
    let texts = if change.mean >= 2.0 {
        let text = |value: f64| if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") };
        ([change.mean, change.low, change.high].map(text), "x")
    } else {
        // Adding 0 makes 0 of -0.
        let text = |value: f64| format!("{}", (100.0 * (value - 1.0)).round() + 0.0);
        ([change.mean, change.low, change.high].map(text), " %")
    };
    let ([mean, low, high], unit) = texts;
    let sign = if unit == " %" && change.mean > 1.0 && mean != "0" { "+" } else { "" };
    if low == high { format!("{sign}{mean}{unit}") } else { format!("{sign}{mean}{unit} ({low} to {high})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_joined_seed_by_seed() {
        let cell = |one: f64, two: f64| Cell::of(&[(1, one), (2, two)], 0.95);
        let cells = [cell(1.0, 4.0), cell(2.0, 3.0)];
        let worst = fold(&cells, &|value| value, f64::max);
        assert_eq!(worst.interval(), cell(2.0, 4.0).interval());
        let sum = fold(&cells, &|value| 2.0 * value, |sum, next| sum + next);
        assert_eq!(sum.interval(), cell(6.0, 14.0).interval());
        assert!(fold(&[], &|value| value, f64::max).interval().is_none());
    }

    #[test]
    fn changes_are_percents_or_factors() {
        let interval = |low: f64, mean: f64, high: f64| Interval { low, mean, high };
        assert_eq!(shown(interval(1.1, 1.2, 1.3)), "+20 % (10 to 30)");
        assert_eq!(shown(interval(0.5, 0.5, 0.5)), "-50 %");
        assert_eq!(shown(interval(0.999, 1.001, 1.003)), "0 %");
        assert_eq!(shown(interval(9.0, 11.0, 13.0)), "11x (9.0 to 13)");
    }
}
