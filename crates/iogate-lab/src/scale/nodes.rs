//! Clients, forwarders and servers, on the real sessions.

use std::collections::VecDeque;

use iogate_core::proto::client_session::{Attempt, ClientSession, Demand, SessionConfig};
use iogate_core::proto::server_session::{Admission, CachedReply, Owed, ServerSession, SessionLimits};
use iogate_core::wire::{Attr, Identity, NO_HANDLE, Opened, Record, Request, Welcome, open};
use iogate_core::{Span, Time};

const LIMITS: SessionLimits = SessionLimits { credits: 128, credit_bytes: 64 << 20, open_files: 4096 };
/// Longer than any run: nothing fails for time.
const CONFIG: SessionConfig = SessionConfig::new(Span::from_secs(1 << 30));

/// A request, as each hop knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// The file of the handle, and which client's it is.
    Open {
        handle: u32,
        file: u32,
    },
    Write {
        handle: u32,
        piece: u32,
    },
    Sync {
        handle: u32,
    },
    Close {
        handle: u32,
    },
    /// To a server: for which request of which client's session of the forwarder.
    Names {
        of: Asker,
    },
    Store {
        of: Asker,
    },
    Flush {
        of: Asker,
    },
}

/// The request of a client that a forwarder asks a server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    pub(super) client: u32,
    /// The forwarder's number for the request.
    pub(super) job: u32,
}

/// What is sent over a connection.
#[derive(Debug)]
pub(super) enum Message {
    Hello([u8; 16]),
    Welcome(Box<Welcome>),
    Request { id: u64, acked: u64, call: Call },
    Reply { id: u64, reply: CachedReply },
}

/// Opens a file again, as it was opened. No file gets other objects.
fn own(request: Request<'_>, file: &u32) -> Call {
    Call::Open { handle: Demand::of(&request).handle, file: *file }
}

fn demand(call: Call) -> Demand {
    let (handle, opens) = match call {
        Call::Open { handle, .. } => (handle, true),
        Call::Write { handle, .. } | Call::Sync { handle } | Call::Close { handle } => (handle, false),
        _ => (NO_HANDLE, false),
    };
    Demand { repeatable: true, handle, opens, ..Demand::default() }
}

/// A client's end of a session, and its connection.
#[derive(Debug)]
pub(super) struct ClientEnd {
    pub(super) session: ClientSession<Call, u32>,
    /// Counts connections; that of a message must be this one.
    pub(super) connection: u32,
    pub(super) is_connected: bool,
}

impl ClientEnd {
    /// One that has no connection yet.
    pub(super) fn new() -> ClientEnd {
        let mut session = ClientSession::new(CONFIG, own, welcome([0; 16], false));
        session.lost(Time::ZERO);
        ClientEnd { session, connection: 0, is_connected: false }
    }

    pub(super) fn submit(&mut self, call: Call, now: Time) {
        self.session.submit(call, demand(call), now).unwrap_or_else(|_| panic!("nothing is refused"));
    }

    /// What to send now.
    pub(super) fn take_unsent(&mut self, sent: &mut Vec<Message>) {
        while let Some(next) = self.session.next_to_write() {
            sent.push(Message::Request { id: next.id, acked: next.acked, call: *next.item });
        }
    }

    /// When to try to connect; none, if there is nothing to do.
    pub(super) fn attempt(&mut self, now: Time) -> Option<Result<[u8; 16], Time>> {
        match self.session.attempt(now) {
            Attempt::Connect(session) => Some(Ok(session)),
            Attempt::WaitUntil(time) => Some(Err(time)),
            Attempt::Nothing | Attempt::GiveUp(_) => None,
        }
    }
}

/// A server's end.
type ServerEnd = ServerSession<u32, u32, ()>;

fn server_end(now: Time) -> ServerEnd {
    ServerSession::new(LIMITS, now)
}

fn welcome(session: [u8; 16], is_resumed: bool) -> Welcome {
    Welcome {
        credits: LIMITS.credits,
        credit_bytes: LIMITS.credit_bytes,
        transfer_bytes_max: 1 << 20,
        append_bytes_max: 1 << 20,
        trusted: 1,
        ..Welcome::to(session, is_resumed)
    }
}

/// The reply to a request that went well.
fn done(call: Call) -> CachedReply {
    let mut fields = Vec::new();
    if let Call::Open { file, .. } = call {
        let identity = Identity { inode: u64::from(file) + 1, generation: 1 };
        Opened { identity, pending_size: u64::MAX, is_new: 0, attr: Attr::default() }.encode(&mut fields);
    }
    CachedReply::Fields(0, fields.into())
}

