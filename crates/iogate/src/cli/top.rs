//! The flags of `iogate top`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

/// Show what applications get now, live: bytes, requests, latency, what is queued, and their share where a policy is in force
///
/// Keys: q leaves, s sorts by another column, p pauses, ? helps. It ends when no place answers any more.
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Mount points, or servers' addresses: HOST:PORT or unix:PATH
    #[arg(required = true, value_name = "MOUNTPOINT|ADDRESS", value_hint = ValueHint::DirPath)]
    pub(crate) places: Vec<PathBuf>,

    /// Print one table, and nothing else: for pipes and scripts
    #[arg(long)]
    pub(crate) once: bool,

    /// With --once: print JSON
    #[arg(long, requires = "once")]
    pub(crate) json: bool,

    /// How long to wait between two looks; the last minute is the last 60 looks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, conflicts_with = "once")]
    pub(crate) interval: f64,
}
