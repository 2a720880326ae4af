//! Figures 4.7 to 4.9: generated jobs.

use iogate_report::Table;
use iogate_report::html::lines::lines;
use iogate_report::reproduction::Section;
use iogate_sim::metrics::Unit;

use super::{BACKOFF, BOTH, CASE, LOCK, NONE, lower};
use crate::commands::reproduce::Experiment;

const COUNT: &str = "jobs.count";
const SHOWN: [&str; 4] = [NONE, BACKOFF, LOCK, BOTH];

pub(super) fn section(results: &Experiment) -> Section {
    let counts = results.values(COUNT);
    let table = |metric: &str| {
        let mut table =
            Table::new(std::iter::once("jobs".to_owned()).chain(counts.iter().cloned()));
        for case in results.values(CASE) {
            let cell = |count: &String| results.shown(&[(COUNT, count), (CASE, case)], metric);
            table.row(std::iter::once(case.clone()).chain(counts.iter().map(cell)));
        }
        table
    };
    let mut known = Table::new(["I/O time of a job is lower by", "thesis", "ours"]);
    for (count, case, thesis) in [
        ("2", BACKOFF, "it is higher"),
        ("2", LOCK, "it is lower"),
        ("6", BACKOFF, "it is lower"),
        ("6", LOCK, "it is lower"),
        ("10", BACKOFF, "19.22 %"),
        ("10", LOCK, "81.38 %"),
    ] {
        let ours = lower(results, &[(COUNT, count)], case, "io_time_mean");
        known.row([format!("{count} jobs, {case}"), thesis.into(), ours]);
    }
    let figure = |title: &str, unit, metric| {
        let series = SHOWN.map(|case| results.series(case, COUNT, &[(CASE, case)], metric));
        (title.to_owned(), lines(&results.lines(title, COUNT, "jobs at once", unit, series.into())))
    };
    Section {
        title: "Figures 4.7 to 4.9: 2, 6 and 10 generated jobs".into(),
        scenarios: vec!["checkpoint-jobs".into()],
        paper: "The thesis: jobs compute for 7 to 9 minutes in 4 to 10 iterations and write 2.4 GB on average; three sets of them. \
                The makespan grows with the jobs, and is shorter with either mechanism where there are many. With two jobs \
                backoff costs more than it gains. The standard deviation of checkpoint times, in percent, is lower with \
                locking, and highest with backoff."
            .into(),
        tables: vec![
            (String::new(), known),
            ("Figure 4.7: makespan".into(), table("makespan")),
            ("Figure 4.8: I/O time of a job".into(), table("io_time_mean")),
            (
                "Figure 4.9: standard deviation of a job's checkpoint times in percent, waiting for turns and quiet included"
                    .into(),
                table("phase_stddev_percent"),
            ),
            ("The same from the start of the writes on".into(), table("transfer_stddev_percent")),
        ],
        pictures: vec![
            figure("Figure 4.7: makespan", Unit::Seconds, "makespan"),
            figure("Figure 4.8: I/O time of a job", Unit::Seconds, "io_time_mean"),
            figure("Figure 4.9: standard deviation of checkpoint times", Unit::Percent, "phase_stddev_percent"),
        ],
        verdict: "TODO".into(),
    }
}
