//! The loop around a gate: clock, submit / next / complete, results.

use std::io;
use std::sync::Arc;

use iogate_core::{AppId, ClientId, GateConfig, Op, SchedulerConfig, Time};

use crate::store::{FileHandle, Store};

/// Settings of an [`Engine`].
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The gate's settings.
    pub gate: GateConfig,
}

/// Who sends a request, for the schedulers that care.
#[derive(Clone, Copy, Debug, Default)]
pub struct Origin {
    /// The application; 0 is unknown.
    pub app: AppId,
    /// The client; 0 is unknown.
    pub client: ClientId,
    /// When it was issued, on the client's clock (nanoseconds since the Unix epoch).
    pub issued: Option<Time>,
}

/// One request with the memory that it reads into or writes from.
#[derive(Debug)]
pub struct Transfer {
    /// The open file.
    pub file: FileHandle,
    /// Read or write.
    pub op: Op,
    /// First byte in the file.
    pub offset: u64,
    /// The memory: first byte.
    pub memory: *mut u8,
    /// The memory: length, and so the length of the request. Not zero.
    pub bytes: u32,
    /// Who sent it.
    pub origin: Origin,
}

/// Called once with the number of bytes transferred (fewer than asked for at the end of a file, or when a device
/// is full) or the store's error. May run in the submitting thread, before `submit` returns, or in any other; it
/// must not block.
pub type Completion = Box<dyn FnOnce(io::Result<usize>) + Send>;

/// Why a transfer was not taken; its completion is not called.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// The engine is shutting down.
    #[error("the gate is closed")]
    Closed,
    /// The gate refused the request as malformed.
    #[error(transparent)]
    Rejected(#[from] iogate_core::Rejected),
}

/// A gate, its clock and its store.
pub struct Engine {
    _todo: Arc<dyn Store>,
}

impl Engine {
    /// Starts an engine over a store.
    pub fn new(_config: &EngineConfig, _store: Arc<dyn Store>) -> io::Result<Arc<Engine>> {
        todo!()
    }

    /// Submits a transfer. Blocks while the gate is full (back-pressure).
    ///
    /// # Safety
    /// `transfer.memory` must be valid for `transfer.bytes` bytes (reads, or reads and writes for `Op::Read`),
    /// and not touched by anybody else, until the completion has been called.
    pub unsafe fn submit(
        self: &Arc<Self>,
        _transfer: Transfer,
        _done: Completion,
    ) -> Result<(), SubmitError> {
        todo!()
    }

    /// Reads in the calling thread's name and waits for it. Fewer bytes than asked for: end of file.
    pub fn read_at(
        self: &Arc<Self>,
        _file: &FileHandle,
        _origin: Origin,
        _offset: u64,
        _buffer: &mut [u8],
    ) -> io::Result<usize> {
        todo!()
    }

    /// Writes in the calling thread's name and waits for it.
    pub fn write_at(
        self: &Arc<Self>,
        _file: &FileHandle,
        _origin: Origin,
        _offset: u64,
        _bytes: &[u8],
    ) -> io::Result<usize> {
        todo!()
    }

    /// Changes the algorithm, live.
    pub fn switch(&self, _scheduler: &SchedulerConfig) -> Result<(), iogate_core::sched::ConfigError> {
        todo!()
    }

    /// Looks at the gate (statistics, settings, length) under its lock: be quick.
    pub fn with_gate<R>(&self, _look: impl FnOnce(&iogate_core::Gate, Time) -> R) -> R {
        todo!()
    }

    /// Takes no more, completes what was accepted, stops the engine's threads.
    pub fn shutdown(&self) {
        todo!()
    }
}
