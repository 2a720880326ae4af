//! A device with a queue in front: what every driver of a device needs.
//!
//! In queueing theory's words: a station of as many servers as the device has slots, served in the order of arrival. How
//! transfers that are in service at the same time slow each other down is the model's business; this only says when each begins.
//!
//! A device that orders by itself what it holds ([`Queueing`](super::Queueing)) knows no end beforehand. So there are two ways:
//! [`Station::submit`] and [`Station::ended`] for any device, and [`Station::begin`], which knows at once when a transfer ends, and for
//! such a device is one at a time, in the order of arrival.

use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::{Device, Transfer};
use crate::time::{Span, Time};

/// Slots that have their memory from the beginning.
const ENDS_AT_ONCE: usize = 256;

/// A device, and until when its slots are taken.
pub struct Station {
    device: Box<dyn Device>,
    slots: usize,
    /// When what has a slot will have ended.
    ends: BinaryHeap<Reverse<Time>>,
    /// When the last transfer began: the next one does not begin before that, whatever a driver's clock says.
    began: Time,
    busy: Span,
    busy_until: Time,
    /// What was handed over by [`Station::submit`] and has not been told of, where its end is known.
    ending: BinaryHeap<Reverse<(Time, u64, Work)>>,
    submitted: u64,
    /// What a device holds that orders by itself, by tag, and tags that are free again.
    works: Vec<Work>,
    free: Vec<u32>,
    /// Pieces that such a device has no room for, in the order of arrival; and how many it has.
    outside: VecDeque<(u32, Transfer)>,
    inside: usize,
}

/// What was handed over, and how much of it has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Work {
    id: u64,
    begin: Time,
    pieces: u32,
}

/// What a device has served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// As it was handed over.
    pub id: u64,
    /// When the device took it.
    pub begin: Time,
    /// When all of it had ended.
    pub end: Time,
}

impl Station {
    /// The device with nothing in service.
    pub fn new(device: Box<dyn Device>) -> Station {
        let slots = device.slots().max(1) as usize;
        Station {
            device,
            slots,
            // All that it will need, for any device but those that serve everything at once.
            ends: BinaryHeap::with_capacity(slots.min(ENDS_AT_ONCE)),
            began: Time::ZERO,
            busy: Span::ZERO,
            busy_until: Time::ZERO,
            ending: BinaryHeap::new(),
            submitted: 0,
            works: Vec::new(),
            free: Vec::new(),
            outside: VecDeque::new(),
            inside: 0,
        }
    }

    /// Hands over pieces that make one dispatch (at least one), at once or as soon as there is room for them; [`Station::ended`] tells of
    /// it by `id`. `hand_over`: whether another thread carries it out than the one that brought it.
    pub fn submit(
        &mut self,
        now: Time,
        id: u64,
        hand_over: bool,
        pieces: impl IntoIterator<Item = Transfer>,
    ) {
        if self.device.queueing().is_none() {
            let mut visit = self.begin(now);
            pieces.into_iter().for_each(|transfer| visit.serve(transfer));
            if hand_over {
                visit.hand_over();
            }
            let begin = visit.begin();
            let end = visit.end();
            self.submitted += 1;
            self.ending.push(Reverse((end, self.submitted, Work { id, begin, pieces: 0 })));
            return;
        }
        if self.is_idle() {
            self.began = now.max(self.busy_until);
        }
        let tag = self.free.pop().unwrap_or(self.works.len() as u32);
        let mut work = Work { id, begin: Time::MAX, pieces: 0 };
        for transfer in pieces {
            work.pieces += 1;
            if self.inside < self.slots
                && self.outside.is_empty()
                && let Some(device) = self.device.queueing()
            {
                work.begin = work.begin.min(now);
                device.submit(now, tag.into(), transfer);
                self.inside += 1;
            } else {
                self.outside.push_back((tag, transfer));
            }
        }
        match self.works.get_mut(tag as usize) {
            Some(free) => *free = work,
            None => self.works.push(work),
        }
    }

    /// Gives a device that orders by itself as much as it has room for.
    fn hand_in(&mut self, now: Time) {
        if self.outside.is_empty() {
            return;
        }
        let Some(device) = self.device.queueing() else { return };
        while self.inside < self.slots
            && let Some((tag, transfer)) = self.outside.pop_front()
        {
            let work = &mut self.works[tag as usize];
            work.begin = work.begin.min(now);
            device.submit(now, tag.into(), transfer);
            self.inside += 1;
        }
    }

    fn is_idle(&self) -> bool {
        self.inside == 0 && self.outside.is_empty()
    }

