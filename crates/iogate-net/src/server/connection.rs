//! One connection: its socket, what the kernel is to say about it, and what has come in of an unfinished message.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::{Duration, Instant};

use iogate_core::refusal::Refusal;
use iogate_core::stats::Histogram;
use iogate_core::wire::{Failure, Record, RequestHeader};
use iogate_engine::{Completion, Transfer};
use rustix::event::epoll::EventFlags;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Shared;
use super::buffer::{Buffer, Share};
use super::incoming::Next;
use super::lock;
use super::outgoing::{Batch, Outgoing, Payload, Sent};
use super::session::Session;
use crate::transport::auth::Access;
use crate::transport::{Peer, Socket, Source, hang_up};

/// A message that has begun comes to its end within this time, and as much for so many bytes of payload; where memory is not
/// short, within [`super::Limits::stall_timeout`], and that.
const MESSAGE_TIME: Duration = Duration::from_secs(1);
const MESSAGE_BYTES: u32 = 1 << 20;

/// A connection as its session knows it, which does not keep it.
#[derive(Clone)]
pub(super) struct Link(Weak<Connection>);

impl Link {
    /// The connection, if anybody still has to do with it.
    pub(super) fn get(&self) -> Option<Arc<Connection>> {
        self.0.upgrade()
    }
}

impl PartialEq for Link {
    fn eq(&self, other: &Link) -> bool {
        self.0.ptr_eq(&other.0)
    }
}

/// One connection.
pub(super) struct Connection {
    pub(super) link: Link,
    /// What the kernel calls it.
    pub(super) token: u64,
    pub(super) socket: Box<dyn Socket>,
    pub(super) server: Arc<Shared>,
    pub(super) access: Arc<Access>,
    pub(super) source: Source,
    /// Memory of those who come from there, until it is known who they are.
    pub(super) greeting: Arc<Share>,
    pub(super) since: Instant,
    pub(super) session: OnceLock<Arc<Session>>,
    /// Why it is cut as soon as it has greeted.
    pub(super) turned_away: OnceLock<Refusal>,
    interest: Mutex<Interest>,
    /// Held from reading until the gate has what was read: so requests reach it in order.
    pub(super) receive: Mutex<Receive>,
    pub(super) outgoing: Mutex<Outgoing>,
    pub(super) sending: Mutex<Batch>,
    pub(super) figures: Mutex<Figures>,
    bytes_out: AtomicU64,
    /// Of a message that has not come whole: when it began, in ms after `since`, and how many bytes of payload it has.
    message_began: AtomicU64,
    message_bytes: AtomicU32,
    pub(super) unfinished: AtomicBool,
    closed: AtomicBool,
    /// It is its turn to be read.
    begun: AtomicBool,
    /// The session's next connection, which waits until what this one has read is in the gate.
    heir: Mutex<Option<Arc<Connection>>>,
}

/// What has come from one source.
#[derive(Default)]
pub(super) struct FromOne {
    pub(super) connections: usize,
    pub(super) greeting: Arc<Share>,
}

/// What the kernel has been asked to tell, each once.
#[derive(Default)]
struct Interest {
    readable: bool,
    writable: bool,
}

/// What has come in and is not a whole message yet, or cannot be taken yet.
#[derive(Default)]
pub(super) struct Receive {
    pub(super) left: Vec<u8>,
    pub(super) partial: Option<Partial>,
    /// When the first bytes of an unfinished message came.
    pub(super) began: Option<Instant>,
    /// What is left over waits for memory.
    pub(super) is_starved: bool,
    pub(super) kept: Option<KeptBatch>,
}

/// Reads and writes that wait for a thread that may bring them to their export.
pub(super) struct KeptBatch {
    pub(super) batch: Vec<(Transfer, Completion)>,
    /// How it goes on with the connection then.
    pub(super) next: Next,
    /// When they were read.
    pub(super) since: Instant,
}

/// A message of whose payload a part has come in.
pub(super) struct Partial {
    pub(super) header: RequestHeader,
    pub(super) fields: Box<[u8]>,
    pub(super) payload: Buffer,
    pub(super) filled: usize,
}

