//! Published statements beside what was measured: what agrees is computed from both, never written down.
//!
//! A statement agrees if the whole interval of ours does. One that is only partly within the tolerance is undecided: more seeds could
//! tell. Of a change, being on the same side of no change is something, and called so.

use iogate_sim::stat::{Estimate, half_width_left_out};
use serde::{Deserialize, Serialize};

use crate::{Table, units};

/// Most statements that a verdict names.
const LISTED_MAX: usize = 6;

/// A mean, and between what the true one lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The mean.
    pub mean: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Of independent values; of a single one, itself. `None` of none.
    pub fn of(values: &[f64], level: f64) -> Option<Interval> {
        Estimate::of(values, level).map(Interval::from)
    }

    /// Of the ratio of paired values: the geometric mean, so that twice and half cancel out. `None` if one is not above 0.
    pub fn of_ratios(pairs: &[(f64, f64)], level: f64) -> Option<Interval> {
        let positive = pairs.iter().all(|(of, by)| *of > 0.0 && *by > 0.0);
        let logarithms: Vec<f64> = pairs.iter().filter(|_| positive).map(|(of, by)| (of / by).ln()).collect();
        Some(Interval::of(&logarithms, level)?.map(f64::exp))
    }

    /// Of what is computed from samples together, by what it is with each of them left out in turn; without an interval of fewer than two.
    pub fn left_out(value: f64, without: &[f64], level: f64) -> Interval {
        let half = half_width_left_out(without, level).unwrap_or(0.0);
        Interval { low: value - half, mean: value, high: value + half }
    }

    /// What has no interval.
    pub fn exact(value: f64) -> Interval {
        Interval { low: value, mean: value, high: value }
    }

    /// The same, as far as it is possible: an interval of a share reaches from 0 to 100 % at most.
    #[must_use]
    pub fn within(self, least: f64, most: f64) -> Interval {
        self.map(|value| value.clamp(least, most))
    }

    /// Another measure of the same, which must grow, or fall, with this one.
    #[must_use]
    pub fn map(self, of: impl Fn(f64) -> f64) -> Interval {
        let (one, other) = (of(self.low), of(self.high));
        Interval { low: one.min(other), mean: of(self.mean), high: one.max(other) }
    }

    fn shown(&self) -> String {
        let [low, mean, high] = [self.low, self.mean, self.high].map(plain);
        if low == high { mean } else { format!("{mean} ({low} to {high})") }
    }
}

impl From<Estimate> for Interval {
    fn from(estimate: Estimate) -> Interval {
        Interval { low: estimate.low(), mean: estimate.mean, high: estimate.high() }
    }
}

/// Several of ours that one published range is about.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The one whose interval begins lowest.
    pub least: Interval,
    /// The one whose interval ends highest.
    pub most: Interval,
}

impl Range {
    /// From the lowest to the highest; `None` of none.
    pub fn of(cases: impl IntoIterator<Item = Interval>) -> Option<Range> {
        cases.into_iter().fold(None, |range: Option<Range>, case| {
            let Some(Range { least, most }) = range else { return Some(Range { least: case, most: case }) };
            Some(Range {
                least: if case.low < least.low { case } else { least },
                most: if case.high > most.high { case } else { most },
            })
        })
    }
}

/// How far ours may be from what is published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tolerance {
    /// So much, in the statement's unit.
    Within(f64),
    /// So many percent of the published figure.
    Percent(f64),
    /// Not at all.
    Exact,
}

impl Tolerance {
    fn width(self, published: f64) -> f64 {
        match self {
            Tolerance::Within(width) => width,
            Tolerance::Percent(percent) => published.abs() * percent / 100.0,
            Tolerance::Exact => 0.0,
        }
    }
}

