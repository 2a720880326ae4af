//! A turn: renewing it, ending it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::thread::ThreadId;
use std::time::Duration;

use iogate_core::coord::Admission;
use iogate_core::coord::claimant::Lease;
use iogate_core::wire::{Granted, Record, Release, Renew, Renewed, Request};

use super::connection::{Connection, NoAnswer};
use super::{Claimed, Local, lock};
use crate::clock::since_boot;

/// How long the end of a turn waits for the coordinator's word; then the keeper goes on trying.
const RELEASE_MAX: Duration = Duration::from_secs(1);
/// The least time between two attempts to renew.
const AGAIN: Duration = Duration::from_millis(20);

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
    /// In ns, as the coordinator said last.
    lease: AtomicU64,
    /// On [`clock`]: until when it counts if it is not renewed, and when that is to be done.
    until: AtomicU64,
    due: AtomicU64,
    is_lost: AtomicBool,
    /// It is over, and the coordinator does not know yet.
    is_ending: AtomicBool,
    bytes: AtomicU64,
    connection: Mutex<Option<Connection>>,
}

/// Nanoseconds of a clock that never goes back, and goes on while the machine sleeps: leases end then too.
pub(super) fn clock() -> u64 {
    since_boot().as_nanos() as u64
}

impl Held {
    /// A turn that has just been granted to a claim that was first sent at `sent` (on [`clock`]).
    pub(super) fn begin(
        local: &Arc<Local>,
        claimed: &Arc<Claimed>,
        grant: Granted,
        sent: u64,
        connection: Connection,
    ) -> Held {
        let lease = Lease::begin(sent, clock(), &grant);
        let kept = Arc::new(Kept {
            claimed: Arc::clone(claimed),
            grant,
            thread: std::thread::current().id(),
            users: AtomicU32::new(1),
            lease: AtomicU64::new(lease.length),
            until: AtomicU64::new(lease.until),
            due: AtomicU64::new(lease.due),
            is_lost: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            connection: Mutex::new(Some(connection)),
        });
        let _ = claimed.kept.set(Arc::downgrade(&kept));
        Held { kept, local: Arc::clone(local), is_over: false }
    }

    /// One more user of a turn that this process has.
    pub(super) fn join(local: &Arc<Local>, kept: &Arc<Kept>) -> Held {
        kept.users.fetch_add(1, Relaxed);
        Held { kept: Arc::clone(kept), local: Arc::clone(local), is_over: false }
    }

    /// Renews at once a turn whose grant has come so late that this is due, as to a process that was stopped. False if it is lost.
    pub(super) fn confirm(&self) -> bool {
        if self.kept.due.load(Relaxed) <= clock() {
            self.kept.look_after(&self.local);
        }
        !self.kept.is_lost.load(Relaxed)
    }

    /// Of a turn that is lost: its connection, and nothing else is left.
    pub(super) fn give_up(&mut self) -> Connection {
        self.is_over = true;
        lock(&self.local.claimed).retain(|claimed| !Arc::ptr_eq(claimed, &self.kept.claimed));
        lock(&self.kept.connection).take().unwrap_or_default()
    }

    pub(super) fn keep(&self) {
        self.local.keep(&self.kept);
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
        if kept.users.fetch_sub(1, Relaxed) > 1 {
            return if kept.is_valid() { Ok(()) } else { Err(self.lost()) };
        }
        lock(&local.claimed).retain(|claimed| !Arc::ptr_eq(claimed, &kept.claimed));
        local.let_go(kept);
        let was_valid = kept.is_valid();
        let mut held = lock(&kept.connection);
        let Some(mut connection) = held.take() else { return Err(self.lost()) };
        let links = connection.links();
        let is_lost = match connection.call(&local.reach, &kept.release(), RELEASE_MAX) {
            Ok(reply) if reply.errno == 0 => false,
            // Sent twice, it may have been carried out the first time.
            Ok(_) => !was_valid || connection.links() == links,
            Err(NoAnswer::Forgotten) => !was_valid,
            Err(NoAnswer::Unreached(_)) => {
                *held = Some(connection);
                drop(held);
                if was_valid {
                    kept.is_ending.store(true, Relaxed);
                    kept.due.store(clock(), Relaxed);
                    local.keep(kept);
                    return Ok(());
                }
                return Err(self.lost());
            }
        };
        local.put_idle(connection);
        if is_lost { Err(self.lost()) } else { Ok(()) }
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
        !self.is_lost.load(Relaxed) && clock() < self.until.load(Relaxed)
    }

    /// Ends the session, and so the turn, if nobody uses the connection just now.
    pub(super) fn part(&self) {
        if let Ok(mut held) = self.connection.try_lock()
            && let Some(mut connection) = held.take()
        {
            self.is_lost.store(true, Relaxed);
            connection.part();
        }
    }

    /// When there is something to do.
    pub(super) fn due(&self) -> u64 {
        self.due.load(Relaxed)
    }

    fn release(&self) -> Request<'static> {
        Request::Release(Release { token: self.grant.token, bytes: self.bytes.load(Relaxed) })
    }

    /// Does what is due: renews the turn, or tells the coordinator that it is over. False if there will be nothing to do any more.
    pub(super) fn look_after(&self, local: &Local) -> bool {
        let lease = self.lease.load(Relaxed);
        let third = Duration::from_nanos(lease / 3);
        let mut held = match self.connection.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(error)) => PoisonError::into_inner(error),
            // Somebody is ending it.
            Err(TryLockError::WouldBlock) => {
                self.again_in(AGAIN);
                return true;
            }
        };
        let Some(connection) = held.as_mut() else { return false };
        let sent = clock();
        if self.is_ending.load(Relaxed) {
            if let Err(NoAnswer::Unreached(_)) = connection.call(&local.reach, &self.release(), third) {
                self.again_in(third / 3);
                // The lease ends it too.
                return sent < self.until.load(Relaxed);
            }
            if let Some(connection) = held.take() {
                local.put_idle(connection);
            }
            return false;
        }
        let renew = Request::Renew(Renew { token: self.grant.token });
        let renewed = match connection.call(&local.reach, &renew, third) {
            Ok(reply) if reply.errno == 0 => Renewed::decode(&reply.fields).ok(),
            Ok(reply) if reply.errno != libc::ESTALE => None,
            Err(NoAnswer::Unreached(_)) => None,
            Ok(_) | Err(NoAnswer::Forgotten) => {
                self.is_lost.store(true, Relaxed);
                return false;
            }
        };
        match renewed {
            Some(Renewed { lease }) => {
                let lease = Lease::from(sent, lease);
                self.lease.store(lease.length, Relaxed);
                self.until.store(lease.until, Relaxed);
                self.due.store(lease.due, Relaxed);
            }
            None => self.again_in(third / 3),
        }
        true
    }

    fn again_in(&self, time: Duration) {
        self.due.store(clock().saturating_add(time.max(AGAIN).as_nanos() as u64), Relaxed);
    }
}
