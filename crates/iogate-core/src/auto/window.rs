//! A window of work, read out of a ring.
//!
//! Where the load changes its kind, the window begins anew. It keeps what each request *waited for*, so that it can be played again
//! at another speed:
//!
//! - its client's completions: it came a think time after that many of them;
//! - its application, if that was out of the gate since: a barrier, a collective call, the next program of a script;
//! - else the clock.

use alloc::vec::Vec;

use super::addresses::Addresses;
use super::load::LoadKind;
use super::ring::{COMPLETIONS_MIN, Kind, Note, PRESENT_MAX, Ring, Served};
use crate::gate::Present;
use crate::hash::HashMap;
use crate::request::{AppId, ClientId, FileId, Op, RequestId};
use crate::time::{Span, Time};

/// Completions of a window that took as long as a window may.
const COMPLETIONS_SLOW: usize = 32;

/// What a request waited for before it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Was in the gate already, in service since.
    InService(Time),
    /// Was in the gate already, and waited since.
    Queued(Time),
    /// The clock: came so long after the window's beginning.
    Clock(Span),
    /// So many completions of its client, and a think time since the last of them.
    Client(u32, Span),
    /// So many completions of its application, all that it had had in the gate, and a time since.
    App(u32, Span),
}

/// One request of a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) file: FileId,
    pub(super) offset: u64,
    pub(super) address: u64,
    pub(super) bytes: u32,
    pub(super) op: Op,
    /// Indices of [`Window::clients`] and [`Window::apps`].
    pub(super) client: u32,
    pub(super) app: u32,
    pub(super) after: After,
}

/// An application's part of a window, or a client's whose application is unknown.
#[derive(Clone, Copy, Debug)]
pub(super) struct AppPart {
    /// The application, or the client below [`CLIENT_KEY`].
    pub(super) key: u64,
    /// Its requests, and their bytes.
    pub(super) requests: u32,
    all_bytes: u64,
    /// Those of them that completed, the reads among these, and the bytes of reads and writes.
    pub(super) completed: u32,
    pub(super) reads: u32,
    pub(super) bytes: [u64; 2],
    /// From its first arrival to the last of these completions.
    pub(super) measured: Span,
    first: Time,
    outstanding: u32,
    /// When it was out of the gate, if it was.
    out: Option<Time>,
}

impl AppPart {
    /// Bytes of a request, on the average.
    pub(super) fn mean_bytes(&self) -> u64 {
        self.all_bytes / u64::from(self.requests.max(1))
    }

    /// One that has done nothing yet, and has something in the gate for the first time then.
    pub(super) fn new(key: u64, first: Time) -> AppPart {
        AppPart {
            key,
            requests: 0,
            all_bytes: 0,
            completed: 0,
            reads: 0,
            bytes: [0; 2],
            measured: Span::ZERO,
            first,
            outstanding: 0,
            out: None,
        }
    }
}

/// Set in the key of a client without an application.
const CLIENT_KEY: u64 = 1 << 63;

/// What tells applications apart, and clients whose application is unknown.
pub(super) fn key_of(app: AppId, client: ClientId) -> u64 {
    if app.0 == 0 { CLIENT_KEY | u64::from(client.0) } else { u64::from(app.0) }
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientPart {
    pub(super) app: u32,
    pub(super) requests: u32,
    pub(super) completed: u32,
    /// It has come to its end: it does not begin again.
    pub(super) over: bool,
    last: Time,
}

impl ClientPart {
    /// One of this application that has done nothing yet.
    pub(super) fn of(app: u32) -> ClientPart {
        ClientPart { app, ..ClientPart::default() }
    }
}

/// A window of work.
#[derive(Debug, Default)]
pub struct Window {
    /// When it began.
    pub(super) start: Time,
    /// How long it took, and how long of that nothing was in the gate.
    pub(super) span: Span,
    pub(super) empty: Span,
    /// Those in the gate as it began, then the others in the order in which they came.
    pub(super) work: Vec<Work>,
    pub(super) apps: Vec<AppPart>,
    pub(super) clients: Vec<ClientPart>,
    /// Requests that came in it.
    pub(super) arrivals: usize,
    /// How long those that completed in it were in the gate, all of them together.
    pub(super) waited: Span,
    /// What was transferred last before it, in the order in which it was handed over.
    pub(super) warm: Vec<Warm>,
    /// Whether the load became another one in it.
    pub(super) changed: bool,
}

/// A transfer before a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Warm {
    /// When it was handed over, and when it was done.
    pub(super) began: Time,
    pub(super) ended: Time,
    pub(super) op: Op,
    pub(super) address: u64,
    pub(super) bytes: u64,
}

