//! What a table counts.

use crate::time::Span;

/// Counts since the table was made (or restored).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CoordStats {
    /// Claims that came; one that is sent again, or refused, is not counted.
    pub claims: u64,
    /// Turns granted, all told.
    pub granted: u64,
    /// Of these: beside their own party.
    pub joined: u64,
    /// Of these: beside others, having waited as long as anybody must.
    pub overdue: u64,
    /// Turns that their holders gave back.
    pub released: u64,
    /// Turns that ended because they were not renewed.
    pub lost: u64,
    /// Turns that an administrator ended.
    pub evicted: u64,
    /// Claims that were cancelled while they waited, or whose client said that it ends.
    pub cancelled: u64,
    /// Claims that ended while they waited because their client was gone for a lease.
    pub abandoned: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Times that the driver was so late that all had time to come back.
    pub leaps: u64,
    /// How long claims waited for their turns, added up.
    pub waited: Span,
    /// How long turns that are over lasted, added up.
    pub held: Span,
    /// Bytes that clients said they moved in their turns.
    pub bytes: u64,
}
