//! When applications come to the ends of their bursts: under each candidate from now on, and as it would have been with `fifo` from the
//! beginning. Whoever is served before others may be, if these are not later in the end.
//!
//! Between two ends each application gets on at the rate that it has beside those that are still there, as simulated. What would have
//! become of them with `fifo` is followed in the same way, window by window; what a burst has lost, or gained, so far is in that.
//!
//! Applications have places, so that sets of them are bits.

use alloc::vec::Vec;

use super::bursts::Left;
use super::window::{Window, key_of};
use crate::hash::HashMap;
use crate::request::ClientId;
use crate::time::{Span, Time};

/// Applications that are looked at together, at most.
const APPS_MAX: usize = 8;
/// Applications whose ends must be known: one alone cannot be served before another one that ends, too.
const KNOWN_MIN: usize = 2;
/// Sets with their rates that are kept.
const RATES_MAX: usize = 128;

/// A set of places.
pub(super) type Set = u32;
/// So many bytes in so many ns, by place.
pub(super) type Rates = Vec<(u64, u64)>;

/// All bursts.
#[derive(Default)]
pub(super) struct Ends {
    apps: Vec<App>,
    /// What `fifo` made of sets.
    rates: HashMap<Set, Rates>,
    at: Time,
}

struct App {
    key: u64,
    /// Whether it has a burst now, and since when.
    is_there: bool,
    begun: Time,
    /// What is left of it, and would be with `fifo`; `None` if nobody knows.
    left: Option<u64>,
    with_fifo: Option<u64>,
    /// How much it is taken to be of.
    all: Option<u64>,
    /// When it would have ended with `fifo`, if it would have.
    ended: Option<Time>,
    /// Whether something else than `fifo` was in use while it had this burst.
    is_apart: bool,
}

impl App {
    fn new(key: u64, begun: Time, left: Option<u64>, is_apart: bool) -> App {
        App { key, is_there: true, begun, left, with_fifo: left, all: None, ended: None, is_apart }
    }

    /// What would be left with `fifo`, where it is taken to be of another size than before: what was carried out is the same.
    fn resize(&mut self, all: Option<u64>) {
        self.with_fifo = match (self.with_fifo, self.all, all) {
            (Some(left), Some(before), Some(all)) => Some(left.saturating_add(all).saturating_sub(before)),
            // Nothing was followed so far.
            _ => self.left,
        };
        self.ended = self.ended.filter(|_| self.with_fifo == Some(0));
    }

    /// Whether there is something of it, really or with `fifo`.
    fn is_any(&self) -> bool {
        self.is_there || self.is_left_with_fifo()
    }

    fn is_left_with_fifo(&self) -> bool {
        match self.with_fifo {
            Some(bytes) => bytes > 0,
            None => self.is_there,
        }
    }
}

impl Ends {
    /// What is left now, and whether something else than `fifo` is in use.
    pub(super) fn tell(&mut self, now: Time, left: impl IntoIterator<Item = Left>, is_other: bool) {
        self.advance(now);
        let left: Vec<(u64, Left)> =
            left.into_iter().map(|left| (key_of(left.app, ClientId::default()), left)).collect();
        for app in &mut self.apps {
            app.is_there = left.iter().any(|(key, _)| *key == app.key);
        }
        for (key, Left { begun, bytes, expected, .. }) in left {
            let all = expected.map(|expected| expected.bytes);
            let Some(place) = self.place(key) else { continue };
            // Who begins while others are apart from what they would be does so in the midst of that.
            let is_apart = is_other || self.apps.iter().any(|app| app.is_apart && app.is_any());
            let app = &mut self.apps[place];
            if app.begun != begun {
                *app = App { all, ..App::new(key, begun, bytes, is_apart) };
            }
            (app.is_there, app.left) = (true, bytes);
            app.is_apart |= is_other;
            if !app.is_apart || bytes.is_none() {
                app.with_fifo = bytes;
            } else if app.all != all {
                app.resize(all);
            }
            app.all = all;
        }
    }

