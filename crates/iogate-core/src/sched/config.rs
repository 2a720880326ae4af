//! Names, parameters and their values: defined once here, and read by flags, files, help and reports.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::nearest::{did_you_mean, nearest};
use crate::time::Span;
use crate::units::{self, KIB, MIB, MS, SECOND};

/// The algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "each is documented in the file of its name")]
pub enum SchedulerKind {
    Fifo,
    ToAgg,
    Sjf,
    Mlf,
    Aioli,
    Hbrr,
    AppWindow,
    ServerWindow,
    Twins,
}

/// What a parameter's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamUnit {
    /// Bytes: `32KiB`, `16MiB`, `4096`.
    Bytes,
    /// Time, with its unit: `250ms`, `900us`, `1s`.
    Time,
    /// A plain number.
    Count,
    /// `true` or `false`.
    Flag,
    /// One of these words; the value is its index.
    Choice(&'static [&'static str]),
}

/// One parameter of an algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: &'static str,
    /// What its value counts.
    pub unit: ParamUnit,
    /// The value if none is set: bytes, nanoseconds, a number, 0 or 1, or an index.
    pub default: u64,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// One line of help.
    pub help: &'static str,
}

const RUN_BYTES_MAX: Param = Param {
    name: "run_bytes_max",
    unit: ParamUnit::Bytes,
    default: 16 * MIB,
    min: 1,
    max: 1 << 40,
    help: "longest run, in bytes",
};
const RUN_REQUESTS_MAX: Param = Param {
    name: "run_requests_max",
    unit: ParamUnit::Count,
    default: 256,
    min: 1,
    max: 65_536,
    help: "longest run, in requests",
};
const AGE_MAX: Param = Param {
    name: "age_max",
    unit: ParamUnit::Time,
    default: 5 * SECOND,
    min: 0,
    max: u64::MAX,
    help: "a request that has waited this long goes first (0: never, which can starve it)",
};
const QUANTUM_BASE: Param = Param {
    name: "quantum_base",
    unit: ParamUnit::Bytes,
    default: 32 * KIB,
    min: 512,
    max: 1 << 30,
    help: "what a waiting run's quantum grows by at each step, times the queue's factor",
};
const WAITS: Param = Param {
    name: "waits",
    unit: ParamUnit::Choice(&["fixed", "priced"]),
    default: 0,
    min: 0,
    max: 1,
    help: "waits last as long as is set below, or as long as they are expected to save device time, by its prices",
};
const CONTIGUOUS_WAIT: Param = Param {
    name: "contiguous_wait",
    unit: ParamUnit::Time,
    default: MS,
    min: 0,
    max: SECOND,
    help: "longest wait for what follows a dispatch contiguously",
};
const WAIT_MAX: Param = Param {
    name: "wait_max",
    unit: ParamUnit::Time,
    default: 900_000,
    min: 0,
    max: SECOND,
    help: "longest wait for a run that is expected to grow",
};
const NODE: Param = Param {
    name: "node",
    unit: ParamUnit::Count,
    default: 0,
    min: 0,
    max: u32::MAX as u64,
    help: "index of this node in its layer: node i begins at target i",
};
const WINDOW: Param = Param {
    name: "window",
    unit: ParamUnit::Time,
    default: SECOND,
    min: 1_000,
    max: 3_600 * SECOND,
    help: "length of a window",
};

impl SchedulerKind {
    /// All of them, in the order in which they are listed.
    pub const ALL: [SchedulerKind; 9] = [
        SchedulerKind::Fifo,
        SchedulerKind::ToAgg,
        SchedulerKind::Sjf,
        SchedulerKind::Mlf,
        SchedulerKind::Aioli,
        SchedulerKind::Hbrr,
        SchedulerKind::AppWindow,
        SchedulerKind::ServerWindow,
        SchedulerKind::Twins,
    ];

