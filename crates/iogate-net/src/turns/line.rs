//! A claim, from its sending to its grant, over lost connections.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::coord::claimant::{Remedy, Reply};
use iogate_core::wire::{Cancel, Claim, Granted, Ping, Record, Request};

use super::connection::Connection;
use super::held::{Held, clock};
use super::{ClaimError, Claimed, Local, Pause, Unreached, Wanted, deadline_in, lock};

/// How often who waits is asked whether to wait on.
const TICK: Duration = Duration::from_secs(1);
/// After so long without a word the coordinator is asked whether it is still there, and given as long to answer.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How long who gives up waits for the coordinator's word on that.
const CANCEL_MAX: Duration = Duration::from_secs(2);
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
    let mut line = Line {
        local,
        claimed,
        request,
        limits,
        watch,
        connection: local.take_idle(),
        since: Instant::now(),
        unreached: None,
    };
    let result = line.wait();
    if result.is_err() {
        lock(&local.claimed).retain(|claimed| !Arc::ptr_eq(claimed, &line.claimed));
        local.put_idle(std::mem::take(&mut line.connection));
    }
    result
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

struct Line<'a> {
    local: &'a Arc<Local>,
    claimed: Arc<Claimed>,
    request: Request<'a>,
    limits: &'a Limits,
    watch: Watch<'a>,
    connection: Connection,
    since: Instant,
    /// Since when there is no coordinator, and why.
    unreached: Option<(Instant, String)>,
}

/// The claim's place in line.
struct Posted {
    id: u64,
    /// On [`clock`].
    sent: u64,
    /// When the coordinator has last been heard of.
    heard: Instant,
    /// The question whether it is there, if that has no answer yet.
    ping: Option<u64>,
}

