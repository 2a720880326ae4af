//! In which order waiting claims are served: the rank that each gets when it comes, by [`Order`].
//!
//! Some orders go by what a client has done before: its periods, its bytes, what it has used. That is remembered of a party, or of a
//! session where claims have none, and of each place by itself. It is not in the journal: after a restart all have used the same, and
//! nothing is known of periods and sizes until they are seen again.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::coord::{Claim, ClaimId, Order, PlaceId, SessionId};
use crate::time::{Span, Time};

/// Those without a claim that are remembered, of all places; those who came last.
const REMEMBERED: usize = 4096;

/// Where a waiting claim stands in the order: smaller is served first. It never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    /// What the order goes by.
    pub key: u64,
    /// Among equals, first come first served.
    pub id: ClaimId,
}

impl Rank {
    pub(super) const FIRST: Rank = Rank { key: 0, id: ClaimId(0) };
    pub(super) const LAST: Rank = Rank { key: u64::MAX, id: ClaimId(u64::MAX) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Party(u64),
    Session(SessionId),
}

impl Who {
    const FIRST: Who = Who::Party(0);
    const LAST: Who = Who::Session(SessionId(u64::MAX));
}

#[derive(Clone, Debug, Default)]
pub(super) struct History {
    known: BTreeMap<(PlaceId, Who), Past>,
    /// Those without a claim, by when they came.
    idle: BTreeSet<(Time, PlaceId, Who)>,
    /// Of each place where anybody is known: the largest account with which somebody was granted a turn.
    clocks: BTreeMap<PlaceId, u64>,
}

#[derive(Clone, Debug, Default)]
struct Past {
    /// Claims that wait or hold.
    claims: u32,
    held: u32,
    /// When the first of these claims came.
    came: Time,
    /// As far as known; else zero.
    period: Span,
    /// Bytes of the last turn that said so.
    bytes: u64,
    /// Nanoseconds held, over its weight.
    account: u64,
    /// Until when the account is kept; matters while it holds.
    kept: Time,
    weight: u32,
}

impl Past {
    fn settle(&mut self, now: Time) {
        if self.held > 0 {
            let used = now.since(self.kept).as_nanos() / u64::from(self.weight.max(1));
            self.account = self.account.saturating_add(used);
        }
        self.kept = now;
    }
}

fn who(claim: &Claim) -> (PlaceId, Who) {
    let who = if claim.party == 0 { Who::Session(claim.session) } else { Who::Party(claim.party) };
    (claim.targets.place, who)
}

impl History {
    /// A claim comes: fills in what it does not say and the order goes by, and returns its rank.
    pub(super) fn on_arrival(&mut self, now: Time, order: Order, claim: &mut Claim, id: ClaimId) -> Rank {
        if order == Order::Fcfs {
            return Rank { key: 0, id };
        }
        let key = who(claim);
        let clock = self.clocks.get(&key.0).copied().unwrap_or(0);
        let is_known = self.known.contains_key(&key);
        let past = self.known.entry(key).or_default();
        past.settle(now);
        if past.claims == 0 {
            self.idle.remove(&(past.came, key.0, key.1));
            past.account = past.account.max(clock);
            if is_known {
                let latest = now.since(past.came).as_nanos();
                let before = past.period.as_nanos();
                past.period = Span::from_nanos(if before == 0 { latest } else { before.midpoint(latest) });
            }
            past.came = now;
        }
        past.claims += 1;
        past.weight = claim.weight.max(1);
        if claim.period > Span::ZERO {
            past.period = claim.period;
        }
        match order {
            Order::Fcfs => Rank { key: 0, id },
            Order::Sets => {
                claim.period = past.period;
                Rank { key: 0, id }
            }
            Order::Shortest { ageing } => {
                if claim.bytes == 0 {
                    claim.bytes = past.bytes;
                }
                Rank { key: shortest(now, claim.bytes, ageing), id }
            }
            Order::Weighted => Rank { key: past.account, id },
        }
    }

    /// A claim is granted its turn.
    pub(super) fn begin(&mut self, now: Time, claim: &Claim, rank: Rank) {
        let key = who(claim);
        let Some(past) = self.known.get_mut(&key) else { return };
        past.settle(now);
        past.held += 1;
        let clock = self.clocks.entry(key.0).or_default();
        *clock = rank.key.max(*clock);
    }

    /// A claim is over, after it held its targets or while it waited. `bytes` were moved; 0 is unknown.
    pub(super) fn end(&mut self, now: Time, claim: &Claim, was_held: bool, bytes: u64) {
        let key = who(claim);
        let Some(past) = self.known.get_mut(&key) else { return };
        past.settle(now);
        past.claims -= 1;
        past.held -= u32::from(was_held);
        if bytes > 0 {
            past.bytes = bytes;
        }
        if past.claims == 0 {
            self.idle.insert((past.came, key.0, key.1));
        }
        if self.idle.len() > REMEMBERED
            && let Some((_, place, who)) = self.idle.pop_first()
        {
            self.known.remove(&(place, who));
            let every = (place, Who::FIRST)..=(place, Who::LAST);
            if self.known.range(every).next().is_none() {
                self.clocks.remove(&place);
            }
        }
    }
}

/// With ageing, a claim counts as if it had come later by the time in which its bytes age away: that gives the same order at any
/// time, so the key of a claim never changes.
fn shortest(arrived: Time, bytes: u64, ageing: u64) -> u64 {
    if ageing == 0 {
        return bytes;
    }
    let later = u128::from(bytes) * 1_000_000_000 / u128::from(ageing);
    arrived.as_nanos().saturating_add(u64::try_from(later).unwrap_or(u64::MAX))
}
