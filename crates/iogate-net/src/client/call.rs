//! One request in flight: what it says, its memory, and who waits for it.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;

use iogate_core::proto::client_session::Demand;
use iogate_core::wire::{self, Kind, Record, Request, RequestOrigin, Transfer, Written};
use iogate_engine::lock;
use iogate_engine::store::{Io, IoDone, Segment};
use iogate_vfs::Caller;

use super::split::Join;
use super::unsynced;
use crate::transport::identity;

/// A request in flight.
pub(super) struct Call {
    pub(super) kind: u16,
    pub(super) caller: Caller,
    /// Its origin was made for it, and ends with it.
    owns_origin: bool,
    pub(super) body: Body,
    pub(super) memory: Memory,
    pub(super) demand: Demand,
    pub(super) done: Done,
    /// Of a write: the file, and which of its servers this is sent to.
    pub(super) unsynced: Option<(Arc<unsynced::File>, usize)>,
}

/// The fields of a request.
pub(super) enum Body {
    Transfer(Transfer),
    Fields(Vec<u8>),
}

/// Memory that a request writes from, or is read into.
pub(super) enum Memory {
    None,
    One([Segment; 1]),
    Many(Vec<Segment>),
}

/// What to do with the answer.
pub(super) enum Done {
    /// Nobody asks.
    Nothing,
    /// As a [`Call`](Done::Call), which need not be soon.
    Later(Box<dyn FnOnce(io::Result<Answer>) + Send>),
    /// A thread waits.
    Wake(Arc<Waiter>),
    /// An engine waits.
    Io(Box<Io>, IoDone),
    /// It is a part of what somebody waits for.
    Part(Arc<Join>, usize),
    /// Something goes on then.
    Call(Box<dyn FnOnce(io::Result<Answer>) + Send>),
    /// A file has been opened again.
    Restored,
}

/// What a server has answered.
#[derive(Debug)]
pub(super) enum Answer {
    /// To a read: so many bytes are in the memory.
    Read(u64),
    /// To a write.
    Written(Written),
    /// To anything else.
    Other {
        /// The fields.
        fields: Vec<u8>,
        /// The payload.
        payload: Vec<u8>,
    },
}

impl Answer {
    /// Bytes transferred.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Answer::Read(bytes) => *bytes,
            Answer::Written(written) => u64::from(written.bytes),
            Answer::Other { .. } => 0,
        }
    }
}

impl Memory {
    pub(super) fn segments(&self) -> &[Segment] {
        match self {
            Memory::None => &[],
            Memory::One(one) => one,
            Memory::Many(many) => many,
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.segments().iter().map(|segment| segment.bytes).sum()
    }
}

impl Call {
    /// A request without data.
    pub(super) fn new(request: &Request<'_>, caller: Caller, done: Done) -> Call {
        let mut fields = Vec::with_capacity(64);
        request.encode(&mut fields);
        let (kind, body, demand) = (request.kind(), Body::Fields(fields), Demand::of(request));
        Call { kind, caller, owns_origin: false, body, memory: Memory::None, demand, done, unsynced: None }
    }

    /// A read or a write.
    pub(super) fn transfer(
        request: &Request<'_>,
        caller: Caller,
        memory: Memory,
        done: Done,
    ) -> Option<Call> {
        let (Request::Read(transfer) | Request::Write(transfer)) = *request else { return None };
        let (kind, body, demand) = (request.kind(), Body::Transfer(transfer), Demand::of(request));
        Some(Call { kind, caller, owns_origin: false, body, memory, demand, done, unsynced: None })
    }

    pub(super) fn is_read(&self) -> bool {
        self.kind == Kind::Read as u16
    }

    pub(super) fn is_write(&self) -> bool {
        self.kind == Kind::Write as u16
    }

    /// Whether a person waits for the answer, and reads why not; a program goes by the error's number.
    pub(super) fn is_of_person(&self) -> bool {
        self.kind == Kind::Configure as u16
    }

    /// Bytes of payload that are sent with it.
    pub(super) fn payload_bytes(&self) -> usize {
        if self.is_read() { 0 } else { self.memory.bytes() }
    }

