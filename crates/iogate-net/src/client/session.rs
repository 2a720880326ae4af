//! One session with one server: many threads ask, one of them receives.
//!
//! A thread that waits for its answer receives for everybody while nobody else does, and passes that on when it has its own
//! answer: then nobody has to be woken for a lone request. Where somebody waits who is not a thread in a call (an engine), the client's
//! own thread receives. Only who receives answers requests, and gives them up: so nobody touches the memory of
//! a request that is being filled.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use iogate_core::outstanding::{Limits, Outstanding};
use iogate_core::wire::{Goodbye, Identity, Opened, Record, Request, Welcome};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use super::call::{Answer, Call, Done, Waiter};
use super::connect::{NO_SESSION, connect, timespec};
use super::fork::Owner;
use super::receive::{Incoming, Place, Replies};
use super::recover::Loss;
use super::send::Outgoing;
use super::{ClientError, ClientOptions, Receiving};
use crate::Endpoint;
use crate::socket::Socket;
use crate::tree::Caller;

/// How often an idle client looks whether its connection is still there.
const IDLE_LOOK: Duration = Duration::from_secs(1);

/// One session with one server. Any number of threads may use it at once.
pub struct Client {
    pub(super) shared: Arc<Shared>,
    background: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    pub(super) endpoint: Endpoint,
    pub(super) options: ClientOptions,
    state: Mutex<State>,
    /// The background thread is to receive, or to end.
    wanted: Condvar,
    /// Nobody writes any more.
    written: Condvar,
    /// Wakes the thread that polls.
    waker: OwnedFd,
    pub(super) owner: Owner,
}

pub(super) struct State {
    pub(super) requests: Outstanding<Call>,
    pub(super) link: Option<Arc<Link>>,
    pub(super) welcome: Welcome,
    pub(super) loss: Option<Loss>,
    pub(super) handles: BTreeMap<u32, Handle>,
    last_handle: u32,
    writing: Writing,
    /// Ids below this are written as a whole, and their memory is not read any more.
    written: u64,
    /// Answered before all of their data was written.
    early: Vec<(Call, io::Result<Answer>)>,
    pub(super) lead: Lead,
    /// The leader sleeps in `poll`.
    polls: bool,
    /// Requests whose answers no thread waits for.
    asynchronous: usize,
    pub(super) closed: bool,
}

/// A connection.
pub(super) struct Link {
    pub(super) socket: Box<dyn Socket>,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writing {
    Nobody,
    /// A thread, until there is nothing left.
    Somebody,
    /// The leader, as soon as there is room.
    Leader,
}

/// Who receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lead {
    Free,
    Caller,
    Background,
}

/// A file that is open at the server.
pub(super) struct Handle {
    pub(super) path: Vec<u8>,
    pub(super) flags: u32,
    pub(super) caller: Caller,
    /// Known once it is open.
    pub(super) identity: Option<Identity>,
    /// It could not be opened again in a new session.
    pub(super) is_stale: bool,
}

impl Client {
    /// Connects to a server.
    pub fn connect(endpoint: &Endpoint, options: ClientOptions) -> Result<Client, ClientError> {
        let (socket, welcome) = connect(endpoint, &options, NO_SESSION)?;
        let mut requests = Outstanding::new();
        requests.renewed(limits(&welcome));
        let state = State {
            requests,
            link: Some(Arc::new(Link::new(socket))),
            welcome,
            loss: None,
            handles: BTreeMap::new(),
            last_handle: 0,
            writing: Writing::Nobody,
            written: 1,
            early: Vec::new(),
            lead: Lead::Free,
            polls: false,
            asynchronous: 0,
            closed: false,
        };
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let waker = (options.keep)(waker)?;
        let has_background = options.receiving == Receiving::Background;
        let shared = Arc::new(Shared {
            endpoint: endpoint.clone(),
            options,
            state: Mutex::new(state),
            wanted: Condvar::new(),
            written: Condvar::new(),
            waker,
            owner: Owner::new(),
        });
        let background = if has_background {
            let shared = Arc::clone(&shared);
            let receive = move || shared.receive_in_background();
            Some(thread::Builder::new().name("iogate-client".into()).spawn(receive)?)
        } else {
            None
        };
        Ok(Client { shared, background })
    }

