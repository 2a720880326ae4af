//! One process of an application: does the steps of its script, and says what it measured.
//!
//! It talks with whoever started it through its standard input and output, in messages of one byte, some with numbers
//! after it (little endian): see [`said`] and [`told`].

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::num::NonZero;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use iogate_core::FileId;
use iogate_sim::striping::Striping;
use iogate_sim::workload::{Call, Step};
use rustix::process::Signal;
use rustix::time::{ClockId, Timespec};
use serde::{Deserialize, Serialize};

use super::pool::{Pool, Request, Tally};
use super::script::{Job, file_name, read_step};
use super::target::{Entrance, Target};
use super::turns::{Leader, Taken};
use crate::cli::BenchWorkerArgs;
use crate::failure::Failure;

/// What a worker is told.
pub(super) mod told {
    /// To start at a time of the monotonic clock: nanoseconds, 8 bytes.
    pub(crate) const START: u8 = b'g';
    /// All processes of the application are at the barrier.
    pub(crate) const BARRIER: u8 = b'b';
    /// A message of another process has come in.
    pub(crate) const MESSAGE: u8 = b'm';
}

/// What a worker says.
pub(super) mod said {
    /// It is ready to start.
    pub(crate) const READY: u8 = b'r';
    /// It is at a barrier.
    pub(crate) const BARRIER: u8 = b'b';
    /// It sends a message to a process: its rank, 4 bytes.
    pub(crate) const SEND: u8 = b's';
    /// It has ended: the length of a [`super::Measured`] in JSON, 4 bytes, and that.
    pub(crate) const END: u8 = b'e';
}

/// What a worker measured. Times are nanoseconds of the monotonic clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) end: u64,
    pub(super) tally: Tally,
    /// When it was ready for each I/O phase, when that began, and when it ended.
    pub(super) phases: Vec<(u64, u64, u64)>,
    /// Of rank 0: what the application's turns came to.
    pub(super) taken: Taken,
    /// From a call to the barrier after it, summed, and how many of these.
    pub(super) step_time_ns: u64,
    pub(super) steps: u64,
}

