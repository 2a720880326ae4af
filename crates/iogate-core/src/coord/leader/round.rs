//! A round: what the table decides, what the journal keeps of it, and what may then be said.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::vec::Vec;

use super::status::{Ending, Finished};
use super::{Known, Leader, Turn};
use crate::coord::journal::{Record, admission_number};
use crate::coord::{Admission, Change, ClaimId, Decision, Grant, Loss};
use crate::refusal::{Refusal, errno};
use crate::wire::Granted;
use crate::{Span, Time};

impl Leader {
    /// Decides what there is to decide, and notes what the journal is to keep of it. Returns when it wants to be asked again.
    pub fn decide(&mut self, now: Time) -> Option<Time> {
        let next = self.ask_table(now);
        self.collect(now);
        next
    }

    fn ask_table(&mut self, now: Time) -> Option<Time> {
        if self.grace_until.is_some_and(|until| now >= until) {
            self.grace_until = None;
            // What is in the journal from here on is all there is.
            let begin = self.all().into_iter().next();
            self.records.extend(begin);
        }
        // Nothing is granted that cannot be kept.
        if self.failing.is_some() {
            return None;
        }
        let probed = self.keep_probing(now);
        let next = loop {
            match self.table.next(now) {
                Decision::Granted(grant) => self.granted(now, grant),
                Decision::Lost(loss) => self.lost(now, &loss),
                Decision::WaitUntil(time) => break Some(time),
                Decision::Idle => break None,
            }
        };
        [probed, next].into_iter().flatten().min()
    }

    /// Gives what is to be sent: connections, and bytes for them, in order. What waits for the journal is among it if that `has_kept` all.
    pub fn say(&mut self, has_kept: bool, mut send: impl FnMut(u64, &[u8])) {
        self.at_once.drain(&mut send);
        if has_kept {
            self.when_kept.drain(&mut send);
        }
    }

    fn granted(&mut self, now: Time, grant: Grant) {
        let Some(known) = self.claims.get_mut(&grant.claim) else { return };
        let Grant { token, share, admission, .. } = grant;
        known.turn = Some(Turn { token, since: now, share, admission });
        self.tokens.insert(token, grant.claim);
        self.last_token = self.last_token.max(token.0);
        self.counters.granted += 1;
        self.counters.overdue += u64::from(admission == Admission::Overdue);
        self.counters.joined += u64::from(admission == Admission::Joined);
        self.grants.push(grant);
    }

    fn lost(&mut self, now: Time, loss: &Loss) {
        if let Some(known) = self.claims.get_mut(&loss.claim) {
            let most = self.table.turn_max(known.place);
            let is_overlong =
                most > Span::ZERO && known.turn.is_some_and(|turn| now.since(turn.since) >= most);
            known.ending.get_or_insert(if is_overlong { Ending::Overlong } else { Ending::Lost });
        }
        let connection = self.sessions.get(&loss.session).and_then(|session| session.connection);
        if let (None, Some(connection)) = (loss.token, connection) {
            let text = "the claim is over: nothing was heard of its client for too long";
            self.when_kept.failure(connection, loss.request, &Refusal::new(errno::ECANCELED, text));
        }
    }

    /// Takes in what the table has changed.
    pub(super) fn collect(&mut self, now: Time) {
        let mut changes: Vec<_> = self.table.changes().collect();
        if changes.len() > 1 {
            // Where a claim stands last is what counts.
            let mut seen = BTreeSet::new();
            changes.reverse();
            changes.retain(|change| seen.insert(number(change)));
            changes.reverse();
        }
        for change in changes {
            match change {
                Change::Put(entry) => {
                    let Some(record) = self.record(&entry) else { continue };
                    let id = entry.claim.session;
                    if let Some(session) = self.sessions.get_mut(&id).filter(|session| !session.is_journalled)
                    {
                        session.is_journalled = true;
                        self.records.push(Record::Session(session.record(id)));
                    }
                    if let Some(known) = self.claims.get_mut(&entry.id) {
                        known.is_journalled = true;
                    }
                    self.records.push(Record::Claim(record));
                }
                Change::Gone(id) => self.gone(now, id),
            }
        }
    }

    fn gone(&mut self, now: Time, id: ClaimId) {
        let Some(known) = self.claims.remove(&id) else { return };
        if known.is_journalled {
            self.records.push(Record::Gone(id.0));
        }
        if let Some(session) = self.sessions.get_mut(&known.session) {
            session.requests.remove(&known.request);
        }
        let ending = known.ending.unwrap_or(Ending::Lost);
        self.tell_over(id, &known, ending);
        match ending {
            Ending::Released => {
                self.counters.released += 1;
                self.counters.bytes = self.counters.bytes.saturating_add(known.bytes);
            }
            Ending::Lost | Ending::Overlong => self.counters.lost += 1,
            Ending::Cancelled | Ending::Left => self.counters.cancelled += 1,
            Ending::Evicted => self.counters.evicted += 1,
        }
        if let Some(turn) = known.turn {
            self.tokens.remove(&turn.token);
            let ms = |span: Span| span.as_nanos() / 1_000_000;
            let finished = Finished {
                token: turn.token.0,
                label: known.label.into(),
                place: self.places.name(known.place).into(),
                waited_ms: ms(turn.since.since(known.arrived)),
                held_ms: ms(now.since(turn.since)),
                bytes: known.bytes,
                ending,
                ago_ms: 0,
            };
            self.history.truncate(self.config.limits.history.saturating_sub(1));
            self.history.push_front((now, finished));
        }
        self.leave_place(known.place);
        self.parties.leave(known.party);
        self.quota.give_back(known.uid, known.cost);
    }

