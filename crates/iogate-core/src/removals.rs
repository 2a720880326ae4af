//! The objects of removed files, until the removal of their names is durable.
//!
//! A crash of the machine that has the names can bring a name back whose removal was not durable yet. What was synced must be there then,
//! so objects wait: all that have come within a while are covered by one sync of the names. A sync counts only for removals of the same
//! boot: it must answer with the verifier that the names had before the removal. Else the crash may have taken the removal back, and who
//! carries this out asks whether it has.

use alloc::vec::Vec;

use crate::{Span, Time};

/// How long objects wait for others that the same sync covers.
pub const WAIT: Span = Span::from_secs(1);
/// So many are not kept waiting.
pub const BATCH: usize = 4096;
/// Who removes a file while so many wait carries out a batch first.
pub const WAITING_MAX: usize = 65_536;

/// A file that nobody can reach any more, unless a crash brings its name back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// What its objects are named by.
    pub object: [u8; 16],
    /// The verifier that the names had at some time before the removal; `None`: it is not known.
    pub verifier: Option<u64>,
}

/// What a sync has made of a batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// These objects may go: no crash brings their names back.
    pub gone: Vec<[u8; 16]>,
    /// Of these nobody knows whether their names are back: to be asked, and told by [`Removals::is_removed`] if they are not.
    pub doubted: Vec<Removal>,
}

/// The removals that wait.
#[derive(Debug, Default)]
pub struct Removals {
    waiting: Vec<Removal>,
    /// When the next batch is to begin, if something waits.
    due: Option<Time>,
    /// Batches that have begun and not ended.
    underway: usize,
}

impl Removals {
    /// Has a removal wait. Returns whether too many do: then a batch must be carried out before more are added.
    #[must_use]
    pub fn add(&mut self, removal: Removal, now: Time) -> bool {
        self.waiting.push(removal);
        let due = *self.due.get_or_insert(now + WAIT);
        if self.waiting.len() >= BATCH {
            self.due = Some(due.min(now));
        }
        self.waiting.len() >= WAITING_MAX
    }

    /// When the next batch is to begin.
    pub fn due(&self) -> Option<Time> {
        self.due
    }

