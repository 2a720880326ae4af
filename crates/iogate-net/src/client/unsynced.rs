//! What this client has written to files and not made durable: per file, not per handle, for a close does not make it durable.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iogate_core::unsynced::{SyncBegun, Unsynced};
use iogate_core::wire::Identity;

/// Most files that nobody has open whose writes are remembered.
const FILES_MAX: usize = 65_536;
/// How long the last write to such a file is remembered: servers have written it back by then.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The files that are open, and those that were written to lately.
#[derive(Default)]
pub(super) struct Files {
    by_identity: Mutex<HashMap<Identity, Arc<File>>>,
}

/// One file, for all its handles.
#[derive(Debug)]
pub(super) struct File {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    servers: Box<[Unsynced]>,
    /// How often writes were lost.
    losses: u64,
    last_write: Option<Instant>,
}

impl Files {
    /// What is known of a file that is being opened, on so many servers.
    pub(super) fn open(&self, identity: Identity, servers: usize) -> Arc<File> {
        let mut files = self.by_identity.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= FILES_MAX && !files.contains_key(&identity) {
            files.retain(|_, file| Arc::strong_count(file) > 1 || !file.is_forgotten());
        }
        let new = || {
            let servers = vec![Unsynced::default(); servers].into();
            Arc::new(File { state: Mutex::new(State { servers, losses: 0, last_write: None }) })
        };
        Arc::clone(files.entry(identity).or_insert_with(new))
    }

    /// A handle is closed.
    pub(super) fn close(&self, identity: Identity, file: &Arc<File>) {
        let mut files = self.by_identity.lock().unwrap_or_else(PoisonError::into_inner);
        // The table's, and the handle's own.
        let is_last = Arc::strong_count(file) <= 2;
        if is_last && (file.lock().is_clean() || files.len() > FILES_MAX) {
            files.remove(&identity);
        }
    }
}

impl State {
    fn is_clean(&self) -> bool {
        self.servers.iter().all(Unsynced::is_clean)
    }
}

impl File {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_forgotten(&self) -> bool {
        let state = self.lock();
        state.is_clean() || state.last_write.is_none_or(|last| last.elapsed() > REMEMBERED)
    }

    /// Notes that a server has answered a write.
    pub(super) fn wrote(&self, server: usize, verifier: u64) {
        let mut state = self.lock();
        state.last_write = Some(Instant::now());
        let lost = state.servers[server].wrote(verifier);
        state.losses += u64::from(lost);
    }

    /// Whether a server has all that it was sent on its disk.
    pub(super) fn is_clean_on(&self, server: usize) -> bool {
        self.lock().servers[server].is_clean()
    }

    /// A sync is about to be sent.
    pub(super) fn begin(&self, server: usize) -> SyncBegun {
        self.lock().servers[server].begin()
    }

    /// A sync was answered, or failed.
    pub(super) fn synced(&self, server: usize, begun: SyncBegun, answer: &io::Result<u64>) {
        let mut state = self.lock();
        let lost = match answer {
            Ok(verifier) => state.servers[server].synced(begun, *verifier),
            // The system forgets what it could not write back.
            Err(error) => {
                let lost = matches!(
                    error.raw_os_error(),
                    Some(libc::EIO | libc::ENOSPC | libc::EDQUOT | libc::EFBIG)
                );
                if lost {
                    state.servers[server].failed();
                }
                lost
            }
        };
        state.losses += u64::from(lost);
    }

    /// How often writes were lost: each handle says so once.
    pub(super) fn losses(&self) -> u64 {
        self.lock().losses
    }
}
