//! What arrives at a gate and completes, kept for somebody who reads it: a bounded ring for each recording.
//!
//! Who drives a gate tells [`Recordings`] of each arrival and completion, under the lock that it holds for the gate anyway; while
//! nobody records this is one comparison. A reader names its recording by a number of its own choosing and says how many
//! events it has, so that an answer that was lost is asked for again. What finds a ring full is lost: nobody waits for a
//! reader, and arrivals that are lost are counted where they are missing. A recording that nobody reads for [`PATIENCE`] ends.
//!
//! As bytes: the number of the first event and the arrivals lost behind the last one, eight bytes each, then the events, of
//! [`EVENT_BYTES`] each; all numbers little-endian.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::request::{AppId, ClientId, FileId, Op, Request, RequestId};
use crate::time::{Span, Time};

/// Most recordings of a gate at once.
pub const RECORDINGS_MAX: usize = 4;
/// Most events in a ring: 4 MiB.
pub const EVENTS_MAX: usize = 1 << 16;
/// How long a recording stays that nobody reads.
pub const PATIENCE: Span = Span::from_secs(10);
/// An event as bytes.
pub const EVENT_BYTES: usize = 48;
/// What is before the events.
const HEADER_BYTES: usize = 16;

/// Something that happened at a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was taken in.
    Arrived {
        /// Tells it from all others that are in the gate.
        id: RequestId,
        /// When.
        time: Time,
        /// Its application.
        app: AppId,
        /// Its client.
        client: ClientId,
        /// Its file.
        file: FileId,
        /// Read or write.
        op: Op,
        /// Its first byte.
        offset: u64,
        /// Its length.
        bytes: u32,
    },
    /// A request is over, well or not.
    Completed {
        /// The one that arrived with this id.
        id: RequestId,
        /// When.
        time: Time,
        /// When the dispatch that carried it out was handed over, of several the last; `None`: it is not known.
        began: Option<Time>,
    },
    /// So many arrived here that had no room.
    Lost {
        /// How many.
        arrivals: u64,
    },
}

/// What a reader gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    /// The number of the first event: more than was asked for if the reader comes too late.
    pub first: u64,
    /// The events.
    pub events: Vec<Event>,
    /// Arrivals lost behind the last event, where that was also the last in the ring: they come as an event later.
    pub lost: u64,
}

/// Why a recording is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordingError {
    /// There are as many as there may be.
    #[error("{RECORDINGS_MAX} recordings of this gate are underway: end one of them")]
    TooMany,
    /// It has ended, or never begun.
    #[error("the recording has ended: nobody has read it for {} s, or the gate is a new one", PATIENCE.as_secs_f64())]
    Ended,
}

/// All recordings of a gate.
#[derive(Debug, Default)]
pub struct Recordings(Vec<Recording>);

#[derive(Debug)]
struct Recording {
    name: u64,
    read: Time,
    ring: Ring,
}

impl Recordings {
    /// Tells of a request that the gate has taken in.
    pub fn arrived(&mut self, now: Time, request: &Request) {
        if self.0.is_empty() {
            return;
        }
        let &Request { id, app, client, file, op, offset, bytes, .. } = request;
        self.push(now, Event::Arrived { id, time: now, app, client, file, op, offset, bytes });
    }

    /// Tells of a request that is over; its last dispatch `began` then.
    pub fn completed(&mut self, now: Time, id: RequestId, began: Time) {
        if !self.0.is_empty() {
            self.push(now, Event::Completed { id, time: now, began: Some(began) });
        }
    }

    #[cold]
    fn push(&mut self, now: Time, event: Event) {
        self.0.retain_mut(|recording| {
            recording.ring.push(event);
            now.since(recording.read) < PATIENCE
        });
    }

    /// What has happened from event `from` on, as at most `room` bytes. From 0 a recording begins if there is none of this name.
    pub fn read(&mut self, now: Time, name: u64, from: u64, room: usize) -> Result<Vec<u8>, RecordingError> {
        self.0.retain(|recording| recording.name == name || now.since(recording.read) < PATIENCE);
        let recording = match self.0.iter().position(|recording| recording.name == name) {
            Some(index) => &mut self.0[index],
            None if from > 0 => return Err(RecordingError::Ended),
            None if self.0.len() == RECORDINGS_MAX => return Err(RecordingError::TooMany),
            None => {
                self.0.push(Recording { name, read: now, ring: Ring::new(EVENTS_MAX) });
                self.0.last_mut().expect("one was just added")
            }
        };
        recording.read = now;
        Ok(recording.ring.read(from, room))
    }

