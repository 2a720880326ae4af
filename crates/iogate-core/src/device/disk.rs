//! A hard disk.
//!
//! **Modelled:** the arm (see [`SeekTimes`]); the platter, whose angle is a function of time; tracks, with
//! a pause for the switch from each to the next and the sectors skewed by just that pause; zones, each with
//! its own track size; the read cache, a few segments that go on being filled after a read until they are
//! full or the arm is needed elsewhere, so that a sequential reader never waits for the platter; the write
//! cache, which takes writes at the speed of the interface up to a bound, and puts them on the medium
//! sweep by sweep when the arm is free or the bound is reached; command overhead and interface rate.
//!
//! **Left out:** queued commands (by itself it serves one transfer at a time, in the order in which they come; `command_queue`
//! has the rest), remapped sectors, retries, thermal recalibration, spindle start, shingled tracks, reads
//! that find part of their bytes in the write cache (they go to the medium), and write data kept for reads.
//!
//! **Numbers** come from data sheets, by way of [`DiskConfig`]: see the presets. Geometry follows from them:
//! Hitachi's specifications define the sustained rate as a track's bytes over a revolution and a switch
//! (Deskstar 7K500 specification, 4.4.4), which gives the track size in each zone; and the number of
//! cylinders follows from capacity and heads. The rate falls linearly from the outermost to the innermost
//! of 16 zones of equally many cylinders; drives have about 30 (Deskstar T7K250: 30), with smaller steps.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::divisor::Divisor;
use super::recency::Recency;
use super::seek::SeekCurve;
use super::write_cache::WriteCache;
use super::{Device, SeekTimes, Transfer, for_each_piece, transfer_ns};
use crate::request::Op;
use crate::time::{Span, Time};

const ZONES: u64 = 16;
/// Most bytes that the write cache puts on the medium without looking at whether a read came.
const DESTAGE_BYTES: u64 = 512 * 1024;

/// What a data sheet says of a disk. Values that no disk has are brought to the nearest that the arithmetic
/// can take: a capacity of 512 bytes to 1 PB, rates of 1 MB/s to 10 GB/s, a revolution of 1 us to 100 ms,
/// a switch of at most 100 ms, 1 to 64 heads, a write cache of at most 1 GiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskConfig {
    /// Capacity in bytes.
    pub capacity: u64,
    /// Time of one revolution.
    pub revolution: Span,
    /// Recording surfaces.
    pub heads: u32,
    /// Sustained rate of the outermost zone, where address 0 is.
    pub outer_bytes_per_s: u64,
    /// Sustained rate of the innermost zone.
    pub inner_bytes_per_s: u64,
    /// Pause at the end of a track: the mean of head and cylinder switches.
    pub track_switch: Span,
    /// Seek times of reads.
    pub read_seek: SeekTimes,
    /// Seek times of writes, which must settle more exactly.
    pub write_seek: SeekTimes,
    /// From a command's arrival to the start of the arm, and whatever else a command costs.
    pub command_overhead: Span,
    /// Rate between host and buffer.
    pub interface_bytes_per_s: u64,
    /// Segments of the read cache; 0 for none.
    pub segments: u32,
    /// Bytes of each; half of it is for what was read, half for reading ahead.
    pub segment_bytes: u64,
    /// Most bytes written and not yet on the medium; 0 if the write cache is off.
    pub write_cache_bytes: u64,
}

/// A hard disk.
///
/// A byte's place on the medium is held as one number: when a head that streams from address 0 at time 0
/// reaches it. Its remainder by the revolution is the byte's angle, and its quotient by a revolution and a
/// switch is the byte's track; and how long a stream takes from one byte to another is a difference.
#[derive(Clone, Debug)]
pub struct Disk {
    config: DiskConfig,
    capacity: u64,
    revolution_ns: Divisor,
    /// A revolution and a switch.
    track_ns: Divisor,
    heads: Divisor,
    interface_bytes_per_s: Divisor,
    /// Where the zones start, side by side: to find one all are looked at.
    zone_starts: [u64; ZONES as usize],
    zones: Box<[Zone]>,
    read_curve: SeekCurve,
    write_curve: SeekCurve,
    /// Where the arm was left.
    head: Position,
    /// When the medium is free of what it was last given, read-ahead not counted.
    medium_free_ns: u64,
    segments: Box<[Segment]>,
    /// In which order they were used.
    recency: Recency,
    ahead: Option<ReadAhead>,
    write_cache: WriteCache,
    repositions: u64,
    /// How far the platter has turned at time 0.
    phase_ns: u64,
}

