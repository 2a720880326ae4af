//! Who goes next where many share little: jobs of groups and their members.
//!
//! Nobody takes more than it leaves free. So one that never gives back has half, two have a third each, and there is always
//! something left for the next one; nothing is set aside for those who do not come.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// Whether one that has `own` of the `used` may take `wish` more, where `max` is all there is: if it then has no more than it
/// leaves free. One that has nothing may take what is there.
pub const fn may_take(own: usize, used: usize, max: usize, wish: usize) -> bool {
    let Some(free) = max.saturating_sub(used).checked_sub(wish) else { return false };
    own == 0 || own.saturating_add(wish) <= free
}

/// Jobs that wait, by group and member of the group. Groups take turns, and so do the members of a group; the jobs of a
/// member keep their order.
#[derive(Debug)]
pub struct FairQueue<J> {
    /// Most jobs that run at once: of all, and of one member.
    max: usize,
    member_max: usize,
    running: usize,
    groups: Vec<Group<J>>,
    /// The group to ask first.
    first: usize,
}

#[derive(Debug)]
struct Group<J> {
    running: usize,
    members: BTreeMap<u64, Member<J>>,
    /// Members with a job that may run.
    ready: VecDeque<u64>,
}

#[derive(Debug)]
struct Member<J> {
    running: usize,
    jobs: VecDeque<J>,
}

/// A job that may run now. Its end is to be told with [`FairQueue::ended`].
#[derive(Debug, PartialEq, Eq)]
pub struct Started<J> {
    /// The job's group.
    pub group: usize,
    /// The member of the group.
    pub member: u64,
    /// The job.
    pub job: J,
}

impl<J> FairQueue<J> {
    /// A queue of so many groups. At most `max` jobs run at once, at most `member_max` of one member.
    pub fn new(groups: usize, max: usize, member_max: usize) -> FairQueue<J> {
        let group = || Group { running: 0, members: BTreeMap::new(), ready: VecDeque::new() };
        let groups = (0..groups).map(|_| group()).collect();
        FairQueue { max: max.max(1), member_max: member_max.max(1), running: 0, groups, first: 0 }
    }

    /// Adds a job. `group` is less than the number of groups.
    pub fn push(&mut self, group: usize, member: u64, job: J) {
        let Group { members, ready, .. } = &mut self.groups[group];
        let entry = members.entry(member).or_insert_with(|| Member { running: 0, jobs: VecDeque::new() });
        if entry.jobs.is_empty() && entry.running < self.member_max {
            ready.push_back(member);
        }
        entry.jobs.push_back(job);
    }

    /// Whether a job may run now.
    pub fn has_next(&self) -> bool {
        self.groups.iter().any(|group| self.may_run(group))
    }

    fn may_run(&self, group: &Group<J>) -> bool {
        !group.ready.is_empty() && may_take(group.running, self.running, self.max, 1)
    }

    /// The next job that may run now.
    #[expect(clippy::should_implement_trait, reason = "what it returns depends on what ended in between")]
    pub fn next(&mut self) -> Option<Started<J>> {
        let count = self.groups.len();
        let index = (self.first..count).chain(0..self.first).find(|&at| self.may_run(&self.groups[at]))?;
        let group = &mut self.groups[index];
        let member = group.ready.pop_front()?;
        let entry = group.members.get_mut(&member)?;
        let job = entry.jobs.pop_front()?;
        entry.running += 1;
        if !entry.jobs.is_empty() && entry.running < self.member_max {
            group.ready.push_back(member);
        }
        group.running += 1;
        self.running += 1;
        self.first = (index + 1) % count;
        Some(Started { group: index, member, job })
    }

    /// Counts a job that whoever asks runs at once, if it may run now and no other could. Its end is to be told, too.
    pub fn begin(&mut self, group: usize, member: u64) -> bool {
        let Group { running, members, .. } = &self.groups[group];
        let known = members.get(&member);
        let is_free = known.is_none_or(|known| known.jobs.is_empty() && known.running < self.member_max);
        if !is_free || self.has_next() || !may_take(*running, self.running, self.max, 1) {
            return false;
        }
        let Group { running, members, .. } = &mut self.groups[group];
        members.entry(member).or_insert_with(|| Member { running: 0, jobs: VecDeque::new() }).running += 1;
        *running += 1;
        self.running += 1;
        true
    }

