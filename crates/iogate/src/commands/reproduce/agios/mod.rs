//! AGIOS (Boito, Kassick, Navaux and Denneulin: Automatic I/O scheduling algorithm selection for parallel file systems, 2016):
//! figures 3 to 5, tables III to VII.

mod selection;
mod situations;
#[cfg(test)]
mod tests;
mod trees;

use iogate_report::Table;
use iogate_report::claims::Interval;
use iogate_report::html::heat::{Cell, Heat, heat};
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_sim::metrics::Unit;

use self::situations::{Situation, Situations};
use super::claims::{Sheet, within};
use super::figure::{Figure, Reproduced};
use super::{Experiment, Lab, percent};
use crate::commands::scenario;
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

pub(super) fn page(lab: &Lab<'_>) -> Result<Reproduced, Failure> {
    let all = [lab.experiment("agios")?];
    let pastel = lab.experiment("agios-pastel")?;
    let plan = scenario::built_in_plan("agios", lab.quick)?;
    let situations = Situations::new(&plan, &|settings, base| all[0].factor(settings, base, "makespan"));
    let trees = trees::learn(&situations);
    let mut figures = vec![graphene(&all[0])?, files(&pastel)?, best(&all[0], &situations)?];
    figures.extend(trees::figures(&all, &situations, &trees));
    figures.push(selection::figure(&all, &situations, &trees));
    let notes = NOTES.map(String::from).into();
    Ok(Reproduced::new(
        "iogate reproduce agios",
        "AGIOS: no scheduler is the best everywhere",
        notes,
        figures,
    ))
}

const NOTES: [&str; 3] = [
    "The paper's clusters: four dNFSp data servers with one disk (Pastel, Graphene), a RAID-0 (Suno) or a flash drive (Edel), stripes of 32 \
     KiB, messages of 8 KiB. Ours are models of these devices behind a simulated gigabit Ethernet; see docs/devices.md for what is known \
     of the drives.",
    "`fifo` stands for the file system without AGIOS, and for TO. Our simulator does not charge processor time for scheduling: where a scheduler \
     costs time here, it is by its deliberate waits or by a worse order. The paper's data servers had page caches of 8 to 32 GB, ours have none \
     but the drives' own.",
    "A shared file has the paper's size; with a file per process each file has an eighth of it. What is in parentheses, or after \u{b1}, is the \
     90 % confidence interval, as in the paper, of ratios over pairs of runs with the same seed; its rule for a significant difference, more \
     than 10 %, is ours too.",
];

type Place<'a> = (&'a str, &'a str, &'a str, &'a str);

fn at<'a>((device, processes, op, pattern): Place<'a>, scheduler: &'a str) -> [(&'a str, &'a str); 5] {
    [(DEVICE, device), (PROCESSES, processes), (OP, op), (PATTERN, pattern), (SCHEDULER, scheduler)]
}

/// Time with a scheduler, over time without one.
fn relative(results: &Experiment, place: Place<'_>, scheduler: &str) -> Result<Option<Interval>, Failure> {
    Ok(results.cell(&at(place, scheduler), "makespan")?.by(&results.cell(&at(place, BASE), "makespan")?))
}

fn algorithms(results: &Experiment) -> impl Iterator<Item = &str> {
    results.values(SCHEDULER).iter().map(String::as_str).filter(|name| *name != BASE)
}

/// By how many percent a scheduler is faster than none.
fn faster(ratio: Interval) -> Interval {
    ratio.map(|ratio| 100.0 * (1.0 - ratio))
}

fn largest(all: impl IntoIterator<Item = Interval>) -> Option<Interval> {
    all.into_iter().max_by(|one, other| one.mean.total_cmp(&other.mean))
}

const SLOWER: f64 = 1.0 + SIGNIFICANT;
const FASTER: f64 = 1.0 - SIGNIFICANT;

