//! What was recorded at a gate for some time: as a window of work, and as dispatches.
//!
//! A recording has what came since it began. The window begins when the last of what was in the gate before has completed, so that all
//! that is in the gate then is known.
//!
//! **What a request waited for** is seen of its client as a whole, as a recording may be longer than what is simulated to choose a
//! scheduler, and has to be right about loads that become faster. Of these, what lies before requests most evenly is taken:
//!
//! - its client's last completion: one thing at a time, or batches;
//! - the completion before as many others as the client has under way: threads that think, each by itself;
//! - the application's last completion, as it was out of the gate: rounds;
//! - the clock: what comes evenly, whatever has completed.

use alloc::vec::Vec;

use super::super::addresses::Addresses;
use super::super::window::{After, AppPart, ClientPart, Warm, Window, Work, key_of};
use crate::hash::HashMap;
use crate::recording::Event;
use crate::request::{AppId, ClientId, FileId, Op, RequestId};
use crate::time::{Span, Time};

/// Dispatches before a window that a device is warmed up with.
const WARM_MAX: usize = 256;
/// Requests of a client by which it is judged what they waited for.
const JUDGED_MIN: u64 = 8;
/// A client that has nothing in the gate at the end, for so many times its longest pause, has come to its end; and for so many parts of
/// the window.
const SILENT: u64 = 3;
const SILENT_PART: u64 = 100;

/// A request that was recorded.
#[derive(Clone, Copy, Debug)]
struct Recorded {
    app: AppId,
    client: ClientId,
    file: FileId,
    op: Op,
    offset: u64,
    bytes: u32,
    arrived: Time,
    /// When the gate handed it over, and when it was over, if that was recorded.
    began: Option<Time>,
    ended: Option<Time>,
}

/// A dispatch that was carried out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carried {
    pub(super) began: Time,
    pub(super) ended: Time,
    pub(super) file: FileId,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Whether it waited in the gate.
    pub(super) queued: bool,
}

/// Why a recording says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingDoubt {
    /// Nothing completed.
    #[error("nothing completed meanwhile")]
    Empty,
    /// Some is missing.
    #[error("more came than could be recorded: {arrivals} requests are missing")]
    Lost {
        /// How many requests.
        arrivals: u64,
    },
    /// No gate takes such a request.
    #[error("it has a request for {bytes} bytes at {offset}, which no gate takes")]
    Malformed {
        /// Where it is.
        offset: u64,
        /// Its length.
        bytes: u32,
    },
}

/// What was recorded, in the order in which it came.
#[derive(Debug)]
pub struct Recording {
    requests: Vec<Recorded>,
    /// What happened: a request came, or is over.
    steps: Vec<(Time, Step)>,
    /// The first step of the window.
    first: usize,
    end: Time,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Came(u32),
    Over(u32),
}

impl Recording {
    /// Puts events together. `end` is until when was recorded, if that is known; else it was with the last event.
    ///
    /// # Errors
    /// If events are missing, none is a completion, or a request is none that a gate takes.
    pub fn new(events: &[Event], end: Option<Time>) -> Result<Recording, RecordingDoubt> {
        let (mut requests, mut steps) = (Vec::<Recorded>::new(), Vec::new());
        let mut open: HashMap<RequestId, u32> = HashMap::default();
        let (mut now, mut first, mut lost, mut over) = (Time::ZERO, 0, 0, 0);
        for event in events {
            match *event {
                Event::Arrived { id, time, app, client, file, op, offset, bytes } => {
                    if bytes == 0 || offset.checked_add(bytes.into()).is_none() {
                        return Err(RecordingDoubt::Malformed { offset, bytes });
                    }
                    // Clocks of two threads may be read in another order than the gate's lock is taken.
                    now = now.max(time);
                    open.insert(id, requests.len() as u32);
                    steps.push((now, Step::Came(requests.len() as u32)));
                    let (arrived, began, ended) = (now, None, None);
                    requests.push(Recorded { app, client, file, op, offset, bytes, arrived, began, ended });
                }
                Event::Completed { id, time, began } => {
                    now = now.max(time);
                    let Some(index) = open.remove(&id) else {
                        // It was in the gate before.
                        first = steps.len();
                        continue;
                    };
                    let request = &mut requests[index as usize];
                    request.ended = Some(now);
                    request.began = began.map(|began| began.clamp(request.arrived, now));
                    steps.push((now, Step::Over(index)));
                    over += 1;
                }
                Event::Lost { arrivals } => lost += arrivals,
            }
        }
        if lost > 0 {
            return Err(RecordingDoubt::Lost { arrivals: lost });
        }
        if over == 0 || first == steps.len() {
            return Err(RecordingDoubt::Empty);
        }
        Ok(Recording { requests, steps, first, end: end.unwrap_or(now).max(now) })
    }

