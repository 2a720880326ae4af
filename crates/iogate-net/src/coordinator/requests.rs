//! What clients ask for, once they are in.

use iogate_core::coord::{Claim, Refused, SessionId, Targets, Token};
use iogate_core::wire::{self, Offset, Renewed, Request, RequestHeader};
use iogate_core::{Span, Time};

use super::TARGETS_MAX;
use super::leading::{Known, Leading};
use super::quota::cost;
use super::round::granted;
use super::status::Ending;
use crate::greeting::{self, Cut};

/// Most bytes of the name of a place, of a party, and of a label.
const NAME_BYTES_MAX: usize = 1024;

/// What is left to do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    Nothing,
    /// To say how the coordinator is.
    Status,
    /// The session is over.
    Over,
}

impl Leading {
    /// Answers a request, or notes what is to be answered later.
    pub(super) fn handle(
        &mut self,
        now: Time,
        connection: u64,
        id: SessionId,
        header: &RequestHeader,
        request: &Request<'_>,
    ) -> Rest {
        let outcome = match *request {
            Request::Claim(ref claim) => self.claim(now, connection, id, header.id, claim),
            Request::Release(release) => {
                self.release(now, connection, id, header.id, Token(release.token), release.bytes)
            }
            Request::Renew(renew) => match self.table.renew(now, id, Token(renew.token)) {
                Ok(until) => {
                    let lease = until.since(now).as_nanos();
                    self.now.fields(connection, header.id, &Renewed { lease });
                    Ok(())
                }
                Err(refused) => Err(explained(&refused)),
            },
            Request::Cancel(cancel) => self.cancel(now, connection, id, header.id, cancel.claim),
            Request::Evict(evict) => self.evict(now, connection, id, header.id, Token(evict.token)),
            Request::Ping(_) => {
                self.now.fields(connection, header.id, &Offset { offset: greeting::now() });
                Ok(())
            }
            Request::Status(_) => return Rest::Status,
            Request::Goodbye(_) => {
                let claims = self.sessions.get(&id).into_iter().flat_map(|session| session.requests.values());
                for claim in claims {
                    if let Some(known) = self.claims.get_mut(claim) {
                        known.ending = Some(Ending::Left);
                    }
                }
                self.table.goodbye(now, id);
                self.collect(now);
                self.forget(id);
                self.kept.done(connection, header.id);
                return Rest::Over;
            }
            _ => {
                let text = "this is a coordinator: it serves turns, and no files";
                Err((libc::EOPNOTSUPP, text.into()))
            }
        };
        if let Err((errno, text)) = outcome {
            self.counters.refused += 1;
            self.now.failure(connection, header.id, errno, &text);
        }
        Rest::Nothing
    }