/// What a ring has to say.
#[derive(Debug)]
pub(super) enum Reading {
    /// A window.
    Window(Window),
    /// Too little yet: many clients have seen nothing of their requests.
    NotYet,
    /// Nothing, and nothing will come of it.
    Nothing,
}

/// Reads windows out of rings. What it keeps from one to the next: where files lie, and what kind of load it was.
#[derive(Debug, Default)]
pub(super) struct Reader {
    addresses: Addresses,
    known: Known,
}

/// What is known of the kind of load: that of the last blocks of arrivals, and those that are no block yet. A block goes on in the next
/// ring, as one may have fewer arrivals than that.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    kind: Option<LoadKind>,
    block: LoadKind,
}

impl Reader {
    /// One for files that lie in extents of so many bytes.
    pub(super) fn new(extent_bytes: u64) -> Reader {
        Reader { addresses: Addresses::new(extent_bytes), known: Known::default() }
    }

    /// The window in `ring`, of at most `most` arrivals.
    pub(super) fn read(&mut self, ring: &Ring, now: Time, most: usize) -> Reading {
        let (window, known) = self.build(ring, most);
        if window.completed() < least(ring, now, most) {
            return Reading::Nothing;
        }
        // A scheduler that serves one client after the other shows, for a while, a load of that client only.
        let starved = window.clients.iter().filter(|client| client.completed == 0).count();
        if starved * 4 > window.clients.len() && window.arrivals < most && !ring.is_at_its_end(now) {
            return Reading::NotYet;
        }
        self.known = known;
        Reading::Window(window)
    }

    /// All that is in `ring`, whoever has seen nothing of it, if it is enough.
    pub(super) fn slice(&mut self, ring: &Ring, now: Time) -> Option<Window> {
        let (window, known) = self.build(ring, usize::MAX);
        (window.completed() >= least(ring, now, usize::MAX)).then(|| {
            self.known = known;
            window
        })
    }

    /// All that is in `ring`, however little that is; the kind of the load stays unknown.
    pub(super) fn look(&mut self, ring: &Ring) -> Window {
        self.build(ring, usize::MAX).0
    }

    /// A window of at most `most` arrivals, and what is known of the load then.
    fn build(&mut self, ring: &Ring, most: usize) -> (Window, Known) {
        let mut builder = Builder::default();
        let mut known = self.known;
        builder.window.warm = self.warm(&ring.before);
        let change = known.follow(ring);
        let cut = change.unwrap_or(0);
        let begin = if cut == 0 { ring.began() } else { ring.notes[cut].at };
        builder.window.start = begin;
        builder.empty_since = Some(begin);
        builder.window.changed = change.is_some();
        let present = still_present(ring, cut);
        for (present, client) in &present {
            let after = match present.in_service {
                Some(since) => After::InService(since),
                None => After::Queued(present.arrival),
            };
            builder.add(&mut self.addresses, (present, *client), begin, after);
        }
        let (mut arrivals, mut end) = (0, begin);
        for note in &ring.notes[cut..] {
            match note.kind {
                Kind::Arrived(_) if arrivals == most => break,
                Kind::Arrived(op) => {
                    arrivals += 1;
                    builder.arrived(&mut self.addresses, note, op);
                }
                Kind::Completed => builder.completed(note),
            }
            end = note.at;
        }
        let Builder { mut window, .. } = builder;
        window.span = end.since(begin);
        window.arrivals = arrivals;
        (window, known)
    }

    /// Which kind of load the last windows were of, if they were enough to say.
    pub(super) fn kind(&self) -> Option<LoadKind> {
        self.known.kind
    }

