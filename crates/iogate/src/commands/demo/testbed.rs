//! Where the demo takes place: a temporary folder, a modelled device, a mount, and the processes.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use indicatif::ProgressBar;
use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::device::Placement;
use iogate_core::stats::summary::{Names, Summary};
use iogate_core::{AppId, ClientId, FileId, GateConfig, Layout, Op, SchedulerConfig};
use iogate_engine::store::{DirectoryStore, ModelledStore, OpenMode};
use iogate_engine::{Engine, Origin, Store};
use iogate_fuse::{Control, MountError, MountOptions, application_of_word};
use iogate_report::timeline::Served;
use iogate_report::{AppResult, Run, Timeline};
use tempfile::TempDir;

use super::workload::{Application, Workload, is_intact};
use crate::attempt::Attempt;
use crate::devices;
use crate::output::without_path;
use crate::storage;
use crate::watched::{Note, WatchedStore};

/// What the gate hands to the device at once. A disk has one arm.
const DEPTH: u32 = 1;
const QUEUE_MAX: u32 = 65_536;
const GROUPS_MAX: usize = 32;

/// The scene, used for one run after the other. Dropped, it leaves nothing behind.
pub(super) struct Testbed {
    workload: Workload,
    device: String,
    folder: TempDir,
    /// Why there is no mount, if there is none.
    in_process: Option<String>,
    interrupted: Arc<AtomicBool>,
}

impl Testbed {
    pub(super) fn set_up(
        workload: Workload,
        device: &str,
        in_process: bool,
        interrupted: Arc<AtomicBool>,
    ) -> anyhow::Result<Testbed> {
        let folder = tempfile::Builder::new()
            .prefix("iogate-demo-")
            .tempdir()
            .map_err(without_path)
            .context(Attempt::make("a temporary folder"))?;
        let (source, mountpoint) = (folder.path().join("source"), folder.path().join("mount"));
        let make = || {
            std::fs::create_dir(&source)?;
            std::fs::create_dir(&mountpoint)?;
            workload.create_files(&source)
        };
        make().with_context(|| format!("the files of the demo in {}", folder.path().display()))?;
        let in_process = in_process.then(|| "as asked for".to_string());
        Ok(Testbed { workload, device: device.into(), folder, in_process, interrupted })
    }

    pub(super) fn workload(&self) -> &Workload {
        &self.workload
    }

