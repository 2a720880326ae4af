//! Text into settings: schedulers, parameters, sizes.

use iogate_core::SchedulerConfig;
use iogate_core::sched::{ConfigError, Param, ParamUnit};

/// A scheduler with parameters, each `name=value`.
pub(crate) fn scheduler(name: &str, params: &[String]) -> Result<SchedulerConfig, anyhow::Error> {
    let mut settings = SchedulerConfig::by_name(name)?;
    for item in params {
        let (name, value) = split(item).map_err(anyhow::Error::msg)?;
        settings.set(name, value)?;
    }
    Ok(settings)
}

fn split(item: &str) -> Result<(&str, &str), String> {
    item.split_once('=').ok_or_else(|| format!("'{item}': expected name=value, as in window=250ms"))
}

const BYTES: Param = Param {
    name: "bytes",
    unit: ParamUnit::Bytes,
    default: 1,
    min: 1,
    max: 1 << 62,
    help: "a number of bytes",
};

/// Bytes from a flag: `65536`, `64KiB`, `1MiB`.
pub(crate) fn bytes(text: &str) -> Result<u64, ConfigError> {
    BYTES.parse(text)
}

/// A time from a flag, in nanoseconds: `250ms`, `60s`.
pub(crate) fn nanoseconds(text: &str) -> Result<u64, ConfigError> {
    const TIME: Param =
        Param { name: "time", unit: ParamUnit::Time, default: 0, min: 0, max: u64::MAX, help: "a time" };
    TIME.parse(text)
}

/// The line of a byte of a text, from 1 on.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count()
}

/// Lines of files that are longer are not shown in messages.
const LINE_MAX: usize = 80;

/// A file that is not as it should be, in one line: where, and what was expected.
pub(crate) fn toml_error(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let said = error.message().lines().collect::<Vec<_>>().join(", ");
    match error.span() {
        Some(at) => {
            let said = in_words(&said, there(text, at.start));
            toml_line(text, at.start, &said)
        }
        None => anyhow::anyhow!("{}", in_words(&said, "")),
    }
}

/// What is wrong with a byte of a file, with the line that it is in.
pub(crate) fn toml_line(text: &str, at: usize, said: &str) -> anyhow::Error {
    let (line, there) = (line_of(text, at), there(text, at));
    match there.chars().count() <= LINE_MAX {
        true => anyhow::anyhow!("line {line}, `{there}`: {said}"),
        false => anyhow::anyhow!("line {line}: {said}"),
    }
}

/// The line that a byte is in.
fn there(text: &str, at: usize) -> &str {
    text.lines().nth(line_of(text, at) - 1).unwrap_or_default().trim()
}

/// What the reader of a file says in the language of programs, in that of the file. `there`: the line.
fn in_words(said: &str, there: &str) -> String {
    let is_header = there.starts_with('[') && !there.starts_with("[[");
    if let Some(name) = there.strip_prefix('[').and_then(|rest| rest.split(']').next())
        && is_header
        && said == "invalid type: map, expected a sequence"
    {
        return format!("there may be several of it: write [[{name}]]");
    }
    let Some((found, expected)) = said.rsplit_once(", expected ") else { return said.to_owned() };
    let number = |kind: &str| {
        let is_number = |kind: &str| {
            let bits = kind.strip_prefix(['u', 'i']);
            bits.is_some_and(|bits| bits == "size" || bits.parse::<u8>().is_ok())
        };
        match kind.strip_prefix("a nonzero ") {
            Some(kind) if is_number(kind) => Some("a whole number from 1 on"),
            None if is_number(kind) && kind.starts_with('u') => Some("a whole number from 0 on"),
            None if is_number(kind) => Some("a whole number"),
            _ => None,
        }
    };
    let expected = match expected {
        "a sequence" => "a list, as in [1, 2]",
        "a map" => "a table, as in { key = 1 }",
        kind if kind.starts_with("struct ") || kind.starts_with("internally tagged enum ") => {
            "a table, as in { key = 1 }"
        }
        kind => number(kind).unwrap_or(kind),
    };
    let found = found.replace("invalid type: map", "invalid type: table");
    let found = found.replace("invalid type: sequence", "invalid type: list");
    format!("{found}, expected {expected}")
}

/// Bytes as a flag would have them, exactly.
pub(crate) fn bytes_shown(bytes: u64) -> String {
    BYTES.format(bytes)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Server {
        #[allow(dead_code, reason = "only its form matters")]
        listen: Vec<Listen>,
    }

    #[derive(Debug, Deserialize)]
    struct Listen {
        #[allow(dead_code, reason = "only its form matters")]
        connections: std::num::NonZero<usize>,
    }

    #[test]
    fn errors_are_in_the_language_of_the_file() {
        for (text, expected) in [
            ("[listen]\nconnections = 1", "line 1, `[listen]`: there may be several of it: write [[listen]]"),
            ("listen = 3", "expected a list, as in [1, 2]"),
            ("listen = [3]", "invalid type: integer `3`, expected a table, as in { key = 1 }"),
            ("[[listen]]\nconnections = 0", "invalid value: integer `0`, expected a whole number from 1 on"),
            ("[[listen]]\nconnections = []", "invalid type: list, expected a whole number from 1 on"),
        ] {
            let error = toml_error(text, &toml::from_str::<Server>(text).unwrap_err()).to_string();
            assert!(error.ends_with(expected), "{text}: {error}");
        }
    }
}
