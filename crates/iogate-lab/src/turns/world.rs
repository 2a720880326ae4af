//! Time, events and the network.

mod faults;

use std::collections::BTreeMap;

use iogate_sim::rng::Rng;
use iogate_testkit::turns::{Held, check};

use self::faults::Faults;
use super::client::Client;
use super::server::Server;
use super::{Planted, Report};
use crate::agenda::{Agenda, Trail, behind, line};
pub(super) use crate::agenda::{MS, SECOND, US};

/// How long a run has faults, and how long it goes on without.
const FAULTS: u64 = 60 * SECOND;
const QUIET: u64 = 120 * SECOND;
/// Lines of the trail.
const TRAIL_MAX: usize = 60;

/// What happens.
#[derive(Debug)]
enum Event {
    /// It is time for a client to look what to do, if it has not planned anew since: then the number of its plans is another.
    Look(usize, u64),
    /// It is time for the coordinator to decide, in the same way.
    Ask(u64),
    /// The coordinator starts.
    Start,
    Fault,
    ToServer(u64, Sent),
    ToClient(u64, Sent),
}

/// What goes over a connection.
#[derive(Debug)]
pub(super) enum Sent {
    /// A client of this user connects, and shows this session.
    Hello([u8; 16], u32),
    /// It is let in: with this session, which was there before or not.
    Welcome([u8; 16], bool),
    Bytes(Vec<u8>),
    /// The connection is over.
    End,
}

/// A connection.
struct Wire {
    client: usize,
    /// Which life of the client.
    life: u64,
    /// When the last thing arrives that is underway: nothing overtakes.
    to_server: u64,
    to_client: u64,
    /// Nothing arrives any more, and nobody is told.
    is_cut: bool,
}

/// Everything but what clients and the coordinator know.
pub(super) struct Net {
    pub(super) now: u64,
    pub(super) rng: Rng,
    pub(super) planted: Option<Planted>,
    pub(super) report: Report,
    /// What clients took for their turns.
    held: Vec<Held>,
    /// Turns that were to be taken away, since when, and for certain since when: who has one does not know.
    evictions: BTreeMap<u64, (u64, Option<u64>)>,
    /// Parties that may hold a target at a time.
    slots: usize,
    agenda: Agenda<Event>,
    wires: BTreeMap<u64, Wire>,
    last_wire: u64,
    is_slow: bool,
    trail: Trail,
}

impl Net {
    fn at(&mut self, time: u64, event: Event) {
        self.agenda.plan(time, event);
    }

    pub(super) fn look_at(&mut self, client: usize, plan: u64, time: u64) {
        self.at(time.max(self.now), Event::Look(client, plan));
    }

    pub(super) fn ask_at(&mut self, plan: u64, time: u64) {
        self.at(time.max(self.now), Event::Ask(plan));
    }

    pub(super) fn start_at(&mut self, time: u64) {
        self.at(time, Event::Start);
    }

    /// A new connection of a client.
    pub(super) fn connect(&mut self, client: usize, life: u64) -> u64 {
        self.last_wire += 1;
        let wire = Wire { client, life, to_server: 0, to_client: 0, is_cut: false };
        self.wires.insert(self.last_wire, wire);
        self.report.connections += 1;
        self.last_wire
    }

    fn delay(&mut self) -> u64 {
        let most = if self.is_slow && self.rng.below(20) == 0 { 3 * SECOND } else { 2 * MS };
        self.rng.between(20 * US, most)
    }

    pub(super) fn send_server(&mut self, wire: u64, sent: Sent) {
        let at = self.now + self.delay();
        let Some(of) = self.wires.get_mut(&wire).filter(|of| !of.is_cut) else { return };
        let at = behind(&mut of.to_server, at);
        self.at(at, Event::ToServer(wire, sent));
    }

    pub(super) fn send_client(&mut self, wire: u64, sent: Sent) {
        let at = self.now + self.delay();
        let Some(of) = self.wires.get_mut(&wire).filter(|of| !of.is_cut) else { return };
        let at = behind(&mut of.to_client, at);
        self.at(at, Event::ToClient(wire, sent));
    }

    /// A client is about to have a turn taken away.
    pub(super) fn is_to_be_evicted(&mut self, token: u64) {
        self.evictions.entry(token).or_insert((self.now, None));
    }

    /// The coordinator says that a turn was taken away.
    pub(super) fn is_evicted(&mut self, token: u64) {
        if let Some((_, certain)) = self.evictions.get_mut(&token) {
            certain.get_or_insert(self.now);
        }
    }

