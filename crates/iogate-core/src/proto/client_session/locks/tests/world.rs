//! Clients and a server whose connections are cut, sessions forgotten and process started anew at random: no two clients believe to have
//! locks that do not go together, and nobody goes on with one that another has had meanwhile. The same with two servers of one file, which
//! take on it what their clients have.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::rc::Rc;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::mem;

use proptest::prelude::*;

use super::{
    CONFIG, EBADF, ESTALE, given_up_to, opened, opens, send, submit_lock, taken_by_another, welcome,
};
use crate::file_locks::{ByteRange, Denied, FileLocks, From, Held, RangeLocks, asked};
use crate::proto::client_session::{Attempt, ClientSession, SessionConfig};
use crate::wire::{Identity, Lock, Request, SetLock, Welcome, lock, open};
use crate::{Span, Time};

const CLIENTS: usize = 3;
pub(super) const BYTES: u64 = 3;
pub(super) const FILE: Identity = Identity { inode: 3, generation: 0 };
/// How long a server keeps sessions, and locks after a restart.
pub(super) const GRACE: Span = Span::from_millis(50);

#[derive(Clone, Debug)]
pub(super) enum Ask {
    Open(u32),
    Close(u32),
    Lock(SetLock),
}

pub(super) fn own(request: Request<'_>, (): &()) -> Ask {
    match request {
        Request::Open(open) => Ask::Open(open.handle),
        Request::Close(close) => Ask::Close(close.handle),
        Request::SetLock(set) => Ask::Lock(set),
        other => panic!("a session asks for {other:?}"),
    }
}

struct Client {
    session: ClientSession<Ask, ()>,
    handle: u32,
    /// What it has been given, byte by byte.
    believes: [u8; BYTES as usize],
    /// The same, but for what it cannot know; and how many locks had been given when it got that.
    thinks: [(u8, usize); BYTES as usize],
    /// What it waits for, and has been told of what it asked for.
    pending: Option<Lock>,
    requests: VecDeque<(u64, Ask)>,
    replies: VecDeque<(u64, Result<Vec<u8>, i32>)>,
}

#[derive(Default)]
pub(super) struct Server {
    pub(super) locks: FileLocks,
    pub(super) instance: u64,
    grace_ends: Time,
    /// Of a client: its session, which handles are open in it, and since when nobody is connected to it.
    pub(super) sessions: BTreeMap<usize, (u8, Vec<u32>, Option<Time>)>,
    /// What the servers have of the file.
    file: Rc<RefCell<Taken>>,
    /// Which of them this is.
    number: usize,
    last: u8,
}

/// What is locked on the file, past any server.
#[derive(Default)]
struct Taken {
    /// By which server.
    held: RangeLocks<usize>,
    /// All that was ever given, and to whom.
    given: Vec<(usize, Lock)>,
}

impl Server {
    pub(super) fn carry_out(&mut self, client: usize, ask: &Ask, now: Time) -> Result<Vec<u8>, i32> {
        let (number, handles, _) = self.sessions.get_mut(&client).unwrap();
        match ask {
            Ask::Open(handle) => {
                handles.push(*handle);
                Ok(opened(FILE.inode))
            }
            Ask::Close(handle) => {
                handles.retain(|open| open != handle);
                Ok(vec![])
            }
            Ask::Lock(set) if !handles.contains(&set.handle) => Err(EBADF),
            Ask::Lock(set) => {
                if set.lock.kind != lock::NONE && set.again == 0 && !self.locks.is_grace(now) {
                    self.locks.gives();
                }
                let number = u64::from(*number);
                // Sessions are named by their numbers.
                let again = (set.again != 0).then_some((set.again, set.session & 0xff));
                match self.set(now, number, &set.lock, again) {
                    Ok(()) => {
                        self.file.borrow_mut().given.push((client, set.lock));
                        Ok(vec![])
                    }
                    Err(Denied::Held(_) | Denied::Outside) => Err(11),
                    Err(Denied::Grace) => Err(16),
                    Err(Denied::Lost) => Err(ESTALE),
                    Err(other) => panic!("{other:?}"),
                }
            }
        }
    }

