//! A client's session and a server's, over connections in memory and in virtual time, as a script of bytes has it: messages arrive, are
//! carried out in any order, are lost with their connection; the server restarts, and remembers or not.
//!
//! Both machines are the real ones. What must hold, whatever the script says:
//! - each request is given back once: answered, or failed;
//! - what must not be repeated is carried out at most once, and once if it was answered; with an origin, at a server that remembers, it
//!   never fails but for time;
//! - when the faults end, everything that is left is answered, and both sides have the same files open.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use iogate_core::proto::client_session::{Attempt, ClientSession, Demand, SessionConfig};
use iogate_core::proto::server_session::{Admission, CachedReply, Owed, ServerSession, SessionLimits};
use iogate_core::wire::{Attr, Identity, NO_HANDLE, Opened, Record, Request, Welcome, open};
use iogate_core::{Span, Time};

const LIMITS: SessionLimits = SessionLimits { credits: 4, credit_bytes: 1 << 20, open_files: 8 };
/// Longer than any script lasts, so that nothing fails for time.
const CONFIG: SessionConfig = SessionConfig::new(Span::from_secs(1 << 20));

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Call {
    /// The test's name for it; none for what opens a file again.
    number: Option<u64>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// May be repeated.
    Look,
    /// Must not be repeated.
    Once,
    /// Must not be repeated, and is known by its origin.
    Known,
    Open {
        handle: u32,
        again: bool,
    },
    Close {
        handle: u32,
    },
}

#[derive(Debug)]
struct Message {
    id: u64,
    acked: u64,
    call: Call,
}

type Reply = (u64, CachedReply);
type Client = ClientSession<Call, ()>;

/// A connection: what is on its way.
#[derive(Debug, Default)]
struct Wire {
    number: u64,
    to_server: VecDeque<Message>,
    to_client: VecDeque<Reply>,
}

#[derive(Debug)]
struct Server {
    session: Option<([u8; 16], ServerSession<u64, u64, ()>)>,
    in_flight: Vec<(Owed, Call)>,
    sessions: u64,
    /// What it remembers of requests with an origin, and until when that is so.
    known: BTreeSet<u64>,
    answers: u64,
}

/// What became of the requests.
#[derive(Debug, Default)]
struct Seen {
    submitted: u64,
    /// How often each was carried out.
    carried_out: BTreeMap<u64, u32>,
    /// Those that were given back, and whether with an answer.
    given_back: BTreeMap<u64, bool>,
    /// Those without a fixed server since: who remembers has forgotten.
    forgotten_since: u64,
}

/// Both ends.
#[derive(Debug)]
struct Pair {
    now: Time,
    client: Client,
    server: Server,
    wire: Option<Wire>,
    wires: u64,
    /// Files that the client has open, and those of them whose open is answered.
    files: BTreeMap<u32, bool>,
    kinds: BTreeMap<u64, Kind>,
    seen: Seen,
}

fn welcome(session: [u8; 16], resumed: bool, answers: u64) -> Welcome {
    Welcome {
        credits: LIMITS.credits,
        credit_bytes: LIMITS.credit_bytes,
        transfer_bytes_max: 1 << 20,
        append_bytes_max: 1 << 20,
        answers,
        trusted: 1,
        ..Welcome::to(session, resumed)
    }
}

/// The reply to an open: which file it is.
fn opened(handle: u32) -> CachedReply {
    let identity = Identity { inode: handle.into(), generation: 1 };
    let opened = Opened { identity, pending_size: u64::MAX, is_new: 0, attr: Attr::default() };
    let mut fields = Vec::new();
    opened.encode(&mut fields);
    CachedReply::Fields(0, fields.into())
}

fn demand(kind: Kind) -> Demand {
    let (handle, opens) = match kind {
        Kind::Open { handle, .. } => (handle, true),
        Kind::Close { handle } => (handle, false),
        _ => (NO_HANDLE, false),
    };
    // To open a file without creating it, and to close it, may be repeated.
    let repeatable = !matches!(kind, Kind::Once | Kind::Known);
    Demand { repeatable, has_origin: kind == Kind::Known, handle, opens, ..Demand::default() }
}

/// Opens a file again. No file gets other objects.
fn own(request: Request<'_>, (): &()) -> Call {
    Call { number: None, kind: Kind::Open { handle: Demand::of(&request).handle, again: true } }
}

impl Server {
    fn new() -> Server {
        Server { session: None, in_flight: Vec::new(), sessions: 0, known: BTreeSet::new(), answers: 1 }
    }

    /// Takes a client that shows a session in; returns what it is told.
    fn greet(&mut self, shown: [u8; 16], connection: u64, now: Time) -> Welcome {
        if let Some((token, session)) = &mut self.session
            && *token == shown
            && session.attach(connection).is_ok()
        {
            return welcome(shown, true, self.answers);
        }
        self.sessions += 1;
        let mut token = [0; 16];
        token[..8].copy_from_slice(&self.sessions.to_le_bytes());
        let mut session = ServerSession::new(LIMITS, now);
        session.attach(connection).expect("it is new");
        self.session = Some((token, session));
        // What was in flight in an earlier session goes on, and is answered to nobody.
        self.in_flight.clear();
        welcome(token, false, self.answers)
    }
}

