//! Drives the core in virtual time: the same gates as the daemons, with modelled devices behind them.
//!
//! | module | purpose |
//! |---|---|
//! | [`scenario`] | what to simulate: a cluster, applications, faults, sweeps (`docs/scenarios.md`) |
//! | [`experiment`] | all runs of a scenario and its sweep, in parallel |
//! | [`workload`] | what each process of an application does, step by step |
//! | [`cache`] | the page cache of a server or a client |
//! | [`elevator`] | what of all that was submitted to a device goes to it next |
//! | [`batch`] | which applications run when, on which nodes |
//! | [`striping`] | how a call is cut into requests to the servers |
//! | [`world`] | a run: events, network, nodes with their gates, processes |
//! | [`result`] | what a run did |
//! | [`metrics`], [`stat`] | what is measured of a run, and means with confidence intervals |
//! | `call_times` | how long calls took: counts by length |
//! | [`trace`], [`replay`], [`log`] | a trace of arrivals through one gate (`docs/replay.md`) |
//! | `serving` | a gate in front of one device, for drivers of closed-loop clients |
//! | [`choice`] | how good the automatic choice of a scheduler is |
//! | [`advise`] | which scheduler would have suited a trace |
//! | [`learnt`] | what was learnt of a storage, as text |
//! | [`profile`] | what storage charges, as text; devices named by it |
//! | [`record`] | arrivals and completions as a trace |
//! | [`rng`] | seeded random numbers |
//! | `by_number` | values by number, few of them large |
//! | `slab` | values in reusable slots, named by small numbers |
//! | [`tree`] | decision trees, learnt from examples |
//!
//! Nothing here reads a clock or touches storage: the same scenario and seed give the same result, on every machine.
#![forbid(unsafe_code)]

pub mod advise;
pub mod batch;
mod by_number;
pub mod cache;
mod call_times;
pub mod choice;
pub mod elevator;
pub mod experiment;
pub mod learnt;
pub mod log;
pub mod metrics;
pub mod profile;
pub mod record;
pub mod replay;
pub mod result;
pub mod rng;
pub mod scenario;
mod serving;
mod slab;
pub mod stat;
pub mod striping;
pub mod trace;
pub mod tree;
pub mod workload;
pub mod world;

pub use replay::{Backend, Dispatched, Replay, ReplayError, Totals};
pub use trace::{Row, TraceError, TraceReader};
