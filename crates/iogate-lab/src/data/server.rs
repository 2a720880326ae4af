//! A server: what its shell does around the real [`ServerSession`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use iogate_core::answers::Key;
use iogate_core::proto::client_session::Demand;
use iogate_core::proto::server_session::{
    Admission, CachedReply, GivenUp, Owed, ServerSession, SessionLimits,
};
use iogate_core::wire::{
    Identity, Kind, NO_HANDLE, Open, REQUEST_HEADER_BYTES, Record, ReplyHeader, Request, RequestHeader,
    Transfer, Written, open, transfer,
};
use iogate_core::{Span, Time};
use iogate_engine::lock;
use iogate_testkit::data::Event as Happened;
use iogate_vfs::fence::{Fences, Pass};
use iogate_vfs::{Caller, Tree};

use super::Planted;
use super::client::{CREDIT_BYTES, CREDITS, welcome};
use super::disk::Disk;
use super::ends::{EndsHere, Given};
use super::network::{Event, MS, Net, SECOND, Sent, US};
use super::operations::{self, Asked, OpenFile, Outcome, Reply};
use super::sim_tree::SimTree;

/// How long a session without a connection is kept.
const GRACE: Span = Span::from_secs(20);
/// How often it looks who waits for too long.
const ROUND: u64 = 100 * MS;

/// What a client has there.
pub(super) type Machine = ServerSession<Arc<OpenFile>, u64, Given>;

/// A machine that serves a directory.
pub(super) struct Server {
    number: usize,
    disk: Arc<Mutex<Disk>>,
    /// What runs, if it does.
    tree: Option<SimTree>,
    /// Processes there have been.
    life: u64,
    pub(super) sessions: BTreeMap<[u8; 16], Session>,
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
    /// Requests may wait for long.
    pub(super) is_slow: bool,
    failed_syncs: u64,
    /// Of [`Planted::OldEnd`] and [`Planted::OldEndAfterCut`]: by file, where the next record goes, and how many are underway.
    underway: HashMap<Identity, (u64, u32)>,
    /// Of a server of names: who may use the ends of files.
    pub(super) ends: Option<EndsHere>,
    /// Of the objects that are here.
    fences: Arc<Fences>,
}

pub(super) struct Session {
    client: [u8; 16],
    pub(super) machine: Machine,
    /// The beginning of a message.
    left: Vec<u8>,
    queue: BTreeMap<u64, Job>,
}

/// A request that waits until it is carried out.
struct Job {
    owed: Owed,
    asked: Asked,
    key: Option<Key>,
    /// What it is of.
    demand: Demand,
    /// Where a record goes, if that is decided when it comes.
    place: Option<(Identity, u64)>,
}

/// The request of an answer that is owed.
fn message(id: u64, outcome: &Outcome) -> Vec<u8> {
    let (errno, fields, payload) = match outcome {
        Ok(reply) => (0, &reply.fields[..], &reply.payload[..]),
        Err(errno) => (*errno as u16, &[][..], &[][..]),
    };
    let header = ReplyHeader { fields: fields.len() as u16, payload: payload.len() as u32, errno, id };
    [&header.to_bytes()[..], fields, payload].concat()
}

