//! Turns for real: the coordinator of a run, the calibration of its file system, and what one process makes of them.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use iogate_core::Span;
use iogate_core::coord::Admission;
use iogate_core::coord::backoff::BackoffConfig;
use iogate_sim::scenario::Coordination;
use iogate_turn::{Calibration, Place, Settings, Turn, Wish};
use serde::{Deserialize, Serialize};

use super::worker::now;
use crate::commands::serve::started::{START_MAX, until_it_serves};

/// What the run's file system is called.
const PLACE: &str = "bench";
/// Probes of a calibration.
const ROUNDS: u32 = 5;
const PAUSE_MAX: Span = Span::from_millis(100);

/// How an application takes turns; told to its rank 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct How {
    /// The coordinator.
    coordinator: Option<String>,
    /// What is probed, and how.
    probe: Option<Probe>,
    /// The application.
    job: String,
    /// Bytes of each turn.
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Probe {
    directory: PathBuf,
    calibration: PathBuf,
    config: BackoffConfig,
}

impl How {
    /// How an application with this name takes turns of so many bytes in a run in `folder`; `None`: it takes none.
    pub(super) fn of(
        rules: &Coordination,
        folder: &Path,
        probed: &Path,
        job: &str,
        bytes: u64,
    ) -> Option<How> {
        let probe = |config: &BackoffConfig| Probe {
            directory: probed.to_owned(),
            calibration: folder.join("calibration"),
            config: config.clone(),
        };
        (*rules != Coordination::default()).then(|| How {
            coordinator: rules.lock.as_ref().map(|_| format!("unix:{}", socket(folder).display())),
            probe: rules.backoff.as_ref().map(probe),
            job: job.to_owned(),
            bytes,
        })
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("coord.sock")
}

/// The coordinator of a run. Dropped, it is ended.
#[derive(Default)]
pub(super) struct Coordinating(Option<Child>);

impl Coordinating {
    /// Starts a coordinator, if the rules want one, and calibrates the file system that is mounted at `probed`, if they want that.
    pub(super) fn begin(rules: &Coordination, folder: &Path, probed: &Path) -> Result<Coordinating> {
        let mut begun = Coordinating(None);
        if let Some(lock) = &rules.lock {
            let program = std::env::current_exe().context("this program cannot be found")?;
            let mut child = Command::new(program)
                .args(["coord", "serve", "--with-parent", "--listen"])
                .arg(format!("unix:{}", socket(folder).display()))
                .arg("--state")
                .arg(folder.join("coord"))
                .arg("--set")
                .arg(lock.to_string())
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .spawn()
                .context("the coordinator cannot be started")?;
            let out = child.stdout.take();
            begun.0 = Some(child);
            let out = out.context("a process without output")?;
            until_it_serves(out, START_MAX).map_err(|why| anyhow!("the coordinator {why}"))?;
        }
        if let Some(config) = &rules.backoff {
            let place = place(Some(probed))?;
            // Nothing here remembers for long that it was written to.
            let config = &BackoffConfig { pause: config.pause.min(PAUSE_MAX), ..config.clone() };
            let mut found = Calibration::measure(&place, config, ROUNDS).context("the calibration")?;
            if config.quiet > 0 {
                found.quiet = config.quiet;
            }
            found.write(&folder.join("calibration")).context("the calibration")?;
        }
        Ok(begun)
    }
}

impl Drop for Coordinating {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn settings(variables: &[(&str, String)]) -> Result<Settings> {
    let get =
        |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned());
    Ok(Settings::read(&get)?)
}

/// The run's file system: by its name, or mounted at `probed`.
fn place(probed: Option<&Path>) -> Result<Place> {
    Ok(match probed {
        None => Place::named(PLACE),
        Some(path) => {
            let places = format!("{}={PLACE}", path.display());
            Place::of(path, &settings(&[("IOGATE_PLACES", places)])?)?
        }
    })
}

/// What an application's turns came to. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Taken {
    /// From claims to grants, summed.
    pub(super) waited_ns: u64,
    pub(super) overdue: u64,
    pub(super) lost: u64,
    /// Probing and backing off, summed.
    pub(super) backoff_ns: u64,
    pub(super) probes: u64,
    pub(super) probe_bytes: u64,
    /// When attempts to find the storage quiet began and ended, on the monotonic clock, and their slowest probe in bytes per second.
    pub(super) attempts: Vec<(u64, u64, u64)>,
}

/// Rank 0's part in its application's turns.
pub(super) struct Leader {
    turns: iogate_turn::Turns,
    place: Place,
    bytes: u64,
    /// Bytes of a probe, primed ones included.
    probe_bytes: u64,
    current: Option<Turn>,
    taken: Taken,
}

impl Leader {
    pub(super) fn new(how: &How) -> Result<Leader> {
        let policy = match (&how.coordinator, &how.probe) {
            (Some(_), Some(_)) => "lock+backoff",
            (Some(_), None) => "lock",
            _ => "backoff",
        };
        let mut variables = vec![
            ("IOGATE_POLICY", policy.to_owned()),
            ("IOGATE_JOB", how.job.clone()),
            ("IOGATE_STRICT", "1".to_owned()),
        ];
        variables.extend(how.coordinator.clone().map(|coordinator| ("IOGATE_COORD", coordinator)));
        if let Some(probe) = &how.probe {
            variables.push(("IOGATE_CALIBRATION", probe.calibration.display().to_string()));
        }
        let mut settings = settings(&variables)?;
        if let Some(probe) = &how.probe {
            settings.backoff = probe.config.clone();
        }
        let probe = how.probe.as_ref();
        Ok(Leader {
            turns: iogate_turn::Turns::new(settings)?,
            place: place(probe.map(|probe| &*probe.directory))?,
            bytes: how.bytes,
            probe_bytes: probe.map_or(0, |probe| probe.config.prime_bytes + probe.config.probe_bytes),
            current: None,
            taken: Taken::default(),
        })
    }

    /// Waits for the application's turn.
    pub(super) fn take(&mut self) -> Result<()> {
        let asked = now();
        let wish = Wish { bytes: self.bytes, ..Wish::default() };
        let turn = self.turns.take(&self.place, &wish)?;
        let (end, taken) = (now(), &mut self.taken);
        let mut waited = Duration::from_nanos(end - asked);
        if let Some(report) = turn.report() {
            waited = waited.saturating_sub(report.waited);
            taken.backoff_ns += report.waited.as_nanos() as u64;
            taken.probes += report.probes.len() as u64;
            taken.probe_bytes += report.probes.len() as u64 * self.probe_bytes;
            let began = end - report.waited.as_nanos() as u64;
            for (attempt, (start, ended)) in (1..).zip(&report.spans) {
                let slowest =
                    report.probes.iter().filter(|probe| probe.0 == attempt).map(|probe| probe.1).min();
                let at = |time: &Duration| began + time.as_nanos() as u64;
                taken.attempts.push((at(start), at(ended), slowest.unwrap_or(0)));
            }
        }
        if let Some(held) = turn.held() {
            taken.waited_ns += waited.as_nanos() as u64;
            taken.overdue += u64::from(held.admission() == Admission::Overdue);
        }
        self.current = Some(turn);
        Ok(())
    }

    /// Ends the application's turn.
    pub(super) fn end(&mut self) {
        if let Some(turn) = self.current.take() {
            self.taken.lost += u64::from(turn.release_after(self.bytes).is_err());
        }
    }

    pub(super) fn taken(self) -> Taken {
        self.taken
    }
}
