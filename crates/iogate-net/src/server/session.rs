//! What a client has at a server, around the machine that decides: `iogate_core::proto::server_session`.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use iogate_core::proto::forwarder::Forwarder;
use iogate_core::proto::server_session::{
    Admission, CachedReply, GivenUp, Owed, ServerSession, SessionLimits,
};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{self, Gone, Hello, Record, RequestHeader, Written, open};
use iogate_core::{AppId, Span};

use iogate_engine::{Engine, PathClass, SubmitError};
use iogate_vfs::ends::{EndHandle, Given};
use iogate_vfs::fence::Pass;
use iogate_vfs::{Caller, TreeFile};

use super::account::Account;
use super::appends::Lane;
use super::buffer::{Buffer, Charge};
use super::connection::{Connection, Link};
use super::export::{Limits, Served};
use super::incoming::FRESH;
use super::outgoing::Payload;
use super::rights::Rights;
use super::{Shared, lock};

/// What a session decides. Its lock is held for a decision, never while anything is done.
pub(super) type State = ServerSession<Arc<OpenFile>, Link, Option<io::Result<Given>>>;

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
    /// It ends with its connection, unless that is lost on the way.
    ends: bool,
    pub(super) name: String,
    pub(super) forwarder: Option<Forwarder>,
    pub(super) since: Instant,
    pub(super) state: Mutex<State>,
}

/// An open file of a session.
pub(super) struct OpenFile {
    pub(super) file: Arc<dyn TreeFile>,
    /// How it was opened, see [`iogate_core::wire::open`].
    pub(super) flags: u32,
    /// For what is appended.
    pub(super) lane: Arc<Lane>,
    /// Through which the end of a striped file with its name here is asked for.
    pub(super) end_handle: Option<EndHandle>,
    /// For writes to ranges that records were given.
    pub(super) pass: Pass,
    /// Its class, where a policy divides by path.
    pub(super) class: PathClass,
}

