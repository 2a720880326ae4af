//! Schedulers that are written in Python.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::sched::{Choice, Own, Waiting};
use iogate_core::{FileId, Op, Span, Time, WaitReason};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyFloat;

/// Gates are told apart by number, so that none takes another one's requests.
static GATES: AtomicU64 = AtomicU64::new(1);

/// The number of another gate.
pub(crate) fn number() -> u64 {
    GATES.fetch_add(1, Ordering::Relaxed)
}

/// The exception of a scheduler, which ends what it schedules: the first one counts.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    /// Keeps an exception, and says it in a line.
    pub(crate) fn keep(&self, py: Python<'_>, error: PyErr) -> String {
        let name = error.get_type(py).name().map(|name| name.to_string()).unwrap_or_default();
        let text = format!("{name}: {}", error.value(py));
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        text
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A request that waits at a gate, as a scheduler sees it.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Request {
    /// What the scheduler picks it by, and the gate that it waits at.
    number: u64,
    gate: u64,
    waiting: Waiting,
}

#[pymethods]
impl Request {
    #[getter]
    fn id(&self) -> u64 {
        self.waiting.request.0
    }

    #[getter]
    fn file(&self) -> u64 {
        self.waiting.file.0
    }

    #[getter]
    fn op(&self) -> &'static str {
        name_of(self.waiting.op)
    }

    #[getter]
    fn offset(&self) -> u64 {
        self.waiting.offset
    }

    #[getter]
    fn bytes(&self) -> u32 {
        self.waiting.bytes
    }

    #[getter]
    fn end(&self) -> u64 {
        self.waiting.offset + u64::from(self.waiting.bytes)
    }

    #[getter]
    fn app(&self) -> u32 {
        self.waiting.app.0
    }

    #[getter]
    fn target(&self) -> u32 {
        self.waiting.target.0
    }

    #[getter]
    fn arrival(&self) -> f64 {
        seconds(self.waiting.arrival)
    }

    #[getter]
    fn issued(&self) -> Option<f64> {
        self.waiting.issued.map(seconds)
    }

    fn __repr__(&self) -> String {
        let Waiting { request, file, op, offset, bytes, app, .. } = self.waiting;
        format!(
            "<iogate.Request {request}: {} of file {file}, {bytes} bytes at {offset}, app {app}>",
            name_of(op)
        )
    }
}

/// An object of Python with `insert` and `pick`, and perhaps `completed` and `depth`.
pub(crate) struct Scheduler {
    object: Py<PyAny>,
    gate: u64,
    depth: u32,
    hears_of_ends: bool,
    raised: Raised,
}

impl Scheduler {
    /// Looks at what it has.
    ///
    /// # Errors
    /// If a method is missing, or `depth` is no number from 1 on.
    pub(crate) fn new(object: &Bound<'_, PyAny>, raised: &Raised) -> PyResult<Scheduler> {
        let py = object.py();
        for method in [intern!(py, "insert"), intern!(py, "pick")] {
            if !object.getattr_opt(method)?.is_some_and(|method| method.is_callable()) {
                let (found, method) = (object.repr()?, method.to_string());
                return Err(PyTypeError::new_err(format!(
                    "a scheduler: expected an object with the methods insert(request) and pick(now), found {found} without {method}"
                )));
            }
        }
        let depth = match object.getattr_opt(intern!(py, "depth"))? {
            None => u32::MAX,
            Some(depth) => {
                let number = depth.extract::<u32>().ok().filter(|depth| *depth > 0);
                number.ok_or_else(|| {
                    PyValueError::new_err(format!(
                        "a scheduler's depth: expected a number from 1 on, found {depth}"
                    ))
                })?
            }
        };
        let hears_of_ends = object.getattr_opt(intern!(py, "completed"))?.is_some();
        Ok(Scheduler {
            object: object.clone().unbind(),
            gate: number(),
            depth,
            hears_of_ends,
            raised: raised.clone(),
        })
    }