    /// How it was done, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let bytes = |n: u64| iogate_report::units::bytes(n as f64);
        let apps = self.workload.applications.iter().map(|app| match app.processes {
            1 => format!("{} (1 process reads {} in order)", app.name, bytes(app.bytes)),
            n => format!(
                "{} ({n} processes read {} together, each every {n}th piece)",
                app.name,
                bytes(app.bytes)
            ),
        });
        let piece = bytes(self.workload.applications[0].piece);
        let how = match &self.in_process {
            None => "Real processes read real files through a mount".to_string(),
            Some(why) => format!(
                "There is no mount ({why}): threads read real files through the engine in one process"
            ),
        };
        vec![
            format!(
                "Three applications start at the same moment: {}. Each read is {piece}.",
                apps.collect::<Vec<_>>().join(", ")
            ),
            format!("{how}; the disk's time is modelled (device {}).", self.device),
        ]
    }

    /// Lets the applications run once; without a scheduler one is chosen.
    pub(super) fn run(
        &mut self,
        label: &str,
        scheduler: Option<&SchedulerConfig>,
        progress: &ProgressBar,
    ) -> anyhow::Result<Run> {
        let source = self.folder.path().join("source");
        let directory = DirectoryStore::new(&source).context("the demo's files")?;
        let model = iogate_sim::profile::device(&self.device, &devices::open)?;
        let placement = Placement::new(ModelledStore::EXTENT_BYTES);
        let modelled = ModelledStore::new(Arc::new(directory), model, placement);
        let modelled = Arc::new(modelled.context("the modelled device")?);
        let (store, notes) = WatchedStore::new(modelled.clone(), &source).noting();
        let store = Arc::new(store);
        let known = storage::modelled(&self.device, ModelledStore::EXTENT_BYTES)?;
        let gate = GateConfig {
            scheduler: scheduler.cloned().unwrap_or_else(|| known.first(DEPTH)),
            queue_max: QUEUE_MAX,
            depth: DEPTH,
            layout: Layout::SINGLE,
        };
        let engine = Engine::new(&gate, store.clone()).context("the gate cannot be started")?;
        if scheduler.is_none() {
            engine.know(known);
            engine.choose(REQUESTS_PER_S).context("the thread that chooses cannot be started")?;
        }
        let bytes_read = || engine.with_gate(|gate, _| gate.stats().op(Op::Read).request_bytes.sum());
        let tick = || progress.set_position(bytes_read());

        let times = self.carry_out(&engine, &store, &source, &tick)?;
        let choice = engine.choice();
        engine.shutdown();
        let (stats, scheduler) = engine.with_gate(|gate, _| (gate.stats().clone(), gate.scheduler().clone()));
        let names = AppNamesOf(&self.workload.applications);
        let apps = self.workload.applications.iter().zip(&times.ends).map(|(app, end)| {
            let waiting = stats.apps.get(application_of_word(app.name));
            AppResult {
                name: app.name.into(),
                bytes: app.bytes,
                completion_ns: nanos(end.duration_since(times.start)),
                waiting_mean_ns: waiting.map_or(0, |sums| sums.waiting.as_nanos() / sums.requests.max(1)),
            }
        });
        let apps: Vec<AppResult> = apps.collect();
        let device = modelled.device_stats();
        let notes = std::mem::take(&mut *notes.lock().unwrap_or_else(PoisonError::into_inner));
        let summary = Summary::new(&stats, &scheduler, DEPTH, &NamedFiles(&names, &store), GROUPS_MAX);
        Ok(Run {
            label: label.into(),
            device: self.device.clone(),
            gate: Summary { choice, ..summary },
            makespan_ns: apps.iter().map(|app| app.completion_ns).max().unwrap_or(0),
            device_busy_ns: device.busy.as_nanos(),
            repositions: device.repositions,
            held_back: 0,
            held_back_ns: 0,
            apps,
            timeline: timeline(&notes, times.start, &store, &self.workload.applications),
        })
    }

    /// Through a mount, or where that is not to be had, in this process.
    fn carry_out(
        &mut self,
        engine: &Arc<Engine>,
        store: &Arc<WatchedStore>,
        source: &Path,
        tick: &dyn Fn(),
    ) -> anyhow::Result<Times> {
        if self.in_process.is_none() {
            let mountpoint = self.folder.path().join("mount");
            let (store, options) = (store.clone(), MountOptions::default());
            match iogate_fuse::mount(
                source,
                &mountpoint,
                engine.clone(),
                store,
                &options,
                Arc::new(NoControl),
            ) {
                Ok(mounted) => {
                    let times = self.processes(&mountpoint, tick);
                    // A process that has just ended may still hold a file for a moment.
                    if mounted.unmount().is_err() {
                        mounted.detach().context("unmounting")?;
                    }
                    mounted.wait();
                    return times;
                }
                Err(
                    error @ (MountError::NoDevice { .. }
                    | MountError::NoPermission { .. }
                    | MountError::KernelTooOld { .. }),
                ) => self.in_process = Some(error.to_string()),
                Err(error) => return Err(error.into()),
            }
        }
        self.threads(engine, store, tick)
    }

    fn processes(&self, mountpoint: &Path, tick: &dyn Fn()) -> anyhow::Result<Times> {
        let program = std::env::current_exe().context("this program cannot be found")?;
        let mut crowd = Crowd(Vec::new());
        for (index, app) in self.workload.applications.iter().enumerate() {
            for first in 0..app.processes {
                let child = start_process(&program, &mountpoint.join(app.name), app, first)?;
                crowd.0.push((index, child));
            }
        }
        // Each says when it has opened its file.
        for (_, child) in &mut crowd.0 {
            let out = child.stdout.as_mut().context("a process without output")?;
            out.read_exact(&mut [0]).map_err(|_| anyhow!("a process of the demo ended before its start"))?;
        }
        let start = Instant::now();
        for (_, child) in &mut crowd.0 {
            child
                .stdin
                .as_mut()
                .context("a process without input")?
                .write_all(b"g")
                .context("starting a process")?;
        }
        let mut ends = vec![start; self.workload.applications.len()];
        while !crowd.0.is_empty() {
            ensure!(!self.interrupted.load(Ordering::SeqCst), "interrupted");
            let mut failed = None;
            crowd.0.retain_mut(|(index, child)| match child.try_wait() {
                Ok(None) => true,
                Ok(Some(status)) if status.success() => {
                    ends[*index] = Instant::now();
                    false
                }
                other => {
                    failed = Some(other);
                    true
                }
            });
            match failed {
                Some(Ok(status)) => bail!("a process of the demo failed ({status:?})"),
                Some(Err(error)) => return Err(error).context("waiting for a process of the demo"),
                None => {}
            }
            tick();
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(Times { start, ends })
    }

    fn threads(
        &self,
        engine: &Arc<Engine>,
        store: &Arc<WatchedStore>,
        tick: &dyn Fn(),
    ) -> anyhow::Result<Times> {
        let ends = Mutex::new(vec![None; self.workload.applications.len()]);
        let start = Instant::now();
        let mut client = 0;
        std::thread::scope(|scope| -> anyhow::Result<()> {
            let mut readers = Vec::new();
            for (index, app) in self.workload.applications.iter().enumerate() {
                let file = store.open(Path::new(app.name), OpenMode::default())?;
                for first in 0..app.processes {
                    client += 1;
                    let origin = Origin {
                        app: application_of_word(app.name),
                        client: ClientId(client),
                        issued: None,
                        ..Origin::default()
                    };
                    let (file, ends) = (file.clone(), &ends);
                    readers.push(scope.spawn(move || -> anyhow::Result<()> {
                        let mut buffer = vec![0; app.piece as usize];
                        for offset in
                            (first * app.piece..app.bytes).step_by((app.piece * app.processes) as usize)
                        {
                            ensure!(!self.interrupted.load(Ordering::SeqCst), "interrupted");
                            let read = engine.read_at(&file, origin, offset, &mut buffer)?;
                            ensure!(is_intact(offset, &buffer[..read]), "wrong data at offset {offset}");
                        }
                        ends.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(Instant::now());
                        Ok(())
                    }));
                }
            }
            while readers.iter().any(|reader| !reader.is_finished()) {
                tick();
                std::thread::sleep(Duration::from_millis(2));
            }
            readers
                .into_iter()
                .try_for_each(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?)
        })?;
        let ends = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Times { start, ends: ends.into_iter().map(|end| end.unwrap_or(start)).collect() })
    }
}

