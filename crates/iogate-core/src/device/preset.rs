//! Named devices: `hdd`, `suno`.
//!
//! Each preset says which drive it is, how that is known, and where its numbers come from; what no document
//! gives is marked *estimate*, with the reasoning. Nothing was adjusted to any paper's results.
//! `docs/devices.md` has the same as a table, with what the models give.
//!
//! Which drives the Grid'5000 clusters had is in the test bed's own reference repository
//! (`grid5000/reference-repository`, `data/grid5000/sites/*/clusters/*/nodes/*.json`, `storage_devices`).
//!
//! Estimates that several presets share:
//! - A full stroke takes 1.73 times the average seek, as in the Deskstar 75GXP specification (14.7 and 8.5 ms).
//! - A write seek takes 1 ms longer on the average than a read seek, as in the Deskstar 7K1000.C specification.
//! - The innermost zone has 0.485 times the rate of the outermost, as the Deskstar T7K250 (32.9 and 67.8 MB/s).
//! - A switch of tracks takes 1.48 ms on a 7200 rpm desktop disk: what the Deskstar 7K500 specification gives
//!   for sustained and instantaneous rate (64.8 and 76.3 MB/s) leaves after a revolution.
//! - A command costs 30 us: what the T7K250 specification's 54.6 s for 4,096 random reads (105 % of the
//!   calculated time) leaves after an average seek and half a revolution.
//! - A quarter of a disk's buffer is for writes, the rest for 16 read segments.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::parameters::value;
use super::{
    Array, ArrayConfig, CommandQueue, Device, Disk, DiskConfig, Flash, FlashConfig, Memory, MemoryConfig,
    Nvme, NvmeConfig, NvmeState, Raid0, SeekTimes,
};
use crate::time::Span;
use crate::units::{KIB, MIB};

const MB: u64 = 1_000_000;

const fn seek(track_to_track_us: u64, average_us: u64, full_stroke_us: u64) -> SeekTimes {
    SeekTimes {
        track_to_track: Span::from_micros(track_to_track_us),
        average: Span::from_micros(average_us),
        full_stroke: Span::from_micros(full_stroke_us),
    }
}

const COMMAND_OVERHEAD: Span = Span::from_micros(30);
const REVOLUTION_7200: Span = Span::from_nanos(8_333_333);
const REVOLUTION_15000: Span = Span::from_nanos(4_000_000);

/// Ultrastar DC HC310, 6 TB (HUS726T6TALE6L4). Specification revision 1.4: average seek 7.4 and 8.2 ms,
/// single track 0.23 and 0.32 ms, 7200 rpm. Data sheet: 255 MB/s sustained, 256 MB buffer, SATA 6 Gb/s. The
/// switch of tracks is the single track's 0.32 ms. Estimates: full stroke, inner zone, eight heads.
const ULTRASTAR_HC310: DiskConfig = DiskConfig {
    capacity: 6_001_175_126_016,
    revolution: REVOLUTION_7200,
    heads: 8,
    outer_bytes_per_s: 255 * MB,
    inner_bytes_per_s: 124 * MB,
    track_switch: Span::from_micros(320),
    read_seek: seek(230, 7_400, 12_800),
    write_seek: seek(320, 8_200, 14_200),
    command_overhead: COMMAND_OVERHEAD,
    interface_bytes_per_s: 600 * MB,
    segments: 16,
    segment_bytes: 12 * MIB,
    write_cache_bytes: 64 * MIB,
};

/// Hitachi Deskstar T7K250, 250 GB (HDT722525DLA380), sold by Sun as HDS7225S; the Grid'5000 repository has
/// that name and a capacity of 250,056 MB for pastel. Specification version 1.8 and its summary in Tech
/// Report (26 May 2005): 32.9 to 67.8 MB/s sustained, average seek 8.5 ms, 8 MB buffer, two platters (125 GB
/// each), SATA 3 Gb/s. Estimates: write seek, full stroke (75GXP: 14.7 and 15.7 ms), single track (1.0
/// and 1.1 ms in Hitachi's 7K320 specification).
const DESKSTAR_T7K250: DiskConfig = DiskConfig {
    capacity: 250_056_000_000,
    revolution: REVOLUTION_7200,
    heads: 4,
    outer_bytes_per_s: 67_800_000,
    inner_bytes_per_s: 32_900_000,
    track_switch: Span::from_micros(1_480),
    read_seek: seek(1_000, 8_500, 14_700),
    write_seek: seek(1_100, 9_500, 15_700),
    command_overhead: COMMAND_OVERHEAD,
    interface_bytes_per_s: 300 * MB,
    segments: 16,
    segment_bytes: 384 * KIB,
    write_cache_bytes: 2 * MIB,
};

