//! Settings from C: schedulers as text, and a gate's configuration.

use std::ffi::{CStr, c_char};

use iogate_core::{GateConfig, Layout, SchedulerConfig};

use crate::Failed;
use crate::types::CConfig;

const QUEUE_MAX: u32 = 65_536;

/// How long dispatches may be, for schedulers that aggregate; 0 leaves theirs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Aggregation {
    bytes_max: u64,
    requests_max: u32,
}

/// A scheduler: chosen in use, or this one.
pub(crate) enum Chosen {
    Auto,
    One(SchedulerConfig),
}

/// The text of a pointer.
///
/// # Safety
/// `text` is null or a string that outlives the result.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failed> {
    if text.is_null() {
        return Err(Failed::invalid(format!("`{name}` is a null pointer")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failed::invalid(format!("`{name}`: expected UTF-8")))
}

/// `NAME` or `NAME:PARAMETER=VALUE,...`.
pub(crate) fn parse(text: &str, aggregation: Aggregation) -> Result<SchedulerConfig, Failed> {
    let refused = |error: iogate_core::sched::ConfigError| Failed::invalid(error.to_string());
    let (name, params) = text.split_once(':').unwrap_or((text, ""));
    let mut settings = SchedulerConfig::by_name(name.trim()).map_err(refused)?;
    let limits =
        [("run_bytes_max", aggregation.bytes_max), ("run_requests_max", aggregation.requests_max.into())];
    for (name, value) in limits {
        if value > 0 && settings.values().any(|(param, _)| param.name == name) {
            settings.set(name, &value.to_string()).map_err(refused)?;
        }
    }
    for item in params.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, value) = item.split_once('=').ok_or_else(|| {
            Failed::invalid(format!("'{item}': expected PARAMETER=VALUE, as in window=250ms"))
        })?;
        settings.set(name.trim(), value.trim()).map_err(refused)?;
    }
    Ok(settings)
}

/// As [`parse`], or `auto`.
pub(crate) fn choose(text: &str, aggregation: Aggregation) -> Result<Chosen, Failed> {
    match text.trim() {
        "auto" => Ok(Chosen::Auto),
        text => Ok(Chosen::One(parse(text, aggregation)?)),
    }
}

/// A gate's settings from C's, and whether its scheduler is to be chosen, where that may be.
///
/// # Safety
/// The configuration's text is null or a string.
pub(crate) unsafe fn settings(
    config: &CConfig,
    may_choose: bool,
) -> Result<(GateConfig, Aggregation, bool), Failed> {
    let aggregation = Aggregation { bytes_max: config.run_bytes_max, requests_max: config.run_requests_max };
    let name = match config.scheduler.is_null() {
        true => "fifo",
        // SAFETY: the caller's promise.
        false => unsafe { text(config.scheduler, "scheduler") }?,
    };
    let (scheduler, auto) = match choose(name, aggregation)? {
        Chosen::One(scheduler) => (scheduler, false),
        Chosen::Auto if may_choose => (parse("fifo", aggregation)?, true),
        Chosen::Auto => {
            return Err(Failed::invalid("scheduler 'auto' needs an engine: nothing runs between calls here"));
        }
    };
    let layout = match (config.targets, config.stripe_bytes) {
        (0 | 1, _) => Layout::SINGLE,
        (targets, 0) => {
            return Err(Failed::invalid(format!(
                "stripe_bytes is 0: expected the bytes of a stripe, as there are {targets} targets"
            )));
        }
        (targets, stripe_bytes) => Layout { first_target: 0, stripe_bytes, targets },
    };
    let or = |value: u32, default| if value == 0 { default } else { value };
    let (queue_max, depth) = (or(config.queue_max, QUEUE_MAX), or(config.depth, 1));
    Ok((GateConfig { scheduler, queue_max, depth, layout }, aggregation, auto))
}
