//! The commands and their flags, defined once: help, man pages and shell completions come from here.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueHint};
use iogate_core::SchedulerConfig;
use iogate_core::sched::SchedulerKind;
use iogate_engine::Accounts;

use crate::failure::Failure;
use crate::settings;

mod advise;
mod bench;
mod coord;
mod gate;
mod mount;
mod nfs;
mod policy;
mod profile;
mod remote;
mod reproduce;
mod run;
mod serve;
mod sim;
mod top;
mod train;
mod turn;
mod why;

pub(crate) use advise::AdviseArgs;
pub(crate) use bench::{BenchArgs, BenchStore, BenchWay, BenchWorkerArgs};
pub(crate) use coord::{CoordArgs, CoordCommand, CoordReleaseArgs, CoordServeArgs, CoordStatusArgs};
pub(crate) use gate::{GateArgs, SeenArgs};
pub(crate) use mount::{Backend, Cache, Locks, MountArgs, StoreKind};
pub(crate) use nfs::NfsArgs;
pub(crate) use policy::{PolicyArgs, PolicyCommand, SharesArgs};
pub(crate) use profile::ProfileArgs;
pub(crate) use remote::{Auth, RemoteArgs, Spread, Time};
pub(crate) use reproduce::{Paper, ReproduceArgs};
pub(crate) use run::RunArgs;
pub(crate) use serve::{
    ClusterArgs, ClusterChoice, ClusterCommand, ClusterDownArgs, ClusterSetArgs, ClusterStatusArgs,
    ClusterUpArgs, ServeArgs,
};
pub(crate) use sim::{ExperimentOutputs, MergeArgs, ScenarioChoice, SimArgs};
pub(crate) use top::TopArgs;
pub(crate) use train::TrainArgs;
pub(crate) use turn::{PolicyChoice, ProbeArgs, TurnArgs};
pub(crate) use why::WhyArgs;

/// Schedules the I/O of many applications on shared storage, so that they stop hurting each other.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Mount(Box<MountArgs>),
    Umount(UmountArgs),
    Serve(ServeArgs),
    Nfs(Box<NfsArgs>),
    Cluster(ClusterArgs),
    Status(StatusArgs),
    Top(TopArgs),
    Why(WhyArgs),
    Set(SetArgs),
    Policy(PolicyArgs),
    Record(RecordArgs),
    Run(RunArgs),
    Turn(TurnArgs),
    Coord(CoordArgs),
    Probe(ProbeArgs),
    Profile(ProfileArgs),
    Advise(AdviseArgs),
    Schedulers(ListArgs),
    Devices(DevicesArgs),
    Layout(LayoutArgs),
    Demo(DemoArgs),
    Sim(SimArgs),
    Bench(BenchArgs),
    Replay(ReplayArgs),
    Scenario(ScenarioArgs),
    Reproduce(ReproduceArgs),
    Merge(MergeArgs),
    Train(TrainArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
    #[command(hide = true)]
    SetMount(SetMountArgs),
    #[command(hide = true)]
    DemoReader(DemoReaderArgs),
    #[command(hide = true)]
    BenchWorker(BenchWorkerArgs),
}

/// Headings of options, where a command has many.
const ORDER: &str = "What goes first, and who gets how much";
const DATA: &str = "How data is read and written";
const SEEN: &str = "What can be seen of it";

/// Which scheduler, with which parameters.
#[derive(Debug, Args)]
pub(crate) struct SchedulerArgs {
    /// The scheduler (`iogate schedulers` describes them), or `auto`
    #[arg(long, value_name = "NAME", long_help = scheduler_help())]
    pub(crate) scheduler: Option<String>,

    /// A parameter of the scheduler, as in window=250ms; may be given several times
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,
}

impl SchedulerArgs {
    /// The scheduler and its parameters; none if they are to be chosen, as they are where none is named.
    pub(crate) fn pinned(&self) -> Result<Option<SchedulerConfig>, Failure> {
        match (&self.scheduler, self.params.first()) {
            (None, None) => Ok(None),
            (None, Some(param)) => {
                let error = format!(
                    "--param {param} without --scheduler: expected the scheduler that it is of, as one is chosen otherwise"
                );
                Err(Failure::usage(anyhow::Error::msg(error))
                    .hint("name it, as in --scheduler aioli; `iogate schedulers` lists parameters"))
            }
            (Some(name), _) => self.named(name),
        }
    }

    fn named(&self, name: &str) -> Result<Option<SchedulerConfig>, Failure> {
        match (name, self.params.first()) {
            ("auto", None) => Ok(None),
            ("auto", Some(param)) => {
                let error = format!(
                    "--param {param} and --scheduler auto: what chooses a scheduler chooses its parameters, too"
                );
                Err(Failure::usage(anyhow::Error::msg(error)).hint("leave one of them out"))
            }
            _ => settings::scheduler(name, &self.params).map(Some).map_err(|error| {
                Failure::usage(error).hint("`iogate schedulers` lists them with their parameters")
            }),
        }
    }
}

