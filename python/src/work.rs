//! What waits in a thread of its own, so that an event loop does not have to.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::Failed;
use crate::turn::Turn;

/// What comes of it: a turn, or nothing.
type Outcome = Result<Option<iogate_turn::Turn>, Failed>;

/// Something underway. Its descriptor becomes readable when it is done.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Work {
    shared: Arc<Shared>,
}

struct Shared {
    /// An eventfd: the thread knows nothing of the interpreter, which may be gone before it.
    done: OwnedFd,
    state: Mutex<State>,
}

enum State {
    Underway,
    /// Nobody waits for the outcome any more.
    Unwanted,
    Done(Outcome),
    /// The outcome has been fetched.
    Fetched,
}

impl Work {
    /// Runs this in a thread; it may ask whether anybody still wants what comes of it.
    pub(crate) fn begin(run: impl FnOnce(&dyn Fn() -> bool) -> Outcome + Send + 'static) -> PyResult<Work> {
        let done =
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(std::io::Error::from)?;
        let shared = Arc::new(Shared { done, state: Mutex::new(State::Underway) });
        let thread = Arc::clone(&shared);
        std::thread::Builder::new().name("iogate-turn".into()).spawn(move || {
            let outcome = run(&|| matches!(*thread.state(), State::Unwanted));
            thread.finish(outcome);
            // The descriptor holds one number, which is 0 until now: there is room.
            let _ = rustix::io::write(&thread.done, &1u64.to_ne_bytes());
        })?;
        Ok(Work { shared })
    }
}

#[pymethods]
impl Work {
    /// The descriptor.
    fn fileno(&self) -> i32 {
        self.shared.done.as_raw_fd()
    }

    /// Waits until it is done.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            let mut done = [PollFd::new(&self.shared.done, PollFlags::IN)];
            // A signal is no reason to stop.
            while let Err(error) = poll(&mut done, None) {
                if error != Errno::INTR {
                    return Err(std::io::Error::from(error).into());
                }
            }
            Ok(())
        })
    }

    /// What has come of it.
    fn result(&self) -> PyResult<Option<Turn>> {
        let mut state = self.shared.state();
        match std::mem::replace(&mut *state, State::Fetched) {
            State::Done(outcome) => Ok(outcome?.map(Turn::new)),
            before => {
                *state = before;
                Err(PyRuntimeError::new_err(
                    "there is no result: it is underway, unwanted, or has been fetched",
                ))
            }
        }
    }

    /// Nobody wants what comes of it: a claim is given up within about a second, and a turn that has come ends.
    fn cancel(&self) -> PyResult<()> {
        let before = std::mem::replace(&mut *self.shared.state(), State::Unwanted);
        if let State::Done(Ok(Some(turn))) = before {
            std::thread::Builder::new().name("iogate-turn".into()).spawn(move || drop(turn))?;
        }
        Ok(())
    }
}

impl Shared {
    /// Leaves what has come of it, or ends a turn that nobody wants.
    fn finish(&self, outcome: Outcome) {
        let mut state = self.state();
        if matches!(*state, State::Underway) {
            *state = State::Done(outcome);
            return;
        }
        drop(state);
        drop(outcome);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
