//! The pair, the mix and ten jobs on what the thesis's server and nodes had below: controls.

use iogate_report::Table;

use super::jobs::{SPREAD, shorter};
use super::spread::varies;
use super::{BACKOFF, CASE, LOCK, NONE};
use crate::commands::reproduce::claims::Sheet;
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percents};
use crate::failure::Failure;

const BELOW: &str = "below";
const DEVICE: &str = "servers.device";

pub(super) fn figure<'a>(pair: &'a Experiment, mix: &'a Experiment) -> Result<Figure<'a>, Failure> {
    let mut sheet = Sheet::of("figures 4.1 to 4.6, what lies below");
    let mut tables = Vec::new();
    for (results, what, metric, published) in [
        (pair, "two identical jobs", "io_time_sum", [(BACKOFF, 45.12), (LOCK, 71.72)]),
        (mix, "four different jobs", "io_time_mean", [(BACKOFF, 16.88), (LOCK, 48.83)]),
    ] {
        for device in results.values(DEVICE) {
            let head = ["", NONE, BACKOFF, LOCK, "lower by: backoff", LOCK, "attempts", "seeks: none", LOCK];
            let mut table = Table::new(head);
            for below in results.values(BELOW) {
                let at = |case| [(DEVICE, device.as_str()), (BELOW, below.as_str()), (CASE, case)];
                let less = |case| -> Result<_, Failure> {
                    Ok(results.cell(&at(case), metric)?.lower(&results.cell(&at(NONE), metric)?))
                };
                for (case, percent) in published {
                    sheet.change(format!("{what}, {device}, {below}: {case} lower by"), percent, less(case)?);
                }
                let time = |case| results.shown(&at(case), metric);
                table.row([
                    below.clone(),
                    time(NONE),
                    time(BACKOFF),
                    time(LOCK),
                    percents(less(BACKOFF)?),
                    percents(less(LOCK)?),
                    results.shown(&at(BACKOFF), "attempts"),
                    results.shown(&at(NONE), "seeks"),
                    results.shown(&at(LOCK), "seeks"),
                ]);
            }
            tables.push((format!("{what}, {device}: I/O time"), table));
        }
    }
    Ok(Figure {
        title: "Control: caches, allocation and an elevator below".into(),
        results: vec![pair, mix],
        setup: "Not in the thesis, which says of its server only what is in the notes. The pair and the mix with what nodes and servers of \
                Linux have below, switched on one after the other, on a disk of the time and on a RAID-6 of 12 TB. Nothing was chosen for \
                the sake of the thesis's figures."
            .into(),
        sheet,
        tables,
        remarks: "A client's cache sends the writes of all tasks of a node in offset order, so that a job alone is one stream with \
                  few seeks. But it sends them at the end of a phase, and a COMMIT waits for the disk after that, so a checkpoint \
                  alone takes longer with caches than without, and overlap costs no more than before: none of these is what makes \
                  turns worth as much as in the thesis. On the array the network is the limit, and turns save what sharing it costs."
            .into(),
        ..Figure::default()
    })
}

/// Ten generated jobs on what lies below.
pub(super) fn jobs(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let mut sheet = Sheet::of("figure 4.8, what lies below");
    let mut tables = Vec::new();
    for (metric, what) in [
        ("io_time_mean", "I/O time of a job"),
        ("makespan", "makespan"),
        (SPREAD, "standard deviation of a job's checkpoint times"),
    ] {
        let head = ["", NONE, BACKOFF, "lower by", LOCK, "lower by", "seeks: none", LOCK];
        let mut table = Table::new(head);
        for below in results.values(BELOW) {
            let at = |case| [(BELOW, below.as_str()), (CASE, case)];
            let less = |case| -> Result<_, Failure> {
                Ok(results.cell(&at(case), metric)?.lower(&results.cell(&at(NONE), metric)?))
            };
            if metric == "io_time_mean" {
                for (case, percent) in [(BACKOFF, 19.22), (LOCK, 81.38)] {
                    sheet.change(format!("ten jobs, {below}: {case} lower by"), percent, less(case)?);
                }
            }
            let time = |case| results.shown(&at(case), metric);
            table.row([
                below.clone(),
                time(NONE),
                time(BACKOFF),
                percents(less(BACKOFF)?),
                time(LOCK),
                percents(less(LOCK)?),
                results.shown(&at(NONE), "seeks"),
                results.shown(&at(LOCK), "seeks"),
            ]);
        }
        tables.push((what.to_owned(), table));
    }
    sheet.next("figure 4.7, what lies below");
    for below in results.values(BELOW) {
        let makespan = |case: &str| results.cell(&[(BELOW, below.as_str()), (CASE, case)], "makespan");
        shorter(&mut sheet, &format!("{below}: "), makespan)?;
    }
    sheet.next("figure 4.9, what lies below");
    for below in results.values(BELOW) {
        let cell = |case: &str| results.cell(&[(BELOW, below.as_str()), (CASE, case)], SPREAD);
        varies(&mut sheet, &format!("10 jobs, {below}: "), cell)?;
    }
    Ok(Figure {
        title: "Control: ten jobs, with caches, allocation and an elevator below".into(),
        results: vec![results],
        setup: "Not in the thesis. Ten generated jobs with what nodes and servers of Linux have below, as for the pair and the mix above, on a \
                disk of the time."
            .into(),
        sheet,
        tables,
        remarks: "Blocks that are given in the order in which they are written lie together whoever writes them, and caches send what is \
                  adjacent: with either, jobs that write at once cost few seeks that turns could save."
            .into(),
        ..Figure::default()
    })
}