    /// Where the server is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// What the server has said of itself when it was last connected to.
    pub fn welcome(&self) -> Welcome {
        self.shared.lock().welcome
    }

    /// Asks, and waits for the answer.
    pub(super) fn call(&self, request: &Request<'_>, caller: Caller) -> io::Result<Answer> {
        self.wait_for(|done| Some(Call::new(request, caller, handle_of(request), done)))
    }

    /// Submits what `make` makes of a way to be told, and waits for the answer.
    pub(super) fn wait_for(&self, make: impl FnOnce(Done) -> Option<Call>) -> io::Result<Answer> {
        let waiter = Waiter::new();
        let Some(call) = make(Done::Wake(Arc::clone(&waiter))) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        self.shared.submit(call, Some(&waiter));
        loop {
            if waiter.take_lead() {
                self.shared.lead_as_caller(&waiter);
            } else if let Some(answer) = waiter.take() {
                return answer;
            } else {
                thread::park();
            }
        }
    }

    /// Submits a request that no thread waits for. Without a thread of the client's own, receives until it is answered.
    pub(super) fn start(&self, call: Call) {
        self.shared.submit(call, None);
    }

    /// A number for a file that is to be opened, which is known under it from now on.
    pub(super) fn new_handle(&self, path: &Path, flags: u32, caller: Caller) -> u32 {
        use std::os::unix::ffi::OsStrExt;
        let mut state = self.shared.lock();
        loop {
            state.last_handle = state.last_handle.checked_add(1).unwrap_or(1);
            let number = state.last_handle;
            let path = path.as_os_str().as_bytes();
            if let std::collections::btree_map::Entry::Vacant(entry) = state.handles.entry(number) {
                entry.insert(Handle { path: path.to_vec(), flags, caller, identity: None, is_stale: false });
                return number;
            }
        }
    }

    /// A file is no longer needed.
    pub(super) fn close(&self, handle: u32, caller: Caller) {
        self.shared.lock().handles.remove(&handle);
        let close = Request::Close(iogate_core::wire::Close { handle });
        self.start(Call::new(&close, caller, handle, Done::Nothing));
    }

    /// A path has changed: files that are open below it are found there if they must be opened again.
    pub(super) fn renamed(&self, from: &[u8], to: &[u8]) {
        for handle in self.shared.lock().handles.values_mut() {
            let rest = match handle.path.strip_prefix(from) {
                Some(rest) if rest.is_empty() || rest.starts_with(b"/") => rest.to_vec(),
                _ => continue,
            };
            handle.path = [to, &rest].concat();
        }
    }
}

