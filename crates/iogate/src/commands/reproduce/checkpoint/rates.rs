//! The pair, the mix and ten jobs on a server that loses by overlap what the thesis's did: a control.

use iogate_report::Table;

use super::jobs::shorter;
use super::{BACKOFF, CASE, LOCK, NONE};
use crate::commands::reproduce::claims::{NEAR, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percents};
use crate::failure::Failure;

pub(super) fn figure<'a>(
    pair: &'a Experiment,
    mix: &'a Experiment,
    jobs: &'a Experiment,
) -> Result<Figure<'a>, Failure> {
    let all = [
        (pair, "two identical jobs", "io_time_sum", [(BACKOFF, 45.12), (LOCK, 71.72)]),
        (mix, "four different jobs", "io_time_mean", [(BACKOFF, 16.88), (LOCK, 48.83)]),
        (jobs, "ten jobs", "io_time_mean", [(BACKOFF, 19.22), (LOCK, 81.38)]),
    ];
    let mut sheet = Sheet::of("figures 4.1 to 4.6, two rates");
    let turns = pair.cell(&[(CASE, LOCK)], "io_time_sum")?;
    sheet.number("two identical jobs: I/O time of both: lock", 92.16, " s", turns.interval(), NEAR);
    let head = ["", NONE, BACKOFF, "lower by", LOCK, "lower by", "makespan: none", BACKOFF, LOCK];
    let mut table = Table::new(head);
    for (results, what, metric, published) in all {
        if what == "ten jobs" {
            sheet.next("figure 4.8, two rates");
        }
        let mut row = vec![what.to_owned(), results.shown(&[(CASE, NONE)], metric)];
        for (case, percent) in published {
            let less = results.cell(&[(CASE, case)], metric)?.lower(&results.cell(&[(CASE, NONE)], metric)?);
            sheet.change(format!("{what}: {case} lower by"), percent, less);
            row.extend([results.shown(&[(CASE, case)], metric), percents(less)]);
        }
        row.extend([NONE, BACKOFF, LOCK].map(|case| results.shown(&[(CASE, case)], "makespan")));
        table.row(row);
    }
    sheet.next("figure 4.7, two rates");
    shorter(&mut sheet, "", |case: &str| jobs.cell(&[(CASE, case)], "makespan"))?;
    Ok(Figure {
        title: "Control: a server that loses by overlap what the thesis's does".into(),
        results: vec![pair, mix, jobs],
        setup: "Not in the thesis, which does not say why two jobs at once are slower than one after the other. Here a server has a rate, and \
                a time for going from one place to another. Both are set by two numbers of the thesis's pair: the fastest checkpoint with \
                turns or backing off, and the I/O time without coordination. What the pair takes with either mechanism, and what more \
                jobs take, is foretold. Nodes send what their tasks write in order, and each of the ten jobs has one node, so that a job \
                alone loses nothing."
            .into(),
        sheet,
        tables: vec![("I/O time (of both, of a job, of a job), and makespan".into(), table)],
        remarks: "Of the server nothing else is known here: what agrees follows from what overlap costs two jobs. A probe never finds a busy \
                  server quiet, as no cache answers it, which the thesis's did."
            .into(),
        ..Figure::default()
    })
}