fn scheduler_help() -> String {
    let lines: Vec<String> =
        SchedulerKind::ALL.iter().map(|kind| format!("- {}: {}", kind.name(), kind.summary())).collect();
    format!(
        "The scheduler (`iogate schedulers` lists their parameters)\n\n{}\n- auto: chosen, with its parameters, by what the load is and what the storage charges\n\nBy default `auto`",
        lines.join("\n")
    )
}

/// How much there is room for, in a gate and behind it.
#[derive(Debug, Args)]
pub(crate) struct RoomArgs {
    /// Most dispatches at once on the store
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) depth: u32,

    /// Most requests in the gate; further ones wait outside
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) queue: u32,
}

/// What is known of the storage.
#[derive(Debug, Args)]
pub(crate) struct KnownArgs {
    /// What the storage charges, as `iogate profile` has measured it; without it that is learnt from what is read and written. `kept`:
    /// what is learnt is kept for the next time, and begun with then (`iogate profile --kept` lists it)
    #[arg(long, value_name = "FILE|kept", value_hint = ValueHint::FilePath)]
    pub(crate) profile: Option<PathBuf>,
}

/// A number of bytes on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes(pub(crate) u64);

impl FromStr for Bytes {
    type Err = iogate_core::sched::ConfigError;

    fn from_str(text: &str) -> Result<Bytes, Self::Err> {
        settings::bytes(text).map(Bytes)
    }
}

/// How accounts are kept, by name.
fn kinds_of_accounts() -> impl TypedValueParser<Value = Accounts> {
    PossibleValuesParser::new(Accounts::ALL.map(Accounts::name))
        .map(|name| Accounts::by_name(&name).unwrap_or_default())
}

/// Unmount what `iogate mount` has mounted
#[derive(Debug, Args)]
pub(crate) struct UmountArgs {
    /// The mount point
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,

    /// Even while files are open: nobody can enter it any more, and it ends when the last file is closed
    #[arg(long, short)]
    pub(crate) lazy: bool,

    /// Where no mount of iogate's is there, that is no error
    #[arg(long)]
    pub(crate) if_mounted: bool,
}

/// Show what the gate of a mount does, or those of a server: sizes, waiting times, applications, files, connections
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The mount point, or a server's address: HOST:PORT or unix:PATH
    #[arg(value_name = "MOUNTPOINT|ADDRESS", value_hint = ValueHint::DirPath)]
    pub(crate) place: PathBuf,

    /// Everything: also each scheduler that the automatic choice has considered, at the end
    #[arg(long)]
    pub(crate) all: bool,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// As OpenMetrics (docs/metrics.md has the series)
    #[arg(long, conflicts_with = "json")]
    pub(crate) openmetrics: bool,

    /// The same in Prometheus's own text, for node_exporter's textfile collector
    #[arg(long, conflicts_with_all = ["json", "openmetrics"])]
    pub(crate) prometheus: bool,

    /// Again and again: every second, or every so many, as in --watch=5
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub(crate) watch: Option<f64>,
}

/// Show which targets of a parallel file system hold which bytes of a file
///
/// Known are Lustre, BeeGFS, CephFS and GlusterFS.
#[derive(Debug, Args)]
pub(crate) struct LayoutArgs {
    /// The files
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Change the scheduler, its parameters or the policy while programs go on
///
/// Either a scheduler, with parameters if they are not to be the defaults, or parameters of the scheduler in force. With
/// `scheduler=auto` both are chosen from here on, by what the load is and what the storage charges, until something else is set.
///
/// `policy=FILE` puts another policy in force (`iogate policy check FILE` explains it), `fair=WHO` an equal share for each, as --fair of
/// `iogate mount`, and `policy=none` takes it away. `accounts=sampled`, `on` or `off` says how the gate keeps accounts for `iogate why`.
/// What is refused changes nothing.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The mount point, or a server's address: HOST:PORT or unix:PATH
    #[arg(value_name = "MOUNTPOINT|ADDRESS", value_hint = ValueHint::DirPath)]
    pub(crate) place: PathBuf,

    /// Of a server: which export's gate, if not the first one's
    #[arg(long, value_name = "NAME")]
    pub(crate) export: Option<String>,

    #[arg(value_name = "NAME=VALUE", required = true, help = policy::settings_help())]
    pub(crate) settings: Vec<String>,
}

/// The process that tells a mount what to change, as its standard input says it: one that hangs holds it up, and not who waits for it.
#[derive(Debug, Args)]
pub(crate) struct SetMountArgs {
    pub(crate) mountpoint: PathBuf,
}

