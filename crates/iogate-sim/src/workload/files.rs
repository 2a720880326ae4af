//! The files of an application.

use std::collections::BTreeMap;

use iogate_core::{FileId, Op};

use super::division::Division;
use crate::scenario::{App, Pattern, Sharing};

/// File `index` of an application: 0 for a shared file, the rank for a file of each process. `files` is [`App::files`].
pub fn file_id(files: u32, index: u32) -> FileId {
    FileId(u64::from(files) << 32 | u64::from(index))
}

/// File `file` of a trace that an application replays: the id with `files` xor'ed into its upper half. So the numbers below 2^32 and
/// the words of two traces stay apart, unless the applications have the same `files`.
pub fn trace_file_id(files: u32, file: FileId) -> FileId {
    FileId(file.0 ^ u64::from(files) << 32)
}

/// The files that `app` touches, in order of their ids, and how many bytes each must have for what `app` reads: 0 where it only
/// writes.
pub fn files_needed(app: &App) -> Vec<(FileId, u64)> {
    let workload = &app.workload;
    let length = |bytes| if workload.op == Op::Read { bytes } else { 0 };
    let one_or_each = |sharing, bytes: u64| match sharing {
        Sharing::Shared => vec![(file_id(app.files, 0), length(bytes))],
        Sharing::PerProcess => {
            (0..app.processes).map(|rank| (file_id(app.files, rank), length(bytes))).collect()
        }
    };
    match workload.pattern {
        Pattern::Random { sharing, file_bytes, .. } => one_or_each(sharing, file_bytes),
        Pattern::Trace { ref rows, .. } => {
            let mut files = BTreeMap::new();
            for row in rows.iter().take(app.processes as usize).flatten() {
                let end = if row.op == Op::Read { row.offset.saturating_add(row.bytes.into()) } else { 0 };
                let longest = files.entry(trace_file_id(app.files, row.file)).or_insert(0);
                *longest = end.max(*longest);
            }
            files.into_iter().collect()
        }
        Pattern::Contiguous { sharing, .. } => one_or_each(sharing, file_end(app).unwrap_or(FILE_BYTES_MAX)),
        Pattern::Strided { .. } | Pattern::Tile { .. } | Pattern::Noncontiguous { .. } => {
            one_or_each(Sharing::Shared, file_end(app).unwrap_or(FILE_BYTES_MAX))
        }
    }
}

/// The files that `app` touches, each with a name for people: the application's, and the rank of whose it is, or its number in the trace.
pub fn file_names(app: &App) -> Vec<(FileId, String)> {
    let name = |(file, _): (FileId, u64)| {
        let name = match app.workload.pattern {
            Pattern::Contiguous { sharing: Sharing::PerProcess, .. }
            | Pattern::Random { sharing: Sharing::PerProcess, .. } => {
                format!("{}: file of rank {}", app.name, file.0 & u64::from(u32::MAX))
            }
            Pattern::Trace { .. } => format!("{}: file {}", app.name, trace_file_id(app.files, file)),
            _ => format!("{}: file", app.name),
        };
        (file, name)
    };
    files_needed(app).into_iter().map(name).collect()
}

/// The longest file that a system call can reach the end of.
const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// Where the last byte that `app` can access in any of its files ends; `None` if no file can be so long (63 bits), so that no
/// [`Program`](super::Program) can be made for it.
pub fn file_end(app: &App) -> Option<u64> {
    let end = match app.workload.pattern {
        Pattern::Random { file_bytes, .. } => file_bytes,
        Pattern::Trace { ref rows, .. } => {
            let ends = rows.iter().flatten().map(|row| row.offset.saturating_add(row.bytes.into()));
            ends.max().unwrap_or(0)
        }
        _ => {
            let iteration = Division::of(&app.workload.pattern, app.processes).total;
            iteration.saturating_mul(app.workload.iterations.into())
        }
    };
    (end <= FILE_BYTES_MAX).then_some(end)
}
