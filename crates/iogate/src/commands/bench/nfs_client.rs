//! A process as a client of NFS: a connection for each request that it has underway.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use iogate_nfs::client::{ClientError, Connection};
use iogate_nfs::wire::FileHandle;

/// What has been mounted.
#[derive(Debug)]
pub(super) struct NfsClient {
    from: Ipv4Addr,
    server: SocketAddr,
    root: FileHandle,
    /// Connections that no thread uses.
    free: Mutex<Vec<Connection>>,
}

impl NfsClient {
    pub(super) fn mount(from: Ipv4Addr, server: SocketAddr) -> Result<NfsClient> {
        let mounted = connect(from, server).map_err(ClientError::from).and_then(|mut connection| {
            let root = connection.mount(b"/")?;
            Ok((connection, root))
        });
        let (connection, root) = mounted.with_context(|| format!("the export of {server}, by NFS"))?;
        Ok(NfsClient { from, server, root, free: Mutex::new(vec![connection]) })
    }

    pub(super) fn look_up(&self, name: &str) -> Result<FileHandle> {
        let found = self.with(|connection| connection.look_up(self.root, name.as_bytes()));
        found.with_context(|| format!("{name} at {}", self.server))
    }

    pub(super) fn read_at(&self, file: FileHandle, offset: u64, memory: &mut [u8]) -> io::Result<usize> {
        self.with(|connection| connection.read(file, offset, memory))
    }

    pub(super) fn write_at(&self, file: FileHandle, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        self.with(|connection| connection.write(file, offset, bytes))
    }

    /// Does something over a connection that nobody else uses meanwhile. One that has failed is not used again.
    fn with<T>(&self, act: impl FnOnce(&mut Connection) -> Result<T, ClientError>) -> io::Result<T> {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = free().pop();
        let mut connection = idle.map_or_else(|| connect(self.from, self.server), Ok)?;
        let done = act(&mut connection)?;
        free().push(connection);
        Ok(done)
    }
}

/// As this process's own user.
fn connect(from: Ipv4Addr, server: SocketAddr) -> io::Result<Connection> {
    let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Connection::open(from, [0], server, user)
}
