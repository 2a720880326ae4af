//! What a client has written to a file and not yet made durable, and whether it is lost.
//!
//! A server answers each write and each sync with a verifier, which changes when data in its memory may have been lost: by a
//! reboot, or by a write-back that failed. A client that finds another verifier than that of its first write since the last sync
//! knows that writes were lost, as with `WRITE` and `COMMIT` of NFSv3 (RFC 1813, 3.3.21).
//!
//! The answer to a change of the size has no verifier. The client then compares what the server has said of its whole export when it was
//! connected to: before it asked for the change, and after the sync. A server that has several others behind it says that anew only when
//! it begins itself; of those, it does the same as their client, and fails the sync.

mod files;

pub use files::{File, Files, Told};

/// The writes of one file at one server that no sync has covered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsynced {
    /// Of the first write since the last sync.
    verifier: Option<u64>,
    /// Of the server's export, before the first change of the size since the last sync.
    export: Option<u64>,
    /// Writes, and changes of the size, in all.
    writes: u64,
}

/// A sync in flight: what it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "tell what became of it"]
pub struct SyncBegun {
    /// What was unsynced when it began.
    before: Unsynced,
}

impl Unsynced {
    /// Notes a write that was answered. Returns whether earlier ones are lost.
    pub fn wrote(&mut self, verifier: u64) -> bool {
        self.writes += 1;
        let lost = self.verifier.is_some_and(|first| first != verifier);
        if lost {
            // Told of with it.
            self.export = None;
        }
        self.verifier = Some(verifier);
        lost
    }

    /// Notes a change of the size that was answered; `export` is the verifier of the server's export from before it was asked for.
    /// Returns whether earlier changes are lost.
    pub fn resized(&mut self, export: u64) -> bool {
        self.writes += 1;
        let lost = self.export.is_some_and(|first| first != export);
        if lost {
            self.verifier = None;
        }
        self.export = Some(export);
        lost
    }

    /// Whether a sync has covered all writes.
    pub fn is_clean(&self) -> bool {
        self.verifier.is_none() && self.export.is_none()
    }

    /// A sync is about to be sent. It covers the writes that were answered before.
    pub fn begin(&self) -> SyncBegun {
        SyncBegun { before: *self }
    }

    /// A sync was answered; `export` is the verifier of the server's export by now. Returns whether writes are lost. Of several syncs at
    /// once, the first one that is answered says so.
    pub fn synced(&mut self, begun: SyncBegun, verifier: u64, export: u64) -> bool {
        let differs = |first: Option<u64>, now| first.is_some_and(|first| first != now);
        let lost = differs(self.verifier, verifier) || differs(self.export, export);
        if !self.forget_covered(begun) && lost {
            // What came during the sync is lost if these change once more. One that a write has changed since is newer than the answer.
            if self.verifier == begun.before.verifier {
                self.verifier = self.verifier.map(|_| verifier);
            }
            if self.export == begun.before.export {
                self.export = self.export.map(|_| export);
            }
        }
        lost
    }

    /// A sync failed: the server has told that writes are lost, and will not say so again. What came during the sync may be there, or be
    /// lost later: then it is told of, if need be once more.
    pub fn failed(&mut self, begun: SyncBegun) {
        let _ = self.forget_covered(begun);
    }

