//! AGIOS (Boito, Kassick, Navaux and Denneulin: Automatic I/O scheduling algorithm selection for parallel file systems, 2016):
//! figures 3 and 4, table III, and what section 5 counts.

use iogate_report::Table;
use iogate_report::html::heat::{Cell, Heat, heat};
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_report::reproduction::{Page, Section};
use iogate_sim::metrics::Unit;

use super::{Experiment, Lab, percent};
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
        sections: vec![
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
                &results,
                "Figure 4: one application, a file per process, Pastel, 32 processes",
                ("pastel", "32", "x1 N-N"),
                "The paper: the best results of all: writes gain up to 38 %, reads up to 68 %; the four algorithms hardly differ.",
                "Agrees in part: aioli gains in all four, up to 27 %, SJF and MLF about 20 % in writes. The paper's reads gain more, and with all \
                 algorithms. In ours each of the 32 synchronous processes has one call in its file, so that a run is never longer than a \
                 call; only aioli waits for the next one, and small reads gain by that.",
            ),
            best(&results),
            counts(&results),
        ],
        program: PROGRAM.into(),
    })
}

type Situation<'a> = (&'a str, &'a str, &'a str, &'a str);

/// Time with a scheduler, over time without one.
fn relative(
    results: &Experiment,
    (device, processes, op, pattern): Situation<'_>,
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

/// The best algorithm for a pattern on a device, over the numbers of processes that the paper's table has.
fn choice<'a>(results: &'a Experiment, device: &str, op: &str, pattern: &str) -> Option<(&'a str, f64)> {
    let mean = |scheduler| {
        let of = |processes: &String| relative(results, (device, processes, op, pattern), scheduler);
        let ratios: Vec<f64> = counted(results).filter_map(of).collect();
        (!ratios.is_empty()).then(|| ratios.iter().sum::<f64>() / ratios.len() as f64)
    };
    algorithms(results)
        .filter_map(|name| Some((name, mean(name)?)))
        .min_by(|one, other| one.1.total_cmp(&other.1))
}

/// 8 and 16 processes: the situations of the paper's tables III and IV.
fn counted(results: &Experiment) -> impl Iterator<Item = &String> {
    results.values(PROCESSES).iter().filter(|processes| *processes != "32")
}

fn best(results: &Experiment) -> Section {
    let devices = results.values(DEVICE);
    let mut table = Table::new(std::iter::once("pattern".to_owned()).chain(devices.iter().cloned()));
    let mut rows = Vec::new();
    for pattern in results.values(PATTERN) {
        for op in results.values(OP) {
            let found = |device: &String| {
                let (name, ratio) = choice(results, device, op, pattern)?;
                Some(if ratio > 1.0 - SIGNIFICANT { ("none", 0.0) } else { (name, 1.0 - ratio) })
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
    let picture = Heat { corner: "pattern".into(), columns: devices.to_vec(), rows };
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

fn counts(results: &Experiment) -> Section {
    let mut situations = Vec::new();
    for device in results.values(DEVICE) {
        for processes in counted(results) {
            for op in results.values(OP) {
                for pattern in results.values(PATTERN) {
                    situations.push((device.as_str(), processes.as_str(), op.as_str(), pattern.as_str()));
                }
            }
        }
    }
    let count = |pick: &dyn Fn(Situation<'_>) -> Option<String>| {
        let mut gains = Vec::new();
        let mut losses = Vec::new();
        for &situation in &situations {
            let Some(change) = pick(situation)
                .and_then(|scheduler| relative(results, situation, &scheduler))
                .map(|ratio| ratio - 1.0)
            else {
                continue;
            };
            if change < -SIGNIFICANT {
                gains.push(-change);
            } else if change > SIGNIFICANT {
                losses.push(change);
            }
        }
        let mean =
            |all: &[f64]| (!all.is_empty()).then(|| 100.0 * all.iter().sum::<f64>() / all.len() as f64);
        (gains.len(), mean(&gains), losses.len(), mean(&losses))
    };
    let oracle = |(device, _, op, pattern): Situation<'_>| {
        let (name, ratio) = choice(results, device, op, pattern)?;
        Some(if ratio < 1.0 { name.to_owned() } else { BASE.to_owned() })
    };
    let mut table = Table::new(["", "paper: gains", "ours", "paper: losses", "ours"]);
    let mut row = |name: &str, gains: &str, losses: &str, pick: &dyn Fn(Situation<'_>) -> Option<String>| {
        let (more, more_mean, less, less_mean) = count(pick);
        table.row([
            name.to_owned(),
            gains.to_owned(),
            format!("{more}, {} on average", percent(more_mean)),
            losses.to_owned(),
            format!("{less}, {} on average", percent(less_mean)),
        ]);
    };
    row("oracle (the best of each)", "71, 23 % on average", "4, up to 12 %", &oracle);
    row("aIOLi always", "66, 23 % on average", "37, 72 % on average", &|_| Some("aioli".into()));
    row("SJF always", "42, 21 % on average", "21, 14 % on average", &|_| Some("sjf".into()));
    row("MLF always", "-", "-", &|_| Some("mlf".into()));
    row("TO-agg always", "-", "-", &|_| Some("to-agg".into()));
    Section {
        title: "Section 5: how often a scheduler helps and harms".into(),
        scenarios: vec!["agios".into()],
        paper: "The paper counts, over 192 situations (24 patterns, four clusters, 8 and 16 processes), where the time changes by more than \
                10 %: the oracle helps in 71 and harms in 4, aIOLi alone helps in 66 and harms in 37, SJF alone helps in 42 and harms in 21."
            .into(),
        tables: vec![(format!("Of {} situations", situations.len()), table)],
        pictures: Vec::new(),
        verdict: "Agrees closely in how often the oracle helps and harms, how often aIOLi and SJF help, and how often SJF harms. Differs: our \
                  aioli harms in nearly twice as many situations, mostly on flash and on the array and in writes, where what it waits for is \
                  worth less than the wait; and changes are larger in both directions than the paper's. Decision trees (tables IV to VII) are a matter \
                  of the automatic choice, not of this page."
            .into(),
    }
}
