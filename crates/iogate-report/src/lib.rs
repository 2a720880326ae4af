//! Results as people and programs read them: terminal tables, JSON, CSV, one self-contained HTML page.
//!
//! | module | purpose |
//! |---|---|
//! | [`run`] | one run: a summary with its device, its applications and its timeline; several make a report |
//! | [`timeline`] | who was served when, in bounded memory |
//! | [`experiment`] | many runs: what was measured at each point of a sweep, with confidence intervals |
//! | [`recording`], [`perfetto`] | onlookers of a run: its timeline in bounded memory, its trace for a viewer |
//! | [`partial`] | runs of a part of an experiment, kept as they are done, and joined |
//! | [`status`], [`comparison`] | a gate, and runs, for a terminal |
//! | [`html`] | the same as a page with pictures |
//! | [`live`] | what applications get now, for those who look on |
//! | [`metrics`] | what monitoring is told of mounts and servers, as OpenMetrics |
//! | [`why`] | who slows an application down |
//! | [`claims`], [`reproduction`] | published statements beside ours, and pages of them |
//! | [`units`] | quantities for people |
//! | `table` | aligned text |
//! | `slots` | time cut into slots of one length, which doubles when a run outgrows them |
//!
//! Every result is a serde type, so that JSON has all of it; the other forms show what matters most.
#![forbid(unsafe_code)]

pub mod claims;
pub mod comparison;
pub mod experiment;
pub mod html;
pub mod live;
pub mod metrics;
pub mod partial;
pub mod perfetto;
pub mod recording;
pub mod reproduction;
pub mod run;
mod slots;
pub mod status;
mod table;
pub mod timeline;
pub mod units;
pub mod why;

pub use experiment::ExperimentReport;
pub use perfetto::Perfetto;
pub use recording::Recording;
pub use run::{AppResult, Report, Run};
pub use table::Table;
pub use timeline::Timeline;
