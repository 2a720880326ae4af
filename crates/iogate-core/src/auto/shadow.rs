//! A window as it would have been under another scheduler: a gate of its own, a priced device, virtual time.
//!
//! Closed-loop: what a request waited for in the window it waits for here, too. All candidates start alike (the same requests queued and
//! in service, the same last transfers on the device), and each cold, as after a switch.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::window::{After, Window, Work};
use crate::device::{Device, Station, Transfer};
use crate::gate::{Decision, Dispatch, DispatchId, Gate, GateConfig, Outcome};
use crate::request::{AppId, ClientId, Op, Request, RequestId};
use crate::sched::{ConfigError, SchedulerConfig};
use crate::time::{Span, Time};

/// What the storage behind a gate charges.
pub trait Pricing: Send + Sync {
    /// A device that has served nothing yet.
    fn device(&self) -> Box<dyn Device>;

    /// The rate with `n` transfers in flight, in transfers of 64 KiB a second from all over a device that has not served anything.
    fn rate(&self, n: u32) -> u64 {
        const TRANSFERS: u64 = 256;
        let mut station = Station::new(self.device());
        let mut ends = BinaryHeap::new();
        let mut now = Time::ZERO;
        for index in 0..TRANSFERS {
            if ends.len() as u32 >= n.max(1) {
                now = ends.pop().map_or(now, |Reverse(end)| end);
            }
            // Multiples of an odd number are spread evenly over what a power of two divides.
            let address = index.wrapping_mul(0x9E37_79B9).wrapping_mul(65_536) % (1 << 40);
            let mut visit = station.begin(now);
            visit.serve(Transfer { op: Op::Read, address, bytes: 65_536 });
            ends.push(Reverse(visit.end()));
        }
        let end = ends.into_iter().map(|Reverse(end)| end).max().unwrap_or(now);
        TRANSFERS * 1_000_000_000 / end.as_nanos().max(1)
    }
}

impl<F: Fn() -> Box<dyn Device> + Send + Sync> Pricing for F {
    fn device(&self) -> Box<dyn Device> {
        self()
    }
}

/// What became of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// From its first arrival to the last completion of its work.
    pub(super) all: Span,
    /// To the completion that was its last one in the window as measured; zero if it had none.
    pub(super) measured: Span,
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
    /// Requests that come at known times.
    coming: BinaryHeap<Reverse<(Time, u32)>>,
    /// Transfers in service by their ends: a dispatch, or the work that a foreign one begins with.
    service: BinaryHeap<Reverse<(Time, u32, u32)>>,
    served: u32,
    /// The next request of the same client.
    following: Vec<u32>,
    clients: Vec<Client>,
    apps: Vec<App>,
    /// Completion times, client by client and application by application.
    done_of_client: Vec<Time>,
    done_of_app: Vec<Time>,
    /// Only so many requests of the window.
    limit: u32,
    completed: u32,
    /// Requests that foreign transfers carry, by the first of them.
    foreign: Vec<(u32, u32)>,
}

