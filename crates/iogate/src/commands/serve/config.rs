//! The configuration file of `iogate serve`: what its tables and keys mean. Unknown keys are errors that name the known ones.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use iogate_net::Endpoint;
use serde::Deserialize;

pub(crate) use super::gate::Gate;
use super::nfs::Nfs;
pub(crate) use super::values::{Address, Bytes, Ids, SocketMode, Time, User};
use crate::attempt::Attempt;
use crate::failure::Failure;
use crate::settings::toml_error;
use crate::storage::Profiles;

/// A server: a data server, a forwarder, or both.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// This forwarder's index among those that work together.
    #[serde(default)]
    pub(crate) node: u32,
    /// How many forwarders work together.
    #[serde(default = "one")]
    pub(crate) nodes: u32,
    /// How long a session without a connection is kept.
    #[serde(default)]
    pub(crate) session_grace: Option<Time>,
    pub(crate) listen: Vec<Listen>,
    pub(crate) export: Vec<Export>,
    #[serde(default)]
    pub(crate) limits: Limits,
    /// Exports for clients of NFS, too.
    #[serde(default)]
    pub(crate) nfs: Option<Nfs>,
}

/// An address, and who may come in there.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Listen {
    pub(crate) at: Address,
    /// [default: peer on a Unix socket; there is none on TCP]
    #[serde(default)]
    pub(crate) auth: Option<Auth>,
    #[serde(default)]
    pub(crate) tls: Option<Tls>,
    /// With `auth = "none"`: who everybody is [default: 65534:65534].
    #[serde(default)]
    pub(crate) anonymous: Option<Ids>,
    /// With `auth = "munge"`: the socket of another daemon than the usual one.
    #[serde(default)]
    pub(crate) munge_socket: Option<PathBuf>,
    /// With `auth = "none"`: addresses other than loopback are meant.
    #[serde(default)]
    pub(crate) allow_unauthenticated_network: bool,
    /// With `auth = "none"`: everybody is to be one of an export's forwarders.
    #[serde(default)]
    pub(crate) allow_unauthenticated_forwarders: bool,
    /// These users and no others [default: all; of a server that is not root: its own].
    #[serde(default)]
    pub(crate) users_allowed: Option<Vec<User>>,
    /// Permissions of a Unix socket [default: 0666 where clients prove who they are, else 0600].
    #[serde(default)]
    pub(crate) mode: Option<SocketMode>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Auth {
    Peer,
    Munge,
    Tls,
    None,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The authority that signs clients' certificates.
    pub(crate) clients: PathBuf,
    /// Common names that are not user names: `"gpu-node" = "1000:1000"`.
    #[serde(default)]
    pub(crate) users: BTreeMap<String, Ids>,
}

/// How long what is remembered of requests is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Answers {
    /// Until the machine restarts.
    #[default]
    Boot,
    /// For good.
    Sync,
    /// As long as a session.
    None,
}

/// A file system that is served, behind a gate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Export {
    #[serde(default = "default_export")]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) gate: Gate,
    /// A dispatch queue behind the gate: at most this many dispatches of one file and operation go on together.
    #[serde(default)]
    pub(crate) batch: Option<NonZero<usize>>,
    /// Batches in service.
    #[serde(default)]
    pub(crate) batches: Option<NonZero<usize>>,

    /// A directory.
    #[serde(default)]
    pub(crate) directory: Option<PathBuf>,
    /// Where names are: with `targets` a directory, with `servers` one of them.
    #[serde(default)]
    pub(crate) names: Option<String>,
    /// Directories that hold the stripes.
    #[serde(default)]
    pub(crate) targets: Vec<PathBuf>,
    /// Other iogate servers that hold the stripes.
    #[serde(default)]
    pub(crate) servers: Vec<Address>,
    /// One other iogate server that everything goes on to.
    #[serde(default)]
    pub(crate) forward: Option<Address>,

    /// Bytes of a stripe.
    #[serde(default)]
    pub(crate) stripe: Option<Bytes>,
    /// The model of a device in whose time directories and targets work.
    #[serde(default)]
    pub(crate) device: Option<String>,
    /// Bytes of a file that lie together on it.
    #[serde(default)]
    pub(crate) extent: Option<Bytes>,
    /// What the directory's storage charges, as it was measured.
    #[serde(default)]
    pub(crate) profile: Option<PathBuf>,
    /// Past the page cache.
    #[serde(default)]
    pub(crate) direct: bool,
    /// Which target holds a byte: `auto`, or `stripe=64KiB,targets=4`.
    #[serde(default)]
    pub(crate) layout: Option<String>,
    /// How this server proves itself to `servers` or `forward`.
    #[serde(default)]
    pub(crate) client: Client,

    #[serde(default)]
    pub(crate) read_only: bool,
    /// What is remembered of requests that must not be carried out twice: `boot`, `sync` or `none`.
    #[serde(default)]
    pub(crate) answers: Answers,
    /// The file that it is in; else one below the directory.
    #[serde(default)]
    pub(crate) answers_at: Option<PathBuf>,
    /// Users who may say in whose name a request is: forwarders, and mounts that several users share.
    #[serde(default)]
    pub(crate) forwarders: Vec<User>,
    #[serde(default)]
    pub(crate) users: Users,
}

