//! Where a run through mounts takes place: a temporary folder, and for each data server a store, a gate and a mount.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context;
use iogate_core::auto::driver::REQUESTS_PER_S;
use iogate_core::auto::{Choice, Storage};
use iogate_core::stats::Stats;
use iogate_core::{Layout, Time};
use iogate_engine::store::{Backend, DeviceStats, DirectoryOptions, DirectoryStore, ModelledStore};
use iogate_engine::{Engine, Store};
use iogate_fuse::{Control, MountOptions, Mounted};
use iogate_sim::scenario::{Scenario, Servers};
use iogate_sim::world;
use tempfile::TempDir;

use super::feasibility;
use super::script::{Place, file_name};
use super::work::{Entrances, FileUse, Work};
use crate::attempt::{Attempt, Doing};
use crate::cli::BenchStore;
use crate::failure::Failure;
use crate::output::{say, without_path};
use crate::storage;
use crate::watched::{Note, WatchedStore};

/// Where folders are in memory.
const IN_MEMORY: &str = "/dev/shm";

/// The scene of one run through mounts. Dropped, it leaves nothing behind.
pub(super) struct Testbed {
    /// Before the folder, so that nothing is mounted in it when it is removed.
    servers: Vec<Server>,
    folder: TempDir,
    store: BenchStore,
}

struct Server {
    engine: Arc<Engine>,
    store: Arc<WatchedStore>,
    notes: Arc<Mutex<Vec<Note>>>,
    device: Option<Arc<ModelledStore>>,
    mounted: Mounted,
}

/// What was measured at one server.
pub(super) struct ServerMeasures {
    pub(super) stats: Stats,
    pub(super) scheduler: String,
    /// What chose it, and why, if it is chosen.
    pub(super) choice: Option<Choice>,
    /// Of a modelled device.
    pub(super) device: Option<DeviceStats>,
    /// Its dispatches, each with the name of its file.
    pub(super) dispatches: Vec<(Note, Option<String>)>,
    /// What the gate's clock showed at a moment.
    pub(super) clock: (Time, Instant),
}

