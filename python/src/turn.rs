//! A turn.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use rustix::io::Errno;

use crate::Failed;
use crate::work::Work;

/// A turn, until it is released. One that nobody has any more ends too.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Turn {
    /// `None` once it has ended.
    turn: Mutex<Option<iogate_turn::Turn>>,
    /// The fencing token; 0 if no coordinator gave it.
    #[pyo3(get)]
    token: u64,
    /// Thousandths of the throughput that it may use.
    #[pyo3(get)]
    share: u32,
}

impl Turn {
    pub(crate) fn new(turn: iogate_turn::Turn) -> Turn {
        Turn { token: turn.token(), share: turn.share(), turn: Mutex::new(Some(turn)) }
    }

    fn turn(&self) -> MutexGuard<'_, Option<iogate_turn::Turn>> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Turn {
    /// Whether the turn counts.
    fn is_valid(&self) -> bool {
        self.turn().as_ref().is_some_and(iogate_turn::Turn::is_valid)
    }

    /// Ends the turn; a second time it does nothing.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let Some(turn) = self.turn().take() else { return Ok(()) };
        Ok(py.detach(|| end(turn))?)
    }

    /// The same in a thread of its own.
    fn begin_release(&self) -> PyResult<Work> {
        let turn = self.turn().take();
        Work::begin(move |_| turn.map_or(Ok(()), end).map(|()| None))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // The coordinator may take a while to answer.
        let turn = self.turn().take();
        if turn.is_some() {
            Python::try_attach(|py| py.detach(|| drop(turn)));
        }
    }
}

fn end(turn: iogate_turn::Turn) -> Result<(), Failed> {
    turn.release().map_err(|lost| Failed { errno: Errno::STALE.raw_os_error(), text: lost.to_string() })
}
