//! A server's side of a session: what one client has at a server, whatever happens to its connections.
//!
//! A [`ServerSession`] decides, and its driver acts: each call returns what to do, so that a driver calls it under one lock and sends,
//! reads, writes and closes outside of it. `F` is the driver's open file and `C` its connection, both cheap to clone; `G` is what a
//! request for the end of a file is given. The server of `iogate-net` drives it on sockets.
//!
//! # How to drive it
//! 1. A connection whose user is known is [attached](ServerSession::attach). If there was one before, nothing that comes over the new
//!    one may overtake what the driver still has in hand of the old one.
//! 2. Each request is [admitted](ServerSession::admit) in the order in which it came. A new one is carried out, and the [`Owed`] answer
//!    that comes with it is settled once: by [`finish`](ServerSession::finish), [`forget`](ServerSession::forget),
//!    [`give_up`](ServerSession::give_up), or by [parking](ServerSession::park) it.
//! 3. From time to time the driver [sends away](ServerSession::send_away) who waits for long, and [ends](ServerSession::end) what
//!    is [abandoned](ServerSession::is_abandoned).
//!
//! # What it promises
//! - A request that is in flight, or whose reply is cached, is not carried out again, however often it is sent.
//! - Nothing is admitted from a connection that another one has replaced, nor after the end.
//! - A reply goes to the connection on which its request was sent last, or to none: then the client asks again.
//! - No more requests and bytes are in flight than the limits say, and no more files are open; a handle means one file.
//! - No `F` is dropped in a call: closing may take long, so each comes back to the driver.
//!
//! | file | purpose |
//! |---|---|
//! | `handles.rs` | the table of handles |
//! | `parked.rs` | who waits for the end of a file |
//! | `reply.rs` | cached replies |

mod handles;
mod parked;
mod reply;

use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use super::repeats::{Admitted, Window};
use crate::refusal::{Refusal, errno};
use crate::{Span, Time};
use handles::Handles;
use parked::Parked;

pub use parked::{Asked, PATIENCE, ParkedId};
pub use reply::CachedReply;

/// How long a client that has left may take to come back all the same: one that gives up a connection begins another at once.
const LEFT_FOR: Span = Span::from_secs(1);

/// What a session may have.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Requests in flight.
    pub credits: u32,
    /// Bytes of data in flight: to be written, or asked for.
    pub credit_bytes: u64,
    /// Open files, and those that are being opened.
    pub open_files: usize,
}

/// What a client has at a server.
#[derive(Debug)]
pub struct ServerSession<F, C, G> {
    limits: SessionLimits,
    window: Window<CachedReply>,
    connection: Option<C>,
    /// That connection, or the one before it is lost: its driver may still have requests of it in hand.
    last: Option<C>,
    /// Since when there is no connection.
    lost: Time,
    /// The client's machine has ended it, and with that very likely the client.
    is_left: bool,
    bytes_in_flight: u64,
    is_ended: bool,
    handles: Handles<F>,
    parked: Parked<G>,
}

/// The answer that a request waits for; to be settled once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a request that is never settled keeps its credit, and its client waits"]
pub struct Owed {
    id: u64,
    bytes: u64,
}

impl Owed {
    /// The request.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// What to do with a request.
#[derive(Debug)]
pub enum Admission {
    /// Carry it out.
    New(Owed),
    /// Nothing: it is in flight and will be answered, or its connection is no longer the session's.
    Nothing,
    /// It was carried out before: send this.
    Repeated(CachedReply),
    /// It is more than the client may ask for: send this, then close the connection with the refusal.
    Refused(CachedReply, Refusal),
}

/// What became of a request that has waited.
#[derive(Debug)]
pub enum GivenUp {
    /// Its client is there: carry it out.
    Wanted(Owed),
    /// Nobody waits for it any more.
    Forgotten {
        /// The handle that it was to open is free again.
        is_released: bool,
    },
}

impl<F: Clone, C: Clone + PartialEq, G> ServerSession<F, C, G> {
    /// A session without a connection.
    pub fn new(limits: SessionLimits, now: Time) -> ServerSession<F, C, G> {
        ServerSession {
            limits,
            window: Window::new(limits.credits),
            connection: None,
            last: None,
            lost: now,
            is_left: false,
            bytes_in_flight: 0,
            is_ended: false,
            handles: Handles::new(limits.open_files),
            parked: Parked::default(),
        }
    }

