//! How a coordinator is, for people and programs.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::gates::{Gates, GatesStatus};
use super::{Leader, Session};
use crate::coord::{Admission, CoordConfig, Entry, Standing};
use crate::wire::PAYLOAD_BYTES_MAX;
use crate::{Span, Time};

/// About how many bytes a status has for those who hold, and as many for those who wait; then it names no more of them.
const NAMED_BYTES_MAX: usize = 2 << 20;

/// How a coordinator is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Whether it leads; if not, nothing below `journal` is filled in.
    pub leads: bool,
    /// Where the one that leads is, if this one knows.
    pub leader: Option<String>,
    /// How long it has been running, in ms.
    pub up_ms: u64,
    /// Where it keeps what it must not forget.
    pub journal: String,
    /// Why that does not work, if it does not: nothing is granted then.
    pub journal_error: Option<String>,
    /// How long nothing is granted yet because turns may be held that it does not know, in ms.
    pub grace_ms: u64,
    /// The rules.
    pub rules: Rules,
    /// What was counted since it leads.
    pub counters: Counters,
    /// Connections.
    pub connections: usize,
    /// Sessions, those that wait for their client included.
    pub sessions: usize,
    /// Who holds what, by token; only the first ones if they are very many.
    pub holders: Vec<Holder>,
    /// How many hold.
    #[serde(default)]
    pub held: usize,
    /// Who waits, in the order in which they would be served; only the first ones if they are very many.
    pub waiters: Vec<Waiter>,
    /// How many wait.
    pub waiting: usize,
    /// Turns that are over, the last one first.
    pub finished: VecDeque<Finished>,
    /// How the policy is used that gates share, if there is one.
    #[serde(default)]
    pub gates: Option<GatesStatus>,
}

/// The rules of a table, in words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// `fcfs`, `shortest`, `weighted`, `sets`.
    pub order: String,
    /// `preserve`, `relaxed`.
    pub passing: String,
    /// With `relaxed`: how long one waits at most, in ms.
    pub block_max_ms: u64,
    /// Parties that may hold a target at a time.
    pub slots: u32,
    /// How long a turn counts without being renewed, in ms.
    pub lease_ms: u64,
    /// How long a party that holds targets takes in claims of its own, in ms.
    pub join_ms: u64,
    /// Most claims.
    pub claims_max: usize,
    /// How long a turn may be, in ms; 0: any time.
    #[serde(default)]
    pub turn_max_ms: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Claims that came; one that is sent again is the same.
    pub claims: u64,
    /// Turns that were granted.
    pub granted: u64,
    /// Of these, beside others because the claim had waited long enough.
    pub overdue: u64,
    /// Of these, beside claims of the same party.
    pub joined: u64,
    /// Turns that their holders ended.
    pub released: u64,
    /// Turns and waits that ended because nothing was heard of their client.
    pub lost: u64,
    /// Waits that were given up.
    pub cancelled: u64,
    /// Turns that were taken away.
    pub evicted: u64,
    /// Messages that were refused.
    pub refused: u64,
    /// Bytes that were moved in turns, as far as holders have said.
    pub bytes: u64,
    /// Turns before which the file system was found quiet.
    #[serde(default)]
    pub probed_quiet: u64,
    /// Turns that began although it was not, or could not be probed.
    #[serde(default)]
    pub probed_busy: u64,
    /// Times that the journal was written.
    pub appends: u64,
    /// Connections that were cut because their clients broke a rule.
    pub cut: u64,
}

/// Who holds a turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its token.
    pub token: u64,
    /// The job, as people call it.
    pub label: String,
    /// What the client calls itself.
    pub client: String,
    /// The user.
    pub uid: u32,
    /// The file system.
    pub place: String,
    /// Its targets; none: all.
    pub targets: Vec<u32>,
    /// How long it had waited, in ms.
    pub waited_ms: u64,
    /// For how long it has held, in ms.
    pub held_ms: u64,
    /// How long the turn counts unless it is renewed, in ms.
    pub lease_left_ms: u64,
    /// `in turn`, `overdue`, `joined`, or `probing` while the file system is not quiet yet.
    pub admission: String,
    /// Whether its client is connected.
    pub is_connected: bool,
}

/// Who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiter {
    /// From 1.
    pub position: usize,
    /// The job, as people call it.
    pub label: String,
    /// What the client calls itself.
    pub client: String,
    /// The user.
    pub uid: u32,
    /// The file system.
    pub place: String,
    /// Its targets; none: all.
    pub targets: Vec<u32>,
    /// For how long, in ms.
    pub waited_ms: u64,
    /// Bytes that it means to move; 0 is unknown.
    pub bytes: u64,
    /// Whether its client is connected.
    pub is_connected: bool,
}

/// A turn that is over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Its token.
    pub token: u64,
    /// The job, as people call it.
    pub label: String,
    /// The file system.
    pub place: String,
    /// How long it had waited, in ms.
    pub waited_ms: u64,
    /// For how long it was held, in ms.
    pub held_ms: u64,
    /// Bytes that were moved in it, as far as its holder has said; else what it meant to.
    pub bytes: u64,
    /// How it ended.
    pub ending: Ending,
    /// How long ago, in ms.
    pub ago_ms: u64,
}

