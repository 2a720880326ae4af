//! The flags of simulations, and of what joins their shards.

use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use iogate_report::partial::Shard;

/// Simulate a scenario: a cluster, its gates, and applications, with all points of a sweep
///
/// The same scenario and seeds give the same results, on every machine and for any number of threads.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioChoice,

    /// Most runs at once [default: as many as there are processors]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,

    #[command(flatten)]
    pub(crate) outputs: ExperimentOutputs,

    /// Write the first run as Chrome trace events, for a viewer such as Perfetto
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,

    /// Keep each run in this folder as soon as it is done, and take those that are there already
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) results: Option<PathBuf>,

    /// Do the I-th of N parts of all runs, and only keep it: `iogate merge` joins the parts
    #[arg(long, value_name = "I/N", requires = "results", conflicts_with_all = ["json", "csv", "html", "trace"])]
    pub(crate) shard: Option<Shard>,
}

/// Join the results of shards to those of one run
///
/// What comes out is what one run of everything gives, byte for byte. A shard that is missing, was interrupted or has failed is named,
/// and can be run again alone.
#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// The files that `--shard` wrote, or folders of them
    #[arg(required = true, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) outputs: ExperimentOutputs,

    /// Write the results of each scenario into this folder, where `iogate reproduce --results` takes them
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with_all = ["json", "csv", "html"])]
    pub(crate) results: Option<PathBuf>,
}

/// Where the results of an experiment go besides standard output.
#[derive(Debug, Args)]
pub(crate) struct ExperimentOutputs {
    /// Write everything as JSON; - for standard output, instead of the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,

    /// Write all means and intervals as CSV; - for standard output, instead of the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) csv: Option<PathBuf>,

    /// Write a report with pictures; - for standard output, instead of the table
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

/// Which scenario, in which form.
#[derive(Debug, Args)]
pub(crate) struct ScenarioChoice {
    /// The scenario: a file, or the name of one that comes with the program (`iogate scenario list`)
    #[arg(value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
    pub(crate) scenario: PathBuf,

    /// Set a key, as in servers.nodes=4; a list, as in 'servers.nodes=[1, 2, 4]', makes a sweep; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) settings: Vec<String>,

    /// How often each point is run, each time with another seed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) seeds: Option<u32>,

    /// The first seed
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,

    /// The scenario's quick form
    #[arg(long)]
    pub(crate) quick: bool,
}
