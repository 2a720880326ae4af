//! The server: many connections, few threads, one gate for each export.
//!
//! All threads wait on one `epoll`, which tells of each connection once: the thread that is told reads what is there, has the gate
//! take it, and only then lets the kernel tell again. So requests of a connection reach the gate in order, and whatever a thread
//! is held up by, the next one goes on with the connection. Everything but reads and writes is done by workers, or by the
//! thread itself if it came alone and another thread waits for events: then nobody has to be woken.
//!
//! | file | purpose |
//! |---|---|
//! | `export.rs` | what a server offers, and how much of it |
//! | `threads.rs` | the threads, and the watch over them, over silent clients and over sessions that nobody comes back to |
//! | `entrance.rs` | how many of the threads an export may hold |
//! | `connection.rs` | a connection and what the kernel is asked about it |
//! | `incoming.rs` | bytes to requests |
//! | `owned_request.rs` | a request on its way to who carries it out |
//! | `handshake.rs` | who the client is |
//! | `rights.rs` | what a client may do |
//! | `session.rs` | handles, requests and their replies: what the core decides of them is done |
//! | `transfers.rs`, `appends.rs` | reads and writes |
//! | `ends.rs` | who may use the end of a striped file |
//! | `locks.rs`, `passed_locks.rs` | locks of files: those that are kept here, and those that are passed on |
//! | `operations.rs` | everything else |
//! | `answers.rs` | what is remembered of requests over restarts |
//! | `kept_ranges.rs` | and of the ranges of appends |
//! | `outgoing.rs` | replies to bytes |
//! | `buffer.rs` | memory for data |
//! | `account.rs` | what a user has of it, and of open files |
//! | `status.rs` | how a server is, for people and programs |

mod account;
mod answers;
mod appends;
mod buffer;
mod connection;
mod ends;
mod entrance;
mod export;
mod handshake;
mod incoming;
mod kept_ranges;
mod locks;
mod operations;
mod outgoing;
mod owned_request;
mod passed_locks;
mod rights;
mod session;
mod status;
mod threads;
mod transfers;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use iogate_core::Time;
use iogate_core::wire::PAYLOAD_BYTES_MAX;
use iogate_engine::privileges::limit_thread_or_warn;
use iogate_engine::{Engine, Workers, lock};

pub use export::{Export, Limits};
pub use iogate_vfs::answers::{Answers, Keeping};
pub use status::{ConnectionStatus, DeviceUse, ExportStatus, GateStatus, SizeCount, Status, TcpStatus};

use crate::transport::poll::{FIRST_CONNECTION, Poller, Waker};
use crate::transport::{Endpoint, Listener, Source};
use account::Accounts;
use buffer::Pool;
use connection::{Connection, FromOne};
use export::Served;
use incoming::Starved;
use session::Session;
use threads::Threads;

/// Settings of a [`Server`].
pub struct ServerConfig {
    /// What it offers; at least one, each with a name of its own.
    pub exports: Vec<Export>,
    /// This forwarder's index among `nodes`.
    pub node: u32,
    /// Forwarders that work together.
    pub nodes: u32,
    /// What it may spend.
    pub limits: Limits,
    /// How long a session stays without a connection.
    pub session_grace: Duration,
}

impl ServerConfig {
    /// How long sessions stay where nothing else is said.
    pub const SESSION_GRACE: Duration = Duration::from_secs(60);

    /// Of a server that works with no others, and has the usual limits.
    pub fn alone(exports: Vec<Export>) -> ServerConfig {
        let (limits, session_grace) = (Limits::default(), ServerConfig::SESSION_GRACE);
        ServerConfig { exports, node: 0, nodes: 1, limits, session_grace }
    }
}

/// How long `shutdown` waits for clients to take their last replies.
const LAST_REPLIES: Duration = Duration::from_secs(5);
/// Most threads that read from connections.
const THREADS_MAX: usize = 64;
/// Of these, those that no export holds: they accept connections, and read what a client says first.
const THREADS_FREE: usize = 4;
/// Most threads that carry out everything but reads and writes, and those of them that one session has.
const WORKERS_MAX: usize = 60;
const SESSION_WORKERS_MAX: usize = 16;
/// Most threads for what is answered whatever the exports do, and those of them that one client has.
const CONTROL_WORKERS_MAX: usize = 8;
const CLIENT_CONTROL_WORKERS_MAX: usize = 2;
/// Who shares these.
const GREETINGS: usize = 0;
const CONTROL: usize = 1;
/// Descriptors for everything but connections and files.
const DESCRIPTORS_SPARE: usize = 128;
/// Memory for what clients say first.
const GREETING_BYTES: usize = 16 << 20;

/// A server that runs. Dropping it shuts it down.
pub struct Server {
    shared: Arc<Shared>,
    endpoints: Vec<Endpoint>,
}

