//! What this client has written to files and not made durable: the core says what is lost, and how long a file is remembered.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use iogate_core::unsynced::{self, SyncBegun, Told};
use iogate_core::wire::Identity;
use iogate_engine::{Clock, lock};

use super::locks::Locked;

/// The files that are open, and those that were written to lately.
#[derive(Debug)]
pub(super) struct Files {
    known: Mutex<unsynced::Files<Arc<File>>>,
    clock: Clock,
}

/// One file, for all its handles. Each has a lock of its own, as every write's answer takes it.
#[derive(Debug)]
pub(super) struct File {
    writes: Mutex<unsynced::File>,
    clock: Clock,
    pub(super) locked: Locked,
}

impl Files {
    pub(super) fn new() -> Files {
        Files { known: Mutex::default(), clock: Clock::new() }
    }

    fn lock(&self) -> MutexGuard<'_, unsynced::Files<Arc<File>>> {
        lock(&self.known)
    }

    /// What is known of a file that is being opened, on so many servers.
    pub(super) fn open(&self, identity: Identity, servers: usize) -> Arc<File> {
        let (clock, now) = (self.clock, self.clock.now());
        let new = || {
            let writes = Mutex::new(unsynced::File::new(servers));
            Arc::new(File { writes, clock, locked: Locked::default() })
        };
        Arc::clone(self.lock().open(identity, now, |file| file.lock().is_forgotten(now), new))
    }

    /// A handle is closed.
    pub(super) fn close(&self, identity: Identity) {
        self.lock().close(identity, |file| file.lock().is_clean());
    }
}

impl File {
    fn lock(&self) -> MutexGuard<'_, unsynced::File> {
        lock(&self.writes)
    }

    /// Notes that a server has answered a write.
    pub(super) fn wrote(&self, server: usize, verifier: u64) {
        let now = self.clock.now();
        self.lock().wrote(server, verifier, now);
    }

    /// Notes that a server has answered a change of the size; `export` is its [verifier](super::Client::verifier) from before it was asked
    /// for.
    pub(super) fn resized(&self, server: usize, export: u64) {
        let now = self.clock.now();
        self.lock().resized(server, export, now);
    }

    /// Whether a server has all that it was sent on its disk.
    pub(super) fn is_clean_on(&self, server: usize) -> bool {
        self.lock().is_clean_on(server)
    }

    /// Whether every server has.
    pub(super) fn is_clean(&self) -> bool {
        self.lock().is_clean()
    }

    /// A sync is about to be sent.
    pub(super) fn begin(&self, server: usize) -> SyncBegun {
        self.lock().begin(server)
    }

    /// A sync was answered, or failed; `export` is the server's [verifier](super::Client::verifier) by now.
    pub(super) fn synced(&self, server: usize, begun: SyncBegun, answer: &io::Result<u64>, export: u64) {
        let answer = answer.as_ref().map(|verifier| *verifier);
        let answer = answer.map_err(|error| error.raw_os_error().unwrap_or(0));
        self.lock().synced(server, begun, answer, export);
    }

    /// How often writes were lost.
    pub(super) fn losses(&self) -> u64 {
        self.lock().losses()
    }

    /// Of a handle that is being opened.
    pub(super) fn told(&self) -> Told {
        Told::new(&self.lock())
    }

    /// Whether a handle has a loss to tell of, which it does then.
    pub(super) fn tells(&self, told: &Mutex<Told>) -> bool {
        lock(told).tell(&self.lock())
    }
}
