//! A window as it would have been under another scheduler: a gate of its own, a priced device, virtual time.
//!
//! Closed-loop: what a request waited for in the window it waits for here, too. All candidates start alike (the same requests queued and
//! in service, the same last transfers on the device), and each cold, as after a switch.
//!
//! A client that has come to the end of its requests goes on with the same ones again, further on in its file, until all applications
//! have what they had in the window. Else who is starved would have the device for itself as soon as the others are through, and
//! nothing would be seen of it.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::pricing::Pricing;
use super::window::{After, Window, Work};
use crate::device::{Station, Transfer};
use crate::gate::{Decision, Dispatch, DispatchId, Gate, GateConfig, Outcome};
use crate::profile::Coverage;
use crate::request::{AppId, ClientId, Request, RequestId};
use crate::sched::{ConfigError, SchedulerConfig};
use crate::time::{Span, Time};

/// What became of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// From its first arrival to the last completion of its work.
    pub(super) all: Span,
    /// To the completion that was its last one in the window as measured; zero if it had none.
    pub(super) measured: Span,
    /// From its beginning to its end, where it is known when that comes; else as `all`.
    pub(super) in_all: Span,
    /// Its completions until the simulation was over, and in how many ns. Those that came again are among them.
    pub(super) rate: (u64, u64),
}

/// Marks what is served on the device before anything that the shadow's gate says.
const FOREIGN: u32 = 1 << 31;
const NONE: u32 = u32::MAX;

/// A simulation in progress.
pub(super) struct Shadow {
    gate: Gate,
    station: Station,
    /// The device's clock is ahead by this: it was warmed up before.
    ahead: Span,
    now: Time,
    deadline: Option<Time>,
    /// Clients whose next request comes at a known time; equal times in the order of the window's requests.
    coming: BinaryHeap<Reverse<(Time, u32, u32)>>,
    /// Transfers in service by their ends: a dispatch, or the work that a foreign one begins with.
    service: BinaryHeap<Reverse<(Time, u32, u32)>>,
    served: u32,
    /// For how long the device has had something of what the shadow has dispatched.
    busy: Span,
    /// The requests of each client, client by client.
    own: Vec<u32>,
    /// Requests that come again, by number from the end of the window's on: which one, and for which time.
    again: Vec<(u32, u32)>,
    clients: Vec<Client>,
    apps: Vec<App>,
    /// The last completion times, client by client and application by application.
    done_of_client: Vec<Time>,
    done_of_app: Vec<Time>,
    /// Only so many requests of the window.
    limit: u32,
    completed: u32,
    /// How long the requests that are complete were in the gate, all of them together, and how many they are.
    waited: (u128, u64),
    /// Applications that have not got what they had in the window.
    unfinished: u32,
    /// Requests that foreign transfers carry, by the first of them.
    foreign: Vec<(u32, u32)>,
    /// Of which transfers it is known what they take, and how many dispatches were not such ones.
    coverage: Option<Coverage>,
    unknown: u32,
}

#[derive(Clone, Copy, Default)]
struct Client {
    base: u32,
    /// Requests in the window, those that have come, and those that are complete.
    requests: u32,
    came: u32,
    done: u32,
    /// Most requests that it had in the gate at once, for how long it thought, and how far on it is when it begins again.
    outstanding: u32,
    think: Span,
    shift: u64,
    /// It does not begin again.
    over: bool,
    /// What its next request waits for, and the next client in the list of its application.
    waiting: Option<After>,
    next: u32,
}

#[derive(Clone, Copy)]
struct App {
    base: u32,
    requests: u32,
    done: u32,
    first: Option<Time>,
    /// When it had got what it had in the window, and what had completed of that in it.
    finished: Option<Time>,
    measured: Option<Time>,
    /// Clients whose requests wait for the application, and the fewest completions that one waits for.
    waiting: u32,
    least: u32,
}

/// Requests that are simulated at most, as a multiple of those of the window.
const LONGER_MAX: u32 = 2;

/// Where the time of a client's, or an application's, completion with this number is kept; there is room for as many as it has requests.
fn recent(base: u32, requests: u32, count: u32) -> usize {
    (base + count.saturating_sub(1) % requests.max(1)) as usize
}