    /// When to ask [`Station::ended`] next; none if nothing was handed over that it has not told of.
    pub fn next_event(&mut self) -> Option<Time> {
        if let Some(Reverse((end, ..))) = self.ending.peek() {
            return Some(*end);
        }
        // What a device does when it holds nothing is of no interest.
        if self.inside == 0 {
            return None;
        }
        self.device.queueing()?.next_event()
    }

    /// The next of what was handed over by [`Station::submit`] that has ended by `now`, in the order of the ends.
    pub fn ended(&mut self, now: Time) -> Option<Ended> {
        if let Some(Reverse((end, ..))) = self.ending.peek()
            && *end <= now
        {
            let Reverse((end, _, Work { id, begin, .. })) = self.ending.pop()?;
            return Some(Ended { id, begin, end });
        }
        while self.inside > 0 {
            let (tag, end) = self.device.queueing()?.ended(now)?;
            self.inside -= 1;
            self.hand_in(end);
            if self.is_idle() {
                self.busy += end.since(self.began);
                self.busy_until = end;
            }
            let work = &mut self.works[tag as usize];
            work.pieces -= 1;
            if work.pieces == 0 {
                let Work { id, begin, .. } = *work;
                self.free.push(tag as u32);
                return Some(Ended { id, begin, end });
            }
        }
        None
    }

    /// When the next transfer can begin.
    pub fn free_at(&self) -> Time {
        match self.ends.peek() {
            Some(Reverse(end)) if self.ends.len() == self.slots => self.began.max(*end),
            _ => self.began,
        }
    }

    /// Begins what is handed over at `now`: at once, or as soon as a slot is free.
    pub fn begin(&mut self, now: Time) -> Visit<'_> {
        let begin = now.max(self.free_at());
        if self.ends.len() == self.slots {
            self.ends.pop();
        }
        self.began = begin;
        Visit { station: self, begin, span: Span::ZERO }
    }

    /// How long a flush takes that is asked for at `now`. It begins when everything before it has ended.
    pub fn flush(&mut self, now: Time) -> Span {
        self.flush_disturbed(now, |_, span| span)
    }

    /// The same, if it takes what `disturbed` makes of when it begins and how long the device takes.
    pub fn flush_disturbed(&mut self, now: Time, disturbed: impl FnOnce(Time, Span) -> Span) -> Span {
        let begin = now.max(self.began).max(self.busy_until);
        let span = disturbed(begin, self.device.flush(begin));
        self.busy += span;
        self.busy_until = begin + span;
        self.busy_until.since(now)
    }

    /// How long anything was in service, with all that has begun.
    pub fn busy(&self) -> Span {
        self.busy
    }

    /// How long anything was in service by `now`, which is not before the last transfer began.
    pub fn busy_by(&self, now: Time) -> Span {
        // What a device has that orders by itself counts when all of it has ended.
        let inside = if self.is_idle() { Span::ZERO } else { now.since(self.began) };
        self.busy + inside - self.busy_until.since(now)
    }

    /// Until when it is known that anything is in service.
    pub fn busy_until(&self) -> Time {
        self.busy_until
    }

    /// The device, for what it counts.
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }
}

/// What has a slot: one transfer, or the pieces of one that lie apart.
#[must_use = "a slot is taken until `end`"]
pub struct Visit<'a> {
    station: &'a mut Station,
    begin: Time,
    span: Span,
}

impl Visit<'_> {
    /// When it has begun.
    pub fn begin(&self) -> Time {
        self.begin
    }

    /// Serves a piece: after the one before it, or beside it where the device has several slots.
    pub fn serve(&mut self, transfer: Transfer) {
        if self.station.slots == 1 {
            self.span += self.station.device.serve(self.begin + self.span, transfer);
        } else {
            self.span = self.span.max(self.station.device.serve(self.begin, transfer));
        }
    }

    /// Adds what it costs that another thread carries it out than the one that brought it.
    pub fn hand_over(&mut self) {
        self.span += self.station.device.hand_over();
    }

    /// How long it takes.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Takes the slot until it is over, which it says.
    pub fn end(self) -> Time {
        let span = self.span;
        self.end_after(span)
    }

    /// The same, if it takes `span` because something disturbs the device.
    pub fn end_after(self, span: Span) -> Time {
        let end = self.begin + span;
        let station = self.station;
        station.ends.push(Reverse(end));
        station.busy += end.since(self.begin.max(station.busy_until).min(end));
        station.busy_until = station.busy_until.max(end);
        end
    }
}
