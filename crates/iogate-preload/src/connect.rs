//! The tree behind the prefix: which one, and when it is reached.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iogate_core::wire::Identity;
use iogate_core::{ClientId, Time};
use iogate_engine::{Origin, Store};
use iogate_net::Endpoint;
use iogate_net::client::{ClientError, ClientOptions, Receiving, Remote, RemoteOptions, Spread};
use iogate_net::transport::auth::{Credential, Munge};
use iogate_net::transport::{ConnectError, TlsClient, dial_tls, keep_descriptors_by};
use iogate_vfs::app::own_burst;
use iogate_vfs::{Caller, Groups, Tree};
use rustix::io::Errno;

use crate::app::application;
use crate::failed::{self, Failed, Result};
use crate::own_descriptors::keep;
use crate::settings::{self, Tls};
use crate::table;

/// A tree, and what carries its data.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) tree: Arc<dyn Tree>,
    pub(crate) store: Arc<dyn Store>,
}

/// The process's link, made when it is first needed. A child of `fork` gets an empty one.
#[derive(Default)]
pub(crate) struct Connection {
    state: Mutex<State>,
    /// The files of which locks of bytes were asked for: inode and generation.
    locked: Mutex<HashSet<(u64, u64)>>,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// When it could not be made, and why.
    failed: Option<(Instant, Errno)>,
}

/// For how long a failure to connect answers for the next attempts: a program may make many calls, each of which would wait.
const FAILED_FOR: Duration = Duration::from_secs(1);

impl Connection {
    /// Takes the link out, unless somebody is using it just now.
    pub(crate) fn take(&self) -> Option<Link> {
        self.state.try_lock().ok()?.link.take()
    }

    /// Locks of bytes of a file are asked for.
    pub(crate) fn note_lock(&self, file: Identity) {
        self.locked().insert(key(file));
    }

    /// They are given back. Returns whether there may have been some.
    pub(crate) fn forget_lock(&self, file: Identity) -> bool {
        self.locked().remove(&key(file))
    }

    /// All of them end: says of which files there may have been some.
    pub(crate) fn take_locks(&self) -> impl Fn(Identity) -> bool {
        let locked = std::mem::take(&mut *self.locked());
        move |file| locked.contains(&key(file))
    }

    fn locked(&self) -> MutexGuard<'_, HashSet<(u64, u64)>> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(file: Identity) -> (u64, u64) {
    (file.inode, file.generation)
}

/// The link to the tree. Fails, as a program can understand it, if no forwarder can be reached.
pub(crate) fn link() -> Result<Link> {
    let connection = table::connection();
    let mut state = connection.state.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(link) = &state.link {
        return Ok(link.clone());
    }
    match state.failed {
        Some((when, errno)) if when.elapsed() < FAILED_FOR => return Err(errno.into()),
        _ => {}
    }
    match connect_patiently() {
        Ok(link) => {
            state.link = Some(link.clone());
            state.failed = None;
            Ok(link)
        }
        Err(failed) => {
            state.failed = Some((Instant::now(), failed::errno_of(&failed)));
            Err(failed)
        }
    }
}

/// Whether a forwarder has been there for this process, its parent, or the program before it.
static HAS_BEEN_THERE: AtomicBool = AtomicBool::new(false);
/// For how long a forwarder that has been there is waited for, as for one whose connection is lost.
const PATIENCE: Duration = Duration::from_secs(60);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// Notes that a forwarder has been there: the process has come by a file of one.
pub(crate) fn has_been_there() {
    HAS_BEEN_THERE.store(true, Ordering::Relaxed);
}

/// Connects. A child, and a program started with open files, only waits for a forwarder that is being started again, as its
/// parent does; a program that has met none gets an error at once.
fn connect_patiently() -> Result<Link> {
    let begin = Instant::now();
    let mut connected = connect(true);
    while HAS_BEEN_THERE.load(Ordering::Relaxed)
        && begin.elapsed() < PATIENCE
        && connected.as_ref().is_err_and(is_away)
    {
        std::thread::sleep(BETWEEN_ATTEMPTS);
        connected = connect(false);
    }
    if connected.is_ok() {
        has_been_there();
    }
    connected
}

