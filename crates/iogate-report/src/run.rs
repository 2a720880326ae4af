//! One run, and several of them side by side.

use serde::{Deserialize, Serialize};

use crate::timeline::Timeline;
use iogate_core::stats::summary::Summary;

/// One or more runs of the same work, the first being what the others are compared with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// What was done, in a few words.
    pub title: String,
    /// How it was done: a sentence each.
    pub notes: Vec<String>,
    /// The program that made it, with its version.
    pub program: String,
    /// The runs.
    pub runs: Vec<Run>,
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// What distinguishes it from the others.
    pub label: String,
    /// The device, as it was asked for.
    pub device: String,
    /// What the gate did.
    pub gate: Summary,
    /// From the first arrival (the start of the programs) to the last completion (their end).
    pub makespan_ns: u64,
    /// Time that devices spent serving, summed over the devices.
    pub device_busy_ns: u64,
    /// Times that devices had to reposition (seek).
    pub repositions: u64,
    /// Requests that found the gate full and came in later.
    pub held_back: u64,
    /// For how long, altogether.
    pub held_back_ns: u64,
    /// The applications in order of their ids.
    pub apps: Vec<AppResult>,
    /// Who was served when.
    pub timeline: Timeline,
}

/// One application of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AppResult {
    /// Its name.
    pub name: String,
    /// Bytes that it transferred.
    pub bytes: u64,
    /// From its first request (its start) to its last completion (its end).
    pub completion_ns: u64,
    /// Mean time of its requests from arrival to dispatch.
    pub waiting_mean_ns: u64,
}

impl Report {
    /// Everything, for programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data with text keys can be written")
    }

    /// The applications of all runs, a line each, for spreadsheets:
    /// `run,scheduler,device,application,bytes,completion_us,waiting_mean_us`.
    pub fn csv(&self) -> String {
        let us = |ns: u64| format!("{:.3}", ns as f64 / 1e3);
        let header =
            ["run", "scheduler", "device", "application", "bytes", "completion_us", "waiting_mean_us"];
        let mut lines = vec![header.map(String::from)];
        for run in &self.runs {
            for app in &run.apps {
                lines.push([
                    run.label.clone(),
                    run.gate.scheduler.clone(),
                    run.device.clone(),
                    app.name.clone(),
                    app.bytes.to_string(),
                    us(app.completion_ns),
                    us(app.waiting_mean_ns),
                ]);
            }
        }
        csv(lines)
    }
}

/// Lines of CSV, quoted where needed.
pub(crate) fn csv<Line: IntoIterator<Item = String>>(lines: impl IntoIterator<Item = Line>) -> String {
    let mut out = csv::Writer::from_writer(Vec::new());
    for line in lines {
        out.write_record(line.into_iter().collect::<Vec<_>>()).expect("memory can be written");
    }
    String::from_utf8(out.into_inner().expect("memory can be flushed")).expect("made of text")
}
