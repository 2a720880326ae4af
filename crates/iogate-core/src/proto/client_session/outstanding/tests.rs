//! A client and a server's window, with a network between them that loses connections, delays messages and restarts the
//! server. Everything random comes from a seed, which a failure names.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use std::println;

use super::*;
use crate::Span;
use crate::proto::repeats::{Admitted, Window};

const LIMITS: Limits = Limits { requests: 5, bytes: 1000, transfer_bytes: 1000, append_bytes: 1000 };

/// A token that is appended, or set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Append(u32),
    Set(u32),
    /// Restores a session.
    Open,
}

impl Ask {
    fn demand(self) -> Demand {
        match self {
            Ask::Append(_) => Demand { bytes: 300, has_origin: true, ..Demand::default() },
            Ask::Set(_) => Demand { bytes: 10, repeatable: true, ..Demand::default() },
            Ask::Open => Demand { opens: true, ..Demand::default() },
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }
}

struct Message {
    id: u64,
    acked: u64,
    ask: Ask,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    Failed,
}

#[derive(Default)]
struct Server {
    /// What was appended; a restart does not lose it.
    log: Vec<u32>,
    sessions: BTreeMap<u64, Session>,
    last_session: u64,
}

struct Session {
    window: Window<()>,
    underway: Vec<(u64, Ask)>,
    is_open: bool,
}

struct World {
    random: Random,
    client: Outstanding<Ask>,
    /// What was asked and what became of it, by token.
    fates: BTreeMap<u32, (Ask, Fate)>,
    pushed: u32,
    server: Server,
    /// The session that the client knows, and whether it is connected.
    session: u64,
    is_connected: bool,
    to_server: VecDeque<Message>,
    to_client: VecDeque<u64>,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            random: Random(seed),
            client: Outstanding::new(),
            fates: BTreeMap::new(),
            pushed: 0,
            server: Server::default(),
            session: 0,
            is_connected: false,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
        }
    }

    fn step(&mut self, faults: bool) {
        match self.random.below(if faults { 100 } else { 90 }) {
            0..20 if faults => {
                self.pushed += 1;
                let token = self.pushed;
                let ask = if self.random.below(3) > 0 { Ask::Append(token) } else { Ask::Set(token) };
                self.client.push(ask, ask.demand(), Time::ZERO);
            }
            0..45 => self.write(),
            45..60 => self.arrive_at_server(),
            60..72 => self.carry_out(),
            72..85 => self.arrive_at_client(),
            85..90 => self.connect(),
            90..96 => self.cut(),
            96..98 => self.restart(),
            _ => self.give_up(),
        }
    }

    fn write(&mut self) {
        if let Some(ToWrite { id, acked, item }) = self.client.next_to_write(|_| false) {
            assert!(self.is_connected);
            self.to_server.push_back(Message { id, acked, ask: *item });
        }
        let window = self.client.window.iter().flatten();
        let bytes: u64 = window.clone().map(|entry| entry.demand.bytes).sum();
        assert!(bytes <= LIMITS.bytes && window.count() <= LIMITS.requests as usize, "credits are kept");
    }

    fn arrive_at_server(&mut self) {
        let Some(Message { id, acked, ask }) = self.to_server.pop_front() else { return };
        let Some(session) = self.server.sessions.get_mut(&self.session) else { return };
        match session.window.admit(id, acked).expect("the client keeps to the protocol") {
            Admitted::New => session.underway.push((id, ask)),
            Admitted::InFlight => {}
            Admitted::Done(()) => self.to_client.push_back(id),
        }
    }

    /// Any request of any session: those of lost ones go on too.
    fn carry_out(&mut self) {
        let Some(&number) =
            self.server.sessions.keys().nth(self.random.below(self.server.sessions.len().max(1)))
        else {
            return;
        };
        let session = self.server.sessions.get_mut(&number).expect("its key was just seen");
        if session.underway.is_empty() {
            return;
        }
        let (id, ask) = session.underway.remove(self.random.below(session.underway.len()));
        match ask {
            Ask::Append(token) => self.server.log.push(token),
            Ask::Set(_) => {}
            Ask::Open => session.is_open = true,
        }
        assert!(session.is_open, "a session is restored before it is used");
        let reply = (!matches!(ask, Ask::Set(_))).then_some(());
        let is_current = number == self.session && self.is_connected;
        if session.window.finish(id, reply) && is_current {
            self.to_client.push_back(id);
        }
    }

    fn arrive_at_client(&mut self) {
        let Some(id) = self.to_client.pop_front() else { return };
        let answered = self.client.answer(id).expect("only what was asked on this connection is answered");
        self.fate(answered.item, Fate::Answered);
    }

    fn fate(&mut self, ask: Ask, fate: Fate) {
        if let Ask::Append(token) | Ask::Set(token) = ask {
            assert_eq!(self.fates.insert(token, (ask, fate)), None, "{token} is answered twice");
        }
    }

    fn cut(&mut self) {
        self.is_connected = false;
        self.client.disconnected();
        // Some of what is on its way still arrives at the server.
        for _ in 0..self.random.below(self.to_server.len() + 1) {
            self.arrive_at_server();
        }
        self.to_server.clear();
        self.to_client.clear();
    }

    fn connect(&mut self) {
        if self.is_connected {
            return;
        }
        self.is_connected = true;
        if let Some(session) = self.server.sessions.get_mut(&self.session) {
            session.window.reconnect();
            self.client.resumed();
            return;
        }
        self.server.last_session += 1;
        self.session = self.server.last_session;
        let session = Session { window: Window::new(LIMITS.requests), underway: Vec::new(), is_open: false };
        self.server.sessions.insert(self.session, session);
        for (ask, _) in self.client.renewed(LIMITS, false) {
            assert!(matches!(ask, Ask::Append(_)), "what may be repeated is");
            self.fate(ask, Fate::Failed);
        }
        self.client.push_restoring(Ask::Open, Demand { handle: 1, opens: true, ..Demand::default() });
    }

    /// The server forgets its sessions; of what is underway, some has taken effect.
    fn restart(&mut self) {
        for _ in 0..self.random.below(4) {
            self.carry_out();
        }
        self.cut();
        self.server.sessions.clear();
    }

    fn give_up(&mut self) {
        self.cut();
        self.session = 0;
        for (ask, _) in self.client.give_up() {
            self.fate(ask, Fate::Failed);
        }
        assert!(self.client.is_empty());
    }

    fn check(&self) {
        assert!(self.client.is_empty());
        assert_eq!(self.fates.len(), self.pushed as usize, "everything is answered or fails");
        let mut counts = BTreeMap::new();
        for token in &self.server.log {
            *counts.entry(*token).or_insert(0) += 1;
        }
        assert!(counts.values().all(|count| *count == 1), "an append took effect twice");
        for (token, fate) in &self.fates {
            let is_lost = matches!(fate, (Ask::Append(_), Fate::Answered)) && !counts.contains_key(token);
            assert!(!is_lost, "append {token} was answered and is lost");
        }
    }
}

