//! A device's profile, measured in virtual time by the same steps as a directory's.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Access, Class, Fit, Sample, Step};
use crate::device::{Device, Station, Transfer};
use crate::request::Op;
use crate::time::Time;

/// Most bytes of the region that is measured.
const REGION: u64 = 4 << 30;

/// Where the dispatches of a step are.
#[derive(Clone, Debug)]
pub struct Places {
    region: u64,
    seed: u64,
    /// Where each stream goes on, and the start of the part of the region that is its own.
    streams: Vec<u64>,
    next: usize,
}

impl Places {
    /// Places within the first `region` bytes. The same seed gives the same places.
    pub fn new(region: u64, seed: u64) -> Places {
        Places { region: region.max(1), seed, streams: vec![0], next: 0 }
    }

    /// Begins a step.
    pub fn begin(&mut self, step: &Step) {
        let streams = match step.access {
            Access::Interleaved(streams) => streams.max(1),
            _ => 1,
        };
        if self.streams.len() as u64 != streams {
            self.streams = (0..streams).map(|index| self.region / streams * index).collect();
        }
        self.next = 0;
    }

    /// The first byte of the next dispatch.
    pub fn next(&mut self, step: &Step) -> u64 {
        if step.access == Access::Random {
            // A linear congruential generator (Knuth's MMIX); its upper bits are good enough for places.
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            return (self.seed >> 20) % (self.region / step.bytes).max(1) * step.bytes;
        }
        let streams = self.streams.len();
        let stream = &mut self.streams[self.next % streams];
        self.next += 1;
        if *stream + step.bytes > self.region {
            *stream = 0;
        }
        let place = *stream;
        *stream += step.bytes;
        place
    }
}

impl Step {
    /// The class of its dispatches.
    pub fn class(&self) -> Class {
        match self.access {
            Access::Sequential | Access::Fill => Class::Next,
            Access::Interleaved(streams) => Class::after(streams.saturating_sub(1)),
            Access::Random => Class::Jump,
        }
    }

    /// The measurement of one of its dispatches.
    pub fn sample(&self, ns: u64) -> Sample {
        Sample { op: self.op, class: self.class(), bytes: self.bytes, in_flight: self.in_flight, ns }
    }
}

/// Measures a device by [`super::steps`].
pub fn measure(device: Box<dyn Device>, seed: u64) -> Fit {
    let region = (device.capacity() / 2).clamp(1, REGION);
    let mut station = Station::new(device);
    let mut places = Places::new(region, seed);
    let (mut fit, mut now) = (Fit::default(), Time::ZERO);
    for step in super::steps() {
        if step.access == Access::Random || step.op == Op::Read {
            now = now + station.flush(now);
        }
        let times = carry_out(&mut station, &mut places, &step, &mut now);
        match step.access {
            Access::Fill => {
                let writes: Vec<(u64, u64)> = times.iter().map(|ns| (step.bytes, *ns)).collect();
                fit.fill(&writes);
            }
            _ => times.iter().skip(step.warm_up as usize).for_each(|ns| fit.add(step.sample(*ns))),
        }
    }
    fit
}

/// The times of a step's dispatches, each from when it was handed over. `now` is then when the last has ended.
pub fn carry_out(station: &mut Station, places: &mut Places, step: &Step, now: &mut Time) -> Vec<u64> {
    places.begin(step);
    let (mut times, mut issued) = (vec![0; step.dispatches as usize], Vec::new());
    let (mut at, mut in_flight) = (*now, 0);
    loop {
        while in_flight < step.in_flight.max(1) && (issued.len() as u32) < step.dispatches {
            let transfer = Transfer { op: step.op, address: places.next(step), bytes: step.bytes };
            station.submit(at, issued.len() as u64, false, [transfer]);
            issued.push(at);
            in_flight += 1;
        }
        let Some(next) = station.next_event() else { return times };
        let Some(ended) = station.ended(next) else { continue };
        times[ended.id as usize] = ended.end.since(issued[ended.id as usize]).as_nanos();
        in_flight -= 1;
        at = ended.end;
        *now = (*now).max(at);
    }
}
