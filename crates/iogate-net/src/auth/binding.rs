//! What a credential is good for: one address of one server, one export.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use rustix::net::{SocketAddrAny, SocketAddrUnix};

/// What a credential is good for. It goes into the credential, so that one which was made for another service or another
/// server proves nothing here: whoever a client has connected to by mistake cannot pass its credential on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding(Vec<u8>);

impl Binding {
    /// A credential for the server at the other end of a connected socket.
    pub fn of_client(socket: BorrowedFd<'_>, export: &[u8]) -> io::Result<Binding> {
        let server = rustix::net::getpeername(socket)?.ok_or(io::ErrorKind::NotConnected)?;
        Binding::new(server, export)
    }

    /// What a server expects on a connection that it has accepted.
    pub fn of_server(socket: BorrowedFd<'_>, export: &[u8]) -> io::Result<Binding> {
        Binding::new(rustix::net::getsockname(socket)?, export)
    }

    fn new(server: SocketAddrAny, export: &[u8]) -> io::Result<Binding> {
        let mut bytes = b"iogate/1\0".to_vec();
        match SocketAddr::try_from(server.clone()) {
            // A server that listens on both IPv4 and IPv6 sees IPv4 addresses as IPv6 ones.
            Ok(address) => {
                bytes.extend_from_slice(
                    format!("{}:{}", address.ip().to_canonical(), address.port()).as_bytes(),
                );
            }
            Err(_) => {
                let address = SocketAddrUnix::try_from(server)?;
                bytes.extend_from_slice(b"unix:");
                bytes.extend(address.path_bytes().or(address.abstract_name()).unwrap_or_default());
            }
        }
        bytes.push(0);
        bytes.extend_from_slice(export);
        Ok(Binding(bytes))
    }

    /// What goes into the credential.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}
