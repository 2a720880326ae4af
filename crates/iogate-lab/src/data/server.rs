//! A server's sessions and its answers, on the real [`Window`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iogate_core::answers::Key;
use iogate_core::proto::window::{Admitted, Window};
use iogate_core::wire::{
    Identity, REQUEST_HEADER_BYTES, Record, ReplyHeader, Request, RequestHeader, Written, transfer,
};
use iogate_testkit::data::Event as Happened;
use iogate_vfs::{Caller, Tree};

use super::Planted;
use super::carry_out::{self, Asked, Handles, Outcome};
use super::client::CREDITS;
use super::disk::Disk;
use super::net::{Event, MS, Net, SECOND, Sent, US};
use super::sim_tree::SimTree;

/// A machine that serves a directory.
pub(super) struct Server {
    number: usize,
    disk: Arc<Mutex<Disk>>,
    /// What runs, if it does.
    tree: Option<SimTree>,
    /// Processes there have been.
    life: u64,
    sessions: BTreeMap<[u8; 16], Session>,
    /// By connection, what has come and has not been read.
    buffers: BTreeMap<u64, VecDeque<Sent>>,
    /// Whose connections they are.
    sessions_of: BTreeMap<u64, [u8; 16]>,
    /// What it remembers of requests with an origin, beside its disk; and by what clients know that it does.
    known: BTreeMap<Key, Outcome>,
    answers: u64,
    stopped_until: u64,
    /// It is killed when it has carried out the next request that changes something, before it answers.
    kills_next: bool,
    /// The longest that a request waits, in normal times.
    pub(super) is_slow: bool,
    failed_syncs: u64,
    /// Of [`Planted::OldEnd`] and [`Planted::OldEndAfterCut`]: by file, where the next record goes, and how many are underway.
    underway: HashMap<Identity, (u64, u32)>,
}

struct Session {
    client: [u8; 16],
    window: Window<Vec<u8>>,
    handles: Handles,
    wire: Option<u64>,
    /// How often it has lost its connection.
    losses: u64,
    /// The beginning of a message.
    left: Vec<u8>,
    queue: BTreeMap<u64, Job>,
}

struct Job {
    asked: Asked,
    key: Option<Key>,
    /// Where a record goes, if that is decided when it comes.
    place: Option<(Identity, u64)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    pub(super) fn new(number: usize, disk: Disk) -> Server {
        Server {
            number,
            disk: Arc::new(Mutex::new(disk)),
            tree: None,
            life: 0,
            sessions: BTreeMap::new(),
            buffers: BTreeMap::new(),
            sessions_of: BTreeMap::new(),
            known: BTreeMap::new(),
            answers: 1,
            stopped_until: 0,
            kills_next: false,
            is_slow: false,
            failed_syncs: 0,
            underway: HashMap::new(),
        }
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        lock(&self.disk)
    }

    /// Others take up the room of its disk, but for so much.
    pub(super) fn leave_room(&mut self, net: &mut Net, bytes: usize) {
        let mut disk = lock(&self.disk);
        disk.room = disk.used().saturating_add(bytes);
        net.note(|| format!("server {} has {bytes} bytes of room", self.number));
    }

    pub(super) fn start(&mut self, net: &mut Net) {
        net.note(|| format!("server {} starts", self.number));
        self.tree = Some(SimTree::new(Arc::clone(&self.disk)));
    }

    /// Ends at once; with `crashes`, so does its machine.
    pub(super) fn kill(&mut self, net: &mut Net, crashes: bool) {
        if self.tree.take().is_none() {
            return;
        }
        net.note(|| format!("server {} is killed, its machine crashes: {crashes}", self.number));
        net.report.kills += 1;
        net.report.crashes += u64::from(crashes);
        self.life += 1;
        for wire in std::mem::take(&mut self.buffers).into_keys() {
            net.send_client(wire, Sent::End);
        }
        self.sessions_of.clear();
        self.underway.clear();
        (self.stopped_until, self.kills_next) = (0, false);
        net.dropped.push(Box::new(std::mem::take(&mut self.sessions)));
        if crashes {
            lock(&self.disk).reboot();
            self.known.clear();
            self.answers += 1;
            net.happened(&Happened::Loss);
        } else {
            lock(&self.disk).killed();
        }
        let pause = net.rng.between(MS, 2 * SECOND);
        net.at(net.now + pause, Event::Start(self.number));
    }