/// How far on in its file a client is when it begins its requests again: if they ascend in one file, behind the last of them.
fn shift(window: &Window, own: &[u32]) -> u64 {
    let works = || own.iter().map(|index| &window.work[*index as usize]);
    let (Some(first), Some(last)) = (works().next(), works().next_back()) else { return 0 };
    let follows = |(one, other): (&Work, &Work)| {
        (one.file, one.op) == (other.file, other.op) && one.offset < other.offset
    };
    if !works().zip(works().skip(1)).all(follows) {
        return 0;
    }
    let span = last.offset - first.offset;
    match own.len() as u64 - 1 {
        0 => last.bytes.into(),
        steps => span.saturating_add(span / steps),
    }
}

/// `time` by a clock that is behind by `ahead`.
fn back(time: Time, ahead: Span) -> Time {
    Time::ZERO + (time.since(Time::ZERO) - ahead)
}

/// When it was by a device's clock: at completions as measured, and as simulated, in the order of the former.
struct Clock(Vec<(Time, Time)>);

impl Clock {
    fn at(&self, time: Time) -> Time {
        let after = self.0.partition_point(|(measured, _)| *measured <= time);
        let (measured, simulated) = self.0[after.saturating_sub(1)];
        simulated + time.since(measured)
    }

    fn ended(&mut self, measured: Time, simulated: Time) {
        let after = self.0.partition_point(|(other, _)| *other <= measured);
        self.0.insert(after, (measured, simulated));
    }
}

impl Shadow {
    /// The first `limit` requests of `window`, those that were in the gate included, under `scheduler`.
    pub(super) fn new(
        window: &Window,
        config: &GateConfig,
        scheduler: &SchedulerConfig,
        pricing: &dyn Pricing,
        limit: u32,
    ) -> Result<Shadow, ConfigError> {
        let gate = Gate::new(&GateConfig {
            scheduler: scheduler.clone(),
            queue_max: u32::MAX - 1,
            ..config.clone()
        })?;
        let mut clients = Vec::with_capacity(window.clients.len());
        let mut base = 0;
        for part in &window.clients {
            clients.push(Client { base, next: NONE, ..Client::default() });
            base += part.requests;
        }
        let mut apps = Vec::with_capacity(window.apps.len());
        base = 0;
        for part in &window.apps {
            let (first, finished, measured) = (None, None, None);
            apps.push(App {
                base,
                requests: 0,
                done: 0,
                first,
                finished,
                measured,
                waiting: NONE,
                least: NONE,
            });
            base += part.requests;
        }
        let mut shadow = Shadow {
            gate,
            station: Station::new(pricing.device()),
            ahead: Span::ZERO,
            now: window.start,
            deadline: None,
            coming: BinaryHeap::new(),
            service: BinaryHeap::new(),
            served: 0,
            busy: Span::ZERO,
            own: alloc::vec![NONE; window.len()],
            again: Vec::new(),
            clients,
            apps,
            done_of_client: alloc::vec![Time::ZERO; window.len()],
            done_of_app: alloc::vec![Time::ZERO; window.len()],
            limit: limit.min(window.len() as u32),
            completed: 0,
            waited: (0, 0),
            unfinished: 0,
            foreign: Vec::new(),
            coverage: pricing.coverage(),
            unknown: 0,
        };
        let clock = shadow.warm_up(window);
        shadow.start(window, &clock);
        Ok(shadow)
    }

    /// Serves what the device has served last, each as long after the completion before it as it was, and so in the device's own time:
    /// a disk that idles because it is told of things late reads ahead, and is another one from then on.
    fn warm_up(&mut self, window: &Window) -> Clock {
        let in_service = window.work.first().map(|work| match work.after {
            After::InService(since) => since,
            _ => window.start,
        });
        let begin = window.warm.first().map(|warm| warm.began).or(in_service).unwrap_or(window.start);
        let mut clock = Clock(alloc::vec![(begin, window.start)]);
        for warm in &window.warm {
            let mut visit = self.station.begin(clock.at(warm.began));
            visit.serve(Transfer { op: warm.op, address: warm.address, bytes: warm.bytes });
            clock.ended(warm.ended, visit.end());
        }
        self.ahead = clock.at(window.start).since(window.start);
        clock
    }

    /// Puts in what was there, and finds out when the next request of each client comes.
    fn start(&mut self, window: &Window, clock: &Clock) {
        self.learn(window);
        let mut index = 0;
        while index < self.limit {
            let work = window.work[index as usize];
            match work.after {
                After::InService(since) => index = self.start_foreign(window, index, since, clock),
                After::Queued(since) => {
                    self.begin_app(&work, window.start);
                    self.clients[work.client as usize].came += 1;
                    self.submit(window, index, since);
                    index += 1;
                }
                _ => break,
            }
        }
        (0..self.clients.len() as u32).for_each(|client| self.expect(window, client, window.start));
    }

