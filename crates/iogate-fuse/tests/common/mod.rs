//! Mounts for tests: a source and a mount point in a temporary directory, taken down whatever happens.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

mod hang;
mod uring;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::store::DirectoryStore;
use iogate_engine::{Engine, Store};
use iogate_fuse::{CacheMode, Control, LockScope, MountOptions, Mounted, Transport};
use iogate_net::client::{ClientOptions, Remote, RemoteOptions};
use iogate_net::server::Export;
use iogate_net::transport::auth::{Credential, Policy};
use iogate_net::{Endpoint, Listener, Server, ServerConfig};
use iogate_vfs::{Caller, DirectoryTree, Tree};

pub use hang::HangGuard;
pub use uring::{UringOn, can_use_uring};

/// What the controls were told.
#[derive(Default)]
pub struct Recorder {
    pub told: Mutex<Vec<String>>,
}

impl Control for Recorder {
    fn status(&self) -> Vec<u8> {
        format!("told {}", self.told.lock().unwrap().len()).into_bytes()
    }

    fn set(&self, text: &str) -> Result<(), String> {
        if text.contains('=') {
            self.told.lock().unwrap().push(text.to_owned());
            Ok(())
        } else {
            Err(format!("expected key=value, got {text}"))
        }
    }
}

/// What is between the mount and its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing: the mount is of a directory.
    Directory,
    /// A tree.
    Tree,
    /// A tree of a server's: a network, and two gates.
    Server,
}

/// Requests that a gate has room for, where a test does not say otherwise.
const QUEUE_MAX: u32 = 1024;

/// A mounted directory.
pub struct Mount {
    pub behind: Behind,
    pub mounted: Option<Mounted>,
    pub engine: Arc<Engine>,
    pub control: Arc<Recorder>,
    pub source: PathBuf,
    pub path: PathBuf,
    // After `mounted` and `engine`, which use it.
    pub server: Option<Server>,
    _hang: HangGuard,
    // After `mounted`, so that it is removed when nothing is mounted in it any more.
    _dir: tempfile::TempDir,
}

impl Mount {
    pub fn new(behind: Behind, options: &MountOptions) -> Mount {
        match behind {
            Behind::Directory => Mount::with_store(options, |store| store),
            Behind::Tree => {
                Mount::with(behind, options, |source, path| mount_tree(tree(source), path, options))
            }
            Behind::Server => Mount::through(options, Endpoint::clone),
        }
    }

    /// Of a server, on a way that begins at another endpoint than its own.
    pub fn through(options: &MountOptions, way: impl FnOnce(&Endpoint) -> Endpoint) -> Mount {
        let mut server = None;
        let mut mount = Mount::with(Behind::Server, options, |source, path| {
            let served = server.insert(serve(source));
            mount_tree(Arc::new(connect(&way(&served.endpoints()[0]))), path, options)
        });
        mount.server = server;
        mount
    }

    /// On a store that `wrap` makes of the directory's.
    pub fn with_store(options: &MountOptions, wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>) -> Mount {
        Mount::with_gate(options, QUEUE_MAX, wrap)
    }

    /// As [`Mount::with_store`], behind a gate with room for so many.
    pub fn with_gate(
        options: &MountOptions,
        queue_max: u32,
        wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
    ) -> Mount {
        Mount::with(Behind::Directory, options, |source, path| {
            mount_directory(source, path, options, queue_max, wrap)
        })
    }

    /// Of a directory that is there already.
    pub fn of(source: &Path, options: &MountOptions) -> Mount {
        Mount::with(Behind::Directory, options, |_, path| {
            mount_directory(source, path, options, QUEUE_MAX, |store| store)
        })
    }

    fn with(
        behind: Behind,
        options: &MountOptions,
        mount: impl FnOnce(&Path, &Path) -> (Mounted, Arc<Engine>, Arc<Recorder>),
    ) -> Mount {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        let path = dir.path().join("mount");
        std::fs::create_dir(&source).unwrap();
        std::fs::create_dir(&path).unwrap();
        // Other users must get there too.
        open_to_all(dir.path());
        open_to_all(&source);
        let over_uring = options.transport == Transport::Uring;
        let switched_on = over_uring.then(|| UringOn::switch().expect("`can_use_uring` was asked"));
        let (mounted, engine, control) = mount(&source, &path);
        drop(switched_on);
        assert!(!over_uring || mounted.transport() == Transport::Uring, "{:?}", mounted.transport());
        let (mounted, server, _hang) = (Some(mounted), None, HangGuard::new(&path));
        Mount { behind, mounted, engine, control, source, path, server, _hang, _dir: dir }
    }

    pub fn mounted(&self) -> &Mounted {
        self.mounted.as_ref().unwrap()
    }

