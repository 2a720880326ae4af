//! Figures 4.7 to 4.9: generated jobs; and how to back off.

use iogate_report::Table;
use iogate_report::html::lines::lines;
use iogate_report::reproduction::Section;
use iogate_sim::metrics::Unit;

use super::{BACKOFF, BOTH, CASE, LOCK, NONE, lower};
use crate::commands::reproduce::{Experiment, Lab};
use crate::failure::Failure;

const COUNT: &str = "jobs.count";
const SHOWN: [&str; 4] = [NONE, BACKOFF, LOCK, BOTH];

pub(super) fn section(results: &Experiment) -> Section {
    let table = |metric| by_count(results, metric);
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
        verdict: "Agrees: the makespan grows with the jobs; with two jobs backing off costs more than it gains; with turns \
                  I/O times and makespans are shorter, the more so the more jobs there are (34 % at ten), and checkpoint \
                  times vary less, from the start of the writes on hardly at all; with backoff they vary most. Differs: the \
                  size of the gain, and backing off makes ten jobs slower instead of 19 % faster (see how to back off). \
                  With `aioli` below, ten jobs spend 85 % less time in I/O with turns than with neither (81 % in the \
                  thesis): a turn is worth what undisturbed I/O is worth, and in plain order of arrival the 16 to 64 tasks \
                  of one job disturb each other as another job's would. Of our additions, the shortest first (with 1 MiB \
                  off for each second of waiting) saves a little more, two at once gain a third of what one gains, and \
                  weights and sets make little difference to such equal jobs."
            .into(),
    }
}

/// A metric of each mechanism over the numbers of jobs.
fn by_count(results: &Experiment, metric: &str) -> Table {
    let counts = results.values(COUNT);
    let header = counts.iter().map(|count| format!("{count} jobs"));
    let mut table = Table::new(std::iter::once(String::new()).chain(header));
    for case in results.values(CASE) {
        let cell = |count: &String| results.shown(&[(COUNT, count), (CASE, case)], metric);
        table.row(std::iter::once(case.clone()).chain(counts.iter().map(cell)));
    }
    table
}

pub(super) fn large(lab: &Lab<'_>) -> Result<Section, Failure> {
    let results = lab.experiment("checkpoint-jobs-large")?;
    let table = |metric| by_count(&results, metric);
    Ok(Section {
        title: "The same with 2.4 GB in each iteration".into(),
        scenarios: vec!["checkpoint-jobs-large".into()],
        paper: "The thesis's words leave open whether a job writes 2.4 GB in all or in each iteration. Table 4.1, from the same \
                generator, lies between: 4 to 7 GB in all, 1.3 to 2.2 GB in each."
            .into(),
        tables: vec![
            ("Makespan".into(), table("makespan")),
            ("I/O time of a job".into(), table("io_time_mean")),
            ("Standard deviation of a job's checkpoint times".into(), table("phase_stddev_percent")),
        ],
        pictures: Vec::new(),
        verdict: "Ten jobs then write about 160 GB, for which the server needs an hour: jobs compute while others write, \
                  and the order of turns changes what the server gets done only by the seeks that it saves. Turns take 5 % \
                  off the I/O time then, and 67 % with `aioli` below. The thesis's 81 % cannot come from such a load, in \
                  which most of the I/O time is waiting for one's turn however fast the writes are; so the other reading is \
                  the likelier one."
            .into(),
    })
}

pub(super) fn backoff(lab: &Lab<'_>, jobs: &Experiment) -> Result<Section, Failure> {
    const UNIT: &str = "coordination.backoff.sleep_unit";
    const ATTEMPTS: &str = "coordination.backoff.attempts";
    const THRESHOLD: &str = "coordination.backoff.threshold";
    let results = lab.experiment("checkpoint-backoff")?;
    let mut tables = Vec::new();
    for threshold in results.values(THRESHOLD) {
        let attempts = results.values(ATTEMPTS);
        let header = attempts.iter().map(|most| format!("{most} attempts"));
        let mut table = Table::new(std::iter::once("unit of sleeps".to_owned()).chain(header));
        for unit in results.values(UNIT) {
            let cell = |most: &String| {
                results.shown(&[(THRESHOLD, threshold), (UNIT, unit), (ATTEMPTS, most)], "io_time_mean")
            };
            table.row(std::iter::once(unit.clone()).chain(attempts.iter().map(cell)));
        }
        tables.push((format!("I/O time of a job, threshold {threshold} of the quiet throughput"), table));
    }
    let ten = [(COUNT, "10"), (CASE, NONE)];
    Ok(Section {
        title: "How to back off".into(),
        scenarios: vec!["checkpoint-backoff".into(), "checkpoint-jobs".into()],
        paper: format!(
            "The thesis says that the parameters of backing off were tuned for a busy system, and gives but the threshold, 80 to 90 \
             %. Here they are varied for ten jobs, whose I/O takes {} without coordination.",
            jobs.shown(&ten, "io_time_mean")
        ),
        tables,
        pictures: Vec::new(),
        verdict: "What matters is how long the sleeps become, for their range doubles with each attempt: the eighth sleep is of up \
                  to 256 units, many times a checkpoint's length, in which the server falls idle, and an application that sleeps \
                  that long is passed by all others. While sleeps stay as short as checkpoints (few attempts, or a short unit) ten \
                  jobs are somewhat faster than without coordination, though not by the thesis's 19 %. The threshold hardly \
                  matters: a probe is either alone, or clearly is not. Turns do better than any of these settings."
            .into(),
    })
}
