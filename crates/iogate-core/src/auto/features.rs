//! What is seen of arrivals: scale-free features of each application, and of all together.
//!
//! Told of each arrival and completion, it costs O(1) for one and takes about 200 KiB, whatever the load: tables of clients and of
//! files where those of equal remainders share eight entries, and at most [`APPS_MAX`] applications; who was seen longest ago makes
//! room. When an application has had [`EPOCH`] arrivals, its counts are halved: what was long ago counts less.
//!
//! It belongs beside a gate, where the driver knows the client of a request; the gate's slots do not.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::hash::Hasher;
use core::ops::Range;

use super::places::{PLACES, Places};
use crate::hash::IdHasher;
use crate::request::{AppId, ClientId, FileId, Op, Request};
use crate::time::{Span, Time};

/// Applications that are told apart.
pub const APPS_MAX: usize = PLACES;
/// Arrivals after which an application's counts are halved.
pub const EPOCH: u32 = 1024;
/// How many of a file's last arrivals one may continue.
pub const ENDS: usize = 8;

const CLIENTS: usize = 1024;
const FILES: usize = 512;
/// Entries among which a client or a file has one: of two that met in one each would drive the other out at every arrival.
const WAYS: usize = 8;
const NOBODY: u32 = u32::MAX;

/// All that is seen of a gate's arrivals.
pub struct Features {
    apps: Vec<AppSeen>,
    places: Places,
    clients: Box<[ClientSeen]>,
    files: Box<[FileSeen]>,
    /// Arrivals, by which it is known which entry was used last.
    arrivals: u32,
    epochs: u32,
}

/// One application's counts.
#[derive(Clone, Debug, Default)]
pub struct AppSeen {
    /// The application.
    pub app: AppId,
    /// Arrivals.
    pub arrivals: u32,
    /// Of them, reads.
    pub reads: u32,
    /// Of them, those that begin where one of the file's last [`ENDS`] arrivals ended.
    pub contiguous: u32,
    /// Arrivals of a client that has come before, to the same file. The next two count only these.
    pub steps: u32,
    /// Those that begin where the client's last one ended.
    pub follows: u32,
    /// Those that begin there or later.
    pub ascending: u32,
    /// Distances from start to start of such two, of one client.
    pub stride: Usual,
    /// Sizes, in bytes.
    pub size: Usual,
    /// Sizes, in bytes.
    pub sizes: Spread,
    /// Think times in ns: from the completion of all that a client had to its next arrival.
    pub thinks: Spread,
    /// Requests that the client has in the gate when one of its own arrives, that one included: the sum.
    pub outstanding: u32,
    /// Clients that have something in the gate when one arrives: the sum.
    pub width: u32,
    /// Clients and files, in this epoch and in the one before it.
    clients: [u32; 2],
    files: [u32; 2],
    /// Names the epoch among all of all applications.
    epoch: u32,
    busy: u32,
    last: Time,
}

/// The value that most of many have, if one has: a majority vote.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usual {
    /// The candidate.
    pub value: i64,
    votes: u32,
    /// How often it was seen since it is the candidate.
    pub seen: u32,
}

/// Counts of values by size, four bins to a power of two: quantiles are right within an eighth.
#[derive(Clone, Debug)]
pub struct Spread {
    bins: [u16; 160],
}

#[derive(Clone, Copy)]
struct ClientSeen {
    app: AppId,
    client: ClientId,
    /// The place of its application; `NOBODY`: the entry is free.
    place: u32,
    /// The epoch that it was counted in.
    epoch: u32,
    outstanding: u32,
    /// The number of its last arrival.
    used: u32,
    file: FileId,
    /// Of its last arrival.
    start: u64,
    end: u64,
    /// When its last request completed; `Time::MAX`: none has.
    idle: Time,
}

#[derive(Clone, Copy)]
struct FileSeen {
    file: FileId,
    /// The epochs of the applications that came last: it counts once in each.
    epochs: [u32; 4],
    /// The next of the ends to be replaced.
    next: u32,
    /// The number of its last arrival.
    used: u32,
    ends: [u64; ENDS],
}

impl ClientSeen {
    /// A client of which nothing is known.
    fn new(app: AppId, client: ClientId, place: u32) -> ClientSeen {
        let (file, idle) = (FileId(0), Time::MAX);
        ClientSeen { app, client, place, epoch: 0, outstanding: 0, used: 0, file, start: 0, end: 0, idle }
    }

    fn is(&self, app: AppId, client: ClientId) -> bool {
        (self.app, self.client) == (app, client) && self.place != NOBODY
    }
}

