//! `iogate demo`: programs that compete for a modelled disk, without and with scheduling.

pub(crate) mod reader;
mod testbed;
mod workload;

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use iogate_core::{SchedulerConfig, SchedulerKind};
use iogate_report::{Report, comparison};

use crate::attempt::Attempt;
use crate::cli::DemoArgs;
use crate::commands::signals;
use crate::devices;
use crate::failure::Failure;
use crate::output::{OutputFile, check_inputs_stay, print};
use testbed::Testbed;
use workload::Workload;

pub(crate) fn run(args: &DemoArgs) -> Result<(), Failure> {
    let scheduler = args.scheduler.pinned()?;
    let profile = devices::file(&args.device).map(|file| ("the profile", file));
    check_inputs_stay(&[("--html", Some(args.html.as_path()))], profile)?;
    devices::device(&args.device)?;
    // Begun now, so that a report that cannot be written is known before the work, not after it.
    let mut html = OutputFile::create(&args.html)?;

    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in signals::ending() {
        signal_hook::flag::register(signal, interrupted.clone()).context("signals cannot be handled")?;
    }
    let workload = if args.quick { Workload::quick() } else { Workload::full() };
    let mut testbed = Testbed::set_up(workload, &args.device, args.in_process, interrupted.clone())?;

    let fifo = SchedulerConfig::new(SchedulerKind::Fifo);
    let mut runs = Vec::new();
    for (label, scheduler) in [("without", Some(&fifo)), ("with", scheduler.as_ref())] {
        let progress = progress(label, scheduler, testbed.workload().bytes());
        let run = testbed.run(label, scheduler, &progress);
        progress.finish_and_clear();
        match run {
            Err(_) if interrupted.load(Ordering::SeqCst) => {
                return Err(Failure::failed(anyhow!("interrupted")));
            }
            run => runs.push(run?),
        }
    }
    let report = Report {
        title: "Competing programs on one disk, without and with scheduling".into(),
        notes: testbed.notes(),
        program: concat!("iogate ", env!("CARGO_PKG_VERSION")).into(),
        runs,
    };
    drop(testbed);

    std::io::Write::write_all(&mut html, iogate_report::html::page(&report).as_bytes())
        .with_context(|| Attempt::write(args.html.display()))?;
    html.finish()?;
    let place = std::fs::canonicalize(&args.html).unwrap_or_else(|_| args.html.clone());
    if args.json {
        return print(&format!("{}\n", report.json()));
    }
    let mut out = String::new();
    for note in &report.notes {
        out += &format!("{note}\n");
    }
    print(&format!(
        "{out}\n{}\nThe report with pictures: {}\n",
        comparison::comparison(&report),
        place.display()
    ))
}

fn progress(label: &str, scheduler: Option<&SchedulerConfig>, bytes: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:28} [{bar:40}] {percent:>3} %  {elapsed}")
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr_with_hz(10));
    let name = scheduler.map_or("auto", |scheduler| scheduler.kind().name());
    bar.with_style(style).with_message(format!("{label} scheduling ({name})"))
}