fn graphene(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let place = |op: &'static str, pattern: &'static str| ("graphene", "8", op, pattern);
    let mut sheet = Sheet::of("figure 3");
    let large_writes = [place("write", "x1 N-1 contiguous large"), place("write", "x1 N-1 strided large")];
    let others = [
        place("write", "x1 N-1 contiguous small"),
        place("write", "x1 N-1 strided small"),
        place("read", "x1 N-1 contiguous small"),
        place("read", "x1 N-1 strided small"),
        place("read", "x1 N-1 contiguous large"),
        place("read", "x1 N-1 strided large"),
    ];
    let mut gains = Vec::new();
    for place in large_writes {
        gains.extend(relative(results, place, "aioli")?.map(faster));
    }
    sheet.change("large writes: aIOLi is faster by up to", 59.0, largest(gains));
    let mut none = Vec::new();
    for (place, name) in
        others.into_iter().flat_map(|place| algorithms(results).map(move |name| (place, name)))
    {
        none.push(relative(results, place, name)?.map(|ratio| within(ratio, FASTER, f64::INFINITY)));
    }
    sheet.everywhere("nothing else gains significantly, with any algorithm", none);
    let mut lose = Vec::new();
    for (place, name) in
        [others[0], others[2]].into_iter().flat_map(|place| ["aioli", "mlf"].map(|name| (place, name)))
    {
        lose.push(relative(results, place, name)?.map(|ratio| within(ratio, SLOWER, f64::INFINITY)));
    }
    sheet.everywhere("small contiguous requests lose significantly with aIOLi and MLF", lose);
    let mut little = Vec::new();
    for place in others {
        little.push(relative(results, place, "sjf")?.map(|ratio| within(ratio, FASTER, SLOWER)));
    }
    sheet.everywhere("SJF changes nothing significantly but large writes", little);
    let title = "Figure 3: one application, a shared file, Graphene, 8 processes";
    Ok(Figure {
        setup: "The paper: times with each algorithm over the time without AGIOS.".into(),
        sheet,
        remarks: "The paper gains in large writes, ours in large reads: our disks' write caches sort what they are given, and nothing reads ahead for \
                  the servers, where the paper's have page caches. Where the drive's write cache answers at once, waits are only a price. With \
                  one file SJF always begins at its front."
            .into(),
        ..normalised(results, title, ("graphene", "8", "x1 N-1"))?
    })
}

fn files(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("figure 4");
    let places = |op: &'static str| {
        ["x1 N-N contiguous small", "x1 N-N contiguous large"]
            .map(move |pattern| ("pastel", "32", op, pattern))
    };
    for (op, most) in [("write", 38.0), ("read", 68.0)] {
        let mut gains = Vec::new();
        for (place, name) in
            places(op).into_iter().flat_map(|place| algorithms(results).map(move |name| (place, name)))
        {
            gains.extend(relative(results, place, name)?.map(faster));
        }
        sheet.change(format!("{op}s: faster by up to"), most, largest(gains));
    }
    let mut alike = Vec::new();
    for place in places("write").into_iter().chain(places("read")) {
        let time = |name| results.cell(&at(place, name), "makespan");
        for name in ["sjf", "mlf", "aioli"] {
            alike.push(time(name)?.by(&time("to-agg")?).map(|ratio| within(ratio, FASTER, SLOWER)));
        }
    }
    sheet.everywhere("no significant difference between the four algorithms", alike);
    let title = "Figure 4: one application, a file per process, Pastel, 32 processes";
    Ok(Figure {
        setup: "The paper: times with each algorithm over the time without AGIOS; its best results.".into(),
        sheet,
        remarks: "In ours each of the synchronous processes has one call in its file, so that a run is never longer than a call; only aioli waits \
                  for the next one."
            .into(),
        ..normalised(results, title, ("pastel", "32", "x1 N-N"))?
    })
}

/// The table and the picture of figures 3 and 4.
fn normalised<'a>(
    results: &'a Experiment,
    title: &str,
    (device, processes, group): (&str, &str, &str),
) -> Result<Figure<'a>, Failure> {
    let mut table = Table::new(
        std::iter::once("pattern").chain(algorithms(results)).chain(std::iter::once("fifo takes")),
    );
    let mut rows: Vec<(String, Vec<Option<Interval>>)> = Vec::new();
    for pattern in results.values(PATTERN).iter().filter(|pattern| pattern.starts_with(group)) {
        for op in results.values(OP) {
            let place = (device, processes, op.as_str(), pattern.as_str());
            let name = format!("{}, {op}", pattern.trim_start_matches(group).trim());
            let ratios = algorithms(results).map(|scheduler| relative(results, place, scheduler));
            let ratios = ratios.collect::<Result<Vec<_>, _>>()?;
            let shown = |ratio: &Option<Interval>| {
                let text = |of: &Interval| format!("{:.2} ({:.2} to {:.2})", of.mean, of.low, of.high);
                ratio.as_ref().map_or("-".into(), text)
            };
            let base = results.shown(&at(place, BASE), "makespan");
            table.row(
                std::iter::once(name.clone()).chain(ratios.iter().map(shown)).chain(std::iter::once(base)),
            );
            rows.push((name, ratios));
        }
    }
    let bars = |(index, scheduler): (usize, &str)| Bars {
        name: scheduler.into(),
        values: (rows.iter())
            .map(|(_, ratios)| ratios[index].map(|ratio| (ratio.mean, (ratio.high - ratio.low) / 2.0)))
            .collect(),
    };
    let picture = Groups {
        title: title.into(),
        unit: Unit::Ratio,
        // As long as a picture has room for.
        groups: rows.iter().map(|(name, _)| name.replace("contiguous", "contig").replace(',', "")).collect(),
        series: algorithms(results).enumerate().map(bars).collect(),
    };
    Ok(Figure {
        title: title.into(),
        results: vec![results],
        tables: vec![("Time by the time without a scheduler; below 1 is faster".into(), table)],
        pictures: vec![(picture.title.clone(), groups(&picture))],
        ..Figure::default()
    })
}

