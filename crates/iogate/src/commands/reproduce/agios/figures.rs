//! Figures 3 and 4, and what page caches below make of them.

use iogate_report::Table;
use iogate_report::claims::Interval;
use iogate_report::html::whiskers::{Bars, Groups, groups};
use iogate_sim::metrics::Unit;

use super::{BASE, FASTER, PATTERN, SCHEDULER, SLOWER, Time, algorithms, faster, largest, relative, times};
use crate::commands::reproduce::Experiment;
use crate::commands::reproduce::claims::{Cell, Sheet, within};
use crate::commands::reproduce::figure::Figure;
use crate::failure::Failure;

const OPS: [&str; 2] = ["write", "read"];
const BELOW: &str = "below";

/// What the paper says of figure 3; `where_` stands before each claim.
fn shared_file(sheet: &mut Sheet, where_: &str, names: &[&str], time: &Time<'_>) -> Result<(), Failure> {
    let large_writes = [("write", "x1 N-1 contiguous large"), ("write", "x1 N-1 strided large")];
    let others = [
        ("write", "x1 N-1 contiguous small"),
        ("write", "x1 N-1 strided small"),
        ("read", "x1 N-1 contiguous small"),
        ("read", "x1 N-1 strided small"),
        ("read", "x1 N-1 contiguous large"),
        ("read", "x1 N-1 strided large"),
    ];
    let mut gains = Vec::new();
    for place in large_writes {
        gains.extend(relative(time, place, "aioli")?.map(faster));
    }
    sheet.change(format!("{where_}large writes: aIOLi is faster by up to"), 59.0, largest(gains));
    let cases = |places: &[(&str, &str)], names: &[&str], least: f64, most: f64| {
        let mut verdicts = Vec::new();
        for place in places {
            for name in names {
                verdicts.push(relative(time, *place, name)?.map(|ratio| within(ratio, least, most)));
            }
        }
        Ok::<_, Failure>(verdicts)
    };
    let small = [others[0], others[2]];
    let none = cases(&others, names, FASTER, f64::INFINITY)?;
    let lose = cases(&small, &["aioli", "mlf"], SLOWER, f64::INFINITY)?;
    let little = cases(&others, &["sjf"], FASTER, SLOWER)?;
    sheet.everywhere(format!("{where_}nothing else gains significantly, with any algorithm"), none);
    sheet
        .everywhere(format!("{where_}small contiguous requests lose significantly with aIOLi and MLF"), lose);
    sheet.everywhere(format!("{where_}SJF changes nothing significantly but large writes"), little);
    Ok(())
}

pub(super) fn graphene(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("figure 3");
    let time = times(results, "graphene", "8");
    let names: Vec<&str> = algorithms(results).collect();
    shared_file(&mut sheet, "", &names, &time)?;
    let title = "Figure 3: one application, a shared file, Graphene, 8 processes";
    let (table, picture) = normalised(results, title, "x1 N-1", &time)?;
    Ok(Figure {
        title: title.into(),
        results: vec![results],
        setup: "The paper: times with each algorithm over the time without AGIOS.".into(),
        sheet,
        tables: vec![(CAPTION.into(), table)],
        pictures: vec![(title.into(), groups(&picture))],
        remarks: "Our disks' write caches sort what they are given, and nothing reads ahead for the servers, where the paper's have page caches \
                  (see below). Where a cache answers at once, waits are only a price. With one file SJF always begins at its front."
            .into(),
    })
}

const FILES: [&str; 2] = ["x1 N-N contiguous small", "x1 N-N contiguous large"];

/// What the paper says of figure 4; `where_` stands before each claim.
fn files_apart(sheet: &mut Sheet, where_: &str, names: &[&str], time: &Time<'_>) -> Result<(), Failure> {
    let mut alike = Vec::new();
    for (op, most) in [("write", 38.0), ("read", 68.0)] {
        let mut gains = Vec::new();
        for pattern in FILES {
            for name in names {
                gains.extend(relative(time, (op, pattern), name)?.map(faster));
            }
            let joined = time(op, pattern, "to-agg")?;
            for name in ["sjf", "mlf", "aioli"] {
                alike.push(time(op, pattern, name)?.by(&joined).map(|ratio| within(ratio, FASTER, SLOWER)));
            }
        }
        sheet.change(format!("{where_}{op}s: faster by up to"), most, largest(gains));
    }
    sheet.everywhere(format!("{where_}no significant difference between the four algorithms"), alike);
    Ok(())
}

