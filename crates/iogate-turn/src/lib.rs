//! Turns for jobs: what a program, or a library in its process, asks before and after its bulk I/O.
//!
//! | module | purpose |
//! |---|---|
//! | [`settings`] | what the environment says |
//! | [`place`] | the name of a file system, by a path |
//! | [`turns`] | taking turns: by the coordinator, by probing, or both |
//! | [`probe`] | measuring how busy a file system is, and backing off |
//! | [`calibration`] | how fast it is when it is quiet |
//! | `in_turn` | whether this process writes in a turn just now |
//! | `notices` | words to the user, where no log is set up |
//! | [`c`] | the same for C: `include/iogate.h` |
//!
//! ```no_run
//! use iogate_turn::{Place, Settings, Turns, Wish};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let turns = Turns::new(Settings::from_environment()?)?;
//! let place = Place::of("/scratch/run7".as_ref(), turns.settings())?;
//! let turn = turns.take(&place, &Wish::default())?;
//! // Write the checkpoint.
//! turn.release()?;
//! # Ok(())
//! # }
//! ```

pub mod c;
pub mod calibration;
mod in_turn;
mod notices;
pub mod place;
pub mod probe;
pub mod settings;
pub mod turns;

pub use calibration::Calibration;
pub use in_turn::{enter, is_inside, leave};
pub use place::Place;
pub use probe::{Probe, ProbeError};
pub use settings::{Policy, Settings, SettingsError};
pub use turns::{Turn, TurnError, Turns, Wish};
