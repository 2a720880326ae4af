//! Quantities for people: three significant digits and a unit.

use iogate_core::units::plural;
use iogate_sim::metrics::Unit;
use iogate_sim::stat::Estimate;

use crate::claims::Interval;

const BYTES: (f64, &[&str]) = (1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
const TIMES: (f64, &[&str]) = (1000.0, &["ns", "us", "ms", "s"]);

/// A number of bytes: `512 B`, `32 KiB`, `1.50 MiB`.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, BYTES)
}

/// Bytes in an amount of time: `12.3 MiB/s`; a dash if no time passed.
pub fn rate(bytes_moved: u64, ns: u64) -> String {
    if ns == 0 { "-".into() } else { format!("{}/s", bytes(bytes_moved as f64 * 1e9 / ns as f64)) }
}

/// A length of time in nanoseconds: `900 ns`, `1.50 ms`, `75.0 s`.
pub fn time(ns: f64) -> String {
    scaled(ns, TIMES)
}

/// A count with its thousands apart: `1 234 567`, by thin no-break spaces.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && digits.len() > 4 {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// So many of a thing: `1 group`, `2 groups`.
pub fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{} {}", count(n), plural(n, one, more))
}

/// A plain number with three significant digits.
pub fn number(x: f64) -> String {
    significant(x)
}

/// A value of a metric: `12.3 ms`, `1.50 MiB/s`, `42 %`.
pub fn quantity(value: f64, unit: Unit) -> String {
    let (factor, name) = scale(value, unit);
    format!("{}{name}", significant(value * factor))
}

/// A mean with its interval, in one unit: `12.3 \u{b1} 0.40 ms`; the mean alone where there is no interval.
pub fn estimate(estimate: &Estimate, unit: Unit) -> String {
    interval(estimate.mean, estimate.half_width, unit)
}

/// A value and half the width of the interval around it, in one unit.
pub(crate) fn interval(value: f64, half_width: Option<f64>, unit: Unit) -> String {
    let (factor, name) = scale(value, unit);
    let value = significant(value * factor);
    match half_width {
        Some(half_width) => format!("{value} \u{b1} {}{name}", deviation(half_width * factor)),
        None => format!("{value}{name}"),
    }
}

/// A value and the ends of the interval around it, in one unit: `12.3 (12.0 to 12.9) ms`; the value alone where there is no interval.
pub(crate) fn ends(of: Interval, unit: Unit) -> String {
    let (factor, name) = scale(of.mean, unit);
    let [low, mean, high] = [of.low, of.mean, of.high].map(|value| significant(value * factor));
    if of.low == of.high { format!("{mean}{name}") } else { format!("{mean} ({low} to {high}){name}") }
}

/// As [`significant`], with three decimals of what is small; nobody needs to know what is below that.
fn deviation(x: f64) -> String {
    match x {
        x if x <= 0.0 || x >= 0.005 => significant(x),
        x if x >= 0.001 => format!("{x:.3}"),
        _ => "<0.001".into(),
    }
}

/// What to multiply values like `value` with for people, and the unit to name then, with the space before it.
fn scale(value: f64, unit: Unit) -> (f64, String) {
    let (factor, name) = match unit {
        Unit::Seconds if value == 0.0 => (1.0, "s".to_owned()),
        Unit::Seconds => {
            let (divisor, name) = prefix(value * 1e9, TIMES);
            (1e9 / divisor, name.to_owned())
        }
        Unit::Bytes | Unit::BytesPerSecond => {
            let (divisor, name) = prefix(value, BYTES);
            (1.0 / divisor, if unit == Unit::Bytes { name.to_owned() } else { format!("{name}/s") })
        }
        // Small runs take seconds of a core, of which hours have no digit left.
        Unit::CoreHours if value > 0.0 && value < 0.05 => (3600.0, "core s".to_owned()),
        Unit::CoreHours => (1.0, "core h".to_owned()),
        Unit::Percent => (1.0, "%".to_owned()),
        Unit::Count | Unit::Ratio => return (1.0, String::new()),
    };
    (factor, format!(" {name}"))
}

