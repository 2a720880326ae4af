//! One session with one server: many threads ask, one of them receives (`lead.rs`).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use iogate_core::proto::client_session::{ClientSession, SessionConfig};
use iogate_core::wire::{Gone, Goodbye, Lock, NO_SESSION, Request, SetLock, Welcome};
use iogate_core::{Span, Time};
use iogate_engine::{Clock, lock};
use iogate_vfs::{Caller, Waiting, WhenGone};

use super::call::{Answer, Call, Done, Waiter, record};
use super::fork::Owner;
use super::receive::Incoming;
use super::recover::own;
use super::send::Outgoing;
use super::{ClientError, ClientOptions, Receiving};
use crate::Endpoint;
use crate::transport::poll::Waker;
use crate::transport::{ClockOffset, Connected, Socket};

/// One session with one server. Any number of threads may use it at once.
pub struct Client {
    pub(super) shared: Arc<Shared>,
    background: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    pub(super) endpoint: Endpoint,
    pub(super) options: ClientOptions,
    clock: Clock,
    pub(super) said: Said,
    state: Mutex<State>,
    /// The background thread is to receive, or to end.
    pub(super) wanted: Condvar,
    /// Nobody writes any more.
    pub(super) written: Condvar,
    /// Wakes the thread that polls.
    pub(super) waker: Waker,
    pub(super) owner: Owner,
    /// The link to the server, as trails know it.
    pub(super) link_number: u64,
    /// The ring of servers that the server is in: it is not used.
    pub(super) ring: Mutex<Option<String>>,
    /// How often there was a connection to look at, and whether a thread looks.
    pub(super) to_look_at: AtomicU64,
    pub(super) looks: AtomicBool,
    pub(super) this: Weak<Shared>,
}

/// What the server has said when it was last connected to, and how that went, for who need not wait for the lock.
pub(super) struct Said {
    verifier: AtomicU64,
    /// How many connections were lost.
    pub(super) losses: AtomicU64,
    says_no_goodbye: AtomicBool,
    transfer_bytes_max: AtomicU32,
    append_bytes_max: AtomicU32,
}

pub(super) struct State {
    /// What decides.
    pub(super) session: ClientSession<Call, Caller>,
    pub(super) link: Option<Arc<Link>>,
    pub(super) clock: ClockOffset,
    /// It has been said that the clocks differ.
    clock_warned: bool,
    pub(super) writer: Writer,
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
}

/// A connection.
pub(super) struct Link {
    pub(super) socket: Box<dyn Socket>,
    outgoing: Mutex<Outgoing>,
    pub(super) incoming: Mutex<Incoming>,
}

/// Who writes: nobody, unless it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    Idle,
    /// A thread, until there is nothing left.
    Busy,
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

