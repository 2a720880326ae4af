//! The client of a coordinator: claims, turns, and what keeps them.
//!
//! | module | purpose |
//! |---|---|
//! | `connection` | one connection: messages go out, answers come in, in the thread that asks |
//! | `claim` | a claim, from its sending to its grant |
//! | `held` | a turn: renewing it, ending it |
//! | `renewing` | the thread that renews |
//! | `fork` | what a process's child does with its parent's connections |
//!
//! What is sent and when, when a connection or a coordinator is given up, and until when a turn counts, is decided in
//! [`iogate_core::coord::claimant`].
//!
//! The thread that wants a turn sends and reads itself. Each claim has a connection of its own, with a session of its
//! own, until its turn is over; connections without a claim wait for the next one. A background thread renews turns,
//! and ends soon after the last of them.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use iogate_net::turns::{Coordinator, CoordinatorOptions, Limits, Wanted};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let coordinator = Coordinator::new(vec!["io1:7100".parse()?], CoordinatorOptions::default());
//! let wanted = Wanted { place: "nfs:io1:/scratch".into(), ..Wanted::default() };
//! let turn = coordinator.claim(&wanted, &Limits::patience(Duration::from_secs(30)))?;
//! // The bulk output.
//! turn.release(0)?;
//! # Ok(())
//! # }
//! ```

mod claim;
mod connection;
mod fork;
mod held;
mod renewing;

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use iogate_core::coord::EXPORT;
use iogate_core::coord::claimant::{NoAnswer, Renewals, Reply};
use iogate_core::wire::{Evict, NO_SESSION, Request, Status};
use iogate_engine::lock;

use crate::Endpoint;
use crate::system::since_boot;
use crate::transport::auth::Credential;
use crate::transport::{ConnectError, Connected, Dial, Introduction, Way, connect, dial};

pub use claim::{Limits, Waiting, Watch};
pub use fork::generation;
pub use held::{Held, Lost};

use connection::Connection;
use held::Kept;

/// Connections that wait for the next claim.
const IDLE_MAX: usize = 8;
/// Most time for an answer that nothing holds up.
const ANSWER_MAX: Duration = Duration::from_secs(10);

/// How coordinators are reached.
#[derive(Clone)]
pub struct CoordinatorOptions {
    /// What people call this client: `node:pid`, or a program's name.
    pub name: String,
    /// How the client proves who it is.
    pub auth: Credential,
    /// How a coordinator is reached: [`dial`], or what [`dial_tls`](crate::transport::dial_tls) gives.
    pub dial: Dial,
    /// Most time for one attempt to connect.
    pub connect_timeout: Duration,
}

impl Default for CoordinatorOptions {
    fn default() -> CoordinatorOptions {
        CoordinatorOptions {
            name: format!("pid {}", std::process::id()),
            auth: Credential::Socket,
            dial: Arc::new(dial),
            connect_timeout: Duration::from_secs(5),
        }
    }
}

/// What a turn is wanted for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The file system, by the name that all its clients call it.
    pub place: String,
    /// Its targets, ascending and each once; none: all of them.
    pub members: Vec<u32>,
    /// Claims of the same party may hold the same targets together; empty: with nobody.
    pub party: String,
    /// What people call the job.
    pub label: String,
    /// Bytes to be moved; 0 is unknown.
    pub bytes: u64,
    /// The share, where the coordinator goes by weights; 0 counts as 1.
    pub weight: u32,
    /// How far the turns lie apart; zero is unknown.
    pub period: Duration,
}

/// Why there is no turn.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// No coordinator for so long.
    #[error("no coordinator can be reached: {tried}; expected `iogate coord serve` to listen there")]
    Unreachable {
        /// Each, and why not.
        tried: String,
    },
    /// None will be, as things are.
    #[error("no coordinator takes this client: {tried}")]
    Unusable {
        /// Each, and why not.
        tried: String,
    },
    /// The coordinator does not take the claim.
    #[error("the coordinator refuses the claim: {text}")]
    Refused {
        /// Its errno.
        errno: i32,
        /// What it says.
        text: String,
    },
    /// This process holds, or waits for, one of the targets already, and belongs to no party.
    #[error(
        "this process has claimed {place} already: end that turn first, or give the process the name of its job"
    )]
    Again {
        /// The place.
        place: String,
    },
    /// It is not its turn in time.
    #[error("no turn within {}", shown(*.waited))]
    TimedOut {
        /// How long it has waited.
        waited: Duration,
    },
    /// Whoever watched did not want to wait on.
    #[error("the wait was interrupted")]
    Interrupted,
}