    pub(super) fn stop(&mut self, net: &mut Net, until: u64) {
        net.note(|| format!("server {} is stopped", self.number));
        self.stopped_until = until;
    }

    pub(super) fn kill_after_next(&mut self) {
        self.kills_next = true;
    }

    /// Nothing is wrong with it any more.
    pub(super) fn heal(&mut self) {
        (self.kills_next, self.is_slow) = (false, false);
        let mut disk = lock(&self.disk);
        (disk.failing, disk.crowded, disk.room) = (0, 0, usize::MAX);
    }

    /// Something has come by a connection.
    pub(super) fn arrives(&mut self, net: &mut Net, wire: u64, sent: Sent) {
        if self.tree.is_none() {
            return net.send_client(wire, Sent::End);
        }
        self.buffers.entry(wire).or_default().push_back(sent);
        let soon = net.now.max(self.stopped_until) + net.rng.between(10 * US, MS);
        net.at(soon, Event::Take(self.number, self.life, wire));
    }

    /// Whether the peer of a connection has closed it, as its system knows, whether it has read all before that or not.
    fn is_closed(&self, wire: u64) -> bool {
        let buffer = self.buffers.get(&wire);
        buffer.is_none_or(|buffer| buffer.iter().any(|sent| matches!(sent, Sent::End)))
    }

    /// Reads what has come by a connection. Of one that is closed, nothing more is taken in.
    pub(super) fn take(&mut self, net: &mut Net, life: u64, wire: u64) {
        if life != self.life || self.tree.is_none() {
            return;
        }
        if net.now < self.stopped_until {
            let later = self.stopped_until + net.rng.between(10 * US, 5 * MS);
            return net.at(later, Event::Take(self.number, life, wire));
        }
        let is_closed = self.is_closed(wire);
        let Some(buffer) = self.buffers.get_mut(&wire) else { return };
        let sent = std::mem::take(buffer);
        let takes = !is_closed || net.planted == Some(Planted::NoFence);
        let mut is_right = true;
        for sent in sent.into_iter().filter(|_| takes) {
            is_right &= match sent {
                Sent::Hello(shown, client) => self.enter(net, wire, shown, client),
                Sent::Bytes(bytes) => self.receive(net, wire, &bytes),
                Sent::End | Sent::Welcome(..) => true,
            };
        }
        if is_closed || !is_right {
            self.close(net, wire);
        }
    }

    /// A client connects.
    fn enter(&mut self, net: &mut Net, wire: u64, shown: [u8; 16], client: [u8; 16]) -> bool {
        let Some(verifier) = self.tree.as_ref().map(SimTree::verifier) else { return false };
        let is_resumed = self.sessions.get(&shown).is_some_and(|session| session.client == client);
        let secret = if is_resumed { shown } else { net.name() };
        let before = self.sessions.get(&secret).and_then(|session| session.wire);
        if let Some(before) = before {
            self.close(net, before);
        }
        let session = self.sessions.entry(secret).or_insert_with(|| Session {
            client,
            window: Window::new(CREDITS),
            handles: Handles::default(),
            wire: None,
            losses: 0,
            left: Vec::new(),
            queue: BTreeMap::new(),
        });
        session.wire = Some(wire);
        session.left.clear();
        if is_resumed {
            session.window.reconnect();
        }
        self.sessions_of.insert(wire, secret);
        net.send_client(wire, Sent::Welcome(secret, is_resumed, self.answers, verifier));
        true
    }

