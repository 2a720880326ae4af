//! A flash drive.
//!
//! **Modelled:** channels with dies and planes behind them; reading a page and sending it over its channel,
//! pages of one request in parallel over channels and dies; the interface; command overhead; read-ahead of a
//! sequential reader into the drive's memory, so that small sequential reads are faster than small random
//! ones; a write buffer, which takes writes at the speed of the interface and is emptied at the speed at
//! which all dies together program pages (a log-structured mapping spreads every write over all of them,
//! whatever its address, hence random writes are as fast as sequential ones while they are whole mapping
//! units); the reading of a partly written unit; a read that has to wait for the program operation on its
//! die; several reads at once, each of which waits for the dies that it needs, while the interface takes one command and its
//! data after the other; and, where the drive has no room for its whole mapping table, the read of a mapping page when an
//! address is far from the recent ones.
//!
//! **Left out:** garbage collection, erasing and wear (the drive is as if freshly trimmed: sustained random
//! writes of a full drive are slower), compression, reads served from the write buffer, a sequential read
//! of what was written in random order (which a real mapping scatters), program suspend.
//!
//! **Numbers** come from data sheets of drives and of the flash chips in them, by way of [`FlashConfig`]:
//! see the presets. The structure follows Agrawal et al., Design tradeoffs for SSD performance, USENIX ATC 2008.

use alloc::boxed::Box;
use alloc::vec;

use super::{Device, Transfer, for_each_piece, transfer_ns};
use crate::request::Op;
use crate::time::{Span, Time};

/// Commands at once: those of native command queueing, which drives of this kind have.
const SLOTS: u32 = 32;
/// Mapping pages whose presence is tracked, where the table does not fit.
const MAP_SLOTS: u64 = 64;

/// What data sheets say of a flash drive. Zero counts and sizes are brought to 1, rates to at least 1 MB/s,
/// the capacity to at most 1 PB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashConfig {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Channels from the controller to the dies.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes of a die, which program at the same time.
    pub planes: u32,
    /// Bytes of a page of one plane.
    pub page_bytes: u64,
    /// Time to read a page from the cells.
    pub page_read: Span,
    /// Time to program a page in each plane of a die.
    pub page_program: Span,
    /// Rate of one channel.
    pub channel_bytes_per_s: u64,
    /// Rate between host and drive.
    pub interface_bytes_per_s: u64,
    /// What each command costs.
    pub command_overhead: Span,
    /// Most bytes written and not yet programmed.
    pub write_buffer_bytes: u64,
    /// How far a sequential reader is read ahead of.
    pub read_ahead_bytes: u64,
    /// Bytes that one entry of the mapping table maps; a write of a part of them reads the rest.
    pub map_unit_bytes: u64,
    /// Bytes of the drive that one page of the mapping table maps, if the drive cannot hold the whole table
    /// in memory; 0 if it can.
    pub map_page_span_bytes: u64,
}

/// A flash drive.
#[derive(Clone, Debug)]
pub struct Flash {
    config: FlashConfig,
    capacity: u64,
    /// Rate at which all dies program.
    program_bytes_per_s: u64,
    /// Rate at which all channels read.
    read_bytes_per_s: u64,
    /// When everything in the write buffer will have been programmed.
    programmed_ns: u64,
    write_end: u64,
    /// How far a sequential reader has been read ahead of, and when that is done.
    ahead_from: u64,
    ahead_until: u64,
    ahead_until_ns: u64,
    /// When each die will have read what it was asked for.
    die_read_ns: Box<[u64]>,
    /// When the interface will have moved all commands and their data.
    interface_ns: u64,
    /// Mapping pages in memory, by their number modulo the slots.
    map_pages: Box<[u64]>,
}

