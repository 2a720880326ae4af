//! How a metric changes over a sweep.

use std::cell::Cell;

use maud::{Markup, html};

use super::experiment::possible;
use super::lines::{Lines, Series, lines};
use super::whiskers::{Bars, Groups, groups};
use crate::experiment::{Axis, Definition, ExperimentReport, combinations, label};

/// Pictures of one metric, one for each combination of what is neither an axis of the picture nor a line.
const PICTURES_MAX: usize = 6;
/// Bytes of markup after which no further picture is drawn.
const MARKUP_MAX: usize = 500_000;
/// Values of all lines of a picture.
const VALUES_MAX: usize = 640;
const SERIES_MAX: usize = 16;
const GROUPS_MAX: usize = 24;

/// What the pictures of a sweep have as their axes.
pub(super) struct Sweep<'a> {
    /// Over which axis.
    pub(super) over: &'a Axis,
    /// Its values, if they are numbers.
    numbers: Option<Vec<f64>>,
    /// A line or a bar for each of its values.
    series: Option<&'a Axis>,
    /// A picture for each combination.
    rest: Vec<&'a Axis>,
    /// Bytes of markup that are left.
    room: Cell<usize>,
}

impl<'a> Sweep<'a> {
    /// Over the axis with the most numbers, if one has at least three, and otherwise over that with the most values;
    /// a line for each scheduler, or for each value of the axis with the fewest. `None` if nothing was varied.
    pub(super) fn of(report: &'a ExperimentReport) -> Option<Sweep<'a>> {
        let mut rest: Vec<&Axis> = report.varied().collect();
        let schedulers = report.scheduler_axis();
        let is = |axis: &Axis, other: Option<&Axis>| other.is_some_and(|other| other.key == axis.key);
        let over = (rest.iter().copied())
            .filter(|axis| !is(axis, schedulers) || rest.len() == 1)
            .max_by_key(|axis| {
                let numeric = axis.values.len() >= 3 && axis.numbers().is_some();
                (numeric, axis.values.len())
            })?;
        rest.retain(|axis| !is(axis, Some(over)));
        let series = schedulers
            .filter(|axis| !is(axis, Some(over)))
            .or_else(|| rest.iter().copied().min_by_key(|axis| axis.values.len()));
        rest.retain(|axis| !is(axis, series));
        let numbers = over.numbers().filter(|numbers| numbers.len() >= 3);
        Some(Sweep { over, numbers, series, rest, room: Cell::new(MARKUP_MAX) })
    }

    /// The pictures of a metric of the whole run; nothing where no point has it, or the page is long enough.
    pub(super) fn pictures(&self, report: &ExperimentReport, metric: &Definition) -> Markup {
        let combinations = combinations(&self.rest);
        let mut pictures = Vec::new();
        for rest in combinations.iter().take(PICTURES_MAX) {
            let (drawn, title) = (self.values(report, metric, rest), label(&self.rest, rest));
            if self.room.get() == 0 || drawn.iter().all(|bars| bars.values.iter().all(Option::is_none)) {
                continue;
            }
            let picture = self.picture(metric, &title, drawn);
            self.room.set(self.room.get().saturating_sub(picture.0.len()));
            pictures.push((title, picture));
        }
        if pictures.is_empty() {
            return html! {};
        }
        html! {
            @for (title, picture) in &pictures {
                @if !self.rest.is_empty() { h4 { (title) } }
                (picture)
            }
            @if pictures.len() < combinations.len() {
                p.soft { (pictures.len()) " of " (combinations.len()) " combinations are shown." }
            }
            @if self.shown() < self.over.values.len() {
                p.soft { "The first " (self.shown()) " of " (self.over.values.len()) " values are shown." }
            }
        }
    }

    /// How many values of its axis are shown.
    fn shown(&self) -> usize {
        let series = self.series.map_or(1, |axis| axis.values.len().min(SERIES_MAX));
        let most = if self.numbers.is_some() { VALUES_MAX / series } else { GROUPS_MAX };
        most.min(self.over.values.len())
    }

    /// For each line, its name and its value at each value of the axis.
    fn values(&self, report: &ExperimentReport, metric: &Definition, rest: &[(&str, &str)]) -> Vec<Bars> {
        let one = |series: Option<(&Axis, &String)>| {
            let values = self.over.values.iter().take(self.shown()).map(|over| {
                let mut settings = rest.to_vec();
                settings.push((&self.over.key, over));
                settings.extend(series.map(|(axis, value)| (axis.key.as_str(), value.as_str())));
                Some(possible(report.points_at(&settings).next()?.metric(&metric.name)?))
            });
            values.collect()
        };
        match self.series {
            Some(axis) => {
                let series = axis.values.iter().take(SERIES_MAX);
                series
                    .map(|value| Bars { name: axis.word(value), values: one(Some((axis, value))) })
                    .collect()
            }
            None => vec![Bars { name: metric.name.clone(), values: one(None) }],
        }
    }

    fn picture(&self, metric: &Definition, which: &str, drawn: Vec<Bars>) -> Markup {
        let title =
            if self.rest.is_empty() { metric.name.clone() } else { format!("{}, {which}", metric.name) };
        let Some(numbers) = &self.numbers else {
            return groups(&Groups {
                title,
                unit: metric.unit,
                groups: self
                    .over
                    .values
                    .iter()
                    .take(self.shown())
                    .map(|value| self.over.word(value))
                    .collect(),
                series: drawn,
            });
        };
        let series = drawn.into_iter().map(|Bars { name, values }| {
            let points = numbers.iter().zip(values);
            let mut points: Vec<_> =
                points.filter_map(|(x, value)| Some((*x, value?.mean, value?.high - value?.mean))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Series { name, points }
        });
        let mut x_ticks: Vec<_> =
            numbers.iter().copied().zip(self.over.values.iter().cloned()).take(self.shown()).collect();
        x_ticks.sort_by(|a, b| a.0.total_cmp(&b.0));
        lines(&Lines {
            title,
            x_label: self.over.short().into(),
            x_ticks,
            y_label: metric.name.clone(),
            unit: metric.unit,
            series: series.collect(),
        })
    }
}