impl FileSeen {
    /// A file of which nothing is known.
    fn new(file: FileId) -> FileSeen {
        // Nothing begins at the last byte's end.
        FileSeen { file, epochs: [0; 4], next: 0, used: 0, ends: [u64::MAX; ENDS] }
    }
}

impl Usual {
    fn vote(&mut self, value: i64) {
        if self.votes == 0 {
            *self = Usual { value, votes: 1, seen: 1 };
        } else if self.value == value {
            self.votes += 1;
            self.seen += 1;
        } else {
            self.votes -= 1;
        }
    }

    fn halve(&mut self) {
        self.votes /= 2;
        self.seen /= 2;
    }
}

impl Default for Spread {
    fn default() -> Spread {
        Spread { bins: [0; 160] }
    }
}

impl Spread {
    fn record(&mut self, value: u64) {
        let log2 = value.max(4).ilog2();
        let bin = (log2 - 2) * 4 + (value.max(4) >> (log2 - 2) & 3) as u32;
        self.bins[(bin as usize).min(159)] += 1;
    }

    /// How many values there are.
    pub fn count(&self) -> u32 {
        self.bins.iter().map(|&count| u32::from(count)).sum()
    }

    /// The value that `percent` of all do not exceed; 0 if there is none.
    pub fn quantile(&self, percent: u32) -> u64 {
        let rank = (self.count() * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (bin, &count) in (0u64..).zip(&self.bins) {
            seen += u32::from(count);
            if seen >= rank {
                // The middle of the bin.
                return (2 * (4 + bin % 4) + 1) << (bin / 4) >> 1;
            }
        }
        0
    }

    fn halve(&mut self) {
        self.bins.iter_mut().for_each(|count| *count /= 2);
    }
}

impl AppSeen {
    /// How many clients it has, as far as they were seen recently.
    pub fn clients(&self) -> u32 {
        self.clients[0].max(self.clients[1])
    }

    /// How many files, likewise.
    pub fn files(&self) -> u32 {
        self.files[0].max(self.files[1])
    }

    fn end_epoch(&mut self, epoch: u32) {
        for count in [
            &mut self.arrivals,
            &mut self.reads,
            &mut self.contiguous,
            &mut self.steps,
            &mut self.follows,
            &mut self.ascending,
            &mut self.outstanding,
            &mut self.width,
        ] {
            *count /= 2;
        }
        self.stride.halve();
        self.size.halve();
        self.sizes.halve();
        self.thinks.halve();
        self.clients = [0, self.clients[0]];
        self.files = [0, self.files[0]];
        self.epoch = epoch;
    }
}

impl Default for Features {
    fn default() -> Features {
        let client = ClientSeen::new(AppId(0), ClientId(0), NOBODY);
        let file = FileSeen::new(FileId(0));
        Features {
            apps: Vec::with_capacity(APPS_MAX),
            places: Places::default(),
            clients: vec![client; CLIENTS].into(),
            files: vec![file; FILES].into(),
            arrivals: 0,
            epochs: 0,
        }
    }
}

impl Features {
    /// A request has arrived.
    pub fn arrived(&mut self, now: Time, request: &Request) {
        let Some(place) = self.place(request.app) else { return };
        self.arrivals = self.arrivals.wrapping_add(1);
        let file = self.file(request, place);
        let at = self.client(request, place);
        let (Some(app), Some(client)) = (self.apps.get_mut(place as usize), self.clients.get_mut(at)) else {
            return;
        };
        app.last = now;
        app.arrivals += 1;
        app.reads += u32::from(request.op == Op::Read);
        app.contiguous += u32::from(file.0);
        app.files[0] += u32::from(file.1);
        app.size.vote(request.bytes.into());
        app.sizes.record(request.bytes.into());

        // Whoever has just come has come nowhere before.
        if client.epoch != 0 && client.file == request.file {
            app.steps += 1;
            app.follows += u32::from(client.end == request.offset);
            app.ascending += u32::from(client.end <= request.offset);
            app.stride.vote(request.offset.wrapping_sub(client.start) as i64);
        }
        if client.outstanding == 0 && client.idle != Time::MAX {
            app.thinks.record(now.since(client.idle).as_nanos());
        }
        if client.epoch != app.epoch {
            client.epoch = app.epoch;
            app.clients[0] += 1;
        }
        app.busy += u32::from(client.outstanding == 0);
        client.outstanding += 1;
        client.used = self.arrivals;
        (client.file, client.start, client.end) = (request.file, request.offset, request.end());
        app.outstanding = app.outstanding.saturating_add(client.outstanding);
        app.width = app.width.saturating_add(app.busy);
        if app.arrivals == EPOCH {
            self.epochs += 1;
            app.end_epoch(self.epochs);
        }
    }

