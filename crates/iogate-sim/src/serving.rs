//! A gate in front of one device, in virtual time: what drivers of closed-loop clients share.

use iogate_core::device::{Device, Placement, Station, Transfer};
use iogate_core::{Decision, Dispatch, DispatchId, Gate, Outcome, Part, Time};

/// A gate, and what it has handed over.
pub(crate) struct Serving {
    pub(crate) gate: Gate,
    station: Station,
    placement: Placement,
    /// Of the dispatch at hand.
    transfers: Vec<Transfer>,
}

impl Serving {
    pub(crate) fn new(gate: Gate, device: Box<dyn Device>) -> Serving {
        let (station, placement) = (Station::new(device), Placement::default());
        Serving { gate, station, placement, transfers: Vec::new() }
    }

    /// Hands over all that the gate lets through, and tells `begun` of each. When the gate is to be asked again, if it waits.
    pub(crate) fn dispatch(&mut self, now: Time, mut begun: impl FnMut(&Dispatch)) -> Option<Time> {
        loop {
            match self.gate.next(now) {
                Decision::Dispatch(dispatch) => {
                    let Dispatch { op, file, offset, bytes, .. } = dispatch;
                    self.transfers.clear();
                    self.placement.for_each_piece(op, file, offset, bytes, |address, bytes| {
                        self.transfers.push(Transfer { op, address, bytes });
                    });
                    let queued = self.gate.parts(dispatch.id).any(|part| part.arrival < now);
                    begun(&dispatch);
                    self.station.submit(now, dispatch.id.0.into(), queued, self.transfers.iter().copied());
                }
                Decision::WaitUntil(until, _) => return Some(until),
                Decision::Idle => return None,
            }
        }
    }

    /// When the next dispatch may end.
    pub(crate) fn next_end(&mut self) -> Option<Time> {
        self.station.next_event()
    }

    /// Completes the next dispatch that has ended by `now`: its number, and its requests' shares.
    pub(crate) fn complete(&mut self, now: Time) -> Option<(DispatchId, Vec<Part>)> {
        let id = DispatchId(self.station.ended(now)?.id as u32);
        let parts: Vec<Part> = self.gate.parts(id).collect();
        let bytes = parts.iter().map(|part| u64::from(part.bytes)).sum();
        self.gate.complete(now, id, Outcome::Done { bytes });
        Some((id, parts))
    }
}
