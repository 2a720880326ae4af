//! Bytes from a connection into requests, and requests to those who carry them out.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iogate_core::proto::frame::{self, Bounds, Stage};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{
    self, Kind, PATH_BYTES_MAX, REQUEST_HEADER_BYTES, Record, RequestHeader, VALUE_BYTES_MAX,
};
use iogate_engine::{Completion, Transfer};
use iogate_vfs::Groups;

use super::buffer::{Buffer, Pool, Share};
use super::connection::{Connection, KeptBatch, Partial, Receive};
use super::operations::{Asked, Held};
use super::outgoing::Cork;
use super::owned_request::OwnedRequest;
use super::session::{Session, Taken};
use super::{Shared, lock};
use crate::transport::handshake::PROOF_BYTES_MAX;
use crate::transport::log_end;

/// Room for what a connection has left over from before: any header with its fields, and more.
const LEFT_BYTES_MAX: usize = 128 << 10;
/// Most bytes of one read, behind those.
const READ_BYTES_MAX: usize = 64 << 10;
/// And while memory is short, or nobody knows who the client is.
const LITTLE_BYTES: usize = 4 << 10;
/// Most reads in a row from one connection.
const READS_MAX: usize = 16;
/// Memory for what is known of an operation that waits or is carried out.
const OPERATION_BYTES: usize = 512;
/// Most bytes of fields: two paths, groups, and what else a request says.
const FIELDS_BYTES_MAX: usize = 4 * PATH_BYTES_MAX;

/// Most reads to find out whether a client that is gone has said goodbye: more than a socket's buffer has.
const LAST_READS_MAX: usize = 256;

/// How long what has been read counts as sent just now, without asking whether its sender is still there.
pub(super) const FRESH: Duration = Duration::from_micros(50);

/// How many connections go on when memory comes back; what they use comes back too, and then the next ones go on.
const FED_AT_ONCE: usize = 4;

/// What a thread that reads from connections has for itself.
pub(super) struct ReadScratch {
    bytes: Vec<u8>,
    pub(super) taken: TakenIn,
}

/// What has come in together, and is to be carried out.
#[derive(Default)]
pub(super) struct TakenIn {
    /// Reads and writes.
    pub(super) batch: Vec<(Transfer, Completion)>,
    /// The last one of everything else, which this thread may carry out itself.
    last: Option<Job>,
}

type Job = Box<dyn FnOnce() + Send>;

impl TakenIn {
    /// Keeps a job for this thread; a worker gets the one before.
    pub(super) fn keep(&mut self, session: &Session, job: impl FnOnce() + Send + 'static) {
        if let Some(before) = self.last.replace(Box::new(job)) {
            session.run(before);
        }
    }

    /// Drops what a panic has left.
    pub(super) fn clear(&mut self) {
        self.batch.clear();
        self.last = None;
    }
}

/// How it goes on after what could be read.
pub(super) enum Next {
    /// More may come.
    Await,
    /// There is more, but no memory for it.
    Starved,
    /// There is more, but others have waited for long enough.
    Later,
    /// Somebody else goes on with this connection.
    Elsewhere,
    /// The peer is gone.
    Gone,
    /// The peer is cut off.
    Refused(Refusal),
}

/// What became of one message.
pub(super) enum Step {
    /// It is on its way.
    Taken,
    /// It cannot be taken now.
    Starved,
    /// Nothing may be taken after it for now.
    Last,
}

impl ReadScratch {
    pub(super) fn new() -> ReadScratch {
        ReadScratch { bytes: vec![0; LEFT_BYTES_MAX + READ_BYTES_MAX], taken: TakenIn::default() }
    }
}

