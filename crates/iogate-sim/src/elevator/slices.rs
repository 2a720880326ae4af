//! `slices`: each thread has the device for a while, as in CFQ.
//!
//! What it charges: time in which the device stands idle for the thread whose slice it is. The rules:
//!
//! - A queue for each thread with what is synchronous: its reads (read-ahead too), and writes that somebody waits for. One queue for all
//!   other writes, whoever has written: write-back. No application is known.
//! - Queues with requests take turns of 100 ms (write-back: 40 ms, and no more than 16 requests), counted from when the first request has
//!   ended. A queue that comes anew goes behind those that wait already; the more queues there are, the further behind, and write-back
//!   further than others.
//! - Within a turn requests go in ascending order of place, and around; but first, once a turn, the oldest one if it has waited for
//!   longer than 125 ms (write-back: 250 ms).
//! - No more than 4 of a queue are in the device where others wait, else 16. Write-back waits until nothing synchronous is there.
//! - When a thread's queue is empty and the device is, too, nothing begins for 8 ms: its next request may be near. Not if its mean think
//!   time (from the end of a request to the next one) is longer than that, and not if it seeks: its mean distance from request to request
//!   is above 4 MiB. Both means decay by an eighth a request and count from the third request on.
//! - A synchronous request takes the turn from write-back, and one nearby takes it from a thread that is being waited for.
//!
//! Where it differs from CFQ, so that nobody waits for ever: write-back is interrupted only when something of it has begun in its turn,
//! and who takes the turn from a thread that is being waited for has what is left of it. CFQ permits both again and again.
//!
//! Left out: CFQ waits 2 ms for a thread that seeks, too, on a disk that takes one command at a time; short ways back (16 MiB at twice
//! the price); slices that were not used up; I/O priorities and the idle class; the rules for solid-state drives; limits of what may be
//! queued; groups of queues that cooperate (from 2.6.30 on, and not in 2.6.28). That a sync's writes are synchronous holds for 2.6.18
//! (`PF_SYNCWRITE`) and from 2.6.30 on (`WRITE_SYNC`); in between they were write-back.
//!
//! Sources: Linux 2.6.28: `block/cfq-iosched.c`; Axboe, Linux block I/O, OLS 2004; Iyer and Druschel, Anticipatory scheduling, SOSP 2001.
//! Its like with budgets instead of slices is BFQ (Valente and Checconi, 2010).

use std::collections::VecDeque;

use iogate_core::{Span, Time};

use super::parameters::value;
use super::{Choice, Elevator, Entry};
use crate::by_number::ByNumber;

/// Whose queue, by its place: write-back's, or a thread's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Whose(u32);

impl Whose {
    const WRITE_BACK: Whose = Whose(0);

    fn is_sync(self) -> bool {
        self != Whose::WRITE_BACK
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// The queues of all threads that have ever submitted something, and that of write-back.
#[derive(Debug)]
struct Queues {
    all: Vec<Queue>,
    /// By thread; write-back's place where there is none. Threads of a pool have small numbers.
    places: ByNumber<Whose>,
}

impl Queues {
    fn new() -> Queues {
        Queues { all: vec![Queue::default()], places: ByNumber::new(Whose::WRITE_BACK) }
    }

    /// Whose an entry is.
    fn whose(&mut self, entry: &Entry) -> Whose {
        if !entry.is_sync() {
            return Whose::WRITE_BACK;
        }
        let place = self.places.of(entry.thread);
        if *place == Whose::WRITE_BACK {
            *place = Whose(self.all.len() as u32);
            self.all.push(Queue::default());
        }
        *place
    }

    fn of(&self, whose: Whose) -> &Queue {
        &self.all[whose.index()]
    }

    fn of_mut(&mut self, whose: Whose) -> &mut Queue {
        &mut self.all[whose.index()]
    }
}

/// A mean that decays by an eighth with each sample.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    samples: u64,
    total: u128,
}

impl Mean {
    fn add(&mut self, sample: u64) {
        self.samples = (7 * self.samples + 256) / 8;
        self.total = (7 * self.total + 256 * u128::from(sample)) / 8;
    }

