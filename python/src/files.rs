//! Files of servers, for the file system `iogate://`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use iogate_core::AppId;
use iogate_core::wire::{Attr, Change, Identity, Timestamp, open, set};
use iogate_net::Endpoint;
use iogate_net::client::{ClientOptions, Remote, RemoteFile, RemoteOptions};
use iogate_net::transport::auth::{Credential, Munge};
use iogate_net::transport::{TlsClient, dial_tls};
use iogate_vfs::{Caller, Groups, Tree, TreeFile};
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

/// Type and permissions, size, owner, group, links, and the times of the last access, change and change of attributes, in seconds.
type Attributes = (u32, u64, u32, u32, u32, u64, f64, f64, f64);

/// PEM files: authorities, certificate and key; and the server's name, if it is not the host's.
type Tls = (PathBuf, PathBuf, PathBuf, Option<String>);

/// What belongs to the process that made it. A child of `fork` has none of the threads behind it, and leaves it as it is.
struct OfProcess<T: Send> {
    process: u32,
    kept: Option<T>,
}

impl<T: Send> OfProcess<T> {
    fn new(kept: T) -> OfProcess<T> {
        OfProcess { process: std::process::id(), kept: Some(kept) }
    }

    fn get(&self) -> io::Result<&T> {
        match &self.kept {
            Some(kept) if self.process == std::process::id() => Ok(kept),
            _ => Err(Errno::STALE.into()),
        }
    }

    fn take(&mut self) -> Option<T> {
        match self.kept.take() {
            Some(kept) if self.process == std::process::id() => Some(kept),
            other => {
                std::mem::forget(other);
                None
            }
        }
    }
}

impl<T: Send> Drop for OfProcess<T> {
    fn drop(&mut self) {
        // To say goodbye takes a server's answer.
        if let Some(kept) = self.take() {
            Python::try_attach(|py| py.detach(|| drop(kept)));
        }
    }
}

/// A session with a server.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct Connection {
    remote: OfProcess<Arc<Remote>>,
}

/// An open file.
#[pyclass(frozen, module = "iogate._native")]
pub(crate) struct File {
    /// `None` once it is closed.
    file: Mutex<OfProcess<Arc<RemoteFile>>>,
    path: PathBuf,
}

fn failed(error: &io::Error, path: &Path) -> PyErr {
    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    let text = match error.raw_os_error() {
        // Without the number behind it.
        Some(_) => error.to_string().split(" (os error").next().unwrap_or_default().to_owned(),
        None => error.to_string(),
    };
    // As the file system's users name it.
    let mut named = OsString::from("/");
    named.push(path);
    PyOSError::new_err((errno, text, named))
}

/// The process's user now.
fn caller() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let groups = match rustix::process::getgroups() {
        Ok(groups) => Groups::of(groups.into_iter().map(|group| group.as_raw())),
        Err(_) => Groups::UNKNOWN,
    };
    Caller { groups, ..Caller::new(uid, gid) }
}

fn attributes(attr: &Attr) -> Attributes {
    let seconds = |time: Timestamp| time.seconds as f64 + f64::from(time.nanoseconds) * 1e-9;
    let Attr { mode, size, uid, gid, links, inode, .. } = *attr;
    (mode, size, uid, gid, links, inode, seconds(attr.atime), seconds(attr.mtime), seconds(attr.ctime))
}

