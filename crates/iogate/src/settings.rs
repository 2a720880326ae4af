//! Text into settings: schedulers, parameters, sizes.

use iogate_core::SchedulerConfig;
use iogate_core::sched::{ConfigError, Param, ParamUnit};

/// A scheduler's settings as text: `scheduler=sjf,age_max=1s`, or only parameters of the scheduler in force.
pub(crate) fn apply(current: &SchedulerConfig, text: &str) -> Result<SchedulerConfig, String> {
    let mut settings = current.clone();
    for (index, item) in text.split([',', ' ']).filter(|item| !item.is_empty()).enumerate() {
        let (name, value) = split(item)?;
        if name != "scheduler" {
            settings.set(name, value).map_err(|error| error.to_string())?;
        } else if index == 0 {
            settings = SchedulerConfig::by_name(value).map_err(|error| error.to_string())?;
        } else {
            return Err(format!("'{item}': expected the scheduler before its parameters, and only once"));
        }
    }
    Ok(settings)
}

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

/// Bytes as a flag would have them, exactly.
pub(crate) fn bytes_shown(bytes: u64) -> String {
    BYTES.format(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_all_or_nothing() {
        let aioli = SchedulerConfig::by_name("aioli").unwrap();
        let changed = apply(&aioli, "quantum_base=64KiB").unwrap();
        assert_eq!(changed.to_string(), "aioli(quantum_base=64KiB)");
        let sjf = apply(&changed, "scheduler=sjf,age_max=1s").unwrap();
        assert_eq!(sjf.to_string(), "sjf(age_max=1s)");
        assert!(apply(&aioli, "scheduler=aiolo").unwrap_err().contains("did you mean 'aioli'"));
        assert!(apply(&aioli, "quantum_bas=1").unwrap_err().contains("quantum_base"));
        assert!(apply(&aioli, "sjf").unwrap_err().contains("expected name=value"));
        assert!(apply(&aioli, "age_max=1s,scheduler=sjf").unwrap_err().contains("before its parameters"));
    }
}
