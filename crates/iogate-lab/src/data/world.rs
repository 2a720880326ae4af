//! What there is, what goes wrong, and whose turn it is.

mod faults;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iogate_core::Layout;
use iogate_core::wire::Identity;
use iogate_sim::rng::Rng;
use iogate_testkit::data::Event as Happened;
use iogate_vfs::{StripedTree, Tree};

use self::faults::Faults;
use super::client::Link;
use super::disk::Disk;
use super::ends::EndsHere;
use super::network::{DELAY_MAX, Event, MS, Net, SECOND};
use super::program::{Book, Features, Program};
use super::remote::RemoteTree;
use super::server::Server;
use super::{Planted, Report};
use crate::fiber::{Fibers, pause};

/// How long a run has faults, how long programs go on without, and how long everything may take then.
pub(super) const FAULTS: u64 = 8 * SECOND;
pub(super) const CALM: u64 = 2 * SECOND;
const QUIET: u64 = 120 * SECOND;

/// How long a stripe is.
pub(super) const STRIPE_BYTES: u64 = 1024;

/// Everything but the programs' own state.
pub(super) struct World {
    pub(super) net: Net,
    pub(super) links: Vec<Link>,
    servers: Vec<Server>,
    /// What each program knows over its lives.
    pub(super) books: Vec<Book>,
    /// Which file is which.
    pub(super) files: HashMap<Identity, u64>,
    pub(super) last_file: u64,
    pub(super) features: Features,
    faults: Faults,
}

/// The world, of which whoever runs holds the lock, and nobody who waits.
pub(super) type Shared = Arc<Mutex<World>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, World> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Lets time pass for the fiber that runs.
pub(super) fn sleep(shared: &Shared, fiber: usize, time: u64) {
    let mut world = lock(shared);
    let until = world.net.now + time;
    world.net.at(until, Event::Wake(fiber));
    loop {
        if world.net.is_over || world.net.now >= until {
            return;
        }
        drop(world);
        pause();
        world = lock(shared);
    }
}

impl World {
    fn new(seed: u64, planted: Option<Planted>) -> World {
        let mut rng = Rng::new(seed, 0);
        let faults = Faults::new(&mut rng);
        let features = Features::new(&mut rng);
        let mut net = Net::new(seed, planted);
        net.is_slow = faults.slow_net;
        // The first has the names, if files are striped over others.
        let stripes = rng.below(2) * rng.between(1, 3);
        let servers = (0..=stripes).map(|number| {
            let ends = (number == 0 && stripes > 0).then(|| EndsHere::new(net.clock()));
            let mut server = Server::new(number as usize, Disk::new(Rng::new(seed, 2 + number)), ends);
            server.is_slow = faults.slow_disk;
            server
        });
        let servers = servers.collect();
        if stripes > 0 {
            net.show_parts();
        }
        let programs = rng.between(2, 6);
        let books = (0..programs).map(|number| Book::new(number, rng.bits())).collect();
        World {
            net,
            links: Vec::new(),
            servers,
            books,
            files: HashMap::new(),
            last_file: 0,
            features,
            faults,
        }
    }

    fn happens(&mut self, event: Event) {
        let World { net, links, servers, .. } = self;
        match event {
            Event::Wake(fiber) => net.ready.push_back(fiber),
            Event::Connect(link) => links[link].connect(net),
            Event::ToServer(wire, sent) => {
                if let Some((_, server)) = net.ends_of(wire) {
                    servers[server].arrives(net, wire, sent);
                }
            }
            Event::ToClient(wire, sent) => {
                if let Some((link, _)) = net.ends_of(wire) {
                    links[link].arrives(net, wire, sent);
                }
            }
            Event::Take(server, life, wire) => servers[server].take(net, life, wire),
            Event::CarryOut(server, life, session, id) => servers[server].carry_out(net, life, session, id),
            Event::Reap(server, life) => servers[server].reap(net, life),
            Event::Start(server) => servers[server].start(net),
            Event::Kill(program) => self.kill_program(program),
            Event::Fault => self.fault(),
            Event::Begin(_) => {}
        }
    }

    /// A program is killed. Its next life begins when its system has closed what it had.
    fn kill_program(&mut self, program: usize) {
        let World { net, links, books, .. } = self;
        let own = std::mem::take(&mut books[program].links);
        let Some(&client) = own.first() else { return };
        net.note(|| format!("program {program} is killed"));
        // Whoever writes to stripes dies with it.
        net.happened(&Happened::Killed { client: client as u64, tears: own.len() > 1 });
        own.into_iter().for_each(|link| links[link].kill(net));
        let least = if net.is_slow { DELAY_MAX } else { 0 } + 10 * MS;
        let again = net.now + net.rng.between(least, least + SECOND);
        net.at(again, Event::Begin(program));
    }

