//! What a coordinator that leads knows: sessions, claims with their names, and what the journal has yet to keep.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use iogate_core::coord::{Admission, ClaimId, Entry, Grant, PlaceId, SessionId, Standing, Table, Token};
use iogate_core::{Span, Time};
use iogate_vfs::Caller;

use super::journal::{ClaimRecord, Loaded, Record, SessionRecord};
use super::outbox::Outbox;
use super::parties::Parties;
use super::probing::{Prober, Probing, Work};
use super::quota::{Quota, cost};
use super::status::{Counters, Ending, Finished};
use super::{CoordinatorConfig, Limits, Place};
use crate::greeting::Cut;

/// Learnt names of places that nobody has claims on, before they are forgotten.
const IDLE_PLACES_MAX: usize = 4096;
/// Tokens that a session has released and may release again, as it does not know that they are.
const RELEASED_KEPT: usize = 16;

/// What a coordinator that leads knows.
pub(super) struct Leading {
    pub(super) table: Table,
    pub(super) limits: Limits,
    /// The only ones there are, if any.
    pub(super) fixed: Vec<Place>,
    pub(super) places: Places,
    pub(super) parties: Parties,
    pub(super) quota: Quota,
    pub(super) turn_max: HashMap<String, Span>,
    pub(super) weights: HashMap<u32, u32>,
    pub(super) sessions: HashMap<SessionId, Session>,
    secrets: HashMap<[u8; 16], SessionId>,
    pub(super) claims: HashMap<ClaimId, Known>,
    pub(super) tokens: HashMap<Token, ClaimId>,
    last_session: u64,
    pub(super) last_token: u64,
    clock_offset: u64,
    /// What the journal does not know yet.
    pub(super) records: Vec<Record>,
    /// What may be said only when it does.
    pub(super) kept: Outbox,
    pub(super) grants: Vec<Grant>,
    pub(super) probers: HashMap<String, Prober>,
    pub(super) probing: HashMap<ClaimId, Probing>,
    /// Probes to be begun.
    pub(super) probes: Vec<(ClaimId, Work)>,
    /// What may be said whatever the journal does.
    pub(super) now: Outbox,
    /// Claims that came since the journal has last kept something.
    pub(super) fresh: Vec<ClaimId>,
    /// Why the journal keeps nothing.
    pub(super) failing: Option<(i32, String)>,
    /// Nothing is granted before.
    pub(super) grace_until: Option<Time>,
    pub(super) history: VecDeque<(Time, Finished)>,
    pub(super) counters: Counters,
}

/// A client.
pub(super) struct Session {
    secret: [u8; 16],
    pub(super) user: Caller,
    pub(super) name: String,
    pub(super) connection: Option<u64>,
    /// Since when it has none.
    lost: Time,
    /// Its claims by its own numbers.
    pub(super) requests: HashMap<u64, ClaimId>,
    pub(super) released: VecDeque<Token>,
    pub(super) is_journalled: bool,
}

/// What the table does not know of a claim.
pub(super) struct Known {
    pub(super) session: SessionId,
    pub(super) request: u64,
    pub(super) place: PlaceId,
    pub(super) party: u64,
    /// Whose it is, and what it costs of the quota.
    pub(super) uid: u32,
    pub(super) cost: u32,
    pub(super) label: Box<str>,
    pub(super) arrived: Time,
    pub(super) bytes: u64,
    pub(super) turn: Option<Turn>,
    pub(super) ending: Option<Ending>,
    pub(super) is_journalled: bool,
}

/// A turn that was granted.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) token: Token,
    pub(super) since: Time,
    pub(super) share: u32,
    pub(super) admission: Admission,
}

/// Names of places, and how many claims each has.
#[derive(Default)]
pub(super) struct Places {
    by_name: HashMap<Arc<str>, PlaceId>,
    by_id: HashMap<PlaceId, (Arc<str>, usize)>,
    last: u32,
    idle: usize,
}

impl Places {
    /// The number of a place, which gets one more claim.
    pub(super) fn enter(&mut self, name: &str) -> PlaceId {
        if let Some(&id) = self.by_name.get(name) {
            if let Some((_, claims)) = self.by_id.get_mut(&id) {
                self.idle -= usize::from(*claims == 0);
                *claims += 1;
            }
            return id;
        }
        self.last = self.last.wrapping_add(1);
        let (id, name) = (PlaceId(self.last), Arc::<str>::from(name));
        self.by_name.insert(Arc::clone(&name), id);
        self.by_id.insert(id, (name, 1));
        id
    }