impl Line<'_> {
    fn wait(&mut self) -> Result<Held, ClaimError> {
        let mut posted: Option<Posted> = None;
        let mut pause = Pause::new();
        loop {
            if !self.connection.is_linked() {
                match self.link(posted.as_ref()) {
                    Ok(is_same) => {
                        posted = posted.filter(|_| is_same);
                        if let Some(posted) = &mut posted {
                            posted.heard = Instant::now();
                            posted.ping = Some(self.connection.post(&Request::Ping(Ping {})));
                        }
                    }
                    Err(unreached) => {
                        self.has_lost(unreached)?;
                        self.rest(pause.next())?;
                    }
                }
                continue;
            }
            let at = posted.get_or_insert_with(|| Posted {
                // Before it is sent: the lease must not seem to last longer than it does.
                sent: clock(),
                id: self.connection.post(&self.request),
                heard: Instant::now(),
                ping: None,
            });
            match self.connection.receive(self.deadline().min(deadline_in(TICK))) {
                Ok(Some(reply)) => {
                    at.heard = Instant::now();
                    if Some(reply.id) == at.ping {
                        at.ping = None;
                    }
                    self.unreached = None;
                    pause = Pause::new();
                    if reply.id == at.id {
                        let sent = at.sent;
                        posted = None;
                        if let Some(held) = self.answered(&reply, sent)? {
                            return Ok(held);
                        }
                    }
                }
                Ok(None) => {
                    let silent = at.heard.elapsed();
                    if silent >= 2 * SILENCE_MAX {
                        self.connection.unlink();
                    } else if silent >= SILENCE_MAX && at.ping.is_none() {
                        at.ping = Some(self.connection.post(&Request::Ping(Ping {})));
                    }
                    if let Some(held) = self.look(posted.as_ref())? {
                        return Ok(held);
                    }
                }
                Err(error) => {
                    let is_first = self.unreached.is_none();
                    self.has_lost(Unreached { tried: error.to_string(), is_final: false })?;
                    // The first attempt to come back is made at once.
                    if !is_first {
                        self.rest(pause.next())?;
                    }
                }
            }
        }
    }

    /// Connects. True if the claim's place in line is kept.
    fn link(&mut self, posted: Option<&Posted>) -> Result<bool, Unreached> {
        let left = self.deadline().saturating_duration_since(Instant::now());
        let is_same = self.connection.link(&self.local.reach, left.max(Duration::from_millis(1)))?;
        if posted.is_none() {
            // What a claim before this one has left behind does not matter.
            self.unreached = None;
        }
        Ok(is_same)
    }

    /// When the wait is over at the latest.
    fn deadline(&self) -> Instant {
        let timeout = self.limits.timeout.and_then(|timeout| self.since.checked_add(timeout));
        timeout.unwrap_or_else(|| deadline_in(Duration::from_secs(1 << 30)))
    }

    /// Notes that no coordinator was reached. Fails if that has been so for too long, or will remain so.
    fn has_lost(&mut self, unreached: Unreached) -> Result<(), ClaimError> {
        if unreached.is_final {
            return Err(ClaimError::Unusable { tried: unreached.tried });
        }
        let since = self.unreached.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        self.unreached = Some((since, unreached.tried.clone()));
        match since.elapsed() >= self.limits.patience {
            true => Err(ClaimError::Unreachable { tried: unreached.tried }),
            false => Ok(()),
        }
    }

    /// Does nothing for a while, with no connection.
    fn rest(&mut self, time: Duration) -> Result<(), ClaimError> {
        std::thread::sleep(time.min(self.deadline().saturating_duration_since(Instant::now())));
        self.look(None).map(drop)
    }

    /// Sees whether to wait on. A turn that comes just as the time is over counts.
    fn look(&mut self, posted: Option<&Posted>) -> Result<Option<Held>, ClaimError> {
        let waited = self.since.elapsed();
        let unreached = self.unreached.as_ref().map(|(since, why)| (since.elapsed(), why.clone()));
        let is_over = Instant::now() >= self.deadline();
        if !is_over && (self.watch)(&Waiting { waited, unreached }).is_continue() {
            return Ok(None);
        }
        if !self.connection.is_linked() {
            // The coordinator forgets a session that does not come back.
            self.connection = Connection::default();
        }
        let late = posted
            .filter(|_| self.connection.is_linked())
            .map(|posted| self.cancel(posted))
            .transpose()?
            .flatten();
        match late {
            Some(held) if is_over => Ok(Some(held)),
            _ if is_over => Err(ClaimError::TimedOut { waited }),
            _ => Err(ClaimError::Interrupted),
        }
    }

    /// Leaves the line; or has come to its end just now.
    fn cancel(&mut self, posted: &Posted) -> Result<Option<Held>, ClaimError> {
        self.connection.post(&Request::Cancel(Cancel { claim: posted.id }));
        let deadline = deadline_in(CANCEL_MAX);
        while self.connection.is_linked() && Instant::now() < deadline {
            match self.connection.receive(deadline) {
                Ok(Some(reply)) if reply.id == posted.id => {
                    return if reply.errno == 0 { self.answered(&reply, posted.sent) } else { Ok(None) };
                }
                _ => {}
            }
        }
        // Nothing can be claimed in a session that may still have a claim.
        self.connection.part();
        Ok(None)
    }

    /// What comes of the answer to a claim; `None`: claim again.
    fn answered(&mut self, reply: &Reply, sent: u64) -> Result<Option<Held>, ClaimError> {
        if reply.errno != 0 {
            return match Remedy::against(reply.errno) {
                Remedy::Later => self.rest(Pause::LONGEST).map(|()| None),
                Remedy::NewSession => {
                    self.connection.part();
                    Ok(None)
                }
                Remedy::None => Err(ClaimError::Refused { errno: reply.errno, text: reply.text.clone() }),
            };
        }
        let grant = Granted::decode(&reply.fields).map_err(|error| ClaimError::Refused {
            errno: libc::EPROTO,
            text: format!("it grants the turn in another version's words: {error}"),
        })?;
        let connection = std::mem::take(&mut self.connection);
        let mut held = Held::begin(self.local, &self.claimed, grant, sent, connection);
        if held.confirm() {
            held.keep();
            return Ok(Some(held));
        }
        // It was lost before this process could know that it had begun.
        self.connection = held.give_up();
        self.claimed =
            Arc::new(Claimed { wanted: self.claimed.wanted.clone(), kept: std::sync::OnceLock::new() });
        lock(&self.local.claimed).push(Arc::clone(&self.claimed));
        Ok(None)
    }
}
