//! The simulated world: nodes with their gates, a network, processes, and the events between them.
//!
//! | file | part |
//! |---|---|
//! | `mod` | the run: from event to event; what processes do |
//! | `request` | the way of a call: through gates and the network to the devices, and back |
//! | `accounts` | who slows whom down at the servers |
//! | `choosing` | the choice of a gate's scheduler beside it |
//! | `below` | what lies below a server's gate: who asks it what begins, and who hears of an end |
//! | `block` | the block layer of a server and its device |
//! | `processor` | what takes in requests one after the other |
//! | `list` | dispatches of a forwarder that go in one call |
//! | `lift` | what has been submitted to a device and has not begun: an elevator |
//! | `build` | from a scenario to a world, from a world to a result |
//! | `turns` | who does its I/O when: the coordinator, probes |
//! | `cached` | the caches of servers and clients |
//! | `event` | the event queue |
//! | `fair` | gates that divide device time among applications |
//! | `classes` | what groups of applications have had beside each other |
//! | `global` | one policy over all gates of a layer |
//! | `fault` | when devices and messages are disturbed |
//! | `network` | ports, messages, losses |
//! | `slots` | how many requests of a client may be unanswered |
//! | `lent` | schedulers of the caller's own, and whether it wants the run to end |
//! | `node`, `process` | the state of a node, of a process |
//! | `observer` | what an onlooker is told |
//!
//! In one instant everything that happens by itself happens first (messages come in, devices finish, processes go on), in the
//! order in which it was caused; then each gate that something has happened to is asked until it dispatches no more.

mod accounts;
mod below;
mod block;
mod build;
mod cached;
mod choosing;
mod classes;
mod event;
mod fair;
mod fault;
mod global;
mod lent;
mod lift;
mod list;
mod network;
mod node;
mod observer;
mod process;
mod processor;
mod request;
mod slots;
mod turns;

use iogate_core::hash::HashMap;
use iogate_core::{AppId, DispatchId, FileId, Time};

use self::block::Owner;
use self::classes::Classes;
use self::event::EventQueue;
use self::global::Global;
use self::list::{ListCall, ListMessage};
use self::network::{Net, NetEvent, WorldEvent};
use self::node::Node;
use self::process::{AppRun, Process, Waiting};
use self::request::{CallRun, Note, Piece};
use self::turns::Turns;
use crate::batch::{BatchError, BatchScheduler, Job};
use crate::result::RunResult;
use crate::scenario::{App, Barrier, Scenario};
use crate::slab::Slab;
use crate::striping::Striping;
use crate::workload::Step;

pub use accounts::simulate_with_accounts;
pub use build::{apps, server_device};
pub use lent::Lent;
pub use observer::{Arrived, Observer, Phase, Served};

/// Why a run could not be carried out.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A gate's settings do not fit together.
    #[error("the gate of {layer}: {source}")]
    Gate {
        /// Whose.
        layer: String,
        /// What the gate says.
        source: iogate_core::sched::ConfigError,
    },
    /// The device of the servers.
    #[error("the device of the servers: {0}")]
    Device(String),
    /// The coordinator refuses a claim.
    #[error("the coordinator: {0}")]
    Claim(#[from] iogate_core::coord::Refused),
    /// An application does not fit the cluster.
    #[error("{0}")]
    Batch(#[from] BatchError),
    /// A gate refuses a request for good.
    #[error(
        "the gate of {layer} refuses a request: {source}; it is split into more pieces than the gate holds: raise `queue`, \
         use longer stripes, or do not split"
    )]
    Rejected {
        /// Whose.
        layer: String,
        /// What the gate says.
        source: iogate_core::Rejected,
    },
    /// A gate wants a scheduler of the caller's own, who has none of this name.
    #[error(
        "the gate of {layer}: no scheduler 'own:{name}': only a program that brings its own scheduler can run this (docs/python-gate.md)"
    )]
    NoOwn {
        /// Whose.
        layer: String,
        /// What the scenario calls it.
        name: String,
    },
    /// Something is wrong with a scheduler of the caller's own.
    #[error("the scheduler of {layer}: {fault}")]
    Own {
        /// Whose.
        layer: String,
        /// What it did, or what it says.
        fault: String,
    },
    /// The caller wants no more of it.
    #[error("stopped")]
    Stopped,
    /// Processes wait for something that cannot happen.
    #[error("nothing can happen any more at {at_s} s: {waiting}")]
    Stalled {
        /// Simulated time, in seconds.
        at_s: f64,
        /// Who waits for what.
        waiting: String,
    },
}