impl Server {
    /// Of the names of striped files, if it has `ends`.
    pub(super) fn new(number: usize, disk: Disk, ends: Option<EndsHere>) -> Server {
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
            ends,
            fences: Arc::default(),
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
        self.tree = Some(SimTree::new(Arc::clone(&self.disk), net.planted));
        self.fences = Arc::default();
        if let Some(ends) = &mut self.ends {
            ends.start();
        }
        net.at(net.now + ROUND, Event::Reap(self.number, self.life));
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
        if let Some(ends) = &mut self.ends {
            ends.kill(crashes);
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
        let limits = SessionLimits { credits: CREDITS, credit_bytes: CREDIT_BYTES, open_files: 1000 };
        let session = self.sessions.entry(secret).or_insert_with(|| Session {
            client,
            machine: ServerSession::new(limits, Time::from_nanos(net.now)),
            left: Vec::new(),
            queue: BTreeMap::new(),
        });
        session.left.clear();
        let Ok(before) = session.machine.attach(wire) else { return false };
        if let Some(before) = before {
            self.close(net, before);
        }
        self.sessions_of.insert(wire, secret);
        let welcome = welcome(secret, is_resumed, self.answers, verifier);
        net.send_client(wire, Sent::Welcome(Box::new(welcome)));
        true
    }

    /// The connection is over.
    fn close(&mut self, net: &mut Net, wire: u64) {
        self.buffers.remove(&wire);
        net.send_client(wire, Sent::End);
        let Some(secret) = self.sessions_of.remove(&wire) else { return };
        if let Some(session) = self.sessions.get_mut(&secret) {
            session.machine.detach(&wire, Time::from_nanos(net.now));
        }
    }

    /// Ends sessions that nobody comes back to, and sends away who waits for too long.
    pub(super) fn reap(&mut self, net: &mut Net, life: u64) {
        if life != self.life {
            return;
        }
        let now = Time::from_nanos(net.now);
        let mut away = Vec::new();
        let abandoned = |(secret, session): (&[u8; 16], &mut Session)| {
            away.extend(session.machine.send_away(now).into_iter().map(|owed| (*secret, owed)));
            session.machine.is_abandoned(now, GRACE).then_some(*secret)
        };
        let abandoned: Vec<_> = self.sessions.iter_mut().filter_map(abandoned).collect();
        for secret in abandoned {
            if let Some(mut session) = self.sessions.remove(&secret) {
                net.dropped.push(Box::new(session.machine.end()));
            }
        }
        for (secret, owed) in away {
            self.answer(net, secret, owed, &Err(libc::EALREADY), true);
        }
        if let Some(ends) = &self.ends {
            ends.reap();
        }
        self.tell_ends(net);
        net.at(net.now + ROUND, Event::Reap(self.number, life));
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
            match session.machine.admit(&wire, header.id, header.acked, header.payload) {
                Ok(Admission::New(owed)) => self.admit(net, secret, owed, asked),
                Ok(Admission::Nothing) => {}
                Ok(Admission::Repeated(reply)) => {
                    net.send_client(wire, Sent::Bytes(self::message(header.id, &outcome_of(reply))));
                }
                Ok(Admission::Refused(_, refusal)) | Err(refusal) => {
                    net.found(&format!("a client violates the protocol: {refusal:?}"));
                    return false;
                }
            }
        }
    }

    /// A request waits until somebody carries it out.
    fn admit(&mut self, net: &mut Net, secret: [u8; 16], owed: Owed, asked: Asked) {
        let Ok(request) = Request::decode(asked.kind, &asked.fields) else {
            return self.answer(net, secret, owed, &Err(libc::EPROTO), true);
        };
        let place = self.old_place(net.planted, secret, &asked);
        let Some(session) = self.sessions.get_mut(&secret) else { return };
        match request {
            Request::Reserve(_) | Request::Settle(_) | Request::Resize(_) => {
                self.ask_for_end(net, secret, owed, &asked);
                return self.tell_ends(net);
            }
            Request::Open(open) if session.machine.reserve(open.handle).is_err() => {
                return self.answer(net, secret, owed, &Err(libc::EBADF), true);
            }
            _ => {}
        }
        let (id, demand) = (owed.id(), Demand::of(&request));
        let key = Key::of(asked.caller.uid, &asked.caller.origin);
        session.queue.insert(id, Job { owed, asked, key, demand, place });
        let most = if self.is_slow && net.rng.below(20) == 0 { SECOND } else { MS };
        let soon = net.now + net.rng.between(5 * US, most);
        net.at(soon, Event::CarryOut(self.number, self.life, secret, id));
    }