impl OpenFile {
    /// Its class by its path, where the policy of its gate divides by that.
    pub(super) fn class(&self, engine: &Engine) -> AppId {
        engine.class_by_path(&self.class, || self.file.path())
    }
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
        let Limits { credits, credit_bytes, open_files_per_session, .. } = server.limits;
        let limits = SessionLimits { credits, credit_bytes, open_files: open_files_per_session };
        Session {
            account: server.account(export.index, user.uid),
            server: Arc::clone(server),
            token,
            export,
            user,
            rights,
            stripes,
            ends: hello.flags & wire::hello::ENDS != 0,
            name: iogate_core::wire::client_name(hello.name),
            forwarder: Forwarder::of(hello),
            since: Instant::now(),
            state: Mutex::new(ServerSession::new(limits, server.now())),
        }
    }

    /// Makes a connection the session's; returns the one before, if anybody still has to do with it.
    pub(super) fn attach(&self, connection: &Connection) -> Result<Option<Arc<Connection>>, Refusal> {
        let before = lock(&self.state).attach(connection.link.clone())?;
        Ok(before.and_then(|before| before.get()))
    }

    /// Notes that a connection is gone; `is_ended`: the other end's machine has ended it.
    pub(super) fn detach(&self, connection: &Connection, is_ended: bool) {
        let (mut state, now) = (lock(&self.state), self.server.now());
        match is_ended && self.ends {
            true => state.leave(&connection.link, now),
            false => state.detach(&connection.link, now),
        }
    }

    /// Whether a connection is the session's.
    pub(super) fn is_current(&self, connection: &Connection) -> bool {
        lock(&self.state).is_current(&connection.link)
    }

    /// Whether nobody has come back to it in time.
    pub(super) fn is_abandoned(&self) -> bool {
        let grace = Span::from(self.server.session_grace);
        lock(&self.state).is_abandoned(self.server.now(), grace)
    }

    /// Who is at the other end of the session's connection; `None` if there is none, or if its end just has not been read yet.
    pub(super) fn connected_peer(&self) -> Option<String> {
        let connection = lock(&self.state).connection()?.get()?;
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

    /// Ends the session. Requests in flight go on. Dropping what this returns closes the files, which may take long.
    #[must_use]
    pub(super) fn end(&self) -> Vec<Arc<OpenFile>> {
        let (handles, files) = lock(&self.state).end();
        self.server.count_closed(&self.account, handles);
        files
    }

    /// Ends the session, and has a worker close its files.
    pub(super) fn end_soon(self: &Arc<Self>) {
        let files = self.end();
        if self.has_locks() || !files.is_empty() {
            let session = Arc::clone(self);
            self.run(move || {
                session.end_locks();
                drop(files);
            });
        }
    }

    /// Ends the session of a forwarder whose next process is here, but for its locks: they stay its own for as long as it could have come
    /// back. Its clients are still there, and what they do by name they may do as who has the locks.
    pub(super) fn end_but_for_locks_soon(&self) {
        let files = self.end();
        if !files.is_empty() {
            self.run(move || drop(files));
        }
    }

    /// Ends the session, and closes its files here.
    pub(super) fn end_here(&self) {
        let files = self.end();
        self.end_locks();
        drop(files);
    }

    /// Whether it has locks.
    pub(super) fn has_locks(&self) -> bool {
        self.export.locks.get().is_some_and(|locks| locks.has(self.number()))
    }

    /// Frees what the session has locked, when it has ended.
    fn end_locks(&self) {
        if let Some(locks) = self.export.locks.get().filter(|_| self.has_locks()) {
            locks.end_session(&*self.export.tree, self.number());
        }
    }

    /// Runs a job of this session in a worker, when it is its turn.
    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        self.server.workers.run_for(self.export.index, self.number(), job);
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
        wire::session_number(&self.token)
    }

    /// Takes in a request that has come over a connection, with `bytes` bytes of data to write or to read.
    pub(super) fn admit(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        header: &RequestHeader,
        bytes: u32,
    ) -> Result<Taken, Refusal> {
        let admission = lock(&self.state).admit(&connection.link, header.id, header.acked, bytes)?;
        match admission {
            Admission::New(owed) => {
                self.server.begun();
                lock(&connection.figures).requests += 1;
                return Ok(Taken::New(Answer::new(self, owed)));
            }
            Admission::Nothing => {}
            Admission::Repeated(reply) => {
                queue(&reply, connection, header.id);
                connection.deliver();
            }
            Admission::Refused(reply, refusal) => {
                queue(&reply, connection, header.id);
                connection.deliver();
                return Err(refusal);
            }
        }
        Ok(Taken::Not)
    }

    /// Takes a handle for a file that is to be opened.
    pub(super) fn reserve(&self, handle: u32) -> Result<(), Refusal> {
        let mut state = lock(&self.state);
        state.reserve(handle)?;
        if self.server.may_open(&self.account) {
            return Ok(());
        }
        state.release(handle);
        let text = format!("user {} has as many files open as may be: close some", self.user.uid);
        Err(Refusal::new(libc::EMFILE, text))
    }

    /// Fills a handle that was taken, unless the session has ended meanwhile.
    pub(super) fn fill(&self, handle: u32, file: OpenFile) {
        let left = lock(&self.state).fill(handle, Arc::new(file));
        drop(left);
    }

    /// Gives up a handle that was taken and not filled.
    pub(super) fn release(&self, handle: u32) {
        if lock(&self.state).release(handle) {
            self.server.count_closed(&self.account, 1);
        }
    }

    /// An open file.
    pub(super) fn file(&self, handle: u32) -> Result<Arc<OpenFile>, Refusal> {
        lock(&self.state).file(handle)
    }

    /// An open file that may be read or written, as `mode` says.
    pub(super) fn file_for(&self, handle: u32, mode: u32) -> Result<Arc<OpenFile>, Refusal> {
        let file = self.file(handle)?;
        if file.flags & mode == 0 {
            let what = if mode == open::READ { "reading" } else { "writing" };
            return Err(Refusal::new(libc::EBADF, format!("handle {handle} is not open for {what}")));
        }
        Ok(file)
    }

    /// Gives up a handle; the file is closed when the last request for it is done.
    pub(super) fn close(&self, handle: u32) -> Result<Arc<OpenFile>, Refusal> {
        let file = lock(&self.state).close(handle)?;
        self.server.count_closed(&self.account, 1);
        Ok(file)
    }
}