    /// As the shell does: what is given is taken on the file before.
    fn set(&mut self, now: Time, session: u64, wish: &Lock, again: Option<From>) -> Result<(), Denied> {
        let (_, kind, range) = asked(wish).unwrap();
        self.locks.may(now, session, FILE, wish, again)?;
        if let Some(kind) = kind {
            let wanted = Held { owner: self.number, kind, range, process: 0 };
            self.file.borrow_mut().held.lock(wanted).map_err(|_| Denied::Outside)?;
        }
        self.locks.set(now, session, FILE, wish, again)?;
        self.take_together(range);
        Ok(())
    }

    fn take_together(&mut self, range: ByteRange) {
        let held = &mut self.file.borrow_mut().held;
        for (kind, range) in self.locks.together(FILE, 0, range) {
            match kind {
                Some(kind) => held.lock(Held { owner: self.number, kind, range, process: 0 }).unwrap(),
                None => held.unlock(self.number, range),
            }
        }
    }

    /// All that was ever given, by whichever server.
    pub(super) fn given(&self) -> Vec<(usize, Lock)> {
        self.file.borrow().given.clone()
    }

    /// The number of the session that goes on, or of a new one.
    pub(super) fn greet(&mut self, client: usize, shown: [u8; 16]) -> (u8, bool) {
        match self.sessions.get_mut(&client) {
            Some((number, _, since)) if [*number; 16] == shown => {
                *since = None;
                (*number, true)
            }
            _ => {
                self.end(client);
                self.last += 1;
                self.sessions.insert(client, (self.last, vec![], None));
                (self.last, false)
            }
        }
    }

    pub(super) fn end(&mut self, client: usize) {
        if let Some((number, ..)) = self.sessions.remove(&client) {
            self.locks.ends(number.into());
            self.locks.end_session(number.into());
            self.take_together(ByteRange::ALL);
        }
    }
}

impl Server {
    pub(super) fn new() -> Server {
        Server { locks: FileLocks::begin(1, None, Time::ZERO), instance: 1, ..Server::default() }
    }

    /// Another process.
    pub(super) fn restart(&mut self, now: Time) {
        let before = mem::take(self);
        let grace_ends = now + GRACE;
        let instance = before.instance + 1;
        let locks = FileLocks::begin(instance, before.locks.note().cloned(), grace_ends);
        let Server { last, file, number, .. } = before;
        // The kernel gives them back.
        file.borrow_mut().held.release(|owner| owner == number);
        *self = Server { locks, instance, grace_ends, last, file, number, sessions: BTreeMap::new() };
    }
}

struct World {
    clients: Vec<Client>,
    /// Of one file. Clients use them in turn.
    servers: Vec<Server>,
    now: Time,
}

impl World {
    fn new() -> World {
        World::of(1)
    }

