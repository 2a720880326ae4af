//! The rules of a coordinator's table, and their text form: `order=shortest,ageing=1GiB,passing=relaxed`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::nearest::{did_you_mean, nearest};
use crate::sched::{ConfigError, Param, ParamUnit};
use crate::time::Span;
use crate::units::MS;

/// Who is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// First come, first served (the thesis, section 3.2.1).
    #[default]
    Fcfs,
    /// The fewest bytes first; a claim counts as if it had `ageing` bytes less for each second that it has waited, so
    /// that the largest comes too.
    Shortest {
        /// Bytes per second; 0: none, and the largest may wait for ever.
        ageing: u64,
    },
    /// Parties share the time that they hold targets in proportion to their weights. Each has an account of the time in which it held
    /// anything of the place, over its weight; a claim's place in the order is its party's account when it comes, the smallest
    /// first. Who comes after a while without claims begins with no less than the largest account that was served, so time that was
    /// not used is not owed (start-time fair queueing, with the time that was really held). A claim without a party counts for its
    /// session.
    Weighted,
    /// Set-10: jobs form sets by the order of magnitude of their I/O period (seconds, base 10); within a set one holds
    /// a target at a time, first come first served; sets hold it side by side, and the grant says the share of the
    /// throughput, which favours short periods. Source: F. Boito, G. Pallez, L. Teylo, N. Vidal, *IO-SETS: Simple and
    /// Efficient Approaches for I/O Bandwidth Management*, IEEE TPDS 34(10), 2023. The share is that of the sets which
    /// hold the targets when the turn begins; it is not told anew when those change.
    Sets,
}

/// Whether a claim may pass those who came before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passing {
    /// One that waits blocks later ones on every target that they share.
    #[default]
    Preserve,
    /// A claim whose targets are all free goes ahead of those that wait for others.
    Relaxed,
}

/// The rules.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(into = "String", try_from = "String")
)]
pub struct CoordConfig {
    /// Who is next.
    pub order: Order,
    /// Who may pass.
    pub passing: Passing,
    /// With [`Passing::Relaxed`]: who has waited this long is let in although others hold its targets.
    pub block_max: Span,
    /// Parties that may hold a target at a time (of each set with [`Order::Sets`]); at least 1.
    pub slots: u32,
    /// How long a holder counts as one without renewing, and a client that is gone keeps its place.
    pub lease: Span,
    /// How long, while others wait, a party that holds targets takes in more claims of its own; then they queue.
    pub join: Span,
    /// Most claims, waiting and held.
    pub claims_max: usize,
    /// How long a turn may be, however often it is renewed; zero: any time.
    /// [`Table::limit_turns`](super::Table::limit_turns) says otherwise for places.
    pub turn_max: Span,
}

impl Default for CoordConfig {
    fn default() -> CoordConfig {
        CoordConfig {
            order: Order::Fcfs,
            passing: Passing::Preserve,
            block_max: Span::from_secs(600),
            slots: 1,
            lease: Span::from_secs(10),
            join: Span::from_secs(30),
            claims_max: 1 << 20,
            turn_max: Span::ZERO,
        }
    }
}

const DAY: u64 = 86_400 * 1_000 * MS;
const ORDERS: &[&str] = &["fcfs", "shortest", "weighted", "sets"];
const PASSINGS: &[&str] = &["preserve", "relaxed"];