    /// Ends a recording.
    pub fn end(&mut self, name: u64) {
        self.0.retain(|recording| recording.name != name);
    }
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Event>,
    events_max: usize,
    /// The number of the first of them.
    first: u64,
    /// Arrivals that had no room since the last event.
    lost: u64,
}

impl Ring {
    fn new(events_max: usize) -> Ring {
        Ring { events: VecDeque::with_capacity(events_max), events_max, first: 0, lost: 0 }
    }

    fn push(&mut self, event: Event) {
        let needs = if self.lost > 0 { 2 } else { 1 };
        if self.events.len() + needs > self.events_max {
            self.lost += u64::from(matches!(event, Event::Arrived { .. }));
            return;
        }
        if self.lost > 0 {
            self.events.push_back(Event::Lost { arrivals: self.lost });
            self.lost = 0;
        }
        self.events.push_back(event);
    }

    fn read(&mut self, from: u64, room: usize) -> Vec<u8> {
        let have = from.saturating_sub(self.first).min(self.events.len() as u64);
        self.events.drain(..have as usize);
        self.first += have;
        let count = self.events.len().min(room.saturating_sub(HEADER_BYTES) / EVENT_BYTES);
        let lost = if count == self.events.len() { self.lost } else { 0 };
        let mut out = Vec::with_capacity(HEADER_BYTES + count * EVENT_BYTES);
        out.extend(self.first.to_le_bytes());
        out.extend(lost.to_le_bytes());
        for event in self.events.iter().take(count) {
            event.encode(&mut out);
        }
        out
    }
}

const READ: u8 = 1;
const WRITE: u8 = 2;
const COMPLETED: u8 = 3;
const LOST: u8 = 4;

impl Event {
    fn encode(&self, out: &mut Vec<u8>) {
        let end = out.len() + EVENT_BYTES;
        match *self {
            Event::Arrived { id, time, app, client, file, op, offset, bytes } => {
                out.push(if op == Op::Read { READ } else { WRITE });
                out.extend([0; 3]);
                out.extend(bytes.to_le_bytes());
                out.extend(id.0.to_le_bytes());
                out.extend(time.as_nanos().to_le_bytes());
                out.extend(app.0.to_le_bytes());
                out.extend(client.0.to_le_bytes());
                out.extend(file.0.to_le_bytes());
                out.extend(offset.to_le_bytes());
            }
            Event::Completed { id, time, began } => {
                out.extend(u64::from(COMPLETED).to_le_bytes());
                out.extend(id.0.to_le_bytes());
                out.extend(time.as_nanos().to_le_bytes());
                // Gates of before leave it 0.
                out.extend(began.map_or(0, Time::as_nanos).to_le_bytes());
            }
            Event::Lost { arrivals } => {
                out.extend(u64::from(LOST).to_le_bytes());
                out.extend(arrivals.to_le_bytes());
            }
        }
        out.resize(end, 0);
    }

    fn decode(bytes: &[u8]) -> Option<Event> {
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let op = match *bytes.first()? {
            READ => Op::Read,
            WRITE => Op::Write,
            COMPLETED => {
                let began = Some(word(24)?).filter(|began| *began > 0).map(Time::from_nanos);
                let (id, time) = (RequestId(word(8)?), Time::from_nanos(word(16)?));
                return Some(Event::Completed { id, time, began });
            }
            LOST => return Some(Event::Lost { arrivals: word(8)? }),
            _ => return None,
        };
        Some(Event::Arrived {
            id: RequestId(word(8)?),
            time: Time::from_nanos(word(16)?),
            app: AppId(half(24)?),
            client: ClientId(half(28)?),
            file: FileId(word(32)?),
            op,
            offset: word(40)?,
            bytes: half(4)?,
        })
    }
}

