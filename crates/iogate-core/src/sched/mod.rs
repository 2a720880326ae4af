//! The algorithms, a file each, and their settings.

mod config;

pub use config::{ConfigError, Param, ParamUnit, SchedulerConfig, SchedulerKind};
