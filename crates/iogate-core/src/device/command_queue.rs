//! The command queue of a disk: native command queueing (SATA), tagged command queueing (SAS).
//!
//! **Charged:** of the commands that the disk holds, the one next that its head reaches first: seek *and* rotation from where the head
//! then is, on the platter of [`Disk`] at its angle at that time, each disk with a phase of its own. A command that has
//! waited for longer than the age limit goes first; where it is a write that waits for room in the cache, the arm only makes room. The
//! write cache is emptied by the same choice: its ranges stand beside the commands. What a cache holds is answered over the interface,
//! one answer after the other, without the arm. A command's overhead is paid while others are served.
//!
//! **Left out:** what firmware does besides (priorities of reads over the write cache, a choice further ahead than one command, wrong
//! predictions, whole tracks that are read while the head waits), commands of SATA that need an empty queue, and SAS's ordered and
//! head-of-queue tags.
//!
//! **Sources:** Jacobson and Wilkes, Disk scheduling algorithms based on rotational position, HPL-CSP-91-7, 1991 (the rule, with an age
//! limit: "aged shortest access time first"); Worthington, Ganger and Patt, Scheduling algorithms for modern disk drives, SIGMETRICS
//! 1994; the depths are those of Serial ATA (32 tags, of which Linux's libata keeps one) and of drive manuals. Values, ranges and their
//! sources are rows of [`super::PARAMETERS`].

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::disk::Aim;
use super::{Device, Disk, Queueing, Transfer, for_each_piece, serve_alone};
use crate::request::Op;
use crate::time::{Span, Time};

/// A disk that holds several commands and serves them in the order that is fastest.
pub struct CommandQueue {
    disk: Disk,
    depth: usize,
    age_limit: Span,
    /// What it holds, in slots that are used again.
    commands: Vec<Command>,
    free: Vec<u32>,
    /// Their slots in the order of arrival; beside each where it reads, to find what goes on where the head reads ahead.
    order: Vec<u32>,
    reads: Vec<u64>,
    /// Those that wait for the arm by their angles, and those of one angle in the order of arrival: so they come under the head.
    by_angle: Vec<(u32, u32)>,
    arrivals: u64,
    /// How many of them wait for room in the write cache.
    stalled: usize,
    /// What the arm is at, and until when: a command, or the write cache.
    at_work: Option<(Time, Option<u64>)>,
    /// Answered without the arm: when, in that order.
    answers: VecDeque<(Time, u64)>,
    interface_free: Time,
    clock: Time,
}

/// In place of where a command reads that does not wait for the arm with a read: no segment reaches there.
const NO_READ: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
struct Command {
    tag: u64,
    /// Its number in the order of arrival.
    number: u64,
    op: Op,
    address: u64,
    end: u64,
    /// The part of it that lies at the start of the disk, if it goes over its end.
    wrapped: u64,
    arrived: Time,
    /// When its overhead is paid.
    ready: Time,
    start: Aim,
}

/// What the arm does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// By its slot.
    Command(u32),
    Range(usize),
}

/// The best that has been found: when it is reached, its number (that of a range of the write cache is larger than any command's), and
/// what it is. Of those reached at the same time the first is taken, so that the order of arrival decides.
type Best = Option<(u64, u64, Choice)>;

impl CommandQueue {
    /// `disk` with room for `depth` commands (at least one), none of which waits much longer than `age_limit`.
    pub fn new(disk: Disk, depth: u32, age_limit: Span) -> CommandQueue {
        let depth = depth.max(1) as usize;
        CommandQueue {
            disk,
            depth,
            age_limit,
            commands: Vec::with_capacity(depth),
            free: Vec::with_capacity(depth),
            order: Vec::with_capacity(depth),
            reads: Vec::with_capacity(depth),
            by_angle: Vec::with_capacity(depth),
            arrivals: 0,
            stalled: 0,
            at_work: None,
            answers: VecDeque::with_capacity(depth),
            interface_free: Time::ZERO,
            clock: Time::ZERO,
        }
    }

    /// Whether a command waits for room in the write cache, and not for the arm.
    fn is_stalled(&self, command: &Command) -> bool {
        command.op == Op::Write && self.disk.write_cache().is_enabled()
    }

