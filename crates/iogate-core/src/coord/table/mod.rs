//! The lock table.
//!
//! | module | purpose |
//! |---|---|
//! | `board` | who waits for the targets of a place, who holds them, and who is to be looked at when that changes |
//! | `grants` | who is granted a turn next, and what the client is told |
//! | `leases` | whose time runs out, when |
//! | `order` | in which order waiting claims are served, and what is remembered for that |
//! | `restore` | a table from what a journal has kept |
//! | `sets` | the sets of [`Order::Sets`], and their shares |

mod board;
mod grants;
mod leases;
mod order;
mod restore;
mod sets;

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use board::{Board, Woken};
use leases::Leases;
use order::{History, Rank};

use super::{
    Change, Claim, ClaimId, CoordConfig, CoordStats, Decision, Entry, Loss, Order, Passing, PlaceId, Refused,
    SessionId, Standing, Token,
};
use crate::time::{Span, Time};

/// The lock table of a coordinator.
///
/// # What a driver does
///
/// It hands in *all* that has come ([`claim`](Table::claim), [`release`](Table::release), [`renew`](Table::renew)...), takes
/// [`changes`](Table::changes) and makes them durable, and then asks [`next`](Table::next) until that is `WaitUntil` or `Idle`. Draining
/// makes changes too: they are durable before a client hears of its grant. Nothing is granted, and no lease ends, but by
/// `next`, so a renewal that came in time and is read late still counts.
///
/// # Time
///
/// `now` never decreases; if it does, the latest time that was seen counts. When `next` comes more than a lease after it was due (the
/// machine was suspended, the process stopped), nobody is to blame for not having renewed: all whose time is over have one
/// lease more to come back, and [`CoordStats::leaps`] counts it.
///
/// # Who is granted a turn
///
/// Waiting claims stand in the order of [`CoordConfig::order`]. A claim takes all its targets at once or none, so no two claims each hold
/// what the other waits for (but a client that claims again while it holds something else can bring that about). It may have a target
///
/// - if its party holds the target and took its first turn at the place less than [`CoordConfig::join`] ago; or
/// - if no claim before it waits for that target, and fewer than [`CoordConfig::slots`] parties hold it, or its own party does; or
/// - with [`Passing::Relaxed`]: if fewer than `slots` parties hold it, and no claim before it waits for the very same targets.
///
/// The whole place counts as one target that overlaps all others. Among claims that may have their targets the first in the order goes
/// first. With [`Passing::Relaxed`] and when no other may go, who has waited [`CoordConfig::block_max`] is let in although others hold
/// its targets, the oldest first.
///
/// Waiting is bounded: with `Fcfs` and `Preserve` by those who came before, each with its turn (which a client that is
/// gone keeps for at most a lease); with `Relaxed` by `block_max`; with `Shortest` and an `ageing`, at most claims that
/// came less than `bytes / ageing` later go first; with `Weighted`, a claim's place in the order is fixed when it
/// comes, and others reach it by using their share.
///
/// # Costs
///
/// O(m log n) for each message and grant, with n claims and m targets of the claim; a claim also looks at its session's other claims.
/// `Relaxed` is dearer where claims are for several targets each: when one becomes free, it looks along the line there, at one
/// claim for each set of targets, until somebody has it. With ten thousand claims for any four of 256 targets each that is most
/// of a millisecond a turn.
/// A waiting claim takes less than 400 bytes (a test measures it); one of a party 80 more for each target but the first; and what is
/// remembered of a party, where the order goes by that, 250.
#[derive(Clone, Debug)]
pub struct Table {
    config: CoordConfig,
    now: Time,
    /// Nothing is granted before.
    begins: Time,
    /// How long turns of a place may be, where the rules are not meant.
    turn_max: BTreeMap<PlaceId, Span>,
    claims: BTreeMap<ClaimId, Box<Record>>,
    requests: BTreeMap<(SessionId, u64), ClaimId>,
    tokens: BTreeMap<Token, ClaimId>,
    /// Of each place, and with [`Order::Sets`] of each set at it.
    boards: BTreeMap<(PlaceId, i8), Board>,
    woken: Woken,
    /// Those that wait, by age; only where age lets them in.
    by_age: BTreeSet<ClaimId>,
    leases: Leases,
    history: History,
    next_claim: u64,
    next_token: u64,
    changes: Vec<Change>,
    lost: VecDeque<Loss>,
    /// Holders that are to be told their grant again.
    again: VecDeque<ClaimId>,
    stats: CoordStats,
}

#[derive(Clone, Debug)]
struct Record {
    entry: Entry,
    rank: u64,
    set: i8,
    /// Whether it is in `again`.
    is_asked: bool,
}

