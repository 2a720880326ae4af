//! Where a server accepts connections: a [`Bound`] socket, and a [`Listener`] that knows who may come in.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::Endpoint;
use super::auth::{Access, Policy};
use super::socket::{Peer, PlainSocket, Socket};
use super::source::Source;
use std::sync::Arc;

/// Connections that wait to be accepted, at most, as in the standard library.
const BACKLOG: i32 = 4096;
/// Connections that are accepted in a row.
const ACCEPTS_MAX: usize = 256;

/// A bound TCP or Unix socket that listens, in non-blocking mode. Dropped, it takes the file of a Unix socket away, if that is its own.
#[derive(Debug)]
pub struct Bound {
    socket: Listening,
    endpoint: Endpoint,
}

#[derive(Debug)]
enum Listening {
    Tcp(TcpListener),
    /// With the file's device and number, to remove no other one.
    Unix(UnixListener, PathBuf, (u64, u64)),
}

impl Bound {
    /// Begins to listen. The file of a Unix socket whose server is gone is replaced; with a live one, it fails with
    /// [`io::ErrorKind::AddrInUse`]. `mode` are the permissions of such a file. `suits` may refuse the addresses that a host name
    /// means; a Unix socket has none. Errors name the endpoint.
    pub fn bind(
        endpoint: &Endpoint,
        mode: u32,
        suits: impl Fn(&[SocketAddr]) -> io::Result<()>,
    ) -> io::Result<Bound> {
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot listen at {endpoint}: {error}"));
        let (socket, endpoint) = match endpoint {
            Endpoint::Tcp { host, port } => {
                let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs().map_err(failed)?.collect();
                suits(&addresses)?;
                let socket = TcpListener::bind(&addresses[..]).map_err(failed)?;
                socket.set_nonblocking(true)?;
                let port = socket.local_addr()?.port();
                (Listening::Tcp(socket), Endpoint::Tcp { host: host.clone(), port })
            }
            Endpoint::Unix(path) => {
                suits(&[])?;
                let socket = bind_unix(path, mode).map_err(failed)?;
                socket.set_nonblocking(true)?;
                let file = path.symlink_metadata()?;
                // This process may go to another folder.
                let path = std::path::absolute(path)?;
                (Listening::Unix(socket, path, (file.dev(), file.ino())), endpoint.clone())
            }
        };
        Ok(Bound { socket, endpoint })
    }

    /// Where it listens, as it was given; the port is the one that was free.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// The address on TCP.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Listening::Tcp(socket) => socket.local_addr().ok(),
            Listening::Unix(..) => None,
        }
    }

    /// What to poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Listening::Tcp(socket) => socket.as_fd(),
            Listening::Unix(socket, ..) => socket.as_fd(),
        }
    }

    /// Takes the next connection, and where it is from if that is another host's address. Fails with
    /// [`io::ErrorKind::WouldBlock`] if there is none.
    pub fn accept(&self) -> io::Result<(OwnedFd, Option<IpAddr>)> {
        Ok(match &self.socket {
            Listening::Tcp(socket) => {
                let (stream, address) = socket.accept()?;
                (stream.into(), Some(address.ip()))
            }
            Listening::Unix(socket, ..) => (socket.accept()?.0.into(), None),
        })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Listening::Unix(_, path, file) = &self.socket
            && path.symlink_metadata().is_ok_and(|found| (found.dev(), found.ino()) == *file)
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A bound socket, and what it asks of those who connect.
#[derive(Debug)]
pub struct Listener {
    socket: Bound,
    pub(crate) access: Arc<Access>,
}

impl Listener {
    /// Begins to listen, as [`Bound::bind`]. A policy that does not suit the endpoint is [`io::ErrorKind::InvalidInput`].
    pub fn bind(endpoint: &Endpoint, access: impl Into<Access>) -> io::Result<Listener> {
        let access = access.into();
        let socket = Bound::bind(endpoint, access.socket_mode(), |addresses| {
            let wrong = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
            access.policy.check_listener(endpoint, addresses).map_err(wrong)
        })?;
        Ok(Listener { socket, access: Arc::new(access) })
    }

    /// Where it listens; the port is the one that was free.
    pub fn endpoint(&self) -> &Endpoint {
        self.socket.endpoint()
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }

    /// Takes the connections that wait, or some of them: the kernel tells again of the others. `false` if this process has no room for more
    /// just now, and nothing would come of trying again at once.
    pub(crate) fn accept_some(&self, mut take: impl FnMut(Box<dyn Socket>, Source)) -> bool {
        for _ in 0..ACCEPTS_MAX {
            match self.accept() {
                Ok((socket, source)) => take(socket, source),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if has_no_room(&error) => {
                    tracing::warn!(%error, "accepting a connection at {}", self.endpoint());
                    return false;
                }
                // That one client could not be taken says nothing of the next one.
                Err(error) => tracing::debug!(%error, "a connection at {} was of no use", self.endpoint()),
            }
        }
        true
    }

    /// Takes the next connection. Fails with [`io::ErrorKind::WouldBlock`] if there is none, and with
    /// [`io::ErrorKind::ConnectionAborted`] if that one is of no use: the next one may be.
    fn accept(&self) -> io::Result<(Box<dyn Socket>, Source)> {
        let (fd, host) = self.socket.accept()?;
        let useless = |error: io::Error| io::Error::new(io::ErrorKind::ConnectionAborted, error);
        let socket = PlainSocket::new(fd).map_err(useless)?;
        let source = match (host, socket.peer()) {
            (Some(host), _) => Source::host(host),
            (None, Peer::Process { uid, .. }) => Source::User(uid),
            _ => Source::Unknown,
        };
        let socket: Box<dyn Socket> = match &self.access.policy {
            Policy::Tls { server, .. } => {
                Box::new(server.accept(socket).map_err(|error| useless(io::Error::other(error)))?)
            }
            _ => Box::new(socket),
        };
        Ok((socket, source))
    }
}

/// Whether nothing can be accepted for now.
fn has_no_room(error: &io::Error) -> bool {
    let errno = error.raw_os_error().unwrap_or_default();
    [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::EBADF, libc::EINVAL].contains(&errno)
}

/// A Unix socket at a path, with these permissions whatever the umask is.
fn bind_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    match bind_new_unix(path, mode) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
        bound => return bound,
    }
    if !path.symlink_metadata()?.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file of this name that is not a socket",
        ));
    }
    let in_use = |text: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, text));
    match try_connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            return in_use("a server listens there, and takes no connections just now: stop it first");
        }
        Err(error) => return Err(error),
        Ok(_) => return in_use("a server listens there: stop it first"),
    }
    std::fs::remove_file(path)?;
    bind_new_unix(path, mode)
}

