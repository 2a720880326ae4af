//! From a configuration to what serves: stores, trees, gates, listeners.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_core::auto::Storage;
use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::device::Placement;
use iogate_core::sched::param;
use iogate_core::{Layout, SchedulerKind};
use iogate_engine::layouts::OpenLayouts;
use iogate_engine::store::{Backend, BatchedStore, DirectoryOptions, DirectoryStore, ModelledStore};
use iogate_engine::{Engine, Store};
use iogate_net::client::{self, ClientError, ClientOptions, Forwarder, Remote, RemoteOptions};
use iogate_net::server::{self, Keeping, Limits, ServerConfig};
use iogate_net::transport::ConnectError;
use iogate_net::{Endpoint, Listener, ThisSystem};
use iogate_vfs::app::stable_hash;
use iogate_vfs::{DirectoryTree, StripedTree, Tree};

use super::config::{Answers, Config, Export};
use super::nfs::Built;
use crate::attempt::Attempt;
use crate::commands::layout::{LayoutChoice, MountLayout};
use crate::devices;
use crate::failure::Failure;
use crate::kept::{Keeper, KeptPrices};
use crate::output::say;
use crate::storage::{self, Profiles};

/// What an export over other servers uses there.
const OBJECTS: &str = "objects";
const NAMES: &str = "names";
/// What is to be thought of where a server does not answer while this one starts, which has its sockets by then.
const WAITS: &str = "servers that forward to each other, or one to itself by another name, would wait for each other like this";
/// Stripes, if nothing else is said.
const STRIPE_BYTES: u64 = 64 << 10;
/// Batches in service behind a dispatch queue, if nothing else is said.
const BATCHES: usize = 4;

/// The sockets, bound.
pub(super) fn listeners(config: &Config) -> Result<Vec<Listener>, Failure> {
    config.listen.iter().map(|listen| Ok(listen.bind()?)).collect()
}

/// All that a server needs, and of each export what NFS needs.
pub(super) fn server(config: &Config) -> Result<(ServerConfig, Vec<Built>), Failure> {
    let forwarder = client::forwarder(config.node, config.nodes).context("no random numbers")?;
    let (mut exports, mut kept) = (Vec::new(), Vec::new());
    // Which server on which machine this is.
    let mut listeners = u64::from(stable_hash(rustix::system::uname().nodename().to_bytes()));
    for listen in &config.listen {
        listeners = listeners.rotate_left(7) ^ u64::from(stable_hash(listen.at.0.to_string().as_bytes()));
    }
    for export in &config.export {
        let built = export.build(forwarder, listeners);
        let (served, tree, keeper) = built.with_context(|| format!("export `{}`", export.name))?;
        kept.push(Built { tree, engine: Arc::clone(&served.engine), keeper });
        exports.push(served);
    }
    let settings = ServerConfig {
        exports,
        node: config.node,
        nodes: config.nodes,
        limits: config.limits(),
        session_grace: config.session_grace.as_ref().map_or(ServerConfig::SESSION_GRACE, |grace| grace.0),
    };
    Ok((settings, kept))
}

/// An export, the directory that it is, if it is one, and what keeps what is learnt of it.
type Made = (server::Export, Option<Arc<DirectoryTree>>, Option<Keeper>);
/// Where names are, and where the stripes.
type Parts = (Arc<dyn Tree>, Vec<Arc<dyn Tree>>);

impl Export {
    /// What is served, and its directory if it is one.
    fn build(&self, forwarder: Forwarder, listeners: u64) -> anyhow::Result<Made> {
        let (mut modelled, mut learnt, mut own) = (Vec::new(), None, None);
        let (tree, layout): (Arc<dyn Tree>, Layout) = if let Some(directory) = &self.directory {
            let (tree, layout) = (self.directory_tree(directory, &mut modelled)?, self.layout_of(directory)?);
            let tree = Arc::new(tree);
            own = Some(Arc::clone(&tree));
            learnt = layout.layouts.map(|layouts| (Arc::clone(&tree), layouts));
            (tree, layout.gate)
        } else if let Some(address) = &self.forward {
            let remote = self.remote(&address.0, "", forwarder, false)?;
            let layout = remote.layout();
            (Arc::new(remote), layout)
        } else {
            let (names, targets) = self.parts(forwarder, &mut modelled)?;
            let stripe_bytes = self.stripe.as_ref().map_or(STRIPE_BYTES, |stripe| stripe.0);
            let layout = Layout { first_target: 0, stripe_bytes, targets: targets.len() as u32 };
            let tree = StripedTree::new(names, targets, layout).context("the stripes")?;
            (Arc::new(tree), layout)
        };
        let mut store = tree.store();
        if let Some(batch) = self.batch {
            let batches = self.batches.or(std::num::NonZero::new(BATCHES)).unwrap_or(batch);
            store = Arc::new(BatchedStore::new(store, batch, batches));
        }
        let (known, keeping) = self.storage()?;
        let gate = self.gate.config(layout, &known, forwarder.node);
        let engine = Engine::new(&gate, store).context("the gate cannot be started")?;
        engine.know(known);
        engine.keep_accounts(self.gate.accounts);
        if let Some(shares) = &self.gate.shares {
            shares.set(&engine, &ThisSystem).map_err(anyhow::Error::msg).context("gate")?;
        }
        if self.gate.auto {
            engine.choose(REQUESTS_PER_S).context("the thread that chooses cannot be started")?;
        }
        if let Some((tree, layouts)) = learnt {
            tree.learn_layouts(OpenLayouts::new(layouts, Arc::clone(&engine)));
        }
        let served = server::Export {
            name: self.name.clone(),
            tree,
            engine,
            read_only: self.read_only,
            striping: layout,
            users: self.users.build()?,
            forwarders: super::security::numbers(&self.forwarders).context("forwarders")?,
            answers: self.remembered(listeners)?,
            devices: modelled,
        };
        let keeper = keeping.and_then(|keeping| keeping.start(&served.engine));
        Ok((served, own, keeper))
    }