    /// Somebody wants the end of a file.
    fn ask_for_end(&mut self, net: &mut Net, secret: [u8; 16], owed: Owed, asked: &Asked) {
        let (Some(ends), Some(session)) = (&self.ends, self.sessions.get_mut(&secret)) else {
            return self.answer(net, secret, owed, &Err(libc::EOPNOTSUPP), true);
        };
        if let Some((owed, outcome)) = ends.ask(secret, &mut session.machine, owed, asked, net.now) {
            self.answer(net, secret, owed, &outcome, true);
        }
    }

    /// Answers those who have been given an end, or have given it back.
    fn tell_ends(&mut self, net: &mut Net) {
        while let Some((secret, parked, given)) = self.ends.as_ref().and_then(EndsHere::next) {
            let Some(session) = self.sessions.get_mut(&secret) else { continue };
            if let Some((owed, given)) = parked.settled(&mut session.machine, given) {
                match EndsHere::outcome(given) {
                    Some(outcome) => self.answer(net, secret, owed, &outcome, true),
                    None => session.machine.forget(owed),
                }
            }
        }
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
        let open = self.sessions.get(&secret)?.machine.file(write.handle).ok()?;
        if write.flags & transfer::APPEND == 0 {
            return None;
        }
        let (identity, size) = (open.file.identity(), open.file.attr().ok()?.size);
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
        let Some(session) = self.sessions.get(&secret) else { return };
        let dead = session.machine.connection().copied().filter(|&wire| self.is_closed(wire));
        let Some(session) = self.sessions.get_mut(&secret) else { return };
        let Some(mut job) = session.queue.remove(&id) else { return };
        if let Some((identity, _)) = job.place
            && let Some((_, underway)) = self.underway.get_mut(&identity)
        {
            *underway -= 1;
        }
        if net.planted != Some(Planted::NoFence) {
            let opening = job.demand.opens.then_some(job.demand.handle);
            match session.machine.give_up(job.owed, dead.as_ref(), opening) {
                GivenUp::Wanted(owed) => job.owed = owed,
                GivenUp::Forgotten { .. } => return,
            }
        }
        let known = job.key.and_then(|key| self.known.get(&key)).cloned();
        let outcome = match known {
            Some(Ok(_)) if job.demand.opens => {
                // It made the file then; the handle is of this session.
                job.asked = without_exclusive(job.asked);
                self.do_now(net, secret, &job)
            }
            Some(outcome) => {
                if let (true, Some(session)) = (job.demand.opens, self.sessions.get_mut(&secret)) {
                    session.machine.release(job.demand.handle);
                }
                outcome
            }
            None => self.do_now(net, secret, &job),
        };
        let changes =
            !matches!(Kind::of(job.asked.kind), Some(Kind::Read | Kind::Sync | Kind::Seek | Kind::GetAttr));
        if changes && self.kills_next {
            self.kill(net, false);
            return;
        }
        self.answer(net, secret, job.owed, &outcome, changes);
    }

    /// Carries out a request, and notes what became of it.
    fn do_now(&mut self, net: &mut Net, secret: [u8; 16], job: &Job) -> Outcome {
        let (Some(tree), Some(session)) = (&self.tree, self.sessions.get_mut(&secret)) else {
            return Err(libc::EIO);
        };
        let machine = &mut session.machine;
        let found = match job.demand.handle {
            _ if job.demand.opens => Ok(None),
            NO_HANDLE => Ok(None),
            handle if job.asked.kind == Kind::Close as u16 => machine.close(handle).map(Some),
            handle => machine.file(handle).map(Some),
        };
        let outcome = match found {
            Err(refusal) => Err(refusal.errno),
            Ok(_) if job.demand.opens => {
                let opened = open_here(tree, (self.ends.as_ref(), &self.fences), &job.asked);
                match opened {
                    Ok((open, reply)) => {
                        net.dropped.push(Box::new(machine.fill(job.demand.handle, Arc::new(open))));
                        Ok(reply)
                    }
                    Err(errno) => {
                        machine.release(job.demand.handle);
                        Err(errno)
                    }
                }
            }
            Ok(Some(open)) => match job.place {
                Some((_, place)) => write_at(tree, &open, &job.asked, place),
                None => {
                    let moves = net.planted == Some(Planted::Moves);
                    operations::carry_out(tree, Some(&open), &job.asked, moves)
                }
            },
            Ok(None) => operations::carry_out(tree, None, &job.asked, false),
        };
        if let Some(key) = job.key {
            self.known.insert(key, outcome.clone());
        }
        let failed_syncs = lock(&self.disk).failed_syncs;
        if std::mem::replace(&mut self.failed_syncs, failed_syncs) != failed_syncs {
            net.happened(&Happened::Loss);
        }
        self.tell_ends(net);
        outcome
    }

