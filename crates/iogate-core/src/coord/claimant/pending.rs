//! A claim, from its first sending to its grant.

use alloc::format;
use alloc::string::String;

use super::exchange::{Event, Exchange, Link, PAUSE_LONGEST, Step};
use super::{Calls, Lease, Reply, SECOND};
use crate::refusal::errno;
use crate::wire::{Cancel, Goodbye, Granted, Ping, Record, Renew, Renewed, Request};

/// How often a driver is let go, so that it can ask whether to wait on.
const TICK: u64 = SECOND;
/// After so long without a word the coordinator is asked whether it is still there, and given as long to answer.
const SILENCE_MAX: u64 = 10 * SECOND;
/// How long who gives up waits for the coordinator's word on that.
const CANCEL_MAX: u64 = 2 * SECOND;

/// How long to wait, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For a coordinator, while none can be reached.
    pub patience: u64,
    /// For the turn, all in all; `None`: as long as it takes.
    pub timeout: Option<u64>,
}

/// A claim that waits for its turn, over lost connections and coordinators that begin anew.
#[derive(Clone, Debug)]
pub struct PendingClaim {
    patience: u64,
    deadline: u64,
    link: Link,
    phase: Phase,
    /// Since when no coordinator has been reached.
    unreached: Option<u64>,
    /// When the coordinator was heard of last.
    heard: u64,
    ping: Probe,
    /// It has come over another connection since the claim was made.
    has_moved: bool,
    /// The session is to be ended before anything else.
    parts: bool,
    end: Option<Result<Granting, Failure>>,
}

/// A turn begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granting {
    /// What the coordinator said.
    pub granted: Granted,
    /// Until when it counts.
    pub lease: Lease,
}

/// Why there is no turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No coordinator for as long as [`Limits::patience`].
    Unreachable,
    /// None will be, as things are.
    Unusable,
    /// The coordinator does not take the claim.
    Refused {
        /// Its errno.
        errno: i32,
        /// What it says.
        text: String,
    },
    /// It was not its turn in time.
    TimedOut,
    /// It was [given up](PendingClaim::give_up).
    GivenUp,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The session has no claim, and is to have none before.
    Unclaimed { again_at: u64 },
    /// It waits in line: the request, and when it was first sent.
    Claimed { id: u64, sent: u64 },
    /// Its grant has come so late that it may be over: it is renewed before it counts.
    Confirming { granting: Granting, renewal: Option<(u64, u64)>, until: u64 },
    /// It leaves the line, and waits for the coordinator's word on that.
    Leaving { id: u64, sent: u64, until: u64, is_cancelled: bool, is_timed_out: bool },
}

/// The question whether the coordinator is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    None,
    /// It is to be asked.
    Due,
    Asked(u64),
}

/// What a client does about a claim that a coordinator refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// To claim again in a while: there are too many claims.
    Later,
    /// To end the session, and to claim in a new one. A session of its own carries one claim at a time, so another that
    /// the coordinator still knows is one of before a crash of its machine, which lost that it was over.
    NewSession,
    /// Nothing: claimed again, it would be refused again.
    None,
}

impl Remedy {
    fn against(refused: i32) -> Remedy {
        match refused {
            errno::EAGAIN => Remedy::Later,
            errno::EDEADLK => Remedy::NewSession,
            _ => Remedy::None,
        }
    }
}

impl PendingClaim {
    /// A claim that is to be made from now on, in a session that has no other one; `is_linked`: over the connection that there is.
    pub fn new(now: u64, limits: &Limits, is_linked: bool) -> PendingClaim {
        PendingClaim {
            patience: limits.patience,
            deadline: limits.timeout.map_or(u64::MAX, |timeout| now.saturating_add(timeout)),
            link: Link::new(is_linked),
            phase: Phase::Unclaimed { again_at: now },
            unreached: None,
            heard: now,
            ping: Probe::None,
            has_moved: false,
            parts: false,
            end: None,
        }
    }

    /// Since when no coordinator has been reached, if that is so.
    pub fn unreached_since(&self) -> Option<u64> {
        self.unreached
    }

    /// Whether it waits on, so that it is of use to ask whether it should.
    pub fn waits(&self, now: u64) -> bool {
        self.end.is_none() && now < self.deadline && !matches!(self.phase, Phase::Leaving { .. })
    }

    /// Whoever waits does not want to wait on: there will be no turn.
    pub fn give_up(&mut self, now: u64) {
        if self.end.is_none() {
            self.leave(now, false);
        }
    }

