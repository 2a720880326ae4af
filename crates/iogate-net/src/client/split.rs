//! A transfer that goes out as several requests, and becomes one again.

use std::io;
use std::sync::{Mutex, PoisonError};

use iogate_core::Op;
use iogate_engine::store::{Io, IoDone, Segment};

/// A part of a transfer.
#[derive(Debug)]
pub(super) struct Part {
    /// Which server it goes to.
    pub(super) server: usize,
    /// First byte in the file.
    pub(super) offset: u64,
    pub(super) bytes: u32,
    pub(super) segments: Vec<Segment>,
}

/// Cuts a transfer into parts of at most `bytes_max` bytes that each go to one server. `server_of` says which server
/// an offset belongs to, and where that ends.
pub(super) fn parts(io: &Io, bytes_max: u32, server_of: impl Fn(u64) -> (usize, u64)) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut offset = io.offset;
    for segment in &io.segments {
        let mut rest = *segment;
        while rest.bytes > 0 {
            let (server, end) = server_of(offset);
            let mut bytes = usize::try_from(end - offset).map_or(rest.bytes, |left| left.min(rest.bytes));
            let part = match parts.last_mut() {
                Some(part) if part.server == server && part.bytes < bytes_max => part,
                _ => {
                    parts.push(Part { server, offset, bytes: 0, segments: Vec::new() });
                    let last = parts.len() - 1;
                    &mut parts[last]
                }
            };
            bytes = bytes.min((bytes_max - part.bytes) as usize);
            let piece = Segment { memory: rest.memory, bytes };
            match part.segments.last_mut() {
                // SAFETY (of `wrapping_add`): compared only.
                Some(last) if last.memory.wrapping_add(last.bytes) == piece.memory => last.bytes += bytes,
                _ => part.segments.push(piece),
            }
            part.bytes += bytes as u32;
            rest = Segment { memory: rest.memory.wrapping_add(bytes), bytes: rest.bytes - bytes };
            offset += bytes as u64;
        }
    }
    parts
}

/// A transfer that waits for its parts.
pub(super) struct Join {
    waiting: Mutex<Option<Waiting>>,
}

struct Waiting {
    io: Io,
    done: IoDone,
    /// What each part is to transfer, and its result.
    results: Vec<(u32, Option<io::Result<u64>>)>,
    left: usize,
}

impl Join {
    pub(super) fn new(io: Io, done: IoDone, parts: &[Part]) -> Join {
        let results: Vec<_> = parts.iter().map(|part| (part.bytes, None)).collect();
        let left = results.len();
        Join { waiting: Mutex::new(Some(Waiting { io, done, results, left })) }
    }

    /// A part is done; with the last one, the transfer is.
    pub(super) fn arrive(&self, index: usize, result: io::Result<u64>) {
        let mut slot = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = slot.as_mut() else { return };
        waiting.results[index].1 = Some(result);
        waiting.left -= 1;
        if waiting.left > 0 {
            return;
        }
        let Some(Waiting { io, done, results, .. }) = slot.take() else { return };
        drop(slot);
        let result = joined(io.op, results);
        done(io, result);
    }
}

/// The bytes before the first part that is not whole. An error is one of a read anywhere, of a write at its first byte.
fn joined(op: Op, results: Vec<(u32, Option<io::Result<u64>>)>) -> io::Result<u64> {
    let (mut total, mut is_whole) = (0, true);
    for (bytes, result) in results {
        match result.unwrap_or(Ok(0)) {
            Ok(got) if is_whole => {
                total += got;
                is_whole = got == u64::from(bytes);
            }
            Ok(_) => {}
            Err(error) if op == Op::Read || (is_whole && total == 0) => return Err(error),
            Err(_) => is_whole = false,
        }
    }
    Ok(total)
}
