//! Figure 5, what section 5 counts, and table VII: what a selection gains and loses in time.

use iogate_report::Table;
use iogate_report::claims::{Interval, Tolerance};
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_sim::metrics::Unit;

use super::samples::{Outcome, Samples};
use super::situations::{Situation, Situations};
use super::trees::Learnt;
use super::{BASE, SIGNIFICANT};
use crate::commands::reproduce::claims::{NEAR, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percent};

/// The paper's number of situations: numbers of them compare with no other.
const PUBLISHED_SITUATIONS: usize = 192;
/// How far a number of situations may be from the paper's: a small one only by a share of it, so that none is not as good as a few.
const COUNT_NEAR: f64 = 5.0;

fn count_near(published: f64) -> Tolerance {
    let few = matches!(NEAR, Tolerance::Percent(percent) if published * percent / 100.0 < COUNT_NEAR);
    if few { NEAR } else { Tolerance::Within(COUNT_NEAR) }
}

/// How far a change of time may be from the paper's, in percentage points: what it calls significant.
const CHANGE_POINTS: f64 = 100.0 * SIGNIFICANT;
/// As fast as the best, but for so much.
const CLOSE: f64 = 1.05;

/// Somebody's choices, and what comes of them.
pub(super) struct Selection {
    pub(super) name: String,
    /// Time over time without a scheduler, for each situation.
    pub(super) ratios: Vec<f64>,
    gains: Vec<f64>,
    losses: Vec<f64>,
    /// How many situations gain and lose: surely, by the mean, perhaps.
    gaining: Interval,
    losing: Interval,
    /// How much longer than with the best of each situation, on average.
    regret: f64,
    /// The share that is as fast as the best.
    close: f64,
}

impl Selection {
    fn new(
        name: impl Into<String>,
        situations: &Situations,
        ratio: impl Fn(usize, &Situation) -> Interval,
    ) -> Selection {
        let intervals: Vec<Interval> =
            situations.all.iter().enumerate().map(|(index, situation)| ratio(index, situation)).collect();
        let ratios: Vec<f64> = intervals.iter().map(|interval| interval.mean).collect();
        let count =
            |is: &dyn Fn(&Interval) -> bool| intervals.iter().filter(|ratio| is(ratio)).count() as f64;
        let gaining = Interval {
            low: count(&|ratio| 1.0 - ratio.high > SIGNIFICANT),
            mean: count(&|ratio| 1.0 - ratio.mean > SIGNIFICANT),
            high: count(&|ratio| 1.0 - ratio.low > SIGNIFICANT),
        };
        let losing = Interval {
            low: count(&|ratio| ratio.low - 1.0 > SIGNIFICANT),
            mean: count(&|ratio| ratio.mean - 1.0 > SIGNIFICANT),
            high: count(&|ratio| ratio.high - 1.0 > SIGNIFICANT),
        };
        let significant = |change: &f64| *change > SIGNIFICANT;
        let mut gains: Vec<f64> = ratios.iter().map(|ratio| 1.0 - ratio).filter(significant).collect();
        let mut losses: Vec<f64> = ratios.iter().map(|ratio| ratio - 1.0).filter(significant).collect();
        gains.sort_by(f64::total_cmp);
        losses.sort_by(f64::total_cmp);
        let behind: Vec<f64> = ratios
            .iter()
            .zip(&situations.all)
            .map(|(ratio, situation)| ratio / situation.fastest())
            .collect();
        let total = behind.len().max(1) as f64;
        Selection {
            name: name.into(),
            regret: behind.iter().map(|behind| behind - 1.0).sum::<f64>() / total,
            close: behind.iter().filter(|behind| **behind <= CLOSE).count() as f64 / total,
            ratios,
            gains,
            losses,
            gaining,
            losing,
        }
    }

    fn of(name: impl Into<String>, situations: &Situations, choices: &[usize]) -> Selection {
        Selection::new(name, situations, |index, situation| situation.ratios[choices[index]])
    }
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| 100.0 * values.iter().sum::<f64>() / values.len() as f64)
}

/// Of values in order.
fn median(values: &[f64]) -> Option<f64> {
    let (low, high) = (values.get(values.len().saturating_sub(1) / 2)?, values.get(values.len() / 2)?);
    Some(100.0 * low.midpoint(*high))
}

fn most(values: &[f64]) -> Option<f64> {
    values.last().map(|value| 100.0 * value)
}

/// The largest of some changes, in percent: none if nothing changes that way.
fn largest(changes: impl Iterator<Item = f64>) -> Option<f64> {
    changes.max_by(f64::total_cmp).map(|change| 100.0 * change.max(0.0))
}