#[pymethods]
#[allow(clippy::needless_pass_by_value, reason = "what comes from Python comes by value")]
impl Connection {
    /// Connects to servers of the same files.
    #[new]
    #[pyo3(signature = (servers, *, export, auth, tls, retry_for, app))]
    fn new(
        py: Python<'_>,
        servers: Vec<String>,
        export: String,
        auth: Option<String>,
        tls: Option<Tls>,
        retry_for: f64,
        app: Option<u32>,
    ) -> PyResult<Connection> {
        let endpoints = servers.iter().map(|server| server.parse::<Endpoint>());
        let endpoints = endpoints.collect::<Result<Vec<_>, _>>();
        let endpoints = endpoints.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let is_known =
            tls.is_some() || endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Unix(_)));
        let auth = match auth.as_deref() {
            None if is_known => Credential::Socket,
            None | Some("none") => Credential::None,
            Some("socket") => Credential::Socket,
            Some("munge") => Credential::Munge(Munge::new(None)),
            Some(found) => {
                let text = format!("auth: expected 'none', 'socket' or 'munge', found '{found}'");
                return Err(PyValueError::new_err(text));
            }
        };
        let retry_for = Duration::try_from_secs_f64(retry_for)
            .map_err(|error| PyValueError::new_err(format!("retry_for: {error}")))?;
        let name = format!("python pid {}", std::process::id());
        let mut client = ClientOptions { name, export, auth, retry_for, ..ClientOptions::default() };
        if let Some((authorities, certificate, key, server)) = tls {
            let tls = TlsClient::load(&authorities, &certificate, &key)
                .map_err(|error| PyValueError::new_err(format!("tls: {error}")))?;
            client.dial = dial_tls(tls, server);
        }
        let options = RemoteOptions { client, app: app.map(AppId), ..RemoteOptions::default() };
        let remote = py.detach(|| Remote::connect(&endpoints, &options));
        let remote = remote.map_err(|error| {
            let text = error.to_string();
            let error = io::Error::from(error);
            let source = error.get_ref().and_then(|error| error.downcast_ref::<io::Error>());
            let errno = source.unwrap_or(&error).raw_os_error().unwrap_or(match error.kind() {
                io::ErrorKind::ConnectionRefused => Errno::CONNREFUSED.raw_os_error(),
                io::ErrorKind::PermissionDenied => Errno::ACCESS.raw_os_error(),
                io::ErrorKind::TimedOut => Errno::TIMEDOUT.raw_os_error(),
                _ => Errno::IO.raw_os_error(),
            });
            PyOSError::new_err((errno, text))
        })?;
        Ok(Connection { remote: OfProcess::new(Arc::new(remote)) })
    }

    /// The attributes of what is at a path; of a symbolic link, if it is not to be followed, its own.
    fn attr(&self, py: Python<'_>, path: PathBuf, follow: bool) -> PyResult<Attributes> {
        self.ask(py, &path, |remote| {
            let attr = remote.attr(caller(), &path)?;
            // Who follows a link is the server.
            if follow && attr.mode & kind::MASK == kind::LINK {
                return Ok(attributes(&remote.open_with(&path, open::READ, 0)?.attr()?));
            }
            Ok(attributes(&attr))
        })
    }

    /// The names in a directory with their attributes, those of links not followed.
    fn list(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, Attributes)>> {
        self.ask(py, &path, |remote| {
            let mut found = Vec::new();
            remote.read_dir(caller(), &path, 0, &mut |entry, name| {
                found.push((OsStr::from_bytes(name).to_owned(), attributes(&entry.attr)));
                true
            })?;
            Ok(found)
        })
    }

    /// Makes a directory.
    fn mkdir(&self, py: Python<'_>, path: PathBuf, mode: u32) -> PyResult<()> {
        self.ask(py, &path, |remote| remote.make_node(caller(), &path, kind::DIRECTORY | mode, 0).map(drop))
    }

    /// Removes an empty directory, or the name of something else.
    fn remove(&self, py: Python<'_>, path: PathBuf, directory: bool) -> PyResult<()> {
        self.ask(py, &path, |remote| remote.unlink(caller(), &path, directory).map(drop))
    }

    /// Gives a file or a directory another name; what had that is replaced.
    fn rename(&self, py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<()> {
        self.ask(py, &path, |remote| remote.rename(caller(), &path, &to, 0).map(drop))
    }

    /// Gives a file another name, which nothing may have.
    fn rename_new(&self, py: Python<'_>, path: PathBuf, to: PathBuf) -> PyResult<()> {
        self.ask(py, &to, |remote| {
            let renamed = remote.rename(caller(), &path, &to, RenameFlags::NOREPLACE.bits());
            let errno = renamed.as_ref().err().and_then(io::Error::raw_os_error);
            if errno != Some(Errno::INVAL.raw_os_error()) {
                return renamed.map(drop);
            }
            // File systems of networks have no such rename. A second name does not replace anything either.
            remote.link(caller(), &path, &to)?;
            remote.unlink(caller(), &path, false).map(drop)
        })
    }

    /// Sets the times of the last access and change, in seconds.
    fn set_times(&self, py: Python<'_>, path: PathBuf, atime: f64, mtime: f64) -> PyResult<()> {
        let at = |time: f64| {
            let seconds = time.floor();
            Timestamp { seconds: seconds as i64, nanoseconds: ((time - seconds) * 1e9) as u32 }
        };
        let which = set::ATIME | set::MTIME;
        let change = Change { which, atime: at(atime), mtime: at(mtime), ..Change::default() };
        self.ask(py, &path, |remote| remote.set_attr(caller(), &path, Identity::default(), &change).map(drop))
    }

    /// Opens a file: `r` reads, `r+` reads and writes, `w` begins anew, `x` must not be there, `a` appends.
    fn open(&self, py: Python<'_>, path: PathBuf, how: &str, mode: u32) -> PyResult<File> {
        let flags = match how {
            "r" => open::READ,
            "r+" => open::READ | open::WRITE,
            "w" => open::WRITE | open::CREATE | open::TRUNCATE,
            "x" => open::WRITE | open::CREATE | open::EXCLUSIVE,
            "a" => open::WRITE | open::CREATE | open::APPEND,
            _ => {
                return Err(PyValueError::new_err(format!("mode: expected r, r+, w, x or a, found '{how}'")));
            }
        };
        let file = self.ask(py, &path, |remote| remote.open_with(&path, flags, mode))?;
        Ok(File { file: Mutex::new(OfProcess::new(Arc::new(file))), path })
    }
}

