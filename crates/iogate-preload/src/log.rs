//! What the library has to say goes to standard error, past the program's own streams.

use std::fmt::{self, Write};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::settings;

struct Log {
    level: tracing::Level,
}

/// The text of an event: its message, then its other fields.
#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && metadata.is_event()
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        settings::say(line.0.trim_start());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Begins to log, at the level of the settings. A panic of ours is said like an error.
pub(crate) fn start() {
    let _ = tracing::subscriber::set_global_default(Log { level: settings::log() });
    std::panic::set_hook(Box::new(|panic| settings::say(&format!("an error of the library's own: {panic}"))));
}
