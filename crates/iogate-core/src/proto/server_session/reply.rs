//! Replies that are cached until the client has them.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::refusal::{Refusal, errno};
use crate::wire::{Failure, Record, Written};

/// A reply that is cached until the client says that it has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CachedReply {
    /// What a write did: the most frequent one, without memory of its own.
    Written(Written),
    /// An errno, 0 if all went well, and fields.
    Fields(u16, Box<[u8]>),
    /// Fields and a payload.
    Whole(Box<[u8]>, Box<[u8]>),
}

impl CachedReply {
    /// The reply to a request that failed.
    pub fn failure(refusal: &Refusal) -> CachedReply {
        let mut fields = Vec::new();
        Failure { text: refusal.text.as_bytes() }.encode(&mut fields);
        // An errno that does not fit is none.
        CachedReply::Fields(u16::try_from(refusal.errno).unwrap_or(errno::EIO as u16), fields.into())
    }
}