    /// Answers a request; a reply that is `kept` is sent again if the request is.
    fn answer(&mut self, net: &mut Net, secret: [u8; 16], owed: Owed, outcome: &Outcome, is_kept: bool) {
        let Some(session) = self.sessions.get_mut(&secret) else { return };
        let bytes = message(owed.id(), outcome);
        if let Some(&wire) = session.machine.finish(owed, is_kept.then(|| cached(outcome))) {
            net.send_client(wire, Sent::Bytes(bytes));
        }
    }
}

fn cached(outcome: &Outcome) -> CachedReply {
    match outcome {
        Ok(reply) => CachedReply::Whole(reply.fields.clone().into(), reply.payload.clone().into()),
        Err(errno) => CachedReply::Fields(*errno as u16, Box::default()),
    }
}

fn outcome_of(reply: CachedReply) -> Outcome {
    match reply {
        CachedReply::Whole(fields, payload) => Ok(Reply { fields: fields.into(), payload: payload.into() }),
        CachedReply::Fields(errno, _) => Err(errno.into()),
        CachedReply::Written(written) => Ok(operations::record(&written)),
    }
}

/// Opens a file, and begins to give its end.
fn open_here(
    tree: &SimTree,
    (ends, fences): (Option<&EndsHere>, &Arc<Fences>),
    asked: &Asked,
) -> Result<(OpenFile, Reply), i32> {
    let (file, mut opened, flags) = operations::open(tree, asked, ends.is_some())?;
    let end_handle = match ends {
        Some(ends) => {
            let (end_handle, begun) = ends.open(&*file, flags)?;
            opened.pending_size = begun.unwrap_or(u64::MAX);
            end_handle
        }
        None => None,
    };
    Ok((OpenFile { file, end_handle, pass: Pass::new(fences) }, operations::record(&opened)))
}

/// A file that is to be opened, whether it is there or not.
fn without_exclusive(asked: Asked) -> Asked {
    let Ok(Request::Open(wish)) = Request::decode(asked.kind, &asked.fields) else { return asked };
    let request = Request::Open(Open { flags: wish.flags & !open::EXCLUSIVE, ..wish });
    let mut fields = Vec::new();
    request.encode(&mut fields);
    Asked { fields, ..asked }
}

/// Of planted defects: writes a record where its place was.
fn write_at(tree: &SimTree, open: &OpenFile, asked: &Asked, place: u64) -> Outcome {
    let Ok(Request::Write(write)) = Request::decode(asked.kind, &asked.fields) else {
        return Err(libc::EPROTO);
    };
    let request = Request::Write(Transfer { flags: 0, offset: place, ..write });
    let mut fields = Vec::new();
    request.encode(&mut fields);
    let reply = operations::carry_out(tree, Some(open), &Asked { fields, ..asked.clone() }, false)?;
    match Written::decode(&reply.fields) {
        Ok(written) if written.bytes as usize == asked.payload.len() => Ok(reply),
        _ => Err(libc::ENOSPC),
    }
}
