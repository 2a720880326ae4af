//! The algorithms, a file each, and their settings.
//!
//! A scheduler sits behind a gate and only ever sees requests that may run now; in which order is its one
//! decision. All of them are complete (each request is dispatched once). Costs are per request, with n requests
//! queued in q queues (a queue: one file, one operation):
//!
//! | scheduler | insert | select | dispatch | longest wait |
//! |---|---|---|---|---|
//! | [`fifo`] | O(1) | O(1) | one request | what is queued ahead |
//! | [`to_agg`] | O(1) | O(1) | the run around the oldest request | what is queued ahead |
//! | [`sjf`] | O(log q) | O(log q) | a run | `age_max` and what has aged before |
//! | [`mlf`], [`aioli`] | O(log q) | O(log q) | a run | `age_max` and what has aged before |
//! | [`hbrr`] | O(1) | O(1) | a run | `age_max` and a round |
//! | [`app_window`], [`server_window`] | O(log g), g groups | O(log g) | one request | what earlier windows and this one hold |
//! | [`twins`] | O(log t), t targets | O(log t) | one request | `age_max` and what has aged before |
//!
//! A driver can bring one of its own ([`Own`]). What `aioli` and `mlf` wait for is of a fixed length, or priced (`priced`, by
//! [`think`] and [`Prices`]).
//!
//! The gate's own index of byte ranges adds O(log n) to each.

mod arrival;
mod config;
mod groups;
mod own;
mod priced;
mod prices;
mod quantum;

pub mod aioli;
pub mod app_window;
pub mod fifo;
pub mod hbrr;
pub mod mlf;
pub mod param;
pub mod server_window;
pub mod sjf;
pub mod think;
pub mod to_agg;
pub mod twins;

use alloc::boxed::Box;

pub use config::{ConfigError, SchedulerConfig, SchedulerKind};
pub(crate) use own::Adapter;
pub use own::{Choice, Own, Waiting};
pub use param::{Param, ParamUnit};
pub use prices::{Prices, WHOLE};

use crate::queue::{Pending, QueueId, RunCap, SlotId};
use crate::time::Time;
use crate::wait::WaitReason;

/// What a scheduler wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pick {
    /// Carry out what it has taken (`Pending::take`).
    Dispatch,
    /// Nothing before this time, unless something arrives or completes.
    WaitUntil(Time, WaitReason),
    /// Nothing before this time, unless something arrives for this target (`None`: it is not known for which), whose window it is.
    Window(Time, Option<u16>),
    /// Nothing is queued.
    Idle,
}

/// One algorithm.
pub(crate) trait Scheduler: Send {
    /// A request may run now; it is in its queue already.
    fn insert(&mut self, now: Time, slot: SlotId, pending: &mut Pending);

    /// Takes what is to be dispatched next, if anything. Called only while something is queued.
    /// Without `patience` (the gate is draining) it does not wait for what may still come.
    fn pick(&mut self, now: Time, patience: bool, pending: &mut Pending) -> Pick;

    /// A dispatch of this queue that ended at `end` has completed.
    fn completed(&mut self, _now: Time, _queue: QueueId, _end: u64, _pending: &Pending) {}

    /// Most dispatches that it wants in service at once.
    fn depth_max(&self) -> u32 {
        u32::MAX
    }

    /// Whether requests are to be split at stripe boundaries.
    fn splits(&self) -> bool {
        false
    }

    /// Whether it asks for requests of one target ([`Pick::Window`]).
    fn has_windows(&self) -> bool {
        false
    }

    /// The record of this file now stands for another file.
    fn forget(&mut self, _file: u32) {}

    /// Why it dispatches no more, if something is wrong with it.
    fn fault(&self) -> Option<&str> {
        None
    }

    /// Bytes of memory in use.
    fn allocated_bytes(&self) -> usize;
}

impl SchedulerConfig {
    pub(crate) fn build(&self) -> Box<dyn Scheduler> {
        match self.kind() {
            SchedulerKind::Fifo => Box::new(fifo::Fifo::default()),
            SchedulerKind::ToAgg => Box::new(to_agg::ToAgg::new(self)),
            SchedulerKind::Sjf => Box::new(sjf::Sjf::new(self)),
            SchedulerKind::Mlf => Box::new(mlf::new(self)),
            SchedulerKind::Aioli => Box::new(aioli::new(self)),
            SchedulerKind::Hbrr => Box::new(hbrr::Hbrr::new(self)),
            SchedulerKind::AppWindow => Box::new(app_window::AppWindow::new(self)),
            SchedulerKind::ServerWindow => Box::new(server_window::ServerWindow::new(self)),
            SchedulerKind::Twins => Box::new(twins::Twins::new(self)),
        }
    }

    fn run_cap(&self) -> RunCap {
        RunCap {
            bytes: self.value(&param::RUN_BYTES_MAX),
            requests: self.value(&param::RUN_REQUESTS_MAX) as u32,
        }
    }
}
