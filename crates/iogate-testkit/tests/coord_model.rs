//! Clients, a coordinator with the real table, a store, and a network that does anything: all that can happen, up to a number of grants.
//!
//! The network loses, repeats and reorders: what was sent may arrive at any time, any number of times, or never. A client may stop at
//! any time and go on later with what it knew: renewals and writes with a token may come as long as the world stands.
//! The coordinator may be asked late, and may stop and begin again with its journal. The store takes a write if it has
//! seen no larger token on that target. Every reachable state is visited, and the properties at the end of `World` are
//! looked at in each.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use iogate_core::coord::{
    Change, Claim, ClaimId, CoordConfig, Decision, Entry, PlaceId, SessionId, Standing, Table, Targets, Token,
};
use iogate_core::{Span, Time};
use stateright::{Checker, Model, Property};

/// A tick of the clock, and a lease.
const TICK: Span = Span::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Idle,
    Waiting,
    /// As far as it knows.
    Holding(Token),
}

/// That a client was granted a turn, by token. It may arrive, and what it allows may come, as often as can be.
type Grants = BTreeMap<Token, (usize, u64)>;

#[derive(Clone, Debug)]
struct State {
    now: Time,
    table: Table,
    journal: BTreeMap<ClaimId, Entry>,
    last_token: Token,
    /// Each with the number of its claim; it and all before may arrive.
    clients: Vec<(Phase, u64)>,
    grants: Grants,
    /// Whether a token came again for another claim.
    has_clash: bool,
    /// Tokens that clients have given back; that may arrive.
    released: BTreeSet<Token>,
    /// The largest token by target.
    store: BTreeMap<u32, Token>,
    restarts: u32,
}

/// What matters to what can happen next: times count from now, and what was does not count.
#[derive(PartialEq, Hash)]
struct Essence<'a> {
    /// Of each claim, with what is left of its time if it is held.
    claims: Vec<(&'a Claim, Option<(Token, i64)>)>,
    absent: Vec<(SessionId, i64)>,
    clients: &'a [(Phase, u64)],
    grants: &'a Grants,
    released: &'a BTreeSet<Token>,
    store: &'a BTreeMap<u32, Token>,
    rest: (Token, bool, u32),
}

impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.essence().hash(hasher);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &State) -> bool {
        self.essence() == other.essence()
    }
}

impl State {
    fn essence(&self) -> Essence<'_> {
        let claims = self.table.entries().map(|entry| match entry.standing {
            Standing::Held { token, until, .. } => (&entry.claim, Some((token, self.left(until)))),
            Standing::Waiting => (&entry.claim, None),
        });
        Essence {
            claims: claims.collect(),
            absent: self.table.absent().map(|(session, until)| (session, self.left(until))).collect(),
            clients: &self.clients,
            grants: &self.grants,
            released: &self.released,
            store: &self.store,
            rest: (self.last_token, self.has_clash, self.restarts),
        }
    }

    /// Until then; negative if that is over, where beyond a lease it does not matter how long.
    fn left(&self, until: Time) -> i64 {
        let late = self.now.since(until).min(TICK + TICK);
        until.since(self.now).as_nanos() as i64 - late.as_nanos() as i64
    }

    /// The coordinator makes its changes durable and asks until there is nothing to do.
    fn drain(&mut self) {
        loop {
            let decision = self.table.next(self.now);
            for change in self.table.changes() {
                match change {
                    Change::Put(entry) => drop(self.journal.insert(entry.id, entry)),
                    Change::Gone(id) => drop(self.journal.remove(&id)),
                }
            }
            match decision {
                Decision::Granted(grant) => {
                    self.last_token = self.last_token.max(grant.token);
                    let whose = (grant.session.0 as usize, grant.request);
                    let before = self.grants.insert(grant.token, whose);
                    self.has_clash |= before.is_some_and(|before| before != whose);
                }
                Decision::Lost(_) => {}
                Decision::WaitUntil(_) | Decision::Idle => return,
            }
        }
    }

    fn held(&self) -> impl Iterator<Item = (Token, &Targets)> {
        self.table.entries().filter_map(|entry| Some((entry.token()?, &entry.claim.targets)))
    }

    /// Whether all is over once nobody says a word any more.
    fn comes_to_an_end(&self) -> bool {
        let (mut table, mut now) = (self.table.clone(), self.now);
        for _ in 0..100 {
            match table.next(now) {
                Decision::WaitUntil(until) => now = until,
                Decision::Idle => return table.is_empty(),
                Decision::Granted(_) | Decision::Lost(_) => {}
            }
        }
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A client wants a turn (another one).
    Want(usize),
    /// Its claim arrives, or an old one of its claims.
    Claim(usize, u64),
    /// The grant arrives at its client.
    Granted(Token),
    Write(Token),
    Renew(Token),
    /// A client has done what it wanted.
    GiveBack(usize),
    Release(Token),
    /// A client hears that its turn is over.
    Learn(usize),
    Disconnect(usize),
    Tick,
    /// The coordinator's timer.
    Wake,
    Restart,
}

