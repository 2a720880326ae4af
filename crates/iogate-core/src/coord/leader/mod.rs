//! What a coordinator decides while it leads: sessions, claims with their names, what the journal is to keep, and what is said to whom.
//!
//! A [`Leader`] is driven in rounds. Connections are numbers that its driver gives. In a round the driver takes in what has come
//! ([`enter`](Leader::enter), [`handle`](Leader::handle), [`leave`](Leader::leave), [`probed`](Leader::probed)), has it
//! [`decide`](Leader::decide), has the journal keep what is [`unkept`](Leader::unkept), says whether that went well
//! ([`kept`](Leader::kept), [`not_kept`](Leader::not_kept)), and sends what it [`says`](Leader::say). Nothing that the
//! journal has not kept is ever said. The coordinator of `iogate-net` drives it on sockets, `iogate-lab` in a simulated
//! world.
//!
//! | module | purpose |
//! |---|---|
//! | `requests` | what clients ask for |
//! | `round` | what is decided, kept and said in a round |
//! | `gates` | what gates report that share a policy |
//! | `places` | the numbers that a table has for places |
//! | `parties` | which claims are of one job |
//! | `quota` | memory that all claims, and those of one user, may take |
//! | `probing` | turns that begin only when the file system is quiet |
//! | `outbox` | answers that wait to be sent |
//! | `status` | how it is, for people and programs |

mod gates;
mod outbox;
mod parties;
mod places;
mod probing;
mod quota;
mod requests;
mod round;
mod status;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

pub use gates::{ClassStatus, GatesStatus};
pub use outbox::Outbox;
pub use probing::Probed;
pub use requests::{Asked, Rest};
pub use status::{Counters, Ending, Finished, Holder, Rules, Status, Waiter};

use super::journal::{ClaimRecord, Loaded, Record, SessionRecord};
use super::{Admission, ClaimId, CoordConfig, Entry, Grant, PlaceId, SessionId, Standing, Table, Token};
use crate::global_policy::Terms;
use crate::hash::HashMap;
use crate::refusal::{Refusal, errno};
use crate::{Span, Time};
use gates::Gates;
use parties::Parties;
use places::Places;
use probing::Probing;
use quota::{Quota, cost};

/// Tokens that a session has released and may release again, as it does not know that they are.
const RELEASED_KEPT: usize = 16;

/// Most targets of a place.
pub const TARGETS_MAX: u32 = 1 << 20;

/// Settings of a [`Leader`].
#[derive(Clone, Debug, Default)]
pub struct LeaderConfig {
    /// Who is next.
    pub table: CoordConfig,
    /// The file systems that there are; none: clients' names for them are taken as they come.
    pub places: Vec<Place>,
    /// How long turns of a place may be, by its name, where [`CoordConfig::turn_max`] is not meant.
    pub turn_max: BTreeMap<String, Span>,
    /// Weights of users, whatever their clients say; if there are any, those of others are 1.
    pub weights: BTreeMap<u32, u32>,
    /// The places where a turn begins only when a probe has found the file system quiet.
    pub probed: BTreeSet<String>,
    /// What it may spend.
    pub limits: Limits,
    /// The user who may take turns away, besides root and their own users; and whose gates share the policy, besides root's.
    pub own_uid: u32,
    /// The policy that gates share, if there is one.
    pub terms: Option<Terms>,
}

/// A file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// What all clients call it.
    pub name: String,
    /// How many targets it has: those of claims are smaller. `None`: up to [`TARGETS_MAX`].
    pub targets: Option<u32>,
}

/// What a leader may spend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Sessions altogether.
    pub sessions: usize,
    /// Sessions of one user.
    pub sessions_per_user: usize,
    /// Claims of a session, waiting and held.
    pub claims_per_session: usize,
    /// Targets of a claim.
    pub targets_per_claim: usize,
    /// Turns that are over and still in the status.
    pub history: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            sessions: 65_536,
            sessions_per_user: 32_768,
            claims_per_session: 1024,
            targets_per_claim: 4096,
            history: 256,
        }
    }
}

/// Who a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// A client that comes in.
#[derive(Clone, Copy, Debug)]
pub struct Entering<'a> {
    /// The number of its connection.
    pub connection: u64,
    /// What it shows of the session that it goes on with, if it has one.
    pub shown: [u8; 16],
    /// Random: what it is to show next time if its session is a new one.
    pub fresh: [u8; 16],
    /// Who it is.
    pub user: User,
    /// What it calls itself.
    pub name: &'a str,
}