impl Chunk {
    /// Takes apart what [`Recordings::read`] gave. None if it is something else.
    pub fn decode(bytes: &[u8]) -> Option<Chunk> {
        let (header, events) = bytes.split_at_checked(HEADER_BYTES)?;
        if events.len() % EVENT_BYTES != 0 {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let events = events.chunks(EVENT_BYTES).map(Event::decode).collect::<Option<_>>()?;
        Some(Chunk { first: word(0)?, lost: word(8)?, events })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * 1_000_000)
    }

    fn request(id: u64) -> Request {
        Request {
            id: RequestId(id),
            file: FileId(u64::MAX - id),
            op: if id.is_multiple_of(2) { Op::Read } else { Op::Write },
            offset: id << 40,
            bytes: 4096,
            app: AppId(7),
            client: ClientId(id as u32),
            target: None,
            issued: None,
        }
    }

    fn arrived(ms: u64, id: u64) -> Event {
        let Request { id, file, op, offset, bytes, app, client, .. } = request(id);
        Event::Arrived { id, time: at(ms), app, client, file, op, offset, bytes }
    }

    #[test]
    fn a_reader_gets_everything_once_and_again_if_it_asks() {
        let mut recordings = Recordings::default();
        recordings.arrived(at(0), &request(1));
        let read = |recordings: &mut Recordings, from, room| {
            Chunk::decode(&recordings.read(at(1), 9, from, room).unwrap()).unwrap()
        };
        assert_eq!(read(&mut recordings, 0, 1 << 16), Chunk::default(), "what was before is not in it");
        recordings.arrived(at(1), &request(2));
        recordings.arrived(at(2), &request(3));
        recordings.completed(at(3), RequestId(2), at(2));
        let over = Event::Completed { id: RequestId(2), time: at(3), began: Some(at(2)) };
        let all = vec![arrived(1, 2), arrived(2, 3), over];
        for _ in 0..2 {
            assert_eq!(read(&mut recordings, 0, 1 << 16), Chunk { first: 0, events: all.clone(), lost: 0 });
        }
        let room_for_one = HEADER_BYTES + EVENT_BYTES;
        assert_eq!(read(&mut recordings, 2, room_for_one).events, all[2..]);
        assert_eq!(read(&mut recordings, 0, 1 << 16).first, 2, "what was acknowledged is gone");
        assert!(read(&mut recordings, 99, 1 << 16).events.is_empty());
    }

    #[test]
    fn what_has_no_room_is_counted_where_it_is_missing() {
        let mut ring = Ring::new(3);
        for id in 0..3 {
            ring.push(arrived(id, id));
        }
        ring.push(arrived(3, 3));
        ring.push(Event::Completed { id: RequestId(0), time: at(4), began: None });
        ring.push(arrived(5, 5));
        let chunk = |ring: &mut Ring, from| Chunk::decode(&ring.read(from, 1 << 16)).unwrap();
        assert_eq!((chunk(&mut ring, 0).events.len(), chunk(&mut ring, 0).lost), (3, 2));
        chunk(&mut ring, 2);
        ring.push(arrived(6, 6));
        let found = chunk(&mut ring, 3);
        assert_eq!(
            found,
            Chunk { first: 3, events: vec![Event::Lost { arrivals: 2 }, arrived(6, 6)], lost: 0 }
        );
    }

    #[test]
    fn recordings_are_few_and_end_when_nobody_reads() {
        let mut recordings = Recordings::default();
        for name in 0..RECORDINGS_MAX as u64 {
            recordings.read(at(0), name, 0, 100).unwrap();
        }
        assert_eq!(recordings.read(at(1), 99, 0, 100), Err(RecordingError::TooMany));
        recordings.end(0);
        assert_eq!(recordings.read(at(2), 0, 1, 100), Err(RecordingError::Ended));
        recordings.read(at(9_000), 1, 0, 100).unwrap();
        recordings.arrived(at(10_001), &request(1));
        assert_eq!(recordings.0.len(), 1, "the others have not been read for ten seconds");
        recordings.arrived(at(19_001), &request(2));
        assert!(recordings.0.is_empty());
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in
            [&[0; 15][..], &[0; 17], &[0; HEADER_BYTES + EVENT_BYTES], &[9; HEADER_BYTES + EVENT_BYTES]]
        {
            assert_eq!(Chunk::decode(bytes), None);
        }
    }
}
