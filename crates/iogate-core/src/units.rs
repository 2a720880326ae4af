//! Quantities as people write them: `32KiB`, `1GB`, `250ms`, `2h`, `1Gbit/s`. The one table of their units.

use alloc::string::String;

/// Bytes in a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes in a MiB.
pub const MIB: u64 = 1 << 20;
/// Nanoseconds in a microsecond.
pub const US: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND: u64 = 1_000_000_000;

/// A unit's name, and how much of the smallest unit it is.
type Unit = (&'static str, u64);

/// Units that sizes are written in: largest first, so that writing takes the first that divides.
const BINARY: &[Unit] = &[("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", MIB), ("KiB", KIB)];
/// Units that are understood beside those. `K` and `M` alone are binary, as for `dd` and fio.
const OTHER_SIZES: &[Unit] = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("K", KIB),
    ("k", KIB),
    ("M", MIB),
    ("G", 1 << 30),
    ("T", 1 << 40),
];
/// Units that times are written in, largest first.
const TIMES: &[Unit] = &[("s", SECOND), ("ms", MS), ("us", US)];
const NANOSECONDS: &[Unit] = &[("ns", 1)];
const LONG_TIMES: &[Unit] = &[("min", 60 * SECOND), ("h", 3_600 * SECOND)];
const BITS: &[Unit] = &[("kbit/s", 125), ("Mbit/s", 125_000), ("Gbit/s", 125_000_000)];

/// A number of bytes, with or without a unit: `4096`, `32KiB`, `1.5 MiB`, `1GB`. `None` if it is not such a text, or too large.
pub fn parse_size(text: &str) -> Option<u64> {
    parse(text, &[BINARY, OTHER_SIZES], Some(1))
}

/// A time, in nanoseconds: `250ms`, `1.5s`, `2h`. Only zero needs no unit. `None` if it is not such a text, or too large.
pub fn parse_time(text: &str) -> Option<u64> {
    parse(text, &[TIMES, NANOSECONDS, LONG_TIMES], None)
}

/// As [`parse_time`], for what a request takes: no minutes or hours, and a number without a unit is in microseconds.
pub fn parse_micros(text: &str) -> Option<u64> {
    parse(text, &[TIMES, NANOSECONDS], Some(US))
}

/// A rate, in bytes per second: `125MB/s`, `1Gbit/s`. Only zero needs no unit. `None` if it is not such a text, or too large.
pub fn parse_rate(text: &str) -> Option<u64> {
    match text.strip_suffix("/s").filter(|size| !size.ends_with("bit")) {
        Some(size) => parse(size, &[BINARY, OTHER_SIZES], None),
        None => parse(text, &[BITS], None),
    }
}

/// A number of bytes as [`parse_size`] reads it back: `32KiB`, `1000`.
pub fn format_size(bytes: u64) -> String {
    format(bytes, BINARY, "")
}

/// A time in nanoseconds as [`parse_time`] reads it back: `250ms`, `1500us`.
pub fn format_time(nanoseconds: u64) -> String {
    format(nanoseconds, TIMES, "ns")
}

/// The word for so many of a thing, as in `1 group` and `2 groups`.
pub fn plural<'a>(count: u64, one: &'a str, more: &'a str) -> &'a str {
    if count == 1 { one } else { more }
}

/// `bare` is the factor of a number without a unit, where that is allowed.
fn parse(text: &str, tables: &[&[Unit]], bare: Option<u64>) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim());
    let factor = if unit.is_empty() {
        if number.bytes().all(|b| b == b'0') && !number.is_empty() { 1 } else { bare? }
    } else {
        tables.iter().copied().flatten().find(|(name, _)| *name == unit)?.1
    };
    match number.split_once('.') {
        None => number.parse::<u64>().ok()?.checked_mul(factor),
        Some((whole, fraction)) if number.len() > 1 && fraction.len() <= 9 => {
            let scale = 10u64.pow(fraction.len() as u32);
            let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().ok()? };
            let fraction = if fraction.is_empty() { 0 } else { fraction.parse::<u64>().ok()? };
            let part = u128::from(fraction) * u128::from(factor) / u128::from(scale);
            whole.checked_mul(factor)?.checked_add(part as u64)
        }
        Some(_) => None,
    }
}

fn format(value: u64, units: &[Unit], smallest: &str) -> String {
    match units.iter().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor)) {
        Some((name, factor)) => alloc::format!("{}{name}", value / factor),
        None => alloc::format!("{value}{smallest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(parse_size("32KiB"), Some(32_768));
        assert_eq!(parse_size("1GB"), Some(1_000_000_000));
        assert_eq!(parse_size("1.5 MiB"), Some(1_572_864));
        assert_eq!(parse_size("4096"), Some(4_096));
        assert_eq!(parse_size("4k"), Some(4_096));
        for wrong in ["", ".", "4 apples", "-4", "99999999999TiB", "1.0000000000KiB", "1.2.3KiB", "B"] {
            assert_eq!(parse_size(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn times() {
        assert_eq!(parse_time("90s"), Some(90_000_000_000));
        assert_eq!(parse_time("2h"), Some(7_200_000_000_000));
        assert_eq!(parse_time("0"), Some(0));
        assert_eq!(parse_time("5"), None);
        assert_eq!(parse_micros("5"), Some(5_000));
        assert_eq!(parse_micros("1.5ms"), Some(1_500_000));
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate("125MB/s"), parse_rate("1Gbit/s"));
        assert_eq!(parse_rate("1KiB/s"), Some(1_024));
        for wrong in ["125MB", "5", "5/s", "1Gbit", "ns/s"] {
            assert_eq!(parse_rate(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for value in [0, 1, 999, 1_000, 1_024, 1_500_000, MIB, 3 * MIB + KIB, SECOND, 60 * SECOND, u64::MAX] {
            assert_eq!(parse_size(&format_size(value)), Some(value));
            assert_eq!(parse_time(&format_time(value)), Some(value));
        }
        assert_eq!((format_size(512 * KIB), format_time(1_500 * US)), ("512KiB".into(), "1500us".into()));
    }
}