/// What the server's threads share.
struct Shared {
    exports: Vec<Arc<Served>>,
    node: u32,
    nodes: u32,
    limits: Limits,
    session_grace: Duration,
    /// Changes with every start.
    instance: u64,
    started: Instant,
    poller: Poller,
    /// Wakes a thread for what is `ready`.
    waker: Waker,
    listeners: Mutex<Vec<Arc<Listener>>>,
    connections: Mutex<HashMap<u64, Arc<Connection>>>,
    next_token: AtomicU64,
    per_client: Mutex<HashMap<Source, FromOne>>,
    sessions: Mutex<HashMap<[u8; 16], Arc<Session>>>,
    pool: Arc<Pool>,
    /// For the exports' requests; each is a group.
    workers: Arc<Workers>,
    /// For greetings, and for what is asked of the server itself.
    control: Arc<Workers>,
    threads: Threads,
    /// Connections to go on with, of which the kernel has nothing new to tell.
    ready: Mutex<VecDeque<Arc<Connection>>>,
    /// How many connections wait for a thread that may enter their export.
    kept_out: AtomicUsize,
    /// Connections that wait for memory, by account.
    starved: Mutex<BTreeMap<(usize, u32), Starved>>,
    accounts: Mutex<Accounts>,
    /// Files that sessions have open.
    open_files: AtomicUsize,
    /// Memory for what comes before it is known who the client is.
    greetings: Arc<Pool>,
    /// Requests that have been taken in and are not answered.
    underway: AtomicUsize,
    /// Nothing new is taken in.
    closing: AtomicBool,
    /// The last request underway has been answered.
    idle: (Mutex<()>, Condvar),
}

impl Server {
    /// Starts to serve what comes in through the listeners. Fails if there is no export, two have the same name, the limits
    /// contradict each other, or the system refuses what a server needs.
    pub fn start(mut config: ServerConfig, listeners: Vec<Listener>) -> io::Result<Server> {
        check(&config)?;
        fit_descriptors(&mut config.limits);
        let endpoints = listeners.iter().map(|listener| listener.endpoint().clone()).collect();
        let mut instance = [0; 8];
        crate::system::random(&mut instance)?;
        let (poller, waker) = (Poller::new()?, Waker::new()?);
        for export in config.exports.iter().filter(|export| !export.read_only) {
            if let Some(answers) = &export.answers {
                answers::settle(answers, &*export.tree, &export.users)?;
            }
        }
        config.exports.iter().for_each(|export| export.tree.use_engine(&export.engine));
        let exports = config.exports.len();
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let feed = shared.clone();
            let room = move || {
                if let Some(shared) = feed.upgrade() {
                    shared.feed();
                }
            };
            let greeting_room = room.clone();
            Shared {
                exports: config.exports.into_iter().enumerate().map(Served::new).collect(),
                node: config.node,
                nodes: config.nodes,
                pool: Pool::new(config.limits.memory_bytes, room),
                limits: config.limits,
                session_grace: config.session_grace,
                instance: u64::from_le_bytes(instance),
                started: Instant::now(),
                poller,
                waker,
                listeners: Mutex::new(listeners.into_iter().map(Arc::new).collect()),
                connections: Mutex::default(),
                next_token: AtomicU64::new(FIRST_CONNECTION),
                per_client: Mutex::default(),
                sessions: Mutex::default(),
                workers: Workers::shared(
                    "iogate-net-work",
                    exports,
                    WORKERS_MAX,
                    SESSION_WORKERS_MAX,
                    limit_thread_or_warn,
                ),
                control: Workers::shared(
                    "iogate-net-control",
                    2,
                    CONTROL_WORKERS_MAX,
                    CLIENT_CONTROL_WORKERS_MAX,
                    limit_thread_or_warn,
                ),
                threads: Threads::default(),
                ready: Mutex::default(),
                kept_out: AtomicUsize::new(0),
                starved: Mutex::default(),
                accounts: Mutex::default(),
                open_files: AtomicUsize::new(0),
                greetings: Pool::new(GREETING_BYTES, greeting_room),
                underway: AtomicUsize::new(0),
                closing: AtomicBool::new(false),
                idle: Default::default(),
            }
        });
        for export in &shared.exports {
            export.begin(shared.instance, shared.now(), shared.session_grace)?;
        }
        let server = Server { shared, endpoints };
        threads::start(&server.shared)?;
        Ok(server)
    }

    /// Where it listens.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// How it is.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Takes no more, completes and answers what was accepted (for clients that take their replies), closes all connections
    /// and files. The exports' engines go on. May be called again.
    pub fn shutdown(&self) {
        self.shared.shutdown();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.shutdown();
    }
}

/// Keeps the limits within the descriptors that the process may have: half for connections, if so many are to be taken, and two
/// for each open file, with some to spare for the rest of the process.
fn fit_descriptors(limits: &mut Limits) {
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let descriptors = descriptors.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX));
    limits.connections = limits.connections.min(descriptors / 2).max(1);
    let rest = descriptors.saturating_sub(limits.connections).saturating_sub(DESCRIPTORS_SPARE);
    limits.open_files = limits.open_files.min(rest / 2).max(1);
}

