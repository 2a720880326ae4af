//! `iogate advise`: which scheduler would have suited a trace.

use std::path::Path;

use anyhow::anyhow;
use iogate_core::{SchedulerConfig, SchedulerKind};
use iogate_report::Table;
use iogate_sim::TraceReader;
use iogate_sim::advise::{Advice, Jobs, ROWS_MAX, advise};

use super::replay::{not_a_trace, open};
use crate::cli::AdviseArgs;
use crate::devices;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &AdviseArgs) -> Result<(), Failure> {
    let device = devices::maker(&args.device).map_err(devices::not_a_device)?;
    let name = match args.trace == Path::new("-") {
        true => "standard input".into(),
        false => args.trace.display().to_string(),
    };
    let trace = TraceReader::new(open(&args.trace)?);
    let refused = |error: anyhow::Error| not_a_trace(error.context(name.clone()));
    let jobs =
        Jobs::read(trace.map_err(|error| refused(error.into()))?).map_err(|error| refused(error.into()))?;
    let advice = advise(&jobs, args.depth, &device).map_err(|error| refused(error.into()))?;
    if args.json {
        let all: Vec<serde_json::Value> = advice.iter().map(json).collect();
        let value = serde_json::json!({
            "device": args.device,
            "depth": args.depth,
            "requests": jobs.requests(),
            "left_out": jobs.left_out,
            "closed_loop": jobs.closed_loop,
            "advice": advised(&advice).scheduler().to_string(),
            "nothing_to_choose": matches!(advised(&advice), Advised::Alike),
            "schedulers": all,
        });
        let text = serde_json::to_string_pretty(&value).map_err(|error| Failure::failed(anyhow!(error)))?;
        return print(&format!("{text}\n"));
    }
    print(&text(args, &jobs, &advice))
}

/// What all candidates come to.
enum Advised<'a> {
    /// This one is faster, and slows nobody down.
    Faster(&'a Advice),
    /// None is by enough.
    NothingFaster,
    /// Whichever it is, everything takes as long: what comes never waits for anything that could go after it.
    Alike,
}

impl Advised<'_> {
    fn scheduler(&self) -> SchedulerConfig {
        match self {
            Advised::Faster(best) => best.scheduler.clone(),
            Advised::NothingFaster | Advised::Alike => SchedulerConfig::new(SchedulerKind::Fifo),
        }
    }
}

fn advised(advice: &[Advice]) -> Advised<'_> {
    match advice.first() {
        Some(best) if best.slowdowns.harmed() == 0 && best.slowdowns.mean() < -0.02 => Advised::Faster(best),
        _ if advice.iter().all(|of| of.slowdowns.0.iter().all(|ratio| *ratio == 0.0)) => Advised::Alike,
        _ => Advised::NothingFaster,
    }
}

fn json(of: &Advice) -> serde_json::Value {
    serde_json::json!({
        "scheduler": of.scheduler.to_string(),
        "gain": (-of.slowdowns.mean()).exp(),
        "slowest": of.slowdowns.worst(),
        "harms": of.slowdowns.harmed() > 0,
        "fairness": of.fairness(),
        "makespan_ns": of.makespan.as_nanos(),
        "slowdowns": of.apps.iter().map(|(app, ratio)| (app.to_string(), *ratio)).collect::<std::collections::BTreeMap<_, _>>(),
    })
}

fn text(args: &AdviseArgs, jobs: &Jobs, advice: &[Advice]) -> String {
    let mut table =
        Table::new(["scheduler", "as fast as fifo", "slowest application", "fairness", "makespan", ""]);
    for of in advice {
        table.row([
            of.scheduler.to_string(),
            format!("{:.2}x", (-of.slowdowns.mean()).exp()),
            format!("{:.2}x as long", of.slowdowns.worst()),
            format!("{:.2}", of.fairness()),
            format!("{}", of.makespan),
            if of.slowdowns.harmed() > 0 { "slows somebody down" } else { "" }.into(),
        ]);
    }
    let mut out = table.to_string();
    let advised = advised(advice);
    let why = match advised {
        Advised::Faster(_) => "",
        Advised::NothingFaster => "; nothing is faster by more than 2 % without slowing an application down",
        Advised::Alike => {
            "; there is nothing to choose: with every scheduler, each application takes as long"
        }
    };
    out += &format!("\nadvice: {}{why}\n", advised.scheduler());
    if !jobs.closed_loop {
        out += "note: the trace does not say when requests were over (column done_us), so they come by the clock, \
                however long storage takes\n";
    }
    if jobs.left_out > 0 {
        out += &format!("note: of the first {ROWS_MAX} rows; {} more were not looked at\n", jobs.left_out);
    }
    if args.depth == 1 {
        out += "note: for one dispatch at a time; --depth says how many the gate lets through\n";
    }
    out
}
