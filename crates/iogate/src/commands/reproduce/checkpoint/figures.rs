//! The jobs of figures 4.1 to 4.6, and the overhead.

use iogate_report::Table;
use iogate_report::reproduction::Section;

use super::{BACKOFF, BOTH, CASE, LOCK, NONE, lower, timelines};
use crate::commands::reproduce::{Experiment, Lab};
use crate::failure::Failure;

/// The thesis's mechanisms, and both stacked.
const COLUMNS: [&str; 8] =
    ["", "thesis: none", "backoff", "lock", "ours: none", "backoff", "lock", "lock+backoff"];
const OURS: [&str; 4] = [NONE, BACKOFF, LOCK, BOTH];

/// Adds a row: what the thesis has, and a metric of ours.
fn metric_row(table: &mut Table, results: &Experiment, what: &str, thesis: [&str; 3], metric: &str) {
    let ours = OURS.map(|case| results.shown(&[(CASE, case)], metric));
    let cells = [what].into_iter().chain(thesis).map(str::to_owned).chain(ours);
    table.row(cells);
}

/// Adds a row: by how much a metric is lower than with no mechanism.
fn lower_row(table: &mut Table, results: &Experiment, what: &str, thesis: [&str; 3], metric: &str) {
    let ours = OURS.map(|case| if case == NONE { "-".into() } else { lower(results, &[], case, metric) });
    table.row([what].into_iter().chain(thesis).map(str::to_owned).chain(ours));
}

pub(super) fn pair(results: &Experiment) -> Section {
    let mut table = Table::new(COLUMNS);
    metric_row(&mut table, results, "I/O time of both", ["325.95 s", "178.87 s", "92.16 s"], "io_time_sum");
    lower_row(&mut table, results, "lower by", ["-", "45.12 %", "71.72 %"], "io_time_sum");
    metric_row(
        &mut table,
        results,
        "fastest checkpoint",
        ["21.30 MB/s", "91.48 MB/s", "-"],
        "phase_throughput_max",
    );
    metric_row(&mut table, results, "makespan", ["-"; 3], "makespan");
    metric_row(&mut table, results, "waiting for turns, a job", ["-"; 3], "turn_wait_mean");
    metric_row(&mut table, results, "probing and backing off, a job", ["-"; 3], "backoff_time_mean");
    metric_row(&mut table, results, "seeks", ["-"; 3], "seeks");
    Section {
        title: "Figures 4.1 to 4.3: two identical jobs".into(),
        scenarios: vec!["checkpoint-pair".into()],
        paper: "The thesis: two jobs of 16 tasks compute for 90 s and write 1024 MB, three times. Coordination is part of the I/O \
                time. Without it no checkpoint is written faster than 21.30 MB/s; with backoff the first ones overlap (the probe \
                was answered from a cache), the later ones do not; with locking none do."
            .into(),
        tables: vec![(String::new(), table)],
        pictures: timelines(results, &[(NONE, "Figure 4.1"), (BACKOFF, "Figure 4.2"), (LOCK, "Figure 4.3")]),
        verdict: "Agrees: the order, and backing off in size (44 %). With turns nobody overlaps, and only the first \
                  checkpoint waits: who has waited once computes out of step from then on. By arithmetic alone, without any \
                  loss to seeks, turns take 5/12 off here: of two jobs together each checkpoint takes twice its time, which \
                  makes twelve times in all, and turns make seven of them. The rest of the thesis's 72 % is what two jobs \
                  cost each other beyond sharing. Ours cost each other less, for a job alone is slower here (44 MiB/s, not \
                  91): its 16 tasks write in 16 places, and the disk seeks between these with or without another job. A \
                  server that sorts its requests closes the gap: with `aioli` below, as an elevator is below an NFS server, \
                  a job that has its turn gets 89 MiB/s, and the I/O of both takes 81 s (see the last section). A probe \
                  never finds a busy server quiet here, as the model has no cache that answers it, so no checkpoints \
                  overlap with backoff, as the thesis's first ones do."
            .into(),
    }
}

pub(super) fn devices(lab: &Lab<'_>) -> Result<Section, Failure> {
    const DEVICE: &str = "servers.device";
    const MECHANISM: &str = "coordination.mechanism";
    const REQUEST: &str = "app.job.request";
    let results = lab.experiment("checkpoint-devices")?;
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
    let each = |device| results.values(REQUEST).iter().map(move |request| (device, request));
    for (device, request) in results.values(DEVICE).iter().flat_map(each) {
        let at = |mechanism| [(DEVICE, device.as_str()), (REQUEST, request.as_str()), (MECHANISM, mechanism)];
        let shown = |mechanism, metric| results.shown(&at(mechanism), metric);
        let less = |mechanism| {
            let reduction = results.reduction(&at(mechanism), &at(NONE), "io_time_sum");
            reduction.map_or("-".into(), |percent| format!("{percent:.1} %"))
        };
        table.row([
            device.clone(),
            request.clone(),
            shown(NONE, "phase_throughput_max"),
            shown(LOCK, "phase_throughput_max"),
            shown(NONE, "io_time_sum"),
            shown(BACKOFF, "io_time_sum"),
            shown(LOCK, "io_time_sum"),
            less(BACKOFF),
            less(LOCK),
        ]);
    }
    Ok(Section {
        title: "The same on other devices".into(),
        scenarios: vec!["checkpoint-devices".into()],
        paper: "The thesis's server has disks of 12 TB together, and no more is said of them. A job alone gets about 90 MB/s, two \
                together about 40 MB/s: what seeks cost there is more than half."
            .into(),
        tables: vec![(String::new(), table)],
        pictures: Vec::new(),
        verdict: "What turns gain is 42 % by sharing alone, where the network is the limit (`hdd`, `suno`, `edel`: 119 \
                  MiB/s alone, half of it together). On slow disks it depends on the length of the calls against the \
                  write cache: 40 % where a call of 1 MiB is worth its seek, 58 % where two jobs' calls of 256 KiB fall \
                  apart that were joined in the cache for one job. No device that there is a model of gives both of the \
                  thesis's figures, 90 MB/s alone and a quarter of it for each of two. That needs a server whose files \
                  are sequential for one job and not for two; the model has no page cache and no file system that would \
                  make one job's 16 streams sequential."
            .into(),
    })
}

