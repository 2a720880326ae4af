//! The flags of `iogate turn` and `iogate probe`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::Bytes;
use super::remote::Time;

/// Run a command when it is its turn on a file system, and hold the turn until it ends
///
/// Where coordinators are, the name of the job, and the rest is taken from the environment, as by the library
/// (IOGATE_COORD, ...). Without a coordinator, and without --strict, the command runs anyway, and a line on standard error says
/// so. The exit status is the command's, or 128 and the number of the signal that has ended it; 127 if there is no such command.
#[derive(Debug, Args)]
pub(crate) struct TurnArgs {
    /// The file system: a path in it, or the name that all its clients call it
    #[arg(value_name = "DIR|PLACE", value_hint = ValueHint::AnyPath)]
    pub(crate) place: OsString,

    /// How to wait [default: what IOGATE_POLICY says, or lock if IOGATE_COORD is set]
    #[arg(long, value_enum)]
    pub(crate) policy: Option<PolicyChoice>,

    /// How long to wait for the turn; if it does not come, the command is not run [default: as long as it takes]
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Time>,

    /// How many bytes the command will write, for coordinators that go by that
    #[arg(long, value_name = "BYTES")]
    pub(crate) bytes: Option<Bytes>,

    /// Fail without a coordinator, and if the turn is lost while the command runs
    #[arg(long)]
    pub(crate) strict: bool,

    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyChoice {
    /// By a coordinator
    Lock,
    /// By probing the file system
    Backoff,
    /// By a coordinator, and then by probing
    #[value(name = "lock+backoff")]
    LockBackoff,
    /// Not at all
    None,
}

/// Measure how busy a file system is, and wait until it is quiet; or calibrate that
///
/// Writes a little dummy data, flushes it, and compares its throughput with that of the quiet file system. While it is slower
/// than the threshold, the wait goes on, longer each time, until it has tried often enough. Nothing is left of the data.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// A directory of the file system; of several, which may lie on different targets, each must be quiet
    #[arg(required = true, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directories: Vec<PathBuf>,

    /// Measure the quiet throughput, and keep it: while nobody uses the file system
    #[arg(long)]
    pub(crate) calibrate: bool,

    /// Probes of a calibration
    #[arg(long, value_name = "N", default_value_t = 20, requires = "calibrate")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: u32,

    /// Bytes of a probe, of a calibration [default: 3MiB]
    #[arg(long, value_name = "BYTES", requires = "calibrate")]
    pub(crate) bytes: Option<Bytes>,

    /// Percent of the quiet throughput from which on the file system counts as quiet
    #[arg(long, value_name = "PERCENT", default_value_t = 85)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) threshold: u32,

    /// How often to look, at most
    #[arg(long, value_name = "N", default_value_t = 8, conflicts_with = "calibrate")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) attempts: u32,

    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
