//! The protocol between clients, forwarders and data servers: bytes <-> values, and nothing else.
//!
//! A message is a fixed header, then its *fields*, then its *payload* (the data of a read or a write), which a receiver
//! can place where it belongs because the header says where it begins. All numbers are little endian. The peer that opened the
//! connection sends [`Request`]s, with ids that count up from 1 in a session; the other answers each with one reply of the
//! same id, in any order. The first request is [`Hello`], with id 0; a reply with id 0 that is not its answer says why the connection
//! ends. What an errno, a mode or an attribute means is Linux's. `docs/protocol.md` has every message as a table.
//!
//! Decoding never panics and never allocates: what it returns borrows from the bytes.

pub(crate) mod codec;
mod flags;
mod message;
mod reply;
mod request;

pub use codec::{Record, WireError};
pub use flags::*;
pub use message::{Kind, Request};
pub use reply::*;
pub use request::*;

use codec::{Reader, put};

/// The protocol's version. A server answers a [`Hello`] of another version with `EPROTONOSUPPORT` and a text.
pub const VERSION: u16 = 2;
/// The first field of a [`Hello`]: what does not begin so is not this protocol.
pub const MAGIC: u64 = u64::from_le_bytes(*b"iogate\r\n");
/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = 64;
/// Bytes of a reply's header.
pub const REPLY_HEADER_BYTES: usize = 16;
/// Most bytes of payload that a message may have, whatever was agreed on.
pub const PAYLOAD_BYTES_MAX: u32 = 16 << 20;
/// Most bytes of a path.
pub const PATH_BYTES_MAX: usize = 4096;
/// Most bytes of the value of an extended attribute, and of the records of a reservation.
pub const VALUE_BYTES_MAX: u32 = 64 << 10;

/// Most supplementary groups that a request carries.
pub const GROUPS_MAX: usize = 256;
/// In place of a number of groups: they are not sent, and the server looks them up.
pub const GROUPS_UNKNOWN: u16 = u16::MAX;

/// What is left of a path behind another one that it is at or below, as `/c` of `a/b/c` below `a/b`; `None` if it is elsewhere.
pub fn below<'a>(path: &'a [u8], top: &[u8]) -> Option<&'a [u8]> {
    path.strip_prefix(top).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Which request of which client something is done for, however many servers pass it on and however often it is sent. A server
/// that has carried it out knows it by this again, in another session and after its own restart. The key includes the user
/// whom the server takes the client for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestOrigin {
    /// 128 random bits of the client process; zeros: the request has no origin.
    pub client: [u8; 16],
    /// Counts up over all requests of the process that have an origin, over all its sessions.
    pub number: u64,
    /// Which of the requests that a forwarder makes of one; 0 is the first.
    pub step: u16,
    /// How far `number` lies behind the oldest one without an answer: all before that are answered, and need not be remembered.
    pub unanswered: u32,
}

impl RequestOrigin {
    /// No origin.
    pub const NONE: RequestOrigin = RequestOrigin { client: [0; 16], number: 0, step: 0, unanswered: 0 };

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.client != [0; 16]
    }

    /// All numbers below this one are answered.
    pub fn answered_below(&self) -> u64 {
        self.number.saturating_sub(self.unanswered.into())
    }
}

/// What every request begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bytes of fields, with the groups before them.
    pub fields: u16,
    /// Bytes of payload, after the fields.
    pub payload: u32,
    /// Which message; see [`Request`].
    pub kind: u16,
    /// The request's number in its session.
    pub id: u64,
    /// Replies to all requests with smaller ids have arrived: the server need not keep them.
    pub acked: u64,
    /// In whose name: user.
    pub uid: u32,
    /// In whose name: group.
    pub gid: u32,
    /// How many supplementary groups of the caller, of 4 bytes each, stand before the fields; or [`GROUPS_UNKNOWN`].
    pub groups: u16,
    /// Which request it is done for.
    pub origin: RequestOrigin,
}

/// What every reply begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplyHeader {
    /// Bytes of fields.
    pub fields: u16,
    /// Bytes of payload, after the fields.
    pub payload: u32,
    /// 0, or why the request failed; the fields then are a [`Failure`].
    pub errno: u16,
    /// The request that it answers.
    pub id: u64,
}