/// Nanoseconds of the monotonic clock.
pub(super) fn now() -> u64 {
    let time = rustix::time::clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn run(args: &BenchWorkerArgs) -> Result<(), Failure> {
    // Nobody else would end it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).context("the end of the parent")?;
    // Sleeps end when they should, not up to 50 us later.
    rustix::thread::set_current_timer_slack(NonZero::new(1)).context("precise sleeps")?;
    let script = File::open(&args.script).with_context(|| args.script.display().to_string())?;
    let mut script = BufReader::with_capacity(1 << 16, script);
    Ok(Worker::new(&mut script)?.run(script)?)
}

struct Worker {
    striping: Striping,
    job: Job,
    files: HashMap<FileId, Vec<Arc<Target>>>,
    pool: Pool,
    start: u64,
    /// Messages that have come in.
    messages: u64,
    /// Whether the barrier has opened.
    passed: bool,
    /// When the call of this step was issued.
    step: Option<u64>,
    /// Of rank 0, where there are turns.
    leader: Option<Leader>,
    measured: Measured,
}

impl Worker {
    fn new(script: &mut impl BufRead) -> Result<Worker> {
        let job = Job::read(script)?;
        let entrances = job.places.iter().map(Entrance::new).collect::<Result<Vec<_>>>()?;
        let mut files = HashMap::new();
        for file in job.files.iter().map(|file| FileId(*file)) {
            let open = |entrance: &Entrance| entrance.open(&file_name(file), job.writes).map(Arc::new);
            files.insert(file, entrances.iter().map(open).collect::<Result<Vec<_>>>()?);
        }
        Ok(Worker {
            striping: Striping { stripe: job.stripe, servers: job.places.len() as u64 },
            pool: Pool::new(job.threads, now).context("threads")?,
            leader: job.turns.as_ref().filter(|_| job.leads).map(Leader::new).transpose()?,
            job,
            files,
            start: 0,
            messages: 0,
            passed: false,
            step: None,
            measured: Measured::default(),
        })
    }

    fn run(mut self, script: impl BufRead) -> Result<()> {
        say(&[said::READY])?;
        while self.start == 0 {
            self.listen()?;
        }
        sleep_until(self.start);
        for line in script.lines() {
            let step = read_step(&line?)?;
            self.take(step)?;
        }
        self.pool.wait_for(0)?;
        self.measured.end = now();
        self.measured.tally = self.pool.tally();
        self.measured.taken = self.leader.take().map(Leader::taken).unwrap_or_default();
        let measured = serde_json::to_vec(&self.measured)?;
        say(&[&[said::END], &(measured.len() as u32).to_le_bytes()[..], &measured].concat())
    }

    fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Compute(span) => sleep_until(now() + span.as_nanos()),
            Step::Until(span) => sleep_until(self.start + span.as_nanos()),
            Step::Call(call) => {
                if self.job.time_steps {
                    self.step.get_or_insert_with(now);
                }
                let requests = self.requests(&call)?;
                self.pool.issue(&requests)?;
                if let Some(most) = self.job.outstanding {
                    self.pool.wait_for(most.saturating_sub(1))?;
                }
            }
            Step::Finish => self.pool.wait_for(0)?,
            Step::Barrier => {
                self.meet()?;
                if let Some(since) = self.step.take() {
                    self.measured.step_time_ns += now() - since;
                    self.measured.steps += 1;
                }
            }
            Step::Send { to, .. } => say(&[&[said::SEND], &to.to_le_bytes()[..]].concat())?,
            Step::Receive { messages } => {
                while self.messages < messages {
                    self.listen()?;
                }
            }
            Step::Phase(begins) => {
                let asked = now();
                if begins {
                    self.take_turn()?;
                }
                self.pool.phase(begins);
                let now = now();
                if begins {
                    self.measured.phases.push((asked, now, now));
                } else {
                    if let Some(phase) = self.measured.phases.last_mut() {
                        phase.2 = now;
                    }
                    self.end_turn()?;
                }
            }
            Step::End => {}
        }
        Ok(())
    }

    /// Waits for all processes of the application.
    fn meet(&mut self) -> Result<()> {
        self.passed = false;
        say(&[said::BARRIER])?;
        while !self.passed {
            self.listen()?;
        }
        Ok(())
    }

    /// Waits until it is the application's turn, where it takes turns: rank 0 asks for it when all are there, and all begin when it has it.
    fn take_turn(&mut self) -> Result<()> {
        if self.job.turns.is_some() {
            self.meet()?;
            if let Some(leader) = &mut self.leader {
                leader.take()?;
            }
            self.meet()?;
        }
        Ok(())
    }

    /// Ends the application's turn when all have done their part.
    fn end_turn(&mut self) -> Result<()> {
        if self.job.turns.is_some() {
            self.meet()?;
            if let Some(leader) = &mut self.leader {
                leader.end();
            }
        }
        Ok(())
    }

    /// The requests of a call, in the order in which the simulator issues them.
    fn requests(&self, call: &Call) -> Result<Vec<Request>> {
        let files =
            self.files.get(&call.file).with_context(|| format!("file {} is not in the job", call.file))?;
        let mut requests = Vec::new();
        for index in 0..u64::from(call.count) {
            let offset = call.offset + index * call.stride;
            self.striping.for_each_request(
                offset,
                call.bytes.into(),
                self.job.transfer,
                |server, offset, bytes| {
                    let file = files[server as usize].clone();
                    requests.push(Request { file, op: call.op, offset, bytes: bytes as usize });
                },
            );
        }
        Ok(requests)
    }

    /// Waits for the next message.
    fn listen(&mut self) -> Result<()> {
        let mut input = io::stdin().lock();
        let mut byte = [0];
        input.read_exact(&mut byte).context("whoever started this is gone")?;
        match byte[0] {
            told::START => {
                let mut time = [0; 8];
                input.read_exact(&mut time)?;
                self.start = u64::from_le_bytes(time);
            }
            told::BARRIER => self.passed = true,
            told::MESSAGE => self.messages += 1,
            other => bail!("expected a message, got byte {other}"),
        }
        Ok(())
    }
}

fn say(message: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(message)?;
    Ok(out.flush()?)
}

fn sleep_until(time: u64) {
    let request = Timespec { tv_sec: (time / 1_000_000_000) as i64, tv_nsec: (time % 1_000_000_000) as _ };
    while now() < time {
        // Interrupted by a signal that does not end it: sleeps on.
        let _ = rustix::thread::clock_nanosleep_absolute(ClockId::Monotonic, &request);
    }
}
