//! The interface of AGIOS over the gate: `include/agios.h` says what its functions promise, `docs/agios.md` what differs.
//!
//! Written from the interface that AGIOS publishes, without its code.

mod config;
#[allow(unreachable_pub, reason = "C programs reach them")]
mod functions;
mod library;
mod metrics;
