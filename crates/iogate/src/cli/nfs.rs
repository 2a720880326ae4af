//! The flags of `iogate nfs`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, Args, ValueHint};
use iogate_net::Endpoint;
use iogate_nfs::Network;
use iogate_vfs::Caller;

use super::{GateArgs, ORDER, SEEN, SeenArgs};

/// Headings.
const LETS_IN: &str = "Who comes in";
const USERS: &str = "Who is who";

/// Serve a directory by NFS version 3, behind a gate: clients need nothing of iogate's
///
/// Each user of each client is an application. Stays in the foreground, says where it listens, how to mount, and then `ready`, and
/// ends on SIGINT or SIGTERM when what it has accepted is done.
#[derive(Debug, Args)]
#[command(mut_args(with_control))]
#[command(after_long_help = "docs/nfs.md says how to mount, what is promised, and who is believed.")]
pub(crate) struct NfsArgs {
    /// The directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,

    /// Where to listen, for NFS and MOUNT
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:2049", help_heading = LETS_IN)]
    pub(crate) listen: SocketAddr,

    /// Who may come in: an address, or a network as in 10.0.0.0/24; may be given several times [default: this machine]
    ///
    /// A client there is believed what it says of its users.
    #[arg(long = "allow", value_name = "NETWORK", help_heading = LETS_IN)]
    pub(crate) networks: Vec<Network>,

    /// Let clients come from any port, and not only from those that take root: each user of a client can then say to be any other
    #[arg(long, help_heading = LETS_IN)]
    pub(crate) any_port: bool,

    /// Tell this machine's port mapper (rpcbind) where NFS, MOUNT and the lock manager are: clients need not say, and their locks hold
    /// between them; taken back at the end
    #[arg(long, help_heading = LETS_IN)]
    pub(crate) portmap: bool,

    #[command(flatten, next_help_heading = ORDER)]
    pub(crate) gate: GateArgs,

    /// Refuse all changes
    #[arg(long, help_heading = None)]
    pub(crate) read_only: bool,

    /// Take clients' root for the anonymous user: the default
    #[arg(long, overrides_with = "no_root_squash", help_heading = USERS)]
    pub(crate) root_squash: bool,

    /// Let clients' root be root here
    #[arg(long, help_heading = USERS)]
    pub(crate) no_root_squash: bool,

    /// Who the anonymous user is
    #[arg(long, value_name = "UID:GID", default_value = "65534:65534", help_heading = USERS)]
    pub(crate) anonymous: Caller,

    /// Look the groups of users up here, by this machine's user database: a call has room for sixteen
    #[arg(long, help_heading = USERS)]
    pub(crate) own_groups: bool,

    /// Answer changes of names and attributes before they are durable: faster, and a crash of this machine takes the last ones back
    #[arg(long, help_heading = None)]
    pub(crate) async_names: bool,

    /// Keep there what lets file handles outlive this server, and not in DIR/.iogate: for a directory where that cannot be, as a mount of
    /// other servers; no two servers have the same one
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = None)]
    pub(crate) state: Option<PathBuf>,

    /// Answer `iogate status`, `set`, `record` and `why` there (unix:PATH); users of this machine reach the files by it, too
    #[arg(long, value_name = "unix:PATH", help_heading = SEEN)]
    pub(crate) control: Option<Endpoint>,

    #[command(flatten)]
    pub(crate) seen: SeenArgs,
}

/// What shows the gate needs who answers for it; other flags stay as they are.
fn with_control(arg: Arg) -> Arg {
    if !["http", "accounts"].contains(&arg.get_id().as_str()) {
        return arg;
    }
    let short = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let said = format!("{short}; with --control");
    // The long help begins with the short one.
    let long = arg.get_long_help().map(|long| long.to_string().replacen(&short, &said, 1));
    let arg = arg.requires("control").help(said);
    match long {
        Some(long) => arg.long_help(long),
        None => arg,
    }
}
