//! Runs of scenarios for real, and the same in the simulator.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, anyhow};
use iogate_core::{Span, Time};
use iogate_report::Recording;
use iogate_sim::experiment::{self, PointResult};
use iogate_sim::result::RunResult;
use iogate_sim::scenario::{App, Plan, Point, Scenario};
use iogate_sim::workload::iteration_bytes;

use super::nodes::Nodes;
use super::testbed::Testbed;
use super::turns::{Coordinating, How};
use super::work::{Entrances, Work};
use super::{collect, feasibility as here, launcher};
use crate::cli::{BenchStore, BenchWay};
use crate::commands::progress::threads;
use crate::commands::signals;
use crate::failure::Failure;

/// Runs scenarios for real.
pub(crate) struct Runner {
    store: BenchStore,
    dir: Option<PathBuf>,
    through: Option<BenchWay>,
    interrupts: &'static Interrupts,
}

/// What signals that ask for the end do to runs, in whichever runner these are.
struct Interrupts {
    /// One has come.
    came: Arc<AtomicBool>,
    /// Nothing is to be cleaned up: one ends the process at once.
    idle: Arc<AtomicBool>,
}

impl Interrupts {
    /// They are taken from the first time on.
    fn taken() -> std::io::Result<&'static Interrupts> {
        static TAKEN: OnceLock<Interrupts> = OnceLock::new();
        if let Some(taken) = TAKEN.get() {
            return Ok(taken);
        }
        let taken = Interrupts { came: Arc::default(), idle: Arc::new(AtomicBool::new(true)) };
        for signal in signals::ending() {
            signal_hook::flag::register_conditional_shutdown(signal, 1, taken.idle.clone())?;
            signal_hook::flag::register(signal, taken.came.clone())?;
        }
        Ok(TAKEN.get_or_init(|| taken))
    }

    fn check(&self) -> Result<(), Failure> {
        match self.came.load(Ordering::SeqCst) {
            true => Err(Failure::failed(anyhow!("interrupted"))),
            false => Ok(()),
        }
    }
}

/// A run is underway, and leaves something behind unless it is dropped; after all of that.
struct Underway<'a>(&'a AtomicBool);

impl<'a> Underway<'a> {
    fn begin(idle: &'a AtomicBool) -> Underway<'a> {
        idle.store(false, Ordering::SeqCst);
        Underway(idle)
    }
}

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The mean of times; none of nothing.
pub(crate) fn mean(spans: &[Span]) -> Span {
    let sum = spans.iter().map(|span| span.as_nanos()).sum::<u64>();
    Span::from_nanos(sum / (spans.len() as u64).max(1))
}

/// Where a run takes place.
enum Scene {
    Mounts(Testbed),
    Network(Nodes),
}

impl Runner {
    /// Takes interrupts from now on, to leave nothing behind.
    pub(crate) fn new(
        store: BenchStore,
        dir: Option<PathBuf>,
        through: Option<BenchWay>,
    ) -> Result<Runner, Failure> {
        let interrupts = Interrupts::taken().context("signals cannot be handled")?;
        Ok(Runner { store, dir, through, interrupts })
    }

    /// Refuses a scenario that cannot be run here, and leaves out of it what one machine has not.
    pub(crate) fn fit(&self, scenario: &mut Scenario) -> Result<(), Failure> {
        here::check(scenario)?;
        here::way(scenario, self.through, self.store)?;
        here::adapt(scenario);
        Ok(())
    }

    /// The same in the simulator, with the time that requests spent between processes and gates.
    pub(crate) fn simulate(&self, point: &Point, path: Span) -> Result<PointResult<Recording>, Failure> {
        self.interrupts.check()?;
        let mut point = point.clone();
        here::add_path(&mut point.scenario, path);
        let plan = Plan { axes: Vec::new(), points: vec![point] };
        let results = experiment::run(&plan, threads(None), &|_| Some(Recording::new(Time::ZERO)), &|| ());
        let results = results.map_err(|error| Failure::failed(anyhow::Error::new(error)))?;
        Ok(results.into_iter().next().context("the simulation gave no result")?)
    }

    /// One repetition, and what a request spent outside of gates and devices.
    pub(crate) fn repetition(
        &self,
        scenario: &Scenario,
        repetition: u32,
        recording: Option<&mut Recording>,
        notes: &mut Vec<String>,
    ) -> Result<(RunResult, Span), Failure> {
        let seed = scenario.seed.saturating_add(repetition.into());
        let (mut run, path) = self.once(scenario, seed, recording, notes)?;
        if scenario.alone {
            for app in &scenario.apps {
                let single = Scenario { apps: vec![app.clone()], ..scenario.clone() };
                let (alone, _) = self.once(&single, seed, None, notes)?;
                let took = alone.apps.first().map(|result| result.end.since(result.start));
                if let Some(result) = run.apps.iter_mut().find(|result| result.id == app.id) {
                    result.alone = took;
                }
            }
        }
        Ok((run, path))
    }