impl Connection {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        path: &Path,
        ask: impl FnOnce(&Remote) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| self.remote.get().and_then(|remote| ask(remote))).map_err(|error| failed(&error, path))
    }
}

/// Types of files in `mode`, as in `stat(2)`.
mod kind {
    pub(super) const MASK: u32 = 0o170_000;
    pub(super) const DIRECTORY: u32 = 0o040_000;
    pub(super) const LINK: u32 = 0o120_000;
}

#[pymethods]
impl File {
    /// Reads so many bytes, fewer only at the end of the file.
    fn read<'py>(&self, py: Python<'py>, offset: u64, count: usize) -> PyResult<Bound<'py, PyBytes>> {
        let read = self.ask(py, |file| {
            let mut memory = vec![0; count];
            let mut filled = 0;
            while filled < count {
                match file.read_at(offset + filled as u64, &mut memory[filled..])? {
                    0 => break,
                    read => filled += read,
                }
            }
            memory.truncate(filled);
            Ok(memory)
        })?;
        Ok(PyBytes::new(py, &read))
    }

    /// Writes all of these bytes.
    fn write(&self, py: Python<'_>, offset: u64, data: &[u8]) -> PyResult<()> {
        self.ask(py, |file| {
            let mut written = 0;
            while written < data.len() {
                match file.write_at(offset + written as u64, &data[written..])? {
                    0 => return Err(Errno::IO.into()),
                    bytes => written += bytes,
                }
            }
            Ok(())
        })
    }

    /// Writes at the end of the file, wherever that is then; says how many of the bytes: at most what goes there as one.
    fn append(&self, py: Python<'_>, data: &[u8]) -> PyResult<u32> {
        self.ask(py, |file| match file.append(data)?.bytes {
            0 if !data.is_empty() => Err(Errno::IO.into()),
            bytes => Ok(bytes),
        })
    }

    /// Its attributes.
    fn attr(&self, py: Python<'_>) -> PyResult<Attributes> {
        self.ask(py, |file| file.attr().map(|attr| attributes(&attr)))
    }

    /// Makes what was written durable.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, |file| file.sync(false))
    }

    /// Sets the size.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let change = Change { which: set::SIZE, size, ..Change::default() };
        self.ask(py, |file| file.set_attr(caller(), &change).map(drop))
    }

    /// Closes it; a second time it does nothing. Fails if something that was written is known to be lost.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let taken = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(file) = taken else { return Ok(()) };
        let told = py.detach(|| {
            let told = file.tell_losses();
            drop(file);
            told
        });
        told.map_err(|error| failed(&error, &self.path))
    }
}

impl File {
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&RemoteFile) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).get().map(Arc::clone);
        let done = file.and_then(|file| py.detach(|| ask(&file)));
        done.map_err(|error| failed(&error, &self.path))
    }
}