impl Drop for Client {
    /// Says goodbye, without waiting for an answer.
    fn drop(&mut self) {
        let goodbye = Call::new(&Request::Goodbye(Goodbye {}), Caller { uid: 0, gid: 0 }, 0, Done::Nothing);
        self.start(goodbye);
        self.shared.close();
        let background = self.background.take();
        if let Some(thread) = background.filter(|thread| thread.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl Link {
    pub(super) fn new(socket: Box<dyn Socket>) -> Link {
        Link { socket, outgoing: Mutex::default(), incoming: Mutex::default() }
    }

    /// Whoever reads or writes finds that it is over.
    fn cut(&self) {
        let _ = rustix::net::shutdown(self.socket.fd(), rustix::net::Shutdown::Both);
    }
}

pub(super) fn limits(welcome: &Welcome) -> Limits {
    Limits { requests: welcome.credits.max(1), bytes: welcome.credit_bytes }
}

/// The open file that a request uses.
fn handle_of(request: &Request<'_>) -> u32 {
    match request {
        Request::Open(open) => open.handle,
        Request::Sync(sync) => sync.handle,
        Request::GetAttr(get) => get.handle,
        Request::SetAttr(set) => set.handle,
        Request::Allocate(allocate) => allocate.handle,
        Request::Seek(seek) => seek.handle,
        Request::GetLayout(layout) => layout.handle,
        _ => iogate_core::wire::NO_HANDLE,
    }
}

impl State {
    /// Nobody receives, writes or is waited for.
    pub(super) fn reset(&mut self) {
        (self.lead, self.writing, self.polls) = (Lead::Free, Writing::Nobody, false);
        std::mem::forget(std::mem::take(&mut self.early));
        (self.written, self.asynchronous) = (1, 0);
    }

    /// Whether the background thread is to receive.
    pub(super) fn wants_background(&self) -> bool {
        self.asynchronous > 0 || self.link.is_none()
    }

    /// Takes note of what an answer means for the session's files.
    fn settle(&mut self, call: &Call, answer: &mut io::Result<Answer>) {
        let is_bad = matches!(answer, Err(error) if error.raw_os_error() == Some(libc::EBADF));
        if call.opens() {
            let opened = match answer {
                Ok(Answer::Other { fields, .. }) => Opened::decode(fields).ok(),
                _ => None,
            };
            match (opened, self.handles.get_mut(&call.handle)) {
                (Some(opened), Some(handle)) => handle.identity = Some(opened.identity),
                (None, Some(handle)) if matches!(call.done, Done::Restored) => handle.is_stale = true,
                (None, Some(_)) => drop(self.handles.remove(&call.handle)),
                (_, None) => {}
            }
        } else if is_bad && self.handles.get(&call.handle).is_some_and(|handle| handle.is_stale) {
            *answer = Err(io::Error::from_raw_os_error(libc::ESTALE));
        }
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn waker_fd(&self) -> RawFd {
        self.waker.as_raw_fd()
    }

    pub(super) fn has_background(&self) -> bool {
        self.options.receiving == Receiving::Background
    }

    /// Takes a request, and writes it unless somebody is writing already. Its `waiter` may have to receive.
    fn submit(&self, call: Call, waiter: Option<&Waiter>) {
        self.notice_fork();
        let mut state = self.lock();
        if state.closed || self.refuses(&mut state) {
            let mut answer = Err(io::Error::from_raw_os_error(libc::EIO));
            state.settle(&call, &mut answer);
            drop(state);
            return call.finish(answer);
        }
        state.asynchronous += usize::from(call.is_asynchronous());
        let demand = call.demand;
        state.requests.push(call, demand);
        if state.lead == Lead::Free {
            match waiter {
                Some(waiter) if !(self.has_background() && state.wants_background()) => {
                    state.lead = Lead::Caller;
                    waiter.offer_lead();
                }
                _ if self.has_background() => {
                    state.lead = Lead::Background;
                    self.wanted.notify_one();
                }
                // Received by the next thread that waits.
                _ => {}
            }
        }
        self.write(state);
    }

    /// Writes what may be written, unless somebody else does.
    pub(super) fn write(&self, mut state: MutexGuard<'_, State>) {
        if state.writing != Writing::Nobody {
            return;
        }
        let Some(link) = state.link.clone() else { return };
        state.writing = Writing::Somebody;
        self.write_all(&link, state);
    }

    /// Writes until nothing is left or the socket is full.
    fn write_all<'a>(&'a self, link: &Arc<Link>, mut state: MutexGuard<'a, State>) {
        let mut outgoing = link.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if outgoing.is_empty() {
                let early = std::mem::take(&mut state.early);
                state.written = state.written.max(outgoing.end);
                while outgoing.has_room() {
                    let Some(next) = state.requests.next_to_write() else { break };
                    outgoing.add(next.id, next.acked, next.item);
                }
                let is_over = outgoing.is_empty() && !link.socket.wants_flush();
                if is_over {
                    state.writing = Writing::Nobody;
                    self.written.notify_all();
                }
                if !early.is_empty() {
                    // Their threads may be asleep in `poll`.
                    self.wake(&state);
                }
                drop(state);
                early.into_iter().for_each(|(call, answer)| call.finish(answer));
                if is_over {
                    return;
                }
            } else {
                drop(state);
            }
            let written = if outgoing.is_empty() {
                link.socket.flush()
            } else {
                outgoing.write(&*link.socket).map(drop)
            };
            state = self.lock();
            match written {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    state.writing = Writing::Leader;
                    self.written.notify_all();
                    self.wake(&state);
                    return;
                }
                Err(_) => {
                    // Who receives finds out, and does what is to be done.
                    link.cut();
                    state.writing = Writing::Leader;
                    self.written.notify_all();
                    self.wake(&state);
                    return;
                }
            }
        }
    }

    /// Wakes the leader, if it sleeps in `poll`.
    pub(super) fn wake(&self, state: &State) {
        if state.polls {
            let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
        }
    }

    fn receive_in_background(&self) {
        let mut state = self.lock();
        loop {
            if state.closed {
                if state.lead == Lead::Background {
                    self.pass_lead(&mut state);
                }
                return;
            }
            match state.lead {
                Lead::Background => {
                    state = self.lead_once(state, None);
                    if !state.wants_background() && !state.closed {
                        self.pass_lead(&mut state);
                    }
                }
                lead => {
                    let (again, waited) =
                        self.wanted.wait_timeout(state, IDLE_LOOK).unwrap_or_else(PoisonError::into_inner);
                    state = again;
                    if lead == Lead::Free && waited.timed_out() && state.lead == Lead::Free {
                        state.lead = Lead::Background;
                        state = self.lead_once(state, Some(Duration::ZERO));
                        self.pass_lead(&mut state);
                    }
                }
            }
        }
    }

    /// Receives until the calling thread has its answer, or another is to receive.
    fn lead_as_caller(&self, waiter: &Waiter) {
        let mut state = self.lock();
        while !(waiter.is_answered() || self.has_background() && state.link.is_none()) {
            state = self.lead_once(state, None);
        }
        self.pass_lead(&mut state);
    }

    /// Whoever should receives from now on. Called by the leader.
    fn pass_lead(&self, state: &mut State) {
        if self.has_background() && state.wants_background() && !state.closed {
            state.lead = Lead::Background;
            self.wanted.notify_one();
            return;
        }
        let next = state.requests.iter().find_map(|call| match &call.done {
            Done::Wake(waiter) => Some(waiter),
            _ => None,
        });
        if let Some(waiter) = next {
            waiter.offer_lead();
            state.lead = Lead::Caller;
        } else {
            state.lead = Lead::Free;
        }
    }

    /// Waits until there is something to receive, room to write, or a server to connect to, and does that.
    fn lead_once<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let Some(link) = state.link.clone() else {
            drop(state);
            self.reconnect();
            return self.lock();
        };
        state.polls = true;
        let wants_room = state.writing == Writing::Leader;
        drop(state);
        let fd = link.socket.fd();
        let what = if wants_room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(&fd, what), PollFd::new(&self.waker, PollFlags::IN)];
        let timeout = timeout.and_then(timespec);
        let polled = poll(&mut fds, timeout.as_ref());
        let (found, woken) = (fds[0].revents(), fds[1].revents());
        let mut state = self.lock();
        state.polls = false;
        if !woken.is_empty() {
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.waker, &mut count[..]);
        }
        if matches!(polled, Err(error) if error != rustix::io::Errno::INTR) {
            tracing::error!(?polled, "a connection cannot be polled");
        }
        if found.contains(PollFlags::OUT) && state.writing == Writing::Leader {
            state.writing = Writing::Somebody;
            self.write_all(&link, state);
        } else {
            drop(state);
        }
        if found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.receive(&link);
        }
        self.lock()
    }

    /// Receives what is there.
    fn receive(&self, link: &Arc<Link>) {
        let mut incoming = link.incoming.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let mut batch = Batch { shared: self, done: Vec::new() };
            let received = incoming.receive(&*link.socket, &mut batch);
            self.finish(link, batch.done);
            match received {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    drop(incoming);
                    return self.lose(link, &error);
                }
            }
        }
    }

    /// Tells those who wait, and then writes what they submit together.
    fn finish(&self, link: &Arc<Link>, done: Vec<(Call, io::Result<Answer>)>) {
        if done.is_empty() {
            return;
        }
        let mut state = self.lock();
        let corked = state.writing == Writing::Nobody;
        if corked {
            state.writing = Writing::Somebody;
        }
        drop(state);
        for (call, answer) in done {
            call.finish(answer);
        }
        if corked {
            self.write_all(link, self.lock());
        }
    }

    /// The connection is over. Called by the leader.
    fn lose(&self, link: &Arc<Link>, error: &io::Error) {
        link.cut();
        let mut state = self.lock();
        while state.writing == Writing::Somebody {
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.writing = Writing::Nobody;
        state.link = None;
        state.requests.disconnected();
        let early = std::mem::take(&mut state.early);
        if !state.closed {
            tracing::warn!(server = %self.endpoint, %error, "the connection to a server is lost");
            state.loss = Some(Loss::new(Instant::now()));
        }
        drop(state);
        early.into_iter().for_each(|(call, answer)| call.finish(answer));
    }

    /// There is a connection again.
    pub(super) fn install<'a>(&'a self, state: &mut MutexGuard<'a, State>, socket: Box<dyn Socket>) {
        state.link = Some(Arc::new(Link::new(socket)));
        state.loss = None;
        state.writing = Writing::Nobody;
    }

    /// In a new session nothing has been written yet.
    pub(super) fn nothing_written(state: &mut State) {
        state.written = 1;
    }

    /// Takes note that requests are given up.
    pub(super) fn give_up(state: &mut State, calls: &[Call]) {
        for call in calls {
            state.settle(call, &mut Err(io::Error::from_raw_os_error(libc::EIO)));
        }
        state.asynchronous = state.requests.iter().filter(|call| call.is_asynchronous()).count();
    }

    /// Waits for the waker, for at most so long.
    pub(super) fn pause(&self, time: Duration) {
        {
            let mut state = self.lock();
            if state.closed {
                return;
            }
            state.polls = true;
        }
        let _ = poll(&mut [PollFd::new(&self.waker, PollFlags::IN)], timespec(time).as_ref());
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.waker, &mut count[..]);
        self.lock().polls = false;
    }

    /// Ends the session: nothing is answered any more.
    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        self.wake(&state);
        self.wanted.notify_all();
        state.requests.disconnected();
    }
}

/// What is complete of what has been received.
struct Batch<'a> {
    shared: &'a Shared,
    done: Vec<(Call, io::Result<Answer>)>,
}

fn unexpected(id: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("an answer comes to a request {id} that nobody has sent"),
    )
}

impl Replies for Batch<'_> {
    fn place(&mut self, id: u64) -> io::Result<Place> {
        let state = self.shared.lock();
        let call = state.requests.get(id).ok_or_else(|| unexpected(id))?;
        Ok(if call.is_read() { Place::Into(call.memory.segments().to_vec()) } else { Place::Own })
    }

    fn take(&mut self, id: u64) -> io::Result<Call> {
        self.shared.lock().requests.answer(id).ok_or_else(|| unexpected(id))
    }

    fn answered(&mut self, id: u64, call: Call, mut answer: io::Result<Answer>) {
        let mut state = self.shared.lock();
        state.asynchronous -= usize::from(call.is_asynchronous());
        state.settle(&call, &mut answer);
        if call.payload_bytes() > 0 && id >= state.written && state.writing != Writing::Nobody {
            state.early.push((call, answer));
        } else {
            drop(state);
            self.done.push((call, answer));
        }
    }
}
