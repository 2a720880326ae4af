//! Backoff stacked on locking: a turn is told of only when the file system has been found quiet.
//!
//! Who does not ask for turns, people at their shells for example, is invisible to a table, but not to a probe. Source: the future work
//! of the thesis that [`crate::coord`] names. The turn has been granted by then, so that nobody else has
//! it: the coordinator renews it while it probes, as long as the client is there.

use alloc::string::String;
use alloc::vec::Vec;

use super::round::granted;
use super::{Known, Leader};
use crate::coord::{Admission, ClaimId};
use crate::{Span, Time};

/// How a wait for a quiet file system went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probed {
    /// How often it was tried.
    pub attempts: u32,
    /// Whether it is quiet now; otherwise it was tried often enough.
    pub is_quiet: bool,
}

/// A turn that waits for its probe.
pub(super) struct Probing {
    renewed: Time,
}

impl Leader {
    /// Begins to probe for a turn, if its place is probed; others of its party have done so already.
    pub(super) fn begin_probe(&mut self, now: Time, id: ClaimId) -> bool {
        let Some(known) = self.claims.get(&id) else { return false };
        if known.turn.is_none_or(|turn| turn.admission == Admission::Joined) {
            return false;
        }
        if !self.config.probed.contains(self.places.name(known.place)) {
            return false;
        }
        self.probing.insert(id, Probing { renewed: now });
        self.probes.push(id);
        true
    }

    /// The probes that are to be begun, and the places where. How each went is told by [`probed`](Leader::probed).
    pub fn probes(&mut self) -> Vec<(ClaimId, String)> {
        let probes = core::mem::take(&mut self.probes).into_iter();
        probes
            .filter_map(|id| Some((id, String::from(self.places.name(self.claims.get(&id)?.place)))))
            .collect()
    }

    /// Whether the turn of a claim still waits for its probe.
    pub fn is_probing(&self, id: ClaimId) -> bool {
        self.probing.contains_key(&id)
    }

    /// Keeps the turns that wait for their probes, and whose clients are there. Returns when to look again.
    pub(super) fn keep_probing(&mut self, now: Time) -> Option<Time> {
        let lease = self.table.config().lease;
        let third = Span::from_nanos(lease.as_nanos() / 3);
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

    /// A probe is over, or could not be made (`None`): the turn begins for its client.
    pub fn probed(&mut self, now: Time, id: ClaimId, outcome: Option<Probed>) {
        if !self.probing.contains_key(&id) {
            return;
        }
        match outcome {
            Some(Probed { is_quiet: true, .. }) => self.counters.probed_quiet += 1,
            _ => self.counters.probed_busy += 1,
        }
        let session = self.claims.get(&id).and_then(|known| self.sessions.get(&known.session));
        let Some(connection) = session.and_then(|session| session.connection) else {
            self.probing.remove(&id);
            return;
        };
        if let Some(until) = self.renew_untold(now, id)
            && let Some(Known { turn: Some(turn), arrived, request, .. }) = self.claims.get(&id)
        {
            self.probing.remove(&id);
            let granted = granted(turn, *arrived, until, now);
            self.when_kept.fields(connection, *request, &granted);
        }
    }
}