fn scaled(value: f64, units: (f64, &[&'static str])) -> String {
    let (divisor, unit) = prefix(value, units);
    format!("{} {unit}", significant(value / divisor))
}

/// The largest unit in which the value is not shown as less than 1, and how much of the first unit it is.
fn prefix(value: f64, (step, units): (f64, &[&'static str])) -> (f64, &'static str) {
    let (mut unit, mut divisor) = (0, 1.0);
    // What would be shown as 1000 or more (1024 for bytes) takes the next unit.
    while unit + 1 < units.len() && (value / divisor).abs() >= step * 0.9995 {
        divisor *= step;
        unit += 1;
    }
    (divisor, units[unit])
}

fn significant(x: f64) -> String {
    let decimals = match x.abs() {
        x if x >= 99.95 => 0,
        x if x >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{x:.decimals$}");
    // Whole numbers are shown as such: 32 KiB, not 32.0 KiB.
    if x.fract() == 0.0 { format!("{x:.0}") } else { text }
}

/// A day, as in 2026-11-26, of a time in seconds since 1970 (UTC).
pub fn date(seconds: u64) -> String {
    // Days since 0000-03-01, so that the day that not all years have is the last one; 146,097 are 400 years.
    let days = seconds / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * month + 2) / 5 + 1, (month + 2) % 12 + 1);
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    use super::{Estimate, Unit};

    #[test]
    fn three_digits_and_a_unit() {
        let bytes = [0.0, 512.0, 1023.0, 1024.0, 32768.0, 1.5e6, 1048575.0, 3e12].map(super::bytes);
        assert_eq!(bytes, ["0 B", "512 B", "1023 B", "1 KiB", "32 KiB", "1.43 MiB", "1.00 MiB", "2.73 TiB"]);
        let times = [0.0, 900.0, 1500.0, 999_999.0, 12_345_678.0, 75e9, 4e12].map(super::time);
        assert_eq!(times, ["0 ns", "900 ns", "1.50 us", "1.00 ms", "12.3 ms", "75 s", "4000 s"]);
        assert_eq!(super::rate(1 << 20, 500_000_000), "2 MiB/s");
        assert_eq!(super::count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(super::count(1234), "1234");
        let words = [0, 1, 12].map(|n| super::counted(n, "change", "changes"));
        assert_eq!(words, ["0 changes", "1 change", "12 changes"]);
    }

    #[test]
    fn means_and_their_intervals_share_a_unit() {
        let of = |mean, half_width| Estimate { n: 8, mean, stddev: Some(1.0), half_width };
        assert_eq!(super::estimate(&of(0.0123, Some(0.0004)), Unit::Seconds), "12.3 \u{b1} 0.40 ms");
        assert_eq!(super::estimate(&of(1.5e6, Some(1e6)), Unit::BytesPerSecond), "1.43 \u{b1} 0.95 MiB/s");
        assert_eq!(super::estimate(&of(1.25, None), Unit::Ratio), "1.25");
        assert_eq!(super::estimate(&of(1.25, Some(0.0021)), Unit::Ratio), "1.25 \u{b1} 0.002");
        assert_eq!(super::estimate(&of(1.25, Some(0.0009)), Unit::Ratio), "1.25 \u{b1} <0.001");
        assert_eq!(super::estimate(&of(0.0, Some(0.0)), Unit::Seconds), "0 \u{b1} 0 s");
        assert_eq!(super::quantity(0.5, Unit::Percent), "0.50 %");
        assert_eq!(super::estimate(&of(0.002, Some(0.0001)), Unit::CoreHours), "7.20 \u{b1} 0.36 core s");
        assert_eq!(super::estimate(&of(0.35, Some(0.0001)), Unit::CoreHours), "0.35 \u{b1} <0.001 core h");
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, day) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_764_115_200, "2025-11-26"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(super::date(seconds), day);
        }
    }
}