/// Runs `scenario` once with `seed` (its own `seed`, `repetitions`, `alone` and `confidence` are the caller's to see to).
///
/// # Errors
/// If the scenario does not fit together, or the run cannot end.
pub fn simulate(scenario: &Scenario, seed: u64, observer: &mut dyn Observer) -> Result<RunResult, SimError> {
    simulate_with(scenario, seed, observer, Lent::NONE)
}

/// The same with schedulers of the caller's own, who may also end it.
///
/// # Errors
/// As [`simulate`]; if such a scheduler is missing or does what it must not; if the caller has ended it.
pub fn simulate_with(
    scenario: &Scenario,
    seed: u64,
    observer: &mut dyn Observer,
    lent: Lent<'_>,
) -> Result<RunResult, SimError> {
    let mut world = World::build(scenario, seed, observer, lent)?;
    let cut_off = world.run(Time::ZERO + scenario.time_max)?;
    world.check(cut_off)?;
    Ok(world.result(cut_off))
}

/// After so many instants the caller is asked whether it goes on: some milliseconds.
const INSTANTS: u32 = 1024;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// An application is submitted.
    Submit(u32),
    /// A process goes on.
    Process(u32),
    /// A gate has asked to be looked at.
    Gate(u32),
    /// A server's device has ended a transfer.
    Transferred {
        node: u32,
        owner: Owner,
    },
    /// A server's device that orders by itself may have ended something.
    Device(u32),
    /// A cache has asked to be looked at.
    Cache(u32),
    /// A client's cache has done what a request asks for.
    Cached(u32),
    /// A node's processor has taken in a request.
    Taken(u32),
    /// A node's processor has taken in a list.
    ListTaken(u32),
    /// A server's processor has ended the call for a dispatch.
    Called {
        node: u32,
        id: DispatchId,
    },
    /// A message's first byte reaches the switch's port of node `to`.
    Arrive {
        message: Message,
        to: u32,
        /// Of data; `u32::MAX`: as many as the message itself knows.
        bytes: u32,
    },
    Deliver(Message),
    Net(NetEvent),
    /// The coordinator has asked to be looked at.
    Coordinator,
    /// An application that backs off goes on.
    Awake(u32),
    /// An application that has had its turn for a while says that it is there.
    Renew {
        app: u32,
        request: u32,
    },
    /// What holds allotments for a gate has asked to be looked at.
    Holder(u32),
    /// A client node is lost.
    Lost(u32),
}

// Most of what is remembered of the future is in such slots: two of them fit a cache line.
const _: () = assert!(size_of::<event::Slot<Event>>() == 32);

/// In place of a call, for what belongs to something else.
const NO_CALL: u32 = u32::MAX;

/// What travels.
#[derive(Clone, Copy, Debug)]
enum Message {
    /// A request on its way to the next layer.
    Request(u32),
    /// Its reply on the way back, and the call that it belongs to, or [`NO_CALL`]: to count it, the request need not be looked at.
    Reply { piece: u32, call: u32 },
    /// Several requests on their way to the next layer.
    List(u32),
    /// The reply to all of them.
    ListReply(u32),
    /// From process to process.
    Note(u32),
    /// Between an application and the coordinator.
    Word(u32),
    /// Between a gate and the coordinator of a policy over many.
    Letter(u32),
}

impl WorldEvent<Message> for Event {
    fn arrive(message: Message, to: u32, bytes: u64) -> Event {
        Event::Arrive { message, to, bytes: u32::try_from(bytes).unwrap_or(u32::MAX) }
    }
    fn deliver(message: Message) -> Event {
        Event::Deliver(message)
    }
    fn net(event: NetEvent) -> Event {
        Event::Net(event)
    }
}

