//! The extension module `iogate._native`: what the Python package `iogate` asks of the libraries.
//!
//! | module | purpose |
//! |---|---|
//! | `wish` | what a turn is for, and waiting for it in the thread that asks |
//! | `turn` | a turn |
//! | `work` | the same waits in a thread of their own, for event loops |
//! | `files` | files of servers |
//! | `gate` | a gate, driven by hand |
//! | `simulate` | the runs of a scenario |
//! | `traces` | traces, row by row |
//! | `own` | schedulers that are written in Python |
//!
//! The interpreter is let go of whatever takes time. What people see of it (names, checks, exceptions) is in
//! `python/iogate/`; errors here are `OSError` with the errno of the C functions.

mod files;
mod gate;
mod own;
mod simulate;
mod traces;
mod turn;
mod wish;
mod work;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// What went wrong, before it is an exception.
#[derive(Clone, Debug)]
struct Failed {
    errno: i32,
    text: String,
}

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> PyErr {
        PyOSError::new_err((failed.errno, failed.text))
    }
}

#[pymodule(name = "_native")]
mod module {
    use pyo3::exceptions::PyImportError;
    use pyo3::ffi;
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::files::{Connection, File};
    #[pymodule_export]
    use crate::gate::{Dispatch, Gate, Part};
    #[pymodule_export]
    use crate::own::Request;
    #[pymodule_export]
    use crate::simulate::{Report, simulate};
    #[pymodule_export]
    use crate::traces::Trace;
    #[pymodule_export]
    use crate::turn::Turn;
    #[pymodule_export]
    use crate::wish::Wish;
    #[pymodule_export]
    use crate::work::Work;

    /// Signals are handled, and threads attach, in the main interpreter only.
    #[pymodule_init]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // SAFETY: the thread is attached to an interpreter, which is the one that imports.
        match unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) } {
            0 => Ok(()),
            _ => Err(PyImportError::new_err("this is a subinterpreter")),
        }
    }
}