/// Hitachi Deskstar 7K1000.C, 320 GB (HDS721032CLA362); the Grid'5000 repository has HDS72103, firmware JPFO
/// and 320,072,933,376 bytes for graphene. Specification: average seek 14.0 and 15.0 ms for this, the
/// one-disk model (8.5 and 9.5 ms only with two), 7200 rpm, 16 MB buffer, SATA 3 Gb/s. Estimates: 125 MB/s
/// sustained, which is what Seagate's sheet gives for the Barracuda 7200.12 with as dense platters (500 GB);
/// inner zone, full stroke, single track, switch.
const DESKSTAR_7K1000C: DiskConfig = DiskConfig {
    capacity: 320_072_933_376,
    heads: 2,
    outer_bytes_per_s: 125 * MB,
    inner_bytes_per_s: 60_600_000,
    read_seek: seek(1_000, 14_000, 24_200),
    write_seek: seek(1_100, 15_000, 26_000),
    segment_bytes: 768 * KIB,
    write_cache_bytes: 4 * MIB,
    ..DESKSTAR_T7K250
};

/// Seagate Cheetah 15K.6 SAS, 300 GB (ST3300656SS). Product manual 100466193: 112 to 171 MB/s sustained,
/// average seek 3.4 and 3.9 ms, single track 0.2 and 0.44 ms, full stroke 6.6 and 7.4 ms, average latency
/// 2.0 ms, 16 MB buffer, SAS 3 Gb/s. The switch of tracks is the single track's 0.44 ms.
///
/// The Grid'5000 repository has, for suno, a Dell PowerEdge R410 with a PERC 6/i in RAID-0 and one volume of
/// the size of two 300 GB SAS disks, not the disks' model: that they were these is an estimate (Dell sold
/// them at the time). The write cache stands for the controller's 256 MB, which is battery-backed and writes
/// back by default (PERC 6 user's guide), half for each disk.
const CHEETAH_15K6: DiskConfig = DiskConfig {
    capacity: 299_439_751_168,
    revolution: REVOLUTION_15000,
    heads: 6,
    outer_bytes_per_s: 171 * MB,
    inner_bytes_per_s: 112 * MB,
    track_switch: Span::from_micros(440),
    read_seek: seek(200, 3_400, 6_600),
    write_seek: seek(440, 3_900, 7_400),
    command_overhead: COMMAND_OVERHEAD,
    interface_bytes_per_s: 300 * MB,
    segments: 16,
    segment_bytes: MIB,
    write_cache_bytes: 128 * MIB,
};
/// Default stripe element of the PERC 6/i (user's guide).
const PERC_6_CHUNK: u64 = 64 * KIB;

/// Seagate Barracuda 7200.7, 80 GB (ST380011A). Product manual: 58 MB/s sustained on the outermost tracks,
/// average seek 8.5 ms, 7200 rpm, two heads, 2 MB buffer, ATA/100. That the 80 GB IDE disk of an IBM eServer
/// 325 (the aIOLi paper; azur in the Grid'5000 repository, which has no model) was this one is an estimate:
/// it was the common one of its kind, and the paper's `hdparm` read 57 MB/s from it.
const BARRACUDA_7200_7: DiskConfig = DiskConfig {
    capacity: 80_026_361_856,
    heads: 2,
    outer_bytes_per_s: 58 * MB,
    inner_bytes_per_s: 28_100_000,
    interface_bytes_per_s: 100 * MB,
    segment_bytes: 96 * KIB,
    write_cache_bytes: 512 * KIB,
    ..DESKSTAR_T7K250
};