    fn leave(&mut self, now: u64, is_timed_out: bool) {
        match self.phase {
            Phase::Claimed { id, sent } if self.link.is_up => {
                let until = now.saturating_add(CANCEL_MAX);
                self.phase = Phase::Leaving { id, sent, until, is_cancelled: false, is_timed_out };
            }
            Phase::Leaving { .. } => {}
            // Nothing can be claimed in a session that may still have a claim, nor is one kept that may be over by the next time.
            Phase::Unclaimed { .. } => self.fail(!self.link.is_up, given_up(is_timed_out)),
            Phase::Claimed { .. } | Phase::Confirming { .. } => self.fail(true, given_up(is_timed_out)),
        }
    }

    fn fail(&mut self, parts: bool, failure: Failure) {
        self.parts |= parts;
        self.end.get_or_insert(Err(failure));
    }

    /// No coordinator is there. That is the end if it has been so for too long.
    fn has_lost(&mut self, now: u64) {
        if let Phase::Leaving { is_timed_out, .. } = self.phase {
            return self.fail(true, given_up(is_timed_out));
        }
        let since = *self.unreached.get_or_insert(now);
        if now.saturating_sub(since) >= self.patience {
            self.fail(false, Failure::Unreachable);
        }
    }

    /// What the phase has to be done on a connection, and until when to wait then.
    fn on_link(
        &mut self,
        now: u64,
        calls: &mut Calls,
        request: &Request<'_>,
    ) -> Step<Result<Granting, Failure>> {
        let most = self.deadline.min(now.saturating_add(TICK));
        match &mut self.phase {
            Phase::Unclaimed { again_at } if *again_at > now => Step::Rest { until: most.min(*again_at) },
            Phase::Unclaimed { .. } => {
                // Not later than it is sent: the lease must not seem to last longer than it does.
                self.phase = Phase::Claimed { id: calls.post(request), sent: now };
                self.has_moved = false;
                self.heard = now;
                Step::Wait { until: most }
            }
            Phase::Claimed { .. } => {
                let silent = now.saturating_sub(self.heard);
                if silent >= 2 * SILENCE_MAX {
                    self.link.down(now);
                    return Step::Unlink;
                }
                if self.ping == Probe::Due || silent >= SILENCE_MAX && self.ping == Probe::None {
                    self.ping = Probe::Asked(calls.post(&Request::Ping(Ping {})));
                }
                let next = if silent >= SILENCE_MAX { 2 * SILENCE_MAX } else { SILENCE_MAX };
                Step::Wait { until: most.min(self.heard.saturating_add(next)) }
            }
            Phase::Confirming { granting, renewal, until } => {
                let token = granting.granted.token;
                renewal.get_or_insert_with(|| (calls.post(&Request::Renew(Renew { token })), now));
                Step::Wait { until: (*until).min(now.saturating_add(TICK)) }
            }
            Phase::Leaving { id, is_cancelled, until, .. } => {
                if !core::mem::replace(is_cancelled, true) {
                    calls.post(&Request::Cancel(Cancel { claim: *id }));
                }
                Step::Wait { until: *until }
            }
        }
    }

    /// The time for what it does is over, if it is.
    fn look_at_time(&mut self, now: u64) {
        match self.phase {
            Phase::Leaving { until, is_timed_out, .. } if until <= now => {
                self.fail(true, given_up(is_timed_out));
            }
            // Nobody has said that it is lost.
            Phase::Confirming { granting, until, .. } if until <= now => match granting.lease.is_valid(now) {
                true => self.end = Some(Ok(granting)),
                false => self.claim_in_new_session(now),
            },
            Phase::Unclaimed { .. } | Phase::Claimed { .. } if self.deadline <= now => self.leave(now, true),
            _ => {}
        }
    }

    fn claim_in_new_session(&mut self, now: u64) {
        self.parts = true;
        self.phase = Phase::Unclaimed { again_at: now };
    }

    /// The claim has its answer.
    fn claim_answered(&mut self, now: u64, sent: u64, reply: &Reply) {
        if reply.errno != 0 {
            self.phase = Phase::Unclaimed { again_at: now };
            return match Remedy::against(reply.errno) {
                Remedy::Later => {
                    self.phase = Phase::Unclaimed { again_at: now.saturating_add(PAUSE_LONGEST) }
                }
                Remedy::NewSession => self.parts = true,
                Remedy::None => {
                    self.fail(false, Failure::Refused { errno: reply.errno, text: reply.text.clone() });
                }
            };
        }
        let granted = match Granted::decode(&reply.fields) {
            Ok(granted) => granted,
            Err(error) => {
                let text = format!("it grants the turn in another version's words: {error}");
                return self.fail(true, Failure::Refused { errno: errno::EPROTO, text });
            }
        };
        // Another coordinator may have another clock than the one that took the claim.
        let waited = if self.has_moved { 0 } else { granted.waited };
        let lease = Lease::begin(sent, now, &Granted { waited, ..granted });
        let granting = Granting { granted, lease };
        match now < lease.due {
            true => self.end = Some(Ok(granting)),
            false => self.confirm(now, granting),
        }
    }