    /// When the window begins.
    fn start(&self) -> Time {
        match self.first {
            0 => self.steps[0].0,
            first => self.steps[first - 1].0,
        }
    }

    /// Whether it is known when the gate handed requests over: gates of before do not say.
    pub(super) fn has_dispatches(&self) -> bool {
        self.requests.iter().all(|request| request.began.is_some() == request.ended.is_some())
    }

    /// All dispatches that were carried out, in the order in which they were handed over.
    pub(super) fn dispatches(&self) -> Vec<Carried> {
        let mut parts: Vec<(Carried, u32)> = (self.requests.iter().zip(0..))
            .filter_map(|(request, index)| {
                let Recorded { file, op, offset, bytes, arrived, began, ended, .. } = *request;
                let (began, ended) = (began?, ended?);
                let queued = arrived < began;
                Some((Carried { began, ended, file, op, offset, bytes: bytes.into(), queued }, index))
            })
            .collect();
        parts.sort_by_key(|(of, index)| (of.began, of.ended, of.file, of.op as u8, of.offset, *index));
        parts.dedup_by(|(next, index), (of, first)| {
            let together = |of: &Carried, next: &Carried| {
                (of.began, of.ended, of.file, of.op) == (next.began, next.ended, next.file, next.op)
            };
            let goes_on = together(of, next) && next.offset == of.offset + of.bytes;
            if goes_on {
                (of.bytes, of.queued, *first) =
                    (of.bytes + next.bytes, of.queued | next.queued, (*first).min(*index));
            }
            goes_on
        });
        parts.sort_by_key(|(of, index)| (of.began, *index));
        parts.into_iter().map(|(of, _)| of).collect()
    }

    /// The window, with files in extents of so many bytes.
    pub(super) fn window(&self, extent_bytes: u64) -> Window {
        let mut addresses = Addresses::new(extent_bytes);
        let start = self.start();
        let warm = self.warm(start, &mut addresses);
        let mut builder = Builder { start, ..Builder::default() };
        let mut present: Vec<u32> = self.present();
        // In service first, each dispatch in the order of offsets.
        let since = |index: &u32| self.requests[*index as usize].began.filter(|began| *began <= start);
        let place = |index: &u32| {
            let Recorded { file, op, offset, .. } = self.requests[*index as usize];
            match since(index) {
                Some(since) => (since, file, op as u8, offset, 0),
                None => (Time::MAX, FileId(0), 0, 0, *index),
            }
        };
        present.sort_by_key(place);
        for index in &present {
            let request = &self.requests[*index as usize];
            let after = since(index).map_or(After::Queued(request.arrived), After::InService);
            builder.add(&mut addresses, request, *index, after);
        }
        for (now, step) in &self.steps[self.first..] {
            match step {
                Step::Came(index) => builder.came(&mut addresses, &self.requests[*index as usize], *index),
                Step::Over(index) => builder.over(&self.requests[*index as usize], *index, *now),
            }
        }
        builder.finish(self.end, warm)
    }

    /// What is in the gate as the window begins.
    fn present(&self) -> Vec<u32> {
        let mut is_there = alloc::vec![false; self.requests.len()];
        for (_, step) in &self.steps[..self.first] {
            match *step {
                Step::Came(index) => is_there[index as usize] = true,
                Step::Over(index) => is_there[index as usize] = false,
            }
        }
        is_there.iter().zip(0..).filter(|(is, _)| **is).map(|(_, index)| index).collect()
    }

    /// What was carried out before it.
    fn warm(&self, start: Time, addresses: &mut Addresses) -> Vec<Warm> {
        let dispatches = self.dispatches();
        let before: Vec<&Carried> = dispatches.iter().filter(|of| of.ended <= start).collect();
        let last = &before[before.len().saturating_sub(WARM_MAX)..];
        last.iter()
            .map(|of| {
                let Carried { began, ended, file, op, offset, bytes, .. } = **of;
                Warm { began, ended, op, address: addresses.of(file, offset), bytes }
            })
            .collect()
    }
}

/// How evenly something lies before requests.
#[derive(Clone, Copy, Debug, Default)]
struct Spread {
    count: u64,
    sum: u128,
    squares: u128,
}

impl Spread {
    fn add(&mut self, span: Span) {
        let ns = u128::from(span.as_nanos().min(1 << 40));
        (self.count, self.sum, self.squares) = (self.count + 1, self.sum + ns, self.squares + ns * ns);
    }

    fn and(self, other: Spread) -> Spread {
        let Spread { count, sum, squares } = other;
        Spread { count: self.count + count, sum: self.sum + sum, squares: self.squares + squares }
    }

