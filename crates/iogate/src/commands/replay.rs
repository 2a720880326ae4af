//! `iogate replay`: a trace through a scheduler in virtual time.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, Write};
use std::path::Path;

use anyhow::{Context, anyhow};
use iogate_core::device::{Device, Placement};
use iogate_core::stats::summary::{Names, Summary};
use iogate_core::{FileId, GateConfig, Layout, SchedulerConfig, SchedulerKind, Time};
use iogate_report::timeline::Served;
use iogate_report::{AppResult, Report, Run, Timeline, comparison};
use iogate_sim::replay::pricing;
use iogate_sim::trace::Files;
use iogate_sim::{Backend, Dispatched, Replay, ReplayError, TraceError, TraceReader, log};

use crate::attempt::Attempt;
use crate::cli::ReplayArgs;
use crate::commands::sim::{both_to_standard_output, is_standard_output, warn};
use crate::devices;
use crate::failure::Failure;
use crate::output::{OutputFile, check_inputs_stay, print, same_file};
use crate::storage;

/// Files in the summary.
const GROUPS_MAX: usize = 32;

pub(crate) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let pinned = args.scheduler.pinned()?;
    let spec = &args.device;
    let device = || devices::device(spec);
    check_outputs(args)?;
    device()?;
    let name = match args.trace == Path::new("-") {
        true => "standard input".into(),
        false => args.trace.display().to_string(),
    };
    let refused = |error: TraceError| {
        let sorts = matches!(error, TraceError::Order { .. });
        let failure = not_a_trace(anyhow::Error::new(error).context(name.clone()));
        if sorts { failure.hint("`iogate replay --sort` sorts it first") } else { failure }
    };

    let mut input = open(&args.trace)?;
    let targets = match args.targets {
        Some(targets) => targets,
        None => {
            let (counted, again) = count_targets(input, &args.trace, &refused)?;
            input = again;
            counted
        }
    };
    let mut trace = TraceReader::new(input).map_err(refused)?;
    trace.set_targets(targets);
    if args.sort {
        trace.sort().map_err(refused)?;
    }
    let layout = Layout { first_target: 0, stripe_bytes: args.stripe.0, targets };
    let backend = if spec.starts_with("unit:") {
        Backend::overlapping(device()?)
    } else {
        let devices: Result<Vec<Box<dyn Device>>, Failure> =
            (0..targets).map(|number| devices::numbered(spec, number.into())).collect();
        let mut backend = Backend::striped(devices?, layout);
        backend.watch_extents(device()?);
        backend
    };
    // With several targets nothing can be chosen: what is not named is what it was before.
    let auto = pinned.is_none() && (targets == 1 || args.scheduler.scheduler.is_some());
    let scheduler = match pinned {
        Some(pinned) => pinned,
        None if auto && targets > 1 => {
            let error = anyhow!("--scheduler auto with {targets} targets: it knows what one device charges");
            return Err(Failure::usage(error).hint("name a scheduler, or set --targets 1"));
        }
        None if auto => {
            storage::modelled(spec, Placement::EXTENT_BYTES).map_err(devices::not_a_device)?.first(args.depth)
        }
        None => SchedulerConfig::new(SchedulerKind::Aioli),
    };
    let gate = GateConfig { scheduler, queue_max: args.queue, depth: args.depth, layout };

    let failed = |error: ReplayError| match error {
        ReplayError::Trace(error) => refused(error),
        ReplayError::Config(_) => Failure::usage(error),
        ReplayError::TooLong { .. } | ReplayError::TooManyPieces { .. } => {
            Failure::usage(anyhow::Error::new(error).context(name.clone()))
        }
        _ => Failure::failed(anyhow::Error::new(error).context(name.clone())),
    };
    let mut log_file = args.log.as_deref().map(OutputFile::create).transpose()?;
    // Begun before the work, so that a place that cannot be written costs no time.
    let html = args.html.as_deref();
    let is_page_shown = is_standard_output(html);
    let html_file = html.filter(|_| !is_page_shown).map(OutputFile::create).transpose()?;
    let write_error = || Attempt::write(args.log.as_deref().unwrap_or(Path::new("")).display());
    if let Some(file) = &mut log_file {
        writeln!(file, "{}", log::HEADER).with_context(write_error)?;
    }
    let mut replay = Replay::new(trace, &gate, backend).map_err(failed)?;
    if auto {
        replay
            .choose(pricing(devices::maker(spec).map_err(devices::not_a_device)?, spec.starts_with("unit:")));
    }
    let mut timeline = Timeline::default();
    let mut origin = None;
    while let Some(dispatched) = replay.next_dispatch().map_err(failed)? {
        let name = replay.trace().files().name(dispatched.file);
        if let Some(file) = &mut log_file {
            log::write_line(file, &dispatched, &name).with_context(write_error)?;
        }
        let origin = *origin.get_or_insert(replay.first_arrival());
        record(&mut timeline, &dispatched, origin, &name);
    }
    warn(&replay.warnings());
    let report = report(args, &replay, timeline);
    if let Some(file) = html_file {
        file.finish_with(&iogate_report::html::page(&report))?;
    }
    if let Some(file) = log_file {
        file.finish()?;
    }
    print(&match args.json {
        _ if is_page_shown => iogate_report::html::page(&report),
        true => report.json() + "\n",
        false => comparison::run(&report.runs[0]),
    })
}

