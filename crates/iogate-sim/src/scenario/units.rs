//! Quantities as people write them: `32KiB`, `1GB`, `250ms`, `2h`, `1Gbit/s`.

use iogate_core::sched::parse_scaled;

const BYTES: &[(&str, u64)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("KiB", 1 << 10),
    ("MB", 1_000_000),
    ("MiB", 1 << 20),
    ("GB", 1_000_000_000),
    ("GiB", 1 << 30),
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
    // As everywhere else in the program.
    ("K", 1 << 10),
    ("k", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

const TIMES: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

const RATES: &[(&str, u64)] = &[
    ("B/s", 1),
    ("kB/s", 1_000),
    ("KiB/s", 1 << 10),
    ("MB/s", 1_000_000),
    ("MiB/s", 1 << 20),
    ("GB/s", 1_000_000_000),
    ("GiB/s", 1 << 30),
    ("kbit/s", 125),
    ("Mbit/s", 125_000),
    ("Gbit/s", 125_000_000),
];

/// A number of bytes, with or without a unit.
pub(super) fn bytes(text: &str) -> Option<u64> {
    parse_scaled(text, BYTES, Some(1))
}

/// A time in nanoseconds; its unit is needed, but for zero.
pub(super) fn nanoseconds(text: &str) -> Option<u64> {
    parse_scaled(text, TIMES, None)
}

/// A rate in bytes per second; its unit is needed.
pub(super) fn bytes_per_second(text: &str) -> Option<u64> {
    parse_scaled(text, RATES, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities() {
        assert_eq!(bytes("32KiB"), Some(32_768));
        assert_eq!(bytes("1GB"), Some(1_000_000_000));
        assert_eq!(bytes("1.5 MiB"), Some(1_572_864));
        assert_eq!(bytes("4096"), Some(4_096));
        assert_eq!(bytes("4 apples"), None);
        assert_eq!(bytes("-4"), None);
        assert_eq!(bytes("99999999999TiB"), None);
        assert_eq!(nanoseconds("90s"), Some(90_000_000_000));
        assert_eq!(nanoseconds("2h"), Some(7_200_000_000_000));
        assert_eq!(nanoseconds("0"), Some(0));
        assert_eq!(nanoseconds("5"), None);
        assert_eq!(bytes_per_second("125MB/s"), bytes_per_second("1Gbit/s"));
        assert_eq!(bytes_per_second("125MB"), None);
    }
}
