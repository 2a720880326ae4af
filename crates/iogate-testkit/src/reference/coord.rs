//! A naive lock table: one list of claims, and every question asked of all of it.
//!
//! Written from the rules on [`iogate_core::coord::Table`]; what a party has used before is in `past.rs`. Where those leave something
//! open, this table says how it is read here.
//!
//! | rule | reading |
//! |---|---|
//! | refusals | checked in this order: malformed, (the same claim), again, full |
//! | points | a target is held by those who hold it and those who hold its whole place; a whole place has the points that holders name, and one that nobody names |
//! | first at a target | no claim that comes before it in the order, waits, and is for the same place and set wants that target or the whole place |
//! | whole place | it may be held if its party holds it already and may join; or if it is first of all and each full point is held by its party too; or, relaxed, if no point is full and no claim before it wants the whole place |
//! | turn of a party | at a place (and set): from its first grant until it holds nothing there |
//! | joined | its party holds all its targets already |
//! | expiry | all holders whose time is over, by time and number; then all clients, by time and number, with their claims by request |
//! | leap | more than a lease after the earliest time that was due: all that are due have a lease more |
//! | clients that are gone | one without claims is forgotten |

mod past;

use iogate_core::coord::{
    Admission, Claim, ClaimId, CoordConfig, CoordStats, Decision, Entry, Grant, Loss, Order, Passing,
    PlaceId, Refused, SessionId, Standing, Token,
};
use iogate_core::{Span, Time};

use past::Pasts;

/// A naive lock table, with the methods of the real one.
pub struct ReferenceTable {
    config: CoordConfig,
    now: Time,
    items: Vec<Item>,
    /// Who is gone, until when what it waits for is kept.
    gone: Vec<(Time, SessionId)>,
    turns: Vec<Turn>,
    pasts: Pasts,
    lost: Vec<Loss>,
    again: Vec<ClaimId>,
    next_claim: u64,
    next_token: u64,
    /// What it has counted.
    pub stats: CoordStats,
}

#[derive(Clone)]
struct Item {
    entry: Entry,
    /// Smaller goes first.
    rank: (u64, ClaimId),
    set: i8,
}

/// That a party holds something at a place.
struct Turn {
    at: (PlaceId, i8),
    party: Party,
    since: Time,
}

/// A party, or a claim without one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Party {
    Of(u64),
    Alone(ClaimId),
}

impl Item {
    fn is_held(&self) -> bool {
        self.entry.standing != Standing::Waiting
    }

    fn party(&self) -> Party {
        match self.entry.claim.party {
            0 => Party::Alone(self.entry.id),
            party => Party::Of(party),
        }
    }

    fn at(&self) -> (PlaceId, i8) {
        (self.entry.claim.targets.place, self.set)
    }

    fn members(&self) -> &[u32] {
        &self.entry.claim.targets.members
    }

    /// `None`: a target that nobody names.
    fn covers(&self, point: Option<u32>) -> bool {
        self.members().is_empty() || point.is_some_and(|point| self.members().contains(&point))
    }
}

impl ReferenceTable {
    /// An empty table.
    pub fn new(config: CoordConfig, last_token: Token) -> ReferenceTable {
        ReferenceTable {
            config,
            now: Time::ZERO,
            items: Vec::new(),
            gone: Vec::new(),
            turns: Vec::new(),
            pasts: Pasts::default(),
            lost: Vec::new(),
            again: Vec::new(),
            next_claim: 1,
            next_token: last_token.0 + 1,
            stats: CoordStats::default(),
        }
    }

    /// A table with these entries, by number.
    pub fn restore(config: CoordConfig, now: Time, last_token: Token, entries: Vec<Entry>) -> ReferenceTable {
        let mut table = ReferenceTable::new(config, last_token);
        table.now = now;
        for mut entry in entries {
            table.next_claim = entry.id.0 + 1;
            table.part(now, entry.claim.session);
            let key = table.pasts.on_arrival(entry.arrived, table.config.order, &mut entry.claim);
            let set = table.set_of(entry.claim.period);
            let mut item = Item { rank: (key, entry.id), set, entry };
            if let Standing::Held { token, since, until, .. } = &mut item.entry.standing {
                *until = now + table.config.lease;
                table.next_token = table.next_token.max(token.0 + 1);
                let since = *since;
                table.pasts.begin(since, &item.entry.claim, key);
                table.begin_turn(since, &item);
            }
            table.items.push(item);
        }
        table
    }

