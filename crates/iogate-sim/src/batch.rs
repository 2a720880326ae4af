//! A batch scheduler: gives each job nodes of its own, first come, first served, with EASY backfilling.
//!
//! The first job that does not fit has a reservation: the time at which enough of the running jobs will have ended, if they take
//! as long as they claim. A later job may go before it if it fits now and either claims to end by then, or takes only nodes that
//! the reservation leaves over (Lifka: The ANL/IBM SP Scheduling System, 1995; the checkpoint-coordination thesis, 4.1.2).
//! If jobs end when they claim to, no reservation is ever put off.
//!
//! A job that claims no time is neither backfilled nor passed, and while the reservation depends on the end of such a job,
//! nothing is backfilled.
//!
//! A pure state machine: the caller says what time it is, and that a job has ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iogate_core::{Span, Time};

/// A job, as it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The caller's name for it: of all jobs that wait or run, only this one has it.
    pub id: u32,
    /// How many nodes it needs, not zero.
    pub nodes: u32,
    /// How long it claims to run at most.
    pub walltime: Option<Span>,
}

/// A job that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// [`Job::id`].
    pub id: u32,
    /// Its nodes, in ascending order.
    pub nodes: Vec<u32>,
}

/// Why the batch scheduler refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// It could never run.
    #[error(
        "job {id}: expected 1 to {cluster} nodes, the size of the cluster, found {nodes}; change its nodes or the cluster's"
    )]
    Nodes {
        /// The job.
        id: u32,
        /// How many it asks for.
        nodes: u32,
        /// How many there are.
        cluster: u32,
    },
    /// Another job has its id.
    #[error("job {id}: expected an id that no waiting or running job has; give each job its own")]
    Duplicate {
        /// The id.
        id: u32,
    },
    /// It is said to have ended, but it does not run.
    #[error("job {id}: expected a running job, found none with this id; only what was started can end")]
    NotRunning {
        /// The id.
        id: u32,
    },
}

/// The batch scheduler of a cluster.
#[derive(Clone, Debug)]
pub struct BatchScheduler {
    cluster: u32,
    backfill: bool,
    free: BTreeSet<u32>,
    withdrawn: BTreeSet<u32>,
    waiting: VecDeque<Job>,
    running: BTreeMap<u32, Running>,
}

#[derive(Clone, Debug)]
struct Running {
    nodes: Vec<u32>,
    /// When it ends, if it takes as long as it claims.
    end: Option<Time>,
}

/// What is kept for the first job that does not fit.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    /// When it begins.
    start: Time,
    /// How many nodes are free then besides its own.
    spare: usize,
}

