//! A device with a queue in front: what every driver of a device needs.
//!
//! In queueing theory's words: a station of as many servers as the device has slots, served in the order of arrival. How
//! transfers that are in service at the same time slow each other down is the model's business; this only says when each begins.

use alloc::boxed::Box;
use alloc::collections::BinaryHeap;
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
        }
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
        let begin = now.max(self.began).max(self.busy_until);
        (begin + self.device.flush(begin)).since(now)
    }

    /// How long anything was in service.
    pub fn busy(&self) -> Span {
        self.busy
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
