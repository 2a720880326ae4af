//! The applications that metrics name one by one: few, and no counter of theirs ever decreases.
//!
//! An application that is not named is counted in `other`. One that becomes named takes along what it has done since the last
//! look; what `other` has already told of it stays there. One that loses its place gives what it was named with to `other`, and begins
//! anew if it comes back. So a series grows for as long as it is there, `other` grows always, and all together are what the gate
//! has counted.

use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Sums, Tracked};
use crate::hash::HashMap;
use crate::request::AppId;

/// How many applications are named one by one.
pub const NAMED_MAX: usize = 16;

/// What is counted of an application. No field ever decreases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct AppCounts {
    /// Requests completed (or pieces of split ones).
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Dispatches in which they left.
    pub dispatches: u64,
    /// Sum of their times from arrival to dispatch.
    pub waiting_ns: u64,
}

impl AppCounts {
    fn of(sums: &Sums) -> AppCounts {
        let Sums { requests, bytes, dispatches, waiting, .. } = *sums;
        AppCounts { requests, bytes, dispatches, waiting_ns: waiting.as_nanos() }
    }

    fn map2(self, with: AppCounts, f: impl Fn(u64, u64) -> u64) -> AppCounts {
        AppCounts {
            requests: f(self.requests, with.requests),
            bytes: f(self.bytes, with.bytes),
            dispatches: f(self.dispatches, with.dispatches),
            waiting_ns: f(self.waiting_ns, with.waiting_ns),
        }
    }

    fn plus(self, more: AppCounts) -> AppCounts {
        self.map2(more, u64::saturating_add)
    }

    /// What has come since; everything, if this is less: it was counted anew.
    fn since(self, before: AppCounts) -> AppCounts {
        if self.reaches(before) { self.map2(before, u64::saturating_sub) } else { self }
    }

    fn reaches(self, before: AppCounts) -> bool {
        self.map2(before, |now, before| u64::from(now < before)) == AppCounts::default()
    }
}

/// A named application.
#[derive(Clone, Copy, Debug)]
struct Named {
    app: AppId,
    /// What `other` has told of it before it was named.
    before: AppCounts,
    /// What the gate had counted at the last look.
    last: AppCounts,
}

/// Who is named, and what `other` has told. Bounded: it knows no more applications than a gate counts one by one.
#[derive(Clone, Debug, Default)]
pub struct TopApps {
    named: Vec<Named>,
    /// What the gate had counted of those that are not named, at the last look.
    told: HashMap<AppId, AppCounts>,
}

