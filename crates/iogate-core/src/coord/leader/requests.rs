//! What clients ask for, once they are in.

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::quota::cost;
use super::round::granted;
use super::status::Ending;
use super::{Known, Leader, Session, TARGETS_MAX};
use crate::coord::{Claim, Refused, SessionId, Targets, Token};
use crate::refusal::{Refusal, errno};
use crate::wire::{self, Renewed, Request};
use crate::{Span, Time};

/// Most bytes of the name of a place, of a party, and of a label.
const NAME_BYTES_MAX: usize = 1024;

/// A request that has come.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// When.
    pub now: Time,
    /// By which connection.
    pub connection: u64,
    /// In whose session.
    pub session: SessionId,
    /// The client's number for it.
    pub id: u64,
}

/// What is left to do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing.
    Nothing,
    /// To say how the coordinator is.
    Status,
    /// To say what time it is.
    Time,
    /// The session is over.
    Over,
}

impl Leader {
    /// Answers a request, or notes what is to be answered later.
    pub fn handle(&mut self, asked: Asked, request: &Request<'_>) -> Rest {
        let Asked { now, connection, session: id, .. } = asked;
        let outcome = match *request {
            Request::Claim(ref claim) => self.claim(asked, claim),
            Request::Release(release) => self.release(asked, Token(release.token), release.bytes),
            Request::Renew(renew) => match self.table.renew(now, id, Token(renew.token)) {
                Ok(until) => {
                    let lease = until.since(now).as_nanos();
                    self.at_once.fields(connection, asked.id, &Renewed { lease });
                    Ok(())
                }
                Err(refused) => Err(explained(&refused)),
            },
            Request::Cancel(cancel) => self.cancel(asked, cancel.claim),
            Request::Evict(evict) => self.evict(asked, Token(evict.token)),
            Request::ReportUse(ref report) => self.report_use(asked, report),
            Request::Ping(_) => return Rest::Time,
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
                self.when_kept.done(connection, asked.id);
                return Rest::Over;
            }
            _ => Err(Refusal::new(
                errno::EOPNOTSUPP,
                "this is a coordinator: it serves turns and shares, and no files",
            )),
        };
        if let Err(refusal) = outcome {
            self.counters.refused += 1;
            self.at_once.failure(connection, asked.id, &refusal);
        }
        Rest::Nothing
    }

    fn claim(&mut self, asked: Asked, claim: &wire::Claim<'_>) -> Result<(), Refusal> {
        let Asked { now, connection, session: id, id: request } = asked;
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
                self.when_kept.fields(connection, request, &granted(&turn, known.arrived, until, now));
            }
            return Ok(());
        }
        if let Some(failing) = &self.failing {
            return Err(failing.clone());
        }
        let most = self.config.limits.claims_per_session;
        if session.requests.len() >= most {
            return Err(Refusal::new(
                errno::EAGAIN,
                format!("this client has {most} claims, which is the limit"),
            ));
        }
        let uid = session.user.uid;
        let place = name("place", claim.place)?;
        if place.is_empty() {
            return Err(Refusal::new(errno::EINVAL, "expected the name of a place, found an empty one"));
        }
        let job = name("job", claim.party)?;
        if claim.label.len() > NAME_BYTES_MAX {
            return Err(Refusal::new(
                errno::EINVAL,
                format!("expected a label of at most {NAME_BYTES_MAX} bytes"),
            ));
        }
        let members = members(claim.members, self.config.limits.targets_per_claim)?;
        self.check_place(place, &members)?;
        let label = [claim.label, claim.party].into_iter().find(|name| !name.is_empty());
        let label = label
            .map_or_else(|| session.name.clone(), wire::client_name)
            .replace(char::is_control, "\u{fffd}");
        let cost = cost(&[place, &label, job], members.len());
        if let Some(why) = self.quota.refuses(uid, cost, self.table.config().claims_max) {
            return Err(Refusal::new(errno::EAGAIN, why));
        }
        let weight = match self.config.weights.is_empty() {
            true => claim.weight.max(1),
            false => self.config.weights.get(&uid).copied().unwrap_or(1),
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
        if let Some(&most) = self.config.turn_max.get(place) {
            self.table.limit_turns(at, most);
        }
        let new = match self.table.claim(now, wanted) {
            Ok(new) => new,
            Err(refused) => {
                self.leave_place(at);
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
    fn check_place(&self, name: &str, members: &[u32]) -> Result<(), Refusal> {
        if self.config.places.is_empty() {
            return Ok(());
        }
        let Some(place) = self.config.places.iter().find(|place| place.name == name) else {
            let names: Vec<_> = self.config.places.iter().take(16).map(|place| place.name.as_str()).collect();
            let text = format!("there is no place `{name}`: this coordinator has {}", names.join(", "));
            return Err(Refusal::new(errno::ENOENT, text));
        };
        match (place.targets, members.iter().max()) {
            (Some(targets), Some(&last)) if last >= targets => Err(Refusal::new(
                errno::ENOENT,
                format!("there is no target {last}: `{name}` has {targets}, from 0 on"),
            )),
            _ => Ok(()),
        }
    }

    fn release(&mut self, asked: Asked, token: Token, bytes: u64) -> Result<(), Refusal> {
        let Asked { now, connection, session: id, id: request } = asked;
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
        self.when_kept.done(connection, request);
        Ok(())
    }

    fn cancel(&mut self, asked: Asked, claim: u64) -> Result<(), Refusal> {
        let Asked { now, connection, session: id, id: request } = asked;
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
        self.when_kept.failure(connection, claim, &Refusal::new(errno::ECANCELED, "the claim was cancelled"));
        self.when_kept.done(connection, request);
        Ok(())
    }

    fn evict(&mut self, asked: Asked, token: Token) -> Result<(), Refusal> {
        let Asked { now, connection, session: id, id: request } = asked;
        let Some(known) = self.tokens.get(&token).and_then(|claim| self.claims.get_mut(claim)) else {
            return Err(Refusal::new(errno::ESTALE, format!("nobody holds a turn with token {}", token.0)));
        };
        let user = |id| self.sessions.get(&id).map(|session: &Session| session.user.uid);
        let (Some(caller), Some(holder)) = (user(id), user(known.session)) else { return Ok(()) };
        if ![0, self.config.own_uid, holder].contains(&caller) {
            let text = "a turn is taken away by its own user, the coordinator's, or root";
            return Err(Refusal::new(errno::EPERM, text));
        }
        known.ending = Some(Ending::Evicted);
        self.notices
            .push(format!("user {caller} takes the turn of `{}` away, token {}", known.label, token.0));
        self.table.evict(now, token).map_err(|refused| explained(&refused))?;
        self.when_kept.done(connection, request);
        Ok(())
    }
}

/// The targets of a claim.
fn members(bytes: &[u8], most: usize) -> Result<Vec<u32>, Refusal> {
    let (members, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() || members.len() > most {
        return Err(Refusal::new(errno::EINVAL, format!("expected at most {most} targets of 4 bytes each")));
    }
    let members: Vec<u32> = members.iter().map(|member| u32::from_le_bytes(*member)).collect();
    match members.iter().find(|member| **member >= TARGETS_MAX) {
        Some(member) => Err(Refusal::new(
            errno::EINVAL,
            format!("there is no target {member}: they are below {TARGETS_MAX}"),
        )),
        None => Ok(members),
    }
}

/// A name that people see and jobs agree on.
fn name<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a str, Refusal> {
    let name = core::str::from_utf8(bytes)
        .ok()
        .filter(|name| name.len() <= NAME_BYTES_MAX && !name.contains(char::is_control));
    name.ok_or_else(|| {
        let found = bytes[..bytes.len().min(40)].escape_ascii();
        let text = format!(
            "expected the name of a {what} as UTF-8 without control characters, of at most {NAME_BYTES_MAX} bytes, found `{found}`"
        );
        Refusal::new(errno::EINVAL, text)
    })
}

/// The errno and the text for a client.
fn explained(refused: &Refused) -> Refusal {
    let errno = match refused {
        Refused::NotHeld { .. } => errno::ESTALE,
        Refused::NotWaiting { .. } | Refused::Malformed => errno::EINVAL,
        Refused::Again { .. } => errno::EDEADLK,
        Refused::Full { .. } => errno::EAGAIN,
    };
    Refusal::new(errno, refused.to_string())
}
