//! The algorithms, a file each, and their settings.

mod config;

pub(crate) use config::{TIME_UNITS, parse_scaled};

pub use config::{ConfigError, Param, ParamUnit, SchedulerConfig, SchedulerKind};
