//! Where a run through the network takes place: a temporary folder, and a process for each data server and each forwarder.
//!
//! They are configured as those of `iogate cluster` are, and end with the run, however it ends: what they hold is not kept.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use iogate_core::sched::param::NODE;
use iogate_sim::scenario::{GateSpec, Scenario};
use iogate_vfs::TreeFile;
use tempfile::TempDir;

use super::collect::Measures;
use super::feasibility;
use super::launcher::Outcome;
use super::script::{Place, file_name};
use super::statuses::{NodeStatus, of_nodes};
use super::target::connect;
use super::testbed::{hole, scratch};
use super::work::{Entrances, FileUse, Work, applications_by_address};
use toml::Spanned;

use crate::cli::{BenchStore, BenchWay};
use crate::commands::cluster::config::{Config, Forwarders, Node, Role, Servers, Transport};
use crate::commands::serve::ask::status_of;
use crate::commands::serve::config::Bytes;
use crate::commands::serve::started::{START_MAX, not_started, until_it_serves};
use crate::failure::Failure;

/// The export of a data server that holds stripes.
const OBJECTS: &str = "objects";
/// Which application a client of NFS belongs to.
const APPLICATIONS: &str = "applications";
/// Where the first data server listens for clients of NFS. Others' servers are elsewhere, and so are other benches.
const NFS_PORT: u16 = 20_490;
/// How long a node may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// The scene of one run through the network. Dropped, it leaves nothing behind.
pub(super) struct Nodes {
    /// Before the folder, so that nobody works in it when it is removed.
    running: Running,
    folder: TempDir,
    nodes: Vec<Node>,
    layer: Option<String>,
    /// Where the data servers are for clients of NFS, if applications are such.
    exports: Option<Vec<SocketAddr>>,
}

/// Processes; dropped, they are ended.
#[derive(Default)]
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        // Those in front first: they would warn that those behind them are gone.
        for child in self.0.iter_mut().rev() {
            // It may have ended by itself.
            let _: io::Result<()> = child.kill();
            let _ = child.wait();
        }
    }
}

impl Nodes {
    /// A folder with the configuration of each node; nothing runs yet.
    pub(super) fn new(
        store: BenchStore,
        dir: Option<&Path>,
        scenario: &Scenario,
        way: BenchWay,
    ) -> Result<Nodes> {
        let folder = scratch(store, dir)?;
        let cluster = &scenario.cluster;
        let modelled = store == BenchStore::Modelled;
        let config = Config {
            name: "bench".into(),
            stripe: Bytes(cluster.servers.stripe),
            transport: Transport::Unix,
            port: 0,
            servers: Servers {
                count: cluster.servers.nodes,
                directory: None,
                device: modelled.then(|| Spanned::new(0..0, cluster.servers.device.clone())),
                extent: modelled.then_some(Bytes(cluster.servers.extent)),
                gate: Some(table(&cluster.servers.gate)),
            },
            forwarders: cluster.forwarders.first().map(|layer| Forwarders {
                count: layer.nodes,
                gate: Some(table(&layer.gate)),
                batch: None,
                batches: None,
            }),
            network: None,
            text: String::new(),
        };
        let mut nodes = config.nodes(folder.path(), config.proof(false))?;
        let exports = (way == BenchWay::Nfs).then(|| share_by_nfs(&mut nodes));
        for node in &nodes {
            let path = folder.path().join(format!("{}.toml", node.name));
            std::fs::write(&path, &node.config).with_context(|| path.display().to_string())?;
            if node.role == Role::Server {
                let data = folder.path().join(&node.name);
                for export in [OBJECTS, "names"] {
                    std::fs::create_dir_all(data.join(export)).context("a server's folder")?;
                }
            }
        }
        let layer = cluster.forwarders.first().map(|layer| layer.name.clone());
        Ok(Nodes { running: Running::default(), folder, nodes, layer, exports })
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn of(&self, role: Role) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |node| node.role == role)
    }

    /// Where processes go.
    pub(super) fn entrances(&self) -> Entrances {
        let place = |export: &str, node: &Node| Place::Server {
            endpoint: node.endpoint.to_string(),
            export: export.to_owned(),
        };
        match (&self.layer, &self.exports) {
            (Some(_), _) => {
                Entrances::Forwarders(self.of(Role::Forwarder).map(|node| place("", node)).collect())
            }
            (None, Some(exports)) => Entrances::Exports(exports.clone()),
            (None, None) => {
                Entrances::Servers(self.of(Role::Server).map(|node| place(OBJECTS, node)).collect())
            }
        }
    }

    /// Starts the nodes, and makes the files of a run.
    pub(super) fn open(&mut self, work: &Work) -> Result<(), Failure> {
        feasibility::check_space(work.bytes(self.layer.is_none()), self.folder())?;
        if self.exports.is_some() {
            let applications = self.folder().join(APPLICATIONS);
            std::fs::write(&applications, applications_by_address(&work.apps)).context("the applications")?;
        }
        for role in [Role::Server, Role::Forwarder] {
            let mut starting = Vec::new();
            for node in self.nodes.iter().filter(|node| node.role == role) {
                let (child, out) = start(self.folder.path(), &node.name)?;
                self.running.0.push(child);
                starting.push((&node.name, out));
            }
            for (name, out) in starting {
                until_it_serves(out, START_MAX).map_err(|why| {
                    let said = std::fs::read(log(self.folder.path(), name)).unwrap_or_default();
                    not_started(name, &why, &said)
                })?;
            }
        }
        Ok(self.create_files(work)?)
    }

    /// Files are whole from the start. Without forwarders they take no room until they are written to.
    fn create_files(&self, work: &Work) -> Result<()> {
        let Some(forwarder) = self.of(Role::Forwarder).next() else {
            for (file, FileUse { end, .. }) in &work.files {
                for (server, node) in (0..).zip(self.of(Role::Server)) {
                    let path = self.folder().join(&node.name).join(OBJECTS).join(file_name(*file));
                    hole(&path, work.striping.part_end(server, *end))
                        .with_context(|| path.display().to_string())?;
                }
            }
            return Ok(());
        };
        let remote = connect(&forwarder.endpoint.to_string(), "")?;
        for (file, FileUse { end, .. }) in &work.files {
            let made = remote
                .create(Path::new(&file_name(*file)), 0o600)
                // On each server, too: a hole is read by asking all of them how long their parts are.
                .and_then(|made| made.allocate(0, 0, *end));
            made.context("a file cannot be made through a forwarder")?;
        }
        Ok(())
    }

    /// What was measured so far.
    pub(super) fn measures(&self, outcome: &Outcome) -> Result<Measures> {
        let statuses = |role| {
            self.of(role)
                .map(|node| NodeStatus::of(status_of(&node.endpoint, PATIENCE)?, role))
                .collect::<Result<Vec<_>>>()
        };
        let (forwarders, servers) = (statuses(Role::Forwarder)?, statuses(Role::Server)?);
        Ok(of_nodes(outcome, self.layer.as_deref(), &forwarders, &servers))
    }
}