struct World {
    /// The targets of each client, and how often it wants them.
    clients: Vec<(Vec<u32>, u64)>,
    tokens_max: u64,
    restarts_max: u32,
    disconnects: bool,
    writes: bool,
}

fn config() -> CoordConfig {
    CoordConfig { lease: TICK, ..CoordConfig::default() }
}

impl Model for World {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            now: Time::ZERO,
            table: Table::new(config(), Token(0)),
            journal: BTreeMap::new(),
            last_token: Token(0),
            clients: vec![(Phase::Idle, 0); self.clients.len()],
            grants: Grants::new(),
            has_clash: false,
            released: BTreeSet::new(),
            store: BTreeMap::new(),
            restarts: 0,
        }]
    }

    /// What changes something; the rest would be tried for nothing.
    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let is_held = |token: &Token| state.held().any(|(held, _)| held == *token);
        let is_absent = |client: usize| state.table.absent().any(|(absent, _)| absent.0 == client as u64);
        let has = |client: usize, request: Option<u64>| {
            let mut claims = state.table.entries().map(|entry| &entry.claim);
            claims.any(|claim| {
                claim.session.0 == client as u64 && request.is_none_or(|request| request == claim.request)
            })
        };
        for (client, (phase, request)) in state.clients.iter().enumerate() {
            match phase {
                Phase::Idle if *request < self.clients[client].1 => steps.push(Step::Want(client)),
                Phase::Holding(token) => {
                    steps.push(Step::GiveBack(client));
                    if !is_held(token) {
                        steps.push(Step::Learn(client));
                    }
                }
                Phase::Idle | Phase::Waiting => {}
            }
            let arrives = |request: &u64| is_absent(client) || !has(client, Some(*request));
            steps.extend((1..=*request).filter(arrives).map(|request| Step::Claim(client, request)));
            if self.disconnects && has(client, None) && !is_absent(client) {
                steps.push(Step::Disconnect(client));
            }
        }
        for (token, (client, _)) in &state.grants {
            let is_news =
                state.clients[*client].0 != Phase::Holding(*token) && !state.released.contains(token);
            let is_larger =
                |target: &u32| self.writes && state.store.get(target).is_none_or(|largest| largest < token);
            steps.extend(is_news.then_some(Step::Granted(*token)));
            steps.extend(self.clients[*client].0.iter().any(is_larger).then_some(Step::Write(*token)));
            steps.extend(is_held(token).then_some(Step::Renew(*token)));
        }
        steps.extend(state.released.iter().filter(|token| is_held(token)).map(|token| Step::Release(*token)));
        if !state.table.is_empty() {
            steps.extend([Step::Tick, Step::Wake]);
        }
        if state.restarts < self.restarts_max {
            steps.push(Step::Restart);
        }
    }

    fn next_state(&self, before: &State, step: Step) -> Option<State> {
        let mut state = before.clone();
        let now = state.now;
        match step {
            Step::Want(client) => {
                state.clients[client] = (Phase::Waiting, state.clients[client].1 + 1);
            }
            Step::Claim(client, request) => {
                let claim = Claim {
                    session: SessionId(client as u64),
                    request,
                    targets: Targets { place: PlaceId(0), members: self.clients[client].0.clone() },
                    ..Claim::default()
                };
                // One that overlaps an old one that came late is refused; it may come again.
                let _ = state.table.claim(now, claim);
                state.drain();
            }
            Step::Granted(token) => {
                let (client, request) = state.grants[&token];
                let (phase, current) = &mut state.clients[client];
                match phase {
                    Phase::Waiting if *current == request => *phase = Phase::Holding(token),
                    Phase::Holding(held) if *held == token => {}
                    // Of a claim that is over: nobody wants it.
                    _ => drop(state.released.insert(token)),
                }
            }
            Step::Write(token) => {
                for target in &self.clients[state.grants[&token].0].0 {
                    let largest = state.store.entry(*target).or_default();
                    *largest = token.max(*largest);
                }
            }
            Step::Renew(token) => {
                let _ = state.table.renew(now, SessionId(state.grants[&token].0 as u64), token);
                state.drain();
            }
            Step::GiveBack(client) => {
                let Phase::Holding(token) = state.clients[client].0 else { return None };
                state.clients[client].0 = Phase::Idle;
                state.released.insert(token);
            }
            Step::Release(token) => {
                let _ = state.table.release(now, SessionId(state.grants[&token].0 as u64), token, 0);
                state.drain();
            }
            Step::Learn(client) => {
                let Phase::Holding(token) = state.clients[client].0 else { return None };
                if state.held().any(|(held, _)| held == token) {
                    return None;
                }
                state.clients[client].0 = Phase::Idle;
            }
            Step::Disconnect(client) => {
                state.table.disconnected(now, SessionId(client as u64));
                state.drain();
            }
            Step::Tick => state.now = now + TICK,
            Step::Wake => state.drain(),
            Step::Restart => {
                state.restarts += 1;
                let entries = state.journal.values().cloned();
                state.table = Table::restore(config(), now, state.last_token, entries);
                state.drain();
            }
        }
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.last_token.0 <= self.tokens_max
    }

    fn properties(&self) -> Vec<Property<World>> {
        vec![
            Property::always("one holder a target", |_, state: &State| {
                state.held().all(|(token, targets)| {
                    state.held().all(|(other, theirs)| other == token || !theirs.overlaps(targets))
                })
            }),
            Property::always("who holds is never refused by the store", |_, state: &State| {
                state.held().all(|(token, targets)| {
                    let mut seen = targets.members.iter().filter_map(|target| state.store.get(target));
                    seen.all(|largest| *largest <= token)
                })
            }),
            Property::always("a token is of one claim", |_, state: &State| !state.has_clash),
            Property::always("nobody waits for nothing", |_, state: &State| {
                let entries: Vec<&Entry> = state.table.entries().collect();
                entries.iter().filter(|entry| entry.standing == Standing::Waiting).all(|entry| {
                    let mut before =
                        entries.iter().filter(|other| other.token().is_some() || other.id < entry.id);
                    before.any(|other| other.claim.targets.overlaps(&entry.claim.targets))
                })
            }),
            Property::always("all is over in the end", |_, state: &State| state.comes_to_an_end()),
            Property::always("the journal has it all", |_, state: &State| {
                let key = |entry: &Entry| (entry.id, entry.token());
                let mut entries: Vec<_> = state.table.entries().map(key).collect();
                entries.sort_unstable();
                entries.into_iter().eq(state.journal.values().map(key))
            }),
            Property::sometimes(
                "a client that has lost its turn does not know",
                |world: &World, state: &State| {
                    !world.writes
                        || state.clients.iter().zip(&world.clients).any(|((phase, _), (targets, _))| {
                            match phase {
                                Phase::Holding(token) => {
                                    targets.iter().any(|target| state.store.get(target) > Some(token))
                                }
                                _ => false,
                            }
                        })
                },
            ),
            Property::sometimes("everybody has had all turns", |world: &World, state: &State| {
                let is_done = |((phase, request), (_, all)): (&(Phase, u64), &(Vec<u32>, u64))| {
                    *phase == Phase::Idle && request == all
                };
                state.clients.iter().zip(&world.clients).all(is_done) && state.table.is_empty()
            }),
        ]
    }
}

fn check(world: World) {
    let checker = world.checker().threads(2).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{states} states, {depth} steps deep");
    checker.assert_properties();
}

#[test]
fn two_clients_and_a_coordinator_that_restarts() {
    check(World {
        clients: vec![(vec![0], 1), (vec![0], 1)],
        tokens_max: 3,
        restarts_max: 1,
        disconnects: false,
        writes: true,
    });
}

#[test]
fn a_client_that_comes_again() {
    check(World {
        clients: vec![(vec![0], 2), (vec![0], 1)],
        tokens_max: 3,
        restarts_max: 0,
        disconnects: true,
        writes: true,
    });
}

/// Each shares a target with each of the others: held one by one, these would lock each other up.
#[test]
fn three_clients_in_a_ring() {
    check(World {
        clients: vec![(vec![0, 1], 1), (vec![1, 2], 1), (vec![0, 2], 1)],
        tokens_max: 3,
        restarts_max: 0,
        disconnects: false,
        writes: false,
    });
}