/// What is counted of a connection.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) requests: u64,
    pub(super) bytes_in: u64,
    /// Sizes of reads and writes.
    pub(super) sizes: Option<Histogram>,
}

impl Connection {
    pub(super) fn new(
        server: &Arc<Shared>,
        token: u64,
        socket: Box<dyn Socket>,
        access: Arc<Access>,
        source: Source,
        greeting: Arc<Share>,
    ) -> Arc<Connection> {
        Arc::new_cyclic(|link| Connection {
            link: Link(link.clone()),
            token,
            socket,
            server: Arc::clone(server),
            access,
            source,
            greeting,
            since: Instant::now(),
            session: OnceLock::new(),
            turned_away: OnceLock::new(),
            interest: Mutex::default(),
            receive: Mutex::default(),
            outgoing: Mutex::default(),
            sending: Mutex::default(),
            figures: Mutex::default(),
            bytes_out: AtomicU64::new(0),
            message_began: AtomicU64::new(0),
            message_bytes: AtomicU32::new(0),
            unfinished: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            begun: AtomicBool::new(false),
            heir: Mutex::default(),
        })
    }

    /// Has the kernel tell when there is something to read.
    pub(super) fn await_readable(self: &Arc<Self>) {
        let mut interest = lock(&self.interest);
        interest.readable = true;
        self.tell_kernel(&interest);
    }

    /// Has the kernel tell when there is room to write.
    fn await_writable(self: &Arc<Self>) {
        let mut interest = lock(&self.interest);
        interest.writable = true;
        self.tell_kernel(&interest);
    }

    /// Takes what the kernel has told: whether the calling thread is to read, and to write; and whether the other end is there.
    /// What it has not told stays asked.
    pub(super) fn on_event(self: &Arc<Self>, flags: EventFlags) -> (bool, bool, bool) {
        let over = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let is_there = !over && !flags.contains(EventFlags::RDHUP);
        let mut interest = lock(&self.interest);
        let readable = interest.readable && (over || flags.intersects(EventFlags::IN | EventFlags::RDHUP));
        let writable = interest.writable && (over || flags.contains(EventFlags::OUT));
        interest.readable &= !readable;
        interest.writable &= !writable;
        if interest.readable || interest.writable {
            self.tell_kernel(&interest);
        }
        (readable, writable, is_there)
    }

    fn tell_kernel(self: &Arc<Self>, interest: &Interest) {
        let mut flags = EventFlags::ONESHOT;
        flags.set(EventFlags::IN | EventFlags::RDHUP, interest.readable);
        flags.set(EventFlags::OUT, interest.writable);
        if let Err(error) = self.server.poller.ask(self.socket.fd(), self.token, flags)
            && !self.is_closed()
        {
            tracing::error!(%error, "a connection can no longer be waited for");
        }
    }

    /// Sends what is queued.
    pub(super) fn flush(self: &Arc<Self>) {
        self.settle(self.send(false));
    }

    /// Goes on sending, as the kernel has told that there is room.
    pub(super) fn flush_on(self: &Arc<Self>) {
        self.settle(self.send(true));
    }

    fn settle(self: &Arc<Self>, sent: Sent) {
        match sent {
            Sent::All => {}
            Sent::Some => self.await_writable(),
            Sent::Over => self.close(),
        }
    }

    /// Says why the connection ends, and ends it.
    pub(super) fn refuse(self: &Arc<Self>, refusal: &Refusal) {
        tracing::warn!(peer = %self.peer_text(), "connection cut: {refusal}");
        let failure = Failure { text: refusal.text.as_bytes() };
        self.queue(refusal.errno as u16, 0, |fields| failure.encode(fields), Payload::None);
        lock(&self.outgoing).end();
        self.flush();
    }

    /// Ends the connection. Its session waits for another one. May be called again.
    pub(super) fn close(self: &Arc<Self>) {
        self.close_as(false);
    }

    /// Ends the connection, of which the other end is gone.
    pub(super) fn close_after_end(self: &Arc<Self>) {
        let over = self.over();
        // A reset can come from what is between two machines; within one it is a process that has not read all.
        let is_reset = over.contains(PollFlags::ERR) && !matches!(self.socket.peer(), Peer::Process { .. });
        self.close_as(over.contains(PollFlags::RDHUP) && !is_reset);
    }

