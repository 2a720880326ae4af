//! From what processes and gates measured to the result of a run, in the terms of the simulator.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use iogate_core::auto::Choice;
use iogate_core::{AppId, Span, Time};
use iogate_engine::unix_now;
use iogate_sim::result::{
    AppResult, Attempt, Chosen, LayerResult, NetworkResult, Phase, RunResult, ServerResult,
};
use iogate_sim::world::{self, Observer, Served};

use super::launcher::Outcome;
use super::script::file_of_name;
use super::testbed::ServerMeasures;
use super::work::Work;
use super::worker::{Measured, now};
use crate::watched::Note;

/// What the gates and devices of a run measured. Times count from its start.
pub(super) struct Measures {
    /// The gates: forwarders first.
    pub(super) layers: Vec<LayerResult>,
    pub(super) servers: Vec<ServerResult>,
    /// For each server when it completed the last request of each application, by its id.
    pub(super) finish: Vec<BTreeMap<u32, Time>>,
    /// For each server its dispatches, each with the name of its file; where they are known.
    pub(super) dispatches: Vec<Vec<(Note, Option<String>)>>,
    /// What a request spent outside of gates and devices.
    pub(super) path: Span,
}

/// What was measured at gates behind mounts.
pub(super) fn of_mounts(work: &Work, outcome: &Outcome, servers: Vec<ServerMeasures>) -> Measures {
    let clock = Clock::new(outcome);
    let stats: Vec<_> = servers.iter().map(|server| &server.stats).collect();
    let held_back = stats.iter().map(|stats| stats.rejected_full).sum();
    let scheduler = servers.first().map_or_else(String::new, |server| server.scheduler.clone());
    // How long a thread waits for room is not measured.
    let held_back = (held_back, Span::ZERO);
    let mut layer = LayerResult::of(iogate_sim::metrics::SERVERS.into(), scheduler, &stats, held_back);
    if let Some(layer) = &mut layer {
        note_choices(layer, servers.iter().map(|server| server.choice.as_ref()), clock.end);
    }
    let finish = |server: &ServerMeasures| {
        let of = |app: &iogate_sim::scenario::App| Some((app.id, finish(server, AppId(app.id), &clock)?));
        work.apps.iter().filter_map(of).collect()
    };
    Measures {
        layers: layer.into_iter().collect(),
        servers: servers.iter().map(|server| server_result(server, &clock)).collect(),
        finish: servers.iter().map(finish).collect(),
        path: path_time(work, outcome, &servers),
        dispatches: servers.into_iter().map(|server| server.dispatches).collect(),
    }
}

/// What the gates of a layer have chosen, until `now`.
pub(super) fn note_choices<'a>(
    layer: &mut LayerResult,
    choices: impl Iterator<Item = Option<&'a Choice>>,
    now: Time,
) {
    for (node, choice) in (0..).zip(choices) {
        let Some(choice) = choice else { continue };
        layer.scheduler = "auto".into();
        *layer.changes.get_or_insert_default() += choice.switches;
        layer.chosen.extend(choice.changes.iter().map(|changed| {
            let ago = Span::from_millis(changed.ago_ms);
            let at = Time::ZERO
                + Span::from_nanos(now.since(Time::ZERO).as_nanos().saturating_sub(ago.as_nanos()));
            Chosen { node, at, scheduler: changed.scheduler.clone(), why: changed.why.clone() }
        }));
    }
    layer.chosen.sort_by_key(|chosen| (chosen.at, chosen.node));
}

/// The result of a run: its times count from its start.
pub(super) fn result(work: &Work, seed: u64, outcome: &Outcome, measures: Measures) -> RunResult {
    let clock = Clock::new(outcome);
    let apps: Vec<AppResult> =
        (0..work.apps.len()).map(|app| app_result(work, app, outcome, &measures.finish, &clock)).collect();
    let first = apps.iter().map(|app| app.submitted).min().unwrap_or(Time::ZERO);
    let last = apps.iter().map(|app| app.end).max().unwrap_or(first);
    RunResult {
        seed,
        makespan: last.since(first),
        requests: measures.layers.last().map_or(0, |layer| layer.requests),
        apps,
        classes: Vec::new(),
        servers: measures.servers,
        layers: measures.layers,
        caches: Vec::new(),
        network: NetworkResult::default(),
        cut_off: outcome.processes.iter().any(Option::is_none),
    }
}

