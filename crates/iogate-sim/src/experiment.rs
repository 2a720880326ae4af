//! All runs of a plan, on as many threads as there are: the results are the same for any number.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::result::RunResult;
use crate::scenario::{Plan, Point, Scenario};
use crate::world::{Observer, SimError, simulate};

/// A run that could not be carried out.
#[derive(Debug, thiserror::Error)]
#[error("{}seed {seed}{}: {cause}", in_point(point), alone_text(alone))]
pub struct ExperimentError {
    /// The settings of its point, as [`crate::scenario::Point::label`] has them; empty where nothing varies.
    pub point: String,
    /// Its seed.
    pub seed: u64,
    /// The application that was to run alone, if it was such a run.
    pub alone: Option<String>,
    /// Why.
    pub cause: Box<SimError>,
}

fn in_point(label: &str) -> String {
    if label.is_empty() { String::new() } else { format!("{label}, ") }
}

fn alone_text(app: &Option<String>) -> String {
    app.as_ref().map_or(String::new(), |app| format!(", {app} alone"))
}

/// What the runs of one point did.
#[derive(Clone, Debug)]
pub struct PointResult<O> {
    /// Its runs, in the order of their seeds; at least one.
    pub runs: Vec<RunResult>,
    /// Who looked on at the first of them.
    pub observer: Option<O>,
}

/// Runs every point of `plan` as often as it says, with consecutive seeds, and returns their results in the order of the points.
///
/// `observe` gives an onlooker, if there is to be one, for the first run of the point with this index; `progress` is told how many
/// runs are done. Both are called from any thread.
///
/// # Errors
/// The first run, in the order of points and seeds, that fails. No further ones are begun then.
pub fn run<O: Observer + Send>(
    plan: &Plan,
    threads: NonZero<usize>,
    observe: &(impl Fn(usize) -> Option<O> + Sync),
    progress: &(impl Fn(u64) + Sync),
) -> Result<Vec<PointResult<O>>, ExperimentError> {
    let simulate = |scenario: &Scenario, seed, observer: Option<&mut O>| match observer {
        Some(observer) => simulate(scenario, seed, observer),
        None => simulate(scenario, seed, &mut ()),
    };
    run_with(plan, threads, observe, progress, &simulate)
}

type Simulated<O> = Result<(RunResult, Option<O>), ExperimentError>;

fn run_with<O: Send>(
    plan: &Plan,
    threads: NonZero<usize>,
    observe: &(impl Fn(usize) -> Option<O> + Sync),
    progress: &(impl Fn(u64) + Sync),
    simulate: &(impl Fn(&Scenario, u64, Option<&mut O>) -> Result<RunResult, SimError> + Sync),
) -> Result<Vec<PointResult<O>>, ExperimentError> {
    let runs: Vec<(usize, u32)> = (plan.points.iter().enumerate())
        .flat_map(|(index, point)| (0..point.scenario.repetitions).map(move |repetition| (index, repetition)))
        .collect();
    let (next, done, failed) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let results: Mutex<Vec<(usize, Simulated<O>)>> = Mutex::default();
    let work = || {
        // Runs are begun in order, and what is begun is finished: the first failure is the same for any number of threads.
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(point, repetition)) = runs.get(index) else { return };
            let observer = if repetition == 0 { observe(point) } else { None };
            let result = one(&plan.points[point], repetition, observer, simulate);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
            progress(done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.get().min(runs.len()) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(index, _)| *index);
    let mut points: Vec<PointResult<O>> =
        plan.points.iter().map(|_| PointResult { runs: Vec::new(), observer: None }).collect();
    for (index, result) in results {
        let (run, observer) = result?;
        let point = &mut points[runs[index].0];
        point.runs.push(run);
        point.observer = point.observer.take().or(observer);
    }
    Ok(points)
}

/// One repetition of a point, and its applications alone where that is asked for.
fn one<O>(
    point: &Point,
    repetition: u32,
    mut observer: Option<O>,
    simulate: &impl Fn(&Scenario, u64, Option<&mut O>) -> Result<RunResult, SimError>,
) -> Simulated<O> {
    let scenario = &point.scenario;
    let seed = scenario.seed.saturating_add(repetition.into());
    let fail = |alone, cause| ExperimentError { point: point.label(), seed, alone, cause: Box::new(cause) };
    let mut result = simulate(scenario, seed, observer.as_mut()).map_err(|cause| fail(None, cause))?;
    if scenario.alone {
        for app in &scenario.apps {
            let single = Scenario { apps: vec![app.clone()], ..scenario.clone() };
            let alone = simulate(&single, seed, None).map_err(|cause| fail(Some(app.name.clone()), cause))?;
            let took = alone.apps.first().map(|result| result.end.since(result.start));
            if let Some(result) = result.apps.iter_mut().find(|result| result.id == app.id) {
                result.alone = took;
            }
        }
    }
    Ok((result, observer))
}

