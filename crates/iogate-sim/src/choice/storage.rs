//! Random storage: disks, arrays of disks, flash, memory, constant times, and storage that is known by its prices only.

use std::sync::Arc;

use iogate_core::auto::Pricing;
use iogate_core::device::{
    Device, Disk, DiskConfig, Flash, FlashConfig, Memory, MemoryConfig, Raid0, SeekTimes, Unit,
};
use iogate_core::profile::{IN_FLIGHT, Line, Number, Profile, Profiled, measure};
use iogate_core::units::{KIB, MIB};
use iogate_core::{Op, Span};

use crate::rng::Rng;

/// What may be drawn.
#[derive(Debug)]
pub(super) struct Numbers {
    pub(super) revolutions_per_minute: &'static [u64],
    pub(super) megabytes_per_s: &'static [u64],
    pub(super) seek_us: &'static [u64],
    pub(super) buffers_mib: &'static [u64],
    pub(super) members: &'static [u64],
    pub(super) channels: &'static [u64],
    pub(super) page_us: &'static [u64],
    pub(super) cores: &'static [u64],
    pub(super) dispatch_us: &'static [u64],
    pub(super) hand_over_us: &'static [u64],
    pub(super) unit_us: &'static [u64],
    /// The rate with many in flight, as a multiple of that with one, in thousandths.
    pub(super) speedups: &'static [u64],
}

/// What is behind a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Storage {
    /// A hard disk.
    Disk(DiskConfig),
    /// So many hard disks, striped by 64 KiB.
    Array(DiskConfig, u32),
    /// A flash drive.
    Flash(FlashConfig),
    /// A file system in memory.
    Memory(MemoryConfig),
    /// A constant time for each transfer, one at a time.
    Unit(Span),
    /// What is known of it are its prices: storage at the other end of a network, for instance.
    Priced(Box<Profile>),
}

impl Storage {
    pub(super) fn random(of: &Numbers, rng: &mut Rng) -> Storage {
        match rng.below(6) {
            0 => Storage::Disk(disk(of, rng)),
            1 => Storage::Array(disk(of, rng), pick(of.members, rng) as u32),
            2 => Storage::Flash(flash(of, rng)),
            3 => Storage::Memory(memory(of, rng)),
            4 => Storage::Unit(Span::from_micros(pick(of.unit_us, rng))),
            _ => Storage::Priced(Box::new(priced(of, rng))),
        }
    }

    /// What it is, in a word.
    pub fn kind(&self) -> &'static str {
        match self {
            Storage::Disk(_) => "disk",
            Storage::Array(..) => "array",
            Storage::Flash(_) => "flash",
            Storage::Memory(_) => "memory",
            Storage::Unit(_) => "constant",
            Storage::Priced(_) => "priced",
        }
    }

    /// Whether a kernel would call it rotational.
    pub fn is_rotational(&self) -> bool {
        match self {
            Storage::Disk(_) | Storage::Array(..) => true,
            Storage::Priced(profile) => profile.rotational,
            _ => false,
        }
    }

    /// A device that has served nothing yet.
    pub fn device(&self) -> Box<dyn Device> {
        match self {
            Storage::Disk(config) => Box::new(Disk::new(*config)),
            Storage::Array(config, members) => {
                let members = (0..*members).map(|_| Box::new(Disk::new(*config)) as Box<dyn Device>);
                Box::new(Raid0::new(members.collect(), 64 * KIB).expect("an array has members"))
            }
            Storage::Flash(config) => Box::new(Flash::new(*config)),
            Storage::Memory(config) => Box::new(Memory::new(*config)),
            Storage::Unit(time) => Box::new(Unit::new(*time)),
            Storage::Priced(profile) => Box::new(Profiled::new(profile)),
        }
    }

    /// What it really charges.
    pub fn pricing(&self) -> Arc<dyn Pricing> {
        let storage = self.clone();
        Arc::new(move || storage.device())
    }

    /// The profile that a measurement gives.
    pub fn profile(&self) -> Profile {
        measure(self.device(), 1).finish(self.kind(), self.is_rotational(), None)
    }
}

