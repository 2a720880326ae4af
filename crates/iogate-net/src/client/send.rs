//! What leaves a client: the requests that wait, as many in one call as fit, with data from where it is.

use std::io::{self, IoSlice};

use iogate_core::wire::{GROUPS_UNKNOWN, REQUEST_HEADER_BYTES, RequestHeader};
use iogate_engine::store::Segment;

use super::call::Call;
use crate::transport::Socket;

/// Most pieces of memory in one call to the kernel.
const PIECES_MAX: usize = 64;
/// With so much to write, more can wait for the next call.
const BATCH_BYTES: usize = 1 << 20;

/// Messages being written.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Headers and fields of all messages.
    heads: Vec<u8>,
    pieces: Vec<Piece>,
    /// Pieces written, and bytes of the next.
    written: usize,
    offset: usize,
    bytes: usize,
    /// One past the last message's id.
    pub(super) end: u64,
}

enum Piece {
    Heads { start: usize, end: usize },
    Memory(Segment),
}

impl Outgoing {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether another message may come along.
    pub(super) fn has_room(&self) -> bool {
        self.pieces.len() < PIECES_MAX && self.bytes < BATCH_BYTES
    }

    /// Appends a message.
    pub(super) fn add(&mut self, id: u64, acked: u64, call: &Call) {
        let start = self.heads.len();
        self.heads.resize(start + REQUEST_HEADER_BYTES, 0);
        // What a read or a write needs was checked when its file was opened.
        let groups = if call.is_read() || call.is_write() { None } else { call.caller.groups.list() };
        self.heads.extend(groups.into_iter().flatten().flat_map(|group| group.to_le_bytes()));
        call.encode(&mut self.heads);
        let end = self.heads.len();
        let payload = call.payload_bytes();
        let header = RequestHeader {
            fields: (end - start - REQUEST_HEADER_BYTES) as u16,
            payload: payload as u32,
            kind: call.kind,
            id,
            acked,
            uid: call.caller.uid,
            gid: call.caller.gid,
            groups: groups.map_or(GROUPS_UNKNOWN, |groups| groups.len() as u16),
            origin: call.caller.origin,
        };
        self.heads[start..start + REQUEST_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        match self.pieces.last_mut() {
            Some(Piece::Heads { end: last, .. }) => *last = end,
            _ => self.pieces.push(Piece::Heads { start, end }),
        }
        if payload > 0 {
            self.pieces.extend(call.memory.segments().iter().map(|segment| Piece::Memory(*segment)));
        }
        self.bytes += end - start + payload;
        self.end = id + 1;
    }

    /// Writes once; true if nothing is left.
    pub(super) fn write(&mut self, socket: &dyn Socket) -> io::Result<bool> {
        let mut slices = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (slot, piece) in slices.iter_mut().zip(&self.pieces[self.written..]) {
            let skip = if count == 0 { self.offset } else { 0 };
            *slot = IoSlice::new(match piece {
                Piece::Heads { start, end } => &self.heads[start + skip..*end],
                // SAFETY: the memory belongs to a call that is neither answered nor given up before it is written,
                // and a call's memory is valid and unchanged until then.
                Piece::Memory(Segment { memory, bytes }) => unsafe {
                    std::slice::from_raw_parts(memory.add(skip), bytes - skip)
                },
            });
            count += 1;
        }
        let written = socket.write(&slices[..count])?;
        self.advance(written);
        Ok(self.is_empty())
    }

    fn advance(&mut self, mut count: usize) {
        while let Some(piece) = self.pieces.get(self.written) {
            let bytes = match piece {
                Piece::Heads { start, end } => end - start,
                Piece::Memory(segment) => segment.bytes,
            };
            let left = bytes - self.offset;
            if count < left {
                self.offset += count;
                return;
            }
            count -= left;
            self.written += 1;
            self.offset = 0;
        }
        self.heads.clear();
        self.pieces.clear();
        (self.written, self.offset, self.bytes) = (0, 0, 0);
    }
}
