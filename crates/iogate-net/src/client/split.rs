//! A transfer that goes out as several requests, and becomes one again.

use std::io;
use std::sync::Mutex;

use iogate_core::Op;
use iogate_engine::lock;
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
        let mut slot = lock(&self.waiting);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(bytes: u32, got: u64) -> (u32, Option<io::Result<u64>>) {
        (bytes, Some(Ok(got)))
    }

    fn failed(bytes: u32) -> (u32, Option<io::Result<u64>>) {
        (bytes, Some(Err(io::Error::from_raw_os_error(libc::EIO))))
    }

    #[test]
    fn what_counts_is_before_the_first_part_that_is_not_whole() {
        assert_eq!(joined(Op::Read, vec![ok(10, 10), ok(10, 4), ok(10, 0)]).unwrap(), 14);
        assert_eq!(joined(Op::Read, vec![ok(10, 4), ok(10, 10)]).unwrap(), 4, "the file has grown meanwhile");
        assert_eq!(joined(Op::Write, vec![ok(10, 10), failed(10), ok(10, 10)]).unwrap(), 10);
        assert!(joined(Op::Write, vec![failed(10), ok(10, 10)]).is_err());
        assert!(
            joined(Op::Read, vec![ok(10, 10), failed(10)]).is_err(),
            "a short read would be the end of the file"
        );
    }

    #[test]
    fn parts_end_where_the_server_changes_and_where_they_are_long_enough() {
        #[derive(Debug)]
        struct NoFile;
        impl iogate_engine::store::StoreFile for NoFile {
            fn id(&self) -> iogate_core::FileId {
                iogate_core::FileId(1)
            }
        }
        let mut memory = [0u8; 100];
        let start = memory.as_mut_ptr();
        let segment = |at: usize, bytes| Segment { memory: start.wrapping_add(at), bytes };
        let io = Io {
            file: std::sync::Arc::new(NoFile),
            op: Op::Read,
            offset: 15,
            target: Default::default(),
            origin: Default::default(),
            extends: false,
            segments: vec![segment(50, 8), segment(0, 22)],
        };
        let server_of = |offset: u64| ((offset / 20 % 2) as usize, (offset / 20 + 1) * 20);
        let parts = parts(&io, 12, server_of);
        let found: Vec<_> = parts.iter().map(|part| (part.server, part.offset, part.bytes)).collect();
        assert_eq!(found, [(0, 15, 5), (1, 20, 12), (1, 32, 8), (0, 40, 5)]);
        let memory: Vec<Vec<(usize, usize)>> = parts
            .iter()
            .map(|part| part.segments.iter().map(|s| (s.memory as usize - start as usize, s.bytes)).collect())
            .collect();
        assert_eq!(memory, [vec![(50, 5)], vec![(55, 3), (0, 9)], vec![(9, 8)], vec![(17, 5)]]);
    }
}
