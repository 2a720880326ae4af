//! Figure 4.9: how much the times of a job's checkpoints vary.

use iogate_report::html::lines::lines;
use iogate_sim::metrics::Unit;

use super::jobs::{SPREAD, TRANSFERS, by};
use super::{BACKOFF, CASE, LOCK, NONE};
use crate::commands::reproduce::Experiment;
use crate::commands::reproduce::claims::{Cell, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::failure::Failure;

/// How many jobs: a label, as two of them have more seeds.
const COUNT: &str = "jobs";

/// What the thesis says of the mechanisms; `where_` stands before each claim.
pub(super) fn varies(
    sheet: &mut Sheet,
    where_: &str,
    spread: impl Fn(&str) -> Result<Cell, Failure>,
) -> Result<(), Failure> {
    let (none, backoff, lock) = (spread(NONE)?, spread(BACKOFF)?, spread(LOCK)?);
    let least = [&none, &backoff].map(|other| lock.less_on_average(other));
    sheet.everywhere(format!("{where_}checkpoint times vary least with lock"), least);
    let most = [&none, &lock].map(|other| other.less_on_average(&backoff));
    sheet.everywhere(format!("{where_}they vary most with backoff"), most);
    Ok(())
}

/// `sleeps` has the same with longer sleeps of who backs off.
pub(super) fn figure<'a>(results: &'a Experiment, sleeps: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let cell = |count: &str, case: &str, metric| results.cell(&[(COUNT, count), (CASE, case)], metric);
    let mut sheet = Sheet::of("figure 4.9");
    for count in ["2", "6", "10"] {
        varies(&mut sheet, &format!("{count} jobs: "), |case| cell(count, case, SPREAD))?;
    }
    for case in [NONE, BACKOFF, LOCK] {
        let less = cell("10", case, SPREAD)?.less_on_average(&cell("6", case, SPREAD)?);
        sheet.everywhere(format!("{case}: ten jobs vary less than six"), [less]);
    }
    sheet.next("figure 4.9, from the start of the writes on");
    for count in ["2", "6", "10"] {
        let where_ = format!("{count} jobs, from the start of the writes on: ");
        varies(&mut sheet, &where_, |case| cell(count, case, TRANSFERS))?;
    }
    sheet.next("figure 4.9, longer sleeps");
    for count in ["2", "10"] {
        let where_ = format!("{count} jobs, longer sleeps: ");
        varies(&mut sheet, &where_, |case| sleeps.cell(&[(COUNT, count), (CASE, case)], SPREAD))?;
    }
    let title = "Figure 4.9: standard deviation of checkpoint times";
    let series = [NONE, BACKOFF, LOCK].map(|case| results.series(case, COUNT, &[(CASE, case)], SPREAD));
    let picture = lines(&results.lines(title, COUNT, "jobs at once", Unit::Percent, series.into()));
    Ok(Figure {
        title: "Figure 4.9: how checkpoint times vary".into(),
        results: vec![results, sleeps],
        setup: "The thesis: the standard deviation of a job's checkpoint times in percent of their mean, averaged over the jobs, in three sets \
                of jobs. It does not say whether waiting for a turn or for quiet storage is part of a checkpoint's time, as it is of its I/O \
                time: here it is, and beside it stands what begins with the writes. Means are compared by their difference, seed by seed: a \
                job that nobody met has next to no deviation, which would decide a ratio. Where it is surely less than a tenth and may be \
                none, that is a tie, and a tie does not agree. How many seeds it takes was found by adding some until each comparison of \
                mechanisms was decided; those that are shown are others. The thesis does not say how long its jobs sleep: longer sleeps are a control."
            .into(),
        sheet,
        tables: vec![
            (
                "Standard deviation of a job's checkpoint times in percent, waiting for turns and quiet included".into(),
                by(results, COUNT, SPREAD),
            ),
            ("The same from the start of the writes on".into(), by(results, COUNT, TRANSFERS)),
            (
                "Standard deviation, waiting included, where who backs off sleeps four times as long".into(),
                by(sleeps, COUNT, SPREAD),
            ),
        ],
        pictures: vec![(title.into(), picture)],
        remarks: "With turns the writes of a checkpoint take always the same, and all that varies is the waiting: none for who comes alone, and \
                  for others as long as those before them write."
            .into(),
    })
}
