//! What a credential is good for: one address of one server, one export.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::OnceLock;

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
        let mut bytes = b"iogate/2\0".to_vec();
        let is_on_this_host = match SocketAddr::try_from(server.clone()) {
            // A server that listens on both IPv4 and IPv6 sees IPv4 addresses as IPv6 ones.
            Ok(address) => {
                bytes.extend_from_slice(
                    format!("{}:{}", address.ip().to_canonical(), address.port()).as_bytes(),
                );
                address.ip().to_canonical().is_loopback()
            }
            Err(_) => {
                let address = SocketAddrUnix::try_from(server)?;
                bytes.extend_from_slice(b"unix:");
                bytes.extend(address.path_bytes().or(address.abstract_name()).unwrap_or_default());
                true
            }
        };
        bytes.push(0);
        if is_on_this_host {
            // Such an address is another server's on each host, and both ends are on this one.
            bytes.extend_from_slice(host()?);
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

/// What tells this host from every other one, containers on it included, until it is started again.
fn host() -> io::Result<&'static [u8]> {
    static BOOT: OnceLock<String> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(boot.as_bytes());
    }
    let boot = iogate_vfs::boot_id()?;
    Ok(BOOT.get_or_init(|| boot.trim().into()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(server: SocketAddrAny) -> Vec<u8> {
        Binding::new(server, b"files").unwrap().0
    }

    #[test]
    fn addresses_that_every_host_has_are_told_apart_by_the_host() {
        let names_host =
            |bytes: &[u8]| bytes.windows(host().unwrap().len()).any(|part| part == host().unwrap());
        for text in ["127.0.0.1:7000", "[::1]:7000", "[::ffff:127.0.0.1]:7000", "127.9.9.9:7000"] {
            assert!(names_host(&bytes(text.parse::<SocketAddr>().unwrap().into())), "{text}");
        }
        assert!(names_host(&bytes(SocketAddrUnix::new("/run/iogate.sock").unwrap().into())));
        assert!(!names_host(&bytes("10.1.2.3:7000".parse::<SocketAddr>().unwrap().into())));
    }
}
