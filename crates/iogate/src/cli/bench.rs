//! The flags of real runs of scenarios.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::{ExperimentOutputs, ScenarioChoice};

/// Run a scenario for real on this machine, and compare it with its simulation
///
/// Each process of the applications is a process here, each data server a gate with a mount, or like each forwarder a server
/// process. What one machine has not is left out (the network) or refused (gates on clients, faults, a batch scheduler).
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) scenario: ScenarioChoice,

    /// What the data servers keep their data on
    #[arg(long, value_enum, default_value_t = BenchStore::Modelled)]
    pub(crate) store: BenchStore,

    /// Where the servers' folders are made for the time of the run [default: in memory, with --store directory the
    /// folder for temporary files]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,

    /// How processes reach the data servers [default: mount; with forwarders network, as they are reached no other way]
    #[arg(long, value_enum, value_name = "WAY")]
    pub(crate) through: Option<BenchWay>,

    #[command(flatten)]
    pub(crate) outputs: ExperimentOutputs,

    /// Do not simulate the scenario for comparison
    #[arg(long)]
    pub(crate) no_sim: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchStore {
    /// Files in memory, in the time that the scenario's device would take
    Modelled,
    /// Files on this machine's own device, past its page cache
    Directory,
    /// Files in memory, as fast as that is
    Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchWay {
    /// A mount for each data server, all in the process that runs the bench
    Mount,
    /// Sockets: data servers and forwarders are processes of their own (`iogate serve`)
    Network,
    /// NFS: data servers are processes of their own, and the applications' processes clients of NFS version 3
    Nfs,
}

/// One process of a bench's applications.
#[derive(Debug, Args)]
pub(crate) struct BenchWorkerArgs {
    pub(crate) script: PathBuf,
}
