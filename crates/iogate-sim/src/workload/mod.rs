//! What the processes of applications do, step by step. The simulator and `iogate bench` run the same steps.

mod accesses;
mod collective;
mod division;
mod files;
pub mod jobs;
mod program;

use iogate_core::{FileId, Op, Span};

use crate::scenario::{App, Pattern, Sharing};

pub use files::{file_end, file_id, file_names, files_needed, trace_file_id};
pub use program::Program;

/// Bytes that all processes of an application access in one iteration.
pub fn iteration_bytes(app: &App) -> u64 {
    let each = |bytes: u64| bytes.saturating_mul(app.processes.into());
    match &app.workload.pattern {
        Pattern::Contiguous { sharing: Sharing::PerProcess, bytes, .. } | Pattern::Random { bytes, .. } => {
            each(*bytes)
        }
        Pattern::Trace { rows, .. } => rows.iter().flatten().map(|row| u64::from(row.bytes)).sum(),
        pattern => division::Division::of(pattern, app.processes).total,
    }
}

/// What a process does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Computes for so long.
    Compute(Span),
    /// Issues a call. It waits first while as many calls as [`crate::scenario::Workload::outstanding`] permits are in progress.
    Call(Call),
    /// Waits until all its calls are complete.
    Finish,
    /// Waits until all processes of the application are here.
    Barrier,
    /// Sends bytes to another process of the application, and does not wait.
    Send {
        /// Its rank.
        to: u32,
        /// How many bytes.
        bytes: u64,
    },
    /// Waits until so many messages (by [`Step::Send`]) have come in since the start, those counted by earlier steps included.
    Receive {
        /// How many, in total since the process began.
        messages: u64,
    },
    /// The I/O of an iteration begins (`true`) or has ended (`false`): for measuring only. It takes no time.
    Phase(bool),
    /// Waits until so long after the application's start (at once, if that has passed).
    Until(Span),
    /// Ends.
    End,
}

/// One read or write call: `count` ranges of `bytes` each, `stride` bytes from start to start; all in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte of the first range.
    pub offset: u64,
    /// Length of each range, not zero.
    pub bytes: u32,
    /// From the start of a range to the start of the next; not less than `bytes`.
    pub stride: u64,
    /// How many ranges, not zero.
    pub count: u32,
}

impl Call {
    /// Bytes of all ranges together.
    pub fn total_bytes(&self) -> u64 {
        u64::from(self.bytes) * u64::from(self.count)
    }
}