    /// Makes a connection the session's, and returns the one before, which may be over.
    ///
    /// # Errors
    /// If the session has ended.
    pub fn attach(&mut self, connection: C) -> Result<Option<C>, Refusal> {
        if self.is_ended {
            return Err(Refusal::new(errno::ESTALE, "the session has just ended: begin a new one"));
        }
        self.window.reconnect();
        self.is_left = false;
        self.connection = Some(connection.clone());
        Ok(self.last.replace(connection))
    }

    /// A connection is gone. Its session waits for another one.
    pub fn detach(&mut self, connection: &C, now: Time) {
        if self.is_current(connection) {
            self.connection = None;
            self.lost = now;
        }
    }

    /// As [`ServerSession::detach`], of a client that ends with its connection, which was not lost on the way: its machine has ended it.
    pub fn leave(&mut self, connection: &C, now: Time) {
        if self.is_current(connection) {
            self.detach(connection, now);
            self.is_left = true;
        }
    }

    /// The connection in use.
    pub fn connection(&self) -> Option<&C> {
        self.connection.as_ref()
    }

    /// Whether a connection is the one in use.
    pub fn is_current(&self, connection: &C) -> bool {
        self.connection.as_ref() == Some(connection)
    }

    /// Whether nobody has come back to the session within `grace`; or in a moment, if its client has [left](ServerSession::leave) and
    /// nothing of what it asked for is underway, which might undo what others do once they have its locks.
    pub fn is_abandoned(&self, now: Time, grace: Span) -> bool {
        let is_left = self.is_left && self.window.in_flight() == 0;
        let grace = if is_left { grace.min(LEFT_FOR) } else { grace };
        self.connection.is_none() && now.since(self.lost) > grace
    }

    /// Takes in a request that has come over a connection, with `bytes` bytes of data to write or to read. `acked`: its client has the
    /// replies to all requests below.
    ///
    /// # Errors
    /// If the client does not keep to the protocol: the connection is to be closed with this.
    pub fn admit(&mut self, from: &C, id: u64, acked: u64, bytes: u32) -> Result<Admission, Refusal> {
        let protocol = |text| Refusal::new(errno::EPROTO, text);
        if self.is_ended {
            return Err(protocol("the session has ended: a Goodbye is the last request".into()));
        }
        if !self.is_current(from) {
            return Ok(Admission::Nothing);
        }
        match self.window.admit(id, acked).map_err(|violation| protocol(violation.to_string()))? {
            Admitted::New => {}
            Admitted::InFlight => return Ok(Admission::Nothing),
            Admitted::Done(reply) => return Ok(Admission::Repeated(reply.clone())),
        }
        let (bytes, most) = (u64::from(bytes), self.limits.credit_bytes);
        let in_flight = self.bytes_in_flight + bytes;
        if in_flight > most {
            let text =
                format!("{in_flight} bytes of data are in flight, expected at most {most} (credit_bytes)");
            let refusal = protocol(text);
            let reply = CachedReply::failure(&refusal);
            self.window.finish(id, Some(reply.clone()));
            return Ok(Admission::Refused(reply, refusal));
        }
        self.bytes_in_flight = in_flight;
        Ok(Admission::New(Owed { id, bytes }))
    }

    /// A request was carried out. Without a `reply` to cache it is carried out again if it is sent again. Returns where to send its reply
    /// now; `None`: nowhere, its client will ask again.
    #[expect(clippy::needless_pass_by_value, reason = "an answer is given once")]
    pub fn finish(&mut self, owed: Owed, reply: Option<CachedReply>) -> Option<&C> {
        self.bytes_in_flight -= owed.bytes;
        if self.window.finish(owed.id, reply) { self.connection.as_ref() } else { None }
    }