/// Seagate Enterprise Performance 10K HDD v8, 600 GB (ST600MM0088): the drive that the TWINS thesis names.
const SAS_10K: DiskConfig = DiskConfig {
    capacity: value("sas10k.capacity_sectors") * 512,
    revolution: Span::from_micros(value("sas10k.revolution_us")),
    heads: value("sas10k.heads") as u32,
    outer_bytes_per_s: value("sas10k.outer_mb_s") * MB,
    inner_bytes_per_s: value("sas10k.inner_mb_s") * MB,
    track_switch: Span::from_micros(value("sas10k.track_us")),
    read_seek: seek(value("sas10k.track_us"), value("sas10k.read_seek_us"), value("sas10k.full_stroke_us")),
    write_seek: seek(
        value("sas10k.track_us") + 100,
        value("sas10k.write_seek_us"),
        value("sas10k.full_stroke_us") + 900,
    ),
    command_overhead: COMMAND_OVERHEAD,
    interface_bytes_per_s: 1_200 * MB,
    segments: 16,
    segment_bytes: value("sas10k.cache_kib") * KIB * 3 / 4 / 16,
    write_cache_bytes: value("sas10k.write_cache_b"),
};

/// What all solid-state drives of the newer model share.
const fn flash(config: NvmeConfig) -> NvmeConfig {
    NvmeConfig {
        flash_bytes: config.channels as u64
            * config.dies_per_channel as u64
            * value("flash.die_gb")
            * 1_000
            * MB,
        planes: value("flash.planes") as u32,
        page_bytes: value("flash.page_kib") * KIB,
        block_pages: value("flash.block_pages") as u32,
        read: Span::from_micros(value("flash.read_us")),
        erase: Span::from_micros(value("flash.erase_us")),
        suspend: Span::from_micros(value("flash.suspend_us")),
        channel_bytes_per_s: value("flash.channel_mb_s") * MB,
        ..config
    }
}

/// What differs, before it is filled in.
const BLANK: NvmeConfig = NvmeConfig {
    capacity: 0,
    flash_bytes: 0,
    channels: 0,
    dies_per_channel: 0,
    planes: 0,
    page_bytes: 0,
    block_pages: 0,
    read: Span::ZERO,
    program: Span::ZERO,
    erase: Span::ZERO,
    suspend: Span::ZERO,
    channel_bytes_per_s: 0,
    link_bytes_per_s: 0,
    link_command: Span::ZERO,
    read_overhead: Span::from_micros(value("nvme.command_us")),
    write_overhead: Span::ZERO,
    buffer_bytes: 0,
    slots: 0,
    state: NvmeState::Filled,
};

/// Intel P4500, 2 TB, NVMe.
const P4500: NvmeConfig = flash(NvmeConfig {
    capacity: value("p4500.capacity_sectors") * 512,
    channels: value("p4500.channels") as u32,
    dies_per_channel: value("p4500.dies_per_channel") as u32,
    program: Span::from_micros(value("p4500.program_us")),
    link_bytes_per_s: value("p4500.link_mb_s") * MB,
    write_overhead: Span::from_micros(value("p4500.write_us")),
    buffer_bytes: value("p4500.buffer_mib") * MIB,
    slots: value("p4500.slots") as u32,
    ..BLANK
});

/// Micron 9200 PRO, 7.68 TB, NVMe.
const M9200: NvmeConfig = flash(NvmeConfig {
    capacity: value("m9200.capacity_sectors") * 512,
    channels: value("m9200.channels") as u32,
    dies_per_channel: value("m9200.dies_per_channel") as u32,
    program: Span::from_micros(value("m9200.program_us")),
    link_bytes_per_s: value("m9200.link_mb_s") * MB,
    write_overhead: Span::from_micros(value("m9200.write_us")),
    buffer_bytes: value("m9200.buffer_mib") * MIB,
    slots: value("m9200.slots") as u32,
    ..BLANK
});

/// Intel S4500, 960 GB, SATA.
const S4500: NvmeConfig = flash(NvmeConfig {
    capacity: value("s4500.capacity_sectors") * 512,
    channels: value("s4500.channels") as u32,
    dies_per_channel: value("s4500.dies_per_channel") as u32,
    program: Span::from_micros(value("s4500.program_us")),
    link_bytes_per_s: value("s4500.link_mb_s") * MB,
    link_command: Span::from_micros(value("s4500.link_command_us")),
    read_overhead: Span::from_micros(value("s4500.read_us")),
    write_overhead: Span::from_micros(value("s4500.write_us")),
    buffer_bytes: value("s4500.buffer_mib") * MIB,
    slots: value("s4500.slots") as u32,
    ..BLANK
});

