//! Drives the core in virtual time: the same gate as the daemons, with a modelled device behind it.
//!
//! [`trace`] reads what arrived and when, [`replay`] plays it through a gate, [`placement`] says where on a
//! device a file lies. Nothing here reads a clock or touches storage: the same trace and settings give the same
//! dispatches at the same times, on every machine. `docs/replay.md` describes the formats.
#![forbid(unsafe_code)]

pub mod log;
pub mod placement;
pub mod replay;
pub mod trace;

pub use replay::{Backend, Dispatched, Replay, ReplayError, Totals};
pub use trace::{Row, TraceError, TraceReader};
