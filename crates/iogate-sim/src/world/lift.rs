//! What has been submitted to a server's device and has not begun: in the order of arrival, or in an elevator.
//!
//! With an elevator a transfer gets its place when it is submitted (allocation lies above), and the device holds no more than it has slots
//! for: what waits beyond that, waits here. A transfer whose pieces lie apart is one request, at the place of the first.
//!
//! Threads, of which CFQ has a queue each: a request takes one of a pool when it first submits something, and gives it back when it is
//! answered. One that finds everything in memory needs none, and journals are written by a thread of their own.

use std::collections::VecDeque;

use iogate_core::Time;
use iogate_core::device::{Placement, Transfer};

use super::block::{Io, JOURNAL, Owner};
use crate::by_number::ByNumber;
use crate::elevator::{Choice, Elevator, ElevatorConfig, Entry, Threads};
use crate::slab::Slab;

/// A transfer in an elevator. There may be many, and each is looked at only twice: small.
struct Held {
    io: Io,
    thread: u64,
    /// The first of its pieces, of which there is nearly always one, and the others: address and length.
    first: Option<(u64, u64)>,
    others: Vec<(u64, u64)>,
}

impl Held {
    fn entry(&self, id: u32) -> Entry {
        let Io { op, waited_for, bytes, .. } = self.io;
        Entry {
            id,
            op,
            waited_for,
            thread: self.thread,
            address: self.first.map_or(0, |(address, _)| address),
            bytes,
        }
    }
}

/// What waits for the device.
pub(super) enum Lift {
    Arrived(VecDeque<Io>),
    Elevator(Box<Ordered>),
}

/// An elevator, and what is in it or has left it for the device.
pub(super) struct Ordered {
    elevator: Box<dyn Elevator + Send>,
    threads: Threads,
    pool: Pool,
    held: Slab<Held>,
    /// In no order; no more than there are slots, and one of each owner.
    inside: Vec<(Owner, Entry)>,
    slots: usize,
    /// When it is to be asked again, and what of that has been said.
    wait: Time,
    said: Time,
}

/// Threads of a pool, and which requests have one.
struct Pool {
    threads: Slab<()>,
    /// By request; [`IDLE`] where there is none. Requests have small numbers, as dispatches have.
    taken: ByNumber<u32>,
}

/// In place of the thread of a request that has none.
const IDLE: u32 = u32::MAX;

impl Default for Pool {
    fn default() -> Pool {
        Pool { threads: Slab::new(), taken: ByNumber::new(IDLE) }
    }
}

impl Pool {
    /// The thread of a request.
    fn take(&mut self, request: u64) -> u32 {
        let thread = self.taken.of(request);
        if *thread == IDLE {
            *thread = self.threads.add(());
        }
        *thread
    }

    /// A request needs its thread no more, if it has one.
    fn give_back(&mut self, request: u64) {
        let thread = self.taken.take(request);
        if thread != IDLE {
            self.threads.free(thread);
        }
    }
}

impl Lift {
    /// For a device with so many slots.
    pub(super) fn new(config: Option<&ElevatorConfig>, slots: u32) -> Lift {
        let Some(config) = config else { return Lift::Arrived(VecDeque::new()) };
        let threads = match config {
            ElevatorConfig::Slices { threads, .. } => *threads,
            ElevatorConfig::Deadline => Threads::File,
        };
        Lift::Elevator(Box::new(Ordered {
            elevator: config.build(),
            threads,
            pool: Pool::default(),
            held: Slab::new(),
            inside: Vec::new(),
            slots: slots.max(1) as usize,
            wait: Time::MAX,
            said: Time::MAX,
        }))
    }

    /// Whether it is an elevator.
    pub(super) fn orders(&self) -> bool {
        matches!(self, Lift::Elevator(_))
    }

    /// Takes a transfer.
    pub(super) fn submit(&mut self, now: Time, io: Io, placement: &mut Placement) {
        match self {
            Lift::Arrived(arrived) => arrived.push_back(io),
            Lift::Elevator(this) => this.submit(now, io, placement),
        }
    }

    /// Whether nothing is there that could go to the device.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Lift::Arrived(arrived) => arrived.is_empty(),
            Lift::Elevator(_) => false,
        }
    }

    /// What goes to the device now. If it has its place already, its pieces are added to `placed`.
    pub(super) fn next(&mut self, now: Time, placed: &mut Vec<Transfer>) -> Option<Io> {
        match self {
            Lift::Arrived(arrived) => arrived.pop_front(),
            Lift::Elevator(this) => this.next(now, placed),
        }
    }

    /// Something has ended on the device.
    pub(super) fn ended(&mut self, now: Time, owner: Owner) {
        let Lift::Elevator(this) = self else { return };
        // A flush is none of its requests.
        if let Some(index) = this.inside.iter().position(|(of, _)| *of == owner) {
            let (_, entry) = this.inside.swap_remove(index);
            this.elevator.ended(now, &entry);
        }
    }

    /// A request has been answered: its thread is idle.
    pub(super) fn let_go(&mut self, request: u64) {
        let Lift::Elevator(this) = self else { return };
        this.pool.give_back(request);
    }

    /// When to ask again, if that has not been said.
    pub(super) fn wake(&mut self) -> Option<Time> {
        let Lift::Elevator(this) = self else { return None };
        let is_new = this.wait != this.said && this.wait != Time::MAX;
        this.said = this.wait;
        is_new.then_some(this.wait)
    }
}

impl Ordered {
    fn submit(&mut self, now: Time, io: Io, placement: &mut Placement) {
        let thread = self.thread(&io);
        let mut held = Held { io, thread, first: None, others: Vec::new() };
        placement.for_each_piece(io.op, io.file, io.offset, io.bytes, |address, bytes| match held.first {
            None => held.first = Some((address, bytes)),
            Some(_) => held.others.push((address, bytes)),
        });
        let id = self.held.add(held);
        self.elevator.add(now, self.held[id].entry(id));
    }

    /// Who submits it.
    fn thread(&mut self, io: &Io) -> u64 {
        if self.threads == Threads::File || io.file == JOURNAL {
            return io.file.0;
        }
        // Write-back is nobody's, and does not say any.
        if !io.waited_for && io.op == iogate_core::Op::Write {
            return 0;
        }
        self.pool.take(io.request).into()
    }

    fn next(&mut self, now: Time, placed: &mut Vec<Transfer>) -> Option<Io> {
        self.wait = Time::MAX;
        if self.inside.len() >= self.slots {
            return None;
        }
        match self.elevator.next(now) {
            Choice::Begin(id) => {
                let held = &mut self.held[id];
                let (io, entry) = (held.io, held.entry(id));
                let transfer = |(address, bytes)| Transfer { op: io.op, address, bytes };
                let others = std::mem::take(&mut held.others);
                placed.extend(held.first.into_iter().chain(others).map(transfer));
                self.held.free(id);
                self.inside.push((io.owner, entry));
                Some(io)
            }
            Choice::WaitUntil(at) => {
                self.wait = at;
                None
            }
            Choice::Idle => None,
        }
    }
}