/// Says which seed it was if a check fails.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("the seed was {}", self.0);
        }
    }
}

#[test]
fn what_is_answered_has_taken_effect_once_whatever_the_network_does() {
    for seed in 0..400 {
        let _named = Named(seed);
        let mut world = World::new(seed);
        for _ in 0..1000 {
            world.step(true);
        }
        let mut steps = 0;
        while !world.client.is_empty() {
            world.step(false);
            steps += 1;
            assert!(steps < 100_000, "it comes to an end");
        }
        world.check();
    }
}

#[test]
fn a_new_session_starts_over_and_tells_what_is_unknown() {
    let mut client = Outstanding::new();
    client.push(Ask::Append(1), Ask::Append(1).demand(), Time::ZERO);
    client.push(Ask::Set(2), Ask::Set(2).demand(), Time::ZERO);
    client.push(Ask::Append(3), Ask::Append(3).demand(), Time::ZERO);
    assert!(client.next_to_write(|_| false).is_none(), "without a connection");
    assert_eq!(client.renewed(LIMITS, false), []);
    assert_eq!(client.next_to_write(|_| false).map(|next| next.id), Some(1));
    assert_eq!(client.next_to_write(|_| false).map(|next| next.id), Some(2));
    assert!(client.get(3).is_none(), "not written yet");
    client.disconnected();
    assert_eq!(client.renewed(LIMITS, false), [(Ask::Append(1), Ask::Append(1).demand())]);
    client.push_restoring(Ask::Open, Demand { handle: 1, opens: true, ..Demand::default() });
    assert_eq!(client.next_to_write(|_| false).map(|next| *next.item), Some(Ask::Open));
    assert!(client.next_to_write(|_| false).is_none(), "others wait until the session is restored");
    assert_eq!(client.answer(1).map(|entry| (entry.item, entry.restores)), Some((Ask::Open, true)));
    let next = client.next_to_write(|_| false).map(|next| (next.id, next.acked, *next.item));
    assert_eq!(next, Some((2, 2, Ask::Set(2))));
    assert_eq!(
        client.next_to_write(|_| false).map(|next| *next.item),
        Some(Ask::Append(3)),
        "it was never written"
    );
    let given_up: Vec<Ask> = client.give_up().into_iter().map(|(ask, _)| ask).collect();
    assert_eq!(given_up, [Ask::Set(2), Ask::Append(3)]);
}

