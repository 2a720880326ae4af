//! A turn: renewing it, ending it. What comes of that is decided by [`HeldTurn`].

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use iogate_core::coord::Admission;
use iogate_core::coord::claimant::held::AGAIN;
use iogate_core::coord::claimant::{Ended, Granting, HeldTurn};
use iogate_core::wire::Granted;

use super::connection::Connection;
use super::{Claimed, Local, clock, lock};

/// How long the end of a turn waits for the coordinator's word; then the keeper goes on trying.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// How often it looks whether the keeper has done with the turn: about as long as an answer takes.
const LOOK: Duration = Duration::from_millis(1);

/// A turn. Dropped, it ends.
#[derive(Debug)]
pub struct Held {
    kept: Arc<Kept>,
    local: Arc<Local>,
    is_over: bool,
}

/// The turn had been lost before its end: its lease was over, or somebody has taken it away. Others may have had theirs meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the turn with token {token} was lost before its end: others may have written at the same time")]
pub struct Lost {
    /// Its token.
    pub token: u64,
}

/// A turn, as those who use it and the keeper share it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) claimed: Arc<Claimed>,
    grant: Granted,
    /// The thread that took it: what that takes besides, of the same party, is the same turn.
    pub(super) thread: ThreadId,
    users: AtomicU32,
    /// As [`HeldTurn`] has it: how long it counts without being renewed, and until when, on [`clock`].
    lease: AtomicU64,
    valid_until: AtomicU64,
    bytes: AtomicU64,
    /// It was over while the keeper was busy with it, who is to tell the coordinator.
    is_keepers_to_end: AtomicBool,
    /// `None` once the coordinator has been told that it is over.
    session: Mutex<Option<(Connection, HeldTurn)>>,
}

impl PartialEq for Kept {
    fn eq(&self, other: &Kept) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Held {
    /// A turn that has just been granted.
    pub(super) fn begin(
        local: &Arc<Local>,
        claimed: &Arc<Claimed>,
        Granting { granted, lease }: Granting,
        connection: Connection,
    ) -> Held {
        let kept = Arc::new(Kept {
            claimed: Arc::clone(claimed),
            grant: granted,
            thread: std::thread::current().id(),
            users: AtomicU32::new(1),
            lease: AtomicU64::new(lease.length),
            valid_until: AtomicU64::new(lease.until),
            bytes: AtomicU64::new(0),
            is_keepers_to_end: AtomicBool::new(false),
            session: Mutex::new(Some((connection, HeldTurn::new(granted.token, lease)))),
        });
        let _ = claimed.kept.set(Arc::downgrade(&kept));
        local.keep(lease.due, &kept);
        Held { kept, local: Arc::clone(local), is_over: false }
    }

    /// One more user of a turn that this process has.
    pub(super) fn join(local: &Arc<Local>, kept: &Arc<Kept>) -> Held {
        kept.users.fetch_add(1, Relaxed);
        Held { kept: Arc::clone(kept), local: Arc::clone(local), is_over: false }
    }

    /// Larger than that of every turn before.
    pub fn token(&self) -> u64 {
        self.kept.grant.token
    }

    /// Thousandths of the throughput that it may use.
    pub fn share(&self) -> u32 {
        self.kept.grant.share
    }

    /// How the turn came about.
    pub fn admission(&self) -> Admission {
        match self.kept.grant.admission {
            1 => Admission::Overdue,
            2 => Admission::Joined,
            _ => Admission::InTurn,
        }
    }

    /// How long the claim has waited, as the coordinator says.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.kept.grant.waited)
    }

    /// How long it counts without being renewed.
    pub fn lease(&self) -> Duration {
        Duration::from_nanos(self.kept.lease.load(Relaxed))
    }

    /// Whether the turn counts. By this process's own clock: false as soon as a lease has passed since the last renewal that succeeded
    /// was sent; for certain and for good once the coordinator says that it is lost.
    pub fn is_valid(&self) -> bool {
        self.kept.is_valid()
    }