struct World<'a> {
    scenario: &'a Scenario,
    /// Those of the scenario, then those drawn for this seed.
    specs: Vec<App>,
    seed: u64,
    queue: EventQueue<Event>,
    net: Net<Message>,
    nodes: Vec<Node>,
    /// The first node of each layer (clients, forwarders, servers), and one past the last of all.
    layers: Vec<u32>,
    /// Nodes whose gates are to be asked at the end of this instant.
    touched: Vec<u32>,
    striping: Striping,
    /// Where each file that is read ends, and how often each was written to: for caches.
    lengths: HashMap<FileId, u64>,
    changes: HashMap<FileId, u64>,
    apps: Vec<AppRun>,
    processes: Vec<Process>,
    /// The application of each process, for those who need nothing else of it.
    app_of: Vec<u32>,
    batch: Option<BatchScheduler>,
    calls: Slab<CallRun>,
    pieces: Slab<Piece>,
    list_calls: Slab<ListCall>,
    list_messages: Slab<ListMessage>,
    notes: Slab<Note>,
    turns: Turns,
    global: Option<Box<Global>>,
    classes: Classes,
    requests: u64,
    observer: &'a mut dyn Observer,
    lent: Lent<'a>,
    /// Whether a gate has a scheduler of the caller's own.
    has_own: bool,
    /// Whether all applications have ended.
    have_ended: bool,
    /// Whether a call has been issued.
    has_called: bool,
}

