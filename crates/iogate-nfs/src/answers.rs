//! By what a call is known when it is sent again, and how much is remembered, so that it is not carried out again.
//!
//! A client repeats what it has no answer to: a second REMOVE would say that there is no such file. A call is known by who sends it, its
//! number, its procedure and its first bytes, its credential among them, as clients use numbers again. Kept is what changes names and
//! attributes; reads and writes may be carried out twice. What is done with it is decided in [`iogate_core::answers`].

use std::hash::Hasher;
use std::net::IpAddr;

use iogate_core::answers::{Key, Limits};
use iogate_core::hash::IdHasher;

/// Bytes of a call that its checksum is of.
const CHECKED_BYTES: usize = 256;

/// How much is remembered at a directory. Where it is too much, the client with most of it loses the older half of its own.
pub fn limits() -> Limits {
    Limits { entries: 65_536, bytes: 16 << 20, seconds: 120, unordered: Some(256) }
}

/// What a call is known by: all of its bytes, with its credential. The same in each process, as it is written down.
pub fn key(client: IpAddr, xid: u32, procedure: u32, call: &[u8]) -> Key {
    let mut hasher = IdHasher::default();
    hasher.write(&call[..call.len().min(CHECKED_BYTES)]);
    hasher.write_usize(call.len());
    let hash = hasher.finish();
    let sum = (hash ^ hash >> 32) as u32;
    let client = match client.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    Key { uid: 0, client, number: u64::from(xid) << 32 | u64::from(sum), step: procedure as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_client_number_procedure_or_argument_is_another_call() {
        let home = [10, 0, 0, 1].into();
        let call = key(home, 7, 12, b"remove x");
        assert_eq!(call, key(home, 7, 12, b"remove x"));
        assert_eq!(call, key("::ffff:10.0.0.1".parse().unwrap(), 7, 12, b"remove x"));
        let others = [
            key([10, 0, 0, 2].into(), 7, 12, b"remove x"),
            key(home, 8, 12, b"remove x"),
            key(home, 7, 13, b"remove x"),
            key(home, 7, 12, b"remove y"),
            key(home, 7, 12, b"remove x\0"),
        ];
        assert!(others.iter().all(|other| *other != call));
    }
}
