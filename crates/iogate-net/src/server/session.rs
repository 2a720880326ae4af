//! What a client has at a server: its handles, its requests, and the replies it may not have got.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::sync::{Arc, Mutex, RwLock, Weak};
use std::time::Instant;

use iogate_core::proto::window::{Admitted, Window};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{self, Failure, Gone, Hello, NO_HANDLE, Record, RequestHeader, Written};

use iogate_engine::SubmitError;
use iogate_vfs::ends::Party;
use iogate_vfs::{Caller, TreeFile};

use super::account::Account;
use super::appends::Lane;
use super::buffer::{Buffer, Charge};
use super::connection::Connection;
use super::ends::Wait;
use super::export::Served;
use super::incoming::FRESH;
use super::outgoing::Payload;
use super::rights::Rights;
use super::{Shared, lock};

/// What a client has at a server, whatever happens to its connections.
pub(super) struct Session {
    pub(super) server: Arc<Shared>,
    pub(super) token: [u8; 16],
    pub(super) export: Arc<Served>,
    pub(super) user: Caller,
    pub(super) account: Arc<Account>,
    pub(super) rights: Rights,
    /// It stripes files, and is told what their objects are named by.
    pub(super) stripes: bool,
    pub(super) name: String,
    pub(super) forwarder: Option<Forwarder>,
    pub(super) since: Instant,
    state: Mutex<State>,
    /// `None`: it is being opened.
    files: RwLock<HashMap<u32, Option<Arc<OpenFile>>>>,
    /// Those who wait for the ends of files.
    pub(super) waits: Mutex<Vec<Arc<Wait>>>,
}

/// Which forwarder a client says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forwarder {
    pub(super) node: u32,
    pub(super) nodes: u32,
    pub(super) instance: u64,
}

impl Forwarder {
    pub(super) fn of(hello: &Hello<'_>) -> Option<Forwarder> {
        let Hello { node, nodes, instance, .. } = *hello;
        (nodes > 0).then_some(Forwarder { node, nodes, instance })
    }
}

struct State {
    window: Window<Kept>,
    connection: Option<Arc<Connection>>,
    /// That connection, or the last one: even when it is over, a thread may have requests of it in hand.
    last: Weak<Connection>,
    /// Since when there is no connection.
    lost: Instant,
    bytes_underway: u64,
    ended: bool,
}

impl State {
    fn forget(&mut self, id: u64, bytes: u64) {
        self.bytes_underway -= bytes;
        self.window.forget(id);
    }
}

/// An open file of a session.
pub(super) struct OpenFile {
    pub(super) file: Arc<dyn TreeFile>,
    /// How it was opened, see [`iogate_core::wire::open`].
    pub(super) flags: u32,
    /// For what is appended.
    pub(super) lane: Arc<Lane>,
    /// Through which the end of a striped file with its name here is asked for.
    pub(super) party: Option<Party>,
}

/// A reply that is kept until the client has it.
#[derive(Clone, Debug)]
pub(super) enum Kept {
    /// The most frequent one, without memory of its own.
    Written(Written),
    Fields(u16, Box<[u8]>),
    /// Fields, and a payload.
    Whole(Box<[u8]>, Box<[u8]>),
}

/// What is to be done with a request.
pub(super) enum Taken {
    /// Carry it out.
    New(Answer),
    /// Nothing: its reply has been sent again, or will be sent, or the connection is no longer the session's.
    Not,
}

impl Session {
    pub(super) fn new(
        server: &Arc<Shared>,
        token: [u8; 16],
        export: Arc<Served>,
        user: Caller,
        rights: Rights,
        hello: &Hello<'_>,
    ) -> Session {
        let stripes = hello.flags & wire::hello::STRIPES != 0 && rights.trusted;
        let state = State {
            window: Window::new(server.limits.credits),
            connection: None,
            last: Weak::new(),
            lost: Instant::now(),
            bytes_underway: 0,
            ended: false,
        };
        Session {
            account: server.account(export.index, user.uid),
            server: Arc::clone(server),
            token,
            export,
            user,
            rights,
            stripes,
            name: iogate_core::wire::client_name(hello.name),
            forwarder: Forwarder::of(hello),
            since: Instant::now(),
            state: Mutex::new(state),
            files: RwLock::default(),
            waits: Mutex::default(),
        }
    }