impl BatchScheduler {
    /// For a cluster of nodes 0 to `cluster - 1`, all free.
    pub fn new(cluster: u32, backfill: bool) -> BatchScheduler {
        BatchScheduler {
            cluster,
            backfill,
            free: (0..cluster).collect(),
            withdrawn: BTreeSet::new(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
        }
    }

    /// Puts a job at the end of the queue.
    ///
    /// # Errors
    /// If it can never run, or another job has its id.
    pub fn submit(&mut self, job: Job) -> Result<(), BatchError> {
        let Job { id, nodes, .. } = job;
        if nodes == 0 || nodes > self.cluster {
            return Err(BatchError::Nodes { id, nodes, cluster: self.cluster });
        }
        if self.running.contains_key(&id) || self.waiting.iter().any(|other| other.id == id) {
            return Err(BatchError::Duplicate { id });
        }
        self.waiting.push_back(job);
        Ok(())
    }

    /// Starts all jobs that may start at `now`, and gives each the free nodes with the lowest numbers. To be called after each
    /// submission and each end; the time alone lets nothing start.
    pub fn start_ready(&mut self, now: Time) -> Vec<Started> {
        let mut started = Vec::new();
        while let Some(&job) = self.waiting.front()
            && job.nodes as usize <= self.free.len()
        {
            self.waiting.pop_front();
            started.push(self.start(now, job));
        }
        if self.backfill {
            self.start_behind_first(now, &mut started);
        }
        started
    }

    /// A job has ended: its nodes are free.
    ///
    /// # Errors
    /// If it does not run.
    pub fn finished(&mut self, id: u32) -> Result<(), BatchError> {
        let running = self.running.remove(&id).ok_or(BatchError::NotRunning { id })?;
        self.free.extend(running.nodes.into_iter().filter(|node| !self.withdrawn.contains(node)));
        Ok(())
    }

    /// A node is lost: no job gets it any more. One that runs there keeps it until it ends; one that needs more nodes than are
    /// left waits for ever.
    pub fn withdraw(&mut self, node: u32) {
        self.withdrawn.insert(node);
        self.free.remove(&node);
    }

    /// How many jobs wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Starts what may go before the first job, which does not fit.
    fn start_behind_first(&mut self, now: Time, started: &mut Vec<Started>) {
        let Some(first) = self.waiting.front().filter(|job| job.walltime.is_some()) else { return };
        let Some(mut reservation) = self.reservation(first.nodes as usize) else { return };
        let mut index = 1;
        while let Some(&job) = self.waiting.get(index)
            && let Some(walltime) = job.walltime
            && !self.free.is_empty()
        {
            let nodes = job.nodes as usize;
            let ends_in_time = now + walltime <= reservation.start;
            if nodes <= self.free.len() && (ends_in_time || nodes <= reservation.spare) {
                if !ends_in_time {
                    reservation.spare -= nodes;
                }
                self.waiting.remove(index);
                started.push(self.start(now, job));
            } else {
                index += 1;
            }
        }
    }

    /// When `nodes` nodes will be free, which is in the past if a job outruns its claim; `None` if a job that claims no time stands
    /// in the way.
    fn reservation(&self, nodes: usize) -> Option<Reservation> {
        let known = self.running.values().filter_map(|job| Some((job.end?, job.nodes.len())));
        let mut ends: Vec<(Time, usize)> = known.collect();
        ends.sort_unstable();
        let mut free = self.free.len();
        let mut start = None;
        for (end, freed) in ends {
            // What ends together is free together.
            if start.is_some_and(|start| start < end) {
                break;
            }
            free += freed;
            if free >= nodes {
                start = Some(end);
            }
        }
        start.map(|start| Reservation { start, spare: free - nodes })
    }

    /// Starts a job that fits.
    fn start(&mut self, now: Time, job: Job) -> Started {
        let nodes: Vec<u32> = self.free.iter().take(job.nodes as usize).copied().collect();
        for node in &nodes {
            self.free.remove(node);
        }
        let end = job.walltime.map(|walltime| now + walltime);
        self.running.insert(job.id, Running { nodes: nodes.clone(), end });
        Started { id: job.id, nodes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn job(id: u32, nodes: u32, walltime_s: u64) -> Job {
        Job { id, nodes, walltime: Some(Span::from_secs(walltime_s)) }
    }

    fn at(s: u64) -> Time {
        Time::ZERO + Span::from_secs(s)
    }

    fn with(cluster: u32, backfill: bool, jobs: &[Job]) -> BatchScheduler {
        let mut batch = BatchScheduler::new(cluster, backfill);
        for job in jobs {
            batch.submit(*job).unwrap();
        }
        batch
    }

    /// The ids and nodes of what starts.
    fn starts(batch: &mut BatchScheduler, now_s: u64) -> Vec<(u32, Vec<u32>)> {
        batch.start_ready(at(now_s)).into_iter().map(|started| (started.id, started.nodes)).collect()
    }

    #[test]
    fn nodes_with_low_numbers_go_first() {
        let mut batch = with(5, false, &[job(1, 2, 10), job(2, 1, 10), job(3, 1, 10)]);
        assert_eq!(starts(&mut batch, 0), [(1, vec![0, 1]), (2, vec![2]), (3, vec![3])]);
        batch.finished(1).unwrap();
        batch.submit(job(4, 3, 10)).unwrap();
        assert_eq!(starts(&mut batch, 5), [(4, vec![0, 1, 4])]);
    }

    /// Four nodes: job 1 has three until 10, job 2 wants all.
    const BLOCKED: [Job; 2] = [
        Job { id: 1, nodes: 3, walltime: Some(Span::from_secs(10)) },
        Job { id: 2, nodes: 4, walltime: Some(Span::from_secs(10)) },
    ];

    #[test]
    fn without_backfilling_nobody_goes_first() {
        let mut batch = with(4, false, &BLOCKED);
        batch.submit(job(3, 1, 1)).unwrap();
        assert_eq!(starts(&mut batch, 0), [(1, vec![0, 1, 2])]);
        batch.finished(1).unwrap();
        assert_eq!(starts(&mut batch, 10), [(2, vec![0, 1, 2, 3])]);
        assert_eq!(batch.waiting(), 1);
    }

    #[test]
    fn what_ends_before_the_reservation_goes_first() {
        let mut batch = with(4, true, &BLOCKED);
        for job in [job(3, 1, 11), job(4, 2, 1), job(5, 1, 10), job(6, 1, 1)] {
            batch.submit(job).unwrap();
        }
        // Job 3 would end too late, job 4 needs too many nodes, and job 5 takes the last.
        assert_eq!(starts(&mut batch, 0), [(1, vec![0, 1, 2]), (5, vec![3])]);
        batch.finished(5).unwrap();
        assert_eq!(starts(&mut batch, 9), [(6, vec![3])]);
    }

    #[test]
    fn what_the_reservation_leaves_over_is_for_anyone() {
        // Six nodes: two free, and two more than job 2 needs once job 1 ends.
        let mut batch =
            with(6, true, &[job(1, 4, 10), job(2, 5, 10), job(3, 1, 100), job(4, 1, 100), job(5, 1, 5)]);
        // Job 3 takes the only spare node for long, so that job 4 may not; job 5 is out in time.
        assert_eq!(starts(&mut batch, 0), [(1, vec![0, 1, 2, 3]), (3, vec![4]), (5, vec![5])]);
        batch.finished(5).unwrap();
        assert_eq!(starts(&mut batch, 5), []);
        batch.finished(1).unwrap();
        assert_eq!(starts(&mut batch, 10), [(2, vec![0, 1, 2, 3, 5])]);
    }

    #[test]
    fn what_ends_together_is_free_together() {
        let mut batch = with(4, true, &[job(1, 1, 10), job(2, 2, 10), job(3, 2, 10), job(4, 1, 100)]);
        assert_eq!(starts(&mut batch, 0), [(1, vec![0]), (2, vec![1, 2]), (4, vec![3])]);
    }

    #[test]
    fn a_job_that_claims_no_time_is_neither_backfilled_nor_passed() {
        let endless = |id, nodes| Job { id, nodes, walltime: None };
        for (jobs, why) in [
            ([job(1, 3, 10), job(2, 4, 10), endless(3, 1), job(4, 1, 1)], "it stands in the queue"),
            ([job(1, 3, 10), endless(2, 4), job(3, 1, 1), job(4, 1, 1)], "it is the first"),
            ([endless(1, 3), job(2, 4, 10), job(3, 1, 1), job(4, 1, 1)], "it runs"),
        ] {
            let mut batch = with(4, true, &jobs);
            assert_eq!(starts(&mut batch, 0), [(1, vec![0, 1, 2])], "{why}");
        }
        // It runs, but the reservation does not need its nodes.
        let mut batch =
            with(4, true, &[endless(1, 1), job(2, 2, 10), job(3, 3, 10), job(4, 1, 10), job(5, 1, 1)]);
        assert_eq!(starts(&mut batch, 0), [(1, vec![0]), (2, vec![1, 2]), (4, vec![3])]);
    }

    #[test]
    fn while_a_job_outruns_its_claim_nothing_ends_before_the_reservation() {
        let mut batch = with(4, true, &BLOCKED);
        starts(&mut batch, 0);
        batch.submit(job(3, 1, 1)).unwrap();
        assert_eq!(starts(&mut batch, 11), []);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut batch = with(4, true, &[job(1, 4, 1)]);
        let nodes = |nodes| Err(BatchError::Nodes { id: 2, nodes, cluster: 4 });
        assert_eq!(batch.submit(job(2, 5, 1)), nodes(5));
        assert_eq!(batch.submit(job(2, 0, 1)), nodes(0));
        assert_eq!(batch.submit(job(1, 1, 1)), Err(BatchError::Duplicate { id: 1 }));
        assert_eq!(batch.finished(1), Err(BatchError::NotRunning { id: 1 }));
        starts(&mut batch, 0);
        assert_eq!(batch.submit(job(1, 1, 1)), Err(BatchError::Duplicate { id: 1 }));
        assert_eq!(batch.finished(1), Ok(()));
        assert_eq!(batch.finished(1), Err(BatchError::NotRunning { id: 1 }));
    }

    /// When `nodes` nodes are free if what runs (end, nodes) takes as long as it claims, the naive way: look at each end.
    fn promised(now: u64, cluster: u32, running: &[(u64, u32)], nodes: u32) -> u64 {
        let busy = |time| running.iter().filter(|(end, _)| *end > time).map(|(_, nodes)| nodes).sum::<u32>();
        let fits = |time: &u64| cluster - busy(*time) >= nodes;
        running.iter().map(|(end, _)| *end).chain([now]).filter(fits).min().unwrap()
    }

    /// Runs random jobs, with `exact` as long as they claim, else any time up to twice that. Checks who starts when on which nodes,
    /// and with `exact` that no promise is broken.
    fn random_run(seed: u64, backfill: bool, exact: bool) {
        const CLUSTER: u32 = 8;
        let rng = &mut Rng::new(seed, 0);
        let mut arrivals: Vec<(u64, Job)> = (0..40)
            .map(|id| (rng.below(60), job(id, rng.between(1, CLUSTER.into()) as u32, rng.between(1, 20))))
            .collect();
        arrivals.sort_by_key(|(time, _)| *time);
        let mut batch = BatchScheduler::new(CLUSTER, backfill);
        let mut queue: VecDeque<Job> = VecDeque::new();
        // The end of each running job as it claims and as it is, its id and nodes.
        let mut running: Vec<(u64, u64, Started)> = Vec::new();
        let mut first_promise: BTreeMap<u32, u64> = BTreeMap::new();
        let mut started_in_all = 0;
        for now in 0..2000 {
            for (.., ended) in running.extract_if(.., |(_, end, _)| *end <= now) {
                batch.finished(ended.id).unwrap();
            }
            for (_, job) in arrivals.iter().filter(|(time, _)| *time == now) {
                batch.submit(*job).unwrap();
                queue.push_back(*job);
            }
            for started in batch.start_ready(at(now)) {
                started_in_all += 1;
                let place = queue.iter().position(|job| job.id == started.id).unwrap();
                assert!(backfill || place == 0, "first come, first served");
                let job = queue.remove(place).unwrap();
                assert_eq!(started.nodes.len(), job.nodes as usize);
                let claim = job.walltime.unwrap().as_nanos() / 1_000_000_000;
                if let Some(promise) = first_promise.get(&job.id).filter(|_| exact) {
                    assert!(
                        now <= *promise,
                        "seed {seed}: job {} was promised {promise}, starts at {now}",
                        job.id
                    );
                }
                let takes = if exact { claim } else { rng.between(1, 2 * claim) };
                running.push((now + claim, now + takes, started));
            }
            let mut busy: Vec<u32> = running.iter().flat_map(|(.., started)| started.nodes.clone()).collect();
            busy.sort_unstable();
            assert!(busy.windows(2).all(|pair| pair[0] < pair[1]), "a node has two jobs");
            assert!(busy.iter().all(|node| *node < CLUSTER));
            if let Some(first) = queue.front() {
                assert!(
                    busy.len() + first.nodes as usize > CLUSTER as usize,
                    "the first job waits although it fits"
                );
                if exact {
                    let ends: Vec<(u64, u32)> =
                        running.iter().map(|(end, _, started)| (*end, started.nodes.len() as u32)).collect();
                    let promise = promised(now, CLUSTER, &ends, first.nodes);
                    let before = *first_promise.entry(first.id).or_insert(promise);
                    assert!(
                        promise <= before,
                        "seed {seed}: job {} put off from {before} to {promise}",
                        first.id
                    );
                }
            }
        }
        assert_eq!(started_in_all, 40, "every job starts");
        assert_eq!(batch.waiting(), 0);
    }

    #[test]
    fn nodes_are_never_shared_every_job_starts_and_no_promise_is_broken() {
        for seed in 0..200 {
            random_run(seed, true, true);
            random_run(seed, true, false);
            random_run(seed, false, false);
        }
    }
}