impl Flash {
    /// A drive with an empty buffer.
    pub fn new(config: FlashConfig) -> Flash {
        let page_bytes = config.page_bytes.clamp(1, 1 << 30);
        let config = FlashConfig {
            capacity: config.capacity.clamp(1, 1_000_000_000_000_000),
            channels: config.channels.clamp(1, 1 << 10),
            dies_per_channel: config.dies_per_channel.clamp(1, 1 << 10),
            planes: config.planes.clamp(1, 1 << 10),
            page_bytes,
            page_read: Span::from_nanos(config.page_read.as_nanos().clamp(1, 1_000_000_000)),
            page_program: Span::from_nanos(config.page_program.as_nanos().clamp(1, 1_000_000_000)),
            channel_bytes_per_s: config.channel_bytes_per_s.max(1_000_000),
            interface_bytes_per_s: config.interface_bytes_per_s.max(1_000_000),
            map_unit_bytes: config.map_unit_bytes.clamp(1, 1 << 30),
            ..config
        };
        let (channels, dies) = (u64::from(config.channels), u64::from(config.dies_per_channel));
        let die_bytes = u64::from(config.planes) * page_bytes;
        let die_transfer_ns = transfer_ns(die_bytes, config.channel_bytes_per_s);
        // Rates of all dies: each reads or programs its planes' pages, then moves them over its channel; and
        // a channel moves one die's pages at a time.
        let rate = |cell_ns: u64| {
            let period_ns = (cell_ns + die_transfer_ns).max(dies * die_transfer_ns);
            let bytes = u128::from(channels * dies * die_bytes);
            (bytes * 1_000_000_000 / u128::from(period_ns)).clamp(1_000_000, 1 << 50) as u64
        };
        Flash {
            capacity: config.capacity,
            program_bytes_per_s: rate(config.page_program.as_nanos()),
            read_bytes_per_s: rate(config.page_read.as_nanos()),
            programmed_ns: 0,
            write_end: 0,
            ahead_from: u64::MAX,
            ahead_until: 0,
            ahead_until_ns: 0,
            die_read_ns: vec![0; (channels * dies) as usize].into_boxed_slice(),
            interface_ns: 0,
            map_pages: if config.map_page_span_bytes == 0 {
                Box::default()
            } else {
                vec![u64::MAX; MAP_SLOTS as usize].into_boxed_slice()
            },
            config,
        }
    }

    /// Time to have the mapping of `address` in memory.
    fn map_ns(&mut self, address: u64) -> u64 {
        if self.map_pages.is_empty() {
            return 0;
        }
        let page = address / self.config.map_page_span_bytes;
        let slot = &mut self.map_pages[(page % MAP_SLOTS) as usize];
        if core::mem::replace(slot, page) == page { 0 } else { self.config.page_read.as_nanos() }
    }

    /// How long a read that reaches the dies at `ns` waits for one that is being programmed.
    fn program_wait_ns(&self, ns: u64) -> u64 {
        self.programmed_ns.saturating_sub(ns) % self.config.page_program.as_nanos()
    }

    /// The dies that hold `address..end`, as two ranges of their numbers: pages are dealt out over them in turn.
    fn dies(&self, address: u64, end: u64) -> [core::ops::Range<usize>; 2] {
        let dies = self.die_read_ns.len() as u64;
        let (first, last) = (address / self.config.page_bytes, (end - 1) / self.config.page_bytes);
        let (begin, pages) = ((first % dies) as usize, (last - first + 1).min(dies) as usize);
        let beyond = (begin + pages).saturating_sub(dies as usize);
        [begin..begin + pages - beyond, 0..beyond]
    }

    /// When the dies that hold `address..end` have read what was asked of them before.
    fn dies_free_ns(&self, address: u64, end: u64) -> u64 {
        let dies = self.dies(address, end).into_iter().flat_map(|range| &self.die_read_ns[range]);
        dies.copied().max().unwrap_or(0)
    }

    /// The dies that hold `address..end` read from `ns` on. What is sent is no longer in a die.
    fn keep_dies(&mut self, ns: u64, address: u64, end: u64, sent_ns: u64) {
        let dies = self.die_read_ns.len() as u64;
        let pages = (end - 1) / self.config.page_bytes - address / self.config.page_bytes + 1;
        let rounds_ns = pages.div_ceil(dies).saturating_mul(self.config.page_read.as_nanos());
        let until_ns = ns.saturating_add(rounds_ns).min(sent_ns);
        for range in self.dies(address, end) {
            self.die_read_ns[range].fill(until_ns);
        }
    }

    /// When the interface has moved a command of `bytes` that comes at `now_ns`, after all before it.
    fn move_ns(&mut self, now_ns: u64, bytes: u64) -> u64 {
        self.interface_ns = self
            .interface_ns
            .max(now_ns)
            .saturating_add(self.config.command_overhead.as_nanos())
            .saturating_add(transfer_ns(bytes, self.config.interface_bytes_per_s));
        self.interface_ns
    }

