//! The process of the server: who works in it, and what it keeps beside the files.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::medium::Medium;
use iogate_core::{GateConfig, Layout, SchedulerConfig, SchedulerKind};
use iogate_engine::Engine;
use iogate_nfs::{Answer, Asked, Export, Front, Job, Spawn};
use iogate_sim::rng::Rng;
use iogate_vfs::answers::{Answers, LogFile};
use iogate_vfs::app::AppFile;
use iogate_vfs::users::Squash;
use iogate_vfs::{Caller, Users};

use super::Planted;
use super::tree::{SimTree, errno, step};
use super::world::{Event, MS, Shared, lock, wait};
use crate::data::disk::Disk;
use crate::data::store::{AtOnce, submit};
use crate::fiber;

/// Fibers that carry out calls.
pub(super) const WORKERS: usize = 3;
/// What handles are sealed with.
const SECRET: [u8; 16] = [7; 16];

/// A client, and the connection by which it has asked.
#[derive(Clone, Copy)]
pub(super) struct Sender {
    pub(super) client: usize,
    pub(super) wire: u64,
}

/// What a process has to do.
pub(super) enum Task {
    /// A call of a client, by one of its connections.
    Record(Sender, Vec<u8>),
    /// What may take its time.
    Job(Job),
    /// The process is killed.
    End,
}

/// A machine with a server.
pub(super) struct Server {
    pub(super) disk: Arc<Mutex<Disk>>,
    /// The folder with the log of answers.
    state: Arc<Mutex<crate::Disk>>,
    engine: Arc<Engine>,
    /// Which of its processes runs, or ran last.
    pub(super) life: u64,
    /// It serves.
    pub(super) is_up: bool,
    /// How often a process has begun to serve.
    pub(super) starts: u64,
    tasks: VecDeque<Task>,
    idle: Vec<usize>,
    pub(super) workers: Vec<usize>,
    /// It is killed before so many more calls of the system, and the machine with it if this says so.
    pub(super) kill_in: Option<(u64, bool)>,
}

impl Server {
    /// Not started yet.
    pub(super) fn new(seed: u64) -> io::Result<Server> {
        let layout = Layout { first_target: 0, stripe_bytes: 1 << 20, targets: 1 };
        let scheduler = SchedulerConfig::new(SchedulerKind::Fifo);
        let gate = GateConfig { scheduler, queue_max: 1024, depth: 64, layout };
        Ok(Server {
            disk: Arc::new(Mutex::new(Disk::new(Rng::new(seed, 2)))),
            state: Arc::new(Mutex::new(crate::Disk::new(Rng::new(seed, 3)))),
            engine: Engine::new(&gate, Arc::new(AtOnce))?,
            life: 0,
            is_up: false,
            starts: 0,
            tasks: VecDeque::new(),
            idle: Vec::new(),
            workers: Vec::new(),
            kill_in: None,
        })
    }

    /// The gate is closed.
    pub(super) fn shutdown(&self) {
        self.engine.shutdown();
    }

    /// Has something to do. Returns the worker that is to be woken.
    pub(super) fn push(&mut self, task: Task) -> Option<usize> {
        self.tasks.push_back(task);
        self.idle.pop()
    }

    /// What a worker of a process does next.
    fn next(&mut self, life: u64, fiber: usize) -> Option<Task> {
        if life != self.life {
            return Some(Task::End);
        }
        let task = self.tasks.pop_front();
        if task.is_none() && !self.idle.contains(&fiber) {
            self.idle.push(fiber);
        }
        task
    }

    /// The process is gone, and what the machine had in memory, if it `crashes`. Returns its workers, and what it had to do.
    pub(super) fn kill(&mut self, crashes: bool, planted: Option<Planted>) -> (Vec<usize>, VecDeque<Task>) {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if crashes {
            disk.reboot();
            state.reboot();
        } else {
            disk.killed();
            state.killed();
        }
        if planted == Some(Planted::AnswersLost) {
            *state = crate::Disk::new(Rng::new(disk.lives, 3));
        }
        self.life = disk.lives;
        (self.is_up, self.kill_in) = (false, None);
        self.idle.clear();
        (std::mem::take(&mut self.workers), std::mem::take(&mut self.tasks))
    }
}

/// A folder with the log of answers, for one of the processes.
struct State {
    shared: Shared,
    life: u64,
    disk: Arc<Mutex<crate::Disk>>,
    boot: String,
}

impl State {
    /// A call of the system. Of one in which the process is killed a part may be done.
    fn step<R>(&mut self, call: impl FnOnce(&mut crate::Disk) -> Result<R, String>) -> io::Result<R> {
        let mut world = lock(&self.shared);
        if world.server.life != self.life {
            return errno(libc::EIO);
        }
        let is_last = world.is_last_step();
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        disk.kills_next = is_last;
        let done = call(&mut disk);
        drop(disk);
        if world.is_killed_here() {
            return errno(libc::EIO);
        }
        done.map_err(io::Error::other)
    }
}

impl Medium for State {
    type Error = io::Error;

    fn boot(&self) -> &str {
        &self.boot
    }

    fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        self.step(|disk| disk.read(name))
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<io::Result<()>> {
        self.step(|disk| disk.replace(name, bytes)).map(|durable| durable.map_err(io::Error::other))
    }

    fn append(&mut self, name: &str, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.step(|disk| disk.append(name, at, bytes))
    }

    fn cut(&mut self, name: &str, bytes: u64) -> io::Result<()> {
        self.step(|disk| disk.cut(name, bytes))
    }
}

impl LogFile for State {
    fn path(&self) -> &Path {
        Path::new("answers")
    }
}

/// What the process begins with. Takes calls of the system, so that it may be killed in it.
fn begin(shared: &Shared) -> io::Result<Front<SimTree>> {
    let tree = SimTree::new(shared);
    let (state, engine, planted) = {
        let world = lock(shared);
        let (life, disk) = (world.server.life, Arc::clone(&world.server.state));
        let boot = disk.lock().unwrap_or_else(PoisonError::into_inner).boot().to_owned();
        let state = State { shared: Arc::clone(shared), life, disk, boot };
        (state, Arc::clone(&world.server.engine), world.planted)
    };
    let (life, clock) = (state.life, lock(shared).clock());
    let mut boot = [1; 16];
    boot.iter_mut().zip(state.boot.bytes()).for_each(|(to, from)| *to = from);
    let id = (u128::from(life) | 1 << 100).to_le_bytes();
    let mut limits = iogate_nfs::answers::limits();
    if planted == Some(Planted::WritesForgotten) {
        limits.recent = 0;
    }
    let answers = Arc::new(Answers::on(Box::new(state), (boot, id), limits, clock)?);
    let jobs = Arc::clone(shared);
    let spawn: Spawn = Arc::new(move |_, job| {
        let mut world = lock(&jobs);
        // Of a process that is killed nothing is carried out any more.
        if world.server.life == life {
            world.push(Task::Job(job));
        }
    });
    let export = Export {
        path: b"/export".into(),
        tree: Arc::new(tree),
        engine,
        read_only: false,
        applications: AppFile::default(),
        users: Users::new(Squash::None, Caller::NOBODY, vec![], vec![]).map_err(io::Error::other)?,
        own_groups: false,
        sync_names: planted != Some(Planted::LateNames),
        secret: SECRET,
        kernel_handles: true,
        places: None,
        answers,
    };
    Front::new(vec![export], &spawn)
}

/// The first fiber of a process: it begins, and then works with the others.
pub(super) fn start(shared: &Shared) {
    let life = lock(shared).server.life;
    match begin(shared) {
        Ok(front) => {
            let front = Arc::new(front);
            let mut world = lock(shared);
            if world.server.life != life {
                return;
            }
            world.note(|| format!("process {life} serves"));
            world.server.is_up = true;
            world.server.starts += 1;
            world.connect();
            for _ in 1..WORKERS {
                let (shared, front) = (Arc::clone(shared), Arc::clone(&front));
                world.begins.push(Box::new(move || work(&shared, life, &front)));
            }
            drop(world);
            work(shared, life, &front);
        }
        Err(error) => {
            let mut world = lock(shared);
            if world.server.life == life {
                world.found(&format!("process {life} does not begin: {error}"));
            }
        }
    }
}

/// Does what there is to do, until the process is killed.
fn work(shared: &Shared, life: u64, front: &Arc<Front<SimTree>>) {
    let Some(fiber) = fiber::current() else { return };
    {
        let mut world = lock(shared);
        if world.server.life == life {
            world.server.workers.push(fiber);
        }
    }
    while let Some(task) = wait(shared, u64::MAX, |world| world.server.next(life, fiber)) {
        match task {
            Task::Record(from, record) => carry_out(shared, life, front, from, record),
            Task::Job(job) => job(),
            Task::End => return,
        }
    }
}

/// As the real server's threads do.
fn carry_out(shared: &Shared, life: u64, front: &Front<SimTree>, from: Sender, record: Vec<u8>) {
    let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, from.client as u8 + 1));
    let to = Arc::clone(shared);
    let respond = move |answer| respond(&to, life, from, &answer);
    match front.ask(&record) {
        Asked::Answered(answer) => respond(answer),
        Asked::Nonsense(error) => lock(shared).found(&format!("a call is refused: {error}")),
        Asked::Data(asking) => {
            let service = Arc::clone(front.service(&asking, &record));
            let mut batch = Vec::new();
            service.transfer(address, &asking, record, &mut batch, Box::new(respond));
            if !batch.is_empty() && step(shared, life, MS).is_ok() {
                submit(service.engine(), batch);
            }
        }
        Asked::Other(asking) => front.carry_out(address, &asking, &record, Box::new(respond)),
    }
}

/// Sends an answer, if the process lives to do that.
fn respond(shared: &Shared, life: u64, to: Sender, answer: &Answer) {
    let mut world = lock(shared);
    if world.server.life != life || world.is_killed_here() {
        return;
    }
    let boot = world.disk().boots;
    // Without the record's mark.
    let bytes = [&answer.head[4..], &answer.data].concat();
    world.send(Event::ToClient { to, boot, bytes });
}
