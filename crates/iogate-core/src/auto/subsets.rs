//! A window with some of its applications only, as some end before others: what was simulated of each set of them.

use alloc::vec::Vec;

use super::ends::{Rates, Set};
use super::shadow::Times;
use super::window::Window;
use crate::time::Time;

/// Windows with fewer applications that are kept: one is as large as the whole window, nearly.
const WINDOWS_MAX: usize = 8;

/// The sets of a window's applications that are looked at.
pub(super) struct Subsets {
    /// When the window was read: ends are counted from there.
    pub(super) at: Time,
    /// The places of the window's applications, all of them as a set, and the set that is being simulated.
    pub(super) places: Vec<usize>,
    pub(super) full: Set,
    pub(super) now: Set,
    /// The window with fewer applications.
    windows: Vec<(Set, Window)>,
    /// What became of a set under a candidate.
    runs: Vec<(usize, Set, Vec<Times>)>,
}

impl Subsets {
    /// None simulated yet.
    pub(super) fn new(at: Time, places: Vec<usize>) -> Subsets {
        let full = places.iter().fold(0, |set, place| set | 1 << place);
        Subsets { at, places, full, now: full, windows: Vec::new(), runs: Vec::new() }
    }

    /// The next to be simulated is `set`.
    pub(super) fn go_on(&mut self, whole: &Window, set: Set) {
        self.now = set;
        if set == self.full || self.windows.iter().any(|(other, _)| *other == set) {
            return;
        }
        if self.windows.len() >= WINDOWS_MAX {
            self.windows.remove(0);
        }
        let places = &self.places;
        self.windows.push((set, whole.without(|app| set & 1 << places[app as usize] == 0)));
    }

    /// The window of the set that is being simulated, where `whole` is that of all.
    pub(super) fn window<'a>(&'a self, whole: &'a Window) -> &'a Window {
        self.windows.iter().find(|(set, _)| *set == self.now).map_or(whole, |(_, part)| part)
    }

    /// How many of the first `limit` requests of the whole window are of the set that is being simulated.
    pub(super) fn limit(&self, whole: &Window, limit: u32) -> u32 {
        let first = &whole.work[..(limit as usize).min(whole.len())];
        first.iter().filter(|work| self.now & 1 << self.places[work.app as usize] != 0).count() as u32
    }

    /// What was simulated of the set that is now.
    pub(super) fn add(&mut self, candidate: usize, times: Vec<Times>) {
        self.runs.push((candidate, self.now, times));
    }

    /// What was simulated of all applications under a candidate.
    pub(super) fn whole(&self, candidate: usize) -> Option<&Vec<Times>> {
        self.run(candidate, self.full)
    }

    fn run(&self, candidate: usize, set: Set) -> Option<&Vec<Times>> {
        self.runs.iter().find(|run| (run.0, run.1) == (candidate, set)).map(|(.., times)| times)
    }

    /// At which rates a set gets on under a candidate, if that was simulated; by place.
    pub(super) fn rates(&self, whole: &Window, candidate: usize, set: Set) -> Option<Rates> {
        let places = self.places.iter().max().map_or(0, |most| most + 1);
        let mut rates = alloc::vec![(0, 1); places];
        if set & self.full == 0 {
            return Some(rates);
        }
        let times = self.run(candidate, set & self.full)?;
        for (app, (place, times)) in self.places.iter().zip(times).enumerate() {
            let part = &whole.apps[app];
            if set & 1 << place != 0 {
                let (requests, ns) = times.rate;
                rates[*place] = (requests * part.mean_bytes(), ns);
            }
        }
        Some(rates)
    }

    /// The sets that were simulated under a candidate.
    pub(super) fn sets(&self, candidate: usize) -> impl Iterator<Item = Set> + '_ {
        self.runs.iter().filter(move |run| run.0 == candidate).map(|run| run.1)
    }

    /// More of the window is looked at from now on: nothing of what was simulated is of that.
    pub(super) fn begin_again(&mut self) {
        self.runs.clear();
    }

    /// Bytes of memory in use.
    pub(super) fn allocated_bytes(&self) -> usize {
        let windows: usize = self.windows.iter().map(|(_, window)| window.allocated_bytes()).sum();
        let runs: usize = self.runs.iter().map(|(.., times)| times.capacity() * size_of::<Times>()).sum();
        windows + runs
    }
}