#[test]
fn a_request_beyond_the_credits_goes_alone() {
    let mut client = Outstanding::new();
    client.renewed(Limits { requests: 4, bytes: 10, ..LIMITS }, false);
    for bytes in [20, 5, 5, 1] {
        client.push(bytes, Demand { bytes, repeatable: true, ..Demand::default() }, Time::ZERO);
    }
    assert_eq!(client.next_to_write(|_| false).map(|next| *next.item), Some(20));
    assert!(client.next_to_write(|_| false).is_none());
    assert_eq!(client.answer(1).map(|entry| entry.item), Some(20));
    assert!(client.answer(1).is_none());
    assert_eq!(client.next_to_write(|_| false).map(|next| *next.item), Some(5));
    assert_eq!(client.next_to_write(|_| false).map(|next| *next.item), Some(5));
    assert!(client.next_to_write(|_| false).is_none());
    assert_eq!(client.iter().count(), 3);
}

#[test]
fn the_oldest_request_is_known_by_when_it_came() {
    let at = |ms| Time::ZERO + Span::from_millis(ms);
    let mut client = Outstanding::new();
    client.renewed(LIMITS, false);
    assert_eq!(client.oldest(), None);
    for (token, ms) in [(1, 10), (2, 20), (3, 30)] {
        client.push(Ask::Set(token), Ask::Set(token).demand(), at(ms));
    }
    assert_eq!(client.oldest(), Some(at(10)), "before it is written");
    while client.next_to_write(|_| false).is_some() {}
    client.answer(2).unwrap();
    assert_eq!(client.oldest(), Some(at(10)));
    client.answer(1).unwrap();
    assert_eq!(client.oldest(), Some(at(30)));
    // What starts over in a new session has come when it came.
    client.disconnected();
    client.renewed(LIMITS, false);
    client.push_restoring(Ask::Open, Ask::Open.demand());
    assert_eq!(client.oldest(), Some(at(30)));
    while client.next_to_write(|_| false).is_some() {}
    client.answer(1).unwrap();
    while client.next_to_write(|_| false).is_some() {}
    client.answer(2).unwrap();
    assert_eq!(client.oldest(), None);
}