/// What a request spent outside of its gate and the device, in the kernel and between processes: the mean over all requests of
/// the application in the middle. One that begins with many requests at once waits for the mount to look at each of its threads,
/// and would stand for all.
fn path_time(work: &Work, outcome: &Outcome, servers: &[ServerMeasures]) -> Span {
    // By files: which of the applications that share some is in a dispatch is not known.
    let mut groups: BTreeMap<u32, Group> = BTreeMap::new();
    for (process, measured) in work.processes.iter().zip(&outcome.processes) {
        let Some(Measured { tally, .. }) = measured else { continue };
        let group = groups.entry(work.apps[process.app].files).or_default();
        group.requests += tally.requests;
        group.total_ns += tally.request_time_ns;
    }
    for server in servers {
        for app in &work.apps {
            let waiting = server.stats.apps.get(AppId(app.id)).map_or(Span::ZERO, |sums| sums.waiting);
            groups.entry(app.files).or_default().inside_ns += waiting.as_nanos();
        }
        for (note, name) in &server.dispatches {
            let file = name.as_deref().and_then(file_of_name).and_then(|file| work.files.get(&file));
            let Some(file) = file else { continue };
            let service = Span::from(note.end.saturating_duration_since(note.start)).as_nanos();
            groups.entry(work.apps[file.app].files).or_default().inside_ns += note.requests * service;
        }
    }
    let mut paths: Vec<u64> = groups.values().filter_map(Group::path_ns).collect();
    paths.sort_unstable();
    Span::from_nanos(paths.get(paths.len().saturating_sub(1) / 2).copied().unwrap_or(0))
}

/// The requests of applications that share files.
#[derive(Default)]
struct Group {
    requests: u64,
    /// From start to end, as their processes see it, summed.
    total_ns: u64,
    /// Of this, in the gate and on the device.
    inside_ns: u64,
}

impl Group {
    fn path_ns(&self) -> Option<u64> {
        self.total_ns.saturating_sub(self.inside_ns).checked_div(self.requests)
    }
}

/// Times of the run from times of the machine's clocks.
pub(super) struct Clock {
    start: u64,
    pub(super) end: Time,
    /// The start again, on other clocks.
    instant: Instant,
    unix: u64,
}

impl Clock {
    pub(super) fn new(outcome: &Outcome) -> Clock {
        let (now, instant) = (now(), Instant::now());
        let since = now.saturating_sub(outcome.start);
        Clock {
            start: outcome.start,
            end: Time::from_nanos(since),
            instant: instant.checked_sub(Duration::from_nanos(since)).unwrap_or(instant),
            unix: unix_now().saturating_sub(since),
        }
    }

    /// From nanoseconds since the Unix epoch.
    pub(super) fn at_unix(&self, unix: u64) -> Time {
        Time::from_nanos(unix.saturating_sub(self.unix))
    }

    fn at(&self, monotonic_ns: u64) -> Time {
        Time::from_nanos(monotonic_ns.saturating_sub(self.start))
    }

    fn at_instant(&self, instant: Instant) -> Time {
        Time::ZERO + Span::from(instant.saturating_duration_since(self.instant))
    }
}

fn app_result(
    work: &Work,
    index: usize,
    outcome: &Outcome,
    finish: &[BTreeMap<u32, Time>],
    clock: &Clock,
) -> AppResult {
    let app = &work.apps[index];
    let start = outcome.began[index].map_or(clock.end, |began| clock.at(began));
    let server_finish = finish.iter().map(|server| server.get(&app.id).copied()).collect();
    let mut result = AppResult { server_finish, ..AppResult::new(app, start) };
    let processes = work.processes.iter().zip(&outcome.processes);
    for (_, measured) in processes.filter(|(process, _)| process.app == index) {
        match measured {
            Some(measured) => add(&mut result, measured, clock),
            // The time limit ended it.
            None => result.end = clock.end,
        }
    }
    result
}

/// When a server completed the last request of an application.
fn finish(server: &ServerMeasures, app: AppId, clock: &Clock) -> Option<Time> {
    let last = server.stats.apps.get(app)?.last;
    let (shown, at) = server.clock;
    let ago = Duration::from(shown.since(last));
    Some(clock.at_instant(at.checked_sub(ago)?))
}

