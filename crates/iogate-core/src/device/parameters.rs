//! The numbers of the models, each with the range in which it may be, and where it comes from.
//!
//! A model takes its numbers from here and from nowhere else, so that none is without a source, and a result can be shown over the
//! ranges. None was chosen for the sake of a result. *Estimate* means that no document was found that gives it. The presets that are
//! older than this table say their sources in `preset`.

/// One number of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name; the part behind the last dot ends with the unit.
    pub name: &'static str,
    /// Its value.
    pub value: u64,
    /// The least and the most that it may be.
    pub range: (u64, u64),
    /// Where value and range come from.
    pub source: &'static str,
}

const fn row(name: &'static str, value: u64, range: (u64, u64), source: &'static str) -> Parameter {
    Parameter { name, value, range, source }
}

/// All of them.
pub const PARAMETERS: &[Parameter] = &[
    // The command queue of disks.
    row(
        "queue.sata_depth",
        31,
        (1, 32),
        "Serial ATA 2.5: 32 tags; Linux's libata keeps one (ATA_MAX_QUEUE - 1)",
    ),
    row(
        "queue.sas_depth",
        64,
        (16, 128),
        "estimate: drive manuals give up to 128 queued commands for SAS; beneath.md has 64",
    ),
    row(
        "queue.age_limit_ms",
        500,
        (100, 2_000),
        "estimate: Jacobson and Wilkes 1991 age by weight, manuals give no limit",
    ),
    // The TWINS thesis's drive: Seagate Enterprise Performance 10K HDD v8, 600 GB (ST600MM0088), SAS 12 Gb/s, 10,000 rpm.
    row(
        "sas10k.capacity_sectors",
        1_172_123_568,
        (1_172_123_568, 1_172_123_568),
        "the standard count of a 600 GB drive (IDEMA LBA1-03)",
    ),
    row("sas10k.revolution_us", 6_000, (6_000, 6_000), "10,000 rpm, by the drive's name"),
    row("sas10k.heads", 4, (2, 4), "estimate: two 300 GB platters, as others of its size and years"),
    row(
        "sas10k.outer_mb_s",
        202,
        (190, 241),
        "estimate: the rates that its family is sold with; no manual was at hand",
    ),
    row("sas10k.inner_mb_s", 117, (100, 130), "estimate: 0.58 of the outer rate, a 2.5-inch platter's"),
    row(
        "sas10k.read_seek_us",
        3_700,
        (3_400, 4_100),
        "estimate: between the 3.4 ms of a 15,000 rpm and the 4.1 ms of older 10,000 rpm drives",
    ),
    row(
        "sas10k.write_seek_us",
        4_200,
        (3_800, 4_600),
        "estimate: half a millisecond more than reads, as the Cheetah 15K.6",
    ),
    row(
        "sas10k.full_stroke_us",
        6_400,
        (5_900, 8_000),
        "estimate: 1.73 average seeks, as the presets in preset.rs",
    ),
    row(
        "sas10k.track_us",
        300,
        (200, 500),
        "estimate: between the single track's 0.2 and 0.44 ms of the Cheetah 15K.6",
    ),
    row("sas10k.cache_kib", 131_072, (65_536, 131_072), "estimate: the 128 MB that its family is sold with"),
    row(
        "sas10k.write_cache_b",
        0,
        (0, 33_554_432),
        "estimate: off, as behind a PERC with a battery; the thesis does not say",
    ),
    // Flash, of all solid-state drives below.
    row("flash.read_us", 75, (45, 90), "MQSim (FAST 2018), default of ssdconfig.xml: 75 us"),
    row("flash.erase_us", 3_800, (3_500, 10_000), "MQSim, default: 3.8 ms"),
    row(
        "flash.suspend_us",
        100,
        (50, 700),
        "MQSim, default: programs are suspended in 100 us, erases in 700 us",
    ),
    row("flash.page_kib", 16, (8, 16), "estimate: pages of 3D NAND from its first generations on are 16 KiB"),
    row("flash.planes", 2, (2, 4), "estimate: two planes program together; four in some chips"),
    row("flash.block_pages", 1_536, (576, 2_304), "estimate: blocks of 3D TLC have 24 MiB a plane"),
    row(
        "flash.die_gb",
        48,
        (32, 64),
        "estimate: dies of 384 Gbit, of 32-layer 3D TLC as both makers of that flash sell it",
    ),
    row("flash.channel_mb_s", 400, (333, 533), "ONFI 3: 400 MT/s of eight bits; MQSim's default is 333"),
    row(
        "nvme.command_us",
        5,
        (2, 10),
        "estimate: fetching a command and answering it over PCI Express, as for other drives here",
    ),
    // Intel P4500, 2 TB. Sheet: Lenovo's product guide of the P4500 (4XB7A08539).
    row(
        "p4500.capacity_sectors",
        3_907_029_168,
        (3_907_029_168, 3_907_029_168),
        "the standard count of a 2 TB drive (IDEMA LBA1-03)",
    ),
    row(
        "p4500.channels",
        12,
        (8, 18),
        "estimate: twelve channels, between 8 of other drives and 18 of the P3520 (Tom's Hardware)",
    ),
    row("p4500.dies_per_channel", 4, (3, 5), "2 TB and spare in dies of 48 GB: 48 dies"),
    row(
        "p4500.link_mb_s",
        3_200,
        (3_000, 3_940),
        "sheet: 3.2 GB/s of sequential reads over PCI Express 3.0 x4",
    ),
    row(
        "p4500.program_us",
        1_498,
        (700, 2_000),
        "the time in which 48 dies reach the sheet's 1.05 GB/s of sequential writes",
    ),
    row("p4500.write_us", 20, (13, 20), "sheet: 20 us for a random write"),
    row("p4500.buffer_mib", 64, (16, 256), "estimate: no sheet says how much its capacitors keep"),
    row(
        "p4500.slots",
        256,
        (128, 4_096),
        "sheet: measured with 128 and more commands; a queue pair has up to 4,096",
    ),
    // Micron 9200 PRO, 7.68 TB. Sheet: 9200 NVMe SSDs, features.
    row(
        "m9200.capacity_sectors",
        15_002_931_888,
        (15_002_931_888, 15_002_931_888),
        "the standard count of a 7.68 TB drive (IDEMA LBA1-03)",
    ),
    row("m9200.channels", 16, (16, 32), "estimate: sixteen channels of twelve dies"),
    row("m9200.dies_per_channel", 12, (11, 14), "7.68 TB and a fifth more in dies of 48 GB: 192 dies"),
    row(
        "m9200.link_mb_s",
        3_500,
        (3_300, 3_940),
        "sheet: up to 3.50 GB/s of sequential reads over PCI Express 3.0 x4",
    ),
    row(
        "m9200.program_us",
        1_798,
        (700, 2_000),
        "the time in which 192 dies reach the sheet's 3.5 GB/s of sequential writes",
    ),
    row("m9200.write_us", 21, (18, 25), "sheet: 21 us for a write at depth 1"),
    row("m9200.buffer_mib", 64, (16, 256), "estimate: no sheet says how much its capacitors keep"),
    row("m9200.slots", 256, (128, 4_096), "estimate: as the P4500, of 128 queue pairs"),
    // Intel S4500, 960 GB: SATA. Sheet: S4500/S4600 product specification.
    row(
        "s4500.capacity_sectors",
        1_875_385_008,
        (1_875_385_008, 1_875_385_008),
        "the standard count of a 960 GB drive (IDEMA LBA1-03)",
    ),
    row("s4500.channels", 8, (4, 10), "estimate: eight channels, as drives of its kind have"),
    row("s4500.dies_per_channel", 3, (3, 4), "960 GB and a fifth more in dies of 48 GB: 24 dies"),
    row("s4500.link_mb_s", 550, (500, 600), "SATA 6 Gb/s: 600 MB/s less its framing"),
    row("s4500.link_command_us", 5, (3, 8), "estimate: as the other SATA drive here (RealSSD C400)"),
    row(
        "s4500.program_us",
        1_605,
        (700, 2_000),
        "the time in which 24 dies reach the sheet's 490 MB/s of sequential writes",
    ),
    row("s4500.read_us", 5, (2, 10), "estimate: as for the NVMe drives, beside the 5 us of the link"),
    row(
        "s4500.write_us",
        30,
        (20, 52),
        "estimate: the sheet's 36 us of a sequential write less the link's time",
    ),
    row("s4500.buffer_mib", 16, (4, 64), "estimate: no sheet says how much its capacitors keep"),
    row("s4500.slots", 32, (1, 32), "Serial ATA: 32 tags; the sheet's rates are at depth 32"),
    // The 12 TB array of the checkpoint thesis: its head node has "12TB HDDs".
    row(
        "array12.disks",
        8,
        (6, 14),
        "estimate: eight disks of 2 TB give 12 TB with two parities; the thesis says 12 TB and nothing else",
    ),
    row(
        "array12.parity",
        2,
        (1, 2),
        "estimate: RAID-6, as was usual for disks of 2 TB; the thesis does not say",
    ),
    row(
        "array12.disk_sectors",
        3_907_029_168,
        (3_907_029_168, 3_907_029_168),
        "the standard count of a 2 TB drive (IDEMA LBA1-03)",
    ),
    row(
        "array12.outer_mb_s",
        134,
        (110, 150),
        "estimate: 7200 rpm disks of 2 TB of those years (Ultrastar A7K2000: 134 MB/s)",
    ),
    row("array12.inner_mb_s", 65, (50, 75), "estimate: 0.485 of the outer rate, as the presets in preset.rs"),
    row("array12.heads", 10, (6, 10), "estimate: five platters of 400 GB"),
    row(
        "array12.seek_us",
        8_200,
        (8_000, 9_500),
        "HGST Ultrastar 7K4000 specification: 8.2 ms read and write; the same family",
    ),
    row(
        "array12.full_stroke_us",
        14_200,
        (13_000, 17_000),
        "estimate: 1.73 average seeks, as the presets in preset.rs",
    ),
    row(
        "array12.track_us",
        500,
        (300, 1_000),
        "estimate: between the HC310's 0.32 ms and the 7K320's 1.0 ms",
    ),
    row("array12.cache_kib", 32_768, (16_384, 65_536), "estimate: the 32 MB that 2 TB disks were sold with"),
    row(
        "array12.chunk_kib",
        64,
        (64, 512),
        "PERC 6 user's guide: 64 KB by default; beneath.md has 64 to 512 KiB",
    ),
    row(
        "array12.controller_mib",
        512,
        (0, 512),
        "estimate: controllers of those years have 256 or 512 MB with a battery",
    ),
    // RAID-6 of modern disks: ten of the preset `hdd`.
    row(
        "raid6.disks",
        10,
        (8, 14),
        "estimate: eight data disks and two parities, as in enclosures of twelve with spares",
    ),
    row(
        "raid6.chunk_kib",
        256,
        (64, 512),
        "estimate: defaults of controllers are 64 to 256 KiB, of Linux md 512 KiB",
    ),
    row(
        "raid6.controller_mib",
        2_048,
        (1_024, 8_192),
        "estimate: controllers of today have 2 to 8 GB with a flash-backed cache",
    ),
    row(
        "array.bus_mb_s",
        3_000,
        (800, 6_000),
        "estimate: eight lanes of PCI Express 2.0 less its framing; 3.0 has twice that",
    ),
    row("array.command_us", 20, (5, 50), "estimate: controllers take 50,000 to 200,000 commands a second"),
    // Allocation of files' blocks.
    row(
        "allocation.block_b",
        4_096,
        (1_024, 4_096),
        "mke2fs and mkfs.xfs: 4096 for all but tiny file systems",
    ),
    row("allocation.ext3_first_blocks", 8, (8, 8), "Linux ext3_fs.h: EXT3_DEFAULT_RESERVE_BLOCKS"),
    row("allocation.ext3_max_blocks", 1_027, (1_027, 1_027), "Linux ext3_fs.h: EXT3_MAX_RESERVE_BLOCKS"),
    row("allocation.xfs_least_blocks", 16, (16, 16), "Linux xfs_mount.h: 64 KiB (XFS_WRITEIO_LOG_LARGE)"),
    row(
        "allocation.xfs_most_blocks",
        2_097_152,
        (16, 2_097_152),
        "Linux xfs_iomap.c: 8 GiB (MAXEXTLEN); before 2.6.38, always the least",
    ),
];