    /// The connection is over.
    fn close(&mut self, net: &mut Net, wire: u64) {
        self.buffers.remove(&wire);
        net.send_client(wire, Sent::End);
        let Some(secret) = self.sessions_of.remove(&wire) else { return };
        let Some(session) = self.sessions.get_mut(&secret) else { return };
        if session.wire == Some(wire) {
            (session.wire, session.losses) = (None, session.losses + 1);
            let over = net.now + 20 * SECOND;
            net.at(over, Event::Expire(self.number, secret, session.losses));
        }
    }

    /// A session without a connection is over.
    pub(super) fn expire(&mut self, net: &mut Net, secret: [u8; 16], losses: u64) {
        if self
            .sessions
            .get(&secret)
            .is_some_and(|session| session.wire.is_none() && session.losses == losses)
        {
            net.dropped.push(Box::new(self.sessions.remove(&secret)));
        }
    }

    /// Bytes have been read.
    fn receive(&mut self, net: &mut Net, wire: u64, bytes: &[u8]) -> bool {
        let Some(&secret) = self.sessions_of.get(&wire) else { return false };
        let Some(session) = self.sessions.get_mut(&secret) else { return false };
        session.left.extend_from_slice(bytes);
        loop {
            let Some(session) = self.sessions.get_mut(&secret) else { return false };
            let Some(header) = session.left.first_chunk::<REQUEST_HEADER_BYTES>() else { return true };
            let Ok(header) = RequestHeader::from_bytes(header) else {
                net.found("a request's header cannot be read");
                return false;
            };
            let payload = REQUEST_HEADER_BYTES + usize::from(header.fields);
            let end = payload + header.payload as usize;
            if session.left.len() < end {
                return true;
            }
            let message: Vec<u8> = session.left.drain(..end).collect();
            let caller = Caller::new(header.uid, header.gid).with_origin(header.origin);
            let fields = message[REQUEST_HEADER_BYTES..payload].to_vec();
            let asked = Asked { kind: header.kind, fields, payload: message[payload..].to_vec(), caller };
            match session.window.admit(header.id, header.acked) {
                Ok(Admitted::New) => self.admit(net, secret, header.id, asked),
                Ok(Admitted::InFlight) => {}
                Ok(Admitted::Done(reply)) => net.send_client(wire, Sent::Bytes(reply.clone())),
                Err(violation) => {
                    net.found(&format!("a client violates the protocol: {violation}"));
                    return false;
                }
            }
        }
    }

    /// A request waits until somebody carries it out.
    fn admit(&mut self, net: &mut Net, secret: [u8; 16], id: u64, asked: Asked) {
        let place = self.old_place(net.planted, secret, &asked);
        let Some(session) = self.sessions.get_mut(&secret) else { return };
        let key = Key::of(asked.caller.uid, &asked.caller.origin);
        session.queue.insert(id, Job { asked, key, place });
        let most = if self.is_slow && net.rng.below(20) == 0 { SECOND } else { MS };
        let soon = net.now + net.rng.between(5 * US, most);
        net.at(soon, Event::CarryOut(self.number, self.life, secret, id));
    }

    /// Of planted defects: where a record goes, decided when it comes.
    fn old_place(
        &mut self,
        planted: Option<Planted>,
        secret: [u8; 16],
        asked: &Asked,
    ) -> Option<(Identity, u64)> {
        let follows_cut = match planted {
            Some(Planted::OldEnd) => false,
            Some(Planted::OldEndAfterCut) => true,
            _ => return None,
        };
        let Ok(Request::Write(write)) = Request::decode(asked.kind, &asked.fields) else { return None };
        let handles = &self.sessions.get(&secret)?.handles;
        let file =
            carry_out::file(handles, write.handle).ok().filter(|_| write.flags & transfer::APPEND != 0)?;
        let (identity, size) = (file.identity(), file.attr().ok()?.size);
        let (end, underway) = self.underway.entry(identity).or_default();
        let place = match *underway {
            0 => size,
            _ if follows_cut => size.max(*end),
            _ => *end,
        };
        (*end, *underway) = (place + asked.payload.len() as u64, *underway + 1);
        Some((identity, place))
    }

