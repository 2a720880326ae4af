//! Time, messages, what goes wrong, and whose turn it is.

mod faults;

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iogate_core::Time;
use iogate_sim::rng::Rng;
use iogate_vfs::Clock;

use self::faults::Faults;
use super::blocks::Verifiers;
use super::program;
use super::server::{self, Sender, Server, Task};
use super::{Planted, Report};
pub(super) use crate::agenda::MS;
use crate::agenda::{Agenda, SECOND, Trail, line};
use crate::data::disk::Disk;
use crate::fiber::{self, Fibers};

/// How long a run has faults, and how long everything may take then.
pub(super) const FAULTS: u64 = 5 * SECOND;
const QUIET: u64 = 200 * SECOND;
/// When the clocks began.
const EPOCH: u64 = 1_000_000 * SECOND;
/// Lines of the trail.
const TRAIL_MAX: usize = 400;

/// What happens.
pub(super) enum Event {
    /// A fiber goes on.
    Wake(usize),
    /// A call arrives, if its connection still is.
    ToServer {
        from: Sender,
        bytes: Vec<u8>,
    },
    /// An answer arrives, which was given in a boot.
    ToClient {
        to: Sender,
        boot: u64,
        bytes: Vec<u8>,
    },
    /// The server starts.
    Start,
    Fault,
}

/// An answer, and in which boot it was given.
pub(super) type Answered = (Vec<u8>, u64);

/// A client's machine.
#[derive(Default)]
pub(super) struct Client {
    /// Its connection: another one after each cut.
    pub(super) wire: u64,
    pub(super) last_xid: u32,
    /// Calls without an answer: who waits for each.
    pub(super) waiting: BTreeMap<u32, (usize, Option<Answered>)>,
}

/// Everything but what fibers know.
pub(super) struct World {
    pub(super) now: u64,
    time: Arc<AtomicU64>,
    pub(super) rng: Rng,
    pub(super) planted: Option<Planted>,
    pub(super) report: Report,
    /// Nothing goes on any more: who waits goes.
    pub(super) is_over: bool,
    /// Whether calls of the system take long.
    pub(super) is_slow: bool,
    pub(super) server: Server,
    pub(super) clients: Vec<Client>,
    pub(super) verifiers: Verifiers,
    /// Fibers that can go on, and those that begin.
    ready: VecDeque<usize>,
    pub(super) begins: Vec<Box<dyn FnOnce() + Send>>,
    /// To be dropped while nobody holds the world.
    dropped: VecDeque<Task>,
    /// Programs, those of them that have made everything durable, and those that have found it again.
    programs: usize,
    pub(super) durable: usize,
    pub(super) done: usize,
    faults: Faults,
    agenda: Agenda<Event>,
    trail: Trail,
}

/// The world, of which whoever runs holds the lock, and nobody who waits.
pub(super) type Shared = Arc<Mutex<World>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, World> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits, as a fiber, until there is what it looks for. `None`: the time has come, or nothing goes on any more.
pub(super) fn wait<R>(
    shared: &Shared,
    until: u64,
    mut look: impl FnMut(&mut World) -> Option<R>,
) -> Option<R> {
    let fiber = fiber::current()?;
    let mut world = lock(shared);
    if until < u64::MAX {
        world.agenda.plan(until, Event::Wake(fiber));
    }
    loop {
        if world.is_over {
            return None;
        }
        let found = look(&mut world);
        if found.is_some() || world.now >= until {
            return found;
        }
        drop(world);
        fiber::pause();
        world = lock(shared);
    }
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> std::io::Result<World> {
        let mut rng = Rng::new(seed, 0);
        let faults = Faults::new(&mut rng);
        let clients =
            (0..rng.between(1, 3)).map(|_| Client { last_xid: rng.bits() as u32, ..Client::default() });
        Ok(World {
            now: 0,
            time: Arc::default(),
            planted,
            report: Report { seed, ..Report::default() },
            is_over: false,
            is_slow: false,
            server: Server::new(seed)?,
            clients: clients.collect(),
            rng: Rng::new(seed, 1),
            verifiers: Verifiers::default(),
            ready: VecDeque::new(),
            begins: Vec::new(),
            dropped: VecDeque::new(),
            programs: 0,
            durable: 0,
            done: 0,
            faults,
            agenda: Agenda::default(),
            trail: Trail::new(TRAIL_MAX),
        })
    }

    /// A clock of this world's time.
    pub(super) fn clock(&self) -> Clock {
        let time = Arc::clone(&self.time);
        Clock::simulated(move || Time::from_nanos(EPOCH + time.load(Ordering::Relaxed)))
    }

    pub(super) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.server.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what happened, for whoever looks for the cause of a finding.
    pub(super) fn note(&mut self, what: impl FnOnce() -> String) {
        if self.report.findings.is_empty() {
            self.trail.note(self.now, &what());
        }
    }

    pub(super) fn found(&mut self, what: &str) {
        if self.is_over {
            return;
        }
        if self.report.findings.is_empty() {
            self.report.trail = self.trail.take();
        }
        self.report.findings.push(line(self.now, &format!("FOUND {what}")));
    }

    /// Whether a program is to go on with what it does.
    pub(super) fn has_faults(&self) -> bool {
        self.now < FAULTS
    }

    /// Whether the machine has crashed behind what all have made durable.
    pub(super) fn has_ended(&self) -> bool {
        self.durable > self.programs
    }

    /// Gives the server something to do.
    pub(super) fn push(&mut self, task: Task) {
        let worker = self.server.push(task);
        self.ready.extend(worker);
    }

    /// Sends a message. It may be lost.
    pub(super) fn send(&mut self, message: Event) {
        if self.rng.below(1000) < self.faults.lost {
            return self.note(|| "the next message is lost".into());
        }
        let most = if self.rng.below(20) == 0 { 100 * MS } else { 2 * MS };
        let at = self.now + self.rng.between(MS / 50, most);
        self.agenda.plan(at, message);
    }

    /// Whether the process is to be killed before the next call of the system.
    pub(super) fn is_last_step(&self) -> bool {
        matches!(self.server.kill_in, Some((0, _)))
    }

    /// A call of the system: whether the process is killed before it.
    pub(super) fn is_killed_here(&mut self) -> bool {
        match &mut self.server.kill_in {
            Some((0, crashes)) => {
                let crashes = *crashes;
                self.kill(crashes);
                true
            }
            Some((steps, _)) => {
                *steps -= 1;
                false
            }
            None => false,
        }
    }

    /// A sync has failed. The process is not killed before it has noted that: it would not know any more.
    pub(super) fn spare_next_step(&mut self) {
        if let Some((steps, _)) = &mut self.server.kill_in {
            *steps += 1;
        }
    }

    /// The server is killed, or its machine crashes. It is started again after a while.
    fn kill(&mut self, crashes: bool) {
        self.note(|| format!("the server is killed, its machine crashes: {crashes}"));
        self.report.kills += 1;
        self.report.crashes += u64::from(crashes);
        let (workers, tasks) = self.server.kill(crashes, self.planted);
        self.ready.extend(workers);
        self.dropped.extend(tasks);
        (0..self.clients.len()).for_each(|client| self.cut(client));
        let again = self.now + self.rng.between(MS, 300 * MS);
        self.agenda.plan(again, Event::Start);
    }

    /// The server is there: clients connect, and send again what waits. What they have sent before is with no connection.
    pub(super) fn connect(&mut self) {
        (0..self.clients.len()).for_each(|client| self.cut(client));
    }

    /// A client's connection ends: what is underway on it is lost, and it finds out.
    fn cut(&mut self, client: usize) {
        let client = &mut self.clients[client];
        client.wire += 1;
        self.ready.extend(client.waiting.values().map(|(fiber, _)| *fiber));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Wake(fiber) => self.ready.push_back(fiber),
            Event::ToServer { from, bytes } => {
                if self.server.is_up && self.clients[from.client].wire == from.wire {
                    self.push(Task::Record(from, bytes));
                }
            }
            Event::ToClient { to, boot, bytes } => {
                let of = &mut self.clients[to.client];
                let xid = bytes.first_chunk().map(|xid| u32::from_be_bytes(*xid));
                if of.wire == to.wire
                    && let Some((fiber, answer)) = xid.and_then(|xid| of.waiting.get_mut(&xid))
                {
                    *answer = Some((bytes, boot));
                    self.ready.push_back(*fiber);
                }
            }
            Event::Start => {}
            Event::Fault => self.fault(),
        }
    }

    /// All have made durable what they have: the machine crashes, and they look for it.
    fn end_durable(&mut self) {
        if self.durable == self.programs && !self.has_faults() {
            self.durable += 1;
            self.kill(true);
        }
    }
}

