//! Table III: the best algorithm for each situation, and what sections 3.1 to 3.4 say of its cells.

use iogate_report::Table;
use iogate_report::html::heat::{Cell, Heat, heat};

use super::samples::Samples;
use super::situations::{Situation, Situations};
use super::{FASTER, SIGNIFICANT, SLOWER, faster, largest, relative, slower, times};
use crate::commands::reproduce::claims::{Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percent};
use crate::failure::Failure;

const ALL: &[&str] = &["to-agg", "sjf", "mlf", "aioli"];
const BOTH: &[&str] = &["8", "16"];

/// Some cells that a sentence of the paper is about.
#[derive(Clone, Copy)]
struct Cells {
    /// As the paper calls the cluster; ours is called so in small letters.
    cluster: &'static str,
    /// How the patterns begin and end, as in `x1 N-1` and `large`; of nothing, all do.
    group: &'static str,
    spatiality: &'static str,
    size: &'static str,
    /// The operation; of nothing, both.
    op: &'static str,
    schedulers: &'static [&'static str],
    processes: &'static [&'static str],
}

/// What is said of them.
#[derive(Clone, Copy)]
enum Said {
    /// Somewhere it is faster by so many percent, and nowhere by more.
    Faster(f64),
    Slower(f64),
    /// Nowhere is it significantly faster.
    NeverFaster,
    NeverSlower,
    Neither,
}

const fn cells(cluster: &'static str, group: &'static str, size: &'static str, op: &'static str) -> Cells {
    Cells { cluster, group, spatiality: "", size, op, schedulers: ALL, processes: BOTH }
}

const fn by(cells: Cells, schedulers: &'static [&'static str]) -> Cells {
    Cells { schedulers, ..cells }
}

const fn of(cells: Cells, spatiality: &'static str) -> Cells {
    Cells { spatiality, ..cells }
}

const fn with_8(cells: Cells) -> Cells {
    Cells { processes: &["8"], ..cells }
}

const QUANTA: &[&str] = &["aioli", "mlf"];
const AIOLI: &[&str] = &["aioli"];
const MLF: &[&str] = &["mlf"];
const SJF: &[&str] = &["sjf"];
const TO_AGG: &[&str] = &["to-agg"];