    fn command(&self, slot: u32) -> &Command {
        &self.commands[slot as usize]
    }

    /// The slots of those that may be chosen, in the order of arrival.
    fn candidates(&self) -> &[u32] {
        &self.order[..self.order.len().min(self.depth)]
    }

    /// Adds a command.
    fn add(&mut self, command: Command) {
        let is_stalled = self.is_stalled(&command);
        self.stalled += usize::from(is_stalled);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.commands[slot as usize] = command;
                slot
            }
            None => {
                self.commands.push(command);
                self.commands.len() as u32 - 1
            }
        };
        self.order.push(slot);
        self.reads.push(if command.op == Op::Read { command.address } else { NO_READ });
        if !is_stalled {
            // No revolution takes longer than 32 bits of nanoseconds.
            let angle = command.start.angle_ns as u32;
            let index = self.by_angle.partition_point(|(other, _)| *other <= angle);
            self.by_angle.insert(index, (angle, slot));
        }
    }

    /// Takes a command out.
    fn remove(&mut self, slot: u32) -> Command {
        let command = *self.command(slot);
        if let Some(index) = self.order.iter().position(|other| *other == slot) {
            self.order.remove(index);
            self.reads.remove(index);
        }
        if self.is_stalled(&command) {
            self.stalled -= 1;
        } else {
            let angle = command.start.angle_ns as u32;
            let first = self.by_angle.partition_point(|(other, _)| *other < angle);
            if let Some(index) = self.by_angle[first..].iter().position(|(_, other)| *other == slot) {
                self.by_angle.remove(first + index);
            }
        }
        self.free.push(slot);
        command
    }

    /// What the arm does from `now` on: what its head reaches first, but for what has waited too long.
    fn choose(&self, now: Time) -> Option<Choice> {
        let mut makes_room = false;
        if let Some(&slot) = self.order.first()
            && now.since(self.command(slot).arrived) > self.age_limit
        {
            if !self.is_stalled(self.command(slot)) {
                return Some(Choice::Command(slot));
            }
            // Nothing but room in the cache helps it, and what streams would be reached first for ever.
            makes_room = true;
        }
        if self.by_angle.is_empty() && self.disk.write_cache().is_empty() {
            return None;
        }
        let reach = Reach::new(&self.disk, now);
        let mut best: Best = None;
        if !makes_room && !self.by_angle.is_empty() {
            self.choose_command(&reach, &mut best);
        }
        let mut consider = reach.consider();
        for (index, &(address, _)) in self.disk.write_cache().ranges().iter().enumerate() {
            let start = self.disk.aim(self.disk.position(address));
            consider(&mut best, (u64::MAX, Choice::Range(index)), now, start, Op::Write);
        }
        best.map(|(.., choice)| choice)
    }

    /// The command that the head reaches first, of those that wait for the arm.
    fn choose_command(&self, reach: &Reach, best: &mut Best) {
        let candidates = self.candidates();
        // Where the head reads ahead nothing is to be positioned. Of those that read there the first is ready first.
        if let Some(ahead) = self.disk.reading_ahead()
            && let Some(index) = self.reads[..candidates.len()].iter().position(|at| ahead.reaches(*at))
        {
            let Command { number, ready, .. } = *self.command(candidates[index]);
            *best = Some((ready.max(reach.now).as_nanos(), number, Choice::Command(candidates[index])));
        }
        // Who comes later is ready later: the ends of what has come and of what is ready, by numbers.
        let ready = candidates.iter().rposition(|slot| self.command(*slot).ready <= reach.now);
        let ready = ready.map_or(0, |index| index + 1);
        let end = self.order.get(ready).map_or(u64::MAX, |slot| self.command(*slot).number);
        if !self.first_in_this_turn(reach, end, best) {
            self.consider_all(reach, &candidates[..ready], best);
        }
        self.consider_all(reach, &candidates[ready..], best);
    }

    /// Looks for what the head reaches before the platter has turned once, of the commands with numbers below `end`: in the order in
    /// which they come by, the first whose track the arm reaches in time. Whether nothing that takes longer needs to be looked at.
    fn first_in_this_turn(&self, reach: &Reach, end: u64, best: &mut Best) -> bool {
        let &Reach { disk, now_ns, head, angle_ns, .. } = reach;
        let from = self.by_angle.partition_point(|(angle, _)| u64::from(*angle) < angle_ns);
        let (again, now) = self.by_angle.split_at(from);
        for &(_, slot) in now.iter().chain(again) {
            let Command { number, start, op, .. } = *self.command(slot);
            let turn_ns = disk.turn_ns(angle_ns, start);
            let at_ns = now_ns.saturating_add(turn_ns);
            if best.is_some_and(|(best_ns, ..)| at_ns > best_ns) {
                return true;
            }
            if number < end && disk.arm_reaches(head, start, op, turn_ns) {
                take_if_first(best, (at_ns, number, Choice::Command(slot)));
                return true;
            }
        }
        false
    }

    /// Considers commands one after the other.
    fn consider_all(&self, reach: &Reach, slots: &[u32], best: &mut Best) {
        let mut consider = reach.consider();
        for &slot in slots {
            let command = self.command(slot);
            if !self.is_stalled(command) {
                let Command { number, ready, start, op, .. } = *command;
                consider(best, (number, Choice::Command(slot)), ready, start, op);
            }
        }
    }

    /// Lets the arm go on at `now`, if it is free.
    fn go_on(&mut self, now: Time) {
        if self.at_work.is_some() {
            return;
        }
        self.at_work = self.choose(now).map(|choice| match choice {
            Choice::Range(index) => (Time::from_nanos(self.disk.put(now.as_nanos(), index)), None),
            Choice::Command(slot) => {
                let Command { tag, op, address, end, wrapped, ready, .. } = self.remove(slot);
                let mut done_ns = self.disk.carry_out(ready.max(now).as_nanos(), op, address, end);
                if wrapped > 0 {
                    done_ns = self.disk.carry_out(done_ns, op, 0, wrapped);
                }
                (Time::from_nanos(done_ns), Some(tag))
            }
        });
    }

    /// What the arm has done by itself up to `now`: emptied the write cache.
    fn catch_up(&mut self, now: Time) {
        while let Some((until, None)) = self.at_work
            && until <= now
        {
            self.at_work = None;
            self.take_in(until);
            self.go_on(until);
        }
        self.clock = now;
    }

    /// Answers a command over the interface, as its data is in a cache.
    fn answer(&mut self, from: Time, tag: u64, bytes: u64) {
        let (_, moved_ns) = self.disk.host_ns(bytes);
        self.interface_free = self.interface_free.max(from) + Span::from_nanos(moved_ns);
        self.answers.push_back((self.interface_free, tag));
    }

    /// Takes writes into the cache that it has room for, in the order of arrival.
    fn take_in(&mut self, now: Time) {
        while self.stalled > 0
            && let Some(&slot) = self.candidates().iter().find(|slot| self.is_stalled(self.command(**slot)))
        {
            let Command { tag, address, end, wrapped, ready, .. } = *self.command(slot);
            if !self.disk.write_cache().has_room(end - address + wrapped) {
                return;
            }
            self.remove(slot);
            let from = ready.max(now);
            self.disk.hold(from.as_nanos(), address, end);
            if wrapped > 0 {
                self.disk.hold(from.as_nanos(), 0, wrapped);
            }
            self.answer(from, tag, end - address + wrapped);
        }
    }
}