/// A place on the medium.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    address: u64,
    stream_ns: u64,
    track: u64,
    zone: usize,
}

/// What arm and platter need to know of a position: worked out once for one that is compared with others again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Aim {
    pub(super) cylinder: u64,
    track: u64,
    pub(super) angle_ns: u64,
}

#[derive(Clone, Debug)]
struct Zone {
    start: u64,
    end: u64,
    stream_ns: u64,
    first_track: u64,
    track_bytes: Divisor,
}

/// A range of the read cache. The end is not before the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    start: u64,
    end: u64,
}

impl Segment {
    /// Whether a read at `address` begins in it or goes on after it.
    pub(super) fn reaches(&self, address: u64) -> bool {
        // One comparison that is mostly false is foreseen by the processor, where one for each end is not.
        address.wrapping_sub(self.start) <= self.end - self.start
    }
}

/// The head streams into a segment: it reaches `until` at `until_ns` and stops there.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    segment: usize,
    until: Position,
    until_ns: u64,
}

impl Disk {
    /// A disk with empty caches and the arm at address 0.
    pub fn new(config: DiskConfig) -> Disk {
        let capacity = config.capacity.clamp(512, 1_000_000_000_000_000);
        let revolution_ns = config.revolution.as_nanos().clamp(1_000, 100_000_000);
        let track_ns = revolution_ns + config.track_switch.as_nanos().min(100_000_000);
        let heads = u64::from(config.heads.clamp(1, 64));
        let rate = |zone: u64| {
            let outer = config.outer_bytes_per_s.clamp(1_000_000, 10_000_000_000);
            let inner = config.inner_bytes_per_s.clamp(1_000_000, outer);
            outer - (outer - inner) * zone / (ZONES - 1)
        };
        let track_bytes = |zone: u64| (rate(zone) / 512 * track_ns / 1_000_000_000).max(1) * 512;
        let bytes_of_a_track_in_each: u64 = (0..ZONES).map(track_bytes).sum();
        let zone_cylinders = capacity.div_ceil(bytes_of_a_track_in_each).div_ceil(heads);
        let zone_tracks = zone_cylinders * heads;
        let mut start = 0;
        let zones: Box<[Zone]> = (0..ZONES)
            .map(|index| {
                let zone_bytes = zone_tracks * track_bytes(index);
                let zone = Zone {
                    start,
                    end: start + zone_bytes,
                    stream_ns: index * zone_tracks * track_ns,
                    first_track: index * zone_tracks,
                    track_bytes: Divisor::new(track_bytes(index)),
                };
                start += zone_bytes;
                zone
            })
            .collect();
        let cylinders = zone_cylinders * ZONES;
        Disk {
            config: DiskConfig { segment_bytes: config.segment_bytes.max(1), ..config },
            capacity,
            revolution_ns: Divisor::new(revolution_ns),
            track_ns: Divisor::new(track_ns),
            heads: Divisor::new(heads),
            interface_bytes_per_s: Divisor::new(config.interface_bytes_per_s.max(1_000_000)),
            zone_starts: core::array::from_fn(|index| zones[index].start),
            zones,
            read_curve: SeekCurve::new(config.read_seek, cylinders),
            write_curve: SeekCurve::new(config.write_seek, cylinders),
            head: Position { address: 0, stream_ns: 0, track: 0, zone: 0 },
            medium_free_ns: 0,
            recency: Recency::new(config.segments),
            segments: Vec::from_iter((0..config.segments).map(|_| Segment::default())).into_boxed_slice(),
            ahead: None,
            write_cache: WriteCache::new(config.write_cache_bytes.min(1 << 30)),
            repositions: 0,
            phase_ns: 0,
        }
    }