    /// The variance, in ns².
    fn variance(&self) -> u128 {
        let count = u128::from(self.count.max(1));
        (self.squares / count).saturating_sub((self.sum / count).pow(2))
    }

    /// The variance over the mean's square, in millionths; 0 if all are 0.
    fn evenness(&self) -> u128 {
        let mean = self.sum / u128::from(self.count.max(1));
        (self.variance() * 1_000_000).checked_div(mean * mean).unwrap_or(0)
    }

    /// Whether it is clearly more even than another one.
    fn is_more_even(&self, than: &Spread) -> bool {
        self.count >= JUDGED_MIN && 3 * self.evenness() < 2 * than.evenness()
    }
}

/// What a request may have waited for: so many completions, and a span.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    clock: Span,
    since_before: Option<Span>,
    last: Option<(u32, Span)>,
    thread: Option<(u32, Span)>,
    round: Option<(u32, Span)>,
}

#[derive(Default)]
struct Client {
    part: ClientPart,
    /// When its requests completed, and when the last one came.
    done: Vec<Time>,
    came: u32,
    came_last: Option<Time>,
    outstanding: u32,
    most: u32,
    /// Its works that came in the window, and how many requests it had had before each.
    works: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, Default)]
struct App {
    completed: u32,
    outstanding: u32,
    out: Option<Time>,
    first: Time,
    clients: u32,
}

#[derive(Default)]
struct Builder {
    start: Time,
    work: Vec<Work>,
    options: Vec<Options>,
    parts: Vec<AppPart>,
    apps: Vec<App>,
    clients: Vec<Client>,
    app_of: HashMap<u64, u32>,
    client_of: HashMap<(AppId, ClientId), u32>,
    /// The work of each request.
    work_of: HashMap<u32, u32>,
}

impl Builder {
    fn client(&mut self, request: &Recorded) -> u32 {
        let key = key_of(request.app, request.client);
        let first = request.arrived.max(self.start);
        let app = *self.app_of.entry(key).or_insert_with(|| {
            self.parts.push(AppPart::new(key, first));
            self.apps.push(App { first, ..App::default() });
            self.apps.len() as u32 - 1
        });
        *self.client_of.entry((request.app, request.client)).or_insert_with(|| {
            self.apps[app as usize].clients += 1;
            self.clients.push(Client { part: ClientPart::of(app), ..Client::default() });
            self.clients.len() as u32 - 1
        })
    }

    fn add(&mut self, addresses: &mut Addresses, request: &Recorded, index: u32, after: After) -> u32 {
        let number = self.client(request);
        let client = &mut self.clients[number as usize];
        let app = client.part.app;
        client.part.requests += 1;
        client.came += 1;
        client.outstanding += 1;
        client.most = client.most.max(client.outstanding);
        self.parts[app as usize].requests += 1;
        self.apps[app as usize].outstanding += 1;
        let Recorded { file, op, offset, bytes, .. } = *request;
        let address = addresses.of(file, offset);
        self.work_of.insert(index, self.work.len() as u32);
        self.work.push(Work { file, offset, address, bytes, op, client: number, app, after });
        self.options.push(Options::default());
        number
    }

    fn came(&mut self, addresses: &mut Addresses, request: &Recorded, index: u32) {
        let now = request.arrived;
        let number = self.client(request) as usize;
        let (client, app) = (&self.clients[number], &self.apps[self.clients[number].part.app as usize]);
        let last = client.done.last().map(|last| (client.done.len() as u32, now.since(*last)));
        let round = match (client.done.last(), app.out) {
            (own, Some(out)) if own.is_none_or(|last| *last <= out) => Some((app.completed, now.since(out))),
            _ => None,
        };
        let since_before = client.came_last.map(|before| now.since(before));
        let clock = now.since(self.start);
        let (came, work) = (client.came, self.work.len() as u32);
        self.add(addresses, request, index, After::Clock(clock));
        self.options[work as usize] = Options { clock, since_before, last, thread: None, round };
        self.clients[number].came_last = Some(now);
        self.clients[number].works.push((work, came));
    }

    fn over(&mut self, request: &Recorded, index: u32, now: Time) {
        let Some(&work) = self.work_of.get(&index) else { return };
        let Work { client, app, bytes, op, .. } = self.work[work as usize];
        debug_assert_eq!((bytes, op), (request.bytes, request.op));
        let client = &mut self.clients[client as usize];
        client.part.completed += 1;
        client.outstanding -= 1;
        client.done.push(now);
        let part = &mut self.parts[app as usize];
        part.completed += 1;
        part.reads += u32::from(op == Op::Read);
        part.bytes[op as usize] += u64::from(bytes);
        let app = &mut self.apps[app as usize];
        part.measured = now.since(app.first);
        app.completed += 1;
        app.outstanding -= 1;
        if app.outstanding == 0 {
            app.out = Some(now);
        }
    }

