//! The coordination of iogate in a simulated world of faults: the machines that decide are the real ones, what they run on is modelled.
//!
//! A run is made from a seed and nothing else, so what it finds can be seen again. Which faults there are, and how often, is drawn from the seed, too.
//!
//! | part | real | modelled |
//! |---|---|---|
//! | coordinator | its [`Leader`](iogate_core::coord::leader::Leader), its [`Log`](iogate_core::coord::journal::Log) | its rounds, its [`Disk`] |
//! | clients | all of their [`claimant`](iogate_core::coord::claimant): claims, turns, renewals | what they want, and for how long |
//! | network | every byte of requests and answers | delays, connections that end, half-open ones |
//!
//! | module | purpose |
//! |---|---|
//! | [`disk`] | what a kill and a crash of the machine leave of files |
//! | [`turns`] | a coordinator, its clients, and what must hold of their turns |
#![forbid(unsafe_code)]

pub mod disk;
pub mod turns;

pub use disk::Disk;