impl Record {
    fn rank(&self) -> Rank {
        Rank { key: self.rank, id: self.entry.id }
    }

    fn board(&self) -> (PlaceId, i8) {
        (self.entry.claim.targets.place, self.set)
    }

    fn loss(&self) -> Loss {
        let claim = &self.entry.claim;
        Loss {
            claim: self.entry.id,
            session: claim.session,
            request: claim.request,
            token: self.entry.token(),
        }
    }
}

impl Table {
    /// An empty table. Tokens begin behind `last_token`.
    pub fn new(config: CoordConfig, last_token: Token) -> Table {
        Table {
            config,
            now: Time::ZERO,
            begins: Time::ZERO,
            turn_max: BTreeMap::new(),
            claims: BTreeMap::new(),
            requests: BTreeMap::new(),
            tokens: BTreeMap::new(),
            boards: BTreeMap::new(),
            woken: Woken::new(),
            by_age: BTreeSet::new(),
            leases: Leases::default(),
            history: History::default(),
            next_claim: 1,
            next_token: last_token.0 + 1,
            changes: Vec::new(),
            lost: VecDeque::new(),
            again: VecDeque::new(),
            stats: CoordStats::default(),
        }
    }

    /// Grants nothing before `time`: of what was granted before a crash something may not have reached the journal, and is over
    /// by then.
    pub fn begin_at(&mut self, time: Time) {
        self.begins = time;
    }

    /// How long turns of a place may be, instead of [`CoordConfig::turn_max`].
    pub fn limit_turns(&mut self, place: PlaceId, most: Span) {
        self.turn_max.insert(place, most);
    }

    /// There will be no more turns of a place.
    pub fn forget_limit(&mut self, place: PlaceId) {
        self.turn_max.remove(&place);
    }

    /// How long turns of a place may be; zero: any time.
    pub fn turn_max(&self, place: PlaceId) -> Span {
        self.turn_max.get(&place).copied().unwrap_or(self.config.turn_max)
    }

    /// Until when a turn counts that is renewed now.
    fn until(&self, now: Time, place: PlaceId, since: Time) -> Time {
        let (until, most) = (now + self.config.lease, self.turn_max(place));
        if most == Span::ZERO { until } else { until.min(since + most) }
    }

    /// The rules.
    pub fn config(&self) -> &CoordConfig {
        &self.config
    }

    /// What has been counted.
    pub fn stats(&self) -> &CoordStats {
        &self.stats
    }

    /// Claims, waiting and held.
    pub fn len(&self) -> usize {
        self.claims.len()
    }

    /// Whether there is no claim.
    pub fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    /// A client wants a turn. A claim that the table has already (same session, same request) stays what it is; if it holds
    /// its turn, that is what `next` says again. What the claim leaves open and the order goes by, the table fills in from earlier
    /// turns of the party: `bytes` with [`Order::Shortest`], `period` with [`Order::Sets`]; where it knows nothing, bytes stay 0
    /// and the period counts as a quarter of an hour.
    ///
    /// # Errors
    /// [`Refused::Malformed`], [`Refused::Again`] (both have to be of a party if one client's claims are to overlap), [`Refused::Full`].
    pub fn claim(&mut self, now: Time, mut claim: Claim) -> Result<ClaimId, Refused> {
        let now = self.tick(now);
        self.leases.on_connect(claim.session);
        if !claim.targets.members.is_sorted_by(|a, b| a < b) {
            return self.refuse(Refused::Malformed);
        }
        if let Some(id) = self.requests.get(&(claim.session, claim.request)).copied() {
            if let Some(record) = self.claims.get_mut(&id)
                && record.entry.standing != Standing::Waiting
                && !record.is_asked
            {
                record.is_asked = true;
                self.again.push_back(id);
            }
            return Ok(id);
        }
        let other = self.of_session(claim.session).find(|other| {
            (other.claim.party == 0 || claim.party == 0) && other.claim.targets.overlaps(&claim.targets)
        });
        if let Some(request) = other.map(|other| other.claim.request) {
            return self.refuse(Refused::Again { request });
        }
        if self.claims.len() >= self.config.claims_max {
            return self.refuse(Refused::Full { max: self.config.claims_max });
        }
        let id = ClaimId(self.next_claim);
        self.next_claim += 1;
        self.stats.claims += 1;
        claim.targets.members.shrink_to_fit();
        let rank = self.history.on_arrival(now, self.config.order, &mut claim, id);
        let set = self.set_of(&claim);
        let board = self.boards.entry((claim.targets.place, set)).or_default();
        board.wait(&claim, rank, &mut self.woken);
        if self.config.passing == Passing::Relaxed {
            self.by_age.insert(id);
        }
        self.requests.insert((claim.session, claim.request), id);
        let entry = Entry { id, claim, arrived: now, standing: Standing::Waiting };
        self.changes.push(Change::Put(entry.clone()));
        self.claims.insert(id, Box::new(Record { entry, rank: rank.key, set, is_asked: false }));
        Ok(id)
    }