fn check(config: &ServerConfig) -> io::Result<()> {
    let invalid = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    let limits = &config.limits;
    if config.exports.is_empty() {
        return invalid("a server needs at least one export".into());
    }
    for (index, export) in config.exports.iter().enumerate() {
        if config.exports[..index].iter().any(|other| other.name == export.name) {
            return invalid(format!("two exports have the name `{}`", export.name));
        }
    }
    if !(1..=PAYLOAD_BYTES_MAX).contains(&limits.transfer_bytes_max) {
        return invalid(format!(
            "transfer_bytes_max is {}: expected 1 to {PAYLOAD_BYTES_MAX}",
            limits.transfer_bytes_max
        ));
    }
    if limits.credits == 0 || limits.credit_bytes < limits.transfer_bytes_max.into() {
        return invalid(
            "expected at least one credit, and as many credit_bytes as transfer_bytes_max".into(),
        );
    }
    if limits.memory_bytes < limits.transfer_bytes_max as usize {
        return invalid("expected memory_bytes to be at least transfer_bytes_max".into());
    }
    Ok(())
}

impl Shared {
    /// The time that sessions go by.
    fn now(&self) -> Time {
        Time::from_nanos(u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Has a thread go on with a connection that the kernel has nothing new to tell of.
    fn requeue(&self, connection: Arc<Connection>) {
        lock(&self.ready).push_back(connection);
        self.waker.wake();
    }

    /// Most bytes of payload that are taken in: all in memory before they are written. At least those of a transfer.
    fn write_bytes_max(&self) -> u32 {
        let Limits { credit_bytes, memory_bytes, .. } = self.limits;
        credit_bytes.min(memory_bytes as u64).min(PAYLOAD_BYTES_MAX.into()) as u32
    }

    /// Most bytes of a record that is appended as one.
    fn append_bytes_max(&self, export: &Served) -> u32 {
        self.write_bytes_max().min(export.tree.append_bytes_max())
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Notes that a request has been taken in.
    fn begun(&self) {
        self.underway.fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that a request has been answered.
    fn ended(&self) {
        if self.underway.fetch_sub(1, Ordering::SeqCst) == 1 && self.is_closing() {
            let _idle = lock(&self.idle.0);
            self.idle.1.notify_all();
        }
    }

    /// Drops a connection from the tables.
    fn forget(&self, connection: &Arc<Connection>) {
        let mut connections = lock(&self.connections);
        let mut per_client = lock(&self.per_client);
        if connections.remove(&connection.token).is_some()
            && let Some(from_one) = per_client.get_mut(&connection.source)
        {
            from_one.connections -= 1;
            if from_one.connections == 0 {
                per_client.remove(&connection.source);
            }
        }
    }

    /// Ends a session. A worker closes its files: that may take long.
    fn end(&self, session: &Arc<Session>) {
        lock(&self.sessions).remove(&session.token);
        session.end_soon();
    }

    /// Ends a session, and closes its files here.
    fn end_here(&self, session: &Session) {
        lock(&self.sessions).remove(&session.token);
        session.end_here();
    }

    fn shutdown(&self) {
        self.closing.store(true, Ordering::SeqCst);
        for listener in lock(&self.listeners).drain(..) {
            self.poller.remove(listener.fd());
        }
        let connections: Vec<_> = lock(&self.connections).values().cloned().collect();
        for connection in &connections {
            // What is being taken in counts as underway after this.
            drop(lock(&connection.receive));
        }
        // Who waits for the end of a file asks the next server.
        self.exports.iter().for_each(|export| export.ends.close());
        let mut idle = lock(&self.idle.0);
        while self.underway.load(Ordering::SeqCst) > 0 {
            idle = self.idle.1.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
        drop(idle);
        let patience = Instant::now() + LAST_REPLIES;
        while connections.iter().any(|connection| connection.has_replies()) && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        connections.iter().for_each(Connection::close);
        self.threads.stop(self);
        for connection in
            lock(&self.connections).drain().map(|(_, connection)| connection).collect::<Vec<_>>()
        {
            connection.close();
        }
        lock(&self.ready).clear();
        lock(&self.starved).clear();
        // Clients that hold some come to the next server, and ask for theirs again.
        let now = self.now();
        self.exports.iter().filter_map(|export| Some((export, export.locks.get()?))).for_each(
            |(export, locks)| {
                locks.end(&*export.tree, now);
            },
        );
        let sessions: Vec<_> = lock(&self.sessions).drain().map(|(_, session)| session).collect();
        sessions.iter().for_each(|session| drop(session.end()));
    }
}

/// Carries out what may have a defect, so that only what it was for fails.
fn guarded(work: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(work)).is_err() {
        tracing::error!("a defect in an operation: it fails, and the server goes on");
    }
}

/// An engine's gate in the words of a status that says nothing more.
fn gate_in_short(engine: &Engine) -> (String, usize) {
    engine.with_gate(|gate, _| (gate.config().scheduler.to_string(), gate.len()))
}
