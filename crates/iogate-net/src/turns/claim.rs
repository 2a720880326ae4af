//! A claim, from its sending to its grant: what decides is [`PendingClaim`].

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use iogate_core::coord::claimant::{self, Failure, PendingClaim};
use iogate_core::wire::{Claim, Request};

use super::connection::Connection;
use super::held::Held;
use super::{ClaimError, Claimed, Local, Wanted, clock, lock, nanoseconds};
/// Most bytes of names and targets: a message's fields have less than 64 KiB.
const NAMES_BYTES_MAX: usize = 60_000;

/// How long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a coordinator, while none can be reached.
    pub patience: Duration,
    /// For the turn, all in all; `None`: as long as it takes.
    pub timeout: Option<Duration>,
}

impl Limits {
    /// As long as it takes, if a coordinator is there.
    pub const fn patience(patience: Duration) -> Limits {
        Limits { patience, timeout: None }
    }
}

/// How a wait stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// So long already.
    pub waited: Duration,
    /// Since when no coordinator has been reached, and why, if that is so.
    pub unreached: Option<(Duration, String)>,
}

/// Who watches a wait, and may end it.
pub type Watch<'a> = &'a mut dyn FnMut(&Waiting) -> ControlFlow<()>;

/// Waits for a turn.
pub(super) fn claim(
    local: &Arc<Local>,
    wanted: &Wanted,
    limits: &Limits,
    watch: Watch<'_>,
) -> Result<Held, ClaimError> {
    let mut members = Vec::with_capacity(wanted.members.len() * 4);
    wanted.members.iter().for_each(|member| members.extend_from_slice(&member.to_le_bytes()));
    if members.len() + wanted.place.len() + wanted.party.len() + wanted.label.len() > NAMES_BYTES_MAX {
        let text = format!("expected at most {NAMES_BYTES_MAX} bytes of targets (4 bytes each) and names");
        return Err(ClaimError::Refused { errno: libc::EINVAL, text });
    }
    let request = Request::Claim(Claim {
        bytes: wanted.bytes,
        weight: wanted.weight,
        period: wanted.period.as_nanos() as u64,
        place: wanted.place.as_bytes(),
        members: &members,
        party: wanted.party.as_bytes(),
        label: wanted.label.as_bytes(),
    });
    let claimed = match local.enter(wanted)? {
        Entered::Joined(held) => return Ok(held),
        Entered::New(claimed) => claimed,
    };
    let mut connection = local.take_idle();
    match wait(local, &request, limits, watch, &mut connection) {
        Ok(granting) => Ok(Held::begin(local, &claimed, granting, connection)),
        Err(error) => {
            lock(&local.claimed).retain(|other| !Arc::ptr_eq(other, &claimed));
            local.put_idle(connection);
            Err(error)
        }
    }
}

fn wait(
    local: &Local,
    request: &Request<'_>,
    limits: &Limits,
    watch: Watch<'_>,
    connection: &mut Connection,
) -> Result<claimant::Granting, ClaimError> {
    let since = clock();
    let within =
        claimant::Limits { patience: nanoseconds(limits.patience), timeout: limits.timeout.map(nanoseconds) };
    let mut pending = PendingClaim::new(since, &within, connection.is_linked());
    let waited = || Duration::from_nanos(clock().saturating_sub(since));
    let mut tried = String::new();
    let end = connection.carry(&local.reach, &mut pending, request, &mut tried, |pending, tried| {
        let now = clock();
        if pending.waits(now) {
            let unreached = pending.unreached_since();
            let unreached =
                unreached.map(|since| (Duration::from_nanos(now.saturating_sub(since)), tried.into()));
            if watch(&Waiting { waited: waited(), unreached }).is_break() {
                pending.give_up(now);
            }
        }
    });
    end.map_err(|failure| match failure {
        Failure::Unreachable => ClaimError::Unreachable { tried },
        Failure::Unusable => ClaimError::Unusable { tried },
        Failure::Refused { errno, text } => ClaimError::Refused { errno, text },
        Failure::TimedOut => ClaimError::TimedOut { waited: waited() },
        Failure::GivenUp => ClaimError::Interrupted,
    })
}

enum Entered {
    /// The thread has this turn already.
    Joined(Held),
    New(Arc<Claimed>),
}

impl Local {
    /// Notes a claim, unless the process would wait for itself.
    fn enter(self: &Arc<Local>, wanted: &Wanted) -> Result<Entered, ClaimError> {
        let mut all = lock(&self.claimed);
        for other in all.iter().filter(|other| other.wanted.overlaps(wanted)) {
            let kept = other.kept.get().and_then(std::sync::Weak::upgrade);
            match (kept, wanted.party.is_empty()) {
                (_, true) => return Err(ClaimError::Again { place: wanted.place.clone() }),
                // Others of the job that ask now may have to queue behind other jobs, which wait for this thread.
                (Some(kept), false)
                    if kept.thread == std::thread::current().id()
                        && other.wanted.covers(wanted)
                        && kept.is_valid() =>
                {
                    return Ok(Entered::Joined(Held::join(self, &kept)));
                }
                _ => {}
            }
        }
        let claimed = Arc::new(Claimed { wanted: wanted.clone(), kept: std::sync::OnceLock::new() });
        all.push(Arc::clone(&claimed));
        Ok(Entered::New(claimed))
    }
}

impl Wanted {
    /// Whether two claims of the same party are about a common target.
    fn overlaps(&self, other: &Wanted) -> bool {
        self.place == other.place
            && self.party == other.party
            && (self.members.is_empty()
                || other.members.is_empty()
                || self.members.iter().any(|member| other.members.contains(member)))
    }

    fn covers(&self, other: &Wanted) -> bool {
        self.members.is_empty()
            || !other.members.is_empty() && other.members.iter().all(|member| self.members.contains(member))
    }
}