/// The settings of a table.
const PARAMS: [Param; 9] = [
    Param {
        name: "order",
        unit: ParamUnit::Choice(ORDERS),
        default: 0,
        min: 0,
        max: 3,
        help: "who is next: who came first, who has least to write, who has held least for its weight, or Set-10",
    },
    Param {
        name: "ageing",
        unit: ParamUnit::Bytes,
        default: 100 << 20,
        min: 0,
        max: 1 << 50,
        help: "order=shortest: a claim counts as this much shorter for each second of waiting (0: never)",
    },
    Param {
        name: "passing",
        unit: ParamUnit::Choice(PASSINGS),
        default: 0,
        min: 0,
        max: 1,
        help: "whether a claim whose targets are free goes ahead of those that wait for others",
    },
    Param {
        name: "block_max",
        unit: ParamUnit::Time,
        default: 600_000 * MS,
        min: MS,
        max: 365 * DAY,
        help: "passing=relaxed: who has waited this long is let in beside those who hold its targets",
    },
    Param {
        name: "slots",
        unit: ParamUnit::Count,
        default: 1,
        min: 1,
        max: 1_000_000,
        help: "parties that may hold a target at a time",
    },
    Param {
        name: "lease",
        unit: ParamUnit::Time,
        default: 10_000 * MS,
        min: 10 * MS,
        max: DAY,
        help: "how long a holder counts as one without renewing, and a client that is gone keeps its place",
    },
    Param {
        name: "join",
        unit: ParamUnit::Time,
        default: 30_000 * MS,
        min: 0,
        max: DAY,
        help: "how long, while others wait, a party takes in more claims of its own",
    },
    Param {
        name: "claims_max",
        unit: ParamUnit::Count,
        default: 1 << 20,
        min: 1,
        max: 100_000_000,
        help: "most claims, waiting and held; half of them of one user",
    },
    Param {
        name: "turn_max",
        unit: ParamUnit::Time,
        default: 0,
        min: 0,
        max: 365 * DAY,
        help: "how long a turn may be, however often it is renewed: then it is lost (0: any time)",
    },
];

/// Why a setting of a table was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoordConfigError {
    /// Not `name=value`.
    #[error("'{text}': expected name=value, such as order=fcfs; several with commas between them")]
    Form {
        /// What came.
        text: String,
    },
    /// There is no such setting.
    #[error("turns have no setting '{name}'; {}expected one of: {known}", did_you_mean(.near))]
    Unknown {
        /// What came.
        name: String,
        /// The nearest name, if one is near.
        near: Option<String>,
        /// All names.
        known: String,
    },
    /// A setting came twice.
    #[error("{name} is set twice: expected once")]
    Twice {
        /// Its name.
        name: &'static str,
    },
    /// A setting that this order does not have.
    #[error("ageing is a setting of order=shortest, and the order is {order}")]
    Ageing {
        /// The order.
        order: &'static str,
    },
    /// The value is none, or out of range.
    #[error(transparent)]
    Value(#[from] ConfigError),
}

impl Order {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Order::Fcfs => "fcfs",
            Order::Shortest { .. } => "shortest",
            Order::Weighted => "weighted",
            Order::Sets => "sets",
        }
    }
}

impl Passing {
    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Passing::Preserve => "preserve",
            Passing::Relaxed => "relaxed",
        }
    }
}

impl CoordConfig {
    /// The settings, for help and lists.
    pub fn params() -> &'static [Param] {
        &PARAMS
    }

    /// Reads rules: settings with commas between them, in any order, and the defaults for the rest. An empty text is the defaults.
    pub fn parse(text: &str) -> Result<CoordConfig, CoordConfigError> {
        let mut values = PARAMS.map(|_| None);
        for setting in text.split(',').map(str::trim).filter(|setting| !setting.is_empty()) {
            let Some((name, value)) = setting.split_once('=') else {
                return Err(CoordConfigError::Form { text: setting.into() });
            };
            let name = name.trim();
            let Some(index) = PARAMS.iter().position(|param| param.name == name) else {
                let names = || PARAMS.iter().map(|param| param.name);
                let known = names().collect::<Vec<_>>().join(", ");
                return Err(CoordConfigError::Unknown {
                    name: name.into(),
                    near: nearest(name, names()),
                    known,
                });
            };
            if values[index].replace(PARAMS[index].parse(value.trim())?).is_some() {
                return Err(CoordConfigError::Twice { name: PARAMS[index].name });
            }
        }
        let value = |index: usize| values[index].unwrap_or(PARAMS[index].default);
        let order = match value(0) {
            0 => Order::Fcfs,
            1 => Order::Shortest { ageing: value(1) },
            2 => Order::Weighted,
            _ => Order::Sets,
        };
        if values[1].is_some() && !matches!(order, Order::Shortest { .. }) {
            return Err(CoordConfigError::Ageing { order: order.name() });
        }
        Ok(CoordConfig {
            order,
            passing: if value(2) == 0 { Passing::Preserve } else { Passing::Relaxed },
            block_max: Span::from_nanos(value(3)),
            slots: u32::try_from(value(4)).unwrap_or(u32::MAX),
            lease: Span::from_nanos(value(5)),
            join: Span::from_nanos(value(6)),
            claims_max: usize::try_from(value(7)).unwrap_or(usize::MAX),
            turn_max: Span::from_nanos(value(8)),
        })
    }

    /// In the order of [`PARAMS`]; `None`: the order does not have it.
    fn values(&self) -> [Option<u64>; 9] {
        let position =
            |words: &[&str], name: &str| words.iter().position(|word| *word == name).unwrap_or(0) as u64;
        let ageing = if let Order::Shortest { ageing } = self.order { Some(ageing) } else { None };
        [
            Some(position(ORDERS, self.order.name())),
            ageing,
            Some(position(PASSINGS, self.passing.name())),
            Some(self.block_max.as_nanos()),
            Some(self.slots.into()),
            Some(self.lease.as_nanos()),
            Some(self.join.as_nanos()),
            Some(self.claims_max as u64),
            Some(self.turn_max.as_nanos()),
        ]
    }
}

