//! The flags of measuring storage, and of what is kept of it.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueHint};

use super::Time;

/// Measure what storage charges for each kind of access, or list what was learnt of that and is kept
///
/// Reads and writes a file without a name in DIR, past the page cache where there is direct I/O; nothing is left behind. A profile
/// is a device for `--device profile:FILE`. Storage that others use meanwhile gives wrong numbers; that is said where it shows.
///
/// Mounts and servers with `--profile kept` keep what they learn of a file system for the next one: `--kept` lists that. It is in
/// /var/lib/iogate/profiles for root, else in ~/.local/state/iogate/profiles; IOGATE_PROFILES names another folder, or is `none`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["directory", "device", "kept"]))]
pub(crate) struct ProfileArgs {
    /// A directory on the storage, with room for 64 MiB to 4 GiB
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: Option<PathBuf>,

    /// A modelled device instead, in virtual time (`iogate devices` lists them)
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["directory", "kept", "budget"])]
    pub(crate) device: Option<String>,

    /// Measure nothing: list what is kept of all file systems, or show that of DIR's
    #[arg(long, conflicts_with_all = ["budget", "out"])]
    pub(crate) kept: bool,

    /// Remove what is kept instead
    #[arg(long, requires = "kept")]
    pub(crate) forget: bool,

    /// For how long, about
    #[arg(long, value_name = "TIME", default_value = "60s")]
    pub(crate) budget: Time,

    /// Write the profile, as TOML
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
