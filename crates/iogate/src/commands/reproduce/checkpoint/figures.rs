//! The jobs of figures 4.1 to 4.6, and the overhead.

use iogate_report::Table;

use super::{BACKOFF, BOTH, CASE, LOCK, LOCK_SORTED, NONE, SORTED, timelines};
use crate::commands::reproduce::claims::{Cell, NEAR, Sheet};
use crate::commands::reproduce::figure::Figure;
use crate::commands::reproduce::{Experiment, percents, shares};
use crate::failure::Failure;

const COLUMNS: [&str; 7] = ["", NONE, BACKOFF, LOCK, BOTH, SORTED, LOCK_SORTED];
const OURS: [&str; 6] = [NONE, BACKOFF, LOCK, BOTH, SORTED, LOCK_SORTED];

/// All mechanisms in columns: metrics, and by how much the first one is lower than with no mechanism on the same kind of server.
fn table(results: &Experiment, metrics: &[(&str, &str)]) -> Table {
    let mut table = Table::new(COLUMNS);
    for (index, (what, metric)) in metrics.iter().enumerate() {
        let cells = OURS.map(|case| results.shown(&[(CASE, case)], metric));
        table.row(std::iter::once((*what).to_owned()).chain(cells));
        if index == 0 {
            let lower = OURS.map(|case| match case {
                NONE | SORTED => "-".into(),
                LOCK_SORTED => percents(results.lower(&[(CASE, case)], &[(CASE, SORTED)], metric)),
                _ => percents(results.lower(&[(CASE, case)], &[(CASE, NONE)], metric)),
            });
            table.row(std::iter::once("lower than without, on the same server, by".to_owned()).chain(lower));
        }
    }
    table
}

/// How evenly jobs were served, for each mechanism.
fn even(results: &Experiment) -> (String, Table) {
    shares(results, &OURS.map(|case| (case.to_owned(), vec![(CASE, case)])))
}

pub(super) fn pair(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let cell = |case, metric| results.cell(&[(CASE, case)], metric);
    let io = |case| cell(case, "io_time_sum");
    let mut sheet = Sheet::of("figures 4.1 to 4.3");
    for (case, seconds) in [(NONE, 325.95), (BACKOFF, 178.87), (LOCK, 92.16)] {
        sheet.number(format!("I/O time of both: {case}"), seconds, " s", io(case)?.interval(), NEAR);
    }
    sheet.change("backoff: lower by", 45.12, io(BACKOFF)?.lower(&io(NONE)?));
    sheet.change("lock: lower by", 71.72, io(LOCK)?.lower(&io(NONE)?));
    sheet.change("lock, over a server that sorts: lower by", 71.72, io(LOCK_SORTED)?.lower(&io(SORTED)?));
    for (case, rate) in [(NONE, 21.30), (BACKOFF, 91.48)] {
        let ours = cell(case, "phase_throughput_max")?.map(|rate| rate / 1e6);
        sheet.number(format!("fastest checkpoint: {case}"), rate, " MB/s", ours.interval(), NEAR);
    }
    let metrics = [
        ("I/O time of both", "io_time_sum"),
        ("fastest checkpoint", "phase_throughput_max"),
        ("makespan", "makespan"),
        ("waiting for turns, a job", "turn_wait_mean"),
        ("probing and backing off, a job", "backoff_time_mean"),
        ("seeks", "seeks"),
    ];
    Ok(Figure {
        title: "Figures 4.1 to 4.3: two identical jobs".into(),
        results: vec![results],
        setup: "The thesis: two jobs of 16 tasks compute for 90 s and write 1024 MB, three times. Coordination is part of the I/O time. \
                With backoff the first checkpoints overlap (the probe was answered from a cache), the later ones do not; with locking \
                none do."
            .into(),
        sheet,
        tables: vec![(String::new(), table(results, &metrics)), even(results)],
        pictures: timelines(results, &[(NONE, "Figure 4.1"), (BACKOFF, "Figure 4.2"), (LOCK, "Figure 4.3")]),
        remarks: "With turns nobody overlaps, and only the first checkpoint waits: who has waited once computes out of step from then on. \
                  What turns save beyond sharing is what two jobs cost each other in seeks. In ours that is less than in the thesis, for \
                  the tasks of one job write in many places, and the disk seeks between these with or without another job; a server that \
                  sorts makes both cases faster, and the difference between them smaller. A probe never finds a busy server quiet here, as \
                  the model has no cache that answers it."
            .into(),
    })
}