/// What a paper says, and what we have of it; none where the results do not have it, as in the quick form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statement {
    /// A figure, or one from the first to the second.
    Number {
        /// As published.
        published: (f64, f64),
        /// Measured.
        ours: Option<Range>,
        /// Of both, with a space before it where one is written.
        unit: String,
        /// The figure of no change: 0 of percentages, 1 of factors; none if the statement is not about a change.
        no_change: Option<f64>,
        /// How near is near enough.
        tolerance: Tolerance,
    },
    /// A figure that is at least, or at most, something.
    Bound {
        /// At least so much.
        least: Option<f64>,
        /// At most so much.
        most: Option<f64>,
        /// Measured.
        ours: Option<Interval>,
        /// As of a number.
        unit: String,
    },
    /// Something that is so in all cases.
    Everywhere {
        /// In so many of ours it is.
        kept: usize,
        /// In so many the interval has values on both sides.
        open: usize,
        /// Of so many; 0 where there are no results.
        all: usize,
    },
    /// Something that is so or not.
    Fact {
        /// As published.
        published: bool,
        /// Of ours.
        ours: Option<bool>,
    },
}

/// How far ours agrees with what is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Wholly within the tolerance.
    Agrees,
    /// A change in the same direction, of another size.
    InSign,
    /// The interval is too wide to say.
    Undecided,
    /// Not so.
    Differs,
    /// There are no results of it.
    Missing,
}

impl Verdict {
    /// In a table.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Agrees => "agrees",
            Verdict::InSign => "in sign only",
            Verdict::Undecided => "undecided",
            Verdict::Differs => "does not agree",
            Verdict::Missing => "-",
        }
    }
}

impl Statement {
    /// Whether ours agrees.
    pub fn verdict(&self) -> Verdict {
        match self {
            Statement::Number { published, ours: Some(ours), no_change, tolerance, .. } => {
                number(*published, ours, *no_change, *tolerance)
            }
            Statement::Bound { least, most, ours: Some(ours), .. } => {
                let (least, most) = (least.unwrap_or(f64::NEG_INFINITY), most.unwrap_or(f64::INFINITY));
                if ours.low >= least && ours.high <= most {
                    Verdict::Agrees
                } else if ours.high < least || ours.low > most {
                    Verdict::Differs
                } else {
                    Verdict::Undecided
                }
            }
            Statement::Everywhere { kept, open, all } if *all > 0 => match all - kept - open {
                0 if *open == 0 => Verdict::Agrees,
                0 => Verdict::Undecided,
                _ => Verdict::Differs,
            },
            Statement::Fact { published, ours: Some(ours) } => {
                if published == ours {
                    Verdict::Agrees
                } else {
                    Verdict::Differs
                }
            }
            _ => Verdict::Missing,
        }
    }

    /// As published, ours, and the tolerance, each with its unit; `-` where there is none.
    pub fn shown(&self) -> [String; 3] {
        let none = || "-".to_owned();
        match self {
            Statement::Number { published: (low, high), ours, unit, tolerance, .. } => {
                let published = match low == high {
                    true => format!("{}{unit}", exact(*low)),
                    false => format!("{} to {}{unit}", exact(*low), exact(*high)),
                };
                let ours = ours.map_or_else(none, |ours| match ours.least == ours.most {
                    true => format!("{}{unit}", ours.least.shown()),
                    false => format!("from {} to {}{unit}", ours.least.shown(), ours.most.shown()),
                });
                let tolerance = match tolerance {
                    Tolerance::Within(width) if unit == " %" => format!("\u{b1} {width} points"),
                    Tolerance::Within(width) => format!("\u{b1} {width}{unit}"),
                    Tolerance::Percent(percent) => format!("\u{b1} {percent} %"),
                    Tolerance::Exact => "the same".into(),
                };
                [published, ours, tolerance]
            }
            Statement::Bound { least, most, ours, unit } => {
                let least = least.map(|least| format!("at least {}{unit}", exact(least)));
                let most = most.map(|most| format!("at most {}{unit}", exact(most)));
                let published = [least, most].into_iter().flatten().collect::<Vec<_>>().join(", ");
                [published, ours.map_or_else(none, |ours| format!("{}{unit}", ours.shown())), none()]
            }
            Statement::Everywhere { all: 0, .. } => ["all".into(), none(), none()],
            Statement::Everywhere { kept, open, all: 1 } => {
                let ours = if *open == 1 {
                    "undecided"
                } else if *kept == 1 {
                    "yes"
                } else {
                    "no"
                };
                ["yes".into(), ours.into(), none()]
            }
            Statement::Everywhere { kept, open: 0, all } => {
                ["all".into(), format!("{kept} of {all}"), none()]
            }
            Statement::Everywhere { kept, open, all } => {
                ["all".into(), format!("{kept} of {all}, {open} undecided"), none()]
            }
            Statement::Fact { published, ours } => {
                let word = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
                [word(*published), ours.map_or_else(none, word), none()]
            }
        }
    }
}

