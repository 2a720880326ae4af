//! Set-10 (IO-Sets, 2023), with periods found while jobs run (FTIO, 2024): turns within sets of like periods, sets side by side.
//!
//! Neither is among the papers that iogate follows figure by figure: what is compared is what their abstracts say.

use iogate_report::Table;
use iogate_report::claims::Interval;

use super::claims::{Cell, Sheet};
use super::figure::{Figure, Reproduced};
use super::{Experiment, Lab, factor, percents};
use crate::failure::Failure;

const CASE: &str = "case";
/// Utilisations agree within so many points where the published change is small.
const SMALL_POINTS: f64 = 1.0;
const ALONE: &str = "alone";
const NOBODY: &str = "nobody";
const SETS: &str = "Set-10";
const HELD: &str = "Set-10, held to its shares";

/// The applications of a scenario: kinds, and the names of each.
type Kinds<'a> = [(&'a str, Vec<String>)];

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let periods = lab.experiment("sets-periods")?;
    let magnitudes = lab.experiment("sets-magnitudes")?;
    let notes = vec![
        "Slowdown is the time in I/O phases, waits for turns included, by that of the same application alone; the mean over the applications. \
         Utilisation is the part of its time that an application computes; the mean over them."
            .into(),
        "`nobody` is fair sharing: the storage serves in the order in which requests come, and each application has as many underway. The coordinator is \
         told no periods: it learns them from when jobs ask for turns."
            .into(),
    ];
    let figures = vec![often_and_seldom(&periods)?, three_magnitudes(&magnitudes)?];
    let title = "Set-10 and learnt periods: jobs in sets by how often they write";
    Ok(Reproduced::new("iogate reproduce sets", title, notes, figures))
}

fn often_and_seldom(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let kinds = [("often", vec!["often".to_owned()]), ("seldom", numbered("seldom", 15))];
    let mut sheet = Sheet::of("FTIO, abstract");
    let measures = Measures::of(results, &kinds)?;
    sheet.change("lower slowdown than with fair sharing", 56.0, measures.lower_slowdown(SETS, NOBODY));
    sheet.change(
        "higher utilisation than with fair sharing",
        26.0,
        measures.higher_utilisation(SETS, NOBODY),
    );
    Ok(Figure {
        title: "Fifteen applications that write seldom, and one that writes often".into(),
        results: vec![results],
        setup: "FTIO's set-up, as far as it is known here: one application with a period of 19.2 s and fifteen with one of 384 s, each for a sixteenth of its time in its I/O, \
                on one file system; Set-10 with the periods that are found while the jobs run. Ours: the same periods and parts, on one NVMe drive; \
                how long each computes varies by a ninth."
            .into(),
        sheet,
        tables: measures.tables(),
        remarks: "Turns in the order in which they are asked for make the one that writes often wait for each of the others; in a set of its own it waits \
                  for nobody, and shares the drive with one of the others at a time. In the simulator the shares of Set-10 are only told; with weights of the same \
                  proportion at the gate they are held, which helps the one that writes often."
            .into(),
        ..Figure::default()
    })
}

fn three_magnitudes(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let kinds = ["tens", "hundreds", "thousands"].map(|kind| (kind, numbered(kind, 4)));
    let mut sheet = Sheet::of("IO-Sets, abstract");
    let measures = Measures::of(results, &kinds)?;
    sheet.change(
        "lower slowdown than with fair sharing, in most scenarios",
        50.0,
        measures.lower_slowdown(SETS, NOBODY),
    );
    sheet.percent(
        "higher utilisation, in these scenarios",
        2.5,
        measures.higher_utilisation(SETS, NOBODY),
        SMALL_POINTS,
    );
    sheet.next("control: shares");
    sheet.change("the same of the slowdown, held to its shares", 50.0, measures.lower_slowdown(HELD, NOBODY));
    sheet.percent(
        "the same of the utilisation, held to its shares",
        2.5,
        measures.higher_utilisation(HELD, NOBODY),
        SMALL_POINTS,
    );
    Ok(Figure {
        title: "Twelve applications of three magnitudes".into(),
        results: vec![results],
        setup: "IO-Sets simulates applications whose periods are of three orders of magnitude, in many mixes. Ours: one mix, four of each of 10, 100 and \
                1000 s, which alone are for a fifteenth of their time in their I/O."
            .into(),
        sheet,
        tables: measures.tables(),
        remarks: "Set-10 gives each set a share of the throughput, the more the shorter its periods. That is the control: held to these shares by weights at the gate, \
                  it gains more. What else differs from the paper's scenarios is not known here, but for the mix."
            .into(),
        ..Figure::default()
    })
}

