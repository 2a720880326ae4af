//! The tree behind the prefix: which one, and when it is reached.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::{AppId, ClientId, Time};
use iogate_engine::store::{Backend, DirectoryOptions, DirectoryStore};
use iogate_engine::{Origin, Store};
use iogate_net::tree::DirectoryTree;
use iogate_net::{Caller, Tree};
use rustix::io::Errno;

use crate::failed::Result;
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
    let dir = settings.forwarders.strip_prefix("dir:").ok_or(Errno::CONNREFUSED)?;
    let options = DirectoryOptions { backend: Backend::Calls, ..DirectoryOptions::default() };
    let store: Arc<dyn Store> = Arc::new(DirectoryStore::with(Path::new(dir), options)?);
    let tree: Arc<dyn Tree> = Arc::new(DirectoryTree::new(Path::new(dir), Arc::clone(&store))?);
    Ok(Link { tree, store })
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
