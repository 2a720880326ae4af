//! Mechanisms on this machine's own device, past its page cache, beside a simulation by what was measured of the device.

use std::time::Duration;

use anyhow::Context;
use iogate_report::Table;
use iogate_report::reproduction::{Page, Section};

use super::{BY_FORM, Reduced, makespans_near};
use crate::cli::{BenchStore, BenchWay};
use crate::commands::bench::runner::Runner;
use crate::commands::bench::{BY, REAL, SIMULATION};
use crate::commands::profile::{self, Measured};
use crate::commands::reproduce::claims::{Sheet, within};
use crate::commands::reproduce::{Experiment, Lab};
use crate::commands::sim::PROGRAM;
use crate::failure::Failure;
use crate::output::OutputFile;

const SCENARIO: &str = "own-device";
const LOAD: &str = "load";
const MECHANISM: &str = "mechanism";
const NONE: &str = "none";
/// Who chooses is never to be slower than nobody by more than this factor: what `auto` is held to.
const HARM_MOST: f64 = 1.1;
/// For how long the device is measured.
const BUDGET: Duration = Duration::from_secs(30);
const QUICK_BUDGET: Duration = Duration::from_secs(2);

pub(in super::super) fn page(lab: &Lab<'_>) -> Result<Page, Failure> {
    let measured = device(lab)?;
    let runner = Runner::new(BenchStore::Directory, None, Some(BenchWay::Mount))?;
    let described = format!(
        "The device: {}, {}. {}",
        measured.profile.kind,
        if measured.profile.rotational { "which says that it rotates" } else { "which does not rotate" },
        profile::summary(&measured.profile)
    );
    let files = [("device.toml", iogate_sim::profile::write(&measured.profile))];
    let mut set = vec!["servers.device=profile:device.toml"];
    let mut keep: &[(&str, &[&str])] = &[];
    if lab.quick {
        set.push("repetitions=1");
        keep = &[(LOAD, &["small beside large"]), (MECHANISM, &[NONE, "sjf", "auto"])];
    }
    let reduced = Reduced { scenario: SCENARIO, called: SCENARIO, set: &set, keep, files: &files };
    let results = lab.side_by_side(&runner, &reduced)?;
    let notes = vec![
        "Not of any paper: what order does to a device that is there, where the other pages have modelled ones. The server's files are on \
         this machine's own device (in the folder for temporary files), written before each run and read past the page cache; \
         processes read and write through a mount of the server. A machine that others use, too, has devices with limits and \
         neighbours: the intervals say how much that is."
            .into(),
        described,
        "Beside it the same is simulated, on the device as `iogate profile` measured it just before. All points have their first \
         repetition before any has its second. \u{b1} is the 95 % confidence interval, and in parentheses it is that of changes, over \
         pairs of runs with the same seed."
            .into(),
    ];
    let seen = measured.notes.iter().map(|note| format!("While the device was measured: {note}."));
    Ok(Page {
        title: "Mechanisms on a real device".into(),
        notes: notes.into_iter().chain(seen).collect(),
        sections: results
            .values(LOAD)
            .iter()
            .map(|load| section(&results, load))
            .collect::<Result<_, _>>()?,
        program: PROGRAM.into(),
    })
}

/// What is measured of the device, or was where results have been kept: they are of that device.
fn device(lab: &Lab<'_>) -> Result<Measured, Failure> {
    let kept = lab.kept_form(SCENARIO, "device.toml");
    let has_results = lab.kept_form(SCENARIO, BY_FORM).is_some_and(|results| results.exists());
    if let Some(kept) = kept.as_ref().filter(|_| has_results)
        && let Ok(text) = std::fs::read_to_string(kept)
    {
        let read = iogate_sim::profile::read(&text).with_context(|| kept.display().to_string());
        return Ok(Measured { profile: read.map_err(Failure::usage)?, notes: Vec::new() });
    }
    // On the device where the runs will be, too.
    let folder = std::env::temp_dir();
    let measured = profile::of_directory(&folder, if lab.quick { QUICK_BUDGET } else { BUDGET })?;
    if let Some(kept) = kept {
        OutputFile::create(&kept)?.finish_with(&iogate_sim::profile::write(&measured.profile))?;
    }
    Ok(measured)
}

fn section(results: &Experiment, load: &str) -> Result<Section, Failure> {
    let mut table = Table::new([
        "",
        "until all are done: real",
        "changed by",
        "simulated",
        "changed by",
        "calls, mean: real",
        "simulated",
    ]);
    let at = |mechanism, by| [(LOAD, load), (MECHANISM, mechanism), (BY, by)];
    let mut harmless = Vec::new();
    for mechanism in results.values(MECHANISM) {
        let mut row = vec![mechanism.clone()];
        for by in [REAL, SIMULATION] {
            row.push(results.shown(&at(mechanism, by), "makespan"));
            let change = results.factor(&at(mechanism, by), &at(NONE, by), "makespan");
            if (mechanism.as_str(), by) == ("auto", REAL) {
                harmless.push(change.map(|change| within(change, 0.0, HARM_MOST)));
            }
            let change = change.filter(|_| mechanism != NONE);
            row.push(change.map_or("-".into(), |change| {
                let percent = change.map(|ratio| 100.0 * (ratio - 1.0));
                format!("{:+.0} % ({:+.0} to {:+.0})", percent.mean, percent.low, percent.high)
            }));
        }
        row.extend([REAL, SIMULATION].map(|by| results.shown(&at(mechanism, by), "call_time_mean")));
        table.row(row);
    }
    let mut sheet = Sheet::expected(load);
    sheet.everywhere("`auto` takes at most a tenth longer than no scheduler", harmless);
    Ok(Section {
        title: load.into(),
        scenarios: vec![SCENARIO.into()],
        paper: String::new(),
        tables: vec![
            ("Times, and how much longer (+) or shorter (-) than with none".into(), table),
            ("What one might expect, and ours".into(), sheet.claims.table()),
        ],
        pictures: Vec::new(),
        verdict: format!("{} {}", sheet.claims.verdict(), makespans_near(results, &[(LOAD, load)])),
    })
}
