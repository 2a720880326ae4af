//! A solid-state drive down to its dies: NVMe, or SATA with the same flash behind it.
//!
//! **Charged:** dies behind channels. A read takes its page from the cells of the die that has it, one after the other on a die, then
//! sends it over the channel of the die; pages on several dies are read at the same time. A write is over when the drive's buffer has it
//! (which keeps it through a power failure, so a flush is nothing); the buffer is emptied to the dies in turn, and who finds it full
//! waits. A read that finds its die programming or erasing waits until that is suspended, and what is suspended ends later. A program
//! pays for the garbage collection that it causes: the pages moved (read and programmed again) for each that the host writes, and their
//! share of erasing. What is moved follows from a mapping with greedy victims (`ftl`) and the drive's spare flash, so it depends
//! on what has been written before: at first the drive has been filled in sequence; in its other state it has been written over at
//! random until that changes nothing any more. The host's link moves one command's data after the other; SATA also its commands.
//!
//! **Left out:** that a read finds its data in the buffer, reading ahead (a sheet's latency of sequential reads), channels' time of
//! programs (in the program time), mapping pages that do not fit the drive's memory, wear, read retries and refresh, hot and cold data
//! kept apart, an SLC cache, compression, throttling by heat. The mapping is sampled: one unit of many stands for all.
//!
//! **Sources:** the structure is MQSim's (Tavakkol et al., FAST 2018) and FEMU's (Li et al., FAST 2018); times of flash are MQSim's
//! defaults; sizes and rates are those of the drives' sheets. All are rows of [`super::PARAMETERS`].

mod ftl;

use alloc::boxed::Box;
use alloc::vec;

use self::ftl::Ftl;
use super::{Device, Transfer, for_each_piece, transfer_ns};
use crate::request::Op;
use crate::time::{Span, Time};

/// What a drive is made of. Zero counts and sizes are brought to 1, rates to at least 1 MB/s, the capacity to at most 1 PB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NvmeConfig {
    /// Capacity for the host, in bytes.
    pub capacity: u64,
    /// Flash in bytes: what is more than the capacity is spare.
    pub flash_bytes: u64,
    /// Channels from the controller to the dies.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Planes of a die, which program at the same time.
    pub planes: u32,
    /// Bytes of a page of one plane.
    pub page_bytes: u64,
    /// Pages of a block, which are erased together.
    pub block_pages: u32,
    /// Time to read a page from the cells.
    pub read: Span,
    /// Time to program a page in each plane of a die, its way over the channel included.
    pub program: Span,
    /// Time to erase a block in each plane of a die.
    pub erase: Span,
    /// How long it takes until a program or an erase is suspended for a read.
    pub suspend: Span,
    /// Rate of one channel.
    pub channel_bytes_per_s: u64,
    /// Rate between host and drive.
    pub link_bytes_per_s: u64,
    /// What each command costs the link.
    pub link_command: Span,
    /// What a read costs besides, while others go on.
    pub read_overhead: Span,
    /// What a write costs besides.
    pub write_overhead: Span,
    /// Most bytes written and not yet programmed.
    pub buffer_bytes: u64,
    /// Commands at once.
    pub slots: u32,
    /// What has been written before.
    pub state: NvmeState,
}

/// What has been written to a drive before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvmeState {
    /// Everything once, in sequence.
    Filled,
    /// Then everything over and over in small pieces at random places, until that changes nothing any more.
    Random,
}

/// Bytes of a unit of the mapping.
const UNIT: u64 = 4_096;

#[derive(Clone, Copy, Debug, Default)]
struct Die {
    /// When it will have read what it was asked for.
    read_ns: u64,
    /// When it will have programmed what it was given.
    program_ns: u64,
}

/// A solid-state drive.
#[derive(Clone, Debug)]
pub struct Nvme {
    config: NvmeConfig,
    dies: Box<[Die]>,
    /// When each channel will have moved what was read.
    channel_ns: Box<[u64]>,
    /// When the link will have moved what was given to it, in each direction.
    link_ns: [u64; 2],
    /// The die that is given the next page, and how much of that page there is.
    next_die: usize,
    partial: u64,
    write_end: u64,
    ftl: Ftl,
}

impl Nvme {
    /// An idle drive.
    pub fn new(config: NvmeConfig) -> Nvme {
        let time = |span: Span| Span::from_nanos(span.as_nanos().min(1_000_000_000));
        let capacity = config.capacity.clamp(UNIT, 1_000_000_000_000_000);
        let config = NvmeConfig {
            capacity,
            flash_bytes: config.flash_bytes.clamp(capacity, 2 * capacity),
            channels: config.channels.clamp(1, 1 << 8),
            dies_per_channel: config.dies_per_channel.clamp(1, 1 << 8),
            planes: config.planes.clamp(1, 1 << 6),
            page_bytes: config.page_bytes.clamp(UNIT, 1 << 20),
            block_pages: config.block_pages.max(1),
            read: time(config.read).max(Span::from_nanos(1)),
            program: time(config.program).max(Span::from_nanos(1)),
            erase: time(config.erase),
            suspend: time(config.suspend),
            channel_bytes_per_s: config.channel_bytes_per_s.max(1_000_000),
            link_bytes_per_s: config.link_bytes_per_s.max(1_000_000),
            slots: config.slots.max(1),
            ..config
        };
        let dies = (config.channels * config.dies_per_channel) as usize;
        Nvme {
            dies: vec![Die::default(); dies].into_boxed_slice(),
            channel_ns: vec![0; config.channels as usize].into_boxed_slice(),
            link_ns: [0; 2],
            next_die: 0,
            partial: 0,
            write_end: u64::MAX,
            ftl: Ftl::new(capacity / UNIT, config.flash_bytes / UNIT, config.state),
            config,
        }
    }

