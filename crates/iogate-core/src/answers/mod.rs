//! What a server remembers of requests that must not be carried out twice, over sessions and over its own restarts.
//!
//! Before such a request is carried out, its *intent* is noted, and behind it its *outcome*; both go to a log that outlives
//! the process. A request that comes again (after a lost session, by another forwarder, to the restarted server) is known by its
//! [`Key`], and gets its first answer. An intent without an outcome was underway when the server was killed: what it noted of
//! the state before tells, with the state that is found, whether it took effect ([`NameIntent::judge`], [`AppendIntent::judge`]).
//!
//! Requests that are sent again while their session lives are not its business: those are told by their ids
//! ([`proto::repeats`](crate::proto::repeats)).
//!
//! | file | purpose |
//! |---|---|
//! | `note.rs` | the log's records: bytes <-> values |
//! | `table.rs` | what is remembered now, within bounds |
//! | `intent.rs` | what an intent without an outcome means |
//! | `given_range.rs` | the ranges of records that are appended |
//! | `recent.rs` | what this process alone remembers, within bounds |
//! | `underway.rs` | requests that are being carried out, and the names that are theirs meanwhile |
//! | `once.rs` | which requests are carried out, and when their notes count |
//! | `log.rs` | the log on a medium |

mod given_range;
mod intent;
mod log;
mod note;
mod once;
mod recent;
mod table;
mod underway;

pub use given_range::GivenRange;
pub use intent::{AppendIntent, Found, Lies, NameIntent, Outcome, Verdict};
pub use log::Log;
pub use note::{HEADER_BYTES, Header, NOTE_BYTES, Note, State};
pub use once::{BatchId, Begun, Once, ToNote, Writing};
pub use recent::{RECENT_BYTES, Recent};
pub use table::{Limits, Memory, NOBODY, Table};
pub use underway::Name;

use crate::wire::RequestOrigin;

/// What a request is known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The user in whose name it is carried out.
    pub uid: u32,
    /// The client process.
    pub client: [u8; 16],
    /// Its request.
    pub number: u64,
    /// Which of the requests that a forwarder makes of it.
    pub step: u16,
}

impl Key {
    /// The key of a user's request; `None` if it has no origin.
    pub fn of(uid: u32, origin: &RequestOrigin) -> Option<Key> {
        let RequestOrigin { client, number, step, .. } = *origin;
        origin.is_some().then_some(Key { uid, client, number, step })
    }
}

#[cfg(test)]
mod tests;