    fn confirm(&mut self, now: u64, granting: Granting) {
        let until = now.saturating_add(granting.lease.length / 3);
        self.phase = Phase::Confirming { granting, renewal: None, until };
    }

    fn renewal_answered(&mut self, now: u64, granting: Granting, sent: u64, reply: &Reply) {
        match Renewed::decode(&reply.fields) {
            Ok(renewed) if reply.errno == 0 => {
                let granting = Granting { lease: Lease::from(sent, renewed.lease), ..granting };
                match granting.lease.is_valid(now) {
                    true => self.end = Some(Ok(granting)),
                    // This answer has come too late, too.
                    false => self.confirm(now, granting),
                }
            }
            // It was lost before its client could know that it had begun.
            _ if reply.errno == errno::ESTALE => self.phase = Phase::Unclaimed { again_at: now },
            _ if granting.lease.is_valid(now) => self.end = Some(Ok(granting)),
            _ => self.claim_in_new_session(now),
        }
    }
}

fn given_up(is_timed_out: bool) -> Failure {
    if is_timed_out { Failure::TimedOut } else { Failure::GivenUp }
}

impl Exchange for PendingClaim {
    type End = Result<Granting, Failure>;

    fn next(&mut self, now: u64, calls: &mut Calls, request: &Request<'_>) -> Step<Self::End> {
        if self.end.is_none() {
            self.look_at_time(now);
        }
        if core::mem::take(&mut self.parts) {
            if self.link.is_up {
                calls.post(&Request::Goodbye(Goodbye {}));
            }
            self.link.down(now);
            self.ping = Probe::None;
            return Step::Part;
        }
        if let Some(end) = self.end.take() {
            return Step::Over(end);
        }
        match self.link {
            Link { is_up: true, .. } => self.on_link(now, calls, request),
            Link { again_at, .. } => {
                let until = match self.phase {
                    Phase::Confirming { until, .. } => until,
                    _ => self.deadline,
                };
                match again_at > now {
                    true => Step::Rest { until: again_at.min(until) },
                    false => Step::Connect { until },
                }
            }
        }
    }

    fn happened(&mut self, now: u64, event: Event) {
        match event {
            Event::Connected { is_same } => self.connected(now, is_same),
            Event::Unreached { is_final, random } => self.unreached(now, is_final, random),
            Event::Disconnected { random } => self.disconnected(now, random),
            Event::Answered(reply) => self.answered(now, &reply),
        }
    }
}

impl PendingClaim {
    fn connected(&mut self, now: u64, is_same: bool) {
        self.link.up();
        self.heard = now;
        self.ping = Probe::None;
        match self.phase {
            // What a claim before this one has left behind does not matter.
            Phase::Unclaimed { .. } => self.unreached = None,
            _ if !is_same => self.phase = Phase::Unclaimed { again_at: now },
            Phase::Claimed { .. } => {
                self.has_moved = true;
                self.ping = Probe::Due;
            }
            Phase::Confirming { .. } | Phase::Leaving { .. } => {}
        }
    }

    fn unreached(&mut self, now: u64, is_final: bool, random: u8) {
        self.link.failed(now, random);
        match is_final {
            true => self.fail(false, Failure::Unusable),
            false => self.has_lost(now),
        }
    }

    fn disconnected(&mut self, now: u64, random: u8) {
        match self.unreached {
            Some(_) => self.link.failed(now, random),
            // The first attempt to come back is made at once, however little patience there is.
            None => self.link.down(now),
        }
        if self.unreached.is_some() || matches!(self.phase, Phase::Leaving { .. }) {
            self.has_lost(now);
        }
        self.unreached.get_or_insert(now);
    }

    fn answered(&mut self, now: u64, reply: &Reply) {
        self.heard = now;
        self.unreached = None;
        self.link.heard();
        if self.ping == Probe::Asked(reply.id) {
            self.ping = Probe::None;
        }
        match self.phase {
            Phase::Claimed { id, sent } if id == reply.id => self.claim_answered(now, sent, reply),
            Phase::Leaving { id, sent, is_timed_out, .. } if id == reply.id => match reply.errno {
                // A turn that comes just as the time is over counts.
                0 if is_timed_out => self.claim_answered(now, sent, reply),
                errno => self.fail(errno == 0, given_up(is_timed_out)),
            },
            Phase::Confirming { granting, renewal: Some((id, sent)), .. } if id == reply.id => {
                self.renewal_answered(now, granting, sent, reply);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
