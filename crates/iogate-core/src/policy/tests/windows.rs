//! A policy above a scheduler that serves one target for a window: storage has something to do while there is anything for that target.

use super::*;
use crate::request::TargetId;

const TARGETS: u64 = 4;
const WINDOW: u64 = MS;

/// Two applications with so many requests outstanding, whose targets follow each other, at targets that take so long for each.
struct Windows {
    gate: Gate,
    takes: u64,
    now: u64,
    /// The first target that they ask for.
    first: u64,
    /// Of each request its application; by target, how many there are in the gate.
    apps: Vec<u32>,
    there: [u64; TARGETS as usize],
    /// How long each application thinks between an answer and the next request.
    think: [u64; 2],
    /// Requests that are done, by application; for how long nothing was in service, and of that, while there was something for the window.
    done: [u64; 3],
    idle: u64,
    missed: u64,
}

impl Windows {
    fn new(policy: &Policy, jump: u64, depth: u32, takes: u64) -> Windows {
        let scheduler = SchedulerConfig::new(SchedulerKind::Twins);
        let layout = Layout { targets: TARGETS as u32, ..Layout::SINGLE };
        let mut gate = Gate::new(&GateConfig { scheduler, queue_max: 10_000, depth, layout }).unwrap();
        if jump > 0 {
            gate.set_prices(jumps_of(jump));
        }
        gate.set_policy(Time::ZERO, Some(policy)).unwrap();
        let (apps, there) = (Vec::new(), [0; 4]);
        Windows {
            gate,
            takes,
            now: 0,
            first: 0,
            apps,
            there,
            think: [0; 2],
            done: [0; 3],
            idle: 0,
            missed: 0,
        }
    }

    fn submit(&mut self, app: u32, target: u64) {
        let id = self.apps.len() as u64;
        self.apps.push(app);
        self.there[target as usize] += 1;
        let request = Request { target: Some(TargetId(target as u32)), ..block(id * TARGETS + target, app) };
        self.gate.submit(Time::from_nanos(self.now), &request).unwrap();
    }

    /// Each keeps so many outstanding.
    fn run(&mut self, outstanding: [u64; 2], until: u64) {
        let mut numbers = [0; 2];
        let mut serving: VecDeque<(u64, crate::DispatchId)> = VecDeque::new();
        let mut comes: VecDeque<(u64, u32)> = (0..outstanding[0]).map(|_| (0, 1)).collect();
        comes.extend((0..outstanding[1]).map(|_| (0, 2)));
        while self.now < until {
            comes.make_contiguous().sort_by_key(|(at, _)| *at);
            while let Some((_, app)) = comes.pop_front_if(|(at, _)| *at <= self.now) {
                let number = &mut numbers[app as usize - 1];
                *number += 1;
                let target = self.first + *number % (TARGETS - self.first);
                self.submit(app, target);
            }
            let wake = loop {
                match self.gate.next(Time::from_nanos(self.now)) {
                    Decision::Dispatch(dispatch) => {
                        let free_at = serving.back().map_or(self.now, |last| last.0);
                        serving.push_back((free_at + self.takes, dispatch.id));
                    }
                    Decision::WaitUntil(at, _) => break at.as_nanos(),
                    Decision::Idle => break u64::MAX,
                }
            };
            let before = self.now;
            let next = comes.front().map_or(u64::MAX, |(at, _)| *at);
            self.now = serving.front().map_or(u64::MAX, |one| one.0).min(wake).min(next);
            if serving.is_empty() {
                let window = before / WINDOW % TARGETS;
                self.idle += self.now - before;
                self.missed += (self.now - before) * u64::from(self.there[window as usize] > 0);
            }
            while let Some(&(_, id)) = serving.front().filter(|one| one.0 <= self.now) {
                serving.pop_front();
                for part in self.gate.parts(id).collect::<Vec<_>>() {
                    let app = self.apps[(part.request.0 / TARGETS) as usize];
                    self.there[(part.request.0 % TARGETS) as usize] -= 1;
                    self.done[app as usize - 1] += 1;
                    if let Some(think) = self.think.get(app as usize - 1) {
                        comes.push_back((self.now + think, app));
                    }
                }
                self.gate.complete(Time::from_nanos(self.now), id, Outcome::Done { bytes: 4096 });
            }
        }
    }
}