impl Pair {
    fn new() -> Pair {
        let mut server = Server::new();
        let now = Time::from_nanos(1);
        let welcome = server.greet([0; 16], 1, now);
        Pair {
            now,
            client: ClientSession::new(CONFIG, own, welcome),
            server,
            wire: Some(Wire { number: 1, ..Wire::default() }),
            wires: 1,
            files: BTreeMap::new(),
            kinds: BTreeMap::new(),
            seen: Seen::default(),
        }
    }

    fn submit(&mut self, kind: Kind) {
        self.seen.submitted += 1;
        let number = self.seen.submitted;
        self.kinds.insert(number, kind);
        let call = Call { number: Some(number), kind };
        if let Err(call) = self.client.submit(call, demand(kind), self.now) {
            panic!("{call:?} is refused before time is over");
        }
    }

    fn step(&mut self, byte: u8) -> Result<(), String> {
        let choice = usize::from(byte / 12);
        match byte % 12 {
            0 => self.submit(Kind::Look),
            1 => self.submit(Kind::Once),
            2 => self.submit(Kind::Known),
            3 if self.files.len() < 4 => {
                let handle = self.client.open_file(b"file", open::READ, ());
                self.files.insert(handle, false);
                self.submit(Kind::Open { handle, again: false });
            }
            4 => {
                if let Some((&handle, _)) = self.files.iter().find(|(_, is_open)| **is_open) {
                    self.files.remove(&handle);
                    self.client.close_file(handle);
                    self.submit(Kind::Close { handle });
                }
            }
            5 | 3 => self.write(),
            6 => return self.take_in(),
            7 => return self.carry_out(choice),
            8 => return self.answer(),
            9 => self.cut(choice),
            10 => return self.attempt(),
            _ => self.restart(choice.is_multiple_of(2)),
        }
        Ok(())
    }

    /// The client writes a request.
    fn write(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        if let Some(next) = self.client.next_to_write() {
            wire.to_server.push_back(Message { id: next.id, acked: next.acked, call: next.item.clone() });
        }
    }

    /// The server takes one in.
    fn take_in(&mut self) -> Result<(), String> {
        let Some(wire) = &mut self.wire else { return Ok(()) };
        let Some((_, session)) = &mut self.server.session else { return Ok(()) };
        let Some(Message { id, acked, call }) = wire.to_server.pop_front() else { return Ok(()) };
        let admitted = session.admit(&wire.number, id, acked, 0);
        match admitted
            .map_err(|refusal| format!("a client that keeps to the rules is refused: {refusal:?}"))?
        {
            Admission::New(owed) => {
                if let Kind::Open { handle, .. } = call.kind {
                    session.reserve(handle).map_err(|refusal| format!("{call:?}: {refusal:?}"))?;
                }
                self.server.in_flight.push((owed, call));
            }
            Admission::Nothing => {}
            Admission::Repeated(reply) => wire.to_client.push_back((id, reply)),
            Admission::Refused(_, refusal) => return Err(format!("no credit: {refusal:?}")),
        }
        Ok(())
    }

    /// The server carries out one of those that it has taken in.
    fn carry_out(&mut self, choice: usize) -> Result<(), String> {
        let Server { session, in_flight, known, .. } = &mut self.server;
        let Some((_, session)) = session else { return Ok(()) };
        if in_flight.is_empty() {
            return Ok(());
        }
        let (owed, call) = in_flight.remove(choice % in_flight.len());
        let mut reply = CachedReply::Fields(0, Box::default());
        match (call.kind, call.number) {
            (Kind::Once, Some(number)) => *self.seen.carried_out.entry(number).or_default() += 1,
            (Kind::Known, Some(number)) if known.insert(number) => {
                *self.seen.carried_out.entry(number).or_default() += 1;
            }
            (Kind::Open { handle, .. }, _) => {
                if session.fill(handle, handle.into()).is_some() {
                    return Err(format!("handle {handle} was not kept for {call:?}"));
                }
                reply = opened(handle);
            }
            (Kind::Close { handle }, _) => {
                // In a new session the file may not have been opened again: it was about to be closed.
                let _ = session.close(handle);
            }
            _ => {}
        }
        let id = owed.id();
        let kept = (call.kind != Kind::Look).then(|| reply.clone());
        if let Some(connection) = session.finish(owed, kept)
            && let Some(wire) = self.wire.as_mut().filter(|wire| wire.number == *connection)
        {
            wire.to_client.push_back((id, reply));
        }
        Ok(())
    }

