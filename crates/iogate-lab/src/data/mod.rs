//! Servers, programs that use their files, and what must hold of what these see.
//!
//! There is one server with all files, or one with names and others with stripes, over which each program's process has the real
//! [`StripedTree`](iogate_vfs::StripedTree). Programs write, append, truncate, replace and sync; servers are killed and
//! stopped, their machines crash, their disks are full or fail; programs are killed; connections end, also for one side
//! only. Then the faults end, everything must be answered, and be there.
//!
//! | module | purpose |
//! |---|---|
//! | `world` | what there is, what goes wrong, and whose turn it is |
//! | `network` | time, events, the network, what has happened |
//! | `server`, `operations` | a server, on the real [`ServerSession`](iogate_core::proto::server_session::ServerSession); what it does with a request |
//! | `ends` | of a server of names: who may use the ends of files, by the real [`Ends`](iogate_vfs::ends::Ends) |
//! | `client`, `remote` | a client, on the real [`ClientSession`](iogate_core::proto::client_session::ClientSession); its files as a [`Tree`](iogate_vfs::Tree) |
//! | `disk`, `sim_tree`, `store` | a naive file system, and what a crash leaves of it |
//! | `program`, `contents` | what programs do; what they write |
//! | `planted` | defects that are put in on purpose |

mod client;
mod contents;
pub(crate) mod disk;
mod ends;
mod network;
mod operations;
mod planted;
mod program;
mod remote;
mod server;
mod sim_tree;
pub(crate) mod store;
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
    /// Calls of programs that were answered well.
    pub calls: u64,
    /// Those that failed.
    pub failed_calls: u64,
    /// Times that a server was killed, crashes of its machine included.
    pub kills: u64,
    /// Those crashes.
    pub crashes: u64,
    /// Connections.
    pub connections: u64,
    /// What must not be; empty: nothing was found.
    pub findings: Vec<String>,
    /// The last things that happened before the first finding, a line each.
    pub trail: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, events, calls, failed_calls, kills, crashes, connections, .. } = self;
        write!(
            f,
            "seed {seed}: {events} events, {calls} calls and {failed_calls} that failed, {connections} connections, {kills} kills ({crashes} crashes), {} findings",
            self.findings.len()
        )?;
        self.trail.iter().chain(&self.findings).try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Runs the world of a seed to its end.
pub fn run(seed: u64, planted: Option<Planted>) -> Report {
    world::run(seed, planted)
}