/// A client that is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Its session.
    pub session: SessionId,
    /// What it is to show when it goes on with it.
    pub secret: [u8; 16],
    /// Whether the session was there before.
    pub is_resumed: bool,
    /// The connection that the session has had until now: it is to be closed.
    pub before: Option<u64>,
}

/// What a coordinator that leads decides.
pub struct Leader {
    table: Table,
    config: LeaderConfig,
    places: Places,
    parties: Parties,
    quota: Quota,
    sessions: HashMap<SessionId, Session>,
    secrets: BTreeMap<[u8; 16], SessionId>,
    claims: HashMap<ClaimId, Known>,
    tokens: HashMap<Token, ClaimId>,
    last_session: u64,
    last_token: u64,
    clock_offset: u64,
    /// What the journal does not know yet.
    records: Vec<Record>,
    /// Answers that wait until the journal has what they say.
    when_kept: Outbox,
    grants: Vec<Grant>,
    probing: BTreeMap<ClaimId, Probing>,
    /// Probes to be begun.
    probes: Vec<ClaimId>,
    /// What may be said whatever the journal does.
    at_once: Outbox,
    /// Claims that came since the journal has last kept something.
    fresh: Vec<ClaimId>,
    /// Why the journal keeps nothing.
    failing: Option<Refusal>,
    /// Nothing is granted before.
    grace_until: Option<Time>,
    history: VecDeque<(Time, Finished)>,
    counters: Counters,
    /// What people should know.
    notices: Vec<String>,
    gates: Option<Gates>,
}

/// A client.
struct Session {
    secret: [u8; 16],
    user: User,
    name: String,
    connection: Option<u64>,
    /// Since when it has none.
    lost: Time,
    /// Its claims by its own numbers.
    requests: BTreeMap<u64, ClaimId>,
    released: VecDeque<Token>,
    is_journalled: bool,
}

/// What the table does not know of a claim.
struct Known {
    session: SessionId,
    request: u64,
    place: PlaceId,
    party: u64,
    /// Whose it is, and what it costs of the quota.
    uid: u32,
    cost: u32,
    label: Box<str>,
    arrived: Time,
    bytes: u64,
    turn: Option<Turn>,
    ending: Option<Ending>,
    is_journalled: bool,
}

/// A turn that was granted.
#[derive(Clone, Copy)]
struct Turn {
    token: Token,
    since: Time,
    share: u32,
    admission: Admission,
}