fn numbered(kind: &str, count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("{kind}-{number}")).collect()
}

/// What is measured of each kind of application in each case.
struct Measures<'a> {
    kinds: Vec<&'a str>,
    /// Cases but `alone`: of each kind its slowdown and its utilisation, and of all applications.
    cases: Vec<(String, Vec<[Cell; 2]>, [Cell; 2])>,
}

impl<'a> Measures<'a> {
    fn of(results: &Experiment, kinds: &Kinds<'a>) -> Result<Measures<'a>, Failure> {
        let mut cases = Vec::new();
        for case in results.values(CASE).iter().filter(|case| *case != ALONE) {
            let mut by_kind = Vec::new();
            let mut all: Vec<[Cell; 2]> = Vec::new();
            for (_, names) in kinds {
                let alone = results.app_cell(&[(CASE, ALONE)], &names[0], "io_time")?;
                let mut of_kind = Vec::new();
                for name in names {
                    let cell = |metric| results.app_cell(&[(CASE, case)], name, metric);
                    let io = cell("io_time")?;
                    let utilisation = io.with(&cell("completion")?, |io, whole| 1.0 - io / whole);
                    of_kind.push([io.with(&alone, |io, alone| io / alone), utilisation]);
                }
                by_kind.push(mean(&of_kind));
                all.extend(of_kind);
            }
            cases.push((case.clone(), by_kind, mean(&all)));
        }
        Ok(Measures { kinds: kinds.iter().map(|(kind, _)| *kind).collect(), cases })
    }

    fn all(&self, case: &str) -> Option<&[Cell; 2]> {
        self.cases.iter().find(|(known, ..)| known == case).map(|(_, _, all)| all)
    }

    fn lower_slowdown(&self, case: &str, base: &str) -> Option<Interval> {
        self.all(case)?[0].lower(&self.all(base)?[0])
    }

    fn higher_utilisation(&self, case: &str, base: &str) -> Option<Interval> {
        self.all(case)?[1].higher(&self.all(base)?[1])
    }

    fn tables(&self) -> Vec<(String, Table)> {
        let head = || [CASE, "all"].into_iter().chain(self.kinds.iter().copied());
        let (mut slowdowns, mut utilisations) = (Table::new(head()), Table::new(head()));
        for (case, by_kind, all) in &self.cases {
            let cells = || std::iter::once(all).chain(by_kind);
            let slowdown = cells().map(|[slowdown, _]| factor(slowdown.interval()));
            slowdowns.row(std::iter::once(case.clone()).chain(slowdown));
            let utilisation = cells().map(|[_, part]| percents(part.map(|part| 100.0 * part).interval()));
            utilisations.row(std::iter::once(case.clone()).chain(utilisation));
        }
        vec![
            ("Slowdown of the I/O, of all and of each kind".into(), slowdowns),
            ("Utilisation, of all and of each kind".into(), utilisations),
        ]
    }
}

/// The means over applications, seed by seed.
fn mean(cells: &[[Cell; 2]]) -> [Cell; 2] {
    [0, 1].map(|index| {
        let mut sum = cells[0][index].clone();
        for cell in &cells[1..] {
            sum = sum.with(&cell[index], |sum, one| sum + one);
        }
        sum.map(|sum| sum / cells.len() as f64)
    })
}