/// What the paper's text says of table III beside the cells, in which the text that there is of it has lost its lines.
fn best_sheet(results: &Experiment, situations: &Situations) -> Result<Sheet, Failure> {
    let mut sheet = Sheet::of("table III");
    let some = !situations.all.is_empty();
    for (index, name) in situations.schedulers.iter().enumerate().skip(1) {
        let somewhere = situations.all.iter().any(|situation| situation.right == index);
        sheet.fact(format!("{name} is the best choice somewhere"), true, some.then_some(somewhere));
    }
    let ratios =
        |device: &'static str, patterns: &[&'static str], ops: &[&'static str], names: &[&'static str]| {
            let mut all = Vec::new();
            for processes in ["8", "16"] {
                for (pattern, op) in
                    patterns.iter().flat_map(|pattern| ops.iter().map(move |op| (*pattern, *op)))
                {
                    for name in names {
                        all.push(relative(results, (device, processes, op, pattern), name)?);
                    }
                }
            }
            Ok::<_, Failure>(all)
        };
    let (both, four) = (["write", "read"], ["to-agg", "sjf", "mlf", "aioli"]);
    let shared = [
        "x4 N-1 contiguous small",
        "x4 N-1 contiguous large",
        "x4 N-1 strided small",
        "x4 N-1 strided large",
    ];
    let pastel = ratios("pastel", &shared, &both, &four)?;
    let none = pastel.into_iter().map(|ratio| Some(within(ratio?, FASTER, f64::INFINITY)));
    sheet.everywhere("Pastel, four applications, a shared file each: no algorithm gains significantly", none);
    let large = ["x1 N-1 contiguous large", "x1 N-1 strided large"];
    for (device, called, most) in
        [("pastel", "Pastel", 25.0), ("graphene", "Graphene", 59.0), ("suno", "Suno", 31.0)]
    {
        let gains = ratios(device, &large, &["write"], &four)?.into_iter().flatten().map(faster);
        sheet.change(
            format!("{called}, one application, a shared file, large writes: faster by up to"),
            most,
            largest(gains),
        );
    }
    let gains = ratios("edel", &large, &both, &["aioli"])?.into_iter().flatten().map(faster);
    sheet.change(
        "Edel, one application, a shared file, large requests: aIOLi is faster by up to",
        44.0,
        largest(gains),
    );
    let small = ["x1 N-1 contiguous small", "x1 N-1 strided small"];
    let losses = ratios("edel", &small, &both, &["aioli"])?.into_iter().flatten();
    let slower = losses.map(|ratio| ratio.map(|ratio| 100.0 * (ratio - 1.0)));
    sheet.change(
        "Edel, one application, a shared file, small requests: aIOLi is slower by up to",
        171.0,
        largest(slower),
    );
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

fn best<'a>(results: &'a Experiment, situations: &Situations) -> Result<Figure<'a>, Failure> {
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
                lines, so that what is compared is what sections 3 and 4 say of them."
            .into(),
        sheet: best_sheet(results, situations)?,
        tables: vec![(
            "The fastest over 8 and 16 processes, and how much shorter the time is; `none` where it is less than 10 %".into(),
            table,
        )],
        pictures: vec![("The best algorithm, and its gain over none".into(), heat(&picture))],
        remarks: "Where flash gains nothing, a scheduler's order saves nothing that the device charges for.".into(),
    })
}