/// How a client proves who it is, and how long it tries.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Client {
    #[serde(default)]
    pub(crate) auth: Option<Auth>,
    #[serde(default)]
    pub(crate) tls: Option<ClientTls>,
    #[serde(default)]
    pub(crate) munge_socket: Option<PathBuf>,
    #[serde(default)]
    pub(crate) retry_for: Option<Time>,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClientTls {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// The authority that signs servers' certificates.
    pub(crate) servers: PathBuf,
    /// The name in the server's certificate [default: the host].
    #[serde(default)]
    pub(crate) server_name: Option<String>,
}

/// Whose ids become whose.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Users {
    #[serde(default)]
    pub(crate) squash: Squash,
    /// Who those are that are squashed [default: 65534:65534].
    #[serde(default)]
    pub(crate) nobody: Option<Ids>,
    /// Ranges: `{ client = 100000, server = 1000, count = 500 }`.
    #[serde(default)]
    pub(crate) map: Vec<IdRange>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Squash {
    #[default]
    Root,
    All,
    None,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdRange {
    pub(crate) client: u32,
    pub(crate) server: u32,
    pub(crate) count: u32,
}

/// What one client, and all of them, may take.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Limits {
    pub(crate) connections: Option<NonZero<usize>>,
    pub(crate) connections_per_client: Option<NonZero<usize>>,
    pub(crate) open_files: Option<NonZero<usize>>,
    pub(crate) requests: Option<NonZero<u32>>,
    pub(crate) bytes: Option<Bytes>,
    pub(crate) transfer: Option<Bytes>,
    pub(crate) memory: Option<Bytes>,
    pub(crate) hello: Option<Time>,
    pub(crate) stall: Option<Time>,
}

fn one() -> u32 {
    1
}

fn default_export() -> String {
    "default".into()
}

impl Config {
    /// Reads and checks a file.
    pub(crate) fn read(path: &Path) -> Result<Config, Failure> {
        let text = std::fs::read_to_string(path)
            .with_context(|| Attempt::read(format_args!("the configuration {}", path.display())))
            .map_err(Failure::usage)?;
        Config::parse(&text).map_err(|error| {
            Failure::usage(error.context(format!("the configuration {}", path.display())))
                .hint("docs/forwarding.md shows how configurations are written")
        })
    }

    /// Reads and checks a configuration.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Config> {
        let config: Config = toml::from_str(text).map_err(|error| toml_error(text, &error))?;
        config.check()?;
        if let Some(nfs) = &config.nfs {
            nfs.check(&config.export, text)?;
        }
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.nodes == 0 || self.node >= self.nodes {
            return Err(anyhow!(
                "node = {}, nodes = {}: expected an index below the number of forwarders",
                self.node,
                self.nodes
            ));
        }
        if self.listen.is_empty() || self.export.is_empty() {
            return Err(anyhow!("expected at least one [[listen]] and one [[export]]"));
        }
        self.check_limits()?;
        self.check_others()?;
        if let Some(listen) =
            self.listen.iter().find(|listen| listen.users_allowed.as_ref().is_some_and(Vec::is_empty))
        {
            return Err(anyhow!("listen at {}: users_allowed = [] lets nobody in", listen.at.0));
        }
        let mut names = std::collections::BTreeSet::new();
        for export in &self.export {
            if export.name.is_empty() || export.name.contains(char::is_control) {
                let name = &export.name;
                return Err(anyhow!("export: expected a name without control characters, found {name:?}"));
            }
            if !names.insert(&export.name) {
                return Err(anyhow!("two exports are called `{}`: give each a name of its own", export.name));
            }
            export.check().with_context(|| format!("export `{}`", export.name))?;
        }
        self.listen
            .iter()
            .try_for_each(|listen| listen.check().with_context(|| format!("listen at {}", listen.at.0)))
    }
}

impl Client {
    /// An inline table, as in an export.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Client> {
        #[derive(Deserialize)]
        struct Table {
            client: Client,
        }
        let text = format!("client = {text}");
        let table: Table = toml::from_str(&text).map_err(|error| anyhow!("{}", error.message()))?;
        Ok(table.client)
    }
}

