//! A forwarder over a directory, for trying the library: `forwarder DIRECTORY unix:PATH`. It runs until it is killed.

use std::path::Path;
use std::sync::Arc;

use iogate_core::sched::SchedulerKind;
use iogate_core::{GateConfig, Layout, SchedulerConfig};
use iogate_engine::store::DirectoryStore;
use iogate_engine::{Engine, Store};
use iogate_net::server::Export;
use iogate_net::transport::auth::Policy;
use iogate_net::{Endpoint, Listener, Server, ServerConfig};
use iogate_vfs::DirectoryTree;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, endpoint] = &arguments[..] else {
        return Err("expected DIRECTORY and unix:PATH".into());
    };
    let _server = serve(Path::new(directory), &endpoint.parse()?)?;
    loop {
        std::thread::park();
    }
}

/// Serves a directory to the users of this machine.
pub(crate) fn serve(directory: &Path, endpoint: &Endpoint) -> Result<Server, Box<dyn std::error::Error>> {
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::new(directory)?);
    let tree = Arc::new(DirectoryTree::new(directory, Arc::clone(&store))?);
    let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
    let gate = GateConfig { scheduler, queue_max: 4096, depth: 8, layout: Layout::SINGLE };
    let export = Export {
        forwarders: vec![rustix::process::geteuid().as_raw()],
        ..Export::new("files", Engine::new(&gate, store)?, tree)
    };
    let config = ServerConfig::alone(vec![export]);
    Ok(Server::start(config, vec![Listener::bind(endpoint, Policy::Peer)?])?)
}
