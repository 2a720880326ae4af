//! What a coordinator must not forget: who holds what, who waits in which order, and which tokens were given.
//!
//! | module | purpose |
//! |---|---|
//! | `record` | what a journal consists of |
//! | `log` | a journal in files of one medium: a file that only grows, until it begins anew |

mod log;
mod record;

use alloc::vec::Vec;

pub use crate::medium::Medium;
pub use log::{Log, LogError, TOKENS_RESERVED};
pub use record::{ClaimRecord, HeldRecord, Record, SessionRecord, Sum, VERSION, admission_number};

/// What was in a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loaded {
    /// Sessions that have claims.
    pub sessions: Vec<SessionRecord>,
    /// Claims, in the order of their numbers.
    pub claims: Vec<ClaimRecord>,
    /// No larger token has been given.
    pub token: u64,
    /// No larger claim or session number has been given.
    pub number: u64,
    /// Turns may have been given that the journal does not know: none may be given before those have ended by themselves.
    pub is_incomplete: bool,
    /// What the clock that made its times added to the monotonic clock, in nanoseconds; `None` after a boot, or on another machine.
    pub clock_offset: Option<u64>,
}
