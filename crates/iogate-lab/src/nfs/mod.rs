//! A server of NFS on a machine that crashes, its clients, and what must hold of what these are answered.
//!
//! Clients make, rename and remove names of their own, and write blocks of files of their own and of one that they share, durably or not;
//! what has no answer they send again, and what was not committed they keep, as kernels do. Messages are lost and connections cut, the
//! server is killed between any two calls of the system, its machine crashes, its disk fails. Then the faults end, everything must be
//! answered; the machine crashes once more, and what was committed must be there.
//!
//! Real are the bytes of calls and answers, and all of the server behind its sockets: [`Front`](iogate_nfs::Front) with its handles,
//! procedures, open files and repeated calls, the [`Answers`](iogate_vfs::answers::Answers) with their log, the gate
//! ([`Engine`](iogate_engine::Engine)). Modelled are its threads, which are fibers that part at each call of the system; sockets, and how
//! much a client may have underway; the file system below it, in place of [`DirectoryTree`](iogate_vfs::DirectoryTree); clients. Handles
//! are the kernel's: the table of names for those who are not root is not used here, nor are links, listings, permissions and groups.
//!
//! A kill between a failed sync and its note is left out: the next process cannot know of it.
//!
//! Clients have little patience: a call is sent again while the first copy of it is underway or being carried out, so that copies arrive
//! behind what their client does after the answer. A WRITE among them that is carried out again undoes a later one.
//!
//! | module | purpose |
//! |---|---|
//! | `world` | time, messages, what goes wrong, and whose turn it is |
//! | `server` | the process of the server: who works in it, and what it keeps beside the files |
//! | `tree` | the files of its machine, as that process sees them |
//! | `client` | a client's calls, until they are answered |
//! | `program` | what is done with files and names |
//! | `planted` | defects that are put in on purpose |
//! | `blocks` | what may be in a block of a file, and which verifiers there may be |

mod blocks;
mod client;
mod planted;
mod program;
mod server;
mod tree;
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
    /// Calls of clients that were answered.
    pub calls: u64,
    /// Times that one of them was sent again.
    pub repeats: u64,
    /// Blocks that were sent again for another verifier.
    pub sent_again: u64,
    /// Times that the server was killed, crashes of its machine included.
    pub kills: u64,
    /// Those crashes.
    pub crashes: u64,
    /// What must not be; empty: nothing was found.
    pub findings: Vec<String>,
    /// The last things that happened before the first finding, a line each.
    pub trail: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { seed, events, calls, repeats, sent_again, kills, crashes, findings, trail } = self;
        write!(
            f,
            "seed {seed}: {events} events, {calls} calls, sent again {repeats} times, {sent_again} blocks written again, \
             {kills} kills ({crashes} crashes), {} findings",
            findings.len()
        )?;
        trail.iter().chain(findings).try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Runs the world of a seed to its end.
pub fn run(seed: u64, planted: Option<Planted>) -> Report {
    world::run(seed, planted)
}