    /// The same disk, whose platter is `phase` further at time 0: two disks never turn in step.
    pub fn with_phase(self, phase: Span) -> Disk {
        let (_, phase_ns) = self.revolution_ns.div_rem(phase.as_nanos());
        Disk { phase_ns, ..self }
    }

    pub(super) fn position(&self, address: u64) -> Position {
        // Counting all of them needs no branch, which for a random address would often be mispredicted.
        let zone = self.zone_starts.iter().map(|start| usize::from(*start <= address)).sum::<usize>() - 1;
        self.position_in(zone, address)
    }

    /// The position of `address`, which is probably in the zone of `near`.
    fn position_near(&self, near: Position, address: u64) -> Position {
        let zone = &self.zones[near.zone];
        if zone.start <= address && address < zone.end {
            self.position_in(near.zone, address)
        } else {
            self.position(address)
        }
    }

    fn position_in(&self, index: usize, address: u64) -> Position {
        let zone = &self.zones[index];
        let (track, offset) = zone.track_bytes.div_rem(address - zone.start);
        let (in_track_ns, _) = zone.track_bytes.div_rem(offset * self.revolution_ns.get());
        Position {
            address,
            stream_ns: zone.stream_ns + track * self.track_ns.get() + in_track_ns,
            track: zone.first_track + track,
            zone: index,
        }
    }

    /// Where a head is that has streamed to `stream_ns` and would go on to `until`; its address is the
    /// first that it has not read.
    fn position_at(&self, stream_ns: u64, until: Position) -> Position {
        let index = match self.zones[..=until.zone].iter().rposition(|zone| zone.stream_ns <= stream_ns) {
            Some(index) => index,
            None => return until,
        };
        let zone = &self.zones[index];
        let (track, in_track_ns) = self.track_ns.div_rem(stream_ns - zone.stream_ns);
        let scaled = in_track_ns.min(self.revolution_ns.get()) * zone.track_bytes.get();
        let (offset, _) = self.revolution_ns.div_rem(scaled);
        Position {
            address: zone.start + track * zone.track_bytes.get() + offset,
            stream_ns,
            track: zone.first_track + track,
            zone: index,
        }
    }

    pub(super) fn aim(&self, at: Position) -> Aim {
        Aim {
            cylinder: self.heads.div_rem(at.track).0,
            track: at.track,
            angle_ns: self.revolution_ns.div_rem(at.stream_ns).1,
        }
    }

    /// How far the platter has turned at `ns`.
    pub(super) fn angle_ns(&self, ns: u64) -> u64 {
        self.revolution_ns.div_rem(ns.saturating_add(self.phase_ns)).1
    }

    /// How long the platter takes from an angle until `target` passes under the head.
    pub(super) fn turn_ns(&self, angle_ns: u64, target: Aim) -> u64 {
        let wanted_ns = target.angle_ns;
        if wanted_ns >= angle_ns {
            wanted_ns - angle_ns
        } else {
            wanted_ns + self.revolution_ns.get() - angle_ns
        }
    }

    /// When the platter brings `target` under a head that is at its track at `ns`.
    pub(super) fn turned_at(&self, ns: u64, target: Aim) -> u64 {
        ns.saturating_add(self.turn_ns(self.angle_ns(ns), target))
    }

    /// How long the arm takes from one position to another: over more cylinders never less.
    pub(super) fn arm_ns(&self, from: Aim, target: Aim, op: Op) -> u64 {
        let cylinders = from.cylinder.abs_diff(target.cylinder);
        match op {
            _ if from.track == target.track => 0,
            _ if cylinders == 0 => self.track_ns.get() - self.revolution_ns.get(),
            Op::Read => self.read_curve.ns(cylinders),
            Op::Write => self.write_curve.ns(cylinders),
        }
    }

