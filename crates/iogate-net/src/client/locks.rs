//! Locks of a file that is open on servers: which one has them, and whether they are still had where the data goes to others.
//!
//! The server on which a file was opened has its locks. While it is not reached, it may give them to somebody else in the end, and the
//! other servers know nothing of that. So once a lock of a file was asked for, and the connection to the one that has it was lost, that one
//! is asked before anything of the file goes to another one: it answers when locks have been asked for again, and if they are lost that
//! fails.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iogate_core::wire::{GetAttr, GetLock, Lock, Request, lock as kinds};

use super::call::{Answer, Call, Done, record};
use super::file::Opened;

/// Whether locks of a file were asked for, by whichever handle.
#[derive(Debug, Default)]
pub(super) struct Locked(AtomicBool);

/// When a handle was last known to be of use where the file's locks are: how many connections had been lost there.
#[derive(Debug)]
pub(super) struct Confirmed(AtomicU64);

impl Confirmed {
    /// The file was opened after so many losses, or is being opened.
    pub(super) fn at(losses: u64) -> Confirmed {
        Confirmed(losses.into())
    }
}

impl Opened {
    pub(super) fn set_lock(&self, lock: &Lock) -> io::Result<()> {
        if lock.kind != kinds::NONE {
            // Before it is asked for: whether what fails for the network was carried out is not known.
            self.unsynced.locked.0.store(true, Ordering::Release);
        }
        let handle = self.handle_on(self.first)?;
        self.servers.clients[self.first].set_lock(handle, lock, self.caller)
    }

    pub(super) fn get_lock(&self, lock: Lock) -> io::Result<Lock> {
        record(self.ask(self.caller, |handle| Request::GetLock(GetLock { handle, lock }))?)
    }

    fn losses(&self) -> u64 {
        self.servers.clients[self.first].losses()
    }

    /// See [`iogate_vfs::TreeFile::doubts_locks`].
    pub(super) fn doubts_locks(&self) -> bool {
        self.unsynced.locked.0.load(Ordering::Acquire)
            && self.confirmed.0.load(Ordering::Acquire) != self.losses()
    }

    /// See [`iogate_vfs::TreeFile::confirm_locks`].
    pub(super) fn confirm_locks(&self) -> io::Result<()> {
        let losses = self.losses();
        self.attr()?;
        self.confirmed.0.store(losses, Ordering::Release);
        Ok(())
    }

    /// As [`Opened::handle_on`], for a transfer.
    pub(super) fn sure_handle_on(&self, server: usize) -> io::Result<u32> {
        if server != self.first && self.doubts_locks() {
            self.confirm_locks()?;
        }
        self.handle_on(server)
    }

    /// As [`Opened::with_handle`], for a transfer.
    pub(super) fn with_sure_handle(
        self: &Arc<Self>,
        server: usize,
        then: impl FnOnce(io::Result<u32>) + Send + 'static,
    ) {
        if server == self.first || !self.doubts_locks() {
            return self.with_handle(server, then);
        }
        let (opened, losses) = (Arc::clone(self), self.losses());
        self.with_handle(self.first, move |handle| {
            let handle = match handle {
                Ok(handle) => handle,
                Err(error) => return then(Err(error)),
            };
            let (asks, caller) = (Arc::clone(&opened), opened.caller);
            let done = move |answer: io::Result<Answer>| match answer {
                Ok(_) => {
                    opened.confirmed.0.store(losses, Ordering::Release);
                    opened.with_handle(server, then);
                }
                Err(error) => then(Err(error)),
            };
            let request = Request::GetAttr(GetAttr { handle, path: b"" });
            asks.servers.clients[asks.first].start(Call::new(&request, caller, Done::Call(Box::new(done))));
        });
    }
}