    /// A request's turn has come.
    pub(super) fn carry_out(&mut self, net: &mut Net, life: u64, secret: [u8; 16], id: u64) {
        if life != self.life {
            return;
        }
        if net.now < self.stopped_until {
            let later = self.stopped_until + net.rng.between(10 * US, 5 * MS);
            return net.at(later, Event::CarryOut(self.number, life, secret, id));
        }
        let wire = self.sessions.get(&secret).and_then(|session| session.wire);
        let is_wanted =
            wire.is_some_and(|wire| !self.is_closed(wire)) || net.planted == Some(Planted::NoFence);
        let Some(session) = self.sessions.get_mut(&secret) else { return };
        let Some(job) = session.queue.remove(&id) else { return };
        if let Some((identity, _)) = job.place
            && let Some((_, underway)) = self.underway.get_mut(&identity)
        {
            *underway -= 1;
        }
        if !is_wanted {
            return session.window.forget(id);
        }
        let outcome = match job.key.and_then(|key| self.known.get(&key)) {
            Some(outcome) => outcome.clone(),
            None => self.do_now(net, secret, &job),
        };
        let changes = !matches!(job.asked.kind, 12 | 14 | 16 | 20 | 21);
        if changes && self.kills_next {
            self.kill(net, false);
            return;
        }
        self.answer(net, secret, id, &outcome, changes);
    }

    /// Carries out a request, and notes what became of it.
    fn do_now(&mut self, net: &mut Net, secret: [u8; 16], job: &Job) -> Outcome {
        let (Some(tree), Some(session)) = (&self.tree, self.sessions.get(&secret)) else {
            return Err(libc::EIO);
        };
        let handles = Arc::clone(&session.handles);
        let outcome = if job.asked.kind == Request::OPEN {
            carry_out::open(tree, &handles, &job.asked, false)
        } else if let Some((_, place)) = job.place {
            write_at(tree, &handles, &job.asked, place)
        } else {
            carry_out::carry_out(tree, &handles, &job.asked, net.planted == Some(Planted::Moves))
        };
        if let Some(key) = job.key {
            self.known.insert(key, outcome.clone());
        }
        let failed_syncs = lock(&self.disk).failed_syncs;
        if std::mem::replace(&mut self.failed_syncs, failed_syncs) != failed_syncs {
            net.happened(&Happened::Loss);
        }
        outcome
    }

    /// Answers a request; a reply that is `kept` is sent again if the request is.
    fn answer(&mut self, net: &mut Net, secret: [u8; 16], id: u64, outcome: &Outcome, is_kept: bool) {
        let (errno, fields, payload) = match outcome {
            Ok(reply) => (0, &reply.fields[..], &reply.payload[..]),
            Err(errno) => (*errno as u16, &[][..], &[][..]),
        };
        let header = ReplyHeader { fields: fields.len() as u16, payload: payload.len() as u32, errno, id };
        let bytes = [&header.to_bytes()[..], fields, payload].concat();
        let Some(session) = self.sessions.get_mut(&secret) else { return };
        if session.window.finish(id, is_kept.then(|| bytes.clone()))
            && let Some(wire) = session.wire
        {
            net.send_client(wire, Sent::Bytes(bytes));
        }
    }
}

/// Of planted defects: writes a record where its place was.
fn write_at(tree: &SimTree, handles: &Handles, asked: &Asked, place: u64) -> Outcome {
    let Ok(Request::Write(write)) = Request::decode(asked.kind, &asked.fields) else {
        return Err(libc::EPROTO);
    };
    let request = Request::Write(iogate_core::wire::Transfer { flags: 0, offset: place, ..write });
    let mut fields = Vec::new();
    request.encode(&mut fields);
    let reply = carry_out::carry_out(tree, handles, &Asked { fields, ..asked.clone() }, false)?;
    match Written::decode(&reply.fields) {
        Ok(written) if written.bytes as usize == asked.payload.len() => Ok(reply),
        _ => Err(libc::ENOSPC),
    }
}
