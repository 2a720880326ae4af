//! A gate, driven by hand.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;

use iogate_core::hash::HashMap;
use iogate_core::stats::summary::{Numbers, Summary};
use iogate_core::{
    AppId, ClientId, Decision, DispatchId, FileId, Gate as CoreGate, GateConfig, Layout, Op, Outcome,
    Rejected, Request as CoreRequest, RequestId, SchedulerConfig, TargetId, Time,
};
use pyo3::exceptions::{PyBlockingIOError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyFloat;
use rustix::io::Errno;

use crate::own::{Raised, Scheduler, name_of, number, seconds, time_of};

/// Applications, files and targets in statistics.
const GROUPS_MAX: usize = 64;

/// A gate.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Gate {
    /// Tells its dispatches from those of other gates.
    number: u64,
    inside: Mutex<Inside>,
    /// Who has it locked.
    owner: Mutex<Option<ThreadId>>,
}

struct Inside {
    gate: CoreGate,
    /// The exception of a scheduler in Python.
    raised: Raised,
    /// Whether the scheduler is one in Python.
    is_own: bool,
    /// The id of the next request.
    next: u64,
    /// Requests in the gate.
    requests: HashMap<u64, Entry>,
}

struct Entry {
    tag: Py<PyAny>,
    /// Bytes that are not carried out, and those that no dispatch has taken yet.
    left: u32,
    queued: u32,
    is_cancelled: bool,
}

/// What is to be carried out at once.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Dispatch {
    gate: u64,
    id: DispatchId,
    is_done: Mutex<bool>,
    #[pyo3(get)]
    file: u64,
    #[pyo3(get)]
    op: &'static str,
    #[pyo3(get)]
    offset: u64,
    #[pyo3(get)]
    bytes: u64,
    #[pyo3(get)]
    app: u32,
    #[pyo3(get)]
    target: u32,
    #[pyo3(get)]
    parts: Vec<Py<Part>>,
}

/// A request's share of a dispatch.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Part {
    #[pyo3(get)]
    request: u64,
    #[pyo3(get)]
    tag: Py<PyAny>,
    #[pyo3(get)]
    offset: u64,
    #[pyo3(get)]
    bytes: u32,
    #[pyo3(get)]
    arrival: f64,
}

#[pymethods]
impl Dispatch {
    fn __repr__(&self) -> String {
        let Dispatch { file, op, offset, bytes, parts, .. } = self;
        format!("<iogate.Dispatch: {op} of file {file}, {bytes} bytes at {offset}, {} requests>", parts.len())
    }
}

#[pymethods]
impl Part {
    fn __repr__(&self) -> String {
        let Part { request, offset, bytes, .. } = self;
        format!("<iogate.Part of request {request}: {bytes} bytes at {offset}>")
    }
}

/// A lock on what is inside.
struct Locked<'a> {
    owner: &'a Mutex<Option<ThreadId>>,
    inside: MutexGuard<'a, Inside>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Gate {
    /// The gate for this thread alone. What a scheduler in Python calls cannot have it.
    fn locked(&self, py: Python<'_>) -> PyResult<Locked<'_>> {
        let this = std::thread::current().id();
        loop {
            let inside = match self.inside.try_lock() {
                Ok(inside) => inside,
                Err(TryLockError::Poisoned(inside)) => inside.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    if *self.owner.lock().unwrap_or_else(PoisonError::into_inner) == Some(this) {
                        return Err(PyRuntimeError::new_err(
                            "the gate is asking its scheduler, which cannot use it meanwhile",
                        ));
                    }
                    // Whoever has it may need the interpreter.
                    py.detach(|| drop(self.inside.lock()));
                    continue;
                }
            };
            *self.owner.lock().unwrap_or_else(PoisonError::into_inner) = Some(this);
            return Ok(Locked { owner: &self.owner, inside });
        }
    }
}