    /// What was served before a window, as a device saw it.
    fn warm(&mut self, before: &[Served]) -> Vec<Warm> {
        let mut warm: Vec<Warm> = (before.iter())
            .map(|&Served { began, ended, file, offset, bytes, op }| Warm {
                began,
                ended,
                op,
                address: self.addresses.of(file, offset),
                bytes,
            })
            .collect();
        warm.sort_by_key(|warm| warm.began);
        warm
    }

    /// Bytes of memory in use, the addresses of files included at their bound.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.addresses.allocated_bytes()
    }
}

/// Completions that are enough, of at most `most` arrivals.
fn least(ring: &Ring, now: Time, most: usize) -> usize {
    if ring.has_lasted(now) { COMPLETIONS_SLOW } else { COMPLETIONS_MIN.min(most / 2) }
}

impl Known {
    /// Follows the load through a ring; the note at which it became another one, if it did: the last such block with enough behind it to
    /// be a window. What is after that is not known yet, so that the next window finds it.
    fn follow(&mut self, ring: &Ring) -> Option<usize> {
        let completions =
            ring.notes.iter().enumerate().rev().filter(|(_, note)| note.kind == Kind::Completed);
        let last = completions.map(|(index, _)| index).nth(COMPLETIONS_MIN - 1).unwrap_or(0);
        let mut ends: HashMap<FileId, u64> = HashMap::default();
        // What is of another kind from the first arrival on is so as a whole.
        let (mut first, mut change) = (0, None);
        for (index, note) in ring.notes.iter().enumerate() {
            let Kind::Arrived(op) = note.kind else { continue };
            if self.block.requests == 0 && !ends.is_empty() {
                first = index;
            }
            let contiguous = ends.insert(note.file, note.offset + u64::from(note.bytes)) == Some(note.offset);
            self.block.add(op, note.bytes, contiguous);
            if self.block.requests == LoadKind::BLOCK {
                let block = core::mem::take(&mut self.block);
                if self.kind.is_some_and(|kind| kind.differs(&block)) {
                    if first > last {
                        break;
                    }
                    (self.kind, change) = (None, Some(first));
                }
                self.kind.get_or_insert_default().mix(&block);
            }
        }
        change
    }
}

/// What is in the gate at a note: what was at the beginning, and came since, and has not completed.
fn still_present(ring: &Ring, cut: usize) -> Vec<(Present, ClientId)> {
    if cut == 0 {
        return ring.present.clone();
    }
    let mut present: Vec<Option<(Present, ClientId)>> = ring.present.iter().copied().map(Some).collect();
    let mut at: HashMap<RequestId, usize> = HashMap::default();
    for (index, (present, _)) in ring.present.iter().enumerate() {
        at.insert(present.id, index);
    }
    for note in &ring.notes[..cut] {
        match note.kind {
            Kind::Arrived(op) => {
                at.insert(note.id, present.len());
                let Note { at: arrival, id, file, offset, bytes, app, client, .. } = *note;
                let came = Present { id, file, op, offset, bytes, app, arrival, in_service: None };
                present.push(Some((came, client)));
            }
            Kind::Completed => {
                if let Some(index) = at.get(&note.id) {
                    present[*index] = None;
                }
            }
        }
    }
    present.into_iter().flatten().take(PRESENT_MAX).collect()
}

/// A request in the gate: its work, the bytes that are not carried out, and when it came.
struct Open {
    work: u32,
    bytes: u32,
    came: Time,
}

#[derive(Default)]
struct Builder {
    window: Window,
    client_of: HashMap<(AppId, ClientId), u32>,
    app_of: HashMap<u64, u32>,
    /// Requests in the gate.
    open: HashMap<RequestId, Open>,
    /// Since when nothing is in the gate, if nothing is.
    empty_since: Option<Time>,
}

impl Builder {
    fn client(&mut self, app: AppId, client: ClientId, now: Time) -> u32 {
        if let Some(&index) = self.client_of.get(&(app, client)) {
            return index;
        }
        let key = key_of(app, client);
        let apps = &mut self.window.apps;
        let app_index = *self.app_of.entry(key).or_insert_with(|| {
            apps.push(AppPart::new(key, now));
            apps.len() as u32 - 1
        });
        let index = self.window.clients.len() as u32;
        self.window.clients.push(ClientPart::of(app_index));
        self.client_of.insert((app, client), index);
        index
    }

