//! Checkpointing jobs of random sizes, as the job generator of the checkpoint-coordination thesis, 4.1.2, draws them.

use iogate_core::policy::Entitlement;
use iogate_core::{Op, Span};

use crate::rng::{Distribution, Rng};
use crate::scenario::{App, Barrier, Jobs, Pattern, Workload};

/// Bytes per second that a job's estimate of its run time reckons with: far below what a storage system of one disk gives to one
/// job, since others will be in the way.
const ESTIMATED_BANDWIDTH: u64 = 10_000_000;

/// Draws the applications of `jobs`; they get the ids `first_id` and up, and files of their own, numbered as the applications are.
///
/// Each job computes and writes by turns. Its computing is divided evenly among the iterations, and its bytes among iterations
/// and processes, rounded up to whole calls. Processes wait for each other before and after they write (4.2). The time that it
/// claims is twice what it would take if its writes got 10 MB/s.
pub fn generate(jobs: &Jobs, first_id: u32, rng: &mut Rng) -> Vec<App> {
    (0..jobs.count).map(|index| job(jobs, first_id + index, &format!("job-{}", index + 1), rng)).collect()
}

fn job(jobs: &Jobs, id: u32, name: &str, rng: &mut Rng) -> App {
    let mut between = |(low, high): (u64, u64)| rng.between(low, high.max(low));
    let spans = |(low, high): (Span, Span)| (low.as_nanos(), high.as_nanos());
    let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).max(1);

    let nodes = small(between(jobs.nodes));
    let start = Span::from_nanos(between(spans(jobs.submit)));
    let iterations = small(between(jobs.iterations));
    let compute = between(spans(jobs.compute_total));
    let bytes = between(jobs.bytes_total);

    let processes = nodes.saturating_mul(jobs.processes_per_node.max(1));
    let request = jobs.request.max(1);
    let shares = u64::from(iterations) * u64::from(processes);
    let share = bytes.div_ceil(shares).next_multiple_of(request.into());
    let io = u128::from(share) * u128::from(shares) * 1_000_000_000 / u128::from(ESTIMATED_BANDWIDTH);
    let walltime = u64::try_from((u128::from(compute) + io) * 2).unwrap_or(u64::MAX);
    App {
        name: name.to_owned(),
        id,
        processes,
        first_node: 0,
        nodes,
        start,
        walltime: Some(Span::from_nanos(walltime)),
        files: id,
        entitlement: Entitlement::default(),
        group: None,
        workload: Workload {
            pattern: Pattern::Contiguous { sharing: jobs.sharing, bytes: share, request },
            op: Op::Write,
            iterations,
            compute: Distribution::Constant(Span::from_nanos(compute / u64::from(iterations))),
            think: Distribution::ZERO,
            outstanding: Some(1),
            barrier: Barrier::Phase,
            collective: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Sharing;

    /// The mixes of the thesis, 4.2: 7 to 9 minutes of computing, 4 to 10 iterations, 2.4 GB.
    fn mix() -> Jobs {
        Jobs {
            count: 50,
            nodes: (1, 4),
            processes_per_node: 4,
            submit: (Span::ZERO, Span::from_secs(60)),
            iterations: (4, 10),
            compute_total: (Span::from_secs(7 * 60), Span::from_secs(9 * 60)),
            bytes_total: (2_000_000_000, 2_800_000_000),
            request: 1 << 20,
            sharing: Sharing::Shared,
        }
    }

    #[test]
    fn all_values_are_drawn_from_their_ranges() {
        let jobs = generate(&mix(), 10, &mut Rng::new(1, 0));
        assert_eq!(jobs.iter().map(|job| job.id).collect::<Vec<_>>(), (10..60).collect::<Vec<_>>());
        for job in &jobs {
            let workload = &job.workload;
            let iterations = u64::from(workload.iterations);
            assert!((1..=4).contains(&job.nodes) && job.processes == 4 * job.nodes, "{job:?}");
            assert!(job.start <= Span::from_secs(60), "{job:?}");
            assert!((4..=10).contains(&iterations), "{job:?}");
            let Distribution::Constant(compute) = workload.compute else { panic!("{job:?}") };
            let compute_s = compute.as_nanos() * iterations / 1_000_000_000;
            assert!((419..=540).contains(&compute_s), "{job:?}");
            let Pattern::Contiguous { bytes, request, .. } = workload.pattern else { panic!("{job:?}") };
            assert!(bytes.is_multiple_of(request.into()), "{job:?}");
            let processes = u64::from(job.processes);
            let rounding = iterations * processes * u64::from(request);
            let total = bytes * iterations * processes;
            assert!((2_000_000_000..2_800_000_000 + rounding).contains(&total), "{job:?}");
            // It computes for at least 7 minutes, and writes for at least 200 s at the speed reckoned with.
            assert!(job.walltime.is_some_and(|claim| claim >= Span::from_secs(2 * (419 + 200))), "{job:?}");
            assert_eq!(job.files, job.id);
        }
        let values: [fn(&App) -> u64; 3] =
            [|job| job.nodes.into(), |job| job.workload.iterations.into(), |job| job.start.as_nanos()];
        for value in values {
            assert!(jobs.iter().any(|job| value(job) != value(&jobs[0])), "values vary");
        }
    }

    #[test]
    fn the_seed_decides() {
        let draw = |seed| format!("{:?}", generate(&mix(), 1, &mut Rng::new(seed, 0)));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn bytes_are_split_evenly_and_rounded_up_to_calls() {
        let fixed = Jobs {
            count: 1,
            nodes: (2, 2),
            processes_per_node: 2,
            submit: (Span::ZERO, Span::ZERO),
            iterations: (3, 3),
            compute_total: (Span::from_secs(30), Span::from_secs(30)),
            bytes_total: (1210, 1210),
            request: 100,
            sharing: Sharing::PerProcess,
        };
        let job = generate(&fixed, 1, &mut Rng::new(1, 0)).remove(0);
        // 1210 / 12 = 100.8: two calls.
        let expected = Pattern::Contiguous { sharing: Sharing::PerProcess, bytes: 200, request: 100 };
        assert_eq!(job.workload.pattern, expected);
        assert_eq!(job.workload.compute, Distribution::Constant(Span::from_secs(10)));
    }
}