/// A scheduler by name with its parameters, or one in Python.
fn chosen(scheduler: &Bound<'_, PyAny>, params: &[(String, String)]) -> PyResult<Option<SchedulerConfig>> {
    let refused = |error: iogate_core::sched::ConfigError| PyValueError::new_err(error.to_string());
    let Ok(name) = scheduler.extract::<String>() else {
        return match params.first() {
            None => Ok(None),
            Some((name, _)) => Err(PyTypeError::new_err(format!(
                "{name}: a scheduler in Python has its parameters when it is made; expected none here"
            ))),
        };
    };
    if name == "auto" {
        return Err(PyValueError::new_err(
            "scheduler 'auto' needs an engine: nothing runs between calls here; name one",
        ));
    }
    let mut config = SchedulerConfig::by_name(&name).map_err(refused)?;
    params.iter().try_for_each(|(name, value)| config.set(name, value).map_err(refused))?;
    Ok(Some(config))
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "what comes from Python comes by value")]
impl Gate {
    #[new]
    #[pyo3(signature = (scheduler, params, *, depth, queue, stripe, targets))]
    fn new(
        scheduler: &Bound<'_, PyAny>,
        params: Vec<(String, String)>,
        depth: u32,
        queue: u32,
        stripe: u64,
        targets: u32,
    ) -> PyResult<Gate> {
        let chosen = chosen(scheduler, &params)?;
        let raised = Raised::default();
        let is_own = chosen.is_none();
        let config = GateConfig {
            scheduler: chosen.unwrap_or_else(|| SchedulerConfig::new(iogate_core::SchedulerKind::Fifo)),
            queue_max: queue,
            depth,
            layout: Layout { first_target: 0, stripe_bytes: stripe, targets },
        };
        let gate = match is_own {
            true => CoreGate::with_own(&config, Box::new(Scheduler::new(scheduler, &raised)?)),
            false => CoreGate::new(&config),
        };
        let gate = gate.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let inside = Inside { gate, raised, is_own, next: 0, requests: HashMap::default() };
        Ok(Gate { number: number(), inside: Mutex::new(inside), owner: Mutex::new(None) })
    }

    #[allow(clippy::too_many_arguments, reason = "they are the fields of a request")]
    fn submit(
        &self,
        py: Python<'_>,
        now: f64,
        file: u64,
        op: &str,
        offset: u64,
        bytes: u32,
        app: u32,
        target: Option<u32>,
        issued: Option<f64>,
        tag: Py<PyAny>,
    ) -> PyResult<u64> {
        let op = match op {
            "read" | "r" => Op::Read,
            "write" | "w" => Op::Write,
            _ => return Err(PyValueError::new_err(format!("op: expected 'read' or 'write', found '{op}'"))),
        };
        let now = time_of(now, "now")?;
        let issued = issued.map(|issued| time_of(issued, "issued")).transpose()?;
        let mut locked = self.locked(py)?;
        let inside = &mut *locked.inside;
        let id = inside.next;
        let request = CoreRequest {
            id: RequestId(id),
            file: FileId(file),
            op,
            offset,
            bytes,
            app: AppId(app),
            client: ClientId(0),
            target: target.map(TargetId),
            issued,
        };
        inside.gate.submit(now, &request).map_err(rejected)?;
        inside.next += 1;
        inside.requests.insert(id, Entry { tag, left: bytes, queued: bytes, is_cancelled: false });
        inside.check()?;
        Ok(id)
    }

    fn next(&self, py: Python<'_>, now: f64) -> PyResult<Py<PyAny>> {
        let now = time_of(now, "now")?;
        let mut locked = self.locked(py)?;
        let inside = &mut *locked.inside;
        loop {
            let decision = inside.gate.next(now);
            inside.check()?;
            match decision {
                Decision::Idle => return Ok(py.None()),
                Decision::WaitUntil(until, _) => {
                    return Ok(PyFloat::new(py, later(until)).into_any().unbind());
                }
                Decision::Dispatch(dispatch) => {
                    if let Some(dispatch) = inside.dispatched(py, now, self.number, &dispatch)? {
                        return Ok(Py::new(py, dispatch)?.into_any());
                    }
                }
            }
        }
    }

    fn complete(
        &self,
        py: Python<'_>,
        now: f64,
        dispatch: &Bound<'_, Dispatch>,
        bytes: Option<u64>,
        failed: bool,
    ) -> PyResult<()> {
        let now = time_of(now, "now")?;
        let dispatch = dispatch.get();
        let most = dispatch.bytes;
        if let Some(bytes) = bytes.filter(|bytes| *bytes > most) {
            return Err(PyValueError::new_err(format!(
                "bytes: expected at most {most}, those of the dispatch, found {bytes}"
            )));
        }
        if dispatch.gate != self.number {
            return Err(PyValueError::new_err(format!("{}: expected one of this gate", dispatch.__repr__())));
        }
        let mut locked = self.locked(py)?;
        let mut is_done = dispatch.is_done.lock().unwrap_or_else(PoisonError::into_inner);
        let inside = &mut *locked.inside;
        if std::mem::replace(&mut *is_done, true) {
            return Err(PyValueError::new_err(format!(
                "{}: expected one that is not complete yet",
                dispatch.__repr__()
            )));
        }
        let outcome = match failed {
            true => Outcome::Failed,
            false => Outcome::Done { bytes: bytes.unwrap_or(most) },
        };
        inside.complete(now, dispatch.id, outcome);
        inside.check()
    }

    /// Whether anything of the request was still waiting, and will not be dispatched.
    fn cancel(&self, py: Python<'_>, request: u64) -> PyResult<bool> {
        let mut locked = self.locked(py)?;
        let inside = &mut *locked.inside;
        if request >= inside.next {
            return Err(PyValueError::new_err(format!("request {request}: expected one that was submitted")));
        }
        let waiting =
            inside.requests.get_mut(&request).filter(|entry| entry.queued > 0 && !entry.is_cancelled);
        Ok(waiting.map(|entry| entry.is_cancelled = true).is_some())
    }