    /// Whether objects wait, or are underway.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.underway == 0
    }

    /// Whether a batch has begun and not ended.
    pub fn is_underway(&self) -> bool {
        self.underway > 0
    }

    /// Begins a batch, of all that wait; the sync that it needs must begin after this. `None`: nothing waits.
    pub fn begin(&mut self) -> Option<Vec<Removal>> {
        self.due = None;
        if self.waiting.is_empty() {
            return None;
        }
        self.underway += 1;
        Some(core::mem::take(&mut self.waiting))
    }

    /// The names are durable as they were when the batch began, or later; `verifier` is what the sync has answered.
    pub fn synced(&self, batch: Vec<Removal>, verifier: u64) -> Synced {
        let (gone, doubted): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|removal| removal.verifier == Some(verifier));
        Synced { gone: gone.into_iter().map(|removal| removal.object).collect(), doubted }
    }

    /// A doubted file had no name after the sync that answered with this verifier: it may have lost it again only then, so the next
    /// sync counts.
    pub fn is_removed(&mut self, removal: Removal, verifier: u64, now: Time) {
        let _ = self.add(Removal { verifier: Some(verifier), ..removal }, now);
    }

    /// The names could not be synced, or not be asked: these wait again.
    pub fn failed(&mut self, batch: Vec<Removal>, now: Time) {
        if !batch.is_empty() {
            self.waiting.extend(batch);
            // Not at once, however many there are.
            self.due = Some(now + WAIT);
        }
    }

    /// A batch is carried out, or has failed.
    pub fn ended(&mut self) {
        self.underway = self.underway.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;

    fn removal(number: u8, verifier: u64) -> Removal {
        Removal { object: [number; 16], verifier: Some(verifier) }
    }

    fn at(seconds: u64) -> Time {
        Time::ZERO + Span::from_secs(seconds)
    }

    #[test]
    fn what_comes_within_a_while_is_one_batch() {
        let mut removals = Removals::default();
        assert_eq!((removals.due(), removals.begin()), (None, None));
        assert!(!removals.add(removal(1, 7), at(10)) && !removals.add(removal(2, 7), at(10)));
        assert_eq!(removals.due(), Some(at(11)));
        let batch = removals.begin().unwrap();
        assert_eq!((removals.due(), removals.is_underway()), (None, true));
        // This one is not covered by the sync that is underway.
        let _ = removals.add(removal(3, 7), at(11));
        let synced = removals.synced(batch, 7);
        assert_eq!(synced, Synced { gone: vec![[1; 16], [2; 16]], doubted: vec![] });
        removals.ended();
        assert_eq!(removals.begin().unwrap(), [removal(3, 7)]);
    }

    #[test]
    fn many_do_not_wait_and_too_many_hold_up_who_removes() {
        let mut removals = Removals::default();
        for _ in 1..BATCH {
            assert!(!removals.add(removal(1, 7), at(1)));
        }
        assert_eq!(removals.due(), Some(at(2)));
        assert!(!removals.add(removal(1, 7), at(1)));
        assert_eq!(removals.due(), Some(at(1)));
        let held_up = (BATCH + 1..=WAITING_MAX).map(|_| removals.add(removal(1, 7), at(1)));
        assert_eq!(held_up.filter(|&held_up| held_up).count(), 1);
    }

    #[test]
    fn a_failed_batch_waits_again() {
        let mut removals = Removals::default();
        let _ = removals.add(removal(1, 7), at(1));
        let batch = removals.begin().unwrap();
        removals.failed(batch, at(5));
        removals.ended();
        assert_eq!(removals.due(), Some(at(5) + WAIT));
        assert_eq!(removals.begin().unwrap(), [removal(1, 7)]);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Remove(u8),
        Crash(bool),
        Begin,
        Sync,
        Ask(bool),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..8u8).prop_map(Step::Remove),
            1 => any::<bool>().prop_map(Step::Crash),
            2 => Just(Step::Begin),
            2 => Just(Step::Sync),
            2 => any::<bool>().prop_map(Step::Ask),
        ]
    }

    proptest! {
        /// Names on a disk that forgets what was not synced: no objects go whose name a crash can still bring back.
        #[test]
        fn no_objects_go_before_their_names(steps in prop::collection::vec(step(), 0..200)) {
            let mut removals = Removals::default();
            let (mut boot, mut names, mut durable) = (1, BTreeSet::from_iter(0..8u8), BTreeSet::from_iter(0..8u8));
            let (mut begun, mut doubted): (Vec<Vec<Removal>>, Vec<(Removal, u64)>) = Default::default();
            for step in steps {
                match step {
                    Step::Remove(name) => {
                        if names.remove(&name) {
                            let _ = removals.add(removal(name, boot), Time::ZERO);
                        }
                    }
                    Step::Crash(loses) => {
                        boot += 1;
                        if loses {
                            names = durable.clone();
                        }
                        durable = names.clone();
                    }
                    Step::Begin => begun.extend(removals.begin()),
                    Step::Sync => {
                        let Some(batch) = begun.pop() else { continue };
                        durable = names.clone();
                        let Synced { gone, doubted: more } = removals.synced(batch, boot);
                        removals.ended();
                        for object in gone {
                            prop_assert!(!names.contains(&object[0]) && !durable.contains(&object[0]));
                        }
                        doubted.extend(more.into_iter().map(|removal| (removal, boot)));
                    }
                    Step::Ask(answers) => {
                        let Some((removal, verifier)) = doubted.pop() else { continue };
                        if !answers {
                            removals.failed(vec![removal], Time::ZERO);
                        } else if !names.contains(&removal.object[0]) {
                            removals.is_removed(removal, verifier, Time::ZERO);
                        }
                    }
                }
            }
        }
    }
}
