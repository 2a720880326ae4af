//! Calls of the server's to its clients' machines: that somebody has a lock now, and that the server was started again. Where to call, the
//! port mappers there say.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::OnceLock;
use std::thread::Thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::net::{AddressFamily, SocketType, bind, connect, ipproto, socket, sockopt};

use crate::port_mapper::get_address;
use crate::rpc::records::{self, Records};
use crate::rpc::{Accepted, Call, Credential, take_reply};
use crate::service::Callbacks;
use crate::wire::{
    LOCK_PROGRAM, LOCK_VERSION, LockReply, LockRequest, LockStatus, Opaque, STATUS_PROGRAM, STATUS_VERSION,
    StatusRequest,
};
use crate::xdr::{Reader, XdrError};

/// The port of a port mapper.
const PORT_MAPPER: u16 = 111;
/// How long a machine may take for a connection, and for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long for the answer to a datagram, and how often that is sent.
const DATAGRAM: (Duration, usize) = (Duration::from_secs(1), 3);
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 8 << 10;

/// How clients are called.
pub(super) struct ToClients {
    /// The address that clients know the server by, if it listens at one: they take a call from no other.
    from: Option<IpAddr>,
    /// Another one for each start of the server, also if it is killed soon, and odd, as NSM has it.
    state: u32,
    /// Who looks after locks.
    looks: OnceLock<Thread>,
}

impl ToClients {
    /// From a server that listens at this address.
    pub(super) fn new(listens: IpAddr) -> ToClients {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        ToClients {
            from: Some(listens.to_canonical()).filter(|address| !address.is_unspecified()),
            state: (since as u32) | 1,
            looks: OnceLock::new(),
        }
    }

    /// The thread that looks after locks.
    pub(super) fn set_thread(&self, thread: &Thread) {
        let _ = self.looks.set(thread.clone());
    }

    /// The address to call a client from.
    fn own(&self, client: IpAddr) -> SocketAddr {
        let any = match client {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let from = self.from.filter(|from| from.is_ipv4() == client.is_ipv4());
        SocketAddr::new(from.unwrap_or(any), 0)
    }

    fn connect(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket(family, SocketType::STREAM, Some(ipproto::TCP))?;
        // It bounds how long a connection may take, too.
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
        bind(&socket, &self.own(to.ip()))?;
        connect(&socket, &to)?;
        Ok(TcpStream::from(socket))
    }

    /// Makes one call over a connection, and takes its results.
    fn ask<R>(
        &self,
        to: SocketAddr,
        (program, version, procedure): (u32, u32, u32),
        arguments: &[u8],
        take: impl FnOnce(&mut Reader<'_>) -> Result<R, XdrError>,
    ) -> io::Result<R> {
        let mut stream = self.connect(to)?;
        let mut message = vec![0; 4];
        message.extend_from_slice(&call(program, version, procedure, arguments));
        let mark = records::mark(message.len() - 4);
        message[..4].copy_from_slice(&mark);
        stream.write_all(&message)?;
        let (mut records, mut answer) = (Records::new(ANSWER_BYTES_MAX), None);
        let mut room = [0; 1024];
        while answer.is_none() {
            let got = stream.read(&mut room)?;
            if got == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            records.feed(&room[..got], |record| answer = Some(record)).map_err(io::Error::other)?;
        }
        results(&answer.unwrap_or_default(), take)
    }

    /// As [`ToClients::ask`], by datagrams.
    fn ask_by_datagram<R>(
        &self,
        to: SocketAddr,
        (program, version, procedure): (u32, u32, u32),
        arguments: &[u8],
        take: impl FnOnce(&mut Reader<'_>) -> Result<R, XdrError>,
    ) -> io::Result<R> {
        let socket = UdpSocket::bind(self.own(to.ip()))?;
        socket.connect(to)?;
        let (patience, tries) = DATAGRAM;
        socket.set_read_timeout(Some(patience))?;
        let message = call(program, version, procedure, arguments);
        let mut error = io::Error::from(io::ErrorKind::TimedOut);
        for _ in 0..tries {
            socket.send(&message)?;
            let mut room = [0; 1024];
            match socket.recv(&mut room) {
                Ok(got) => return results(&room[..got], take),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    /// Where a program of a client's machine is, or why it cannot be known.
    fn found(client: IpAddr, port: Option<u16>) -> io::Result<SocketAddr> {
        let port = port.ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "its port mapper does not know what is to be called")
        })?;
        Ok(SocketAddr::new(client, port))
    }
}

/// A call of the server's own: of no user.
fn call(program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    // Each is the only one of its socket.
    Call { xid: 1, program, version, procedure, credential: Credential::None }.put(&mut message);
    message.extend_from_slice(arguments);
    message
}

/// The results in an answer.
fn results<R>(answer: &[u8], take: impl FnOnce(&mut Reader<'_>) -> Result<R, XdrError>) -> io::Result<R> {
    let mut from = Reader::new(answer);
    match take_reply(&mut from).map_err(io::Error::other)? {
        (1, Some(Accepted::Success)) => take(&mut from).map_err(io::Error::other),
        (_, refused) => Err(io::Error::other(format!("the call is refused: {refused:?}"))),
    }
}

impl Callbacks for ToClients {
    fn granted(&self, client: IpAddr, arguments: &[u8]) -> io::Result<LockStatus> {
        let network = if client.is_ipv4() { "tcp" } else { "tcp6" };
        let mapper = SocketAddr::new(client, PORT_MAPPER);
        let port = get_address(LOCK_PROGRAM, LOCK_VERSION, network, |message, arguments, take| {
            self.ask(mapper, message, arguments, take)
        })?;
        let to = ToClients::found(client, port)?;
        let procedure = LockRequest::GRANTED_PROCEDURE;
        self.ask(to, (LOCK_PROGRAM, LOCK_VERSION, procedure), arguments, |from| {
            match LockReply::take(procedure, from)? {
                Some(LockReply::Done { status, .. }) => Ok(status),
                _ => Ok(LockStatus::Failed),
            }
        })
    }

    fn restarted(&self, client: IpAddr) -> io::Result<()> {
        let network = if client.is_ipv4() { "udp" } else { "udp6" };
        let mapper = SocketAddr::new(client, PORT_MAPPER);
        // A port mapper answers for the network by which it is asked.
        let port = get_address(STATUS_PROGRAM, STATUS_VERSION, network, |message, arguments, take| {
            self.ask_by_datagram(mapper, message, arguments, take)
        })?;
        let to = ToClients::found(client, port)?;
        // What it knows this machine by is the address that it has mounted from.
        let towards = UdpSocket::bind(self.own(client))?;
        towards.connect(to)?;
        let own = towards.local_addr()?.ip().to_string();
        let request = StatusRequest::Notify { host: Opaque(own.as_bytes()), state: self.state };
        let mut arguments = Vec::new();
        request.put(&mut arguments);
        let message = (STATUS_PROGRAM, STATUS_VERSION, request.procedure());
        self.ask_by_datagram(to, message, &arguments, |_| Ok(()))
    }

    fn wants_look(&self) {
        if let Some(thread) = self.looks.get() {
            thread.unpark();
        }
    }
}