    /// The places of a window's applications. None if there are too many of them, or of too few it is known when they end.
    pub(super) fn places(&mut self, window: &Window) -> Option<Vec<usize>> {
        if window.apps.len() > APPS_MAX || self.known() < KNOWN_MIN {
            return None;
        }
        (window.apps.iter())
            .map(|part| {
                let place = self.place(part.key)?;
                self.apps[place].is_there = true;
                Some(place)
            })
            .collect()
    }

    /// Of how many it is known when they end.
    pub(super) fn known(&self) -> usize {
        self.apps.iter().filter(|app| app.is_there && app.left.is_some_and(|left| left > 0)).count()
    }

    /// Where an application has its place, which is new if need be.
    fn place(&mut self, key: u64) -> Option<usize> {
        if let Some(place) = self.apps.iter().position(|app| app.key == key) {
            return Some(place);
        }
        let free = self.apps.iter().position(|app| !app.is_any());
        let place = free.or_else(|| (self.apps.len() < APPS_MAX).then_some(self.apps.len()))?;
        let app = App { is_there: false, ..App::new(key, Time::MAX, None, false) };
        if place == self.apps.len() {
            self.apps.push(app);
        } else {
            self.apps[place] = app;
            self.rates.retain(|set, _| *set & (1 << place) == 0);
        }
        Some(place)
    }

    /// Whether it is known when the one at this place ends.
    pub(super) fn is_known(&self, place: usize) -> bool {
        self.apps[place].left.is_some()
    }

    /// Lets what `fifo` would have made of all go on until now.
    fn advance(&mut self, now: Time) {
        while self.at < now {
            let set = self.set(App::is_left_with_fifo);
            let Some(rates) = self.rates.get(&set) else { break };
            let mut step = now.since(self.at).as_nanos();
            for (app, rate) in self.apps.iter().zip(rates) {
                if let Some(bytes) = app.with_fifo.filter(|bytes| *bytes > 0) {
                    step = step.min(takes(bytes, *rate));
                }
            }
            self.at = self.at + Span::from_nanos(step.max(1));
            for (app, rate) in self.apps.iter_mut().zip(rates) {
                if let Some(bytes) = app.with_fifo.filter(|bytes| *bytes > 0) {
                    let left = bytes.saturating_sub(moves(step.max(1), *rate));
                    app.with_fifo = Some(left);
                    app.ended = (left == 0).then_some(self.at);
                }
            }
        }
        self.at = now;
    }

    fn set(&self, is_in: impl Fn(&App) -> bool) -> Set {
        (0..self.apps.len()).filter(|place| is_in(&self.apps[*place])).fold(0, |set, place| set | 1 << place)
    }

    /// How long each takes in all, at these rates from now on, by place.
    ///
    /// # Errors
    /// The set whose rates are missing.
    pub(super) fn totals(&self, now: Time, rates: impl Fn(Set) -> Option<Rates>) -> Result<Vec<u64>, Set> {
        let left: Vec<_> = self.apps.iter().map(|app| app.left.filter(|_| app.is_there)).collect();
        let set = self.set(|app| app.is_there && app.left != Some(0));
        Ok(self.after(now, &ends(left, set, rates)?))
    }

    /// The same with `fifo` from the beginning. Who is not `there` any more cannot be simulated: they are taken as they were.
    pub(super) fn totals_with_fifo(
        &self,
        now: Time,
        there: Set,
        rates: impl Fn(Set) -> Option<Rates>,
    ) -> Result<Vec<u64>, Set> {
        let left: Vec<_> = self.apps.iter().map(|app| app.with_fifo).collect();
        let known = |set: Set| match set & !there {
            0 => rates(set),
            _ => self.rates.get(&set).cloned().or_else(|| rates(set & there)),
        };
        let ends = ends(left, self.set(App::is_left_with_fifo), known).map_err(|missing| missing & there)?;
        let mut totals = self.after(now, &ends);
        for (total, app) in totals.iter_mut().zip(&self.apps) {
            if let Some(ended) = app.ended {
                *total = ended.since(app.begun).as_nanos();
            }
        }
        Ok(totals)
    }

