//! What a paper says beside the cells of our results that it speaks of.
//!
//! A claim is written next to its experiment: which cells, how they relate, the published figure. Cells are compared seed by seed, so
//! that what a seed does to both is not taken for a difference. A claim about a cell that is not there is an error.

use anyhow::anyhow;
use iogate_report::claims::{Claims, Interval, Range, Statement, Tolerance, Verdict};
use iogate_report::experiment::{Measured, Point};
use iogate_report::units;
use iogate_sim::metrics::Unit;
use iogate_sim::stat::Estimate;

use super::{Experiment, Settings};
use crate::failure::Failure;

/// Reductions agree within so many points, other figures within so many percent: the papers' runs have no intervals, and ours are on
/// models of their devices.
pub(super) const POINTS: f64 = 10.0;
pub(super) const NEAR: Tolerance = Tolerance::Percent(20.0);
/// Means that differ by less than this share are a tie, unless they surely differ.
const TIE: f64 = POINTS / 100.0;

/// A metric at one point: its value for each seed. Empty where the quick form leaves the point out.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    by_seed: Vec<(u64, f64)>,
    level: f64,
}

impl Cell {
    /// Seeds with their values.
    #[cfg(test)]
    pub(super) fn of(by_seed: &[(u64, f64)], level: f64) -> Cell {
        Cell { by_seed: by_seed.to_vec(), level }
    }

    /// The mean over the seeds.
    pub(super) fn interval(&self) -> Option<Interval> {
        Interval::of(&self.by_seed.iter().map(|(_, value)| *value).collect::<Vec<_>>(), self.level)
    }

    /// The geometric mean over the seeds: of ratios.
    pub(super) fn geometric(&self) -> Option<Interval> {
        Interval::of_ratios(
            &self.by_seed.iter().map(|(_, ratio)| (*ratio, 1.0)).collect::<Vec<_>>(),
            self.level,
        )
    }

    /// How many seeds there are.
    pub(super) fn seeds(&self) -> usize {
        self.by_seed.len()
    }

    /// Of what confidence its intervals are.
    pub(super) fn level(&self) -> f64 {
        self.level
    }

    /// Without one of the seeds, by its place.
    pub(super) fn without(&self, left_out: usize) -> Cell {
        let others = self.by_seed.iter().enumerate().filter(|(place, _)| *place != left_out);
        Cell { by_seed: others.map(|(_, value)| *value).collect(), ..*self }
    }

    /// This over another, seed by seed.
    pub(super) fn by(&self, other: &Cell) -> Option<Interval> {
        Interval::of_ratios(&self.pairs(other).map(|(_, pair)| pair).collect::<Vec<_>>(), self.level)
    }

    /// By how many percent this is lower than another.
    pub(super) fn lower(&self, other: &Cell) -> Option<Interval> {
        Some(self.by(other)?.map(|ratio| 100.0 * (1.0 - ratio)))
    }

    /// By how many percent this is higher than another.
    pub(super) fn higher(&self, other: &Cell) -> Option<Interval> {
        Some(self.by(other)?.map(|ratio| 100.0 * (ratio - 1.0)))
    }

    /// Whether this is less than another: as much is not.
    pub(super) fn less(&self, other: &Cell) -> Option<Verdict> {
        Some(below(self.by(other)?, 1.0))
    }

    /// Whether this is less than another on average: by the mean difference, which a seed with next to nothing in one of both does not
    /// decide, as it does a ratio. What is surely not less by a tenth of the other is not, unless it is surely less: that is a tie.
    pub(super) fn less_on_average(&self, other: &Cell) -> Option<Verdict> {
        let difference = self.with(other, |one, two| one - two).interval()?;
        let noticed = TIE * other.interval()?.mean.abs();
        Some(match difference {
            Interval { high, .. } if high < 0.0 => Verdict::Agrees,
            Interval { low, .. } if low > -noticed => Verdict::Differs,
            _ => Verdict::Undecided,
        })
    }

    /// Something of each value.
    pub(super) fn map(&self, of: impl Fn(f64) -> f64) -> Cell {
        Cell { by_seed: self.by_seed.iter().map(|(seed, value)| (*seed, of(*value))).collect(), ..*self }
    }