/// The value of the parameter `name`. Used in constants, so that a name that is not there does not compile.
pub(super) const fn value(name: &str) -> u64 {
    let mut index = 0;
    while index < PARAMETERS.len() {
        if is_same(PARAMETERS[index].name.as_bytes(), name.as_bytes()) {
            return PARAMETERS[index].value;
        }
        index += 1;
    }
    panic!("no such parameter");
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;

    /// What is wrong with a row.
    fn fault(row: &Parameter) -> Option<&'static str> {
        if row.source.len() < 10 {
            return Some("no source");
        }
        (row.range.0 > row.value || row.value > row.range.1).then_some("outside its own range")
    }

    #[test]
    fn every_parameter_has_a_source_and_is_in_its_range() {
        let mut names = BTreeSet::new();
        for row in PARAMETERS {
            assert_eq!(fault(row), None, "{}", row.name);
            assert!(names.insert(row.name), "{} twice", row.name);
            assert_eq!(value(row.name), row.value);
        }
    }

    #[test]
    fn a_row_without_a_source_or_beside_its_range_is_refused() {
        let good = row("a.b_ms", 5, (1, 9), "a manual, page 7");
        assert_eq!(fault(&good), None);
        assert_eq!(fault(&Parameter { source: "", ..good }), Some("no source"));
        assert_eq!(fault(&Parameter { source: "estimate", ..good }), Some("no source"));
        assert_eq!(fault(&Parameter { value: 10, ..good }), Some("outside its own range"));
        assert_eq!(fault(&Parameter { value: 0, ..good }), Some("outside its own range"));
    }
}