impl World<'_> {
    /// Goes from event to event; whether it was ended by the limit.
    fn run(&mut self, limit: Time) -> Result<bool, SimError> {
        let mut instants = 0u32;
        loop {
            while let Some(event) = self.queue.pop_now() {
                self.handle(event)?;
            }
            if !self.touched.is_empty() {
                self.ask_gates()?;
                continue;
            }
            match self.queue.next_time() {
                None => return Ok(false),
                Some(at) if at > limit => return Ok(!self.is_over()),
                Some(at) => self.queue.go_on_to(at),
            }
            instants = instants.wrapping_add(1);
            if instants.is_multiple_of(INSTANTS) && (self.lent.is_stopped)() {
                return Err(SimError::Stopped);
            }
        }
    }

    /// Whether all applications have ended and all that they have sent is served: what still happens then is of no interest.
    fn is_over(&self) -> bool {
        self.pieces.len() == 0 && self.apps.iter().all(|run| run.end.is_some())
    }

    fn handle(&mut self, event: Event) -> Result<(), SimError> {
        match event {
            Event::Submit(app) => self.submit_app(app)?,
            Event::Process(process) => self.go_on(process)?,
            Event::Gate(node) => {
                let now = self.queue.now();
                let this = &mut self.nodes[node as usize];
                if this.wake <= now {
                    this.wake = Time::MAX;
                    self.touch(node);
                }
            }
            Event::Transferred { node, owner } => self.transferred(node, owner)?,
            Event::Device(node) => self.ask_device(node)?,
            Event::Cache(node) => self.wake_cache(node)?,
            Event::Cached(piece) => self.replied(piece)?,
            Event::Taken(piece) => self.enter(piece)?,
            Event::ListTaken(message) => self.enter_list(message)?,
            Event::Called { node, id } => self.served(node, id)?,
            Event::Arrive { message, to, bytes } => {
                let bytes = if bytes == u32::MAX { self.bytes_of(message) } else { bytes.into() };
                let done = self.net.arrive(self.queue.now(), to, bytes);
                let is_counted = match message {
                    Message::Reply { piece, call } => self.counted_early(piece, call, to),
                    _ => false,
                };
                if !is_counted {
                    self.queue.add(done, Event::Deliver(message));
                }
            }
            Event::Deliver(Message::Request(piece)) => self.take_in(piece)?,
            Event::Deliver(Message::Reply { piece, .. }) => self.replied(piece)?,
            Event::Deliver(Message::List(message)) => self.take_in_list(message)?,
            Event::Deliver(Message::ListReply(message)) => self.list_replied(message)?,
            Event::Deliver(Message::Note(note)) => {
                let process = self.notes[note].to;
                self.notes.free(note);
                let this = &mut self.processes[process as usize];
                this.messages += 1;
                if this.waiting == Waiting::Messages(this.messages) {
                    self.go_on(process)?;
                }
            }
            Event::Deliver(Message::Word(word)) => self.hear(word)?,
            Event::Deliver(Message::Letter(letter)) => self.read_letter(letter),
            Event::Holder(node) => self.tend_holder(node),
            Event::Net(event) => self.net.handle(&mut self.queue, event),
            Event::Coordinator => self.ask_coordinator(),
            Event::Awake(app) => self.back_off(app)?,
            Event::Renew { app, request } => self.renew(app, request),
            Event::Lost(node) => self.lose_node(node)?,
        }
        Ok(())
    }

    fn submit_app(&mut self, app: u32) -> Result<(), SimError> {
        let spec = &self.specs[app as usize];
        match &mut self.batch {
            None => {
                let nodes: Vec<u32> = (spec.first_node..spec.first_node + spec.nodes).collect();
                self.start_app(app, &nodes)
            }
            Some(batch) => {
                batch.submit(Job { id: app, nodes: spec.nodes, walltime: spec.walltime })?;
                self.start_ready()
            }
        }
    }

    fn start_ready(&mut self) -> Result<(), SimError> {
        let now = self.queue.now();
        let ready = self.batch.as_mut().map(|batch| batch.start_ready(now)).unwrap_or_default();
        ready.into_iter().try_for_each(|job| self.start_app(job.id, &job.nodes))
    }

    fn start_app(&mut self, app: u32, nodes: &[u32]) -> Result<(), SimError> {
        let now = self.queue.now();
        let run = &mut self.apps[app as usize];
        run.start = Some(now);
        let (first, count) = (run.first, run.count);
        self.classes.app_begun(&self.apps);
        for process in first..first + count {
            let this = &mut self.processes[process as usize];
            this.node = nodes[this.rank as usize % nodes.len()];
            this.since = now;
            self.queue.add(now, Event::Process(process));
        }
        if nodes.iter().any(|node| self.nodes[*node as usize].lost) { self.lose_app(app) } else { Ok(()) }
    }

    /// Lets a process take its next steps, up to one that takes time.
    pub(super) fn go_on(&mut self, process: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        let id = process;
        if self.processes[id as usize].waiting == Waiting::Ended {
            return Ok(());
        }
        self.processes[id as usize].waiting = Waiting::Running;
        loop {
            let process = &mut self.processes[id as usize];
            let workload = &self.specs[process.app as usize].workload;
            match process.program.next_step() {
                Step::Compute(span) => {
                    self.queue.add(now + span, Event::Process(id));
                    return Ok(());
                }
                Step::Until(span) => {
                    let start = self.apps[process.app as usize].start.unwrap_or(now);
                    if start + span > now {
                        self.queue.add(start + span, Event::Process(id));
                        return Ok(());
                    }
                }
                Step::Call(call) => {
                    process.calls += 1;
                    if workload.barrier == Barrier::Call {
                        process.step.get_or_insert(now);
                    }
                    let full = workload.outstanding.is_some_and(|most| process.calls >= most);
                    if full {
                        process.waiting = Waiting::Room;
                    }
                    self.issue(id, &call, false)?;
                    if full {
                        return Ok(());
                    }
                }
                Step::Finish if process.calls == 0 => {}
                Step::Finish => {
                    process.waiting = Waiting::Calls;
                    return Ok(());
                }
                Step::Receive { messages } if process.messages >= messages => {}
                Step::Receive { messages } => {
                    process.waiting = Waiting::Messages(messages);
                    return Ok(());
                }
                Step::Send { to, bytes } => {
                    let from = process.node;
                    let to = self.apps[process.app as usize].first + to;
                    let note = self.notes.add(Note { to, bytes });
                    let node = self.processes[to as usize].node;
                    self.net.send(&mut self.queue, from, node, bytes, Message::Note(note));
                }
                Step::Barrier => {
                    process.waiting = Waiting::Barrier;
                    let app = process.app;
                    self.apps[app as usize].arrived += 1;
                    self.open_barrier(app);
                    return Ok(());
                }
                Step::Phase(true) if self.turns.are_taken() => {
                    self.reach_turn(id)?;
                    return Ok(());
                }
                Step::Phase(begins) => {
                    if !begins && self.close_files(id)? {
                        return Ok(());
                    }
                    self.phase(id, begins);
                    if !begins {
                        self.leave_turn(id);
                    }
                }
                Step::End => {
                    process.waiting = Waiting::Ended;
                    let app = process.app;
                    let run = &mut self.apps[app as usize];
                    run.alive -= 1;
                    if run.alive == 0 {
                        self.end_app(app)?;
                    }
                    return Ok(());
                }
            }
        }
    }

    fn open_barrier(&mut self, app: u32) {
        let now = self.queue.now();
        let run = &mut self.apps[app as usize];
        if run.arrived < run.alive {
            return;
        }
        run.arrived = 0;
        for process in run.first..run.first + run.count {
            let this = &mut self.processes[process as usize];
            if this.waiting != Waiting::Barrier {
                continue;
            }
            if let Some(since) = this.step.take()
                && this.rank == 0
            {
                run.step_time += now.since(since);
                run.steps += 1;
            }
            self.queue.add(now, Event::Process(process));
        }
    }

    pub(super) fn phase(&mut self, process: u32, begins: bool) {
        let now = self.queue.now();
        self.end_stretch(process);
        let this = &mut self.processes[process as usize];
        let run = &mut self.apps[this.app as usize];
        this.in_phase = begins;
        if begins {
            run.phase(this.phases, now);
            this.phases += 1;
        } else {
            run.phase(this.phases.saturating_sub(1), now).end = now;
        }
    }

    /// A process has computed, or done I/O, up to now.
    fn end_stretch(&mut self, process: u32) {
        let now = self.queue.now();
        let this = &mut self.processes[process as usize];
        let (rank, since) = (this.rank, this.since);
        if since < now {
            let app = AppId(self.specs[this.app as usize].id);
            self.observer.phase(&Phase { app, rank, io: this.in_phase, start: since, end: now });
        }
        this.since = now;
    }

    fn end_app(&mut self, app: u32) -> Result<(), SimError> {
        let now = self.queue.now();
        self.apps[app as usize].end = Some(now);
        self.classes.app_ended(&self.apps);
        if self.apps.iter().all(|run| run.end.is_some()) {
            self.have_ended = true;
            self.nodes.iter_mut().filter_map(|node| node.block.as_mut()).for_each(|block| block.end_at(now));
        }
        if let Some(batch) = &mut self.batch {
            batch.finished(app)?;
            self.start_ready()?;
        }
        Ok(())
    }

    fn lose_node(&mut self, node: u32) -> Result<(), SimError> {
        self.nodes[node as usize].lost = true;
        if let Some(batch) = &mut self.batch {
            batch.withdraw(node);
        }
        for app in 0..self.apps.len() as u32 {
            let run = &self.apps[app as usize];
            let mut processes = self.processes[run.first as usize..][..run.count as usize].iter();
            let runs = run.start.is_some() && run.end.is_none();
            if runs && processes.any(|process| process.node == node) {
                self.lose_app(app)?;
            }
        }
        Ok(())
    }

    /// Ends all processes of an application: its launcher does, when one of them is lost.
    fn lose_app(&mut self, app: u32) -> Result<(), SimError> {
        let run = &mut self.apps[app as usize];
        run.lost = true;
        run.alive = 0;
        for process in run.first..run.first + run.count {
            self.processes[process as usize].waiting = Waiting::Ended;
        }
        self.abandon_turn(app);
        self.end_app(app)
    }
}
