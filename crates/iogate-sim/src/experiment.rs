//! All runs of a plan, on as many threads as there are: the results are the same for any number.

mod repeats;

use std::hash::{DefaultHasher, Hasher};
use std::num::NonZero;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

pub use self::repeats::Repeats;
use crate::result::RunResult;
use crate::scenario::{Plan, Point, Scenario};
use crate::world::{Lent, Observer, SimError, simulate_with};

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

/// One run that is done.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Done<O> {
    /// Its number among all runs of the plan: point by point, those of a point in the order of their seeds.
    pub run: u64,
    /// What it did.
    pub result: RunResult,
    /// Who looked on.
    pub observer: Option<O>,
}

/// What tells these bytes from others: the program that runs an experiment, or what the experiment is made of. The same for the same bytes,
/// on every machine, by the same version of Rust. Here, as this crate is optimised in every build, and programs are large.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Runs every point of `plan` as often as it says, with consecutive seeds, and returns their results in the order of the points.
///
/// `observe` gives an onlooker, if there is to be one, for the first run of the point with this index; `progress` is told of each
/// run that is done. Both are called from any thread.
///
/// # Errors
/// The first run, in the order of points and seeds, that fails. No further ones are begun then.
pub fn run<O: Observer + Send>(
    plan: &Plan,
    threads: NonZero<usize>,
    observe: &(impl Fn(usize) -> Option<O> + Sync),
    progress: &(impl Fn() + Sync),
) -> Result<Vec<PointResult<O>>, ExperimentError> {
    let all: Vec<u64> = (0..plan.runs()).collect();
    let finished = |_: &Done<O>| {
        progress();
        ControlFlow::Continue(())
    };
    let done = run_some(plan, &all, threads, observe, &finished, &Repeats::default())?;
    let mut points: Vec<PointResult<O>> =
        plan.points.iter().map(|_| PointResult { runs: Vec::new(), observer: None }).collect();
    for ((point, _), done) in runs(plan).zip(done) {
        points[point].runs.push(done.result);
        points[point].observer = points[point].observer.take().or(done.observer);
    }
    Ok(points)
}

/// Runs only those with these numbers, which are in ascending order, and returns them in that order.
///
/// `finished` is told of each as soon as it is done, in any order and from any thread, and may say that no further ones are to
/// be begun. Runs that are among `repeats` are carried out once, but for those with an onlooker.
///
/// # Errors
/// As [`run`].
pub fn run_some<O: Observer + Send>(
    plan: &Plan,
    numbers: &[u64],
    threads: NonZero<usize>,
    observe: &(impl Fn(usize) -> Option<O> + Sync),
    finished: &(impl Fn(&Done<O>) -> ControlFlow<()> + Sync),
    repeats: &Repeats,
) -> Result<Vec<Done<O>>, ExperimentError> {
    run_with(plan, numbers, threads, observe, finished, &simulate_lent(Lent::NONE), repeats)
}

/// The same with schedulers of the caller's own, who may also end runs that are underway. The runs of one thread are the calling thread's.
///
/// # Errors
/// As [`run`].
pub fn run_lent<O: Observer + Send>(
    plan: &Plan,
    numbers: &[u64],
    threads: NonZero<usize>,
    observe: &(impl Fn(usize) -> Option<O> + Sync),
    finished: &(impl Fn(&Done<O>) -> ControlFlow<()> + Sync),
    lent: Lent<'_>,
) -> Result<Vec<Done<O>>, ExperimentError> {
    run_with(plan, numbers, threads, observe, finished, &simulate_lent(lent), &Repeats::default())
}

fn simulate_lent<O: Observer>(
    lent: Lent<'_>,
) -> impl Fn(&Scenario, u64, Option<&mut O>) -> Result<RunResult, SimError> + Sync {
    move |scenario, seed, observer| match observer {
        Some(observer) => simulate_with(scenario, seed, observer, lent),
        None => simulate_with(scenario, seed, &mut (), lent),
    }
}

/// All runs of a plan in the order of their numbers: which point, and which of its repetitions.
fn runs(plan: &Plan) -> impl Iterator<Item = (usize, u32)> {
    (plan.points.iter().enumerate())
        .flat_map(|(index, point)| (0..point.scenario.repetitions).map(move |repetition| (index, repetition)))
}

