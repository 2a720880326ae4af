//! The processes of a run: started together, led from barrier to barrier, and ended with the run, however it ends.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use iogate_core::Time;
use iogate_sim::batch::{BatchScheduler, Job};
use iogate_sim::rng::Rng;
use iogate_sim::scenario::Scenario;

use super::work::Work;
use super::worker::{Measured, now, said, told};

/// How long processes may take until they are ready.
const READY_MAX: Duration = Duration::from_secs(60);
/// Processes start within so many nanoseconds, in an order drawn from the seed: the kernel would wake them in one of its own,
/// and programs that do the same by turns keep the order in which they begin.
const SCATTER_NS: u64 = 500_000;
/// The stream of random numbers for that.
const STARTS: u64 = 1 << 40;
/// How often a wait looks whether it has been interrupted.
const LOOK: Duration = Duration::from_millis(20);

/// How a run went.
pub(super) struct Outcome {
    /// When it started: nanoseconds of the monotonic clock.
    pub(super) start: u64,
    /// When each application started, on the same clock; `None` if it never did.
    pub(super) began: Vec<Option<u64>>,
    /// What each process measured; `None` if the time limit ended it.
    pub(super) processes: Vec<Option<Measured>>,
}

/// Runs all processes of `work` by their scripts, for at most as long as the scenario lets them.
pub(super) fn run(
    work: &Work,
    scripts: &[PathBuf],
    seed: u64,
    scenario: &Scenario,
    interrupted: &AtomicBool,
) -> Result<Outcome> {
    let leader = Leader::new(work);
    let mut starts = Starts::new(work, seed, scenario);
    std::thread::scope(|scope| {
        let program = std::env::current_exe().context("this program cannot be found")?;
        // Ended before the threads that listen to them are waited for.
        let mut children = Children(Vec::new());
        for (index, script) in scripts.iter().enumerate() {
            let app = &work.apps[work.processes[index].app];
            let mut child = Command::new(&program)
                .arg("bench-worker")
                .arg(script)
                .env("IOGATE_APP", app.id.to_string())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .context("a process of the bench cannot be started")?;
            let (input, output) = (child.stdin.take(), child.stdout.take());
            children.0.push(child);
            leader.lock().processes[index].input = input;
            let output = output.context("a process without output")?;
            let leader = &leader;
            scope.spawn(move || leader.listen(index, output));
        }
        let count = scripts.len();
        if !leader.wait(READY_MAX, interrupted, |state| state.ready == count)? {
            bail!("the processes were not ready after {} s", READY_MAX.as_secs());
        }
        // Time enough to tell them all.
        let start = now() + 20_000_000 + 200_000 * count as u64;
        let end = start.saturating_add(scenario.time_max.as_nanos());
        loop {
            let (next, ended) = {
                let mut state = leader.lock();
                let next = starts.go_on(&mut state, start)?.unwrap_or(u64::MAX).min(end);
                // At the same moment: who ended in between would go unseen for ever.
                (next, state.apps_running())
            };
            leader.wait(Duration::from_nanos(next.saturating_sub(now())), interrupted, |state| {
                state.apps_running() < ended || state.apps_running() == 0
            })?;
            if leader.lock().apps_running() == 0 || now() >= end {
                break;
            }
        }
        let processes = leader.lock().processes.iter_mut().map(|process| process.measured.take()).collect();
        Ok(Outcome { start, began: starts.began, processes })
    })
}

/// Which application starts when.
struct Starts {
    /// Who gives nodes to applications; `None`: each starts at its time.
    batch: Option<BatchScheduler>,
    jobs: Vec<Job>,
    /// When each is submitted, or starts: nanoseconds after the start of the run.
    submitted: Vec<u64>,
    /// Those that are not submitted yet, the next one last.
    left: Vec<usize>,
    began: Vec<Option<u64>>,
    /// Those that have given their nodes back.
    ended: Vec<bool>,
    rng: Rng,
}

impl Starts {
    fn new(work: &Work, seed: u64, scenario: &Scenario) -> Starts {
        let submitted: Vec<u64> = work.apps.iter().map(|app| app.start.as_nanos()).collect();
        let mut left: Vec<usize> = (0..work.apps.len()).collect();
        left.sort_by_key(|&app| std::cmp::Reverse((submitted[app], app)));
        let nodes = scenario.cluster.clients.nodes;
        let job = |(id, app): (u32, &iogate_sim::scenario::App)| Job {
            id,
            nodes: app.nodes,
            walltime: app.walltime,
        };
        Starts {
            batch: scenario.batch.as_ref().map(|batch| BatchScheduler::new(nodes, batch.backfill)),
            jobs: (0..).zip(&work.apps).map(job).collect(),
            submitted,
            left,
            began: vec![None; work.apps.len()],
            ended: vec![false; work.apps.len()],
            rng: Rng::new(seed, STARTS),
        }
    }

    /// Starts what may start by now; says when to look again, on the monotonic clock, if not before an application ends.
    fn go_on(&mut self, state: &mut State, start: u64) -> Result<Option<u64>> {
        let Some(batch) = &mut self.batch else {
            // Told all at once, so that they start when they should.
            for app in (0..self.jobs.len()).filter(|&app| self.began[app].is_none()).collect::<Vec<_>>() {
                self.begin(state, app, start + self.submitted[app])?;
            }
            return Ok(None);
        };
        let moment = now();
        for app in 0..self.jobs.len() {
            if self.began[app].is_some() && state.apps[app].running == 0 && !self.ended[app] {
                self.ended[app] = true;
                batch.finished(self.jobs[app].id)?;
            }
        }
        while let Some(&app) = self.left.last()
            && start + self.submitted[app] <= moment
        {
            self.left.pop();
            batch.submit(self.jobs[app])?;
        }
        let ready = batch.start_ready(Time::from_nanos(moment.saturating_sub(start)));
        for job in ready {
            self.begin(state, job.id as usize, moment.max(start))?;
        }
        Ok(self.left.last().map(|&app| start + self.submitted[app]))
    }