impl fmt::Display for CoordConfig {
    /// `order=shortest,lease=5s`: the order, and what differs from the defaults. [`CoordConfig::parse`] reads it back.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = PARAMS.iter().zip(self.values()).enumerate().filter_map(|(index, (param, value))| {
            let value = value?;
            (index == 0 || value != param.default).then(|| format!("{}={}", param.name, param.format(value)))
        });
        f.write_str(&settings.collect::<Vec<String>>().join(","))
    }
}

impl FromStr for CoordConfig {
    type Err = CoordConfigError;

    fn from_str(text: &str) -> Result<CoordConfig, CoordConfigError> {
        CoordConfig::parse(text)
    }
}

impl TryFrom<String> for CoordConfig {
    type Error = CoordConfigError;

    fn try_from(text: String) -> Result<CoordConfig, CoordConfigError> {
        CoordConfig::parse(&text)
    }
}

impl From<CoordConfig> for String {
    fn from(config: CoordConfig) -> String {
        config.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        for text in [
            "order=fcfs",
            "order=shortest",
            "order=shortest,ageing=0",
            "order=shortest,ageing=1GiB,passing=relaxed,block_max=90s,slots=3,lease=500ms,join=0ns,claims_max=77",
            "order=weighted,slots=2,turn_max=3600s",
            "order=sets,passing=relaxed",
        ] {
            assert_eq!(CoordConfig::parse(text).unwrap().to_string(), text);
        }
        for (index, param) in PARAMS.iter().enumerate() {
            for value in [param.min, param.default, param.max] {
                let order = if index == 1 { "order=shortest," } else { "" };
                let config =
                    CoordConfig::parse(&format!("{order}{}={}", param.name, param.format(value))).unwrap();
                assert_eq!(config.values()[index], Some(value), "{}", param.name);
                assert_eq!(CoordConfig::parse(&config.to_string()), Ok(config));
            }
        }
    }

    #[test]
    fn the_defaults_are_the_defaults() {
        assert_eq!(CoordConfig::parse(""), Ok(CoordConfig::default()));
        assert_eq!(CoordConfig::default().to_string(), "order=fcfs");
        let spaced = CoordConfig::parse(" ageing = 5MiB , order = shortest, ");
        assert_eq!(spaced.unwrap().order, Order::Shortest { ageing: 5 << 20 });
    }

    #[test]
    fn refusals_name_what_was_expected() {
        let message = |text| CoordConfig::parse(text).unwrap_err().to_string();
        assert!(message("order").contains("expected name=value"));
        assert!(message("order=fifo").contains("one of: fcfs, shortest, weighted, sets"));
        assert!(message("oder=fcfs").contains("did you mean 'order'?"));
        assert!(message("oder=fcfs").contains("block_max, slots, lease"));
        assert!(message("slots=0").contains("out of range: expected 1 to 1000000"));
        assert!(message("lease=1").contains("a time with its unit"));
        assert!(message("lease=1ms").contains("expected 10ms to 86400s"));
        assert!(message("slots=2,slots=3").contains("slots is set twice"));
        assert!(message("ageing=1GiB").contains("order=shortest, and the order is fcfs"));
    }
}
