//! A dispatch in service: whom its bytes belong to, and what is tried when it does not come through whole.

use std::cell::RefCell;
use std::io;

use iogate_core::{DispatchId, Op, Outcome, RequestId, Time};

use super::table::Pending;
use crate::store::{Finished, Io, Segment};

/// A request's share of a dispatch.
pub(super) struct Share {
    pub(super) request: RequestId,
    pub(super) offset: u64,
    pub(super) segment: Segment,
    pub(super) got: u32,
    pub(super) error: Option<io::Error>,
}

impl Share {
    pub(super) fn bytes(&self) -> u32 {
        self.segment.bytes as u32
    }
}

/// A dispatch in service. It stays where it is, and is used again for a later one: its thread keeps it.
pub(super) struct Flight {
    pub(super) id: DispatchId,
    /// What the store carries out now: the whole, or one share of it. None while the store has it, and when the flight is over.
    io: Option<Io>,
    pub(super) shares: Vec<Share>,
    /// When the gate let it go.
    pub(super) began: Time,
    stage: Stage,
    /// For the next one's `io`, when this one is over.
    segments: Vec<Segment>,
}

#[derive(Clone, Copy)]
enum Stage {
    Whole,
    Share(usize),
}

/// Flights, which stay where they are; their boxes move.
pub(super) type Flights = Vec<Box<Flight>>;

/// Flights that are over together, and what became of requests by that.
#[derive(Default)]
pub(super) struct Over {
    pub(super) flights: Flights,
    /// Requests that are complete, and whose results go to who submitted them.
    pub(super) finished: Vec<Pending>,
    /// Those of which the store is told.
    pub(super) told: Vec<Finished>,
}

/// What to do after the store has answered.
pub(super) enum Step {
    /// Every share has its result.
    Finished,
    /// Carry out this share alone, through the handle of its own request.
    Retry(RequestId),
}

impl Flight {
    fn empty() -> Flight {
        Flight {
            id: DispatchId(0),
            io: None,
            shares: Vec::new(),
            began: Time::ZERO,
            stage: Stage::Whole,
            segments: Vec::new(),
        }
    }

    /// An empty vector for [`Flight::begin`].
    pub(super) fn segments(&mut self) -> Vec<Segment> {
        std::mem::take(&mut self.segments)
    }

    /// Begins a dispatch whose shares are there. `together`: in one call of the store, where that works; else one by one.
    pub(super) fn begin(&mut self, id: DispatchId, io: Io, began: Time, together: bool) {
        (self.id, self.began) = (id, began);
        self.stage = if together { Stage::Whole } else { Stage::Share(0) };
        let io = self.io.insert(io);
        if !together {
            io.segments.truncate(1);
        }
    }

    /// What the store is to carry out.
    pub(super) fn io(&self) -> &Io {
        self.io.as_ref().expect("the store does not have it")
    }

    /// As [`Flight::io`], to be changed.
    pub(super) fn io_mut(&mut self) -> &mut Io {
        self.io.as_mut().expect("the store does not have it")
    }

    /// Parts with `io` for as long as the store has it.
    pub(super) fn part_with_io(&mut self) -> Io {
        self.io.take().expect("the store does not have it")
    }

    /// The store gives it back.
    pub(super) fn take_back(&mut self, io: Io) {
        self.io = Some(io);
    }

    /// Takes the store's answer to `io`.
    ///
    /// An aggregated dispatch that failed, or that wrote less than asked for, is repeated share by share from
    /// where it stopped, so that each request learns its own result and only the guilty one gets the error.
    pub(super) fn settle(&mut self, result: io::Result<u64>) -> Step {
        let next = match (self.stage, result) {
            (Stage::Whole, Ok(mut left)) => {
                for share in &mut self.shares {
                    share.got = left.min(u64::from(share.bytes())) as u32;
                    left -= u64::from(share.got);
                }
                // A short read is the end of the file, which holds for the shares behind it too. A share that was
                // written in part has its result: a short count.
                match self.shares.iter().position(|share| share.got == 0) {
                    Some(first) if self.io().op == Op::Write && self.shares.len() > 1 => first,
                    _ => return Step::Finished,
                }
            }
            (Stage::Whole, Err(error)) if self.shares.len() == 1 => {
                self.shares[0].error = Some(error);
                return Step::Finished;
            }
            (Stage::Whole, Err(_)) => 0,
            (Stage::Share(index), result) => {
                let share = &mut self.shares[index];
                match result {
                    Ok(got) => share.got = got.min(u64::from(share.bytes())) as u32,
                    Err(error) => share.error = Some(error),
                }
                index + 1
            }
        };
        let Some(&Share { request, offset, segment, .. }) = self.shares.get(next) else {
            return Step::Finished;
        };
        self.stage = Stage::Share(next);
        let io = self.io_mut();
        io.offset = offset;
        io.segments.clear();
        io.segments.push(segment);
        Step::Retry(request)
    }

    /// How many bytes it asks for.
    pub(super) fn bytes(&self) -> u64 {
        self.shares.iter().map(|share| u64::from(share.bytes())).sum()
    }

    /// What to tell the gate.
    pub(super) fn outcome(&self) -> Outcome {
        let bytes = self.shares.iter().map(|share| u64::from(share.got)).sum();
        match bytes {
            0 if self.shares.iter().any(|share| share.error.is_some()) => Outcome::Failed,
            bytes => Outcome::Done { bytes },
        }
    }
}

/// Flights that are over, kept per thread so that one in steady state allocates nothing. In the usual case the thread that begins a
/// flight also ends it.
const SPARE_MAX: usize = 64;

thread_local! {
    static SPARE: RefCell<Flights> = const { RefCell::new(Vec::new()) };
    /// Completions nest: what one of them submits may be carried out in it.
    static OVER: RefCell<Vec<Over>> = const { RefCell::new(Vec::new()) };
}

/// Empty lists for flights that are over together.
pub(super) fn over() -> Over {
    OVER.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives them back, empty.
pub(super) fn recycle_over(over: Over) {
    debug_assert!(over.flights.is_empty(), "they are recycled when results have been given");
    OVER.with_borrow_mut(|spare| {
        if spare.len() < 4 && over.told.capacity().max(over.finished.capacity()) <= 1024 {
            spare.push(over);
        }
    });
}

/// A flight to begin.
pub(super) fn spare() -> Box<Flight> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| Box::new(Flight::empty()))
}

/// Gives a flight back that is over. Its file is closed here, if this was the last handle.
pub(super) fn recycle(mut flight: Box<Flight>) {
    if let Some(Io { file, mut segments, .. }) = flight.io.take() {
        drop(file);
        segments.clear();
        flight.segments = segments;
    }
    flight.shares.clear();
    // Not the rare huge one: a thread keeps little.
    if flight.shares.capacity() <= 1024 {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push(flight);
            }
        });
    }
}