    /// Appends the fields.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match &self.body {
            Body::Transfer(transfer) => transfer.encode(out),
            Body::Fields(fields) => out.extend_from_slice(fields),
        }
    }

    /// Whether somebody waits for it who is no thread in a call, so that its answer must be received by another. What nobody waits for
    /// is received with what comes next.
    pub(super) fn is_asynchronous(&self) -> bool {
        !matches!(self.done, Done::Wake(_) | Done::Nothing | Done::Later(_) | Done::Restored)
    }

    /// Makes sure that a server knows it again when it must not be carried out twice.
    pub(super) fn give_origin(&mut self) {
        self.demand.has_origin = self.caller.origin.is_some();
        if self.demand.needs_origin() {
            // Without random numbers it has none, and is not repeated when it is unknown whether it took effect.
            self.caller.origin = identity::new_origin().unwrap_or(RequestOrigin::NONE);
            self.owns_origin = self.caller.origin.is_some();
            self.demand.has_origin = self.owns_origin;
        }
    }

    /// Tells whoever waits.
    pub(super) fn finish(self, answer: io::Result<Answer>) {
        if self.owns_origin {
            identity::answered(&self.caller.origin);
        }
        if let (Some((file, server)), Ok(Answer::Written(written))) = (&self.unsynced, &answer) {
            file.wrote(*server, written.verifier);
        }
        match self.done {
            Done::Nothing | Done::Restored => {}
            Done::Wake(waiter) => waiter.deliver(answer),
            Done::Io(mut io, done) => {
                if let Memory::Many(segments) = self.memory {
                    io.segments = segments;
                }
                guarded(|| done(*io, answer.map(|answer| answer.bytes())));
            }
            Done::Call(done) | Done::Later(done) => guarded(|| done(answer)),
            Done::Part(join, index) => {
                guarded(|| join.arrive(index, answer.map(|answer| answer.bytes())));
            }
        }
    }
}

/// One completion's panic must not cost the others their answers.
fn guarded(done: impl FnOnce()) {
    if panic::catch_unwind(AssertUnwindSafe(done)).is_err() {
        tracing::error!("a completion panicked");
    }
}

/// A thread that waits for one answer.
pub(super) struct Waiter {
    is_answered: AtomicBool,
    answer: Mutex<Option<io::Result<Answer>>>,
    leads: AtomicBool,
    thread: Thread,
}

impl Waiter {
    /// For the calling thread.
    pub(super) fn new() -> Arc<Waiter> {
        Arc::new(Waiter {
            is_answered: AtomicBool::new(false),
            answer: Mutex::new(None),
            leads: AtomicBool::new(false),
            thread: std::thread::current(),
        })
    }

    fn deliver(&self, answer: io::Result<Answer>) {
        *lock(&self.answer) = Some(answer);
        self.is_answered.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Makes the waiting thread the one that receives.
    pub(super) fn offer_lead(&self) {
        self.leads.store(true, Ordering::Release);
        self.thread.unpark();
    }

    /// Whether the waiting thread has been made the one that receives. It must then do so, or pass that on.
    pub(super) fn take_lead(&self) -> bool {
        self.leads.load(Ordering::Acquire) && self.leads.swap(false, Ordering::AcqRel)
    }

    /// Whether the answer is there.
    pub(super) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Acquire)
    }

    /// The answer, if it is there.
    pub(super) fn take(&self) -> Option<io::Result<Answer>> {
        if !self.is_answered() {
            return None;
        }
        lock(&self.answer).take()
    }
}

/// The answer to a request that is answered with fields.
pub(super) fn record<T: for<'a> Record<'a>>(answer: Answer) -> io::Result<T> {
    match answer {
        Answer::Other { fields, .. } => T::decode(&fields).map_err(not_understood),
        answer => {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("expected fields, found {answer:?}")))
        }
    }
}

/// The answer to a request that is answered with payload.
pub(super) fn payload(answer: Answer) -> io::Result<Vec<u8>> {
    match answer {
        Answer::Other { payload, .. } => Ok(payload),
        answer => Err(io::Error::new(io::ErrorKind::InvalidData, format!("expected data, found {answer:?}"))),
    }
}

/// What a server has sent is not of this protocol.
pub(super) fn not_understood(error: wire::WireError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