fn start_process(program: &PathBuf, file: &Path, app: &Application, first: u64) -> anyhow::Result<Child> {
    let number = |n: u64| n.to_string();
    Command::new(program)
        .arg("demo-reader")
        .arg(file)
        .args(["--first", &number(first * app.piece), "--stride", &number(app.processes * app.piece)])
        .args(["--piece", &number(app.piece), "--end", &number(app.bytes)])
        .env("IOGATE_APP", app.name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("a process of the demo cannot be started")
}

/// Processes; dropped, they are ended.
struct Crowd(Vec<(usize, Child)>);

impl Drop for Crowd {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // It may have ended by itself just now.
            let _: io::Result<()> = child.kill();
            let _ = child.wait();
        }
    }
}

struct Times {
    start: Instant,
    /// When each application was done.
    ends: Vec<Instant>,
}

/// The demo's mount is its own; nobody is to change it.
struct NoControl;

impl Control for NoControl {
    fn status(&self) -> Vec<u8> {
        b"{}".to_vec()
    }

    fn set(&self, _text: &str) -> Result<(), String> {
        Err("the mount of a demo cannot be changed".into())
    }
}

struct AppNamesOf<'a>(&'a [Application]);

impl AppNamesOf<'_> {
    fn get(&self, id: AppId) -> Option<&'static str> {
        self.0.iter().map(|app| app.name).find(|name| application_of_word(name) == id)
    }
}

struct NamedFiles<'a>(&'a AppNamesOf<'a>, &'a WatchedStore);

impl Names for NamedFiles<'_> {
    fn app(&self, app: AppId) -> String {
        self.0.get(app).map_or_else(|| app.to_string(), String::from)
    }

    fn file(&self, file: FileId) -> String {
        self.1.name(file).unwrap_or_else(|| file.to_string())
    }
}

/// Who was served when. Each application has a file of its own, which tells whose a dispatch was.
fn timeline(notes: &[Note], start: Instant, store: &WatchedStore, apps: &[Application]) -> Timeline {
    let mut timeline = Timeline::default();
    // In the order in which they are listed everywhere else.
    let lanes: HashMap<&str, usize> = apps
        .iter()
        .map(|app| (app.name, timeline.lane(application_of_word(app.name).0, || app.name.into())))
        .collect();
    let mut notes = notes.to_vec();
    notes.sort_by_key(|note| note.start);
    for note in notes {
        let file = store.name(note.file).unwrap_or_default();
        if let Some(&lane) = lanes.get(file.as_str()) {
            timeline.record(Served {
                start_ns: nanos(note.start.saturating_duration_since(start)),
                end_ns: nanos(note.end.saturating_duration_since(start)),
                lane,
                file,
                op: note.op.letter(),
                offset: note.offset,
                bytes: note.bytes,
                requests: note.requests,
            });
        }
    }
    timeline
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