/// A 7200 rpm SATA disk of 2 TB of 2010, of which the checkpoint thesis's 12 TB may be made.
const DISK_2TB: DiskConfig = DiskConfig {
    capacity: value("array12.disk_sectors") * 512,
    revolution: REVOLUTION_7200,
    heads: value("array12.heads") as u32,
    outer_bytes_per_s: value("array12.outer_mb_s") * MB,
    inner_bytes_per_s: value("array12.inner_mb_s") * MB,
    track_switch: Span::from_micros(value("array12.track_us")),
    read_seek: seek(value("array12.track_us"), value("array12.seek_us"), value("array12.full_stroke_us")),
    write_seek: seek(value("array12.track_us"), value("array12.seek_us"), value("array12.full_stroke_us")),
    command_overhead: COMMAND_OVERHEAD,
    interface_bytes_per_s: 300 * MB,
    segments: 16,
    segment_bytes: value("array12.cache_kib") * KIB * 3 / 4 / 16,
    write_cache_bytes: 0,
};

/// A controller with `parity` parities, chunks of `chunk_kib` and a cache of `cache_mib`.
const fn controller(parity: u64, chunk_kib: u64, cache_mib: u64) -> ArrayConfig {
    ArrayConfig {
        parity: parity as u32,
        chunk: chunk_kib * KIB,
        cache_bytes: cache_mib * MIB,
        bus_bytes_per_s: value("array.bus_mb_s") * MB,
        command: Span::from_micros(value("array.command_us")),
    }
}

const ARRAY_12T: ArrayConfig =
    controller(value("array12.parity"), value("array12.chunk_kib"), value("array12.controller_mib"));
const RAID6: ArrayConfig = controller(2, value("raid6.chunk_kib"), value("raid6.controller_mib"));

/// Micron RealSSD C400 1.8-inch, 128 GB (MTFDDAA128MAM), which the Grid'5000 repository has for edel. Data
/// sheets: 500 MB/s read at 6 Gb/s, 175 MB/s write at this capacity, 55 us typical latency of 4 KiB;
/// eight channels (Marvell 88SS9174), 25 nm MLC flash of 64 Gb a die (Micron L74A: 8 KiB pages, two planes,
/// 200 MB/s a channel, page read at most 75 us, page program 1,300 us typical), thus two dies a channel. The
/// nodes' chipset has SATA 3 Gb/s only, hence 300 MB/s. The page read is what 55 us leave; the program time is
/// that at which all dies reach 175 MB/s. Estimates: overhead, buffer, read-ahead, 4 KiB mapping units.
const REALSSD_C400: FlashConfig = FlashConfig {
    capacity: 128_035_676_160,
    channels: 8,
    dies_per_channel: 2,
    planes: 2,
    page_bytes: 8 * KIB,
    page_read: Span::from_micros(30),
    page_program: Span::from_micros(1_416),
    channel_bytes_per_s: 200 * MB,
    interface_bytes_per_s: 300 * MB,
    command_overhead: Span::from_micros(5),
    write_buffer_bytes: 4 * MIB,
    read_ahead_bytes: 512 * KIB,
    map_unit_bytes: 4 * KIB,
    map_page_span_bytes: 0,
};

/// A quarter of an OCZ RevoDrive X2, 100 GB: one of its four SandForce SF-1222 controllers, each with eight
/// channels and eight 4 GB chips of 34 nm MLC flash (4 KiB pages, page read 50 us, page program 900 us
/// typical), behind a RAID-0 controller. Data sheet: PCI Express x4, 740 MB/s read, 690 MB/s write,
/// 0.1 ms access. That the 'PCI-E X4 100 GB SSD' of the server coordination paper was this one is an estimate:
/// it fits the description and the year.
///
/// The write rate is measured with data that the controller compresses: the program time is the one at
/// which four controllers reach it, where 900 us would give 276 MB/s. The controllers have no memory of
/// their own for the whole mapping table. Estimates: overhead, buffer, read-ahead, mapping page, chunk.
const REVODRIVE_X2_QUARTER: FlashConfig = FlashConfig {
    capacity: 25_007_560_704,
    channels: 8,
    dies_per_channel: 1,
    planes: 2,
    page_bytes: 4 * KIB,
    page_read: Span::from_micros(50),
    page_program: Span::from_micros(330),
    channel_bytes_per_s: 166 * MB,
    interface_bytes_per_s: 185 * MB,
    command_overhead: Span::from_micros(5),
    write_buffer_bytes: MIB,
    read_ahead_bytes: 128 * KIB,
    map_unit_bytes: 4 * KIB,
    map_page_span_bytes: 4 * MIB,
};
const REVODRIVE_CHUNK: u64 = 64 * KIB;