    /// Its name in settings and reports.
    pub const fn name(self) -> &'static str {
        match self {
            SchedulerKind::Fifo => "fifo",
            SchedulerKind::ToAgg => "to-agg",
            SchedulerKind::Sjf => "sjf",
            SchedulerKind::Mlf => "mlf",
            SchedulerKind::Aioli => "aioli",
            SchedulerKind::Hbrr => "hbrr",
            SchedulerKind::AppWindow => "app-window",
            SchedulerKind::ServerWindow => "server-window",
            SchedulerKind::Twins => "twins",
        }
    }

    /// One line on the order in which it serves.
    pub const fn summary(self) -> &'static str {
        match self {
            SchedulerKind::Fifo => "arrival order, one request at a time (alias: to)",
            SchedulerKind::ToAgg => "arrival order, contiguous requests aggregated",
            SchedulerKind::Sjf => "the file queue with the fewest queued bytes first",
            SchedulerKind::Mlf => "growing quanta, round over the file queues",
            SchedulerKind::Aioli => "growing quanta, arrival order between queues, one dispatch at a time",
            SchedulerKind::Hbrr => "a few requests of each file in turn",
            SchedulerKind::AppWindow => "one application at a time within a window of issue time",
            SchedulerKind::ServerWindow => "one target at a time within a window of arrival time",
            SchedulerKind::Twins => "one target for a window, then the next",
        }
    }

    /// Its parameters.
    pub const fn params(self) -> &'static [Param] {
        match self {
            SchedulerKind::Fifo => &[],
            SchedulerKind::ToAgg => &[RUN_BYTES_MAX, RUN_REQUESTS_MAX],
            SchedulerKind::Sjf => &[AGE_MAX, RUN_BYTES_MAX, RUN_REQUESTS_MAX],
            SchedulerKind::Mlf | SchedulerKind::Aioli => {
                &[QUANTUM_BASE, WAITS, CONTIGUOUS_WAIT, WAIT_MAX, AGE_MAX, RUN_BYTES_MAX, RUN_REQUESTS_MAX]
            }
            SchedulerKind::Hbrr => &[
                Param {
                    name: "quantum",
                    unit: ParamUnit::Count,
                    default: 8,
                    min: 1,
                    max: 65_536,
                    help: "requests of a file in one turn",
                },
                AGE_MAX,
                RUN_BYTES_MAX,
                RUN_REQUESTS_MAX,
            ],
            SchedulerKind::AppWindow => &[
                WINDOW,
                Param {
                    name: "skew_max",
                    unit: ParamUnit::Time,
                    default: SECOND,
                    min: 0,
                    max: 3_600 * SECOND,
                    help: "an issue time further in the past is not believed",
                },
                Param {
                    name: "order",
                    unit: ParamUnit::Choice(&["id", "permuted"]),
                    default: 0,
                    min: 0,
                    max: 1,
                    help: "applications of a window by their ids, or on each node in another order: a control for experiments",
                },
                Param { help: "index of this node in its layer, for `permuted`", ..NODE },
            ],
            SchedulerKind::ServerWindow => &[WINDOW],
            SchedulerKind::Twins => &[
                Param { default: MS, ..WINDOW },
                Param {
                    name: "align",
                    unit: ParamUnit::Choice(&["epoch", "start"]),
                    default: 0,
                    min: 0,
                    max: 1,
                    help: "windows begin at multiples of the window since the epoch, or when the gate starts",
                },
                Param {
                    name: "idle",
                    unit: ParamUnit::Choice(&["wait", "skip"]),
                    default: 0,
                    min: 0,
                    max: 1,
                    help: "what to do when the window's target has nothing queued",
                },
                Param {
                    name: "split",
                    unit: ParamUnit::Flag,
                    default: 0,
                    min: 0,
                    max: 1,
                    help: "split requests at stripe boundaries",
                },
                NODE,
                AGE_MAX,
            ],
        }
    }
}

/// An algorithm and the values of its parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedulerConfig {
    kind: SchedulerKind,
    values: Vec<u64>,
}

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// No such algorithm.
    #[error("unknown scheduler '{name}'; {}expected one of: {known}", did_you_mean(.near))]
    UnknownScheduler {
        /// What was asked for.
        name: String,
        /// The nearest name, if one is near.
        near: Option<String>,
        /// All names.
        known: String,
    },
    /// The algorithm has no such parameter.
    #[error("scheduler {scheduler} has no parameter '{name}'; {}it has: {known}", did_you_mean(.near))]
    UnknownParam {
        /// The algorithm.
        scheduler: &'static str,
        /// What was asked for.
        name: String,
        /// The nearest name, if one is near.
        near: Option<String>,
        /// All its parameters.
        known: String,
    },
    /// The value does not parse.
    #[error("{name} = '{value}': expected {expected}")]
    BadValue {
        /// The parameter.
        name: String,
        /// What was given.
        value: String,
        /// What was expected.
        expected: String,
    },
    /// The value is out of range.
    #[error("{name} = {value} is out of range: expected {min} to {max}")]
    OutOfRange {
        /// The parameter.
        name: String,
        /// What was given.
        value: String,
        /// The smallest value.
        min: String,
        /// The largest value.
        max: String,
    },
}

