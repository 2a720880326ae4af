//! Locks of a file that is open on servers: which one has them, and whether they are still had where the data goes to others.
//!
//! The server on which a file was opened has its locks. While it is not reached it gives them to somebody else in the end, after a minute
//! without this client, and the other servers know nothing of that. So what goes to another one does so only within a few seconds of a word
//! from the server that has the locks, and over the same connection: else that one is asked first. It answers when locks have been asked
//! for again, and if they are lost that fails. So nothing begins once the lock may be another's, even if this process was stopped for
//! long.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use iogate_core::wire::{GetAttr, GetLock, Lock, Request, lock as kinds};
use iogate_core::{Span, Time};

use super::Client;
use super::call::{Answer, Call, Done, record};
use super::file::Opened;

/// How long a word of the server that has the locks counts. Much shorter than servers keep sessions without a connection, so that what
/// has begun by then is over before the lock may be another's.
const COUNTS_FOR: Span = Span::from_secs(5);

/// Whether locks of a file were asked for, by whichever handle.
#[derive(Debug, Default)]
pub(super) struct Locked(AtomicBool);

/// When a handle was last known to be of use where the file's locks are.
#[derive(Debug)]
pub(super) struct Confirmed {
    /// How many connections had been lost there.
    losses: AtomicU64,
    /// When that was asked.
    asked: AtomicU64,
}

/// A question that is about to be asked, or was.
#[derive(Clone, Copy)]
pub(super) struct Question {
    losses: u64,
    asked: Time,
}

impl Confirmed {
    /// The file was opened.
    pub(super) fn by(question: Question) -> Confirmed {
        Confirmed { losses: question.losses.into(), asked: question.asked.as_nanos().into() }
    }

    /// It was answered.
    fn answered(&self, question: Question) {
        self.asked.store(question.asked.as_nanos(), Ordering::Relaxed);
        self.losses.store(question.losses, Ordering::Release);
    }

    /// Whether what was answered counts now.
    fn counts(&self, now: Question) -> bool {
        self.losses.load(Ordering::Acquire) == now.losses
            && now.asked.since(Time::from_nanos(self.asked.load(Ordering::Relaxed))) < COUNTS_FOR
    }
}

impl Question {
    /// To be asked of a server now.
    pub(super) fn of(client: &Client) -> Question {
        Question { losses: client.losses(), asked: client.now() }
    }
}

impl Opened {
    pub(super) fn set_lock(&self, lock: &Lock) -> io::Result<()> {
        if lock.kind != kinds::NONE {
            // Before it is asked for: whether what fails for the network was carried out is not known.
            self.unsynced.locked.0.store(true, Ordering::Release);
        }
        let question = self.question();
        let handle = self.handle_on(self.first)?;
        self.servers.clients[self.first].set_lock(handle, lock, self.caller)?;
        self.confirmed.answered(question);
        Ok(())
    }

    pub(super) fn get_lock(&self, lock: Lock) -> io::Result<Lock> {
        record(self.ask(self.caller, |handle| Request::GetLock(GetLock { handle, lock }))?)
    }

    fn question(&self) -> Question {
        Question::of(&self.servers.clients[self.first])
    }

    /// See [`iogate_vfs::TreeFile::doubts_locks`].
    pub(super) fn doubts_locks(&self) -> bool {
        self.unsynced.locked.0.load(Ordering::Acquire) && !self.confirmed.counts(self.question())
    }

    /// See [`iogate_vfs::TreeFile::confirm_locks`].
    pub(super) fn confirm_locks(&self) -> io::Result<()> {
        let question = self.question();
        self.attr()?;
        self.confirmed.answered(question);
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
        let (opened, question) = (Arc::clone(self), self.question());
        self.with_handle(self.first, move |handle| {
            let handle = match handle {
                Ok(handle) => handle,
                Err(error) => return then(Err(error)),
            };
            let (asks, caller) = (Arc::clone(&opened), opened.caller);
            let done = move |answer: io::Result<Answer>| match answer {
                Ok(_) => {
                    opened.confirmed.answered(question);
                    opened.with_handle(server, then);
                }
                Err(error) => then(Err(error)),
            };
            let request = Request::GetAttr(GetAttr { handle, path: b"" });
            asks.servers.clients[asks.first].start(Call::new(&request, caller, Done::Call(Box::new(done))));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_counts_for_a_while_and_on_one_connection() {
        let at = |losses, seconds| Question { losses, asked: Time::ZERO + Span::from_secs(seconds) };
        let confirmed = Confirmed::by(at(3, 10));
        assert!(confirmed.counts(at(3, 14)));
        assert!(
            !confirmed.counts(at(3, 15)),
            "this process may have been stopped, and the locks be another's"
        );
        assert!(!confirmed.counts(at(4, 11)));
        confirmed.answered(at(4, 11));
        assert!(confirmed.counts(at(4, 15)));
    }
}