    /// What each client does: how many requests it has, how many at once, how long it thinks, and where it goes on.
    fn learn(&mut self, window: &Window) {
        let mut thought = alloc::vec![(0_u64, 0); self.apps.len() + self.clients.len()];
        for (index, work) in window.work[..self.limit as usize].iter().enumerate() {
            let client = &mut self.clients[work.client as usize];
            self.own[(client.base + client.requests) as usize] = index as u32;
            client.requests += 1;
            self.apps[work.app as usize].requests += 1;
            let (outstanding, think) = match work.after {
                After::Client(count, think) => (client.requests.saturating_sub(count), Some(think)),
                After::App(_, think) => (1, Some(think)),
                _ => (0, None),
            };
            client.outstanding = client.outstanding.max(outstanding);
            for sum in [work.app as usize, self.apps.len() + work.client as usize] {
                thought[sum].0 = think.map_or(0, Span::as_nanos).saturating_add(thought[sum].0);
                thought[sum].1 += u64::from(think.is_some());
            }
        }
        for index in 0..self.clients.len() {
            let part = &window.clients[index];
            let Client { base, requests, .. } = self.clients[index];
            let own = &self.own[base as usize..(base + requests) as usize];
            let client = &mut self.clients[index];
            if client.outstanding == 0 {
                client.outstanding = requests;
            }
            let (sum, count) = [thought[self.apps.len() + index], thought[part.app as usize]]
                .into_iter()
                .find(|(_, count)| *count > 0)
                .unwrap_or((0, 1));
            client.think = Span::from_nanos(sum / count);
            client.shift = shift(window, own);
            client.over = part.over;
        }
        self.unfinished = self.apps.iter().filter(|app| app.requests > 0).count() as u32;
    }

    /// One transfer that was in service as the window began; the index after its last request.
    fn start_foreign(&mut self, window: &Window, first: u32, since: Time, clock: &Clock) -> u32 {
        let Work { file, op, address, offset, .. } = window.work[first as usize];
        let (mut bytes, mut after) = (0, first);
        while let Some(work) = window.work.get(after as usize).filter(|_| after < self.limit)
            && work.after == After::InService(since)
            && (work.file, work.op, work.offset) == (file, op, offset + bytes)
        {
            bytes += u64::from(work.bytes);
            self.clients[work.client as usize].came += 1;
            self.begin_app(work, window.start);
            after += 1;
        }
        let mut visit = self.station.begin(clock.at(since));
        visit.serve(Transfer { op, address, bytes });
        let end = back(visit.end(), self.ahead).max(window.start);
        self.foreign.push((first, after - first));
        self.served += 1;
        self.service.push(Reverse((end, self.served, FOREIGN | (self.foreign.len() as u32 - 1))));
        after
    }

    /// Whether all applications have got what they had in the window; or some are so slow that it is clear enough.
    fn is_over(&self) -> bool {
        self.unfinished == 0 || self.completed >= self.limit.saturating_mul(LONGER_MAX)
    }

    /// Simulates until about `budget` requests have completed, or it is over. How many have, and whether it is over.
    pub(super) fn run(&mut self, window: &Window, budget: u64) -> (u64, bool) {
        let before = self.completed;
        while u64::from(self.completed - before) < budget && !self.is_over() {
            loop {
                match self.gate.next(self.now) {
                    Decision::Dispatch(dispatch) => self.dispatch(window, &dispatch),
                    Decision::WaitUntil(deadline, _) => {
                        self.deadline = Some(deadline).filter(|deadline| *deadline > self.now);
                        break;
                    }
                    Decision::Idle => {
                        self.deadline = None;
                        break;
                    }
                }
            }
            let end = self.service.peek().map(|Reverse((end, ..))| *end);
            let arrival = self.coming.peek().map(|Reverse((at, ..))| *at);
            let Some(at) = [end, arrival, self.deadline].into_iter().flatten().min() else {
                return (u64::from(self.completed - before), true);
            };
            self.now = self.now.max(at);
            self.complete(window);
            while let Some(&Reverse((at, _, client))) = self.coming.peek()
                && at <= self.now
            {
                self.coming.pop();
                self.arrive(window, client);
            }
        }
        (u64::from(self.completed - before), self.is_over())
    }