/// A program that writes a file.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) end: ClientEnd,
    handle: u32,
    step: u32,
}

impl Client {
    pub(super) fn new() -> Client {
        Client { end: ClientEnd::new(), handle: 0, step: 0 }
    }

    /// Does what comes next; false when there is nothing left.
    pub(super) fn go_on(&mut self, number: u32, writes: u32, now: Time) -> bool {
        let step = self.step;
        self.step += 1;
        let handle = self.handle;
        match step {
            0 => {
                self.handle = self.end.session.open_file(b"file", open::READ | open::WRITE, number);
                self.end.submit(Call::Open { handle: self.handle, file: number }, now);
            }
            step if step <= writes => self.end.submit(Call::Write { handle, piece: step - 1 }, now),
            step if step == writes + 1 => self.end.submit(Call::Sync { handle }, now),
            step if step == writes + 2 => {
                self.end.session.close_file(handle);
                self.end.submit(Call::Close { handle }, now);
            }
            _ => return false,
        }
        true
    }
}

/// A request of a client that a forwarder has asked servers for.
#[derive(Debug)]
struct Job {
    owed: Owed,
    call: Call,
    /// Servers that have not answered.
    left: u32,
}

/// What a forwarder has of one client.
#[derive(Debug)]
struct Guest {
    token: [u8; 16],
    end: ServerEnd,
    jobs: Vec<(u32, Job)>,
}

/// A server in front of the storage.
#[derive(Debug)]
pub(super) struct Forwarder {
    /// By client, in the order of their numbers.
    guests: Vec<Option<Box<Guest>>>,
    pub(super) servers: Vec<ClientEnd>,
    pub(super) life: u32,
    jobs: u32,
    files: u32,
}

/// What a forwarder is to do about a request.
pub(super) enum Forwarded {
    Nothing,
    Reply(u64, CachedReply),
    /// Send what these servers' sessions have.
    Asked(VecDeque<u32>),
}

impl Forwarder {
    pub(super) fn new(guests: u32, servers: u32) -> Forwarder {
        let servers = (0..servers).map(|_| ClientEnd::new()).collect();
        Forwarder { guests: (0..guests).map(|_| None).collect(), servers, life: 0, jobs: 0, files: 0 }
    }

    /// Killed, and there again.
    pub(super) fn restart(&mut self) {
        self.guests.iter_mut().for_each(|guest| *guest = None);
        for server in &mut self.servers {
            // What is on its way to the one before is not for this one.
            let connection = server.connection / 2 * 2 + 2;
            *server = ClientEnd { connection, ..ClientEnd::new() };
        }
        self.life += 1;
    }

    /// A client of a guest's number connects.
    pub(super) fn greet(&mut self, guest: u32, shown: [u8; 16], connection: u32, now: Time) -> Welcome {
        let life = self.life;
        let slot = &mut self.guests[guest as usize];
        if let Some(known) = slot.as_mut().filter(|known| known.token == shown)
            && known.end.attach(connection).is_ok()
        {
            return welcome(shown, true);
        }
        let token = token(life, guest + 1);
        let mut end = server_end(now);
        let _ = end.attach(connection);
        *slot = Some(Box::new(Guest { token, end, jobs: Vec::new() }));
        welcome(token, false)
    }

