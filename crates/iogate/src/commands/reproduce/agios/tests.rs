//! What the trees' sections say of times that are kept here: one run of each situation, all of them and the half of one device.

use iogate_report::claims::Interval;

use super::samples::Samples;
use super::situations::{Situation, Situations};
use super::{selection, trees};
use crate::commands::reproduce::Settings;
use crate::commands::reproduce::claims::Cell;
use crate::commands::reproduce::figure::Reproduced;
use crate::commands::scenario::built_in_plan;

/// Device, processes, operation, pattern, then the time in seconds with each scheduler of the header.
const TIMES: &str = include_str!("times.csv");
/// What is said of them. Looked through by hand once; `UPDATE_GOLDEN=1` writes it again after a change that is meant.
const GOLDEN: &str = include_str!("golden.md");

fn situations(of: &dyn Fn(&[&str]) -> bool) -> Situations {
    let rows: Vec<Vec<&str>> = TIMES.lines().map(|line| line.split(',').collect()).collect();
    let (header, rows) = rows.split_first().unwrap();
    let plan = built_in_plan("agios", false).unwrap_or_else(|_| panic!("the scenario is built in"));
    let time = |settings: &Settings<'_>| -> Option<f64> {
        let value = |key: &str| settings.iter().find(|(name, _)| *name == key).unwrap().1;
        let keys = [super::DEVICE, super::PROCESSES, super::OP, super::PATTERN].map(value);
        let row = rows.iter().find(|row| row[..4] == keys && of(row))?;
        let column = header.iter().position(|name| *name == value(super::SCHEDULER))?;
        Some(row[column].parse().unwrap())
    };
    Situations::new(&plan, &|settings, base| Some(Cell::of(&[(1, time(settings)? / time(base)?)], 0.9)))
}

fn text(situations: Situations) -> String {
    let samples = Samples::new(situations);
    let mut figures = trees::figures(&[], &samples);
    figures.push(selection::figure(&[], &samples));
    Reproduced::new("", "Trees", Vec::new(), figures).page.markdown()
}

#[test]
fn the_sections_of_the_trees_are_as_kept() {
    let found = text(situations(&|_| true));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands/reproduce/agios/golden.md");
        std::fs::write(path, &found).unwrap();
    }
    assert_eq!(found, GOLDEN);
    assert_eq!(found, text(situations(&|_| true)), "the same again");
}

#[test]
fn one_device_and_one_number_of_processes_are_enough_for_a_page() {
    let some = situations(&|row| row[0] == "graphene" && row[1] == "8");
    assert_eq!(some.all.len(), 24);
    let page = text(some);
    assert!(page.contains("| T2, learnt with 8 processes | 5.21 % | - | \u{b1} 5 points | - |"), "{page}");
    assert!(page.contains("| oracle (table III): faster | 71 | - | \u{b1} 5 | - |"), "{page}");
    let none = text(situations(&|_| false));
    assert!(!none.contains("NaN"), "{none}");
}

#[test]
fn table_three_is_of_the_mean_over_processes() {
    let all = situations(&|_| true);
    for situation in &all.all {
        let is = |other: &&Situation| {
            (&other.device, &other.op, &other.pattern)
                == (&situation.device, &situation.op, &situation.pattern)
        };
        let alike: Vec<_> = all.all.iter().filter(is).collect();
        assert_eq!(alike.len(), 2);
        let mean =
            |scheduler: usize| (alike[0].ratios[scheduler].mean + alike[1].ratios[scheduler].mean) / 2.0;
        let best = (0..5).map(mean).fold(f64::INFINITY, f64::min);
        if situation.right == 0 {
            assert!(best > 0.9, "{best}");
        } else {
            assert!(best <= 0.9 && (mean(situation.right) - best).abs() < 1e-12, "{best}");
            assert!((situation.gain - (1.0 - best)).abs() < 1e-12);
        }
        assert_eq!(situation.ratios[0], Interval::exact(1.0));
    }
    assert_eq!(all.schedulers[0], "fifo");
}

#[test]
fn an_interval_over_all_situations_is_by_what_each_seed_is_worth() {
    let plan = built_in_plan("agios", false).unwrap_or_else(|_| panic!("the scenario is built in"));
    let with = |shares: &'static [f64]| {
        let ratio = move |settings: &Settings<'_>, _: &Settings<'_>| {
            let scheduler = settings.iter().find(|(name, _)| *name == super::SCHEDULER).unwrap().1;
            let shares = shares.iter().map(|share| if scheduler == "aioli" { *share } else { 1.0 });
            Some(Cell::of(&(1..).zip(shares).collect::<Vec<_>>(), 0.9))
        };
        Samples::new(Situations::new(&plan, &ratio))
    };
    let gain = |samples: &Samples| {
        samples.interval(|of| Some(1.0 - of.selection("aioli always")?.ratios[0])).unwrap()
    };
    let alike = gain(&with(&[0.5, 0.5, 0.5]));
    assert!((alike.low - 0.5).abs() < 1e-9 && (alike.high - 0.5).abs() < 1e-9, "{alike:?}");
    let apart = gain(&with(&[0.4, 0.5, 0.625]));
    assert!((apart.mean - 0.5).abs() < 1e-9 && apart.low < 0.4 && apart.high > 0.6, "{apart:?}");
    // Whom table III names is asked again without each seed: aioli gains less than 10 % without the first.
    let right = with(&[0.5, 0.95, 0.95]);
    let share =
        right.interval(|of| Some(of.situations.all.iter().filter(|one| one.right > 0).count() as f64));
    let share = share.unwrap();
    assert!(share.mean == 192.0 && share.low < 192.0, "{share:?}");
    // What there is none of without a seed is not taken for the same with every seed.
    let some = |of: &super::samples::Outcome| {
        Some(of.situations.all.iter().filter(|one| one.right > 0).count() as f64).filter(|count| *count > 0.0)
    };
    assert_eq!((some(&right.whole), right.interval(some)), (Some(192.0), None));
}