    fn switch(
        &self,
        py: Python<'_>,
        now: f64,
        scheduler: &Bound<'_, PyAny>,
        params: Vec<(String, String)>,
    ) -> PyResult<()> {
        let now = time_of(now, "now")?;
        let chosen = chosen(scheduler, &params)?;
        let mut locked = self.locked(py)?;
        let inside = &mut *locked.inside;
        match &chosen {
            Some(config) => inside.gate.switch(now, config),
            None => {
                let own = Scheduler::new(scheduler, &inside.raised)?;
                inside.gate.switch_to_own(now, Box::new(own));
            }
        }
        inside.is_own = chosen.is_none();
        inside.check()
    }

    fn drain(&self, py: Python<'_>, now: f64) -> PyResult<()> {
        let now = time_of(now, "now")?;
        self.locked(py)?.inside.gate.drain(now);
        Ok(())
    }

    /// The statistics, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let locked = self.locked(py)?;
        let gate = &locked.inside.gate;
        let mut summary =
            Summary::new(gate.stats(), gate.scheduler(), gate.config().depth, &Numbers, GROUPS_MAX);
        if locked.inside.is_own {
            (summary.scheduler, summary.params) = ("own".into(), Default::default());
        }
        serde_json::to_string(&summary).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// The scheduler with its parameters; `own` is one in Python.
    fn scheduler(&self, py: Python<'_>) -> PyResult<String> {
        let locked = self.locked(py)?;
        let own = locked.inside.is_own;
        Ok(if own { "own".into() } else { locked.inside.gate.scheduler().to_string() })
    }

    /// Requests in the gate, those that wait for the scheduler, and dispatches that are not complete.
    fn counts(&self, py: Python<'_>) -> PyResult<(usize, usize, u32)> {
        let locked = self.locked(py)?;
        let gate = &locked.inside.gate;
        Ok((gate.len(), gate.queued(), gate.in_service()))
    }
}

impl Inside {
    /// Raises what a scheduler in Python has raised, or done wrong.
    fn check(&self) -> PyResult<()> {
        if !self.is_own {
            return Ok(());
        }
        match (self.raised.take(), self.gate.fault()) {
            (Some(error), _) => Err(error),
            (None, Some(fault)) => Err(PyRuntimeError::new_err(format!("the scheduler: {fault}"))),
            (None, None) => Ok(()),
        }
    }

    /// What the caller is to carry out, if not all of it was cancelled.
    fn dispatched(
        &mut self,
        py: Python<'_>,
        now: Time,
        gate: u64,
        dispatch: &iogate_core::Dispatch,
    ) -> PyResult<Option<Dispatch>> {
        let mut parts = Vec::new();
        for part in self.gate.parts(dispatch.id) {
            let Some(entry) = self.requests.get_mut(&part.request.0) else { continue };
            entry.queued -= part.bytes;
            if !entry.is_cancelled {
                let tag = entry.tag.clone_ref(py);
                let (request, arrival) = (part.request.0, seconds(part.arrival));
                parts.push(Py::new(
                    py,
                    Part { request, tag, offset: part.offset, bytes: part.bytes, arrival },
                )?);
            }
        }
        if parts.is_empty() {
            self.complete(now, dispatch.id, Outcome::Done { bytes: 0 });
            return Ok(None);
        }
        Ok(Some(Dispatch {
            gate,
            id: dispatch.id,
            is_done: Mutex::new(false),
            file: dispatch.file.0,
            op: name_of(dispatch.op),
            offset: dispatch.offset,
            bytes: dispatch.bytes,
            app: dispatch.app.0,
            target: dispatch.target.0,
            parts,
        }))
    }

    fn complete(&mut self, now: Time, id: DispatchId, outcome: Outcome) {
        let parts: Vec<(u64, u32)> = self.gate.parts(id).map(|part| (part.request.0, part.bytes)).collect();
        for (request, bytes) in parts {
            if let Some(entry) = self.requests.get_mut(&request) {
                entry.left -= bytes;
                if entry.left == 0 {
                    self.requests.remove(&request);
                }
            }
        }
        self.gate.complete(now, id, outcome);
    }
}

/// Seconds that are never before a time, however they are rounded.
fn later(time: Time) -> f64 {
    let at = seconds(time);
    match time_of(at, "") {
        Ok(back) if back >= time => at,
        _ => at.next_up(),
    }
}

fn rejected(rejected: Rejected) -> PyErr {
    let text = rejected.to_string();
    match rejected {
        Rejected::Full { .. } => PyBlockingIOError::new_err((Errno::AGAIN.raw_os_error(), text)),
        Rejected::Closed => PyRuntimeError::new_err(text),
        Rejected::Malformed { .. } | Rejected::Target { .. } => PyValueError::new_err(text),
    }
}