    /// Something of this and another, seed by seed.
    pub(super) fn with(&self, other: &Cell, of: impl Fn(f64, f64) -> f64) -> Cell {
        let by_seed = self.pairs(other).map(|(seed, (one, two))| (seed, of(one, two)));
        Cell { by_seed: by_seed.collect(), level: self.level }
    }

    /// The mean with its interval; `-` of no value.
    pub(super) fn shown(&self, unit: Unit) -> String {
        let values: Vec<f64> = self.by_seed.iter().map(|(_, value)| *value).collect();
        Estimate::of(&values, self.level).map_or("-".into(), |estimate| units::estimate(&estimate, unit))
    }

    fn pairs<'a>(&'a self, other: &'a Cell) -> impl Iterator<Item = (u64, (f64, f64))> + 'a {
        self.by_seed.iter().filter_map(|&(seed, value)| {
            let (_, paired) = other.by_seed.iter().find(|(other, _)| *other == seed)?;
            Some((seed, (value, *paired)))
        })
    }
}

/// Whether something lies between two figures.
pub(super) fn within(interval: Interval, least: f64, most: f64) -> Verdict {
    let statement =
        Statement::Bound { least: Some(least), most: Some(most), ours: Some(interval), unit: String::new() };
    statement.verdict()
}

/// Whether something is less than a figure: what is exactly that is not.
pub(super) fn below(interval: Interval, figure: f64) -> Verdict {
    match interval {
        Interval { high, .. } if high < figure => Verdict::Agrees,
        Interval { low, .. } if low >= figure => Verdict::Differs,
        _ => Verdict::Undecided,
    }
}

/// Whether something is more than a figure, as a gain is more than none: what is exactly that is not.
pub(super) fn above(interval: Interval, figure: f64) -> Verdict {
    below(interval.map(|value| -value), -figure)
}

impl Experiment {
    /// A metric of the whole run.
    pub(super) fn cell(&self, settings: &Settings<'_>, metric: &str) -> Result<Cell, Failure> {
        self.cell_of(settings, metric, |point| point.metric(metric))
    }

    /// A metric of one application.
    pub(super) fn app_cell(&self, settings: &Settings<'_>, app: &str, metric: &str) -> Result<Cell, Failure> {
        self.cell_of(settings, metric, |point| point.app(app)?.metric(metric))
    }

    /// A metric of one layer of gates.
    pub(super) fn layer_cell(
        &self,
        settings: &Settings<'_>,
        layer: &str,
        metric: &str,
    ) -> Result<Cell, Failure> {
        self.cell_of(settings, metric, |point| point.layer(layer)?.metric(metric))
    }

    fn cell_of(
        &self,
        settings: &Settings<'_>,
        metric: &str,
        of: impl Fn(&Point) -> Option<&Measured>,
    ) -> Result<Cell, Failure> {
        let fail = |why: String| Failure::failed(anyhow!("a claim about {}: {why}", self.name));
        for (key, value) in settings {
            let Some(axis) = self.full_axes.iter().find(|axis| axis.key == *key) else {
                let known: Vec<&str> = self.full_axes.iter().map(|axis| axis.key.as_str()).collect();
                return Err(fail(format!("{key}: expected one of {}", known.join(", "))));
            };
            // The quick form may have values of its own.
            if !axis.values.iter().chain(self.values(key)).any(|known| known == value) {
                return Err(fail(format!("{key} = {value}: expected one of {}", axis.values.join(", "))));
            }
        }
        let named =
            || settings.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ");
        let points: Vec<&Point> = self.points(settings).collect();
        let level = self.report.confidence;
        match points[..] {
            [] if self.quick => Ok(Cell { by_seed: Vec::new(), level }),
            [point] if point.cut_off > 0 => {
                Err(fail(format!("{}: {} of its runs were ended by the time limit", named(), point.cut_off)))
            }
            [point] => {
                let measured =
                    of(point).ok_or_else(|| fail(format!("{}: {metric} was not measured", named())))?;
                if measured.values.len() != point.seeds.len() {
                    return Err(fail(format!("{}: {metric} has no value of each seed", named())));
                }
                Ok(Cell {
                    by_seed: point.seeds.iter().copied().zip(measured.values.iter().copied()).collect(),
                    level,
                })
            }
            _ => Err(fail(format!("{}: expected one point, found {}", named(), points.len()))),
        }
    }
}

