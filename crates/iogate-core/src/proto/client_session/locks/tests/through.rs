//! Clients of forwarders, and the server that keeps the locks: connections are cut, sessions forgotten, and processes of the server and of
//! forwarders started anew at random. Nobody who would reach the data believes to have a lock that another has had meanwhile, and who has
//! gone leaves nothing.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::world::{Ask, BYTES, FILE, GRACE, Server, own};
use super::{CONFIG, EBADF, ESTALE, given_up_to, opens, send, submit_lock, taken_by_another, welcome};
use crate::file_locks::{Outcome, Passed};
use crate::proto::client_session::{Attempt, ClientSession};
use crate::wire::{Lock, Request, Welcome, lock, open};
use crate::{Span, Time};

const CLIENTS: usize = 4;
const FORWARDERS: usize = 2;

type Reply = Result<Vec<u8>, i32>;

struct Client {
    session: ClientSession<Ask, ()>,
    handle: u32,
    /// What it was given, byte by byte, and how many locks had been given when it got that.
    thinks: [(u8, usize); BYTES as usize],
    /// What it waits for.
    pending: Option<Lock>,
    requests: VecDeque<(u64, Ask)>,
    replies: VecDeque<(u64, Reply)>,
}

/// What a forwarder asks for, and for whom.
type Asked = (Ask, Option<For>);

#[derive(Clone, Debug)]
struct For {
    client: usize,
    session: u64,
    id: u64,
    /// The client's handle, if that is opened.
    opens: Option<u32>,
}

/// A client's session with a forwarder.
struct Held {
    number: u8,
    /// Those of the forwarder.
    handles: BTreeMap<u32, u32>,
    since: Option<Time>,
    /// What was asked for, and answered.
    known: BTreeMap<u64, Option<Reply>>,
    /// And has come over this connection.
    seen: BTreeSet<u64>,
}

struct Forwarder {
    /// Which client of the server its process is.
    number: usize,
    session: ClientSession<Asked, ()>,
    passed: Passed<u32>,
    held: BTreeMap<usize, Held>,
    last: u8,
    requests: VecDeque<(u64, Asked)>,
    replies: VecDeque<(u64, Reply)>,
    /// Whose the numbers of owners are.
    whose: BTreeMap<u64, usize>,
}

/// What a forwarder's process calls itself.
fn instance(number: usize) -> u64 {
    100 + number as u64
}

fn for_itself(request: Request<'_>, caller: &()) -> Asked {
    (own(request, caller), None)
}