impl ConfigError {
    pub(crate) fn out_of_range(name: &str, value: u64, min: u64, max: u64) -> ConfigError {
        let (value, min, max) = (value.to_string(), min.to_string(), max.to_string());
        ConfigError::OutOfRange { name: name.into(), value, min, max }
    }
}

impl SchedulerConfig {
    /// The algorithm with its defaults.
    pub fn new(kind: SchedulerKind) -> SchedulerConfig {
        SchedulerConfig { kind, values: kind.params().iter().map(|param| param.default).collect() }
    }

    /// The algorithm with this name or alias, with its defaults.
    pub fn by_name(name: &str) -> Result<SchedulerConfig, ConfigError> {
        if name == "to" {
            return Ok(SchedulerConfig::new(SchedulerKind::Fifo));
        }
        let names = || SchedulerKind::ALL.iter().map(|kind| kind.name());
        match SchedulerKind::ALL.iter().find(|kind| kind.name() == name) {
            Some(kind) => Ok(SchedulerConfig::new(*kind)),
            None => Err(ConfigError::UnknownScheduler {
                name: name.into(),
                near: nearest(name, names()),
                known: names().collect::<Vec<_>>().join(", "),
            }),
        }
    }

    /// The algorithm.
    pub fn kind(&self) -> SchedulerKind {
        self.kind
    }

    /// Sets a parameter from text, as on a command line.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let params = self.kind.params();
        let Some(index) = params.iter().position(|param| param.name == name) else {
            let names = || params.iter().map(|param| param.name);
            return Err(ConfigError::UnknownParam {
                scheduler: self.kind.name(),
                name: name.into(),
                near: nearest(name, names()),
                known: if params.is_empty() { "none".into() } else { names().collect::<Vec<_>>().join(", ") },
            });
        };
        self.values[index] = params[index].parse(text)?;
        Ok(())
    }

    /// These settings changed by a text: `scheduler=sjf,age_max=1s`, or only parameters of the scheduler in force. If it names a scheduler,
    /// that is told which `node` of its layer it is. All or nothing; the error is for people.
    pub fn changed(&self, text: &str, node: u32) -> Result<SchedulerConfig, String> {
        let mut settings = self.clone();
        for (index, item) in text.split([',', ' ']).filter(|item| !item.is_empty()).enumerate() {
            let (name, value) = item
                .split_once('=')
                .ok_or_else(|| alloc::format!("'{item}': expected name=value, as in window=250ms"))?;
            if name != "scheduler" {
                settings.set(name, value).map_err(|error| error.to_string())?;
            } else if index == 0 {
                settings = SchedulerConfig::by_name(value).map_err(|error| error.to_string())?;
                settings.set_node(node);
            } else {
                return Err(alloc::format!(
                    "'{item}': expected the scheduler before its parameters, and only once"
                ));
            }
        }
        Ok(settings)
    }

    /// Says which of the nodes of its layer the gate is, where that matters to the algorithm.
    pub fn set_node(&mut self, node: u32) {
        if let Some(index) = self.kind.params().iter().position(|param| param.name == "node") {
            self.values[index] = node.into();
        }
    }

    /// The value of a parameter that the algorithm has: bytes, nanoseconds, a number, 0 or 1, or an index.
    ///
    /// # Panics
    /// If the algorithm has no such parameter: a mistake in the program, not in its input.
    pub fn value(&self, name: &str) -> u64 {
        let index = self.kind.params().iter().position(|param| param.name == name);
        self.values[index.expect("the scheduler has the parameter that it reads")]
    }

    /// The value of a parameter of unit time.
    ///
    /// # Panics
    /// As [`SchedulerConfig::value`].
    pub fn span(&self, name: &str) -> Span {
        Span::from_nanos(self.value(name))
    }

    /// Each parameter with its value as text, as every result reports them.
    pub fn values(&self) -> impl Iterator<Item = (&'static Param, String)> + '_ {
        self.kind.params().iter().zip(&self.values).map(|(param, &value)| (param, param.format(value)))
    }
}

impl fmt::Display for SchedulerConfig {
    /// `aioli(quantum_base=32KiB,...)`, with what differs from the defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name())?;
        let changed: Vec<String> = (self.kind.params().iter().zip(&self.values))
            .filter(|(param, value)| param.default != **value)
            .map(|(param, &value)| alloc::format!("{}={}", param.name, param.format(value)))
            .collect();
        if changed.is_empty() { Ok(()) } else { write!(f, "({})", changed.join(",")) }
    }
}

