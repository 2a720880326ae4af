//! The flags of advice on a trace.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Say which scheduler would have suited a trace: all that are considered, each over the whole trace, in virtual time
///
/// A trace of `iogate record`, or of Darshan (`python -m iogate.darshan`). The best comes first: those that make no application more than
/// 10 % slower than fifo, then by the mean over applications.
#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// The trace; - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,

    /// The storage: a model (`iogate devices` lists them), unit:TIME, linear:TIME:RATE, or profile:FILE as `iogate profile` writes it
    #[arg(long, value_name = "DEVICE", default_value = "hdd")]
    pub(crate) device: String,

    /// Most dispatches in flight
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) depth: u32,

    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