/// A file system in memory on a machine of eight cores, read and written past the page cache. All of it is estimated: a dispatch as a
/// system call that finds its pages (4 us), a hand-over as what is left of the 40 us that a random 4 KiB read takes through a
/// mount whose gate has one dispatch in service at a time (25,000/s), 10 GB/s copied by a core, and 40 GB/s by all.
const MEMORY: MemoryConfig = MemoryConfig {
    capacity: 64 << 30,
    cores: 8,
    dispatch: Span::from_micros(4),
    hand_over: Span::from_micros(35),
    core_bytes_per_s: 10_000 * MB,
    bytes_per_s: 40_000 * MB,
};

/// A device with a name.
#[derive(Clone, Copy)]
pub struct Preset {
    /// Its name, as [`parse`](super::parse) takes it.
    pub name: &'static str,
    /// One line on what it is.
    pub summary: &'static str,
    pub(super) kind: Kind,
}

/// How to make a device of a preset.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A disk, and the commands that it can hold.
    Disk(DiskConfig, u64),
    /// A disk that has its queue unless another depth is asked for.
    Queued(DiskConfig, u64),
    /// Equal disks behind a controller, each with a command queue and its own write cache off.
    Array(DiskConfig, u64, ArrayConfig),
    /// A solid-state drive whose state can be said.
    Nvme(NvmeConfig),
    /// Anything else.
    Other(fn() -> Box<dyn Device>),
}

const SATA: u64 = value("queue.sata_depth");
const SAS: u64 = value("queue.sas_depth");
const AGE_LIMIT: Span = Span::from_millis(value("queue.age_limit_ms"));

impl core::fmt::Debug for Preset {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Preset").field("name", &self.name).field("summary", &self.summary).finish()
    }
}

fn disk(config: DiskConfig) -> Box<dyn Device> {
    Box::new(Disk::new(config))
}

fn raid0(members: Vec<Box<dyn Device>>, chunk: u64) -> Box<dyn Device> {
    Box::new(Raid0::new(members, chunk).expect("a preset has members and a chunk"))
}

pub(super) const PRESETS: [Preset; 15] = [
    Preset {
        name: "hdd",
        summary: "hard disk, 6 TB, 7200 rpm, 255 MB/s (Ultrastar DC HC310)",
        kind: Kind::Disk(ULTRASTAR_HC310, SATA),
    },
    Preset {
        name: "pastel",
        summary: "hard disk, 250 GB, 7200 rpm, 68 MB/s (Deskstar T7K250)",
        kind: Kind::Disk(DESKSTAR_T7K250, SATA),
    },
    Preset {
        name: "graphene",
        summary: "hard disk, 320 GB, 7200 rpm, 125 MB/s, slow seeks (Deskstar 7K1000.C)",
        kind: Kind::Disk(DESKSTAR_7K1000C, SATA),
    },
    Preset {
        name: "suno",
        summary: "RAID-0 of two disks, 300 GB, 15000 rpm, 171 MB/s each (Cheetah 15K.6)",
        kind: Kind::Other(|| raid0((0..2).map(|_| disk(CHEETAH_15K6)).collect(), PERC_6_CHUNK)),
    },
    Preset {
        name: "edel",
        summary: "flash, 128 GB, SATA 3 Gb/s, 300 MB/s read, 175 MB/s write (RealSSD C400)",
        kind: Kind::Other(|| Box::new(Flash::new(REALSSD_C400))),
    },
    Preset {
        name: "aioli-ide",
        summary: "hard disk, 80 GB, 7200 rpm, 58 MB/s (Barracuda 7200.7)",
        // Parallel ATA: one command at a time.
        kind: Kind::Disk(BARRACUDA_7200_7, 1),
    },
    Preset {
        name: "sata-7200-250g",
        summary: "hard disk, 250 GB, 7200 rpm, 68 MB/s (the same drive as pastel)",
        // The server coordination paper's Sun Fire X2200 is the model of pastel's nodes, with a 250 GB disk too.
        kind: Kind::Disk(DESKSTAR_T7K250, SATA),
    },
    Preset {
        name: "sas-10k-600g",
        summary: "hard disk, 600 GB, 10000 rpm, 202 MB/s, a queue of 64, no write cache (ST600MM0088)",
        kind: Kind::Queued(SAS_10K, SAS),
    },
    Preset {
        name: "pcie-ssd-100g",
        summary: "flash, 100 GB, PCI Express x4, 740 MB/s read, 690 MB/s write (RevoDrive X2)",
        kind: Kind::Other(|| {
            let quarter = || Box::new(Flash::new(REVODRIVE_X2_QUARTER)) as Box<dyn Device>;
            raid0((0..4).map(|_| quarter()).collect(), REVODRIVE_CHUNK)
        }),
    },
    Preset {
        name: "array-12t",
        summary: "RAID-6 of eight disks, 2 TB, 7200 rpm, 134 MB/s each, 512 MiB write-back cache",
        kind: Kind::Array(DISK_2TB, value("array12.disks"), ARRAY_12T),
    },
    Preset {
        name: "raid6-hdd",
        summary: "RAID-6 of ten disks, 6 TB, 7200 rpm, 255 MB/s each, 2 GiB write-back cache (Ultrastar DC HC310)",
        kind: Kind::Array(ULTRASTAR_HC310, value("raid6.disks"), RAID6),
    },
    Preset {
        name: "nvme-p4500-2t",
        summary: "NVMe, 2 TB, 3.2 GB/s read, 1.05 GB/s write (P4500)",
        kind: Kind::Nvme(P4500),
    },
    Preset {
        name: "nvme-9200-7t",
        summary: "NVMe, 7.68 TB, 3.5 GB/s read and write (Micron 9200 PRO)",
        kind: Kind::Nvme(M9200),
    },
    Preset {
        name: "ssd-s4500-960g",
        summary: "flash, 960 GB, SATA 6 Gb/s, 500 MB/s read, 490 MB/s write (S4500)",
        kind: Kind::Nvme(S4500),
    },
    Preset {
        name: "memory",
        summary: "a file system in memory, 64 GiB, 8 cores, 10 GB/s each",
        kind: Kind::Other(|| Box::new(Memory::new(MEMORY))),
    },
];

