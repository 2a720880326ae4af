//! What measurements have said of predictions: by how much a scheduler has shown less than was simulated, for each kind of load.
//!
//! A shadow can be wrong of one scheduler under one load and right of all else, as where a profile says that storage is quick in
//! sequence and it is not. What is in use is predicted well then, and no error is seen. So each measurement of a change is kept, and
//! counts from then on: what is expected of a scheduler is what is simulated plus its correction. Corrections are against `fifo`, which
//! has none. Who shows more has no correction: another gate, or the load, may have changed at the same time, and what is in use would be
//! believed over everything else for long.
//!
//! Kinds of load are told apart by the rule by which windows begin anew. The last [`PATTERNS_MAX`] are remembered, so that what comes
//! back is known. Storage changes, too, so a correction fades by one part in [`FADE`] with each window of its load, and half as fast after
//! each further measurement: what is wrong for good is tried ever more rarely.

use alloc::vec::Vec;

use super::load::LoadKind;
use super::objective::Ln;

/// Kinds of load that are remembered; the one that was seen least recently makes room.
const PATTERNS_MAX: usize = 16;
/// A correction of one measurement fades by one part in so many with each window.
const FADE: Ln = 256;
/// How often that can double.
const DOUBLINGS_MAX: u32 = 12;
/// The largest correction: ln 8. Beyond that a measurement is of something else.
const MOST: Ln = 2_079_442;

/// What has been measured of one candidate under one kind of load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Correction {
    pub(super) index: usize,
    /// What it shows beyond what is simulated, against `fifo`: 0, or negative, which is slower.
    pub(super) by: Ln,
    /// Measurements in it.
    pub(super) measured: u32,
}

/// A measurement of a change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// From which candidate to which.
    pub(super) from: usize,
    pub(super) to: usize,
    /// How much faster it was simulated to be, without any correction, and how much faster it was.
    pub(super) simulated: Ln,
    pub(super) shown: Ln,
}

#[derive(Debug)]
struct Pattern {
    kind: LoadKind,
    of: Vec<Correction>,
}

/// What has been measured, for each kind of load.
#[derive(Debug, Default)]
pub(super) struct Corrections {
    /// The one that was seen last is the first.
    patterns: Vec<Pattern>,
}

impl Corrections {
    /// There is a window of this kind of load: what is asked from here on is about that.
    pub(super) fn seen(&mut self, kind: Option<LoadKind>) {
        if let Some(kind) = kind {
            // One that was seen before counts as it was then: a load that drifts comes to be another one.
            match self.patterns.iter().position(|pattern| !pattern.kind.differs(&kind)) {
                Some(at) => self.patterns[..=at].rotate_right(1),
                None => {
                    self.patterns.truncate(PATTERNS_MAX - 1);
                    self.patterns.insert(0, Pattern { kind, of: Vec::new() });
                }
            }
        }
        if let Some(pattern) = self.patterns.first_mut() {
            pattern.of.iter_mut().for_each(|correction| {
                correction.by -= correction.by / (FADE << (correction.measured - 1).min(DOUBLINGS_MAX));
            });
        }
    }

    /// A change was measured.
    pub(super) fn learn(&mut self, measured: Measured) {
        let Measured { from, to, simulated, shown } = measured;
        let more = shown - simulated;
        // `fifo` is what all are measured against: what it shows is what the other one does not.
        let (index, more) = if to == 0 { (from, -more) } else { (to, more + self.by(from)) };
        let Some(pattern) = self.patterns.first_mut().filter(|_| from != to) else { return };
        let more = more.clamp(-MOST, 0);
        match pattern.of.iter_mut().find(|correction| correction.index == index) {
            Some(known) => {
                known.by = (known.by + more) / 2;
                known.measured = known.measured.saturating_add(1);
            }
            None => pattern.of.push(Correction { index, by: more, measured: 1 }),
        }
    }