    /// What is known of what is behind the gate.
    fn storage(&self) -> anyhow::Result<(Storage, Option<KeptPrices>)> {
        match &self.device {
            Some(device) if self.targets.is_empty() => {
                Ok((storage::modelled(device, self.extent()).context("device")?, None))
            }
            _ => {
                let profiles = Profiles::of(self.profile.as_deref());
                storage::known(self.directory.as_deref(), &profiles, self.direct)
            }
        }
    }

    /// What is remembered of requests: beside the names, in a file that no other server here uses.
    fn remembered(&self, listeners: u64) -> anyhow::Result<Option<Arc<server::Answers>>> {
        let names = self.names.as_deref().filter(|_| self.servers.is_empty()).map(Path::new);
        let Some(directory) = self.directory.as_deref().or(names) else { return Ok(None) };
        let keeping = match self.answers {
            Answers::None => return Ok(None),
            _ if self.read_only => return Ok(None),
            Answers::Boot => Keeping::Boot,
            Answers::Sync => Keeping::Sync,
        };
        let path = self.answers_at.clone().unwrap_or_else(|| {
            let number = listeners.rotate_left(7) ^ u64::from(stable_hash(self.name.as_bytes()));
            directory.join(".iogate").join(format!("answers-{number:016x}"))
        });
        match server::Answers::open(&path, keeping) {
            Ok(answers) => Ok(Some(Arc::new(answers))),
            Err(error) if keeping == Keeping::Sync || self.answers_at.is_some() => {
                Err(error).with_context(|| format!("answers in {}", path.display()))
            }
            Err(error) => {
                say(format_args!(
                    "warning: export `{}`: {}: {error}: what a kill of the server interrupts will fail with EIO",
                    self.name,
                    path.display()
                ));
                Ok(None)
            }
        }
    }

    /// Where names are, and where the stripes.
    fn parts(&self, forwarder: Forwarder, modelled: &mut Vec<Arc<ModelledStore>>) -> anyhow::Result<Parts> {
        if self.servers.is_empty() {
            let names = self.names.as_deref().ok_or_else(|| anyhow!("names is missing"))?;
            let targets = self
                .targets
                .iter()
                .map(|path| Ok(Arc::new(self.directory_tree(path, modelled)?) as Arc<dyn Tree>));
            let store = directory_store(names.as_ref(), false)?;
            let names =
                DirectoryTree::new(names.as_ref(), store).with_context(|| format!("names = \"{names}\""))?;
            return Ok((Arc::new(names), targets.collect::<anyhow::Result<_>>()?));
        }
        let names = match &self.names {
            Some(address) => address.parse().with_context(|| "names".to_owned())?,
            None => self.servers[0].0.clone(),
        };
        let names = self.remote(&names, NAMES, forwarder, true)?;
        let targets = self.servers.iter().map(|address| {
            Ok(Arc::new(self.remote(&address.0, OBJECTS, forwarder, false)?) as Arc<dyn Tree>)
        });
        Ok((Arc::new(names), targets.collect::<anyhow::Result<_>>()?))
    }

    fn directory_tree(
        &self,
        path: &Path,
        modelled: &mut Vec<Arc<ModelledStore>>,
    ) -> anyhow::Result<DirectoryTree> {
        let mut store = directory_store(path, self.direct)?;
        if let Some(device) = &self.device {
            let device = iogate_sim::profile::device(device, &devices::open).context("device")?;
            let device = ModelledStore::new(store, device, Placement::new(self.extent()));
            let device = Arc::new(device.context("the modelled device")?);
            modelled.push(device.clone());
            store = device;
        }
        DirectoryTree::new(path, store).with_context(|| path.display().to_string())
    }