    fn add(&mut self, addresses: &mut Addresses, of: (&Present, ClientId), now: Time, after: After) {
        let (Present { id, file, op, offset, bytes, app, arrival: came, .. }, client) = (*of.0, of.1);
        if let Some(since) = self.empty_since.take() {
            self.window.empty += now.since(since);
        }
        let client = self.client(app, client, now);
        let app = self.window.clients[client as usize].app;
        self.window.clients[client as usize].requests += 1;
        let part = &mut self.window.apps[app as usize];
        part.requests += 1;
        part.all_bytes += u64::from(bytes);
        part.outstanding += 1;
        let address = addresses.of(file, offset);
        self.open.insert(id, Open { work: self.window.work.len() as u32, bytes, came });
        self.window.work.push(Work { file, offset, address, bytes, op, client, app, after });
    }

    fn arrived(&mut self, addresses: &mut Addresses, note: &Note, op: Op) {
        let Note { at: now, id, file, offset, bytes, app, client, .. } = *note;
        let index = self.client(app, client, now);
        let part = self.window.clients[index as usize];
        let own = (part.completed > 0).then_some(part.last);
        let app_part = &self.window.apps[part.app as usize];
        let after = match (own, app_part.out) {
            // Out of the gate since: whoever was last of the application has let all of it go on.
            (own, Some(out)) if own.is_none_or(|last| last <= out) => {
                After::App(app_part.completed, now.since(out))
            }
            (Some(last), _) => After::Client(part.completed, now.since(last)),
            (None, _) => After::Clock(now.since(self.window.start)),
        };
        let present = Present { id, file, op, offset, bytes, app, arrival: now, in_service: None };
        self.add(addresses, (&present, client), now, after);
    }

    fn completed(&mut self, note: &Note) {
        let Some(open) = self.open.get_mut(&note.id) else { return };
        open.bytes = open.bytes.saturating_sub(note.bytes);
        if open.bytes > 0 {
            return;
        }
        let Work { client, app, bytes, op, .. } = self.window.work[open.work as usize];
        self.window.waited += note.at.since(open.came);
        self.open.remove(&note.id);
        self.empty_since = self.open.is_empty().then_some(note.at);
        let client = &mut self.window.clients[client as usize];
        (client.completed, client.last) = (client.completed + 1, note.at);
        let app = &mut self.window.apps[app as usize];
        app.completed += 1;
        app.reads += u32::from(op == Op::Read);
        app.bytes[op as usize] += u64::from(bytes);
        app.measured = note.at.since(app.first);
        app.outstanding = app.outstanding.saturating_sub(1);
        if app.outstanding == 0 {
            app.out = Some(note.at);
        }
    }
}

impl Window {
    /// The same as if those of its applications that `leave` had not been there; they keep their numbers.
    pub(super) fn without(&self, leave: impl Fn(u32) -> bool) -> Window {
        let stays =
            |app: u32, part: &AppPart| if leave(app) { AppPart::new(part.key, self.start) } else { *part };
        let part = |of: &ClientPart| if leave(of.app) { ClientPart::of(of.app) } else { *of };
        Window {
            work: self.work.iter().filter(|work| !leave(work.app)).copied().collect(),
            apps: (0..).zip(&self.apps).map(|(app, part)| stays(app, part)).collect(),
            clients: self.clients.iter().map(part).collect(),
            warm: self.warm.clone(),
            ..*self
        }
    }

    /// Requests in it.
    pub fn len(&self) -> usize {
        self.work.len()
    }

    /// Requests that completed in it.
    pub(super) fn completed(&self) -> usize {
        self.apps.iter().map(|app| app.completed as usize).sum()
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.work.is_empty()
    }

    /// Bytes of memory in use.
    pub fn allocated_bytes(&self) -> usize {
        self.work.capacity() * size_of::<Work>()
            + self.apps.capacity() * size_of::<AppPart>()
            + self.clients.capacity() * size_of::<ClientPart>()
            + self.warm.capacity() * size_of::<Warm>()
    }
}
