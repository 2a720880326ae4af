//! By what a call is known when it is sent again, and how much is remembered, so that it is not carried out again.
//!
//! A client repeats what it has no answer to: a second REMOVE would say that there is no such file. A call is known by who sends it, its
//! number, its procedure and its first bytes, its credential among them, as clients use numbers again. Kept is what changes names and
//! attributes, also over a kill. WRITEs are kept as long as the process runs: a copy of one that waits in a socket, behind what its client
//! did after the answer, would undo that; a socket ends with the process, and what comes to the next one its client still waits for. What
//! is done with it is decided in [`iogate_core::answers`].
//!
//! The port is no part of it: not every client has the same one again when it connects again.

use std::hash::Hasher;
use std::net::IpAddr;

use iogate_core::answers::{Key, Limits, RECENT_BYTES};
use iogate_core::hash::IdHasher;

use crate::wire::{Reply, Status, Wcc, WriteOk, procedure};
use crate::xdr::{Reader, Xdr};

/// Bytes of a call that its checksum is of.
const CHECKED_BYTES: usize = 256;
/// As many of a WRITE, at its beginning and at its end: all but the data lies in the first 468, whatever its credential.
const CHECKED_OF_WRITE: (usize, usize) = (512, 256);

/// How much is remembered at a directory. Where it is too much, the client with most of it loses the older half of its own; of
/// WRITEs, some of its oldest. Of a WRITE's answer 20 bytes are remembered; it takes some 100 with all that is around it.
pub fn limits() -> Limits {
    Limits { entries: 65_536, bytes: 16 << 20, seconds: 120, unordered: Some(256), recent: 32_768 }
}

/// What a call is known by: all of its bytes, with its credential. The same in each process, as it is written down.
pub fn key(client: IpAddr, xid: u32, procedure: u32, call: &[u8]) -> Key {
    let sum = if procedure == procedure::WRITE { sum_of_write(call) } else { sum(call) };
    let client = match client.to_canonical() {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    Key { uid: 0, client, number: u64::from(xid) << 32 | u64::from(sum), step: procedure as u16 }
}

fn sum(call: &[u8]) -> u32 {
    let mut hasher = IdHasher::default();
    hasher.write(&call[..call.len().min(CHECKED_BYTES)]);
    hasher.write_usize(call.len());
    let hash = hasher.finish();
    (hash ^ hash >> 32) as u32
}

/// Taken for each WRITE, and never written down: by words. A wrong match would lose data, so that it is of the data's end, too.
fn sum_of_write(call: &[u8]) -> u32 {
    let mut hasher = IdHasher::default();
    let (at_first, at_last) = CHECKED_OF_WRITE;
    let first = &call[..call.len().min(at_first)];
    let last = &call[call.len().saturating_sub(at_last).max(first.len())..];
    for part in [first, last] {
        let (words, rest) = part.as_chunks();
        words.iter().for_each(|word| hasher.write_u64(u64::from_le_bytes(*word)));
        hasher.write(rest);
    }
    hasher.write_usize(call.len());
    (hasher.finish() >> 32) as u32
}

/// Where the status is in an answer with its record's mark, and how long the results of a WRITE are at its end.
const STATUS_AT: usize = 28;
const WRITTEN_BYTES: usize = 16;

/// What is remembered of a WRITE's answer: all but the attributes, which are not those of the file any more when it is given again.
pub(crate) fn kept_of_write(answer: &[u8]) -> [u8; RECENT_BYTES] {
    let mut kept = [0; RECENT_BYTES];
    let status = answer.get(STATUS_AT..STATUS_AT + 4).unwrap_or_default();
    let results = &answer[answer.len().saturating_sub(WRITTEN_BYTES)..];
    kept.iter_mut().zip(status.iter().chain(results)).for_each(|(to, from)| *to = *from);
    kept
}

/// The answer again.
pub(crate) fn written(kept: &[u8]) -> Option<Reply> {
    let mut from = Reader::new(kept);
    let result = match Status::take(&mut from).ok()? {
        Status::Ok => Ok(WriteOk::take(&mut from).ok()?),
        failed => Err(failed),
    };
    Some(Reply::Write { result, wcc: Wcc::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::{Accepted, put_accepted};
    use crate::wire::{Stable, Time, WccAttr};

    #[test]
    fn a_write_is_answered_again_without_attributes() {
        let done = WriteOk { count: 7, stable: Stable::FileSync, verifier: 0x1234_5678_9abc_def0 };
        for result in [Ok(done), Err(Status::NoSpc), Err(Status::Stale)] {
            let time = Time { seconds: 9, nanoseconds: 9 };
            let before = Some(WccAttr { size: 9, mtime: time, ctime: time });
            // With the record's mark.
            let mut answer = vec![0; 4];
            put_accepted(&mut answer, 1, Accepted::Success);
            Reply::Write { result, wcc: Wcc { before, after: None } }.put(&mut answer);
            let again = written(&kept_of_write(&answer));
            assert_eq!(again, Some(Reply::Write { result, wcc: Wcc::default() }));
        }
    }

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

    #[test]
    fn a_write_is_known_by_its_beginning_and_its_end() {
        for bytes in [1usize, 100, 511, 512, 513, 600, 767, 768, 769, 4096] {
            let call = vec![7; bytes];
            let of = |call: &[u8]| key([10, 0, 0, 1].into(), 7, procedure::WRITE, call);
            let checked = (0..bytes).filter(|at| *at < 512 || at + 256 >= bytes);
            for at in checked {
                let mut other = call.clone();
                other[at] ^= 0x80;
                assert_ne!(of(&other), of(&call), "{at} of {bytes}");
            }
            assert_ne!(of(&vec![7; bytes + 1]), of(&call));
            assert_eq!(of(&call.clone()), of(&call));
        }
    }
}