fn queue(reply: &CachedReply, connection: &Connection, id: u64) {
    match reply {
        CachedReply::Written(written) => {
            connection.queue(0, id, |fields| written.encode(fields), Payload::None);
        }
        CachedReply::Whole(cached, payload) => {
            let payload = Payload::Bytes(payload.to_vec(), None);
            connection.queue(0, id, |fields| fields.extend_from_slice(cached), payload);
        }
        CachedReply::Fields(errno, cached) => {
            connection.queue(*errno, id, |fields| fields.extend_from_slice(cached), Payload::None);
        }
    }
}

/// The answer that a request waits for. Dropped without one, it answers `EIO`.
pub(super) struct Answer {
    session: Arc<Session>,
    /// `None`: it has been given, or is parked.
    owed: Option<Owed>,
    is_parked: bool,
}

impl Answer {
    /// The answer that a session owes.
    pub(super) fn new(session: &Arc<Session>, owed: Owed) -> Answer {
        Answer { session: Arc::clone(session), owed: Some(owed), is_parked: false }
    }

    /// Who waits for it.
    pub(super) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// What is owed, which somebody else gives.
    pub(super) fn park(mut self) -> Option<Owed> {
        self.is_parked = true;
        self.owed.take()
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
        self.give(Some(CachedReply::Whole(fields.into(), payload.into())), Payload::None);
    }

    /// What a write did.
    pub(super) fn written(mut self, written: Written) {
        self.give(Some(CachedReply::Written(written)), Payload::None);
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
        if let Some((connection, id)) = self.finish(None) {
            connection.queue(0, id, |out| out.extend_from_slice(fields), Payload::None);
            connection.deliver();
        }
    }

    /// As if the request had not come: if it is sent again, it is carried out.
    pub(super) fn forget(mut self) {
        if let Some(owed) = self.owed.take() {
            lock(&self.session.state).forget(owed);
        }
    }

    /// To be asked before a request is carried out that was taken in at `since`: forgets it if its client is gone, and frees the
    /// handle that it was to open.
    pub(super) fn if_wanted(mut self, since: Instant, opening: Option<u32>) -> Option<Answer> {
        if since.elapsed() < FRESH {
            return Some(self);
        }
        let seen = lock(&self.session.state).connection().cloned();
        if seen.as_ref().and_then(Link::get).is_some_and(|connection| connection.is_alive()) {
            return Some(self);
        }
        let given_up = lock(&self.session.state).give_up(self.owed.take()?, seen.as_ref(), opening);
        match given_up {
            GivenUp::Wanted(owed) => {
                self.owed = Some(owed);
                Some(self)
            }
            GivenUp::Forgotten { is_released } => {
                let handles = usize::from(is_released);
                self.session.server.count_closed(&self.session.account, handles);
                None
            }
        }
    }

    /// A failure of the system. What nobody waits for any more is forgotten.
    pub(super) fn failed(self, error: &io::Error) {
        if SubmitError::is_unwanted(error) {
            return self.forget();
        }
        self.refuse(&explained(error));
    }

    /// A failure.
    pub(super) fn refuse(mut self, refusal: &Refusal) {
        self.give(Some(CachedReply::failure(refusal)), Payload::None);
    }

    fn keep(mut self, errno: u16, fields: Vec<u8>) {
        self.give(Some(CachedReply::Fields(errno, fields.into())), Payload::None);
    }

    /// Settles it. Returns where to send the reply, and to which request.
    fn finish(&mut self, reply: Option<CachedReply>) -> Option<(Arc<Connection>, u64)> {
        let owed = self.owed.take()?;
        let id = owed.id();
        let connection = lock(&self.session.state).finish(owed, reply).and_then(Link::get)?;
        Some((connection, id))
    }

    fn give(&mut self, reply: Option<CachedReply>, payload: Payload) {
        if let Some((connection, id)) = self.finish(reply.clone()) {
            match reply {
                Some(reply) => queue(&reply, &connection, id),
                None => connection.queue(0, id, |_| {}, payload),
            }
            connection.deliver();
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.is_parked {
            return;
        }
        if let Some(owed) = &self.owed {
            tracing::error!(id = owed.id(), "a request was dropped; answering EIO");
            let refusal = Refusal::new(libc::EIO, "a defect of the server: its log says more");
            self.give(Some(CachedReply::failure(&refusal)), Payload::None);
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
