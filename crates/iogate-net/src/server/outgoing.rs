//! Replies on their way out: queued by any thread, sent by one at a time, several in one call.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::time::{Duration, Instant};

use iogate_core::wire::ReplyHeader;

use super::buffer::{Buffer, Charge};
use super::connection::Connection;
use super::lock;
use crate::transport::Socket;

/// Most pieces in one call; the kernel takes 1024.
const PIECES_MAX: usize = 128;
/// Capacity that an idle connection keeps.
const KEPT_BYTES: usize = 1024;
const KEPT_REPLIES: usize = 32;
/// What a peer takes of its replies within [`super::Limits::stall_timeout`], at least, or all.
const PROGRESS_BYTES: usize = 64 << 10;
/// Most bytes of fields of replies that wait for the peer to read: more than its credits make.
const UNREAD_BYTES_MAX: usize = 4 << 20;
/// While dispatches take less than this, the replies of a batch wait for each other.
const QUICK: Duration = Duration::from_micros(20);

/// The data of a reply.
pub(super) enum Payload {
    None,
    /// The first bytes of a buffer.
    Buffer(Buffer, usize),
    /// With what they were charged for.
    Bytes(Vec<u8>, #[expect(dead_code, reason = "given back when dropped")] Option<Charge>),
}

impl Payload {
    fn as_slice(&self) -> &[u8] {
        match self {
            Payload::None => &[],
            Payload::Buffer(buffer, bytes) => &buffer.as_slice()[..*bytes],
            Payload::Bytes(bytes, _) => bytes,
        }
    }
}

/// Replies in order.
#[derive(Default)]
pub(super) struct Batch {
    /// Headers and fields of all of them.
    heads: Vec<u8>,
    replies: Vec<Reply>,
    /// Replies sent, bytes sent of the next one, and where its head begins.
    sent: usize,
    sent_of_next: usize,
    heads_sent: usize,
}

struct Reply {
    head: usize,
    payload: Payload,
}

impl Batch {
    fn push(&mut self, errno: u16, id: u64, encode: impl FnOnce(&mut Vec<u8>), payload: Payload) {
        let start = self.heads.len();
        let mut header = ReplyHeader { fields: 0, payload: payload.as_slice().len() as u32, errno, id };
        self.heads.extend_from_slice(&header.to_bytes());
        let fields_start = self.heads.len();
        encode(&mut self.heads);
        header.fields = (self.heads.len() - fields_start) as u16;
        self.heads[start..fields_start].copy_from_slice(&header.to_bytes());
        self.replies.push(Reply { head: self.heads.len() - start, payload });
    }

    fn is_empty(&self) -> bool {
        self.sent == self.replies.len()
    }

    /// Sends as much as there is room for; returns how much that was.
    fn send(&mut self, socket: &dyn Socket) -> io::Result<usize> {
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let (mut count, mut head_at, mut skip) = (0, self.heads_sent, self.sent_of_next);
        for reply in &self.replies[self.sent..] {
            if count + 2 > PIECES_MAX {
                break;
            }
            let head = &self.heads[head_at..][..reply.head];
            head_at += reply.head;
            for piece in [head, reply.payload.as_slice()] {
                let rest = &piece[skip.min(piece.len())..];
                skip -= skip.min(piece.len());
                if !rest.is_empty() {
                    pieces[count] = IoSlice::new(rest);
                    count += 1;
                }
            }
        }
        let sent = socket.write(&pieces[..count])?;
        self.advance(sent);
        Ok(sent)
    }

    fn advance(&mut self, bytes: usize) {
        self.sent_of_next += bytes;
        while let Some(reply) = self.replies.get_mut(self.sent) {
            let whole = reply.head + reply.payload.as_slice().len();
            if self.sent_of_next < whole {
                return;
            }
            self.sent_of_next -= whole;
            self.heads_sent += reply.head;
            self.sent += 1;
            reply.payload = Payload::None;
        }
        self.clear();
    }

    /// Drops everything, and most of the room for it.
    fn clear(&mut self) {
        self.heads.clear();
        self.heads.shrink_to(KEPT_BYTES);
        self.replies.clear();
        self.replies.shrink_to(KEPT_REPLIES);
        (self.sent, self.sent_of_next, self.heads_sent) = (0, 0, 0);
    }
}

/// The replies of a connection that nobody sends yet.
#[derive(Default)]
pub(super) struct Outgoing {
    queued: Batch,
    /// A thread sends, or the kernel will say when there is room.
    sending: bool,
    /// Since when the peer has not taken [`PROGRESS_BYTES`], and what it has taken since.
    stalled: Option<Instant>,
    taken: usize,
    /// What is queued is the last; then the connection is over.
    last: bool,
    /// Nothing can be sent any more.
    broken: bool,
}

/// What is left to do after sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing, or somebody else does it.
    All,
    /// The peer has to read first.
    Some,
    /// The connection is over.
    Over,
}

impl Outgoing {
    /// Since when the peer has taken nothing of what waits for it.
    pub(super) fn stalled(&self) -> Option<Instant> {
        self.stalled
    }