    /// Notes that a job that ran has ended.
    pub fn ended(&mut self, group: usize, member: u64) {
        self.running -= 1;
        let group = &mut self.groups[group];
        group.running -= 1;
        let Some(entry) = group.members.get_mut(&member) else { return };
        if entry.running == self.member_max && !entry.jobs.is_empty() {
            group.ready.push_back(member);
        }
        entry.running -= 1;
        if entry.running == 0 && entry.jobs.is_empty() {
            group.members.remove(&member);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nobody_takes_more_than_it_leaves() {
        assert!(may_take(0, 0, 10, 10), "all that is there, by one that has nothing");
        assert!(may_take(4, 4, 10, 1) && !may_take(5, 5, 10, 1), "one alone has half");
        assert!(may_take(2, 5, 10, 1) && !may_take(3, 6, 10, 1), "of two, each has about a third");
        assert!(may_take(0, 9, 10, 1) && !may_take(0, 10, 10, 1));
        assert!(!may_take(1, usize::MAX, 10, 1) && !may_take(0, 0, 10, usize::MAX));
    }

    #[test]
    fn members_take_turns_and_keep_their_order() {
        let mut queue = FairQueue::new(1, 100, 2);
        (0..4).for_each(|job| queue.push(0, 7, job));
        queue.push(0, 8, 10);
        let mut order = Vec::new();
        while let Some(started) = queue.next() {
            order.push((started.member, started.job));
        }
        assert_eq!(order, [(7, 0), (8, 10), (7, 1)]);
        queue.ended(0, 7);
        assert_eq!(queue.next(), Some(Started { group: 0, member: 7, job: 2 }));
        assert!(!queue.has_next());
    }

    #[test]
    fn a_group_that_never_ends_a_job_leaves_half() {
        let mut queue = FairQueue::new(3, 60, 16);
        (0..100).for_each(|job| queue.push(0, job % 10, job));
        (0..100).for_each(|job| queue.push(1, job % 10, job));
        let mut running = [0; 3];
        while let Some(started) = queue.next() {
            running[started.group] += 1;
        }
        assert_eq!(running, [20, 20, 0]);
        queue.push(2, 1, 0);
        assert_eq!(queue.next().unwrap().group, 2);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Push(usize, u64),
        Begin(usize, u64),
        Next,
        End(usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..4usize, 0..5u64).prop_map(|(group, member)| Step::Push(group, member)),
            1 => (0..4usize, 0..5u64).prop_map(|(group, member)| Step::Begin(group, member)),
            3 => Just(Step::Next),
            2 => any::<usize>().prop_map(Step::End),
        ];
        prop::collection::vec(step, 0..400)
    }

    proptest! {
        #[test]
        fn bounds_hold_and_every_job_runs_once_in_its_members_order(steps in steps(), max in 1..12usize, each in 1..5usize) {
            let mut queue = FairQueue::new(4, max, each);
            let (mut running, mut number) = (Vec::<(usize, u64)>::new(), 0u64);
            let mut last = BTreeMap::new();
            let mut waiting = BTreeSet::new();
            let mut start = |queue: &mut FairQueue<u64>, running: &mut Vec<_>, waiting: &mut BTreeSet<_>| {
                let promised = queue.has_next();
                let started = queue.next();
                assert_eq!(promised, started.is_some());
                let Some(Started { group, member, job }) = started else { return false };
                assert!(waiting.remove(&job), "once");
                assert!(last.insert((group, member), job).is_none_or(|before| before < job), "in order");
                running.push((group, member));
                assert!(running.len() <= max);
                assert!(running.iter().filter(|one| **one == (group, member)).count() <= each);
                true
            };
            for step in steps {
                match step {
                    Step::Push(group, member) => {
                        queue.push(group, member, number);
                        waiting.insert(number);
                        number += 1;
                    }
                    Step::Begin(group, member) => {
                        let others_could = queue.has_next();
                        if queue.begin(group, member) {
                            assert!(!others_could);
                            running.push((group, member));
                            assert!(running.len() <= max);
                            assert!(running.iter().filter(|one| **one == (group, member)).count() <= each);
                        }
                    }
                    Step::Next => {
                        start(&mut queue, &mut running, &mut waiting);
                    }
                    Step::End(at) if !running.is_empty() => {
                        let (group, member) = running.swap_remove(at % running.len());
                        queue.ended(group, member);
                    }
                    Step::End(_) => {}
                }
            }
            // When jobs end, everything runs.
            loop {
                while start(&mut queue, &mut running, &mut waiting) {}
                let Some((group, member)) = running.pop() else { break };
                queue.ended(group, member);
            }
            prop_assert!(waiting.is_empty());
            prop_assert!(queue.groups.iter().all(|group| group.members.is_empty()));
        }
    }
}
