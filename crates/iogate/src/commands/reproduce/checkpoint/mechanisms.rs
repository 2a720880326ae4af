//! All mechanisms on the same jobs.

use iogate_report::Table;
use iogate_report::reproduction::Section;

use super::{CASE, NONE, Results, lower};
use crate::commands::reproduce::{Experiment, Settings};

pub(super) fn section(results: &Results) -> Section {
    let ten = [("jobs.count", "10")];
    let tables = vec![
        ("Two identical jobs".into(), table(&results.pair, &[])),
        ("Four different jobs".into(), table(&results.mix, &[])),
        ("Ten generated jobs".into(), table(&results.jobs, &ten)),
        ("Four jobs, four servers behind four forwarders".into(), table(&results.forwarders, &[])),
    ];
    Section {
        title: "Beyond the thesis: all mechanisms on the same jobs".into(),
        scenarios: ["checkpoint-pair", "checkpoint-mix", "checkpoint-jobs", "checkpoint-forwarders"]
            .map(String::from)
            .into(),
        paper: "No paper sets them side by side: turns from a coordinator, backing off, schedulers on the servers (`aioli`, \
                `app-window`) and on forwarders (`twins`), and some of them together."
            .into(),
        tables,
        pictures: Vec::new(),
        verdict: "Turns are never worse than no mechanism. They do what schedulers on servers cannot: who is first goes on \
                  computing, so that jobs fall out of step and stay so. A scheduler that sorts does what turns cannot: it \
                  orders one job's own requests, and where a disk is the limit that gains more by itself than turns do. So \
                  they add up: `lock, aioli` is best wherever a disk is the limit, by far, and takes 58 to 85 % off the I/O \
                  time. `app-window` alone is a kind of turn, of a second each, without a word between anybody: it gains \
                  most of what turns do where two jobs meet and little or nothing where more do, for each waits for the \
                  windows of all others; it adds nothing to turns, for with one job there is nothing to choose. Backing off \
                  pays where two jobs meet, and over a server that sorts; elsewhere its sleeps cost more than it saves, \
                  with short pauses in an attempt, too. Probing although one has the turn costs an attempt each time, in \
                  which the server is idle while others wait, and gains only where somebody takes no turns, which nobody \
                  does here. On four servers the disks are not the limit, and there is little to gain but the order: turns \
                  take 20 % off the I/O time; jobs that probe at the same instant all find the servers quiet; `twins` costs \
                  more than it gains, with turns and without, since one job cannot keep four servers busy through windows \
                  that show it one at a time."
            .into(),
    }
}

fn table(results: &Experiment, at: &Settings<'_>) -> Table {
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
