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
            let line = line_of(text, at.start);
            let there = text.lines().nth(line - 1).unwrap_or_default().trim();
            match there.chars().count() <= LINE_MAX {
                true => anyhow::anyhow!("line {line}, `{there}`: {said}"),
                false => anyhow::anyhow!("line {line}: {said}"),
            }
        }
        None => anyhow::anyhow!("{said}"),
    }
}

/// Bytes as a flag would have them, exactly.
pub(crate) fn bytes_shown(bytes: u64) -> String {
    BYTES.format(bytes)
}
