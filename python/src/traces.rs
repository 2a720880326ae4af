//! Traces, row by row.

use std::io::{self, BufReader, Read};
use std::sync::{Mutex, PoisonError};

use iogate_sim::trace::{Row, TraceError, TraceReader};
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::own::{Raised, name_of, seconds};

/// Time, application, client, file, operation, offset, bytes, target, when it was issued and done, and how many are missing behind it.
type Fields = (f64, u32, u32, String, &'static str, u64, u32, Option<u32>, Option<f64>, Option<f64>, u64);

/// How much is asked of a file at once.
const READ_BYTES: usize = 1 << 16;

/// A file of Python's, open for reading bytes.
struct Input {
    file: Py<PyAny>,
    raised: Raised,
}

impl Read for Input {
    fn read(&mut self, memory: &mut [u8]) -> io::Result<usize> {
        Python::attach(|py| {
            let asked = (memory.len(),);
            let read = self.file.bind(py).call_method1(intern!(py, "read"), asked);
            let read = read.and_then(|read| Ok(read.cast_into::<PyBytes>()?));
            let read = read.map_err(|error| io::Error::other(self.raised.keep(py, error)))?;
            let bytes = read.as_bytes();
            let Some(taken) = memory.get_mut(..bytes.len()) else {
                return Err(io::Error::other("the file gives more than it is asked for"));
            };
            taken.copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }
}

/// Reads a trace.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Trace {
    reader: Mutex<TraceReader<BufReader<Input>>>,
    raised: Raised,
}

#[pymethods]
impl Trace {
    /// Reads the header.
    #[new]
    fn new(file: Py<PyAny>) -> PyResult<Trace> {
        let raised = Raised::default();
        let input = BufReader::with_capacity(READ_BYTES, Input { file, raised: raised.clone() });
        let reader = TraceReader::new(input).map_err(|error| refused(&raised, &error))?;
        Ok(Trace { reader: Mutex::new(reader), raised })
    }

    /// At most so many of the next rows; none at the end.
    fn rows(&self, py: Python<'_>, count: usize) -> PyResult<Vec<Fields>> {
        // The file is asked with the interpreter, by whoever has the reader.
        let read = py.detach(|| {
            let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
            let mut rows = Vec::new();
            while rows.len() < count {
                let Some(row) = reader.next_row()? else { break };
                rows.push(fields(&row, reader.files().name(row.file).into_owned()));
            }
            Ok(rows)
        });
        read.map_err(|error| refused(&self.raised, &error))
    }
}

fn fields(row: &Row, file: String) -> Fields {
    let Row { time, app, client, op, offset, bytes, target, issued, done, lost, .. } = *row;
    let (target, issued, done) = (target.map(|target| target.0), issued.map(seconds), done.map(seconds));
    (seconds(time), app.0, client.0, file, name_of(op), offset, bytes, target, issued, done, lost)
}

/// What the file has raised, or else what is wrong with the trace.
fn refused(raised: &Raised, error: &TraceError) -> PyErr {
    raised.take().unwrap_or_else(|| PyValueError::new_err(error.to_string()))
}