    /// A path below the mount point.
    pub fn at(&self, path: &str) -> PathBuf {
        self.path.join(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            // Detaches; then wait, so that the directory can be removed.
            let _ = mounted.detach();
            mounted.wait();
        }
        self.engine.shutdown();
    }
}

pub fn engine(source: &Path) -> (Arc<Engine>, Arc<dyn Store>) {
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(source).unwrap());
    (engine_over(store.clone()), store)
}

/// A directory as a tree.
pub fn tree(source: &Path) -> Arc<dyn Tree> {
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(source).unwrap());
    Arc::new(DirectoryTree::new(source, store).unwrap())
}

/// Serves a directory to anybody on this machine, who is taken for root.
pub fn serve(source: &Path) -> Server {
    let tree = tree(source);
    let export = Export {
        forwarders: vec![rustix::process::geteuid().as_raw()],
        ..Export::new("files", engine_over(tree.store()), tree)
    };
    let config = ServerConfig::alone(vec![export]);
    let policy = Policy::None { user: Caller::new(0, 0), on_any_network: false };
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), policy).unwrap();
    Server::start(config, vec![listener]).unwrap()
}

/// A server's tree.
pub fn connect(endpoint: &Endpoint) -> Remote {
    let client = ClientOptions {
        auth: Credential::None,
        retry_for: Duration::from_secs(5),
        ..ClientOptions::default()
    };
    Remote::connect(std::slice::from_ref(endpoint), &RemoteOptions { client, ..RemoteOptions::default() })
        .unwrap()
}

fn mount_directory(
    source: &Path,
    path: &Path,
    options: &MountOptions,
    queue_max: u32,
    wrap: impl FnOnce(Arc<dyn Store>) -> Arc<dyn Store>,
) -> (Mounted, Arc<Engine>, Arc<Recorder>) {
    let store = wrap(Arc::new(DirectoryStore::new(source).unwrap()));
    let engine = engine_with(store.clone(), queue_max);
    let control = Arc::new(Recorder::default());
    let mounted = iogate_fuse::mount(source, path, engine.clone(), store, options, control.clone());
    (mounted.unwrap(), engine, control)
}

fn mount_tree(
    tree: Arc<dyn Tree>,
    path: &Path,
    options: &MountOptions,
) -> (Mounted, Arc<Engine>, Arc<Recorder>) {
    let engine = engine_over(tree.store());
    let control = Arc::new(Recorder::default());
    let mounted = iogate_fuse::mount_tree(tree, "a tree", path, engine.clone(), options, control.clone());
    (mounted.unwrap(), engine, control)
}

pub fn engine_over(store: Arc<dyn Store>) -> Arc<Engine> {
    engine_with(store, QUEUE_MAX)
}

fn engine_with(store: Arc<dyn Store>, queue_max: u32) -> Arc<Engine> {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max, depth: 16, layout: Layout::SINGLE };
    Engine::new(&gate, store).unwrap()
}

pub fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

/// Whether mounts can be tried; says so loudly if not.
pub fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists() && rustix::process::geteuid().is_root();
    if !can {
        eprintln!("SKIPPED: this test needs /dev/fuse and root");
    }
    can
}

/// The transports that there are.
fn transports() -> Vec<Transport> {
    let uring = can_use_uring().then_some(Transport::Uring);
    [Transport::Device].into_iter().chain(uring).collect()
}

/// Each transport with each cache mode.
pub fn all_options() -> Vec<MountOptions> {
    let mut all = Vec::new();
    for transport in transports() {
        for cache in [CacheMode::Direct, CacheMode::Page] {
            all.push(MountOptions { transport, cache, ..MountOptions::default() });
        }
    }
    all
}

/// What a mount shows, by which transport, with which cache: not all that can be combined, but each of each.
fn all_mounts() -> impl Iterator<Item = (Behind, MountOptions)> {
    let transports = transports();
    let directories = all_options().into_iter().map(|options| (Behind::Directory, options));
    let others = [
        (Behind::Tree, Transport::Device, CacheMode::Direct),
        (Behind::Tree, Transport::Uring, CacheMode::Page),
        (Behind::Server, Transport::Device, CacheMode::Page),
        (Behind::Server, Transport::Uring, CacheMode::Direct),
    ];
    let others = others.into_iter().filter(move |(_, transport, _)| transports.contains(transport));
    let others = others.map(|(behind, transport, cache)| {
        (behind, MountOptions { transport, cache, ..MountOptions::default() })
    });
    let locks_there = MountOptions { locks: LockScope::Source, ..MountOptions::default() };
    directories.chain(others).chain([(Behind::Directory, locks_there)])
}

/// Runs a test on a mount of each kind.
pub fn on_all_mounts(test: impl Fn(&Mount)) {
    if !can_mount() {
        return;
    }
    for (behind, options) in all_mounts() {
        eprintln!("with {:?}, {:?}, {behind:?}", options.transport, options.cache);
        test(&Mount::new(behind, &options));
    }
}