impl Connection {
    /// Reads what is there, and carries it out as far as that is this thread's. Reads and writes of an export that holds many
    /// threads wait until it has one more. `is_there`: the kernel has just told of bytes, and of no end.
    pub(super) fn serve(self: &Arc<Self>, scratch: &mut ReadScratch, is_there: bool) {
        let mut receive = lock(&self.receive);
        let Some((next, since)) = self.begin(&mut receive, scratch, is_there) else {
            drop(receive);
            return self.done_reading();
        };
        let taken = &mut scratch.taken;
        let mut last = self.session.get().zip(taken.last.take());
        let session = self.session.get().filter(|_| !taken.batch.is_empty());
        if session.is_some()
            && let Some((session, job)) = last.take()
        {
            // It need not wait for reads and writes.
            session.run(job);
        }
        let inside = session.map(|session| self.server.enter(&session.export, self));
        if let Some(None) = inside {
            receive.kept = Some(KeptBatch { batch: std::mem::take(&mut taken.batch), next, since });
            return;
        }
        let unfinished = !receive.left.is_empty() || receive.partial.is_some();
        let bytes = receive.partial.as_ref().map_or(0, |partial| partial.header.payload);
        // Counted while it is waited for: it is no fault of the client's how long the gate takes, or memory is short.
        let waits = unfinished && matches!(next, Next::Await);
        let began = waits.then(|| *receive.began.get_or_insert_with(Instant::now));
        receive.began = began;
        let go_on = || {
            drop(receive);
            self.done_reading();
            match next {
                Next::Await => {
                    if let Some(began) = began {
                        self.await_rest(began, bytes);
                    }
                    self.await_readable();
                }
                Next::Starved => self.server.wait_for_buffers(self),
                Next::Later => self.server.requeue(Arc::clone(self)),
                Next::Elsewhere => {}
                Next::Gone => self.close_after_end(),
                Next::Refused(refusal) => self.refuse(&refusal),
            }
        };
        let Some(session) = session else {
            go_on();
            if let Some((session, job)) = last {
                session.run_here(job);
            }
            return;
        };
        // What a client that is gone has sent must not follow what comes after its end.
        let is_wanted = || since.elapsed() < FRESH || self.is_alive();
        Cork::over(|| {
            // SAFETY: the memory of each transfer is a buffer that lives in its completion.
            unsafe { session.export.engine.submit_all_then(taken.batch.drain(..), is_wanted, go_on) }
        });
    }

    /// Reads what is there, or goes on with what has waited. Returns how it goes on then, and since when it has been read. `None` if
    /// the connection is over.
    fn begin(
        self: &Arc<Self>,
        receive: &mut Receive,
        scratch: &mut ReadScratch,
        is_there: bool,
    ) -> Option<(Next, Instant)> {
        if let Some(KeptBatch { batch, next, since }) = receive.kept.take() {
            scratch.taken.batch = batch;
            return Some((next, since));
        }
        if self.is_closed() || self.server.is_closing() {
            return None;
        }
        self.unfinished.store(false, Ordering::Relaxed);
        let since = Instant::now();
        if !is_there && !self.is_alive() {
            self.hear_goodbye(receive, scratch);
            return Some((Next::Gone, since));
        }
        let mut next = Next::Gone;
        Cork::over(|| next = self.take_in(receive, scratch));
        if self.socket.wants_flush() {
            self.flush();
        }
        Some((next, since))
    }

