//! A connection: records come in, answers go out, and neither waits for the other.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use iogate_engine::lock;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};

use super::Shared;
use super::budget::{Budget, Client};
use crate::rpc::records::Records;
use crate::service::Answer;
use crate::wire::{NFS_PROGRAM, RECORD_BYTES_MAX, TRANSFER_BYTES_MAX, procedure};

/// Most bytes of a record of who may only ask whether the server is there: more than the largest head of a call.
const PROBE_BYTES_MAX: usize = 1024;
/// Most records that are taken at once.
const RECORDS_AT_ONCE: usize = 32;
/// Most bytes that are taken at once.
const BYTES_AT_ONCE: usize = 2 << 20;
/// Most answers that are sent by one call.
const ANSWERS_AT_ONCE: usize = 16;
/// What a call costs beside its bytes.
const CALL_BYTES: usize = 512;
/// How long a client may take nothing of its answers, and send nothing of a call that it has begun.
const STALL: Duration = Duration::from_secs(60);

/// What a call and its answer take, until the client has the answer or is gone.
pub(super) struct Charge {
    shared: Arc<Shared>,
    client: Arc<Client>,
    bytes: usize,
}

impl Charge {
    pub(super) fn new(shared: &Arc<Shared>, client: &Arc<Client>, bytes: usize) -> Charge {
        shared.budget.take(client, bytes);
        Charge { shared: Arc::clone(shared), client: Arc::clone(client), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.shared.budget.give_back(&self.client, self.bytes);
        self.shared.resume();
    }
}

struct Outgoing {
    answer: Answer,
    /// Bytes of it that were sent.
    sent: usize,
    _charge: Option<Charge>,
}

impl Outgoing {
    fn bytes(&self) -> usize {
        self.answer.head.len() + self.answer.data.len()
    }