/// The claims of a section as they are made.
#[derive(Clone, Debug, Default)]
pub(super) struct Sheet {
    figure: String,
    pub(super) claims: Claims,
}

impl Sheet {
    /// Claims of a figure or table, until another one is named.
    pub(super) fn of(figure: &str) -> Sheet {
        Sheet { figure: figure.into(), ..Sheet::default() }
    }

    /// What one might expect, and no paper says.
    pub(super) fn expected(figure: &str) -> Sheet {
        let claims = Claims { expected: true, ..Claims::default() };
        Sheet { figure: figure.into(), claims }
    }

    /// What follows is of another figure or table.
    pub(super) fn next(&mut self, figure: &str) {
        self.figure = figure.into();
    }

    fn add(&mut self, what: impl Into<String>, statement: Statement) {
        self.claims.add(self.figure.clone(), what, statement);
    }

    /// A figure of some unit.
    pub(super) fn number(
        &mut self,
        what: impl Into<String>,
        published: f64,
        unit: &str,
        ours: Option<Interval>,
        tolerance: Tolerance,
    ) {
        let (published, unit, ours) = ((published, published), unit.into(), Range::of(ours));
        self.add(what, Statement::Number { published, ours, unit, no_change: None, tolerance });
    }

    /// Percentages that are not changes.
    pub(super) fn percent(
        &mut self,
        what: impl Into<String>,
        published: f64,
        ours: Option<Interval>,
        points: f64,
    ) {
        self.number(what, published, " %", ours, Tolerance::Within(points));
    }

    /// A change in percent.
    pub(super) fn change(&mut self, what: impl Into<String>, published: f64, ours: Option<Interval>) {
        self.changes(what, (published, published), ours);
    }

    /// Changes in percent, from the least to the most.
    pub(super) fn changes(
        &mut self,
        what: impl Into<String>,
        published: (f64, f64),
        ours: impl IntoIterator<Item = Interval>,
    ) {
        let (ours, unit, tolerance) = (Range::of(ours), " %".into(), Tolerance::Within(POINTS));
        self.add(what, Statement::Number { published, ours, unit, no_change: Some(0.0), tolerance });
    }

    /// Factors, from the least to the most.
    pub(super) fn factors(
        &mut self,
        what: impl Into<String>,
        published: (f64, f64),
        ours: impl IntoIterator<Item = Interval>,
    ) {
        let (ours, unit) = (Range::of(ours), "x".into());
        self.add(what, Statement::Number { published, ours, unit, no_change: Some(1.0), tolerance: NEAR });
    }

    /// A factor.
    pub(super) fn factor(&mut self, what: impl Into<String>, published: f64, ours: Option<Interval>) {
        self.factors(what, (published, published), ours);
    }

    /// A factor of 1: no difference.
    pub(super) fn same(&mut self, what: impl Into<String>, ours: impl IntoIterator<Item = Interval>) {
        let (published, ours, unit) = ((1.0, 1.0), Range::of(ours), "x".into());
        let tolerance = Tolerance::Percent(POINTS);
        self.add(what, Statement::Number { published, ours, unit, no_change: None, tolerance });
    }

    /// At least so much.
    pub(super) fn at_least(
        &mut self,
        what: impl Into<String>,
        least: f64,
        unit: &str,
        ours: Option<Interval>,
    ) {
        self.add(what, Statement::Bound { least: Some(least), most: None, ours, unit: unit.into() });
    }

    /// Something that is published to be so in each case.
    pub(super) fn everywhere(
        &mut self,
        what: impl Into<String>,
        cases: impl IntoIterator<Item = Option<Verdict>>,
    ) {
        let cases: Vec<Verdict> = cases.into_iter().flatten().collect();
        let count = |verdict| cases.iter().filter(|case| **case == verdict).count();
        let (kept, open) = (count(Verdict::Agrees), count(Verdict::Undecided));
        self.add(what, Statement::Everywhere { kept, open, all: cases.len() });
    }