#[derive(Clone, Copy)]
struct Client {
    base: u32,
    done: u32,
    /// The request that waits for completions, and the next one of the list of its application.
    waiting: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct App {
    base: u32,
    done: u32,
    first: Option<Time>,
    /// Clients whose requests wait for the application, and the fewest completions that one waits for.
    waiting: u32,
    least: u32,
}

/// `time` by a clock that is behind by `ahead`.
fn back(time: Time, ahead: Span) -> Time {
    Time::ZERO + (time.since(Time::ZERO) - ahead)
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
            clients.push(Client { base, done: 0, waiting: NONE, next: NONE });
            base += part.requests;
        }
        let mut apps = Vec::with_capacity(window.apps.len());
        base = 0;
        for part in &window.apps {
            apps.push(App { base, done: 0, first: None, waiting: NONE, least: NONE });
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
            following: alloc::vec![NONE; window.len()],
            clients,
            apps,
            done_of_client: alloc::vec![Time::ZERO; window.len()],
            done_of_app: alloc::vec![Time::ZERO; window.len()],
            limit: limit.min(window.len() as u32),
            completed: 0,
            foreign: Vec::new(),
        };
        shadow.warm_up(window);
        shadow.start(window);
        Ok(shadow)
    }

    /// Serves what the device has served last, before the window: heads and caches are then about where they were.
    fn warm_up(&mut self, window: &Window) {
        let mut at = Time::ZERO;
        for warm in &window.warm {
            let mut visit = self.station.begin(at.max(warm.at));
            visit.serve(Transfer { op: warm.op, address: warm.address, bytes: warm.bytes });
            at = visit.end();
        }
        self.ahead = at.since(window.start);
    }

    /// Puts in what was there, and finds out when the first request of each client comes.
    fn start(&mut self, window: &Window) {
        let mut last = alloc::vec![NONE; window.clients.len()];
        let mut index = 0;
        while index < self.limit {
            let work = window.work[index as usize];
            match work.after {
                After::InService(since) => index = self.start_foreign(window, index, since),
                After::Queued(since) => {
                    self.begin_app(&work, window.start);
                    self.submit(window, index, since);
                    index += 1;
                }
                _ => {
                    let before = core::mem::replace(&mut last[work.client as usize], index);
                    match self.following.get_mut(before as usize) {
                        Some(following) => *following = index,
                        None => self.expect(window, index, window.start),
                    }
                    index += 1;
                }
            }
        }
    }

    /// One transfer that was in service as the window began; the index after its last request.
    fn start_foreign(&mut self, window: &Window, first: u32, since: Time) -> u32 {
        let Work { file, op, address, offset, .. } = window.work[first as usize];
        let (mut bytes, mut after) = (0, first);
        while let Some(work) = window.work.get(after as usize).filter(|_| after < self.limit)
            && work.after == After::InService(since)
            && (work.file, work.op, work.offset) == (file, op, offset + bytes)
        {
            bytes += u64::from(work.bytes);
            self.begin_app(work, window.start);
            after += 1;
        }
        let mut visit = self.station.begin(window.start + self.ahead);
        visit.serve(Transfer { op, address, bytes });
        // Part of it was over already, unless it waits for a slot.
        let over =
            if visit.begin() > window.start + self.ahead { Span::ZERO } else { window.start.since(since) };
        let left = visit.span() - over;
        let end = back(visit.end_after(left), self.ahead);
        self.foreign.push((first, after - first));
        self.served += 1;
        self.service.push(Reverse((end, self.served, FOREIGN | (self.foreign.len() as u32 - 1))));
        after
    }

    /// Simulates until about `budget` requests have completed, or all. How many have, and whether it is over.
    pub(super) fn run(&mut self, window: &Window, budget: u64) -> (u64, bool) {
        let before = self.completed;
        while u64::from(self.completed - before) < budget {
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
            let arrival = self.coming.peek().map(|Reverse((at, _))| *at);
            let Some(at) = [end, arrival, self.deadline].into_iter().flatten().min() else {
                return (u64::from(self.completed - before), true);
            };
            self.now = self.now.max(at);
            self.complete(window);
            while let Some(&Reverse((at, index))) = self.coming.peek()
                && at <= self.now
            {
                self.coming.pop();
                self.arrive(window, index);
            }
        }
        (u64::from(self.completed - before), self.completed == self.limit)
    }

    /// What each application took, in the order of the window's.
    pub(super) fn times<'a>(&'a self, window: &'a Window) -> impl Iterator<Item = Times> + 'a {
        self.apps.iter().zip(&window.apps).map(|(app, part)| {
            let took = |done: u32| match (app.first, done.checked_sub(1)) {
                (Some(first), Some(last)) => self.done_of_app[(app.base + last) as usize].since(first),
                _ => Span::ZERO,
            };
            Times { all: took(app.done), measured: took(part.completed.min(app.done)) }
        })
    }

    fn begin_app(&mut self, work: &Work, now: Time) {
        self.apps[work.app as usize].first.get_or_insert(now);
    }

    fn submit(&mut self, window: &Window, index: u32, at: Time) {
        let Work { file, op, offset, bytes, client, app, .. } = window.work[index as usize];
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

    fn arrive(&mut self, window: &Window, index: u32) {
        self.begin_app(&window.work[index as usize], self.now);
        self.submit(window, index, self.now);
        let next = self.following[index as usize];
        if next != NONE {
            self.expect(window, next, self.now);
        }
    }

    /// The client's requests before this one have come: finds out when it comes, or lets it wait.
    fn expect(&mut self, window: &Window, index: u32, now: Time) {
        let work = &window.work[index as usize];
        let (client, app) = (self.clients[work.client as usize], self.apps[work.app as usize]);
        let at = match work.after {
            After::Client(count, think) if count <= client.done => {
                self.done_of_client[(client.base + count - 1) as usize] + think
            }
            After::App(count, since) if count <= app.done => {
                self.done_of_app[(app.base + count - 1) as usize] + since
            }
            After::Client(..) => {
                self.clients[work.client as usize].waiting = index;
                return;
            }
            After::App(count, _) => {
                let app = &mut self.apps[work.app as usize];
                app.least = app.least.min(count);
                let next = core::mem::replace(&mut app.waiting, work.client);
                let client = &mut self.clients[work.client as usize];
                (client.waiting, client.next) = (index, next);
                return;
            }
            After::Clock(after) => window.start + after,
            After::InService(_) | After::Queued(_) => now,
        };
        self.coming.push(Reverse((at.max(now), index)));
    }

    fn dispatch(&mut self, window: &Window, dispatch: &Dispatch) {
        let (mut first, mut queued) = (None, false);
        for part in self.gate.parts(dispatch.id) {
            queued |= part.arrival < self.now;
            first.get_or_insert(part.request.0);
        }
        let Some(first) = first else { return };
        let address = window.work[first as usize].address;
        let mut visit = self.station.begin(self.now + self.ahead);
        visit.serve(Transfer { op: dispatch.op, address, bytes: dispatch.bytes });
        if queued {
            visit.hand_over();
        }
        let end = back(visit.end(), self.ahead);
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
            let parts: Vec<u32> = (self.gate.parts(id))
                .map(|part| {
                    bytes += u64::from(part.bytes);
                    part.request.0 as u32
                })
                .collect();
            self.gate.complete(self.now, id, Outcome::Done { bytes });
            parts.into_iter().for_each(|index| self.done(window, index));
        }
    }

    /// A request is complete: who waited for that goes on.
    fn done(&mut self, window: &Window, index: u32) {
        let Work { client: c, app: a, .. } = window.work[index as usize];
        self.completed += 1;
        let client = &mut self.clients[c as usize];
        self.done_of_client[(client.base + client.done) as usize] = self.now;
        client.done += 1;
        let (waiting, done) = (client.waiting, client.done);
        if let Some(work) = window.work.get(waiting as usize)
            && let After::Client(count, _) = work.after
            && count <= done
        {
            self.clients[c as usize].waiting = NONE;
            self.expect(window, waiting, self.now);
        }
        let app = &mut self.apps[a as usize];
        self.done_of_app[(app.base + app.done) as usize] = self.now;
        app.done += 1;
        if app.done >= app.least {
            // Those that wait for more put themselves into the list again.
            app.least = NONE;
            let mut next = core::mem::replace(&mut app.waiting, NONE);
            while next != NONE {
                let client = &mut self.clients[next as usize];
                next = client.next;
                let index = core::mem::replace(&mut client.waiting, NONE);
                self.expect(window, index, self.now);
            }
        }
    }

    /// Bytes of memory in use, those of the device left out.
    pub(super) fn allocated_bytes(&self) -> usize {
        self.gate.allocated_bytes()
            + self.following.capacity() * size_of::<u32>()
            + (self.done_of_client.capacity() + self.done_of_app.capacity()) * size_of::<Time>()
            + self.clients.capacity() * size_of::<Client>()
            + self.apps.capacity() * size_of::<App>()
            + self.coming.capacity() * size_of::<Reverse<(Time, u32)>>()
            + self.service.capacity() * size_of::<Reverse<(Time, u32, u32)>>()
            + self.foreign.capacity() * size_of::<(u32, u32)>()
    }
}
