//! A client's session with one server: which requests are sent, which are sent again and which fail when connections or servers are
//! lost, when to connect again, and which files are opened again then.
//!
//! | module | purpose |
//! |---|---|
//! | `outstanding` | ids and credits of requests; which of them are repeated |
//! | `handles` | open files: their paths after renames, their identities, which are stale |
//! | `locks` | the locks that they have, to be asked for again |
//! | `loss` | when to try to connect, and when to give up |

mod handles;
mod locks;
mod loss;
mod outstanding;

use alloc::vec::Vec;
use core::mem;

use self::handles::Handles;
use self::loss::Loss;
pub use self::loss::next_pause;
use self::outstanding::{Limits, Outstanding};
use crate::file_locks::From;
use crate::refusal::errno;
use crate::wire::{Lock, NO_SESSION, Request, Welcome, session_number};
use crate::{Span, Time};

pub use self::outstanding::{Bound, Demand, ToWrite};

/// Settings of a [`ClientSession`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// How long requests wait for a server that is gone, before they fail.
    pub retry_for: Span,
    /// Whether the driver goes on trying to connect while nobody asks for anything. If not, a request is what makes it try: once
    /// requests fail at once, the first one that comes when an attempt is due is still taken, and waits for that attempt.
    pub tries_unasked: bool,
    /// Whether another server gives locks of the same files, and tells this one of none: what was had when this one is started again may
    /// have been another's meanwhile, and counts as lost.
    pub has_rivals: bool,
}

impl SessionConfig {
    /// With the only server of its files, whose driver goes on trying to connect.
    pub const fn new(retry_for: Span) -> SessionConfig {
        SessionConfig { retry_for, tries_unasked: true, has_rivals: false }
    }
}

/// Makes a request of the session's own, in somebody's name: one that opens a file again, or closes it.
pub type Own<C, U> = fn(Request<'_>, &U) -> C;

/// A client's session with one server, over as many connections, and incarnations of the server, as it takes.
///
/// `C` is what the driver knows of a request: the session keeps it until it is answered or fails. `U` is in whose name a file is open.
/// The shell in `iogate-net` drives it on sockets, under one mutex.
///
/// # Driving it
/// 1. [`submit`](ClientSession::submit) each request. While there is a connection, write what
///    [`next_to_write`](ClientSession::next_to_write) gives, in that order, whenever there is room.
/// 2. Hand in each reply by [`answered`](ClientSession::answered), and tell who asked. If that says `None`, the server is not to be
///    trusted: end the connection.
/// 3. When a connection has ended, say [`lost`](ClientSession::lost). Then do as [`attempt`](ClientSession::attempt) says, until it says
///    [`Attempt::Nothing`]: each [`Attempt::Connect`] is followed by [`connected`](ClientSession::connected) or
///    [`could_not_connect`](ClientSession::could_not_connect). Nothing of the lost connection may be handed in after that.
/// 4. Requests that `submit`, `connected`, `attempt` and `could_not_connect` give back fail with `EIO`. The session has noted that already.
/// 5. A file gets its handle by [`open_file`](ClientSession::open_file) before the request that opens it is submitted;
///    [`close_file`](ClientSession::close_file) comes before the one that closes it. [`rename_begins`](ClientSession::rename_begins) comes
///    before a request that renames; [`renamed`](ClientSession::renamed), if that was done, and
///    [`rename_ended`](ClientSession::rename_ended) come after it.
///
/// `now` is the driver's clock. Threads may read it before they take the lock: that it goes back a little does no harm.
///
/// # What it promises
/// - Each request that was submitted is given back once: answered, or failed.
/// - Requests are written in the order in which they were submitted, within the server's credits; but those for files that may have been
///   renamed when their session was lost wait until that is known, and others pass them. A request has one id in a session,
///   and a server that knows the session is never sent a request under two ids.
/// - In a new session a request that the old server may have carried out is sent again only if it can be repeated, or if it has an origin
///   and the server remembers those. If neither, nobody can say what became of it, and it fails.
/// - No server is sent a request with more data than it says in its Welcome that it takes in one: such a request fails alone.
/// - A new session begins with the files that are open and not being renamed, under their handles and present paths. Nothing else is
///   sent until these are answered. Who uses one that could not be opened again is told `ESTALE`; so is who uses one whose objects are
///   others by now, or one of whose locks is not given again, which is closed at once. If a file turns out to have been renamed meanwhile,
///   it is opened again at its new path.
/// - Requests wait for [`retry_for`](SessionConfig::retry_for), from the loss of a connection on, and then fail; so does what is submitted
///   until there is a connection. A connection that is lost again before anything was answered does not start that time anew.
#[derive(Debug)]
pub struct ClientSession<C, U> {
    config: SessionConfig,
    own: Own<C, U>,
    /// What the server said last.
    welcome: Welcome,
    requests: Outstanding<C>,
    handles: Handles<U>,
    /// While there is no connection.
    loss: Option<Loss>,
    /// The last loss, until the server has answered something since.
    loss_before: Option<Loss>,
    /// Where the locks are from.
    locks_from: From,
    is_closed: bool,
}

/// A request that is answered.
#[derive(Debug)]
pub struct Answered<C> {
    /// The request.
    pub call: C,
    /// What it failed with, if it did: the server's errno, or `ESTALE` if its file was lost with a session.
    pub errno: Option<i32>,
}

/// What to do about a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Attempt<C> {
    /// Nothing: there is one, or none is wanted any more.
    Nothing,
    /// Ask again at this time.
    WaitUntil(Time),
    /// Try to connect now, showing this session ([`NO_SESSION`]: asking for a new one).
    Connect([u8; 16]),
    /// Nothing now: the server takes connections, but has not answered anything for too long.
    GiveUp(GivenUp<C>),
}