    /// Something that is so or not.
    pub(super) fn fact(&mut self, what: impl Into<String>, published: bool, ours: Option<bool>) {
        self.add(what, Statement::Fact { published, ours });
    }

    /// Of some cells, one is the lowest.
    pub(super) fn lowest<'a>(
        &mut self,
        what: impl Into<String>,
        cell: &Cell,
        others: impl IntoIterator<Item = &'a Cell>,
    ) {
        self.everywhere(what, others.into_iter().map(|other| cell.less(other)));
    }
}

#[cfg(test)]
mod tests {
    use iogate_report::ExperimentReport;
    use iogate_sim::result::{NetworkResult, RunResult};

    use super::*;

    /// Seeds 1 to 4; the makespans of `slow` are twice those of `quick`, and both differ much from seed to seed.
    fn experiment(quick_form: bool) -> Experiment {
        let run = |seed: u64, seconds: u64| RunResult {
            seed,
            makespan: iogate_core::Span::from_secs(seconds),
            apps: Vec::new(),
            classes: Vec::new(),
            servers: Vec::new(),
            caches: Default::default(),
            layers: Vec::new(),
            network: NetworkResult::default(),
            requests: 0,
            cut_off: false,
        };
        let runs = |factor: u64| (1..=4).map(|seed| run(seed, factor * seed * seed)).collect::<Vec<_>>();
        let mut report = ExperimentReport::new("t", "p", 0.95);
        for (gate, factor) in [("quick", 1), ("slow", 2)] {
            report.add(vec![("gate".into(), gate.into()), ("size".into(), "8".into())], &runs(factor), None);
        }
        let mut full_axes = report.axes.clone();
        full_axes[1].values.push("16".into());
        Experiment { name: "t".into(), quick: quick_form, full_axes, report }
    }

    #[test]
    fn pairs_tell_what_means_do_not() {
        let results = experiment(false);
        let [quick, slow] =
            ["quick", "slow"].map(|gate| results.cell(&[("gate", gate)], "makespan").unwrap());
        let [one, two] = [&quick, &slow].map(|cell| cell.interval().unwrap());
        assert!(one.high > two.low, "the intervals overlap: {one:?}, {two:?}");
        let lower = quick.lower(&slow).unwrap();
        assert!((lower.low - 50.0).abs() < 1e-9 && (lower.high - 50.0).abs() < 1e-9, "{lower:?}");
        assert_eq!(quick.less(&slow), Some(Verdict::Agrees));
        assert_eq!(slow.less(&quick), Some(Verdict::Differs));
        let sum = quick.with(&slow, |one, two| one + two).map(|sum| sum / 3.0);
        assert_eq!(sum.interval(), quick.interval());
    }

    #[test]
    fn a_tie_is_neither_less_nor_more() {
        let cell = Cell::of(&[(1, 3.0), (2, 5.0)], 0.95);
        assert_eq!(cell.less(&cell), Some(Verdict::Differs));
        let none = cell.lower(&cell).unwrap();
        assert_eq!([below(none, 0.0), above(none, 0.0)], [Verdict::Differs; 2]);
        let some = |low, high| Interval { low, mean: f64::midpoint(low, high), high };
        assert_eq!([some(0.0, 1.0), some(-1.0, 1.0)].map(|gain| above(gain, 0.0)), [Verdict::Undecided; 2]);
        assert_eq!([some(-1.0, 0.0), some(-1.0, 1.0)].map(|loss| below(loss, 0.0)), [Verdict::Undecided; 2]);
        assert_eq!([above(some(0.1, 1.0), 0.0), below(some(-1.0, -0.1), 0.0)], [Verdict::Agrees; 2]);
        assert_eq!([above(some(-1.0, 0.0), 0.0), below(some(0.0, 1.0), 0.0)], [Verdict::Differs; 2]);
    }