    fn take_in(self: &Arc<Self>, receive: &mut Receive, scratch: &mut ReadScratch) -> Next {
        for round in 0..READS_MAX {
            if round > 0 && !self.is_alive() {
                self.hear_goodbye(receive, scratch);
                return Next::Gone;
            }
            let (bytes, read) = match self.read(receive, &mut scratch.bytes) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Next::Await,
                Err(error) => {
                    log_end(&error, || self.peer_text());
                    return Next::Gone;
                }
            };
            match self.decode(receive, scratch, bytes) {
                Ok(Step::Taken) => {}
                Ok(Step::Starved) => return Next::Starved,
                Ok(Step::Last) => return Next::Elsewhere,
                Err(refusal) => return Next::Refused(refusal),
            }
            match read {
                Read::End => return Next::Gone,
                Read::Drained => return Next::Await,
                Read::More => {}
            }
        }
        Next::Later
    }

    /// Of what a client that is gone has sent and nobody has read, nothing is carried out: it might undo what others have done
    /// since. But if its last word was Goodbye, the session ends now.
    fn hear_goodbye(&self, receive: &mut Receive, scratch: &mut ReadScratch) {
        let Some(session) = self.session.get() else { return };
        let mut last = std::mem::take(&mut receive.left);
        let room = &mut scratch.bytes[..READ_BYTES_MAX];
        for _ in 0..LAST_READS_MAX {
            match self.socket.read(&mut [IoSliceMut::new(room)]) {
                Ok(count) if count > 0 => last.extend_from_slice(&room[..count]),
                _ => break,
            }
            last.drain(..last.len().saturating_sub(REQUEST_HEADER_BYTES));
        }
        let Some(header) = last.last_chunk::<REQUEST_HEADER_BYTES>() else { return };
        if let Ok(header) = RequestHeader::from_bytes(header)
            && header.kind == Kind::Goodbye as u16
            && (header.fields, header.payload) == (0, 0)
            && session.is_current(self)
        {
            self.server.end(session);
        }
    }

    /// Fills what is missing of a payload, and the scratch memory behind what was left over, which it is given first. Returns
    /// how many bytes are in the scratch memory.
    fn read(&self, receive: &mut Receive, scratch: &mut [u8]) -> io::Result<(usize, Read)> {
        let left = std::mem::take(&mut receive.left);
        scratch[..left.len()].copy_from_slice(&left);
        if std::mem::take(&mut receive.is_starved) || left.len() > LEFT_BYTES_MAX {
            return Ok((left.len(), Read::More));
        }
        // What is read and cannot be taken is kept.
        let is_little = self.session.get().is_none() || self.server.pool.is_short();
        let room_bytes = if is_little { LITTLE_BYTES } else { READ_BYTES_MAX };
        let room = &mut scratch[left.len()..][..room_bytes];
        let (missing, read) = match &mut receive.partial {
            Some(partial) => {
                let payload = partial.header.payload as usize;
                let missing = &mut partial.payload.as_mut_slice()[partial.filled..payload];
                (missing.len(), self.socket.read(&mut [IoSliceMut::new(missing), IoSliceMut::new(room)]))
            }
            None => (0, self.socket.read(&mut [IoSliceMut::new(room)])),
        };
        let count = match read {
            Ok(0) => return Ok((left.len(), Read::End)),
            Ok(count) => count,
            // What is left over may be taken now.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !left.is_empty() => {
                return Ok((left.len(), Read::Drained));
            }
            Err(error) => return Err(error),
        };
        lock(&self.figures).bytes_in += count as u64;
        if let Some(partial) = &mut receive.partial {
            partial.filled += count.min(missing);
        }
        let drained = count < missing + room_bytes;
        let read = if drained { Read::Drained } else { Read::More };
        Ok((left.len() + count.saturating_sub(missing), read))
    }

    /// Takes the messages that are whole out of the first `bytes` bytes of the scratch memory, and keeps the rest.
    fn decode(
        self: &Arc<Self>,
        receive: &mut Receive,
        scratch: &mut ReadScratch,
        bytes: usize,
    ) -> Result<Step, Refusal> {
        if let Some(partial) = &receive.partial
            && partial.filled == partial.header.payload as usize
            && let Some(Partial { header, fields, payload, .. }) = receive.partial.take()
        {
            receive.began = None;
            if let Step::Last = self.take(&header, &fields, Some(payload), &mut scratch.taken)? {
                receive.left = scratch.bytes[..bytes].to_vec();
                return Ok(Step::Last);
            }
        }
        if receive.partial.is_some() {
            return Ok(Step::Taken);
        }
        let mut at = 0;
        let stage = if self.session.get().is_some() { Stage::Session } else { Stage::New };
        let step = loop {
            let rest = &scratch.bytes[at..bytes];
            let Some((header, fields)) = frame::head(rest, stage, |kind| self.bounds(kind))? else {
                break Step::Taken;
            };
            let start = REQUEST_HEADER_BYTES + fields.len();
            if header.payload == 0 {
                match self.take(&header, fields, None, &mut scratch.taken)? {
                    Step::Taken => at += start,
                    Step::Starved => break Step::Starved,
                    Step::Last => {
                        at += start;
                        break Step::Last;
                    }
                }
                continue;
            }
            let whole = header.payload as usize;
            let Some(mut payload) = self.room_for(whole) else { break Step::Starved };
            let here = &rest[start..];
            let filled = here.len().min(whole);
            payload.as_mut_slice()[..filled].copy_from_slice(&here[..filled]);
            at += start + filled;
            if filled < whole {
                receive.partial = Some(Partial { header, fields: fields.into(), payload, filled });
                break Step::Taken;
            }
            if let Step::Last = self.take(&header, fields, Some(payload), &mut scratch.taken)? {
                break Step::Last;
            }
        };
        receive.left = scratch.bytes[at..bytes].to_vec();
        receive.is_starved = matches!(step, Step::Starved);
        if at > 0 {
            receive.began = None;
        }
        Ok(step)
    }

    /// Memory for a payload.
    fn room_for(&self, bytes: usize) -> Option<Buffer> {
        match self.session.get() {
            Some(session) => self.server.pool.take(&session.account.memory, bytes),
            None => self.server.greetings.take(&self.greeting, bytes),
        }
    }

    /// Most bytes of a request.
    fn bounds(&self, kind: Kind) -> Bounds {
        let payload = match kind {
            Kind::Write => self.server.write_bytes_max(),
            Kind::Hello => PROOF_BYTES_MAX,
            Kind::SetXattr | Kind::Reserve => VALUE_BYTES_MAX,
            _ => 0,
        };
        Bounds { fields: if kind == Kind::Hello { PATH_BYTES_MAX } else { FIELDS_BYTES_MAX }, payload }
    }

    fn take(
        self: &Arc<Self>,
        header: &RequestHeader,
        fields: &[u8],
        payload: Option<Buffer>,
        taken: &mut TakenIn,
    ) -> Result<Step, Refusal> {
        let Some(session) = self.session.get() else {
            if let Some(refusal) = self.turned_away.get() {
                return Err(refusal.clone());
            }
            super::handshake::greet(self, header, fields, payload)?;
            return Ok(Step::Last);
        };
        let malformed = |error| Refusal::new(libc::EPROTO, format!("kind {}: {error}", header.kind));
        let (groups, fields) = header.split_groups(fields).map_err(malformed)?;
        match Kind::of(header.kind) {
            Some(Kind::Read) => {
                let read = wire::Transfer::decode(fields).map_err(malformed)?;
                return session.read(self, header, &read, &mut taken.batch);
            }
            Some(Kind::Write) => {
                let write = wire::Transfer::decode(fields).map_err(malformed)?;
                session.write(self, header, &write, payload, taken)?;
            }
            _ => {
                let request = OwnedRequest::decode(header.kind, fields.to_vec()).map_err(malformed)?;
                let bytes = OPERATION_BYTES + request.bytes() + session.reply_bytes(request.get());
                // What comes with a payload has that memory, and answers little.
                let charge = match payload {
                    Some(_) => None,
                    None => match self.server.pool.charge(&session.account.memory, bytes) {
                        None => return Ok(Step::Starved),
                        charge => charge,
                    },
                };
                if let Taken::New(answer) = session.admit(self, header, 0)? {
                    // Lists of groups are kept: those of others than forwarders would fill the memory, and do not count.
                    let groups =
                        groups.filter(|_| session.rights.trusted).map_or(Groups::UNKNOWN, Groups::of);
                    let held = Held { payload, charge };
                    session.operate(Asked { answer, header: *header, groups, request, held }, taken);
                }
            }
        }
        Ok(Step::Taken)
    }
}

