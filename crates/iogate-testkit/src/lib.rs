//! What tests of a gate, a lock table and an allotter need: a reference to compare it with, operations to drive it with, and a harness.
//!
//! | module | purpose |
//! |---|---|
//! | [`mod@reference`] | a naive gate, a naive model of each scheduler, a naive lock table, a naive allotter: lists and linear scans, nothing clever |
//! | [`script`] | a gate's settings and a sequence of operations on it, printed a line each |
//! | [`generate`] | random scripts |
//! | [`harness`] | runs a script on a gate and the reference at once and compares every answer |
//! | [`audit`] | runs a script on a gate alone and checks what must hold for every scheduler |
//! | [`closed_loop`] | synchronous processes in front of gates, for worked examples written as tables |
//! | [`pair`] | a client's session and a server's, over connections in memory, as a script of bytes has it |
//! | [`ports`] | listens where another one of the test has listened before |
//! | [`turns`] | what clients of a coordinator saw, and whether that can have been right |
//! | [`data`] | what programs saw of files, and whether that can have been right |
//!
//! A development dependency only.
#![forbid(unsafe_code)]

pub mod audit;
pub mod closed_loop;
pub mod data;
pub mod generate;
pub mod harness;
pub mod pair;
pub mod ports;
pub mod reference;
pub mod script;
pub mod turns;
