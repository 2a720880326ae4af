//! A client's end of a connection: reaching a server, and agreeing with it.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::proto::forwarder::Forwarder;
use iogate_core::wire::{
    Failure, Hello, MAGIC, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Record, ReplyHeader, Request,
    RequestHeader, VERSION, Welcome, WireError,
};

use super::auth::{Binding, Credential};
use super::blocking::{receive, send};
use super::clock::{ClockOffset, Question};
use super::listener::try_connect;
use super::{Endpoint, PlainSocket, Socket, TlsClient, identity};

/// How often a server that takes no connections just now is tried again.
const AGAIN: Duration = Duration::from_millis(5);

/// Reaches a server: the socket is connected when this returns. The time is the most that it may take.
pub type Dial = Arc<dyn Fn(&Endpoint, Duration) -> io::Result<Box<dyn Socket>> + Send + Sync>;

/// Reaches a server without encryption.
pub fn dial(endpoint: &Endpoint, timeout: Duration) -> io::Result<Box<dyn Socket>> {
    Ok(Box::new(connected(endpoint, timeout)?))
}

/// What reaches servers by TLS, showing the client's certificate. A server's must be for `server_name`; if that is `None`, for the
/// host in its endpoint.
pub fn dial_tls(tls: TlsClient, server_name: Option<String>) -> Dial {
    Arc::new(move |endpoint, timeout| {
        let name = match (&server_name, endpoint) {
            (Some(name), _) => name,
            (None, Endpoint::Tcp { host, .. }) => host,
            (None, Endpoint::Unix(_)) => {
                let text =
                    "expected the server's name, as in its certificate: a Unix socket's path does not say it";
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        let socket = tls.connect(connected(endpoint, timeout)?, name);
        Ok(Box::new(socket.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?))
    })
}

fn connected(endpoint: &Endpoint, timeout: Duration) -> io::Result<PlainSocket> {
    match endpoint {
        Endpoint::Unix(path) => PlainSocket::new(connected_unix(path, timeout)?),
        Endpoint::Tcp { host, port } => {
            let addresses: Vec<SocketAddr> = (host.as_str(), *port).to_socket_addrs()?.collect();
            PlainSocket::new(connected_tcp(&addresses, timeout)?.into())
        }
    }
}

/// To the first of a host's addresses that answers. One that is silent leaves the others their parts of the time, and one more part for
/// what is said then.
fn connected_tcp(addresses: &[SocketAddr], timeout: Duration) -> io::Result<TcpStream> {
    let since = Instant::now();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    for (index, address) in addresses.iter().enumerate() {
        let parts = match addresses.len() {
            1 => 1,
            count => count - index + 1,
        };
        let part = timeout.saturating_sub(since.elapsed()) / parts as u32;
        match TcpStream::connect_timeout(address, part.max(AGAIN)) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The kernel tells nobody when there is room for one more connection to wait.
fn connected_unix(path: &Path, timeout: Duration) -> io::Result<OwnedFd> {
    let since = Instant::now();
    loop {
        match try_connect(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let left = timeout.saturating_sub(since.elapsed());
                if left.is_zero() {
                    let text = "too many connections wait there already, and it takes none";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
                std::thread::sleep(left.min(AGAIN));
            }
            reached => return reached,
        }
    }
}

/// How a server is reached.
pub(crate) struct Way<'a> {
    pub(crate) dial: &'a Dial,
    /// Most time that it takes.
    pub(crate) timeout: Duration,
    pub(crate) auth: &'a Credential,
}

/// What a client says of itself.
#[derive(Default)]
pub(crate) struct Introduction<'a> {
    /// What the server's people call it.
    pub(crate) name: &'a str,
    /// What it wants; empty for the server's first export.
    pub(crate) export: &'a str,
    /// The session that it goes on with; zeros for a new one.
    pub(crate) session: [u8; 16],
    pub(crate) forwarder: Option<Forwarder>,
    /// See [`hello`](iogate_core::wire::hello).
    pub(crate) flags: u32,
}

/// A session with a server, just begun or gone on with.
pub(crate) struct Connected {
    pub(crate) socket: Box<dyn Socket>,
    pub(crate) welcome: Welcome,
    pub(crate) clock: ClockOffset,
}

/// Connects, and begins the session or goes on with it.
pub(crate) fn connect(
    endpoint: &Endpoint,
    way: &Way<'_>,
    client: &Introduction<'_>,
) -> Result<Connected, ConnectError> {
    let deadline = Instant::now() + way.timeout;
    let unreachable = |source| ConnectError::Unreachable { endpoint: endpoint.clone(), source };
    let socket = (way.dial)(endpoint, way.timeout).map_err(unreachable)?;
    let proof = Binding::of_client(socket.fd(), client.export.as_bytes())
        .and_then(|binding| way.auth.prove(&binding).map_err(io::Error::other))
        .map_err(|source| ConnectError::NoProof { endpoint: endpoint.clone(), source })?;
    let hello = Request::Hello(Hello {
        magic: MAGIC,
        version: VERSION,
        auth: way.auth.kind(),
        session: client.session,
        node: client.forwarder.map_or(0, |forwarder| forwarder.node),
        nodes: client.forwarder.map_or(0, |forwarder| forwarder.nodes),
        instance: client.forwarder.map_or(0, |forwarder| forwarder.instance),
        client: identity::client().map_err(unreachable)?,
        flags: client.flags,
        export: client.export.as_bytes(),
        name: client.name.as_bytes(),
    });
    let mut message = vec![0; REQUEST_HEADER_BYTES];
    hello.encode(&mut message);
    let header = RequestHeader {
        fields: (message.len() - REQUEST_HEADER_BYTES) as u16,
        payload: proof.len() as u32,
        kind: hello.kind(),
        ..RequestHeader::default()
    };
    message[..REQUEST_HEADER_BYTES].copy_from_slice(&header.to_bytes());
    message.extend_from_slice(&proof);
    let question = Question::asked_now();
    // Who has no room for a client says why, and has hung up perhaps before this is sent: the reason is there to be read all the same.
    let sent = send(&*socket, &message, deadline);

    let mut header = [0; REPLY_HEADER_BYTES];
    if let Err(error) = receive(&*socket, &mut header, deadline) {
        return Err(unreachable(sent.err().unwrap_or(error)));
    }
    let foreign = |source| ConnectError::Foreign { endpoint: endpoint.clone(), source };
    let header = ReplyHeader::from_bytes(&header).map_err(foreign)?;
    let mut fields = vec![0; usize::from(header.fields)];
    receive(&*socket, &mut fields, deadline).map_err(unreachable)?;
    if header.errno != 0 {
        let text = Failure::decode(&fields).map_err(foreign)?.text;
        return Err(ConnectError::Refused {
            endpoint: endpoint.clone(),
            text: String::from_utf8_lossy(text).into_owned(),
            source: io::Error::from_raw_os_error(i32::from(header.errno)),
        });
    }
    sent.map_err(unreachable)?;
    let welcome = Welcome::decode(&fields).map_err(foreign)?;
    if welcome.version != VERSION {
        return Err(ConnectError::Refused {
            endpoint: endpoint.clone(),
            text: format!(
                "it speaks version {} of the protocol, expected {VERSION}: use the same release on both sides",
                welcome.version
            ),
            source: io::Error::from_raw_os_error(libc::EPROTONOSUPPORT),
        });
    }
    Ok(Connected { socket, welcome, clock: question.answered(welcome.time) })
}

/// Why there is no session with a server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// It cannot be reached, or the connection was lost.
    #[error("the server {endpoint} cannot be reached ({source}): {}", advice(source, "iogate serve"))]
    Unreachable {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        source: io::Error,
    },
    /// It does not want this client.
    #[error("the server {endpoint} refuses the connection ({source}): {text}")]
    Refused {
        /// Where.
        endpoint: Endpoint,
        /// What it says.
        text: String,
        /// Its error.
        source: io::Error,
    },
    /// It does not speak the protocol.
    #[error("what listens at {endpoint} is not an iogate server of this version: {source}")]
    Foreign {
        /// Where.
        endpoint: Endpoint,
        /// What is wrong with what it sends.
        source: WireError,
    },
    /// No proof of who the client is could be made.
    #[error("no credential for the server {endpoint} can be made: {source}")]
    NoProof {
        /// Where.
        endpoint: Endpoint,
        /// Why.
        source: io::Error,
    },
}

/// What to do about it: who has been reached need not be started.
fn advice(source: &io::Error, program: &str) -> String {
    match source.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => format!(
            "who listens there hangs up: it may want certificates (--tls-authorities, --tls-certificate, --tls-key), as its log says, or \
             be no `{program}`"
        ),
        _ if source.to_string().starts_with(super::tls::PREFIX) => {
            "check the authorities, the certificate and its key at both ends (docs/security.md)".into()
        }
        _ => format!("expected `{program}` to listen there; start it, or check the address"),
    }
}