impl RequestHeader {
    /// The header as it is sent.
    pub fn to_bytes(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        put(&mut bytes, 0, self.payload.to_le_bytes());
        put(&mut bytes, 4, self.fields.to_le_bytes());
        put(&mut bytes, 6, self.kind.to_le_bytes());
        put(&mut bytes, 8, self.id.to_le_bytes());
        put(&mut bytes, 16, self.acked.to_le_bytes());
        put(&mut bytes, 24, self.uid.to_le_bytes());
        put(&mut bytes, 28, self.gid.to_le_bytes());
        put(&mut bytes, 32, self.origin.client);
        put(&mut bytes, 48, self.origin.number.to_le_bytes());
        put(&mut bytes, 56, self.origin.step.to_le_bytes());
        put(&mut bytes, 58, self.groups.to_le_bytes());
        put(&mut bytes, 60, self.origin.unanswered.to_le_bytes());
        bytes
    }

    /// Reads a header. Fails with [`WireError::TooLong`] if more payload is announced than any message may have: the peer
    /// speaks something else.
    pub fn from_bytes(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<RequestHeader, WireError> {
        let mut reader = Reader::new(bytes);
        let mut header = RequestHeader {
            payload: reader.value()?,
            fields: reader.value()?,
            kind: reader.value()?,
            id: reader.value()?,
            acked: reader.value()?,
            uid: reader.value()?,
            gid: reader.value()?,
            ..RequestHeader::default()
        };
        header.origin.client = reader.value()?;
        header.origin.number = reader.value()?;
        header.origin.step = reader.value()?;
        header.groups = reader.value()?;
        header.origin.unanswered = reader.value()?;
        within_bounds(header.payload)?;
        Ok(header)
    }

    /// Takes the groups from before the fields: `None` where the server is to look them up. Fails if there are more than
    /// [`GROUPS_MAX`], or fewer than announced.
    pub fn split_groups<'a>(
        &self,
        fields: &'a [u8],
    ) -> Result<(Option<impl ExactSizeIterator<Item = u32> + use<'a>>, &'a [u8]), WireError> {
        let count = if self.groups == GROUPS_UNKNOWN { 0 } else { usize::from(self.groups) };
        if count > GROUPS_MAX {
            return Err(WireError::TooManyGroups { count: self.groups });
        }
        let expected = 4 * count;
        let (groups, fields) = fields
            .split_at_checked(expected)
            .ok_or(WireError::Truncated { expected, found: fields.len() })?;
        let ids = groups.chunks_exact(4).map(|id| u32::from_le_bytes([id[0], id[1], id[2], id[3]]));
        Ok(((self.groups != GROUPS_UNKNOWN).then_some(ids), fields))
    }
}

impl ReplyHeader {
    /// The header as it is sent.
    pub fn to_bytes(&self) -> [u8; REPLY_HEADER_BYTES] {
        let mut bytes = [0; REPLY_HEADER_BYTES];
        put(&mut bytes, 0, self.payload.to_le_bytes());
        put(&mut bytes, 4, self.fields.to_le_bytes());
        put(&mut bytes, 6, self.errno.to_le_bytes());
        put(&mut bytes, 8, self.id.to_le_bytes());
        bytes
    }

    /// Reads a header. Fails as [`RequestHeader::from_bytes`].
    pub fn from_bytes(bytes: &[u8; REPLY_HEADER_BYTES]) -> Result<ReplyHeader, WireError> {
        let mut reader = Reader::new(bytes);
        let header = ReplyHeader {
            payload: reader.value()?,
            fields: reader.value()?,
            errno: reader.value()?,
            id: reader.value()?,
        };
        within_bounds(header.payload)?;
        Ok(header)
    }
}

/// A session among others: the first eight bytes of its name, as a number.
pub fn session_number(session: &[u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *session;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// What people call a client, of the name in its [`Hello`], cut to a length that a server keeps.
pub fn client_name(bytes: &[u8]) -> alloc::string::String {
    alloc::string::String::from_utf8_lossy(&bytes[..bytes.len().min(256)]).into_owned()
}

fn within_bounds(payload: u32) -> Result<(), WireError> {
    if payload > PAYLOAD_BYTES_MAX {
        return Err(WireError::TooLong { bytes: payload, max: PAYLOAD_BYTES_MAX });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
