//! The flags of servers and clusters.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use super::{SharesArgs, policy};
use crate::metrics;

/// Serve file systems to other nodes, each behind a gate: a forwarder, a data server, or both
///
/// Stays in the foreground, says where it listens and then `ready`, and ends on SIGINT or SIGTERM when what it has accepted is
/// done. Either a configuration file says everything, or flags describe one export and one address.
#[derive(Debug, Args)]
#[command(
    after_long_help = "docs/forwarding.md describes the configuration file, and docs/nfs.md its [nfs], for clients of NFS."
)]
pub(crate) struct ServeArgs {
    /// The configuration file (TOML)
    #[arg(value_hint = ValueHint::FilePath, required_unless_present = "directory", conflicts_with_all = ["directory", "listen", "scheduler", "params", "read_only"])]
    pub(crate) config: Option<PathBuf>,

    /// Without a file: the directory to serve, where root at a Unix socket is root
    ///
    /// In an export of a configuration file, root is nobody unless `users = { squash = "none" }` is set.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "listen")]
    pub(crate) directory: Option<PathBuf>,

    /// Without a file: where to listen: unix:PATH, or HOST:PORT on loopback, where everybody is nobody
    #[arg(long, value_name = "ADDRESS", requires = "directory")]
    pub(crate) listen: Option<String>,

    /// Without a file: the scheduler (`iogate schedulers` describes them), or `auto`, the default
    #[arg(long, value_name = "NAME")]
    pub(crate) scheduler: Option<String>,

    /// Without a file: a parameter of the scheduler, as in window=250ms; may be given several times
    #[arg(long = "param", value_name = "NAME=VALUE")]
    pub(crate) params: Vec<String>,

    /// Without a file: refuse all changes
    #[arg(long)]
    pub(crate) read_only: bool,

    #[command(flatten)]
    pub(crate) shares: SharesArgs,

    /// Show what the gates do, live: answer HTTP there, with a page at / and for monitoring /metrics, in OpenMetrics (docs/metrics.md)
    ///
    /// HOST:PORT, unix:PATH, or a port of loopback. Whoever reaches it may look; nothing can be changed there.
    #[arg(long, value_name = "ADDRESS", visible_alias = "metrics")]
    pub(crate) http: Option<metrics::Address>,

    /// Check the configuration, and do nothing else
    #[arg(long)]
    pub(crate) check: bool,

    /// End with the process that started this
    #[arg(long, hide = true)]
    pub(crate) with_parent: bool,
}

/// Run data servers and forwarders as processes of this machine
#[derive(Debug, Args)]
pub(crate) struct ClusterArgs {
    #[command(subcommand)]
    pub(crate) command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ClusterCommand {
    Up(ClusterUpArgs),
    Status(ClusterStatusArgs),
    Set(ClusterSetArgs),
    Down(ClusterDownArgs),
}

/// Start what is not running; nodes that are up stay as they are
#[derive(Debug, Args)]
pub(crate) struct ClusterUpArgs {
    /// The cluster's file (TOML)
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,

    /// Where sockets, logs and data are kept [default: for root /var/lib/iogate/clusters/NAME, else in the home directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,

    /// Over TCP without certificates: everybody who reaches a node's port can do all that you can with the cluster's data
    #[arg(long)]
    pub(crate) insecure: bool,
}

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct ClusterChoice {
    /// Its name, or its file
    #[arg(value_name = "NAME|FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cluster: PathBuf,

    /// The folder that it was started with, if not the default
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) dir: Option<PathBuf>,
}

/// Show the nodes of a cluster and what they have done
#[derive(Debug, Args)]
pub(crate) struct ClusterStatusArgs {
    #[command(flatten)]
    pub(crate) choice: ClusterChoice,

    /// As JSON, with all figures of each node
    #[arg(long)]
    pub(crate) json: bool,

    /// Only where clients connect, as `iogate mount --remote` wants it: at the forwarders, or at the only server
    #[arg(long, conflicts_with = "json")]
    pub(crate) entrances: bool,
}

/// Change schedulers or the policy of nodes while they serve, as `iogate set` does at one place
///
/// Nodes that are started again have what the cluster's file says.
#[derive(Debug, Args)]
pub(crate) struct ClusterSetArgs {
    #[command(flatten)]
    pub(crate) choice: ClusterChoice,

    #[arg(value_name = "SETTING", required = true, help = policy::settings_help())]
    pub(crate) settings: Vec<String>,

    /// Only at the data servers
    #[arg(long, conflicts_with = "forwarders")]
    pub(crate) servers: bool,

    /// Only at the forwarders
    #[arg(long)]
    pub(crate) forwarders: bool,
}

/// Stop a cluster; what was accepted is completed first
#[derive(Debug, Args)]
pub(crate) struct ClusterDownArgs {
    #[command(flatten)]
    pub(crate) choice: ClusterChoice,

    /// Remove its folder too, with the data in it; what its file's `directory` has elsewhere stays
    #[arg(long)]
    pub(crate) purge: bool,
}
