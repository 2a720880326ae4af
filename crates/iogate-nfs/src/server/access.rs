//! Which clients are believed to say who their users are.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Ports that only root may use, at most.
const PRIVILEGED_MAX: u16 = 1023;

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

/// What is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address or a network, as in 10.0.0.7 or 10.0.0.0/24, found `{0}`")]
pub struct NetworkError(String);

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Network, NetworkError> {
        let wrong = || NetworkError(text.into());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), |bits| bits.parse().map_err(|_| wrong()))?;
        if bits > most { Err(wrong()) } else { Ok(Network { address, bits }) }
    }
}

impl Network {
    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        let shift = |width: u32| width.saturating_sub(self.bits.into());
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let differ = ours.to_bits() ^ theirs.to_bits();
                differ.checked_shr(shift(32)).unwrap_or(0) == 0
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let differ = ours.to_bits() ^ theirs.to_bits();
                differ.checked_shr(shift(128)).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Who may come in.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// From these networks; none: only from this machine.
    pub networks: Vec<Network>,
    /// From ports that any user of the client's machine may use, too: then each of them can say to be any other.
    pub any_port: bool,
}

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// What its users may.
    Calls,
    /// Ask whether the server is there: `mount` does that from any port.
    Probes,
    /// Nothing.
    Nothing,
}

impl Access {
    /// What a client may do.
    pub(super) fn admission(&self, client: SocketAddr) -> Admission {
        let address = client.ip().to_canonical();
        let is_known = match &self.networks[..] {
            [] => address.is_loopback(),
            networks => networks.iter().any(|network| network.contains(address)),
        };
        match is_known {
            false => Admission::Nothing,
            true if self.any_port || client.port() <= PRIVILEGED_MAX => Admission::Calls,
            true => Admission::Probes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_known_by_network_and_port() {
        let network = |text: &str| text.parse::<Network>().unwrap();
        for (of, address, is_in) in [
            ("10.1.2.3", "10.1.2.3", true),
            ("10.1.2.3", "10.1.2.4", false),
            ("10.1.0.0/16", "10.1.9.9", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("0.0.0.0/0", "1.2.3.4", true),
            ("10.1.0.0/16", "::ffff:10.1.0.1", true),
            ("fe80::/10", "fe81::1", true),
            ("::/0", "fe81::1", true),
            ("fe80::/10", "10.0.0.1", false),
        ] {
            assert_eq!(network(of).contains(address.parse().unwrap()), is_in, "{of} {address}");
        }
        for wrong in ["", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.0/x", "host"] {
            assert!(wrong.parse::<Network>().is_err(), "{wrong}");
        }
        let local = Access::default();
        let open = Access { networks: vec![network("10.0.0.0/8")], any_port: true };
        for (access, client, admission) in [
            (&local, "127.0.0.1:700", Admission::Calls),
            (&local, "[::ffff:127.0.0.1]:700", Admission::Calls),
            (&local, "127.0.0.1:1024", Admission::Probes),
            (&local, "10.0.0.1:700", Admission::Nothing),
            (&open, "10.0.0.1:5000", Admission::Calls),
            (&open, "127.0.0.1:5000", Admission::Nothing),
        ] {
            assert_eq!(access.admission(client.parse().unwrap()), admission, "{client}");
        }
    }
}
