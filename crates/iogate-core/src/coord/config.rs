//! The rules of a coordinator's table.

use crate::time::Span;

/// Who is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// First come, first served (the thesis, section 3.2.1).
    #[default]
    Fcfs,
    /// The fewest bytes first; a claim counts as if it had `ageing` bytes less for each second that it has waited, so
    /// that the largest comes too.
    Shortest {
        /// Bytes per second.
        ageing: u64,
    },
    /// Parties share the time that they hold targets in proportion to their weights.
    Weighted,
    /// Set-10: jobs form sets by the order of magnitude of their I/O period (seconds, base 10); within a set one holds a target at a time, first
    /// come first served; sets hold it side by side, and the grant says the share of the throughput, which favours short periods.
    /// Source: F. Boito, G. Pallez, L. Teylo, N. Vidal, *IO-SETS: Simple and Efficient Approaches for I/O Bandwidth Management*, IEEE
    /// TPDS 34(10), 2023.
    Sets,
}

/// Whether a claim may pass those who came before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Passing {
    /// One that waits blocks later ones on every target that they share.
    #[default]
    Preserve,
    /// A claim whose targets are all free goes ahead of those that wait for others.
    Relaxed,
}

/// The rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordConfig {
    /// Who is next.
    pub order: Order,
    /// Who may pass.
    pub passing: Passing,
    /// With [`Passing::Relaxed`]: who has waited this long is let in although others hold its targets.
    pub block_max: Span,
    /// Parties that may hold a target at a time (of each set with [`Order::Sets`]); at least 1.
    pub slots: u32,
    /// How long a holder counts as one without renewing, and a client that is gone keeps its place.
    pub lease: Span,
    /// How long, while others wait, a party that holds targets takes in more claims of its own; then they queue.
    pub join: Span,
    /// Most claims, waiting and held.
    pub claims_max: usize,
}

impl Default for CoordConfig {
    fn default() -> CoordConfig {
        CoordConfig {
            order: Order::Fcfs,
            passing: Passing::Preserve,
            block_max: Span::from_secs(600),
            slots: 1,
            lease: Span::from_secs(10),
            join: Span::from_secs(30),
            claims_max: 1 << 20,
        }
    }
}