impl ConnectError {
    /// What it says where the server is to be a coordinator.
    pub(crate) fn of_coordinator(&self) -> String {
        match self {
            ConnectError::Unreachable { endpoint, source } => format!(
                "the coordinator {endpoint} cannot be reached ({source}): {}",
                advice(source, "iogate coord serve")
            ),
            other => other.to_string(),
        }
    }

    /// What kind of error it is.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            ConnectError::Unreachable { source, .. }
            | ConnectError::Refused { source, .. }
            | ConnectError::NoProof { source, .. } => source.kind(),
            ConnectError::Foreign { .. } => io::ErrorKind::InvalidData,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn an_address_that_is_silent_leaves_time_for_the_others() {
        let [silent, server] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        rustix::net::listen(&silent, 1).unwrap();
        let addresses = [&silent, &server].map(|listener| listener.local_addr().unwrap());
        let mut waiting = Vec::new();
        while let Ok(socket) = TcpStream::connect_timeout(&addresses[0], Duration::from_millis(200)) {
            waiting.push(socket);
        }
        let (timeout, since) = (Duration::from_secs(6), Instant::now());
        let reached = connected_tcp(&addresses, timeout).unwrap();
        assert_eq!(reached.peer_addr().unwrap(), addresses[1]);
        assert!(since.elapsed() < timeout, "nothing is left to say who one is: {:?}", since.elapsed());
    }