/// Takes what is found in place of the best, if it is reached before that.
fn take_if_first(best: &mut Best, found: (u64, u64, Choice)) {
    if best.is_none_or(|(best_ns, number, _)| (found.0, found.1) < (best_ns, number)) {
        *best = Some(found);
    }
}

/// From where and when the arm goes on.
struct Reach<'a> {
    disk: &'a Disk,
    now: Time,
    now_ns: u64,
    head: Aim,
    angle_ns: u64,
}

impl<'a> Reach<'a> {
    fn new(disk: &'a Disk, now: Time) -> Reach<'a> {
        let now_ns = now.as_nanos();
        let head = disk.aim(disk.head_at(now_ns));
        Reach { disk, now, now_ns, head, angle_ns: disk.angle_ns(now_ns) }
    }

    /// Works out when something is reached, if that may be before the best: a number and what it is, from when on, where, and how.
    fn consider(&self) -> impl FnMut(&mut Best, (u64, Choice), Time, Aim, Op) {
        let &Reach { disk, now, now_ns, head, angle_ns } = self;
        // From which distance on the arm alone takes longer than the best takes.
        let mut too_far = [u64::MAX; 2];
        move |best, (number, choice), ready, start, op| {
            let is_late = |ns: u64| best.is_some_and(|(best_ns, ..)| ns > best_ns);
            let ready_ns = ready.max(now).as_nanos();
            // Most need not be looked at closely: the platter alone brings them too late, or the arm does.
            let from_ns = if ready <= now { angle_ns } else { disk.angle_ns(ready_ns) };
            let cylinders = head.cylinder.abs_diff(start.cylinder);
            let too_far = &mut too_far[op as usize];
            if cylinders >= *too_far || is_late(ready_ns.saturating_add(disk.turn_ns(from_ns, start))) {
                return;
            }
            let arm_ns = disk.arm_ns(head, start, op);
            if cylinders > 0 && is_late(now_ns.saturating_add(arm_ns)) {
                *too_far = cylinders;
                return;
            }
            let at_ns = disk.turned_at(ready_ns.saturating_add(arm_ns), start);
            take_if_first(best, (at_ns, number, choice));
        }
    }
}

impl Queueing for CommandQueue {
    fn submit(&mut self, now: Time, tag: u64, transfer: Transfer) {
        let now = now.max(self.clock);
        self.catch_up(now);
        let (mut pieces, mut count) = ([(0, 0); 2], 0);
        for_each_piece(self.disk.capacity(), transfer, |address, end| {
            pieces[count] = (address, end);
            count += 1;
        });
        let [(address, end), (_, wrapped)] = pieces;
        let (overhead_ns, _) = self.disk.host_ns(0);
        let ready = now + Span::from_nanos(overhead_ns);
        if transfer.op == Op::Read && wrapped == 0 && self.disk.holds(address, end) {
            self.answer(ready, tag, end - address);
            return;
        }
        let (op, start) = (transfer.op, self.disk.aim(self.disk.position(address)));
        self.arrivals += 1;
        let number = self.arrivals;
        self.add(Command { tag, number, op, address, end, wrapped, arrived: now, ready, start });
        self.take_in(now);
        self.go_on(now);
    }

