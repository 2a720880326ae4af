//! Figures 4.7 and 4.8: generated jobs; and how to back off.

use iogate_report::Table;
use iogate_report::html::lines::lines;
use iogate_sim::metrics::Unit;

use super::spread::varies;
use super::{BACKOFF, BOTH, CASE, LOCK, LOCK_SORTED, NONE, SORTED};
use crate::commands::reproduce::claims::{Cell, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, shares};
use crate::failure::Failure;

const COUNT: &str = "jobs.count";
pub(super) const SPREAD: &str = "phase_stddev_percent";
pub(super) const TRANSFERS: &str = "transfer_stddev_percent";
const SHOWN: [&str; 4] = [NONE, BACKOFF, LOCK, BOTH];

pub(super) fn figure(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let cell = |count, case, metric| results.cell(&[(COUNT, count), (CASE, case)], metric);
    let io = |count, case| cell(count, case, "io_time_mean");
    let makespan = |count, case| cell(count, case, "makespan");
    let mut sheet = Sheet::of("figure 4.7");
    for case in [NONE, BACKOFF, LOCK] {
        let grows = [
            makespan("2", case)?.less(&makespan("6", case)?),
            makespan("6", case)?.less(&makespan("10", case)?),
        ];
        sheet.everywhere(format!("{case}: the makespan grows with the jobs"), grows);
    }
    shorter(&mut sheet, "", |case| results.cell(&[(COUNT, "10"), (CASE, case)], "makespan"))?;
    sheet.next("figure 4.8");
    sheet.everywhere("two jobs: backoff costs more than it gains", [io("2", NONE)?.less(&io("2", BACKOFF)?)]);
    for (count, case) in [("2", LOCK), ("6", BACKOFF), ("6", LOCK)] {
        let what = format!("{count} jobs: the I/O time is lower with {case}");
        sheet.everywhere(what, [io(count, case)?.less(&io(count, NONE)?)]);
    }
    sheet.change("ten jobs, backoff: lower by", 19.22, io("10", BACKOFF)?.lower(&io("10", NONE)?));
    sheet.change("ten jobs, lock: lower by", 81.38, io("10", LOCK)?.lower(&io("10", NONE)?));
    let sorted = io("10", LOCK_SORTED)?.lower(&io("10", SORTED)?);
    sheet.change("ten jobs, lock, over a server that sorts: lower by", 81.38, sorted);
    let table = |metric| by_count(results, metric);
    let picture = |title: &str, unit, metric| {
        let series = SHOWN.map(|case| results.series(case, COUNT, &[(CASE, case)], metric));
        (title.to_owned(), lines(&results.lines(title, COUNT, "jobs at once", unit, series.into())))
    };
    let points: Vec<_> = results
        .values(CASE)
        .iter()
        .map(|case| (case.clone(), vec![(COUNT, "10"), (CASE, case.as_str())]))
        .collect();
    let (caption, even) = shares(results, &points);
    Ok(Figure {
        title: "Figures 4.7 and 4.8: 2, 6 and 10 generated jobs".into(),
        results: vec![results],
        setup: "The thesis: jobs compute for 7 to 9 minutes in 4 to 10 iterations and write 2.4 GB on average; three sets of them.".into(),
        sheet,
        tables: vec![
            ("Figure 4.7: makespan".into(), table("makespan")),
            ("Figure 4.8: I/O time of a job".into(), table("io_time_mean")),
            (
                "Standard deviation of a job's checkpoint times in percent, waiting for turns and quiet included".into(),
                table(SPREAD),
            ),
            ("The same from the start of the writes on".into(), table(TRANSFERS)),
            (format!("Ten jobs. {caption}"), even),
        ],
        pictures: vec![
            picture("Figure 4.7: makespan", Unit::Seconds, "makespan"),
            picture("Figure 4.8: I/O time of a job", Unit::Seconds, "io_time_mean"),
        ],
        remarks: "A turn is worth what undisturbed I/O is worth; in plain order of arrival the tasks of one job disturb each other as another \
                  job's would."
            .into(),
    })
}

/// What figure 4.7 says of the makespans of ten jobs; `where_` stands before each claim.
pub(super) fn shorter(
    sheet: &mut Sheet,
    where_: &str,
    makespan: impl Fn(&str) -> Result<Cell, Failure>,
) -> Result<(), Failure> {
    for case in [BACKOFF, LOCK] {
        let what = format!("{where_}{case}: ten jobs have a shorter makespan than without");
        sheet.everywhere(what, [makespan(case)?.less_on_average(&makespan(NONE)?)]);
    }
    Ok(())
}

fn by_count(results: &Experiment, metric: &str) -> Table {
    by(results, COUNT, metric)
}

/// A metric of each mechanism over the numbers of jobs, the values of `key`.
pub(super) fn by(results: &Experiment, key: &str, metric: &str) -> Table {
    let counts = results.values(key);
    let header = counts.iter().map(|count| format!("{count} jobs"));
    let mut table = Table::new(std::iter::once(String::new()).chain(header));
    for case in results.values(CASE) {
        let cell = |count: &String| results.shown(&[(key, count), (CASE, case)], metric);
        table.row(std::iter::once(case.clone()).chain(counts.iter().map(cell)));
    }
    table
}

