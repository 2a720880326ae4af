//! A gate that is driven by hand: handles for its requests and dispatches, and cancelled requests, which are never handed out.
//!
//! The gate itself knows no cancelling: a cancelled request keeps its place, so that what waits for it need not be moved, and is left
//! out when its dispatch comes. What lies on both sides of it is then handed out as pieces, one after another, so that no more
//! are in service than the gate said.

use std::collections::VecDeque;
use std::ffi::c_void;

use iogate_core::{
    Decision, Dispatch, DispatchId, Gate, GateConfig, Outcome, RequestId, SchedulerConfig, Time,
};
use iogate_core::{Rejected, WaitReason};

use crate::Failed;
use crate::slab::{Slab, index};
use crate::types::{CDispatch, CPart, CRequest, HAS_TARGET};

/// Vectors of parts that are kept for later dispatches.
const SPARE_MAX: usize = 64;

/// What to do now; dispatches have handles of their own.
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// Carry this out. Its parts are valid until it is completed.
    Dispatch(CDispatch),
    /// Ask again then.
    Wait(Time, WaitReason),
    /// Ask again after the next change.
    Idle,
}

/// The slot of a handle, of a request or a dispatch: a small number, which is the next one's when this one is over.
pub fn slot_of(handle: u64) -> usize {
    index(handle)
}

/// A gate, the requests in it, and the dispatches in service.
pub struct Hand {
    gate: Gate,
    requests: Slab<Pending>,
    services: Slab<Service>,
    /// Dispatches of which a piece is over and others may be left.
    rests: VecDeque<Service>,
    spare: Vec<Vec<CPart>>,
}

/// A request in the gate.
struct Pending {
    user: *mut c_void,
    memory: *mut c_void,
    offset: u64,
    /// Bytes that no completed dispatch has covered yet.
    remaining: u32,
    /// Some of it has been handed out.
    begun: bool,
    cancelled: bool,
}

// SAFETY: the pointers are the program's, and are never followed here.
unsafe impl Send for Pending {}

/// A dispatch of the gate's, of which one piece is in service.
struct Service {
    of: Dispatch,
    /// All of it, cancelled ones too.
    parts: Vec<CPart>,
    /// The piece.
    begin: usize,
    end: usize,
    /// Bytes transferred by pieces that are over.
    bytes: u64,
    failed: bool,
}

impl Hand {
    /// A gate with nothing in it.
    ///
    /// # Errors
    /// As [`Gate::new`].
    pub fn new(config: &GateConfig) -> Result<Hand, Failed> {
        let gate = Gate::new(config).map_err(|error| Failed::invalid(error.to_string()))?;
        Ok(Hand {
            gate,
            requests: Slab::default(),
            services: Slab::default(),
            rests: VecDeque::new(),
            spare: Vec::new(),
        })
    }

    /// The gate, to be looked at.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// Takes a request, and returns its handle.
    ///
    /// # Errors
    /// As [`Gate::submit`]; `E2BIG` if it has more stripes than an empty gate takes.
    pub fn submit(&mut self, now: Time, request: &CRequest) -> Result<u64, Failed> {
        if request.done.is_some() {
            return Err(Failed::invalid("`done` is the engine's: expected null here"));
        }
        let taken = request.request(RequestId(self.requests.vacant()), HAS_TARGET)?;
        match self.gate.submit(now, &taken) {
            Err(Rejected::Full { max }) if self.gate.is_empty() => {
                let text = format!("the request has more stripes than the gate's queue_max, {max}");
                return Err(Failed::new(libc::E2BIG, text));
            }
            taken => taken?,
        }
        Ok(self.requests.insert(Pending {
            user: request.user,
            memory: request.memory,
            offset: request.offset,
            remaining: request.bytes,
            begun: false,
            cancelled: false,
        }))
    }

    /// What to do now.
    pub fn next(&mut self, now: Time) -> Answer {
        loop {
            let service = match self.rests.pop_front() {
                Some(service) => service,
                None => match self.gate.next(now) {
                    Decision::Dispatch(dispatch) => self.begin(dispatch),
                    Decision::WaitUntil(until, reason) => return Answer::Wait(until, reason),
                    Decision::Idle => return Answer::Idle,
                },
            };
            if let Some(dispatch) = self.hand_out(now, service) {
                return Answer::Dispatch(dispatch);
            }
        }
    }