impl Forwarder {
    fn new(server: &mut Server, number: usize) -> Forwarder {
        let (session, _) = server.greet(number, [0; 16]);
        let said = Welcome { instance: server.instance, ..welcome(session) };
        let own: fn(Request<'_>, &()) -> Asked = for_itself;
        Forwarder {
            number,
            session: ClientSession::new(CONFIG, own, said),
            passed: Passed::default(),
            held: BTreeMap::new(),
            last: 0,
            requests: VecDeque::new(),
            replies: VecDeque::new(),
            whose: BTreeMap::new(),
        }
    }

    fn pass(&mut self, handle: u32, lock: Lock, whose: Option<For>, now: Time) {
        submit_lock(&mut self.session, handle, lock, now, |set| (Ask::Lock(set), whose));
    }

    fn give_back(&mut self, all: Vec<(u32, Lock)>, now: Time) {
        all.into_iter().for_each(|(handle, lock)| self.pass(handle, lock, None, now));
    }

    /// Takes in what a client asks for; `None`: it is answered later.
    fn take_in(&mut self, client: usize, id: u64, ask: &Ask, now: Time) -> Option<Reply> {
        let held = self.held.get_mut(&client)?;
        held.seen.insert(id);
        if let Some(known) = held.known.get(&id) {
            return known.clone();
        }
        held.known.insert(id, None);
        let session = u64::from(held.number);
        let whose = |opens| Some(For { client, session, id, opens });
        match ask {
            Ask::Open(handle) => {
                let there = self.session.open_file(b"f", open::READ, ());
                self.session.submit((Ask::Open(there), whose(Some(*handle))), opens(there), now).unwrap();
                None
            }
            Ask::Close(handle) => {
                held.handles.remove(handle);
                Some(Ok(vec![]))
            }
            Ask::Lock(set) => {
                let Some(&there) = held.handles.get(&set.handle) else { return Some(Err(EBADF)) };
                if set.again != 0 && set.lock.kind != lock::NONE {
                    return Some(Err(ESTALE));
                }
                let passed = self.passed.begin(session, FILE, &set.lock, &there).unwrap();
                let Some(passed) = passed else { return Some(Ok(vec![])) };
                self.whose.insert(passed.owner, client);
                self.pass(there, passed, whose(None), now);
                None
            }
        }
    }

    /// Takes in an answer of the server. Returns what a client is answered.
    fn receive(&mut self, now: Time) -> Option<(usize, u64, Reply)> {
        let (id, reply) = self.replies.pop_front()?;
        let answered = self.session.answered(id, reply.as_deref().map_err(|&errno| errno)).unwrap();
        let (ask, Some(For { client, session, id, opens })) = answered.call else { return None };
        let reply = answered.errno.map_or(reply, Err);
        if let Ask::Lock(set) = &ask {
            let outcome = match &reply {
                Ok(_) => Outcome::Done,
                Err(_) if set.lock.kind == lock::NONE => Outcome::Unknown,
                Err(_) => Outcome::Refused,
            };
            let over = self.passed.settle(&set.lock, &set.handle, outcome);
            self.give_back(over, now);
        }
        let held = self.held.get_mut(&client).filter(|held| u64::from(held.number) == session)?;
        if let (Ask::Open(there), Some(handle), Ok(_)) = (&ask, opens, &reply) {
            held.handles.insert(handle, *there);
        }
        held.known.insert(id, Some(reply.clone()));
        held.seen.contains(&id).then_some((client, id, reply))
    }

    fn end(&mut self, client: usize, now: Time) {
        if let Some(held) = self.held.remove(&client) {
            let all = self.passed.end_session(held.number.into());
            self.give_back(all, now);
        }
    }

    fn greet(&mut self, client: usize, shown: [u8; 16], now: Time) -> (u8, bool) {
        match self.held.get_mut(&client) {
            Some(held) if [held.number; 16] == shown => {
                held.since = None;
                held.seen.clear();
                (held.number, true)
            }
            _ => {
                self.end(client, now);
                self.last += 1;
                let (number, handles) = (self.last, BTreeMap::new());
                let (known, seen) = (BTreeMap::new(), BTreeSet::new());
                self.held.insert(client, Held { number, handles, since: None, known, seen });
                (self.last, false)
            }
        }
    }
}

struct World {
    clients: Vec<Client>,
    forwarders: Vec<Forwarder>,
    server: Server,
    /// Whose each lock is that was given.
    given: Vec<(usize, Lock)>,
    processes: usize,
    now: Time,
}

impl World {
    fn new() -> World {
        let mut server = Server::new();
        let now = Time::ZERO;
        let mut forwarders: Vec<_> =
            (0..FORWARDERS).map(|number| Forwarder::new(&mut server, number)).collect();
        let clients = (0..CLIENTS)
            .map(|client| {
                let (number, _) = forwarders[client % FORWARDERS].greet(client, [0; 16], now);
                let said = Welcome { instance: instance(client % FORWARDERS), ..welcome(number) };
                Client {
                    session: ClientSession::new(CONFIG, own as fn(Request<'_>, &()) -> Ask, said),
                    handle: 0,
                    thinks: [(0, 0); BYTES as usize],
                    pending: None,
                    requests: VecDeque::new(),
                    replies: VecDeque::new(),
                }
            })
            .collect();
        let mut world = World { clients, forwarders, server, given: vec![], processes: FORWARDERS, now };
        (0..CLIENTS).for_each(|client| world.open(client));
        world
    }

    fn forwarder(&mut self, client: usize) -> &mut Forwarder {
        &mut self.forwarders[client % FORWARDERS]
    }

    fn open(&mut self, client: usize) {
        let Client { session, handle, .. } = &mut self.clients[client];
        *handle = session.open_file(b"f", open::READ, ());
        session.submit(Ask::Open(*handle), opens(*handle), self.now).unwrap();
    }

    fn ask(&mut self, client: usize, kind: u8, first: u64, last: u64) {
        let Client { session, handle, thinks, pending, .. } = &mut self.clients[client];
        if pending.is_some() {
            return;
        }
        let wish = Lock { kind, owner: 1, first, last, ..Lock::default() };
        for (has, _) in &mut thinks[first as usize..=last as usize] {
            *has = kind.min(*has);
        }
        *pending = Some(wish);
        submit_lock(session, *handle, wish, self.now, Ask::Lock);
    }

    fn send(&mut self, client: usize) {
        let Client { session, requests, .. } = &mut self.clients[client];
        send(session, requests);
    }

    fn take_in(&mut self, client: usize) {
        let now = self.now;
        let Some((id, ask)) = self.clients[client].requests.pop_front() else { return };
        if let Some(reply) = self.forwarder(client).take_in(client, id, &ask, now) {
            let held = self.forwarder(client).held.get_mut(&client).unwrap();
            held.known.insert(id, Some(reply.clone()));
            self.clients[client].replies.push_back((id, reply));
        }
    }

    fn receive(&mut self, client: usize) {
        let it = &mut self.clients[client];
        let Some((id, reply)) = it.replies.pop_front() else { return };
        let answered = it.session.answered(id, reply.as_deref().map_err(|&errno| errno)).unwrap();
        let Ask::Lock(set) = answered.call else { return };
        if set.again != 0 {
            return;
        }
        let wish = it.pending.take().unwrap();
        match answered.errno {
            None => {
                let at = given_up_to(&self.given, client, &wish);
                it.thinks[wish.first as usize..=wish.last as usize].fill((wish.kind, at));
            }
            Some(ESTALE) => {
                it.thinks = [(0, 0); BYTES as usize];
                self.open(client);
            }
            Some(_) => {}
        }
    }

    fn cut(&mut self, client: usize) {
        let it = &mut self.clients[client];
        if it.session.is_connected() {
            it.requests.clear();
            it.replies.clear();
            it.session.lost(self.now);
            let now = self.now;
            if let Some(held) = self.forwarder(client).held.get_mut(&client) {
                held.since = Some(now);
            }
        }
    }

    fn connect(&mut self, client: usize) {
        let now = self.now;
        let Attempt::Connect(shown) = self.clients[client].session.attempt(now) else { return };
        let forwarder = self.forwarder(client);
        let (number, resumes) = forwarder.greet(client, shown, now);
        let said =
            Welcome { resumed: resumes.into(), instance: instance(forwarder.number), ..welcome(number) };
        assert!(self.clients[client].session.connected(said, now).failed.is_empty());
    }

    fn cut_above(&mut self, forwarder: usize) {
        let it = &mut self.forwarders[forwarder];
        if it.session.is_connected() {
            it.requests.clear();
            it.replies.clear();
            it.session.lost(self.now);
            if let Some((.., since)) = self.server.sessions.get_mut(&it.number) {
                *since = Some(self.now);
            }
        }
    }

    fn connect_above(&mut self, forwarder: usize) {
        let it = &mut self.forwarders[forwarder];
        let Attempt::Connect(shown) = it.session.attempt(self.now) else { return };
        let (number, resumes) = self.server.greet(it.number, shown);
        let (resumed, instance) = (resumes.into(), self.server.instance);
        let said = Welcome { resumed, instance, ..welcome(number) };
        assert!(it.session.connected(said, self.now).failed.is_empty());
    }

    fn send_above(&mut self, forwarder: usize) {
        let Forwarder { session, requests, .. } = &mut self.forwarders[forwarder];
        send(session, requests);
    }

    fn carry_out(&mut self, forwarder: usize) {
        let it = &mut self.forwarders[forwarder];
        let Some((id, asked)) = it.requests.pop_front() else { return };
        let before = self.server.given().len();
        let reply = self.server.carry_out(it.number, &asked.0, self.now);
        for (_, lock) in &self.server.given()[before..] {
            // Clients have one owner each.
            self.given.push((it.whose[&lock.owner], Lock { owner: 1, ..*lock }));
        }
        it.replies.push_back((id, reply));
    }

    fn receive_above(&mut self, forwarder: usize) {
        if let Some((client, id, reply)) = self.forwarders[forwarder].receive(self.now)
            && self.clients[client].session.is_connected()
        {
            self.clients[client].replies.push_back((id, reply));
        }
    }

    fn restart(&mut self) {
        (0..FORWARDERS).for_each(|forwarder| self.cut_above(forwarder));
        self.server.restart(self.now);
    }

    /// The server does not know that the new process is the same forwarder's.
    fn restart_forwarder(&mut self, forwarder: usize) {
        self.cut_above(forwarder);
        (0..CLIENTS).filter(|client| client % FORWARDERS == forwarder).for_each(|client| self.cut(client));
        self.forwarders[forwarder] = Forwarder::new(&mut self.server, self.processes);
        self.processes += 1;
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now + Span::from_millis(ms);
        let now = self.now;
        let is_late = |since: Option<Time>| since.is_some_and(|since| now.since(since) >= GRACE);
        for number in 0..self.processes {
            if self.server.sessions.get(&number).is_some_and(|(.., since)| is_late(*since)) {
                self.server.end(number);
            }
        }
        for forwarder in &mut self.forwarders {
            for client in 0..CLIENTS {
                if forwarder.held.get(&client).is_some_and(|held| is_late(held.since)) {
                    forwarder.end(client, now);
                }
            }
        }
    }

    fn run_above(&mut self, forwarder: usize) {
        self.connect_above(forwarder);
        for _ in 0..16 {
            self.send_above(forwarder);
            self.carry_out(forwarder);
            self.receive_above(forwarder);
        }
    }

    fn run(&mut self, client: usize) {
        self.connect(client);
        for _ in 0..4 {
            self.send(client);
            self.take_in(client);
            self.run_above(client % FORWARDERS);
            self.receive(client);
        }
    }

    /// Whether what a client sends would reach the data: its handle is of use, and its forwarder has a word from the server.
    fn reaches_data(&self, client: usize) -> bool {
        let (it, forwarder) = (&self.clients[client], &self.forwarders[client % FORWARDERS]);
        let there = forwarder.held.get(&client).and_then(|held| held.handles.get(&it.handle));
        let session = self.server.sessions.get(&forwarder.number);
        let is_open = there.zip(session).is_some_and(|(there, (_, handles, _))| handles.contains(there));
        let is_up = forwarder.session.is_connected() && !forwarder.session.is_restoring();
        is_open && is_up && it.session.is_connected() && !it.session.is_restoring()
    }

    fn check(&self) {
        for (number, client) in
            self.clients.iter().enumerate().filter(|(number, _)| self.reaches_data(*number))
        {
            for (byte, &(kind, since)) in (0..BYTES).zip(&client.thinks) {
                if kind != lock::NONE {
                    let another = taken_by_another(&self.given[since..], number, byte, kind);
                    assert_eq!(another, None, "byte {byte} of client {number}");
                }
            }
        }
    }

    /// All clients go, and everything comes to an end.
    fn end(&mut self) {
        (0..CLIENTS).for_each(|client| self.cut(client));
        for _ in 0..3 {
            self.wait(50);
            for forwarder in 0..FORWARDERS {
                for _ in 0..40 {
                    self.run_above(forwarder);
                }
            }
        }
        assert!(self.server.locks.is_empty(self.now), "{:?}", self.server.locks);
        assert!((0..FORWARDERS).all(|forwarder| {
            let it = &self.forwarders[forwarder];
            (0..=it.last).all(|session| !it.passed.has(session.into()))
        }));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize, u8, u64, u64),
    Send(usize),
    TakeIn(usize),
    Receive(usize),
    Cut(usize),
    Connect(usize),
    Run(usize),
    SendAbove(usize),
    CarryOut(usize),
    ReceiveAbove(usize),
    CutAbove(usize),
    ConnectAbove(usize),
    RunAbove(usize),
    Restart,
    RestartForwarder(usize),
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    let (client, forwarder) = (|| 0..CLIENTS, || 0..FORWARDERS);
    let asks = (client(), 0..3_u8, 0..BYTES, 0..BYTES)
        .prop_map(|(client, kind, one, other)| Step::Ask(client, kind, one.min(other), one.max(other)));
    prop_oneof![
        prop_oneof![
            8 => asks,
            4 => client().prop_map(Step::Send),
            4 => client().prop_map(Step::TakeIn),
            4 => client().prop_map(Step::Receive),
            1 => client().prop_map(Step::Cut),
            2 => client().prop_map(Step::Connect),
            12 => client().prop_map(Step::Run),
        ],
        prop_oneof![
            4 => forwarder().prop_map(Step::SendAbove),
            4 => forwarder().prop_map(Step::CarryOut),
            4 => forwarder().prop_map(Step::ReceiveAbove),
            1 => forwarder().prop_map(Step::CutAbove),
            2 => forwarder().prop_map(Step::ConnectAbove),
            4 => forwarder().prop_map(Step::RunAbove),
            1 => Just(Step::Restart),
            1 => forwarder().prop_map(Step::RestartForwarder),
            2 => prop_oneof![1..20_u64, Just(50)].prop_map(Step::Wait),
        ],
    ]
}

#[test]
fn who_was_away_for_too_long_has_lost_its_lock() {
    let mut world = World::new();
    (0..2).for_each(|client| world.run(client));
    world.ask(0, lock::EXCLUSIVE, 0, 0);
    world.run(0);
    assert!(world.reaches_data(0) && world.clients[0].thinks[0].0 == lock::EXCLUSIVE);
    world.cut_above(0);
    world.wait(50);
    world.ask(1, lock::EXCLUSIVE, 0, 0);
    world.run(1);
    assert_eq!(world.given.len(), 2);
    world.run_above(0);
    assert!(!world.reaches_data(0));
}

#[test]
fn the_lock_of_a_forwarder_that_was_started_again_is_lost() {
    let mut world = World::new();
    (0..2).for_each(|client| world.run(client));
    world.ask(0, lock::EXCLUSIVE, 0, 0);
    world.run(0);
    world.restart_forwarder(0);
    world.wait(50);
    for kind in [lock::EXCLUSIVE, lock::NONE] {
        world.ask(1, kind, 0, 0);
        world.run(1);
    }
    assert_eq!(world.given.len(), 3);
    // It is free, and was another's.
    world.run(0);
    assert!(world.clients[0].session.is_connected() && !world.reaches_data(0));
}

proptest! {
    #[test]
    fn no_two_clients_have_one_lock(steps in prop::collection::vec(steps(), 1..400)) {
        let mut world = World::new();
        for step in steps {
            match step {
                Step::Ask(client, kind, first, last) => world.ask(client, kind, first, last),
                Step::Send(client) => world.send(client),
                Step::TakeIn(client) => world.take_in(client),
                Step::Receive(client) => world.receive(client),
                Step::Cut(client) => world.cut(client),
                Step::Connect(client) => world.connect(client),
                Step::Run(client) => world.run(client),
                Step::SendAbove(forwarder) => world.send_above(forwarder),
                Step::CarryOut(forwarder) => world.carry_out(forwarder),
                Step::ReceiveAbove(forwarder) => world.receive_above(forwarder),
                Step::CutAbove(forwarder) => world.cut_above(forwarder),
                Step::ConnectAbove(forwarder) => world.connect_above(forwarder),
                Step::RunAbove(forwarder) => world.run_above(forwarder),
                Step::Restart => world.restart(),
                Step::RestartForwarder(forwarder) => world.restart_forwarder(forwarder),
                Step::Wait(ms) => world.wait(ms),
            }
            world.check();
        }
        world.end();
    }
}
