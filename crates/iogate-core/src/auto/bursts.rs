//! How much work applications have, by what they say and by what they had before.
//!
//! A *burst* is what an application has carried out until it has nothing in the gate for a second: a checkpoint, the input of a step, a
//! whole run of a short program. Whose last bursts were alike is expected to have as large a one now. An application can also say how
//! large its bursts are: then its first one is expected to be, too, until two that were alike have shown another size.

use alloc::vec::Vec;

use super::places::Places;
use crate::request::AppId;
use crate::time::{Span, Time};

/// How long an application has nothing in the gate when a burst is over.
pub const APART: Span = Span::from_secs(1);
/// Sizes are alike that differ by at most one part in so many of the larger one.
const ALIKE_PART: u64 = 8;

/// How large a burst is expected to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Bytes of all of it.
    pub bytes: u64,
    /// Whether the application has said so; else its last bursts were of that size.
    pub is_said: bool,
}

/// What is left of an application's burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The application.
    pub app: AppId,
    /// When the burst began.
    pub begun: Time,
    /// Bytes that are not carried out yet; `None` if nobody knows.
    pub bytes: Option<u64>,
    /// What that goes by.
    pub expected: Option<Expected>,
}

/// The bursts of at most 64 applications behind a gate. Of more, who has been away for longest is forgotten.
#[derive(Clone, Debug, Default)]
pub struct Bursts {
    apps: Vec<App>,
    places: Places,
}

#[derive(Clone, Copy, Debug)]
struct App {
    app: AppId,
    begun: Time,
    /// Bytes in the gate, since when there are none, and those that have been carried out in this burst.
    present: u64,
    since: Time,
    done: u64,
    /// The bytes of the last two bursts, the last one first; 0 if there was none.
    before: [u64; 2],
    /// The most that was said of this burst; 0 if nothing was.
    said: u64,
}

/// How far sizes may lie apart that are alike, of which this is the larger one.
const fn margin(most: u64) -> u64 {
    most / ALIKE_PART
}

fn are_alike(one: u64, other: u64) -> bool {
    one.abs_diff(other) <= margin(one.max(other))
}

impl App {
    fn new(app: AppId, now: Time) -> App {
        App { app, begun: now, present: 0, since: now, done: 0, before: [0; 2], said: 0 }
    }

    fn is_over(&self, now: Time) -> bool {
        self.present == 0 && now.since(self.since) >= APART
    }

    /// How large a burst it has, if that is said or its last ones show it, and this one has not been larger.
    fn expected(&self) -> Option<Expected> {
        let [last, other] = self.before;
        let seen = (last.min(other) > 0 && are_alike(last, other)).then(|| last.max(other));
        let expected = match (self.said, seen) {
            (0, None) => return None,
            // Who says too little would else go first each time.
            (said, Some(seen)) if said == 0 || !are_alike(said, seen) => {
                Expected { bytes: seen, is_said: false }
            }
            (said, _) => Expected { bytes: said, is_said: true },
        };
        (self.done <= expected.bytes.saturating_add(margin(expected.bytes))).then_some(expected)
    }
}

impl Bursts {
    /// So many bytes of an application have come into the gate.
    #[inline]
    pub fn arrived(&mut self, now: Time, app: AppId, bytes: u32) {
        let Some(place) = self.place(now, app) else { return };
        let of = &mut self.apps[place];
        if of.is_over(now) {
            if of.done > 0 {
                of.before = [of.done, of.before[0]];
            }
            (of.begun, of.done, of.said) = (now, 0, 0);
        }
        of.present += u64::from(bytes);
    }

    /// An application of which something is in the gate says how many bytes its burst is of, in all. Of several that are said of one burst,
    /// as by several processes, the most counts.
    #[inline]
    pub fn declare(&mut self, app: AppId, bytes: u64) {
        if let Some(place) = self.places.get(app) {
            let said = &mut self.apps[place].said;
            *said = bytes.max(*said);
        }
    }

