//! What came and what completed: a ring that a gate's driver fills, out of which [`super::window`] reads windows.
//!
//! A window is work, not time: at least [`COMPLETIONS_MIN`] completions and [`SPAN_MIN`], at most [`NOTES_MAX`] notes and [`SPAN_MAX`].
//! The first one may be shorter ([`Limits::EARLY`]).

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::gate::Present;
use crate::request::{AppId, ClientId, FileId, Op, Request, RequestId};
use crate::time::{Span, Time};

/// Completions in a window, at least.
pub const COMPLETIONS_MIN: usize = 128;
/// Arrivals and completions in a window, at most.
pub const NOTES_MAX: usize = 8_192;
/// The requests that are in the gate as a window begins, at most: of more, the oldest.
pub const PRESENT_MAX: usize = 2_048;
/// The shortest window, unless it is full before.
pub const SPAN_MIN: Span = Span::from_millis(250);
/// The longest window.
pub const SPAN_MAX: Span = Span::from_secs(30);
/// Dispatches before a window that a device is warmed up with.
const WARM_MAX: usize = 256;

/// An arrival or a completion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    pub(super) at: Time,
    pub(super) id: RequestId,
    pub(super) file: FileId,
    pub(super) offset: u64,
    /// Of a completion: of the part.
    pub(super) bytes: u32,
    pub(super) app: AppId,
    pub(super) client: ClientId,
    pub(super) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Arrived(Op),
    Completed,
}

const _: () = assert!(size_of::<Note>() <= 48);

/// How much of what happens makes a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Completions, at least.
    pub completions: usize,
    /// How long it takes at least, unless it is full before.
    pub shortest: Span,
    /// How long it takes at most, however little completes.
    pub longest: Span,
}

impl Limits {
    /// Those of a window that is simulated.
    pub const USUAL: Limits = Limits { completions: COMPLETIONS_MIN, shortest: SPAN_MIN, longest: SPAN_MAX };
    /// Those of a first look, of which nothing is simulated.
    pub const EARLY: Limits = Limits { completions: 32, shortest: Span::ZERO, longest: SPAN_MAX };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::USUAL
    }
}

/// A dispatch that has been carried out.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// When it was handed over.
    pub began: Time,
    /// When it was done.
    pub ended: Time,
    /// Where it was.
    pub file: FileId,
    /// Its first byte.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Read or write.
    pub op: Op,
}

/// What a driver notes under its gate's lock, a few nanoseconds each; nothing is allocated there.
#[derive(Debug, Default)]
pub struct Ring {
    pub(super) notes: Vec<Note>,
    pub(super) present: Vec<(Present, ClientId)>,
    /// What was served last, in a window or not, and what that was as this window began.
    recent: VecDeque<Served>,
    pub(super) before: Vec<Served>,
    began: Time,
    completions: usize,
    /// What is enough.
    limits: Limits,
    open: bool,
}

impl Ring {
    /// A ring that notes nothing yet.
    pub fn new() -> Ring {
        let (notes, recent) = (Vec::with_capacity(NOTES_MAX), VecDeque::with_capacity(WARM_MAX));
        Ring { notes, recent, before: Vec::with_capacity(WARM_MAX), ..Ring::default() }
    }

    /// Begins to note a window of so much. `present` is what is in the gate now, with the clients of the requests.
    pub fn begin(
        &mut self,
        now: Time,
        limits: Limits,
        present: impl IntoIterator<Item = (Present, ClientId)>,
    ) {
        self.notes.clear();
        self.present.clear();
        self.present.extend(present.into_iter().take(PRESENT_MAX));
        self.before.clear();
        self.before.extend(&self.recent);
        (self.began, self.completions, self.limits, self.open) = (now, 0, limits, true);
    }

    /// Notes nothing any more, and forgets what it has; the memory stays.
    pub fn stop(&mut self) {
        self.open = false;
        self.notes.clear();
    }

    /// A request has come into the gate.
    #[inline]
    pub fn arrived(&mut self, now: Time, request: &Request) {
        if self.open {
            let Request { id, file, op, offset, bytes, app, client, .. } = *request;
            self.note(Note { at: now, id, file, offset, bytes, app, client, kind: Kind::Arrived(op) });
        }
    }

    /// `bytes` of a request have been carried out.
    #[inline]
    pub fn completed(&mut self, now: Time, id: RequestId, bytes: u32) {
        if self.open {
            self.completions += 1;
            let (file, offset, app, client) = (FileId(0), 0, AppId(0), ClientId(0));
            self.note(Note { at: now, id, file, offset, bytes, app, client, kind: Kind::Completed });
        }
    }

    /// A dispatch has been carried out: what a device was left by is known of each, in a window or not.
    #[inline]
    pub fn served(&mut self, served: &Served) {
        if self.recent.len() == WARM_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back(*served);
    }

    fn note(&mut self, note: Note) {
        self.notes.push(note);
        // What comes after a full ring is not noted: a window is a sample.
        self.open = self.notes.len() < NOTES_MAX;
    }

    /// Whether it notes what happens.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// When it began.
    pub fn began(&self) -> Time {
        self.began
    }

    /// Whether what it has is a window.
    pub fn is_ripe(&self, now: Time) -> bool {
        let span = now.since(self.began);
        (self.notes.len() >= NOTES_MAX)
            || (span >= self.limits.shortest && self.completions >= self.limits.completions)
            || self.has_lasted(now)
    }

    /// Whether it has taken as long as it may.
    pub(super) fn has_lasted(&self, now: Time) -> bool {
        now.since(self.began) >= self.limits.longest && !self.notes.is_empty()
    }

    /// What it has is too little: it is ripe again when it is of so much, or has half as much more if it is.
    pub fn go_on(&mut self, limits: Limits) {
        let more = if self.completions < limits.completions { 0 } else { self.completions * 3 / 2 };
        self.limits = Limits { completions: limits.completions.max(more), ..limits };
    }

    /// Goes on noting where `other`, which is to be read, has got to.
    pub fn follow(&mut self, other: &Ring) {
        self.notes.clear();
        self.present.clear();
        self.recent.clone_from(&other.recent);
        let Ring { began, completions, limits, open, .. } = *other;
        (self.began, self.completions, self.limits, self.open) = (began, completions, limits, open);
    }

    /// Puts what `earlier` has before what came since, which followed it; of too much, the latest is left out.
    pub fn put_behind(&mut self, earlier: &mut Ring) {
        let room = NOTES_MAX - earlier.notes.len();
        let more = self.notes.len().min(room);
        earlier.notes.extend(self.notes.drain(..more));
        core::mem::swap(&mut self.notes, &mut earlier.notes);
        core::mem::swap(&mut self.present, &mut earlier.present);
        core::mem::swap(&mut self.before, &mut earlier.before);
        self.open &= self.notes.len() < NOTES_MAX;
    }

    /// Whether it cannot have any more.
    pub(super) fn is_at_its_end(&self, now: Time) -> bool {
        !self.open || now.since(self.began) >= SPAN_MAX
    }

    /// Bytes of memory in use.
    pub fn allocated_bytes(&self) -> usize {
        self.notes.capacity() * size_of::<Note>()
            + self.present.capacity() * size_of::<(Present, ClientId)>()
            + (self.recent.capacity() + self.before.capacity()) * size_of::<Served>()
    }
}