fn bind_new_unix(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let kind = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, kind, None)?;
    // Bound with no more than these permissions from the first moment on; the umask may take some of them.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(mode))?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    // By a handle on the socket's file: nobody can put another file in its place meanwhile.
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != rustix::fs::FileType::Socket
    {
        return Err(io::Error::other("another file has taken the socket's place"));
    }
    let by_handle = format!("/proc/self/fd/{}", file.as_raw_fd());
    rustix::fs::chmod(by_handle, Mode::from_raw_mode(mode))?;
    Ok(socket.into())
}

/// Connects, unless that would have to wait for the server to take connections.
pub(super) fn try_connect(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_of_a_socket_follow_from_who_may_come_in() {
        let dir = tempfile::tempdir().unwrap();
        let nobody_asked = Policy::None { user: iogate_vfs::Caller::NOBODY, on_any_network: false };
        let given = Access { socket_mode: Some(0o660), ..Policy::Peer.into() };
        for (name, access, mode) in [
            ("peer", Policy::Peer.into(), 0o666),
            ("none", nobody_asked.into(), 0o600),
            ("given", given, 0o660),
        ] {
            let path = dir.path().join(name);
            let _listener = Listener::bind(&Endpoint::Unix(path.clone()), access).unwrap();
            assert_eq!(path.metadata().unwrap().mode() & 0o7777, mode, "{name}");
        }
    }

    #[test]
    fn a_server_whose_queue_is_full_is_a_live_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let owner = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&owner, 1).unwrap();
        let mut waiting = Vec::new();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Nobody accepts: the kernel takes so many, and then no more.
            let full = loop {
                match try_connect(&path) {
                    Ok(socket) => waiting.push(socket),
                    Err(error) => break error,
                }
            };
            let _ = tell.send((full, Listener::bind(&Endpoint::Unix(path), Policy::Peer).unwrap_err()));
        });
        let (full, error) = told.recv_timeout(std::time::Duration::from_secs(30)).expect("it hangs");
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("takes no connections just now: stop it first"), "{error}");
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let endpoint = Endpoint::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "nobody has removed it");
        let listener = Listener::bind(&endpoint, Policy::Peer).unwrap();
        let error = Listener::bind(&endpoint, Policy::Peer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("a server listens there"), "{error}");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "data").unwrap();
        let error = Listener::bind(&endpoint, Policy::Peer).unwrap_err();
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"data");
    }
}
