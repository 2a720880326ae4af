//! One session with one server: many threads ask, one of them receives (`lead.rs`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iogate_core::outstanding::{Limits, Outstanding};
use iogate_core::wire::{Gone, Goodbye, Identity, Opened, Record, Request, Welcome};
use iogate_vfs::{Caller, Waiting, WhenGone};
use rustix::event::{EventfdFlags, eventfd};

use super::call::{Answer, Call, Done, Waiter, record};
use super::clock::ClockOffset;
use super::connect::{Connected, NO_SESSION, connect};
use super::fork::Owner;
use super::receive::Incoming;
use super::recover::Loss;
use super::send::Outgoing;
use super::{ClientError, ClientOptions, Receiving};
use crate::Endpoint;
use crate::socket::{Socket, kept};

/// One session with one server. Any number of threads may use it at once.
pub struct Client {
    pub(super) shared: Arc<Shared>,
    background: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    pub(super) endpoint: Endpoint,
    pub(super) options: ClientOptions,
    /// As the server has said when it was last connected to.
    pub(super) verifier: AtomicU64,
    state: Mutex<State>,
    /// The background thread is to receive, or to end.
    pub(super) wanted: Condvar,
    /// Nobody writes any more.
    pub(super) written: Condvar,
    /// Wakes the thread that polls.
    pub(super) waker: OwnedFd,
    pub(super) owner: Owner,
}

pub(super) struct State {
    pub(super) requests: Outstanding<Call>,
    pub(super) link: Option<Arc<Link>>,
    pub(super) welcome: Welcome,
    pub(super) clock: ClockOffset,
    /// It has been said that the clocks differ.
    clock_warned: bool,
    pub(super) loss: Option<Loss>,
    /// The last loss, until the server has answered something since.
    pub(super) loss_before: Option<Loss>,
    pub(super) handles: BTreeMap<u32, Handle>,
    last_handle: u32,
    pub(super) writing: Writing,
    /// The leader waits until nobody writes.
    pub(super) awaits_writer: bool,
    /// Ids below this are written as a whole, and their memory is not read any more.
    pub(super) written: u64,
    /// Answered before all of their data was written.
    pub(super) early: Vec<(Call, io::Result<Answer>)>,
    pub(super) lead: Lead,
    /// The leader sleeps in `poll`.
    pub(super) polls: bool,
    /// Requests whose answers no thread waits for.
    pub(super) asynchronous: usize,
    pub(super) closed: bool,
}

