//! What schedulers can be told: each parameter's name, unit, range and default, and values as text.
//!
//! A scheduler reads its parameters by these constants, so no name is written twice. The values of a choice are enums beside it.

use alloc::string::{String, ToString};

use super::config::ConfigError;
use crate::units::{self, KIB, MIB, MS, SECOND};

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

/// The longest run, in bytes.
pub const RUN_BYTES_MAX: Param = Param {
    name: "run_bytes_max",
    unit: ParamUnit::Bytes,
    default: 16 * MIB,
    min: 1,
    max: 1 << 40,
    help: "longest run, in bytes",
};
/// The longest run, in requests.
pub const RUN_REQUESTS_MAX: Param = Param {
    name: "run_requests_max",
    unit: ParamUnit::Count,
    default: 256,
    min: 1,
    max: 65_536,
    help: "longest run, in requests",
};
/// How long a request waits before it goes first.
pub const AGE_MAX: Param = Param {
    name: "age_max",
    unit: ParamUnit::Time,
    default: 5 * SECOND,
    min: 0,
    max: u64::MAX,
    help: "a request that has waited this long goes first (0: never, which can starve it)",
};
/// What a quantum of bytes grows by at each step.
pub const QUANTUM_BASE: Param = Param {
    name: "quantum_base",
    unit: ParamUnit::Bytes,
    default: 32 * KIB,
    min: 512,
    max: 1 << 30,
    help: "what a waiting run's quantum grows by at each step, times the queue's factor",
};
/// How long waits last: see [`Waits`].
pub const WAITS: Param = Param {
    name: "waits",
    unit: ParamUnit::Choice(&["fixed", "priced"]),
    default: 0,
    min: 0,
    max: 1,
    help: "waits last as long as is set below, or as long as they are expected to save device time, by its prices",
};
/// The longest wait for what follows.
pub const CONTIGUOUS_WAIT: Param = Param {
    name: "contiguous_wait",
    unit: ParamUnit::Time,
    default: MS,
    min: 0,
    max: SECOND,
    help: "longest wait for what follows a dispatch contiguously",
};
/// The longest wait for a run that may grow.
pub const WAIT_MAX: Param = Param {
    name: "wait_max",
    unit: ParamUnit::Time,
    default: 900_000,
    min: 0,
    max: SECOND,
    help: "longest wait for a run that is expected to grow",
};
/// The gate's index among those of its layer.
pub const NODE: Param = Param {
    name: "node",
    unit: ParamUnit::Count,
    default: 0,
    min: 0,
    max: u32::MAX as u64,
    help: "index of this node in its layer: node i begins at target i",
};
/// The length of a window.
pub const WINDOW: Param = Param {
    name: "window",
    unit: ParamUnit::Time,
    default: SECOND,
    min: 1_000,
    max: 3_600 * SECOND,
    help: "length of a window",
};
/// How many requests of a file are served in one turn.
pub const QUANTUM: Param = Param {
    name: "quantum",
    unit: ParamUnit::Count,
    default: 8,
    min: 1,
    max: 65_536,
    help: "requests of a file in one turn",
};
/// How far in the past an issue time is believed.
pub const SKEW_MAX: Param = Param {
    name: "skew_max",
    unit: ParamUnit::Time,
    default: SECOND,
    min: 0,
    max: 3_600 * SECOND,
    help: "an issue time further in the past is not believed",
};
/// The order of applications: see [`AppOrder`].
pub const ORDER: Param = Param {
    name: "order",
    unit: ParamUnit::Choice(&["id", "permuted"]),
    default: 0,
    min: 0,
    max: 1,
    help: "applications of a window by their ids, or on each node in another order: a control for experiments",
};
/// When windows begin: see [`Align`].
pub const ALIGN: Param = Param {
    name: "align",
    unit: ParamUnit::Choice(&["epoch", "start"]),
    default: 0,
    min: 0,
    max: 1,
    help: "windows begin at multiples of the window since the epoch, or when the gate starts",
};
/// What becomes of a window without requests: see [`Idle`].
pub const IDLE: Param = Param {
    name: "idle",
    unit: ParamUnit::Choice(&["wait", "skip"]),
    default: 0,
    min: 0,
    max: 1,
    help: "what to do when the window's target has nothing queued",
};
/// Whether requests are split at stripe boundaries.
pub const SPLIT: Param = Param {
    name: "split",
    unit: ParamUnit::Flag,
    default: 0,
    min: 0,
    max: 1,
    help: "split requests at stripe boundaries",
};

/// Values of [`WAITS`].
#[allow(missing_docs, reason = "the help of the parameter says it")]
pub enum Waits {
    Fixed,
    Priced,
}

/// Values of [`ORDER`].
#[allow(missing_docs, reason = "the help of the parameter says it")]
pub enum AppOrder {
    Id,
    Permuted,
}

/// Values of [`ALIGN`].
#[allow(missing_docs, reason = "the help of the parameter says it")]
pub enum Align {
    Epoch,
    Start,
}

/// Values of [`IDLE`].
#[allow(missing_docs, reason = "the help of the parameter says it")]
pub enum Idle {
    Wait,
    Skip,
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
