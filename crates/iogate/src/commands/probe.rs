//! `iogate probe`: measures how busy a file system is.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::anyhow;
use iogate_core::coord::backoff::BackoffConfig;
use iogate_report::{Table, units};
use iogate_turn::probe::{self, Report, Verdict};
use iogate_turn::{Calibration, Place, ProbeError, Settings};
use serde_json::json;

use crate::attempt::{Attempt, Doing};
use crate::cli::ProbeArgs;
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn run(args: &ProbeArgs) -> Result<(), Failure> {
    let settings = Settings::from_environment().map_err(Failure::usage)?;
    let config = BackoffConfig {
        threshold: args.threshold * 10,
        attempts_max: args.attempts,
        ..settings.backoff.clone()
    };
    let places = args.directories.iter().map(|directory| place(directory, &settings));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    if args.calibrate {
        return places.iter().try_for_each(|place| calibrate(place, args, &config, &settings));
    }
    let [first, rest @ ..] = &places[..] else { return Ok(()) };
    if let Some(other) = rest.iter().find(|other| other.name() != first.name()) {
        let error =
            anyhow!("{} and {} are two places: expected directories of one", first.name(), other.name());
        return Err(Failure::usage(error).hint("probe them one after another"));
    }
    let calibration = Calibration::read(first.name(), &settings.calibration).map_err(failed)?;
    let config = calibration.apply(&config);
    let directories: Vec<&Path> = places.iter().filter_map(Place::directory).collect();
    let report = probe::wait_until_quiet(&directories, &config, None, &mut || ControlFlow::Continue(()));
    let report = report.map_err(failed)?;
    print(&if args.json { as_json(&calibration, &report) } else { as_text(&calibration, &report) })
}

fn place(directory: &Path, settings: &Settings) -> Result<Place, Failure> {
    let cannot = |why: std::io::Error| {
        let said = format_args!("{} cannot be probed", directory.display());
        Failure::failed(anyhow!(why).context(Attempt::new(Doing::Enter, said)))
    };
    let place = Place::of(directory, settings).map_err(cannot)?;
    match directory.metadata() {
        Ok(found) if found.is_dir() => Ok(place),
        Ok(_) => Err(cannot(std::io::Error::new(
            std::io::ErrorKind::NotADirectory,
            "expected a directory, found a file",
        ))),
        Err(error) => Err(cannot(error)),
    }
}

fn failed(error: ProbeError) -> Failure {
    let hint = match &error {
        ProbeError::Directory { source, .. } => match source.raw_os_error() {
            Some(code) if code == rustix::io::Errno::NOSPC.raw_os_error() => {
                "a probe takes a few MiB for a moment: there must be so much room"
            }
            _ => "a probe writes a little data there: name a directory that you may write to",
        },
        ProbeError::NoRoom { .. } => "give smaller probes with --bytes",
        _ => return Failure::failed(error),
    };
    Failure::failed(error).hint(hint)
}

fn calibrate(
    place: &Place,
    args: &ProbeArgs,
    config: &BackoffConfig,
    settings: &Settings,
) -> Result<(), Failure> {
    let probe_bytes = args.bytes.map_or(config.probe_bytes, |bytes| bytes.0);
    let config = BackoffConfig { probe_bytes, ..config.clone() };
    let Some(directory) = settings.calibration.first() else {
        let error = anyhow!("there is no place for calibrations: expected IOGATE_CALIBRATION or HOME");
        return Err(Failure::usage(error));
    };
    let calibration = Calibration::measure(place, &config, args.rounds).map_err(failed)?;
    let path = calibration.write(directory).map_err(|error| {
        Failure::failed(error).hint("IOGATE_CALIBRATION says in which directory calibrations are")
    })?;
    if args.json {
        let value =
            json!({ "calibration": &calibration, "is_steady": calibration.is_steady(), "file": path });
        return print(&format!("{value}\n"));
    }
    let Calibration { place, quiet, lowest, highest, rounds, busy, .. } = &calibration;
    let mut text = format!(
        "{place}: {} with probes of {} bytes ({} to {} in {rounds} rounds), kept in {}\n",
        rate(*quiet),
        calibration.probe_bytes,
        rate(*lowest),
        rate(*highest),
        path.display()
    );
    if !calibration.is_steady() {
        text.push_str(&format!(
            "warning: {:.0} % of the probes were below {} % of that: the file system is in use, or its throughput is not steady. \
             Calibrate when it is quiet, or with larger probes (--bytes).\n",
            f64::from(*busy) / 10.0,
            args.threshold
        ));
    }
    print(&text)
}

fn as_json(calibration: &Calibration, report: &Report) -> String {
    let probes = report
        .probes
        .iter()
        .map(|(attempt, throughput)| json!({ "attempt": attempt, "bytes_per_second": throughput }));
    let value = json!({
        "place": calibration.place,
        "quiet_bytes_per_second": calibration.quiet,
        "probe_bytes": calibration.probe_bytes,
        "is_quiet": report.verdict == Verdict::Quiet,
        "attempts": report.attempts,
        "waited_seconds": report.waited.as_secs_f64(),
        "probes": probes.collect::<Vec<_>>(),
    });
    format!("{value}\n")
}

fn as_text(calibration: &Calibration, report: &Report) -> String {
    let mut table = Table::new(["attempt", "throughput", "of quiet"]);
    for (attempt, throughput) in &report.probes {
        let part = 100.0 * *throughput as f64 / calibration.quiet as f64;
        table.row([attempt.to_string(), rate(*throughput), format!("{part:.0} %")]);
    }
    let verdict = match report.verdict {
        Verdict::Quiet => "quiet",
        Verdict::TriedEnough => "still busy, and tried often enough",
    };
    format!(
        "{table}\n{}: {verdict} after {:.1} s and {}\n",
        calibration.place,
        report.waited.as_secs_f64(),
        units::counted(report.attempts.into(), "attempt", "attempts")
    )
}

fn rate(bytes_per_second: u64) -> String {
    format!("{:.1} MB/s", bytes_per_second as f64 / 1e6)
}