    /// A request of a guest has come.
    pub(super) fn take(
        &mut self,
        (guest, client): (u32, u32),
        connection: u32,
        (id, acked, call): (u64, u64, Call),
        now: Time,
    ) -> Forwarded {
        let count = self.servers.len() as u32;
        let Some(known) = &mut self.guests[guest as usize] else { return Forwarded::Nothing };
        let owed = match known.end.admit(&connection, id, acked, 0) {
            Ok(Admission::New(owed)) => owed,
            Ok(Admission::Repeated(reply)) => return Forwarded::Reply(id, reply),
            Ok(Admission::Nothing) => return Forwarded::Nothing,
            Ok(Admission::Refused(_, refusal)) | Err(refusal) => panic!("a client is refused: {refusal:?}"),
        };
        self.jobs = self.jobs.wrapping_add(1);
        let of = Asker { client: guest, job: self.jobs };
        let mut asked = VecDeque::new();
        match call {
            Call::Open { handle, .. } => {
                if let Err(refusal) = known.end.reserve(handle) {
                    panic!("a handle is refused: {refusal:?}");
                }
                asked.push_back((client % count, Call::Names { of }));
            }
            Call::Write { piece, .. } => asked.push_back(((client + piece) % count, Call::Store { of })),
            Call::Sync { .. } => {
                // Of the stripes that a file of this test has.
                asked.extend((0..4).map(|piece| ((client + piece) % count, Call::Flush { of })));
            }
            Call::Close { handle } => {
                let _ = known.end.close(handle);
                let reply = done(call);
                return match known.end.finish(owed, Some(reply.clone())) {
                    Some(_) => Forwarded::Reply(id, reply),
                    None => Forwarded::Nothing,
                };
            }
            _ => panic!("a client sends {call:?}"),
        }
        known.jobs.push((of.job, Job { owed, call, left: asked.len() as u32 }));
        let mut servers = VecDeque::new();
        for (server, call) in asked {
            self.servers[server as usize].submit(call, now);
            servers.push_back(server);
        }
        Forwarded::Asked(servers)
    }

    /// A server has answered. Returns the guest, its connection and the reply that is due, if one is.
    pub(super) fn answered(&mut self, of: Asker) -> Option<(u32, u32, u64, CachedReply)> {
        let known = self.guests[of.client as usize].as_mut()?;
        let at = known.jobs.iter().position(|(number, _)| *number == of.job)?;
        known.jobs[at].1.left -= 1;
        if known.jobs[at].1.left > 0 {
            return None;
        }
        let (_, Job { owed, call, .. }) = known.jobs.swap_remove(at);
        if let Call::Open { handle, .. } = call {
            self.files = self.files.wrapping_add(1);
            known.end.fill(handle, self.files);
        }
        let (id, reply) = (owed.id(), done(call));
        let connection = *known.end.finish(owed, Some(reply.clone()))?;
        Some((of.client, connection, id, reply))
    }
}

/// A data server.
#[derive(Debug)]
pub(super) struct Server {
    /// By forwarder.
    guests: Vec<Option<([u8; 16], ServerEnd)>>,
    pub(super) life: u32,
    /// When it has done all that it was asked.
    pub(super) busy_until: u64,
}

impl Server {
    pub(super) fn new(forwarders: u32) -> Server {
        Server { guests: (0..forwarders).map(|_| None).collect(), life: 0, busy_until: 0 }
    }

    pub(super) fn restart(&mut self) {
        self.guests.iter_mut().for_each(|guest| *guest = None);
        self.life += 1;
    }

    pub(super) fn greet(&mut self, forwarder: u32, shown: [u8; 16], connection: u32, now: Time) -> Welcome {
        let token = token(self.life, forwarder + 1);
        let slot = &mut self.guests[forwarder as usize];
        if let Some((_, end)) = slot.as_mut().filter(|(known, _)| *known == shown)
            && end.attach(connection).is_ok()
        {
            return welcome(shown, true);
        }
        let mut end = server_end(now);
        let _ = end.attach(connection);
        *slot = Some((token, end));
        welcome(token, false)
    }

    /// A request has come: what is owed for it, or the reply at once.
    pub(super) fn take(
        &mut self,
        forwarder: u32,
        connection: u32,
        (id, acked): (u64, u64),
    ) -> Option<Result<Owed, CachedReply>> {
        let (_, end) = self.guests[forwarder as usize].as_mut()?;
        match end.admit(&connection, id, acked, 0) {
            Ok(Admission::New(owed)) => Some(Ok(owed)),
            Ok(Admission::Repeated(reply)) => Some(Err(reply)),
            Ok(Admission::Nothing) => None,
            Ok(Admission::Refused(_, refusal)) | Err(refusal) => {
                panic!("a forwarder is refused: {refusal:?}")
            }
        }
    }

    /// It has been done. Returns the connection to answer on.
    pub(super) fn finish(&mut self, forwarder: u32, owed: Owed) -> Option<u32> {
        let (_, end) = self.guests[forwarder as usize].as_mut()?;
        end.finish(owed, None).copied()
    }
}

/// A session's secret: of which life of the node, and whose.
fn token(life: u32, whose: u32) -> [u8; 16] {
    let mut token = [0; 16];
    token[..4].copy_from_slice(&life.to_le_bytes());
    token[4..8].copy_from_slice(&whose.to_le_bytes());
    token[8] = 1;
    token
}
