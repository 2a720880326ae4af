//! The keys of a scenario, defined once: the reader, its messages and `docs/scenarios.md` have them from here.

mod faults;
mod keys;

use std::fmt;

use iogate_core::units;

use super::document::{Data, Value};
use faults::{FAULT, GLOBAL, GROUP};
use keys::{
    APP, BACKOFF, BATCH, CACHE, CLIENTS, COLLECTIVE, COORDINATION, FORWARDERS, JOBS, NETWORK, PROCESSOR,
    SERVERS,
};

pub(super) use keys::{BYTES_MAX, GATE, PROCESSES_MAX, SCENARIO};

/// A table of a scenario.
#[derive(Debug)]
pub struct Schema {
    /// What messages and the documentation call it.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [Key],
}

/// One key of a table.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// What its value is.
    pub takes: Takes,
    /// What holds if it is not there.
    pub default: Absent,
    /// One line on what it means.
    pub help: &'static str,
}

/// What holds if a key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It must be there.
    Required,
    /// This value, as in a file but without quotes.
    Value(&'static str),
    /// What these words say.
    Words(&'static str),
}

/// What a value is.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    /// Any text.
    Text,
    /// A list of texts.
    Texts,
    /// A whole number from the first to the second.
    Count(u64, u64),
    /// A number of bytes from the first to the second.
    Bytes(u64, u64),
    /// A time, at least so many nanoseconds.
    Time(u64),
    /// A time that may be negative.
    SignedTime,
    /// Bytes per second.
    Rate,
    /// A number from the first to the second.
    Number(f64, f64),
    /// `true` or `false`.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One of these, or `unlimited`.
    OrUnlimited(&'static Takes),
    /// A time, always the same or drawn.
    Distribution,
    /// A list of two values of this kind, or one for both.
    Range(&'static Takes),
    /// A table.
    Table(&'static Schema),
    /// A table that also takes the parameters of its scheduler.
    Gate(&'static Schema),
    /// A table of such tables, each with its name.
    Named(&'static Schema),
    /// A list of such tables.
    List(&'static Schema),
    /// A table with keys of the whole scenario in it.
    Settings,
}

/// The longest time that a key takes, in nanoseconds: a year.
pub(super) const TIME_MAX: u64 = 8_760 * 3_600_000_000_000;
/// The highest rate, in bytes a second.
const RATE_MAX: u64 = 1 << 60;

impl Takes {
    /// The value as a number: bytes, nanoseconds, bytes per second, 0 or 1, the index of a word, [`u64::MAX`] for no limit.
    /// `None` if it is of another kind or out of range.
    pub(super) fn number(&self, value: &Value) -> Option<u64> {
        let within = |number: u64, min: u64, max: u64| (min..=max).contains(&number).then_some(number);
        match (*self, &value.data) {
            (Takes::Count(min, max) | Takes::Bytes(min, max), Data::Integer(number)) => {
                within(u64::try_from(*number).ok()?, min, max)
            }
            (Takes::Bytes(min, max), Data::Text(text)) => within(units::parse_size(text)?, min, max),
            (Takes::Time(min), Data::Text(text)) => within(units::parse_time(text)?, min, TIME_MAX),
            (Takes::Time(0), Data::Integer(0)) => Some(0),
            (Takes::Rate, Data::Text(text)) => within(units::parse_rate(text)?, 1, RATE_MAX),
            (Takes::Flag, Data::Flag(flag)) => Some((*flag).into()),
            (Takes::Choice(words), Data::Text(text)) => {
                words.iter().position(|word| word == text).map(|index| index as u64)
            }
            (Takes::OrUnlimited(_), Data::Text(text)) if text == "unlimited" => Some(u64::MAX),
            (Takes::OrUnlimited(takes), _) => takes.number(value),
            _ => None,
        }
    }

    /// What a message says was expected, with the limits that are the same everywhere: a table of all keys need not repeat them.
    pub(super) fn expected(&self) -> String {
        let one = match self {
            Takes::OrUnlimited(one) | Takes::Range(one) => one,
            one => one,
        };
        let limits = match one {
            Takes::Time(_) | Takes::SignedTime => "at most 8760h",
            Takes::Distribution => "each at most 8760h, of two the lower first",
            Takes::Rate => "from 1B/s to 1048576TiB/s",
            _ => return self.to_string(),
        };
        format!("{self}; {limits}")
    }

    /// Whether one value of this kind is itself a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self, Takes::Texts | Takes::Range(_) | Takes::List(_))
    }
}

impl fmt::Display for Takes {
    /// What is expected.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Takes::Text => f.write_str("a text"),
            Takes::Texts => f.write_str("a list of texts"),
            Takes::Count(min, max) => write!(f, "a whole number from {min} to {max}"),
            Takes::Bytes(min, max) => {
                let (min, max) = (units::format_size(*min), units::format_size(*max));
                write!(f, "bytes, as in 4096 or 32KiB, from {min} to {max}")
            }
            Takes::Time(0) => f.write_str("a time with its unit, as in 250ms"),
            Takes::Time(1) => f.write_str("a time with its unit, as in 250ms, not 0"),
            Takes::Time(min) => {
                write!(f, "a time with its unit, as in 250ms, at least {}", units::format_time(*min))
            }
            Takes::SignedTime => f.write_str("a time with its unit, as in 250ms or -5ms"),
            Takes::Rate => f.write_str("a rate, as in 125MB/s or 1Gbit/s"),
            Takes::Number(min, max) => write!(f, "a number from {min} to {max}"),
            Takes::Flag => f.write_str("true or false"),
            Takes::Choice(words) => write!(f, "one of: {}", words.join(", ")),
            Takes::OrUnlimited(takes) => write!(f, "{takes}; or unlimited"),
            Takes::Distribution => f.write_str(
                "a time, as in 5ms; or { uniform = [\"1s\", \"2s\"] }; or { exponential = \"5ms\" }",
            ),
            Takes::Range(takes) => write!(f, "two of, the lower first (or one): {takes}"),
            Takes::Table(schema) => write!(f, "a table ({})", schema.name),
            Takes::Gate(schema) => write!(f, "a table ({}, and the scheduler's parameters)", schema.name),
            Takes::Named(schema) => write!(f, "tables by name ({})", schema.name),
            Takes::List(schema) => write!(f, "a list of tables ({})", schema.name),
            Takes::Settings => f.write_str("a table of keys of the scenario"),
        }
    }
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::Required => f.write_str("required"),
            Absent::Value(text) => write!(f, "`{text}`"),
            Absent::Words(text) => f.write_str(text),
        }
    }
}

impl Schema {
    /// The key with this name.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// The schema of every table, each once.
    pub fn all() -> [&'static Schema; 17] {
        [
            &SCENARIO,
            &CLIENTS,
            &FORWARDERS,
            &SERVERS,
            &GATE,
            &PROCESSOR,
            &CACHE,
            &NETWORK,
            &BATCH,
            &JOBS,
            &COORDINATION,
            &BACKOFF,
            &GLOBAL,
            &GROUP,
            &APP,
            &COLLECTIVE,
            &FAULT,
        ]
    }

    /// The key that a path such as `servers.gate.depth` or `app.*.bytes` names, if it is one of the scenario's.
    pub(super) fn find<'p>(path: impl Iterator<Item = &'p str>) -> Option<&'static Key> {
        let mut schema: Option<&'static Schema> = Some(&SCENARIO);
        let mut path = path;
        let mut found = None;
        while let Some(segment) = path.next() {
            let key = schema?.key(segment)?;
            found = Some(key);
            schema = match key.takes {
                Takes::Table(schema) | Takes::Gate(schema) => Some(schema),
                Takes::Named(schema) | Takes::List(schema) => path.next().map(|_| schema),
                _ => None,
            };
        }
        found
    }

    /// Its keys as a table in Markdown: what the documentation has.
    pub fn markdown(&self) -> String {
        let mut out = String::from("| key | value | default | meaning |\n|---|---|---|---|\n");
        for key in self.keys {
            out += &format!("| `{}` | {} | {} | {} |\n", key.name, key.takes, key.default, key.help);
        }
        out
    }
}