    /// When the link has moved `bytes` of a command that comes at `ns`, after all before it in the same direction.
    fn move_ns(&mut self, ns: u64, bytes: u64, op: Op) -> u64 {
        let link = &mut self.link_ns[usize::from(op == Op::Write)];
        let taken = self.config.link_command.as_nanos();
        *link = (*link)
            .max(ns)
            .saturating_add(taken)
            .saturating_add(transfer_ns(bytes, self.config.link_bytes_per_s));
        *link
    }

    fn read(&mut self, now_ns: u64, address: u64, end: u64) -> u64 {
        let NvmeConfig { page_bytes, channels, .. } = self.config;
        let (cell_ns, suspend_ns) = (self.config.read.as_nanos(), self.config.suspend.as_nanos());
        let begin_ns = now_ns.saturating_add(self.config.read_overhead.as_nanos());
        let dies = self.dies.len() as u64;
        let (first, last) = (address / page_bytes, (end - 1) / page_bytes);
        let pages = last - first + 1;
        let mut ready_ns = 0;
        // Pages are dealt out over the dies in turn, so each of them has as many, or one less.
        for index in 0..pages.min(dies) {
            let own = (pages - index).div_ceil(dies);
            let at = ((first + index) % dies) as usize;
            let die = &mut self.dies[at];
            let mut start_ns = die.read_ns.max(begin_ns);
            let busy = die.program_ns > start_ns;
            if busy && die.read_ns < start_ns {
                start_ns += suspend_ns.min(die.program_ns - start_ns);
            }
            die.read_ns = start_ns.saturating_add(own.saturating_mul(cell_ns));
            if busy {
                die.program_ns = die.program_ns.saturating_add(die.read_ns - start_ns);
            }
            let from = (first + index) * page_bytes;
            let bytes = match own {
                1 => (from + page_bytes).min(end) - from.max(address),
                _ => own.saturating_mul(page_bytes).min(end - address),
            };
            let channel = &mut self.channel_ns[at % channels as usize];
            let moved_ns = transfer_ns(bytes, self.config.channel_bytes_per_s);
            *channel = (*channel).max(start_ns.saturating_add(cell_ns)).saturating_add(moved_ns);
            ready_ns = ready_ns.max(*channel).max(die.read_ns);
        }
        // What is read goes over the link page by page as it comes: the last of it when all is there.
        let tail_ns = transfer_ns((end - address).min(page_bytes), self.config.link_bytes_per_s);
        self.move_ns(begin_ns, end - address, Op::Read).max(ready_ns.saturating_add(tail_ns))
    }

    /// What a page of a die costs, garbage collection included.
    fn program_ns(&self) -> u64 {
        let moved = self.ftl.moved();
        let (read_ns, program_ns) = (self.config.read.as_nanos(), self.config.program.as_nanos());
        let erase_ns = self.config.erase.as_nanos() * (1_000 + moved) / 1_000;
        program_ns + (read_ns + program_ns) * moved / 1_000 + erase_ns / u64::from(self.config.block_pages)
    }

    fn write(&mut self, now_ns: u64, address: u64, end: u64) -> u64 {
        let begin_ns = now_ns.saturating_add(self.config.write_overhead.as_nanos());
        let die_page = u64::from(self.config.planes) * self.config.page_bytes;
        // A unit of which a part is written is written whole; one that the write before began is still in the buffer.
        let first = if self.write_end == address { address.div_ceil(UNIT) } else { address / UNIT };
        let units = end.div_ceil(UNIT).saturating_sub(first);
        self.write_end = end;
        self.ftl.write(first, units);
        let moved_ns = self.move_ns(begin_ns, end - address, Op::Write);
        self.partial += units * UNIT;
        let pages = self.partial / die_page;
        self.partial %= die_page;
        let (dies, cost_ns) = (self.dies.len() as u64, self.program_ns());
        // Pages of each die that the buffer holds beside the one that is being programmed.
        let held_ns = (self.config.buffer_bytes / (dies * die_page)).saturating_mul(cost_ns);
        let mut room_ns = 0;
        for index in 0..pages.min(dies) {
            let own = (pages - index).div_ceil(dies);
            let die = &mut self.dies[(self.next_die + index as usize) % dies as usize];
            die.program_ns = die.program_ns.max(begin_ns).saturating_add(own.saturating_mul(cost_ns));
            room_ns = room_ns.max(die.program_ns.saturating_sub(held_ns));
        }
        self.next_die = ((self.next_die as u64 + pages) % dies) as usize;
        moved_ns.max(room_ns)
    }
}

impl Device for Nvme {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        let mut ns = now.as_nanos();
        for_each_piece(self.config.capacity, transfer, |address, end| {
            ns = match transfer.op {
                Op::Read => self.read(ns, address, end),
                Op::Write => self.write(ns, address, end),
            };
        });
        Time::from_nanos(ns).since(now)
    }

    /// The buffer keeps what it has.
    fn flush(&mut self, _now: Time) -> Span {
        self.config.read_overhead
    }

    fn capacity(&self) -> u64 {
        self.config.capacity
    }

    fn repositions(&self) -> u64 {
        0
    }

    fn slots(&self) -> u32 {
        self.config.slots
    }
}