pub(super) fn files(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("figure 4");
    let time = times(results, "pastel", "32");
    let names: Vec<&str> = algorithms(results).collect();
    files_apart(&mut sheet, "", &names, &time)?;
    let title = "Figure 4: one application, a file per process, Pastel, 32 processes";
    let (table, picture) = normalised(results, title, "x1 N-N", &time)?;
    Ok(Figure {
        title: title.into(),
        results: vec![results],
        setup: "The paper: times with each algorithm over the time without AGIOS; its best results.".into(),
        sheet,
        tables: vec![(CAPTION.into(), table)],
        pictures: vec![(title.into(), groups(&picture))],
        remarks: "In ours each of the synchronous processes has one call in its file, so that a run is never longer than a call; only aioli waits \
                  for the next one."
            .into(),
    })
}

/// The times of those who write first and of those who read it later, on what lies below.
fn one_after_the_other<'a>(
    results: &'a Experiment,
    below: &'a str,
) -> impl Fn(&str, &str, &str) -> Result<Cell, Failure> + 'a {
    move |op, pattern, scheduler| {
        let at = [(BELOW, below), (PATTERN, pattern), (SCHEDULER, scheduler)];
        results.app_cell(&at, if op == "write" { "writer" } else { "reader" }, "completion")
    }
}

pub(super) fn below<'a>(graphene: &'a Experiment, pastel: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("figures 3 and 4, page caches below");
    let mut tables = Vec::new();
    type Claim = fn(&mut Sheet, &str, &[&str], &Time<'_>) -> Result<(), Failure>;
    let both: [(_, _, _, Claim); 2] = [
        (graphene, "Graphene, a shared file", "x1 N-1", shared_file),
        (pastel, "Pastel, a file per process", "x1 N-N", files_apart),
    ];
    for (results, what, group, claim) in both {
        for below in results.values(BELOW) {
            let time = one_after_the_other(results, below);
            let names: Vec<&str> = algorithms(results).collect();
            claim(&mut sheet, &format!("{what}, {below}: "), &names, &time)?;
            let (table, _) = normalised(results, "", group, &time)?;
            tables.push((format!("{what}, {below}: {CAPTION}"), table));
        }
    }
    Ok(Figure {
        title: "Control: page caches below the servers".into(),
        results: vec![graphene, pastel],
        setup: "Not in the paper, which does not ask what its servers' memory does. Figures 3 and 4 again: the application writes, and another reads \
                what it wrote, on servers with the page cache of a Linux of the time."
            .into(),
        sheet,
        tables,
        remarks: "Where all of a file fits a server's memory, a read is answered from there and a write before the disk has it: then no order can \
                  gain anything, and waits are only a price. What does not fit is read ahead and written back in offset order by the cache, \
                  whatever the scheduler above it does."
            .into(),
        ..Figure::default()
    })
}

const CAPTION: &str = "Time by the time without a scheduler; below 1 is faster";

/// The table and the picture of figures 3 and 4.
fn normalised(
    results: &Experiment,
    title: &str,
    group: &str,
    time: &Time<'_>,
) -> Result<(Table, Groups), Failure> {
    let mut table = Table::new(
        std::iter::once("pattern").chain(algorithms(results)).chain(std::iter::once("fifo takes, s")),
    );
    let mut rows: Vec<(String, Vec<Option<Interval>>)> = Vec::new();
    for pattern in results.values(PATTERN).iter().filter(|pattern| pattern.starts_with(group)) {
        for op in OPS {
            let name = format!("{}, {op}", pattern.trim_start_matches(group).trim());
            let ratios = algorithms(results).map(|scheduler| relative(time, (op, pattern), scheduler));
            let ratios = ratios.collect::<Result<Vec<_>, _>>()?;
            let shown = |of: Option<Interval>| {
                let text = |of: Interval| format!("{:.2} ({:.2} to {:.2})", of.mean, of.low, of.high);
                of.map_or("-".into(), text)
            };
            let base = shown(time(op, pattern, BASE)?.interval());
            let cells = ratios.iter().map(|ratio| shown(*ratio));
            table.row(std::iter::once(name.clone()).chain(cells).chain(std::iter::once(base)));
            rows.push((name, ratios));
        }
    }
    let bars = |(index, scheduler): (usize, &str)| Bars {
        name: scheduler.into(),
        values: rows.iter().map(|(_, ratios)| ratios[index]).collect(),
    };
    let picture = Groups {
        title: title.into(),
        unit: Unit::Ratio,
        // As long as a picture has room for.
        groups: rows.iter().map(|(name, _)| name.replace("contiguous", "contig").replace(',', "")).collect(),
        series: algorithms(results).enumerate().map(bars).collect(),
    };
    Ok((table, picture))
}
