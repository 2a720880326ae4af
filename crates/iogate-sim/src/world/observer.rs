//! What an onlooker of a run is told, as it happens: for timelines and trace exports.

use iogate_core::{AppId, FileId, Op, Time};

/// Looks on.
pub trait Observer {
    /// A request has entered the gate of a server, or waits in front of it because it is full.
    fn arrived(&mut self, arrived: &Arrived) {
        let _ = arrived;
    }

    /// A server's device has been handed a dispatch. On each server these come in the order in which it serves them.
    fn served(&mut self, served: &Served) {
        let _ = served;
    }

    /// The same of what a page cache writes back after the last application's end, which is beyond the run.
    fn served_late(&mut self, served: &Served) {
        let _ = served;
    }

    /// A process has ended a phase.
    fn phase(&mut self, phase: &Phase) {
        let _ = phase;
    }
}

/// Sees nothing.
impl Observer for () {}

/// One request at one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Which server.
    pub server: u32,
    /// The application.
    pub app: AppId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte, in the server's part of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// When.
    pub time: Time,
}

/// One dispatch on one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which server.
    pub server: u32,
    /// The application of its first request.
    pub app: AppId,
    /// The file.
    pub file: FileId,
    /// Read or write.
    pub op: Op,
    /// First byte, in the server's part of the file.
    pub offset: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// Requests in it; 0 for what a page cache fetches or writes back, which is of no request.
    pub requests: u32,
    /// When the device began it.
    pub start: Time,
    /// When it was complete.
    pub end: Time,
}

/// A stretch of time that a process spent in one way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The application.
    pub app: AppId,
    /// The rank of the process.
    pub rank: u32,
    /// Whether it did I/O, or computed.
    pub io: bool,
    /// From when.
    pub start: Time,
    /// Until when.
    pub end: Time,
}
