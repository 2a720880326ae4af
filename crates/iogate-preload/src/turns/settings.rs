//! What the environment says of turns, read once.

use std::env;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use iogate_core::sched::{Param, ParamUnit};

use super::patterns::Patterns;
use crate::settings::say;

pub(crate) struct Settings {
    pub(crate) patterns: Patterns,
    /// Without a write for so long, a turn ends.
    pub(crate) idle: Duration,
}

const IDLE: Param = Param {
    name: "IOGATE_IDLE",
    unit: ParamUnit::Time,
    default: 2_000_000_000,
    min: 1_000_000,
    max: u64::MAX,
    help: "time without a write after which a turn ends",
};

static SETTINGS: OnceLock<Option<Settings>> = OnceLock::new();
/// 0: not looked yet, 1: not active, 2: active.
static ACTIVE: AtomicU8 = AtomicU8::new(0);

/// Whether any file counts as bulk output.
#[inline]
pub(crate) fn is_active() -> bool {
    match ACTIVE.load(Ordering::Relaxed) {
        0 => get().is_some(),
        state => state == 2,
    }
}

/// The settings; `None` if no file counts.
pub(crate) fn get() -> Option<&'static Settings> {
    let settings = SETTINGS.get_or_init(read).as_ref();
    ACTIVE.store(if settings.is_some() { 2 } else { 1 }, Ordering::Relaxed);
    settings
}

fn read() -> Option<Settings> {
    let text = |name: &str| {
        let value = env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        value.filter(|value| !value.is_empty())
    };
    let files = text("IOGATE_FILES")?;
    let policy = text("IOGATE_POLICY");
    if policy.as_deref() == Some("none") || policy.is_none() && text("IOGATE_COORD").is_none() {
        return None;
    }
    let patterns = Patterns::parse(&files, |error| say(&format!("IOGATE_FILES: {error}")))?;
    let idle = match text("IOGATE_IDLE").map(|text| IDLE.parse(&text)) {
        None => IDLE.default,
        Some(Ok(idle)) => idle,
        Some(Err(error)) => {
            say(&format!("{error}; going on with 2s"));
            IDLE.default
        }
    };
    Some(Settings { patterns, idle: Duration::from_nanos(idle) })
}