    /// Whether the arm takes no longer than `ns` from one position to another.
    pub(super) fn arm_reaches(&self, from: Aim, target: Aim, op: Op, ns: u64) -> bool {
        let cylinders = from.cylinder.abs_diff(target.cylinder);
        match op {
            _ if from.track == target.track => true,
            _ if cylinders == 0 => self.track_ns.get() - self.revolution_ns.get() <= ns,
            Op::Read => self.read_curve.reaches(cylinders, ns),
            Op::Write => self.write_curve.reaches(cylinders, ns),
        }
    }

    /// When the head reads or writes the byte at `target`, if the arm starts at `ns`.
    fn reach(&mut self, ns: u64, target: Position, op: Op) -> u64 {
        self.repositions += u64::from(target.address != self.head.address);
        let (from, target) = (self.aim(self.head), self.aim(target));
        self.turned_at(ns.saturating_add(self.arm_ns(from, target, op)), target)
    }

    /// Where the arm is at `ns`, when nothing but reading ahead goes on.
    pub(super) fn head_at(&self, ns: u64) -> Position {
        match self.ahead {
            None => self.head,
            Some(ahead) if ns >= ahead.until_ns => ahead.until,
            Some(ahead) => {
                let stream_ns = ahead.until.stream_ns.saturating_sub(ahead.until_ns - ns);
                self.position_at(stream_ns, ahead.until)
            }
        }
    }

    /// Where the head is reading ahead: for a read that [goes on](Segment::reaches) there nothing is to be positioned.
    pub(super) fn reading_ahead(&self) -> Option<Segment> {
        self.ahead.map(|ahead| self.segments[ahead.segment])
    }

    /// Whether all of `address..end` is in one of the caches, or on its way into one.
    pub(super) fn holds(&self, address: u64, end: u64) -> bool {
        let whole = |segment: &Segment| segment.reaches(address) && end <= segment.end;
        self.write_cache.contains(address, end)
            || self.segments.iter().enumerate().any(|(index, segment)| {
                whole(segment) && self.ahead.is_none_or(|ahead| ahead.segment != index)
            })
    }

    /// Carries out `start..end` on the medium, beginning at `ns`, and says when it is done.
    fn access(&mut self, ns: u64, start: Position, end: Position, op: Op) -> u64 {
        let done_ns = self.reach(ns, start, op).saturating_add(end.stream_ns - start.stream_ns);
        self.head = end;
        self.medium_free_ns = done_ns;
        done_ns
    }

    /// Ends the read-ahead, as the arm is needed from `ns` on.
    fn stop_ahead(&mut self, ns: u64) {
        let head = self.head_at(ns);
        if let Some(ahead) = self.ahead.take() {
            self.head = head;
            let segment = &mut self.segments[ahead.segment];
            segment.end = segment.end.min(self.head.address).max(segment.start);
        }
    }

    /// Puts the next piece of the write cache on the medium, beginning no earlier than `ns`.
    fn destage(&mut self, ns: u64) {
        if let Some((address, end)) = self.write_cache.take_next(self.head.address, DESTAGE_BYTES) {
            let start = self.position(address);
            let end = self.position_near(start, end);
            self.access(ns.max(self.medium_free_ns), start, end, Op::Write);
        }
    }

    /// What is written and not yet on the medium, for a queue that puts it there by itself.
    pub(super) fn write_cache(&self) -> &WriteCache {
        &self.write_cache
    }

    /// Takes `address..end` into the write cache, from where [`Disk::put`] takes it.
    pub(super) fn hold(&mut self, ns: u64, address: u64, end: u64) {
        self.forget(ns, address, end);
        self.write_cache.insert(address, end);
    }