    /// What each application took, in the order of the window's. Of what it has not got by the end the same rate is expected.
    pub(super) fn times<'a>(&'a self, window: &'a Window) -> impl Iterator<Item = Times> + 'a {
        self.apps.iter().zip(&window.apps).map(|(app, part)| {
            let took = |end: Option<Time>, requests: u32| match (app.first, end) {
                (None, _) => Span::ZERO,
                (Some(first), Some(end)) => end.since(first),
                (Some(first), None) => {
                    let so_far = u128::from(self.now.since(first).as_nanos());
                    let all = so_far * u128::from(2 * requests) / u128::from(2 * app.done + 1);
                    Span::from_nanos(all.min(u128::from(u64::MAX)) as u64)
                }
            };
            let measured = part.completed.min(app.requests);
            let all = took(app.finished, app.requests);
            let lasted = app.first.map_or(0, |first| self.now.since(first).as_nanos());
            Times {
                all,
                in_all: all,
                // Half of one more, as who has had nothing yet has some rate, too.
                rate: (2 * u64::from(app.done) + 1, lasted.max(1).saturating_mul(2)),
                measured: if measured == 0 { Span::ZERO } else { took(app.measured, measured) },
            }
        })
    }

    /// For how long the device had something to do, for each request that is complete, in ns.
    pub(super) fn busy_ns(&self) -> u64 {
        self.busy.as_nanos() / u64::from(self.completed.max(1))
    }

    /// How long a request was in the gate, its service included, on the average.
    pub(super) fn mean_wait(&self) -> Span {
        let (sum, count) = self.waited;
        Span::from_nanos((sum / u128::from(count.max(1))).min(u128::from(u64::MAX)) as u64)
    }

    /// Whether of most dispatches nobody has measured what they take.
    pub(super) fn is_guess(&self) -> bool {
        self.unknown > self.served / 2
    }

    /// What a request is: one of the window's, or one that comes again.
    fn work(&self, window: &Window, id: u32) -> Work {
        match window.work.get(id as usize) {
            Some(work) => *work,
            None => {
                let (index, time) = self.again[id as usize - window.len()];
                let work = window.work[index as usize];
                let shift = self.clients[work.client as usize].shift.saturating_mul(time.into());
                // No further than a gate takes it.
                let offset = work.offset.saturating_add(shift).min(u64::MAX - u64::from(work.bytes));
                Work { offset, address: work.address.wrapping_add(shift), ..work }
            }
        }
    }

    fn begin_app(&mut self, work: &Work, now: Time) {
        self.apps[work.app as usize].first.get_or_insert(now);
    }

    fn submit(&mut self, window: &Window, index: u32, at: Time) {
        let Work { file, op, offset, bytes, client, app, .. } = self.work(window, index);
        let request = Request {
            id: RequestId(index.into()),
            file,
            op,
            offset,
            bytes,
            app: AppId(app + 1),
            client: ClientId(client + 1),
            target: None,
            issued: None,
        };
        let taken = self.gate.submit(at, &request);
        debug_assert!(taken.is_ok(), "a request that a gate has taken before: {taken:?}");
        if taken.is_err() {
            self.done(window, index);
        }
    }

    fn arrive(&mut self, window: &Window, client: u32) {
        let Client { base, requests, came, .. } = self.clients[client as usize];
        let index = self.own[(base + came % requests) as usize];
        let id = match came / requests {
            0 => index,
            time => {
                self.again.push((index, time));
                (window.len() + self.again.len() - 1) as u32
            }
        };
        self.clients[client as usize].came += 1;
        self.begin_app(&window.work[index as usize], self.now);
        self.submit(window, id, self.now);
        self.expect(window, client, self.now);
    }

    /// The client's requests before its next one have come: finds out when that comes, or lets it wait.
    fn expect(&mut self, window: &Window, of: u32, now: Time) {
        let client = self.clients[of as usize];
        if client.requests == 0 || (client.over && client.came >= client.requests) {
            return;
        }
        let (time, place) = (client.came / client.requests, client.came % client.requests);
        let index = self.own[(client.base + place) as usize];
        let work = &window.work[index as usize];
        let app = self.apps[work.app as usize];
        let after = match work.after {
            after if time == 0 => after,
            After::Client(count, think) => After::Client(count + time * client.requests, think),
            After::App(count, think) => After::App(count + time * app.requests, think),
            _ => After::Client((client.came + 1).saturating_sub(client.outstanding), client.think),
        };
        let at = match after {
            After::Client(count, think) if count <= client.done => {
                self.done_of_client[recent(client.base, client.requests, count)] + think
            }
            After::App(count, since) if count <= app.done => {
                self.done_of_app[recent(app.base, app.requests, count)] + since
            }
            After::Client(..) => {
                self.clients[of as usize].waiting = Some(after);
                return;
            }
            After::App(count, _) => {
                let app = &mut self.apps[work.app as usize];
                app.least = app.least.min(count);
                let next = core::mem::replace(&mut app.waiting, of);
                let client = &mut self.clients[of as usize];
                (client.waiting, client.next) = (Some(after), next);
                return;
            }
            After::Clock(after) => window.start + after,
            After::InService(_) | After::Queued(_) => now,
        };
        self.coming.push(Reverse((at.max(now), index, of)));
    }

