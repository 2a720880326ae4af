//! Reaching a server, and agreeing with it.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::wire::{
    Failure, Hello, MAGIC, REPLY_HEADER_BYTES, Record, ReplyHeader, Request, RequestHeader, VERSION, Welcome,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::clock::{ClockOffset, Question};
use super::{ClientError, ClientOptions, Dial};
use crate::Endpoint;
use crate::transport::auth::Binding;
use crate::transport::{PlainSocket, Socket, TlsClient};

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
        Endpoint::Unix(path) => PlainSocket::new(UnixStream::connect(path)?.into()),
        Endpoint::Tcp { host, port } => {
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
            let mut addresses = (host.as_str(), *port).to_socket_addrs()?;
            let stream = loop {
                let Some(address) = addresses.next() else { return Err(last) };
                match TcpStream::connect_timeout(&address, timeout) {
                    Ok(stream) => break stream,
                    Err(error) => last = error,
                }
            };
            PlainSocket::new(stream.into())
        }
    }
}

/// A session with a server, just begun or gone on with.
pub(crate) struct Connected {
    pub(crate) socket: Box<dyn Socket>,
    pub(crate) welcome: Welcome,
    pub(super) clock: ClockOffset,
}

/// Connects, and begins the session or goes on with it.
pub(crate) fn connect(
    endpoint: &Endpoint,
    options: &ClientOptions,
    session: [u8; 16],
) -> Result<Connected, ClientError> {
    let deadline = Instant::now() + options.connect_timeout;
    let unreachable = |source| ClientError::Unreachable { endpoint: endpoint.clone(), source };
    let socket = (options.dial)(endpoint, options.connect_timeout).map_err(unreachable)?;
    let proof = Binding::of_client(socket.fd(), options.export.as_bytes())
        .and_then(|binding| options.auth.prove(&binding).map_err(io::Error::other))
        .map_err(|source| ClientError::NoProof { endpoint: endpoint.clone(), source })?;
    let forwarder = options.forwarder;
    let hello = Request::Hello(Hello {
        magic: MAGIC,
        version: VERSION,
        auth: options.auth.kind(),
        session,
        node: forwarder.map_or(0, |forwarder| forwarder.node),
        nodes: forwarder.map_or(0, |forwarder| forwarder.nodes),
        instance: forwarder.map_or(0, |forwarder| forwarder.instance),
        client: super::identity::client().map_err(unreachable)?,
        flags: if options.stripes { iogate_core::wire::hello::STRIPES } else { 0 },
        export: options.export.as_bytes(),
        name: options.name.as_bytes(),
    });
    let mut message = vec![0; iogate_core::wire::REQUEST_HEADER_BYTES];
    hello.encode(&mut message);
    let header = RequestHeader {
        fields: (message.len() - iogate_core::wire::REQUEST_HEADER_BYTES) as u16,
        payload: proof.len() as u32,
        kind: hello.kind(),
        ..RequestHeader::default()
    };
    message[..iogate_core::wire::REQUEST_HEADER_BYTES].copy_from_slice(&header.to_bytes());
    message.extend_from_slice(&proof);
    let question = Question::asked_now();
    send(&*socket, &message, deadline).map_err(unreachable)?;

    let mut header = [0; REPLY_HEADER_BYTES];
    receive(&*socket, &mut header, deadline).map_err(unreachable)?;
    let foreign = |source| ClientError::Foreign { endpoint: endpoint.clone(), source };
    let header = ReplyHeader::from_bytes(&header).map_err(foreign)?;
    let mut fields = vec![0; usize::from(header.fields)];
    receive(&*socket, &mut fields, deadline).map_err(unreachable)?;
    if header.errno != 0 {
        let text = Failure::decode(&fields).map_err(foreign)?.text;
        return Err(ClientError::Refused {
            endpoint: endpoint.clone(),
            text: String::from_utf8_lossy(text).into_owned(),
            source: io::Error::from_raw_os_error(i32::from(header.errno)),
        });
    }
    let welcome = Welcome::decode(&fields).map_err(foreign)?;
    if welcome.version != VERSION {
        return Err(ClientError::Refused {
            endpoint: endpoint.clone(),
            text: format!("it speaks version {} of the protocol, expected {VERSION}", welcome.version),
            source: io::Error::from_raw_os_error(libc::EPROTONOSUPPORT),
        });
    }
    Ok(Connected { socket, welcome, clock: question.answered(welcome.time) })
}

/// A time as `poll` takes it.
pub(crate) fn timespec(time: Duration) -> Option<Timespec> {
    Timespec::try_from(time).ok()
}

fn wait_for(socket: &dyn Socket, what: PollFlags, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let fd = socket.fd();
    match poll(&mut [PollFd::new(&fd.as_fd(), what)], timespec(left).as_ref()) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends all of a message.
pub(crate) fn send(socket: &dyn Socket, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.write(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(socket, PollFlags::OUT, deadline)?;
            }
            Err(error) => return Err(error),
        }
    }
    flush(socket, deadline)
}

/// Sends what the socket has taken.
pub(crate) fn flush(socket: &dyn Socket, deadline: Instant) -> io::Result<()> {
    while socket.wants_flush() {
        match socket.flush() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(socket, PollFlags::OUT, deadline)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills the memory, and reads nothing behind it.
fn receive(socket: &dyn Socket, mut memory: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !memory.is_empty() {
        match socket.read(&mut [IoSliceMut::new(memory)]) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends the connection")),
            Ok(count) => memory = &mut memory[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(socket, PollFlags::IN, deadline)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