    /// Puts a piece of the range at `index` of the write cache on the medium from `ns` on; says when it is there.
    pub(super) fn put(&mut self, ns: u64, index: usize) -> u64 {
        let Some((address, end)) = self.write_cache.take_at(index, DESTAGE_BYTES) else { return ns };
        self.stop_ahead(ns);
        let start = self.position(address);
        let end = self.position_near(start, end);
        self.access(ns, start, end, Op::Write)
    }

    /// Carries out a command on the medium; the arm starts at `ns`. Says when it is done.
    pub(super) fn carry_out(&mut self, ns: u64, op: Op, address: u64, end: u64) -> u64 {
        let ns = ns.max(self.medium_free_ns);
        match op {
            Op::Read => self.read(ns.saturating_sub(self.config.command_overhead.as_nanos()), address, end),
            Op::Write => {
                self.forget(ns, address, end);
                self.stop_ahead(ns);
                let start = self.position(address);
                let stop = self.position_near(start, end);
                self.access(ns, start, stop, Op::Write)
            }
        }
    }

    /// What a command costs before the arm starts, and how long its bytes take between host and buffer.
    pub(super) fn host_ns(&self, bytes: u64) -> (u64, u64) {
        (self.config.command_overhead.as_nanos(), self.sent_ns(bytes))
    }

    /// How long bytes take between host and buffer, rounded up: [`transfer_ns`] without its division.
    fn sent_ns(&self, bytes: u64) -> u64 {
        match bytes.checked_mul(1_000_000_000) {
            Some(scaled) => {
                let (ns, rest) = self.interface_bytes_per_s.div_rem(scaled);
                ns + u64::from(rest > 0)
            }
            None => transfer_ns(bytes, self.interface_bytes_per_s.get()),
        }
    }

    /// Forgets what the read cache holds of `address..end`, which is written.
    fn forget(&mut self, ns: u64, address: u64, end: u64) {
        if self.segments.iter().any(|segment| address < segment.end && segment.start < end) {
            self.stop_ahead(ns);
            for (index, segment) in self.segments.iter_mut().enumerate() {
                if address < segment.end && segment.start < end {
                    *segment = Segment::default();
                    self.recency.forgotten(index);
                }
            }
        }
    }

    /// Brings the write cache up to date: what the disk has done by itself since the last transfer. It
    /// reads ahead first, then writes.
    fn catch_up(&mut self, now_ns: u64) {
        while !self.write_cache.is_empty() {
            let free_ns = self.medium_free_ns.max(self.ahead.map_or(0, |ahead| ahead.until_ns));
            if free_ns >= now_ns {
                break;
            }
            self.stop_ahead(free_ns);
            self.destage(free_ns);
        }
    }

    /// Serves a read of `address..end` that arrives at `now_ns`; says when it is done.
    fn read(&mut self, now_ns: u64, address: u64, end: u64) -> u64 {
        let begin_ns = now_ns.saturating_add(self.config.command_overhead.as_nanos());
        let sent_ns = begin_ns.saturating_add(self.sent_ns(end - address));
        if self.write_cache.contains(address, end) {
            return sent_ns;
        }
        let hit = self.segments.iter().position(|segment| segment.reaches(address));
        if let (Some(index), Some(ahead)) = (hit, self.ahead)
            && ahead.segment == index
        {
            self.recency.used(index);
            return sent_ns.max(self.read_on(begin_ns, end, ahead));
        }
        let cached_end = hit.map_or(address, |index| self.segments[index].end);
        if let Some(index) = hit
            && end <= cached_end
        {
            self.recency.used(index);
            return sent_ns;
        }
        // What the cache does not hold comes from the medium, and the segment goes on from there.
        self.stop_ahead(begin_ns);
        let start = self.position(cached_end);
        let stop = self.position_near(start, end);
        let done_ns = self.access(begin_ns.max(self.medium_free_ns), start, stop, Op::Read);
        let reusable = hit.or_else(|| self.recency.least());
        if let Some(index) = reusable {
            let start = hit.map_or(address, |index| self.segments[index].start);
            self.segments[index] = Segment { start, end };
            self.recency.used(index);
            self.read_ahead(index, end, stop, done_ns);
        }
        sent_ns.max(done_ns)
    }

