//! The pure core of iogate: everything that *decides*, and nothing that acts.
//!
//! A [`Gate`] receives [`Request`]s and says, when asked, what to carry out next. It has no clock, thread,
//! socket, file or source of randomness of its own: time is an argument, and the same calls give the same
//! answers, bit for bit. The crate is built for a bare target in CI, so the compiler keeps it that way.
//!
//! | module | purpose |
//! |---|---|
//! | [`time`] | points and spans of time, in nanoseconds |
//! | [`units`] | quantities as people write them |
//! | [`request`] | what arrives at a gate, and the identifiers in it |
//! | [`layout`] | which target of a striped store holds a byte |
//! | [`gate`] | the scheduling point: ordering, one scheduler, statistics |
//! | `queue` | what is queued in a gate, indexed by byte range; gate and schedulers share it |
//! | [`sched`] | the algorithms, a file each |
//! | [`wait`] | why a gate that has requests dispatches none |
//! | [`stats`] | what a gate counts, in bounded memory |
//! | [`blame`] | who slows whom down: what applications wait for in a gate |
//! | [`auto`] | which scheduler: what could have been, simulated from what was |
//! | [`coord`] | turns of applications: a coordinator's lock table, its sessions and its journal, and backing off without one |
//! | [`policy`] | who is entitled to how much of what a gate serves: weights, floors, caps |
//! | [`global_policy`] | one policy over many gates: caps and totals as rates that are granted for a while |
//! | [`recording`] | what arrives and completes at a gate, for somebody who reads it |
//! | [`refusal`] | why something is refused: an errno and a text |
//! | [`device`] | models of disks and flash |
//! | [`profile`] | what a device or a storage charges, measured: tables of costs, and a device made from them |
//! | [`fair_queue`] | who goes next where many share few threads, or little memory |
//! | [`ends`] | who may append to a striped file, or set its size: one at a time |
//! | [`file_locks`] | locks of files among the clients of a server: of bytes, and of open files |
//! | [`glob`] | patterns of names and of paths |
//! | [`hash`] | hash maps that depend on nothing but their keys |
//! | `heap` | priority queues of indices whose keys change, for schedulers and policies |
//! | [`medium`] | where logs lie: files that are replaced whole and appended to |
//! | [`answers`] | what a server remembers of requests over its own restart, so that none is carried out twice |
//! | [`wire`] | the protocol of clients, forwarders and data servers: bytes to values and back |
//! | [`unsynced`] | what a client has written and not made durable, and whether it is lost |
//! | [`removals`] | objects of removed files, which wait until the removal is durable |
//! | [`proto`] | the rules of sessions: which requests are sent again, carried out, answered from memory |
//! | [`reserved`] | names in an export that are iogate's own |
//! | [`nearest`] | what a mistyped name was probably meant to be |
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod answers;
pub mod auto;
pub mod blame;
pub mod coord;
pub mod device;
pub mod ends;
pub mod fair_queue;
pub mod file_locks;
pub mod gate;
pub mod glob;
pub mod global_policy;
pub mod hash;
mod heap;
pub mod layout;
pub mod medium;
pub mod nearest;
pub mod policy;
pub mod profile;
pub mod proto;
mod queue;
pub mod recording;
pub mod refusal;
pub mod removals;
pub mod request;
pub mod reserved;
pub mod sched;
pub mod stats;
pub mod time;
pub mod units;
pub mod unsynced;
pub mod wait;
pub mod wire;

pub use gate::{Decision, Dispatch, DispatchId, Gate, GateConfig, Outcome, Part, Rejected};
pub use layout::{Extent, FileLayout, Layout};
pub use request::{AppId, BurstSize, ClientId, FileId, Op, Request, RequestId, TargetId};
pub use sched::{SchedulerConfig, SchedulerKind};
pub use time::{Span, Time};
pub use wait::WaitReason;