fn run_with<O: Send>(
    plan: &Plan,
    numbers: &[u64],
    threads: NonZero<usize>,
    observe: &(impl Fn(usize) -> Option<O> + Sync),
    finished: &(impl Fn(&Done<O>) -> ControlFlow<()> + Sync),
    simulate: &(impl Fn(&Scenario, u64, Option<&mut O>) -> Result<RunResult, SimError> + Sync),
    repeats: &Repeats,
) -> Result<Vec<Done<O>>, ExperimentError> {
    let is_asked = |(number, _): &(u64, _)| numbers.binary_search(number).is_ok();
    let runs: Vec<(u64, (usize, u32))> = (0..).zip(runs(plan)).filter(is_asked).collect();
    let (next, stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results: Mutex<Vec<Numbered<O>>> = Mutex::default();
    let work = || {
        // Runs are begun in order, and what is begun is finished: the first failure is the same for any number of threads.
        while !stopped.load(Ordering::Relaxed) {
            let Some(&(run, (point, repetition))) = runs.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            let observer = if repetition == 0 { observe(point) } else { None };
            let point = &plan.points[point];
            let result = match observer {
                Some(_) => one(point, repetition, observer, simulate),
                None => {
                    let run = || one(point, repetition, None, simulate).map(|(result, _)| result);
                    repeats.once(point, repetition, run).map(|result| (result, None))
                }
            };
            let result = result.map(|(result, observer)| Done { run, result, observer });
            if result.as_ref().map_or(true, |done| finished(done).is_break()) {
                stopped.store(true, Ordering::Relaxed);
            }
            results.lock().unwrap_or_else(PoisonError::into_inner).push((run, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.get().min(runs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(run, _)| *run);
    results.into_iter().map(|(_, result)| result).collect()
}

/// A run, done or not, by its number.
type Numbered<O> = (u64, Result<Done<O>, ExperimentError>);
type Simulated<O> = Result<(RunResult, Option<O>), ExperimentError>;

/// The seed of a repetition of a point.
fn seed_of(point: &Point, repetition: u32) -> u64 {
    point.scenario.seed.saturating_add(repetition.into())
}

/// One repetition of a point, and its applications alone where that is asked for.
fn one<O>(
    point: &Point,
    repetition: u32,
    mut observer: Option<O>,
    simulate: &impl Fn(&Scenario, u64, Option<&mut O>) -> Result<RunResult, SimError>,
) -> Simulated<O> {
    let scenario = &point.scenario;
    let seed = seed_of(point, repetition);
    let fail = |alone, cause| ExperimentError { point: point.label(), seed, alone, cause: Box::new(cause) };
    let mut result = simulate(scenario, seed, observer.as_mut()).map_err(|cause| fail(None, cause))?;
    if scenario.alone {
        for app in &scenario.apps {
            let single = Scenario { apps: vec![app.clone()], ..scenario.clone() };
            let alone = simulate(&single, seed, None).map_err(|cause| fail(Some(app.name.clone()), cause))?;
            // One that was lost, or that the time limit ended, says nothing of how long it takes.
            let ended = alone.apps.first().filter(|result| !result.lost && !alone.cut_off);
            let took = ended.map(|result| result.end.since(result.start));
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
        let app = |app| AppResult { end, ..AppResult::new(app, Time::ZERO) };
        Ok(RunResult {
            seed,
            makespan: end.since(Time::ZERO),
            apps: scenario.apps.iter().map(app).collect(),
            classes: Vec::new(),
            servers: Vec::new(),
            layers: Vec::new(),
            caches: Vec::new(),
            network: NetworkResult::default(),
            requests: 0,
            cut_off: false,
        })
    }

    /// All runs, or some, on so many threads; with an onlooker at all points but the second.
    fn runs_of(numbers: &[u64], threads: usize) -> Vec<Done<u64>> {
        let finished = |_: &Done<u64>| ControlFlow::Continue(());
        let observe = |point| (point != 1).then_some(100);
        run_with(
            &plan(),
            numbers,
            NonZero::new(threads).unwrap(),
            &observe,
            &finished,
            &fake,
            &Repeats::default(),
        )
        .unwrap()
    }

    #[test]
    fn results_are_in_order_for_any_number_of_threads() {
        let all: Vec<u64> = (0..plan().runs()).collect();
        for n in [1, 2, 7, 100] {
            let done = runs_of(&all, n);
            assert_eq!(done.iter().map(|done| done.run).collect::<Vec<_>>(), all);
            let seconds: Vec<_> = done.iter().map(|done| done.result.makespan.as_secs_f64()).collect();
            assert_eq!(seconds, [13.0, 14.0, 15.0, 14.0, 15.0, 16.0, 15.0, 16.0, 17.0]);
            let seen: Vec<_> = done.iter().map(|done| done.observer).collect();
            let first = [Some(113), None, None, None, None, None, Some(115), None, None];
            assert_eq!(seen, first, "the first run of each point");
        }
    }

    #[test]
    fn some_runs_are_what_they_are_among_all() {
        let all = runs_of(&(0..9).collect::<Vec<_>>(), 2);
        let some = runs_of(&[1, 6, 8], 2);
        for done in &some {
            let same = &all[done.run as usize];
            assert_eq!((done.result.seed, done.observer), (same.result.seed, same.observer));
            assert_eq!(done.result.makespan, same.result.makespan);
        }
        assert_eq!(some.iter().map(|done| done.run).collect::<Vec<_>>(), [1, 6, 8]);
    }

    #[test]
    fn who_is_told_of_a_run_can_end_it() {
        let begun = AtomicUsize::new(0);
        let counted = |scenario: &Scenario, seed, observer: Option<&mut u64>| {
            begun.fetch_add(usize::from(scenario.apps.len() == 2), Ordering::Relaxed);
            fake(scenario, seed, observer)
        };
        let finished = |done: &Done<u64>| match done.run {
            2 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        let one = NonZero::<usize>::MIN;
        let done =
            run_with(&plan(), &[0, 1, 2, 3, 4], one, &|_| None, &finished, &counted, &Repeats::default())
                .unwrap();
        assert_eq!((done.len(), begun.into_inner()), (3, 3));
    }

    /// Of an application that does not come to its end alone, it is not known how long it takes.
    #[test]
    fn a_run_alone_that_is_lost_or_cut_off_has_no_time() {
        let plan = plan();
        let alone_of = |lost: bool, cut_off: bool| {
            let run = |scenario: &Scenario, seed, observer: Option<&mut u64>| {
                let mut result = fake(scenario, seed, observer)?;
                if let [app] = &mut result.apps[..] {
                    app.lost = lost;
                    result.cut_off = cut_off;
                }
                Ok(result)
            };
            let (result, _) = one(&plan.points[0], 0, None, &run).unwrap();
            result.apps.iter().map(|app| app.alone).collect::<Vec<_>>()
        };
        assert_eq!(alone_of(false, false), [Some(Span::from_secs(12)); 2]);
        assert_eq!(alone_of(true, false), [None; 2]);
        assert_eq!(alone_of(false, true), [None; 2]);
    }

    /// Another plan with one of the same points, whose seeds begin later, by another name.
    #[test]
    fn what_plans_have_in_common_is_run_once() {
        let open = |_: &str| Err("none".into());
        let text = TEXT
            .replace("[1, 2, 3]", "[3, 4]")
            .replace("\"t\"", "\"other\"")
            .replace("seed = 10", "seed = 11");
        let other =
            Plan::read(&Source { name: "other", text: &text, settings: &[], quick: false, open: &open })
                .unwrap();
        let plans = [plan(), other];
        // Three servers, with the seeds 11 and 12.
        let repeats = Repeats::among(&plans);
        assert_eq!(repeats.spared(), 2);
        let begun = AtomicUsize::new(0);
        let counted = |scenario: &Scenario, seed, observer: Option<&mut u64>| {
            begun.fetch_add(usize::from(scenario.apps.len() == 2), Ordering::Relaxed);
            fake(scenario, seed, observer)
        };
        let finished = |_: &Done<u64>| ControlFlow::Continue(());
        let all = |plan: &Plan, repeats: &Repeats| {
            let (numbers, two) = ((0..plan.runs()).collect::<Vec<_>>(), NonZero::new(2).unwrap());
            let done = run_with(plan, &numbers, two, &|_| None, &finished, &counted, repeats).unwrap();
            done.into_iter().map(|done| format!("{:?}", (done.run, done.result))).collect::<Vec<_>>()
        };
        let once = plans.each_ref().map(|plan| all(plan, &repeats));
        assert_eq!(begun.swap(0, Ordering::Relaxed), 9 + 6 - 2);
        let each = plans.each_ref().map(|plan| all(plan, &Repeats::default()));
        assert_eq!((once, begun.into_inner()), (each, 15));
        assert_eq!(repeats.spared(), 0);
    }

    /// Whatever else differs: the slowest thing would be to be wrong.
    #[test]
    fn what_differs_in_anything_is_run_again() {
        let open = |_: &str| Err("none".into());
        for (this, that) in [
            ("bytes = 1", "bytes = 2"),
            ("alone = true", "alone = false"),
            ("unit:1ms", "unit:2ms"),
            ("seed = 10", "seed = 13"),
        ] {
            let text = TEXT.replacen(this, that, 1);
            let other =
                Plan::read(&Source { name: "t", text: &text, settings: &[], quick: false, open: &open })
                    .unwrap();
            assert_eq!(Repeats::among(&[plan(), other]).spared(), 0, "{that}");
        }
    }

    #[test]
    fn applications_run_alone_with_the_same_seed() {
        for Done { run, result, .. } in runs_of(&(0..9).collect::<Vec<_>>(), 2) {
            let (point, repetition) = (run / 3, run % 3);
            let alone = Span::from_secs(10 + repetition + point + 1 + 1);
            assert!(result.apps.iter().all(|app| app.alone == Some(alone)), "{result:?}");
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
            let (all, threads) = ((0..9).collect::<Vec<_>>(), NonZero::new(n).unwrap());
            let finished = |_: &Done<u64>| ControlFlow::Continue(());
            let error = run_with(&plan(), &all, threads, &|_| None, &finished, &fails, &Repeats::default())
                .unwrap_err();
            assert_eq!(
                error.to_string(),
                "servers.nodes = 2, seed 12: the device of the servers: broken",
                "{n} threads"
            );
        }
    }
}
