//! `iogate sim`: the runs of a scenario, and what they gave.

use std::io::IsTerminal;
use std::num::NonZero;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iogate_core::Span;
use iogate_report::Table;
use iogate_report::units::time;
use iogate_sim::experiment::{self, PointResult};
use iogate_sim::scenario::Plan;

use crate::cli::SimArgs;
use crate::commands::scenario;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &SimArgs) -> Result<(), Failure> {
    let plan = scenario::plan(&args.scenario)?;
    let threads = match args.threads {
        Some(threads) => threads,
        None => std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN),
    };
    let bar = progress(plan.runs());
    let results = experiment::run(&plan, threads, &|_| None::<()>, &|_| bar.inc(1));
    bar.finish_and_clear();
    report(&plan, &results.map_err(|error| Failure::failed(anyhow::Error::new(error)))?)
}

fn progress(runs: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("[{bar:40}] {pos} of {len} runs  {elapsed}, {eta} to go")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(runs), ProgressDrawTarget::stderr_with_hz(10)).with_style(style)
}

/// Says what the points gave.
fn report(plan: &Plan, results: &[PointResult<()>]) -> Result<(), Failure> {
    let Some(first) = plan.points.first() else { return Ok(()) };
    let mean = |times: &mut dyn Iterator<Item = Span>| {
        let (sum, count) =
            times.fold((0.0, 0u32), |(sum, count), time| (sum + time.as_nanos() as f64, count + 1));
        time(sum / f64::from(count.max(1)))
    };
    let mut table = Table::new(["point", "runs", "makespan", "completion"]);
    for (point, result) in plan.points.iter().zip(results) {
        let label = if point.settings.is_empty() { "all".into() } else { point.label() };
        let makespan = mean(&mut result.runs.iter().map(|run| run.makespan));
        let apps = result.runs.iter().flat_map(|run| &run.apps);
        let completion = mean(&mut apps.map(|app| app.end.since(app.submitted)));
        table.row([label, result.runs.len().to_string(), makespan, completion]);
    }
    let title = &first.scenario.title;
    print(&format!(
        "{title}\n\n{table}\nMeans over all runs; completion is from submission to end, over all applications.\n"
    ))
}
