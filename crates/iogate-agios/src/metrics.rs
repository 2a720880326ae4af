//! What AGIOS tells of the requests since the last reset.

use iogate_core::hash::HashMap;
use iogate_core::{Op, Time};

/// Files of which the last offset is kept, and which are counted.
const FILES_MAX: usize = 1 << 20;

/// `struct agios_metrics_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CMetrics {
    pub(crate) total_reqnb: i64,
    pub(crate) reads: i64,
    pub(crate) writes: i64,
    pub(crate) avg_time_between_requests: i64,
    pub(crate) avg_request_size: i64,
    pub(crate) max_request_size: i64,
    pub(crate) filenb: i64,
    pub(crate) avg_offset_distance: i64,
    pub(crate) served_bytes: i64,
}

#[derive(Default)]
pub(crate) struct Metrics {
    requests: [u64; 2],
    bytes: u64,
    bytes_max: u64,
    first: Option<Time>,
    last: Time,
    /// The offset of each file's last request.
    offsets: HashMap<u64, u64>,
    distances: u64,
    distance: u64,
    served: u64,
}

impl Metrics {
    pub(crate) fn added(&mut self, now: Time, file: u64, op: Op, offset: u64, bytes: u64) {
        self.requests[op as usize] += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.bytes_max = self.bytes_max.max(bytes);
        self.first.get_or_insert(now);
        self.last = now;
        if let Some(before) = self.offsets.get_mut(&file) {
            self.distances += 1;
            self.distance = self.distance.saturating_add(before.abs_diff(offset));
            *before = offset;
        } else if self.offsets.len() < FILES_MAX {
            self.offsets.insert(file, offset);
        }
    }

    pub(crate) fn released(&mut self, bytes: u64) {
        self.served = self.served.saturating_add(bytes);
    }

    /// The metrics, which begin anew.
    pub(crate) fn take(&mut self) -> CMetrics {
        let all = std::mem::take(self);
        let total: u64 = all.requests.iter().sum();
        let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let mean = |sum: u64, count: u64| signed(sum.checked_div(count).unwrap_or(0));
        let span = all.first.map_or(0, |first| all.last.since(first).as_nanos());
        CMetrics {
            total_reqnb: signed(total),
            reads: signed(all.requests[0]),
            writes: signed(all.requests[1]),
            avg_time_between_requests: mean(span, total.saturating_sub(1)),
            avg_request_size: mean(all.bytes, total),
            max_request_size: signed(all.bytes_max),
            filenb: all.offsets.len() as i64,
            avg_offset_distance: mean(all.distance, all.distances),
            served_bytes: signed(all.served),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_since_the_last_reset() {
        let mut metrics = Metrics::default();
        assert_eq!(metrics.take(), CMetrics::default());
        metrics.added(Time::from_nanos(100), 1, Op::Read, 0, 10);
        metrics.added(Time::from_nanos(200), 2, Op::Write, 50, 30);
        metrics.added(Time::from_nanos(500), 1, Op::Write, 40, 20);
        metrics.released(30);
        let expected = CMetrics {
            total_reqnb: 3,
            reads: 1,
            writes: 2,
            avg_time_between_requests: 200,
            avg_request_size: 20,
            max_request_size: 30,
            filenb: 2,
            avg_offset_distance: 40,
            served_bytes: 30,
        };
        assert_eq!(metrics.take(), expected);
        assert_eq!(metrics.take(), CMetrics::default());
    }
}
