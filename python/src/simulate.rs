//! Runs of a scenario, as `iogate sim` does them.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};

use iogate_core::Time;
use iogate_core::nearest::{did_you_mean, nearest};
use iogate_core::sched::Own;
use iogate_report::experiment::TIMELINES_MAX;
use iogate_report::partial::Outline;
use iogate_report::{ExperimentReport, Recording, html};
use iogate_sim::experiment::{Done, ExperimentError, run_lent};
use iogate_sim::scenario::{BUILT_IN, Plan, Source, built_in};
use iogate_sim::world::Lent;
use pyo3::exceptions::{PyOSError, PyRuntimeError, PyUserWarning, PyValueError};
use pyo3::prelude::*;

use crate::own::{Raised, Scheduler};
use crate::wish::SIGNALS;

/// What made a report: the program of the same version gives the same bytes.
const PROGRAM: &str = concat!("iogate ", env!("CARGO_PKG_VERSION"));

/// What all runs gave.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Report {
    report: ExperimentReport,
}

#[pymethods]
impl Report {
    /// The output of `iogate sim --json -`.
    fn json(&self, py: Python<'_>) -> String {
        py.detach(|| self.report.json() + "\n")
    }

    /// That of `iogate sim --csv -`.
    fn csv(&self, py: Python<'_>) -> String {
        py.detach(|| self.report.csv())
    }

    /// What `iogate sim --html FILE` writes.
    fn html(&self, py: Python<'_>) -> String {
        py.detach(|| html::experiment(&self.report))
    }

    /// What `iogate sim` prints.
    fn text(&self, py: Python<'_>) -> String {
        py.detach(|| self.report.text())
    }
}

/// Runs a scenario: a file, one that is built in, or (with `is_text`) its text.
///
/// # Errors
/// `OSError` if it cannot be read, `ValueError` if something is wrong with it, `RuntimeError` if a run fails; what a scheduler or the
/// handler of a signal raises.
#[pyfunction]
#[allow(clippy::needless_pass_by_value, reason = "what comes from Python comes by value")]
#[pyo3(signature = (scenario, *, is_text, settings, quick, threads, schedulers))]
pub(crate) fn simulate(
    py: Python<'_>,
    scenario: &str,
    is_text: bool,
    settings: Vec<String>,
    quick: bool,
    threads: Option<usize>,
    schedulers: BTreeMap<String, Py<PyAny>>,
) -> PyResult<Report> {
    let (text, folder) =
        if is_text { (scenario.to_owned(), Some(PathBuf::from("."))) } else { found(scenario)? };
    let name = if is_text { "the scenario" } else { scenario };
    let plan = py.detach(|| {
        let open = |name: &str| match &folder {
            Some(folder) => fs::read_to_string(folder.join(name)).map_err(|error| error.to_string()),
            None => Err("a built-in scenario has no files beside it".to_owned()),
        };
        Plan::read(&Source { name, text: &text, settings: &settings, quick, open: &open })
            .map_err(|error| error.to_string())
    });
    let plan = plan.map_err(PyValueError::new_err)?;
    if let Some(missing) = plan.own().into_iter().find(|name| !schedulers.contains_key(*name)) {
        let near = did_you_mean(&nearest(missing, schedulers.keys().map(String::as_str)));
        let known = schedulers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "there are none".into() } else { format!("it has {known}") };
        return Err(PyValueError::new_err(format!(
            "scheduler = \"own:{missing}\": {near}expected a name in schedulers=, and {known}"
        )));
    }
    for line in plan.warnings() {
        let line = CString::new(line).unwrap_or_default();
        // As of the function that people call, which is one above the one that calls this.
        PyErr::warn(py, &py.get_type::<PyUserWarning>(), &line, 2)?;
    }
    let has_own = !plan.own().is_empty();
    let threads = match (threads, has_own) {
        (Some(0), _) => return Err(PyValueError::new_err("threads: expected a number from 1 on, found 0")),
        (Some(2..), true) => {
            return Err(PyValueError::new_err(
                "threads: a scheduler in Python runs in the thread that calls; expected 1, or None",
            ));
        }
        (Some(threads), _) => NonZero::new(threads).unwrap_or(NonZero::<usize>::MIN),
        (None, true) => NonZero::<usize>::MIN,
        (None, false) => std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN),
    };
    let raised = Raised::default();
    let own = |name: &str| -> Option<Box<dyn Own>> {
        let factory = schedulers.get(name)?;
        Python::attach(|py| {
            let made = factory.bind(py).call0().and_then(|object| Scheduler::new(&object, &raised));
            made.map_err(|error| raised.keep(py, error)).ok().map(|made| Box::new(made) as Box<dyn Own>)
        })
    };
    let done = py.detach(|| match threads.get() {
        1 => {
            let is_stopped = || is_interrupted(&raised);
            runs(&plan, threads, Lent { scheduler: &own, is_stopped: &is_stopped })
        }
        _ => beside(&plan, threads, &raised),
    });
    if let Some(error) = raised.take() {
        return Err(error);
    }
    let done = done.map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    Ok(py.detach(|| Report { report: Outline::new(&plan, &text).report(PROGRAM, done) }))
}