pub(super) fn devices(results: &Experiment) -> Result<Figure<'_>, Failure> {
    const DEVICE: &str = "servers.device";
    const MECHANISM: &str = "coordination.mechanism";
    const REQUEST: &str = "app.job.request";
    let mut table = Table::new([
        "device",
        "calls",
        "fastest checkpoint: none",
        "lock",
        "I/O time of both: none",
        "backoff",
        "lock",
        "lower by: backoff",
        "lock",
    ]);
    let mut sheet = Sheet::of("figures 4.1 to 4.3, devices");
    let (mut backoff, mut lock) = (Vec::new(), Vec::new());
    let each = |device| results.values(REQUEST).iter().map(move |request| (device, request));
    for (device, request) in results.values(DEVICE).iter().flat_map(each) {
        let at = |mechanism| [(DEVICE, device.as_str()), (REQUEST, request.as_str()), (MECHANISM, mechanism)];
        let io = |mechanism| results.cell(&at(mechanism), "io_time_sum");
        let less = [io(BACKOFF)?.lower(&io(NONE)?), io(LOCK)?.lower(&io(NONE)?)];
        backoff.extend(less[0]);
        lock.extend(less[1]);
        let shown = |mechanism, metric| results.shown(&at(mechanism), metric);
        table.row([
            device.clone(),
            request.clone(),
            shown(NONE, "phase_throughput_max"),
            shown(LOCK, "phase_throughput_max"),
            shown(NONE, "io_time_sum"),
            shown(BACKOFF, "io_time_sum"),
            shown(LOCK, "io_time_sum"),
            percents(less[0]),
            percents(less[1]),
        ]);
    }
    sheet.changes("backoff: lower by, over all devices and calls", (45.12, 45.12), backoff);
    sheet.changes("lock: lower by, over all devices and calls", (71.72, 71.72), lock);
    Ok(Figure {
        title: "The same on other devices".into(),
        results: vec![results],
        setup: "The thesis's server has disks of 12 TB together, and no more is said of them. The pair of jobs again, on devices that there \
                is a model of, with calls of other lengths."
            .into(),
        sheet,
        tables: vec![(String::new(), table)],
        remarks: "The device and the length of the calls decide how much backing off saves: a single one of these cells is no evidence for \
                  it. Where the network is the limit, turns save what sharing alone costs."
            .into(),
        ..Figure::default()
    })
}

pub(super) fn mix(results: &Experiment) -> Result<Figure<'_>, Failure> {
    let cell = |case, metric| results.cell(&[(CASE, case)], metric);
    let io = |case| cell(case, "io_time_mean");
    let hours = |case: &'static str| -> Result<Cell, Failure> {
        Ok(cell(NONE, "io_core_hours")?.with(&cell(case, "io_core_hours")?, |none, with| none - with))
    };
    let mut sheet = Sheet::of("table 4.1 and figures 4.4 to 4.6");
    for (case, seconds) in [(NONE, 275.50), (BACKOFF, 228.98), (LOCK, 140.96)] {
        sheet.number(format!("I/O time of a job: {case}"), seconds, " s", io(case)?.interval(), NEAR);
    }
    sheet.change("backoff: lower by", 16.88, io(BACKOFF)?.lower(&io(NONE)?));
    sheet.change("lock: lower by", 48.83, io(LOCK)?.lower(&io(NONE)?));
    sheet.change("lock, over a server that sorts: lower by", 48.83, io(LOCK_SORTED)?.lower(&io(SORTED)?));
    sheet.number("core-hours saved: backoff", 0.82, "", hours(BACKOFF)?.interval(), NEAR);
    sheet.number("core-hours saved: lock", 2.39, "", hours(LOCK)?.interval(), NEAR);
    sheet.number("probings", 21.0, "", cell(BACKOFF, "attempts")?.interval(), NEAR);
    let metrics = [
        ("I/O time of a job", "io_time_mean"),
        ("core-hours in I/O", "io_core_hours"),
        ("attempts (probings)", "attempts"),
        ("makespan", "makespan"),
        ("fastest checkpoint", "phase_throughput_max"),
    ];
    Ok(Figure {
        title: "Table 4.1 and figures 4.4 to 4.6: four different jobs".into(),
        results: vec![results],
        setup: "The thesis: jobs of 16 tasks with 3, 5, 3 and 3 iterations of 1392, 1312, 1392 and 2192 MB after 140, 132, 140 and 220 s of \
                computing. Probings write 9 MB; three checkpoints overlap since caches answer the probes. With locking all checkpoints \
                are as fast as can be. A core-hour counts a task that does not compute."
            .into(),
        sheet,
        tables: vec![(String::new(), table(results, &metrics)), even(results)],
        pictures: timelines(results, &[(NONE, "Figure 4.4"), (BACKOFF, "Figure 4.5"), (LOCK, "Figure 4.6")]),
        remarks: "After a few attempts that fail the sleeps of who backs off are longer than a checkpoint. What the parameters do is below."
            .into(),
    })
}

/// What the thesis measures of either mechanism on a quiet system.
const TURN_US: f64 = 90.67;
const ATTEMPT_S: f64 = 4.03;

pub(super) fn alone(results: &Experiment) -> Result<Figure<'_>, Failure> {
    const MECHANISM: &str = "coordination.mechanism";
    /// Turns of the job.
    const TURNS: f64 = 3.0;
    let each = |mechanism, metric| -> Result<Cell, Failure> {
        Ok(results.cell(&[(MECHANISM, mechanism)], metric)?.map(|sum| sum / TURNS))
    };
    let turn = each(LOCK, "turn_wait_mean")?.map(|seconds| seconds * 1e6);
    let probe = each(BACKOFF, "backoff_time_mean")?;
    let mut table = Table::new(["", "thesis", "ours"]);
    let shown =
        |cell: &Cell, unit: &str| cell.interval().map_or("-".into(), |of| format!("{:.1} {unit}", of.mean));
    table.row(["a turn that is free".into(), format!("{TURN_US} us"), shown(&turn, "us")]);
    table.row(["an attempt on quiet storage".into(), format!("{ATTEMPT_S} s"), shown(&probe, "s")]);
    Ok(Figure {
        title: "Section 4.2: overhead".into(),
        results: vec![results],
        setup: "The thesis: on a quiet system, from the end of computing to the start of the I/O. For each checkpoint of a job that is alone."
            .into(),
        tables: vec![(String::new(), table)],
        remarks: "Neither is evidence. The turn is two messages: twice the simulated network's latency and jitter, which say nothing about a \
                  real coordinator. The pauses of the attempt were chosen so that it takes as long as the thesis's, which gives the sum and \
                  not the pause."
            .into(),
        ..Figure::default()
    })
}
