//! Taking turns.

use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use iogate_net::coordinator::Status;
use iogate_net::turns::{ClaimError, Coordinator, Held, Limits, Lost, Waiting, Wanted, Watch};

use crate::in_turn::Inside;
use crate::notices::say;
use crate::probe::{ProbeError, Report, wait_until_quiet};
use crate::{Calibration, Place, Settings, SettingsError};

/// How long a process that has gone on without a coordinator tries to reach it at its next turns.
const PATIENCE_AGAIN: Duration = Duration::from_secs(1);
/// After so long in line, who asks for it is told.
const WORD_AFTER: Duration = Duration::from_secs(10);

/// What a turn is for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// Targets of the file system, ascending; none: those of the place.
    pub targets: Vec<u32>,
    /// Bytes that will be written; 0 is unknown.
    pub bytes: u64,
    /// The share among jobs, where the coordinator goes by weights; 0: as the settings say.
    pub weight: u32,
    /// How long to wait at most; `None`: as long as it takes.
    pub timeout: Option<Duration>,
}

/// Why there is no turn.
#[derive(Debug, thiserror::Error)]
pub enum TurnError {
    /// The coordinator, or the way to it.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Probing.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

impl TurnError {
    /// The errno for it.
    pub fn errno(&self) -> i32 {
        match self {
            TurnError::Claim(error) => match error {
                ClaimError::Unreachable { .. } | ClaimError::Unusable { .. } => libc::EHOSTUNREACH,
                ClaimError::Refused { errno, .. } => *errno,
                ClaimError::Again { .. } => libc::EDEADLK,
                ClaimError::TimedOut { .. } => libc::ETIMEDOUT,
                ClaimError::Interrupted => libc::EINTR,
            },
            TurnError::Probe(error) => error.errno(),
        }
    }
}

/// How this process takes turns. Safe to use from any thread, and in children.
#[derive(Debug)]
pub struct Turns {
    settings: Settings,
    coordinator: Option<Coordinator>,
    /// The last turn began without a coordinator.
    is_without: AtomicBool,
    /// It has been said that nothing is probed.
    is_blind: AtomicBool,
}

impl Turns {
    /// Reaches nobody yet.
    ///
    /// # Errors
    /// If the settings name files that cannot be read.
    pub fn new(settings: Settings) -> Result<Turns, SettingsError> {
        let coordinator = match settings.coordinators.is_empty() {
            true => None,
            false => Some(Coordinator::new(settings.coordinators.clone(), settings.coordinator_options()?)),
        };
        Ok(Turns {
            settings,
            coordinator,
            is_without: AtomicBool::new(false),
            is_blind: AtomicBool::new(false),
        })
    }

    /// What all of this process share, by its environment as it was at first. When the process ends by itself, so do its turns.
    ///
    /// # Errors
    /// If the environment says nothing sensible.
    pub fn of_process() -> Result<&'static Turns, &'static SettingsError> {
        SHARED
            .get_or_init(|| {
                // SAFETY: the function uses nothing that is gone by then. Without it turns end with their leases.
                unsafe { libc::atexit(at_exit) };
                Turns::new(Settings::from_environment()?)
            })
            .as_ref()
    }

    /// What it goes by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The coordinator, if the settings name one.
    pub fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.as_ref()
    }

    /// Waits until it is this process's turn, as the policy has it.
    ///
    /// # Errors
    /// [`TurnError`]. That no coordinator can be reached or can keep claims, or nothing be probed, is one with
    /// `IOGATE_STRICT` only: else the turn begins without, and a line on standard error says so.
    pub fn take(&self, place: &Place, wish: &Wish) -> Result<Turn, TurnError> {
        self.take_watched(place, wish, &mut |_| ControlFlow::Continue(()))
    }

    /// As [`Turns::take`], and not longer than so.
    ///
    /// # Errors
    /// As [`Turns::take`]; [`ClaimError::TimedOut`].
    pub fn take_within(&self, place: &Place, wish: &Wish, timeout: Duration) -> Result<Turn, TurnError> {
        self.take(place, &Wish { timeout: Some(timeout), ..wish.clone() })
    }

