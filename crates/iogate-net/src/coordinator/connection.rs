//! One connection: bytes in, bytes out, never waiting.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::coord::SessionId;
use iogate_core::proto::frame::Stage;
use iogate_core::refusal::Refusal;

use crate::transport::Socket;
use crate::transport::auth::Access;
use crate::transport::{Source, log_end};

/// Most bytes of one read.
pub(super) const READ_BYTES_MAX: usize = 64 << 10;
/// Requests of a client that is owed so many bytes of answers are left where they are. A status may be larger: it is one at a time.
pub(super) const OUT_BYTES_MAX: usize = 64 << 10;
/// Memory that an idle connection keeps.
const KEPT_BYTES: usize = 512;

/// One connection.
pub(super) struct Connection {
    pub(super) socket: Box<dyn Socket>,
    pub(super) access: Arc<Access>,
    pub(super) source: Source,
    pub(super) since: Instant,
    pub(super) state: State,
    /// Why it is cut as soon as it has greeted.
    pub(super) turned_away: Option<Refusal>,
    /// The user, once it is known.
    pub(super) user: Option<u32>,
    /// What has come and is not taken in.
    pub(super) left: Vec<u8>,
    /// When the first byte of it was read.
    began: Option<Instant>,
    /// What has come has whole messages: they wait for room for their answers.
    pub(super) is_held_back: bool,
    /// Bytes that were charged to its user.
    pub(super) charged: usize,
    out: Vec<u8>,
    sent: usize,
    /// Since when the peer takes nothing.
    stalled: Option<Instant>,
    /// Once what is to be sent is sent, the connection is over.
    pub(super) is_ending: bool,
    /// It is in the list of those that have something to send.
    pub(super) is_listed: bool,
    /// What the kernel has been asked to tell: readable, writable.
    pub(super) interest: (bool, bool),
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing is known of its client.
    New,
    /// A worker finds out who it is.
    Greeting,
    /// It carries a session.
    Session(SessionId),
    /// Its session is over.
    Parted,
}

impl State {
    /// What may come now.
    pub(super) fn stage(self) -> Stage {
        match self {
            State::New | State::Greeting => Stage::New,
            State::Session(_) => Stage::Session,
            State::Parted => Stage::Over,
        }
    }
}

/// What a read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// So many bytes, and nothing more is there.
    All(usize),
    /// So many bytes; perhaps there are more.
    Some(usize),
    /// The peer is gone.
    Over,
}

impl Connection {
    pub(super) fn new(socket: Box<dyn Socket>, access: Arc<Access>, source: Source) -> Connection {
        let now = Instant::now();
        Connection {
            socket,
            access,
            source,
            since: now,
            state: State::New,
            turned_away: None,
            user: None,
            left: Vec::new(),
            began: None,
            is_held_back: false,
            charged: 0,
            out: Vec::new(),
            sent: 0,
            stalled: None,
            is_ending: false,
            is_listed: false,
            interest: (true, false),
        }
    }

    /// The session that it carries.
    pub(super) fn session(&self) -> Option<SessionId> {
        match self.state {
            State::Session(session) => Some(session),
            _ => None,
        }
    }

    /// Reads once.
    pub(super) fn read(&mut self, room: &mut [u8]) -> Read {
        match self.socket.read(&mut [IoSliceMut::new(room)]) {
            Ok(0) => Read::Over,
            Ok(count) if count < room.len() => Read::All(count),
            Ok(count) => Read::Some(count),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Read::All(0),
            Err(error) => {
                log_end(&error, || self.peer_text());
                Read::Over
            }
        }
    }

    /// Keeps what is unfinished: what has come, but for the first `taken` bytes.
    pub(super) fn keep(&mut self, come: &[u8], taken: usize) {
        let rest = &come[taken..];
        self.left.clear();
        self.left.shrink_to(KEPT_BYTES);
        self.left.extend_from_slice(rest);
        // Where nothing is taken, it is still the message that had begun before.
        let began = self.began.filter(|_| taken == 0);
        self.began = (!rest.is_empty()).then(|| began.unwrap_or_else(Instant::now));
    }

    /// Adds bytes to what is to be sent.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        if self.is_ending {
            return;
        }
        // A client that is always a little behind must not make this grow for ever.
        if self.sent > self.out.len() / 2 {
            self.out.drain(..std::mem::take(&mut self.sent));
        }
        self.out.extend_from_slice(bytes);
    }

    /// Bytes of answers that are queued and not sent.
    pub(super) fn unsent(&self) -> usize {
        self.out.len() - self.sent
    }

    /// Bytes that it has in memory.
    pub(super) fn memory(&self) -> usize {
        self.left.len() + self.out.len()
    }

    /// Sends what there is room for. `false`: the connection is over.
    pub(super) fn send(&mut self) -> bool {
        while self.sent < self.out.len() || self.socket.wants_flush() {
            let written = match self.sent < self.out.len() {
                true => self.socket.write(&[IoSlice::new(&self.out[self.sent..])]),
                false => self.socket.flush().map(|()| 0),
            };
            match written {
                Ok(count) => {
                    self.sent += count;
                    self.stalled = None;
                    if count == 0 && self.socket.wants_flush() {
                        self.stalled = Some(Instant::now());
                        return true;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.stalled.get_or_insert_with(Instant::now);
                    return true;
                }
                Err(_) => return false,
            }
        }
        self.out.clear();
        self.out.shrink_to(KEPT_BYTES);
        self.sent = 0;
        !self.is_ending
    }

    /// Whether bytes wait for room.
    pub(super) fn has_more_to_send(&self) -> bool {
        self.sent < self.out.len() || self.socket.wants_flush()
    }

    /// What the kernel is to tell: readable, writable.
    pub(super) fn wanted(&self) -> (bool, bool) {
        let takes = self.unsent() < OUT_BYTES_MAX && !self.is_held_back && !self.is_ending;
        (takes && self.state != State::Greeting, self.has_more_to_send())
    }

    /// Why the connection is to be cut now, if it is.
    pub(super) fn overdue(&self, hello: Duration, stall: Duration) -> Option<&'static str> {
        if self.session().is_none() && self.since.elapsed() > hello {
            return Some("no Hello came in time");
        }
        if self.stalled.is_some_and(|since| since.elapsed() > stall) {
            return Some("the client does not read its answers");
        }
        if !self.is_held_back && self.began.is_some_and(|began| began.elapsed() > stall) {
            return Some("a message has begun and does not come to its end");
        }
        None
    }

    /// Who is at the other end, for people.
    pub(super) fn peer_text(&self) -> String {
        self.source.peer_text(&*self.socket)
    }
}
