//! Who is granted a turn next, and what the client is told.

use super::{Record, Table, sets};
use crate::coord::{Admission, Change, ClaimId, Entry, Grant, Order, Passing, Standing, Token};
use crate::time::Time;

impl Table {
    /// When the oldest claim has waited long enough.
    pub(super) fn overdue_at(&self) -> Option<Time> {
        let oldest = self.claims.get(self.by_age.first()?)?;
        Some(oldest.entry.arrived + self.config.block_max)
    }

    /// The first claim that may hold its targets.
    pub(super) fn first_admitted(&mut self, now: Time) -> Option<(ClaimId, Admission)> {
        while let Some((rank, freed)) = self.woken.pop_first() {
            let record = self.claims.get(&rank.id);
            let Some(record) = record.filter(|record| record.entry.standing == Standing::Waiting) else {
                continue;
            };
            let Some(board) = self.boards.get(&record.board()) else { continue };
            let claim = &record.entry.claim;
            if let Some(admission) = board.admits(&self.config, now, claim, rank) {
                return Some((rank.id, admission));
            }
            if let (Passing::Relaxed, Some(member)) = (self.config.passing, freed) {
                board.wake_next(&self.config, rank, member, &mut self.woken);
            }
        }
        let is_overdue = self.overdue_at().is_some_and(|at| at <= now);
        self.by_age.first().filter(|_| is_overdue).map(|id| (*id, Admission::Overdue))
    }

    pub(super) fn grant(&mut self, now: Time, id: ClaimId, admission: Admission) {
        let token = Token(self.next_token);
        let Some(place) = self.claims.get(&id).map(|record| record.entry.claim.targets.place) else { return };
        let until = self.until(now, place, now);
        let Some(record) = self.claims.get_mut(&id) else { return };
        let (rank, at) = (record.rank(), record.board());
        self.next_token += 1;
        record.entry.standing = Standing::Held { token, since: now, until, admission };
        let entry = &record.entry;
        if let Some(board) = self.boards.get_mut(&at) {
            board.leave(&entry.claim, rank, &mut self.woken);
            board.hold(now, &entry.claim, id, &mut self.woken);
        }
        self.by_age.remove(&id);
        self.history.begin(now, &entry.claim, rank);
        self.tokens.insert(token, id);
        self.leases.start(id, until);
        self.changes.push(Change::Put(entry.clone()));
        self.stats.granted += 1;
        self.stats.joined += u64::from(admission == Admission::Joined);
        self.stats.overdue += u64::from(admission == Admission::Overdue);
        self.stats.waited += now.since(entry.arrived);
    }

    /// What a holder is told.
    pub(super) fn grant_of(&self, id: ClaimId) -> Option<Grant> {
        let record = self.claims.get(&id)?;
        let Entry { claim, arrived, standing, .. } = &record.entry;
        let Standing::Held { token, since, until, admission } = *standing else { return None };
        Some(Grant {
            claim: id,
            session: claim.session,
            request: claim.request,
            token,
            waited: since.since(*arrived),
            until,
            share: self.share(record),
            admission,
        })
    }

    fn share(&self, record: &Record) -> u32 {
        if self.config.order != Order::Sets {
            return 1000;
        }
        let targets = &record.entry.claim.targets;
        let boards = self.boards.range((targets.place, i8::MIN)..=(targets.place, i8::MAX));
        let held = boards.filter(|(_, board)| board.is_held(&targets.members));
        sets::share(record.set, held.map(|((_, set), _)| *set))
    }
}
