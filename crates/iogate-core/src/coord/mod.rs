//! Turns: which application may do its bulk I/O on which targets, when.
//!
//! A [`Table`] is the lock table of a coordinator: [`Claim`]s come in, and each is granted a turn when its targets are free and
//! nobody before it is in the way. Source: A. B. Sreenivasa, *I/O Coordination for Co-Running Scientific Applications to Improve
//! Parallel I/O Performance*, 2012, section 3.2 (locking). Beyond it: leases and fencing tokens, several holders, orders other than
//! first come first served, and claims that survive a restart.
//!
//! | module | purpose |
//! |---|---|
//! | [`backoff`] | turns without a coordinator: probe, and back off while the storage is busy |
//! | [`claimant`] | a client of a coordinator: what it has asked, and until when its turn counts |
//! | [`config`] | the rules of a table, and their names |
//! | `journal` | what a coordinator must not forget, and how it is kept in files (feature `coordinator`) |
//! | `leader` | what a coordinator decides while it leads (feature `coordinator`) |
//! | [`stats`] | what a table counts |
//! | `table` | the lock table |

pub mod backoff;
pub mod claimant;
pub mod config;
#[cfg(feature = "coordinator")]
pub mod journal;
#[cfg(feature = "coordinator")]
pub mod leader;
pub mod stats;
mod table;

use alloc::vec::Vec;

pub use config::{CoordConfig, CoordConfigError, Order, Passing};
pub use stats::CoordStats;
pub use table::Table;

use crate::time::{Span, Time};

/// What clients of a coordinator ask for as the export.
pub const EXPORT: &str = "turns";

/// A file system (or whatever else has a queue of its own), by a number that the driver gives to its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PlaceId(pub u32);

/// A client of the coordinator: whoever opened a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SessionId(pub u64);

/// A claim, from its arrival until it is over. A table uses a number once; one that is restored does not know those of claims that are
/// over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ClaimId(pub u64);

/// A fencing token: each grant of a table has a larger one than those before, over restarts too. Storage that knows the largest
/// token it has seen can refuse a holder that does not know yet that its turn is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Token(pub u64);

/// The targets of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Targets {
    /// The file system.
    pub place: PlaceId,
    /// Its targets, ascending and each once; none: all of them.
    pub members: Vec<u32>,
}

impl Targets {
    /// A whole file system.
    pub fn all_of(place: PlaceId) -> Targets {
        Targets { place, members: Vec::new() }
    }

    /// Whether two claims can be in each other's way.
    pub fn overlaps(&self, other: &Targets) -> bool {
        self.place == other.place
            && (self.members.is_empty()
                || other.members.is_empty()
                || self.members.iter().any(|member| other.members.binary_search(member).is_ok()))
    }
}

/// What a client wants.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    /// Who.
    pub session: SessionId,
    /// The client's number for it, unlike those of its other claims: a claim that is sent again is the same claim.
    pub request: u64,
    /// On what.
    pub targets: Targets,
    /// Claims of the same party (the processes of one job) may hold the same targets together; 0: of none.
    pub party: u64,
    /// Bytes that it means to move; 0 is unknown.
    pub bytes: u64,
    /// Its share with [`Order::Weighted`]; 1 is usual.
    pub weight: u32,
    /// How far its turns lie apart, for [`Order::Sets`]; zero: the table goes by those it has seen of the party.
    pub period: Span,
}

/// How a grant came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Admission {
    /// Its targets were free.
    InTurn,
    /// It had waited [`CoordConfig::block_max`], and was let in beside those who hold its targets.
    Overdue,
    /// Its party holds the targets already.
    Joined,
}

/// A turn begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which claim.
    pub claim: ClaimId,
    /// Whose.
    pub session: SessionId,
    /// The client's number for it.
    pub request: u64,
    /// Its token.
    pub token: Token,
    /// How long it has waited.
    pub waited: Span,
    /// When it ends unless it is renewed.
    pub until: Time,
    /// Thousandths of the throughput that it may use, with [`Order::Sets`]; else 1000.
    pub share: u32,
    /// Why now.
    pub admission: Admission,
}

/// A turn was taken away, or a wait given up, because its client has not been heard of for a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which claim.
    pub claim: ClaimId,
    /// Whose.
    pub session: SessionId,
    /// The client's number for it.
    pub request: u64,
    /// Its token, if it held a turn.
    pub token: Option<Token>,
}

/// What a driver does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Tell the client.
    Granted(Grant),
    /// Tell the client, if it is there.
    Lost(Loss),
    /// Nothing until then.
    WaitUntil(Time),
    /// Nothing until something comes.
    Idle,
}

/// Why a message was refused. Only its sender hears of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The token is nobody's, or another client's.
    #[error(
        "token {} is not held by this client: it was released before, or its lease ended without being renewed", token.0
    )]
    NotHeld {
        /// What came.
        token: Token,
    },
    /// There is no such claim.
    #[error("this client has no claim {request} that waits")]
    NotWaiting {
        /// What came.
        request: u64,
    },
    /// The client holds, or waits for, one of these targets already, and would wait for itself.
    #[error(
        "this client has claimed one of these targets already (claim {request}): release that first, or give both the same party"
    )]
    Again {
        /// The claim that it has.
        request: u64,
    },
    /// As many claims as there may be.
    #[error("the coordinator has {max} claims, which is its limit: try again later, or raise `claims_max`")]
    Full {
        /// The limit.
        max: usize,
    },
    /// The targets are not ascending, or one is there twice.
    #[error("the targets of a claim must be ascending, and each there once")]
    Malformed,
}

/// Where a claim stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Standing {
    /// It waits.
    Waiting,
    /// It holds its targets.
    Held {
        /// Its token.
        token: Token,
        /// Since when.
        since: Time,
        /// When that ends unless it is renewed.
        until: Time,
        /// How it came in.
        admission: Admission,
    },
}

/// A claim as a table keeps it, as a journal stores it, and as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Entry {
    /// Its number.
    pub id: ClaimId,
    /// What was asked for.
    pub claim: Claim,
    /// When it came.
    pub arrived: Time,
    /// Where it stands.
    pub standing: Standing,
}

impl Entry {
    /// Its token, if it holds its targets.
    pub fn token(&self) -> Option<Token> {
        match self.standing {
            Standing::Held { token, .. } => Some(token),
            Standing::Waiting => None,
        }
    }
}

/// What a journal must know before the outside hears of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Change {
    /// A claim is new or stands elsewhere.
    Put(Entry),
    /// A claim is over.
    Gone(ClaimId),
}