/// Everybody who selects, by name.
pub(super) fn all(situations: &Situations, trees: &[Learnt]) -> Vec<Selection> {
    let mut all = vec![
        Selection::new("the best of each situation", situations, |_, situation| {
            Interval::exact(situation.fastest())
        }),
        Selection::new("oracle (table III)", situations, |_, situation| situation.ratios[situation.right]),
    ];
    for tree in trees {
        all.push(Selection::of(format!("{}, trained", tree.name), situations, &tree.trained));
    }
    for tree in trees {
        if let Some(first) = tree.ten_fold.first() {
            all.push(Selection::of(format!("{}, ten-fold", tree.name), situations, first));
        }
    }
    for tree in trees {
        if let Some(choices) = &tree.other_devices {
            all.push(Selection::of(format!("{}, device left out", tree.name), situations, choices));
        }
    }
    for (index, name) in situations.schedulers.iter().enumerate() {
        let name = if name == BASE { "no scheduler".into() } else { format!("{name} always") };
        all.push(Selection::new(name, situations, |_, situation| situation.ratios[index]));
    }
    all
}

/// How many situations each of them gains and loses, and how much.
pub(super) fn table(all: &[Selection]) -> Table {
    let mut table = Table::new([
        "",
        "faster",
        "median gain",
        "slower",
        "median loss",
        "worst loss",
        "mean regret",
        "about as fast as the best",
    ]);
    for selection in all {
        table.row([
            selection.name.clone(),
            counted(selection.gaining),
            percent(median(&selection.gains)),
            counted(selection.losing),
            percent(median(&selection.losses)),
            percent(most(&selection.losses)),
            format!("{:.1} %", 100.0 * selection.regret),
            percent(Some(100.0 * selection.close)),
        ]);
    }
    table
}

pub(super) fn figure<'a>(results: &'a [Experiment], samples: &Samples) -> Figure<'a> {
    let Outcome { situations, selections: all, .. } = &samples.whole;
    let mut sheet = Sheet::of("figure 5 and table VII");
    absolute(&mut sheet, samples);
    relative(&mut sheet, "", samples);
    let table = table(all);
    Figure {
        title: "Figure 5 and table VII: what a selection gains and loses".into(),
        results: results.iter().collect(),
        setup: "The paper applies each tree to the situations that it was learnt from, and compares times with those without a scheduler, with aIOLi \
                always and with SJF always: how many change by more than 10 %, and by how much. The oracle selects what table III says."
            .into(),
        sheet,
        tables: vec![(
            format!(
                "Of {} situations; in parentheses, how many surely change, and how many perhaps; regret is how much longer it takes than with the \
                 best of each situation, on average",
                situations.all.len()
            ),
            table,
        )],
        pictures: vec![("Median gains and losses of those that change significantly".into(), groups(&medians(all)))],
        remarks: "The paper's times of trees are of the situations that they were learnt from; the rows of ten-fold and of devices left out say \
                  what a tree is worth on what it has not seen."
            .into(),
    }
}

/// A number of situations, and between what it lies.
fn counted(count: Interval) -> String {
    let Interval { low, mean, high } = count;
    if low == high { mean.to_string() } else { format!("{mean} ({low} to {high})") }
}

/// Whether these are the paper's situations, so that numbers of them compare.
fn full(samples: &Samples) -> bool {
    samples.whole.situations.all.len() == PUBLISHED_SITUATIONS
}

fn absolute(sheet: &mut Sheet, samples: &Samples) {
    let counted = [
        ("oracle (table III)", 71.0, 4.0),
        ("T1, trained", 71.0, 4.0),
        ("T2, trained", 71.0, 4.0),
        ("aioli always", 66.0, 37.0),
        ("sjf always", 42.0, 21.0),
    ];
    let found = |name: &str| samples.whole.selection(name).filter(|_| full(samples));
    for (name, gains, losses) in counted {
        let ours = found(name);
        sheet.number(
            format!("{name}: faster"),
            gains,
            "",
            ours.map(|selection| selection.gaining),
            count_near(gains),
        );
        sheet.number(
            format!("{name}: slower"),
            losses,
            "",
            ours.map(|selection| selection.losing),
            count_near(losses),
        );
    }
    let ours = found("T3, trained").map(|selection| selection.losing);
    sheet.number("T3, trained: slower", 10.0, "", ours, count_near(10.0));
    type Of = fn(&Selection) -> Option<f64>;
    let mean_gain: Of = |selection| mean(&selection.gains);
    let mean_loss: Of = |selection| mean(&selection.losses);
    let median_loss: Of = |selection| median(&selection.losses);
    let most_gain: Of = |selection| largest(selection.ratios.iter().map(|ratio| 1.0 - ratio));
    let most_loss: Of = |selection| largest(selection.ratios.iter().map(|ratio| ratio - 1.0));
    let published: [(&str, &str, Of, f64); 13] = [
        ("oracle (table III)", "mean gain", mean_gain, 23.0),
        ("oracle (table III)", "largest gain", most_gain, 59.0),
        ("aioli always", "mean gain", mean_gain, 23.0),
        ("aioli always", "largest gain", most_gain, 59.0),
        ("sjf always", "mean gain", mean_gain, 21.0),
        ("sjf always", "largest gain", most_gain, 45.0),
        ("oracle (table III)", "largest loss", most_loss, 12.0),
        ("aioli always", "mean loss", mean_loss, 72.0),
        ("aioli always", "largest loss", most_loss, 278.0),
        ("sjf always", "mean loss", mean_loss, 14.0),
        ("sjf always", "largest loss", most_loss, 23.0),
        ("T1, trained", "median loss", median_loss, 11.0),
        ("T3, trained", "median loss", median_loss, 25.0),
    ];
    for (name, what, of, published) in published {
        let ours = samples.interval(|outcome| of(outcome.selection(name)?));
        sheet.percent(format!("{name}: {what}"), published, ours, CHANGE_POINTS);
    }
}