    /// How long it is from the beginnings of bursts to their ends, which are so far from now.
    fn after(&self, now: Time, ends: &[u64]) -> Vec<u64> {
        self.apps
            .iter()
            .zip(ends)
            .map(|(app, end)| now.since(app.begun).as_nanos().saturating_add(*end))
            .collect()
    }

    /// What `fifo` made of a set.
    pub(super) fn learn(&mut self, set: Set, rates: Rates) {
        if self.rates.len() >= RATES_MAX {
            self.rates.clear();
        }
        self.rates.insert(set, rates);
    }

    /// The load has become another one.
    pub(super) fn forget(&mut self) {
        self.rates.clear();
    }

    /// Bytes of memory in use.
    pub(super) fn allocated_bytes(&self) -> usize {
        let rates: usize = self.rates.values().map(|rates| rates.capacity() * size_of::<(u64, u64)>()).sum();
        self.apps.capacity() * size_of::<App>() + self.rates.allocation_size() + rates
    }
}

/// How long so many bytes take, in ns; for ever at a rate of nothing.
fn takes(bytes: u64, (rate, ns): (u64, u64)) -> u64 {
    let takes = (u128::from(bytes) * u128::from(ns)).checked_div(rate.into());
    takes.and_then(|takes| u64::try_from(takes).ok()).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
}

/// How many bytes it is in so long.
fn moves(step: u64, (rate, ns): (u64, u64)) -> u64 {
    // Rounded up, so that what has taken its time is over.
    (u128::from(step) * u128::from(rate)).div_ceil(u128::from(ns.max(1))).min(u64::MAX.into()) as u64
}