impl Leader {
    /// Goes on with what a journal has. `clock_offset` is what the clock of `now` adds to the monotonic one, in
    /// nanoseconds. The journal is to begin with [`all`](Leader::all) before anything is said.
    pub fn new(config: LeaderConfig, now: Time, clock_offset: u64, loaded: &Loaded) -> Leader {
        let moved = |ns: u64| {
            let moved =
                loaded.clock_offset.map_or(ns, |offset| ns.wrapping_sub(offset).wrapping_add(clock_offset));
            Time::from_nanos(moved).min(now)
        };
        let (mut places, mut parties, mut quota) = (Places::default(), Parties::default(), Quota::default());
        let mut sessions: HashMap<SessionId, Session> = loaded
            .sessions
            .iter()
            .map(|record| (SessionId(record.number), Session::restored(record, now)))
            .collect();
        let (mut claims, mut tokens, mut entries) = (HashMap::default(), HashMap::default(), Vec::new());
        // Where the journal may lack what came last, a turn that it has may be over, and its targets another's since,
        // who has a larger token. Nobody can tell: its holder is told that it is lost, and nothing is granted before
        // all that may be held have ended by themselves.
        let is_certain = |record: &&ClaimRecord| !loaded.is_incomplete || record.held.is_none();
        for record in loaded.claims.iter().filter(is_certain) {
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
        Leader {
            gates: config.terms.clone().map(|terms| Gates::new(terms, now)),
            table,
            config,
            places,
            parties,
            quota,
            secrets: sessions.iter().map(|(&id, session)| (session.secret, id)).collect(),
            sessions,
            claims,
            tokens,
            last_session: loaded.number,
            last_token: loaded.token,
            clock_offset,
            records: Vec::new(),
            when_kept: Outbox::default(),
            grants: Vec::new(),
            probing: BTreeMap::new(),
            probes: Vec::new(),
            at_once: Outbox::default(),
            fresh: Vec::new(),
            failing: None,
            grace_until,
            history: VecDeque::new(),
            counters: Counters::default(),
            notices: Vec::new(),
        }
    }

    /// All that a journal is to know.
    pub fn all(&self) -> Vec<Record> {
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

    fn record(&self, entry: &Entry) -> Option<ClaimRecord> {
        let known = self.claims.get(&entry.id)?;
        let names = [self.places.name(known.place), &known.label, self.parties.name(known.party)];
        Some(ClaimRecord::new(entry, names))
    }

    /// Lets a client in: with the session that it shows, or with a new one.
    ///
    /// # Errors
    /// `EACCES` if the session is another user's, `EUSERS` if there are as many as there may be.
    pub fn enter(&mut self, now: Time, client: &Entering<'_>) -> Result<Entered, Refusal> {
        let Entering { connection, shown, fresh, user, name } = *client;
        if let Some(&id) = self.secrets.get(&shown)
            && let Some(session) = self.sessions.get_mut(&id)
        {
            if session.user != user {
                return Err(Refusal::new(errno::EACCES, "the session is another user's"));
            }
            let before = session.connection.replace(connection);
            self.table.connected(now, id);
            return Ok(Entered { session: id, secret: shown, is_resumed: true, before });
        }
        let all = self.config.limits.sessions;
        if self.sessions.len() >= all {
            let text = format!("the coordinator has {all} sessions, which is the limit");
            return Err(Refusal::new(errno::EUSERS, text));
        }
        let most = self.config.limits.sessions_per_user;
        if self.sessions.len() >= most
            && self.sessions.values().filter(|session| session.user == user).count() >= most
        {
            let text = format!("user {} has {most} sessions, which is the limit: end some", user.uid);
            return Err(Refusal::new(errno::EUSERS, text));
        }
        self.last_session += 1;
        let id = SessionId(self.last_session);
        let session = Session {
            secret: fresh,
            user,
            name: name.into(),
            connection: Some(connection),
            lost: now,
            requests: BTreeMap::new(),
            released: VecDeque::new(),
            is_journalled: false,
        };
        self.sessions.insert(id, session);
        self.secrets.insert(fresh, id);
        self.table.connected(now, id);
        Ok(Entered { session: id, secret: fresh, is_resumed: false, before: None })
    }

    /// A connection is gone; its session may come back.
    pub fn leave(&mut self, now: Time, id: SessionId, connection: u64) {
        if let Some(session) =
            self.sessions.get_mut(&id).filter(|session| session.connection == Some(connection))
        {
            session.connection = None;
            session.lost = now;
            self.table.disconnected(now, id);
        }
    }

    /// Its settings.
    pub fn config(&self) -> &LeaderConfig {
        &self.config
    }

    /// Why the journal keeps nothing, if it does not.
    pub fn failing(&self) -> Option<&Refusal> {
        self.failing.as_ref()
    }

    /// What people should know: lines for a log.
    pub fn notices(&mut self) -> Vec<String> {
        core::mem::take(&mut self.notices)
    }

    /// What may be said whatever the journal does, so that a driver adds its own answers.
    pub fn at_once(&mut self) -> &mut Outbox {
        &mut self.at_once
    }

    /// Bytes of answers for a connection: those that may be said at once, and those that wait for the journal.
    pub fn owed(&self, connection: u64) -> [usize; 2] {
        [self.at_once.owed(connection), self.when_kept.owed(connection)]
    }

    /// Bytes of all answers that may be said at once.
    pub fn ready_bytes(&self) -> usize {
        self.at_once.bytes()
    }

    /// Forgets sessions that have nothing, and to which nobody has come back for a lease.
    pub fn forget_idle(&mut self, now: Time) {
        let lease = self.table.config().lease;
        let is_idle = |session: &Session| {
            session.connection.is_none() && session.requests.is_empty() && now.since(session.lost) > lease
        };
        let idle: Vec<_> =
            self.sessions.iter().filter(|(_, session)| is_idle(session)).map(|(&id, _)| id).collect();
        idle.into_iter().for_each(|id| self.forget(id));
    }

    /// A place has one claim less.
    fn leave_place(&mut self, id: PlaceId) {
        for forgotten in self.places.leave(id) {
            self.table.forget_limit(forgotten);
        }
    }

    /// Forgets a session.
    fn forget(&mut self, id: SessionId) {
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
            user: User { uid: record.uid, gid: record.gid },
            name: record.name.clone(),
            connection: None,
            lost: now,
            requests: BTreeMap::new(),
            released: VecDeque::new(),
            is_journalled: true,
        }
    }

    fn record(&self, id: SessionId) -> SessionRecord {
        let Session { secret, user, ref name, .. } = *self;
        SessionRecord { number: id.0, secret, uid: user.uid, gid: user.gid, name: name.clone() }
    }

    /// Notes a token that the client may release again, as it may not have heard that it has.
    fn note_released(&mut self, token: Token) {
        self.released.truncate(RELEASED_KEPT - 1);
        self.released.push_front(token);
    }
}