/// A time for people.
fn shown(time: Duration) -> String {
    iogate_core::Span::from(time).to_string()
}

/// One coordinator, or several of which one leads. Safe to use from any thread, and in children of `fork`: a child has connections of
/// its own.
pub struct Coordinator {
    reach: Arc<Reach>,
    /// Of this process, or of one that it is a child of: then the chain goes on.
    local: Arc<Local>,
}

/// How coordinators are reached.
struct Reach {
    endpoints: Vec<Endpoint>,
    options: CoordinatorOptions,
    /// The one that answered last.
    last: AtomicUsize,
}

/// What belongs to one process.
struct Local {
    generation: u64,
    reach: Arc<Reach>,
    idle: Mutex<Vec<Connection>>,
    /// All claims of the process, waiting and held.
    claimed: Mutex<Vec<Arc<Claimed>>>,
    renewals: Mutex<Renewals<Arc<Kept>>>,
    wake: std::sync::Condvar,
    /// The same in a child.
    next: OnceLock<Arc<Local>>,
}

/// A claim, as the process knows it.
#[derive(Debug)]
struct Claimed {
    wanted: Wanted,
    /// Its turn, once it has begun.
    kept: OnceLock<std::sync::Weak<Kept>>,
}

impl Coordinator {
    /// Reaches nobody yet.
    pub fn new(endpoints: Vec<Endpoint>, options: CoordinatorOptions) -> Coordinator {
        let reach = Arc::new(Reach { endpoints, options, last: AtomicUsize::new(0) });
        let local = Arc::new(Local::new(&reach));
        Coordinator { reach, local }
    }

    /// Where they are.
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.reach.endpoints
    }

    /// Waits for a turn, in this thread.
    ///
    /// # Errors
    /// [`ClaimError`]: only `TimedOut` and `Interrupted` come from `limits`.
    pub fn claim(&self, wanted: &Wanted, limits: &Limits) -> Result<Held, ClaimError> {
        self.claim_watched(wanted, limits, &mut |_| std::ops::ControlFlow::Continue(()))
    }

    /// As [`Coordinator::claim`]; `watch` is called about once a second while there is nothing to do but to wait, and
    /// after each signal that this thread has handled, and may end the wait.
    ///
    /// # Errors
    /// As [`Coordinator::claim`].
    pub fn claim_watched(
        &self,
        wanted: &Wanted,
        limits: &Limits,
        watch: Watch<'_>,
    ) -> Result<Held, ClaimError> {
        claim::claim(self.local(), wanted, limits, watch)
    }

    /// The coordinator's state, as JSON.
    ///
    /// # Errors
    /// If none can be reached, or it does not answer in 10 seconds.
    pub fn status(&self) -> io::Result<Vec<u8>> {
        Ok(self.ask(&Request::Status(Status {}))?.payload)
    }

    /// Takes a turn away from whoever holds it.
    ///
    /// # Errors
    /// As [`Coordinator::status`]; `PermissionDenied` for others than its user, the coordinator's, and root; `ESTALE` if nobody holds it.
    pub fn evict(&self, token: u64) -> io::Result<()> {
        self.ask(&Request::Evict(Evict { token })).map(drop)
    }

    /// Tells the coordinator that this process ends: its turns are over at once, and not with their leases.
    pub fn end(&self) {
        self.local().end();
    }

    fn ask(&self, request: &Request<'_>) -> io::Result<Reply> {
        let local = self.local();
        let mut connection = local.take_idle();
        let mut asked = connection.call(&local.reach, request, ANSWER_MAX);
        // A session that nobody knows any more has become a new one.
        if matches!(asked, Err((NoAnswer::Forgotten, _))) {
            asked = connection.call(&local.reach, request, ANSWER_MAX);
        }
        let reply = asked
            .map_err(|(why, tried)| match why {
                NoAnswer::Forgotten => io::ErrorKind::ConnectionReset.into(),
                NoAnswer::Unreached => io::Error::other(format!("no coordinator can be reached: {tried}")),
                NoAnswer::Silent => io::Error::other("no coordinator can be reached: no answer in time"),
            })?
            .reply;
        local.put_idle(connection);
        match reply.errno {
            0 => Ok(reply),
            errno => {
                let kind = io::Error::from_raw_os_error(errno).kind();
                Err(match reply.text.is_empty() {
                    true => io::Error::from_raw_os_error(errno),
                    false => io::Error::new(kind, reply.text),
                })
            }
        }
    }

    /// What belongs to this process.
    fn local(&self) -> &Arc<Local> {
        let now = generation();
        let mut local = &self.local;
        while local.generation != now {
            local = local.next.get_or_init(|| Arc::new(Local::new(&self.reach)));
        }
        local
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // The coordinator hears at once that nobody will come back to these sessions.
        self.local().part_idle();
    }
}

