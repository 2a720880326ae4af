//! When devices are stopped or slow, and messages late. All of it is known from the start, so nothing has to happen when such a
//! fault begins or ends.

use iogate_core::{Span, Time};

use crate::scenario::{Fault, FaultKind};

/// The time of a device that orders by itself, which stands still while it is stopped and goes slowly while it is slow: what it is at
/// then is not begun and ended by anybody else.
pub(super) struct DeviceClock {
    /// From when on (of the world, of the device), and how many times as long everything takes; infinitely while it is stopped.
    stretches: Vec<(Time, Time, f64)>,
    /// Whether it is disturbed at any time.
    is_disturbed: bool,
}

impl DeviceClock {
    pub(super) fn new(faults: &DeviceFaults) -> DeviceClock {
        let slow = faults.slow.iter().flat_map(|(fault, _)| [Some(fault.from), fault.until]);
        let slow = slow.flatten().map(|span| Time::ZERO + span);
        let stops = faults.stops.iter().flat_map(|(from, until)| [*from, *until]);
        let mut edges: Vec<Time> = slow.chain(stops).chain([Time::ZERO]).collect();
        edges.sort_unstable();
        edges.dedup();
        let mut stretches: Vec<(Time, Time, f64)> = Vec::new();
        for edge in edges {
            let stopped = faults.stops.iter().any(|(from, until)| (*from..*until).contains(&edge));
            let holding = faults.slow.iter().filter(|(fault, _)| fault.holds_at(edge.since(Time::ZERO)));
            let factor = if stopped { f64::INFINITY } else { holding.map(|(_, factor)| factor).product() };
            let device = at(&stretches, edge);
            stretches.push((edge, device, factor));
        }
        let is_disturbed = stretches.iter().any(|(.., factor)| *factor != 1.0);
        DeviceClock { stretches, is_disturbed }
    }

    /// What it shows at `world`.
    pub(super) fn at(&self, world: Time) -> Time {
        if self.is_disturbed { at(&self.stretches, world) } else { world }
    }

    /// When it will show `device`; `None`: never.
    pub(super) fn when(&self, device: Time) -> Option<Time> {
        if !self.is_disturbed {
            return Some(device);
        }
        let reached = |(_, start, factor): &&(Time, Time, f64)| *start <= device && factor.is_finite();
        let &(from, start, factor) = self.stretches.iter().rev().find(reached)?;
        let span = device.since(start);
        let at = if factor == 1.0 {
            from + span
        } else {
            from + Span::from_nanos((span.as_nanos() as f64 * factor).ceil() as u64)
        };
        // Beyond a stretch that is followed by one of standing still for good.
        let last = self.stretches.last().filter(|(.., factor)| factor.is_infinite());
        match last {
            Some((stopped, ..)) if at > *stopped => None,
            _ => Some(at),
        }
    }
}

fn at(stretches: &[(Time, Time, f64)], world: Time) -> Time {
    let Some(&(from, device, factor)) = stretches.iter().rev().find(|(from, ..)| *from <= world) else {
        return world;
    };
    let span = world.since(from);
    if factor == 1.0 {
        return device + span;
    }
    device + Span::from_nanos((span.as_nanos() as f64 / factor) as u64)
}

/// What goes wrong with one server's device.
pub(super) struct DeviceFaults {
    /// From when until when it begins nothing, the earliest last.
    stops: Vec<(Time, Time)>,
    /// While each holds, how many times as long everything takes.
    slow: Vec<(Fault, f64)>,
}

impl DeviceFaults {
    pub(super) fn new(faults: &[Fault], server: u32) -> DeviceFaults {
        let mut stops = Vec::new();
        let mut slow = Vec::new();
        for fault in faults {
            match fault.kind {
                FaultKind::StoppedServer { server: stopped } if stopped == server => {
                    let until = fault.until.map_or(Time::MAX, |until| Time::ZERO + until);
                    stops.push((Time::ZERO + fault.from, until));
                }
                FaultKind::SlowServer { server: slowed, factor } if slowed == server => {
                    slow.push((fault.clone(), factor));
                }
                _ => {}
            }
        }
        stops.sort_unstable_by(|a, b| b.cmp(a));
        DeviceFaults { stops, slow }
    }

