//! A gate in front of one device, in virtual time: what drivers of closed-loop clients share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use iogate_core::device::{Device, Placement, Station, Transfer};
use iogate_core::{Decision, Dispatch, DispatchId, Gate, Outcome, Part, Time};

/// A gate, and what it has handed over.
pub(crate) struct Serving {
    pub(crate) gate: Gate,
    station: Station,
    placement: Placement,
    /// Dispatches by their ends; those of one moment in the order in which they were handed over.
    service: BinaryHeap<Reverse<(Time, u64, DispatchId)>>,
    served: u64,
}

impl Serving {
    pub(crate) fn new(gate: Gate, device: Box<dyn Device>) -> Serving {
        let (station, placement) = (Station::new(device), Placement::default());
        Serving { gate, station, placement, service: BinaryHeap::new(), served: 0 }
    }

    /// Hands over all that the gate lets through, and tells `begun` of each. When the gate is to be asked again, if it waits.
    pub(crate) fn dispatch(&mut self, now: Time, mut begun: impl FnMut(&Dispatch)) -> Option<Time> {
        loop {
            match self.gate.next(now) {
                Decision::Dispatch(dispatch) => {
                    let address = self.placement.address(dispatch.file, dispatch.offset);
                    let mut visit = self.station.begin(now);
                    visit.serve(Transfer { op: dispatch.op, address, bytes: dispatch.bytes });
                    if self.gate.parts(dispatch.id).any(|part| part.arrival < now) {
                        visit.hand_over();
                    }
                    begun(&dispatch);
                    self.served += 1;
                    self.service.push(Reverse((visit.end(), self.served, dispatch.id)));
                }
                Decision::WaitUntil(until, _) => return Some(until),
                Decision::Idle => return None,
            }
        }
    }

    /// When the next dispatch ends.
    pub(crate) fn next_end(&self) -> Option<Time> {
        self.service.peek().map(|Reverse((end, ..))| *end)
    }

    /// Completes the next dispatch that has ended by `now`: its number, and its requests' shares.
    pub(crate) fn complete(&mut self, now: Time) -> Option<(DispatchId, Vec<Part>)> {
        self.next_end().filter(|end| *end <= now)?;
        let Reverse((_, _, id)) = self.service.pop()?;
        let parts: Vec<Part> = self.gate.parts(id).collect();
        let bytes = parts.iter().map(|part| u64::from(part.bytes)).sum();
        self.gate.complete(now, id, Outcome::Done { bytes });
        Some((id, parts))
    }
}