fn is_away(failed: &Failed) -> bool {
    let errno = failed::errno_of(failed);
    matches!(
        errno,
        Errno::CONNREFUSED | Errno::CONNRESET | Errno::NOENT | Errno::PIPE | Errno::TIMEDOUT | Errno::AGAIN
    )
}

fn connect(is_first: bool) -> Result<Link> {
    let settings = settings::get().ok_or(Errno::IO)?;
    let endpoints = settings.forwarders.split(',').map(|text| text.trim().parse());
    let endpoints: Vec<Endpoint> = endpoints.collect::<std::result::Result<_, _>>().map_err(|error| {
        tracing::error!("IOGATE_FORWARDERS: {error}");
        Errno::INVAL
    })?;
    let spread = match &settings.spread[..] {
        "" | "client" => Spread::Client,
        "process" => Spread::Process,
        "file" => Spread::File,
        "target" => Spread::Target,
        found => {
            tracing::error!("IOGATE_SPREAD: expected client, process, file or target; found `{found}`");
            return Err(Errno::INVAL.into());
        }
    };
    let mut client = ClientOptions {
        name: format!("{} pid {}", program(), std::process::id()),
        export: settings.export.clone(),
        auth: credential(&endpoints)?,
        receiving: Receiving::Inline,
        ends: true,
        ..ClientOptions::default()
    };
    if let Some(Tls { authorities, certificate, key, server_name }) = &settings.tls {
        let tls = TlsClient::load(authorities, certificate, key).map_err(|error| {
            tracing::error!("IOGATE_TLS_AUTHORITIES, IOGATE_TLS_CERTIFICATE, IOGATE_TLS_KEY: {error}");
            Errno::INVAL
        })?;
        client.dial = dial_tls(tls, server_name.clone());
    }
    keep_descriptors_by(keep);
    let options = RemoteOptions { client, spread, ..RemoteOptions::default() };
    let remote = Remote::connect(&endpoints, &options).map_err(|error| {
        if is_first {
            tracing::error!("{error}");
        }
        errno_of(&error)
    })?;
    Ok(Link { store: remote.store(), tree: Arc::new(remote) })
}

/// How the forwarders are to know who this is.
fn credential(endpoints: &[Endpoint]) -> Result<Credential> {
    let settings = settings::get().ok_or(Errno::IO)?;
    let known =
        settings.tls.is_some() || endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Unix(_)));
    match &settings.auth[..] {
        "" if known => Ok(Credential::Socket),
        "" | "none" => Ok(Credential::None),
        "socket" => Ok(Credential::Socket),
        "munge" => Ok(Credential::Munge(Munge::new(None))),
        found => {
            tracing::error!("IOGATE_AUTH: expected none, socket or munge; found `{found}`");
            Err(Errno::INVAL.into())
        }
    }
}

/// What a program can understand of why there is no session.
fn errno_of(error: &ClientError) -> Errno {
    match error {
        ClientError::Connect(
            ConnectError::Unreachable { source, .. } | ConnectError::Refused { source, .. },
        )
        | ClientError::System(source) => Errno::from_io_error(source).unwrap_or(Errno::IO),
        _ => Errno::IO,
    }
}

/// The program's name, for the server's people.
fn program() -> String {
    std::fs::read_to_string("/proc/self/comm").map_or_else(|_| String::new(), |name| name.trim().to_owned())
}

/// In whose name this process acts now.
pub(crate) fn caller() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let groups = match rustix::process::getgroups() {
        Ok(groups) => Groups::of(groups.into_iter().map(|group| group.as_raw())),
        Err(_) => Groups::UNKNOWN,
    };
    Caller { groups, ..Caller::new(uid, gid) }
}

/// Who sends a request, for the schedulers.
pub(crate) fn origin() -> Origin {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Origin {
        app: application(),
        client: ClientId(std::process::id()),
        issued: Some(Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)),
        burst: own_burst(),
    }
}