    /// Makes a connection the session's; returns the one before, which may be over. `None`, if the session has ended.
    #[expect(clippy::option_option, reason = "ended, or nobody before")]
    pub(super) fn attach(&self, connection: &Arc<Connection>) -> Option<Option<Arc<Connection>>> {
        let mut state = lock(&self.state);
        if state.ended {
            return None;
        }
        state.window.reconnect();
        let before = state.last.upgrade();
        state.last = Arc::downgrade(connection);
        state.connection = Some(Arc::clone(connection));
        Some(before)
    }

    /// Notes that a connection is gone.
    pub(super) fn detach(&self, connection: &Arc<Connection>) {
        let mut state = lock(&self.state);
        if state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            state.connection = None;
            state.lost = Instant::now();
        }
    }

    /// Whether a connection is the session's.
    pub(super) fn is_current(&self, connection: &Connection) -> bool {
        let state = lock(&self.state);
        state.connection.as_ref().is_some_and(|current| std::ptr::eq(&**current, connection))
    }

    /// Since when the session has no connection; `None` if it has one.
    pub(super) fn lost_since(&self) -> Option<Instant> {
        let state = lock(&self.state);
        state.connection.is_none().then_some(state.lost)
    }

    /// Who is at the other end of the session's connection; `None` if there is none, or if its end just has not been read yet.
    pub(super) fn connected_peer(&self) -> Option<String> {
        let connection = lock(&self.state).connection.clone()?;
        connection.is_alive().then(|| connection.peer_text())
    }

    /// What to tell the client of objects that nobody can reach any more: only one that stripes files is told, of these or of others
    /// that nobody was told of yet.
    pub(super) fn gone(&self, gone: Gone) -> Gone {
        if gone == Gone::NONE && self.stripes {
            return lock(&self.export.gone).pop().unwrap_or(gone);
        }
        if gone != Gone::NONE && !self.stripes {
            self.export.leave(gone);
            return Gone::NONE;
        }
        gone
    }

    /// Ends the session. Requests underway go on. Dropping what this returns closes the files, which may take long.
    #[must_use]
    pub(super) fn end(&self) -> HashMap<u32, Option<Arc<OpenFile>>> {
        lock(&self.state).ended = true;
        let files = std::mem::take(&mut *self.files.write().unwrap_or_else(|p| p.into_inner()));
        self.server.count_closed(&self.account, files.len());
        files
    }

    /// Ends the session, and has a worker close its files.
    pub(super) fn end_soon(&self) {
        let files = self.end();
        if !files.is_empty() {
            self.run(move || drop(files));
        }
    }

    /// Runs a job of this session in a worker, when it is its turn.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.server.workers.run(self.export.index, self.number(), job);
    }

    /// Runs a job of this session in the calling thread, which has read it from a connection, if another one waits
    /// for events, and as far as workers may; else in a worker.
    pub(super) fn run_here(&self, job: Box<dyn FnOnce() + Send>) {
        match self.server.threads.watchdog.has_waiting() {
            true => self.server.workers.run_here(self.export.index, self.number(), job),
            false => self.run(job),
        }
    }

    /// The session among others.
    pub(super) fn number(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.token;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }

    /// Requests that are not answered.
    pub(super) fn underway(&self) -> u32 {
        lock(&self.state).window.in_flight()
    }

    /// Open files, and those that are being opened.
    pub(super) fn open_files(&self) -> usize {
        self.files.read().unwrap_or_else(|p| p.into_inner()).len()
    }

    /// Takes in a request that has come over a connection, with `bytes` bytes of data to write or to read.
    pub(super) fn admit(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &RequestHeader,
        bytes: u32,
    ) -> Result<Taken, Refusal> {
        let mut state = lock(&self.state);
        if state.ended {
            return Err(Refusal::new(libc::EPROTO, "the session has ended: a Goodbye is the last request"));
        }
        if !state.connection.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            return Ok(Taken::Not);
        }
        let bytes = u64::from(bytes);
        let State { window, bytes_underway, .. } = &mut *state;
        match window
            .admit(header.id, header.acked)
            .map_err(|error| Refusal::new(libc::EPROTO, error.to_string()))?
        {
            Admitted::New => {}
            Admitted::InFlight => return Ok(Taken::Not),
            Admitted::Done(kept) => {
                let kept = kept.clone();
                drop(state);
                kept.queue(connection, header.id);
                connection.deliver();
                return Ok(Taken::Not);
            }
        }
        *bytes_underway += bytes;
        let underway = *bytes_underway;
        drop(state);
        self.server.begun();
        lock(&connection.figures).requests += 1;
        let answer = Answer { session: Arc::clone(self), id: header.id, bytes, given: false };
        let most = self.server.limits.credit_bytes;
        if underway > most {
            let text =
                format!("{underway} bytes of data are underway, expected at most {most} (credit_bytes)");
            let refusal = Refusal::new(libc::EPROTO, text);
            answer.refuse(&refusal);
            return Err(refusal);
        }
        Ok(Taken::New(answer))
    }

    /// Takes a handle for a file that is to be opened.
    pub(super) fn reserve(&self, handle: u32) -> Result<(), Refusal> {
        let most = self.server.limits.open_files_per_session;
        let mut files = self.files.write().unwrap_or_else(|p| p.into_inner());
        if handle == NO_HANDLE {
            return Err(Refusal::new(libc::EINVAL, "handle 0 stands for none: expected another number"));
        }
        if files.len() >= most {
            return Err(Refusal::new(
                libc::EMFILE,
                format!("{most} files are open in this session, which is the limit"),
            ));
        }
        match files.entry(handle) {
            Entry::Occupied(_) => {
                Err(Refusal::new(libc::EINVAL, format!("handle {handle} is in use: expected another number")))
            }
            Entry::Vacant(entry) => {
                if !self.server.may_open(&self.account) {
                    let text = format!("user {} has as many files open as may be: close some", self.user.uid);
                    return Err(Refusal::new(libc::EMFILE, text));
                }
                entry.insert(None);
                Ok(())
            }
        }
    }

    /// Fills a handle that was taken with the file, or gives it up without one.
    pub(super) fn fill(&self, handle: u32, file: Option<OpenFile>) {
        let mut files = self.files.write().unwrap_or_else(|p| p.into_inner());
        match (files.get_mut(&handle), file) {
            (Some(slot), Some(file)) => *slot = Some(Arc::new(file)),
            _ => {
                if files.remove(&handle).is_some() {
                    self.server.count_closed(&self.account, 1);
                }
            }
        }
    }

    /// An open file.
    pub(super) fn file(&self, handle: u32) -> Result<Arc<OpenFile>, Refusal> {
        let files = self.files.read().unwrap_or_else(|p| p.into_inner());
        files.get(&handle).cloned().flatten().ok_or_else(|| unknown(handle))
    }

    /// Gives up a handle; the file is closed when the last request for it is done.
    pub(super) fn close(&self, handle: u32) -> Result<Arc<OpenFile>, Refusal> {
        let mut files = self.files.write().unwrap_or_else(|p| p.into_inner());
        match files.entry(handle) {
            Entry::Occupied(entry) if entry.get().is_some() => {
                self.server.count_closed(&self.account, 1);
                entry.remove().ok_or_else(|| unknown(handle))
            }
            _ => Err(unknown(handle)),
        }
    }

    fn finish(&self, id: u64, bytes: u64, kept: Option<Kept>) -> Option<Arc<Connection>> {
        let mut state = lock(&self.state);
        state.bytes_underway -= bytes;
        if state.window.finish(id, kept) { state.connection.clone() } else { None }
    }
}