impl fmt::Debug for Coordinator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coordinator").field("endpoints", &self.reach.endpoints).finish_non_exhaustive()
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Local").field("generation", &self.generation).finish_non_exhaustive()
    }
}

impl Local {
    fn new(reach: &Arc<Reach>) -> Local {
        Local {
            generation: generation(),
            reach: Arc::clone(reach),
            idle: Mutex::default(),
            claimed: Mutex::default(),
            renewals: Mutex::default(),
            wake: std::sync::Condvar::new(),
            next: OnceLock::new(),
        }
    }

    fn take_idle(&self) -> Connection {
        lock(&self.idle).pop().unwrap_or_default()
    }

    fn part_idle(&self) {
        if let Ok(mut idle) = self.idle.try_lock() {
            idle.drain(..).for_each(|mut connection| connection.part());
        }
    }

    /// Keeps a connection without a claim for the next one.
    fn put_idle(&self, mut connection: Connection) {
        if !connection.is_linked() {
            return;
        }
        let mut idle = lock(&self.idle);
        if idle.len() < IDLE_MAX {
            idle.push(connection);
        } else {
            drop(idle);
            connection.part();
        }
    }
}

/// Why none of the coordinators has been reached.
#[derive(Debug)]
struct Unreached {
    /// Each, and why not.
    tried: String,
    /// Waiting will not help.
    is_final: bool,
}

impl Reach {
    /// Connects to the first coordinator that takes this client, beginning with the one that did last; goes on with the session, or begins
    /// one. Takes at most `within` for each.
    fn connect(&self, session: [u8; 16], within: Duration) -> Result<Connected, Unreached> {
        let first = self.last.load(Ordering::Relaxed);
        let mut unreached = Unreached { tried: String::new(), is_final: true };
        let CoordinatorOptions { name, auth, dial, connect_timeout } = &self.options;
        let way = Way { dial, timeout: within.min(*connect_timeout), auth };
        let reach = |endpoint, session| {
            connect(
                endpoint,
                &way,
                &Introduction { name, export: EXPORT, session, ..Introduction::default() },
            )
        };
        for index in (0..self.endpoints.len()).map(|step| (first + step) % self.endpoints.len()) {
            let endpoint = &self.endpoints[index];
            let mut connected = reach(endpoint, session);
            // A coordinator that does not want to go on with a session may begin one.
            if session != NO_SESSION
                && matches!(&connected, Err(ConnectError::Refused { source, .. })
                    if matches!(source.raw_os_error(), Some(libc::ESTALE | libc::EACCES)))
            {
                connected = reach(endpoint, NO_SESSION);
            }
            match connected {
                Ok(connected) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(connected);
                }
                Err(error) => unreached.add(endpoint, &error),
            }
        }
        Err(unreached)
    }
}

impl Unreached {
    fn add(&mut self, endpoint: &Endpoint, error: &ConnectError) {
        let (text, is_final) = match error {
            ConnectError::Refused { text, source, .. } => {
                let errno = source.raw_os_error().unwrap_or_default();
                (text.clone(), matches!(errno, libc::ENOENT | libc::EACCES | libc::EPROTONOSUPPORT))
            }
            ConnectError::Foreign { source, .. } => {
                (format!("no coordinator of this version: {source}"), true)
            }
            ConnectError::NoProof { source, .. } => (format!("no credential can be made: {source}"), false),
            ConnectError::Unreachable { source, .. } => (source.to_string(), false),
        };
        self.is_final &= is_final;
        let between = if self.tried.is_empty() { "" } else { "; " };
        self.tried.push_str(&format!("{between}{endpoint}: {text}"));
    }
}

/// The clock of claims and leases, in nanoseconds: it never goes back, and goes on while the machine sleeps, as leases do.
fn clock() -> u64 {
    nanoseconds(since_boot())
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The deadline of a wait that begins now, as far as clocks go.
fn deadline_in(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now + Duration::from_secs(1 << 30))
}