    fn dispatch(&mut self, window: &Window, dispatch: &Dispatch) {
        let (mut first, mut queued) = (None, false);
        for part in self.gate.parts(dispatch.id) {
            queued |= part.arrival < self.now;
            first.get_or_insert(part.request.0);
        }
        let Some(first) = first else { return };
        let address = self.work(window, first as u32).address;
        let mut visit = self.station.begin(self.now + self.ahead);
        visit.serve(Transfer { op: dispatch.op, address, bytes: dispatch.bytes });
        if queued {
            visit.hand_over();
        }
        let end = back(visit.end(), self.ahead);
        let begun = self.service.iter().map(|Reverse((end, ..))| *end).max().unwrap_or(self.now);
        self.busy += end.since(begun.max(self.now));
        let in_flight = self.service.len() + 1;
        let known = self.coverage.is_none_or(|known| known.has(dispatch.op, dispatch.bytes, in_flight));
        self.unknown += u32::from(!known);
        self.served += 1;
        self.service.push(Reverse((end, self.served, dispatch.id.0)));
    }

    fn complete(&mut self, window: &Window) {
        while let Some(&Reverse((end, _, id))) = self.service.peek()
            && end <= self.now
        {
            self.service.pop();
            if id & FOREIGN != 0 {
                let (first, count) = self.foreign[(id & !FOREIGN) as usize];
                (first..first + count).for_each(|index| self.done(window, index));
                continue;
            }
            let id = DispatchId(id);
            let mut bytes = 0;
            let (now, mut waited) = (self.now, 0);
            let parts: Vec<u32> = (self.gate.parts(id))
                .map(|part| {
                    bytes += u64::from(part.bytes);
                    waited += u128::from(now.since(part.arrival).as_nanos());
                    part.request.0 as u32
                })
                .collect();
            self.waited = (self.waited.0 + waited, self.waited.1 + parts.len() as u64);
            self.gate.complete(self.now, id, Outcome::Done { bytes });
            parts.into_iter().for_each(|index| self.done(window, index));
        }
    }

    /// A request is complete: who waited for that goes on.
    fn done(&mut self, window: &Window, id: u32) {
        let Work { client: c, app: a, .. } = self.work(window, id);
        self.completed += 1;
        let client = &mut self.clients[c as usize];
        client.done += 1;
        self.done_of_client[recent(client.base, client.requests, client.done)] = self.now;
        if let Some(After::Client(count, _)) = client.waiting
            && count <= client.done
        {
            client.waiting = None;
            self.expect(window, c, self.now);
        }
        let app = &mut self.apps[a as usize];
        app.done += 1;
        self.done_of_app[recent(app.base, app.requests, app.done)] = self.now;
        if app.done == app.requests {
            app.finished = Some(self.now);
            self.unfinished -= 1;
        }
        if app.done == window.apps[a as usize].completed.min(app.requests) {
            app.measured = Some(self.now);
        }
        if app.done >= app.least {
            // Those that wait for more put themselves into the list again.
            app.least = NONE;
            let mut next = core::mem::replace(&mut app.waiting, NONE);
            while next != NONE {
                let of = next;
                let client = &mut self.clients[of as usize];
                next = client.next;
                client.waiting = None;
                self.expect(window, of, self.now);
            }
        }
    }

    /// Bytes of memory in use, those of the device left out.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.gate.allocated_bytes()
            + self.own.capacity() * size_of::<u32>()
            + self.again.capacity() * size_of::<(u32, u32)>()
            + (self.done_of_client.capacity() + self.done_of_app.capacity()) * size_of::<Time>()
            + self.clients.capacity() * size_of::<Client>()
            + self.apps.capacity() * size_of::<App>()
            + self.coming.capacity() * size_of::<Reverse<(Time, u32, u32)>>()
            + self.service.capacity() * size_of::<Reverse<(Time, u32, u32)>>()
            + self.foreign.capacity() * size_of::<(u32, u32)>()
    }
}