/// Sections 3.1 to 3.4: where a figure is of a number of processes that is not here, what stands is over those that are.
const TEXT: [(Cells, Said); 36] = [
    (by(cells("Pastel", "x1 N-1", "large", "write"), QUANTA), Said::Faster(25.0)),
    (by(cells("Graphene", "x1 N-1", "large", "write"), QUANTA), Said::Faster(59.0)),
    (by(cells("Suno", "x1 N-1", "large", "write"), QUANTA), Said::Faster(31.0)),
    (cells("Pastel", "x1 N-1", "", "read"), Said::NeverFaster),
    (cells("Pastel", "x1 N-1", "small", "write"), Said::NeverFaster),
    (cells("Graphene", "x1 N-1", "", "read"), Said::NeverFaster),
    (cells("Graphene", "x1 N-1", "small", "write"), Said::NeverFaster),
    (by(cells("Pastel", "x1 N-1", "", ""), SJF), Said::Slower(23.0)),
    (by(cells("Graphene", "x1 N-1", "", ""), SJF), Said::Faster(39.0)),
    (by(cells("Suno", "x1 N-1", "", ""), SJF), Said::Faster(32.0)),
    (by(cells("Edel", "x1 N-1", "large", ""), AIOLI), Said::Faster(44.0)),
    (by(cells("Edel", "x1 N-1", "small", ""), AIOLI), Said::Slower(171.0)),
    (by(cells("Edel", "x1 N-1", "small", ""), SJF), Said::Faster(19.0)),
    (cells("Pastel", "x4 N-1", "", ""), Said::NeverFaster),
    (of(by(cells("Graphene", "x4 N-1", "small", "read"), AIOLI), "contiguous"), Said::Slower(54.0)),
    (of(by(cells("Graphene", "x4 N-1", "large", "read"), MLF), "strided"), Said::Faster(17.0)),
    (cells("Suno", "x4 N-1", "", "write"), Said::Faster(17.0)),
    (cells("Suno", "x4 N-1", "", "read"), Said::Faster(36.0)),
    (cells("Suno", "x4 N-1", "", ""), Said::NeverSlower),
    (by(cells("Edel", "x4 N-1", "", "read"), TO_AGG), Said::Faster(22.0)),
    (by(cells("Edel", "x4 N-1", "", "write"), TO_AGG), Said::Slower(40.0)),
    (by(cells("Edel", "x4 N-1", "", ""), SJF), Said::Neither),
    (of(by(cells("Edel", "x4 N-1", "small", ""), AIOLI), "strided"), Said::Slower(33.0)),
    (of(by(cells("Edel", "x4 N-1", "small", ""), MLF), "strided"), Said::Slower(63.0)),
    (by(cells("Edel", "x4 N-1", "large", "read"), AIOLI), Said::Faster(35.0)),
    (by(cells("Edel", "x4 N-1", "large", "read"), MLF), Said::Faster(23.0)),
    (by(cells("Graphene", "x1 N-N", "large", "write"), SJF), Said::Faster(31.0)),
    (cells("Suno", "x1 N-N", "", "write"), Said::Faster(24.0)),
    (cells("Suno", "x1 N-N", "", "read"), Said::Faster(47.0)),
    (cells("Edel", "x1 N-N", "", ""), Said::Faster(26.0)),
    (with_8(by(cells("Pastel", "x4 N-N", "", "read"), AIOLI)), Said::Faster(16.0)),
    (with_8(by(cells("Graphene", "x4 N-N", "large", "read"), SJF)), Said::Faster(16.0)),
    (cells("Suno", "x4 N-N", "", "write"), Said::Faster(14.0)),
    (cells("Suno", "x4 N-N", "", "read"), Said::Faster(33.0)),
    (by(cells("Edel", "x4 N-N", "", "write"), AIOLI), Said::Slower(19.0)),
    (by(cells("Edel", "x4 N-N", "", "read"), AIOLI), Said::Faster(24.0)),
];

impl Cells {
    fn what(&self) -> String {
        let operation = if self.op.is_empty() { String::new() } else { format!("{}s", self.op) };
        let words = [self.group, self.spatiality, self.size, &operation];
        let place = words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        let processes = if self.processes.len() == 1 { ", 8 processes" } else { "" };
        let who =
            if self.schedulers.len() == ALL.len() { "any".into() } else { self.schedulers.join(" or ") };
        format!("{}, {place}{processes}: {who}", self.cluster)
    }

    fn claim(&self, sheet: &mut Sheet, results: &Experiment, said: Said) -> Result<(), Failure> {
        let device = self.cluster.to_lowercase();
        let mut ratios = Vec::new();
        for processes in self.processes {
            let time = times(results, &device, processes);
            for pattern in results.values(super::PATTERN) {
                let mut words = pattern.trim_start_matches(self.group).split_whitespace();
                let fits = pattern.starts_with(self.group)
                    && words.next().is_some_and(|word| word.contains(self.spatiality))
                    && words.next().is_some_and(|word| word.contains(self.size));
                for op in ["write", "read"].into_iter().filter(|op| fits && op.contains(self.op)) {
                    for name in self.schedulers {
                        ratios.push(relative(&time, (op, pattern), name)?);
                    }
                }
            }
        }
        let what = self.what();
        let mut never = |what: String, least: f64, most: f64| {
            sheet.everywhere(what, ratios.iter().map(|ratio| Some(within((*ratio)?, least, most))));
        };
        match said {
            Said::NeverFaster => never(format!("{what} gains nothing significantly"), FASTER, f64::INFINITY),
            Said::NeverSlower => never(format!("{what} loses nothing significantly"), 0.0, SLOWER),
            Said::Neither => never(format!("{what} changes nothing significantly"), FASTER, SLOWER),
            Said::Faster(most) => {
                let gains = ratios.into_iter().flatten().map(faster);
                sheet.change(format!("{what} is faster by up to"), most, largest(gains));
            }
            Said::Slower(most) => {
                let losses = ratios.into_iter().flatten().map(slower);
                sheet.change(format!("{what} is slower by up to"), most, largest(losses));
            }
        }
        Ok(())
    }
}

