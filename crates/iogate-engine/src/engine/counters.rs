//! What metrics have of the gate.

use iogate_core::global_policy::Phase;
use iogate_core::stats::counters::Counters;
use iogate_core::stats::summary::Names;

use super::Engine;
use crate::sync::PoisonError;

impl Engine {
    /// The gate's counters, called `gate`. Who asks first is told first, so that nobody sees one decrease.
    pub fn counters(&self, gate: &str, names: &dyn Names) -> Counters {
        let mut top = self.top.lock().unwrap_or_else(PoisonError::into_inner);
        // Copied under the gate's lock, looked at outside.
        let (stats, queued, in_service) =
            self.with_gate(|gate, _| (gate.stats().clone(), gate.queued() as u64, gate.in_service().into()));
        let counters = Counters::of(&stats, &mut top);
        drop(top);
        let has_lease = self.sharing().map(|sharing| sharing.phase == Phase::Lease);
        Counters { queued, in_service, has_lease, ..counters }.named(gate, names)
    }
}