    /// Ends the turn, in which `bytes` were moved (0: unknown). Where the coordinator does not answer within a second, that is
    /// done in the background.
    ///
    /// # Errors
    /// If it had been lost before.
    pub fn release(mut self, bytes: u64) -> Result<(), Lost> {
        self.end(bytes)
    }

    fn end(&mut self, bytes: u64) -> Result<(), Lost> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        let (kept, local) = (&self.kept, &self.local);
        // A parent's turn is not the child's to end.
        if local.generation != super::generation() {
            return Ok(());
        }
        kept.bytes.fetch_add(bytes, Relaxed);
        let so_far = || if kept.is_valid() { Ok(()) } else { Err(self.lost()) };
        {
            // Nobody joins a turn between its last user's end and its being gone.
            let mut all = lock(&local.claimed);
            if kept.users.fetch_sub(1, Relaxed) > 1 {
                return so_far();
            }
            all.retain(|claimed| !Arc::ptr_eq(claimed, &kept.claimed));
        }
        local.let_go(kept);
        let Some(mut session) = kept.session_within(RELEASE_MAX) else {
            kept.is_keepers_to_end.store(true, Relaxed);
            local.keep(clock(), kept);
            return so_far();
        };
        let Some((connection, turn)) = session.as_mut() else { return Err(self.lost()) };
        turn.end(kept.bytes.load(Relaxed));
        let since = clock();
        let end = connection.call(&local.reach, &turn.request(), RELEASE_MAX).map_err(|(why, _)| why);
        match turn.ended(since, &end) {
            Ended::Later => {
                drop(session);
                local.keep(clock(), kept);
                Ok(())
            }
            ended => {
                if let Some((connection, _)) = session.take() {
                    local.put_idle(connection);
                }
                if ended == Ended::Over { Ok(()) } else { Err(self.lost()) }
            }
        }
    }

    fn lost(&self) -> Lost {
        Lost { token: self.token() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Nobody is there to hear that it was lost.
        let _ = self.end(0);
    }
}

impl Kept {
    pub(super) fn is_valid(&self) -> bool {
        clock() < self.valid_until.load(Relaxed)
    }

    /// The session, once the keeper has done with it; `None` if that takes longer.
    fn session_within(&self, most: Duration) -> Option<MutexGuard<'_, Option<(Connection, HeldTurn)>>> {
        let since = Instant::now();
        loop {
            match self.session.try_lock() {
                Ok(session) => return Some(session),
                Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
                Err(TryLockError::WouldBlock) if since.elapsed() >= most => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Ends the session, and so the turn, if nobody uses the connection just now.
    pub(super) fn part(&self) {
        if let Ok(mut session) = self.session.try_lock()
            && let Some((mut connection, _)) = session.take()
        {
            self.valid_until.store(0, Relaxed);
            connection.part();
        }
    }

    /// Does what is due, and says when something is due again; `None`: there will be nothing to do any more.
    pub(super) fn look_after(&self, local: &Local) -> Option<u64> {
        let mut session = match self.session.try_lock() {
            Ok(session) => session,
            Err(TryLockError::Poisoned(error)) => PoisonError::into_inner(error),
            // Somebody is ending it.
            Err(TryLockError::WouldBlock) => return Some(clock().saturating_add(AGAIN)),
        };
        let (connection, turn) = session.as_mut()?;
        if self.is_keepers_to_end.load(Relaxed) && !turn.is_ending() {
            turn.end(self.bytes.load(Relaxed));
        }
        let sent = clock();
        let within = Duration::from_nanos(turn.within());
        let end = connection.call(&local.reach, &turn.request(), within).map_err(|(why, _)| why);
        let due = turn.asked(clock(), sent, &end);
        self.lease.store(turn.lease().length, Relaxed);
        self.valid_until.store(turn.valid_until(), Relaxed);
        if due.is_none()
            && turn.is_ending()
            && let Some((connection, _)) = session.take()
        {
            local.put_idle(connection);
        }
        due
    }
}
