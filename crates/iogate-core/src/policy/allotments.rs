//! What applications are allotted of caps that many gates share, and what they have used of it.

use alloc::vec::Vec;
use core::num::NonZeroU64;

use super::Policy;
use super::arbiter::{Arbiter, CAP_BURST, Class, ClassId};
use crate::global_policy::Usage;
use crate::request::AppId;
use crate::time::{Span, Time};

impl Class {
    /// From when on its next request may go, as far as its cap is concerned.
    pub(super) fn conforms_at(&self) -> Time {
        if self.is_stopped { Time::MAX } else { self.cap.conforms_at(CAP_BURST) }
    }

    /// Whether it waits for its cap.
    pub(super) fn note_capped(&mut self, now: Time, is_capped: bool) {
        match self.capped_since {
            None if is_capped => self.capped_since = Some(now),
            Some(since) if !is_capped => {
                self.capped_for += now.since(since);
                self.capped_since = None;
            }
            _ => {}
        }
    }

    /// For how long it has waited for its cap.
    pub(super) fn capped(&self, now: Time) -> Span {
        self.capped_for + self.capped_since.map_or(Span::ZERO, |since| now.since(since))
    }

    /// What it may have is another rate from now on.
    fn set_allotment(&mut self, now: Time, policy: &Policy, rate: u64) {
        let before = self.allotted.or(policy.of(self.app).max.bytes).or(policy.total);
        match (NonZeroU64::new(rate), before) {
            (Some(rate), Some(before)) => {
                self.cap.rescale(now, before, rate);
                self.allotted = Some(rate);
            }
            (Some(rate), None) => self.allotted = Some(rate),
            // What goes nevertheless, as others wait for it, is paid for at the rate before.
            (None, before) => self.allotted = before,
        }
        self.is_stopped = rate == 0;
    }
}

impl Arbiter {
    /// A class of which nothing is known but what it is allotted.
    pub(super) fn allotted_class(&self, app: AppId) -> Class {
        let mut class = Class::new(app);
        if self.policy.is_allotted(app) {
            class.set_allotment(Time::ZERO, &self.policy, self.allotments.get(&app).copied().unwrap_or(0));
        }
        class
    }

    /// Applications are allotted so much, in bytes a second, and others nothing. O(n log n).
    pub(crate) fn allot(&mut self, now: Time, rates: impl IntoIterator<Item = (AppId, u64)>) {
        let before = core::mem::take(&mut self.allotments);
        for (app, rate) in rates {
            if rate > 0 && self.policy.is_allotted(app) {
                self.allotments.insert(app, rate);
                if before.get(&app) != Some(&rate) {
                    self.allotment_changed(now, app);
                }
            }
        }
        let gone = before.keys().filter(|app| !self.allotments.contains_key(*app));
        for app in gone.copied().collect::<Vec<_>>() {
            self.allotment_changed(now, app);
        }
    }

    fn allotment_changed(&mut self, now: Time, app: AppId) {
        let id = match self.of_app.get(&app) {
            Some(id) => *id,
            None if app == AppId::default() => ClassId::default(),
            None => return,
        };
        let rate = self.allotments.get(&app).copied().unwrap_or(0);
        self.classes[id.index()].set_allotment(now, &self.policy, rate);
        self.rank(now, id);
    }

    /// What an application is allotted; `None`: it is not.
    pub(crate) fn allotment(&self, app: AppId) -> Option<u64> {
        self.policy.is_allotted(app).then(|| self.allotments.get(&app).copied().unwrap_or(0))
    }

    /// Whether somebody has come, since this was asked last, who has nothing.
    pub(crate) fn take_lack(&mut self) -> bool {
        core::mem::take(&mut self.has_lack)
    }

    /// What applications have used that are allotted something.
    pub(crate) fn usages(&self, now: Time) -> impl Iterator<Item = Usage> + '_ {
        let is_known = |index: usize, class: &Class| match class.app {
            AppId(0) => index == 0,
            app => self.of_app.get(&app) == Some(&ClassId(index as u16)),
        };
        let known = self.classes.iter().enumerate().filter(move |(index, class)| is_known(*index, class));
        known.filter(|(_, class)| self.policy.is_allotted(class.app)).map(move |(_, class)| Usage {
            app: class.app,
            admitted: class.admitted_bytes,
            capped: class.capped(now),
            deferred: class.waiting_bytes,
        })
    }
}