impl Testbed {
    /// A folder with a source and a mount point for each server; nothing is mounted yet.
    pub(super) fn new(store: BenchStore, dir: Option<&Path>, servers: u32) -> anyhow::Result<Testbed> {
        let folder = scratch(store, dir)?;
        let testbed = Testbed { servers: Vec::new(), folder, store };
        for server in 0..servers {
            for folder in [testbed.source(server), testbed.mountpoint(server)] {
                std::fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
            }
        }
        Ok(testbed)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The mounts.
    pub(super) fn entrances(&self, servers: u32) -> Entrances {
        Entrances::Servers((0..servers).map(|server| Place::Folder(self.mountpoint(server))).collect())
    }

    fn source(&self, server: u32) -> PathBuf {
        self.folder.path().join(format!("server-{server}"))
    }

    pub(super) fn mountpoint(&self, server: u32) -> PathBuf {
        self.folder.path().join(format!("mount-{server}"))
    }

    /// Makes the files of a run. Where the device is not modelled, what is read is really there.
    pub(super) fn create_files(&self, work: &Work) -> Result<(), Failure> {
        let sparse = self.store != BenchStore::Directory;
        feasibility::check_space(work.bytes(sparse), self.folder())?;
        for (file, FileUse { end, .. }) in &work.files {
            for server in 0..work.striping.servers as u32 {
                let path = self.source(server).join(file_name(*file));
                // Whole from the start: the kernel lets writes that make a file longer wait for each other.
                let bytes = work.striping.part_end(server, *end);
                let made = if sparse { hole(&path, bytes) } else { filled(&path, bytes) };
                made.with_context(|| format!("the file {}", path.display()))?;
            }
        }
        Ok(())
    }

    /// Starts the gates and mounts them.
    pub(super) fn open(&mut self, scenario: &Scenario, seed: u64) -> anyhow::Result<()> {
        let servers = &scenario.cluster.servers;
        for index in 0..servers.nodes {
            let source = self.source(index);
            let direct = self.store == BenchStore::Directory;
            let how = DirectoryOptions { backend: Backend::Auto, direct };
            let directory = Arc::new(DirectoryStore::with(&source, how).context("a server's folder")?);
            let device = match self.store {
                BenchStore::Modelled => {
                    let device = world::server_device(servers, index, seed)?;
                    let store = ModelledStore::new(directory.clone(), device, servers.placement());
                    Some(Arc::new(store.context("the modelled device")?))
                }
                BenchStore::Directory | BenchStore::Memory => None,
            };
            let inner: Arc<dyn Store> = match &device {
                Some(device) => device.clone(),
                None => directory,
            };
            let (store, notes) = WatchedStore::new(inner, &source).noting();
            let store = Arc::new(store);
            let gate = servers.gate.config(index, Layout::SINGLE);
            let engine = Engine::new(&gate, store.clone());
            let engine = engine.context("the gate of a server cannot be started")?;
            if servers.gate.auto {
                engine.know(self.known(servers, &source));
                engine.choose(REQUESTS_PER_S).context("the thread that chooses cannot be started")?;
            }
            let options = MountOptions::default();
            let (point, control) = (self.mountpoint(index), Arc::new(NoControl));
            let mounted =
                iogate_fuse::mount(&source, &point, engine.clone(), store.clone(), &options, control)?;
            self.servers.push(Server { engine, store, notes, device, mounted });
        }
        Ok(())
    }

    /// What is known of the storage of a server.
    fn known(&self, servers: &Servers, source: &Path) -> Storage {
        let modelled =
            (self.store == BenchStore::Modelled).then(|| storage::modelled(&servers.device, servers.extent));
        // Of a device of random speed nothing is known.
        modelled.and_then(Result::ok).unwrap_or_else(|| storage::found(Some(source)))
    }

    /// What was measured so far.
    pub(super) fn measures(&self) -> Vec<ServerMeasures> {
        self.servers.iter().map(Server::measures).collect()
    }
}

impl Server {
    fn measures(&self) -> ServerMeasures {
        let (stats, scheduler, clock) = self.engine.with_gate(|gate, now| {
            (gate.stats().clone(), gate.scheduler().to_string(), (now, Instant::now()))
        });
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ServerMeasures {
            stats,
            scheduler,
            choice: self.engine.choice(),
            device: self.device.as_ref().map(|device| device.device_stats()),
            dispatches: notes.into_iter().map(|note| (note, self.store.name(note.file))).collect(),
            clock,
        }
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        for server in self.servers.drain(..) {
            // A process that has just ended may still hold a file for a moment.
            if server.mounted.unmount().is_err()
                && let Err(error) = server.mounted.detach()
            {
                say(format_args!("error: {error}"));
                continue;
            }
            server.mounted.wait();
            server.engine.shutdown();
        }
    }
}

/// A temporary folder where the store is to be.
pub(super) fn scratch(store: BenchStore, dir: Option<&Path>) -> anyhow::Result<TempDir> {
    let in_memory = store != BenchStore::Directory && Path::new(IN_MEMORY).is_dir();
    let place = match dir {
        Some(dir) => dir.to_owned(),
        None if in_memory => IN_MEMORY.into(),
        None => std::env::temp_dir(),
    };
    let folder = tempfile::Builder::new().prefix("iogate-bench-").tempdir_in(&place).map_err(without_path);
    folder.with_context(|| {
        Attempt::new(Doing::Write, format_args!("a temporary folder in {} cannot be made", place.display()))
    })
}

/// A file of zeros that takes no room.
pub(super) fn hole(path: &Path, bytes: u64) -> io::Result<()> {
    File::create(path)?.set_len(bytes)
}

/// A file with data, on its device and in nobody's cache.
fn filled(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0x5a; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(block.len() as u64);
        file.write_all(&block[..count as usize])?;
        left -= count;
    }
    file.sync_all()?;
    Ok(rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?)
}

/// The mounts are the run's own; nobody is to change them.
struct NoControl;

impl Control for NoControl {
    fn status(&self) -> Vec<u8> {
        b"{}".to_vec()
    }

    fn set(&self, _text: &str) -> Result<(), String> {
        Err("the mounts of a bench cannot be changed".into())
    }
}
