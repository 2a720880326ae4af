//! What one class has at all gates.

use alloc::vec::Vec;

use super::allotter::GateId;
use super::division::PoolId;
use super::fill::{Want, level};
use crate::policy::Leaf;
use crate::time::{Span, Time};

/// One class at one gate.
#[derive(Clone, Copy, Debug)]
struct Place {
    gate: GateId,
    demand: u64,
    used: u64,
    /// What the gate says that it holds, and what the answer to its latest report offers: it has one of them.
    held: u64,
    offered: u64,
    /// The report of the gate that told of it.
    number: u64,
}

impl Place {
    fn committed(&self) -> u64 {
        self.held.max(self.offered)
    }
}

/// One class: its cap, and what each gate may hold of it.
#[derive(Clone, Debug)]
pub(super) struct Class {
    pub(super) leaf: Leaf,
    pub(super) cap: u64,
    /// What it is within, if more than caps of classes is divided, and what it asks of that but for its demand.
    pub(super) pool: Option<PoolId>,
    claim: Want,
    /// By gate.
    places: Vec<Place>,
    /// What all gates may hold together.
    committed: u128,
    /// What all of them ask for and use.
    demand: u128,
    used: u128,
    /// To where the cap fills them, and what each that asks gets beyond its demand, as of then.
    level: u64,
    spare: u64,
    filled_at: Option<Time>,
    /// How much of the cap there was to divide, and how much of that was divided.
    usable: u64,
    budget: u64,
    is_stale: bool,
}

/// Up to so many gates a class is divided anew for each report.
const FEW: usize = 16;

impl Class {
    pub(super) fn new(leaf: Leaf, cap: u64, pool: Option<PoolId>, claim: Want) -> Class {
        Class {
            leaf,
            cap,
            pool,
            claim,
            places: Vec::new(),
            committed: 0,
            demand: 0,
            used: 0,
            level: 0,
            spare: 0,
            filled_at: None,
            usable: 0,
            budget: 0,
            is_stale: true,
        }
    }

    pub(super) fn committed(&self) -> u128 {
        self.committed
    }

    pub(super) fn demand(&self) -> u128 {
        self.demand
    }

    pub(super) fn used(&self) -> u128 {
        self.used
    }

    /// Gates that have something of it.
    pub(super) fn gates(&self) -> impl ExactSizeIterator<Item = GateId> + '_ {
        self.places.iter().map(|place| place.gate)
    }

    /// What it asks of what it is within.
    pub(super) fn want(&self) -> Want {
        Want { demand: u64::try_from(self.demand).unwrap_or(u64::MAX).min(self.cap), ..self.claim }
    }

    /// Where a gate is, or would be; it was `there` when that was asked last.
    fn find(&self, gate: GateId, there: usize) -> Result<usize, usize> {
        match self.places.get(there) {
            Some(place) if place.gate == gate => Ok(there),
            _ => self.places.binary_search_by_key(&gate, |place| place.gate),
        }
    }

    /// A gate's latest report says this; what it was offered before is void. Returns where the gate is, which was `there`.
    pub(super) fn report(
        &mut self,
        (gate, there): (GateId, usize),
        number: u64,
        [demand, used, held]: [u64; 3],
    ) -> usize {
        let demand = demand.min(self.cap);
        let new = Place { gate, demand, used, held, offered: 0, number };
        let at = match self.find(gate, there) {
            Ok(at) => at,
            Err(at) => {
                self.places.insert(at, Place { demand: 0, used: 0, held: 0, offered: 0, ..new });
                self.is_stale = true;
                at
            }
        };
        let old = core::mem::replace(&mut self.places[at], new);
        self.is_stale |= old.demand != demand;
        self.demand = self.demand - u128::from(old.demand) + u128::from(demand);
        self.used = self.used - u128::from(old.used) + u128::from(used);
        self.committed = self.committed - u128::from(old.committed()) + u128::from(held);
        at
    }

    /// A gate has nothing of it any more, unless the report with this `number` said so.
    pub(super) fn clear(&mut self, gate: GateId, number: Option<u64>) {
        let Ok(at) = self.find(gate, 0) else { return };
        if Some(self.places[at].number) == number {
            return;
        }
        let old = self.places.remove(at);
        self.demand -= u128::from(old.demand);
        self.used -= u128::from(old.used);
        self.committed -= u128::from(old.committed());
        self.is_stale = true;
    }

    /// Whether it is to be divided anew, as there is so much of it, and the total was divided at `since`.
    pub(super) fn is_due(&self, now: Time, usable: u64, since: Option<Time>, pause: Span) -> bool {
        let Some(filled_at) = self.filled_at else { return true };
        if self.usable != usable || since.is_some_and(|since| since > filled_at) {
            return true;
        }
        self.is_stale && (self.places.len() <= FEW || now.since(filled_at) >= pause)
    }

    /// Divides what is `usable` of it, or its share of what it is within if that is less, over the gates: O(n log n), if it differs.
    pub(super) fn fill(&mut self, now: Time, usable: u64, share: u64, demands: &mut Vec<u64>) {
        let budget = usable.min(share);
        let is_same = self.filled_at.is_some() && self.budget == budget && !self.is_stale;
        (self.filled_at, self.usable, self.budget, self.is_stale) = (Some(now), usable, budget, false);
        if is_same {
            return;
        }
        demands.clear();
        demands.extend(self.places.iter().map(|place| place.demand).filter(|demand| *demand > 0));
        self.level = level(budget, demands);
        // One part of what nobody asks for is left for a gate that comes.
        let parts = demands.len() as u64 + 1;
        let asked: u64 = demands.iter().fold(0, |sum, demand| sum.saturating_add(*demand));
        self.spare = if self.level == u64::MAX { budget.saturating_sub(asked) / parts } else { 0 };
    }

    /// Offers a gate what it is to have, but no more beyond what it holds than there is free. While the allotter `learns`: what it
    /// holds. Returns the offer.
    pub(super) fn offer(&mut self, (gate, there): (GateId, usize), free: u64, learns: bool) -> u64 {
        let Ok(at) = self.find(gate, there) else { return 0 };
        let place = &mut self.places[at];
        let target = match place.demand {
            0 => 0,
            demand => demand.min(self.level).saturating_add(self.spare),
        };
        let offered = if learns { place.held } else { target.min(place.held.saturating_add(free)) };
        let before = place.committed();
        place.offered = offered;
        self.committed = self.committed - u128::from(before) + u128::from(place.committed());
        offered
    }
}