fn add(result: &mut AppResult, measured: &Measured, clock: &Clock) {
    let tally = &measured.tally;
    result.end = result.end.max(clock.at(measured.end));
    result.calls += tally.calls;
    result.bytes += tally.bytes;
    result.call_time += Span::from_nanos(tally.time_ns);
    result.call_time_max = result.call_time_max.max(Span::from_nanos(tally.time_max_ns));
    result.step_time += Span::from_nanos(measured.step_time_ns);
    result.steps += measured.steps;
    let taken = &measured.taken;
    let turns = &mut result.turns;
    turns.waited += Span::from_nanos(taken.waited_ns);
    turns.overdue += taken.overdue;
    turns.lost += taken.lost;
    turns.backoff += Span::from_nanos(taken.backoff_ns);
    turns.probes += taken.probes;
    turns.probe_bytes += taken.probe_bytes;
    turns.attempts.extend(taken.attempts.iter().map(|&(start, end, slowest)| Attempt {
        start: clock.at(start),
        end: clock.at(end),
        slowest,
    }));
    for (number, &(asked, start, end)) in measured.phases.iter().enumerate() {
        let found = Phase {
            asked: clock.at(asked),
            start: clock.at(start),
            end: clock.at(end),
            bytes: tally.phase_bytes.get(number).copied().unwrap_or(0),
        };
        match result.phases.get_mut(number) {
            Some(phase) => {
                phase.start = phase.start.min(found.start);
                // When the last of them was ready.
                phase.asked = phase.asked.max(found.asked).min(phase.start);
                phase.end = phase.end.max(found.end);
                phase.bytes += found.bytes;
            }
            None => result.phases.push(found),
        }
    }
}

fn server_result(server: &ServerMeasures, clock: &Clock) -> ServerResult {
    let ops = &server.stats.ops;
    let notes = || server.dispatches.iter().map(|(note, _)| note);
    ServerResult {
        busy: server.device.map_or_else(|| busy(notes()), |device| device.busy),
        repositions: server.device.map_or(0, |device| device.repositions),
        requests: ops.iter().map(|op| op.request_bytes.count()).sum(),
        dispatches: ops.iter().map(|op| op.dispatch_bytes.count()).sum(),
        bytes: notes().map(|note| note.bytes).sum(),
        finish: notes().map(|note| clock.at_instant(note.end)).max().unwrap_or(Time::ZERO),
    }
}

/// How long at least one dispatch was in service.
fn busy<'a>(notes: impl Iterator<Item = &'a Note>) -> Span {
    let mut times: Vec<(Instant, Instant)> = notes.map(|note| (note.start, note.end)).collect();
    times.sort_unstable();
    let mut busy = Duration::ZERO;
    let mut until = None;
    for (start, end) in times {
        let begin = until.map_or(start, |until| start.max(until));
        busy += end.saturating_duration_since(begin);
        until = Some(end.max(begin));
    }
    busy.into()
}

/// Shows an onlooker the run, in order of time.
pub(super) fn show(work: &Work, outcome: &Outcome, measures: &Measures, observer: &mut impl Observer) {
    enum Event {
        Served(Served),
        Phase(world::Phase),
    }
    let clock = Clock::new(outcome);
    let mut events = Vec::new();
    for (server, dispatches) in (0..).zip(&measures.dispatches) {
        for (note, name) in dispatches {
            let Some(file) = name.as_deref().and_then(file_of_name) else { continue };
            // Its first user: the store is not told whose requests are in a dispatch.
            let app = work.files.get(&file).map_or(0, |file| work.apps[file.app].id);
            let (start, end) = (clock.at_instant(note.start), clock.at_instant(note.end));
            let (op, offset, bytes, requests) = (note.op, note.offset, note.bytes, note.requests as u32);
            let app = AppId(app);
            let served = Served { server, app, file, op, offset, bytes, requests, start, end };
            events.push((end, Event::Served(served)));
        }
    }
    for (process, measured) in work.processes.iter().zip(&outcome.processes) {
        let Some(measured) = measured else { continue };
        let app = &work.apps[process.app];
        let mut phase = |io, start, end| {
            let (app, rank) = (AppId(app.id), process.rank);
            if start < end {
                events.push((end, Event::Phase(world::Phase { app, rank, io, start, end })));
            }
        };
        let mut since = outcome.began[process.app].map_or(clock.end, |began| clock.at(began));
        for &(asked, start, end) in &measured.phases {
            let (start, end) = (clock.at(start), clock.at(end));
            phase(false, since, clock.at(asked));
            phase(true, start, end);
            since = end;
        }
    }
    events.sort_by_key(|(end, _)| *end);
    for (_, event) in events {
        match event {
            Event::Served(served) => observer.served(&served),
            Event::Phase(phase) => observer.phase(&phase),
        }
    }
}