    fn next_event(&mut self) -> Option<Time> {
        let answer = self.answers.front().map(|(at, _)| *at);
        let work = self.at_work.map(|(until, _)| until);
        answer.into_iter().chain(work).min()
    }

    fn ended(&mut self, now: Time) -> Option<(u64, Time)> {
        while let Some(at) = self.next_event()
            && at <= now
        {
            self.clock = self.clock.max(at);
            if self.answers.front().is_some_and(|(answered, _)| *answered == at) {
                return self.answers.pop_front().map(|(at, tag)| (tag, at));
            }
            let served = self.at_work.take().and_then(|(_, tag)| tag);
            self.take_in(at);
            self.go_on(at);
            if let Some(tag) = served {
                return Some((tag, at));
            }
        }
        None
    }
}

impl Device for CommandQueue {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        serve_alone(self, now, transfer)
    }

    fn flush(&mut self, now: Time) -> Span {
        while self.ended(now).is_some() {}
        let mut done = now.max(self.clock) + Span::from_nanos(self.disk.host_ns(0).0);
        if let Some((until, None)) = self.at_work {
            self.at_work = None;
            done = done.max(until);
        }
        while let Some(Choice::Range(index)) = self.choose(done) {
            done = Time::from_nanos(self.disk.put(done.as_nanos(), index));
        }
        self.clock = done;
        done.since(now)
    }

    fn capacity(&self) -> u64 {
        self.disk.capacity()
    }

    fn repositions(&self) -> u64 {
        self.disk.repositions()
    }

    fn slots(&self) -> u32 {
        self.depth as u32
    }

    fn queueing(&mut self) -> Option<&mut dyn Queueing> {
        Some(self)
    }
}

#[cfg(test)]
mod tests;
