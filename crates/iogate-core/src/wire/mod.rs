//! The protocol between clients, forwarders and data servers: bytes <-> values, and nothing else.
//!
//! A message is a fixed header, then its *fields*, then its *payload* (the data of a read or a write), which a receiver
//! can place where it belongs because the header says where it begins. All numbers are little endian. The peer that opened the
//! connection sends [`Request`]s, with ids that count up from 1 in a session; the other answers each with one reply of the
//! same id, in any order. The first request is [`Hello`], with id 0; a reply with id 0 that is not its answer says why the connection
//! ends. What an errno, a mode or an attribute means is Linux's. `docs/protocol.md` has every message as a table.
//!
//! Decoding never panics and never allocates: what it returns borrows from the bytes.

mod codec;
mod message;
mod reply;
mod request;

pub use codec::{Record, WireError};
pub use message::Request;
pub use reply::*;
pub use request::*;

use codec::{Reader, put};

/// The protocol's version. A server answers a [`Hello`] of another version with `EPROTONOSUPPORT` and a text.
pub const VERSION: u16 = 1;
/// The first field of a [`Hello`]: what does not begin so is not this protocol.
pub const MAGIC: u64 = u64::from_le_bytes(*b"iogate\r\n");
/// Bytes of a request's header.
pub const REQUEST_HEADER_BYTES: usize = 32;
/// Bytes of a reply's header.
pub const REPLY_HEADER_BYTES: usize = 16;
/// Most bytes of payload that a message may have, whatever was agreed on.
pub const PAYLOAD_BYTES_MAX: u32 = 16 << 20;
/// Most bytes of a path.
pub const PATH_BYTES_MAX: usize = 4096;

/// What every request begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Bytes of fields.
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
        bytes
    }

    /// Reads a header. Fails with [`WireError::TooLong`] if more payload is announced than any message may have: the peer
    /// speaks something else.
    pub fn from_bytes(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<RequestHeader, WireError> {
        let mut reader = Reader::new(bytes);
        let header = RequestHeader {
            payload: reader.value()?,
            fields: reader.value()?,
            kind: reader.value()?,
            id: reader.value()?,
            acked: reader.value()?,
            uid: reader.value()?,
            gid: reader.value()?,
        };
        within_bounds(header.payload)?;
        Ok(header)
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

fn within_bounds(payload: u32) -> Result<(), WireError> {
    if payload > PAYLOAD_BYTES_MAX {
        return Err(WireError::TooLong { bytes: payload, max: PAYLOAD_BYTES_MAX });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