impl Client {
    /// Connects to a server.
    pub fn connect(endpoint: &Endpoint, options: ClientOptions) -> Result<Client, ClientError> {
        let Connected { socket, welcome, clock } = options.connect(endpoint, NO_SESSION)?;
        let has_background = options.receiving == Receiving::Background;
        let config = SessionConfig {
            retry_for: options.retry_for.into(),
            tries_unasked: has_background,
            has_rivals: options.has_rivals,
        };
        let state = State {
            session: ClientSession::new(config, own, welcome),
            link: Some(Arc::new(Link::new(socket))),
            clock,
            clock_warned: false,
            writer: Writer::Idle,
            awaits_writer: false,
            written: 1,
            early: Vec::new(),
            lead: Lead::Free,
            polls: false,
            asynchronous: 0,
        };
        let mut link_number = [0; 8];
        crate::system::random(&mut link_number)?;
        let waker = Waker::new()?;
        let shared = Arc::new_cyclic(|this| Shared {
            endpoint: endpoint.clone(),
            options,
            clock: Clock::new(),
            said: Said::in_welcome(&welcome),
            state: Mutex::new(state),
            wanted: Condvar::new(),
            written: Condvar::new(),
            waker,
            owner: Owner::new(),
            link_number: u64::from_le_bytes(link_number),
            ring: Mutex::default(),
            to_look_at: AtomicU64::new(0),
            looks: AtomicBool::new(false),
            this: this.clone(),
        });
        if shared.options.forwards
            && let Err(refusal) = shared.look_for_ring()
        {
            if refusal.errno == libc::ELOOP {
                return Err(ClientError::Ring { endpoint: endpoint.clone(), text: refusal.text });
            }
            shared.look_at_connection();
        }
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

    /// For how long the oldest request has waited for its answer.
    pub(super) fn waits_for(&self) -> Option<Span> {
        let now = self.shared.now();
        self.shared.lock().session.waits_since().map(|since| now.since(since))
    }

    /// Where the server is.
    pub fn endpoint(&self) -> &Endpoint {
        &self.shared.endpoint
    }

    /// What the server has said of itself when it was last connected to.
    pub fn welcome(&self) -> Welcome {
        *self.shared.lock().session.welcome()
    }

    /// The verifier of the server's export; see [`Tree::verifier`](iogate_vfs::Tree::verifier).
    pub(super) fn verifier(&self) -> u64 {
        self.shared.said.verifier.load(Ordering::Acquire)
    }

    /// The session's time.
    pub(super) fn now(&self) -> Time {
        self.shared.now()
    }

    /// The session is to outlive this client, as if that had been killed.
    pub(super) fn go_without_goodbye(&self) {
        self.shared.said.says_no_goodbye.store(true, Ordering::Release);
    }

    /// How often a connection to the server was lost.
    pub(super) fn losses(&self) -> u64 {
        self.shared.said.losses.load(Ordering::Acquire)
    }

    /// Most bytes of one read or write.
    pub(super) fn transfer_bytes_max(&self) -> u32 {
        self.shared.said.transfer_bytes_max.load(Ordering::Relaxed).max(1)
    }

    /// Most bytes of a record that is appended as one.
    pub(super) fn append_bytes_max(&self) -> u32 {
        self.shared.said.append_bytes_max.load(Ordering::Relaxed).max(1)
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
        self.wait_for(|done| Some(Call::new(request, caller, done)))
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
        self.start(Call::new(request, caller, done));
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
    pub(super) fn new_handle(&self, path: &[u8], flags: u32, caller: Caller) -> u32 {
        self.shared.lock().session.open_file(path, flags, caller)
    }

    /// Takes a lock of an open file, or gives it back.
    pub(super) fn set_lock(&self, handle: u32, lock: &Lock, caller: Caller) -> io::Result<()> {
        let begun = self.shared.lock().session.lock_begins(handle, lock);
        let request = Request::SetLock(SetLock { handle, again: 0, session: 0, lock: *lock });
        self.wait_for(|done| {
            let mut call = Call::new(&request, caller, done);
            call.demand.lock = begun;
            Some(call)
        })
        .map(drop)
    }

    /// A file is no longer needed. Nobody waits for the answer; what it says to be gone is told.
    pub(super) fn close(&self, handle: u32, caller: Caller, tell: Option<WhenGone>) {
        self.shared.lock().session.close_file(handle);
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
        self.start(Call::new(&close, caller, done));
    }

    /// What is at `from` is about to be renamed to `to`.
    pub(super) fn rename_begins(&self, from: &[u8], to: &[u8]) {
        self.shared.lock().session.rename_begins(from, to);
    }

    /// It has been, unless that failed; the other way round, too, with `exchange`.
    pub(super) fn rename_ended(&self, from: &[u8], to: &[u8], exchange: bool, is_done: bool) {
        let mut state = self.shared.lock();
        if is_done {
            state.session.renamed(from, to, exchange);
        }
        state.session.rename_ended(from, to);
        // It may have been what a file was waiting for.
        self.shared.write(state);
    }

    /// The path of an open file by now.
    pub(super) fn path_of(&self, handle: u32) -> Option<Vec<u8>> {
        self.shared.lock().session.path_of(handle).map(<[u8]>::to_vec)
    }
}

/// How long a client that goes waits for the server to have heard so.
const LAST_ANSWERS: Duration = Duration::from_millis(100);

impl Drop for Client {
    /// Says goodbye, and makes sure that it is heard, as far as that takes no time to speak of.
    fn drop(&mut self) {
        if !self.shared.said.says_no_goodbye.load(Ordering::Acquire) {
            let goodbye = Call::new(&Request::Goodbye(Goodbye {}), Caller::new(0, 0), Done::Nothing);
            self.start(goodbye);
        }
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

impl Said {
    fn in_welcome(welcome: &Welcome) -> Said {
        Said {
            verifier: welcome.verifier.into(),
            losses: AtomicU64::new(0),
            says_no_goodbye: AtomicBool::new(false),
            transfer_bytes_max: welcome.transfer_bytes_max.into(),
            append_bytes_max: welcome.append_bytes_max.into(),
        }
    }

    /// It says something else.
    pub(super) fn note(&self, welcome: &Welcome) {
        self.transfer_bytes_max.store(welcome.transfer_bytes_max, Ordering::Relaxed);
        self.append_bytes_max.store(welcome.append_bytes_max, Ordering::Relaxed);
        self.verifier.store(welcome.verifier, Ordering::Release);
    }
}

impl State {
    /// Nobody receives, writes or is waited for.
    pub(super) fn reset(&mut self) {
        (self.lead, self.writer, self.polls) = (Lead::Free, Writer::Idle, false);
        self.awaits_writer = false;
        std::mem::forget(std::mem::take(&mut self.early));
        (self.written, self.asynchronous) = (1, 0);
    }

    /// Counts anew after requests were given back.
    pub(super) fn count_asynchronous(&mut self) {
        self.asynchronous = self.session.requests().filter(|call| call.is_asynchronous()).count();
    }

    /// Whether the background thread is to receive.
    pub(super) fn wants_background(&self) -> bool {
        self.asynchronous > 0 || self.session.is_restoring() || self.link.is_none()
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// The session's time.
    pub(super) fn now(&self) -> Time {
        self.clock.now()
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
        let (is_asynchronous, demand, now) = (call.is_asynchronous(), call.demand, self.now());
        let mut state = self.lock();
        if let Err(call) = state.session.submit(call, demand, now) {
            drop(state);
            return call.finish(Err(io::Error::from_raw_os_error(self.errno())));
        }
        state.asynchronous += usize::from(is_asynchronous);
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
        if state.writer != Writer::Idle {
            return;
        }
        let Some(link) = state.link.clone() else { return };
        state.writer = Writer::Busy;
        self.write_all(&link, state);
    }

    /// Writes until nothing is left or the socket is full.
    pub(super) fn write_all<'a>(&'a self, link: &Arc<Link>, mut state: MutexGuard<'a, State>) {
        let mut outgoing = lock(&link.outgoing);
        loop {
            if outgoing.is_empty() {
                let early = std::mem::take(&mut state.early);
                state.written = state.written.max(outgoing.end);
                while outgoing.has_room() {
                    let Some(next) = state.session.next_to_write() else { break };
                    outgoing.add(next.id, next.acked, next.item);
                }
                let is_over = outgoing.is_empty() && !link.socket.wants_flush();
                if is_over {
                    state.writer = Writer::Idle;
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
                    state.writer = Writer::Leader;
                    self.tell_written(&state);
                    self.wake(&state);
                    return;
                }
                Err(_) => {
                    // Who receives finds out, and does what is to be done.
                    link.cut();
                    state.writer = Writer::Leader;
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
        state.writer = Writer::Idle;
        state.written = state.session.acked();
    }

    /// Ends the session: nothing is answered any more.
    fn close(&self) {
        let mut state = self.lock();
        state.session.close();
        self.wake(&state);
        self.wanted.notify_all();
    }
}
