//! Whose time runs out, when: that of holders who do not renew, and that of clients who are gone.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::coord::{ClaimId, SessionId};
use crate::time::Time;

#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    held: BTreeSet<(Time, ClaimId)>,
    gone: BTreeMap<SessionId, Time>,
    gone_by: BTreeSet<(Time, SessionId)>,
}

impl Leases {
    pub(super) fn start(&mut self, claim: ClaimId, until: Time) {
        self.held.insert((until, claim));
    }

    pub(super) fn end(&mut self, claim: ClaimId, until: Time) {
        self.held.remove(&(until, claim));
    }

    /// A client is gone; what it waits for it keeps until then. One that was gone before keeps its time.
    pub(super) fn on_disconnect(&mut self, session: SessionId, until: Time) {
        let until = *self.gone.entry(session).or_insert(until);
        self.gone_by.insert((until, session));
    }

    pub(super) fn on_connect(&mut self, session: SessionId) {
        if let Some(until) = self.gone.remove(&session) {
            self.gone_by.remove(&(until, session));
        }
    }

    pub(super) fn gone(&self) -> impl Iterator<Item = (SessionId, Time)> + '_ {
        self.gone.iter().map(|(session, until)| (*session, *until))
    }

    /// When the next one runs out.
    pub(super) fn first(&self) -> Option<Time> {
        let held = self.held.first().map(|(until, _)| *until);
        let gone = self.gone_by.first().map(|(until, _)| *until);
        [held, gone].into_iter().flatten().min()
    }

    /// A holder whose time is over; it is still to be ended.
    pub(super) fn expired_claim(&self, now: Time) -> Option<ClaimId> {
        self.held.first().filter(|(until, _)| *until <= now).map(|(_, claim)| *claim)
    }

    /// Takes a client whose time is over.
    pub(super) fn take_expired_session(&mut self, now: Time) -> Option<SessionId> {
        let (_, session) = *self.gone_by.first().filter(|(until, _)| *until <= now)?;
        self.on_connect(session);
        Some(session)
    }

    /// Gives the clients whose time is over until `until`, and returns the holders whose time is.
    pub(super) fn clock_jump(&mut self, now: Time, until: Time) -> Vec<ClaimId> {
        let mut gone = Vec::new();
        while let Some(session) = self.take_expired_session(now) {
            gone.push(session);
        }
        gone.into_iter().for_each(|session| self.on_disconnect(session, until));
        let expired = self.held.iter().take_while(|(until, _)| *until <= now);
        expired.map(|(_, claim)| *claim).collect()
    }
}