    /// Time to send the pages of `address..end`, over as many channels as they are on.
    fn channels_ns(&self, address: u64, end: u64) -> u64 {
        let page = self.config.page_bytes;
        let pages = (end - 1) / page - address / page + 1;
        let busiest = pages.div_ceil(u64::from(self.config.channels)) * page;
        transfer_ns(busiest.min(end - address), self.config.channel_bytes_per_s)
            .max(transfer_ns(end - address, self.read_bytes_per_s.max(self.config.channel_bytes_per_s)))
    }

    fn read(&mut self, now_ns: u64, address: u64, end: u64) -> u64 {
        let begin_ns = now_ns.saturating_add(self.config.command_overhead.as_nanos());
        let sent = transfer_ns(end - address, self.config.interface_bytes_per_s);
        let (ready_ns, streamed_ns, streamed) = if self.ahead_from == address {
            // A reader that goes on where it stopped: what is ahead of it is on its way or there.
            let streamed_ns = if self.ahead_until_ns >= begin_ns || end <= self.ahead_until {
                self.ahead_until_ns
            } else {
                begin_ns.saturating_add(self.config.page_read.as_nanos())
            };
            if end <= self.ahead_until {
                let missing_ns = transfer_ns(self.ahead_until - end, self.read_bytes_per_s);
                (streamed_ns.saturating_sub(missing_ns), streamed_ns.max(begin_ns), self.ahead_until)
            } else {
                let more_ns = transfer_ns(end - self.ahead_until, self.read_bytes_per_s);
                let ready_ns = streamed_ns.saturating_add(more_ns);
                (ready_ns, ready_ns, end)
            }
        } else {
            let cells_ns = self.map_ns(address) + self.program_wait_ns(begin_ns);
            let free_ns = begin_ns.saturating_add(cells_ns).max(self.dies_free_ns(address, end));
            let first_ns = free_ns.saturating_add(self.config.page_read.as_nanos());
            let ready_ns = first_ns.saturating_add(self.channels_ns(address, end).max(sent));
            self.keep_dies(free_ns, address, end, ready_ns);
            (ready_ns, ready_ns, end)
        };
        self.ahead_from = end;
        self.ahead_until = streamed.max(end.saturating_add(self.config.read_ahead_bytes).min(self.capacity));
        let ahead_ns = transfer_ns(self.ahead_until - streamed, self.read_bytes_per_s);
        self.ahead_until_ns = streamed_ns.saturating_add(ahead_ns);
        self.move_ns(now_ns, end - address).max(ready_ns)
    }

    fn write(&mut self, now_ns: u64, address: u64, end: u64) -> u64 {
        let begin_ns = now_ns.saturating_add(self.config.command_overhead.as_nanos());
        let unit = self.config.map_unit_bytes;
        // A unit that the previous write began is still in the buffer; any other that is written in part has
        // its rest read first, on one of the dies.
        let (first_unit, parts) = if self.write_end == address {
            (address.div_ceil(unit), 0)
        } else {
            let parts =
                u64::from(!address.is_multiple_of(unit)) + u64::from(!self.write_end.is_multiple_of(unit));
            (address / unit, parts)
        };
        let dies = u64::from(self.config.channels * self.config.dies_per_channel);
        let reread_ns = parts * self.config.page_read.as_nanos() / dies;
        let units = end.div_ceil(unit).saturating_sub(first_unit);
        self.write_end = end;
        let program_ns = transfer_ns(units * unit, self.program_bytes_per_s) + reread_ns;
        self.programmed_ns = self.programmed_ns.max(begin_ns).saturating_add(program_ns);
        let buffered_ns = transfer_ns(self.config.write_buffer_bytes, self.program_bytes_per_s);
        self.move_ns(now_ns, end - address).max(self.programmed_ns.saturating_sub(buffered_ns))
    }
}

impl Device for Flash {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        let mut ns = now.as_nanos();
        for_each_piece(self.capacity, transfer, |address, end| {
            ns = match transfer.op {
                Op::Read => self.read(ns, address, end),
                Op::Write => self.write(ns, address, end),
            };
        });
        Time::from_nanos(ns).since(now)
    }

    fn flush(&mut self, now: Time) -> Span {
        let done = now + self.config.command_overhead;
        Time::from_nanos(self.programmed_ns).max(done).since(now)
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn repositions(&self) -> u64 {
        0
    }

    fn slots(&self) -> u32 {
        SLOTS
    }
}