    /// A program begins, as a new process, which is connected to each server.
    fn begin(&mut self, program: usize) -> Vec<usize> {
        let client = self.net.name();
        let first = self.links.len();
        for server in 0..self.servers.len() {
            let link = first + server;
            self.links.push(Link::new(link, server, client, self.net.now));
            self.net.at(self.net.now, Event::Connect(link));
        }
        let links: Vec<usize> = (first..self.links.len()).collect();
        self.books[program].links.clone_from(&links);
        links
    }
}

/// The tree of a process: that of the only server, or stripes. `None`: it is killed before it has one.
pub(super) fn mount(shared: &Shared, fiber: usize, links: &[usize]) -> Option<Arc<dyn Tree>> {
    let tree = |&link: &usize| Arc::new(RemoteTree::new(Arc::clone(shared), link)) as Arc<dyn Tree>;
    let (names, targets) = links.split_first()?;
    if targets.is_empty() {
        return Some(tree(names));
    }
    let layout = Layout { first_target: 0, stripe_bytes: STRIPE_BYTES, targets: targets.len() as u32 };
    loop {
        let clock = lock(shared).net.clock();
        let targets = targets.iter().map(tree).collect();
        let mounted = StripedTree::with_clock(tree(names), targets, layout, clock);
        let mut world = lock(shared);
        match mounted {
            Ok(tree) => return Some(Arc::new(tree)),
            Err(error) => world.net.note(|| format!("fiber {fiber} has no tree: {error}")),
        }
        if world.net.is_over || world.links[*names].is_dead {
            return None;
        }
        drop(world);
        sleep(shared, fiber, 100 * MS);
    }
}

/// Runs the world of a seed to its end.
pub(super) fn run(seed: u64, planted: Option<Planted>) -> Report {
    let shared: Shared = Arc::new(Mutex::new(World::new(seed, planted)));
    let mut fibers = Fibers::default();
    {
        let mut world = lock(&shared);
        let programs = world.books.len();
        let servers = world.servers.len();
        (0..servers).for_each(|server| world.net.at(0, Event::Start(server)));
        (0..programs).for_each(|program| world.net.at(MS, Event::Begin(program)));
        let first = world.faults.pause;
        world.net.at(first, Event::Fault);
    }
    loop {
        let mut world = lock(&shared);
        if let Some(fiber) = world.net.ready.pop_front() {
            drop(world);
            if let Err(why) = fibers.resume(fiber) {
                lock(&shared).net.found(&why);
            }
            continue;
        }
        let dropped = std::mem::take(&mut world.net.dropped);
        if !dropped.is_empty() {
            drop(world);
            drop(dropped);
            continue;
        }
        let is_done = world.net.now >= FAULTS && world.books.iter().all(|book| book.is_done);
        if is_done || world.net.now > FAULTS + QUIET || !world.net.report.findings.is_empty() {
            break;
        }
        match world.net.next() {
            None => break,
            Some(Event::Begin(program)) => {
                let links = world.begin(program);
                let fiber = fibers.len();
                drop(world);
                let there = Arc::clone(&shared);
                let life = move || {
                    if let Some(tree) = mount(&there, fiber, &links) {
                        Program::new(there, program, links[0], fiber, tree).run();
                    }
                };
                if let Err(error) = fibers.spawn(life) {
                    lock(&shared).net.found(&error.to_string());
                }
                lock(&shared).net.ready.push_back(fiber);
            }
            Some(event) => world.happens(event),
        }
    }
    end(&shared, &mut fibers)
}

/// Lets everybody go who still waits.
fn end(shared: &Shared, fibers: &mut Fibers) -> Report {
    let mut world = lock(shared);
    let states: Vec<String> = world.links.iter().filter(|link| !link.is_dead).map(Link::state).collect();
    states.into_iter().for_each(|state| world.net.note(|| state));
    world.net.end();
    if !world.books.iter().all(|book| book.is_done) && world.net.report.findings.is_empty() {
        world.net.found("a program does not come to its end");
    }
    world.net.is_over = true;
    let World { net, links, .. } = &mut *world;
    links.iter_mut().for_each(|link| link.kill(net));
    drop(world);
    fibers.finish();
    std::mem::take(&mut lock(shared).net.report)
}