    /// A client wants a turn.
    pub fn claim(&mut self, now: Time, mut claim: Claim) -> Result<ClaimId, Refused> {
        let now = self.tick(now);
        self.gone.retain(|(_, session)| *session != claim.session);
        let members = &claim.targets.members;
        if members.windows(2).any(|pair| pair[0] >= pair[1]) {
            return self.refuse(Refused::Malformed);
        }
        let of_session = || self.items.iter().filter(|item| item.entry.claim.session == claim.session);
        if let Some(item) = of_session().find(|item| item.entry.claim.request == claim.request) {
            let id = item.entry.id;
            if item.is_held() && !self.again.contains(&id) {
                self.again.push(id);
            }
            return Ok(id);
        }
        let overlapping = of_session()
            .map(|item| &item.entry.claim)
            .filter(|other| claim.party == 0 || other.party == 0)
            .filter(|other| other.targets.overlaps(&claim.targets));
        if let Some(request) = overlapping.map(|other| other.request).min() {
            return self.refuse(Refused::Again { request });
        }
        if self.items.len() >= self.config.claims_max {
            return self.refuse(Refused::Full { max: self.config.claims_max });
        }
        let id = ClaimId(self.next_claim);
        self.next_claim += 1;
        self.stats.claims += 1;
        let key = self.pasts.on_arrival(now, self.config.order, &mut claim);
        let set = self.set_of(claim.period);
        let entry = Entry { id, claim, arrived: now, standing: Standing::Waiting };
        self.items.push(Item { rank: (key, id), set, entry });
        Ok(id)
    }

    /// A turn is over.
    pub fn release(
        &mut self,
        now: Time,
        session: SessionId,
        token: Token,
        bytes: u64,
    ) -> Result<(), Refused> {
        let now = self.tick(now);
        match self.held(token).filter(|item| item.entry.claim.session == session).map(|item| item.entry.id) {
            Some(id) => {
                self.stats.released += 1;
                self.stats.bytes += bytes;
                self.end(now, id, bytes);
                Ok(())
            }
            None => self.refuse(Refused::NotHeld { token }),
        }
    }

    /// A holder is still there.
    pub fn renew(&mut self, now: Time, session: SessionId, token: Token) -> Result<Time, Refused> {
        let new = self.tick(now) + self.config.lease;
        let most = self.config.turn_max;
        for item in &mut self.items {
            if let Standing::Held { token: its, since, until, .. } = &mut item.entry.standing
                && *its == token
                && item.entry.claim.session == session
            {
                *until = if most == Span::ZERO { new } else { new.min(*since + most) };
                return Ok(*until);
            }
        }
        self.refuse(Refused::NotHeld { token })
    }

    /// A client no longer waits.
    pub fn cancel(&mut self, now: Time, session: SessionId, request: u64) -> Result<(), Refused> {
        let now = self.tick(now);
        let found = self.items.iter().find(|item| {
            let claim = &item.entry.claim;
            claim.session == session && claim.request == request && !item.is_held()
        });
        match found.map(|item| item.entry.id) {
            Some(id) => {
                self.stats.cancelled += 1;
                self.end(now, id, 0);
                Ok(())
            }
            None => self.refuse(Refused::NotWaiting { request }),
        }
    }

    /// A client is gone.
    pub fn disconnected(&mut self, now: Time, session: SessionId) {
        let now = self.tick(now);
        if self.items.iter().any(|item| item.entry.claim.session == session) {
            self.part(now, session);
        }
    }

    /// A client is there.
    pub fn connected(&mut self, now: Time, session: SessionId) {
        self.tick(now);
        self.gone.retain(|(_, gone)| *gone != session);
    }

    /// A client ends.
    pub fn goodbye(&mut self, now: Time, session: SessionId) {
        let now = self.tick(now);
        for item in self.items.clone() {
            if item.entry.claim.session == session {
                *(if item.is_held() { &mut self.stats.released } else { &mut self.stats.cancelled }) += 1;
                self.end(now, item.entry.id, 0);
            }
        }
    }

    /// A turn is taken away.
    pub fn evict(&mut self, now: Time, token: Token) -> Result<(), Refused> {
        let now = self.tick(now);
        match self.held(token).cloned() {
            Some(item) => {
                self.stats.evicted += 1;
                self.lose(now, &item);
                Ok(())
            }
            None => self.refuse(Refused::NotHeld { token }),
        }
    }

    /// What to do next.
    pub fn next(&mut self, now: Time) -> Decision {
        let now = self.tick(now);
        self.expire(now);
        if !self.lost.is_empty() {
            return Decision::Lost(self.lost.remove(0));
        }
        while !self.again.is_empty() {
            let id = self.again.remove(0);
            if let Some(item) = self.items.iter().find(|item| item.entry.id == id) {
                return Decision::Granted(self.grant_of(item));
            }
        }
        if let Some((id, admission)) = self.choose(now) {
            return Decision::Granted(self.grant(now, id, admission));
        }
        let overdue = self.oldest().map(|item| item.entry.arrived + self.config.block_max);
        match self.due().into_iter().chain(overdue).min() {
            Some(at) => Decision::WaitUntil(at),
            None => Decision::Idle,
        }
    }