/// Requests that fail because a server is gone.
#[derive(Debug, PartialEq, Eq)]
pub struct GivenUp<C> {
    /// These, in their order.
    pub failed: Vec<C>,
    /// Whether this is the first time since the connection was lost.
    pub is_news: bool,
}

/// What a new connection means.
#[derive(Debug, PartialEq, Eq)]
pub struct Reconnected<C> {
    /// The session goes on.
    pub is_resumed: bool,
    /// How long there was no connection.
    pub gone: Span,
    /// The server was lost before, and this is not just a session's beginning.
    pub is_news: bool,
    /// Requests that fail, in their order: the server has forgotten the session, and nobody can say whether they took effect, or it does
    /// not take as much data in one any more.
    pub failed: Vec<C>,
}

/// Where a lock is from that is had now: if it may not be had again, from a process that never was.
fn from(config: &SessionConfig, welcome: &Welcome) -> From {
    let process = if config.has_rivals { u64::MAX } else { welcome.instance };
    (process, session_number(&welcome.session))
}

fn limits(welcome: &Welcome) -> Limits {
    Limits {
        requests: welcome.credits.max(1),
        bytes: welcome.credit_bytes,
        transfer_bytes: welcome.transfer_bytes_max.max(1),
        append_bytes: welcome.append_bytes_max.max(1),
    }
}

/// Takes what restores a session, as the driver makes it of a request and of whose it is.
fn restoring<C, U>(requests: &mut Outstanding<C>, own: Own<C, U>) -> impl FnMut(Request<'_>, &U) {
    move |request, caller| {
        let lock = if matches!(request, Request::SetLock(_)) { locks::AGAIN } else { 0 };
        requests.push_restoring(own(request, caller), Demand { lock, ..Demand::of(&request) });
    }
}

impl<C, U> ClientSession<C, U> {
    /// A new session, with a connection on which the server has said `welcome`.
    pub fn new(config: SessionConfig, own: Own<C, U>, welcome: Welcome) -> ClientSession<C, U> {
        let mut requests = Outstanding::new();
        requests.renewed(limits(&welcome), false);
        ClientSession {
            locks_from: from(&config, &welcome),
            config,
            own,
            welcome,
            requests,
            handles: Handles::default(),
            loss: None,
            loss_before: None,
            is_closed: false,
        }
    }

    /// Takes a request. Gives it back, failed with `EIO`, if the session is closed, if the server has been gone for too long, or if it has
    /// more data than the server takes in one, as it said last.
    ///
    /// # Errors
    /// The request.
    pub fn submit(&mut self, call: C, demand: Demand, now: Time) -> Result<(), C> {
        let is_refused = match &self.loss {
            _ if self.is_closed || !limits(&self.welcome).allow(&demand) => true,
            None => false,
            Some(loss) => loss.gave_up && (self.config.tries_unasked || now < loss.next_attempt),
        };
        if is_refused {
            self.handles.settle(&demand, false, Err(errno::EIO));
            return Err(call);
        }
        self.requests.push(call, demand, now);
        Ok(())
    }

