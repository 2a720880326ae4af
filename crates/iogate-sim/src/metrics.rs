//! What is measured of a run: each metric with its name, unit and meaning, once.
//!
//! Four tables: of a whole run ([`RUN`]), of an application ([`APP`]), of a class ([`CLASS`]), of a layer of gates ([`LAYER`]). Those of a
//! run that concern gates are of the layer `servers`. A metric of what did not happen (the steps of an application
//! that has none, the completion of one that was lost) is `None`, and means leave it out.

use std::borrow::Cow;

use iogate_core::Span;

use crate::result::{AppResult, ClassResult, LayerResult, RunResult, ServerResult};
use crate::stat::{mean, stddev};

/// One metric of a `T`.
pub struct Metric<T: 'static> {
    /// Its name, in results and in settings.
    pub name: &'static str,
    /// What its values count.
    pub unit: Unit,
    /// What it says, in a line.
    pub meaning: &'static str,
    /// Which values are better.
    pub better: Better,
    of: fn(&T) -> Option<f64>,
}

impl<T> Metric<T> {
    /// Its value, in [`Metric::unit`]; `None` where there is nothing to measure.
    pub fn of(&self, result: &T) -> Option<f64> {
        (self.of)(result).filter(|value| value.is_finite())
    }
}

/// What a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Unit {
    /// Time.
    #[cfg_attr(feature = "serde", serde(rename = "s"))]
    Seconds,
    /// Amounts of data.
    #[cfg_attr(feature = "serde", serde(rename = "B"))]
    Bytes,
    /// Amounts of data in an amount of time.
    #[cfg_attr(feature = "serde", serde(rename = "B/s"))]
    BytesPerSecond,
    /// Things.
    #[cfg_attr(feature = "serde", serde(rename = "count"))]
    Count,
    /// A factor or a fraction.
    #[cfg_attr(feature = "serde", serde(rename = "ratio"))]
    Ratio,
    /// Hours that processors were given away for.
    #[cfg_attr(feature = "serde", serde(rename = "core-h"))]
    CoreHours,
    /// Hundredths.
    #[cfg_attr(feature = "serde", serde(rename = "%"))]
    Percent,
}

impl Unit {
    /// Its symbol, as in JSON and CSV.
    pub fn symbol(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Bytes => "B",
            Unit::BytesPerSecond => "B/s",
            Unit::Count => "count",
            Unit::Ratio => "ratio",
            Unit::CoreHours => "core-h",
            Unit::Percent => "%",
        }
    }
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Better {
    /// Smaller ones.
    Lower,
    /// Larger ones.
    Higher,
    /// That depends.
    Neither,
}

/// The layer of the data servers' gates.
pub const SERVERS: &str = "servers";