    /// As [`Turns::take`]; `watch` is called about once a second while there is nothing to do but to wait, and after each signal that
    /// this thread has handled, and may end the wait.
    ///
    /// # Errors
    /// As [`Turns::take`]; [`ClaimError::Interrupted`].
    pub fn take_watched(&self, place: &Place, wish: &Wish, watch: Watch<'_>) -> Result<Turn, TurnError> {
        let since = Instant::now();
        let held = match &self.coordinator {
            Some(coordinator) if self.settings.policy.locks() => {
                self.claim(coordinator, place, wish, watch)?
            }
            _ => None,
        };
        let report = match self.settings.policy.backs_off() {
            true => self.back_off(place, since, wish.timeout, watch)?,
            false => None,
        };
        Ok(Turn { held, report, waited: since.elapsed(), _inside: Inside::new() })
    }

    /// Probes a place, and backs off until it is quiet or has been probed often enough. `None`: it is not calibrated, and
    /// nothing was done.
    ///
    /// # Errors
    /// If it has no directory that can be written to; with `IOGATE_STRICT` also that it is not calibrated.
    pub fn probe(&self, place: &Place) -> Result<Option<Report>, ProbeError> {
        match self.try_probe(place, None, &mut || ControlFlow::Continue(())) {
            Err(error @ ProbeError::NotCalibrated { .. }) if !self.settings.is_strict => {
                self.go_on_blind(&error);
                Ok(None)
            }
            probed => probed.map(Some),
        }
    }