    /// Serves a read to `end` from the segment that the head streams into; says when the data is there.
    fn read_on(&mut self, begin_ns: u64, end: u64, ahead: ReadAhead) -> u64 {
        let stop = self.position_near(ahead.until, end);
        // A head that has stopped resumes when its place comes round again.
        let until_ns = if ahead.until_ns >= begin_ns {
            ahead.until_ns
        } else {
            self.turned_at(begin_ns, self.aim(ahead.until))
        };
        let (ready_ns, streamed, streamed_ns) = if end <= ahead.until.address {
            let before_ns = ahead.until.stream_ns - stop.stream_ns;
            (ahead.until_ns.saturating_sub(before_ns), ahead.until, until_ns)
        } else {
            let ready_ns = until_ns.saturating_add(stop.stream_ns - ahead.until.stream_ns);
            (ready_ns, stop, ready_ns)
        };
        self.read_ahead(ahead.segment, end, streamed, streamed_ns);
        ready_ns
    }

    /// Lets the head stream on from `from`, where it is at `from_ns`, until the segment is full, if the host
    /// has read up to `read_end`.
    fn read_ahead(&mut self, segment: usize, read_end: u64, from: Position, from_ns: u64) {
        let until = read_end.saturating_add(self.config.segment_bytes / 2).min(self.capacity);
        if until <= from.address && self.ahead.is_some() {
            return;
        }
        let until = self.position_near(from, until);
        let until_ns = from_ns.saturating_add(until.stream_ns - from.stream_ns);
        let cached = &mut self.segments[segment];
        cached.end = until.address;
        cached.start = cached.start.max(until.address.saturating_sub(self.config.segment_bytes));
        self.ahead = Some(ReadAhead { segment, until, until_ns });
    }

    /// Serves a write of `address..end` that arrives at `now_ns`; says when it is done.
    fn write(&mut self, now_ns: u64, address: u64, end: u64) -> u64 {
        let begin_ns = now_ns.saturating_add(self.config.command_overhead.as_nanos());
        let sent_ns = begin_ns.saturating_add(self.sent_ns(end - address));
        self.forget(begin_ns, address, end);
        if !self.write_cache.is_enabled() {
            self.stop_ahead(begin_ns);
            let start = self.position(address);
            let stop = self.position_near(start, end);
            return sent_ns.max(self.access(begin_ns.max(self.medium_free_ns), start, stop, Op::Write));
        }
        if self.write_cache.is_empty() {
            self.medium_free_ns = self.medium_free_ns.max(begin_ns);
        }
        self.write_cache.insert(address, end);
        let mut done_ns = sent_ns;
        while self.write_cache.is_over_full() {
            // A medium that has something to write goes on with it at once, whatever the command costs.
            self.stop_ahead(now_ns);
            self.destage(now_ns);
            done_ns = done_ns.max(self.medium_free_ns);
        }
        done_ns
    }
}

impl Device for Disk {
    fn serve(&mut self, now: Time, transfer: Transfer) -> Span {
        let mut ns = now.as_nanos();
        for_each_piece(self.capacity, transfer, |address, end| {
            self.catch_up(ns);
            ns = match transfer.op {
                Op::Read => self.read(ns, address, end),
                Op::Write => self.write(ns, address, end),
            };
        });
        Time::from_nanos(ns).since(now)
    }

    fn flush(&mut self, now: Time) -> Span {
        let now_ns = now.as_nanos();
        self.catch_up(now_ns);
        let mut done_ns = now_ns.saturating_add(self.config.command_overhead.as_nanos());
        if !self.write_cache.is_empty() {
            self.stop_ahead(done_ns);
        }
        while !self.write_cache.is_empty() {
            self.destage(done_ns);
        }
        done_ns = done_ns.max(self.medium_free_ns);
        Time::from_nanos(done_ns).since(now)
    }

    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn repositions(&self) -> u64 {
        self.repositions
    }
}
