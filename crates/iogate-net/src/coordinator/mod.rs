//! The coordinator: says whose turn it is to do bulk I/O on which targets.
//!
//! One thread waits on one `epoll` for all connections. In each round it takes in all that has come, lets the
//! [`Leader`](iogate_core::coord::leader::Leader) decide, has the [`Journal`] keep what has changed, at once for the whole round, and
//! only then answers, with one write for each connection. Only finding out who a client is, which may take long, is done by workers.
//!
//! | file | purpose |
//! |---|---|
//! | `reactor.rs` | the thread: what it waits for, and what it does in each round |
//! | `incoming.rs` | connections come, and bytes from them become requests |
//! | `connection.rs` | a connection: bytes in, bytes out |
//! | `budget.rs` | memory that all connections, and those of one user, may take |
//! | `handshake.rs` | the first message of a connection, and which session it goes on with |
//! | `probing.rs` | finding out whether a file system is quiet |
//! | `status.rs` | telling how it is |
//! | `journal/` | what is kept |

mod budget;
mod connection;
mod handshake;
mod incoming;
pub mod journal;
mod probing;
mod reactor;
mod status;

use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use iogate_core::Span;
use iogate_core::coord::leader::{self, LeaderConfig};
use iogate_core::coord::{ClaimId, CoordConfig};
use iogate_core::global_policy::Terms;
use iogate_engine::lock;

pub use iogate_core::coord::EXPORT;
pub use iogate_core::coord::leader::{
    ClassStatus, Counters, Ending, Finished, GatesStatus, Holder, Place, Probed, Rules, Status, TARGETS_MAX,
    Waiter,
};
pub use journal::{Etcd, Journal, JournalError, Local};
pub use probing::Prober;

use crate::Endpoint;
use crate::transport::Listener;
use crate::transport::poll::Waker;
use reactor::Reactor;

/// Settings of a [`Coordinator`].
#[derive(Clone, Debug, Default)]
pub struct CoordinatorConfig {
    /// Who is next.
    pub table: CoordConfig,
    /// The file systems that there are; none: clients' names for them are taken as they come.
    pub places: Vec<Place>,
    /// How long turns of a place may be, by its name, where [`CoordConfig::turn_max`] is not meant.
    pub turn_max: HashMap<String, Span>,
    /// Weights of users, whatever their clients say; if there are any, those of others are 1.
    pub weights: HashMap<u32, u32>,
    /// What finds out whether a place is quiet before a turn on it begins, by the place's name.
    pub probers: HashMap<String, Prober>,
    /// The policy that gates share, if there is one.
    pub terms: Option<Terms>,
    /// What the file of that policy calls classes and groups, by their application numbers: for its status.
    pub class_names: HashMap<u32, String>,
    /// What it may spend.
    pub limits: Limits,
}

impl CoordinatorConfig {
    /// What of it is for what decides.
    fn leader(&self) -> LeaderConfig {
        LeaderConfig {
            table: self.table.clone(),
            places: self.places.clone(),
            turn_max: self.turn_max.clone().into_iter().collect(),
            weights: self.weights.clone().into_iter().collect(),
            probed: self.probers.keys().cloned().collect(),
            limits: leader::Limits {
                sessions: 2 * self.limits.connections,
                sessions_per_user: 2 * self.limits.connections_per_client,
                claims_per_session: self.limits.claims_per_session,
                targets_per_claim: self.limits.targets_per_claim,
                history: self.limits.history,
            },
            terms: self.terms.clone(),
            own_uid: rustix::process::geteuid().as_raw(),
        }
    }
}

