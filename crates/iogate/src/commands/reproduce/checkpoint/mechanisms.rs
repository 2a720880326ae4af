//! All mechanisms on the same jobs.

use iogate_report::Table;
use iogate_report::reproduction::Section;

use super::{CASE, NONE, Results, lower};
use crate::commands::reproduce::Experiment;

pub(super) fn section(results: &Results) -> Section {
    let ten: &[(&str, &str)] = &[("jobs.count", "10")];
    let all: [(&str, &Experiment, &[(&str, &str)]); 4] = [
        ("Two identical jobs", &results.pair, &[]),
        ("Four different jobs", &results.mix, &[]),
        ("Ten generated jobs with large checkpoints", &results.large, ten),
        ("Four jobs, four servers behind four forwarders", &results.forwarders, &[]),
    ];
    Section {
        title: "Beyond the thesis: all mechanisms on the same jobs".into(),
        scenarios: ["checkpoint-pair", "checkpoint-mix", "checkpoint-jobs-large", "checkpoint-forwarders"]
            .map(String::from)
            .into(),
        paper: "No paper sets them side by side: turns from a coordinator, backing off, schedulers on the servers (`aioli`, \
                `app-window`) and on forwarders (`twins`), and some of them together."
            .into(),
        tables: all.map(|(name, results, at)| (name.into(), table(results, at))).into(),
        pictures: Vec::new(),
        verdict: "TODO".into(),
    }
}

fn table(results: &Experiment, at: &[(&str, &str)]) -> Table {
    let mut table = Table::new([
        "mechanism",
        "makespan",
        "I/O time of a job",
        "lower by",
        "spread of checkpoint times",
        "core-hours in I/O",
        "seeks",
    ]);
    for case in results.values(CASE) {
        let settings: Vec<(&str, &str)> = at.iter().copied().chain([(CASE, case.as_str())]).collect();
        let shown = |metric| results.shown(&settings, metric);
        let less = if case == NONE { "-".into() } else { lower(results, at, case, "io_time_mean") };
        table.row([
            case.clone(),
            shown("makespan"),
            shown("io_time_mean"),
            less,
            shown("phase_stddev_percent"),
            shown("io_core_hours"),
            shown("seeks"),
        ]);
    }
    table
}
