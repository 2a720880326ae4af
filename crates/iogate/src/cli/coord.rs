//! The flags of coordinators.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use iogate_core::coord::CoordConfig;
use iogate_net::Endpoint;

use super::Auth;
use super::remote::Time;

/// Coordinate whose turn it is to do bulk I/O on shared storage
#[derive(Debug, Args)]
pub(crate) struct CoordArgs {
    #[command(subcommand)]
    pub(crate) command: CoordCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CoordCommand {
    Serve(Box<CoordServeArgs>),
    Status(CoordStatusArgs),
    Release(CoordReleaseArgs),
}

/// Headings.
const SEVERAL: &str = "Several coordinators";
const RULES: &str = "Whose turn it is";
const PROOF: &str = "How clients prove who they are";

/// Run a coordinator: jobs claim turns on file systems, and it grants them one after another
///
/// Stays in the foreground, says where it listens and then `ready`, and ends on SIGINT or SIGTERM. Who holds a turn and who
/// waits is kept in --state: a coordinator that is started again goes on where it was.
#[derive(Debug, Args)]
#[command(after_long_help = "docs/coordinator.md describes the rules, and what is kept.")]
#[command(override_usage = "iogate coord serve [OPTIONS] --listen ADDRESS --state DIR
       iogate coord serve [OPTIONS] --listen ADDRESS --etcd URL")]
pub(crate) struct CoordServeArgs {
    /// Where to listen: HOST:PORT or unix:PATH; may be given several times
    #[arg(long, value_name = "ADDRESS", required = true)]
    pub(crate) listen: Vec<Endpoint>,

    /// The directory that keeps who holds and who waits; made if it is not there
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, required_unless_present = "etcd", conflicts_with = "etcd")]
    pub(crate) state: Option<PathBuf>,

    /// Instead of a directory: etcd's addresses, http://HOST:PORT with commas; several coordinators, of which one leads
    #[arg(long, value_name = "URL", value_delimiter = ',', help_heading = SEVERAL)]
    pub(crate) etcd: Vec<String>,

    /// With --etcd: coordinators of the same name are one
    #[arg(long, value_name = "NAME", default_value = "default", requires = "etcd", help_heading = SEVERAL)]
    pub(crate) name: String,

    /// With --etcd: how long the others wait for a leader that is gone, in whole seconds
    #[arg(long, value_name = "TIME", default_value = "5s", requires = "etcd", help_heading = SEVERAL)]
    pub(crate) leader_lease: Time,

    /// With --etcd: where clients reach this coordinator [default: the first --listen]
    #[arg(long, value_name = "ADDRESS", requires = "etcd", help_heading = SEVERAL)]
    pub(crate) advertise: Option<Endpoint>,

    /// A rule, as in order=shortest or slots=2; several with commas, or given several times
    #[arg(long = "set", value_name = "NAME=VALUE", long_help = rules_help(), help_heading = RULES)]
    pub(crate) rules: Vec<String>,

    /// A file system that there is, with the number of its targets if that is known; may be given several times [default: any]
    #[arg(long = "place", value_name = "NAME[=TARGETS]", help_heading = RULES)]
    pub(crate) places: Vec<String>,

    /// How long a turn on a place may be, however often it is renewed: then it is lost; may be given several times. For all
    /// other places: --set turn_max
    #[arg(long = "turn-max", value_name = "NAME=TIME", help_heading = RULES)]
    pub(crate) turn_max: Vec<String>,

    /// With order=weighted: the weight of a user, by number, whatever its jobs say; others then have 1; may be given several times
    #[arg(long = "weight", value_name = "UID=WEIGHT", help_heading = RULES)]
    pub(crate) weights: Vec<String>,

    /// Probe a file system before a turn on it begins, and wait until it is quiet: a directory there, which `iogate probe --calibrate`
    /// has calibrated, or NAME=DIR if clients call it otherwise; may be given several times
    #[arg(long = "probe", value_name = "[NAME=]DIR", value_hint = ValueHint::DirPath, help_heading = RULES)]
    pub(crate) probes: Vec<String>,

    /// Divide a policy over the mounts and servers that name this coordinator: their file, which says `global` (docs/policy.md)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,

    /// How clients prove who they are [default: peer for Unix sockets; there is none for TCP]
    #[arg(long, value_enum, help_heading = PROOF)]
    pub(crate) auth: Option<Auth>,

    /// With --auth none on TCP: addresses other than loopback are meant
    #[arg(long, help_heading = PROOF)]
    pub(crate) allow_unauthenticated_network: bool,

    /// With --auth munge: the socket of another daemon than the usual one
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath, help_heading = PROOF)]
    pub(crate) munge_socket: Option<PathBuf>,

    /// With --auth tls: PEM file with the coordinator's certificate
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires_all = ["tls_key", "tls_clients"], help_heading = PROOF)]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// With --auth tls: PEM file with the certificate's key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_certificate", help_heading = PROOF)]
    pub(crate) tls_key: Option<PathBuf>,

    /// With --auth tls: PEM file with the certificate of the authority that signs those of clients
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_certificate", help_heading = PROOF)]
    pub(crate) tls_clients: Option<PathBuf>,

    /// End with the process that started this
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

fn rules_help() -> String {
    let lines: Vec<String> = CoordConfig::params()
        .iter()
        .map(|param| format!("- {}: {} [default: {}]", param.name, param.help, param.format(param.default)))
        .collect();
    format!(
        "A rule, as in order=shortest or slots=2; several with commas, or given several times\n\n{}",
        lines.join("\n")
    )
}

/// Which coordinator.
#[derive(Debug, Args)]
pub(crate) struct CoordChoice {
    /// The coordinator: HOST:PORT or unix:PATH; several with commas: the one of them that leads
    #[arg(value_name = "COORD", env = "IOGATE_COORD", value_delimiter = ',', required = true)]
    pub(crate) coordinators: Vec<Endpoint>,
}

/// Show who holds turns, who waits, and which turns were the last
#[derive(Debug, Args)]
pub(crate) struct CoordStatusArgs {
    #[command(flatten)]
    pub(crate) coord: CoordChoice,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Again and again: every second, or every so many, as in --watch=5
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1", require_equals = true)]
    pub(crate) watch: Option<f64>,
}

/// Take a turn away from whoever holds it: the next in line gets it
///
/// The holder is not stopped: it notices when it next says that it is still there. Only the holder's user, the coordinator's, and root may.
#[derive(Debug, Args)]
pub(crate) struct CoordReleaseArgs {
    /// The turn's token, as `iogate coord status` shows it
    pub(crate) token: u64,

    /// The coordinator: HOST:PORT or unix:PATH; several with commas: the one of them that leads
    #[arg(
        long = "coord",
        value_name = "COORD",
        env = "IOGATE_COORD",
        value_delimiter = ',',
        required = true
    )]
    pub(crate) coordinators: Vec<Endpoint>,
}