    fn begin(&mut self, of: Dispatch) -> Service {
        let mut parts = self.spare.pop().unwrap_or_default();
        for part in self.gate.parts(of.id) {
            let Some(pending) = self.requests.get_mut(part.request.0) else { continue };
            parts.push(CPart {
                request: part.request.0,
                user: pending.user,
                memory: match pending.memory.is_null() {
                    true => pending.memory,
                    false => pending.memory.wrapping_byte_add((part.offset - pending.offset) as usize),
                },
                offset: part.offset,
                bytes: part.bytes,
                reserved: 0,
            });
        }
        Service { of, parts, begin: 0, end: 0, bytes: 0, failed: false }
    }

    /// Hands out the next piece of a dispatch; none if there is none, and the dispatch is over.
    fn hand_out(&mut self, now: Time, mut service: Service) -> Option<CDispatch> {
        service.begin = service.end;
        service.end = service.parts.len();
        for index in service.begin..service.parts.len() {
            let Some(pending) = self.requests.get_mut(service.parts[index].request) else { continue };
            if !pending.cancelled {
                pending.begun = true;
            } else if index == service.begin {
                service.begin += 1;
            } else {
                service.end = index;
                break;
            }
        }
        let piece = &service.parts[service.begin..service.end];
        let Some(first) = piece.first() else {
            self.end(now, service);
            return None;
        };
        let dispatch = CDispatch {
            id: 0,
            file: service.of.file.0,
            offset: first.offset,
            bytes: piece.iter().map(|part| u64::from(part.bytes)).sum(),
            op: service.of.op as u32,
            target: service.of.target.0,
            app: service.of.app.0,
            part_count: piece.len() as u32,
            parts: piece.as_ptr(),
        };
        // The vector's memory stays where it is.
        let id = self.services.insert(service);
        Some(CDispatch { id, ..dispatch })
    }

    /// A dispatch that was handed out is over.
    ///
    /// # Errors
    /// `ESTALE` if it was so before, `EINVAL` if it cannot have transferred so much.
    pub fn complete(&mut self, now: Time, handle: u64, bytes: u64, failed: bool) -> Result<(), Failed> {
        let stale = || {
            Failed::new(libc::ESTALE, "no such dispatch is in service: it has been completed, or never was")
        };
        let service = self.services.get_mut(handle).ok_or_else(stale)?;
        let piece = &service.parts[service.begin..service.end];
        let asked: u64 = piece.iter().map(|part| u64::from(part.bytes)).sum();
        if bytes > asked {
            return Err(Failed::invalid(format!("{bytes} bytes of a dispatch of {asked}: expected no more")));
        }
        service.bytes += if failed { 0 } else { bytes };
        service.failed |= failed;
        let whole = service.end == service.parts.len();
        if let Some(service) = self.services.remove(handle) {
            match whole {
                true => self.end(now, service),
                false => self.rests.push_back(service),
            }
        }
        Ok(())
    }

    fn end(&mut self, now: Time, mut service: Service) {
        let outcome = match service.bytes {
            0 if service.failed => Outcome::Failed,
            bytes => Outcome::Done { bytes },
        };
        let id: DispatchId = service.of.id;
        self.gate.complete(now, id, outcome);
        for part in &service.parts {
            let Some(pending) = self.requests.get_mut(part.request) else { continue };
            pending.remaining = pending.remaining.saturating_sub(part.bytes);
            if pending.remaining == 0 {
                self.requests.remove(part.request);
            }
        }
        service.parts.clear();
        if self.spare.len() < SPARE_MAX && service.parts.capacity() <= 1024 {
            self.spare.push(service.parts);
        }
    }

    /// Takes a request back that has not been handed out.
    ///
    /// # Errors
    /// `EBUSY` if it has, `ESTALE` if it is over, `EALREADY` if it was taken back before.
    pub fn cancel(&mut self, handle: u64) -> Result<(), Failed> {
        let stale =
            || Failed::new(libc::ESTALE, "no such request is in the gate: it is over, or never was there");
        let pending = self.requests.get_mut(handle).ok_or_else(stale)?;
        if pending.cancelled {
            return Err(Failed::new(libc::EALREADY, "the request has been cancelled before"));
        }
        if pending.begun {
            return Err(Failed::new(libc::EBUSY, "the request is in a dispatch: complete that"));
        }
        pending.cancelled = true;
        Ok(())
    }

    /// As [`Gate::switch`].
    pub fn switch(&mut self, now: Time, scheduler: &SchedulerConfig) {
        self.gate.switch(now, scheduler);
    }

    /// As [`Gate::drain`].
    pub fn drain(&mut self, now: Time) {
        self.gate.drain(now);
    }
}