    /// All claims, by number.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.items.iter().map(|item| &item.entry)
    }

    /// Which claim is to be served, and as what: the first that may be, else the oldest that has waited too long.
    pub fn choose(&self, now: Time) -> Option<(ClaimId, Admission)> {
        let mut waiting: Vec<&Item> = self.items.iter().filter(|item| !item.is_held()).collect();
        waiting.sort_by_key(|item| item.rank);
        let first = waiting.iter().find_map(|item| Some((item.entry.id, self.admits(now, item)?)));
        let oldest = self.oldest().filter(|item| item.entry.arrived + self.config.block_max <= now);
        first.or(oldest.map(|item| (item.entry.id, Admission::Overdue)))
    }

    /// The parties that hold a point of a place (`None`: one that nobody names).
    fn holders(&self, at: (PlaceId, i8), point: Option<u32>) -> Vec<Party> {
        let mut parties = Vec::new();
        for item in &self.items {
            if item.is_held() && item.at() == at && item.covers(point) && !parties.contains(&item.party()) {
                parties.push(item.party());
            }
        }
        parties
    }

    fn admits(&self, now: Time, item: &Item) -> Option<Admission> {
        let slots = self.config.slots as usize;
        let is_relaxed = self.config.passing == Passing::Relaxed;
        let turn = self.turns.iter().find(|turn| turn.at == item.at() && turn.party == item.party());
        let may_join = turn.is_some_and(|turn| now.since(turn.since) < self.config.join);
        let before: Vec<&Item> = self
            .items
            .iter()
            .filter(|other| !other.is_held() && other.at() == item.at() && other.rank < item.rank)
            .collect();
        let passes_like = is_relaxed && before.iter().all(|other| other.members() != item.members());
        if item.members().is_empty() {
            let others = self.items.iter().filter(|other| other.is_held() && other.at() == item.at());
            let points = others.flat_map(|other| other.members()).map(|member| Some(*member)).chain([None]);
            let full: Vec<Vec<Party>> = points
                .map(|point| self.holders(item.at(), point))
                .filter(|holders| holders.len() >= slots)
                .collect();
            let holds_whole = self.holders(item.at(), None).contains(&item.party());
            let is_in = holds_whole && may_join
                || before.is_empty() && full.iter().all(|holders| holders.contains(&item.party()))
                || passes_like && full.is_empty();
            return is_in.then_some(if holds_whole { Admission::Joined } else { Admission::InTurn });
        }
        let mut joins = true;
        for member in item.members() {
            let holders = self.holders(item.at(), Some(*member));
            let is_own = holders.contains(&item.party());
            let is_free = holders.len() < slots;
            let is_first = before.iter().all(|other| !other.covers(Some(*member)));
            joins &= is_own;
            if !(is_own && may_join || is_first && (is_own || is_free) || passes_like && is_free) {
                return None;
            }
        }
        Some(if joins { Admission::Joined } else { Admission::InTurn })
    }

    /// Who has waited longest, where that lets one in.
    fn oldest(&self) -> Option<&Item> {
        let waiting = self.items.iter().find(|item| !item.is_held());
        waiting.filter(|_| self.config.passing == Passing::Relaxed)
    }

    fn grant(&mut self, now: Time, id: ClaimId, admission: Admission) -> Grant {
        let place = self.items.iter().position(|item| item.entry.id == id).expect("it was chosen");
        let mut until = now + self.config.lease;
        if self.config.turn_max > Span::ZERO {
            until = until.min(now + self.config.turn_max);
        }
        let token = Token(self.next_token);
        self.next_token += 1;
        self.items[place].entry.standing = Standing::Held { token, since: now, until, admission };
        let item = self.items[place].clone();
        self.begin_turn(now, &item);
        self.pasts.begin(now, &item.entry.claim, item.rank.0);
        self.stats.granted += 1;
        self.stats.joined += u64::from(admission == Admission::Joined);
        self.stats.overdue += u64::from(admission == Admission::Overdue);
        self.stats.waited += now.since(item.entry.arrived);
        self.grant_of(&item)
    }

    fn grant_of(&self, item: &Item) -> Grant {
        let Standing::Held { token, since, until, admission } = item.entry.standing else {
            panic!("{item:?} holds nothing", item = item.entry)
        };
        let claim = &item.entry.claim;
        Grant {
            claim: item.entry.id,
            session: claim.session,
            request: claim.request,
            token,
            waited: since.since(item.entry.arrived),
            until,
            share: self.share(item),
            admission,
        }
    }

    fn share(&self, item: &Item) -> u32 {
        let overlapping = self.items.iter().filter(|other| other.is_held());
        let overlapping =
            overlapping.filter(|other| other.entry.claim.targets.overlaps(&item.entry.claim.targets));
        let mut sets: Vec<i8> = overlapping.map(|other| other.set).collect();
        sets.sort_unstable();
        sets.dedup();
        let part = |set: i8| 10f64.powi(-i32::from(set));
        let all: f64 = sets.iter().map(|set| part(*set)).sum();
        ((1000.0 * part(item.set) / all).round() as u32).max(1)
    }

    fn set_of(&self, period: Span) -> i8 {
        match self.config.order {
            Order::Sets if period == Span::ZERO => 3,
            Order::Sets => period.as_secs_f64().log10().round() as i8,
            _ => 0,
        }
    }

    fn begin_turn(&mut self, since: Time, item: &Item) {
        let (at, party) = (item.at(), item.party());
        match self.turns.iter_mut().find(|turn| turn.at == at && turn.party == party) {
            Some(turn) => turn.since = turn.since.min(since),
            None => self.turns.push(Turn { at, party, since }),
        }
    }

    /// When the next holder's or client's time is over.
    fn due(&self) -> Option<Time> {
        let held = self.items.iter().filter_map(|item| match item.entry.standing {
            Standing::Held { until, .. } => Some(until),
            Standing::Waiting => None,
        });
        held.chain(self.gone.iter().map(|(until, _)| *until)).min()
    }

    fn expire(&mut self, now: Time) {
        let Some(due) = self.due().filter(|due| *due <= now) else { return };
        let extended = now + self.config.lease;
        if now > due + self.config.lease {
            self.stats.leaps += 1;
            for item in &mut self.items {
                if let Standing::Held { until, .. } = &mut item.entry.standing
                    && *until <= now
                {
                    *until = extended;
                }
            }
            self.gone.iter_mut().filter(|(until, _)| *until <= now).for_each(|(until, _)| *until = extended);
            return;
        }
        let mut over: Vec<(Time, Item)> = Vec::new();
        for item in &self.items {
            match item.entry.standing {
                Standing::Held { until, .. } if until <= now => over.push((until, item.clone())),
                _ => {}
            }
        }
        over.sort_by_key(|(until, item)| (*until, item.entry.id));
        for (_, item) in over {
            self.stats.lost += 1;
            self.lose(now, &item);
        }
        let mut over: Vec<_> = self.gone.iter().copied().filter(|(until, _)| *until <= now).collect();
        over.sort_unstable();
        self.gone.retain(|(until, _)| *until > now);
        for (_, session) in over {
            let is_over = |item: &&Item| !item.is_held() && item.entry.claim.session == session;
            let mut items: Vec<Item> = self.items.iter().filter(is_over).cloned().collect();
            items.sort_by_key(|item| item.entry.claim.request);
            for item in items {
                self.stats.abandoned += 1;
                self.lose(now, &item);
            }
        }
    }

    fn lose(&mut self, now: Time, item: &Item) {
        let Entry { id, claim, .. } = &item.entry;
        let token = item.entry.token();
        self.lost.push(Loss { claim: *id, session: claim.session, request: claim.request, token });
        self.end(now, *id, 0);
    }

    fn end(&mut self, now: Time, id: ClaimId, bytes: u64) {
        let place = self.items.iter().position(|item| item.entry.id == id).expect("it is there");
        let item = self.items.remove(place);
        if let Standing::Held { since, .. } = item.entry.standing {
            self.stats.held += now.since(since);
        }
        self.pasts.end(now, &item.entry.claim, item.is_held(), bytes);
        let items = &self.items;
        let is_there = |turn: &Turn| {
            items.iter().any(|item| item.is_held() && item.at() == turn.at && item.party() == turn.party)
        };
        self.turns.retain(is_there);
        self.gone.retain(|(_, session)| items.iter().any(|item| item.entry.claim.session == *session));
    }

    fn part(&mut self, now: Time, session: SessionId) {
        if self.gone.iter().all(|(_, gone)| *gone != session) {
            self.gone.push((now + self.config.lease, session));
        }
    }

    fn held(&self, token: Token) -> Option<&Item> {
        self.items.iter().find(|item| item.entry.token() == Some(token))
    }

    fn tick(&mut self, now: Time) -> Time {
        self.now = self.now.max(now);
        self.now
    }

    fn refuse<T>(&mut self, refused: Refused) -> Result<T, Refused> {
        self.stats.refused += 1;
        Err(refused)
    }
}
