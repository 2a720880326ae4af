//! Which scheduler is best in which situation.

use iogate_sim::metrics::Better;

use super::{Axis, ExperimentReport, Point};

/// The situations of a sweep over schedulers, in rows and columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Situations {
    /// What is compared.
    pub metric: String,
    /// The scheduler that the gain is over.
    pub baseline: String,
    /// The axes whose values are the columns.
    pub column_axes: Vec<String>,
    /// The columns.
    pub columns: Vec<String>,
    /// The rows: a label, and who is best in each column (`None` where nothing was measured).
    pub rows: Vec<(String, Vec<Option<Best>>)>,
}

/// The best scheduler of a situation.
#[derive(Clone, Debug, PartialEq)]
pub struct Best {
    /// Its name.
    pub scheduler: String,
    /// By how much it is better than the baseline, as a fraction of the baseline's mean; 0 for the baseline itself.
    pub gain: f64,
    /// Whether its interval is apart from the baseline's (from the next best one's, if it is the baseline).
    pub clear: bool,
    /// All of them with their values in this situation, for people, the best first.
    pub all: Vec<(String, String)>,
}

/// Columns that fit on a page.
const COLUMNS_MAX: usize = 12;
/// Situations that somebody could look at.
const SITUATIONS_MAX: usize = 4096;

impl ExperimentReport {
    /// The best scheduler in each situation by a metric of the whole run. A situation is a combination of all settings
    /// but the scheduler. `None` unless the schedulers were varied, something else was, in at most 4096 combinations,
    /// and the metric has a better side and was measured.
    pub fn best(&self, metric: &str) -> Option<Situations> {
        let better = self.definition(metric)?.better;
        let schedulers = self.scheduler_axis().filter(|_| better != Better::Neither)?;
        let others: Vec<&Axis> = self.varied().filter(|axis| axis.key != schedulers.key).collect();
        let situations = others.iter().fold(1usize, |all, axis| all.saturating_mul(axis.values.len()));
        if others.is_empty() || situations > SITUATIONS_MAX {
            return None;
        }
        let baseline =
            (schedulers.values.iter()).find(|value| is_fifo(value)).or(schedulers.values.first())?;

        // The last axes are the columns, as many as fit, but at least one axis is for the rows if there are two.
        let mut split = others.len();
        let mut across = 1;
        while split > usize::from(others.len() > 1) && across * others[split - 1].values.len() <= COLUMNS_MAX
        {
            split -= 1;
            across *= others[split].values.len();
        }
        let (row_axes, column_axes) = others.split_at(split);
        let mut columns = combinations(column_axes);
        let mut rows: Vec<(String, Vec<Option<Best>>)> = (combinations(row_axes).into_iter())
            .map(|row| {
                let cells = columns.iter().map(|column| {
                    let situation: Vec<(&str, &str)> = row.iter().chain(column).copied().collect();
                    self.best_of(metric, better, schedulers, baseline, &situation)
                });
                (label(row_axes, &row), cells.collect())
            })
            .collect();
        // Not every combination needs to be a point.
        rows.retain(|(_, cells)| cells.iter().any(Option::is_some));
        if rows.is_empty() {
            return None;
        }
        let filled: Vec<bool> =
            (0..columns.len()).map(|column| rows.iter().any(|(_, cells)| cells[column].is_some())).collect();
        let mut keep = filled.iter().copied();
        columns.retain(|_| keep.next().unwrap_or(false));
        for (_, cells) in &mut rows {
            let mut keep = filled.iter().copied();
            cells.retain(|_| keep.next().unwrap_or(false));
        }
        Some(Situations {
            metric: metric.into(),
            baseline: baseline.clone(),
            column_axes: column_axes.iter().map(|axis| axis.short().into()).collect(),
            rows,
            columns: columns.iter().map(|column| label(column_axes, column)).collect(),
        })
    }

    /// The axis of the schedulers: a key whose last word is `scheduler`, or one of whose values is fifo.
    pub(crate) fn scheduler_axis(&self) -> Option<&Axis> {
        let by_key = self.varied().find(|axis| axis.short() == "scheduler");
        by_key.or_else(|| self.varied().find(|axis| axis.values.iter().any(|value| is_fifo(value))))
    }

    /// The points that have all of these settings.
    pub(crate) fn points_at<'a>(&'a self, settings: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Point> {
        self.points.iter().filter(move |point| {
            settings.iter().all(|(key, value)| point.settings.get(*key).is_some_and(|set| set == value))
        })
    }

    fn best_of(
        &self,
        metric: &str,
        better: Better,
        schedulers: &Axis,
        baseline: &str,
        situation: &[(&str, &str)],
    ) -> Option<Best> {
        let mut all: Vec<_> = (self.points_at(situation))
            .filter_map(|point| Some((point.settings.get(&schedulers.key)?, point.metric(metric)?)))
            .collect();
        all.sort_by(|(_, a), (_, b)| {
            let order = a.estimate.mean.total_cmp(&b.estimate.mean);
            if better == Better::Higher { order.reverse() } else { order }
        });
        let (best, measured) = *all.first()?;
        let (_, base) = *all.iter().find(|(name, _)| *name == baseline)?;
        let rival = if best == baseline { all.get(1).map(|(_, next)| *next) } else { Some(base) };
        let difference = (base.estimate.mean - measured.estimate.mean).abs();
        Some(Best {
            scheduler: best.clone(),
            gain: if difference > 0.0 { difference / base.estimate.mean.abs() } else { 0.0 },
            clear: rival.is_none_or(|rival| !rival.estimate.overlaps(&measured.estimate)),
            all: (all.iter())
                .map(|(name, measured)| {
                    ((*name).clone(), crate::units::estimate(&measured.estimate, measured.unit))
                })
                .collect(),
        })
    }
}

/// Whether a value names the scheduler that all others are compared with, with or without parameters.
fn is_fifo(value: &str) -> bool {
    value.split_whitespace().next() == Some("fifo")
}

/// A setting: its key and its value.
type Setting<'a> = (&'a str, &'a str);

/// All combinations of the axes' values, the last axis changing first; one empty combination of no axes.
pub(crate) fn combinations<'a>(axes: &[&'a Axis]) -> Vec<Vec<Setting<'a>>> {
    let mut all: Vec<Vec<Setting>> = vec![Vec::new()];
    for axis in axes {
        all = (all.iter())
            .flat_map(|head| {
                axis.values.iter().map(move |value| {
                    let mut next = head.clone();
                    next.push((&axis.key, value));
                    next
                })
            })
            .collect();
    }
    all
}

/// A combination in a few words.
pub(crate) fn label(axes: &[&Axis], settings: &[Setting]) -> String {
    let words: Vec<String> = axes.iter().zip(settings).map(|(axis, (_, value))| axis.word(value)).collect();
    if words.is_empty() { "all".into() } else { words.join(", ") }
}