    /// A renewal that was sent at `sent` has succeeded.
    pub(super) fn is_renewed(&mut self, token: u64, sent: u64) {
        if let Some((_, Some(since))) = self.evictions.get(&token)
            && *since < sent
        {
            self.found(&format!("a turn that was taken away is renewed: token {token}"));
        }
    }

    /// A client had a turn: it must fit those before.
    pub(super) fn had(&mut self, turn: Held) {
        let end = self.evictions.get(&turn.token).map_or(turn.end, |(since, _)| turn.end.min(*since));
        let turn = Held { end: end.max(turn.begin), ..turn };
        self.held.push(turn);
        // Those that ended long ago are in nobody's way.
        let recent = self.held.len().saturating_sub(100);
        if let Err(error) = check(&self.held[recent..], self.slots) {
            self.found(&error);
        }
    }

    /// Notes what happened, for whoever looks for the cause of a finding.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.report.findings.is_empty() {
            self.trail.note(self.now, &what());
        }
    }

    pub(super) fn found(&mut self, what: &str) {
        if self.report.findings.is_empty() {
            self.report.trail = self.trail.take();
        }
        self.report.findings.push(line(self.now, &format!("FOUND {what}")));
    }
}

/// A coordinator and its clients.
pub(super) struct World {
    net: Net,
    server: Server,
    clients: Vec<Client>,
    faults: Faults,
}

impl World {
    pub(super) fn new(seed: u64, planted: Option<Planted>) -> World {
        let mut rng = Rng::new(seed, 0);
        let faults = Faults::new(&mut rng);
        let clients = rng.between(2, 10) as usize;
        let targets = rng.between(1, 4) as u32;
        let lease = rng.between(500 * MS, 4 * SECOND);
        let mut net = Net {
            now: 0,
            rng: Rng::new(seed, 1),
            planted,
            report: Report { seed, ..Report::default() },
            held: Vec::new(),
            evictions: BTreeMap::new(),
            slots: 1,
            agenda: Agenda::default(),
            wires: BTreeMap::new(),
            last_wire: 0,
            is_slow: faults.slow,
            trail: Trail::new(TRAIL_MAX),
        };
        let server = Server::new(&mut rng, seed, lease, planted);
        net.slots = server.slots();
        let jobs = rng.below(4);
        let clients = (0..clients).map(|number| Client::new(number, targets, jobs, &mut rng)).collect();
        World { net, server, clients, faults }
    }

    pub(super) fn run(mut self) -> Report {
        self.server.start(&mut self.net);
        for client in &mut self.clients {
            client.begin(&mut self.net);
        }
        self.net.at(self.faults.pause, Event::Fault);
        while let Some((time, event)) = self.net.agenda.take_next() {
            if time > FAULTS + QUIET || !self.net.report.findings.is_empty() {
                break;
            }
            self.net.now = time;
            self.net.report.events += 1;
            self.happens(event);
        }
        self.end()
    }

    fn happens(&mut self, event: Event) {
        let World { net, server, clients, .. } = self;
        match event {
            Event::Look(client, plan) => clients[client].look(net, plan),
            Event::Ask(plan) => server.ask(net, plan),
            Event::Start => server.start(net),
            Event::ToServer(wire, sent) => {
                if net.wires.get(&wire).is_some_and(|wire| !wire.is_cut) {
                    server.arrives(net, wire, sent);
                }
            }
            Event::ToClient(wire, sent) => {
                let Some(of) = net.wires.get(&wire).filter(|of| !of.is_cut) else { return };
                let (client, life) = (of.client, of.life);
                if clients[client].life != life {
                    return;
                }
                match clients[client].stopped_until {
                    until if until > net.now => net.at(until, Event::ToClient(wire, sent)),
                    _ => clients[client].arrives(net, wire, sent),
                }
            }
            Event::Fault => self.fault(),
        }
    }

    fn end(mut self) -> Report {
        let net = &mut self.net;
        if net.report.findings.is_empty() {
            let coordinator = self.server.state(net.now);
            for client in &mut self.clients {
                client.stop_holding(net);
                if self.server.is_first_come() && client.last_turn < FAULTS {
                    let (number, state) = (client.number, client.state());
                    net.found(&format!("client {number} has no turn, although nothing was wrong for two minutes: {state}; {coordinator}"));
                }
            }
        }
        if net.report.findings.is_empty()
            && let Err(error) = check(&net.held, net.slots)
        {
            net.found(&error);
        }
        self.net.report
    }
}
