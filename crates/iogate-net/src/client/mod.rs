//! The client: files on servers.
//!
//! | module | purpose |
//! |---|---|
//! | `session`, `lead` | one session with one server: many threads ask, one of them receives |
//! | `call` | one request in flight: what it says, its memory, and who waits for it |
//! | `control` | asking a server how it is |
//! | `recover` | what the core says to do when a connection or a server is lost |
//! | `ring` | whether servers forward to each other in a ring |
//! | `fork` | what a process's child does with its parent's sessions |
//! | `send`, `receive` | what leaves and arrives, as little copied as possible |
//! | `unsynced` | what was written and not made durable |
//! | `locks` | who has a file's locks, and whether they are still had |
//! | `ends` | what a forwarder asks of the end of a striped file |
//! | `remote`, `file`, `store` | one or several servers as a [`Tree`](iogate_vfs::Tree) |
//! | `spread` | which of several servers carries out what of a file |
//! | `split` | a transfer that goes out as several requests, and becomes one again |
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
mod control;
mod ends;
mod file;
mod fork;
mod lead;
mod locks;
mod receive;
mod recover;
mod remote;
mod ring;
mod send;
mod session;
mod split;
mod spread;
mod store;
mod unsynced;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use iogate_core::proto::forwarder::Forwarder;
use iogate_core::wire::hello;

use crate::Endpoint;
use crate::transport::auth::Credential;
use crate::transport::{ConnectError, Connected, Dial, Introduction, Way, connect, dial};

pub use file::RemoteFile;
pub use remote::{Remote, RemoteOptions};
pub use session::Client;
pub use spread::Spread;
pub use store::RemoteStore;

/// Who receives what a server sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiving {
    /// A thread of the client's own, unless all who wait are threads in calls: then one of these.
    #[default]
    Background,
    /// Only threads in calls: the client has no thread. Nothing happens between calls, and a transfer submitted to
    /// the store keeps its thread. A child of `fork` gets a session of its own; no other thread may be in a call while a process
    /// forks, or the child may wait for ever for what that thread had locked.
    Inline,
}

/// A forwarder that is this process, at this index among so many that work together. Servers refuse a second one with the same index: have
/// one for all clients of it.
pub fn forwarder(node: u32, nodes: u32) -> io::Result<Forwarder> {
    let mut instance = [0; 8];
    crate::system::random(&mut instance)?;
    Ok(Forwarder { node, nodes, instance: u64::from_le_bytes(instance) })
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
    /// It belongs to a server, which asks this one for what it is asked itself: whether servers forward to each other in a ring is looked
    /// for.
    pub forwards: bool,
    /// It stripes files over several servers, and asks this one for the names of their objects.
    pub stripes: bool,
    /// How far the server's clock may be from this one before that is worth a warning: issue times and windows go by them.
    pub clock_tolerance: Duration,
    /// How the client proves who it is.
    pub auth: Credential,
    /// How a server is reached: [`dial`], or what [`dial_tls`](crate::transport::dial_tls) gives.
    pub dial: Dial,
    /// Most time for one attempt to connect.
    pub connect_timeout: Duration,
    /// How long requests wait for a server that has gone, before they fail with `EIO`.
    pub retry_for: Duration,
    /// It ends with its process: when that is killed, nobody waits long for one who might come back, and its locks are soon free.
    pub ends: bool,
    /// Whether other servers have the same files, and give locks of them: see [`SessionConfig::has_rivals`].
    ///
    /// [`SessionConfig::has_rivals`]: iogate_core::proto::client_session::SessionConfig::has_rivals
    pub has_rivals: bool,
    /// Who receives.
    pub receiving: Receiving,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            name: format!("pid {}", std::process::id()),
            export: String::new(),
            forwarder: None,
            forwards: false,
            stripes: false,
            clock_tolerance: Duration::from_millis(100),
            auth: Credential::Socket,
            dial: Arc::new(dial),
            connect_timeout: Duration::from_secs(5),
            retry_for: Duration::from_secs(60),
            ends: false,
            has_rivals: false,
            receiving: Receiving::default(),
        }
    }
}

impl ClientOptions {
    /// Connects to a server, and begins a session or goes on with one.
    fn connect(&self, endpoint: &Endpoint, session: [u8; 16]) -> Result<Connected, ConnectError> {
        let way = Way { dial: &self.dial, timeout: self.connect_timeout, auth: &self.auth };
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let client = Introduction {
            name: &self.name,
            export: &self.export,
            session,
            forwarder: self.forwarder,
            flags: flag(self.stripes, hello::STRIPES) | flag(self.ends, hello::ENDS),
        };
        connect(endpoint, &way, &client)
    }
}

impl fmt::Debug for ClientOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientOptions")
            .field("name", &self.name)
            .field("export", &self.export)
            .field("forwarder", &self.forwarder)
            .field("forwards", &self.forwards)
            .field("stripes", &self.stripes)
            .field("clock_tolerance", &self.clock_tolerance)
            .field("auth", &self.auth)
            .field("connect_timeout", &self.connect_timeout)
            .field("retry_for", &self.retry_for)
            .field("ends", &self.ends)
            .field("has_rivals", &self.has_rivals)
            .field("receiving", &self.receiving)
            .finish_non_exhaustive()
    }
}

/// Why there is no session with a server.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It cannot be connected to.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It leads back to itself, over servers that forward to each other.
    #[error(
        "the server {endpoint} is not used: {text}; have one of them serve a directory, or a server that is not among them"
    )]
    Ring {
        /// Where it is.
        endpoint: Endpoint,
        /// Which servers these are.
        text: String,
    },
    /// The system does not let the client work.
    #[error("a client cannot be started: {0}")]
    System(#[from] io::Error),
    /// No server was named.
    #[error("expected at least one server, found none")]
    NoServer,
    /// Servers that a client wants to use together have different files.
    #[error(
        "{first} and {other} do not have the same files (the roots of their exports are different directories): expected forwarders of \
         the same storage; name one of them, or have a forwarder stripe files over them"
    )]
    Different {
        /// The server for names.
        first: Endpoint,
        /// One that has others.
        other: Endpoint,
    },
}

impl ClientError {
    /// Whether a server was not there, which may be there later: it starts, or the network on the way to it does. Who is there and refuses,
    /// or is not to be reached by this user or with these certificates, stays so.
    pub fn may_pass(&self) -> bool {
        let ClientError::Connect(ConnectError::Unreachable { source, .. }) = self else { return false };
        let lasts = |kind| {
            matches!(
                kind,
                io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied
            )
        };
        !lasts(source.kind())
    }
}

impl From<ClientError> for io::Error {
    fn from(error: ClientError) -> io::Error {
        let kind = match &error {
            ClientError::Connect(error) => error.kind(),
            ClientError::System(source) => source.kind(),
            ClientError::Ring { .. } => io::Error::from_raw_os_error(libc::ELOOP).kind(),
            ClientError::NoServer | ClientError::Different { .. } => io::ErrorKind::InvalidInput,
        };
        io::Error::new(kind, error)
    }
}
