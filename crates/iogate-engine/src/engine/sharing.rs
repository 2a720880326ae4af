//! A policy that many gates share: the thread that keeps what this gate may have of it, and the one that asks.
//!
//! Two threads, as a coordinator may let one wait for long: what the gate may have ends when its lease does, whether or not there is an
//! answer. What is asked and what follows from it is decided by a [`Holder`].

use std::fmt;
use std::io;
// Not what the tests of interleavings see, which share no policy.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use iogate_core::global_policy::{Grant, Holder, Phase, Report, Terms};

use super::shared::Shared;
use crate::lock::lock;

/// For so long the end of an engine waits until the coordinator has been told of it.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// And after so long it tries again.
const LEAVE_AGAIN: Duration = Duration::from_millis(20);

/// Who says how much a gate may use of what many gates share.
pub trait Coordinates: Send + Sync {
    /// Reports, and waits for the grant, at most so long. `None`: there is nothing to grant, as the gate leaves. The error is for people.
    fn report(&self, report: &Report, within: Duration) -> Result<Option<Grant>, String>;

    /// What people call it.
    fn name(&self) -> String;
}

/// How a gate gets on with a policy that it shares.
#[derive(Clone, Debug)]
pub struct SharingStatus {
    /// Who divides it.
    pub coordinator: String,
    /// By what the gate goes now.
    pub phase: Phase,
    /// Why the last report had no answer, if it had none.
    pub error: Option<String>,
}

impl fmt::Display for SharingStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phase = match self.phase {
            Phase::New => "nothing yet",
            Phase::Lease => "what is granted by a lease",
            Phase::Grace => "the less of its last lease and its part",
            Phase::Alone => "its part of the caps",
            Phase::Left => "nothing any more",
        };
        write!(f, "shared through {}: this gate has {phase}", self.coordinator)?;
        match &self.error {
            Some(error) => write!(f, " ({error})"),
            None => Ok(()),
        }
    }
}

/// A policy that is shared, while it is in force.
pub(super) struct Sharing {
    told: Sender<Told>,
    status: Arc<Mutex<SharingStatus>>,
    keeper: JoinHandle<()>,
    /// Ends when the coordinator has been told that the gate leaves.
    left: Receiver<()>,
}

/// Tells the keeper that somebody waits who has nothing; once until it has looked.
pub(super) struct Lack {
    told: Sender<Told>,
    is_told: Arc<AtomicBool>,
}

impl Lack {
    #[cold]
    pub(super) fn tell(&self) {
        if !self.is_told.swap(true, Ordering::SeqCst) {
            // A keeper that has ended needs no telling.
            let _ = self.told.send(Told::Lack);
        }
    }
}

/// What the keeper is told.
enum Told {
    Answer(Result<Option<Grant>, String>),
    Lack,
    End,
}

/// The report that is to be sent next; a later one takes its place.
#[derive(Default)]
struct Letterbox {
    next: Mutex<Next>,
    come: Condvar,
}

#[derive(Default)]
struct Next {
    report: Option<(Report, Duration)>,
    is_last: bool,
}

impl Letterbox {
    fn put(&self, report: Report, within: Duration, is_last: bool) {
        *lock(&self.next) = Next { report: Some((report, within)), is_last };
        self.come.notify_one();
    }

    /// Whether there is a last report.
    fn has_last(&self) -> bool {
        lock(&self.next).is_last
    }