    fn value(&self) -> u64 {
        let samples = u128::from(self.samples.max(1));
        ((self.total + samples / 2) / samples) as u64
    }

    /// The mean, if there are more than so many samples.
    fn known(&self, samples: u64) -> Option<u64> {
        (self.samples > samples).then(|| self.value())
    }
}

/// A request that has not begun.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// Where it is, and its number: those at one place go by age.
    place: (u64, u64),
    id: u32,
    added: Time,
    bytes: u64,
}

/// The requests of a thread, or of write-back, and what is known of it.
#[derive(Debug, Default)]
struct Queue {
    /// By place. A thread has a few, and write-back as many as a cache lets be in flight: flat is faster than a tree.
    sorted: Vec<Waiting>,
    /// Where it stands in the order of turns, if it does.
    turn: Option<(Time, u64)>,
    in_device: u64,
    /// From where it goes on.
    at: u64,
    ended: Option<Time>,
    /// Where its last request ended that came.
    came: Option<u64>,
    think: Mean,
    distance: Mean,
}

impl Queue {
    fn insert(&mut self, now: Time, age: u64, entry: &Entry) {
        let place = (entry.address, age);
        let index = self.first_from(place);
        // A thread most often has one at a time, and there are many threads.
        if self.sorted.capacity() == 0 {
            self.sorted.reserve_exact(1);
        }
        self.sorted.insert(index, Waiting { place, id: entry.id, added: now, bytes: entry.bytes });
    }

    /// The first that is not before a place.
    fn first_from(&self, place: (u64, u64)) -> usize {
        self.sorted.partition_point(|waiting| waiting.place < place)
    }

    /// Takes the next one out: the oldest one if it has waited for longer than `expire`.
    fn take(&mut self, now: Time, expire: Option<Span>) -> Option<u32> {
        if self.sorted.is_empty() {
            return None;
        }
        // A thread most often has one at a time.
        let expired = expire.filter(|_| self.sorted.len() > 1).and_then(|expire| {
            let (index, oldest) =
                self.sorted.iter().enumerate().min_by_key(|(_, waiting)| waiting.place.1)?;
            (now.since(oldest.added) >= expire).then_some(index)
        });
        let index = expired.unwrap_or_else(|| {
            let ahead = self.first_from((self.at, 0));
            if ahead < self.sorted.len() { ahead } else { 0 }
        });
        let Waiting { place, id, bytes, .. } = self.sorted.remove(index);
        self.at = place.0.saturating_add(bytes);
        Some(id)
    }

    /// Learns from a request how its thread goes about it: `idle` bounds what a pause can count.
    fn learn(&mut self, now: Time, entry: &Entry, idle: Span, known: &Known) {
        let pause = now.since(self.ended.unwrap_or(now)).as_nanos();
        self.think.add(pause.min(2 * idle.as_nanos()));
        let distance = self.came.map_or(0, |came| came.abs_diff(entry.address));
        // One odd request is to count less; at the beginning it may count more.
        let slack = if self.distance.samples <= known.first { known.odd_first } else { known.odd };
        self.distance.add(distance.min(self.distance.value().saturating_mul(4).saturating_add(slack)));
        self.came = Some(entry.address.saturating_add(entry.bytes));
    }
}

/// What makes a mean count, and how much one sample may change that of distances.
#[derive(Debug)]
struct Known {
    samples: u64,
    first: u64,
    odd_first: u64,
    odd: u64,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug)]
struct Turn {
    whose: Whose,
    /// When it is over: known when its first request has ended.
    until: Option<Time>,
    begun: u64,
    /// Whether it has looked for one that has waited for too long.
    looked: bool,
    /// Until when nothing else begins.
    wait: Option<Time>,
}

impl Turn {
    fn new(whose: Whose, until: Option<Time>) -> Turn {
        Turn { whose, until, begun: 0, looked: false, wait: None }
    }

