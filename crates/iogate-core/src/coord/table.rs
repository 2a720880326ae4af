//! The lock table.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::*;

/// The lock table of a coordinator.
///
/// Contract: `now` never decreases. After any call that changes something the driver takes [`Table::changes`], makes them durable, and
/// then drains [`Table::next`] until it is `WaitUntil` or `Idle` (draining makes changes too: they are made durable before
/// the client hears of its grant). Nothing is granted but by `next`.
#[derive(Debug)]
pub struct Table {
    config: CoordConfig,
    claims: BTreeMap<ClaimId, Entry>,
    next_claim: u64,
    next_token: u64,
    changes: Vec<Change>,
    lost: VecDeque<Loss>,
}

impl Table {
    /// An empty table. Tokens begin behind `last_token`.
    pub fn new(config: CoordConfig, last_token: Token) -> Table {
        Table {
            config,
            claims: BTreeMap::new(),
            next_claim: 1,
            next_token: last_token.0 + 1,
            changes: Vec::new(),
            lost: VecDeque::new(),
        }
    }

    /// A table with what a journal has kept. Leases begin anew, so that clients have one lease's time to come back.
    pub fn restore(
        config: CoordConfig,
        now: Time,
        last_token: Token,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Table {
        let mut table = Table::new(config, last_token);
        for mut entry in entries {
            table.next_claim = table.next_claim.max(entry.id.0 + 1);
            if let Standing::Held { token, until, .. } = &mut entry.standing {
                *until = now + table.config.lease;
                table.next_token = table.next_token.max(token.0 + 1);
            }
            table.claims.insert(entry.id, entry);
        }
        table
    }

    /// The rules.
    pub fn config(&self) -> &CoordConfig {
        &self.config
    }

    /// A client wants a turn. A claim that the table has already (same session, same request) stays what it is; if it holds
    /// its turn, that is what `next` says again.
    pub fn claim(&mut self, now: Time, claim: Claim) -> Result<ClaimId, Refused> {
        if !claim.targets.members.is_sorted_by(|a, b| a < b) {
            return Err(Refused::Malformed);
        }
        if self.claims.len() >= self.config.claims_max {
            return Err(Refused::Full { max: self.config.claims_max });
        }
        let id = ClaimId(self.next_claim);
        self.next_claim += 1;
        let entry = Entry { id, claim, arrived: now, standing: Standing::Waiting };
        self.changes.push(Change::Put(entry.clone()));
        self.claims.insert(id, entry);
        Ok(id)
    }

    /// A turn is over. `bytes` were moved in it, 0 if that is not known.
    pub fn release(
        &mut self,
        _now: Time,
        session: SessionId,
        token: Token,
        _bytes: u64,
    ) -> Result<(), Refused> {
        let id = self.held_by(session, token)?;
        self.remove(id);
        Ok(())
    }

    /// A holder is still there. Returns when its turn now ends.
    pub fn renew(&mut self, now: Time, session: SessionId, token: Token) -> Result<Time, Refused> {
        let id = self.held_by(session, token)?;
        let new = now + self.config.lease;
        if let Some(Entry { standing: Standing::Held { until, .. }, .. }) = self.claims.get_mut(&id) {
            *until = new;
        }
        Ok(new)
    }

    /// A client no longer waits.
    pub fn cancel(&mut self, _now: Time, session: SessionId, request: u64) -> Result<(), Refused> {
        let found = self.claims.values().find(|entry| {
            entry.claim.session == session
                && entry.claim.request == request
                && entry.standing == Standing::Waiting
        });
        let id = found.ok_or(Refused::NotWaiting { request })?.id;
        self.remove(id);
        Ok(())
    }

    /// A client is not connected any more: its claims, held and waiting, have one lease's time.
    pub fn disconnected(&mut self, _now: Time, _session: SessionId) {}

    /// A client is there again.
    pub fn connected(&mut self, _now: Time, _session: SessionId) {}

    /// A client has said that it ends: its claims are over.
    pub fn goodbye(&mut self, _now: Time, session: SessionId) {
        let ids: Vec<_> = self
            .claims
            .values()
            .filter(|entry| entry.claim.session == session)
            .map(|entry| entry.id)
            .collect();
        ids.into_iter().for_each(|id| self.remove(id));
    }

    /// An administrator takes a turn away; `next` says that it is lost.
    pub fn evict(&mut self, _now: Time, token: Token) -> Result<(), Refused> {
        let found = self.claims.values().find(|entry| Table::token(entry) == Some(token));
        let entry = found.ok_or(Refused::NotHeld { token })?;
        let loss = Loss {
            claim: entry.id,
            session: entry.claim.session,
            request: entry.claim.request,
            token: Some(token),
        };
        self.remove(loss.claim);
        self.lost.push_back(loss);
        Ok(())
    }

    /// What to do next.
    pub fn next(&mut self, now: Time) -> Decision {
        if let Some(loss) = self.lost.pop_front() {
            return Decision::Lost(loss);
        }
        let first = self.claims.values().find(|entry| {
            entry.standing == Standing::Waiting
                && self
                    .claims
                    .values()
                    .take_while(|other| other.id != entry.id)
                    .all(|other| !other.claim.targets.overlaps(&entry.claim.targets))
        });
        let Some(id) = first.map(|entry| entry.id) else { return Decision::Idle };
        let token = Token(self.next_token);
        self.next_token += 1;
        let until = now + self.config.lease;
        let Some(entry) = self.claims.get_mut(&id) else { return Decision::Idle };
        entry.standing = Standing::Held { token, since: now, until, admission: Admission::InTurn };
        self.changes.push(Change::Put(entry.clone()));
        Decision::Granted(Grant {
            claim: id,
            session: entry.claim.session,
            request: entry.claim.request,
            token,
            waited: now.since(entry.arrived),
            until,
            share: 1000,
            admission: Admission::InTurn,
        })
    }

    /// What has changed since the last call, oldest first.
    pub fn changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.changes.drain(..)
    }

    /// All claims: those that hold by token, then those that wait, in the order in which they would be served.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> + '_ {
        let is_held = |entry: &&Entry| entry.standing != Standing::Waiting;
        let held = self.claims.values().filter(is_held);
        held.chain(self.claims.values().filter(move |entry| !is_held(entry)))
    }

    fn token(entry: &Entry) -> Option<Token> {
        match entry.standing {
            Standing::Held { token, .. } => Some(token),
            Standing::Waiting => None,
        }
    }

    fn held_by(&self, session: SessionId, token: Token) -> Result<ClaimId, Refused> {
        let found = self
            .claims
            .values()
            .find(|entry| entry.claim.session == session && Table::token(entry) == Some(token));
        found.map(|entry| entry.id).ok_or(Refused::NotHeld { token })
    }

    fn remove(&mut self, id: ClaimId) {
        self.claims.remove(&id);
        self.changes.push(Change::Gone(id));
    }
}
