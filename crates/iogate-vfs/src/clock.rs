//! What time it is for leases: real, or of a simulated world.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use iogate_core::{Span, Time};
use iogate_engine::unix_now;

static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A clock that does not go back.
#[derive(Clone)]
pub struct Clock(Option<Arc<dyn Fn() -> Time + Send + Sync>>);

impl Clock {
    /// The machine's.
    pub const REAL: Clock = Clock(None);

    /// One of a simulated world.
    pub fn simulated(now: impl Fn() -> Time + Send + Sync + 'static) -> Clock {
        Clock(Some(Arc::new(now)))
    }

    /// Whether it is of a simulated world.
    pub fn is_simulated(&self) -> bool {
        self.0.is_some()
    }

    /// What time it is, since whenever.
    pub fn now(&self) -> Time {
        match &self.0 {
            Some(now) => now(),
            None => Time::from_nanos(STARTED.elapsed().as_nanos() as u64),
        }
    }

    /// How long ago something was.
    pub fn since(&self, earlier: Time) -> Span {
        self.now().since(earlier)
    }

    /// Nanoseconds since the Unix epoch.
    pub fn wall(&self) -> u64 {
        self.0.as_ref().map_or_else(unix_now, |now| now().as_nanos())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "a simulated clock" } else { "the machine's clock" })
    }
}
