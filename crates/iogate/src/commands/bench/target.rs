//! What a worker's requests go to: files behind mounts, on servers, or on servers of NFS.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use iogate_core::wire::open;
use iogate_net::client::{ClientOptions, Receiving, Remote, RemoteFile, RemoteOptions};
use iogate_nfs::wire::FileHandle;

use super::nfs_client::NfsClient;
use super::script::Place;

/// A place that is reached.
pub(super) enum Entrance {
    Folder(PathBuf),
    /// A session of this process.
    Server(Remote, String),
    /// A client of this process.
    Nfs(Arc<NfsClient>),
}

/// An open file.
#[derive(Debug)]
pub(super) enum Target {
    Mounted(File),
    Remote(RemoteFile),
    Exported(Arc<NfsClient>, FileHandle),
}

impl Entrance {
    pub(super) fn new(place: &Place) -> Result<Entrance> {
        match place {
            Place::Folder(folder) => Ok(Entrance::Folder(folder.clone())),
            Place::Server { endpoint, export } => {
                let remote = connect(endpoint, export)?;
                Ok(Entrance::Server(remote, endpoint.clone()))
            }
            Place::Nfs { server, from } => Ok(Entrance::Nfs(Arc::new(NfsClient::mount(*from, *server)?))),
        }
    }

    pub(super) fn open(&self, name: &str, writes: bool) -> Result<Target> {
        match self {
            Entrance::Folder(folder) => {
                let path = folder.join(name);
                let opened = File::options().read(true).write(writes).open(&path);
                opened.map(Target::Mounted).with_context(|| path.display().to_string())
            }
            Entrance::Server(remote, endpoint) => {
                let flags = if writes { open::READ | open::WRITE } else { open::READ };
                let opened = remote.open_with(Path::new(name), flags, 0);
                opened.map(Target::Remote).with_context(|| format!("{name} at {endpoint}"))
            }
            Entrance::Nfs(client) => Ok(Target::Exported(Arc::clone(client), client.look_up(name)?)),
        }
    }
}

/// A session without a thread of its own: whoever waits for an answer receives it.
pub(super) fn connect(endpoint: &str, export: &str) -> Result<Remote> {
    let client =
        ClientOptions { export: export.into(), receiving: Receiving::Inline, ..ClientOptions::default() };
    let options = RemoteOptions { client, ..RemoteOptions::default() };
    Ok(Remote::connect(&[endpoint.parse()?], &options)?)
}

impl Target {
    /// Reads all of the memory.
    pub(super) fn read_at(&self, offset: u64, memory: &mut [u8]) -> io::Result<()> {
        match self {
            Target::Mounted(file) => file.read_exact_at(memory, offset),
            Target::Remote(file) => whole(memory.len(), io::ErrorKind::UnexpectedEof, |done| {
                file.read_at(offset + done as u64, &mut memory[done..])
            }),
            Target::Exported(client, file) => whole(memory.len(), io::ErrorKind::UnexpectedEof, |done| {
                client.read_at(*file, offset + done as u64, &mut memory[done..])
            }),
        }
    }

    /// Writes all bytes.
    pub(super) fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Target::Mounted(file) => file.write_all_at(bytes, offset),
            Target::Remote(file) => whole(bytes.len(), io::ErrorKind::WriteZero, |done| {
                file.write_at(offset + done as u64, &bytes[done..])
            }),
            Target::Exported(client, file) => whole(bytes.len(), io::ErrorKind::WriteZero, |done| {
                client.write_at(*file, offset + done as u64, &bytes[done..])
            }),
        }
    }
}

/// Goes on until all bytes are done.
fn whole(
    bytes: usize,
    ended: io::ErrorKind,
    mut part: impl FnMut(usize) -> io::Result<usize>,
) -> io::Result<()> {
    let mut done = 0;
    while done < bytes {
        match part(done)? {
            0 => return Err(ended.into()),
            more => done += more,
        }
    }
    Ok(())
}