/// Runs the world of a seed to its end.
pub(super) fn run(seed: u64, planted: Option<Planted>) -> Report {
    let world = match World::new(seed, planted) {
        Ok(world) => world,
        Err(error) => return Report { seed, findings: vec![error.to_string()], ..Report::default() },
    };
    let shared: Shared = Arc::new(Mutex::new(world));
    let mut fibers = Fibers::default();
    {
        let mut world = lock(&shared);
        let programs = program::all(&shared, seed, world.clients.len());
        world.programs = programs.len();
        world.begins = programs;
        world.agenda.plan(0, Event::Start);
        let first = world.faults.pause;
        world.agenda.plan(first, Event::Fault);
    }
    loop {
        let mut world = lock(&shared);
        let dropped = std::mem::take(&mut world.dropped);
        let begins = std::mem::take(&mut world.begins);
        if !dropped.is_empty() || !begins.is_empty() {
            drop(world);
            drop(dropped);
            for begin in begins {
                spawn(&shared, &mut fibers, begin);
            }
            continue;
        }
        if let Some(fiber) = world.ready.pop_front() {
            drop(world);
            if let Err(why) = fibers.resume(fiber) {
                lock(&shared).found(&why);
            }
            continue;
        }
        world.end_durable();
        let is_done = world.done == world.programs;
        if is_done || world.now > FAULTS + QUIET || !world.report.findings.is_empty() {
            break;
        }
        let Some((time, event)) = world.agenda.take_next() else { break };
        world.now = world.now.max(time);
        world.time.store(world.now, Ordering::Relaxed);
        world.report.events += 1;
        if matches!(event, Event::Start) {
            drop(world);
            let there = Arc::clone(&shared);
            spawn(&shared, &mut fibers, Box::new(move || server::start(&there)));
        } else {
            world.happens(event);
        }
    }
    end(&shared, &mut fibers)
}

fn spawn(shared: &Shared, fibers: &mut Fibers, work: Box<dyn FnOnce() + Send>) {
    match fibers.spawn(work) {
        Ok(fiber) => lock(shared).ready.push_back(fiber),
        Err(error) => lock(shared).found(&error.to_string()),
    }
}

/// Lets everybody go who still waits.
fn end(shared: &Shared, fibers: &mut Fibers) -> Report {
    let mut world = lock(shared);
    if world.done < world.programs && world.report.findings.is_empty() {
        let (done, programs) = (world.done, world.programs);
        world.found(&format!("{done} of {programs} programs have come to their end"));
    }
    world.is_over = true;
    let (_, tasks) = world.server.kill(false, None);
    drop(world);
    drop(tasks);
    fibers.finish();
    let mut world = lock(shared);
    world.server.shutdown();
    std::mem::take(&mut world.report)
}
