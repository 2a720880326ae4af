//! Invented runs that look like real ones: applications that compute and write by turns, on a few servers.

use iogate_core::stats::Stats;
use iogate_core::{AppId, FileId, Op, Span, Time, WaitReason};
use iogate_report::{ExperimentReport, Recording};
use iogate_sim::result::{
    AppResult, LayerResult, NetworkResult, Phase, RunResult, ServerResult, TurnsResult,
};
use iogate_sim::rng::Rng;
use iogate_sim::world::{Observer, Phase as Spent, Served};

pub(crate) const SCHEDULERS: [&str; 4] = ["fifo", "to-agg", "aioli", "server-window"];
const SERVERS: u32 = 4;
const ITERATIONS: u64 = 3;
const MS: u64 = 1_000_000;

/// How much time a scheduler's I/O takes, in percent of fifo's.
fn cost(scheduler: &str) -> u64 {
    match scheduler {
        "fifo" => 100,
        "to-agg" => 98,
        "aioli" => 70,
        _ => 55,
    }
}

fn at(ms: u64) -> Time {
    Time::from_nanos(ms * MS)
}

/// One run, and what an onlooker sees of it.
pub(crate) fn run(scheduler: &str, apps: u64, processes: u64, seed: u64) -> (RunResult, Recording) {
    let mut rng = Rng::new(seed, 1);
    let mut recording = Recording::new(Time::ZERO);
    let mut results = Vec::new();
    for app in 0..apps {
        let submitted = 100 * app;
        let start = submitted + if app > 1 { 400 } else { 0 };
        let mut now = start;
        let mut phases = Vec::new();
        for _ in 0..ITERATIONS {
            let compute = 600;
            let io = cost(scheduler) * (4 + processes) * (90 + rng.below(20)) / 100;
            for rank in 0..processes as u32 {
                let (app, late) = (AppId(app as u32 + 1), u64::from(rank) * 10 % 200);
                recording.phase(&Spent {
                    app,
                    rank,
                    io: false,
                    start: at(now),
                    end: at(now + compute - late),
                });
                let io = at(now + compute)..at(now + compute + io - late);
                recording.phase(&Spent { app, rank, io: true, start: io.start, end: io.end });
            }
            now += compute;
            for server in 0..SERVERS {
                let step = io / 16;
                for piece in 0..16 - u64::from(server) {
                    let busy = (step * (60 + rng.below(40)) / 100).max(1);
                    let from = now + piece * step + (app * 17) % step.max(1);
                    recording.served(&Served {
                        server,
                        app: AppId(app as u32 + 1),
                        file: FileId(app),
                        op: Op::Write,
                        offset: piece << 20,
                        bytes: 1 << 20,
                        requests: 8,
                        start: at(from),
                        end: at(from + busy),
                    });
                }
            }
            phases.push(Phase { asked: at(now), start: at(now), end: at(now + io), bytes: processes << 24 });
            now += io;
        }
        let last_io = phases[ITERATIONS as usize - 1].start;
        results.push(AppResult {
            name: ["climate", "ior <1>", "checkpoint & co", "a-rather-long-application-name"]
                [app as usize % 4]
                .into(),
            id: app as u32 + 1,
            submitted: at(submitted),
            start: at(start),
            end: at(now),
            lost: false,
            processes: processes as u32,
            calls: processes * 30,
            bytes: (ITERATIONS * processes) << 24,
            call_time: Span::from_millis(processes * 30 * 12),
            call_time_max: Span::from_millis(95),
            call_times: Default::default(),
            step_time: Span::ZERO,
            steps: 0,
            phases,
            server_finish: (0..u64::from(SERVERS))
                .map(|server| Some(last_io + Span::from_millis(200 + 90 * server)))
                .collect(),
            turns: TurnsResult::default(),
            alone: Some(Span::from_millis(2_500)),
        });
    }
    let makespan = results.iter().map(|app| app.end).max().unwrap_or(Time::ZERO).since(Time::ZERO);
    let merge = 200 / cost(scheduler);
    let server = |index| ServerResult {
        busy: Span::from_nanos(makespan.as_nanos() / (2 + index)),
        repositions: 900 / merge + rng.below(30),
        requests: 1_000,
        dispatches: 1_000 / merge,
        bytes: 1_000 << 15,
        finish: Time::ZERO + makespan,
    };
    let result = RunResult {
        seed,
        makespan,
        servers: (0..u64::from(SERVERS)).map(server).collect(),
        layers: vec![layer("clients", "fifo", 1, seed), layer("servers", scheduler, merge, seed)],
        caches: Vec::new(),
        network: NetworkResult { messages: 9_000, bytes: 1 << 32, lost: rng.below(5), timeouts: 0 },
        requests: 4_000,
        cut_off: false,
        apps: results,
        classes: Vec::new(),
    };
    (result, recording)
}