/// A connection.
pub(super) struct Link {
    pub(super) socket: Box<dyn Socket>,
    outgoing: Mutex<Outgoing>,
    pub(super) incoming: Mutex<Incoming>,
}

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
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
        let Connected { socket, welcome, clock } = connect(endpoint, &options, NO_SESSION)?;
        let mut requests = Outstanding::new();
        requests.renewed(limits(&welcome), false);
        let state = State {
            requests,
            link: Some(Arc::new(Link::new(socket))),
            welcome,
            clock,
            clock_warned: false,
            loss: None,
            loss_before: None,
            handles: BTreeMap::new(),
            last_handle: 0,
            writing: Writing::Nobody,
            awaits_writer: false,
            written: 1,
            early: Vec::new(),
            lead: Lead::Free,
            polls: false,
            asynchronous: 0,
            closed: false,
        };
        let waker = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?;
        let waker = kept(waker)?;
        let has_background = options.receiving == Receiving::Background;
        let shared = Arc::new(Shared {
            endpoint: endpoint.clone(),
            options,
            verifier: welcome.verifier.into(),
            state: Mutex::new(state),
            wanted: Condvar::new(),
            written: Condvar::new(),
            waker,
            owner: Owner::new(),
        });
        shared.look_at_clock(&mut shared.lock());
        let background = if has_background {
            let shared = Arc::clone(&shared);
            let receive = move || shared.receive_in_background();
            Some(thread::Builder::new().name("iogate-client".into()).spawn(receive)?)
        } else {
            None
        };
        Ok(Client { shared, background })
    }

    /// Whether there is a connection now; if not, the client tries again.
    pub fn is_connected(&self) -> bool {
        self.shared.lock().link.is_some()
    }

    /// Where the server is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// What the server has said of itself when it was last connected to.
    pub fn welcome(&self) -> Welcome {
        self.shared.lock().welcome
    }

    /// The verifier of the server's export; see [`Tree::verifier`](iogate_vfs::Tree::verifier).
    pub(super) fn verifier(&self) -> u64 {
        self.shared.verifier.load(Ordering::Acquire)
    }

    /// How far the server's clock was from this one's when it was last connected to.
    pub fn clock(&self) -> ClockOffset {
        self.shared.lock().clock
    }

    /// Whether the server's clock is further away than the options tolerate.
    pub fn has_other_clock(&self) -> bool {
        self.clock().exceeds(self.shared.options.clock_tolerance)
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

    /// Asks, and returns what waits for the answer. Only with a thread of the client's own.
    pub(super) fn begin<'a, T: 'a>(
        &'a self,
        request: &Request<'_>,
        caller: Caller,
        then: impl FnOnce(Answer) -> io::Result<T> + 'a,
    ) -> Waiting<'a, T> {
        let (sender, answer) = std::sync::mpsc::sync_channel(1);
        let done = Done::Call(Box::new(move |answer| {
            let _ = sender.send(answer);
        }));
        self.start(Call::new(request, caller, handle_of(request), done));
        Box::new(move || {
            let answer = answer.recv().unwrap_or_else(|_| Err(io::Error::from_raw_os_error(libc::EIO)));
            then(answer?)
        })
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

    /// A file is no longer needed. Nobody waits for the answer; what it says to be gone is told.
    pub(super) fn close(&self, handle: u32, caller: Caller, tell: Option<WhenGone>) {
        self.shared.lock().handles.remove(&handle);
        let close = Request::Close(iogate_core::wire::Close { handle });
        let done = match tell {
            None => Done::Nothing,
            Some(tell) => Done::Later(Box::new(move |answer| {
                if let Ok(gone) = answer.and_then(record::<Gone>)
                    && gone != Gone::NONE
                {
                    tell(gone);
                }
            })),
        };
        self.start(Call::new(&close, caller, handle, done));
    }

    /// A path has changed: files that are open below it are found there if they must be opened again.
    /// With `exchange`, those below either path.
    pub(super) fn renamed(&self, from: &[u8], to: &[u8], exchange: bool) {
        let rest_of = |path: &[u8], before: &[u8]| match path.strip_prefix(before) {
            Some(rest) if rest.is_empty() || rest.starts_with(b"/") => Some(rest.to_vec()),
            _ => None,
        };
        for handle in self.shared.lock().handles.values_mut() {
            if let Some(rest) = rest_of(&handle.path, from) {
                handle.path = [to, &rest].concat();
            } else if exchange && let Some(rest) = rest_of(&handle.path, to) {
                handle.path = [from, &rest].concat();
            }
        }
    }

    /// The path of an open file by now.
    pub(super) fn path_of(&self, handle: u32) -> Option<Vec<u8>> {
        self.shared.lock().handles.get(&handle).map(|handle| handle.path.clone())
    }
}

/// How long a client that goes waits for the server to have heard so.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

impl Drop for Client {
    /// Says goodbye, and makes sure that it is heard, as far as that takes no time to speak of.
    fn drop(&mut self) {
        let goodbye = Call::new(&Request::Goodbye(Goodbye {}), Caller::new(0, 0), 0, Done::Nothing);
        self.start(goodbye);
        if self.background.is_none() || self.shared.lead_if_free() {
            self.shared.settle(LAST_ANSWERS);
        }
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
    pub(super) fn cut(&self) {
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
        Request::Reserve(reserve) => reserve.handle,
        Request::Resize(resize) => resize.handle,
        Request::Settle(settle) => settle.handle,
        Request::GetXattr(get) => get.handle,
        Request::SetXattr(set) => set.handle,
        Request::ListXattr(list) => list.handle,
        Request::RemoveXattr(remove) => remove.handle,
        _ => iogate_core::wire::NO_HANDLE,
    }
}

impl State {
    /// Nobody receives, writes or is waited for.
    pub(super) fn reset(&mut self) {
        (self.lead, self.writing, self.polls) = (Lead::Free, Writing::Nobody, false);
        self.awaits_writer = false;
        std::mem::forget(std::mem::take(&mut self.early));
        (self.written, self.asynchronous) = (1, 0);
    }

