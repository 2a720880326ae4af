//! Time, events, the network, and what has happened.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use iogate_core::Time;
use iogate_core::wire::Welcome;
use iogate_sim::rng::Rng;
use iogate_testkit::data::{Answer, Checker, Event as Happened};
use iogate_vfs::Clock;

use super::{Planted, Report};
use crate::agenda::{Agenda, Trail, behind, line};
pub(super) use crate::agenda::{MS, SECOND, US};

/// The longest that a message is underway.
pub(super) const DELAY_MAX: u64 = 3 * SECOND;
/// When its clocks began.
const EPOCH: u64 = 1_000_000 * SECOND;
/// Lines of the trail.
const TRAIL_MAX: usize = 400;

/// What happens.
#[derive(Debug)]
pub(super) enum Event {
    /// A fiber goes on.
    Wake(usize),
    /// A client tries to connect.
    Connect(usize),
    /// Something arrives in the buffer of a server.
    ToServer(u64, Sent),
    /// Something arrives at a client.
    ToClient(u64, Sent),
    /// A process of a server reads what has come by a connection.
    Take(usize, u64, u64),
    /// It carries out a request of a session.
    CarryOut(usize, u64, [u8; 16], u64),
    /// It looks who waits for too long.
    Reap(usize, u64),
    /// A server starts.
    Start(usize),
    /// A program starts.
    Begin(usize),
    /// It is killed.
    Kill(usize),
    Fault,
}

/// What goes over a connection.
#[derive(Clone, Debug)]
pub(super) enum Sent {
    /// A client connects: the session that it shows, and who it is.
    Hello([u8; 16], [u8; 16]),
    /// It is let in.
    Welcome(Box<Welcome>),
    Bytes(Vec<u8>),
    /// The connection is over.
    End,
}

/// A connection.
struct Wire {
    link: usize,
    server: usize,
    /// When the last thing arrives that is underway: nothing overtakes.
    to_server: u64,
    to_client: u64,
    /// Nothing arrives any more, and nobody is told.
    is_cut: bool,
}

/// Everything but what clients and servers know.
pub(super) struct Net {
    pub(super) now: u64,
    /// The same, for clocks that are read while somebody holds the world.
    clock: Arc<AtomicU64>,
    pub(super) rng: Rng,
    pub(super) planted: Option<Planted>,
    pub(super) report: Report,
    /// Nothing goes on any more: whoever calls is refused at once.
    pub(super) is_over: bool,
    /// Fibers that can go on.
    pub(super) ready: VecDeque<usize>,
    /// What is to be dropped while nobody holds the world.
    pub(super) dropped: Vec<Box<dyn Any + Send>>,
    pub(super) is_slow: bool,
    wires: BTreeMap<u64, Wire>,
    checker: Checker,
    last_call: u64,
    agenda: Agenda<Event>,
    last_wire: u64,
    trail: Trail,
}

impl Net {
    pub(super) fn new(seed: u64, planted: Option<Planted>) -> Net {
        Net {
            now: 0,
            clock: Arc::default(),
            rng: Rng::new(seed, 1),
            planted,
            report: Report { seed, ..Report::default() },
            is_over: false,
            ready: VecDeque::new(),
            dropped: Vec::new(),
            is_slow: false,
            wires: BTreeMap::new(),
            checker: Checker::new(),
            last_call: 0,
            agenda: Agenda::default(),
            last_wire: 0,
            trail: Trail::new(TRAIL_MAX),
        }
    }

    /// Data is on several servers: readers may see a part of what is being written.
    pub(super) fn show_parts(&mut self) {
        self.checker = Checker::of_parts();
    }

    /// A clock of this world's time.
    pub(super) fn clock(&self) -> Clock {
        let now = Arc::clone(&self.clock);
        Clock::simulated(move || Time::from_nanos(EPOCH + now.load(Ordering::Relaxed)))
    }

    /// Plans an event.
    pub(super) fn at(&mut self, time: u64, event: Event) {
        self.agenda.plan(time.max(self.now), event);
    }

    /// The next event.
    pub(super) fn next(&mut self) -> Option<Event> {
        let (time, event) = self.agenda.take_next()?;
        self.now = time;
        self.clock.store(time, Ordering::Relaxed);
        self.report.events += 1;
        Some(event)
    }

    /// 128 bits.
    pub(super) fn name(&mut self) -> [u8; 16] {
        let mut name = [0; 16];
        name[..8].copy_from_slice(&self.rng.bits().to_le_bytes());
        name[8..].copy_from_slice(&self.rng.bits().to_le_bytes());
        name
    }

    /// A new connection.
    pub(super) fn connect(&mut self, link: usize, server: usize) -> u64 {
        self.last_wire += 1;
        self.wires.insert(self.last_wire, Wire { link, server, to_server: 0, to_client: 0, is_cut: false });
        self.report.connections += 1;
        self.last_wire
    }

    /// Which link and which server a connection joins.
    pub(super) fn ends_of(&self, wire: u64) -> Option<(usize, usize)> {
        self.wires.get(&wire).map(|wire| (wire.link, wire.server))
    }

    /// The last connections.
    pub(super) fn last_wires(&self) -> Vec<u64> {
        self.wires.keys().rev().take(8).copied().collect()
    }

    fn delay(&mut self) -> u64 {
        let most = if self.is_slow && self.rng.below(50) == 0 { DELAY_MAX } else { 2 * MS };
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

    /// A connection is lost; `silently`: nobody hears of that, but finds out after a while, each end for itself.
    pub(super) fn cut(&mut self, wire: u64, silently: bool) {
        if silently {
            let Some(of) = self.wires.get_mut(&wire) else { return };
            of.is_cut = true;
            let [client, server] = [(); 2].map(|()| self.now + self.rng.between(SECOND, 5 * SECOND));
            self.at(client, Event::ToClient(wire, Sent::End));
            self.at(server, Event::ToServer(wire, Sent::End));
        } else {
            self.send_client(wire, Sent::End);
            self.send_server(wire, Sent::End);
        }
    }

    /// A number for a call, as the checker knows it.
    pub(super) fn new_call(&mut self) -> u64 {
        self.last_call += 1;
        self.last_call
    }

    /// Something has happened that programs see.
    pub(super) fn happened(&mut self, event: &Happened) {
        if self.is_over {
            return;
        }
        self.note(|| match event {
            Happened::Return { call, answer: Answer::Records(records) } => {
                format!("Return {{ call: {call}, {} records }}", records.len())
            }
            event => format!("{event:?}"),
        });
        if let Err(why) = self.checker.take(event) {
            self.found(&why);
        }
    }

    /// Nothing more happens.
    pub(super) fn end(&mut self) {
        if self.report.findings.is_empty()
            && let Err(why) = self.checker.end()
        {
            self.found(&why);
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