    /// The request to be written next, if one may be: it counts as written from now on, even if only a part of it can be. `None`
    /// without a connection, without credits, or if there is nothing to write.
    pub fn next_to_write(&mut self) -> Option<ToWrite<'_, C>> {
        self.requests.next_to_write(|handle| self.handles.is_held(handle))
    }

    /// The request that a reply with this id belongs to, if one is expected.
    pub fn get(&self, id: u64) -> Option<&C> {
        self.requests.get(id)
    }

    /// Takes out the request that a reply belongs to, whose fields, or errno, are `outcome`, and notes what it says of an open file. `None`
    /// if no such reply is expected.
    pub fn answered(&mut self, id: u64, outcome: Result<&[u8], i32>) -> Option<Answered<C>> {
        let taken = self.requests.answer(id)?;
        self.loss_before = None;
        let errno = self.handles.settle(&taken.demand, taken.restores, outcome);
        if taken.restores {
            let handle = taken.demand.handle;
            if self.handles.is_elsewhere(handle) {
                self.reopen(handle);
            }
            if taken.demand.opens {
                self.handles.lock_again(handle, self.locks_from, restoring(&mut self.requests, self.own));
            }
            self.handles.close_replaced(handle, restoring(&mut self.requests, self.own));
            if taken.demand.lock == locks::AGAIN && errno.is_some() {
                let give_back = restoring(&mut self.requests, self.own);
                for lost in self.handles.locks_lost(handle, self.locks_from, give_back) {
                    self.handles.close_replaced(lost, restoring(&mut self.requests, self.own));
                }
            }
            if !self.requests.is_restoring() {
                self.locks_from = from(&self.config, &self.welcome);
            }
        }
        Some(Answered { call: taken.item, errno })
    }

    /// The connection has ended. Returns whether that is news: not if it did so before anything was answered on it.
    pub fn lost(&mut self, now: Time) -> bool {
        self.requests.disconnected();
        if self.is_closed {
            return false;
        }
        let before = self.loss_before.take().and_then(|loss| loss.goes_on(now));
        self.loss = Some(before.unwrap_or(Loss::new(now)));
        before.is_none()
    }

    /// What to do about a connection now.
    pub fn attempt(&mut self, now: Time) -> Attempt<C> {
        let Some(loss) = self.loss.filter(|_| !self.is_closed) else { return Attempt::Nothing };
        // Each attempt has gone well, or the last one would have given up.
        if loss.was_tried() && !loss.gave_up && loss.is_too_long(now, self.config.retry_for) {
            return Attempt::GiveUp(self.give_up());
        }
        if now < loss.next_attempt {
            return Attempt::WaitUntil(loss.next_attempt);
        }
        Attempt::Connect(self.shown(&loss))
    }

    /// The session that is shown to a server: none that was given up.
    fn shown(&self, loss: &Loss) -> [u8; 16] {
        if loss.gave_up { NO_SESSION } else { self.welcome.session }
    }

    /// An [`Attempt::Connect`] has failed. Returns the requests that fail, if the server has been gone for too long.
    pub fn could_not_connect(&mut self, now: Time) -> Option<GivenUp<C>> {
        let loss = self.loss.as_mut()?;
        loss.tried(now);
        loss.is_too_long(now, self.config.retry_for).then(|| self.give_up())
    }

    /// The server is there and is not to be used: what waits fails now, as if it had been gone for too long, and so does what comes until
    /// there is a connection again. Returns what fails, the first time after a loss.
    pub fn give_up_at_once(&mut self, now: Time) -> Option<GivenUp<C>> {
        let loss = self.loss.as_mut().filter(|loss| !loss.gave_up)?;
        loss.tried(now);
        Some(self.give_up())
    }

    /// An [`Attempt::Connect`] has led to a connection, on which the server has said `welcome`.
    pub fn connected(&mut self, welcome: Welcome, now: Time) -> Reconnected<C> {
        let mut loss = self.loss.take().unwrap_or(Loss::new(now));
        loss.tried(now);
        let shown = self.shown(&loss);
        let before = mem::replace(&mut self.welcome, welcome).answers;
        self.loss_before = Some(loss);
        let is_resumed = welcome.resumed != 0 && shown != NO_SESSION;
        let mut failed = Vec::new();
        if is_resumed {
            self.requests.resumed();
        } else {
            let remembers = before != 0 && before == welcome.answers;
            for (call, demand) in self.requests.renewed(limits(&welcome), remembers) {
                self.handles.settle(&demand, false, Err(errno::EIO));
                failed.push(call);
            }
            self.handles.reopen_all(restoring(&mut self.requests, self.own));
            if !self.requests.is_restoring() {
                self.locks_from = from(&self.config, &self.welcome);
            }
        }
        let is_news = loss.gave_up || shown != NO_SESSION;
        Reconnected { is_resumed, gone: now.since(loss.since), is_news, failed }
    }

    fn reopen(&mut self, handle: u32) {
        self.handles.reopen(handle, restoring(&mut self.requests, self.own));
    }

    fn give_up(&mut self) -> GivenUp<C> {
        let is_news = self.loss.as_mut().is_some_and(|loss| !mem::replace(&mut loss.gave_up, true));
        let mut failed = Vec::new();
        for (call, demand) in self.requests.give_up() {
            self.handles.settle(&demand, false, Err(errno::EIO));
            failed.push(call);
        }
        GivenUp { failed, is_news }
    }

    /// The driver's process is a copy of the one that the session belongs to: the session stays with that, whose requests are
    /// neither answered nor dropped here. Here another one begins, in which the open files are opened again.
    pub fn forked(&mut self, now: Time) {
        // What the driver knows of them may be memory that threads were using which the copy does not have.
        mem::forget(mem::take(&mut self.requests));
        self.handles.forked();
        self.welcome.session = NO_SESSION;
        self.loss = Some(Loss::new(now));
        self.loss_before = None;
    }

    /// Ends the session: nothing is sent or taken any more.
    pub fn close(&mut self) {
        self.is_closed = true;
        self.requests.disconnected();
    }

    /// A handle for the file at `path`, which is to be opened with these flags of [`open`](crate::wire::open) in `caller`'s name. It is
    /// given up if the request that opens it fails.
    pub fn open_file(&mut self, path: &[u8], flags: u32, caller: U) -> u32 {
        self.handles.add(path, flags, caller)
    }

    /// A lock of an open file is about to be asked for, or given back: returns the [`Demand::lock`] of the request. What is answered is
    /// asked for again when the server was started anew, and if that is refused the file is as one that could not be opened again.
    pub fn lock_begins(&mut self, handle: u32, lock: &Lock) -> u32 {
        self.handles.lock_begins(handle, lock)
    }

    /// A file is about to be closed: it is not opened again in a new session.
    pub fn close_file(&mut self, handle: u32) {
        self.handles.remove(handle);
    }

    /// What is at `from` is about to be renamed to `to`: before the request is submitted, to whichever session. If a new session begins
    /// before [`rename_ended`](ClientSession::rename_ended), nobody knows where files at and below these paths are: they are opened again,
    /// and what uses them is sent, after that.
    pub fn rename_begins(&mut self, from: &[u8], to: &[u8]) {
        self.handles.rename_begins(from, to);
    }

    /// What became of such a rename is known: if it was done, after [`renamed`](ClientSession::renamed).
    pub fn rename_ended(&mut self, from: &[u8], to: &[u8]) {
        for handle in self.handles.rename_ended(from, to) {
            self.reopen(handle);
        }
    }

    /// What was at `from` is at `to` by now: files that are open there, or below, are opened again by their new paths. With `exchange`,
    /// what was at `to` is at `from`. A file that was renamed when the server was lost is not found by its old path, and is by this one.
    pub fn renamed(&mut self, from: &[u8], to: &[u8], exchange: bool) {
        for handle in self.handles.renamed(from, to, exchange) {
            self.reopen(handle);
        }
    }

    /// The path of an open file by now.
    pub fn path_of(&self, handle: u32) -> Option<&[u8]> {
        self.handles.path(handle)
    }

    /// What the server has said of itself when it was last connected to.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        self.requests.is_connected()
    }

    /// Whether nothing is taken any more.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// All requests with an id below this are answered.
    pub fn acked(&self) -> u64 {
        self.requests.acked()
    }

    /// All requests that are not answered, those with ids first.
    pub fn requests(&self) -> impl Iterator<Item = &C> {
        self.requests.iter()
    }

    /// Since when the oldest request has waited for its answer.
    pub fn waits_since(&self) -> Option<Time> {
        self.requests.oldest()
    }

    /// Whether files are being opened again.
    pub fn is_restoring(&self) -> bool {
        self.requests.is_restoring()
    }

    /// Whether every request is answered.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }
}

#[cfg(test)]
mod tests;