/// How much a call has read.
enum Read {
    /// All there is.
    Drained,
    /// Perhaps not all.
    More,
    /// There is no more, and will not be.
    End,
}

/// Connections that wait for memory, and those whose share of which pool.
pub(super) struct Starved {
    connections: VecDeque<Arc<Connection>>,
    share: Arc<Share>,
    pool: Arc<Pool>,
}

impl Starved {
    fn take_some(&mut self, fed: &mut Vec<Arc<Connection>>) {
        if self.pool.has_room_for(&self.share) {
            let count = self.connections.len().min(FED_AT_ONCE);
            fed.extend(self.connections.drain(..count));
        }
    }
}

impl Shared {
    /// Leaves a connection until there is memory.
    pub(super) fn wait_for_buffers(&self, connection: &Arc<Connection>) {
        let (key, share, pool) = match connection.session.get() {
            Some(session) => (session.account.key, &session.account.memory, &self.pool),
            None => ((usize::MAX, connection.source.number() as u32), &connection.greeting, &self.greetings),
        };
        let new =
            || Starved { connections: VecDeque::new(), share: Arc::clone(share), pool: Arc::clone(pool) };
        let mut starved = lock(&self.starved);
        starved.entry(key).or_insert_with(new).connections.push_back(Arc::clone(connection));
        drop(starved);
        // There may have been room just before.
        if !pool.is_short() {
            self.feed();
        }
    }

    /// Goes on with the connections that have waited longest for memory, of each account.
    pub(super) fn feed(&self) {
        let mut fed = Vec::new();
        lock(&self.starved).retain(|_, starved| {
            starved.take_some(&mut fed);
            if !starved.connections.is_empty() {
                starved.pool.ask_for_room();
                // What came back before that was seen calls nobody.
                starved.take_some(&mut fed);
            }
            !starved.connections.is_empty()
        });
        fed.into_iter().for_each(|connection| self.requeue(connection));
    }
}