fn layer(name: &str, scheduler: &str, merge: u64, seed: u64) -> LayerResult {
    let mut rng = Rng::new(seed, 2);
    let mut stats = Stats::default();
    let op = &mut stats.ops[Op::Write as usize];
    for request in 0..500 {
        op.request_bytes.record(32 << 10);
        if request % merge == 0 {
            op.dispatch_bytes.record((merge << 15) * (1 + rng.below(3)));
        }
        op.waiting_ns.record(100_000 << rng.below(8));
    }
    LayerResult {
        name: name.into(),
        scheduler: scheduler.into(),
        requests: 4_000,
        bytes: 4_000 << 15,
        dispatches: 4_000 / merge,
        dispatched: 4_000 << 15,
        offset_distance_mean: Some(5e6 / merge as f64),
        waiting_mean: Span::from_micros(3_000 + rng.below(500)),
        waits: if merge > 2 { vec![(WaitReason::Window, 10, Span::from_millis(700))] } else { Vec::new() },
        held_back: 0,
        lists: 0,
        list_bytes: 0,
        skewed: 0,
        first_gate: Box::new(stats),
        changes: None,
        chosen: Vec::new(),
    }
}

/// A sweep: all schedulers with these numbers of processes, of two kinds of device and two numbers of applications.
pub(crate) fn experiment(processes: &[u64], seeds: u64) -> ExperimentReport {
    let mut report = ExperimentReport::new("Four schedulers <side by side> & more", "iogate test", 0.95);
    report.notes = vec!["Invented figures, to see what a page looks like.".into()];
    report.scenario =
        "title = \"Four schedulers\"\n\n[servers]\nnodes = 4\nscheduler = [\"fifo\", \"aioli\"]\n".into();
    for device in ["hdd", "flash"] {
        for apps in [2, 4] {
            for processes in processes {
                for scheduler in SCHEDULERS {
                    // On flash there is little to win.
                    let like = if device == "flash" && scheduler != "aioli" { "to-agg" } else { scheduler };
                    let runs: Vec<_> =
                        (0..seeds).map(|seed| run(like, apps, *processes, seed * 7 + processes)).collect();
                    let (results, mut recordings): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
                    let settings = [
                        ("servers.scheduler", scheduler.to_owned()),
                        ("servers.device", device.to_owned()),
                        ("apps.count", apps.to_string()),
                        ("apps.processes", processes.to_string()),
                    ];
                    let settings = settings.map(|(key, value)| (key.to_owned(), value)).to_vec();
                    report.add(settings, &results, Some(recordings.swap_remove(0)));
                }
            }
        }
    }
    report
}

/// One axis of names only.
pub(crate) fn comparison() -> ExperimentReport {
    let mut report = ExperimentReport::new("Schedulers", "iogate test", 0.9);
    for scheduler in SCHEDULERS {
        let (results, mut recordings): (Vec<_>, Vec<_>) =
            (0..5).map(|seed| run(scheduler, 3, 8, seed)).unzip();
        let settings = vec![("servers.scheduler".into(), scheduler.into())];
        report.add(settings, &results, Some(recordings.swap_remove(0)));
    }
    report
}

/// Much of everything: many lines with long names over many sizes, many applications, some of the same name.
pub(crate) fn dense() -> ExperimentReport {
    let mut report = ExperimentReport::new("Much of everything", "iogate test", 0.95);
    for variant in 0..12 {
        for size in 1..=30 {
            let (results, mut recordings): (Vec<_>, Vec<_>) =
                (0..2).map(|seed| run("aioli", 14, 1 + size / 4, 10 * variant + seed)).unzip();
            let settings = [
                ("servers.scheduler", format!("aioli quantum_base={variant}KiB contiguous_wait=50us")),
                ("apps.request", format!("{}KiB", 4 * size)),
            ];
            let settings = settings.map(|(key, value)| (key.to_owned(), value)).to_vec();
            report.add(settings, &results, Some(recordings.swap_remove(0)));
        }
    }
    report
}