type Runs = Result<Vec<Done<Recording>>, ExperimentError>;

fn runs(plan: &Plan, threads: NonZero<usize>, lent: Lent<'_>) -> Runs {
    let all: Vec<u64> = (0..plan.runs()).collect();
    let observe = |point: usize| (point < TIMELINES_MAX).then(|| Recording::new(Time::ZERO));
    run_lent(plan, &all, threads, &observe, &|_: &Done<Recording>| ControlFlow::Continue(()), lent)
}

/// All runs in threads of their own, while this one waits for signals.
fn beside(plan: &Plan, threads: NonZero<usize>, raised: &Raised) -> Runs {
    let stop = AtomicBool::new(false);
    let is_stopped = || stop.load(Ordering::Relaxed);
    let (done, wait) = channel();
    std::thread::scope(|scope| {
        let is_stopped = &is_stopped;
        scope.spawn(move || {
            // Whoever waits is there until the end.
            let _ = done.send(runs(plan, threads, Lent { is_stopped, ..Lent::NONE }));
        });
        loop {
            match wait.recv_timeout(SIGNALS) {
                Ok(done) => return done,
                Err(RecvTimeoutError::Timeout) if !is_stopped() && is_interrupted(raised) => {
                    stop.store(true, Ordering::Relaxed);
                }
                Err(RecvTimeoutError::Timeout) => {}
                // It panicked: the scope says so.
                Err(RecvTimeoutError::Disconnected) => return Ok(Vec::new()),
            }
        }
    })
}

/// Whether the handler of a signal has raised something, which is kept.
fn is_interrupted(raised: &Raised) -> bool {
    Python::attach(|py| py.check_signals().map_err(|error| raised.keep(py, error)).is_err())
}

/// The text of a file, with its folder, or that of a scenario that is built in.
fn found(scenario: &str) -> PyResult<(String, Option<PathBuf>)> {
    let path = Path::new(scenario);
    if scenario.contains('/') || scenario.ends_with(".toml") || path.is_file() {
        let text = fs::read_to_string(path).map_err(|error| {
            let why = format!("the scenario {scenario} cannot be read: {error}");
            PyOSError::new_err((error.raw_os_error().unwrap_or_default(), why))
        })?;
        return Ok((text, path.parent().map(Path::to_owned)));
    }
    let text = built_in(scenario).ok_or_else(|| {
        let names = || BUILT_IN.iter().map(|(name, _)| *name);
        let (near, known) = (nearest(scenario, names()), names().collect::<Vec<_>>().join(", "));
        let near = did_you_mean(&near);
        PyValueError::new_err(format!(
            "unknown scenario '{scenario}'; {near}expected a file, the text of one, or one of: {known}"
        ))
    })?;
    Ok((text.to_owned(), None))
}
