//! `--metrics ADDRESS`: what monitoring is told of a mount or a server, over HTTP, by one thread.

mod http;

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use iogate_net::Endpoint;
use iogate_net::server::Status;
use iogate_net::transport::EndpointError;
use iogate_report::metrics::{Exposed, Server, text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use http::Answer;

/// Connections at once; where one more comes, the oldest one goes.
const CONNECTIONS_MAX: usize = 8;
/// How long a connection may take altogether.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long nothing is accepted after the system has refused to.
const PAUSE: Duration = Duration::from_millis(100);

/// What monitoring is told of a server.
pub(crate) fn of_server(status: Status) -> Exposed {
    let server = Server {
        up_ms: status.up_ms,
        sessions: status.sessions as u64,
        connections: status.connection_count as u64,
        underway: status.underway as u64,
        memory_bytes: status.memory_bytes as u64,
    };
    Exposed {
        gates: status.exports.into_iter().map(|export| export.gate.summary).collect(),
        server: Some(server),
    }
}

/// Where to listen: HOST:PORT, unix:PATH, or a port of loopback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address(pub(crate) Endpoint);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let endpoint = match text.parse::<u16>() {
            Ok(port) => Ok(Endpoint::Tcp { host: "127.0.0.1".into(), port }),
            Err(_) => text.parse(),
        };
        endpoint.map(Address).map_err(|error: EndpointError| format!("{error}, or a PORT of loopback"))
    }
}

/// Bound, and not serving yet.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    place: String,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(crate) fn bind(address: &Address) -> anyhow::Result<Listener> {
        let bound = match &address.0 {
            Endpoint::Tcp { host, port } => TcpListener::bind((host.as_str(), *port)).and_then(|socket| {
                socket.set_nonblocking(true)?;
                let place = format!("http://{}/metrics", socket.local_addr()?);
                Ok(Listener { socket: Socket::Tcp(socket), place })
            }),
            Endpoint::Unix(path) => bind_unix(path).and_then(|socket| {
                socket.set_nonblocking(true)?;
                let place = format!("unix:{}", path.display());
                Ok(Listener { socket: Socket::Unix(socket, std::path::absolute(path)?), place })
            }),
        };
        bound.map_err(|error| anyhow::anyhow!("--metrics {}: cannot listen there: {error}", address.0))
    }

    /// Where it listens, as people ask for it.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Answers from now on, in a thread of its own, until the process ends.
    pub(crate) fn serve(self, told: impl Fn() -> Exposed + Send + 'static) -> io::Result<Serving> {
        let path = match &self.socket {
            Socket::Unix(_, path) => Some(path.clone()),
            Socket::Tcp(_) => None,
        };
        thread::Builder::new().name("iogate-metrics".into()).spawn(move || serve(&self.socket, &told))?;
        Ok(Serving { path })
    }
}

/// Removes the file of its socket when it is dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    path: Option<PathBuf>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A socket for its owner alone, in place of one whose listener is gone.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let socket = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() || !is_socket(path) {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn accept(&self) -> io::Result<Stream> {
        let stream = match self {
            Socket::Tcp(socket) => Stream::Tcp(socket.accept()?.0),
            Socket::Unix(socket, _) => Stream::Unix(socket.accept()?.0),
        };
        match &stream {
            Stream::Tcp(stream) => stream.set_nonblocking(true)?,
            Stream::Unix(stream) => stream.set_nonblocking(true)?,
        }
        Ok(stream)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket, _) => socket.as_fd(),
        }
    }
}

impl Stream {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(into),
            Stream::Unix(stream) => stream.read(into),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(bytes),
            Stream::Unix(stream) => stream.write(bytes),
        }
    }
}

/// One request and its answer.
struct Connection {
    stream: Stream,
    since: Instant,
    request: Vec<u8>,
    /// The answer, and how much of it is sent.
    reply: Option<(Vec<u8>, usize)>,
}

impl Connection {
    /// Goes on as far as it can without waiting. Whether there is more to do.
    fn step(&mut self, told: &dyn Fn() -> Exposed) -> io::Result<bool> {
        while self.reply.is_none() {
            let mut some = [0; 1024];
            let n = self.stream.read(&mut some)?;
            if n == 0 {
                return Ok(false);
            }
            self.request.extend_from_slice(&some[..n]);
            self.reply = http::answer(&self.request).map(|answer| (said(answer, told), 0));
        }
        while let Some((reply, sent)) = &mut self.reply {
            if *sent == reply.len() {
                return Ok(false);
            }
            *sent += self.stream.write(&reply[*sent..])?;
        }
        Ok(true)
    }
}

