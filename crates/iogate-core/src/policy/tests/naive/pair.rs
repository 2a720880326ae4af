//! The arbiter beside the naive one, step by step.

use super::super::nested::groups;
use alloc::collections::BTreeSet;

use super::*;
use crate::policy::arbiter::{Arbiter, ClassId, Next, Served};

/// An arbiter and the naive one, and a device that has so many requests in service, of which each takes as long as it says. Where there
/// are windows, every second one is for the same target, and so is every request one of two targets'.
struct Pair {
    real: Arbiter,
    naive: Naive,
    depth: usize,
    window: Option<u64>,
    now: u64,
    /// Admitted, by class; then in service, with their ends.
    queue: VecDeque<(usize, ClassId, u64)>,
    serving: Vec<(u64, usize, ClassId, u64)>,
    /// Where the last dispatch of each class ended.
    ends: [u64; 64],
}

impl Pair {
    fn class(&self, naive: usize) -> Option<&crate::policy::arbiter::Class> {
        let id = *self.real.of_app.get(&self.naive.classes[naive].app)?;
        Some(&self.real.classes[id.index()])
    }

    /// Whether a request of so many bytes may be served now.
    fn is_its_window(&self, bytes: u64) -> bool {
        self.window.is_none_or(|length| self.now / length % 2 == bytes / 1024 % 2)
    }

    /// What there is to do of what was admitted.
    fn work(&self) -> Work {
        let is_here = self.queue.iter().any(|(.., bytes)| self.is_its_window(*bytes));
        match (self.queue.is_empty(), self.serving.is_empty()) {
            _ if is_here || self.serving.len() == self.depth => Work::Here,
            (false, true) => Work::OtherWindow,
            _ => Work::Nothing,
        }
    }

    /// When to ask again: the next window may be for what has been admitted.
    fn again(&self, at: Option<u64>) -> Option<u64> {
        let length = self.window.filter(|_| !self.queue.is_empty());
        at.into_iter().chain(length.map(|length| (self.now / length + 1) * length)).min()
    }

    /// Admits and dispatches what may go now. Returns when to ask again.
    fn go(&mut self) -> Result<Option<u64>, TestCaseError> {
        let at = Time::from_nanos(self.now);
        loop {
            while self.serving.len() < self.depth
                && let Some(place) = self.queue.iter().position(|(.., bytes)| self.is_its_window(*bytes))
                && let Some((class, id, took)) = self.queue.remove(place)
            {
                self.serving.push((self.now + took, class, id, took));
                // Those of every second class go on where the one before ended.
                let file = self.naive.classes[class].app.0;
                let offset = self.ends[class] + u64::from(file % 2);
                self.ends[class] = offset + took;
                self.real.dispatched(at, id, file, [offset, offset + took]);
                self.naive.dispatched(class, file, [offset, offset + took]);
            }
            let work = self.work();
            // What was admitted is for the other window.
            let (length, now) = (self.window.unwrap_or(1), self.now);
            let has = move |bytes: u64| now / length % 2 == bytes / 1024 % 2;
            let is_beside = self.window.is_some() && work != Work::Here && !self.queue.is_empty();
            let has = is_beside.then_some(&has as &dyn Fn(u64) -> bool);
            let real = match has {
                Some(has) => {
                    let Naive { classes, .. } = &self.naive;
                    let of = |id: ClassId| {
                        let app = self.real.classes[id.index()].app;
                        let class = classes.iter().find(|class| class.app == app);
                        class.is_some_and(|class| class.waits.iter().any(|bytes| has(*bytes)))
                    };
                    let with: BTreeSet<ClassId> =
                        (0..self.real.classes.len() as u16).map(ClassId).filter(|id| of(*id)).collect();
                    self.real.next_of(at, work, Some(&|id| with.contains(&id)))
                }
                None => self.real.next(at, work),
            };
            let naive = self.naive.next(self.now, work, has);
            match (real, naive) {
                (Next::Admit(id), Ok(class)) => {
                    let (app, expected) = (self.real.is_capped(id).0, self.naive.classes[class].app);
                    prop_assert_eq!(app, expected, "admitted at {}", self.now);
                    loop {
                        let bytes = self.naive.admit(self.now, class, has);
                        self.real.admit(at, id, bytes);
                        self.queue.push_back((class, id, bytes));
                        let goes_on = self.naive.goes_on(self.now, class);
                        prop_assert_eq!(self.real.goes_on(id), goes_on, "{} at {}", app, self.now);
                        if !goes_on {
                            break;
                        }
                    }
                }
                (Next::Wait(until, _), Err(Some(expected))) => {
                    prop_assert_eq!(until.as_nanos(), expected, "it waits at {}", self.now);
                    return Ok(self.again(Some(expected)));
                }
                (Next::Idle, Err(None)) => return Ok(self.again(None)),
                (real, naive) => prop_assert!(false, "{real:?}, expected {naive:?} at {}", self.now),
            }
        }
    }

    fn arrives(&mut self, app: AppId, bytes: u64) -> Result<(), TestCaseError> {
        let (id, is_admitted) = self.real.arrives(Time::from_nanos(self.now), app, bytes);
        let expected = self.naive.arrives(self.now, app, bytes);
        prop_assert_eq!(is_admitted, expected, "{} at {}", app, self.now);
        if expected {
            let class = self.naive.find(app).unwrap();
            self.queue.push_back((class, id, bytes));
        }
        Ok(())
    }

