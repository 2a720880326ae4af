//! Elevators of a server: what of all that has been submitted to a device goes to it next.
//!
//! Pure machines below a cache (or a gate) and above a device. One is told of each request and of its end, and is asked by
//! [`Elevator::next`] what begins, whenever the device has room for something.
//!
//! What is said here of both: a request keeps its place on the device from when it is submitted on. Left out: merging (the gate and the
//! cache have joined what lies together), plugging, priorities, barriers, the processor time of an elevator.
//!
//! The numbers are in `parameters`, each with its source; none was chosen for the sake of a result.

mod deadline;
mod parameters;
mod slices;

use iogate_core::{Op, Span, Time};

pub use deadline::Deadline;
pub use parameters::PARAMETERS;
pub use slices::Slices;

/// Which elevator a server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElevatorConfig {
    /// As `deadline` of Linux.
    Deadline,
    /// As CFQ of Linux.
    Slices {
        /// Which thread submits what.
        threads: Threads,
        /// How long it waits for a thread's next request; zero: not at all.
        idle: Span,
    },
}

impl ElevatorConfig {
    /// CFQ as it comes.
    pub fn slices(threads: Threads) -> ElevatorConfig {
        ElevatorConfig::Slices { threads, idle: Span::from_millis(parameters::value("slices.idle_ms")) }
    }

    /// The elevator, with nothing in it.
    pub fn build(&self) -> Box<dyn Elevator + Send> {
        match *self {
            ElevatorConfig::Deadline => Box::new(Deadline::new()),
            ElevatorConfig::Slices { idle, .. } => Box::new(Slices::new(idle)),
        }
    }
}

/// Which thread of a server submits the transfers of a request. None of them knows an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// One of a pool, that which was idle last, as `nfsd`: `svc_xprt_enqueue` takes the first of a list, to whose head idle threads go.
    Request,
    /// One for each file.
    File,
}

/// A request to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Names it.
    pub id: u32,
    /// Read or write.
    pub op: Op,
    /// Whether somebody waits for it. A read counts as such in any case, read-ahead too.
    pub waited_for: bool,
    /// The thread that submits it.
    pub thread: u64,
    /// Its first byte on the device.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Entry {
    /// Whether it is synchronous in CFQ's sense.
    pub fn is_sync(&self) -> bool {
        self.op == Op::Read || self.waited_for
    }
}

/// What an elevator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This begins now.
    Begin(u32),
    /// Nothing before this time, if nothing comes or ends.
    WaitUntil(Time),
    /// Nothing until something comes or ends.
    Idle,
}

/// An elevator.
pub trait Elevator {
    /// Takes a request.
    fn add(&mut self, now: Time, entry: Entry);

    /// What begins on a device that has room; to be asked until nothing does.
    fn next(&mut self, now: Time) -> Choice;

    /// What it has let begin has ended.
    fn ended(&mut self, now: Time, entry: &Entry);
}
