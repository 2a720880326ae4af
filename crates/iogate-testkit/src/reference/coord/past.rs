//! What is remembered of those who claim: a list, and nobody is forgotten.
//!
//! | rule | reading |
//! |---|---|
//! | who | of each place: the party, or the session of a claim without one |
//! | active | from a claim that comes while it has none until its last claim is over |
//! | account | time in which it holds anything, over the weight of the claim that came last, rounded down at each thing that happens to it; when it becomes active, no less than the largest account that was granted a turn at the place |
//! | period | as the last claim says that says so; else the mean of what was known and the time between the last two that it became active; a claim that does not say takes it |
//! | bytes | of the last release that said so; a claim that does not say takes them |

use iogate_core::coord::{Claim, Order, PlaceId};
use iogate_core::{Span, Time};

#[derive(Default)]
pub(super) struct Pasts {
    pasts: Vec<Past>,
    clocks: Vec<(PlaceId, u64)>,
}

struct Past {
    /// The place, whether it is a party, and which or what session.
    who: (PlaceId, bool, u64),
    claims: u32,
    held: u32,
    active_since: Time,
    period: u64,
    bytes: u64,
    account: u64,
    settled: Time,
    weight: u64,
}

fn who(claim: &Claim) -> (PlaceId, bool, u64) {
    let number = if claim.party == 0 { claim.session.0 } else { claim.party };
    (claim.targets.place, claim.party != 0, number)
}

impl Pasts {
    /// Returns what the order goes by.
    pub(super) fn on_arrival(&mut self, now: Time, order: Order, claim: &mut Claim) -> u64 {
        let clock = self.clock(claim.targets.place);
        let is_new = !self.pasts.iter().any(|past| past.who == who(claim));
        if is_new {
            self.pasts.push(Past {
                who: who(claim),
                claims: 0,
                held: 0,
                active_since: now,
                period: 0,
                bytes: 0,
                account: 0,
                settled: now,
                weight: 1,
            });
        }
        let past = self.settle(now, claim);
        if past.claims == 0 {
            past.account = past.account.max(clock);
            let latest = now.since(past.active_since).as_nanos();
            match (is_new, past.period) {
                (true, _) => {}
                (false, 0) => past.period = latest,
                (false, known) => past.period = known.midpoint(latest),
            }
            past.active_since = now;
        }
        past.claims += 1;
        past.weight = u64::from(claim.weight).max(1);
        if claim.period != Span::ZERO {
            past.period = claim.period.as_nanos();
        }
        match order {
            Order::Fcfs => 0,
            Order::Weighted => past.account,
            Order::Sets => {
                claim.period = Span::from_nanos(past.period);
                0
            }
            Order::Shortest { ageing } => {
                claim.bytes = if claim.bytes == 0 { past.bytes } else { claim.bytes };
                match ageing {
                    0 => claim.bytes,
                    _ => {
                        now.as_nanos() + (u128::from(claim.bytes) * 1_000_000_000 / u128::from(ageing)) as u64
                    }
                }
            }
        }
    }

    pub(super) fn begin(&mut self, now: Time, claim: &Claim, key: u64) {
        self.settle(now, claim).held += 1;
        let clock = self.clock(claim.targets.place).max(key);
        self.clocks.retain(|(place, _)| *place != claim.targets.place);
        self.clocks.push((claim.targets.place, clock));
    }

    pub(super) fn end(&mut self, now: Time, claim: &Claim, was_held: bool, bytes: u64) {
        let past = self.settle(now, claim);
        past.claims -= 1;
        past.held -= u32::from(was_held);
        past.bytes = if bytes == 0 { past.bytes } else { bytes };
    }

    fn clock(&self, place: PlaceId) -> u64 {
        self.clocks.iter().find(|(its, _)| *its == place).map_or(0, |(_, clock)| *clock)
    }

    fn settle(&mut self, now: Time, claim: &Claim) -> &mut Past {
        let past = self.pasts.iter_mut().find(|past| past.who == who(claim)).expect("it came before");
        if past.held > 0 {
            past.account += now.since(past.settled).as_nanos() / past.weight;
        }
        past.settled = now;
        past
    }
}
