//! Backoff stacked on locking: a turn is told of only when the file system has been found quiet.
//!
//! Who does not ask for turns, people at their shells for example, is invisible to a table, but not to a probe. Source: the future work
//! of the thesis that [`iogate_core::coord`] names. The turn has been granted by then, so that nobody else has
//! it: the coordinator renews it while it probes, as long as the client is there.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iogate_core::Time;
use iogate_core::coord::{Admission, ClaimId};

use super::leading::Leading;
use super::round::granted;

/// Waits until a file system is quiet, or it has tried often enough. It asks its argument at least once a second whether
/// to go on.
#[derive(Clone)]
pub struct Prober(Arc<Wait>);

type Wait = dyn Fn(&dyn Fn() -> bool) -> Result<Probed, String> + Send + Sync;

/// How a wait went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// How often it was tried.
    pub attempts: u32,
    /// Whether it is quiet now; otherwise it was tried often enough.
    pub is_quiet: bool,
}

impl Prober {
    /// A prober that waits by this function, which may take long. What it fails with is for the log: the turn begins then.
    pub fn new(wait: impl Fn(&dyn Fn() -> bool) -> Result<Probed, String> + Send + Sync + 'static) -> Prober {
        Prober(Arc::new(wait))
    }
}

impl fmt::Debug for Prober {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Prober")
    }
}

/// A turn that waits for its probe. Dropped, it ends that.
pub(super) struct Probing {
    goes_on: Arc<AtomicBool>,
    renewed: Time,
}

impl Drop for Probing {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
    }
}

/// Something to do for a worker: it may take long.
pub(super) type Work = Box<dyn FnOnce() -> Result<Probed, String> + Send>;

impl Leading {
    /// Begins to probe for a turn, if its place is probed; others of its party have done so already.
    pub(super) fn begin_probe(&mut self, now: Time, id: ClaimId) -> bool {
        let Some(known) = self.claims.get(&id) else { return false };
        if known.turn.is_none_or(|turn| turn.admission == Admission::Joined) {
            return false;
        }
        let Some(Prober(wait)) = self.probers.get(self.places.name(known.place)).cloned() else {
            return false;
        };
        let goes_on = Arc::new(AtomicBool::new(true));
        self.probing.insert(id, Probing { goes_on: Arc::clone(&goes_on), renewed: now });
        let work = move || wait(&|| goes_on.load(Ordering::Relaxed));
        self.probes.push((id, Box::new(work)));
        true
    }

    /// Keeps the turns that wait for their probes, and whose clients are there. Returns when to look again.
    pub(super) fn keep_probing(&mut self, now: Time) -> Option<Time> {
        let lease = self.table.config().lease;
        let third = iogate_core::Span::from_nanos(lease.as_nanos() / 3);
        for (id, probing) in &mut self.probing {
            let Some(known) = self.claims.get(id) else { continue };
            let is_there =
                self.sessions.get(&known.session).is_some_and(|session| session.connection.is_some());
            if let Some(turn) = known.turn
                && is_there
                && now.since(probing.renewed) >= third
                && self.table.renew(now, known.session, turn.token).is_ok()
            {
                probing.renewed = now;
            }
        }
        (!self.probing.is_empty()).then(|| now + third)
    }

    /// A probe is over: the turn begins for its client.
    pub(super) fn probed(&mut self, now: Time, id: ClaimId, outcome: Result<Probed, String>) {
        if self.probing.remove(&id).is_none() {
            return;
        }
        match outcome {
            Ok(Probed { is_quiet: true, .. }) => self.counters.probed_quiet += 1,
            Ok(_) => self.counters.probed_busy += 1,
            Err(error) => {
                tracing::warn!("a turn begins without a probe: {error}");
                self.counters.probed_busy += 1;
            }
        }
        let Some(known) = self.claims.get(&id) else { return };
        let connection = self.sessions.get(&known.session).and_then(|session| session.connection);
        if let (Some(turn), Some(connection)) = (known.turn, connection)
            && let Ok(until) = self.table.renew(now, known.session, turn.token)
        {
            let granted = granted(&turn, known.arrived, until, now);
            self.kept.fields(connection, known.request, &granted);
        }
    }
}