    fn begin(&mut self, state: &mut State, app: usize, time: u64) -> Result<()> {
        self.began[app] = Some(time);
        for process in 0..state.processes.len() {
            if state.processes[process].app == app {
                let time = time + self.rng.below(SCATTER_NS);
                state.tell(process, &[&[told::START], &time.to_le_bytes()[..]].concat())?;
            }
        }
        Ok(())
    }
}

/// Processes; dropped, they are ended.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _: io::Result<()> = child.kill();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

/// Leads the processes: a thread listens to each.
struct Leader {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    processes: Vec<Process>,
    apps: Vec<App>,
    ready: usize,
    failed: Option<anyhow::Error>,
}

struct Process {
    app: usize,
    input: Option<ChildStdin>,
    at_barrier: bool,
    measured: Option<Measured>,
}

struct App {
    name: String,
    /// The number of its process of rank 0.
    first: usize,
    running: u32,
    at_barrier: u32,
}

impl Leader {
    fn new(work: &Work) -> Leader {
        let process = |app| Process { app, input: None, at_barrier: false, measured: None };
        let processes: Vec<Process> = work.processes.iter().map(|p| process(p.app)).collect();
        let app = |(index, app): (usize, &iogate_sim::scenario::App)| App {
            name: app.name.clone(),
            first: processes.iter().position(|process| process.app == index).unwrap_or(0),
            running: app.processes,
            at_barrier: 0,
        };
        let apps = work.apps.iter().enumerate().map(app).collect();
        let state = State { processes, apps, ready: 0, failed: None };
        Leader { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something, for some time at most; whether it has come.
    fn wait(
        &self,
        most: Duration,
        interrupted: &AtomicBool,
        mut has_come: impl FnMut(&State) -> bool,
    ) -> Result<bool> {
        let end = now().saturating_add(most.as_nanos() as u64);
        let mut state = self.lock();
        loop {
            if interrupted.load(Ordering::SeqCst) {
                bail!("interrupted");
            }
            if let Some(error) = state.failed.take() {
                return Err(error);
            }
            if has_come(&state) {
                return Ok(true);
            }
            let left = Duration::from_nanos(end.saturating_sub(now()));
            if left.is_zero() {
                return Ok(false);
            }
            (state, _) =
                self.changed.wait_timeout(state, left.min(LOOK)).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// A thread: does what a process says, until it has ended.
    fn listen(&self, process: usize, mut output: ChildStdout) {
        let result = loop {
            match self.heed(process, &mut output) {
                Ok(false) => {}
                Ok(true) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = result {
            let mut state = self.lock();
            let app = &state.apps[state.processes[process].app].name;
            let error = error.context(format!("a process of {app} failed"));
            // What came first is the cause.
            state.failed.get_or_insert(error);
        }
        self.changed.notify_all();
    }

    /// Does what the next message says; whether it was the last.
    fn heed(&self, process: usize, output: &mut ChildStdout) -> Result<bool> {
        let mut kind = [0];
        output.read_exact(&mut kind).map_err(|_| anyhow!("it ended early"))?;
        let mut number = || -> Result<u32> {
            let mut number = [0; 4];
            output.read_exact(&mut number)?;
            Ok(u32::from_le_bytes(number))
        };
        match kind[0] {
            said::READY => {
                self.lock().ready += 1;
                self.changed.notify_all();
            }
            said::BARRIER => {
                let mut state = self.lock();
                let app = state.processes[process].app;
                state.processes[process].at_barrier = true;
                state.apps[app].at_barrier += 1;
                state.open_barrier(app)?;
            }
            said::SEND => {
                let rank = number()?;
                let mut state = self.lock();
                let to = state.apps[state.processes[process].app].first + rank as usize;
                state.tell(to, &[told::MESSAGE])?;
            }
            said::END => {
                let mut text = vec![0; number()? as usize];
                output.read_exact(&mut text)?;
                let mut state = self.lock();
                let app = state.processes[process].app;
                state.processes[process].measured = Some(serde_json::from_slice(&text)?);
                state.apps[app].running -= 1;
                state.open_barrier(app)?;
                return Ok(true);
            }
            other => bail!("expected a message, got byte {other}"),
        }
        Ok(false)
    }
}

impl State {
    /// Applications of which a process has not ended.
    fn apps_running(&self) -> usize {
        self.apps.iter().filter(|app| app.running > 0).count()
    }

    fn tell(&mut self, process: usize, message: &[u8]) -> Result<()> {
        let input = self.processes.get_mut(process).and_then(|process| process.input.as_mut());
        input.context("there is no such process")?.write_all(message).context("it cannot be told to go on")
    }

    /// Lets the processes of an application go on if all that run are at the barrier.
    fn open_barrier(&mut self, app: usize) -> Result<()> {
        let this = &mut self.apps[app];
        if this.at_barrier == 0 || this.at_barrier < this.running {
            return Ok(());
        }
        this.at_barrier = 0;
        for process in 0..self.processes.len() {
            if self.processes[process].app == app && std::mem::take(&mut self.processes[process].at_barrier) {
                self.tell(process, &[told::BARRIER])?;
            }
        }
        Ok(())
    }
}
