//! All mechanisms on the same jobs.

use iogate_report::Table;

use super::{BACKOFF, CASE, LOCK, LOCK_SORTED, NONE, Results, SORTED};
use crate::commands::reproduce::claims::Sheet;
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, Settings, percents};
use crate::failure::Failure;

const IO: &str = "io_time_mean";

pub(super) fn figure(results: &Results) -> Result<Figure<'_>, Failure> {
    let ten = [("jobs.count", "10")];
    let disk: [(&str, &Experiment, &Settings<'_>); 3] = [
        ("Two identical jobs", &results.pair, &[]),
        ("Four different jobs", &results.mix, &[]),
        ("Ten generated jobs", &results.jobs, &ten),
    ];
    let mut sheet = Sheet::of("all mechanisms");
    let (mut turns, mut adds, mut sorts, mut backs_off, mut backs_off_sorted) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (_, experiment, at) in disk {
        let io = |case| experiment.cell(&at.iter().copied().chain([(CASE, case)]).collect::<Vec<_>>(), IO);
        turns.push(io(LOCK)?.less(&io(NONE)?));
        adds.push(io(LOCK_SORTED)?.less(&io(SORTED)?));
        sorts.push(io(SORTED)?.less(&io(LOCK)?));
        backs_off.push(io(BACKOFF)?.less(&io(NONE)?));
        let sorted = format!("{BACKOFF}, {SORTED}");
        if experiment.values(CASE).contains(&sorted) {
            backs_off_sorted.push(io(&sorted)?.less(&io(SORTED)?));
        }
    }
    sheet.everywhere("on a disk, turns are better than nothing", turns);
    sheet.everywhere("on a disk that sorts, turns are better than sorting alone", adds);
    sheet.everywhere("on a disk, sorting alone is better than turns alone", sorts);
    sheet.everywhere("on a disk, backing off is better than nothing", backs_off);
    sheet.everywhere("on a disk that sorts, backing off is better than sorting alone", backs_off_sorted);
    let mut tables: Vec<(String, Table)> =
        disk.iter().map(|(name, experiment, at)| ((*name).to_owned(), table(experiment, at))).collect();
    tables.push(("Four jobs, four servers behind four forwarders".into(), table(&results.forwarders, &[])));
    Ok(Figure {
        title: "Beyond the thesis: all mechanisms on the same jobs".into(),
        results: vec![&results.pair, &results.mix, &results.jobs, &results.forwarders],
        setup: "No paper sets them side by side: turns from a coordinator, backing off, schedulers on the servers (`aioli`, `app-window`) and \
                on forwarders (`twins`), and some of them together. The statements are what one might expect, not a paper's."
            .into(),
        sheet,
        tables,
        remarks: "Turns do what schedulers on servers cannot: who is first goes on computing, so that jobs fall out of step and stay so. A \
                  scheduler that sorts does what turns cannot: it orders one job's own requests. `app-window` alone is a kind of turn \
                  without a word between anybody; it adds nothing to turns, for with one job there is nothing to choose. `twins` shows one \
                  job the servers one at a time, and cannot keep them busy."
            .into(),
        ..Figure::default()
    })
}

fn table(results: &Experiment, at: &Settings<'_>) -> Table {
    let mut table = Table::new([
        "mechanism",
        "makespan",
        "I/O time of a job",
        "lower than with none by",
        "lower than with aioli alone by",
        "spread of checkpoint times",
        "core-hours in I/O",
        "fairness",
        "calls: 99.9 %",
        "seeks",
    ]);
    for case in results.values(CASE) {
        fn with<'a>(at: &Settings<'a>, case: &'a str) -> Vec<(&'a str, &'a str)> {
            at.iter().copied().chain([(CASE, case)]).collect()
        }
        let settings = with(at, case);
        let shown = |metric| results.shown(&settings, metric);
        let less = |base: &str| {
            let other = case != base && (base == NONE || case.ends_with(SORTED));
            if other { percents(results.lower(&settings, &with(at, base), IO)) } else { "-".into() }
        };
        table.row([
            case.clone(),
            shown("makespan"),
            shown(IO),
            less(NONE),
            less(SORTED),
            shown("phase_stddev_percent"),
            shown("io_core_hours"),
            shown("fairness"),
            shown("call_time_p999"),
            shown("seeks"),
        ]);
    }
    table
}