fn said(answer: Answer, told: &dyn Fn() -> Exposed) -> Vec<u8> {
    match answer {
        Answer::Metrics { form, with_body } => {
            http::reply("200 OK", form.content_type(), &text(&told(), form), with_body)
        }
        Answer::Refused(status) => http::reply(
            status,
            "text/plain; charset=utf-8",
            &format!("{status}: GET /metrics is here\n"),
            true,
        ),
    }
}

fn serve(socket: &Socket, told: &dyn Fn() -> Exposed) {
    let mut connections: Vec<Connection> = Vec::new();
    let mut paused = None;
    loop {
        wait(socket, &connections, paused);
        connections.retain_mut(|connection| {
            let more = match connection.step(told) {
                Ok(more) => more,
                Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
            };
            more && connection.since.elapsed() < PATIENCE
        });
        if paused.is_some_and(|until| Instant::now() < until) {
            continue;
        }
        paused = None;
        match socket.accept() {
            Ok(stream) => {
                if connections.len() == CONNECTIONS_MAX {
                    connections.remove(0);
                }
                let since = Instant::now();
                connections.push(Connection { stream, since, request: Vec::new(), reply: None });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Without descriptors, say. It would be asked again at once.
            Err(_) => paused = Some(Instant::now() + PAUSE),
        }
    }
}

/// Until somebody comes or can go on, or has had the time that there is.
fn wait(socket: &Socket, connections: &[Connection], paused: Option<Instant>) {
    let mut fds: Vec<PollFd<'_>> = (connections.iter())
        .map(|connection| {
            let what = if connection.reply.is_some() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::from_borrowed_fd(connection.stream.fd(), what)
        })
        .collect();
    if paused.is_none() {
        fds.push(PollFd::from_borrowed_fd(socket.fd(), PollFlags::IN));
    }
    let ends = connections.iter().map(|connection| connection.since + PATIENCE).chain(paused);
    let left = ends.min().map(|end| end.saturating_duration_since(Instant::now()));
    let left = left.and_then(|left| Timespec::try_from(left + Duration::from_millis(1)).ok());
    let _ = poll(&mut fds, left.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_one_of_loopback() {
        let address = |text: &str| text.parse::<Address>().map(|address| address.0.to_string());
        assert_eq!(address("9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(address("[::1]:1").unwrap(), "[::1]:1");
        assert_eq!(address("unix:/run/m").unwrap(), "unix:/run/m");
        for wrong in ["", "host", "99999", "unix:"] {
            assert!(address(wrong).unwrap_err().contains("a PORT of loopback"), "{wrong}");
        }
    }

    fn get(place: &str) -> String {
        let address = place.strip_prefix("http://").and_then(|place| place.strip_suffix("/metrics")).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text\r\n\r\n")
            .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    #[test]
    fn scrapers_that_stall_keep_no_other_from_its_answer() {
        let listener = Listener::bind(&"0".parse().unwrap()).unwrap();
        let place = listener.place().to_owned();
        let _serving = listener.serve(Exposed::default).unwrap();
        let address = place.strip_prefix("http://").and_then(|place| place.strip_suffix("/metrics")).unwrap();
        let mut stalled = Vec::new();
        for _ in 0..3 * CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /metr").unwrap();
            stalled.push(stream);
            let reply = get(&place);
            assert!(
                reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.ends_with("\r\n\r\n# EOF\n"),
                "{reply}"
            );
        }
        // The oldest ones had to go.
        stalled[0].set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut some = [0; 1];
        let gone = stalled[0].read(&mut some);
        assert!(
            matches!(gone, Ok(0)) || gone.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
        );
    }

    #[test]
    fn a_socket_whose_listener_is_gone_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics");
        let address = Address(Endpoint::Unix(path.clone()));
        drop(Listener::bind(&address).unwrap());
        assert!(path.exists());
        let live = Listener::bind(&address).unwrap();
        assert!(Listener::bind(&address).is_err());
        drop(live.serve(Exposed::default).unwrap());
        assert!(!path.exists());
        std::fs::write(&path, "a file").unwrap();
        assert!(Listener::bind(&address).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
    }
}