    fn try_probe(
        &self,
        place: &Place,
        deadline: Option<Instant>,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Report, ProbeError> {
        let directory = place.directory();
        let directory = directory.ok_or_else(|| ProbeError::NoDirectory { place: place.name().into() })?;
        let calibration = Calibration::read(place.name(), &self.settings.calibration)?;
        wait_until_quiet(&[directory], &calibration.apply(&self.settings.backoff), deadline, watch)
    }

    /// Waits for a quiet file system, if it can be told whether it is.
    fn back_off(
        &self,
        place: &Place,
        since: Instant,
        timeout: Option<Duration>,
        watch: Watch<'_>,
    ) -> Result<Option<Report>, TurnError> {
        let deadline = timeout.and_then(|timeout| since.checked_add(timeout));
        let mut watch = || watch(&Waiting { waited: since.elapsed(), unreached: None });
        match self.try_probe(place, deadline, &mut watch) {
            Ok(report) => Ok(Some(report)),
            Err(ProbeError::TimedOut) => Err(ClaimError::TimedOut { waited: since.elapsed() }.into()),
            Err(ProbeError::Interrupted) => Err(ClaimError::Interrupted.into()),
            Err(error) if self.settings.is_strict => Err(error.into()),
            Err(error) => {
                self.go_on_blind(&error);
                Ok(None)
            }
        }
    }

    fn go_on_blind(&self, error: &ProbeError) {
        if !self.is_blind.swap(true, Relaxed) {
            say(&format!("{error}: going on without probing"));
        }
    }

    /// A turn by the coordinator; `None`: none can be reached, and the process goes on without.
    fn claim(
        &self,
        coordinator: &Coordinator,
        place: &Place,
        wish: &Wish,
        watch: Watch<'_>,
    ) -> Result<Option<Held>, TurnError> {
        let settings = &self.settings;
        let members = if wish.targets.is_empty() { place.targets() } else { &wish.targets };
        let wanted = Wanted {
            place: place.name().to_owned(),
            members: members.to_vec(),
            party: settings.party.clone(),
            label: settings.label.clone(),
            bytes: wish.bytes,
            weight: if wish.weight == 0 { settings.weight } else { wish.weight },
            period: settings.period,
        };
        let patience = match self.is_without.load(Relaxed) && !settings.is_strict {
            true => settings.patience.min(PATIENCE_AGAIN),
            false => settings.patience,
        };
        let mut has_said = !settings.is_verbose;
        let mut watch = |waiting: &Waiting| {
            if !has_said && waiting.waited >= WORD_AFTER {
                has_said = true;
                say(&word(coordinator, place, waiting));
            }
            watch(waiting)
        };
        match coordinator.claim_watched(&wanted, &Limits { patience, timeout: wish.timeout }, &mut watch) {
            Ok(held) => {
                self.is_without.store(false, Relaxed);
                Ok(Some(held))
            }
            Err(error) if !settings.is_strict && is_coordinators(&error) => {
                if !self.is_without.swap(true, Relaxed) {
                    say(&format!("{error}: going on without taking turns"));
                }
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Whether there is no turn for a reason that lies with the coordinator, and not with what this process asks for.
fn is_coordinators(error: &ClaimError) -> bool {
    match error {
        ClaimError::Unreachable { .. } | ClaimError::Unusable { .. } => true,
        ClaimError::Refused { errno, .. } => !matches!(*errno, libc::EINVAL | libc::ENOENT | libc::EDEADLK),
        ClaimError::Again { .. } | ClaimError::TimedOut { .. } | ClaimError::Interrupted => false,
    }
}

static SHARED: OnceLock<Result<Turns, SettingsError>> = OnceLock::new();

extern "C" fn at_exit() {
    if let Some(Ok(Turns { coordinator: Some(coordinator), .. })) = SHARED.get() {
        coordinator.end();
    }
}

/// What to say to somebody who has waited for long.
fn word(coordinator: &Coordinator, place: &Place, waiting: &Waiting) -> String {
    let (name, seconds) = (place.name(), waiting.waited.as_secs());
    if let Some((_, why)) = &waiting.unreached {
        return format!(
            "waiting for a turn on {name} for {seconds} s: no coordinator can be reached ({why})"
        );
    }
    let status = coordinator.status().ok().and_then(|json| serde_json::from_slice::<Status>(&json).ok());
    let holders = status.map(|status| status.holders).unwrap_or_default();
    let holders: Vec<String> = (holders.iter().filter(|holder| holder.place == name))
        .map(|holder| format!("{} ({}) since {} s", holder.label, holder.client, holder.held_ms / 1000))
        .take(4)
        .collect();
    let who = if holders.is_empty() { "others are first".into() } else { holders.join(", ") };
    format!("waiting for a turn on {name} for {seconds} s: {who}")
}

/// A turn, which ends when this is dropped.
#[derive(Debug)]
pub struct Turn {
    /// `None`: the turn is not by a coordinator.
    held: Option<Held>,
    report: Option<Report>,
    waited: Duration,
    _inside: Inside,
}

impl Turn {
    /// The fencing token, larger than that of every turn before; 0 if no coordinator gave it.
    pub fn token(&self) -> u64 {
        self.held.as_ref().map_or(0, Held::token)
    }

    /// Whether the turn counts. One that no coordinator gave cannot be lost.
    pub fn is_valid(&self) -> bool {
        self.held.as_ref().is_none_or(Held::is_valid)
    }

    /// Thousandths of the throughput that it may use.
    pub fn share(&self) -> u32 {
        self.held.as_ref().map_or(1000, Held::share)
    }

    /// How long this process has waited for it.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// What the coordinator gave, if one did.
    pub fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }

    /// What was probed, if anything was.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// Ends the turn.
    ///
    /// # Errors
    /// If it had been lost before.
    pub fn release(self) -> Result<(), Lost> {
        self.release_after(0)
    }

    /// Ends the turn, in which so many bytes were written.
    ///
    /// # Errors
    /// As [`Turn::release`].
    pub fn release_after(mut self, bytes: u64) -> Result<(), Lost> {
        self.held.take().map_or(Ok(()), |held| held.release(bytes))
    }
}
