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
    /// What it holds, in the order of arrival.
    commands: Vec<Command>,
    /// How many of them wait for room in the write cache.
    stalled: usize,
    /// What the arm is at, and until when: a command, or the write cache.
    at_work: Option<(Time, Option<u64>)>,
    /// Answered without the arm: when, in that order.
    answers: VecDeque<(Time, u64)>,
    interface_free: Time,
    clock: Time,
}

#[derive(Clone, Copy, Debug)]
struct Command {
    tag: u64,
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
    Command(usize),
    Range(usize),
}

impl CommandQueue {
    /// `disk` with room for `depth` commands (at least one), none of which waits much longer than `age_limit`.
    pub fn new(disk: Disk, depth: u32, age_limit: Span) -> CommandQueue {
        let depth = depth.max(1) as usize;
        CommandQueue {
            disk,
            depth,
            age_limit,
            commands: Vec::with_capacity(depth),
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

    fn candidates(&self) -> &[Command] {
        &self.commands[..self.commands.len().min(self.depth)]
    }

    /// What the arm does from `now` on: what its head reaches first, but for what has waited too long.
    fn choose(&self, now: Time) -> Option<Choice> {
        let makes_room = match self.candidates().first() {
            Some(oldest) if now.since(oldest.arrived) > self.age_limit => {
                if !self.is_stalled(oldest) {
                    return Some(Choice::Command(0));
                }
                // Nothing but room in the cache helps it, and what streams would be reached first for ever.
                true
            }
            _ => false,
        };
        let now_ns = now.as_nanos();
        let (disk, head) = (&self.disk, self.disk.aim(self.disk.head_at(now_ns)));
        let angle_ns = disk.angle_ns(now_ns);
        // Of equals the first, so that the order of arrival decides.
        let mut best: Option<(u64, Choice)> = None;
        // From which distance on the arm alone takes longer than the best takes.
        let mut too_far = [u64::MAX; 2];
        let mut consider = |choice, ready: Time, start: Aim, op: Op, streams: bool| {
            let is_late = |ns: u64| best.is_some_and(|(best_ns, _)| ns >= best_ns);
            let ready_ns = ready.max(now).as_nanos();
            let at_ns = if streams {
                ready_ns
            } else {
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
                disk.turned_at(ready_ns.saturating_add(arm_ns), start)
            };
            if !is_late(at_ns) {
                best = Some((at_ns, choice));
            }
        };
        let ahead = disk.reading_ahead();
        for (index, command) in self.candidates().iter().enumerate() {
            if !makes_room && !self.is_stalled(command) {
                let goes_on = ahead.is_some_and(|segment| segment.reaches(command.address));
                let streams = command.op == Op::Read && goes_on;
                consider(Choice::Command(index), command.ready, command.start, command.op, streams);
            }
        }
        for (index, &(address, _)) in disk.write_cache().ranges().iter().enumerate() {
            consider(Choice::Range(index), now, disk.aim(disk.position(address)), Op::Write, false);
        }
        best.map(|(_, choice)| choice)
    }

    /// Lets the arm go on at `now`, if it is free.
    fn go_on(&mut self, now: Time) {
        if self.at_work.is_some() {
            return;
        }
        self.at_work = self.choose(now).map(|choice| match choice {
            Choice::Range(index) => (Time::from_nanos(self.disk.put(now.as_nanos(), index)), None),
            Choice::Command(index) => {
                let Command { tag, op, address, end, wrapped, ready, .. } = self.commands.remove(index);
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
            && let Some(index) = self.candidates().iter().position(|command| self.is_stalled(command))
        {
            let Command { tag, address, end, wrapped, ready, .. } = self.commands[index];
            if !self.disk.write_cache().has_room(end - address + wrapped) {
                return;
            }
            self.commands.remove(index);
            self.stalled -= 1;
            let from = ready.max(now);
            self.disk.hold(from.as_nanos(), address, end);
            if wrapped > 0 {
                self.disk.hold(from.as_nanos(), 0, wrapped);
            }
            self.answer(from, tag, end - address + wrapped);
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
        let command = Command { tag, op, address, end, wrapped, arrived: now, ready, start };
        self.stalled += usize::from(self.is_stalled(&command));
        self.commands.push(command);
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
