//! The flags that say which servers, and how.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use iogate_net::Endpoint;

use crate::settings;

/// The servers of a mount over the network.
#[derive(Debug, Args)]
pub(crate) struct RemoteArgs {
    /// Show the files of servers instead of a directory: HOST:PORT or unix:PATH of each, separated by commas
    ///
    /// All of them serve the same files. Without SOURCE and this flag, IOGATE_FORWARDERS says where they are.
    #[arg(long, value_name = "ENDPOINT", value_delimiter = ',', conflicts_with = "second")]
    pub(crate) remote: Vec<Endpoint>,

    /// Which of several servers carries out a read or a write
    #[arg(long, value_enum, default_value_t = Spread::Client, conflicts_with = "second")]
    pub(crate) spread: Spread,

    /// The server for names, and with --spread client for everything, counted from 0 [default: one by the node's name]
    #[arg(long, value_name = "N", conflicts_with = "second")]
    pub(crate) index: Option<usize>,

    /// How long programs wait for a server that has gone, before they get an error
    #[arg(long, value_name = "TIME", default_value = "60s", conflicts_with = "second")]
    pub(crate) retry_for: Time,

    /// How long to wait for servers that cannot be reached yet, as at boot [default: not at all]
    ///
    /// With a directory there is nothing to wait for. Of several, the last one counts.
    #[arg(long, value_name = "TIME", overrides_with = "wait")]
    pub(crate) wait: Option<Time>,

    /// The servers' export [default: the only one]
    #[arg(long, value_name = "NAME", conflicts_with = "second")]
    pub(crate) export: Option<String>,

    /// How to prove who mounts [default: tls with certificates, peer for Unix sockets, else none]
    #[arg(long, value_enum, conflicts_with = "second")]
    pub(crate) auth: Option<Auth>,

    /// PEM file with the certificates of the authorities that sign those of the servers: the connection is encrypted
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "second")]
    #[arg(requires_all = ["tls_certificate", "tls_key"])]
    pub(crate) tls_authorities: Option<PathBuf>,

    /// PEM file with the certificate of who mounts
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_authorities")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// PEM file with the certificate's key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "tls_authorities")]
    pub(crate) tls_key: Option<PathBuf>,

    /// The name in the servers' certificates [default: the host in their address]
    #[arg(long, value_name = "NAME", requires = "tls_authorities")]
    pub(crate) tls_name: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Spread {
    /// One for everything
    Client,
    /// One for each process
    Process,
    /// One for each file
    File,
    /// One for each stripe target
    Target,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Auth {
    /// Not at all
    None,
    /// By the kernel's word, at a Unix socket
    Peer,
    /// By MUNGE
    Munge,
    /// By a certificate
    Tls,
}

/// A time on the command line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time(pub(crate) Duration);

/// A time on the command line in which something is to happen.
pub(crate) fn some_time(text: &str) -> Result<Time, String> {
    let time = text.parse::<Time>().map_err(|error| error.to_string())?;
    if time.0.is_zero() { Err("expected more than no time, as in 60s".into()) } else { Ok(time) }
}

impl FromStr for Time {
    type Err = iogate_core::sched::ConfigError;

    fn from_str(text: &str) -> Result<Time, Self::Err> {
        settings::nanoseconds(text).map(|nanoseconds| Time(Duration::from_nanos(nanoseconds)))
    }
}