    fn is_over(&self, now: Time) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// The elevator.
#[derive(Debug)]
pub struct Slices {
    idle: Span,
    /// For write-back, and for threads.
    slices: [Span; 2],
    expires: [Span; 2],
    highest: Span,
    quantum: u64,
    write_back_most: u64,
    seeking: u64,
    known: Known,
    queues: Queues,
    /// Queues with requests whose turn it is not, the next one last. Who comes most often goes behind all others.
    turns: VecDeque<(Time, u64, Whose)>,
    turn: Option<Turn>,
    added: u64,
    in_device: u64,
    sync_in_device: u64,
    /// Where the last request ended that began.
    at: u64,
}

impl Slices {
    /// With nothing in it; it waits for `idle` at most for a thread's next request.
    pub fn new(idle: Span) -> Slices {
        let times = |name: [&str; 2]| name.map(|name| Span::from_millis(value(name)));
        Slices {
            idle,
            slices: times(["slices.async_ms", "slices.sync_ms"]),
            expires: times(["slices.async_expire_ms", "slices.sync_expire_ms"]),
            highest: Span::from_millis(value("slices.highest_ms")),
            quantum: value("slices.quantum"),
            write_back_most: value("slices.async_requests"),
            seeking: value("slices.seeking_kib") << 10,
            known: Known {
                samples: value("slices.samples"),
                first: value("slices.first_samples"),
                odd_first: value("slices.odd_first_kib") << 10,
                odd: value("slices.odd_kib") << 10,
            },
            queues: Queues::new(),
            turns: VecDeque::new(),
            turn: None,
            added: 0,
            in_device: 0,
            sync_in_device: 0,
            at: 0,
        }
    }

    /// Puts a queue with requests into the order of turns, as one that comes anew.
    fn line_up(&mut self, now: Time, whose: Whose) {
        let others = self.turns.len() as u64 + u64::from(self.turn.is_some());
        // By how much its slice is shorter than that of the highest priority.
        let slice = self.slices[usize::from(whose.is_sync())];
        let behind = self.highest.as_nanos().saturating_sub(slice.as_nanos());
        self.added += 1;
        let turn = (now + Span::from_nanos(behind * others), self.added);
        self.queues.of_mut(whose).turn = Some(turn);
        let turn = (turn.0, turn.1, whose);
        if self.turns.front().is_none_or(|last| *last < turn) {
            self.turns.push_front(turn);
        } else {
            let index = self.turns.partition_point(|other| *other > turn);
            self.turns.insert(index, turn);
        }
    }

    /// Ends the turn.
    fn end_turn(&mut self, now: Time) {
        let Some(turn) = self.turn.take() else { return };
        if !self.queues.of(turn.whose).sorted.is_empty() {
            self.line_up(now, turn.whose);
        }
    }

    fn begin_turn(&mut self, whose: Whose, until: Option<Time>) {
        let queue = self.queues.of_mut(whose);
        if let Some((at, number)) = queue.turn.take() {
            if self.turns.back() == Some(&(at, number, whose)) {
                self.turns.pop_back();
            } else {
                let index = self.turns.partition_point(|other| *other > (at, number, whose));
                self.turns.remove(index);
            }
            // Within its turn it goes on from where the device is.
            queue.at = self.at;
        }
        self.turn = Some(Turn::new(whose, until));
    }

    /// Whether to wait for a thread's next request.
    fn waits_for(&self, queue: &Queue) -> bool {
        self.idle > Span::ZERO
            && queue.think.known(self.known.samples).is_none_or(|think| think <= self.idle.as_nanos())
            && queue.distance.known(self.known.samples).is_none_or(|distance| distance <= self.seeking)
    }

    /// Whether a request that comes takes the turn: `Some` says until when it has it.
    fn takes_turn(&self, now: Time, whose: Whose, entry: &Entry) -> Option<Option<Time>> {
        let turn = self.turn.filter(|turn| !turn.is_over(now))?;
        if !entry.is_sync() || turn.whose == whose {
            return None;
        }
        if turn.whose == Whose::WRITE_BACK {
            return (turn.begun > 0).then_some(None);
        }
        turn.wait?;
        let near = self.queues.of(turn.whose).distance.known(self.known.samples)?;
        (self.at.abs_diff(entry.address) <= near).then_some(turn.until)
    }

