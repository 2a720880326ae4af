//! Servers of trees, beside what tests of trees have in common.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::sync::Arc;
use std::time::Duration;

use iogate_core::Layout;
use iogate_engine::Engine;
use iogate_net::server::{Answers, Export, Limits};
use iogate_net::transport::auth::Policy;
use iogate_net::{Endpoint, Listener, Server, ServerConfig};
use iogate_testkit::ports::bound;
use iogate_vfs::Tree;

#[path = "../../../iogate-vfs/tests/common/mod.rs"]
mod trees;

#[allow(unused_imports, reason = "each test file uses some of it")]
pub(crate) use trees::*;

/// A server of a tree, as the export `files`, to whom everybody is this user.
pub(crate) fn serve(
    tree: Arc<dyn Tree>,
    endpoint: &Endpoint,
    answers: Option<Arc<Answers>>,
    session_grace: Duration,
) -> Server {
    let engine = engine(&*tree);
    serve_over(tree, engine, endpoint, answers, session_grace)
}

/// The same, behind a gate of the test's own.
pub(crate) fn serve_over(
    tree: Arc<dyn Tree>,
    engine: Arc<Engine>,
    endpoint: &Endpoint,
    answers: Option<Arc<Answers>>,
    session_grace: Duration,
) -> Server {
    serve_within(Limits::default(), tree, engine, endpoint, answers, session_grace)
}

/// The same, with limits.
pub(crate) fn serve_within(
    limits: Limits,
    tree: Arc<dyn Tree>,
    engine: Arc<Engine>,
    endpoint: &Endpoint,
    answers: Option<Arc<Answers>>,
    session_grace: Duration,
) -> Server {
    let export = Export {
        striping: Layout { first_target: 0, stripe_bytes: 64 << 10, targets: 2 },
        forwarders: vec![own().uid],
        answers,
        ..Export::new("files", engine, tree)
    };
    let config = ServerConfig { limits, session_grace, ..ServerConfig::alone(vec![export]) };
    let policy = || Policy::None { user: own(), on_any_network: false };
    let listener = bound(|| Listener::bind(endpoint, policy()));
    Server::start(config, vec![listener]).unwrap()
}

/// How long servers keep the sessions of clients that are gone.
pub(crate) const GRACE: Duration = Duration::from_secs(60);

pub(crate) fn any_port() -> Endpoint {
    "127.0.0.1:0".parse().unwrap()
}