/// What the paper's text says of table III beside the cells, in which the text that there is of it has lost its lines.
fn sheet(results: &Experiment, situations: &Situations) -> Result<Sheet, Failure> {
    let mut sheet = Sheet::of("table III");
    let some = !situations.all.is_empty();
    for (index, name) in situations.schedulers.iter().enumerate().skip(1) {
        let somewhere = situations.all.iter().any(|situation| situation.right == index);
        sheet.fact(format!("{name} is the best choice somewhere"), true, some.then_some(somewhere));
    }
    for (cells, said) in TEXT {
        cells.claim(&mut sheet, results, said)?;
    }
    Ok(sheet)
}

/// Values in the order in which they first appear.
fn distinct<'a>(all: &'a Situations, of: impl Fn(&'a Situation) -> &'a str) -> Vec<&'a str> {
    let mut values = Vec::new();
    for value in all.all.iter().map(of) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

pub(super) fn figure<'a>(results: &'a Experiment, samples: &Samples) -> Result<Figure<'a>, Failure> {
    let situations = &samples.whole.situations;
    let devices = distinct(situations, |situation| &situation.device);
    let mut table = Table::new(std::iter::once("pattern").chain(devices.iter().copied()));
    let mut rows = Vec::new();
    for pattern in distinct(situations, |situation| &situation.pattern) {
        for op in distinct(situations, |situation| &situation.op) {
            let found = |device: &&str| {
                let is = |of: &&Situation| {
                    (of.device.as_str(), of.pattern.as_str(), of.op.as_str()) == (*device, pattern, op)
                };
                let situation = situations.all.iter().find(is)?;
                let name =
                    if situation.right == 0 { "none" } else { &situations.schedulers[situation.right] };
                Some((name, situation.gain))
            };
            let cells: Vec<Option<(&str, f64)>> = devices.iter().map(found).collect();
            let text = |cell: &Option<(&str, f64)>| match cell {
                None => "-".to_owned(),
                Some(("none", _)) => "none".to_owned(),
                Some((name, gain)) => format!("{name} ({})", percent(Some(100.0 * gain))),
            };
            let name = format!("{pattern}, {op}");
            table.row(std::iter::once(name.clone()).chain(cells.iter().map(text)));
            let cell = |cell: &Option<(&str, f64)>| {
                cell.map(|(scheduler, gain)| Cell {
                    text: scheduler.to_owned(),
                    small: if gain > 0.0 { percent(Some(100.0 * gain)) } else { "no difference".into() },
                    good: gain / 0.8,
                    tip: format!("{name}: {scheduler}"),
                })
            };
            rows.push((name.clone(), cells.iter().map(cell).collect()));
        }
    }
    let columns = devices.iter().map(|device| device.to_string()).collect();
    let picture = Heat { corner: "pattern".into(), columns, rows };
    Ok(Figure {
        title: "Table III: the best algorithm for each situation".into(),
        results: vec![results],
        setup: "The paper: the best choice for each pattern and device, over 8 and 16 processes. Of the table's cells there is only a text without its \
                lines, so that what is compared is what sections 3.1 to 3.4 say of them; \
                where they speak of 32 processes, too, ours are 8 and 16."
            .into(),
        sheet: sheet(results, situations)?,
        tables: vec![(
            format!(
                "The fastest over 8 and 16 processes, and how much shorter the time is; `none` where it is less than {} %",
                100.0 * SIGNIFICANT
            ),
            table,
        )],
        pictures: vec![("The best algorithm, and its gain over none".into(), heat(&picture))],
        remarks: "Where flash gains nothing, a scheduler's order saves nothing that the device charges for.".into(),
    })
}