    /// What is to be done before the queue whose turn it is begins something; `None`: it begins.
    fn holds_back(&mut self, now: Time) -> Option<Choice> {
        loop {
            let Some(turn) = self.turn else {
                let Some(&(_, _, whose)) = self.turns.back() else { return Some(Choice::Idle) };
                self.begin_turn(whose, None);
                continue;
            };
            let queue = self.queues.of(turn.whose);
            if turn.is_over(now) {
                self.end_turn(now);
            } else if !queue.sorted.is_empty() {
                let most = if self.turns.is_empty() { 4 * self.quantum } else { self.quantum };
                let waits_for_sync = !turn.whose.is_sync() && self.sync_in_device > 0;
                return (queue.in_device >= most || waits_for_sync).then_some(Choice::Idle);
            } else if let Some(wait) = turn.wait.filter(|wait| *wait > now) {
                // With nobody else there, it does not matter when that ends.
                return Some(if self.turns.is_empty() { Choice::Idle } else { Choice::WaitUntil(wait) });
            } else if queue.in_device > 0 && turn.whose.is_sync() && self.waits_for(queue) {
                return Some(Choice::Idle);
            } else {
                self.end_turn(now);
            }
        }
    }
}

impl Elevator for Slices {
    fn add(&mut self, now: Time, entry: Entry) {
        let whose = self.queues.whose(&entry);
        self.added += 1;
        let (age, idle) = (self.added, self.idle);
        let queue = self.queues.of_mut(whose);
        if whose.is_sync() {
            queue.learn(now, &entry, idle, &self.known);
        }
        queue.insert(now, age, &entry);
        let (is_lined_up, has_turn) =
            (queue.turn.is_some(), self.turn.is_some_and(|turn| turn.whose == whose));
        if !is_lined_up && !has_turn {
            self.line_up(now, whose);
        }
        if let Some(until) = self.takes_turn(now, whose, &entry) {
            self.end_turn(now);
            self.begin_turn(whose, until);
        }
    }

    fn next(&mut self, now: Time) -> Choice {
        if let Some(choice) = self.holds_back(now) {
            return choice;
        }
        let Some(turn) = &mut self.turn else { return Choice::Idle };
        let whose = turn.whose;
        let is_sync = whose.is_sync();
        let expire = (!turn.looked).then_some(self.expires[usize::from(is_sync)]);
        (turn.looked, turn.wait) = (true, None);
        turn.begun += 1;
        let begun = turn.begun;
        let queue = self.queues.of_mut(whose);
        let Some(id) = queue.take(now, expire) else { return Choice::Idle };
        queue.in_device += 1;
        self.at = queue.at;
        self.in_device += 1;
        self.sync_in_device += u64::from(is_sync);
        if !is_sync && begun >= self.write_back_most && !self.turns.is_empty() {
            self.end_turn(now);
        }
        Choice::Begin(id)
    }

    fn ended(&mut self, now: Time, entry: &Entry) {
        let whose = self.queues.whose(entry);
        let is_sync = whose.is_sync();
        self.in_device -= 1;
        self.sync_in_device -= u64::from(is_sync);
        let queue = self.queues.of_mut(whose);
        queue.in_device -= 1;
        queue.ended = Some(now);
        let Some(turn) = &mut self.turn else { return };
        if turn.whose != whose {
            return;
        }
        let slice = self.slices[usize::from(is_sync)];
        let until = *turn.until.get_or_insert(now + slice);
        if until <= now {
            self.end_turn(now);
        } else if is_sync && self.in_device == 0 {
            let queue = self.queues.of(whose);
            let wait =
                (queue.sorted.is_empty() && self.waits_for(queue)).then_some(until.min(now + self.idle));
            self.turn = self.turn.map(|turn| Turn { wait, ..turn });
        }
    }
}