    fn finish(mut self, end: Time, warm: Vec<Warm>) -> Window {
        self.find_threads();
        self.decide();
        let span = end.since(self.start);
        for index in 0..self.clients.len() {
            let is_over = self.is_over(index, end);
            self.clients[index].part.over = is_over;
        }
        let arrivals = self.clients.iter().map(|client| client.works.len()).sum();
        Window {
            start: self.start,
            span,
            work: self.work,
            apps: self.parts,
            clients: self.clients.into_iter().map(|client| client.part).collect(),
            arrivals,
            warm,
            ..Window::default()
        }
    }

    /// Whether a client has come to its end: all that it had is over, and it has been silent for longer than ever.
    fn is_over(&self, index: usize, end: Time) -> bool {
        let client = &self.clients[index];
        let Some(last) = client.done.last().filter(|_| client.outstanding == 0) else { return false };
        let pauses = client.works.iter().filter_map(|(work, _)| self.options[*work as usize].last);
        let longest = pauses.map(|(_, pause)| pause).max().unwrap_or(Span::ZERO).as_nanos();
        let silent = end.since(*last).as_nanos();
        silent > SILENT * longest && silent > end.since(self.start).as_nanos() / SILENT_PART
    }

    /// What each request waited for if its client is threads that think, each by itself: as many as it has had under way at most.
    fn find_threads(&mut self) {
        for client in &self.clients {
            for (work, before) in &client.works {
                let options = &mut self.options[*work as usize];
                let count = (before + 1).saturating_sub(client.most) as usize;
                let at = |count: usize| client.done.get(count.checked_sub(1)?).copied();
                let came = self.start + options.clock;
                options.thread = at(count).map(|at| (count as u32, came.since(at)));
            }
        }
    }

    /// What each request waited for.
    fn decide(&mut self) {
        let options = &self.options;
        let spread = |client: &Client, of: &dyn Fn(&Options) -> Option<Span>| {
            let mut spread = Spread::default();
            client
                .works
                .iter()
                .filter_map(|(work, _)| of(&options[*work as usize]))
                .for_each(|span| spread.add(span));
            spread
        };
        let last =
            |options: &Options| options.last.filter(|_| options.thread.is_some()).map(|(_, span)| span);
        let thread = |options: &Options| options.thread.map(|(_, span)| span);
        let are_threads: Vec<bool> = (self.clients.iter())
            .map(|client| spread(client, &thread).is_more_even(&spread(client, &last)))
            .collect();
        let own = |options: &Options, threads: bool| if threads { options.thread } else { options.last };
        // Of each application, where both are known: since it was out, and since the client's own.
        let mut rounds = alloc::vec![(Spread::default(), Spread::default()); self.apps.len()];
        for (client, threads) in self.clients.iter().zip(&are_threads) {
            let both = |options: &Options| options.round.is_some() && own(options, *threads).is_some();
            let round = |options: &Options| options.round.filter(|_| both(options)).map(|(_, span)| span);
            let alone =
                |options: &Options| own(options, *threads).filter(|_| both(options)).map(|(_, span)| span);
            let of_app = &mut rounds[client.part.app as usize];
            *of_app = (of_app.0.and(spread(client, &round)), of_app.1.and(spread(client, &alone)));
        }
        for (client, threads) in self.clients.iter().zip(&are_threads) {
            let app = client.part.app as usize;
            let in_rounds = self.apps[app].clients > 1 && rounds[app].0.is_more_even(&rounds[app].1);
            let by_clock = {
                let between = spread(client, &|options| options.since_before);
                let own = spread(client, &|options| own(options, *threads).map(|(_, span)| span));
                between.count >= 4 * JUDGED_MIN && 10 * between.variance() < own.variance()
            };
            for (work, _) in &client.works {
                let options = &self.options[*work as usize];
                let of_client = own(options, *threads).map(|(count, span)| After::Client(count, span));
                let of_app = options.round.map(|(count, span)| After::App(count, span));
                self.work[*work as usize].after = match (of_client, of_app) {
                    _ if by_clock => After::Clock(options.clock),
                    (_, Some(of_app)) if in_rounds => of_app,
                    (Some(of_client), _) => of_client,
                    // The first of a client, where all others were out: the next program of a script.
                    (None, Some(of_app)) if options.last.is_none() => of_app,
                    (None, _) => After::Clock(options.clock),
                };
            }
        }
    }
}