    /// So many bytes of it have been carried out, or have failed.
    #[inline]
    pub fn completed(&mut self, now: Time, app: AppId, bytes: u32) {
        let Some(place) = self.places.get(app) else { return };
        let (of, bytes) = (&mut self.apps[place], u64::from(bytes));
        // What came before anybody looked is none of its bytes.
        of.done += bytes.min(of.present);
        of.present = of.present.saturating_sub(bytes);
        of.since = now;
    }

    /// What is left, of all that have a burst now.
    pub fn left(&self, now: Time) -> impl Iterator<Item = Left> + '_ {
        (self.apps.iter().filter(move |of| !of.is_over(now))).map(|of| {
            let expected = of.expected();
            let bytes = expected.map(|all| all.bytes.saturating_sub(of.done));
            Left { app: of.app, begun: of.begun, bytes, expected }
        })
    }

    /// Bytes of memory in use.
    pub fn allocated_bytes(&self) -> usize {
        self.apps.capacity() * size_of::<App>() + self.places.allocated_bytes()
    }

    /// Where an application has its place. The one without a name is many.
    fn place(&mut self, now: Time, app: AppId) -> Option<usize> {
        if app == AppId::default() {
            return None;
        }
        if let Some(place) = self.places.get(app) {
            return Some(place);
        }
        let apps = &self.apps;
        let away_for_longest = || {
            let away = (0..apps.len()).filter(|&place| apps[place].is_over(now));
            let place = away.min_by_key(|&place| apps[place].since)?;
            Some((place, apps[place].app))
        };
        let place = self.places.settle(app, apps.len(), away_for_longest)?;
        if place == self.apps.len() {
            self.apps.push(App::new(app, now));
        } else {
            self.apps[place] = App::new(app, now);
        }
        Some(place)
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection, option, prop_assert_eq, proptest};

    use super::super::places::{LOOK_EVERY, PLACES};
    use super::*;

    const SOLVER: AppId = AppId(7);

    fn ms(ms: u64) -> Time {
        Time::ZERO + Span::from_millis(ms)
    }

    /// A burst of so many MiB, from this time on, of a request each millisecond.
    fn burst(bursts: &mut Bursts, from: u64, app: AppId, count: u64) {
        for step in 0..count {
            bursts.arrived(ms(from + step), app, 1 << 20);
            bursts.completed(ms(from + step + 1), app, 1 << 20);
        }
    }

    fn left(bursts: &Bursts, now: u64) -> Vec<(u64, Option<u64>)> {
        let said = |left: Left| (left.begun.as_nanos() / 1_000_000, left.bytes.map(|bytes| bytes >> 20));
        bursts.left(ms(now)).map(said).collect()
    }

    #[test]
    fn what_happened_twice_is_expected_a_third_time() {
        let mut bursts = Bursts::default();
        burst(&mut bursts, 0, SOLVER, 100);
        assert_eq!(left(&bursts, 100), [(0, None)]);
        assert_eq!(left(&bursts, 1_100), [], "it is over");
        burst(&mut bursts, 5_000, SOLVER, 90);
        assert_eq!(left(&bursts, 5_090), [(5_000, None)], "once is not enough");
        burst(&mut bursts, 10_000, SOLVER, 40);
        assert_eq!(left(&bursts, 10_040), [(10_000, Some(60))]);
        burst(&mut bursts, 10_040, SOLVER, 70);
        assert_eq!(left(&bursts, 10_110), [(10_000, Some(0))], "a little more than before");
        burst(&mut bursts, 10_110, SOLVER, 10);
        assert_eq!(left(&bursts, 10_120), [(10_000, None)], "it is another kind of burst");
        burst(&mut bursts, 20_000, SOLVER, 1);
        assert_eq!(left(&bursts, 20_001), [(20_000, None)], "the last two differ by more than an eighth");
    }

    #[test]
    fn a_short_pause_is_in_the_burst_and_so_is_what_waits() {
        let mut bursts = Bursts::default();
        burst(&mut bursts, 0, SOLVER, 10);
        burst(&mut bursts, 1_009, SOLVER, 10);
        assert_eq!(left(&bursts, 1_019), [(0, None)]);
        // In the gate for a minute.
        bursts.arrived(ms(2_000), SOLVER, 1 << 20);
        bursts.arrived(ms(62_000), SOLVER, 1 << 20);
        assert_eq!(left(&bursts, 62_000), [(0, None)]);
        bursts.completed(ms(62_001), SOLVER, 2 << 20);
        burst(&mut bursts, 70_000, SOLVER, 22);
        burst(&mut bursts, 80_000, SOLVER, 1);
        assert_eq!(left(&bursts, 80_001), [(80_000, Some(21))]);
    }

    #[test]
    fn what_came_before_anybody_looked_is_left_out() {
        let mut bursts = Bursts::default();
        bursts.completed(ms(0), SOLVER, 1 << 20);
        bursts.arrived(ms(1), SOLVER, 4 << 20);
        bursts.completed(ms(2), SOLVER, 5 << 20);
        assert_eq!(bursts.apps[0].done, 4 << 20);
        assert!(bursts.apps[0].is_over(ms(1_002)));
        // Nobody knows whose bursts they are.
        bursts.arrived(ms(3), AppId::default(), 1 << 20);
        assert_eq!(bursts.apps.len(), 1);
    }

    #[test]
    fn who_has_been_away_for_longest_makes_room() {
        let mut bursts = Bursts::default();
        let most = PLACES as u64;
        for app in 1..=most {
            burst(&mut bursts, app * 10, AppId(app as u32), 1);
        }
        let come = |bursts: &mut Bursts, now: u64, app: u32| {
            (0..LOOK_EVERY).for_each(|_| bursts.arrived(ms(now), AppId(app), 1));
        };
        let has = |bursts: &mut Bursts, app: u32| bursts.places.get(AppId(app)).is_some();
        // All are in their bursts: nobody goes.
        come(&mut bursts, 700, 1_000);
        assert!(has(&mut bursts, 1) && !has(&mut bursts, 1_000));
        come(&mut bursts, 5_000, 1_001);
        assert!(has(&mut bursts, 1_001) && !has(&mut bursts, 1));
        assert_eq!(bursts.apps.len(), PLACES);
        bursts.completed(ms(5_001), AppId(1_001), 1);
        burst(&mut bursts, 5_002, AppId(2), 1);
        assert_eq!(left(&bursts, 5_003).len(), 2);
        assert!(bursts.allocated_bytes() < 16 << 10);
    }

    /// As [`burst`], by processes that say so many MiB.
    fn burst_saying(bursts: &mut Bursts, from: u64, count: u64, said: &[u64]) {
        burst(bursts, from, SOLVER, count);
        said.iter().for_each(|said| bursts.declare(SOLVER, said << 20));
    }

    /// What is left, in MiB, and whether it goes by what was said.
    fn by(bursts: &Bursts, now: u64) -> Option<(u64, bool)> {
        let left = bursts.left(ms(now)).next()?;
        Some((left.bytes? >> 20, left.expected?.is_said))
    }

    #[test]
    fn what_is_said_is_expected_from_the_first_request_on() {
        let mut bursts = Bursts::default();
        bursts.declare(SOLVER, 100 << 20);
        assert_eq!(bursts.apps.len(), 0, "nothing of it has come");
        bursts.arrived(ms(0), SOLVER, 1 << 20);
        bursts.declare(SOLVER, 100 << 20);
        assert_eq!(by(&bursts, 0), Some((100, true)));
        bursts.completed(ms(1), SOLVER, 1 << 20);
        assert_eq!(by(&bursts, 1), Some((99, true)));
        // Several say different things: the most counts.
        burst_saying(&mut bursts, 1, 9, &[200, 50]);
        assert_eq!(by(&bursts, 10), Some((190, true)));
        burst(&mut bursts, 10, SOLVER, 214);
        assert_eq!(by(&bursts, 224), Some((0, true)), "a little more than it said");
        burst(&mut bursts, 224, SOLVER, 2);
        assert_eq!(by(&bursts, 226), None, "it goes on for longer than it said");
        // Of another burst nothing is said as long as nobody says it.
        burst(&mut bursts, 5_000, SOLVER, 1);
        assert_eq!(left(&bursts, 5_001), [(5_000, None)]);
        burst_saying(&mut bursts, 5_001, 1, &[30]);
        assert_eq!(by(&bursts, 5_002), Some((28, true)));
        bursts.declare(AppId::default(), 1 << 20);
        assert_eq!(bursts.apps.len(), 1, "the application without a name is many");
    }

    #[test]
    fn what_was_measured_twice_wins_over_what_is_said() {
        let mut bursts = Bursts::default();
        burst_saying(&mut bursts, 0, 100, &[10]);
        burst_saying(&mut bursts, 5_000, 10, &[10]);
        burst_saying(&mut bursts, 10_000, 1, &[10]);
        assert_eq!(by(&bursts, 10_001), Some((9, true)), "what was measured was not alike");
        burst_saying(&mut bursts, 10_001, 98, &[10]);
        burst_saying(&mut bursts, 15_000, 100, &[10]);
        burst_saying(&mut bursts, 20_000, 1, &[10]);
        assert_eq!(by(&bursts, 20_001), Some((99, false)), "twice ten times as much as it said");
        burst_saying(&mut bursts, 20_001, 98, &[110]);
        assert_eq!(by(&bursts, 20_099), Some((11, true)), "to within an eighth of what is said");
        burst_saying(&mut bursts, 20_099, 1, &[150]);
        assert_eq!(by(&bursts, 20_100), Some((0, false)));
    }

    #[test]
    fn what_nobody_has_said_changes_nothing_and_what_is_said_only_what_is_expected() {
        // Milliseconds since the step before, bytes, and what is said after it.
        let steps = collection::vec((0u64..1_500, 1u32..1_000, option::of(1u64..1_000)), 0..40);
        proptest!(|(steps in steps)| {
            let (mut one, mut other, mut now) = (Bursts::default(), Bursts::default(), 0);
            // All bursts so far, and what was said of the last.
            let (mut all, mut said, mut last) = (Vec::<u64>::new(), 0, None::<u64>);
            for (pause, bytes, says) in steps {
                now += pause;
                for bursts in [&mut one, &mut other] {
                    bursts.arrived(ms(now), SOLVER, bytes);
                    bursts.completed(ms(now), SOLVER, bytes);
                }
                if last.is_none_or(|last| now - last >= 1_000) {
                    all.push(0);
                    said = 0;
                }
                last = Some(now);
                *all.last_mut().unwrap() += u64::from(bytes);
                if let Some(says) = says {
                    other.declare(SOLVER, says);
                    said = said.max(says);
                }
                let alike = |a: u64, b: u64| 8 * a.abs_diff(b) <= a.max(b);
                let is_over = |all: u64, done: u64| done > all + all / 8;
                let (done, before) = all.split_last().unwrap();
                let seen = match before {
                    [.., a, b] if alike(*a, *b) => Some(*a.max(b)),
                    _ => None,
                };
                let size = |said: u64| match (said, seen) {
                    (0, seen) => seen,
                    (said, Some(seen)) if !alike(said, seen) => Some(seen),
                    (said, _) => Some(said),
                };
                for (bursts, said) in [(&one, 0), (&other, said)] {
                    let expected = size(said).filter(|all| !is_over(*all, *done));
                    let left = bursts.left(ms(now)).next().unwrap();
                    prop_assert_eq!(left.bytes, expected.map(|all| all.saturating_sub(*done)));
                    prop_assert_eq!(left.expected.map(|of| of.bytes), expected);
                }
                let rest = |bursts: &Bursts| bursts.apps.iter().map(|of| (of.begun, of.done, of.before)).collect::<Vec<_>>();
                prop_assert_eq!(rest(&one), rest(&other));
            }
        });
    }
}