#[test]
fn no_window_goes_by_without_what_there_is_for_it() {
    for jump in [0, 100_000, 4 * MS] {
        for depth in [1, 4] {
            for outstanding in [[4, 4], [8, 64], [64, 8], [64, 64]] {
                let mut windows = Windows::new(&weights(&[1, 1]), jump, depth, 50_000);
                windows.run(outstanding, 200 * MS);
                assert_eq!(windows.missed, 0);
                let served = windows.done.iter().sum::<u64>() * 50_000;
                assert!(
                    served + windows.idle >= 199 * MS,
                    "{outstanding:?}, {depth} at once, {jump} ns for a jump"
                );
            }
        }
    }
}

/// Where a device has an arm, what is lent in the gaps of somebody who thinks may be for another window: then the next one has its turn.
#[test]
fn what_is_lent_for_another_window_keeps_nobody_out() {
    let mut windows = Windows::new(&weights(&[1, 1]), 4 * MS, 1, 50_000);
    windows.think = [6 * MS, 0];
    windows.run([1, 64], 2_000 * MS);
    assert!(windows.missed < 100 * MS, "{} ns without work though there is some", windows.missed);
}

/// Who has enough for each window has what its weight says, as without windows.
#[test]
fn shares_hold_above_windows() {
    for (jump, depth) in [(0, 1), (0, 4), (100_000, 1)] {
        let mut windows = Windows::new(&weights(&[3, 1]), jump, depth, 50_000);
        windows.run([400, 400], 4_000 * MS);
        let part = 1_000 * windows.done[0] / windows.done.iter().sum::<u64>();
        assert!((730..=770).contains(&part), "{part} of 1000, {depth} at once, {jump} ns for a jump");
        assert!(windows.idle < 4 * MS, "{} ns without work", windows.idle);
    }
}

/// A window for which nobody has anything leaves what waits for other ones to the policy. With several at once not each of the others
/// serves as many, and what waits for one of them runs out: then nothing is admitted but the little that comes for it.
#[test]
fn shares_hold_beside_a_window_that_nobody_has_anything_for() {
    for depth in [1, 4] {
        let mut windows = Windows::new(&weights(&[3, 1]), 0, depth, 50_000);
        windows.first = 1;
        windows.run([400, 400], 4_000 * MS);
        let part = 1_000 * windows.done[0] / windows.done.iter().sum::<u64>();
        assert!((730..=770).contains(&part), "{part} of 1000, {depth} at once");
        assert_eq!(windows.missed, 0);
    }
}

/// What waits for a cap is nobody's reason to admit what others have for other windows.
#[test]
fn shares_hold_beside_somebody_who_waits_for_a_cap() {
    let capped = Entitlement { max: rate(10 * 4096), ..Entitlement::default() };
    let mut policy = weights(&[3, 1]);
    policy.apps.insert(AppId(3), capped);
    for depth in [1, 4] {
        let mut windows = Windows::new(&policy, 0, depth, 50_000);
        windows.first = 1;
        // It has something for the first target, and nobody else has.
        (0..100).for_each(|_| windows.submit(3, 0));
        windows.run([400, 400], 4_000 * MS);
        let [first, second, _] = windows.done;
        let part = 1_000 * first / (first + second);
        assert!((730..=770).contains(&part), "{part} of 1000, {depth} at once");
    }
}

/// Storage for which a request takes as long as two windows never comes across those of two targets: what waits for these is not passed
/// over for ever, whose it ever is.
#[test]
fn what_no_window_is_come_across_for_is_served() {
    for (jump, depth) in [(0, 1), (4 * MS, 1), (0, 4)] {
        let mut windows = Windows::new(&weights(&[1, 1]), jump, depth, 2 * MS);
        (0..8).for_each(|_| windows.submit(3, 1));
        windows.run([64, 64], 20_000 * MS);
        assert_eq!(windows.done[2], 8, "{depth} at once, {jump} ns for a jump");
        assert!(windows.done[0].abs_diff(windows.done[1]) < windows.done[0] / 10, "{:?}", windows.done);
    }
}

/// A cap is no reason for storage to have nothing to do, and still holds.
#[test]
fn caps_hold_above_windows() {
    let capped = Entitlement { max: rate(1_000 * 4096), ..Entitlement::default() };
    let policy = Policy { apps: [(AppId(2), capped)].into(), ..Policy::default() };
    let mut windows = Windows::new(&policy, 0, 1, 50_000);
    windows.run([64, 64], 2_000 * MS);
    assert!((1_900..=2_020).contains(&windows.done[1]), "{:?}", windows.done);
}
