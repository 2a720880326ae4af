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
    /// The request, once this share has completed it.
    pub(super) finished: Option<Pending>,
}

impl Share {
    pub(super) fn bytes(&self) -> u32 {
        self.segment.bytes as u32
    }
}

/// A dispatch in service.
pub(super) struct Flight {
    pub(super) id: DispatchId,
    /// What the store carries out now: the whole, or one share of it.
    pub(super) io: Io,
    pub(super) shares: Vec<Share>,
    /// When the gate let it go.
    pub(super) began: Time,
    stage: Stage,
}

#[derive(Clone, Copy)]
enum Stage {
    Whole,
    Share(usize),
}

/// Flights that are over together. They come from a list of boxes, and are some 160 bytes each.
pub(super) type Batch = Vec<Box<Flight>>;

/// A flight whose `io` the store has.
pub(super) struct Waiting {
    id: DispatchId,
    shares: Vec<Share>,
    began: Time,
    stage: Stage,
}

impl Waiting {
    pub(super) fn join(self, io: Io) -> Flight {
        let Waiting { id, shares, began, stage } = self;
        Flight { id, io, shares, began, stage }
    }
}

/// What to do after the store has answered.
pub(super) enum Step {
    /// Every share has its result.
    Finished,
    /// Carry out this share alone, through the handle of its own request.
    Retry(RequestId),
}

impl Flight {
    pub(super) fn new(id: DispatchId, io: Io, shares: Vec<Share>, began: Time) -> Flight {
        Flight { id, io, shares, began, stage: Stage::Whole }
    }

    /// As [`Flight::new`], but the shares are not carried out together.
    pub(super) fn one_by_one(id: DispatchId, io: Io, shares: Vec<Share>, began: Time) -> Flight {
        let mut flight = Flight { id, io, shares, began, stage: Stage::Share(0) };
        flight.io.segments.truncate(1);
        flight
    }

    /// Parts with `io` for as long as the store has it.
    pub(super) fn split(self) -> (Io, Waiting) {
        let Flight { id, io, shares, began, stage } = self;
        (io, Waiting { id, shares, began, stage })
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
                    Some(first) if self.io.op == Op::Write && self.shares.len() > 1 => first,
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
        let Some(share) = self.shares.get(next) else { return Step::Finished };
        self.stage = Stage::Share(next);
        self.io.offset = share.offset;
        self.io.segments.clear();
        self.io.segments.push(share.segment);
        Step::Retry(share.request)
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

/// Vectors of flights that are over, kept per thread so that a flight in steady state allocates nothing. In the
/// usual case the thread that begins a flight also ends it.
const SPARE_MAX: usize = 64;

thread_local! {
    static SPARE: RefCell<Vec<(Vec<Segment>, Vec<Share>)>> = const { RefCell::new(Vec::new()) };
    /// Completions nest: what one of them submits may be carried out in it.
    static BATCHES: RefCell<Vec<Batch>> = const { RefCell::new(Vec::new()) };
    static TOLD: RefCell<Vec<Vec<Finished>>> = const { RefCell::new(Vec::new()) };
}

/// An empty vector for flights that are over together.
pub(super) fn batch() -> Batch {
    BATCHES.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives it back, empty.
pub(super) fn recycle_batch(batch: Batch) {
    debug_assert!(batch.is_empty(), "a batch is recycled when its results are given");
    BATCHES.with_borrow_mut(|spare| {
        if spare.len() < 4 {
            spare.push(batch);
        }
    });
}

/// An empty vector for what the store is told.
pub(super) fn told() -> Vec<Finished> {
    TOLD.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives it back.
pub(super) fn recycle_told(mut told: Vec<Finished>) {
    told.clear();
    if told.capacity() <= 1024 {
        TOLD.with_borrow_mut(|spare| {
            if spare.len() < 4 {
                spare.push(told);
            }
        });
    }
}

/// Empty vectors for a new flight.
pub(super) fn spare() -> (Vec<Segment>, Vec<Share>) {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives the vectors of a flight that is over back.
pub(super) fn recycle(mut segments: Vec<Segment>, mut shares: Vec<Share>) {
    segments.clear();
    shares.clear();
    // Not the rare huge one: a thread keeps little.
    if shares.capacity() <= 1024 {
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < SPARE_MAX {
                spare.push((segments, shares));
            }
        });
    }
}