    /// What has been measured under the present load.
    pub(super) fn now(&self) -> &[Correction] {
        self.patterns.first().map_or(&[], |pattern| &pattern.of)
    }

    /// The correction of a candidate that has been measured; else none.
    pub(super) fn by(&self, index: usize) -> Ln {
        self.now().iter().find(|correction| correction.index == index).map_or(0, |correction| correction.by)
    }

    /// The same; of one that has not been measured, what the best of those that are `alike` has lost, if all of them have lost.
    pub(super) fn expected(&self, index: usize, alike: impl Fn(usize) -> bool) -> Ln {
        let known = self.now();
        if index == 0 || known.iter().any(|correction| correction.index == index) {
            return self.by(index);
        }
        let best =
            known.iter().filter(|correction| alike(correction.index)).map(|correction| correction.by).max();
        best.unwrap_or(0).min(0)
    }

    /// Bytes of memory in use.
    pub(super) fn allocated_bytes(&self) -> usize {
        let each = self.patterns.iter().map(|pattern| pattern.of.capacity() * size_of::<Correction>());
        self.patterns.capacity() * size_of::<Pattern>() + each.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;

    fn load(op: Op) -> Option<LoadKind> {
        let mut kind = LoadKind::default();
        (0..LoadKind::BLOCK).for_each(|_| kind.add(op, 4_096, false));
        Some(kind)
    }

    fn measured(from: usize, to: usize, simulated: Ln, shown: Ln) -> Measured {
        Measured { from, to, simulated, shown }
    }

    #[test]
    fn corrections_add_up_along_changes_and_are_of_one_load() {
        let mut of = Corrections::default();
        of.learn(measured(0, 3, 500_000, 100_000));
        assert_eq!(of.by(3), 0, "no load has been seen");
        of.seen(load(Op::Read));
        of.learn(measured(0, 3, 500_000, 100_000));
        assert_eq!(of.by(3), -400_000);
        // From there on it is against what was corrected; and `fifo` itself has no correction.
        of.learn(measured(3, 4, 100_000, 200_000));
        assert_eq!(of.by(4), -300_000);
        of.learn(measured(4, 0, 50_000, 150_000));
        assert_eq!((of.by(0), of.by(4)), (0, (-300_000 - 100_000) / 2));
        // Of what is like two that have lost, the better one is expected; of what is like nothing, nothing is.
        assert_eq!(of.expected(7, |other| other < 5), -200_000);
        assert_eq!((of.expected(7, |_| false), of.expected(0, |_| true)), (0, 0));
        of.seen(load(Op::Write));
        assert_eq!(of.now(), []);
        of.seen(load(Op::Read));
        assert!(of.by(3) < -390_000, "{:?}", of.now());
    }

    #[test]
    fn corrections_fade_and_do_not_grow_without_bound() {
        let mut of = Corrections::default();
        of.seen(load(Op::Read));
        of.learn(measured(0, 1, 0, -50_000_000));
        assert_eq!(of.by(1), -MOST);
        let after = |of: &mut Corrections, windows| {
            (0..windows).for_each(|_| of.seen(load(Op::Read)));
            -of.by(1) * 100 / MOST
        };
        assert_eq!(after(&mut of, FADE), 36);
        of.learn(measured(0, 1, 0, -50_000_000));
        // The mean of both; and then half as fast.
        assert_eq!(after(&mut of, 0), 68);
        assert_eq!(after(&mut of, 2 * FADE), 25);
        // Loads of all sizes: what is remembered is bounded.
        for bytes in (0..32).map(|log| 1_u32 << log).chain([1; 3]) {
            let mut kind = LoadKind::default();
            (0..LoadKind::BLOCK).for_each(|_| kind.add(Op::Write, bytes, bytes % 3 == 0));
            of.seen(Some(kind));
            of.learn(measured(0, 1, 0, 1));
        }
        assert!(of.patterns.len() <= PATTERNS_MAX);
        assert!(of.allocated_bytes() < 16 << 10, "{}", of.allocated_bytes());
    }
}
