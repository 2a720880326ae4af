//! The parts of iogate that other machines depend on, in simulated worlds of faults: what decides is real, what it runs on is modelled.
//!
//! A run is made from a seed and nothing else, so what it finds can be seen again. Which faults there are, and how
//! often, is drawn from the seed, too.
//!
//! | part | real | modelled |
//! |---|---|---|
//! | coordinator | its [`Leader`](iogate_core::coord::leader::Leader), its [`Log`](iogate_core::coord::journal::Log) | its rounds, its [`Disk`] |
//! | its clients | all of their [`claimant`](iogate_core::coord::claimant): claims, turns, renewals | what they want, and for how long |
//! | servers | their [`ServerSession`](iogate_core::proto::server_session::ServerSession)s, the [`Ends`](iogate_vfs::ends::Ends) of files | what they remember, their file systems |
//! | their clients | their [`ClientSession`](iogate_core::proto::client_session::ClientSession)s, what is [`Unsynced`](iogate_core::unsynced::Unsynced) | programs, which block in [fibers](fiber) |
//! | the server of NFS | its [`Front`](iogate_nfs::Front): calls, handles, procedures, open files, repeated calls; its [`Answers`](iogate_vfs::answers::Answers), its [`Engine`](iogate_engine::Engine) | its file system, its threads |
//! | its clients | the bytes of their calls | what a kernel does: repeat calls, keep what is not committed |
//! | network | every byte of requests and answers | delays, connections that end, half-open ones, what a server has not read |
//!
//! | module | purpose |
//! |---|---|
//! | [`agenda`] | what all worlds share: events in their order, what happened before a finding |
//! | [`disk`] | what a kill and a crash of the machine leave of a journal |
//! | [`fiber`] | programs that block, of which one runs at a time |
//! | [`scale`] | a large cluster at the level of messages |
//! | [`turns`] | a coordinator, its clients, and what must hold of their turns |
//! | [`data`] | servers, programs that use their files, and what must hold of what these see |
//! | [`nfs`] | a server of NFS, its clients, and what must hold of what these are answered |
#![deny(unsafe_code)]

pub mod agenda;
pub mod data;
pub mod disk;
pub mod fiber;
pub mod nfs;
pub mod scale;
pub mod turns;

pub use disk::Disk;
