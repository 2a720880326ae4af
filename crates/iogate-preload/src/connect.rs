//! The tree behind the prefix: which one, and when it is reached.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use iogate_core::{AppId, ClientId, Time};
use iogate_engine::{Origin, Store};
use iogate_net::auth::Credential;
use iogate_net::client::{ClientError, ClientOptions, Receiving, Remote, RemoteOptions, Spread};
use iogate_net::socket::{PlainSocket, Socket};
use iogate_net::{Caller, Endpoint, Tree};
use rustix::io::Errno;

use crate::failed::Result;
use crate::kept::keep;
use crate::settings;
use crate::table;

/// A tree, and what carries its data.
#[derive(Clone)]
pub(crate) struct Link {
    pub(crate) tree: Arc<dyn Tree>,
    pub(crate) store: Arc<dyn Store>,
}

/// The process's link, made when it is first needed. A child of `fork` gets an empty one.
#[derive(Default)]
pub(crate) struct Connection(Mutex<Option<Link>>);

impl Connection {
    /// Takes the link out, unless somebody is using it just now.
    pub(crate) fn take(&self) -> Option<Link> {
        self.0.try_lock().ok()?.take()
    }
}

/// The link to the tree. Fails, as a program can understand it, if no forwarder can be reached.
pub(crate) fn link() -> Result<Link> {
    let connection = table::connection();
    let mut link = connection.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(link) = &*link {
        return Ok(link.clone());
    }
    let made = connect()?;
    *link = Some(made.clone());
    Ok(made)
}

fn connect() -> Result<Link> {
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
    let on_socket = endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Unix(_)));
    let client = ClientOptions {
        name: format!("{} pid {}", program(), std::process::id()),
        export: settings.export.clone(),
        auth: if on_socket { Credential::Socket } else { Credential::None },
        dial: Arc::new(dial),
        receiving: Receiving::Inline,
        keep,
        ..ClientOptions::default()
    };
    let options = RemoteOptions { client, spread, server: None, app: Some(AppId(settings.app)) };
    let remote = Remote::connect(&endpoints, &options).map_err(|error| {
        tracing::error!("{error}");
        errno_of(&error)
    })?;
    Ok(Link { store: remote.store(), tree: Arc::new(remote) })
}

/// What a program can understand of why there is no session.
fn errno_of(error: &ClientError) -> Errno {
    match error {
        ClientError::Unreachable { source, .. }
        | ClientError::Refused { source, .. }
        | ClientError::System(source) => Errno::from_io_error(source).unwrap_or(Errno::IO),
        _ => Errno::IO,
    }
}

/// The program's name, for the server's people.
fn program() -> String {
    std::fs::read_to_string("/proc/self/comm").map_or_else(|_| String::new(), |name| name.trim().to_owned())
}

/// Reaches a forwarder by a socket that is not in the program's way.
fn dial(endpoint: &Endpoint, timeout: Duration) -> io::Result<Box<dyn Socket>> {
    let fd: OwnedFd = match endpoint {
        Endpoint::Unix(path) => UnixStream::connect(path)?.into(),
        Endpoint::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            let mut connected = None;
            for address in (host.as_str(), *port).to_socket_addrs()? {
                match TcpStream::connect_timeout(&address, timeout) {
                    Ok(stream) => {
                        connected = Some(stream);
                        break;
                    }
                    Err(error) => last = error,
                }
            }
            connected.ok_or(last)?.into()
        }
    };
    Ok(Box::new(PlainSocket::new(keep(fd)?)?))
}

/// In whose name this process acts now.
pub(crate) fn caller() -> Caller {
    Caller { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
}

/// Who sends a request, for the schedulers.
pub(crate) fn origin() -> Origin {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Origin {
        app: AppId(settings::get().map_or(0, |settings| settings.app)),
        client: ClientId(std::process::id()),
        issued: Some(Time::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)),
    }
}
