//! The client: files on servers.
//!
//! | module | purpose |
//! |---|---|
//! | `session`, `lead` | one session with one server: many threads ask, one of them receives |
//! | `connect` | reaching a server, and agreeing with it |
//! | `clock` | how far a server's clock is from this one |
//! | `control` | asking a server how it is |
//! | `identity` | who this process is to all servers, and the numbers of its requests |
//! | `recover` | what the core says to do when a connection or a server is lost |
//! | `fork` | what a process's child does with its parent's sessions |
//! | `send`, `receive` | what leaves and arrives, as little copied as possible |
//! | `unsynced` | what was written and not made durable |
//! | `ends` | what a forwarder asks of the end of a striped file |
//! | `remote`, `file`, `store` | one or several servers as a [`Tree`](iogate_vfs::Tree) |
//!
//! ```no_run
//! use iogate_net::client::{Remote, RemoteOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let remote = Remote::connect(&["io1:7000".parse()?], &RemoteOptions::default())?;
//! let file = remote.create("results/step-1".as_ref(), 0o644)?;
//! file.write_at(0, b"temperature")?;
//! file.sync(true)?;
//! let mut memory = [0; 4096];
//! let bytes = file.read_at(0, &mut memory)?;
//! assert_eq!(&memory[..bytes], b"temperature");
//! # Ok(())
//! # }
//! ```

mod call;
mod clock;
mod connect;
mod control;
mod ends;
mod file;
mod fork;
mod identity;
mod lead;
mod receive;
mod recover;
mod remote;
mod send;
mod session;
mod split;
mod store;
mod unsynced;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use iogate_core::wire::WireError;

use crate::Endpoint;
use crate::transport::Socket;
use crate::transport::auth::Credential;

pub use clock::ClockOffset;
pub(crate) use connect::{Connected, connect, flush, send, timespec};
pub use connect::{dial, dial_tls};
pub use file::RemoteFile;
pub use fork::Forking;
pub use remote::{Remote, RemoteOptions, Spread};
pub use session::Client;
pub use store::RemoteStore;

/// Reaches a server: the socket is connected when this returns. The time is the most that it may take.
pub type Dial = Arc<dyn Fn(&Endpoint, Duration) -> io::Result<Box<dyn Socket>> + Send + Sync>;

/// Who receives what a server sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiving {
    /// A thread of the client's own, unless all who wait are threads in calls: then one of these.
    #[default]
    Background,
    /// Only threads in calls: the client has no thread. Nothing happens between calls, and a transfer submitted to
    /// the store keeps its thread.
    Inline,
}

/// A forwarder, as the servers behind it know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forwarder {
    /// Its index among `nodes`.
    pub node: u32,
    /// Forwarders that work together; at least 1.
    pub nodes: u32,
    instance: u64,
}

impl Forwarder {
    /// A forwarder that is this process. Servers refuse a second one with the same index: have one for all clients of it.
    pub fn new(node: u32, nodes: u32) -> io::Result<Forwarder> {
        let mut instance = [0; 8];
        crate::system::random(&mut instance)?;
        Ok(Forwarder { node, nodes, instance: u64::from_le_bytes(instance) })
    }
}

/// Settings of a [`Client`].
#[derive(Clone)]
pub struct ClientOptions {
    /// What the server's people call this client: `node:pid`, or a program's name.
    pub name: String,
    /// The server's export; empty for its first one.
    pub export: String,
    /// Which forwarder the client is part of, if it is.
    pub forwarder: Option<Forwarder>,
    /// It stripes files over several servers, and asks this one for the names of their objects.
    pub stripes: bool,
    /// How far the server's clock may be from this one before that is worth a warning: issue times and windows go by them.
    pub clock_tolerance: Duration,
    /// How the client proves who it is.
    pub auth: Credential,
    /// How a server is reached: [`dial`], or what [`dial_tls`] gives.
    pub dial: Dial,
    /// Most time for one attempt to connect.
    pub connect_timeout: Duration,
    /// How long requests wait for a server that has gone, before they fail with `EIO`.
    pub retry_for: Duration,
    /// Who receives.
    pub receiving: Receiving,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            name: format!("pid {}", std::process::id()),
            export: String::new(),
            forwarder: None,
            stripes: false,
            clock_tolerance: Duration::from_millis(100),
            auth: Credential::Socket,
            dial: Arc::new(dial),
            connect_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(60),
            receiving: Receiving::default(),
        }
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("name", &self.name)
            .field("export", &self.export)
            .field("forwarder", &self.forwarder)
            .field("stripes", &self.stripes)
            .field("clock_tolerance", &self.clock_tolerance)
            .field("auth", &self.auth)
            .field("connect_timeout", &self.connect_timeout)
            .field("retry_for", &self.retry_for)
            .field("receiving", &self.receiving)
            .finish_non_exhaustive()
    }
}

/// Why there is no session with a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It cannot be reached, or the connection was lost.
    #[error("the server {endpoint} cannot be reached ({source}): expected `iogate serve` to listen there")]
    Unreachable {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        source: io::Error,
    },
    /// It does not want this client.
    #[error("the server {endpoint} refuses the connection: {text} ({source})")]
    Refused {
        /// Where.
        endpoint: Endpoint,
        /// What it says.
        text: String,
        /// Its error.
        source: io::Error,
    },
    /// It does not speak the protocol.
    #[error("what listens at {endpoint} is not an iogate server of this version: {source}")]
    Foreign {
        /// Where.
        endpoint: Endpoint,
        /// What is wrong with what it sends.
        source: WireError,
    },
    /// No proof of who the client is could be made.
    #[error("no credential for the server {endpoint} can be made: {source}")]
    NoProof {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        source: io::Error,
    },
    /// The system does not let the client work.
    #[error("a client cannot be started: {0}")]
    System(#[from] io::Error),
    /// No server was named.
    #[error("expected at least one server, found none")]
    NoServer,
}

impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> io::Error {
        let kind = match &error {
            ClientError::Unreachable { source, .. }
            | ClientError::Refused { source, .. }
            | ClientError::NoProof { source, .. }
            | ClientError::System(source) => source.kind(),
            ClientError::Foreign { .. } => io::ErrorKind::InvalidData,
            ClientError::NoServer => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}
