//! What arrives at a client: replies, small ones by way of a buffer, large ones straight into the caller's memory.

use std::io::{self, IoSliceMut};
use std::mem;

use iogate_core::proto::client_session::Answered;
use iogate_core::wire::{Failure, REPLY_HEADER_BYTES, Record, ReplyHeader, Written};
use iogate_engine::store::Segment;

use super::call::{Answer, Call, not_understood};
use crate::transport::Socket;

/// The buffer; fields of any length fit.
const BUFFER_BYTES: usize = 128 << 10;
/// A payload of which so much is not in the buffer yet is read into its place directly.
const DIRECT_BYTES: usize = 16 << 10;
/// What is read at once into the buffer, at first and after such a payload: enough for a page, and little to copy of the next large
/// one. More while small replies fill it.
const AHEAD_BYTES: usize = 8 << 10;
/// What is read behind such a payload: the header of the next reply, but not much of its payload.
const BEHIND_BYTES: usize = 4 << 10;
/// Most pieces of memory in one call to the kernel.
const PIECES_MAX: usize = 64;

/// Replies being received.
pub(super) struct Incoming {
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// What is read at once into the buffer.
    ahead: usize,
    placing: Option<Placing>,
}

/// A payload on its way into its place.
struct Placing {
    header: ReplyHeader,
    fields: Vec<u8>,
    /// What is still to be filled.
    segments: Vec<Segment>,
    /// Where it goes if the request has no memory.
    payload: Vec<u8>,
}

/// Where a payload goes that is not in the buffer as a whole.
pub(super) enum Place {
    /// There.
    Into(Vec<Segment>),
    /// The reply is to be handed over with it.
    Own,
}

/// What is done with replies. Called under no lock.
pub(super) trait Replies {
    /// Where the payload of a reply goes. Fails if no such reply is expected.
    fn place(&mut self, id: u64) -> io::Result<Place>;

    /// Takes out the request that is answered, with these fields or this errno. Fails if no such reply is expected.
    fn take(&mut self, id: u64, outcome: Result<&[u8], i32>) -> io::Result<Answered<Call>>;

    /// The answer is complete.
    fn answered(&mut self, id: u64, call: Call, answer: io::Result<Answer>);
}

impl Default for Incoming {
    fn default() -> Incoming {
        Incoming { buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0, ahead: AHEAD_BYTES, placing: None }
    }
}

impl Incoming {
    /// Reads once, and hands on what is complete. True if there may be more to read. Fails if the connection is over.
    pub(super) fn receive(&mut self, socket: &dyn Socket, replies: &mut dyn Replies) -> io::Result<bool> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        let (count, room) = match self.read(socket) {
            Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        if self.placing.is_none() && count == room {
            self.ahead = (2 * self.ahead).min(BUFFER_BYTES);
        }
        self.advance(count);
        if let Some(placing) = self.placing.take_if(|placing| placing.segments.is_empty()) {
            let Placing { header, fields, payload, .. } = placing;
            let Answered { call, errno } = replies.take(header.id, outcome(&header, &fields))?;
            let bytes = if payload.is_empty() { u64::from(header.payload) } else { 0 };
            let answer = answer(&call, errno, &fields, bytes, payload);
            replies.answered(header.id, call, answer);
        }
        while self.placing.is_none() && self.parse(replies)? {}
        Ok(count == room)
    }

