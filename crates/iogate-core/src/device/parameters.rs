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