    /// Whether the background thread is to receive.
    pub(super) fn wants_background(&self) -> bool {
        self.asynchronous > 0 || self.link.is_none()
    }

    /// Takes note of what an answer means for the session's files.
    pub(super) fn settle(&mut self, call: &Call, answer: &mut io::Result<Answer>) {
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

    /// Says once that the server has another time, if it has.
    pub(super) fn look_at_clock(&self, state: &mut State) {
        if !state.clock_warned && state.clock.exceeds(self.options.clock_tolerance) {
            state.clock_warned = true;
            tracing::warn!(
                server = %self.endpoint, client = self.options.name,
                "the server's clock is {} of this one's: windows and issue times go by them, so set both by NTP or PTP",
                state.clock
            );
        }
    }

    /// Takes a request, and writes it unless somebody is writing already. Its `waiter` may have to receive.
    fn submit(&self, mut call: Call, waiter: Option<&Waiter>) {
        self.notice_fork();
        call.give_origin();
        let mut state = self.lock();
        if state.closed || self.refuses(&mut state) {
            let mut answer = Err(io::Error::from_raw_os_error(libc::EIO));
            state.settle(&call, &mut answer);
            drop(state);
            return call.finish(answer);
        }
        let is_asynchronous = call.is_asynchronous();
        state.asynchronous += usize::from(is_asynchronous);
        call.demand.has_origin = call.caller.origin.is_some();
        let demand = call.demand;
        state.requests.push(call, demand);
        let mut wakes = false;
        if state.lead == Lead::Free && (is_asynchronous || waiter.is_some()) {
            match waiter {
                Some(waiter) if !(self.has_background() && state.wants_background()) => {
                    state.lead = Lead::Caller;
                    waiter.offer_lead();
                }
                _ if self.has_background() => {
                    state.lead = Lead::Background;
                    wakes = true;
                }
                // Received by the next thread that waits.
                _ => {}
            }
        }
        self.write(state);
        if wakes {
            // Not before: it would only wait for the lock.
            self.wanted.notify_one();
        }
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
    pub(super) fn write_all<'a>(&'a self, link: &Arc<Link>, mut state: MutexGuard<'a, State>) {
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
                    self.tell_written(&state);
                }
                drop(state);
                if is_over {
                    // Others may write now, and take the two locks in their order.
                    drop(outgoing);
                    return self.finish_early(early);
                }
                self.finish_early(early);
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
                    self.tell_written(&state);
                    self.wake(&state);
                    return;
                }
                Err(_) => {
                    // Who receives finds out, and does what is to be done.
                    link.cut();
                    state.writing = Writing::Leader;
                    self.tell_written(&state);
                    self.wake(&state);
                    return;
                }
            }
        }
    }

    /// Nobody writes any more, or the leader will.
    fn tell_written(&self, state: &State) {
        if state.awaits_writer {
            self.written.notify_all();
        }
    }

    /// Gives answers that came before their requests were noted as written.
    fn finish_early(&self, early: Vec<(Call, io::Result<Answer>)>) {
        if !early.is_empty() {
            early.into_iter().for_each(|(call, answer)| call.finish(answer));
            // One of them may be the leader's own, which has looked for its answer before, and sleeps in `poll` now.
            self.wake(&self.lock());
        }
    }

    /// There is a connection again.
    pub(super) fn install<'a>(&'a self, state: &mut MutexGuard<'a, State>, socket: Box<dyn Socket>) {
        state.link = Some(Arc::new(Link::new(socket)));
        state.loss_before = state.loss.take();
        state.writing = Writing::Nobody;
        state.written = state.requests.acked();
    }

    /// Takes note that requests are given up.
    pub(super) fn give_up(state: &mut State, calls: &[Call]) {
        for call in calls {
            state.settle(call, &mut Err(io::Error::from_raw_os_error(libc::EIO)));
        }
        state.asynchronous = state.requests.iter().filter(|call| call.is_asynchronous()).count();
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
