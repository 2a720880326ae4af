//! The batch scheduler in the world.

use iogate_core::Span;
use iogate_sim::rng::{Distribution, Rng};
use iogate_sim::scenario::{Batch, Jobs, Scenario, Sharing};

use super::common::{app, scenario};
use super::observe::run;

fn batch(nodes: u32, backfill: bool) -> Scenario {
    let mut s = scenario(1, "unit:1", "fifo");
    s.cluster.clients.nodes = nodes;
    s.batch = Some(Batch { backfill });
    s
}

/// Adds a job that computes for so many seconds, which is what it claims.
fn add(s: &mut Scenario, nodes: u32, seconds: u64) {
    let mut job = app(s.apps.len() as u32 + 1, nodes, 0, 1);
    (job.nodes, job.walltime) = (nodes, Some(Span::from_secs(seconds)));
    job.workload.compute = Distribution::Constant(Span::from_secs(seconds));
    s.apps.push(job);
}

/// When each job starts, in seconds.
fn starts(s: &Scenario) -> Vec<u64> {
    run(s).apps.iter().map(|app| app.start.as_nanos() / 1_000_000_000).collect()
}

#[test]
fn a_job_waits_for_its_nodes_and_a_short_one_may_go_before_it() {
    for (backfill, expected) in [(false, [0, 10, 30, 30]), (true, [0, 10, 0, 30])] {
        let mut s = batch(4, backfill);
        for (nodes, seconds) in [(3, 10), (4, 20), (1, 5), (1, 11)] {
            add(&mut s, nodes, seconds);
        }
        assert_eq!(starts(&s), expected, "backfill {backfill}");
    }
}

#[test]
fn no_node_has_two_jobs_at_once() {
    let mut rng = Rng::new(5, 0);
    for backfill in [false, true] {
        let mut s = batch(8, backfill);
        for _ in 0..60 {
            add(&mut s, 1 + rng.below(8) as u32, 1 + rng.below(50));
            let submit = Span::from_secs(rng.below(300));
            s.apps.last_mut().expect("just added").start = submit;
        }
        let result = run(&s);
        assert!(result.apps.iter().all(|app| app.start >= app.submitted));
        for app in &result.apps {
            let at_once = result.apps.iter().zip(&s.apps);
            let at_once = at_once.filter(|(other, _)| other.start <= app.start && app.start < other.end);
            let nodes: u32 = at_once.map(|(_, spec)| spec.nodes).sum();
            assert!(nodes <= 8, "{nodes} nodes at {:?}", app.start);
        }
    }
}

#[test]
fn drawn_jobs_write_what_they_should() {
    let mut s = batch(6, true);
    s.jobs = Some(Jobs {
        count: 12,
        nodes: (1, 4),
        processes_per_node: 2,
        submit: (Span::ZERO, Span::from_secs(60)),
        iterations: (2, 5),
        compute_total: (Span::from_secs(30), Span::from_secs(60)),
        bytes_total: (10 << 20, 20 << 20),
        request: 1 << 20,
        sharing: Sharing::Shared,
    });
    let result = run(&s);
    assert_eq!(result.apps.len(), 12);
    for app in &result.apps {
        assert!((10 << 20..=60 << 20).contains(&app.bytes), "{}: {}", app.name, app.bytes);
        assert!((2..=5).contains(&app.phases.len()));
        assert!(app.end.since(app.start) >= Span::from_secs(29));
    }
}