    /// Reads into the places first, and behind them into the buffer. Returns bytes read, and asked for.
    fn read(&mut self, socket: &dyn Socket) -> io::Result<(usize, usize)> {
        let until = self.buffer.len().min(self.end + self.ahead);
        let free = &mut self.buffer[self.end..until];
        let Some(placing) = &mut self.placing else {
            let room = free.len();
            return Ok((socket.read(&mut [IoSliceMut::new(free)])?, room));
        };
        let mut slices = [const { None::<IoSliceMut<'_>> }; PIECES_MAX];
        let (mut count, mut room) = (0, 0);
        for (slot, segment) in slices[1..].iter_mut().zip(&placing.segments) {
            // SAFETY: the memory belongs to a call that is not answered yet, and that only this thread can
            // answer or give up.
            *slot = Some(IoSliceMut::new(unsafe {
                std::slice::from_raw_parts_mut(segment.memory, segment.bytes)
            }));
            count += 1;
            room += segment.bytes;
        }
        let behind = free.len().min(BEHIND_BYTES);
        if count == placing.segments.len() && behind > 0 {
            slices[..=count].rotate_left(1);
            slices[count] = Some(IoSliceMut::new(&mut free[..behind]));
            room += behind;
        } else {
            slices[..=count].rotate_left(1);
        }
        let mut given: Vec<IoSliceMut<'_>> = slices.into_iter().flatten().collect();
        Ok((socket.read(&mut given)?, room))
    }

    fn advance(&mut self, mut count: usize) {
        if let Some(placing) = &mut self.placing {
            count -= skip(&mut placing.segments, count);
        }
        self.end += count;
    }

    /// Takes one message from the buffer. False if there is none that is complete.
    fn parse(&mut self, replies: &mut dyn Replies) -> io::Result<bool> {
        let bytes = &self.buffer[self.start..self.end];
        let Some((header, rest)) = bytes.split_first_chunk::<REPLY_HEADER_BYTES>() else {
            self.make_room(REPLY_HEADER_BYTES);
            return Ok(false);
        };
        let header = ReplyHeader::from_bytes(header).map_err(not_understood)?;
        let (fields_bytes, payload_bytes) = (usize::from(header.fields), header.payload as usize);
        let Some((fields, rest)) = rest.split_at_checked(fields_bytes) else {
            self.make_room(REPLY_HEADER_BYTES + fields_bytes);
            return Ok(false);
        };
        if header.id == 0 {
            let text = Failure::decode(fields).map_err(not_understood)?.text;
            return Err(io::Error::new(
                io::Error::from_raw_os_error(i32::from(header.errno)).kind(),
                format!("it ends the connection: {}", String::from_utf8_lossy(text)),
            ));
        }
        if let Some(payload) = rest.get(..payload_bytes) {
            let Answered { call, errno } = replies.take(header.id, outcome(&header, fields))?;
            let answer = if errno.is_none() && call.is_read() {
                // The request is taken out: it fails by itself, and not with the connection.
                check_fits(call.memory.segments(), payload_bytes).map(|()| {
                    copy(payload, call.memory.segments());
                    Answer::Read(payload_bytes as u64)
                })
            } else {
                answer(&call, errno, fields, 0, payload.to_vec())
            };
            self.start += REPLY_HEADER_BYTES + fields_bytes + payload_bytes;
            replies.answered(header.id, call, answer);
            return Ok(true);
        }
        let whole = REPLY_HEADER_BYTES + fields_bytes + payload_bytes;
        if payload_bytes - rest.len() < DIRECT_BYTES && whole <= BUFFER_BYTES {
            self.make_room(whole);
            return Ok(false);
        }
        let mut payload = Vec::new();
        let mut segments = match replies.place(header.id)? {
            Place::Into(segments) => fitting(segments, payload_bytes)?,
            Place::Own => {
                payload = vec![0; payload_bytes];
                vec![Segment { memory: payload.as_mut_ptr(), bytes: payload_bytes }]
            }
        };
        copy(rest, &segments);
        skip(&mut segments, rest.len());
        self.ahead = AHEAD_BYTES;
        self.placing = Some(Placing { header, fields: fields.to_vec(), segments, payload });
        (self.start, self.end) = (0, 0);
        Ok(true)
    }

    /// Makes sure that `bytes` bytes from the start on fit into the buffer.
    fn make_room(&mut self, bytes: usize) {
        if self.start + bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= mem::take(&mut self.start);
        }
    }
}

/// A reply's fields, or errno.
fn outcome<'a>(header: &ReplyHeader, fields: &'a [u8]) -> Result<&'a [u8], i32> {
    if header.errno == 0 { Ok(fields) } else { Err(header.errno.into()) }
}

/// What a reply says to a request that fails with `errno`, or does not.
fn answer(
    call: &Call,
    errno: Option<i32>,
    fields: &[u8],
    placed: u64,
    payload: Vec<u8>,
) -> io::Result<Answer> {
    if let Some(errno) = errno {
        let text = Failure::decode(fields).map_err(not_understood)?.text;
        if !text.is_empty() {
            tracing::debug!(errno, text = %String::from_utf8_lossy(text), "a request fails");
        }
        let error = io::Error::from_raw_os_error(errno);
        if call.is_of_person() && !text.is_empty() {
            return Err(io::Error::new(error.kind(), String::from_utf8_lossy(text).into_owned()));
        }
        return Err(error);
    }
    if call.is_read() {
        return Ok(Answer::Read(placed));
    }
    if call.is_write() {
        return Written::decode(fields).map(Answer::Written).map_err(not_understood);
    }
    Ok(Answer::Other { fields: fields.to_vec(), payload })
}

fn check_fits(segments: &[Segment], bytes: usize) -> io::Result<()> {
    let room: usize = segments.iter().map(|segment| segment.bytes).sum();
    if bytes > room {
        let text = format!("the server sends {bytes} bytes, expected at most {room}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    Ok(())
}

/// The first `bytes` bytes of the segments.
fn fitting(mut segments: Vec<Segment>, bytes: usize) -> io::Result<Vec<Segment>> {
    check_fits(&segments, bytes)?;
    let mut left = bytes;
    segments.retain_mut(|segment| {
        segment.bytes = segment.bytes.min(left);
        left -= segment.bytes;
        segment.bytes > 0
    });
    Ok(segments)
}

/// Copies as much as fits into the segments.
fn copy(mut bytes: &[u8], segments: &[Segment]) {
    for segment in segments {
        let (here, rest) = bytes.split_at(segment.bytes.min(bytes.len()));
        // SAFETY: the memory belongs to a call that is not answered yet, and that only this thread can answer or
        // give up; the buffer is apart from it.
        unsafe { segment.memory.copy_from_nonoverlapping(here.as_ptr(), here.len()) };
        bytes = rest;
    }
}

/// Takes up to `count` bytes off the front of the segments; returns how many there were.
fn skip(segments: &mut Vec<Segment>, count: usize) -> usize {
    let (mut left, mut whole) = (count, 0);
    for segment in segments.iter_mut() {
        if left < segment.bytes {
            segment.memory = segment.memory.wrapping_add(left);
            segment.bytes -= left;
            left = 0;
            break;
        }
        left -= segment.bytes;
        whole += 1;
    }
    segments.drain(..whole);
    count - left
}
