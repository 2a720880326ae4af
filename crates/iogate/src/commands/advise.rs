//! `iogate advise`: which scheduler would have suited a trace.

use std::path::Path;

use anyhow::anyhow;
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
            "schedulers": all,
        });
        let text = serde_json::to_string_pretty(&value).map_err(|error| Failure::failed(anyhow!(error)))?;
        return print(&format!("{text}\n"));
    }
    print(&text(args, &jobs, &advice))
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
    out += &match advice.first() {
        Some(best) if best.slowdowns.mean() < -0.02 => format!("\nadvice: {}\n", best.scheduler),
        _ => {
            "\nadvice: fifo; nothing is faster by more than 2 % without slowing an application down\n".into()
        }
    };
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
