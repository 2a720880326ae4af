//! AGIOS (Boito, Kassick, Navaux and Denneulin: Automatic I/O scheduling algorithm selection for parallel file systems, 2016):
//! figures 3 to 5, tables III to VII.

mod selection;
mod situations;
#[cfg(test)]
mod tests;
mod trees;

use iogate_report::Table;
use iogate_report::html::heat::{Cell, Heat, heat};
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_report::reproduction::{Page, Section};
use iogate_sim::metrics::Unit;

use self::situations::{Situation, Situations};
use super::{Experiment, Lab, percent};
use crate::commands::scenario;
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;

const DEVICE: &str = "servers.device";
const PROCESSES: &str = "app.mpi-io-test.processes";
const OP: &str = "app.mpi-io-test.op";
const SCHEDULER: &str = "servers.gate.scheduler";
const PATTERN: &str = "case";
/// What all others are compared with: no scheduler, which is also TO.
const BASE: &str = "fifo";
/// From where on the paper calls a difference significant.
const SIGNIFICANT: f64 = 0.10;

pub(super) fn page(lab: &Lab<'_>) -> Result<Page, Failure> {
    let results = lab.experiment("agios")?;
    let pastel = lab.experiment("agios-pastel")?;
    let plan = scenario::built_in_plan("agios", lab.quick)?;
    let situations = Situations::new(&plan, &|settings| results.mean(settings, "makespan"));
    let trees = trees::learn(&situations);
    let mut sections = vec![
        normalised(
            &results,
            "Figure 3: one application, a shared file, Graphene, 8 processes",
            ("graphene", "8", "x1 N-1"),
            "The paper: only writes with large requests gain, up to 59 % (aIOLi); small contiguous requests lose with aIOLi and MLF; SJF \
                 changes little elsewhere.",
            "Agrees that strided large requests gain, that strided small ones do not, and that contiguous small writes lose most with aioli; \
                 here that is the price of its waits, as the drive's write cache answers at once. Differs: the paper gains in large writes, ours \
                 in large reads. Our disks' write caches sort what they are given, and nothing reads ahead for the servers, where the paper's \
                 have page caches. SJF loses with contiguous reads: with one file it always begins at its front, and the processes there go \
                 on before the others.",
        ),
        normalised(
            &pastel,
            "Figure 4: one application, a file per process, Pastel, 32 processes",
            ("pastel", "32", "x1 N-N"),
            "The paper: the best results of all: writes gain up to 38 %, reads up to 68 %; the four algorithms hardly differ.",
            "Agrees in part: aioli gains in all four, up to 27 %, SJF and MLF about 20 % in writes. The paper's reads gain more, and with all \
                 algorithms. In ours each of the 32 synchronous processes has one call in its file, so that a run is never longer than a \
                 call; only aioli waits for the next one, and small reads gain by that.",
        ),
        best(&situations),
    ];
    sections.extend(trees::sections(&situations, &trees));
    sections.push(selection::section(&situations, &trees));
    Ok(Page {
        title: "AGIOS: no scheduler is the best everywhere".into(),
        notes: vec![
            "The paper's clusters: four dNFSp data servers with one disk (Pastel, Graphene), a RAID-0 (Suno) or a flash drive (Edel), \
             stripes of 32 KiB, messages of 8 KiB. Ours are models of these devices behind a simulated gigabit Ethernet; see \
             docs/devices.md for what is known of the drives."
                .into(),
            "`fifo` stands for the file system without AGIOS, and for TO. Our simulator does not charge processor time for scheduling: where a \
             scheduler costs time here, it is by its deliberate waits or by a worse order. The paper's data servers had page caches of 8 to \
             32 GB, ours have none but the drives' own."
                .into(),
            "A shared file has the paper's size; with a file per process each file has an eighth of it. \u{b1} is the 90 % confidence \
             interval over the seeds, as in the paper; its rule for a significant difference, more than 10 %, is ours too."
                .into(),
        ],
        sections,
        program: PROGRAM.into(),
    })
}

