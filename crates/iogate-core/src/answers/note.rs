//! The records of the log: each with a checksum, so that a torn end is seen.

use alloc::vec::Vec;

use super::Key;

/// What the log begins with.
const MAGIC: [u8; 8] = *b"iogateA1";

/// Bytes of a [`Header`].
pub const HEADER_BYTES: usize = 48;
/// Bytes of a [`Note`] without its own ones.
pub const NOTE_BYTES: usize = 60;

/// The beginning of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Random: which log it is.
    pub id: [u8; 16],
    /// Of the machine's boot in which it was begun.
    pub boot: [u8; 16],
}

impl Header {
    /// The header as it is written.
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.id);
        bytes[24..40].copy_from_slice(&self.boot);
        let crc = crc32fast::hash(&bytes[..40]);
        bytes[40..44].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads the header from the beginning of a log; `None` if there is none.
    pub fn from_bytes(bytes: &[u8]) -> Option<Header> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
        let (mut id, mut boot) = ([0; 16], [0; 16]);
        id.copy_from_slice(&bytes[8..24]);
        boot.copy_from_slice(&bytes[24..40]);
        let header = Header { id, boot };
        (header.to_bytes() == *bytes).then_some(header)
    }
}

/// What a note says of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is about to be carried out.
    Intent,
    /// It was carried out, or failed.
    Outcome,
    /// A value is remembered for it; the last one counts.
    Value,
    /// It was not carried out: it may be, when it comes again.
    Void,
    /// Nothing of the request: how far its client has all answers.
    Client,
}

impl State {
    const ALL: [State; 5] = [State::Intent, State::Outcome, State::Value, State::Void, State::Client];
}

/// A record of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note<'a> {
    /// Which request.
    pub key: Key,
    /// Its client needs nothing of requests with smaller numbers any more.
    pub below: u64,
    /// When it was written: seconds since the Unix epoch.
    pub time: u64,
    /// What the bytes are.
    pub state: State,
    /// What is to be remembered; at most 65,535 bytes.
    pub bytes: &'a [u8],
}

impl<'a> Note<'a> {
    /// Appends the note as it is written.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let bytes = &self.bytes[..self.bytes.len().min(usize::from(u16::MAX))];
        let state = State::ALL.iter().position(|state| *state == self.state).unwrap_or(0) as u8 + 1;
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
        out.extend_from_slice(&[state, 0]);
        out.extend_from_slice(&self.key.uid.to_le_bytes());
        out.extend_from_slice(&self.key.step.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&self.key.client);
        out.extend_from_slice(&self.key.number.to_le_bytes());
        out.extend_from_slice(&self.below.to_le_bytes());
        out.extend_from_slice(&self.time.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(bytes);
        let crc = crc32fast::hash(&out[start + 4..]);
        out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Takes the first note off; `None` if it is not whole: the log ends there.
    pub fn split_from(log: &'a [u8]) -> Option<(Note<'a>, &'a [u8])> {
        let head = log.first_chunk::<NOTE_BYTES>()?;
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let small = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (note, rest) = log.split_at_checked(NOTE_BYTES + usize::from(small(4)))?;
        if crc32fast::hash(&note[4..]) != word(0) {
            return None;
        }
        let state = *State::ALL.get(usize::from(head[6]).checked_sub(1)?)?;
        let mut client = [0; 16];
        client.copy_from_slice(&head[16..32]);
        let key = Key { uid: word(8), client, number: number(32), step: small(12) };
        let (below, time) = (number(40), number(48));
        Some((Note { key, below, time, state, bytes: &note[NOTE_BYTES..] }, rest))
    }
}