    /// Bytes of a file that lie together on a modelled device.
    fn extent(&self) -> u64 {
        self.extent.as_ref().map_or(ModelledStore::EXTENT_BYTES, |extent| extent.0.max(1))
    }

    /// The targets behind a directory.
    fn layout_of(&self, directory: &Path) -> anyhow::Result<MountLayout> {
        Ok(self.layout_choice()?.of_mount(directory))
    }

    /// How they are to be found.
    pub(super) fn layout_choice(&self) -> anyhow::Result<LayoutChoice> {
        let choice = self.layout.as_deref().unwrap_or("auto");
        choice.parse().map_err(|error: String| anyhow!("layout: {error}"))
    }

    fn remote(
        &self,
        endpoint: &Endpoint,
        export: &str,
        forwarder: Forwarder,
        stripes: bool,
    ) -> anyhow::Result<Remote> {
        let host = rustix::system::uname();
        let (host, pid) = (host.nodename().to_string_lossy(), std::process::id());
        let scheduler = &self.gate.scheduler;
        let coordinates = scheduler.kind() == SchedulerKind::Twins;
        let mut client = ClientOptions {
            name: format!("pid {pid} on {host}"),
            export: export.into(),
            forwards: true,
            stripes,
            ..self.client.options(endpoint)?
        };
        if forwarder.nodes > 1 || coordinates {
            let Forwarder { node, nodes, .. } = forwarder;
            client.name = format!("forwarder {node} of {nodes}, {}", client.name);
            client.forwarder = Some(forwarder);
        }
        if coordinates {
            let half = Duration::from_nanos(scheduler.value(&param::WINDOW) / 2);
            client.clock_tolerance = client.clock_tolerance.min(half);
        }
        let options = RemoteOptions { client, ..RemoteOptions::default() };
        Remote::connect(std::slice::from_ref(endpoint), &options).map_err(|error| {
            let is_silent = matches!(&error, ClientError::Connect(ConnectError::Unreachable { source, .. })
                if source.kind() == std::io::ErrorKind::TimedOut);
            match is_silent {
                true => anyhow::Error::new(error).context(WAITS),
                false => anyhow::Error::new(error),
            }
        })
    }
}

fn directory_store(path: &Path, direct: bool) -> anyhow::Result<Arc<dyn Store>> {
    let options = DirectoryOptions { backend: Backend::Auto, direct };
    let store = DirectoryStore::with(path, options).with_context(|| Attempt::enter(path.display()))?;
    Ok(Arc::new(store))
}

impl Config {
    /// What it says, and what is usual.
    pub(super) fn limits(&self) -> Limits {
        let (given, default) = (&self.limits, Limits::default());
        let bytes = |given: &Option<super::config::Bytes>, default: u64| {
            given.as_ref().map_or(default, |bytes| bytes.0)
        };
        let time =
            |given: &Option<super::config::Time>, default| given.as_ref().map_or(default, |time| time.0);
        let transfer = bytes(&given.transfer, default.transfer_bytes_max.into());
        Limits {
            connections: given.connections.map_or(default.connections, |n| n.get()),
            connections_per_client: given
                .connections_per_client
                .map_or(default.connections_per_client, |n| n.get()),
            open_files_per_session: given.open_files.map_or(default.open_files_per_session, |n| n.get()),
            open_files: default.open_files,
            credits: given.requests.map_or(default.credits, |n| n.get()),
            credit_bytes: bytes(&given.bytes, default.credit_bytes),
            transfer_bytes_max: u32::try_from(transfer).unwrap_or(u32::MAX),
            memory_bytes: usize::try_from(bytes(&given.memory, default.memory_bytes as u64))
                .unwrap_or(usize::MAX),
            hello_timeout: time(&given.hello, default.hello_timeout),
            stall_timeout: time(&given.stall, default.stall_timeout),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarders_that_work_together_have_gates_of_different_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let number = |node: u32| {
            let text = format!(
                "node = {node}\nnodes = 4\n[[listen]]\nat = \"unix:{path}/s\"\n[[export]]\nnames = \"{path}\"\n\
                 targets = [\"{path}\"]\ngate = {{ scheduler = \"twins\" }}\n"
            );
            let (_, built) = server(&Config::parse(&text).unwrap()).unwrap();
            built[0].engine.with_gate(|gate, _| gate.config().scheduler.value(&param::NODE))
        };
        assert_eq!([0, 1, 3].map(number), [0, 1, 3]);
    }
}