    /// A place has one claim less.
    pub(super) fn leave(&mut self, id: PlaceId) {
        let Some((_, claims)) = self.by_id.get_mut(&id) else { return };
        *claims -= 1;
        self.idle += usize::from(*claims == 0);
        if self.idle > IDLE_PLACES_MAX {
            self.by_id.retain(|_, (_, claims)| *claims > 0);
            self.by_name.retain(|_, id| self.by_id.contains_key(id));
            self.idle = 0;
        }
    }

    fn find(&self, name: &str) -> Option<PlaceId> {
        self.by_name.get(name).copied()
    }

    /// What a place is called.
    pub(super) fn name(&self, id: PlaceId) -> &str {
        self.by_id.get(&id).map_or("", |(name, _)| name)
    }
}

impl Leading {
    /// Goes on with what a journal has.
    pub(super) fn new(config: &CoordinatorConfig, now: Time, clock_offset: u64, loaded: &Loaded) -> Leading {
        let moved = |ns: u64| {
            let moved =
                loaded.clock_offset.map_or(ns, |offset| ns.wrapping_sub(offset).wrapping_add(clock_offset));
            Time::from_nanos(moved).min(now)
        };
        let (mut places, mut parties, mut quota) = (Places::default(), Parties::default(), Quota::default());
        let mut sessions: HashMap<_, _> = loaded
            .sessions
            .iter()
            .map(|record| (SessionId(record.number), Session::restored(record, now)))
            .collect();
        let (mut claims, mut tokens, mut entries) = (HashMap::new(), HashMap::new(), Vec::new());
        for record in &loaded.claims {
            let Some(session) = sessions.get_mut(&SessionId(record.session)) else { continue };
            let uid = session.user.uid;
            let party = parties.enter(uid, &record.party_name());
            let cost = cost(&[&record.place, &record.label, &record.job], record.members.len());
            quota.take(uid, cost);
            let entry = record.entry(places.enter(&record.place), party, moved);
            session.requests.insert(record.request, entry.id);
            let turn = match entry.standing {
                Standing::Waiting => None,
                Standing::Held { token, since, admission, .. } => {
                    tokens.insert(token, entry.id);
                    Some(Turn { token, since, share: 1000, admission })
                }
            };
            let known = Known {
                session: entry.claim.session,
                request: record.request,
                place: entry.claim.targets.place,
                party,
                uid,
                cost,
                label: record.label.as_str().into(),
                arrived: entry.arrived,
                bytes: record.bytes,
                turn,
                ending: None,
                is_journalled: true,
            };
            claims.insert(entry.id, known);
            entries.push(entry);
        }
        let mut table = Table::restore(config.table.clone(), now, Token(loaded.token), entries);
        let grace_until = loaded.is_incomplete.then(|| now + config.table.lease);
        table.begin_at(grace_until.unwrap_or(now));
        for (name, &most) in &config.turn_max {
            if let Some(place) = places.find(name) {
                table.limit_turns(place, most);
            }
        }
        Leading {
            table,
            limits: config.limits.clone(),
            fixed: config.places.clone(),
            places,
            parties,
            quota,
            turn_max: config.turn_max.clone(),
            weights: config.weights.clone(),
            secrets: sessions.iter().map(|(&id, session)| (session.secret, id)).collect(),
            sessions,
            claims,
            tokens,
            last_session: loaded.number,
            last_token: loaded.token,
            clock_offset,
            records: Vec::new(),
            kept: Outbox::default(),
            grants: Vec::new(),
            probers: config.probers.clone(),
            probing: HashMap::new(),
            probes: Vec::new(),
            now: Outbox::default(),
            fresh: Vec::new(),
            failing: None,
            grace_until,
            history: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// All that a journal is to know.
    pub(super) fn all(&self) -> Vec<Record> {
        let sessions = self.sessions.iter().filter(|(_, session)| session.is_journalled);
        let mut claims: Vec<_> = self.table.entries().filter_map(|entry| self.record(entry)).collect();
        claims.sort_unstable_by_key(|record| record.claim);
        let loaded = Loaded {
            sessions: sessions.map(|(id, session)| session.record(*id)).collect(),
            claims,
            token: self.last_token,
            number: self.last_session,
            is_incomplete: self.grace_until.is_some(),
            clock_offset: None,
        };
        loaded.records(self.clock_offset)
    }

    pub(super) fn record(&self, entry: &Entry) -> Option<ClaimRecord> {
        let known = self.claims.get(&entry.id)?;
        let names = [self.places.name(known.place), &known.label, self.parties.name(known.party)];
        Some(ClaimRecord::new(entry, names))
    }

    /// The session that a client goes on with, or a new one; whether it was there before; its connection until now.
    pub(super) fn enter(
        &mut self,
        now: Time,
        connection: u64,
        secret: [u8; 16],
        user: Caller,
        name: &str,
    ) -> Result<(SessionId, [u8; 16], bool, Option<u64>), Cut> {
        if let Some(&id) = self.secrets.get(&secret)
            && let Some(session) = self.sessions.get_mut(&id)
        {
            if session.user != user {
                return Err((libc::EACCES, "the session is another user's".into()));
            }
            let before = session.connection.replace(connection);
            self.table.connected(now, id);
            return Ok((id, secret, true, before));
        }
        let all = 2 * self.limits.connections;
        if self.sessions.len() >= all {
            return Err((libc::EUSERS, format!("the coordinator has {all} sessions, which is the limit")));
        }
        let most = 2 * self.limits.connections_per_client;
        if self.sessions.len() >= most
            && self.sessions.values().filter(|session| session.user == user).count() >= most
        {
            let text = format!("user {} has {most} sessions, which is the limit: end some", user.uid);
            return Err((libc::EUSERS, text));
        }
        let mut secret = [0; 16];
        crate::server::random(&mut secret)
            .map_err(|error| (libc::EIO, format!("no random numbers: {error}")))?;
        self.last_session += 1;
        let id = SessionId(self.last_session);
        let session = Session {
            secret,
            user,
            name: name.into(),
            connection: Some(connection),
            lost: now,
            requests: HashMap::new(),
            released: VecDeque::new(),
            is_journalled: false,
        };
        self.sessions.insert(id, session);
        self.secrets.insert(secret, id);
        self.table.connected(now, id);
        Ok((id, secret, false, None))
    }

    /// A connection is gone; its session may come back.
    pub(super) fn leave(&mut self, now: Time, id: SessionId, connection: u64) {
        if let Some(session) =
            self.sessions.get_mut(&id).filter(|session| session.connection == Some(connection))
        {
            session.connection = None;
            session.lost = now;
            self.table.disconnected(now, id);
        }
    }

    /// Forgets sessions that have nothing, and to which nobody has come back for a lease.
    pub(super) fn forget_idle(&mut self, now: Time) {
        let lease = self.table.config().lease;
        let is_idle = |session: &Session| {
            session.connection.is_none() && session.requests.is_empty() && now.since(session.lost) > lease
        };
        let idle: Vec<_> =
            self.sessions.iter().filter(|(_, session)| is_idle(session)).map(|(&id, _)| id).collect();
        idle.into_iter().for_each(|id| self.forget(id));
    }

    /// Forgets a session.
    pub(super) fn forget(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            self.secrets.remove(&session.secret);
            if session.is_journalled {
                self.records.push(Record::SessionGone(id.0));
            }
        }
    }
}

impl Session {
    fn restored(record: &SessionRecord, now: Time) -> Session {
        Session {
            secret: record.secret,
            user: Caller::new(record.uid, record.gid),
            name: record.name.clone(),
            connection: None,
            lost: now,
            requests: HashMap::new(),
            released: VecDeque::new(),
            is_journalled: true,
        }
    }

    pub(super) fn record(&self, id: SessionId) -> SessionRecord {
        let Session { secret, user, ref name, .. } = *self;
        SessionRecord { number: id.0, secret, uid: user.uid, gid: user.gid, name: name.clone() }
    }

    /// Notes a token that the client may release again, as it may not have heard that it has.
    pub(super) fn note_released(&mut self, token: Token) {
        self.released.truncate(RELEASED_KEPT - 1);
        self.released.push_front(token);
    }
}
