//! Algorithms by name, and the values of their parameters: defined once, and read by flags, files, help and reports.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use super::param::{
    AGE_MAX, ALIGN, CONTIGUOUS_WAIT, IDLE, NODE, ORDER, Param, QUANTUM, QUANTUM_BASE, RUN_BYTES_MAX,
    RUN_REQUESTS_MAX, SKEW_MAX, SPLIT, WAIT_MAX, WAITS, WINDOW,
};
use crate::nearest::{did_you_mean, nearest};
use crate::policy::TreeError;
use crate::time::Span;
use crate::units::MS;

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

    /// Whether it takes what is contiguous at once.
    pub(crate) const fn takes_runs(self) -> bool {
        !matches!(
            self,
            SchedulerKind::Fifo
                | SchedulerKind::AppWindow
                | SchedulerKind::ServerWindow
                | SchedulerKind::Twins
        )
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
            SchedulerKind::Hbrr => &[QUANTUM, AGE_MAX, RUN_BYTES_MAX, RUN_REQUESTS_MAX],
            SchedulerKind::AppWindow => &[
                WINDOW,
                SKEW_MAX,
                ORDER,
                Param { help: "index of this node in its layer, for `permuted`", ..NODE },
            ],
            SchedulerKind::ServerWindow => &[WINDOW],
            SchedulerKind::Twins => &[Param { default: MS, ..WINDOW }, ALIGN, IDLE, SPLIT, NODE, AGE_MAX],
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
    /// Classes of a policy are not a tree.
    #[error(transparent)]
    Tree(#[from] TreeError),
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
        if let Some(index) = self.kind.params().iter().position(|param| param.name == NODE.name) {
            self.values[index] = node.into();
        }
    }

    /// The value of a parameter that the algorithm has: bytes, nanoseconds, a number, 0 or 1, or the place of a choice among those
    /// that there are.
    ///
    /// # Panics
    /// If the algorithm has no such parameter: a mistake in the program, not in its input.
    pub fn value(&self, param: &Param) -> u64 {
        self.values[self.place(param)]
    }

    /// Sets a parameter that the algorithm has to what it may be.
    pub(crate) fn set_value(&mut self, param: &Param, value: u64) {
        let place = self.place(param);
        self.values[place] = value.clamp(param.min, param.max);
    }

    fn place(&self, param: &Param) -> usize {
        let place = self.kind.params().iter().position(|own| own.name == param.name);
        place.expect("the scheduler has the parameter that is named")
    }

    /// The value of a parameter of unit time.
    ///
    /// # Panics
    /// As [`SchedulerConfig::value`].
    pub fn span(&self, param: &Param) -> Span {
        Span::from_nanos(self.value(param))
    }

    /// Whether a flag is set.
    ///
    /// # Panics
    /// As [`SchedulerConfig::value`].
    pub fn is_on(&self, param: &Param) -> bool {
        self.value(param) != 0
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
        assert_eq!(sjf.changed("scheduler=twins", 2).unwrap().value(&NODE), 2);
        assert_eq!(sjf.changed("scheduler=twins,node=5", 2).unwrap().value(&NODE), 5);
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
        assert_eq!((aioli.value(&QUANTUM_BASE), aioli.value(&WAIT_MAX)), (524_288, 1_500_000));
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