/// Table VII: trees against one algorithm for everything; `where_` stands before each claim.
pub(super) fn relative(sheet: &mut Sheet, where_: &str, samples: &Samples) {
    let published = [
        ("aioli always", "T1, trained", [74.9, 5.0, 89.0]),
        ("aioli always", "T2, trained", [74.9, 5.0, 89.0]),
        ("aioli always", "T3, trained", [74.9, 1.0, 74.0]),
        ("sjf always", "T1, trained", [38.0, 64.0, 80.0]),
        ("sjf always", "T2, trained", [38.0, 64.0, 80.0]),
        ("sjf always", "T3, trained", [38.0, 58.0, 54.0]),
    ];
    type Of = fn(&Selection, &Selection) -> Option<f64>;
    let shorter: Of =
        |fixed, tree| largest(fixed.ratios.iter().zip(&tree.ratios).map(|(fixed, tree)| 1.0 - tree / fixed));
    let more: Of = |fixed, tree| Some(100.0 * change(fixed.gains.len(), tree.gains.len())?);
    let fewer: Of = |fixed, tree| Some(-100.0 * change(fixed.losses.len(), tree.losses.len())?);
    for (fixed, tree, [up_to, gain, lose]) in published {
        let of = |ours: Of| {
            let ours = samples.interval(|outcome| ours(outcome.selection(fixed)?, outcome.selection(tree)?));
            ours.filter(|_| full(samples))
        };
        // A time is shorter by all of it at most, and no more situations can be fewer than there are.
        let all_at_most = |ours: Of| Some(of(ours)?.within(f64::NEG_INFINITY, 100.0));
        let what = |text: &str| format!("{where_}{tree}, over {fixed}: {text}");
        sheet.percent(what("shorter by up to"), up_to, all_at_most(shorter), CHANGE_POINTS);
        sheet.percent(what("more situations gain"), gain, of(more), CHANGE_POINTS);
        sheet.percent(what("fewer situations lose"), lose, all_at_most(fewer), CHANGE_POINTS);
    }
}

/// From one number of situations to another; of none there is no share.
fn change(from: usize, to: usize) -> Option<f64> {
    (from > 0).then(|| to as f64 / from as f64 - 1.0)
}

fn medians(all: &[Selection]) -> Groups {
    let bar = |selection: &Selection| {
        let part = |values: &[f64]| Some(Interval::exact(median(values).unwrap_or(0.0) / 100.0));
        Bars { name: selection.name.clone(), values: vec![part(&selection.gains), part(&selection.losses)] }
    };
    let shown = |selection: &&Selection| {
        ["oracle (table III)", "T1, trained", "T2, trained", "T3, trained", "aioli always", "sjf always"]
            .contains(&selection.name.as_str())
    };
    Groups {
        title: "Figure 5a".into(),
        unit: Unit::Ratio,
        groups: vec!["gains".into(), "losses".into()],
        series: all.iter().filter(shown).map(bar).collect(),
    }
}

#[cfg(test)]
mod tests {
    use iogate_report::claims::Verdict;

    use super::*;

    #[test]
    fn none_is_not_as_many_as_a_few() {
        let of = |published: f64, ours: f64| {
            let mut sheet = Sheet::of("f");
            sheet.number("w", published, "", Some(Interval::exact(ours)), count_near(published));
            sheet.claims.all[0].verdict
        };
        assert_eq!([of(4.0, 0.0), of(10.0, 5.0), of(71.0, 77.0)], [Verdict::Differs; 3]);
        assert_eq!([of(4.0, 4.0), of(10.0, 8.0), of(21.0, 17.0), of(71.0, 66.0)], [Verdict::Agrees; 4]);
    }
}