fn number((first, last): (f64, f64), ours: &Range, no_change: Option<f64>, tolerance: Tolerance) -> Verdict {
    let near = |value: f64, published: f64| {
        // What is shown as being at the edge of the tolerance is within it.
        (value - published).abs() <= tolerance.width(published) + 1e-9 * published.abs().max(1.0)
    };
    let ends = [(ours.least, first), (ours.most, last)];
    if ends.iter().all(|(ours, published)| near(ours.low, *published) && near(ours.high, *published)) {
        return Verdict::Agrees;
    }
    let same_side = no_change.is_some_and(|none| {
        let all = [first, last, ours.least.low, ours.most.high];
        all.iter().all(|value| *value > none) || all.iter().all(|value| *value < none)
    });
    let apart = |(ours, published): &(Interval, f64)| {
        let width = tolerance.width(*published);
        ours.high < published - width || ours.low > published + width
    };
    match (same_side, ends.iter().any(apart)) {
        (true, _) => Verdict::InSign,
        (false, false) => Verdict::Undecided,
        (false, true) => Verdict::Differs,
    }
}

/// One published statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Which figure or table of the paper it is from.
    pub figure: String,
    /// What it is about.
    pub what: String,
    /// What is said, and what was found.
    pub statement: Statement,
    /// What comes of it.
    pub verdict: Verdict,
}

impl Claim {
    fn row(&self) -> [String; 5] {
        let [published, ours, tolerance] = self.statement.shown();
        [self.what.clone(), published, ours, tolerance, self.verdict.word().into()]
    }
}

/// The published statements of a section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Claims {
    /// In the order of the page.
    pub all: Vec<Claim>,
    /// Whether no paper makes them: they are what one might expect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expected: bool,
}

impl Claims {
    /// Adds one; what comes of it is computed.
    pub fn add(&mut self, figure: impl Into<String>, what: impl Into<String>, statement: Statement) {
        let verdict = statement.verdict();
        self.all.push(Claim { figure: figure.into(), what: what.into(), statement, verdict });
    }

    /// All of them, side by side.
    pub fn table(&self) -> Table {
        let who = if self.expected { "expected" } else { "paper" };
        let mut table = Table::new(["", who, "ours", "tolerance", ""]);
        self.all.iter().for_each(|claim| table.row(claim.row()));
        table
    }

    /// How many have this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.all.iter().filter(|claim| claim.verdict == verdict).count()
    }

    /// What does not agree first, then how much does.
    pub fn verdict(&self) -> String {
        let all = self.all.len() - self.count(Verdict::Missing);
        let names = |verdict| {
            let names: Vec<&str> = (self.all.iter().filter(|claim| claim.verdict == verdict))
                .map(|claim| claim.what.as_str())
                .collect();
            if names.len() > LISTED_MAX { "as marked in the table".into() } else { names.join("; ") }
        };
        match all {
            0 => return "Nothing of this can be compared with these results.".into(),
            1 => {
                let said = match self.all.iter().map(|claim| claim.verdict).find(|it| *it != Verdict::Missing)
                {
                    Some(Verdict::Agrees) => "Agrees within its tolerance.",
                    Some(Verdict::InSign) => "Agrees in sign only.",
                    Some(Verdict::Undecided) => "Undecided: the interval is too wide.",
                    _ => "Does not agree.",
                };
                return said.into();
            }
            _ => {}
        }
        let mut said = Vec::new();
        for (verdict, before, each) in [
            (Verdict::Differs, "Does not agree", "any of"),
            (Verdict::Undecided, "Undecided, as intervals are too wide,", "all"),
            (Verdict::InSign, "Agrees in sign only", "all"),
        ] {
            match self.count(verdict) {
                0 => {}
                count if count == all => said.push(format!("{before} in {each} {all} statements.")),
                count => said.push(format!("{before} in {count} of {all} statements: {}.", names(verdict))),
            }
        }
        match self.count(Verdict::Agrees) {
            0 => {}
            count if count == all => said.push(format!("Agrees in all {all} statements.")),
            count => said.push(format!("Agrees in {count} of {all}.")),
        }
        said.join(" ")
    }
}

