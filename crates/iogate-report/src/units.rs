//! Quantities for people: three significant digits and a unit.

/// A number of bytes: `512 B`, `32 KiB`, `1.50 MiB`.
pub fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// Bytes in an amount of time: `12.3 MiB/s`; a dash if no time passed.
pub fn rate(bytes_moved: u64, ns: u64) -> String {
    if ns == 0 { "-".into() } else { format!("{}/s", bytes(bytes_moved as f64 * 1e9 / ns as f64)) }
}

/// A length of time in nanoseconds: `900 ns`, `1.50 ms`, `75.0 s`.
pub fn time(ns: f64) -> String {
    scaled(ns, 1000.0, &["ns", "us", "ms", "s"])
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

/// A plain number with three significant digits.
pub fn number(x: f64) -> String {
    significant(x)
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    // What would be shown as 1000 or more (1024 for bytes) takes the next unit.
    while unit + 1 < units.len() && value.abs() >= step * 0.9995 {
        value /= step;
        unit += 1;
    }
    format!("{} {}", significant(value), units[unit])
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

#[cfg(test)]
mod tests {
    #[test]
    fn three_digits_and_a_unit() {
        let bytes = [0.0, 512.0, 1023.0, 1024.0, 32768.0, 1.5e6, 1048575.0, 3e12].map(super::bytes);
        assert_eq!(bytes, ["0 B", "512 B", "1023 B", "1 KiB", "32 KiB", "1.43 MiB", "1.00 MiB", "2.73 TiB"]);
        let times = [0.0, 900.0, 1500.0, 999_999.0, 12_345_678.0, 75e9, 4e12].map(super::time);
        assert_eq!(times, ["0 ns", "900 ns", "1.50 us", "1.00 ms", "12.3 ms", "75 s", "4000 s"]);
        assert_eq!(super::rate(1 << 20, 500_000_000), "2 MiB/s");
        assert_eq!(super::count(1_234_567), "1\u{202f}234\u{202f}567");
        assert_eq!(super::count(1234), "1234");
    }
}