    /// What ends first is completed. False if nothing is in service.
    fn complete(&mut self, until: u64) -> bool {
        let ends = self.serving.iter().enumerate().filter(|(_, one)| one.0 <= until);
        let Some((place, _)) = ends.min_by_key(|(_, one)| one.0) else { return false };
        let (end, class, id, took) = self.serving.remove(place);
        self.now = end;
        // Beside others it was in service for longer than it took of the device.
        let served = Served { requests: 1, bytes: 1, ns: took, lasted: Span::from_nanos(3 * took) };
        self.real.completed(Time::from_nanos(end), id, served);
        self.naive.completed(end, class, took, 3 * took);
        true
    }

    /// Both say the same of each class.
    fn agree(&self) -> Result<(), TestCaseError> {
        for (at, naive) in self.naive.classes.iter().enumerate() {
            let real = self.class(at).unwrap();
            let said =
                (real.finish, real.since, real.waiting as usize, real.admitted, u64::from(real.credit));
            let (waiting, serving) = (self.naive.waiting(at), self.naive.serving(at));
            let expected = (naive.finish, naive.since, waiting, serving, naive.credit);
            prop_assert_eq!(said, expected, "{} at {}", naive.app, self.now);
        }
        // Whether they have come or not.
        for app in (1..9).map(AppId) {
            let (said, expected) = (self.real.may_go_at(app).as_nanos(), self.naive.may_go_at(app));
            prop_assert_eq!(said, expected, "{} is let go, at {}", app, self.now);
        }
        Ok(())
    }
}

/// What a jump costs: nothing, little, or as much as with an arm.
fn jumps() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0u64), 1_000u64..200_000, MS..12 * MS]
}

/// From an arrival to the next.
fn gaps() -> impl Strategy<Value = u64> {
    prop_oneof![2 => Just(0u64), 4 => 1u64..500_000, 4 => 1u64..4 * MS, 1 => 1u64..20 * MS]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Whatever comes when, and is placed where: the same requests are admitted at the same time, for the same reasons, and all is
    /// charged once, to each level.
    #[test]
    fn a_tree_is_divided_as_naively(
        policy in groups(),
        jump in jumps(),
        depth in 1usize..4,
        window in prop::option::of(MS..10 * MS),
        arrivals in prop::collection::vec((1u32..9, 1u64..128, 1usize..6, gaps(), prop::option::weighted(0.2, 0u32..3)), 1..80),
        changes in prop::option::of((0usize..80, jumps())),
    ) {
        let mut pair = Pair {
            real: Arbiter::new(&policy, Span::from_nanos(jump)),
            naive: Naive::new(&policy, jump),
            depth,
            window,
            now: 0,
            queue: VecDeque::new(),
            serving: Vec::new(),
            ends: [0; 64],
        };
        let mut comes = 0;
        for (number, arrival) in arrivals.iter().map(Some).chain([None]).enumerate() {
            if let Some((_, jump)) = changes.filter(|(at, _)| *at == number) {
                pair.real.set_jump(Span::from_nanos(jump));
                pair.naive.set_jump(jump);
            }
            comes = arrival.map_or(u64::MAX, |arrival| comes + arrival.3);
            // Until the next one comes.
            loop {
                let wake = pair.go()?;
                pair.agree()?;
                let end = pair.serving.iter().map(|one| one.0).min();
                let Some(next) = wake.into_iter().chain(end).min().filter(|next| *next <= comes) else { break };
                pair.now = next;
                pair.complete(next);
            }
            if let Some(&(app, kib, requests, _, branch)) = arrival {
                pair.now = comes;
                pair.go()?;
                let branch = branch.map(|branch| AppId(1_000_000 + branch)).filter(|one| policy.branches.contains_key(one));
                if let Some(branch) = branch {
                    pair.real.place(Time::from_nanos(comes), AppId(app), branch);
                    pair.naive.place(comes, AppId(app), branch);
                    pair.agree()?;
                    // What is waited for elsewhere is asked for anew, as after each change.
                    pair.go()?;
                }
                for _ in 0..requests {
                    pair.arrives(AppId(app), kib * 1024)?;
                }
            }
        }
        let apps = pair.naive.classes.iter().filter(|one| !one.is_branch);
        let all: u64 = apps.map(|one| one.had).sum();
        let asked: u64 = arrivals.iter().map(|one| one.1 * 1024 * one.2 as u64).sum();
        prop_assert_eq!(all, asked, "each request was charged once");
        for (at, branch) in pair.naive.classes.iter().enumerate().filter(|(_, class)| class.is_branch) {
            let within: u64 = pair.naive.within(Some(at)).into_iter().map(|one| pair.naive.classes[one].had).sum();
            let moved = arrivals.iter().any(|one| one.4.is_some());
            prop_assert!(moved || branch.had == within, "{} of {within}", branch.had);
            let real = pair.class(at).unwrap();
            let id = pair.real.of_app[&branch.app];
            let limits = &pair.real.limits[id.index()];
            prop_assert!(!pair.real.is_ready(id));
            prop_assert!(real.is_idle() && limits.capped.is_none() && limits.due.is_none());
        }
    }
}