/// Record what arrives and completes at the gate of a mount or a server, as a trace
///
/// Ends with SIGINT, SIGTERM or SIGHUP, after --for, and when the mount or the server has gone. Programs never wait for it: what it
/// is too slow for is lost, and counted in the trace. Only root and the user of the mount or the server may record.
#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// The mount point, or a server's address: HOST:PORT or unix:PATH
    #[arg(value_name = "MOUNTPOINT|ADDRESS", value_hint = ValueHint::DirPath)]
    pub(crate) place: PathBuf,

    /// The trace, which `iogate replay` reads
    #[arg(long, short, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) out: PathBuf,

    /// Of a server: which export's gate, if not the first one's
    #[arg(long, value_name = "NAME")]
    pub(crate) export: Option<String>,

    /// For so long, as in 60s [default: until it is ended]
    #[arg(long = "for", value_name = "TIME", value_parser = remote::some_time)]
    pub(crate) duration: Option<Time>,

    /// Begin another file when one has so many bytes, as in 100MiB: TRACE becomes TRACE.1, that TRACE.2 and so on
    #[arg(long, value_name = "SIZE")]
    pub(crate) rotate: Option<Bytes>,

    /// With --rotate: how many files to keep beside the one that is written
    #[arg(long, value_name = "N", default_value_t = 4, requires = "rotate", value_parser = clap::value_parser!(u32).range(0..=9_999))]
    pub(crate) keep: u32,
}

/// Play a trace of requests through a scheduler in virtual time
///
/// No real I/O is done: a modelled device serves what the scheduler dispatches. The same trace and settings give the same
/// output, byte for byte.
#[derive(Debug, Args)]
#[command(after_long_help = "The trace is CSV with the header \
    time_us,app,client,file,op,offset,bytes[,target][,issued_us][,done_us][,lost]: one row a request, in order of time. The log is CSV with the \
    header start_us,end_us,file,op,offset,bytes,requests,ids: one row a dispatch, in dispatch order.")]
pub(crate) struct ReplayArgs {
    /// The trace; - for standard input
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) trace: PathBuf,

    #[command(flatten)]
    pub(crate) scheduler: SchedulerArgs,

    /// What serves the dispatches: unit:T for T microseconds each, or a model (`iogate devices` lists them)
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: String,

    /// Most dispatches in flight
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) depth: u32,

    /// Most requests in the gate; further ones wait outside
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=16_777_216))]
    pub(crate) queue: u32,

    /// Number of targets, each with a device of its own; if not given, 1 or as many as the trace's target column names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) targets: Option<u32>,

    /// Stripe size: how many bytes of a file lie on one target before the next
    #[arg(long, value_name = "BYTES", default_value = "1MiB")]
    pub(crate) stripe: Bytes,

    /// Write what was dispatched, in order, as CSV
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) log: Option<PathBuf>,

    /// Write a report with pictures; - for standard output, instead of the summary
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,

    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Sort the trace by time first (in memory); otherwise a row earlier than the one before it is refused
    #[arg(long)]
    pub(crate) sort: bool,
}

/// Check, list and show scenarios
#[derive(Debug, Args)]
pub(crate) struct ScenarioArgs {
    #[command(subcommand)]
    pub(crate) command: ScenarioCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScenarioCommand {
    /// Check scenarios with all points of their sweeps, and say what they are
    Check {
        /// The scenarios
        #[arg(required = true, value_name = "SCENARIO", value_hint = ValueHint::FilePath)]
        scenarios: Vec<String>,
    },
    /// List the scenarios that come with the program
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a scenario that comes with the program
    Show {
        /// Its name
        name: String,
    },
}

/// Let programs compete for a modelled disk, without and with scheduling, and compare
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Where the report with pictures goes
    #[arg(long, value_name = "FILE", default_value = "iogate-demo.html", value_hint = ValueHint::FilePath)]
    pub(crate) html: PathBuf,

    /// A small one, done in a few seconds
    #[arg(long)]
    pub(crate) quick: bool,

    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The scheduler that is compared with fifo
    #[command(flatten)]
    pub(crate) scheduler: SchedulerArgs,

    /// The modelled device (`iogate devices` lists them)
    ///
    /// The default is the disk of the aIOLi paper. Newer disks read ahead so far that without scheduling it depends on how
    /// the programs happen to keep step how much they suffer.
    #[arg(long, value_name = "DEVICE", default_value = "aioli-ide")]
    pub(crate) device: String,

    /// Do without a mount: the programs are threads that call the engine
    #[arg(long)]
    pub(crate) in_process: bool,
}

/// One process of the demo's applications.
#[derive(Debug, Args)]
pub(crate) struct DemoReaderArgs {
    pub(crate) file: PathBuf,
    #[arg(long)]
    pub(crate) first: u64,
    #[arg(long)]
    pub(crate) stride: u64,
    #[arg(long)]
    pub(crate) piece: u64,
    #[arg(long)]
    pub(crate) end: u64,
}

/// List the schedulers with their parameters
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only this one
    pub(crate) name: Option<String>,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the modelled devices
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print the completions of a shell, to be put where it looks for them
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Write the man pages into a directory
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory; it is created if it is not there
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
}