    /// The client takes an answer in.
    fn answer(&mut self) -> Result<(), String> {
        let Some((id, reply)) = self.wire.as_mut().and_then(|wire| wire.to_client.pop_front()) else {
            return Ok(());
        };
        let CachedReply::Fields(errno, fields) = &reply else { return Err(format!("{reply:?}")) };
        let outcome = if *errno == 0 { Ok(&fields[..]) } else { Err(i32::from(*errno)) };
        let answered = self.client.answered(id, outcome).ok_or_else(|| format!("nobody expects {id}"))?;
        if let Kind::Open { handle, .. } = answered.call.kind
            && let Some(is_open) = self.files.get_mut(&handle)
        {
            *is_open = true;
        }
        match answered.call.number {
            Some(number) => self.given_back(number, answered.errno.is_none()),
            None => Ok(()),
        }
    }

    fn given_back(&mut self, number: u64, is_answered: bool) -> Result<(), String> {
        if self.seen.given_back.insert(number, is_answered).is_some() {
            return Err(format!("request {number} is given back twice"));
        }
        let kind = self.kinds[&number];
        let times = self.seen.carried_out.get(&number).copied().unwrap_or(0);
        match kind {
            Kind::Once | Kind::Known if is_answered && times != 1 => {
                Err(format!("request {number}, {kind:?}, is answered, and was carried out {times} times"))
            }
            Kind::Known if !is_answered && number > self.seen.forgotten_since => {
                Err(format!("request {number} fails, although the server remembers it"))
            }
            Kind::Look | Kind::Open { .. } | Kind::Close { .. } if !is_answered => {
                Err(format!("request {number}, {kind:?}, fails, although it may be repeated"))
            }
            _ => Ok(()),
        }
    }

    /// The connection ends: of what is on its way to the server, a part may still be taken in.
    fn cut(&mut self, choice: usize) {
        let Some(mut wire) = self.wire.take() else { return };
        if choice.is_multiple_of(2) {
            let number = wire.number;
            wire.to_server.truncate(choice / 2);
            while let (Some((_, session)), Some(message)) =
                (&mut self.server.session, wire.to_server.pop_front())
            {
                if let Ok(Admission::New(owed)) = session.admit(&number, message.id, message.acked, 0) {
                    if let Kind::Open { handle, .. } = message.call.kind {
                        let _ = session.reserve(handle);
                    }
                    self.server.in_flight.push((owed, message.call));
                }
            }
        }
        if choice.is_multiple_of(3)
            && let Some((_, session)) = &mut self.server.session
        {
            // Else it notices with the next connection.
            session.detach(&wire.number, self.now);
        }
        self.client.lost(self.now);
    }

    /// The client tries to connect, when it is time.
    fn attempt(&mut self) -> Result<(), String> {
        loop {
            match self.client.attempt(self.now) {
                Attempt::Nothing => return Ok(()),
                Attempt::WaitUntil(time) => self.now = time,
                Attempt::GiveUp(given_up) => {
                    return Err(format!("it gives up before time is over: {given_up:?}"));
                }
                Attempt::Connect(shown) => {
                    self.wires += 1;
                    self.wire = Some(Wire { number: self.wires, ..Wire::default() });
                    let welcome = self.server.greet(shown, self.wires, self.now);
                    let connected = self.client.connected(welcome, self.now);
                    for call in connected.failed {
                        if let Some(number) = call.number {
                            self.given_back(number, false)?;
                        }
                    }
                    return Ok(());
                }
            }
        }
    }

    /// The server is killed and starts again: it knows of no session, and of requests with an origin if it `remembers`.
    fn restart(&mut self, remembers: bool) {
        self.cut(1);
        (self.server.session, self.server.in_flight) = (None, Vec::new());
        if !remembers {
            self.server.known.clear();
            self.server.answers += 1;
            self.seen.forgotten_since = self.seen.submitted;
        }
    }

    /// No more faults: everything is answered.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..100_000 {
            if self.client.is_idle() {
                return self.agree();
            }
            if self.wire.is_none() {
                self.attempt()?;
            }
            self.write();
            self.take_in()?;
            self.carry_out(0)?;
            self.answer()?;
        }
        Err(format!("not all is answered without faults: {:?}", self.client))
    }

    fn agree(&mut self) -> Result<(), String> {
        let missing = (1..=self.seen.submitted).find(|number| !self.seen.given_back.contains_key(number));
        if let Some(number) = missing {
            return Err(format!("request {number} was never given back"));
        }
        let Some((_, session)) = &self.server.session else { return Ok(()) };
        for handle in self.files.keys() {
            session.file(*handle).map_err(|refusal| format!("at the end: {refusal:?}"))?;
        }
        match session.open_files() == self.files.len() {
            true => Ok(()),
            false => {
                Err(format!("{} files are open at the server, {:?} here", session.open_files(), self.files))
            }
        }
    }
}

/// Plays a script, a step each byte, and then lets everything come to its end.
///
/// # Errors
/// What must not be.
pub fn play(script: &[u8]) -> Result<(), String> {
    let mut pair = Pair::new();
    for (at, &byte) in script.iter().enumerate() {
        pair.step(byte).map_err(|error| format!("step {at}: {error}"))?;
        pair.now = pair.now + Span::from_millis(1);
    }
    pair.settle()
}