/// `two` has two of these jobs by more seeds.
pub(super) fn large<'a>(results: &'a Experiment, two: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let io = |case| results.cell(&[(COUNT, "10"), (CASE, case)], "io_time_mean");
    let mut sheet = Sheet::of("figure 4.8, the other reading");
    sheet.change("ten jobs, backoff: lower by", 19.22, io(BACKOFF)?.lower(&io(NONE)?));
    sheet.change("ten jobs, lock: lower by", 81.38, io(LOCK)?.lower(&io(NONE)?));
    sheet.change(
        "ten jobs, lock, over a server that sorts: lower by",
        81.38,
        io(LOCK_SORTED)?.lower(&io(SORTED)?),
    );
    sheet.next("figure 4.7, the other reading");
    shorter(&mut sheet, "", |case| results.cell(&[(COUNT, "10"), (CASE, case)], "makespan"))?;
    sheet.next("figure 4.9, the other reading");
    varies(&mut sheet, "2 jobs: ", |case| two.cell(&[(CASE, case)], SPREAD))?;
    varies(&mut sheet, "10 jobs: ", |case| results.cell(&[(COUNT, "10"), (CASE, case)], SPREAD))?;
    let table = |metric| by_count(results, metric);
    let mut spreads = Table::new(["", "2 jobs"]);
    for case in two.values(CASE) {
        spreads.row([case.clone(), two.shown(&[(CASE, case)], SPREAD)]);
    }
    Ok(Figure {
        title: "The same with 2.4 GB in each iteration".into(),
        results: vec![results, two],
        setup: "The thesis's words leave open whether a job writes 2.4 GB in all or in each iteration. Table 4.1, from the same generator, \
                lies between: 4 to 7 GB in all, 1.3 to 2.2 GB in each."
            .into(),
        sheet,
        tables: vec![
            ("Makespan".into(), table("makespan")),
            ("I/O time of a job".into(), table("io_time_mean")),
            ("Standard deviation of a job's checkpoint times".into(), table(SPREAD)),
            ("The same of two jobs, by more seeds".into(), spreads),
        ],
        remarks: "Jobs compute while others write, and most of the I/O time is waiting for one's turn however fast the writes are.".into(),
        ..Figure::default()
    })
}

/// What was varied, and the settings that it speaks for, by other seeds.
pub(super) fn backoff<'a>(
    results: &'a Experiment,
    chosen: &'a Experiment,
    jobs: &'a Experiment,
) -> Result<Figure<'a>, Failure> {
    const UNIT: &str = "coordination.backoff.sleep_unit";
    const ATTEMPTS: &str = "coordination.backoff.attempts";
    const THRESHOLD: &str = "coordination.backoff.threshold";
    const IO: &str = "io_time_mean";
    const MAKESPAN: &str = "makespan";
    let mut tables = Vec::new();
    let mut turns_better = Vec::new();
    let lock = jobs.cell(&[(COUNT, "10"), (CASE, LOCK)], IO)?;
    for (metric, what) in [(IO, "I/O time of a job"), (MAKESPAN, "makespan")] {
        for threshold in results.values(THRESHOLD) {
            let attempts = results.values(ATTEMPTS);
            let header = attempts.iter().map(|most| format!("{most} attempts"));
            let mut table = Table::new(std::iter::once("unit of sleeps".to_owned()).chain(header));
            for unit in results.values(UNIT) {
                let mut row = vec![unit.clone()];
                for most in attempts {
                    let at =
                        [(THRESHOLD, threshold.as_str()), (UNIT, unit.as_str()), (ATTEMPTS, most.as_str())];
                    if metric == IO {
                        turns_better.push(lock.less(&results.cell(&at, IO)?));
                    }
                    row.push(results.shown(&at, metric));
                }
                table.row(row);
            }
            tables.push((format!("{what}, threshold {threshold} of the quiet throughput"), table));
        }
    }
    let mut sheet = Sheet::of("how to back off");
    sheet.everywhere("turns do better than each of these settings", turns_better);
    let mut table = Table::new(["", "I/O time of a job", "makespan"]);
    for case in chosen.values(CASE) {
        let at = [(CASE, case.as_str())];
        table.row([case.clone(), chosen.shown(&at, IO), chosen.shown(&at, MAKESPAN)]);
        if case == NONE {
            continue;
        }
        let cell = |case, metric| chosen.cell(&[(CASE, case)], metric);
        let lower = cell(case, IO)?.lower(&cell(NONE, IO)?);
        sheet.change(format!("ten jobs, {case}: lower by"), 19.22, lower);
        let shorter = cell(case, MAKESPAN)?.less_on_average(&cell(NONE, MAKESPAN)?);
        sheet.everywhere(format!("ten jobs, {case}: a shorter makespan than without"), [shorter]);
    }
    tables.push(("The chosen settings, by other seeds".into(), table));
    Ok(Figure {
        title: "How to back off".into(),
        results: vec![results, jobs, chosen],
        setup: format!(
            "The thesis says that the parameters of backing off were tuned for a busy system, and gives but the threshold, 80 to 90 %. Here \
             they are varied for ten jobs, whose I/O takes {} without coordination, and {} with turns; their makespan is {} without. Of many \
             settings one is soon better by chance: those with the shortest makespan and the shortest time of I/O are run again with seeds \
             that did not choose them. A makespan that is surely not shorter by a tenth, and may be longer, is not shorter.",
            jobs.shown(&[(COUNT, "10"), (CASE, NONE)], IO),
            jobs.shown(&[(COUNT, "10"), (CASE, LOCK)], IO),
            jobs.shown(&[(COUNT, "10"), (CASE, NONE)], MAKESPAN)
        ),
        sheet,
        tables,
        remarks: "The range of the sleeps doubles with each attempt: after some, a sleep is many times as long as a checkpoint, the server \
                  falls idle, and an application that sleeps that long is passed by all others."
            .into(),
        ..Figure::default()
    })
}