/// Lets the data servers have clients of NFS: at an address of this machine's that is this process's, as runs follow each other.
fn share_by_nfs(nodes: &mut [Node]) -> Vec<SocketAddr> {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    let address = Ipv4Addr::new(127, 64 | high & 63, middle, low);
    let servers = nodes.iter_mut().filter(|node| node.role == Role::Server);
    let share = |(port, node): (u16, &mut Node)| {
        let server = SocketAddr::from((address, port));
        node.config.push_str(&format!(
            "\n[nfs]\nlisten = \"{server}\"\nany_port = true\n[[nfs.export]]\nexport = \"{OBJECTS}\"\npath = \"/\"\n\
             users = {{ squash = \"none\" }}\n"
        ));
        server
    };
    (NFS_PORT..).zip(servers).map(share).collect()
}

/// A gate as a table of a configuration file.
fn table(gate: &GateSpec) -> Spanned<toml::Table> {
    let mut table = toml::Table::new();
    let name = if gate.auto { "auto" } else { gate.scheduler.kind().name() };
    table.insert("scheduler".into(), name.into());
    // Each node's own is in its configuration.
    for (param, value) in gate.scheduler.values().filter(|(param, _)| param.name != NODE.name && !gate.auto) {
        table.insert(param.name.into(), value.into());
    }
    table.insert("depth".into(), i64::from(gate.depth).into());
    table.insert("queue".into(), i64::from(gate.queue).into());
    Spanned::new(0..0, table)
}

fn log(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.log"))
}

/// The process of a node, and what it says.
fn start(folder: &Path, name: &str) -> Result<(Child, ChildStdout)> {
    let program = std::env::current_exe().context("this program cannot be found")?;
    let mut child = Command::new(program)
        .args(["serve", "--with-parent"])
        .arg(folder.join(format!("{name}.toml")))
        .env("IOGATE_APP_FILE", folder.join(APPLICATIONS))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(log(folder, name)).context("the log of a node")?)
        .spawn()
        .with_context(|| format!("{name} cannot be started"))?;
    let out = child.stdout.take().context("a process without output")?;
    Ok((child, out))
}