    /// A turn is over. `bytes` were moved in it, 0 if that is not known.
    ///
    /// # Errors
    /// [`Refused::NotHeld`]: also where the turn was lost before.
    pub fn release(
        &mut self,
        now: Time,
        session: SessionId,
        token: Token,
        bytes: u64,
    ) -> Result<(), Refused> {
        let now = self.tick(now);
        let Some(id) = self.held_by(session, token) else { return self.refuse(Refused::NotHeld { token }) };
        self.stats.released += 1;
        self.stats.bytes = self.stats.bytes.saturating_add(bytes);
        self.end(now, id, bytes);
        Ok(())
    }

    /// A holder is still there. Returns when its turn now ends, which is not in the journal: a restart gives everybody a lease. It is not
    /// after `now` if the turn has been as long as it may be.
    ///
    /// # Errors
    /// [`Refused::NotHeld`]: also where the turn was lost before.
    pub fn renew(&mut self, now: Time, session: SessionId, token: Token) -> Result<Time, Refused> {
        let now = self.tick(now);
        let Some(id) = self.held_by(session, token) else { return self.refuse(Refused::NotHeld { token }) };
        let Some(record) = self.claims.get(&id) else { return self.refuse(Refused::NotHeld { token }) };
        let Standing::Held { since, .. } = record.entry.standing else {
            return self.refuse(Refused::NotHeld { token });
        };
        let until = self.until(now, record.entry.claim.targets.place, since);
        self.extend(id, until);
        Ok(until)
    }

    /// A client no longer waits.
    ///
    /// # Errors
    /// [`Refused::NotWaiting`]: also where it holds its turn by now; that is released, not cancelled.
    pub fn cancel(&mut self, now: Time, session: SessionId, request: u64) -> Result<(), Refused> {
        let now = self.tick(now);
        let found = self.requests.get(&(session, request)).and_then(|id| self.claims.get(id));
        match found.filter(|record| record.entry.standing == Standing::Waiting).map(|record| record.entry.id)
        {
            Some(id) => {
                self.stats.cancelled += 1;
                self.end(now, id, 0);
                Ok(())
            }
            None => self.refuse(Refused::NotWaiting { request }),
        }
    }

    /// A client is not connected any more. What it holds it keeps as long as the lease runs that it renewed last; what it waits for
    /// has one lease's time, and may be granted in it.
    pub fn disconnected(&mut self, now: Time, session: SessionId) {
        let now = self.tick(now);
        if self.of_session(session).next().is_some() {
            self.leases.on_disconnect(session, now + self.config.lease);
        }
    }

    /// A client is there again: what it waits for stays. What it holds it still has to renew. (A claim says it, too.)
    pub fn connected(&mut self, now: Time, session: SessionId) {
        self.tick(now);
        self.leases.on_connect(session);
    }

    /// A client has said that it ends: its claims are over.
    pub fn goodbye(&mut self, now: Time, session: SessionId) {
        let now = self.tick(now);
        let claims: Vec<(ClaimId, bool)> =
            self.of_session(session).map(|entry| (entry.id, entry.token().is_some())).collect();
        for (id, is_held) in claims {
            self.stats.released += u64::from(is_held);
            self.stats.cancelled += u64::from(!is_held);
            self.end(now, id, 0);
        }
    }

    /// An administrator takes a turn away; `next` says that it is lost.
    ///
    /// # Errors
    /// [`Refused::NotHeld`].
    pub fn evict(&mut self, now: Time, token: Token) -> Result<(), Refused> {
        let now = self.tick(now);
        let Some(id) = self.tokens.get(&token).copied() else {
            return self.refuse(Refused::NotHeld { token });
        };
        self.stats.evicted += 1;
        self.lose(now, id);
        Ok(())
    }

    /// What to do next: tell of losses, tell of grants, or wait. `WaitUntil` names a time after `now`.
    pub fn next(&mut self, now: Time) -> Decision {
        let now = self.tick(now);
        self.expire(now);
        if let Some(loss) = self.lost.pop_front() {
            return Decision::Lost(loss);
        }
        while let Some(id) = self.again.pop_front() {
            let Some(record) = self.claims.get_mut(&id) else { continue };
            record.is_asked = false;
            if let Some(grant) = self.grant_of(id) {
                return Decision::Granted(grant);
            }
        }
        if now >= self.begins
            && let Some((id, admission)) = self.first_admitted(now)
        {
            self.grant(now, id, admission);
            if let Some(grant) = self.grant_of(id) {
                return Decision::Granted(grant);
            }
        }
        let begins = (now < self.begins && self.claims.len() > self.tokens.len()).then_some(self.begins);
        match [self.leases.first(), self.overdue_at().map(|at| at.max(self.begins)), begins]
            .into_iter()
            .flatten()
            .min()
        {
            Some(at) => Decision::WaitUntil(at),
            None => Decision::Idle,
        }
    }