#[cfg(test)]
mod tests {
    use iogate_core::{Span, Time};

    use super::*;
    use crate::result::{AppResult, NetworkResult};
    use crate::scenario::Source;

    const TEXT: &str = r#"
        title = "t"
        seed = 10
        repetitions = 3
        alone = true
        clients.nodes = 4
        servers = { nodes = 1, device = "unit:1ms" }
        app = [
            { name = "a", processes = 1, pattern = "strided", op = "read", bytes = 1, request = 1 },
            { name = "b", processes = 2, pattern = "strided", op = "read", bytes = 1, request = 1 },
        ]
        sweep = { "servers.nodes" = [1, 2, 3] }
    "#;

    fn plan() -> Plan {
        let open = |_: &str| Err("none".into());
        Plan::read(&Source { name: "t", text: TEXT, settings: &[], quick: false, open: &open }).unwrap()
    }

    /// Takes as many seconds as the seed, the servers and the applications are together.
    fn fake(scenario: &Scenario, seed: u64, observer: Option<&mut u64>) -> Result<RunResult, SimError> {
        let sum = seed + u64::from(scenario.cluster.servers.nodes) + scenario.apps.len() as u64;
        let end = Time::ZERO + Span::from_secs(sum);
        if let Some(seen) = observer {
            *seen += sum;
        }
        let app = |app: &crate::scenario::App| AppResult {
            name: app.name.clone(),
            id: app.id,
            submitted: Time::ZERO,
            start: Time::ZERO,
            end,
            lost: false,
            processes: app.processes,
            calls: 0,
            bytes: 0,
            call_time: Span::ZERO,
            call_time_max: Span::ZERO,
            call_times: Default::default(),
            step_time: Span::ZERO,
            steps: 0,
            phases: Vec::new(),
            server_finish: Vec::new(),
            turns: Default::default(),
            alone: None,
        };
        Ok(RunResult {
            seed,
            makespan: end.since(Time::ZERO),
            apps: scenario.apps.iter().map(app).collect(),
            servers: Vec::new(),
            layers: Vec::new(),
            caches: Vec::new(),
            network: NetworkResult::default(),
            requests: 0,
            cut_off: false,
        })
    }

    fn threads(n: usize) -> NonZero<usize> {
        NonZero::new(n).unwrap()
    }

    #[test]
    fn results_are_in_order_for_any_number_of_threads() {
        let plan = plan();
        let seconds = |results: &[PointResult<u64>]| -> Vec<Vec<f64>> {
            let seconds =
                |point: &PointResult<u64>| point.runs.iter().map(|run| run.makespan.as_secs_f64()).collect();
            results.iter().map(seconds).collect()
        };
        let expected = vec![vec![13.0, 14.0, 15.0], vec![14.0, 15.0, 16.0], vec![15.0, 16.0, 17.0]];
        for n in [1, 2, 7, 100] {
            let most = AtomicU64::new(0);
            let progress = |done| {
                most.fetch_max(done, Ordering::Relaxed);
            };
            let results =
                run_with(&plan, threads(n), &|point| (point != 1).then_some(100), &progress, &fake).unwrap();
            assert_eq!(seconds(&results), expected);
            let seen: Vec<_> = results.iter().map(|point| point.observer).collect();
            assert_eq!(seen, [Some(113), None, Some(115)], "the first run of each");
            assert_eq!((most.into_inner(), plan.runs()), (9, 9));
        }
    }

    #[test]
    fn applications_run_alone_with_the_same_seed() {
        let results = run_with(&plan(), threads(2), &|_| None, &|_| (), &fake).unwrap();
        for (point, result) in results.iter().enumerate() {
            for (repetition, run) in result.runs.iter().enumerate() {
                let alone = Span::from_secs(10 + repetition as u64 + point as u64 + 1 + 1);
                assert!(run.apps.iter().all(|app| app.alone == Some(alone)), "{run:?}");
            }
        }
    }

    #[test]
    fn the_first_failure_ends_it() {
        let fails = |scenario: &Scenario, seed, observer: Option<&mut u64>| match (
            scenario.cluster.servers.nodes,
            seed,
        ) {
            (2, 12) | (3, _) => Err(SimError::Device("broken".into())),
            _ => fake(scenario, seed, observer),
        };
        for n in [1, 2, 9] {
            let error = run_with(&plan(), threads(n), &|_| None, &|_| (), &fails).unwrap_err();
            assert_eq!(
                error.to_string(),
                "servers.nodes = 2, seed 12: the device of the servers: broken",
                "{n} threads"
            );
        }
    }
}