    /// With so many servers.
    fn of(servers: usize) -> World {
        let file: Rc<RefCell<Taken>> = Rc::default();
        let server = |number| Server { file: Rc::clone(&file), number, ..Server::new() };
        let mut servers: Vec<Server> = (0..servers).map(server).collect();
        let config = SessionConfig { has_rivals: servers.len() > 1, ..CONFIG };
        let clients = (0..CLIENTS)
            .map(|client| {
                let count = servers.len();
                let (number, _) = servers[client % count].greet(client, [0; 16]);
                let said = Welcome { instance: 1, ..welcome(number) };
                let session = ClientSession::new(config, own as fn(Request<'_>, &()) -> Ask, said);
                Client {
                    session,
                    handle: 0,
                    believes: [0; BYTES as usize],
                    thinks: [(0, 0); BYTES as usize],
                    pending: None,
                    requests: VecDeque::new(),
                    replies: VecDeque::new(),
                }
            })
            .collect();
        let mut world = World { clients, servers, now: Time::ZERO };
        (0..CLIENTS).for_each(|client| world.open(client));
        world
    }

    /// The one that a client uses.
    fn server(&mut self, client: usize) -> &mut Server {
        let count = self.servers.len();
        &mut self.servers[client % count]
    }

    fn open(&mut self, client: usize) {
        let Client { session, handle, .. } = &mut self.clients[client];
        *handle = session.open_file(b"f", open::READ, ());
        session.submit(Ask::Open(*handle), opens(*handle), self.now).unwrap();
    }

    /// Asks for a lock, if the client waits for nothing.
    fn ask(&mut self, client: usize, kind: u8, first: u64, last: u64) {
        let Client { session, handle, believes, thinks, pending, .. } = &mut self.clients[client];
        if pending.is_some() {
            return;
        }
        let wish = Lock { kind, owner: 1, first, last, ..Lock::default() };
        for byte in first as usize..=last as usize {
            // From now on others may have it, or share it.
            believes[byte] = believes[byte].min(kind);
            thinks[byte].0 = thinks[byte].0.min(kind);
        }
        *pending = Some(wish);
        submit_lock(session, *handle, wish, self.now, Ask::Lock);
    }

    fn send(&mut self, client: usize) {
        let Client { session, requests, .. } = &mut self.clients[client];
        send(session, requests);
    }

    fn carry_out(&mut self, client: usize) {
        let Some((id, ask)) = self.clients[client].requests.pop_front() else { return };
        let now = self.now;
        let reply = self.server(client).carry_out(client, &ask, now);
        self.clients[client].replies.push_back((id, reply));
    }

    fn receive(&mut self, client: usize) {
        let given = self.servers[0].given();
        let it = &mut self.clients[client];
        let Some((id, reply)) = it.replies.pop_front() else { return };
        let answered = it.session.answered(id, reply.as_deref().map_err(|&errno| errno)).unwrap();
        let Ask::Lock(set) = answered.call else { return };
        if set.again != 0 {
            // A program hears nothing of that.
            return;
        }
        let wish = it.pending.take().unwrap();
        match answered.errno {
            None => {
                let range = wish.first as usize..=wish.last as usize;
                it.believes[range.clone()].fill(wish.kind);
                let at = given_up_to(&given, client, &wish);
                // What was not taken away meanwhile is had for as long as it was.
                it.thinks[range].fill((wish.kind, at));
            }
            Some(ESTALE) => self.gives_up(client),
            Some(_) => {}
        }
    }

    /// It has lost its locks, and begins with another handle.
    fn gives_up(&mut self, client: usize) {
        self.clients[client].believes = [0; BYTES as usize];
        self.clients[client].thinks = [(0, 0); BYTES as usize];
        if self.clients[client].pending.is_none() {
            self.open(client);
        }
    }

    fn cut(&mut self, client: usize) {
        let it = &mut self.clients[client];
        if it.session.is_connected() {
            it.requests.clear();
            it.replies.clear();
            it.session.lost(self.now);
            let now = self.now;
            if let Some((.., since)) = self.server(client).sessions.get_mut(&client) {
                *since = Some(now);
            }
        }
    }

    fn connect(&mut self, client: usize) {
        let now = self.now;
        let Attempt::Connect(shown) = self.clients[client].session.attempt(now) else { return };
        let server = self.server(client);
        let (number, resumes) = server.greet(client, shown);
        let (resumed, instance) = (resumes.into(), server.instance);
        let said = Welcome { resumed, instance, ..welcome(number) };
        assert!(self.clients[client].session.connected(said, now).failed.is_empty());
    }

    fn restart(&mut self, server: usize) {
        let (count, now) = (self.servers.len(), self.now);
        for client in (0..CLIENTS).filter(|client| client % count == server) {
            self.cut(client);
            // Another server knows of no grace.
            if count > 1 {
                self.clients[client].believes = [0; BYTES as usize];
            }
        }
        self.servers[server].restart(now);
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now + Span::from_millis(ms);
        for client in 0..CLIENTS {
            let (now, server) = (self.now, self.server(client));
            let since = server.sessions.get(&client).and_then(|(.., since)| *since);
            if since.is_some_and(|since| now.since(since) >= GRACE) {
                server.end(client);
            }
            // Who has been away for so long, or has not asked again in time, believes in vain.
            let (is_away, is_over) = (!server.sessions.contains_key(&client), now >= server.grace_ends);
            if is_over && (is_away || self.clients[client].session.is_restoring()) {
                self.clients[client].believes = [0; BYTES as usize];
            }
        }
    }

    fn run(&mut self, client: usize) {
        self.connect(client);
        for _ in 0..8 {
            self.send(client);
            self.carry_out(client);
            self.receive(client);
        }
    }

    /// Whether a client's file is of use.
    fn has_open(&self, client: usize) -> bool {
        let session = self.servers[client % self.servers.len()].sessions.get(&client);
        session.is_some_and(|(_, handles, _)| handles.contains(&self.clients[client].handle))
    }

    fn check(&self) {
        let given = self.servers[0].given();
        for byte in 0..BYTES as usize {
            let all = self.clients.iter().map(|client| client.believes[byte]);
            let exclusive = all.clone().filter(|&kind| kind == lock::EXCLUSIVE).count();
            let shared = all.filter(|&kind| kind == lock::SHARED).count();
            assert!(exclusive == 0 || exclusive + shared == 1, "byte {byte}: {exclusive} and {shared}");
            for (number, client) in self.clients.iter().enumerate() {
                let (kind, since) = client.thinks[byte];
                let is_open = self.has_open(number);
                let is_live = is_open && client.session.is_connected() && !client.session.is_restoring();
                if kind == lock::NONE || !is_live {
                    continue;
                }
                let another = taken_by_another(&given[since..], number, byte as u64, kind);
                assert_eq!(another, None, "byte {byte} of client {number}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask(usize, u8, u64, u64),
    Send(usize),
    CarryOut(usize),
    Receive(usize),
    Cut(usize),
    Connect(usize),
    Restart(usize),
    Wait(u64),
    /// All of it for one client, while the others do nothing.
    Run(usize),
}

fn steps() -> impl Strategy<Value = Step> {
    let client = || 0..CLIENTS;
    prop_oneof![
        6 => (client(), 0..3_u8, 0..BYTES, 0..BYTES)
            .prop_map(|(client, kind, one, other)| Step::Ask(client, kind, one.min(other), one.max(other))),
        10 => client().prop_map(Step::Send),
        10 => client().prop_map(Step::CarryOut),
        10 => client().prop_map(Step::Receive),
        2 => client().prop_map(Step::Cut),
        6 => client().prop_map(Step::Connect),
        2 => (0..2_usize).prop_map(Step::Restart),
        3 => (1..20_u64).prop_map(Step::Wait),
        12 => client().prop_map(Step::Run),
    ]
}

/// Client 0 has a lock and is away until its session has ended; client 1 has the lock meanwhile, and gives it back.
fn taken_meanwhile() -> World {
    let mut world = World::new();
    world.run(0);
    world.ask(0, lock::EXCLUSIVE, 0, 0);
    world.run(0);
    assert!(world.has_open(0));
    world.cut(0);
    world.wait(50);
    for kind in [lock::EXCLUSIVE, lock::NONE] {
        world.ask(1, kind, 0, 0);
        world.run(1);
    }
    assert_eq!(world.servers[0].given().len(), 3);
    world
}

#[test]
fn who_was_away_for_too_long_has_lost_its_lock() {
    let mut world = taken_meanwhile();
    world.run(0);
    assert!(!world.has_open(0));
}

#[test]
fn who_was_away_for_too_long_has_lost_its_lock_though_the_server_is_started_anew() {
    let mut world = taken_meanwhile();
    world.restart(0);
    world.run(0);
    assert!(!world.has_open(0));
}

/// Client 0 has a lock when its server is started anew; client 1 has it from another server meanwhile, which knows of no grace.
#[test]
fn who_comes_back_to_one_of_several_servers_has_lost_its_lock() {
    let mut world = World::of(2);
    (0..2).for_each(|client| world.run(client));
    world.ask(0, lock::EXCLUSIVE, 0, 0);
    world.run(0);
    world.ask(1, lock::EXCLUSIVE, 0, 0);
    world.run(1);
    assert_eq!(world.clients[1].believes[0], lock::NONE, "it is client 0's");
    world.restart(0);
    for kind in [lock::EXCLUSIVE, lock::NONE] {
        world.ask(1, kind, 0, 0);
        world.run(1);
    }
    assert_eq!(world.servers[0].given().len(), 3);
    world.run(0);
    assert!(!world.has_open(0));
}

proptest! {
    #[test]
    fn no_two_clients_have_one_lock(steps in prop::collection::vec(steps(), 1..400)) {
        World::new().follow(steps);
    }

    #[test]
    fn no_two_clients_of_two_servers_have_one_lock(steps in prop::collection::vec(steps(), 1..400)) {
        World::of(2).follow(steps);
    }
}

impl World {
    fn follow(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Ask(client, kind, first, last) => self.ask(client, kind, first, last),
                Step::Send(client) => self.send(client),
                Step::CarryOut(client) => self.carry_out(client),
                Step::Receive(client) => self.receive(client),
                Step::Cut(client) => self.cut(client),
                Step::Connect(client) => self.connect(client),
                Step::Restart(server) => self.restart(server % self.servers.len()),
                Step::Wait(ms) => self.wait(ms),
                Step::Run(client) => self.run(client),
            }
            self.check();
        }
    }
}
