//! Figure 5, what section 5 counts, and table VII: what a selection gains and loses in time.

use iogate_report::Table;
use iogate_report::claims::{Interval, Tolerance};
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_sim::metrics::Unit;

use super::situations::{Situation, Situations};
use super::trees::Learnt;
use super::{BASE, SIGNIFICANT};
use crate::commands::reproduce::claims::Sheet;
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percent};

/// The paper's number of situations: numbers of them compare with no other.
const PUBLISHED_SITUATIONS: usize = 192;
/// How far a number of situations may be from the paper's.
const COUNT_NEAR: f64 = 5.0;
/// How far a change of time may be from the paper's, in percentage points: what it calls significant.
const CHANGE_POINTS: f64 = 100.0 * SIGNIFICANT;
/// As fast as the best, but for so much.
const CLOSE: f64 = 1.05;

/// Somebody's choices, and what comes of them.
struct Selection {
    name: String,
    /// Time over time without a scheduler, for each situation.
    ratios: Vec<f64>,
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

fn least(values: &[f64]) -> Option<f64> {
    values.first().map(|value| 100.0 * value)
}

/// Everybody who selects, by name.
fn selections(situations: &Situations, trees: &[Learnt]) -> Vec<Selection> {
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

pub(super) fn figure<'a>(results: &'a [Experiment], situations: &Situations, trees: &[Learnt]) -> Figure<'a> {
    let all = selections(situations, trees);
    let named = |name: &str| all.iter().find(|selection| selection.name == name);
    let mut sheet = Sheet::of("figure 5 and table VII");
    let full = situations.all.len() == PUBLISHED_SITUATIONS;
    absolute(&mut sheet, full, &named);
    relative(&mut sheet, full, &named);
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
    for selection in &all {
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
        pictures: vec![("Median gains and losses of those that change significantly".into(), groups(&medians(&all)))],
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

type Named<'a> = dyn Fn(&str) -> Option<&'a Selection> + 'a;

fn absolute(sheet: &mut Sheet, full: bool, named: &Named<'_>) {
    let mut count = |what: String, published: u32, ours: Option<Interval>| {
        sheet.number(what, published.into(), "", ours.filter(|_| full), Tolerance::Within(COUNT_NEAR));
    };
    let counted = [
        ("oracle (table III)", 71, 4),
        ("T1, trained", 71, 4),
        ("T2, trained", 71, 4),
        ("aioli always", 66, 37),
        ("sjf always", 42, 21),
    ];
    for (name, gains, losses) in counted {
        let found = named(name);
        count(format!("{name}: faster"), gains, found.map(|selection| selection.gaining));
        count(format!("{name}: slower"), losses, found.map(|selection| selection.losing));
    }
    count("T3, trained: slower".into(), 10, named("T3, trained").map(|selection| selection.losing));
    type Of = fn(&[f64]) -> Option<f64>;
    let gains: [(&str, &str, Of, f64); 7] = [
        ("oracle (table III)", "mean gain", mean, 23.0),
        ("oracle (table III)", "smallest gain", least, 11.0),
        ("oracle (table III)", "largest gain", most, 59.0),
        ("aioli always", "mean gain", mean, 23.0),
        ("aioli always", "largest gain", most, 59.0),
        ("sjf always", "mean gain", mean, 21.0),
        ("sjf always", "largest gain", most, 45.0),
    ];
    for (name, what, of, published) in gains {
        let ours = named(name).and_then(|selection| of(&selection.gains));
        sheet.percent(format!("{name}: {what}"), published, ours.map(Interval::exact), CHANGE_POINTS);
    }
    let losses: [(&str, &str, Of, f64); 7] = [
        ("oracle (table III)", "largest loss", most, 12.0),
        ("aioli always", "mean loss", mean, 72.0),
        ("aioli always", "largest loss", most, 278.0),
        ("sjf always", "mean loss", mean, 14.0),
        ("sjf always", "largest loss", most, 23.0),
        ("T1, trained", "median loss", median, 11.0),
        ("T3, trained", "median loss", median, 25.0),
    ];
    for (name, what, of, published) in losses {
        let ours = named(name).and_then(|selection| of(&selection.losses));
        sheet.percent(format!("{name}: {what}"), published, ours.map(Interval::exact), CHANGE_POINTS);
    }
}

/// Table VII: trees against one algorithm for everything.
fn relative(sheet: &mut Sheet, full: bool, named: &Named<'_>) {
    let published = [
        ("aioli always", "T1, trained", [74.9, 5.0, 89.0]),
        ("aioli always", "T2, trained", [74.9, 5.0, 89.0]),
        ("aioli always", "T3, trained", [74.9, 1.0, 74.0]),
        ("sjf always", "T1, trained", [38.0, 64.0, 80.0]),
        ("sjf always", "T2, trained", [38.0, 64.0, 80.0]),
        ("sjf always", "T3, trained", [38.0, 58.0, 54.0]),
    ];
    for (fixed, tree, [up_to, more, less]) in published {
        let both = named(fixed).zip(named(tree)).filter(|_| full);
        let of = |ours: &dyn Fn(&Selection, &Selection) -> Option<f64>| {
            both.and_then(|(fixed, tree)| ours(fixed, tree)).map(|change| 100.0 * change)
        };
        let what = |text: &str| format!("{tree}, over {fixed}: {text}");
        let shorter = of(&|fixed, tree| {
            fixed
                .ratios
                .iter()
                .zip(&tree.ratios)
                .map(|(fixed, tree)| 1.0 - tree / fixed)
                .max_by(f64::total_cmp)
        });
        sheet.percent(what("shorter by up to"), up_to, shorter.map(Interval::exact), CHANGE_POINTS);
        let change = |from: usize, to: usize| (from > 0).then(|| to as f64 / from as f64 - 1.0);
        let gains = of(&|fixed, tree| change(fixed.gains.len(), tree.gains.len()));
        sheet.percent(what("more situations gain"), more, gains.map(Interval::exact), CHANGE_POINTS);
        let losses = of(&|fixed, tree| change(fixed.losses.len(), tree.losses.len()).map(|change| -change));
        sheet.percent(what("fewer situations lose"), less, losses.map(Interval::exact), CHANGE_POINTS);
    }
}

fn medians(all: &[Selection]) -> Groups {
    let bar = |selection: &Selection| {
        let part = |values: &[f64]| Some((median(values).unwrap_or(0.0) / 100.0, 0.0));
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
