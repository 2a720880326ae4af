//! A stream of messages from one node to another over a switch that can lose segments: TCP's way of finding its rate (slow start,
//! congestion avoidance, fast retransmit after three duplicate acknowledgements, and a time-out that doubles), after RFC 5681,
//! RFC 3042 (limited transmit) and RFC 6582 (NewReno).
//!
//! Left out: selective and delayed acknowledgements, estimating the round trip (senders know it), and starting slowly again after
//! a pause.

use std::collections::{BTreeMap, VecDeque};

use iogate_core::{Span, Time};

/// Bytes of a segment: a full Ethernet frame's. Fewer, longer segments would make a loss harder to notice than it is.
pub(super) const SEGMENT_BYTES: u64 = 1448;
/// The window at the start (RFC 6928).
const FIRST_WINDOW: u64 = 10 * SEGMENT_BYTES;
/// Duplicate acknowledgements that are taken for a loss.
const DUPLICATES: u32 = 3;
/// How often the time-out doubles at most.
const DOUBLINGS_MAX: u32 = 6;

/// A part of a flow's bytes on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) flow: u32,
    pub(super) start: u64,
    pub(super) bytes: u32,
}

/// The bytes from one node to another, numbered from 0.
#[derive(Debug)]
pub(super) struct Flow<M> {
    from: u32,
    to: u32,
    /// Messages not yet delivered, with the number of the byte after each.
    messages: VecDeque<(u64, M)>,
    /// Bytes handed over by the sender, all in all.
    end: u64,
    /// The next byte to send.
    next: u64,
    /// Bytes that the sender knows to have come in.
    acked: u64,
    window: u64,
    /// Below it the window doubles each round trip, above it grows by a segment.
    threshold: u64,
    /// Duplicate acknowledgements, each for a segment that has come in after a gap.
    duplicates: u32,
    /// Whether a loss was noticed by duplicates, and not all has come in that was sent before.
    recovering: bool,
    /// The end of what was sent when a loss was last noticed: the window has been made smaller for all losses before.
    recover: u64,
    /// When it counts as lost what is on its way and not acknowledged; [`Time::MAX`] while nothing is.
    deadline: Time,
    /// The earliest time at which [`Flow::timed_out`] will be called; [`Time::MAX`]: at none.
    alarm: Time,
    doublings: u32,
    /// The receiver's side: bytes that have come in without a gap, and ranges after the gap.
    expected: u64,
    early: BTreeMap<u64, u64>,
    /// Acknowledgements on their way back, which takes all of them equally long.
    acks: VecDeque<u64>,
}

impl<M: Copy> Flow<M> {
    pub(super) fn new(from: u32, to: u32) -> Flow<M> {
        Flow {
            from,
            to,
            messages: VecDeque::new(),
            end: 0,
            next: 0,
            acked: 0,
            window: FIRST_WINDOW,
            threshold: u64::MAX,
            duplicates: 0,
            recovering: false,
            recover: 0,
            deadline: Time::MAX,
            alarm: Time::MAX,
            doublings: 0,
            expected: 0,
            early: BTreeMap::new(),
            acks: VecDeque::new(),
        }
    }

    /// The sending and the receiving node.
    pub(super) fn ends(&self) -> (u32, u32) {
        (self.from, self.to)
    }

    pub(super) fn push(&mut self, bytes: u64, message: M) {
        self.end += bytes;
        self.messages.push_back((self.end, message));
    }

    /// What to send now (first byte, length), as far as the window permits.
    pub(super) fn next_segment(&mut self) -> Option<(u64, u32)> {
        let bytes = SEGMENT_BYTES.min(self.end - self.next);
        let after_gap = u64::from(self.duplicates) * SEGMENT_BYTES;
        let on_their_way = (self.next - self.acked).saturating_sub(after_gap);
        if bytes == 0 || (on_their_way > 0 && on_their_way + bytes > self.window) {
            return None;
        }
        self.next += bytes;
        Some((self.next - bytes, bytes as u32))
    }

    /// Starts to wait for an acknowledgement, if one is due and it does not wait: at least `least` from `since` on, when the
    /// first could have come. When to call [`Flow::timed_out`], if no call has been asked for that comes early enough.
    pub(super) fn arm(&mut self, since: Time, least: Span) -> Option<Time> {
        if self.acked == self.next {
            return None;
        }
        if self.deadline == Time::MAX {
            self.deadline = since + Span::from_nanos(least.as_nanos().saturating_mul(1 << self.doublings));
        }
        if self.alarm <= self.deadline {
            return None;
        }
        self.alarm = self.deadline;
        Some(self.alarm)
    }

    /// The receiver's side: a segment has come in. Delivers the messages that are complete, and acknowledges what is there without a gap.
    pub(super) fn received(&mut self, segment: &Segment, mut deliver: impl FnMut(M)) {
        let (start, end) = (segment.start, segment.start + u64::from(segment.bytes));
        if end > self.expected {
            let known = self.early.entry(start).or_insert(end);
            *known = end.max(*known);
        }
        while let Some((&start, &end)) = self.early.first_key_value()
            && start <= self.expected
        {
            self.expected = end.max(self.expected);
            self.early.pop_first();
        }
        while let Some(&(end, message)) = self.messages.front()
            && end <= self.expected
        {
            self.messages.pop_front();
            deliver(message);
        }
        self.acks.push_back(self.expected);
    }

    /// The sender's side: the next acknowledgement. What to send again at once, if it shows a loss.
    pub(super) fn acknowledged(&mut self) -> Option<(u64, u32)> {
        let upto = self.acks.pop_front()?;
        if upto > self.acked {
            let news = upto - self.acked;
            self.acked = upto;
            self.next = self.next.max(upto);
            (self.doublings, self.deadline) = (0, Time::MAX);
            if self.recovering && upto < self.recover {
                // Another gap. What came in after the first is no longer counted, and one segment may go in its place.
                let segments = u32::try_from(news.div_ceil(SEGMENT_BYTES)).unwrap_or(u32::MAX);
                self.duplicates = (self.duplicates + 1).saturating_sub(segments);
                return Some(self.first_missing());
            }
            self.duplicates = 0;
            if self.recovering {
                self.recovering = false;
            } else if self.window < self.threshold {
                self.window = self.window.saturating_add(news.min(2 * SEGMENT_BYTES));
            } else {
                self.window += (SEGMENT_BYTES * news / self.window).max(1);
            }
            return None;
        }
        if self.acked == self.next {
            return None;
        }
        self.duplicates += 1;
        if self.duplicates != DUPLICATES || self.recovering || self.acked < self.recover {
            return None;
        }
        self.back_off();
        self.window = self.threshold;
        self.recovering = true;
        Some(self.first_missing())
    }

    /// Whether the acknowledgement has been waited for too long: then everything since the last is sent again.
    pub(super) fn timed_out(&mut self, now: Time) -> bool {
        if self.alarm <= now {
            self.alarm = Time::MAX;
        }
        if now < self.deadline {
            return false;
        }
        self.deadline = Time::MAX;
        self.back_off();
        self.window = SEGMENT_BYTES;
        (self.next, self.duplicates, self.recovering) = (self.acked, 0, false);
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        true
    }

    /// For a loss that was noticed now.
    fn back_off(&mut self) {
        self.threshold = ((self.next - self.acked) / 2).max(2 * SEGMENT_BYTES);
        self.recover = self.recover.max(self.next);
    }

    fn first_missing(&self) -> (u64, u32) {
        (self.acked, SEGMENT_BYTES.min(self.end - self.acked) as u32)
    }
}

#[cfg(test)]
mod tests;