/// How a turn or a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Its holder released it.
    Released,
    /// Nothing was heard of its client for a lease.
    Lost,
    /// It was as long as a turn may be.
    Overlong,
    /// It was given up before its turn.
    Cancelled,
    /// Somebody took it away.
    Evicted,
    /// Its client said that it ends.
    Left,
}

impl Ending {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Released => "released",
            Ending::Lost => "lost",
            Ending::Overlong => "too long",
            Ending::Cancelled => "cancelled",
            Ending::Evicted => "evicted",
            Ending::Left => "left",
        }
    }
}

impl Rules {
    /// Of a table with these settings.
    pub fn of(config: &CoordConfig) -> Rules {
        Rules {
            order: config.order.name().into(),
            passing: config.passing.name().into(),
            block_max_ms: ms(config.block_max),
            slots: config.slots,
            lease_ms: ms(config.lease),
            join_ms: ms(config.join),
            claims_max: config.claims_max,
            turn_max_ms: ms(config.turn_max),
        }
    }
}

impl Status {
    /// As JSON, without those who wait if they would not fit a message.
    pub fn to_json(&self) -> Vec<u8> {
        let json = serde_json::to_vec(self).unwrap_or_default();
        if json.len() <= PAYLOAD_BYTES_MAX as usize {
            return json;
        }
        let short = Status { waiters: Vec::new(), holders: Vec::new(), ..self.clone() };
        serde_json::to_vec(&short).unwrap_or_default()
    }
}

fn ms(span: Span) -> u64 {
    span.as_nanos() / 1_000_000
}

impl Leader {
    /// Fills in what it knows: all but where the coordinator is, how long it runs, and its connections.
    pub fn describe(&self, now: Time, status: &mut Status) {
        status.journal_error = self.failing.as_ref().map(|refusal| refusal.text.clone());
        status.grace_ms = self.grace_until.map_or(0, |until| ms(until.since(now)));
        status.counters = self.counters;
        status.sessions = self.sessions.len();
        status.gates = self.gates.as_ref().map(Gates::status);
        let (mut named, mut waiters_named) = (0, 0);
        for entry in self.table.entries() {
            let (Some(known), Some(session)) =
                (self.claims.get(&entry.id), self.sessions.get(&entry.claim.session))
            else {
                continue;
            };
            let place = self.places.name(known.place);
            // Numbers have up to ten digits; keys and the other numbers a few hundred bytes.
            let bytes = 300
                + 11 * entry.claim.targets.members.len()
                + 2 * (place.len() + known.label.len() + session.name.len());
            match entry.standing {
                Standing::Held { .. } => {
                    status.held += 1;
                    named += bytes;
                    if named > NAMED_BYTES_MAX {
                        continue;
                    }
                    let mut holder = holder(now, entry, &known.label, place, session);
                    if self.probing.contains_key(&entry.id) {
                        holder.admission = "probing".into();
                    }
                    status.holders.push(holder);
                }
                Standing::Waiting => {
                    status.waiting += 1;
                    waiters_named += bytes;
                    if waiters_named <= NAMED_BYTES_MAX {
                        let position = status.waiting;
                        status.waiters.push(waiter(now, position, entry, &known.label, place, session));
                    }
                }
            }
        }
        let finished = self
            .history
            .iter()
            .map(|(at, finished)| Finished { ago_ms: ms(now.since(*at)), ..finished.clone() });
        status.finished = finished.collect();
    }
}

fn holder(now: Time, entry: &Entry, label: &str, place: &str, session: &Session) -> Holder {
    let (token, since, until, admission) = match entry.standing {
        Standing::Held { token, since, until, admission } => (token.0, since, until, admission),
        Standing::Waiting => (0, now, now, Admission::InTurn),
    };
    let admission = match admission {
        Admission::InTurn => "in turn",
        Admission::Overdue => "overdue",
        Admission::Joined => "joined",
    };
    Holder {
        token,
        label: label.into(),
        client: session.name.clone(),
        uid: session.user.uid,
        place: place.into(),
        targets: entry.claim.targets.members.clone(),
        waited_ms: ms(since.since(entry.arrived)),
        held_ms: ms(now.since(since)),
        lease_left_ms: ms(until.since(now)),
        admission: admission.into(),
        is_connected: session.connection.is_some(),
    }
}

fn waiter(now: Time, position: usize, entry: &Entry, label: &str, place: &str, session: &Session) -> Waiter {
    Waiter {
        position,
        label: label.into(),
        client: session.name.clone(),
        uid: session.user.uid,
        place: place.into(),
        targets: entry.claim.targets.members.clone(),
        waited_ms: ms(now.since(entry.arrived)),
        bytes: entry.claim.bytes,
        is_connected: session.connection.is_some(),
    }
}