    /// What has changed since the last call, oldest first.
    pub fn changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.changes.drain(..)
    }

    /// All claims: those that hold by token, then those that wait, in the order in which they would be served (of each place: claims
    /// of different places are in no one's way).
    pub fn entries(&self) -> impl Iterator<Item = &Entry> + '_ {
        let held = self.tokens.values().filter_map(|id| self.claims.get(id));
        let mut waiting: Vec<&Record> = self.claims.values().map(|record| &**record).collect();
        waiting.retain(|record| record.entry.standing == Standing::Waiting);
        waiting.sort_unstable_by_key(|record| record.rank());
        held.map(|record| &**record).chain(waiting).map(|record| &record.entry)
    }

    /// Clients that have claims and are gone, each with the time until when what it waits for is kept.
    pub fn absent(&self) -> impl Iterator<Item = (SessionId, Time)> + '_ {
        self.leases.gone()
    }

    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    fn refuse<T>(&mut self, refused: Refused) -> Result<T, Refused> {
        self.stats.refused += 1;
        Err(refused)
    }

    fn set_of(&self, claim: &Claim) -> i8 {
        if self.config.order == Order::Sets { sets::set_of(claim.period) } else { 0 }
    }

    fn of_session(&self, session: SessionId) -> impl Iterator<Item = &Entry> + '_ {
        let claims = self.requests.range((session, 0)..=(session, u64::MAX));
        claims.filter_map(|(_, id)| self.claims.get(id)).map(|record| &record.entry)
    }

    fn held_by(&self, session: SessionId, token: Token) -> Option<ClaimId> {
        let id = self.tokens.get(&token)?;
        self.claims.get(id).filter(|record| record.entry.claim.session == session).map(|_| *id)
    }

    /// Ends the claims whose time is over.
    fn expire(&mut self, now: Time) {
        let Some(first) = self.leases.first().filter(|first| *first <= now) else { return };
        if now > first + self.config.lease {
            self.stats.leaps += 1;
            let until = now + self.config.lease;
            for id in self.leases.clock_jump(now, until) {
                self.extend(id, until);
            }
            return;
        }
        while let Some(id) = self.leases.expired_claim(now) {
            self.stats.lost += 1;
            self.lose(now, id);
        }
        while let Some(session) = self.leases.take_expired_session(now) {
            let is_waiting = |entry: &&Entry| entry.standing == Standing::Waiting;
            let claims: Vec<ClaimId> =
                self.of_session(session).filter(is_waiting).map(|entry| entry.id).collect();
            for id in claims {
                self.stats.abandoned += 1;
                self.lose(now, id);
            }
        }
    }

    fn extend(&mut self, id: ClaimId, new: Time) {
        if let Some(record) = self.claims.get_mut(&id)
            && let Standing::Held { until, .. } = &mut record.entry.standing
        {
            self.leases.end(id, *until);
            *until = new;
            self.leases.start(id, new);
        }
    }

    fn lose(&mut self, now: Time, id: ClaimId) {
        self.lost.extend(self.claims.get(&id).map(|record| record.loss()));
        self.end(now, id, 0);
    }

    fn end(&mut self, now: Time, id: ClaimId, bytes: u64) {
        let Some(record) = self.claims.remove(&id) else { return };
        let (rank, at) = (record.rank(), record.board());
        let Entry { claim, standing, .. } = &record.entry;
        let board = self.boards.entry(at).or_default();
        let was_held = match *standing {
            Standing::Held { token, since, until, .. } => {
                board.release(claim, id, &mut self.woken);
                self.tokens.remove(&token);
                self.leases.end(id, until);
                self.stats.held += now.since(since);
                true
            }
            Standing::Waiting => {
                board.leave(claim, rank, &mut self.woken);
                self.by_age.remove(&id);
                false
            }
        };
        if board.is_empty() {
            self.boards.remove(&at);
        }
        self.history.end(now, claim, was_held, bytes);
        self.requests.remove(&(claim.session, claim.request));
        if self.of_session(claim.session).next().is_none() {
            self.leases.on_connect(claim.session);
        }
        self.changes.push(Change::Gone(id));
    }
}