    fn note_progress(&mut self, bytes: usize) {
        if self.stalled.is_some() {
            self.taken += bytes;
            if self.taken >= PROGRESS_BYTES {
                (self.stalled, self.taken) = (None, 0);
            }
        }
    }

    /// Whether everything has been sent.
    pub(super) fn is_empty(&self) -> bool {
        !self.sending && self.queued.is_empty()
    }

    /// Drops what is queued and everything that comes.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
        self.stalled = None;
        self.queued.clear();
    }

    /// Lets what is queued be the last.
    pub(super) fn end(&mut self) {
        self.last = true;
    }
}

impl Connection {
    /// Queues a reply. It leaves with [`Connection::deliver`].
    pub(super) fn queue(&self, errno: u16, id: u64, encode: impl FnOnce(&mut Vec<u8>), payload: Payload) {
        let mut outgoing = lock(&self.outgoing);
        if !outgoing.broken && !outgoing.last {
            outgoing.queued.push(errno, id, encode, payload);
            if outgoing.queued.heads.len() > UNREAD_BYTES_MAX {
                // The thread that reads finds the end, and closes the connection.
                outgoing.give_up();
                let _ = rustix::net::shutdown(self.socket.fd(), rustix::net::Shutdown::Both);
            }
        }
    }

    /// Sends what is queued, unless somebody is at it. `resumed`: the kernel has said that there is room.
    pub(super) fn send(&self, resumed: bool) -> Sent {
        if !resumed {
            let mut outgoing = lock(&self.outgoing);
            let nothing = outgoing.queued.is_empty() && !outgoing.last;
            if outgoing.sending || (nothing && !self.socket.wants_flush()) {
                return Sent::All;
            }
            outgoing.sending = true;
        }
        let mut batch = lock(&self.sending);
        loop {
            if batch.is_empty() && !self.socket.wants_flush() {
                let mut outgoing = lock(&self.outgoing);
                (outgoing.stalled, outgoing.taken) = (None, 0);
                if outgoing.queued.is_empty() || outgoing.broken {
                    if outgoing.last || outgoing.broken {
                        return Sent::Over;
                    }
                    outgoing.sending = false;
                    return Sent::All;
                }
                std::mem::swap(&mut outgoing.queued, &mut batch);
            }
            let sent = if batch.is_empty() {
                self.socket.flush().and_then(|()| match self.socket.wants_flush() {
                    true => Err(io::ErrorKind::WouldBlock.into()),
                    false => Ok(0),
                })
            } else {
                batch.send(&*self.socket)
            };
            match sent {
                Ok(bytes) => {
                    self.count_out(bytes);
                    lock(&self.outgoing).note_progress(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut outgoing = lock(&self.outgoing);
                    outgoing.stalled.get_or_insert_with(Instant::now);
                    return if outgoing.last || outgoing.broken { Sent::Over } else { Sent::Some };
                }
                Err(_) => {
                    batch.clear();
                    lock(&self.outgoing).give_up();
                    return Sent::Over;
                }
            }
        }
    }

    /// Sends what is queued: soon, with what else this thread has to send, if it is quick, else now.
    pub(super) fn deliver(self: &Arc<Self>) {
        Cork::deliver(self);
    }
}

thread_local! {
    static CORK: RefCell<Cork> = RefCell::default();
}

/// Keeps the replies that a thread makes while it works off a batch, so that they leave together. A reply never waits for a
/// slow dispatch: while dispatches have been slow, nothing is kept.
#[derive(Default)]
pub(super) struct Cork {
    kept: Vec<Arc<Connection>>,
    /// When the last dispatch was over, while a batch is worked off.
    since: Option<Instant>,
    /// How long dispatches take, lately.
    pace: Duration,
}

impl Cork {
    /// Works off a batch.
    pub(super) fn over(batch: impl FnOnce()) {
        CORK.with_borrow_mut(|cork| cork.since = Some(Instant::now()));
        batch();
        let kept = CORK.with_borrow_mut(|cork| {
            cork.since = None;
            std::mem::take(&mut cork.kept)
        });
        Cork::release(kept);
    }

    fn release(mut kept: Vec<Arc<Connection>>) {
        kept.drain(..).for_each(|connection| connection.flush());
        CORK.with_borrow_mut(|cork| {
            if cork.kept.is_empty() {
                cork.kept = kept;
            }
        });
    }

    fn deliver(connection: &Arc<Connection>) {
        let slow = CORK.with_borrow_mut(|cork| {
            let Some(since) = cork.since else { return Some(Vec::new()) };
            let now = Instant::now();
            cork.pace = (cork.pace * 7 + (now - since)) / 8;
            cork.since = Some(now);
            if cork.pace > QUICK {
                return Some(std::mem::take(&mut cork.kept));
            }
            if !cork.kept.iter().any(|kept| Arc::ptr_eq(kept, connection)) {
                cork.kept.push(Arc::clone(connection));
            }
            None
        });
        let Some(kept) = slow else { return };
        Cork::release(kept);
        connection.flush();
        CORK.with_borrow_mut(|cork| {
            // What it takes to send is not the dispatches'.
            cork.since = cork.since.map(|_| Instant::now());
        });
    }
}