impl Preset {
    /// All of them, in the order in which they are listed.
    pub fn all() -> &'static [Preset] {
        &PRESETS
    }

    /// A new device of this kind.
    pub fn build(&self) -> Box<dyn Device> {
        match self.kind {
            Kind::Disk(config, _) => disk(config),
            Kind::Queued(..) | Kind::Array(..) => self.numbered(0),
            Kind::Nvme(config) => Box::new(Nvme::new(config)),
            Kind::Other(build) => build(),
        }
    }

    /// The same as number `number` of several.
    pub(super) fn numbered(&self, number: u64) -> Box<dyn Device> {
        match self.kind {
            Kind::Queued(config, depth) => queued(config, depth, number),
            Kind::Array(disk, count, config) => array(disk, count, config, number),
            _ => self.build(),
        }
    }

    /// The same with a command queue of `depth`; none if it has no such queue. The platter is at the phase of disk `number`.
    pub(super) fn with_queue(&self, depth: u64, number: u64) -> Option<Box<dyn Device>> {
        match self.kind {
            Kind::Disk(config, most) | Kind::Queued(config, most) if (1..=most).contains(&depth) => {
                Some(queued(config, depth, number))
            }
            _ => None,
        }
    }
}

/// A disk with a command queue of `depth`.
fn queued(config: DiskConfig, depth: u64, number: u64) -> Box<dyn Device> {
    let disk = Disk::new(config).with_phase(phase(config, number));
    Box::new(CommandQueue::new(disk, depth as u32, AGE_LIMIT))
}

/// `count` disks behind a controller; `number` says which array of several.
fn array(disk: DiskConfig, count: u64, config: ArrayConfig, number: u64) -> Box<dyn Device> {
    let disk = DiskConfig { write_cache_bytes: 0, ..disk };
    let members = (0..count).map(|index| queued(disk, SATA, number * count + index)).collect();
    Box::new(Array::new(members, config).expect("a preset has disks and a chunk"))
}

/// How far the platter of disk `number` of a set has turned at time 0: as if by chance, but always the same.
fn phase(config: DiskConfig, number: u64) -> Span {
    // Steps of the golden ratio are spread evenly over a revolution, however many disks there are.
    let turn = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    Span::from_nanos((config.revolution.as_nanos().min(1 << 31) * turn) >> 32)
}
