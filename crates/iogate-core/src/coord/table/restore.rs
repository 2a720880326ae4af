//! A table from what a journal has kept.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;

use super::{Record, Table};
use crate::coord::{ClaimId, CoordConfig, Entry, Passing, Standing, Token};
use crate::time::Time;

impl Table {
    /// A table with what a journal has kept: the last [`Change::Put`](crate::coord::Change::Put) of each claim without
    /// a [`Change::Gone`](crate::coord::Change::Gone). Everybody has one lease's time to come back: holders to renew,
    /// clients whose claims wait to be [`connected`](Table::connected).
    ///
    /// What is decided goes by the entries alone, but for this: what parties have used is forgotten
    /// ([`Order::Weighted`](crate::coord::Order::Weighted) begins anew), and so are sizes and periods that were learnt
    /// (those of the claims that are there are in their entries).
    pub fn restore(
        config: CoordConfig,
        now: Time,
        last_token: Token,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Table {
        let mut table = Table::new(config, last_token);
        table.now = now;
        let entries: BTreeMap<ClaimId, Entry> = entries.into_iter().map(|entry| (entry.id, entry)).collect();
        for entry in entries.into_values() {
            table.put_back(now, entry);
        }
        table
    }

    fn put_back(&mut self, now: Time, mut entry: Entry) {
        let (id, until) = (entry.id, now + self.config.lease);
        let members = &mut entry.claim.targets.members;
        members.sort_unstable();
        members.dedup();
        self.next_claim = self.next_claim.max(id.0.saturating_add(1));
        let rank = self.history.on_arrival(entry.arrived, self.config.order, &mut entry.claim, id);
        let set = self.set_of(&entry.claim);
        let board = self.boards.entry((entry.claim.targets.place, set)).or_default();
        self.requests.insert((entry.claim.session, entry.claim.request), id);
        self.leases.on_disconnect(entry.claim.session, until);
        match &mut entry.standing {
            Standing::Held { token, since, until: ends, .. } => {
                *ends = until;
                board.hold(*since, &entry.claim, id, &mut self.woken);
                self.history.begin(*since, &entry.claim, rank);
                self.next_token = self.next_token.max(token.0.saturating_add(1));
                self.tokens.insert(*token, id);
                self.leases.start(id, until);
            }
            Standing::Waiting => {
                board.wait(&entry.claim, rank, &mut self.woken);
                if self.config.passing == Passing::Relaxed {
                    self.by_age.insert(id);
                }
            }
        }
        self.claims.insert(id, Box::new(Record { entry, rank: rank.key, set, is_asked: false }));
    }
}