    #[test]
    fn on_average_a_seed_with_next_to_nothing_does_not_decide() {
        let cell = |values: [f64; 4]| Cell::of(&(1..).zip(values).collect::<Vec<_>>(), 0.95);
        let (one, other) = (cell([1.0, 20.0, 30.0, 40.0]), cell([0.1, 29.0, 40.0, 51.0]));
        assert_eq!(one.less(&other), Some(Verdict::Undecided));
        let (one, other) = (cell([1.0, 20.0, 30.0, 40.0]), cell([9.0, 30.0, 41.0, 50.0]));
        assert_eq!(one.less_on_average(&other), Some(Verdict::Agrees));
        assert_eq!(other.less_on_average(&one), Some(Verdict::Differs));
    }

    #[test]
    fn on_average_a_tie_is_not_less_and_what_may_be_either_is_undecided() {
        let cell = |values: [f64; 4]| Cell::of(&(1..).zip(values).collect::<Vec<_>>(), 0.95);
        let other = cell([100.0; 4]);
        assert_eq!(cell([98.0, 99.0, 101.0, 100.0]).less_on_average(&other), Some(Verdict::Differs));
        assert_eq!(cell([98.0, 97.0, 98.5, 97.5]).less_on_average(&other), Some(Verdict::Agrees));
        assert_eq!(cell([60.0, 90.0, 101.0, 110.0]).less_on_average(&other), Some(Verdict::Undecided));
        assert_eq!(Cell::default().less_on_average(&other), None);
    }

    #[test]
    fn a_claim_about_a_cell_that_is_not_there_is_an_error() {
        for (settings, metric, expected) in [
            (&[("gaet", "quick")][..], "makespan", "a claim about t: gaet: expected one of gate, size"),
            (&[("gate", "fast")], "makespan", "a claim about t: gate = fast: expected one of quick, slow"),
            (&[("gate", "quick")], "makespam", "a claim about t: gate = quick: makespam was not measured"),
            (&[("size", "8")], "makespan", "a claim about t: size = 8: expected one point, found 2"),
            (&[("size", "16")], "makespan", "a claim about t: size = 16: expected one point, found 0"),
        ] {
            let Err(error) = experiment(false).cell(settings, metric) else { panic!("{expected}") };
            let error = format!("{error:?}");
            assert!(error.contains(expected), "{error}, not {expected}");
        }
        // The quick form has fewer points, but names that nothing has are found there, too.
        let quick = experiment(true);
        assert!(quick.cell(&[("size", "16")], "makespan").unwrap().interval().is_none());
        assert!(quick.cell(&[("size", "17")], "makespan").is_err());
    }

    #[test]
    fn no_claim_is_made_of_runs_that_the_time_limit_ended() {
        let mut results = experiment(false);
        results.report.points[1].cut_off = 1;
        assert!(results.cell(&[("gate", "quick")], "makespan").is_ok());
        let Err(error) = results.cell(&[("gate", "slow")], "makespan") else { panic!("it is taken") };
        let error = format!("{error:?}");
        let said = "a claim about t: gate = slow: 1 of its runs were ended by the time limit";
        assert!(error.contains(said), "{error}");
    }

    #[test]
    fn false_claims_do_not_agree() {
        let results = experiment(false);
        let [quick, slow] =
            ["quick", "slow"].map(|gate| results.cell(&[("gate", gate)], "makespan").unwrap());
        let mut sheet = Sheet::of("figure 1");
        sheet.change("half the time", 50.0, quick.lower(&slow));
        sheet.change("a fifth of the time", 80.0, quick.lower(&slow));
        sheet.change("longer", -50.0, quick.lower(&slow));
        sheet.factor("twice", 2.0, slow.by(&quick));
        sheet.same("as fast", slow.by(&quick));
        sheet.lowest("slow is the best", &slow, [&quick]);
        sheet.at_least("a second", 1.0, " s", slow.interval());
        let verdicts: Vec<Verdict> = sheet.claims.all.iter().map(|claim| claim.verdict).collect();
        use Verdict::{Agrees, Differs, InSign, Undecided};
        assert_eq!(verdicts, [Agrees, InSign, Differs, Agrees, Differs, Differs, Undecided]);
    }
}
