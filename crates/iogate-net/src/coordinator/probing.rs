//! Finding out whether a file system is quiet, before a turn on it begins.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use iogate_core::coord::ClaimId;
use iogate_core::coord::leader::{Leader, Probed};
use iogate_engine::Workers;

use super::{Call, Caller};

/// Threads that probe a place. Another place has its own: one that hangs keeps its threads.
const PROBERS_MAX: usize = 16;

/// Waits until a file system is quiet, or it has tried often enough. It asks its argument at least once a second whether
/// to go on.
#[derive(Clone)]
pub struct Prober(Arc<Wait>);

type Wait = dyn Fn(&dyn Fn() -> bool) -> Result<Probed, String> + Send + Sync;

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

/// The probes that are underway, and the threads that make them.
pub(super) struct Probes {
    workers: HashMap<String, Arc<Workers>>,
    go_on: HashMap<ClaimId, Arc<AtomicBool>>,
}

impl Probes {
    pub(super) fn new() -> Probes {
        Probes { workers: HashMap::new(), go_on: HashMap::new() }
    }

    /// Begins the probes that a leader wants, and ends those that it wants no more.
    pub(super) fn follow(&mut self, leader: &mut Leader, probers: &HashMap<String, Prober>, caller: &Caller) {
        self.go_on.retain(|id, goes_on| {
            let is_wanted = leader.is_probing(*id);
            goes_on.store(is_wanted, Ordering::Relaxed);
            is_wanted
        });
        for (id, place) in leader.probes() {
            let Some(Prober(wait)) = probers.get(&place).cloned() else { continue };
            let (goes_on, caller) = (Arc::new(AtomicBool::new(true)), caller.clone());
            self.go_on.insert(id, Arc::clone(&goes_on));
            let workers = self.workers.entry(place);
            let workers = workers.or_insert_with(|| Workers::new("iogate-coord-probe", PROBERS_MAX, || {}));
            let tell = caller.clone();
            let probe = move || {
                let probed = wait(&|| goes_on.load(Ordering::Relaxed));
                caller.call(Call::Probed(id, probed));
            };
            // Never in this thread, which has to go on; then the turn begins without.
            if let Err((error, _)) = workers.run_elsewhere(probe) {
                tell.call(Call::Probed(id, Err(format!("no thread can be started: {error}"))));
            }
        }
    }

    /// Ends all.
    pub(super) fn end(&mut self) {
        self.go_on.drain().for_each(|(_, goes_on)| goes_on.store(false, Ordering::Relaxed));
    }
}