/// What a coordinator may spend.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections altogether.
    pub connections: usize,
    /// Connections from one host, or of one user of this machine; and half the sessions of one user.
    pub connections_per_client: usize,
    /// Claims of a session, waiting and held.
    pub claims_per_session: usize,
    /// Targets of a claim.
    pub targets_per_claim: usize,
    /// Turns that are over and still in the status.
    pub history: usize,
    /// How long a connection may be without a `Hello`.
    pub hello_timeout: Duration,
    /// How long a client may take nothing of its answers, or nothing may come of a message that has begun.
    pub stall_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 32_768,
            connections_per_client: 16_384,
            claims_per_session: 1024,
            targets_per_claim: 4096,
            history: 256,
            hello_timeout: Duration::from_secs(5),
            stall_timeout: Duration::from_secs(30),
        }
    }
}

/// A coordinator that runs. Dropping it stops it; what it knows stays in its journal.
pub struct Coordinator {
    endpoints: Vec<Endpoint>,
    caller: Caller,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Reaches the thread from others.
#[derive(Clone)]
struct Caller {
    calls: Sender<Call>,
    waker: Arc<Waker>,
}

/// What others say to the thread.
enum Call {
    /// A worker has found out who a client is.
    Identified(handshake::Identified),
    /// A worker has probed for a turn.
    Probed(ClaimId, Result<Probed, String>),
    Status(Sender<Status>),
    Stop,
}

impl Caller {
    /// Says something; `false` if the thread is gone.
    fn call(&self, call: Call) -> bool {
        let is_said = self.calls.send(call).is_ok();
        self.waker.wake();
        is_said
    }
}

impl Coordinator {
    /// Starts to serve what comes in through the listeners. Fails if the settings contradict each other, the journal cannot be read, or
    /// the system refuses what a coordinator needs.
    pub fn start(
        config: CoordinatorConfig,
        listeners: Vec<Listener>,
        journal: Box<dyn Journal>,
    ) -> Result<Coordinator, StartError> {
        check(&config)?;
        let endpoints = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
        let (calls, called) = channel();
        let caller = Caller { calls, waker: Arc::new(Waker::new()?) };
        let reactor = Reactor::new(config, listeners, journal, caller.clone(), called)?;
        let thread = std::thread::Builder::new().name("iogate-coord".into()).spawn(move || reactor.run());
        Ok(Coordinator { endpoints, caller, thread: Mutex::new(Some(thread?)) })
    }

    /// Where it listens.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// How it is; `None` once it has stopped.
    pub fn status(&self) -> Option<Status> {
        let (answer, status) = channel();
        self.caller.call(Call::Status(answer));
        status.recv().ok()
    }

    /// Closes all connections and stops. May be called again.
    pub fn shutdown(&self) {
        self.caller.call(Call::Stop);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("a defect in the coordinator: its journal has all that it has said");
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Why a coordinator does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Settings that cannot be meant.
    #[error("{0}")]
    Settings(String),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The system refuses.
    #[error("the system refuses what a coordinator needs: {0}")]
    System(#[from] io::Error),
}

fn check(config: &CoordinatorConfig) -> Result<(), StartError> {
    let wrong = |text: String| Err(StartError::Settings(text));
    let CoordConfig { slots, lease, claims_max, .. } = config.table;
    if slots == 0 || claims_max == 0 {
        return wrong("expected at least one slot, and room for at least one claim".into());
    }
    if lease.as_nanos() < 10_000_000 {
        return wrong(format!("a lease of {lease} is over before it is renewed: expected at least 10ms"));
    }
    for (index, place) in config.places.iter().enumerate() {
        if place.name.is_empty() || place.name.chars().any(char::is_control) {
            let name = &place.name;
            return wrong(format!(
                "expected a place to have a name without control characters, found {name:?}"
            ));
        }
        if place.targets.is_some_and(|targets| targets == 0 || targets > TARGETS_MAX) {
            return wrong(format!("expected place `{}` to have 1 to {TARGETS_MAX} targets", place.name));
        }
        if config.places[..index].iter().any(|other| other.name == place.name) {
            return wrong(format!("two places have the name `{}`", place.name));
        }
    }
    Ok(())
}