    #[test]
    fn who_has_been_reached_need_not_be_started() {
        let said = |kind, text: &str| {
            let endpoint = Endpoint::Tcp { host: "io1".into(), port: 7000 };
            ConnectError::Unreachable { endpoint, source: io::Error::new(kind, text) }.to_string()
        };
        assert!(
            said(io::ErrorKind::ConnectionRefused, "nobody").contains("; start it, or check the address")
        );
        for (kind, text, expected) in [
            (
                io::ErrorKind::UnexpectedEof,
                "it ends the connection",
                "it may want certificates (--tls-authorities",
            ),
            (io::ErrorKind::ConnectionReset, "reset", "it may want certificates (--tls-authorities"),
            (
                io::ErrorKind::PermissionDenied,
                "TLS: the other end's certificate is not accepted",
                "check the authorities",
            ),
        ] {
            let said = said(kind, text);
            assert!(said.contains(expected) && !said.contains("start it"), "{said}");
        }
    }

    #[test]
    fn a_server_that_takes_no_connections_is_given_up_in_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let server = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&server, 1).unwrap();
        let mut waiting = Vec::new();
        while let Ok(socket) = try_connect(&path) {
            waiting.push(socket);
        }
        let (tell, told) = mpsc::channel();
        let endpoint = Endpoint::Unix(path);
        std::thread::spawn({
            let endpoint = endpoint.clone();
            move || tell.send(dial(&endpoint, Duration::from_millis(200)).map(drop))
        });
        let error = told.recv_timeout(Duration::from_secs(60)).expect("it hangs").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "too many connections wait there already, and it takes none");

        let late = std::thread::spawn(move || dial(&endpoint, Duration::from_secs(60)).map(drop));
        let _taken = server.accept().unwrap();
        late.join().unwrap().expect("there is room now");
    }
}
