//! The flags of `iogate why`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use super::{ScenarioChoice, Time};

/// Say who slows an application down, by how much, and what to do
///
/// Of a mount or a server that is up: what its gate has seen since its accounts began, or sees in the time to come. Of a scenario: the run
/// of the first seed, of each point, at the gates of the servers. Each instant in which an application has requests in a gate is divided
/// by cause and by application; a mount or a server looks at samples of the time, unless it is told otherwise (docs/why.md).
#[derive(Debug, Args)]
#[command(mut_arg("scenario", |arg| arg
    .value_name("MOUNTPOINT|ADDRESS|SCENARIO")
    .help("The mount point, a server's address (HOST:PORT or unix:PATH), or a scenario: a file, or one of `iogate scenario list`")))]
pub(crate) struct WhyArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioChoice,

    /// Only these applications; may be given several times [default: all]
    #[arg(long = "app", value_name = "APP")]
    pub(crate) apps: Vec<String>,

    /// Of a mount or a server: only these users, where users are told apart; may be given several times
    #[arg(long = "user", value_name = "USER")]
    pub(crate) users: Vec<String>,

    /// Of a mount or a server: only these jobs; may be given several times
    #[arg(long = "job", value_name = "JOB")]
    pub(crate) jobs: Vec<String>,

    /// Look at a mount or a server for so long from now on, not at all that has been since its accounts began
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) duration: Option<Time>,

    /// Of a server: which export's gate, if not the first one's
    #[arg(long, value_name = "NAME")]
    pub(crate) export: Option<String>,

    /// Say what the others would gain without this application; may be given several times. A scenario is run again without it; of a mount
    /// or a server, what it does for 5 s, or as long as --for says, is recorded, and simulated with and without it
    #[arg(long = "counterfactual", value_name = "APP")]
    pub(crate) without: Vec<String>,

    /// For --counterfactual of a mount or a server: what its storage charges, as `iogate profile` has measured it; without it only what is
    /// recorded is known
    #[arg(long, value_name = "FILE", requires = "without", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,

    /// For --counterfactual of a mount or a server on a modelled store: its device, as `iogate devices` lists them
    #[arg(long, value_name = "DEVICE", requires = "without", conflicts_with = "profile")]
    pub(crate) device: Option<String>,

    /// Print everything as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Write a page with pictures, too
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}