/// As published: with all its decimals.
fn exact(value: f64) -> String {
    // Adding 0 makes 0 of -0.
    format!("{}", value + 0.0)
}

/// As measured: three digits.
fn plain(value: f64) -> String {
    let text = units::number(value);
    if text.trim_start_matches('-').chars().all(|digit| matches!(digit, '0' | '.')) {
        "0".into()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(low: f64, high: f64) -> Interval {
        Interval { low, mean: f64::midpoint(low, high), high }
    }

    fn change(published: (f64, f64), ours: &[Interval], points: f64) -> Statement {
        Statement::Number {
            published,
            ours: Range::of(ours.iter().copied()),
            unit: " %".into(),
            no_change: Some(0.0),
            tolerance: Tolerance::Within(points),
        }
    }

    #[test]
    fn the_whole_interval_counts() {
        let at = |low, high| change((30.0, 30.0), &[interval(low, high)], 10.0).verdict();
        assert_eq!(at(21.0, 40.0), Verdict::Agrees);
        // The mean is within the tolerance, a part of the interval is not.
        assert_eq!(at(15.0, 35.0), Verdict::InSign);
        assert_eq!(at(-5.0, 45.0), Verdict::Undecided);
        assert_eq!(at(50.0, 60.0), Verdict::InSign);
        assert_eq!(at(-5.0, 5.0), Verdict::Differs, "no change is shown, and 20 % are excluded");
        assert_eq!(at(-40.0, -20.0), Verdict::Differs);
        let number = |low, high| {
            let ours = Range::of([interval(low, high)]);
            let (published, unit) = ((100.0, 100.0), " s".into());
            Statement::Number { published, ours, unit, no_change: None, tolerance: Tolerance::Percent(20.0) }
                .verdict()
        };
        assert_eq!(
            [number(80.0, 120.0), number(90.0, 130.0), number(130.0, 140.0)],
            [Verdict::Agrees, Verdict::Undecided, Verdict::Differs]
        );
    }

    #[test]
    fn false_claims_are_found_out() {
        // A range that only its middle agrees with; a bound that a part is beyond; a case of ten that breaks it; a plain untruth.
        let range =
            change((8.0, 42.0), &[interval(5.0, 9.0), interval(20.0, 22.0), interval(70.0, 80.0)], 10.0);
        assert_eq!(range.verdict(), Verdict::InSign);
        let one_loses = change((8.0, 42.0), &[interval(-9.0, -3.0), interval(41.0, 43.0)], 10.0);
        assert_eq!(one_loses.verdict(), Verdict::Differs);
        let bound = |low, high| {
            let ours = Some(interval(low, high));
            Statement::Bound { least: None, most: Some(8.5), ours, unit: " s".into() }.verdict()
        };
        assert_eq!(
            [bound(1.0, 8.5), bound(8.0, 9.0), bound(9.0, 99.0)],
            [Verdict::Agrees, Verdict::Undecided, Verdict::Differs]
        );
        let between = |low, high| {
            let ours = Some(interval(low, high));
            Statement::Bound { least: Some(4.0), most: Some(8.5), ours, unit: " s".into() }.verdict()
        };
        // What is wider than both bounds may be within them.
        assert_eq!(
            [between(4.0, 8.5), between(3.0, 9.0), between(1.0, 3.9), between(8.6, 9.0)],
            [Verdict::Agrees, Verdict::Undecided, Verdict::Differs, Verdict::Differs]
        );
        let everywhere = |kept, open| Statement::Everywhere { kept, open, all: 10 }.verdict();
        assert_eq!(
            [everywhere(10, 0), everywhere(9, 1), everywhere(9, 0), everywhere(8, 1)],
            [Verdict::Agrees, Verdict::Undecided, Verdict::Differs, Verdict::Differs]
        );
        assert_eq!(Statement::Fact { published: true, ours: Some(false) }.verdict(), Verdict::Differs);
        let nothing = [
            change((1.0, 1.0), &[], 1.0),
            Statement::Bound { least: Some(1.0), most: None, ours: None, unit: String::new() },
            Statement::Everywhere { kept: 0, open: 0, all: 0 },
            Statement::Fact { published: true, ours: None },
        ];
        assert!(nothing.iter().all(|statement| statement.verdict() == Verdict::Missing));
    }

    #[test]
    fn twice_and_half_cancel_out() {
        let ratio = Interval::of_ratios(&[(2.0, 1.0), (1.0, 2.0)], 0.95).unwrap();
        assert!((ratio.mean - 1.0).abs() < 1e-12 && ratio.low < 1.0 && ratio.high > 1.0);
        let same = Interval::of_ratios(&[(2.0, 4.0), (300.0, 600.0)], 0.95).unwrap();
        let less = same.map(|ratio| 100.0 * (1.0 - ratio));
        assert!(
            [less.low, less.mean, less.high].iter().all(|percent| (percent - 50.0).abs() < 1e-9),
            "{less:?}"
        );
        assert_eq!(Interval::of_ratios(&[(1.0, 0.0), (1.0, 1.0)], 0.95), None);
        assert_eq!(Interval::of_ratios(&[], 0.95), None);
        let falls = interval(1.0, 2.0).map(|value| -value);
        assert_eq!((falls.low, falls.high), (-2.0, -1.0));
    }

    #[test]
    fn what_does_not_agree_is_said_first_and_is_what_the_table_has() {
        let mut claims = Claims::default();
        assert_eq!(claims.verdict(), "Nothing of this can be compared with these results.");
        claims.add("figure 5", "near", change((29.8, 29.8), &[interval(29.0, 31.0)], 10.0));
        assert_eq!(claims.verdict(), "Agrees within its tolerance.");
        claims.add(
            "figure 5",
            "larger",
            change((10.0, 20.0), &[interval(55.0, 55.0), interval(60.0, 70.0)], 10.0),
        );
        claims.add("figure 6", "each", Statement::Everywhere { kept: 5, open: 0, all: 6 });
        claims.add("figure 6", "same tree", Statement::Fact { published: true, ours: None });
        let wide = Statement::Bound {
            least: Some(5400.0),
            most: None,
            ours: Some(interval(5000.0, 5500.0)),
            unit: " s".into(),
        };
        claims.add("figure 7", "long", wide);
        assert_eq!(
            claims.verdict(),
            "Does not agree in 1 of 4 statements: each. Undecided, as intervals are too wide, in 1 of 4 statements: long. \
             Agrees in sign only in 1 of 4 statements: larger. Agrees in 1 of 4."
        );
        let table = claims.table().markdown();
        for row in [
            "| near | 29.8 % | 30 (29 to 31) % | \u{b1} 10 points | agrees |",
            "| larger | 10 to 20 % | from 55 to 65 (60 to 70) % | \u{b1} 10 points | in sign only |",
            "| each | all | 5 of 6 | - | does not agree |",
            "| same tree | yes | - | - | - |",
            "| long | at least 5400 s | 5250 (5000 to 5500) s | - | undecided |",
        ] {
            assert!(table.contains(row), "{table}");
        }
        let kept: Claims = serde_json::from_str(&serde_json::to_string(&claims).unwrap()).unwrap();
        assert_eq!(kept, claims);
    }

    #[test]
    fn what_is_so_of_all_is_said_of_all() {
        let all = |statement: fn() -> Statement| {
            let mut claims = Claims::default();
            for what in ["one", "other"] {
                claims.add("figure 1", what, statement());
            }
            claims.verdict()
        };
        let larger = || change((10.0, 20.0), &[interval(60.0, 70.0)], 10.0);
        assert_eq!(all(larger), "Agrees in sign only in all 2 statements.");
        let none = || Statement::Everywhere { kept: 5, open: 0, all: 6 };
        assert_eq!(all(none), "Does not agree in any of 2 statements.");
        let open = || Statement::Everywhere { kept: 5, open: 1, all: 6 };
        assert_eq!(all(open), "Undecided, as intervals are too wide, in all 2 statements.");
    }
}