    /// When a transfer begins that could begin at `at`; `None`: never. `at` must not be before what it said last.
    pub(super) fn begin(&mut self, at: Time) -> Option<Time> {
        let mut begin = at;
        while let Some(&(from, until)) = self.stops.last()
            && from <= begin
        {
            begin = begin.max(until);
            if begin == Time::MAX {
                return None;
            }
            self.stops.pop();
        }
        Some(begin)
    }

    /// How long a transfer takes that begins at `begin` and would take `span`.
    pub(super) fn slowed(&self, begin: Time, span: Span) -> Span {
        if self.slow.is_empty() {
            return span;
        }
        let holding = self.slow.iter().filter(|(fault, _)| fault.holds_at(begin.since(Time::ZERO)));
        let slowness: f64 = holding.map(|(_, factor)| factor).product();
        Span::from_nanos((span.as_nanos() as f64 * slowness) as u64)
    }
}

/// Delays of messages.
pub(super) struct Delays(Vec<(Fault, Span)>);

impl Delays {
    pub(super) fn new(faults: &[Fault]) -> Delays {
        let delays = faults.iter().filter_map(|fault| match fault.kind {
            FaultKind::Delay { extra } => Some((fault.clone(), extra)),
            _ => None,
        });
        Delays(delays.collect())
    }

    /// Whether there is none at any time.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How much longer a message takes at most that is sent at `at`. Delays at the same time add up.
    pub(super) fn extra(&self, at: Time) -> Span {
        let holding = self.0.iter().filter(|(fault, _)| fault.holds_at(at.since(Time::ZERO)));
        holding.fold(Span::ZERO, |sum, (_, extra)| sum + *extra)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Time {
        Time::ZERO + Span::from_secs(s)
    }

    fn fault(from_s: u64, until_s: Option<u64>, kind: FaultKind) -> Fault {
        Fault { from: Span::from_secs(from_s), until: until_s.map(Span::from_secs), kind }
    }

    #[test]
    fn a_stop_puts_off_what_would_begin_in_it() {
        let stop = FaultKind::StoppedServer { server: 1 };
        let other = FaultKind::StoppedServer { server: 0 };
        let faults = [
            fault(20, Some(30), stop),
            fault(5, Some(12), stop),
            fault(10, Some(15), stop),
            fault(30, Some(31), stop),
            // Never holds.
            fault(50, Some(40), stop),
            fault(60, None, stop),
            fault(0, None, other),
        ];
        let mut device = DeviceFaults::new(&faults, 1);
        let begins: Vec<_> = [4, 5, 15, 16, 22, 45, 50, 60].map(|s| device.begin(at(s))).into();
        let expected = [4, 15, 15, 16, 31, 45, 50].map(|s| Some(at(s)));
        assert_eq!(begins[..7], expected);
        assert_eq!(begins[7], None);
    }

    #[test]
    fn slowness_multiplies_and_delays_add_up_while_they_hold() {
        let slow = |factor| FaultKind::SlowServer { server: 0, factor };
        let faults = [fault(1, Some(5), slow(2.0)), fault(4, None, slow(3.0))];
        let device = DeviceFaults::new(&faults, 0);
        let factors = [0, 1, 4, 5].map(|s| device.slowed(at(s), Span::from_nanos(10)).as_nanos());
        assert_eq!(factors, [10, 20, 60, 30]);
        let delay = |extra_s| FaultKind::Delay { extra: Span::from_secs(extra_s) };
        let delays = Delays::new(&[fault(1, Some(5), delay(7)), fault(4, Some(9), delay(1))]);
        assert_eq!([0, 1, 4, 5, 9].map(|s| delays.extra(at(s)).as_nanos() / 1_000_000_000), [0, 7, 8, 1, 0]);
    }
}