    fn claim(
        &mut self,
        now: Time,
        connection: u64,
        id: SessionId,
        request: u64,
        claim: &wire::Claim<'_>,
    ) -> Result<(), Cut> {
        let Some(session) = self.sessions.get(&id) else { return Ok(()) };
        if let Some(claim) = session.requests.get(&request)
            && let Some(known) = self.claims.get(claim)
        {
            // It is sent again after a lost connection.
            if let Some(turn) = known.turn
                && !self.probing.contains_key(claim)
                && !self.grants.iter().any(|grant| grant.token == turn.token)
            {
                let until = self.table.renew(now, id, turn.token).map_err(|refused| explained(&refused))?;
                self.kept.fields(connection, request, &granted(&turn, known.arrived, until, now));
            }
            return Ok(());
        }
        if let Some(failing) = &self.failing {
            return Err(failing.clone());
        }
        let most = self.limits.claims_per_session;
        if session.requests.len() >= most {
            return Err((libc::EAGAIN, format!("this client has {most} claims, which is the limit")));
        }
        let uid = session.user.uid;
        let place = name("place", claim.place)?;
        if place.is_empty() {
            return Err((libc::EINVAL, "expected the name of a place, found an empty one".into()));
        }
        let job = name("job", claim.party)?;
        if claim.label.len() > NAME_BYTES_MAX {
            return Err((libc::EINVAL, format!("expected a label of at most {NAME_BYTES_MAX} bytes")));
        }
        let members = members(claim.members, self.limits.targets_per_claim)?;
        self.check_place(place, &members)?;
        let label = [claim.label, claim.party].into_iter().find(|name| !name.is_empty());
        let label =
            label.map_or_else(|| session.name.clone(), greeting::name).replace(char::is_control, "\u{fffd}");
        let cost = cost(&[place, &label, job], members.len());
        if let Some(why) = self.quota.refuses(uid, cost, self.table.config().claims_max) {
            return Err((libc::EAGAIN, why));
        }
        let weight = match self.weights.is_empty() {
            true => claim.weight.max(1),
            false => self.weights.get(&uid).copied().unwrap_or(1),
        };
        let party = self.parties.enter(uid, job);
        let wanted = Claim {
            session: id,
            request,
            targets: Targets { place: self.places.enter(place), members },
            party,
            bytes: claim.bytes,
            weight,
            period: Span::from_nanos(claim.period),
        };
        let (at, place) = (wanted.targets.place, place);
        if let Some(&most) = self.turn_max.get(place) {
            self.table.limit_turns(at, most);
        }
        let new = match self.table.claim(now, wanted) {
            Ok(new) => new,
            Err(refused) => {
                self.places.leave(at);
                self.parties.leave(party);
                return Err(explained(&refused));
            }
        };
        self.quota.take(uid, cost);
        let known = Known {
            session: id,
            request,
            place: at,
            party,
            uid,
            cost,
            label: label.into(),
            arrived: now,
            bytes: claim.bytes,
            turn: None,
            ending: None,
            is_journalled: false,
        };
        self.claims.insert(new, known);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.requests.insert(request, new);
        }
        self.fresh.push(new);
        self.counters.claims += 1;
        Ok(())
    }

    /// Whether there is such a place, with such targets, where those that there are were given.
    fn check_place(&self, name: &str, members: &[u32]) -> Result<(), Cut> {
        if self.fixed.is_empty() {
            return Ok(());
        }
        let Some(place) = self.fixed.iter().find(|place| place.name == name) else {
            let names: Vec<_> = self.fixed.iter().take(16).map(|place| place.name.as_str()).collect();
            let text = format!("there is no place `{name}`: this coordinator has {}", names.join(", "));
            return Err((libc::ENOENT, text));
        };
        match (place.targets, members.iter().max()) {
            (Some(targets), Some(&last)) if last >= targets => {
                Err((libc::ENOENT, format!("there is no target {last}: `{name}` has {targets}, from 0 on")))
            }
            _ => Ok(()),
        }
    }

    fn release(
        &mut self,
        now: Time,
        connection: u64,
        id: SessionId,
        request: u64,
        token: Token,
        bytes: u64,
    ) -> Result<(), Cut> {
        let released = self.table.release(now, id, token, bytes);
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        match released {
            Ok(()) => {
                session.note_released(token);
                if let Some(known) = self.tokens.get(&token).and_then(|claim| self.claims.get_mut(claim)) {
                    known.ending = Some(Ending::Released);
                    known.bytes = if bytes > 0 { bytes } else { known.bytes };
                }
            }
            // It is sent again after a lost connection.
            Err(Refused::NotHeld { .. }) if session.released.contains(&token) => {}
            Err(refused) => return Err(explained(&refused)),
        }
        self.kept.done(connection, request);
        Ok(())
    }

    fn cancel(
        &mut self,
        now: Time,
        connection: u64,
        id: SessionId,
        request: u64,
        claim: u64,
    ) -> Result<(), Cut> {
        let claimed = self.sessions.get(&id).and_then(|session| session.requests.get(&claim));
        let probed = claimed.filter(|claimed| self.probing.contains_key(claimed));
        let over = match probed.and_then(|claimed| self.claims.get(claimed)?.turn) {
            // Its client does not know yet that it holds.
            Some(turn) => self.table.release(now, id, turn.token, 0),
            None => self.table.cancel(now, id, claim),
        };
        over.map_err(|refused| explained(&refused))?;
        if let Some(known) = claimed.and_then(|claim| self.claims.get_mut(claim)) {
            known.ending = Some(Ending::Cancelled);
        }
        self.kept.failure(connection, claim, libc::ECANCELED, "the claim was cancelled");
        self.kept.done(connection, request);
        Ok(())
    }

    fn evict(
        &mut self,
        now: Time,
        connection: u64,
        id: SessionId,
        request: u64,
        token: Token,
    ) -> Result<(), Cut> {
        let Some(known) = self.tokens.get(&token).and_then(|claim| self.claims.get_mut(claim)) else {
            return Err((libc::ESTALE, format!("nobody holds a turn with token {}", token.0)));
        };
        let user = |id| self.sessions.get(&id).map(|session: &super::leading::Session| session.user.uid);
        let (Some(caller), Some(holder)) = (user(id), user(known.session)) else { return Ok(()) };
        if ![0, rustix::process::geteuid().as_raw(), holder].contains(&caller) {
            let text = "a turn is taken away by its own user, the coordinator's, or root";
            return Err((libc::EPERM, text.into()));
        }
        known.ending = Some(Ending::Evicted);
        tracing::warn!(token = token.0, "user {caller} takes the turn of `{}` away", known.label);
        self.table.evict(now, token).map_err(|refused| explained(&refused))?;
        self.kept.done(connection, request);
        Ok(())
    }
}

/// The targets of a claim.
fn members(bytes: &[u8], most: usize) -> Result<Vec<u32>, Cut> {
    let (members, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() || members.len() > most {
        return Err((libc::EINVAL, format!("expected at most {most} targets of 4 bytes each")));
    }
    let members: Vec<u32> = members.iter().map(|member| u32::from_le_bytes(*member)).collect();
    match members.iter().find(|member| **member >= TARGETS_MAX) {
        Some(member) => {
            Err((libc::EINVAL, format!("there is no target {member}: they are below {TARGETS_MAX}")))
        }
        None => Ok(members),
    }
}

/// A name that people see and jobs agree on.
fn name<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a str, Cut> {
    let name = std::str::from_utf8(bytes)
        .ok()
        .filter(|name| name.len() <= NAME_BYTES_MAX && !name.contains(char::is_control));
    name.ok_or_else(|| {
        let found = bytes[..bytes.len().min(40)].escape_ascii();
        let text = format!(
            "expected the name of a {what} as UTF-8 without control characters, of at most {NAME_BYTES_MAX} bytes, found `{found}`"
        );
        (libc::EINVAL, text)
    })
}

/// The errno and the text for a client.
fn explained(refused: &Refused) -> Cut {
    let errno = match refused {
        Refused::NotHeld { .. } => libc::ESTALE,
        Refused::NotWaiting { .. } | Refused::Malformed => libc::EINVAL,
        Refused::Again { .. } => libc::EDEADLK,
        Refused::Full { .. } => libc::EAGAIN,
    };
    (errno, refused.to_string())
}
