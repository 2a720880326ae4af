//! The server over real sockets, and clients made by hand.

mod bounds;
mod fence;
mod forwarders;
mod hostile;
mod hung;
mod idle;
mod lost;
mod messages;
mod raw;
mod rights;
mod tree;

use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::Engine;
use iogate_net::server::{Export, Limits};
use iogate_net::transport::auth::{Access, Policy};
use iogate_net::{Endpoint, Listener, Server, ServerConfig};
use iogate_vfs::{Caller, Tree};
use tree::MemoryTree;

/// A server with one tree in memory, over TCP (anybody is user 7) and a Unix socket.
struct Setup {
    server: Server,
    tree: Arc<MemoryTree>,
    _dir: tempfile::TempDir,
}

impl Setup {
    fn new() -> Setup {
        Setup::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut ServerConfig)) -> Setup {
        let tree = Arc::new(MemoryTree::default());
        let export = export("files", tree.clone());
        let limits = Limits { stall_timeout: Duration::from_secs(10), ..Limits::default() };
        let mut config = ServerConfig { limits, ..ServerConfig::alone(vec![export]) };
        change(&mut config);
        let dir = tempfile::tempdir().unwrap();
        let policy = Policy::None { user: Caller::new(7, 8), on_any_network: false };
        let anybody = Access { users: Some([7].into()), ..policy.into() };
        let tcp = Listener::bind(&"127.0.0.1:0".parse().unwrap(), anybody).unwrap();
        let unix = Listener::bind(&Endpoint::Unix(dir.path().join("socket")), Policy::Peer).unwrap();
        let server = Server::start(config, vec![tcp, unix]).unwrap();
        Setup { server, tree, _dir: dir }
    }

    fn tcp(&self) -> &Endpoint {
        &self.server.endpoints()[0]
    }

    fn unix(&self) -> &Endpoint {
        &self.server.endpoints()[1]
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        // A test that has failed may hold something up, and the server completes everything.
        self.tree.store.release();
        self.tree.door.open();
    }
}

/// Waits for what happens soon.
fn wait_until(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < Duration::from_secs(60), "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn export(name: &str, tree: Arc<dyn Tree>) -> Export {
    export_with(1024, 8, name, tree)
}

fn export_with(queue_max: u32, depth: u32, name: &str, tree: Arc<dyn Tree>) -> Export {
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max, depth, layout: Layout::SINGLE };
    let engine = Engine::new(&gate, tree.store()).unwrap();
    Export { forwarders: vec![rustix::process::geteuid().as_raw()], ..Export::new(name, engine, tree) }
}