/// The metric of `table` that is called `name`.
pub fn find<T>(table: &'static [Metric<T>], name: &str) -> Option<&'static Metric<T>> {
    table.iter().find(|metric| metric.name == name)
}

macro_rules! metrics {
    ($($name:literal $unit:ident $better:ident $meaning:literal $of:expr;)*) => {
        &[$(Metric { name: $name, unit: Unit::$unit, better: Better::$better, meaning: $meaning, of: $of }),*]
    };
}

/// Of a whole run.
pub static RUN: &[Metric<RunResult>] = metrics! {
    "makespan" Seconds Lower "from the start of the first application to the end of the last"
        |run| Some(run.makespan.as_secs_f64());
    "completion_mean" Seconds Lower "from an application's start to its end, mean over the applications"
        |run| over_apps(run, completion);
    "completion_max" Seconds Lower "from an application's start to its end, the longest"
        |run| run.apps.iter().filter_map(completion).reduce(f64::max);
    "turnaround_mean" Seconds Lower "from an application's submission to its end, mean over the applications"
        |run| over_apps(run, turnaround);
    "io_time_mean" Seconds Lower
        "an application's I/O phases together, with what it waits before them for turns and quiet, mean over the applications"
        |run| over_apps(run, io_time);
    "io_time_sum" Seconds Lower "the same, all applications together" |run| sum_over_apps(run, io_time);
    "io_core_hours" CoreHours Lower "the same by the processes, each on a core, all applications together"
        |run| sum_over_apps(run, io_core_hours);
    "turn_wait_mean" Seconds Lower "an application's waits for turns together, mean over the applications"
        |run| over_apps(run, turn_wait);
    "backoff_time_mean" Seconds Lower "an application's probing and backing off together, mean over the applications"
        |run| over_apps(run, backoff_time);
    "probes" Count Lower "probes written, all applications together" |run| sum_over_apps(run, probes);
    "attempts" Count Lower "attempts to find the storage quiet, all applications together"
        |run| sum_over_apps(run, attempts);
    "phase_throughput_max" BytesPerSecond Higher "of the fastest I/O phase, from the turn on"
        |run| run.apps.iter().flat_map(phase_throughputs).reduce(f64::max);
    "bandwidth" BytesPerSecond Higher "bytes of all applications by the makespan"
        |run| ratio(run.apps.iter().map(|app| app.bytes).sum::<u64>() as f64, run.makespan.as_secs_f64());
    "server_finish_spread" Ratio Lower
        "when an application's last server was done by when its first was, from its start, mean over the applications"
        |run| over_apps(run, server_finish_spread);
    "call_time_mean" Seconds Lower "from call to completion, mean over all calls"
        |run| average(run.apps.iter().map(|app| (app.call_time, app.calls)));
    "call_time_max" Seconds Lower "from call to completion, the longest"
        |run| run.apps.iter().filter_map(call_time_max).reduce(f64::max);
    "call_time_p50" Seconds Lower "half of all calls take at most so long; at most 0.4 % too high"
        |run| call_quantile(&run.apps, 0.5);
    "call_time_p99" Seconds Lower "99 % of all calls take at most so long; at most 0.4 % too high"
        |run| call_quantile(&run.apps, 0.99);
    "call_time_p999" Seconds Lower "99.9 % of all calls take at most so long; at most 0.4 % too high"
        |run| call_quantile(&run.apps, 0.999);
    "step_time_mean" Seconds Lower "from barrier to barrier around one call, mean over all steps"
        |run| average(run.apps.iter().map(|app| (app.step_time, app.steps)));
    "request_bytes" Bytes Neither "size of requests that arrive at the servers, mean"
        |run| servers(run).and_then(request_bytes);
    "dispatch_bytes" Bytes Higher "size of dispatches of the servers, mean" |run| servers(run).and_then(dispatch_bytes);
    "offset_distance" Bytes Lower "from the end of a server's dispatch to the start of the next of the same file, mean"
        |run| servers(run).and_then(offset_distance);
    "waiting_mean" Seconds Lower "from arrival at a server to dispatch, mean" |run| servers(run).and_then(waiting);
    "device_busy" Ratio Neither "share of the makespan that the servers' devices were serving, mean" device_busy;
    "seeks" Count Lower "times that a device had to reposition within the makespan, all servers together"
        |run| over_servers(run, |server| server.repositions);
    "fairness" Ratio Higher "Jain's index of the applications' bytes by completion: 1 is equal, 1/n the worst" fairness;
    "slowdown_mean" Ratio Lower "from submission to end by the time alone, mean over the applications"
        |run| over_apps(run, slowdown);
    "slowdown_max" Ratio Lower "the same of the application that is slowed down most"
        |run| run.apps.iter().filter_map(slowdown).reduce(f64::max);
    "interference_mean" Ratio Lower "from start to end by the time alone, mean over the applications"
        |run| over_apps(run, interference);
    "phase_stddev_percent" Percent Lower
        "standard deviation of an application's I/O phases in percent of their mean, mean over the applications"
        |run| over_apps(run, phase_stddev_percent);
    "transfer_stddev_percent" Percent Lower "the same without what it waits before them for turns and quiet"
        |run| over_apps(run, transfer_stddev_percent);
    "turns_lost" Count Lower "turns lost to the end of a lease" |run| sum_over_apps(run, |app| Some(app.turns.lost as f64));
    "turns_overdue" Count Lower "turns beside others, after waiting for too long"
        |run| sum_over_apps(run, |app| Some(app.turns.overdue as f64));
    "network_lost" Count Lower "segments of at most 1448 bytes lost for want of buffer, and sent again"
        |run| Some(run.network.lost as f64);
    "network_timeouts" Count Lower "times that a sender noticed lost segments only by a time-out"
        |run| Some(run.network.timeouts as f64);
};

/// Of one application.
pub static APP: &[Metric<AppResult>] = metrics! {
    "completion" Seconds Lower "from its start to its end" completion;
    "turnaround" Seconds Lower "from its submission to its end" turnaround;
    "queued" Seconds Lower "from its submission to its start" |app| Some(app.start.since(app.submitted).as_secs_f64());
    "io_time" Seconds Lower "its I/O phases together, with what it waits before them for turns and quiet" io_time;
    "io_core_hours" CoreHours Lower "the same by its processes, each on a core" io_core_hours;
    "turn_wait" Seconds Lower "its waits for turns together" turn_wait;
    "backoff_time" Seconds Lower "its probing and backing off together" backoff_time;
    "probes" Count Lower "probes that it wrote" probes;
    "attempts" Count Lower "its attempts to find the storage quiet" attempts;
    "phase_throughput_max" BytesPerSecond Higher "of its fastest I/O phase, from the turn on"
        |app| phase_throughputs(app).into_iter().reduce(f64::max);
    "throughput" BytesPerSecond Higher "its bytes by its I/O time"
        |app| ratio(app.bytes as f64, io_time(app)?);
    "server_finish_spread" Ratio Lower "when its last server was done by when its first was, from its start"
        server_finish_spread;
    "call_time_mean" Seconds Lower "from call to completion, mean" |app| average([(app.call_time, app.calls)]);
    "call_time_max" Seconds Lower "from call to completion, the longest" call_time_max;
    "call_time_p50" Seconds Lower "half of its calls take at most so long; at most 0.4 % too high"
        |app| call_quantile(std::slice::from_ref(app), 0.5);
    "call_time_p99" Seconds Lower "99 % of its calls take at most so long; at most 0.4 % too high"
        |app| call_quantile(std::slice::from_ref(app), 0.99);
    "call_time_p999" Seconds Lower "99.9 % of its calls take at most so long; at most 0.4 % too high"
        |app| call_quantile(std::slice::from_ref(app), 0.999);
    "step_time_mean" Seconds Lower "from barrier to barrier around one call, mean"
        |app| average([(app.step_time, app.steps)]);
    "slowdown" Ratio Lower "from submission to end by the time alone" slowdown;
    "interference" Ratio Lower "from start to end by the time alone" interference;
    "phase_stddev_percent" Percent Lower "standard deviation of its I/O phases in percent of their mean"
        phase_stddev_percent;
    "transfer_stddev_percent" Percent Lower "the same without what it waits before them for turns and quiet"
        transfer_stddev_percent;
};

/// Of a group of applications, or of one application, where there are groups.
pub static CLASS: &[Metric<ClassResult>] = metrics! {
    "bytes" Bytes Neither "bytes of its calls" |class| Some(class.bytes as f64);
    "bandwidth" BytesPerSecond Higher "its bytes by the time from its first application's start to its last one's end"
        |class| ratio(class.bytes as f64, class.time.as_secs_f64());
    "share" Ratio Neither
        "its part of all bytes while each group, and each application that is in none, had begun and none had ended"
        |class| ratio(class.beside_bytes as f64, class.beside_bytes_all as f64);
};

/// Of the gates of one layer.
pub static LAYER: &[Metric<LayerResult>] = metrics! {
    "requests" Count Neither "requests that arrived" |layer| Some(layer.requests as f64);
    "dispatches" Count Lower "dispatches that left" |layer| Some(layer.dispatches as f64);
    "request_bytes" Bytes Neither "size of requests, mean" request_bytes;
    "dispatch_bytes" Bytes Higher "size of dispatches, mean" dispatch_bytes;
    "offset_distance" Bytes Lower "from the end of a dispatch to the start of the next of the same file, mean"
        offset_distance;
    "waiting_mean" Seconds Lower "from arrival to dispatch, mean" waiting;
    "waits" Count Neither "deliberate waits" |layer| Some(layer.waits.iter().map(|wait| wait.1).sum::<u64>() as f64);
    "wait_time" Seconds Neither "deliberate waits, all gates together"
        |layer| Some(layer.waits.iter().map(|wait| wait.2.as_secs_f64()).sum());
    "held_back" Count Lower "requests that found the gate full and came in later" |layer| Some(layer.held_back as f64);
    "skewed" Count Lower "requests whose issue time was not believed" |layer| Some(layer.skewed as f64);
    "list_bytes" Bytes Higher "size of lists of dispatches, mean; only forwarders with `batch` have them" list_bytes;
    "choices" Count Neither "changes of the scheduler, where it is chosen" |layer| layer.changes.map(|changes| changes as f64);
};

fn completion(app: &AppResult) -> Option<f64> {
    (!app.lost).then(|| app.end.since(app.start).as_secs_f64())
}

fn turnaround(app: &AppResult) -> Option<f64> {
    (!app.lost).then(|| app.end.since(app.submitted).as_secs_f64())
}

fn phases(app: &AppResult) -> Vec<f64> {
    app.phases.iter().map(|phase| phase.end.since(phase.asked).as_secs_f64()).collect()
}

fn transfers(app: &AppResult) -> Vec<f64> {
    app.phases.iter().map(|phase| phase.end.since(phase.start).as_secs_f64()).collect()
}

fn phase_throughputs(app: &AppResult) -> Vec<f64> {
    let each = app.phases.iter().zip(transfers(app));
    each.filter_map(|(phase, seconds)| ratio(phase.bytes as f64, seconds)).collect()
}

fn io_time(app: &AppResult) -> Option<f64> {
    (!app.lost && !app.phases.is_empty()).then(|| phases(app).iter().sum())
}

fn io_core_hours(app: &AppResult) -> Option<f64> {
    Some(io_time(app)? * f64::from(app.processes) / 3600.0)
}

fn turn_wait(app: &AppResult) -> Option<f64> {
    Some(app.turns.waited.as_secs_f64())
}

fn backoff_time(app: &AppResult) -> Option<f64> {
    Some(app.turns.backoff.as_secs_f64())
}

fn probes(app: &AppResult) -> Option<f64> {
    Some(app.turns.probes as f64)
}

fn attempts(app: &AppResult) -> Option<f64> {
    Some(app.turns.attempts.len() as f64)
}

fn phase_stddev_percent(app: &AppResult) -> Option<f64> {
    stddev_percent(&phases(app))
}

fn transfer_stddev_percent(app: &AppResult) -> Option<f64> {
    stddev_percent(&transfers(app))
}

fn stddev_percent(times: &[f64]) -> Option<f64> {
    ratio(100.0 * stddev(times)?, mean(times)?)
}

fn server_finish_spread(app: &AppResult) -> Option<f64> {
    let finishes = || app.server_finish.iter().flatten().map(|finish| finish.since(app.start).as_secs_f64());
    ratio(finishes().reduce(f64::max)?, finishes().reduce(f64::min)?)
}

fn call_time_max(app: &AppResult) -> Option<f64> {
    (app.calls > 0).then(|| app.call_time_max.as_secs_f64())
}

/// How long at least this fraction of all calls of these applications takes at most.
fn call_quantile(apps: &[AppResult], fraction: f64) -> Option<f64> {
    let (first, others) = apps.split_first()?;
    let mut all = Cow::Borrowed(&first.call_times);
    others.iter().for_each(|app| all.to_mut().add(&app.call_times));
    Some(Span::from_nanos(all.quantile(fraction)?).as_secs_f64())
}

fn slowdown(app: &AppResult) -> Option<f64> {
    ratio(turnaround(app)?, app.alone?.as_secs_f64())
}

fn interference(app: &AppResult) -> Option<f64> {
    ratio(completion(app)?, app.alone?.as_secs_f64())
}

fn fairness(run: &RunResult) -> Option<f64> {
    let rates = || run.apps.iter().filter_map(|app| ratio(app.bytes as f64, completion(app)?));
    let squares: f64 = rates().map(|rate| rate * rate).sum();
    ratio(rates().sum::<f64>().powi(2), rates().count() as f64 * squares)
}

fn device_busy(run: &RunResult) -> Option<f64> {
    let busy: f64 = run.servers.iter().map(|server| server.busy.as_secs_f64()).sum();
    ratio(busy, run.servers.len() as f64 * run.makespan.as_secs_f64())
}

fn servers(run: &RunResult) -> Option<&LayerResult> {
    run.layers.iter().find(|layer| layer.name == SERVERS)
}

fn request_bytes(layer: &LayerResult) -> Option<f64> {
    ratio(layer.bytes as f64, layer.requests as f64)
}

fn list_bytes(layer: &LayerResult) -> Option<f64> {
    ratio(layer.list_bytes as f64, layer.lists as f64)
}

fn dispatch_bytes(layer: &LayerResult) -> Option<f64> {
    ratio(layer.dispatched as f64, layer.dispatches as f64)
}

fn offset_distance(layer: &LayerResult) -> Option<f64> {
    layer.offset_distance_mean
}

fn waiting(layer: &LayerResult) -> Option<f64> {
    (layer.requests > 0).then(|| layer.waiting_mean.as_secs_f64())
}

fn over_apps(run: &RunResult, of: fn(&AppResult) -> Option<f64>) -> Option<f64> {
    mean(&run.apps.iter().filter_map(of).collect::<Vec<_>>())
}

fn sum_over_apps(run: &RunResult, of: fn(&AppResult) -> Option<f64>) -> Option<f64> {
    run.apps.iter().filter_map(of).reduce(|sum, value| sum + value)
}

fn over_servers(run: &RunResult, of: fn(&ServerResult) -> u64) -> Option<f64> {
    (!run.servers.is_empty()).then(|| run.servers.iter().map(of).sum::<u64>() as f64)
}

/// The sum of times by the sum of counts.
fn average(of: impl IntoIterator<Item = (Span, u64)>) -> Option<f64> {
    let (time, count) = of.into_iter().fold((0.0, 0), |sum, of| (sum.0 + of.0.as_secs_f64(), sum.1 + of.1));
    ratio(time, count as f64)
}

fn ratio(of: f64, by: f64) -> Option<f64> {
    (by > 0.0).then(|| of / by)
}

#[cfg(test)]
mod tests {
    use iogate_core::{Time, WaitReason};

    use super::*;
    use crate::result::{CallTimes, NetworkResult, Phase, TurnsResult};

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    fn calls(milliseconds: &[u64]) -> CallTimes {
        let mut times = CallTimes::default();
        milliseconds.iter().for_each(|ms| times.record(Span::from_millis(*ms).as_nanos()));
        times
    }

    /// Submitted a second before it starts; the given I/O phases; servers done at the given times.
    fn app(start: u64, end: u64, phases: &[(u64, u64)], finish: &[Option<u64>]) -> AppResult {
        AppResult {
            name: "app".into(),
            id: 1,
            submitted: at(start - 1),
            start: at(start),
            end: at(end),
            lost: false,
            processes: 4,
            calls: 4,
            bytes: 1000,
            call_time: Span::from_secs(2),
            call_time_max: Span::from_secs(1),
            call_times: calls(&[100, 200, 700, 1000]),
            step_time: Span::ZERO,
            steps: 0,
            phases: (phases.iter())
                .map(|(start, end)| Phase { asked: at(*start), start: at(*start), end: at(*end), bytes: 500 })
                .collect(),
            server_finish: finish.iter().map(|finish| finish.map(at)).collect(),
            turns: TurnsResult::default(),
            alone: None,
        }
    }

    fn layer(name: &str) -> LayerResult {
        LayerResult {
            name: name.into(),
            scheduler: "fifo".into(),
            requests: 10,
            bytes: 1000,
            dispatches: 4,
            dispatched: 1000,
            offset_distance_mean: Some(7.0),
            waiting_mean: Span::from_millis(3),
            waits: vec![
                (WaitReason::Window, 2, Span::from_secs(1)),
                (WaitReason::Shift, 3, Span::from_secs(4)),
            ],
            held_back: 0,
            lists: 0,
            list_bytes: 0,
            skewed: 0,
            first_gate: Box::default(),
            changes: None,
            chosen: Vec::new(),
        }
    }

    /// Two applications on two servers: from 1 to 11 s, and from 2 to 6 s.
    fn run() -> RunResult {
        let server = |busy, repositions| ServerResult {
            busy: Span::from_secs(busy),
            repositions,
            requests: 5,
            dispatches: 2,
            bytes: 500,
            finish: at(11),
        };
        let mut slow = app(1, 11, &[(2, 4), (5, 11)], &[Some(5), Some(9), None]);
        slow.alone = Some(Span::from_secs(5));
        let quick = app(2, 6, &[(3, 4)], &[Some(4), Some(5)]);
        RunResult {
            seed: 1,
            makespan: Span::from_secs(10),
            apps: vec![slow, quick],
            classes: Vec::new(),
            servers: vec![server(5, 3), server(2, 4)],
            layers: vec![LayerResult { requests: 99, ..layer("clients") }, layer(SERVERS)],
            caches: Vec::new(),
            network: NetworkResult { messages: 100, bytes: 5000, lost: 6, timeouts: 2 },
            requests: 10,
            cut_off: false,
        }
    }

    fn of(run: &RunResult, name: &str) -> Option<f64> {
        find(RUN, name).unwrap().of(run)
    }

    #[test]
    fn metrics_of_a_run_worked_by_hand() {
        let run = run();
        for (name, expected) in [
            ("makespan", 10.0),
            ("completion_mean", (10.0 + 4.0) / 2.0),
            ("completion_max", 10.0),
            ("turnaround_mean", (11.0 + 5.0) / 2.0),
            ("io_time_mean", (8.0 + 1.0) / 2.0),
            ("bandwidth", 200.0),
            // (9 - 1) / (5 - 1), and (5 - 2) / (4 - 2).
            ("server_finish_spread", (2.0 + 1.5) / 2.0),
            ("call_time_mean", 0.5),
            ("call_time_max", 1.0),
            // The longest is exact, what lies before it the end of its bucket.
            ("call_time_p99", 1.0),
            ("call_time_p999", 1.0),
            ("request_bytes", 100.0),
            ("dispatch_bytes", 250.0),
            ("offset_distance", 7.0),
            ("waiting_mean", 0.003),
            ("device_busy", 0.35),
            ("seeks", 7.0),
            // Rates of 100 and 250.
            ("fairness", 350.0 * 350.0 / (2.0 * (100.0 * 100.0 + 250.0 * 250.0))),
            // Only the first was also run alone.
            ("slowdown_mean", 11.0 / 5.0),
            ("slowdown_max", 11.0 / 5.0),
            ("interference_mean", 2.0),
            // Phases of 2 and 6 s; the second application has only one phase.
            ("phase_stddev_percent", 100.0 * 8f64.sqrt() / 4.0),
            ("network_lost", 6.0),
            ("network_timeouts", 2.0),
        ] {
            let value = of(&run, name).unwrap_or_else(|| panic!("{name} has no value"));
            assert!((value - expected).abs() < 1e-9, "{name}: {value}, expected {expected}");
        }
        assert_eq!(of(&run, "step_time_mean"), None, "nobody took a step");
    }

    #[test]
    fn quantiles_of_calls_are_of_all_applications_together() {
        let mut run = run();
        let near = |name: &str, run: &RunResult, expected: f64| {
            let value = of(run, name).unwrap();
            assert!((expected..=expected * 1.004).contains(&value), "{name}: {value}, expected {expected}");
        };
        near("call_time_p50", &run, 0.2);
        run.apps[1].call_times = calls(&[2000; 90]);
        near("call_time_p50", &run, 2.0);
        let one = find(APP, "call_time_p50").unwrap();
        assert!(one.of(&run.apps[0]).unwrap() < 0.201, "the other application's calls do not count");
        run.apps[1].alone = Some(Span::from_secs(1));
        assert_eq!(of(&run, "slowdown_max"), Some(5.0), "5 s by 1 s is worse than 11 by 5");
        run.apps.iter_mut().for_each(|app| app.call_times = CallTimes::default());
        assert_eq!(of(&run, "call_time_p99"), None, "real processes say sums only");
    }

    #[test]
    fn a_lost_application_does_not_count_as_complete() {
        let mut run = run();
        run.apps[0].lost = true;
        assert_eq!(of(&run, "completion_mean"), Some(4.0));
        assert_eq!(find(APP, "completion").unwrap().of(&run.apps[0]), None);
        assert_eq!(of(&run, "fairness"), Some(1.0));
    }

    #[test]
    fn nothing_is_measured_of_nothing() {
        let mut run = run();
        (run.apps, run.servers, run.layers) = Default::default();
        run.makespan = Span::ZERO;
        let measured: Vec<&str> =
            RUN.iter().filter(|metric| metric.of(&run).is_some()).map(|metric| metric.name).collect();
        assert_eq!(measured, ["makespan", "network_lost", "network_timeouts"]);
    }

    #[test]
    fn waits_of_a_layer_are_summed_over_their_reasons() {
        let layer = layer(SERVERS);
        let of = |name| find(LAYER, name).unwrap().of(&layer);
        assert_eq!([of("waits"), of("wait_time")], [Some(5.0), Some(5.0)]);
    }

    #[test]
    fn a_share_is_of_what_all_had_while_all_were_there() {
        let mut class = ClassResult {
            name: "staff".into(),
            group: None,
            is_group: true,
            bytes: 1000,
            time: Span::from_secs(4),
            beside_bytes: 300,
            beside_bytes_all: 400,
        };
        let of =
            |class: &ClassResult| ["bandwidth", "share"].map(|name| find(CLASS, name).unwrap().of(class));
        assert_eq!(of(&class), [Some(250.0), Some(0.75)]);
        (class.beside_bytes, class.beside_bytes_all) = (0, 0);
        assert_eq!(of(&class), [Some(250.0), None], "one had ended before another one began");
    }

    #[test]
    fn no_name_is_given_twice() {
        fn names<T>(table: &[Metric<T>]) -> Vec<&str> {
            table.iter().map(|metric| metric.name).collect()
        }
        for mut names in [names(RUN), names(APP), names(CLASS), names(LAYER)] {
            let all = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), all, "{names:?}");
        }
    }
}