pub(super) fn pick<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// So many percent.
fn part(of: Span, percent: u64) -> Span {
    Span::from_nanos(of.as_nanos() * percent / 100)
}

fn disk(of: &Numbers, rng: &mut Rng) -> DiskConfig {
    let outer = pick(of.megabytes_per_s, rng) * 1_000_000;
    let average = Span::from_micros(pick(of.seek_us, rng));
    let seek = SeekTimes { track_to_track: part(average, 8), average, full_stroke: part(average, 170) };
    DiskConfig {
        capacity: 1_000_000_000_000,
        revolution: Span::from_nanos(60_000_000_000 / pick(of.revolutions_per_minute, rng)),
        heads: 4,
        outer_bytes_per_s: outer,
        inner_bytes_per_s: outer / 2,
        track_switch: part(average, 8),
        read_seek: seek,
        write_seek: SeekTimes { average: part(average, 110), full_stroke: part(average, 190), ..seek },
        command_overhead: Span::from_micros(30),
        interface_bytes_per_s: 600_000_000,
        segments: 16,
        segment_bytes: MIB,
        write_cache_bytes: pick(of.buffers_mib, rng) * MIB,
    }
}

fn flash(of: &Numbers, rng: &mut Rng) -> FlashConfig {
    let page_read = Span::from_micros(pick(of.page_us, rng));
    FlashConfig {
        capacity: 400_000_000_000,
        channels: pick(of.channels, rng) as u32,
        dies_per_channel: 2,
        planes: 2,
        page_bytes: 8 * KIB,
        page_read,
        page_program: part(page_read, 2_000),
        channel_bytes_per_s: 250_000_000,
        interface_bytes_per_s: pick(of.megabytes_per_s, rng) * 8_000_000,
        command_overhead: Span::from_micros(5),
        write_buffer_bytes: pick(of.buffers_mib, rng).max(1) * MIB,
        read_ahead_bytes: 256 * KIB,
        map_unit_bytes: 4 * KIB,
        map_page_span_bytes: 0,
    }
}

fn memory(of: &Numbers, rng: &mut Rng) -> MemoryConfig {
    let cores = pick(of.cores, rng);
    MemoryConfig {
        capacity: 64 << 30,
        cores: cores as u32,
        dispatch: Span::from_micros(pick(of.dispatch_us, rng)),
        hand_over: Span::from_micros(pick(of.hand_over_us, rng)),
        core_bytes_per_s: 8_000_000_000,
        bytes_per_s: 8_000_000_000 * cores.div_ceil(2),
    }
}

/// Prices as those of storage that nobody has a model of: what a jump costs, and what several in flight gain, are independent.
fn priced(of: &Numbers, rng: &mut Rng) -> Profile {
    let mut profile = Profile::assumed("priced", rng.below(2) == 0);
    let jump = Span::from_micros(pick(of.seek_us, rng)).as_nanos() / [1, 10, 100][rng.below(3) as usize];
    let most = pick(of.speedups, rng);
    let bytes_per_s = pick(of.megabytes_per_s, rng) * 4_000_000;
    let base = Span::from_micros(pick(of.dispatch_us, rng)).as_nanos() * 10;
    let ns = |bytes: u64, extra: u64| base + extra + bytes * 1_000_000_000 / bytes_per_s;
    for op in [Op::Read, Op::Write] {
        let dearer = if op == Op::Write { 2 } else { 1 };
        let line = |from: u64, to: u64, extra: u64| Line {
            low: Number::assumed(dearer * ns(from, extra)),
            high: Number::assumed(dearer * ns(to, extra)),
        };
        let lines = |extra: u64| [line(4 * KIB, 64 * KIB, extra), line(64 * KIB, 4 * MIB, extra)];
        let part = match op {
            Op::Read => &mut profile.read,
            Op::Write => &mut profile.write,
        };
        (part.sequential, part.random) = (lines(0), lines(jump));
        part.between = [Number::assumed(dearer * jump * 8 / 10); 3];
        let speedup =
            |most: u64| IN_FLIGHT.map(|n| Number::assumed((u64::from(n) * 1_000).min(most.max(1_000))));
        part.speedup = [speedup(most), speedup(most / 2)];
    }
    profile
}