    fn once(
        &self,
        scenario: &Scenario,
        seed: u64,
        recording: Option<&mut Recording>,
        notes: &mut Vec<String>,
    ) -> Result<(RunResult, Span), Failure> {
        self.interrupts.check()?;
        let _underway = Underway::begin(&self.interrupts.idle);
        let mut scene = self.scene(scenario)?;
        let folder = scene.folder().to_owned();
        // Where there is more than one server, nobody probes.
        let probed = scene.mountpoint();
        let how =
            |app: &App| How::of(&scenario.coordination, &folder, &probed, &app.name, iteration_bytes(app));
        let work = Work::plan(scenario, seed, &scene.entrances(scenario), how)?;
        let throttled =
            "Some processes want more requests in progress than there may be threads: the others wait.";
        if work.is_throttled && !notes.iter().any(|note| note == throttled) {
            notes.push(throttled.into());
        }
        scene.open(scenario, seed, &work)?;
        let _coordinating = Coordinating::begin(&scenario.coordination, &folder, &probed)?;
        let scripts = work.write_scripts(seed, scene.folder())?;
        let outcome = launcher::run(&work, &scripts, seed, scenario, &self.interrupts.came);
        if outcome.is_err() {
            self.interrupts.check()?;
        }
        let outcome = outcome?;
        let measures = match &scene {
            Scene::Mounts(testbed) => collect::of_mounts(&work, &outcome, testbed.measures()),
            Scene::Network(nodes) => nodes.measures(&outcome)?,
        };
        if let Some(recording) = recording {
            collect::show(&work, &outcome, &measures, recording);
        }
        let path = measures.path;
        Ok((collect::result(&work, seed, &outcome, measures), path))
    }

    fn scene(&self, scenario: &Scenario) -> Result<Scene, Failure> {
        let dir = self.dir.as_deref();
        Ok(match here::way(scenario, self.through, self.store)? {
            BenchWay::Mount => Scene::Mounts(Testbed::new(self.store, dir, scenario.cluster.servers.nodes)?),
            way @ (BenchWay::Network | BenchWay::Nfs) => {
                Scene::Network(Nodes::new(self.store, dir, scenario, way)?)
            }
        })
    }
}

impl Scene {
    fn folder(&self) -> &std::path::Path {
        match self {
            Scene::Mounts(testbed) => testbed.folder(),
            Scene::Network(nodes) => nodes.folder(),
        }
    }

    /// The first server's.
    fn mountpoint(&self) -> PathBuf {
        match self {
            Scene::Mounts(testbed) => testbed.mountpoint(0),
            Scene::Network(nodes) => nodes.folder().to_owned(),
        }
    }

    fn entrances(&self, scenario: &Scenario) -> Entrances {
        match self {
            Scene::Mounts(testbed) => testbed.entrances(scenario.cluster.servers.nodes),
            Scene::Network(nodes) => nodes.entrances(),
        }
    }

    /// Makes the files of a run, and starts all that serves them.
    fn open(&mut self, scenario: &Scenario, seed: u64, work: &Work) -> Result<(), Failure> {
        match self {
            Scene::Mounts(testbed) => {
                testbed.create_files(work)?;
                Ok(testbed.open(scenario, seed)?)
            }
            Scene::Network(nodes) => nodes.open(work),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio, exit};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    /// Says to this test, in a process of its own, when it is interrupted.
    const WHEN: &str = "IOGATE_TEST_INTERRUPTED";
    /// The exit status of a process that was not ended at once.
    const WENT_ON: i32 = 3;

    /// Takes interrupts, and is ready for one between runs or within one.
    fn be_interrupted(when: &str) -> ! {
        let interrupts = Interrupts::taken().unwrap();
        let underway = (when != "before").then(|| Underway::begin(&interrupts.idle));
        let underway = underway.filter(|_| when != "after");
        println!("ready");
        while interrupts.check().is_ok() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        drop(underway);
        exit(WENT_ON);
    }

    #[test]
    fn an_interrupt_ends_the_process_at_once_but_for_within_a_run() {
        if let Ok(when) = std::env::var(WHEN) {
            be_interrupted(&when);
        }
        let here = module_path!().split_once("::").unwrap().1;
        let this = format!("{here}::an_interrupt_ends_the_process_at_once_but_for_within_a_run");
        for (when, status) in [("before", 1), ("within", WENT_ON), ("after", 1)] {
            let mut process = Command::new(std::env::current_exe().unwrap())
                .args([&this, "--exact", "--nocapture"])
                .env(WHEN, when)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let out = BufReader::new(process.stdout.take().unwrap());
            assert!(out.lines().any(|line| line.unwrap().ends_with("ready")), "{when}: it is not ready");
            kill_process(Pid::from_child(&process), Signal::TERM).unwrap();
            assert_eq!(process.wait().unwrap().code(), Some(status), "{when}");
        }
    }
}
