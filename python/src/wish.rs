//! What a turn is for, and waiting for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use iogate_turn::{Place, Settings, SettingsError, TurnError, Turns};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rustix::io::Errno;

use crate::Failed;
use crate::turn::Turn;
use crate::work::Work;

/// `Turns` by what differs from the environment: as few as there are combinations, and kept as long as the process lives.
static TURNS: Mutex<BTreeMap<Override, &'static Turns>> = Mutex::new(BTreeMap::new());

/// How often it is seen whether there was a signal.
pub(crate) const SIGNALS: Duration = Duration::from_millis(50);

/// What a program says itself instead of the environment: the policy, and whether it is strict.
type Override = (Option<String>, Option<bool>);

/// What a turn is for: its place is found, and the settings are right.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Wish {
    turns: &'static Turns,
    place: Place,
    wish: iogate_turn::Wish,
}

#[pymethods]
impl Wish {
    #[new]
    #[pyo3(signature = (place, *, bytes, weight, targets, policy, strict))]
    fn new(
        py: Python<'_>,
        place: OsString,
        bytes: u64,
        weight: u32,
        targets: Vec<u32>,
        policy: Option<String>,
        strict: Option<bool>,
    ) -> PyResult<Wish> {
        let place = PathBuf::from(place);
        // Finding the place may ask file systems that do not answer at once.
        py.detach(|| {
            let turns = turns((policy, strict))
                .map_err(|error| Failed { errno: Errno::INVAL.raw_os_error(), text: error.to_string() })?;
            let found = match place.to_str() {
                Some(text) => Place::of_text(text, turns.settings()),
                None => Place::of(&place, turns.settings()),
            };
            let place = found.map_err(|error| Failed {
                errno: error.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
                text: format!("{}: {error}", place.display()),
            })?;
            let wish = iogate_turn::Wish { targets, bytes, weight, timeout: None };
            Ok(Wish { turns, place, wish })
        })
    }

    /// The place's name.
    #[getter]
    fn place(&self) -> &str {
        self.place.name()
    }

    /// Whether a coordinator is asked.
    #[getter]
    fn locks(&self) -> bool {
        self.turns.coordinator().is_some() && self.turns.settings().policy.locks()
    }

    /// Whether this process belongs to a job, whose claims may hold together.
    #[getter]
    fn has_party(&self) -> bool {
        !self.turns.settings().party.is_empty()
    }

    /// Waits for the turn in this thread, at most so many seconds. A signal whose handler raises ends the wait.
    fn take(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Turn> {
        let wish = self.within(timeout)?;
        let taken = py.detach(|| {
            let mut raised = Ok(());
            let taken = self.turns.take_watched(&self.place, &wish, &mut |_| {
                raised = Python::attach(|py| py.check_signals());
                match raised {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                }
            });
            // A turn that has come all the same ends before the exception is seen.
            raised.map(|()| taken)
        })?;
        Ok(Turn::new(taken.map_err(Failed::from)?))
    }

    /// Waits for the turn in a thread of its own.
    fn begin(&self, timeout: Option<f64>) -> PyResult<Work> {
        let (turns, place, wish) = (self.turns, self.place.clone(), self.within(timeout)?);
        Work::begin(move |is_unwanted| {
            let taken = turns.take_watched(&place, &wish, &mut |_| match is_unwanted() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            });
            taken.map(Some).map_err(Failed::from)
        })
    }

    /// Probes the place until it is quiet; how often, and 0 if nothing can be probed. A signal whose handler raises
    /// ends the wait, while the probing comes to its end in the background.
    fn probe(&self, py: Python<'_>) -> PyResult<u32> {
        let (turns, place) = (self.turns, self.place.clone());
        let (done, mut probed) = channel();
        std::thread::Builder::new().name("iogate-probe".into()).spawn(move || {
            // Nobody may be there any more.
            let _ = done.send(turns.probe(&place).map_err(TurnError::from));
        })?;
        loop {
            let received;
            (probed, received) = py.detach(move || {
                let received = probed.recv_timeout(SIGNALS);
                (probed, received)
            });
            match received {
                Ok(probed) => return Ok(probed.map_err(Failed::from)?.map_or(0, |report| report.attempts)),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PyRuntimeError::new_err(
                        "the thread that probes has failed: a defect of iogate",
                    ));
                }
            }
        }
    }
}

impl Wish {
    fn within(&self, timeout: Option<f64>) -> PyResult<iogate_turn::Wish> {
        let timeout = timeout.map(Duration::try_from_secs_f64).transpose();
        let timeout = timeout.map_err(|error| PyValueError::new_err(format!("the timeout: {error}")))?;
        Ok(iogate_turn::Wish { timeout, ..self.wish.clone() })
    }
}

impl From<TurnError> for Failed {
    fn from(error: TurnError) -> Failed {
        Failed { errno: error.errno(), text: error.to_string() }
    }
}

fn turns(said: Override) -> Result<&'static Turns, SettingsError> {
    let shared = Turns::of_process().map_err(Clone::clone);
    if said == (None, None) {
        return shared;
    }
    let mut known = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(turns) = known.get(&said) {
        return Ok(turns);
    }
    let settings = Settings::read(&|name| {
        let own = match name {
            "IOGATE_POLICY" => said.0.clone(),
            "IOGATE_STRICT" => said.1.map(|strict| u8::from(strict).to_string()),
            _ => None,
        };
        own.or_else(|| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    })?;
    // Those that do nothing else are the same, so that they know of each other's turns.
    let turns = match shared {
        Ok(shared)
            if (shared.settings().policy, shared.settings().is_strict)
                == (settings.policy, settings.is_strict) =>
        {
            shared
        }
        _ => Box::leak(Box::new(Turns::new(settings)?)),
    };
    known.insert(said, turns);
    Ok(turns)
}
