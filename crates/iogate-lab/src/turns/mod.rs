//! A coordinator, its clients, and what must hold of their turns.
//!
//! Clients of several users claim, renew, release, give up, and have turns taken away; the coordinator is killed and
//! its machine crashes, its disk is full or fails; clients are killed and stopped; connections end, also for one side
//! only. Then the faults end, and everybody must come to a turn.
//!
//! | module | purpose |
//! |---|---|
//! | `world` | time, events and the network |
//! | `server` | the coordinator's rounds, on the real [`Leader`](iogate_core::coord::leader::Leader) and [`Log`](iogate_core::coord::journal::Log) |
//! | `client` | what a client does next, which the library's own [`PendingClaim`](iogate_core::coord::claimant::PendingClaim), [`HeldTurn`](iogate_core::coord::claimant::HeldTurn) and [`Renewals`](iogate_core::coord::claimant::Renewals) decide |
//! | `planted` | defects that are put in on purpose |

mod client;
mod planted;
mod server;
mod world;

use std::fmt;

pub use self::planted::Planted;

/// What a run was like.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What made it.
    pub seed: u64,
    /// Events.
    pub events: u64,
    /// Turns that clients had.
    pub turns: u64,
    /// Times that the coordinator was killed, crashes of its machine included.
    pub kills: u64,
    /// Those crashes.
    pub crashes: u64,
    /// Rounds whose records the journal did not keep.
    pub failed_writes: u64,
    /// Connections.
    pub connections: u64,
    /// What must not be; empty: nothing was found.
    pub findings: Vec<String>,
    /// The last things that happened before the first finding, a line each.
    pub trail: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, events, turns, kills, crashes, failed_writes, connections, .. } = self;
        write!(
            f,
            "seed {seed}: {events} events, {turns} turns, {connections} connections, {kills} kills ({crashes} crashes), {failed_writes} failed writes, {} findings",
            self.findings.len()
        )?;
        self.trail.iter().chain(&self.findings).try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Runs the world of a seed to its end.
pub fn run(seed: u64, planted: Option<Planted>) -> Report {
    world::World::new(seed, planted).run()
}