impl TopApps {
    /// The applications with most bytes and what is told of each, in order of their numbers, and of all others together. A place that is
    /// taken goes to one that has a quarter more bytes, so that two that are about as large do not take turns.
    ///
    /// Each look must be at counts that are not older than those of the look before it.
    pub fn look(&mut self, apps: &Tracked<AppId>) -> (Vec<(AppId, AppCounts)>, AppCounts) {
        let counts: Vec<(AppId, AppCounts)> =
            apps.iter().map(|(app, sums)| (*app, AppCounts::of(sums))).collect();
        let mut all = AppCounts::of(apps.other());
        counts.iter().for_each(|(_, counts)| all = all.plus(*counts));

        // Who is no longer counted one by one, or is counted anew, is not named at this look.
        let named = |named: &Named| apps.get(named.app).map(AppCounts::of);
        let mut lost = Vec::new();
        self.named.retain_mut(|one| match named(one).filter(|now| now.reaches(one.last)) {
            Some(now) => {
                one.last = now;
                true
            }
            None => {
                lost.push(one.app);
                false
            }
        });
        let is_named = |named: &[Named], app| named.iter().any(|one| one.app == app);
        let mut candidates: Vec<(AppId, AppCounts)> = (counts.iter().copied())
            .filter(|(app, _)| !is_named(&self.named, *app) && !lost.contains(app))
            .collect();
        candidates.sort_by_key(|(_, counts)| Reverse(counts.bytes));
        for (app, last) in candidates {
            let before = self.told.get(&app).copied().unwrap_or_default();
            // Counted anew since: all of it has come since the last look.
            let before = if last.reaches(before) { before } else { AppCounts::default() };
            let new = Named { app, before, last };
            if self.named.len() < NAMED_MAX {
                self.named.push(new);
                continue;
            }
            let Some(least) = self.named.iter_mut().min_by_key(|one| one.last.bytes) else { break };
            if last.bytes <= least.last.bytes.saturating_add(least.last.bytes / 4) {
                break;
            }
            *least = new;
        }
        self.named.sort_by_key(|one| one.app);

        let shown: Vec<_> = self.named.iter().map(|one| (one.app, one.last.since(one.before))).collect();
        let named = shown.iter().fold(AppCounts::default(), |sum, (_, counts)| sum.plus(*counts));
        self.told = counts.into_iter().filter(|(app, _)| !is_named(&self.named, *app)).collect();
        (shown, all.map2(named, u64::saturating_sub))
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;
    use crate::stats::Counted;
    use crate::time::{Span, Time};

    fn serve(apps: &mut Tracked<AppId>, at: u64, app: u32, bytes: u32) {
        let mut counted = Counted::NONE;
        counted.add(bytes, Time::ZERO, Span::from_nanos(7));
        apps.sums_of_late(AppId(app)).add(&counted, Time::from_nanos(at));
    }

    fn bytes(shown: &[(AppId, AppCounts)]) -> Vec<(u32, u64)> {
        shown.iter().map(|(app, counts)| (app.0, counts.bytes)).collect()
    }

    #[test]
    fn who_leaves_is_counted_in_other_and_who_comes_begins_with_what_other_has_not_told() {
        let (mut apps, mut top) = (Tracked::default(), TopApps::default());
        (1..=16).for_each(|app| serve(&mut apps, 0, app, 100));
        serve(&mut apps, 0, 17, 50);
        let (shown, other) = top.look(&apps);
        assert_eq!(shown.len(), NAMED_MAX);
        assert_eq!(other, AppCounts { requests: 1, bytes: 50, dispatches: 1, waiting_ns: 7 });
        // A quarter more is not more than a quarter more.
        serve(&mut apps, 0, 17, 75);
        let (shown, other) = top.look(&apps);
        assert!(!bytes(&shown).iter().any(|(app, _)| *app == 17), "{shown:?}");
        assert_eq!(other.bytes, 125);
        serve(&mut apps, 0, 17, 1);
        let (shown, other) = top.look(&apps);
        assert_eq!(bytes(&shown).last(), Some(&(17, 1)), "the other 125 stay in other");
        assert_eq!(other.bytes, 125 + 100, "and so does what 1 was named with");
        assert!(!bytes(&shown).iter().any(|(app, _)| *app == 1), "{shown:?}");
    }

    /// No series that is at two looks in a row decreases, `other` never does, and nothing is lost between them.
    struct Watched {
        top: TopApps,
        shown: BTreeMap<u32, AppCounts>,
        other: AppCounts,
    }

    impl Watched {
        fn look(&mut self, apps: &Tracked<AppId>) {
            let (shown, other) = self.top.look(apps);
            assert!(shown.len() <= NAMED_MAX && self.top.told.len() <= super::super::TRACKED_MAX);
            let mut all = other;
            for (app, counts) in &shown {
                all = all.plus(*counts);
                if let Some(before) = self.shown.get(&app.0) {
                    assert!(counts.reaches(*before), "{app:?}: {before:?}, then {counts:?}");
                }
            }
            assert!(other.reaches(self.other), "other: {:?}, then {other:?}", self.other);
            let served =
                apps.iter().fold(AppCounts::of(apps.other()), |sum, (_, sums)| sum.plus(AppCounts::of(sums)));
            assert_eq!(all, served);
            self.shown = shown.into_iter().map(|(app, counts)| (app.0, counts)).collect();
            self.other = other;
        }
    }

    #[test]
    fn nothing_decreases_while_a_hundred_thousand_applications_come_and_go() {
        let mut watched =
            Watched { top: TopApps::default(), shown: BTreeMap::new(), other: AppCounts::default() };
        let (mut apps, mut state) = (Tracked::default(), 1_u64);
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for newest in 0..100_000_u64 {
            // Mostly the newest ones, some of the old ones, sizes of all kinds.
            let ago = [3, 40, 2_000][random(3) as usize];
            let app = newest.saturating_sub(random(ago)) as u32;
            serve(&mut apps, newest, app, 1 << random(24));
            serve(&mut apps, newest, random(20) as u32, 1 << random(18));
            if random(50) == 0 {
                watched.look(&apps);
            }
        }
        assert_eq!(watched.shown.len(), NAMED_MAX);
    }
}