impl Export {
    fn check(&self) -> anyhow::Result<()> {
        let forms = [
            ("directory", self.directory.is_some()),
            ("targets", !self.targets.is_empty()),
            ("servers", !self.servers.is_empty()),
            ("forward", self.forward.is_some()),
        ];
        let given: Vec<&str> = forms.iter().filter(|(_, given)| *given).map(|(name, _)| *name).collect();
        let [form] = given[..] else {
            let found = if given.is_empty() { "none of them".into() } else { given.join(" and ") };
            return Err(anyhow!("expected one of directory, targets, servers, forward; found {found}"));
        };
        let striped = ["targets", "servers"].contains(&form);
        if form == "targets" && self.names.is_none() {
            return Err(anyhow!(
                "targets hold data only: add names = \"DIRECTORY\", where the names are kept"
            ));
        }
        if self.names.is_some() && !striped {
            return Err(anyhow!("names goes with targets or servers, not with {form}"));
        }
        if self.stripe.is_some() && !striped {
            return Err(anyhow!(
                "stripe goes with targets or servers; which stripes {form} has is said by layout = \"...\""
            ));
        }
        if self.layout.is_some() && form != "directory" {
            return Err(anyhow!("layout goes with directory; {form} has its own"));
        }
        if self.device.is_some() && !["directory", "targets"].contains(&form) {
            return Err(anyhow!("device goes with directory or targets: the servers' devices are theirs"));
        }
        if self.extent.is_some() && self.device.is_none() {
            return Err(anyhow!("extent goes with device: it says how files lie on it"));
        }
        if self.profile.is_some() && (form != "directory" || self.device.is_some()) {
            return Err(anyhow!(
                "profile goes with directory, without device: what it says was measured there"
            ));
        }
        if self.batch.is_some() && Profiles::of(self.profile.as_deref()) == Profiles::Kept {
            return Err(anyhow!(
                "profile = \"kept\" goes without batch: what is joined behind the gate has prices of its own"
            ));
        }
        let is_local = ["directory", "targets"].contains(&form);
        if self.direct && !is_local {
            return Err(anyhow!("direct goes with directory or targets: the servers' files are theirs"));
        }
        if self.answers_at.is_some() && !is_local {
            return Err(anyhow!("answers_at goes with directory or targets: the servers remember theirs"));
        }
        if self.answers == Answers::Sync && !is_local {
            return Err(anyhow!("answers = \"sync\" goes with directory or targets: say so at the servers"));
        }
        if self.client != Client::default() && is_local {
            return Err(anyhow!(
                "client goes with servers or forward: with {form}, no other server is asked"
            ));
        }
        if self.batches.is_some() && self.batch.is_none() {
            return Err(anyhow!("batches goes with batch"));
        }
        self.check_words()
    }
}

impl Listen {
    /// How clients prove who they are here.
    pub(crate) fn auth(&self) -> anyhow::Result<Auth> {
        match (self.auth, &self.at.0) {
            (Some(auth), _) => Ok(auth),
            (None, Endpoint::Unix(_)) => Ok(Auth::Peer),
            (None, Endpoint::Tcp { .. }) => Err(anyhow!(
                "auth is missing: expected \"munge\" or \"tls\" (or \"none\", for loopback) on a TCP address"
            )),
        }
    }

    fn check(&self) -> anyhow::Result<()> {
        let auth = self.auth()?;
        let tcp_host = match &self.at.0 {
            Endpoint::Tcp { host, .. } => Some(host.as_str()),
            Endpoint::Unix(_) => None,
        };
        if self.mode.is_some() && tcp_host.is_some() {
            return Err(anyhow!("mode goes with a Unix socket: there is no file on TCP"));
        }
        if auth == Auth::Peer && tcp_host.is_some() {
            return Err(anyhow!("auth = \"peer\" is for Unix sockets: on TCP use \"munge\" or \"tls\""));
        }
        if (auth == Auth::Tls) != self.tls.is_some() {
            return Err(anyhow!("auth = \"tls\" and tls = {{ certificate, key, clients }} go together"));
        }
        let loopback = |host: &str| {
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        };
        if auth == Auth::None
            && !self.allow_unauthenticated_network
            && let Some(host) = tcp_host
            && !loopback(host)
        {
            return Err(anyhow!(
                "auth = \"none\" lets everybody who reaches {host} in: use \"munge\" or \"tls\", listen on 127.0.0.1, or say \
                 allow_unauthenticated_network = true"
            ));
        }
        Ok(())
    }
}

impl Config {
    /// One directory at one address.
    pub(super) fn of_directory(
        directory: PathBuf,
        gate: Gate,
        at: Address,
        auth: Auth,
        read_only: bool,
    ) -> anyhow::Result<Config> {
        let listen = Listen {
            at,
            auth: Some(auth),
            tls: None,
            anonymous: None,
            munge_socket: None,
            allow_unauthenticated_network: false,
            allow_unauthenticated_forwarders: false,
            users_allowed: None,
            mode: None,
        };
        let export = Export {
            name: default_export(),
            gate,
            batch: None,
            batches: None,
            directory: Some(directory),
            names: None,
            targets: Vec::new(),
            servers: Vec::new(),
            forward: None,
            stripe: None,
            device: None,
            extent: None,
            profile: None,
            direct: false,
            layout: None,
            client: Client::default(),
            read_only,
            answers: Answers::Boot,
            answers_at: None,
            forwarders: vec![User::Number(rustix::process::geteuid().as_raw())],
            users: Users { squash: Squash::None, ..Users::default() },
        };
        let (node, nodes, session_grace, limits) = (0, one(), None, Limits::default());
        let (listen, export) = (vec![listen], vec![export]);
        let config = Config { node, nodes, session_grace, listen, export, limits, nfs: None };
        config.check()?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests;