pub(super) fn mix(results: &Experiment) -> Section {
    let mut table = Table::new(COLUMNS);
    metric_row(
        &mut table,
        results,
        "I/O time of a job",
        ["275.50 s", "228.98 s", "140.96 s"],
        "io_time_mean",
    );
    lower_row(&mut table, results, "lower by", ["-", "16.88 %", "48.83 %"], "io_time_mean");
    let saved = OURS.map(|case| {
        let of = |case| results.mean(&[(CASE, case)], "io_core_hours");
        let saved = of(NONE).zip(of(case)).filter(|_| case != NONE);
        saved.map_or("-".into(), |(base, with)| format!("{:.2}", base - with))
    });
    let thesis = ["core-hours saved", "-", "0.82", "2.39"].map(str::to_owned);
    table.row(thesis.into_iter().chain(saved));
    metric_row(&mut table, results, "attempts (probings)", ["-", "21", "-"], "attempts");
    metric_row(&mut table, results, "makespan", ["-"; 3], "makespan");
    metric_row(&mut table, results, "fastest checkpoint", ["-"; 3], "phase_throughput_max");
    Section {
        title: "Table 4.1 and figures 4.4 to 4.6: four different jobs".into(),
        scenarios: vec!["checkpoint-mix".into()],
        paper: "The thesis: jobs of 16 tasks with 3, 5, 3 and 3 iterations of 1392, 1312, 1392 and 2192 MB after 140, 132, 140 and \
                220 s of computing. With backoff there are 21 probings of 9 MB; three checkpoints overlap since caches answer \
                the probes. With locking all checkpoints are as fast as can be. A core-hour counts a task that does not compute."
            .into(),
        tables: vec![(String::new(), table)],
        pictures: timelines(results, &[(NONE, "Figure 4.4"), (BACKOFF, "Figure 4.5"), (LOCK, "Figure 4.6")]),
        verdict: "Agrees for turns: all checkpoints go at full speed. They take 24 % off the I/O time (49 % in the thesis, \
                  for the reason above; 58 % with `aioli` below). The core-hours are those of the I/O times, as the \
                  thesis's are: 275.50 s less 140.96 s for 4 jobs of 16 tasks are 2.39 core-hours. Differs for backing off, \
                  which costs more than it saves. Checkpoints take 22 to 35 s, the server is busy for two fifths of the \
                  time, and after a few attempts that fail the sleeps are longer than a checkpoint. What the parameters do \
                  is below."
            .into(),
    }
}

pub(super) fn alone(lab: &Lab<'_>) -> Result<Section, Failure> {
    const MECHANISM: &str = "coordination.mechanism";
    /// Turns of the job.
    const TURNS: f64 = 3.0;
    let results = lab.experiment("checkpoint-alone")?;
    let mut table = Table::new(["", "thesis", "ours"]);
    let each = |mechanism, metric| results.mean(&[(MECHANISM, mechanism)], metric).map(|sum| sum / TURNS);
    let turn = each(LOCK, "turn_wait_mean").map_or("-".into(), |s| format!("{:.1} us", s * 1e6));
    let probe = each(BACKOFF, "backoff_time_mean").map_or("-".into(), |s| format!("{s:.2} s"));
    table.row(["a turn that is free", "90.67 us", &turn]);
    table.row(["an attempt on quiet storage", "4.03 s", &probe]);
    Ok(Section {
        title: "Section 4.2: overhead".into(),
        scenarios: vec!["checkpoint-alone".into()],
        paper: "The thesis: on a quiet system, from the end of computing to the start of the I/O.".into(),
        tables: vec![("For each checkpoint of a job that is alone".into(), table)],
        pictures: Vec::new(),
        verdict: "The turn is two messages: 200 us are twice the simulated network's latency of 50 us and its jitter of \
                  up to 100 us, and say nothing about a real coordinator. The attempt is three probes of 34 ms, what \
                  primes them, and the two pauses of 2 s between them, which were chosen so: the thesis gives the sum, \
                  and not the pause. With pauses of 100 ms it takes 0.3 s."
            .into(),
    })
}