    /// What the journal is to keep. It stays until it is [`kept`](Leader::kept).
    pub fn unkept(&self) -> &[Record] {
        &self.records
    }

    /// The journal has kept what was [`unkept`](Leader::unkept): what waited for that may be said.
    pub fn kept(&mut self, now: Time) {
        if !self.records.is_empty() {
            self.records.clear();
            self.counters.appends += 1;
        }
        self.failing = None;
        self.fresh.clear();
        self.tell_granted(now);
    }

    /// What the journal has not kept did not happen: the claims that came since are refused, and those who wait go on waiting.
    pub fn not_kept(&mut self, now: Time, refusal: Refusal) {
        for id in core::mem::take(&mut self.fresh) {
            let Some(known) = self.claims.get_mut(&id) else { continue };
            let (session, request) = (known.session, known.request);
            known.ending = Some(Ending::Cancelled);
            let over = match known.turn.take() {
                Some(turn) => {
                    self.tokens.remove(&turn.token);
                    self.table.release(now, session, turn.token, 0)
                }
                None => self.table.cancel(now, session, request),
            };
            if let Err(refused) = over {
                self.notices.push(format!("a claim that was not kept cannot be taken back: {refused}"));
            }
            if let Some(connection) = self.sessions.get(&session).and_then(|session| session.connection) {
                self.at_once.failure(connection, request, &refusal);
            }
        }
        self.failing = Some(refusal);
        self.collect(now);
    }

    /// Tells those whose turns have begun, as the journal now knows of them.
    fn tell_granted(&mut self, now: Time) {
        for mut grant in core::mem::take(&mut self.grants) {
            let connection = self.sessions.get(&grant.session).and_then(|session| session.connection);
            if grant.until <= now && connection.is_some() {
                // The journal took longer than the lease.
                let Some(until) = self.renew_untold(now, grant.claim) else {
                    self.grants.push(grant);
                    continue;
                };
                grant.until = until;
            }
            if self.begin_probe(now, grant.claim) {
                continue;
            }
            let Some(known) = self.claims.get(&grant.claim) else { continue };
            // Who is not there asks again, or loses it.
            let (Some(connection), Some(turn)) = (connection, known.turn) else { continue };
            let granted = granted(&turn, known.arrived, grant.until, now);
            self.when_kept.fields(connection, grant.request, &granted);
        }
    }

    /// Renews a turn of which its client is still to be told. `None`: it has been as long as it may be, or is over, and its client is
    /// told so once the journal knows.
    pub(super) fn renew_untold(&mut self, now: Time, id: ClaimId) -> Option<Time> {
        let known = self.claims.get_mut(&id)?;
        let (session, token) = (known.session, known.turn?.token);
        let until = self.table.renew(now, session, token).ok()?;
        if until > now {
            return Some(until);
        }
        known.ending.get_or_insert(Ending::Overlong);
        self.table.release(now, session, token, 0).ok();
        None
    }

    /// Tells a client that a turn is over of which it does not know that it had begun: it would wait for ever.
    fn tell_over(&mut self, id: ClaimId, known: &Known, ending: Ending) {
        let is_probing = self.probing.remove(&id).is_some();
        let granted = self.grants.iter().position(|grant| grant.claim == id);
        granted.map(|index| self.grants.remove(index));
        let (errno, text) = match ending {
            // It claims again.
            Ending::Lost | Ending::Overlong => (errno::EAGAIN, "the turn was over before it could begin"),
            Ending::Evicted => (errno::ECANCELED, "the turn was taken away before it could begin"),
            Ending::Released | Ending::Cancelled | Ending::Left => return,
        };
        let connection = self.sessions.get(&known.session).and_then(|session| session.connection);
        if let Some(connection) = connection.filter(|_| is_probing || granted.is_some()) {
            self.when_kept.failure(connection, known.request, &Refusal::new(errno, text));
        }
    }
}

/// What a client is told: how long it has waited until now, and how long from now on its turn counts.
pub(super) fn granted(turn: &Turn, arrived: Time, until: Time, now: Time) -> Granted {
    Granted {
        token: turn.token.0,
        lease: until.since(now).as_nanos(),
        waited: now.since(arrived).as_nanos(),
        share: turn.share,
        admission: admission_number(turn.admission),
    }
}

fn number(change: &Change) -> ClaimId {
    match change {
        Change::Put(entry) => entry.id,
        Change::Gone(id) => *id,
    }
}
