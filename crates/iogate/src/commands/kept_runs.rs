//! Partial results in a folder: the runs of a shard are kept there as they are done, so that what is interrupted goes on where it was.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, anyhow};
use iogate_core::Time;
use iogate_report::experiment::Origin;
use iogate_report::partial::{Head, Kept, Outline, Shard, failed_line, run_line};
use iogate_report::{ExperimentReport, Recording};
use iogate_sim::experiment::{self, Done, ExperimentError, Repeats, digest};
use iogate_sim::scenario::Plan;

use super::progress::{Progress, threads};
use super::sim::PROGRAM;
use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::output::{being_written, open_alone};

/// What is run, and for which results.
pub(crate) struct Work<'a> {
    pub(crate) plan: &'a Plan,
    /// What the results are called.
    pub(crate) name: &'a str,
    /// The text that the plan was read from, as reports have it.
    pub(crate) text: &'a str,
    pub(crate) commit: Option<String>,
    /// Points whose first run is recorded.
    pub(crate) recorded: usize,
    pub(crate) threads: Option<NonZero<usize>>,
    /// What it has in common with others that are run beside it.
    pub(crate) repeats: &'a Repeats,
}

impl Work<'_> {
    /// The report of all runs, none of which is kept.
    pub(crate) fn report(&self, progress: &Progress) -> Result<ExperimentReport, Failure> {
        let all: Vec<u64> = (0..self.plan.runs()).collect();
        let finished = |_: &Done<Recording>| {
            progress.done();
            ControlFlow::Continue(())
        };
        let runs = self.carry_out(&all, &finished).map_err(failed)?;
        Ok(self.reported(runs))
    }

    fn reported(&self, runs: impl IntoIterator<Item = Done<Recording>>) -> ExperimentReport {
        let mut report = Outline::new(self.plan, self.text).report(PROGRAM, runs);
        report.commit.clone_from(&self.commit);
        report
    }

    /// The report of all runs, of which those that `folder` has are taken, and the others kept there.
    pub(crate) fn report_kept(
        &self,
        folder: &Path,
        progress: &Progress,
    ) -> Result<ExperimentReport, Failure> {
        Ok(self.reported(self.keep(Shard::WHOLE, folder, progress)?.into_values()))
    }

    /// Does those runs of a shard that `folder` does not have yet, keeps each there, and returns all of them.
    pub(crate) fn keep(
        &self,
        shard: Shard,
        folder: &Path,
        progress: &Progress,
    ) -> Result<BTreeMap<u64, Done<Recording>>, Failure> {
        let mut head = Head::new(self.name, Outline::new(self.plan, self.text), shard, self.recorded);
        (head.program, head.origin) = (PROGRAM.into(), origin(self.plan)?);
        head.commit.clone_from(&self.commit);
        let mut file = RunsFile::open(folder.join(shard.file_name(self.name)))?;
        let mut kept = file.begin(head, progress)?;
        let missing = kept.missing();
        progress.kept(kept.runs.len() as u64);
        let (file, unwritten) = (Mutex::new(file), Mutex::new(None));
        let add = |line: &str| file.lock().unwrap_or_else(PoisonError::into_inner).add(line);
        let done = self.carry_out(&missing, &|done| match add(&run_line(done)) {
            Ok(()) => {
                progress.done();
                ControlFlow::Continue(())
            }
            Err(error) => {
                *unwritten.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                ControlFlow::Break(())
            }
        });
        if let Some(error) = unwritten.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        match done {
            Ok(done) => kept.runs.extend(done.into_iter().map(|done| (done.run, done))),
            Err(error) => {
                add(&failed_line(&error.to_string()))?;
                return Err(failed(error));
            }
        }
        file.into_inner().unwrap_or_else(PoisonError::into_inner).end()?;
        Ok(kept.runs)
    }

    fn carry_out(
        &self,
        numbers: &[u64],
        finished: &(impl Fn(&Done<Recording>) -> ControlFlow<()> + Sync),
    ) -> Result<Vec<Done<Recording>>, ExperimentError> {
        let observe = |point: usize| (point < self.recorded).then(|| Recording::new(Time::ZERO));
        experiment::run_some(self.plan, numbers, threads(self.threads), &observe, finished, self.repeats)
    }
}

fn failed(error: ExperimentError) -> Failure {
    Failure::failed(anyhow::Error::new(error))
}

/// What results of a plan are of, and what makes them: the points with everything that they are made of, in a few characters, and what
/// tells this program from others of the same version.
pub(crate) fn origin(plan: &Plan) -> Result<Origin, Failure> {
    let fingerprint = |bytes: &[u8]| format!("{:016x}", digest(bytes));
    // Of a program that is large, and of which many results may be kept.
    static BUILD: OnceLock<String> = OnceLock::new();
    let build = match BUILD.get() {
        Some(build) => build,
        None => {
            let program = fs::read("/proc/self/exe").context("the program's own file cannot be read")?;
            BUILD.get_or_init(|| fingerprint(&program))
        }
    };
    Ok(Origin { plan: fingerprint(format!("{:?}", plan.points).as_bytes()), build: build.clone() })
}

/// A file of runs that is being written; nobody else writes it meanwhile.
struct RunsFile {
    path: PathBuf,
    file: File,
}

impl RunsFile {
    fn open(path: PathBuf) -> Result<RunsFile, Failure> {
        let file = open_alone(&path, || being_written(&path))?;
        Ok(RunsFile { path, file })
    }

    /// Reads what is there, says what of it is lost, and makes it ready for more.
    fn begin(&mut self, head: Head, progress: &Progress) -> Result<Kept, Failure> {
        let path = self.path.display().to_string();
        let mut bytes = Vec::new();
        self.file.read_to_end(&mut bytes).with_context(|| Attempt::read(&path))?;
        let hint = "remove it and its runs are done again, or give another --results";
        let unfit = |what: String| Failure::usage(anyhow!("{path} is kept from before: {what}")).hint(hint);
        let Some(kept) = Kept::read(&bytes).map_err(&unfit)? else {
            if !bytes.is_empty() {
                progress.say(&format!("{path}: its first line is broken off; its runs are done again"));
            }
            self.cut(0)?;
            self.add(&head.line())?;
            return Ok(Kept { head, runs: BTreeMap::new(), failed: None, whole: 0, broken: None });
        };
        if let Some(what) = kept.head.unlike(&head) {
            return Err(unfit(format!("it is {what}")));
        }
        if kept.head.shard != head.shard {
            return Err(unfit(format!("it is shard {}, not {}", kept.head.shard, head.shard)));
        }
        if let Some(broken) = kept.broken {
            progress.say(&format!("{path}: {broken}; the runs from there on are done again"));
            self.cut(kept.whole as u64)?;
        }
        let there = kept.runs.len();
        if there > 0 {
            progress.say(&format!("{path}: {there} of {} runs are there", there + kept.missing().len()));
        }
        Ok(kept)
    }

    fn cut(&mut self, length: u64) -> Result<(), Failure> {
        Ok(self.file.set_len(length).with_context(|| Attempt::write(self.path.display()))?)
    }

    /// Adds a line, in one piece.
    fn add(&mut self, line: &str) -> Result<(), Failure> {
        let written = self.file.write_all(line.as_bytes());
        Ok(written.with_context(|| Attempt::write(self.path.display()))?)
    }

    fn end(self) -> Result<(), Failure> {
        Ok(self.file.sync_all().with_context(|| Attempt::write(self.path.display()))?)
    }
}