    /// As if a request had not come: if it is sent again, it is carried out.
    #[expect(clippy::needless_pass_by_value, reason = "an answer is given once")]
    pub fn forget(&mut self, owed: Owed) {
        self.bytes_in_flight -= owed.bytes;
        self.window.forget(owed.id);
    }

    /// To be asked before a request is carried out that has waited since it was taken in: once its client is gone, it might undo what
    /// others have done since. `dead` is the connection in use, which the driver has found to be over, or `None` if it has seen none; if
    /// another one has been attached since, the request is wanted. If it was to open a file, its handle is `opening`: that is
    /// free again at once, as a client that comes back opens it anew.
    pub fn give_up(&mut self, owed: Owed, dead: Option<&C>, opening: Option<u32>) -> GivenUp {
        if self.connection.is_some() && self.connection.as_ref() != dead {
            return GivenUp::Wanted(owed);
        }
        let is_released = opening.is_some_and(|handle| self.release(handle));
        self.forget(owed);
        GivenUp::Forgotten { is_released }
    }

    /// Requests in flight.
    pub fn in_flight(&self) -> u32 {
        self.window.in_flight()
    }

    /// Takes a handle for a file that is to be opened. The driver then [fills](ServerSession::fill) it, or
    /// [releases](ServerSession::release) it.
    ///
    /// # Errors
    /// If it is in use, as many files are open as may be, or the session has ended.
    pub fn reserve(&mut self, handle: u32) -> Result<(), Refusal> {
        if self.is_ended {
            return Err(Refusal::new(errno::ESTALE, "the session has ended"));
        }
        self.handles.reserve(handle)
    }

    /// Fills a handle that was taken; the file comes back if there is none: the session has ended meanwhile.
    pub fn fill(&mut self, handle: u32, file: F) -> Option<F> {
        self.handles.fill(handle, file)
    }

    /// Gives up a handle that was taken and not filled. Returns whether there was one.
    pub fn release(&mut self, handle: u32) -> bool {
        self.handles.release(handle)
    }

    /// An open file.
    ///
    /// # Errors
    /// If it is not open.
    pub fn file(&self, handle: u32) -> Result<F, Refusal> {
        self.handles.get(handle).cloned()
    }

    /// Gives up the handle of an open file. The file is to be closed when the last request for it is done.
    ///
    /// # Errors
    /// If it is not open.
    pub fn close(&mut self, handle: u32) -> Result<F, Refusal> {
        let file = self.handles.close(handle)?;
        self.parked.close(handle);
        Ok(file)
    }

    /// Open files, and those that are being opened.
    pub fn open_files(&self) -> usize {
        self.handles.len()
    }

    /// A request for the end of a file has come; `asked` are its bytes, by which it is known when it comes again after it has been sent
    /// away.
    pub fn park(&mut self, owed: Owed, handle: u32, asked: &[u8], now: Time) -> Asked<G> {
        let handle = self.handles.get(handle).is_ok().then_some(handle);
        self.parked.park(owed, handle, asked, now)
    }

    /// A parked request is given what it waits for. Returns the answer that is owed now; `None` if it has been sent away, and
    /// has this when it comes again.
    pub fn give(&mut self, parked: ParkedId, given: G) -> Option<(Owed, G)> {
        self.parked.give(parked, given)
    }

    /// The requests that have waited for [`PATIENCE`] for the end of a file: to be refused with `EALREADY`, so that they do
    /// not keep the window from what others wait for. They keep their places, and come again.
    pub fn send_away(&mut self, now: Time) -> Vec<Owed> {
        self.parked.send_away(now, self.limits.credits as usize)
    }

    /// Ends the session; what is in flight goes on. Returns how many handles were taken, and the files to close.
    pub fn end(&mut self) -> (usize, Vec<F>) {
        self.is_ended = true;
        self.parked.end();
        self.handles.take_all()
    }
}

#[cfg(test)]
mod tests;