    fn close_as(self: &Arc<Self>, is_ended: bool) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        hang_up(self.socket.fd());
        self.server.poller.remove(self.socket.fd());
        lock(&self.outgoing).give_up();
        self.server.forget(self);
        if let Some(session) = self.session.get() {
            session.detach(self, is_ended);
        }
    }

    /// Ends the connection, as the session goes on with `heir`, which is read from when what this one has read is in the gate.
    pub(super) fn close_for(self: &Arc<Self>, heir: &Arc<Connection>) {
        self.close();
        *lock(&self.heir) = Some(Arc::clone(heir));
        fence(Ordering::SeqCst);
        // Else whoever reads sees, when it is done, that the connection is closed.
        if self.begun.load(Ordering::SeqCst)
            && self.receive.try_lock().is_ok_and(|receive| receive.kept.is_none())
        {
            self.pass_on();
        }
    }

    /// Has what comes after the greeting be read.
    pub(super) fn begin_reading(self: &Arc<Self>) {
        self.begun.store(true, Ordering::SeqCst);
        self.server.requeue(Arc::clone(self));
    }

    /// Notes that nobody reads: goes on with the session's next connection, if this one is over.
    pub(super) fn done_reading(&self) {
        fence(Ordering::SeqCst);
        if self.is_closed() {
            self.pass_on();
        }
    }

    fn pass_on(&self) {
        let heir = lock(&self.heir).take();
        if let Some(heir) = heir {
            heir.begin_reading();
        }
    }

    /// Whether replies wait to be sent.
    pub(super) fn has_replies(&self) -> bool {
        !self.is_closed() && !lock(&self.outgoing).is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Whether the other end is still there, as far as the kernel knows.
    pub(super) fn is_alive(&self) -> bool {
        !self.is_closed() && self.over().is_empty()
    }

    /// What the kernel knows of the other end's being gone.
    fn over(&self) -> PollFlags {
        let mut fds = [PollFd::from_borrowed_fd(self.socket.fd(), PollFlags::RDHUP)];
        let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }));
        fds[0].revents() & (PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }

    /// Notes that a message has begun and is waited for.
    pub(super) fn await_rest(&self, began: Instant, bytes: u32) {
        let began = began.saturating_duration_since(self.since).as_millis() as u64;
        self.message_began.store(began, Ordering::Relaxed);
        self.message_bytes.store(bytes, Ordering::Relaxed);
        self.unfinished.store(true, Ordering::Relaxed);
    }

    /// Why the connection is to be cut now, if it is.
    pub(super) fn overdue(&self, hello: Duration, stall: Duration) -> Option<&'static str> {
        // Who keeps memory that others wait for has less time.
        let patience = if self.server.pool.is_short() { stall.min(MESSAGE_TIME) } else { stall };
        let age = self.since.elapsed();
        if self.session.get().is_none() && age > hello {
            return Some("no Hello came in time");
        }
        if lock(&self.outgoing).stalled().is_some_and(|since| since.elapsed() > stall) {
            return Some("the client does not read its replies");
        }
        let began = Duration::from_millis(self.message_began.load(Ordering::Relaxed));
        let bytes = self.message_bytes.load(Ordering::Relaxed);
        let time = patience + MESSAGE_TIME * bytes / MESSAGE_BYTES;
        if self.unfinished.load(Ordering::Relaxed) && age.saturating_sub(began) > time {
            return Some("a message has begun and does not come to its end");
        }
        None
    }

    pub(super) fn count_out(&self, bytes: usize) {
        self.bytes_out.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }

    /// Who is at the other end, for people.
    pub(super) fn peer_text(&self) -> String {
        self.source.peer_text(&*self.socket)
    }

    /// Registers with the kernel.
    pub(super) fn register(self: &Arc<Self>) -> io::Result<()> {
        self.server.poller.add(self.socket.fd(), self.token, EventFlags::ONESHOT)
    }
}