    /// What is left to be sent.
    fn parts(&self) -> [&[u8]; 2] {
        let head = self.answer.head.get(self.sent..).unwrap_or_default();
        let data = self.sent.saturating_sub(self.answer.head.len());
        [head, &self.answer.data[data..]]
    }
}

#[derive(Default)]
struct Outbox {
    queue: VecDeque<Outgoing>,
    /// A thread sends: it takes what comes meanwhile.
    is_sending: bool,
    /// The socket takes no more, since then.
    stalled: Option<Instant>,
}

/// What has come and was not taken.
struct Incoming {
    records: Records,
    /// Records, which the client may not have underway yet.
    complete: VecDeque<Vec<u8>>,
    /// Bytes of both that count.
    held: usize,
    /// When something came last.
    last: Instant,
    /// There was nothing left in the socket: the kernel tells when there is.
    is_drained: bool,
}

/// What the kernel is asked to tell, and whether a thread looks after that just now.
struct Interest {
    handling: bool,
    read: bool,
    write: bool,
    /// What it was asked last.
    asked: EventFlags,
}

impl Incoming {
    /// Bytes of what has come, and of what has begun to.
    fn bytes(&self) -> usize {
        self.records.announced() + self.complete.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether a call has begun, and nothing of it has come for too long. Who is not read from is not to blame.
    fn is_stalled(&self) -> bool {
        self.complete.is_empty() && self.records.is_within() && self.last.elapsed() > STALL
    }

    /// Reads what has come; `false`: the connection has ended. `is_ending`: the client sends no more, which the next read finds, and of
    /// which the kernel does not tell again by itself. `may_begin`: whether there is room for another record than the first.
    fn read(
        &mut self,
        stream: &TcpStream,
        scratch: &mut [u8],
        is_ending: bool,
        may_begin: impl Fn() -> bool,
    ) -> bool {
        let Incoming { records, complete, last, is_drained, .. } = self;
        let mut bytes = 0;
        *last = Instant::now();
        *is_drained = false;
        let has_room = |complete: &VecDeque<_>| complete.is_empty() || may_begin();
        while complete.len() < RECORDS_AT_ONCE && bytes < BYTES_AT_ONCE && has_room(complete) {
            let (got, room) = match records.direct() {
                Some((record, room)) => {
                    let spare = &mut record.spare_capacity_mut()[..room];
                    let got = recv(stream, spare, RecvFlags::empty()).map(|(_, got)| got.min(room));
                    if let Ok(got) = got {
                        let length = record.len() + got;
                        // SAFETY: so many bytes behind the record were received into its capacity.
                        unsafe { record.set_len(length) };
                        complete.extend(records.appended(got));
                    }
                    (got, room)
                }
                None => {
                    let got = recv(stream, &mut *scratch, RecvFlags::empty()).map(|(got, _)| got);
                    if let Ok(got) = got
                        && let Err(error) = records.feed(&scratch[..got], |record| complete.push_back(record))
                    {
                        tracing::debug!(%error, "a connection is closed");
                        return false;
                    }
                    (got, scratch.len())
                }
            };
            match got {
                Ok(0) => return false,
                Ok(got) if got == room => bytes += got,
                Err(Errno::INTR) => {}
                Ok(_) | Err(Errno::AGAIN) => {
                    *is_drained = !is_ending;
                    break;
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection is lost");
                    return false;
                }
            }
        }
        true
    }
}

/// Bytes that a call wants to read.
fn wanted(record: &[u8]) -> usize {
    let word = |at: usize| {
        let bytes = record.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
    };
    let reads = word(12) == NFS_PROGRAM && word(20) == procedure::READ;
    if reads { word(record.len() - 4).min(TRANSFER_BYTES_MAX) as usize } else { 0 }
}

/// A connection.
pub(super) struct Connection {
    pub(super) token: u64,
    pub(super) client: Arc<Client>,
    /// It may do more than ask whether the server is there.
    pub(super) may_call: bool,
    stream: TcpStream,
    shared: Weak<Shared>,
    incoming: Mutex<Incoming>,
    /// Records have come that were not taken.
    has_more: AtomicBool,
    /// What the first of these wants to read.
    wanted: AtomicUsize,
    /// A record has begun.
    is_within: AtomicBool,
    outbox: Mutex<Outbox>,
    interest: Mutex<Interest>,
    is_closed: AtomicBool,
}

impl Connection {
    pub(super) fn new(
        token: u64,
        client: Arc<Client>,
        stream: TcpStream,
        may_call: bool,
        shared: &Arc<Shared>,
    ) -> Arc<Connection> {
        client.connections.fetch_add(1, Ordering::SeqCst);
        Arc::new(Connection {
            token,
            client,
            may_call,
            stream,
            shared: Arc::downgrade(shared),
            incoming: Mutex::new(Incoming {
                records: Records::new(if may_call { RECORD_BYTES_MAX } else { PROBE_BYTES_MAX }),
                complete: VecDeque::new(),
                held: 0,
                last: Instant::now(),
                is_drained: true,
            }),
            has_more: false.into(),
            wanted: 0.into(),
            is_within: false.into(),
            outbox: Mutex::default(),
            interest: Mutex::new(Interest {
                handling: true,
                read: true,
                write: false,
                asked: EventFlags::empty(),
            }),
            is_closed: false.into(),
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// Something was told of the connection: this thread looks after it until [`Connection::rearm`].
    pub(super) fn begin(&self) {
        lock(&self.interest).handling = true;
    }

    /// Asks the kernel again, unless it will tell of all that there is to know; to read only if the client may have more underway.
    pub(super) fn rearm(self: &Arc<Self>, shared: &Shared) {
        let is_drained = lock(&self.incoming).is_drained;
        let mut interest = lock(&self.interest);
        interest.handling = false;
        interest.read = !shared.is_draining() && self.may_go_on(&shared.budget);
        if !is_drained || self.flags(&interest) != interest.asked || interest.write || self.has_more() {
            self.ask(shared, &mut interest);
        }
        let is_paused = !interest.read;
        drop(interest);
        if is_paused && !shared.is_draining() {
            shared.pause(self);
        }
    }

    /// Whether there is room for what comes next of it: a record that has come, the rest of one, or a new one.
    pub(super) fn may_go_on(&self, budget: &Budget) -> bool {
        if self.has_more() {
            return budget.may_take(&self.client, self.wanted.load(Ordering::SeqCst));
        }
        self.is_within.load(Ordering::SeqCst) || budget.may_begin(&self.client)
    }

    /// Reads again.
    pub(super) fn resume(&self, shared: &Shared) {
        let mut interest = lock(&self.interest);
        if !interest.read {
            interest.read = true;
            if !interest.handling {
                self.ask(shared, &mut interest);
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn want_write(&self, shared: &Shared) {
        let mut interest = lock(&self.interest);
        interest.write = true;
        if !interest.handling {
            self.ask(shared, &mut interest);
        }
    }

    /// What the kernel should tell: once for what comes, and at once when it is asked anew and there is something.
    fn flags(&self, interest: &Interest) -> EventFlags {
        let mut flags = EventFlags::ET;
        if interest.read {
            flags |= EventFlags::IN | EventFlags::RDHUP;
        }
        // What has come is not told of again; as soon as answers can be sent, it is taken.
        if interest.write || interest.read && self.has_more() {
            flags |= EventFlags::OUT;
        }
        flags
    }

    fn ask(&self, shared: &Shared, interest: &mut Interest) {
        if self.is_closed.load(Ordering::SeqCst) {
            return;
        }
        let flags = self.flags(interest);
        interest.asked = flags;
        if let Err(error) = shared.ask(self.stream.as_fd(), self.token, flags) {
            tracing::debug!(%error, "a connection cannot be waited for");
            self.close(shared);
        }
    }

    /// Whether records have come that were not taken.
    pub(super) fn has_more(&self) -> bool {
        self.has_more.load(Ordering::SeqCst)
    }

    /// Takes calls that have come, as many as the client may have underway; `false`: the connection has ended.
    pub(super) fn receive(
        &self,
        shared: &Arc<Shared>,
        scratch: &mut [u8],
        is_ending: bool,
        taken: &mut Vec<(Vec<u8>, Charge)>,
    ) -> bool {
        let mut incoming = lock(&self.incoming);
        let may_begin = || shared.budget.may_begin(&self.client);
        let reads = incoming.complete.is_empty() && (incoming.records.is_within() || may_begin());
        let goes_on = if reads {
            incoming.read(&self.stream, scratch, is_ending, may_begin)
        } else {
            // What was told may be that there is more in the socket.
            incoming.is_drained = false;
            true
        };
        let mut wants = 0;
        while taken.len() < RECORDS_AT_ONCE
            && let Some(record) = incoming.complete.front()
        {
            wants = wanted(record);
            if !shared.budget.may_take(&self.client, wants) {
                break;
            }
            let Some(record) = incoming.complete.pop_front() else { break };
            let charge = Charge::new(shared, &self.client, record.len() + CALL_BYTES + wants);
            taken.push((record, charge));
        }
        let bytes = incoming.bytes();
        shared.budget.hold(&self.client, incoming.held, bytes);
        incoming.held = bytes;
        self.wanted.store(wants, Ordering::SeqCst);
        self.is_within.store(incoming.records.is_within(), Ordering::SeqCst);
        self.has_more.store(!incoming.complete.is_empty(), Ordering::SeqCst);
        goes_on
    }

    /// Sends an answer, or leaves it to whoever sends just now. Does not block.
    pub(super) fn send(&self, answer: Answer, charge: Option<Charge>) {
        let mut outbox = lock(&self.outbox);
        if self.is_closed.load(Ordering::SeqCst) {
            return;
        }
        outbox.queue.push_back(Outgoing { answer, sent: 0, _charge: charge });
        if outbox.is_sending || outbox.stalled.is_some() {
            return;
        }
        outbox.is_sending = true;
        drop(outbox);
        self.send_all();
    }

    /// The socket takes more.
    pub(super) fn flush(&self) {
        lock(&self.interest).write = false;
        let mut outbox = lock(&self.outbox);
        if outbox.is_sending || outbox.queue.is_empty() {
            outbox.stalled = None;
            return;
        }
        (outbox.is_sending, outbox.stalled) = (true, None);
        drop(outbox);
        self.send_all();
    }

    /// Sends until there is nothing left, or the socket takes no more.
    fn send_all(&self) {
        let Some(shared) = self.shared.upgrade() else { return };
        let mut batch: VecDeque<Outgoing> = VecDeque::new();
        loop {
            {
                let mut outbox = lock(&self.outbox);
                while batch.len() < ANSWERS_AT_ONCE
                    && let Some(next) = outbox.queue.pop_front()
                {
                    batch.push_back(next);
                }
                if batch.is_empty() {
                    outbox.is_sending = false;
                    return;
                }
            }
            let parts: Vec<IoSlice<'_>> = batch
                .iter()
                .flat_map(Outgoing::parts)
                .filter(|part| !part.is_empty())
                .map(IoSlice::new)
                .collect();
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            let sent = sendmsg(&self.stream, &parts, &mut SendAncillaryBuffer::default(), flags);
            drop(parts);
            match sent {
                Ok(mut sent) => {
                    while let Some(first) = batch.front_mut() {
                        let left = first.bytes() - first.sent;
                        if sent < left {
                            first.sent += sent;
                            break;
                        }
                        sent -= left;
                        batch.pop_front();
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let mut outbox = lock(&self.outbox);
                    for left in std::mem::take(&mut batch).into_iter().rev() {
                        outbox.queue.push_front(left);
                    }
                    (outbox.is_sending, outbox.stalled) = (false, Some(Instant::now()));
                    drop(outbox);
                    return self.want_write(&shared);
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection is lost, and answers with it");
                    lock(&self.outbox).is_sending = false;
                    return self.close(&shared);
                }
            }
        }
    }

    /// Whether the client has taken nothing of an answer, or sent nothing of a call, for too long.
    pub(super) fn is_stalled(&self) -> bool {
        lock(&self.outbox).stalled.is_some_and(|since| since.elapsed() > STALL)
            || lock(&self.incoming).is_stalled()
    }

    /// Ends the connection: what was taken in is carried out, and nobody is told.
    pub(super) fn close(&self, shared: &Shared) {
        if self.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        shared.forget(self);
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
        let unsent = std::mem::take(&mut lock(&self.outbox).queue);
        drop(unsent);
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.client.connections.fetch_sub(1, Ordering::SeqCst);
        let held = lock(&self.incoming).held;
        if let Some(shared) = self.shared.upgrade().filter(|_| held > 0) {
            shared.budget.hold(&self.client, held, 0);
            shared.resume();
        }
    }
}

/// Memory that records come in by.
pub(super) fn scratch() -> Box<[u8]> {
    vec![0; 128 << 10].into()
}

/// Takes the next connection of a listener.
pub(super) fn accept(listener: &std::net::TcpListener) -> io::Result<(TcpStream, std::net::SocketAddr)> {
    let (stream, address) = listener.accept()?;
    stream.set_nonblocking(true)?;
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(&stream, true)?;
    Ok((stream, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a call of a few bytes, so many have come, a while ago.
    fn came(bytes: &[u8], ago: Duration) -> Incoming {
        let mut incoming = Incoming {
            records: Records::new(RECORD_BYTES_MAX),
            complete: VecDeque::new(),
            held: 0,
            last: Instant::now().checked_sub(ago).unwrap(),
            is_drained: true,
        };
        let Incoming { records, complete, .. } = &mut incoming;
        records.feed(bytes, |record| complete.push_back(record)).unwrap();
        incoming
    }

    #[test]
    fn a_call_that_does_not_go_on_is_stalled_and_its_bytes_count_from_its_mark_on() {
        let record = [0x80, 0, 0, 4, 1, 2, 3, 4];
        let ago = STALL + Duration::from_secs(1);
        for (bytes, stalled, counted) in
            [(0, false, 0), (1, true, 0), (4, true, 4), (7, true, 4), (8, false, 4)]
        {
            let incoming = came(&record[..bytes], ago);
            assert_eq!((incoming.is_stalled(), incoming.bytes()), (stalled, counted), "{bytes} bytes");
        }
        assert!(!came(&record[..7], Duration::ZERO).is_stalled());
        // What has come waits for room, and so is not read on.
        let more = [record, record].concat();
        assert!(!came(&more[..12], ago).is_stalled());
    }
}