impl Param {
    /// Reads a value.
    pub fn parse(&self, text: &str) -> Result<u64, ConfigError> {
        let bad = |expected: &str| ConfigError::BadValue {
            name: self.name.into(),
            value: text.into(),
            expected: expected.into(),
        };
        let value = match self.unit {
            ParamUnit::Bytes => units::parse_size(text)
                .ok_or_else(|| bad("a number of bytes, such as 4096, 32KiB or 16MiB"))?,
            ParamUnit::Time => units::parse_time(text)
                .ok_or_else(|| bad("a time with its unit, such as 900us, 250ms or 1s"))?,
            ParamUnit::Count => text.parse().map_err(|_| bad("a whole number"))?,
            ParamUnit::Flag => match text {
                "true" | "yes" | "on" | "1" => 1,
                "false" | "no" | "off" | "0" => 0,
                _ => return Err(bad("true or false")),
            },
            ParamUnit::Choice(words) => match words.iter().position(|word| *word == text) {
                Some(index) => index as u64,
                None => return Err(bad(&alloc::format!("one of: {}", words.join(", ")))),
            },
        };
        if (self.min..=self.max).contains(&value) {
            return Ok(value);
        }
        Err(ConfigError::OutOfRange {
            name: self.name.into(),
            value: text.into(),
            min: self.format(self.min),
            max: self.format(self.max),
        })
    }

    /// Writes a value so that [`Param::parse`] reads it back.
    pub fn format(&self, value: u64) -> String {
        match self.unit {
            ParamUnit::Bytes => units::format_size(value),
            ParamUnit::Time => units::format_time(value),
            ParamUnit::Count => value.to_string(),
            ParamUnit::Flag => (value != 0).to_string(),
            ParamUnit::Choice(words) => words.get(value as usize).copied().unwrap_or("?").to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_all_or_nothing() {
        let aioli = SchedulerConfig::by_name("aioli").unwrap();
        let changed = aioli.changed("quantum_base=64KiB", 0).unwrap();
        assert_eq!(changed.to_string(), "aioli(quantum_base=64KiB)");
        let sjf = changed.changed("scheduler=sjf,age_max=1s", 0).unwrap();
        assert_eq!(sjf.to_string(), "sjf(age_max=1s)");
        assert_eq!(sjf.changed("scheduler=twins", 2).unwrap().value("node"), 2);
        assert_eq!(sjf.changed("scheduler=twins,node=5", 2).unwrap().value("node"), 5);
        assert!(aioli.changed("scheduler=aiolo", 0).unwrap_err().contains("did you mean 'aioli'"));
        assert!(aioli.changed("quantum_bas=1", 0).unwrap_err().contains("quantum_base"));
        assert!(aioli.changed("sjf", 0).unwrap_err().contains("expected name=value"));
        assert!(aioli.changed("age_max=1s,scheduler=sjf", 0).unwrap_err().contains("before its parameters"));
    }

    #[test]
    fn values_read_back_as_written() {
        for kind in SchedulerKind::ALL {
            for param in kind.params() {
                for value in [param.min, param.default, param.max] {
                    assert_eq!(
                        param.parse(&param.format(value)),
                        Ok(value),
                        "{} of {}",
                        param.name,
                        kind.name()
                    );
                }
            }
        }
    }

    #[test]
    fn units() {
        let mut aioli = SchedulerConfig::by_name("aioli").unwrap();
        aioli.set("quantum_base", "0.5MiB").unwrap();
        aioli.set("wait_max", "1.5ms").unwrap();
        assert_eq!((aioli.value("quantum_base"), aioli.value("wait_max")), (524_288, 1_500_000));
        assert_eq!(aioli.to_string(), "aioli(quantum_base=512KiB,wait_max=1500us)");
    }

    #[test]
    fn refusals_name_what_was_expected() {
        let message = |result: Result<(), ConfigError>| result.unwrap_err().to_string();
        let by_name = |name| SchedulerConfig::by_name(name).map(drop);
        assert!(message(by_name("aoili")).contains("did you mean 'aioli'?"));
        assert!(message(by_name("aoili")).contains("fifo, to-agg, sjf"));
        let mut twins = SchedulerConfig::by_name("twins").unwrap();
        assert!(message(twins.set("widow", "1ms")).contains("did you mean 'window'?"));
        assert!(message(twins.set("window", "1")).contains("a time with its unit"));
        assert!(message(twins.set("window", "1ns")).contains("out of range: expected 1us to 3600s"));
        assert!(message(twins.set("idle", "stop")).contains("one of: wait, skip"));
        assert!(message(twins.set("split", "maybe")).contains("true or false"));
        assert!(message(twins.set("window", "99999999999999999999s")).contains("a time with its unit"));
    }
}