type Place<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Time with a scheduler, over time without one.
fn relative(
    results: &Experiment,
    (device, processes, op, pattern): Place<'_>,
    scheduler: &str,
) -> Option<f64> {
    let at = |scheduler| {
        [(DEVICE, device), (PROCESSES, processes), (OP, op), (PATTERN, pattern), (SCHEDULER, scheduler)]
    };
    Some(results.mean(&at(scheduler), "makespan")? / results.mean(&at(BASE), "makespan")?)
}

fn algorithms(results: &Experiment) -> impl Iterator<Item = &str> {
    results.values(SCHEDULER).iter().map(String::as_str).filter(|name| *name != BASE)
}

fn normalised(
    results: &Experiment,
    title: &str,
    (device, processes, group): (&str, &str, &str),
    paper: &str,
    verdict: &str,
) -> Section {
    let mut table = Table::new(
        std::iter::once("pattern").chain(algorithms(results)).chain(std::iter::once("fifo takes")),
    );
    let mut rows = Vec::new();
    for pattern in results.values(PATTERN).iter().filter(|pattern| pattern.starts_with(group)) {
        for op in results.values(OP) {
            let situation = (device, processes, op.as_str(), pattern.as_str());
            let name = format!("{}, {op}", pattern.trim_start_matches(group).trim());
            let cells = algorithms(results).map(|scheduler| {
                relative(results, situation, scheduler).map_or("-".into(), |ratio| format!("{ratio:.2}"))
            });
            let at = [
                (DEVICE, device),
                (PROCESSES, processes),
                (OP, op.as_str()),
                (PATTERN, pattern),
                (SCHEDULER, BASE),
            ];
            let base = results.shown(&at, "makespan");
            table.row(std::iter::once(name.clone()).chain(cells).chain(std::iter::once(base)));
            rows.push((name, situation));
        }
    }
    let bars = |scheduler: &str| Bars {
        name: scheduler.into(),
        values: rows
            .iter()
            .map(|(_, situation)| relative(results, *situation, scheduler).map(|ratio| (ratio, 0.0)))
            .collect(),
    };
    let picture = Groups {
        title: title.into(),
        unit: Unit::Ratio,
        // As long as a picture has room for.
        groups: rows.iter().map(|(name, _)| name.replace("contiguous", "contig").replace(',', "")).collect(),
        series: algorithms(results).map(bars).collect(),
    };
    Section {
        title: title.into(),
        scenarios: vec!["agios".into()],
        paper: paper.into(),
        tables: vec![("Time by the time without a scheduler; below 1 is faster".into(), table)],
        pictures: vec![(picture.title.clone(), groups(&picture))],
        verdict: verdict.into(),
    }
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

fn best(situations: &Situations) -> Section {
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
    Section {
        title: "Table III: the best algorithm for each situation".into(),
        scenarios: vec!["agios".into()],
        paper: "The paper: every algorithm is the best somewhere, and so is none. With one application and a shared file none or SJF for \
                small requests and aIOLi for large ones; with a file per process aIOLi on Pastel, SJF on Graphene and Suno, TO-agg on Edel; \
                with four applications MLF, SJF, TO-agg and aIOLi, by device and size."
            .into(),
        tables: vec![(
            "The fastest over 8 and 16 processes, and how much shorter the time is; `none` where it is less than 10 %".into(),
            table,
        )],
        pictures: vec![("The best algorithm, and its gain over none".into(), heat(&picture))],
        verdict: "Agrees that no algorithm is the best everywhere, that the choice depends on pattern and device, and that aioli suits large \
                  requests on disks. Differs in many single cells: on flash nothing of ours gains 10 %, where the paper has gains with TO-agg and \
                  aIOLi; MLF is the best for writes of four applications on all disks; SJF is so less often than in the paper."
            .into(),
    }
}
