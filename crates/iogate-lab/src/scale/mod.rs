//! A large cluster at the level of messages: the sessions are the real ones, and no byte of data is there.
//!
//! Each client opens a file at its forwarder, writes it piece by piece, syncs and closes it. A forwarder asks the file's server of names
//! when a file is opened, passes each write on to the server that has those stripes, and a sync to all that were written to. With
//! `restarts` each forwarder and each server is killed once, and starts again without its sessions.
//!
//! | file | purpose |
//! |---|---|
//! | `mod.rs` | what is simulated, and what is told of it |
//! | `nodes.rs` | clients, forwarders and servers |
//! | `policy.rs` | one policy over many gates |
//! | `world.rs` | time, messages, restarts |

mod nodes;
pub mod policy;
mod world;

use std::fmt;

/// How large it is.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Clients; each has one file.
    pub clients: u32,
    /// Forwarders: client `n` uses the one with this remainder.
    pub forwarders: u32,
    /// Data servers; each file's names are on one of them.
    pub servers: u32,
    /// Writes of each client.
    pub writes: u32,
    /// Each forwarder and each server is killed once.
    pub restarts: bool,
    /// What times are drawn from.
    pub seed: u64,
}

impl Default for Scale {
    fn default() -> Scale {
        Scale { clients: 100_000, forwarders: 64, servers: 256, writes: 8, restarts: true, seed: 1 }
    }
}

/// The nodes of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kind {
    /// How many.
    pub nodes: u64,
    /// Messages that they sent, connecting included.
    pub sent: u64,
    /// Messages that came.
    pub received: u64,
    /// The most that came to one of them.
    pub received_max: u64,
    /// Memory that they had together when half of the clients had come to their end, in bytes.
    pub bytes: u64,
}

/// What a run was like.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The nodes: clients, forwarders, servers.
    pub kinds: [Kind; 3],
    /// Messages in all.
    pub events: u64,
    /// Sessions that began anew.
    pub renewed: u64,
    /// Simulated time, in nanoseconds.
    pub time: u64,
    /// Requests of clients that failed: none may, as all can be repeated.
    pub failed: u64,
    /// Clients that came to their end.
    pub done: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| nodes | how many | messages sent | received | most received by one | memory of one |"
        )?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for (name, kind) in ["clients", "forwarders", "servers"].iter().zip(&self.kinds) {
            let Kind { nodes, sent, received, received_max, bytes } = kind;
            let each = bytes / nodes.max(&1);
            writeln!(f, "| {name} | {nodes} | {sent} | {received} | {received_max} | {each} B |")?;
        }
        let Report { events, renewed, time, failed, done, .. } = self;
        let seconds = *time as f64 / 1e9;
        write!(
            f,
            "\n{done} clients came to their end in {seconds:.1} s of simulated time, {events} events, {renewed} sessions began anew, {failed} requests failed"
        )
    }
}

/// Runs a cluster to its end. `memory` says how many bytes the process has allocated: where it is known, the cluster is first run to its
/// middle, and weighed.
pub fn run(scale: &Scale, memory: Option<fn() -> u64>) -> Report {
    let weights = memory.map_or([0; 3], |memory| world::World::new(scale).weigh(memory));
    let mut report = world::World::new(scale).run();
    for (kind, bytes) in report.kinds.iter_mut().zip(weights) {
        kind.bytes = bytes;
    }
    report
}
