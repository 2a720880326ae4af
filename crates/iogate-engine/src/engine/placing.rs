//! Which class of a policy an application is within, as front ends see it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use iogate_core::AppId;
use iogate_core::hash::HashMap;

use super::Engine;

/// Applications that are known to be placed, at most; then all are placed again.
const KNOWN_MAX: usize = 1 << 16;

/// Who was placed since the policy in force came.
#[derive(Debug, Default)]
pub(super) struct Placing {
    /// A policy is in force. One without classes within others remembers it for the next.
    is_on: AtomicBool,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Of how many policies: what was asked of one says nothing of the next.
    policies: u64,
    /// As which applications requests go.
    goes_as: HashMap<AppId, AppId>,
}

impl Placing {
    /// Another policy is in force.
    pub(super) fn policy_changed(&self, is_on: bool) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.policies += 1;
        known.goes_as.clear();
        self.is_on.store(is_on, Ordering::Release);
    }

    /// As which application requests go, if that is known; else of how many policies it is not.
    fn goes_as(&self, app: AppId) -> Result<AppId, u64> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.goes_as.get(&app).copied().ok_or(known.policies)
    }

    /// So they go by the policy that was asked.
    fn learn(&self, policies: u64, app: AppId, goes_as: AppId) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.policies != policies {
            return;
        }
        if known.goes_as.len() >= KNOWN_MAX {
            known.goes_as.clear();
        }
        known.goes_as.insert(app, goes_as);
    }
}

impl Engine {
    /// The application that requests are to have which come from one within this class: the first time since a policy came, the gate is
    /// told of it (see [`iogate_core::Gate::place`]), also by a policy without classes within others, so that who waits when they come
    /// is in his class at once. To be asked before each request; O(1).
    pub fn placed(&self, app: AppId, branch: AppId) -> AppId {
        if !self.placing.is_on.load(Ordering::Acquire) {
            return app;
        }
        self.placing.goes_as(app).unwrap_or_else(|policies| {
            let goes_as = self.shared.kick(|state, now| state.gate.place(now, app, branch));
            self.placing.learn(policies, app, goes_as);
            goes_as
        })
    }
}
