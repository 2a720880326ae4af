//! What a journal consists of.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Loaded;
use crate::coord::{Admission, Claim, ClaimId, Entry, PlaceId, SessionId, Standing, Targets, Token};
use crate::{Span, Time};

/// The version of records.
pub const VERSION: u32 = 1;

/// One thing that is to be known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// A coordinator goes on from here.
    Begin {
        /// Of these records.
        version: u32,
        /// No larger token has been given before.
        token: u64,
        /// No larger claim or session number has been given before.
        number: u64,
        /// What its clock adds to the monotonic clock, in nanoseconds.
        clock_offset: u64,
        /// Turns may have been given that are not known here.
        #[serde(default, skip_serializing_if = "core::ops::Not::not")]
        is_incomplete: bool,
    },
    /// A token was given; what has it need not be known any more.
    TokenGiven(u64),
    /// A session has its first claim.
    Session(SessionRecord),
    /// A session is forgotten.
    SessionGone(u64),
    /// A claim is new, or stands elsewhere.
    Claim(ClaimRecord),
    /// A claim is over.
    Gone(u64),
}

/// A client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Its number.
    pub number: u64,
    /// What it shows to go on.
    pub secret: [u8; 16],
    /// The user that it was taken for.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// What it calls itself.
    pub name: String,
}

/// A claim. Times are in nanoseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimRecord {
    /// Its number.
    pub claim: u64,
    /// Whose.
    pub session: u64,
    /// The client's number for it.
    pub request: u64,
    /// The file system.
    pub place: String,
    /// Its targets; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<u32>,
    /// The job, as the coordinator that wrote this has numbered it; 0: none.
    pub party: u64,
    /// Its name; empty with a party: an earlier release wrote this, and only the number is known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub job: String,
    /// Bytes that it means to move.
    pub bytes: u64,
    /// Its share.
    pub weight: u32,
    /// How far its turns lie apart, in nanoseconds.
    pub period: u64,
    /// What people call the job.
    pub label: String,
    /// When it came.
    pub arrived: u64,
    /// Its turn, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldRecord>,
}

/// A turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldRecord {
    /// Its token.
    pub token: u64,
    /// When it began.
    pub since: u64,
    /// How it came about, as in `Granted`.
    pub admission: u8,
}

/// An admission's number on the wire.
pub fn admission_number(admission: Admission) -> u8 {
    match admission {
        Admission::InTurn => 0,
        Admission::Overdue => 1,
        Admission::Joined => 2,
    }
}

impl ClaimRecord {
    /// A claim as a table has it, with the names that the table does not know: of the place, for people, and of the job.
    pub fn new(entry: &Entry, [place, label, job]: [&str; 3]) -> ClaimRecord {
        let Entry { id, claim, arrived, standing } = entry;
        let held = match *standing {
            Standing::Waiting => None,
            Standing::Held { token, since, admission, .. } => Some(HeldRecord {
                token: token.0,
                since: since.as_nanos(),
                admission: admission_number(admission),
            }),
        };
        ClaimRecord {
            claim: id.0,
            session: claim.session.0,
            request: claim.request,
            place: place.into(),
            members: claim.targets.members.clone(),
            party: claim.party,
            job: job.into(),
            bytes: claim.bytes,
            weight: claim.weight,
            period: claim.period.as_nanos(),
            label: label.into(),
            arrived: arrived.as_nanos(),
            held,
        }
    }

    /// What the job is called, or a name that stands for its number; empty: none.
    pub fn party_name(&self) -> String {
        match (self.party, self.job.is_empty()) {
            (0, true) => String::new(),
            (number, true) => format!("\0{number}"),
            (_, false) => self.job.clone(),
        }
    }

    /// The claim for a table, with the numbers that it has now; `time` moves times to the table's clock.
    pub fn entry(&self, place: PlaceId, party: u64, time: impl Fn(u64) -> Time) -> Entry {
        let claim = Claim {
            session: SessionId(self.session),
            request: self.request,
            targets: Targets { place, members: self.members.clone() },
            party,
            bytes: self.bytes,
            weight: self.weight,
            period: Span::from_nanos(self.period),
        };
        let standing = self.held.map_or(Standing::Waiting, |held| Standing::Held {
            token: Token(held.token),
            since: time(held.since),
            until: time(held.since),
            admission: match held.admission {
                1 => Admission::Overdue,
                2 => Admission::Joined,
                _ => Admission::InTurn,
            },
        });
        Entry { id: ClaimId(self.claim), claim, arrived: time(self.arrived), standing }
    }
}

/// What records add up to.
#[derive(Debug, Default)]
pub struct Sum {
    has_begun: bool,
    sessions: BTreeMap<u64, SessionRecord>,
    claims: BTreeMap<u64, ClaimRecord>,
    token: u64,
    number: u64,
    clock_offset: u64,
    is_incomplete: bool,
}

impl Sum {
    /// Whether a record has said where a coordinator goes on from.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Takes in the next record.
    ///
    /// # Errors
    /// The version that it says its records have, if that is not [`VERSION`].
    pub fn add(&mut self, record: Record) -> Result<(), u32> {
        match record {
            Record::Begin { version, .. } if version != VERSION => return Err(version),
            Record::Begin { version: _, token, number, clock_offset, is_incomplete } => {
                self.has_begun = true;
                self.token = self.token.max(token);
                self.number = self.number.max(number);
                self.clock_offset = clock_offset;
                self.is_incomplete = is_incomplete;
            }
            Record::TokenGiven(token) => self.token = self.token.max(token),
            Record::Session(session) => {
                self.number = self.number.max(session.number);
                self.sessions.insert(session.number, session);
            }
            Record::SessionGone(number) => {
                self.sessions.remove(&number);
            }
            Record::Claim(claim) => {
                self.number = self.number.max(claim.claim);
                self.token = self.token.max(claim.held.map_or(0, |held| held.token));
                self.claims.insert(claim.claim, claim);
            }
            Record::Gone(claim) => {
                self.claims.remove(&claim);
            }
        }
        Ok(())
    }

    /// What they add up to; `is_same_boot`: whether times on the monotonic clock mean something now.
    pub fn finish(self, is_same_boot: bool) -> Loaded {
        Loaded {
            sessions: self.sessions.into_values().collect(),
            claims: self.claims.into_values().collect(),
            token: self.token,
            number: self.number,
            is_incomplete: self.is_incomplete,
            clock_offset: is_same_boot.then_some(self.clock_offset),
        }
    }
}

impl Loaded {
    /// As records.
    pub fn records(&self, clock_offset: u64) -> Vec<Record> {
        let begin = Record::Begin {
            version: VERSION,
            token: self.token,
            number: self.number,
            clock_offset,
            is_incomplete: self.is_incomplete,
        };
        let sessions = self.sessions.iter().cloned().map(Record::Session);
        let claims = self.claims.iter().cloned().map(Record::Claim);
        core::iter::once(begin).chain(sessions).chain(claims).collect()
    }
}