    /// A request of this client has been carried out.
    pub fn completed(&mut self, now: Time, app: AppId, client: ClientId) {
        let mut set = self.clients[client_set(app, client)].iter_mut();
        let Some(seen) = set.find(|seen| seen.is(app, client) && seen.outstanding > 0) else { return };
        seen.outstanding -= 1;
        seen.idle = now;
        if seen.outstanding == 0
            && let Some(app) = self.apps.get_mut(seen.place as usize).filter(|of| of.app == app)
        {
            app.busy = app.busy.saturating_sub(1);
        }
    }

    /// The applications, in the order in which they got their places.
    pub fn apps(&self) -> &[AppSeen] {
        &self.apps
    }

    /// Bytes of memory in use.
    pub fn allocated_bytes(&self) -> usize {
        self.apps.capacity() * size_of::<AppSeen>()
            + self.places.allocated_bytes()
            + size_of_val(&*self.clients)
            + size_of_val(&*self.files)
    }

    /// Where the request's client is, which drives another one out if it has not been there.
    fn client(&mut self, request: &Request, place: u32) -> usize {
        let Request { app, client, .. } = *request;
        let (set, now) = (client_set(app, client), self.arrivals);
        let seen = &self.clients[set.clone()];
        let known = seen.iter().position(|seen| seen.is(app, client));
        let at = set.start + known.unwrap_or_else(|| oldest(seen, now, |seen| seen.used));
        let before = &mut self.clients[at];
        if !before.is(app, client) || before.place != place {
            let gone = core::mem::replace(before, ClientSeen::new(app, client, place));
            // Whoever it was is not seen any more.
            let of = self.apps.get_mut(gone.place as usize).filter(|of| of.app == gone.app);
            if let Some(of) = of.filter(|_| gone.outstanding > 0) {
                of.busy = of.busy.saturating_sub(1);
            }
        }
        at
    }

    /// Whether the request continues one of the file's last arrivals, and whether the file is one more of its application's in this epoch.
    fn file(&mut self, request: &Request, place: u32) -> (bool, bool) {
        let epoch = self.apps[place as usize].epoch;
        let set = &mut self.files[set_of(request.file.0, 0, FILES)];
        let known = set.iter().position(|seen| seen.file == request.file);
        let seen = &mut set[known.unwrap_or_else(|| oldest(set, self.arrivals, |seen| seen.used))];
        if known.is_none() {
            *seen = FileSeen::new(request.file);
        }
        seen.used = self.arrivals;
        let continues = seen.ends.contains(&request.offset);
        seen.ends[seen.next as usize % ENDS] = request.end();
        seen.next = seen.next.wrapping_add(1);
        let more = !seen.epochs.contains(&epoch);
        if more {
            seen.epochs.rotate_right(1);
            seen.epochs[0] = epoch;
        }
        (continues, more)
    }

    /// The application's place, a new one if need be and there is one.
    fn place(&mut self, app: AppId) -> Option<u32> {
        match self.places.get(app) {
            Some(place) => Some(place as u32),
            None => self.settle(app),
        }
    }

    fn settle(&mut self, app: AppId) -> Option<u32> {
        self.epochs += 1;
        let fresh = AppSeen { app, epoch: self.epochs, ..AppSeen::default() };
        let apps = &self.apps;
        let oldest = || {
            let place = (0..apps.len()).min_by_key(|&place| apps[place].last)?;
            Some((place, apps[place].app))
        };
        let place = self.places.settle(app, apps.len(), oldest)?;
        if place == self.apps.len() {
            self.apps.push(fresh);
        } else {
            self.apps[place] = fresh;
        }
        Some(place as u32)
    }
}

fn client_set(app: AppId, client: ClientId) -> Range<usize> {
    set_of(app.0.into(), client.0.into(), CLIENTS)
}

/// The entries of which one may be of this.
fn set_of(a: u64, b: u64, entries: usize) -> Range<usize> {
    let mut hasher = IdHasher::default();
    hasher.write_u64(a);
    hasher.write_u64(b);
    let first = (hasher.finish() >> 20) as usize % (entries / WAYS) * WAYS;
    first..first + WAYS
}

/// Which entry was used before all others, the first one of several.
fn oldest<T>(entries: &[T], now: u32, used: impl Fn(&T) -> u32) -> usize {
    (0..entries.len()).rev().max_by_key(|&at| now.wrapping_sub(used(&entries[at]))).unwrap_or(0)
}

/// How long a client thinks, in the middle; `None` where too little is known.
pub fn think(seen: &AppSeen) -> Option<Span> {
    (seen.thinks.count() >= 8).then(|| Span::from_nanos(seen.thinks.quantile(50)))
}