    /// Calls it, and makes of an exception the end of its part.
    fn call<T>(&self, call: impl for<'py> FnOnce(&Bound<'py, PyAny>) -> PyResult<T>) -> Result<T, String> {
        Python::attach(|py| call(self.object.bind(py)).map_err(|error| self.raised.keep(py, error)))
    }

    /// What `pick` has returned.
    fn choice(&self, now: Time, answer: &Bound<'_, PyAny>, picked: &mut Vec<u64>) -> PyResult<Choice> {
        let py = answer.py();
        if answer.is_none() {
            return Ok(Choice::Idle);
        }
        if let Ok(request) = answer.cast::<Request>() {
            picked.push(self.number(request)?);
            return Ok(Choice::Dispatch);
        }
        if answer.is_instance_of::<PyFloat>() || answer.extract::<i64>().is_ok() {
            let at = answer.extract::<f64>()?;
            let mut until = time_of(at, "a time to wait until")?;
            // What is less than a nanosecond away must not be now.
            if at > seconds(now) {
                until = until.max(now + Span::from_nanos(1));
            }
            return Ok(Choice::WaitUntil(until, WaitReason::BetterRun));
        }
        let expected = |what: &Bound<'_, PyAny>| {
            let found = what.get_type().name().map(|name| name.to_string()).unwrap_or_default();
            PyTypeError::new_err(format!(
                "pick: expected a request or requests, a time in seconds to wait until, or None, found {found}"
            ))
        };
        let requests = answer.try_iter().map_err(|error| match error.is_instance_of::<PyTypeError>(py) {
            true => expected(answer),
            false => error,
        })?;
        for request in requests {
            let request = request?;
            picked.push(self.number(request.cast::<Request>().map_err(|_| expected(&request))?)?);
        }
        Ok(Choice::Dispatch)
    }

    fn number(&self, request: &Bound<'_, Request>) -> PyResult<u64> {
        let this = request.get();
        if this.gate == self.gate {
            return Ok(this.number);
        }
        let shown = this.__repr__();
        Err(PyValueError::new_err(format!(
            "pick: {shown} waits at another gate: expected one that was inserted here"
        )))
    }
}

impl Own for Scheduler {
    fn insert(&mut self, _now: Time, request: &Waiting) -> Result<(), String> {
        let request = Request { number: request.number, gate: self.gate, waiting: *request };
        self.call(|object| object.call_method1(intern!(object.py(), "insert"), (request,)).map(drop))
    }

    fn pick(&mut self, now: Time, _patience: bool, picked: &mut Vec<u64>) -> Result<Choice, String> {
        self.call(|object| {
            let answer = object.call_method1(intern!(object.py(), "pick"), (seconds(now),))?;
            self.choice(now, &answer, picked)
        })
    }

    fn completed(&mut self, now: Time, file: FileId, op: Op, end: u64) -> Result<(), String> {
        if !self.hears_of_ends {
            return Ok(());
        }
        let ended = (seconds(now), file.0, name_of(op), end);
        self.call(|object| object.call_method1(intern!(object.py(), "completed"), ended).map(drop))
    }

    fn depth_max(&self) -> u32 {
        self.depth
    }
}

pub(crate) fn name_of(op: Op) -> &'static str {
    match op {
        Op::Read => "read",
        Op::Write => "write",
    }
}

pub(crate) fn seconds(time: Time) -> f64 {
    time.since(Time::ZERO).as_secs_f64()
}

/// A time in seconds, to the nearest nanosecond.
///
/// # Errors
/// If it is negative, no number, or too far away.
pub(crate) fn time_of(seconds: f64, what: &str) -> PyResult<Time> {
    let ns = (seconds * 1e9).round();
    if !(0.0..1.8e19).contains(&ns) {
        return Err(PyValueError::new_err(format!(
            "{what}: expected seconds, not negative, found {seconds}"
        )));
    }
    Ok(Time::ZERO + Span::from_nanos(ns as u64))
}