    /// Forgets the writes if a sync that is over has covered all of them: whether it has.
    fn forget_covered(&mut self, begun: SyncBegun) -> bool {
        let covers = begun.before.writes == self.writes;
        if covers {
            (self.verifier, self.export) = (None, None);
        }
        covers
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_reboot_between_write_and_sync_is_noticed_once() {
        let mut file = Unsynced::default();
        assert!(!file.wrote(1));
        let begun = file.begin();
        assert!(file.synced(begun, 2, 2));
        let begun = file.begin();
        assert!(!file.synced(begun, 2, 2) && file.is_clean());
    }

    #[test]
    fn a_reboot_between_a_change_of_the_size_and_a_sync_is_noticed_once() {
        for wrote in [false, true] {
            let mut file = Unsynced::default();
            assert!(!file.resized(1) && !file.is_clean());
            if wrote {
                file.wrote(7);
            }
            let begun = file.begin();
            assert!(
                file.synced(begun, 7, 2),
                "the file's own verifier may be the same: of what is behind the server"
            );
            let begun = file.begin();
            assert!(!file.synced(begun, 7, 2) && file.is_clean());
        }
        let mut file = Unsynced::default();
        assert!(!file.resized(1) && file.resized(2), "the first one is lost");
        let begun = file.begin();
        file.resized(2);
        assert!(!file.synced(begun, 7, 2) && !file.is_clean(), "it came during the sync");
    }

    #[test]
    fn a_write_behind_a_reboot_tells_of_the_one_before() {
        let mut file = Unsynced::default();
        assert!(!file.wrote(1));
        assert!(file.wrote(2));
        let begun = file.begin();
        assert!(!file.synced(begun, 2, 2));
    }

    #[test]
    fn a_write_that_comes_during_a_sync_waits_for_the_next() {
        let mut file = Unsynced::default();
        file.wrote(1);
        let begun = file.begin();
        file.wrote(1);
        assert!(!file.synced(begun, 1, 1) && !file.is_clean());
        let begun = file.begin();
        assert!(file.synced(begun, 2, 2));
    }

    #[test]
    fn a_write_that_comes_during_a_sync_which_tells_of_a_loss_is_told_of_when_it_is_lost() {
        let mut file = Unsynced::default();
        assert!(!file.resized(1));
        let begun = file.begin();
        assert!(!file.wrote(2), "behind a reboot");
        assert!(file.synced(begun, 2, 2) && !file.is_clean());
        let begun = file.begin();
        assert!(file.synced(begun, 3, 3), "and behind the next one");

        let mut file = Unsynced::default();
        assert!(!file.wrote(1));
        let begun = file.begin();
        assert!(file.wrote(2), "the sync has failed by now");
        file.failed(begun);
        let begun = file.begin();
        assert!(file.synced(begun, 3, 3));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write,
        Resize,
        Reboot,
        BeginSync,
        /// The server carries out the sync that was begun last and that it has not carried out yet, or fails in it.
        ServeSync {
            fails: bool,
        },
        EndSync,
    }

    /// A sync that was begun.
    struct Syncing {
        begun: SyncBegun,
        /// What the server has answered, and whether there were losses that nobody had been told of.
        answer: Option<(Option<u64>, bool)>,
        /// How often losses had been told by then.
        told: u32,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Write),
            2 => Just(Step::Resize),
            1 => Just(Step::Reboot),
            2 => Just(Step::BeginSync),
            2 => prop::bool::weighted(0.2).prop_map(|fails| Step::ServeSync { fails }),
            2 => Just(Step::EndSync),
        ]
    }

    proptest! {
        /// A server with memory and a disk: whatever was answered and then lost is told of by the next sync that follows, or before.
        #[test]
        fn no_loss_goes_untold(steps in prop::collection::vec(step(), 0..60)) {
            let mut file = Unsynced::default();
            // A failed sync counts as a reboot: what is in memory is lost.
            let (mut boot, mut in_memory, mut lost) = (1, 0u32, 0u32);
            let (mut told, mut syncs) = (0u32, 0);
            let mut begun: Vec<Syncing> = Vec::new();
            let end = [Step::BeginSync, Step::ServeSync { fails: false }, Step::EndSync];
            for step in steps.into_iter().chain(end) {
                let tells = match step {
                    Step::Write => {
                        in_memory += 1;
                        file.wrote(boot)
                    }
                    Step::Resize => {
                        in_memory += 1;
                        file.resized(boot)
                    }
                    Step::Reboot => {
                        (boot, lost, in_memory) = (boot + 1, lost + in_memory, 0);
                        false
                    }
                    Step::BeginSync => {
                        begun.push(Syncing { begun: file.begin(), answer: None, told });
                        false
                    }
                    Step::ServeSync { fails } => {
                        if let Some(sync) = begun.iter_mut().rev().find(|sync| sync.answer.is_none()) {
                            if fails {
                                (boot, lost) = (boot + 1, lost + in_memory);
                            }
                            in_memory = 0;
                            (sync.answer, sync.told) = (Some(((!fails).then_some(boot), lost > 0)), told);
                        }
                        false
                    }
                    Step::EndSync => {
                        // The one that was carried out last, so that others are answered late.
                        let served = begun.iter().rposition(|sync| sync.answer.is_some());
                        let served = served.map(|at| begun.remove(at));
                        match served.map(|sync| (sync.begun, sync.told, sync.answer)) {
                            Some((begun, told_before, Some((Some(answer), has_lost)))) => {
                                syncs += 1;
                                let tells = file.synced(begun, answer, answer);
                                let is_told = tells || told > told_before || !has_lost;
                                prop_assert!(is_told, "writes are lost, and the sync says nothing");
                                tells
                            }
                            Some((begun, _, _)) => {
                                syncs += 1;
                                file.failed(begun);
                                true
                            }
                            None => false,
                        }
                    }
                };
                if tells {
                    (lost, told) = (0, told + 1);
                }
            }
            // A loss may be told of more than once where syncs are answered late, but not without one.
            prop_assert!(told <= (boot - 1) as u32 + syncs && (boot > 1 || told == 0), "told {told} times");
        }
    }
}