/// When each of a set ends, in ns from now, by place; 0 for those that nobody knows it of.
fn ends(
    mut left: Vec<Option<u64>>,
    mut set: Set,
    rates: impl Fn(Set) -> Option<Rates>,
) -> Result<Vec<u64>, Set> {
    let mut ends = alloc::vec![0; left.len()];
    let mut now = 0_u64;
    loop {
        let is_known = |place: &usize| set & 1 << place != 0 && left[*place].is_some();
        let known: Vec<usize> = (0..left.len()).filter(is_known).collect();
        if known.is_empty() {
            return Ok(ends);
        }
        let rates = rates(set).ok_or(set)?;
        let rate = |place: usize| rates.get(place).copied().unwrap_or((0, 1));
        let need = |place: usize| left[place].map_or(u64::MAX, |bytes| takes(bytes, rate(place)));
        let needs: Vec<(usize, u64)> = known.into_iter().map(|place| (place, need(place))).collect();
        let step = needs.iter().map(|(_, need)| *need).min().unwrap_or(0).max(1);
        now = now.saturating_add(step).min(u64::MAX / 4);
        for (place, need) in needs {
            let after = left[place].map(|bytes| bytes.saturating_sub(moves(step, rate(place))));
            left[place] = after;
            if need <= step || after == Some(0) {
                set &= !(1 << place);
                ends[place] = now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::{collection, prop_assert, proptest};

    use super::super::bursts::Expected;
    use super::*;
    use crate::request::AppId;

    const SMALL: AppId = AppId(1);
    const LARGE: AppId = AppId(2);

    fn at(ns: u64) -> Time {
        Time::from_nanos(ns)
    }

    fn left(app: AppId, begun: u64, bytes: Option<u64>) -> Left {
        Left { app, begun: at(begun), bytes, expected: None }
    }

    /// Storage that carries out a byte a ns, shared equally by who is there.
    fn shared(set: Set) -> Option<Rates> {
        let count = u64::from(set.count_ones());
        Some(
            (0..3).map(|place| if set & 1 << place != 0 { (1_000, 1_000 * count) } else { (0, 1) }).collect(),
        )
    }

    /// The same, and who has the lower place is served first.
    fn one_first(set: Set) -> Option<Rates> {
        Some((0..3).map(|place| if set.trailing_zeros() == place { (1, 1) } else { (0, 1) }).collect())
    }

    #[test]
    fn who_is_served_first_ends_earlier_and_nobody_later() {
        let mut both = Ends::default();
        both.tell(at(0), [left(SMALL, 0, Some(100)), left(LARGE, 0, Some(1_000))], false);
        assert_eq!(both.totals_with_fifo(at(0), 0b11, shared), Ok(vec![200, 1_100]));
        assert_eq!(both.totals(at(0), one_first), Ok(vec![100, 1_100]));
        assert_eq!(both.totals(at(0), |_| None), Err(0b11), "of both first");
        let of_both = |set: Set| if set == 0b11 { shared(set) } else { None };
        assert_eq!(both.totals(at(0), of_both), Err(0b10), "and then of whom is left");
    }

    #[test]
    fn what_fifo_would_have_made_of_them_goes_on_beside() {
        let mut both = Ends::default();
        both.tell(at(0), [left(SMALL, 0, Some(100)), left(LARGE, 0, Some(1_000))], false);
        [0b11, 0b10].into_iter().for_each(|set| both.learn(set, shared(set).unwrap()));
        // The small one is served first, and over after 100.
        both.tell(at(50), [left(SMALL, 0, Some(50)), left(LARGE, 0, Some(1_000))], true);
        both.tell(at(150), [left(LARGE, 0, Some(950))], true);
        assert_eq!(both.apps[0].with_fifo, Some(25), "each had a half");
        // It is not in any window any more; what was seen of both is taken for what they would do.
        let there = |set: Set| if set == 0b10 { shared(set) } else { None };
        assert_eq!(both.totals_with_fifo(at(150), 0b10, there), Ok(vec![200, 1_100]));
        assert_eq!(both.totals(at(150), there).map(|totals| totals[1]), Ok(1_100));
        both.tell(at(300), [left(LARGE, 0, Some(800))], true);
        assert_eq!(both.apps[0].ended, Some(at(200)));
        assert_eq!(both.totals_with_fifo(at(300), 0b10, there), Ok(vec![200, 1_100]));
    }

    #[test]
    fn what_is_in_use_as_it_would_be_is_not_apart_from_it() {
        let mut both = Ends::default();
        both.tell(at(0), [left(SMALL, 0, Some(100)), left(LARGE, 0, Some(1_000))], false);
        both.learn(0b11, shared(0b11).unwrap());
        // With `fifo`: what is measured counts, not what was foretold.
        both.tell(at(100), [left(SMALL, 0, Some(80)), left(LARGE, 0, Some(980))], false);
        assert_eq!((both.apps[0].with_fifo, both.apps[1].with_fifo), (Some(80), Some(980)));
        // Another burst of the same application.
        both.tell(at(5_000), [left(SMALL, 4_000, Some(70))], false);
        let App { begun, with_fifo, ended, .. } = both.apps[0];
        assert_eq!((begun, with_fifo, ended), (at(4_000), Some(70), None));
    }

    #[test]
    fn what_is_said_later_counts_for_what_fifo_would_have_made_of_it_too() {
        let said = |app: AppId, left: Option<u64>, all: Option<u64>| {
            let expected = all.map(|bytes| Expected { bytes, is_said: true });
            Left { app, begun: at(0), bytes: left, expected }
        };
        let mut both = Ends::default();
        both.tell(at(0), [said(SMALL, Some(100), Some(100)), said(LARGE, Some(1_000), Some(1_000))], false);
        [0b11, 0b10].into_iter().for_each(|set| both.learn(set, shared(set).unwrap()));
        // The small one is served first, and another process of it says more.
        both.tell(at(50), [said(SMALL, Some(50), Some(100)), said(LARGE, Some(1_000), Some(1_000))], true);
        both.tell(at(60), [said(SMALL, Some(340), Some(400)), said(LARGE, Some(1_000), Some(1_000))], true);
        assert_eq!((both.apps[0].left, both.apps[0].with_fifo), (Some(340), Some(370)), "it had 30 of 60");
        // It has had more than it said, and says nothing that could be believed any more; then it does.
        both.tell(at(70), [said(SMALL, None, None), said(LARGE, Some(1_000), Some(1_000))], true);
        assert_eq!((both.apps[0].with_fifo, both.is_known(0)), (None, false));
        both.tell(at(80), [said(SMALL, Some(500), Some(900)), said(LARGE, Some(1_000), Some(1_000))], true);
        assert_eq!((both.apps[0].with_fifo, both.is_known(0)), (Some(500), true));
        // One that would have ended goes on.
        both.apps[0] = App {
            with_fifo: Some(0),
            ended: Some(at(80)),
            ..App::new(both.apps[0].key, at(0), Some(1), true)
        };
        both.apps[0].all = Some(900);
        both.tell(at(80), [said(SMALL, Some(600), Some(1_000)), said(LARGE, Some(1_000), Some(1_000))], true);
        assert_eq!((both.apps[0].with_fifo, both.apps[0].ended), (Some(100), None));
    }

    #[test]
    fn who_may_have_no_end_stays_and_places_are_used_again() {
        let mut all = Ends::default();
        let unknown = AppId(3);
        let those = [left(SMALL, 0, Some(100)), left(LARGE, 0, Some(300)), left(unknown, 0, None)];
        all.tell(at(0), those, false);
        assert_eq!((all.known(), all.is_known(0), all.is_known(2)), (2, true, false));
        // A third each, then a half, as the third one goes on for ever.
        assert_eq!(all.totals(at(0), shared), Ok(vec![300, 700, 0]));
        all.learn(0b101, shared(0b101).unwrap());
        all.learn(0b010, shared(0b010).unwrap());
        all.tell(at(1), [left(LARGE, 0, Some(299))], false);
        // Who is gone, really and with `fifo`, makes room, and what was known of its place is forgotten.
        all.apps[0].with_fifo = Some(0);
        assert_eq!(all.place(77), Some(0));
        assert!(all.rates.get(&0b101).is_none() && all.rates.get(&0b010).is_some());
    }

    #[test]
    fn ends_are_those_of_a_walk_from_ns_to_ns() {
        // One byte in so many ns, by set and place, and bytes.
        proptest!(|(slow in collection::vec(1u64..6, 8 * 3), bytes in collection::vec(1u64..120, 3))| {
            let of = |set: Set, place: usize| slow[set as usize * 3 + place];
            let rates = |set: Set| Some((0..3).map(|place| (1, of(set, place))).collect());
            let ends = ends(bytes.iter().map(|bytes| Some(*bytes)).collect(), 0b111, rates).unwrap();
            // In sixtieths of a byte, which all rates divide.
            let (mut left, mut set, mut now) = (bytes.iter().map(|bytes| bytes * 60).collect::<Vec<_>>(), 0b111, 0u64);
            while set != 0 {
                now += 1;
                let moving: Vec<usize> = (0..3).filter(|place| set & 1 << place != 0).collect();
                for &place in &moving {
                    left[place] = left[place].saturating_sub(60 / of(set, place));
                }
                for place in moving.into_iter().filter(|place| left[*place] == 0) {
                    set &= !(1 << place);
                    // A byte of rounding for each of two ends before it.
                    prop_assert!(now.abs_diff(ends[place]) <= 15, "{now} {ends:?}");
                }
            }
        });
    }
}
