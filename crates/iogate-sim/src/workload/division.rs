//! How the processes of an application divide among them the part of a file that an iteration covers.
//!
//! Every regular pattern is a grid: lines of equally long pieces, a process to a column. Contiguous ranges are one line; tiles
//! have several lines to a process, and the next processes follow below. Where a process's bytes are not a multiple of its
//! pieces, the rest of all processes makes one more line of shorter pieces, so that an iteration leaves no hole.

use crate::scenario::{Pattern, Sharing};

/// Lines of pieces of `width` bytes. Process `r` has column `r % columns` of `height` lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    start: u64,
    columns: u64,
    /// Bytes of a piece.
    pub(super) width: u64,
    /// Lines of a process.
    pub(super) height: u64,
}

impl Grid {
    /// Bytes of a line: from the start of a process's piece to the start of its next.
    pub(super) fn line(&self) -> u64 {
        self.columns.saturating_mul(self.width)
    }

    /// Where the first piece of process `rank` begins.
    pub(super) fn first(&self, rank: u64) -> u64 {
        self.band(rank) + rank % self.columns * self.width
    }

    /// Where the lines of process `rank` begin.
    fn band(&self, rank: u64) -> u64 {
        self.start + rank / self.columns * self.height * self.line()
    }

    /// How many bytes of process `rank` lie from `start` to `end`.
    fn share(&self, rank: u64, start: u64, end: u64) -> u64 {
        let (line, band, first) = (self.line(), self.band(rank), rank % self.columns * self.width);
        let before = |at: u64| {
            let inside = at.saturating_sub(band).min(self.height * line);
            if inside == 0 {
                return 0;
            }
            let in_line = (inside % line).saturating_sub(first).min(self.width);
            inside / line * self.width + in_line
        };
        before(end) - before(start)
    }
}

/// What each process accesses of the `total` bytes of an iteration; offsets count from where the iteration's part begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Division {
    /// The pieces of full length.
    pub(super) body: Grid,
    /// The line of shorter pieces at the end; of width 0 if there are none.
    pub(super) tail: Grid,
    /// Bytes from the start of an iteration's part to the start of the next one's; the greatest number if there are too many.
    pub(super) total: u64,
}

impl Division {
    /// The division of a regular pattern: with a file for each process, that of one file. Random calls and traces have none; theirs
    /// is empty.
    pub(super) fn of(pattern: &Pattern, processes: u32) -> Division {
        let processes = u64::from(processes.max(1));
        match *pattern {
            Pattern::Contiguous { sharing: Sharing::Shared, bytes, .. } => {
                Division::by_turns(processes, bytes, bytes)
            }
            Pattern::Contiguous { sharing: Sharing::PerProcess, bytes, .. } => {
                Division::by_turns(1, bytes, bytes)
            }
            Pattern::Strided { bytes, request } => Division::by_turns(processes, bytes, request.into()),
            Pattern::Noncontiguous { bytes, piece, .. } => Division::by_turns(processes, bytes, piece.into()),
            Pattern::Tile { columns, width, height, element } => {
                let columns = u64::from(columns.max(1));
                let width = u64::from(width) * u64::from(element);
                let body = Grid { start: 0, columns, width, height: height.into() };
                let total =
                    processes.div_ceil(columns).saturating_mul(body.height).saturating_mul(body.line());
                let tail = Grid { start: total, columns, width: 0, height: 0 };
                Division { body, tail, total }
            }
            Pattern::Random { .. } | Pattern::Trace { .. } => Division::by_turns(processes, 0, 1),
        }
    }

    /// `bytes` for each of `columns` processes, in pieces of `piece` bytes by turns.
    fn by_turns(columns: u64, bytes: u64, piece: u64) -> Division {
        let width = piece.max(1);
        let body = Grid { start: 0, columns, width, height: bytes / width };
        let start = body.height.saturating_mul(body.line());
        let tail = Grid { start, columns, width: bytes % width, height: 1 };
        Division { body, tail, total: columns.saturating_mul(bytes) }
    }

    /// How many bytes of process `rank` lie from `start` to `end`.
    pub(super) fn share(&self, rank: u64, start: u64, end: u64) -> u64 {
        if start >= end {
            return 0;
        }
        // Most divisions have no shorter pieces.
        let tail = if self.tail.width == 0 { 0 } else { self.tail.share(rank, start, end) };
        self.body.share(rank, start, end) + tail
    }
}
