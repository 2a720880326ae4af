//! What the environment says of turns, read once.

use std::env;
use std::time::Duration;

use iogate_turn::{Policy, Turns};

use super::patterns::Patterns;
use super::state;
use crate::lazy::Lazy;
use crate::settings::say;
use crate::table;

pub(crate) struct Settings {
    pub(crate) patterns: Patterns,
    /// Without a write for so long, a turn ends.
    pub(crate) idle: Duration,
}

static SETTINGS: Lazy<Settings> = Lazy::new(read);

/// Whether any file counts as bulk output.
#[inline]
pub(crate) fn is_active() -> bool {
    SETTINGS.is_there()
}

/// The settings; `None` if no file counts.
pub(crate) fn get() -> Option<&'static Settings> {
    SETTINGS.get()
}

/// Whether the environment says anything of turns.
pub(crate) fn is_asked_for() -> bool {
    ["IOGATE_COORD", "IOGATE_POLICY"]
        .into_iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn read() -> Option<Settings> {
    if !is_asked_for() || env::var_os("IOGATE_FILES").is_none() {
        return None;
    }
    // Before the turns library watches forks: its handler closes descriptors in the child, which must find the tables free.
    table::watch_forks();
    state::watch_forks();
    let settings = match Turns::of_process() {
        Ok(turns) => turns.settings(),
        Err(error) => {
            say(&format!("{error}: going on without taking turns"));
            return None;
        }
    };
    if settings.policy == Policy::None {
        return None;
    }
    let patterns = Patterns::parse(&settings.files, |error| say(&format!("IOGATE_FILES: {error}")))?;
    Some(Settings { patterns, idle: settings.idle })
}