fn unknown(handle: u32) -> Refusal {
    Refusal::new(libc::EBADF, format!("handle {handle} is not open in this session"))
}

impl Kept {
    fn queue(&self, connection: &Connection, id: u64) {
        match self {
            Kept::Written(written) => connection.queue(0, id, |fields| written.encode(fields), Payload::None),
            Kept::Whole(kept, payload) => {
                let payload = Payload::Bytes(payload.to_vec(), None);
                connection.queue(0, id, |fields| fields.extend_from_slice(kept), payload);
            }
            Kept::Fields(errno, kept) => {
                connection.queue(*errno, id, |fields| fields.extend_from_slice(kept), Payload::None);
            }
        }
    }
}

/// The answer that a request waits for. Dropped without one, it answers `EIO`.
pub(super) struct Answer {
    session: Arc<Session>,
    id: u64,
    bytes: u64,
    given: bool,
}

impl Answer {
    /// Who waits for it.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Nothing more to say than that it was done.
    pub(super) fn done(self) {
        self.keep(0, Vec::new());
    }

    /// Fields; kept until the client has them.
    pub(super) fn fields(self, fields: Vec<u8>) {
        self.keep(0, fields);
    }

    /// Fields of a record; kept until the client has them.
    pub(super) fn kept<'a>(self, record: &impl Record<'a>) {
        let mut fields = Vec::new();
        record.encode(&mut fields);
        self.fields(fields);
    }

    /// Fields and payload; kept until the client has them.
    pub(super) fn whole(mut self, fields: &[u8], payload: &[u8]) {
        self.give(Some(Kept::Whole(fields.into(), payload.into())), Payload::None);
    }

    /// What a write did.
    pub(super) fn written(mut self, written: Written) {
        self.give(Some(Kept::Written(written)), Payload::None);
    }

    /// Data that was read; if it is asked for again, it is read again.
    pub(super) fn data(mut self, buffer: Buffer, bytes: usize) {
        self.give(None, Payload::Buffer(buffer, bytes));
    }

    /// As [`Answer::data`].
    pub(super) fn bytes(mut self, bytes: Vec<u8>, charge: Option<Charge>) {
        self.give(None, Payload::Bytes(bytes, charge));
    }

    /// As [`Answer::data`], as fields.
    pub(super) fn fresh<'a>(self, record: &impl Record<'a>) {
        let mut fields = Vec::new();
        record.encode(&mut fields);
        self.fresh_fields(&fields);
    }

    /// As [`Answer::data`], as fields.
    pub(super) fn fresh_fields(mut self, fields: &[u8]) {
        if let Some(connection) = self.finish(None) {
            connection.queue(0, self.id, |out| out.extend_from_slice(fields), Payload::None);
            connection.deliver();
        }
    }

    /// As if the request had not come: if it is sent again, it is carried out.
    pub(super) fn forget(mut self) {
        self.given = true;
        lock(&self.session.state).forget(self.id, self.bytes);
    }

    /// To be asked before a request is carried out that has waited since it was taken in: forgets it if its client is gone, as it
    /// might undo what others have done since. A client that comes back sends it again.
    pub(super) fn if_wanted(self, since: Instant) -> Option<Answer> {
        self.if_wanted_or(since, || {})
    }

    /// As [`Answer::if_wanted`], and calls `give_up` before the request is forgotten, with the session's state locked.
    pub(super) fn if_wanted_or(mut self, since: Instant, give_up: impl FnOnce()) -> Option<Answer> {
        if since.elapsed() < FRESH {
            return Some(self);
        }
        let mut state = lock(&self.session.state);
        if state.connection.as_ref().is_some_and(|connection| connection.is_alive()) {
            drop(state);
            return Some(self);
        }
        give_up();
        state.forget(self.id, self.bytes);
        drop(state);
        self.given = true;
        None
    }

    /// A failure of the system. What nobody waits for any more is forgotten.
    pub(super) fn failed(self, error: &io::Error) {
        if SubmitError::is_unwanted(error) {
            return self.forget();
        }
        self.refuse(&explained(error));
    }

    /// A failure.
    pub(super) fn refuse(self, refusal: &Refusal) {
        let mut fields = Vec::new();
        Failure { text: refusal.text.as_bytes() }.encode(&mut fields);
        self.keep(u16::try_from(refusal.errno).unwrap_or(libc::EIO as u16), fields);
    }

    fn keep(mut self, errno: u16, fields: Vec<u8>) {
        self.give(Some(Kept::Fields(errno, fields.into())), Payload::None);
    }

    fn finish(&mut self, kept: Option<Kept>) -> Option<Arc<Connection>> {
        self.given = true;
        self.session.finish(self.id, self.bytes, kept)
    }

    fn give(&mut self, kept: Option<Kept>, payload: Payload) {
        if let Some(connection) = self.finish(kept.clone()) {
            match kept {
                Some(kept) => kept.queue(&connection, self.id),
                None => connection.queue(0, self.id, |_| {}, payload),
            }
            connection.deliver();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if !self.given {
            tracing::error!(id = self.id, "a request was dropped; answering EIO");
            let mut fields = Vec::new();
            Failure { text: b"a defect of the server: its log says more" }.encode(&mut fields);
            self.give(Some(Kept::Fields(libc::EIO as u16, fields.into())), Payload::None);
        }
        self.session.server.ended();
    }
}

/// The errno of an error, and its text where the errno does not say it all.
pub(super) fn explained(error: &io::Error) -> Refusal {
    if let Some(errno) = error.raw_os_error().filter(|errno| (1..4096).contains(errno)) {
        return Refusal::new(errno, "");
    }
    let errno = match error.kind() {
        io::ErrorKind::BrokenPipe => libc::ESHUTDOWN,
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        io::ErrorKind::NotFound => libc::ENOENT,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        io::ErrorKind::TimedOut => libc::ETIMEDOUT,
        _ => libc::EIO,
    };
    Refusal::new(errno, error.to_string())
}