    /// Waits for a report; whether it is the last one.
    fn take(&self) -> (Report, Duration, bool) {
        let mut next = lock(&self.next);
        loop {
            if let Some((report, within)) = next.report.take() {
                return (report, within, next.is_last);
            }
            next = self.come.wait(next).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Shared {
    /// Goes by a shared policy from here on: the gate has it already, with nothing allotted.
    pub(super) fn share(
        self: &Arc<Self>,
        terms: Terms,
        expected: u32,
        coordinator: Arc<dyn Coordinates>,
    ) -> io::Result<()> {
        let (told, telling) = channel();
        let is_told = Arc::new(AtomicBool::new(false));
        let status = SharingStatus { coordinator: coordinator.name(), phase: Phase::New, error: None };
        let status = Arc::new(Mutex::new(status));
        let letterbox = Arc::new(Letterbox::default());
        let holder = Holder::new(terms, expected, self.clock.now());

        let (leaving, left) = channel();
        let (letters, answers) = (Arc::clone(&letterbox), told.clone());
        thread::Builder::new().name("iogate-report".into()).spawn(move || {
            let _leaving = leaving;
            ask(&*coordinator, &letters, &answers);
        })?;
        let keeper = Keeper {
            shared: Arc::clone(self),
            holder,
            told: telling,
            is_told: Arc::clone(&is_told),
            letterbox,
            status: Arc::clone(&status),
        };
        let keeper = thread::Builder::new().name("iogate-share".into()).spawn(move || keeper.run())?;
        let lack = Lack { told: told.clone(), is_told };
        self.kick(|state, _| state.lack = Some(lack));
        *lock(&self.sharing) = Some(Sharing { told, status, keeper, left });
        Ok(())
    }

    /// Shares nothing any more, and says so to the coordinator.
    pub(super) fn stop_sharing(self: &Arc<Self>) {
        let sharing = lock(&self.sharing).take();
        let Some(Sharing { told, keeper, left, .. }) = sharing else { return };
        self.lock().lack = None;
        let _ = told.send(Told::End);
        if keeper.join().is_err() {
            tracing::error!("a defect in what keeps the shared policy");
        }
        let _ = left.recv_timeout(LEAVE_MAX);
    }

    pub(super) fn sharing_status(&self) -> Option<SharingStatus> {
        lock(&self.sharing).as_ref().map(|sharing| lock(&sharing.status).clone())
    }
}

/// Carries reports to the coordinator, and its answers back.
fn ask(coordinator: &dyn Coordinates, letterbox: &Letterbox, answers: &Sender<Told>) {
    loop {
        let (report, within, is_last) = letterbox.take();
        let answer = match is_last {
            true => leave(coordinator, &report, within),
            false => coordinator.report(&report, within),
        };
        let is_heard = answers.send(Told::Answer(answer)).is_ok();
        // Who does not listen any more has left a farewell, unless it died: it went while a report was under way.
        if is_last || !(is_heard || letterbox.has_last()) {
            return;
        }
    }
}

/// Says that the gate goes, again where that fails: the connection may be one that a late answer has spoilt, and nobody says it later.
fn leave(coordinator: &dyn Coordinates, report: &Report, within: Duration) -> Result<Option<Grant>, String> {
    let deadline = Instant::now() + within;
    loop {
        let answer = coordinator.report(report, deadline.saturating_duration_since(Instant::now()));
        if answer.is_ok() || Instant::now() + LEAVE_AGAIN >= deadline {
            return answer;
        }
        thread::sleep(LEAVE_AGAIN);
    }
}

struct Keeper {
    shared: Arc<Shared>,
    holder: Holder,
    told: Receiver<Told>,
    is_told: Arc<AtomicBool>,
    letterbox: Arc<Letterbox>,
    status: Arc<Mutex<SharingStatus>>,
}

impl Keeper {
    fn run(mut self) {
        loop {
            let wait = self.tend();
            match self.told.recv_timeout(wait) {
                Ok(Told::Answer(answer)) => {
                    let error = match answer {
                        Ok(Some(grant)) => {
                            self.holder.granted(self.shared.clock.now(), &grant);
                            self.holder.excess().map(|excess| excess.to_string())
                        }
                        Ok(None) => None,
                        Err(error) => Some(error),
                    };
                    let mut status = lock(&self.status);
                    if let Some(error) = error.as_ref().filter(|error| status.error.as_ref() != Some(*error))
                    {
                        tracing::warn!("no allotment of the shared policy: {error}");
                    }
                    status.error = error;
                }
                Ok(Told::Lack) => {
                    self.is_told.store(false, Ordering::SeqCst);
                    self.holder.urge(self.shared.clock.now());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Told::End) | Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // What it says that it does not hold any more it must not use.
        self.shared.kick(|state, now| state.gate.allot(now, []));
        self.letterbox.put(self.holder.leave(), LEAVE_MAX, true);
    }

    /// The gate goes by what it holds now, and reports if it is time; how long nothing changes by itself.
    fn tend(&mut self) -> Duration {
        let holder = &mut self.holder;
        let (report, wakes, now) = self.shared.kick(|state, now| {
            let report = (holder.due() <= now).then(|| holder.report(now, state.gate.usages(now)));
            state.gate.allot(now, holder.rates(now));
            (report, holder.due().min(holder.changes_at(now)), now)
        });
        lock(&self.status).phase = holder.phase(now);
        if let Some(report) = report {
            self.letterbox.put(report, holder.due().since(now).into(), false);
        }
        wakes.since(now).into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    /// Fails so many times.
    struct Spoilt(AtomicU32);

    impl Coordinates for Spoilt {
        fn report(&self, _: &Report, _: Duration) -> Result<Option<Grant>, String> {
            let left = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            left.map_or(Ok(None), |_| Err("the connection is lost".into()))
        }

        fn name(&self) -> String {
            "spoilt".into()
        }
    }

    /// Its gate goes while the first report is under way.
    #[derive(Default)]
    struct Slow {
        letterbox: Letterbox,
        reports: Mutex<Vec<bool>>,
    }

    impl Coordinates for Slow {
        fn report(&self, report: &Report, _: Duration) -> Result<Option<Grant>, String> {
            lock(&self.reports).push(report.leaves);
            if !report.leaves {
                self.letterbox.put(Report { leaves: true, ..Report::default() }, LEAVE_MAX, true);
            }
            Ok(None)
        }

        fn name(&self) -> String {
            "slow".into()
        }
    }

    #[test]
    fn who_goes_while_a_report_is_under_way_says_so_after_it() {
        let (slow, (answers, listener)) = (Slow::default(), channel());
        slow.letterbox.put(Report::default(), LEAVE_MAX, false);
        drop(listener);
        ask(&slow, &slow.letterbox, &answers);
        assert_eq!(*lock(&slow.reports), [false, true]);
    }

    #[test]
    fn who_goes_says_so_again_where_the_connection_is_spoilt() {
        let report = Report { leaves: true, ..Report::default() };
        let within = Duration::from_secs(60);
        assert_eq!(leave(&Spoilt(AtomicU32::new(3)), &report, within), Ok(None));
        // Not for ever.
        let error = leave(&Spoilt(AtomicU32::new(u32::MAX)), &report, 3 * LEAVE_AGAIN);
        assert_eq!(error, Err("the connection is lost".into()));
    }
}
