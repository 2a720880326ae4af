//! The simulated world: nodes, network, processes, and the events between them.

mod observer;

use iogate_core::Time;

use crate::result::RunResult;
use crate::scenario::Scenario;

pub use observer::{Observer, Phase, Served};

/// Why a run could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A gate's settings do not fit together.
    #[error("the gate of {layer}: {source}")]
    Gate {
        /// Whose.
        layer: String,
        /// What the gate says.
        source: iogate_core::sched::ConfigError,
    },
    /// The device of the servers.
    #[error("the device of the servers: {0}")]
    Device(String),
    /// Processes wait for something that cannot happen.
    #[error(
        "nothing can happen any more at {at:?}: {waiting}; this is a defect of the simulator or of a scheduler"
    )]
    Stalled {
        /// Simulated time.
        at: Time,
        /// Who waits for what.
        waiting: String,
    },
}

/// Runs `scenario` once with `seed` (its own `seed`, `repetitions`, `alone` and `confidence` are the caller's to see to).
///
/// # Errors
/// If the scenario does not make sense, or the run cannot end.
pub fn simulate<O: Observer>(
    _scenario: &Scenario,
    _seed: u64,
    _observer: &mut O,
) -> Result<RunResult, SimError> {
    unimplemented!("being built")
}