/// Refuses outputs that would replace the trace or each other.
fn check_outputs(args: &ReplayArgs) -> Result<(), Failure> {
    if args.json && is_standard_output(args.html.as_deref()) {
        return Err(both_to_standard_output("--json", "--html"));
    }
    let (log, html) = (args.log.as_deref(), args.html.as_deref());
    if let (Some(log), Some(html)) = (log, html)
        && same_file(log, html)
    {
        let path = html.display();
        return Err(Failure::usage(anyhow!("--html {path} would replace the log: expected another file")));
    }
    let profile = devices::file(&args.device).map(|file| ("the profile", file));
    let inputs = [("the trace", args.trace.as_path())].into_iter().chain(profile);
    check_inputs_stay(&[("--log", log), ("--html", html)], inputs)
}

fn record(timeline: &mut Timeline, dispatched: &Dispatched, origin: Time, file: &str) {
    let lane = timeline.lane(dispatched.app.0, || Numbered(None).app(dispatched.app));
    timeline.record(Served {
        start_ns: dispatched.start.since(origin).as_nanos(),
        end_ns: dispatched.end.since(origin).as_nanos(),
        lane,
        file: file.into(),
        op: dispatched.op.letter(),
        offset: dispatched.offset,
        bytes: dispatched.bytes,
        requests: dispatched.ids.len() as u64,
    });
}

/// Applications by number, files as the trace has them.
struct Numbered<'a>(Option<&'a Files>);

impl Names for Numbered<'_> {
    fn app(&self, app: iogate_core::AppId) -> String {
        format!("application {app}")
    }

    fn file(&self, file: FileId) -> String {
        self.0.map_or_else(|| file.to_string(), |files| files.name(file).into_owned())
    }
}

fn report<R: BufRead>(args: &ReplayArgs, replay: &Replay<R>, timeline: Timeline) -> Report {
    let (gate, totals) = (replay.gate(), replay.totals());
    let names = Numbered(Some(replay.trace().files()));
    let mut by_id: Vec<_> = gate.stats().apps.iter().collect();
    by_id.sort_by_key(|(app, _)| *app);
    let apps = by_id.into_iter().map(|(app, sums)| AppResult {
        name: names.app(*app),
        bytes: sums.bytes,
        completion_ns: sums.last.since(sums.first).as_nanos(),
        waiting_mean_ns: sums.waiting.as_nanos() / sums.requests.max(1),
    });
    let choice = replay.choice();
    let label = if choice.is_some() { "auto" } else { gate.scheduler().kind().name() };
    let summary = Summary::new(gate.stats(), gate.scheduler(), args.depth, &names, GROUPS_MAX);
    let run = Run {
        label: label.into(),
        device: args.device.clone(),
        apps: apps.collect(),
        gate: Summary { choice, ..summary },
        makespan_ns: totals.makespan.as_nanos(),
        device_busy_ns: totals.device_busy.as_nanos(),
        repositions: totals.repositions,
        held_back: totals.held_back,
        held_back_ns: totals.held_back_total.as_nanos(),
        timeline,
    };
    let trace = match args.trace.file_name() {
        Some(name) if args.trace != Path::new("-") => name.to_string_lossy().into_owned(),
        _ => "standard input".into(),
    };
    Report {
        title: format!("{trace} through {} on {}", run.label, args.device),
        notes: vec![
            "A replay in virtual time: arrivals from the trace, service times from the modelled device."
                .into(),
        ],
        program: concat!("iogate ", env!("CARGO_PKG_VERSION")).into(),
        runs: vec![run],
    }
}

pub(super) type Input = Box<dyn BufRead>;

/// A trace that is not as it should be.
pub(super) fn not_a_trace(error: anyhow::Error) -> Failure {
    Failure::usage(error).hint("docs/replay.md shows how traces are written")
}

pub(super) fn open(path: &Path) -> Result<Input, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path).and_then(|file| {
        // Opening a directory succeeds, reading it does not.
        if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(file) }
    });
    match file {
        Ok(file) => Ok(Box::new(BufReader::with_capacity(1 << 18, file))),
        Err(error) => Err(Failure::usage(
            anyhow::Error::new(error).context(Attempt::read(format_args!("the trace {}", path.display()))),
        )),
    }
}

/// How many targets a trace names: a scheduler has to know before the first request. Also gives the input again
/// from its start; what can be read only once is kept in a temporary file.
fn count_targets(
    input: Input,
    path: &Path,
    refused: &dyn Fn(TraceError) -> Failure,
) -> Result<(u32, Input), Failure> {
    let mut header = Vec::new();
    let mut input = input;
    let limit = iogate_sim::trace::LINE_BYTES_MAX as u64;
    io::Read::take(&mut input, limit).read_until(b'\n', &mut header).context("the trace cannot be read")?;
    let has_targets = TraceReader::new(header.as_slice()).is_ok_and(|trace| trace.has_targets());
    let whole = io::Read::chain(io::Cursor::new(header), input);
    if !has_targets {
        return Ok((1, Box::new(whole)));
    }
    let count = |input: Input| -> Result<u32, Failure> {
        let mut trace = TraceReader::new(input).map_err(refused)?;
        let mut targets = 1;
        while let Some(row) = trace.next_row_in_any_order().map_err(refused)? {
            targets = targets.max(row.target.map_or(0, |target| target.0 + 1));
        }
        Ok(targets)
    };
    if path != Path::new("-") && path.is_file() {
        return Ok((count(Box::new(whole))?, open(path)?));
    }
    let keep = || -> io::Result<File> {
        let mut file = tempfile::tempfile()?;
        io::copy(&mut { whole }, &mut file)?;
        file.rewind()?;
        Ok(file)
    };
    let mut file = keep().context("the trace cannot be kept for a second reading")?;
    let targets = count(Box::new(BufReader::new(file.try_clone().context("a temporary file")?)))?;
    file.rewind().context("a temporary file")?;
    Ok((targets, Box::new(BufReader::new(file))))
}
