//! Where a connection comes from: what a bound on the connections of one client counts by.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, Ipv6Addr};

use iogate_core::refusal::Refusal;

use super::socket::{Peer, Socket};

/// Where a connection comes from, for the bound on those of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Host(IpAddr),
    User(u32),
    Unknown,
}

impl Source {
    /// The host at an address. Of IPv6, all addresses of a network of 64 bits are one: a host has as many as it likes.
    pub(crate) fn host(address: IpAddr) -> Source {
        Source::Host(match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
            v4 => v4,
        })
    }

    /// The same for the same source.
    pub(crate) fn number(&self) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(self)
    }

    /// Who is at the other end of a socket from here, for people.
    pub(crate) fn peer_text(&self, socket: &dyn Socket) -> String {
        match (socket.peer(), self) {
            (Peer::Process { uid, pid, .. }, _) => format!("process {pid} of user {uid}"),
            (Peer::Certificate { name }, _) => name,
            (Peer::Unknown, Source::Host(host)) => match rustix::net::getpeername(socket.fd()) {
                Ok(Some(address)) => match std::net::SocketAddr::try_from(address) {
                    Ok(address) => address.to_string(),
                    Err(_) => host.to_string(),
                },
                _ => host.to_string(),
            },
            (Peer::Unknown, _) => "unknown".into(),
        }
    }
}

/// Most connections beyond a limit that are kept until they have greeted.
const TURNED_AWAY_MAX: usize = 64;

/// Whether one that is too many is kept until it has greeted, and told why then: an encrypted one cannot be told before. The numbers
/// are those of [`too_many`].
pub(crate) fn may_greet(socket: &dyn Socket, all: (usize, usize), own: (usize, usize)) -> bool {
    let has_room = |(count, most): (usize, usize)| count < most.saturating_add(TURNED_AWAY_MAX);
    socket.is_handshaking() && has_room(all) && has_room(own)
}

/// Why one more connection is too many, if it is: of so many in all and at most, and so many from its source and at most.
pub(crate) fn too_many(server: &str, all: (usize, usize), own: (usize, usize)) -> Option<Refusal> {
    let (whose, count) = match (all.0 >= all.1, own.0 >= own.1) {
        (true, _) => (format!("the {server}"), all.0),
        (false, true) => ("this client".into(), own.0),
        (false, false) => return None,
    };
    let text = format!(
        "{whose} has {count} connections, which is the limit: close some, or let the {server} have more, and more descriptors"
    );
    Some(Refusal::new(libc::EUSERS, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_addresses_is_one_host() {
        let source = |text: &str| Source::host(text.parse().unwrap());
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:0:1"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_eq!(source("::1"), source("::2"));
    }
}
