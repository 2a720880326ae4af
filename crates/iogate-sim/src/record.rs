//! Recorded arrivals and completions as rows of a trace, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};

use iogate_core::recording::Event;
use iogate_core::{AppId, ClientId, FileId, Op, RequestId, Time};

use crate::trace::Micros;

/// The first line of a trace that was recorded.
pub const HEADER: &str = "time_us,app,client,file,op,offset,bytes,done_us,lost\n";

/// Rows that may wait for a completion in front of them; then the first goes without.
const HELD_MAX: usize = 1 << 18;

/// One line of a trace that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    time: Time,
    app: AppId,
    client: ClientId,
    file: FileId,
    op: Op,
    offset: u64,
    bytes: u32,
    done: Option<Time>,
    lost: u64,
}

impl Line {
    /// Writes it with its end.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let Line { time, app, client, file, op, offset, bytes, done, lost } = self;
        write!(out, "{},{},{},{},{},{offset},{bytes},", Micros(*time), app.0, client.0, file.0, op.letter())?;
        if let Some(done) = done {
            write!(out, "{}", Micros(*done))?;
        }
        out.write_all(b",")?;
        if *lost > 0 {
            write!(out, "{lost}")?;
        }
        out.write_all(b"\n")
    }
}

/// Joins arrivals with their completions.
///
/// A line comes out when its request is over, all before it have come out, and another has arrived: what is lost behind it is
/// known by then. Times count from the first arrival.
#[derive(Debug, Default)]
pub struct Assembler {
    held: VecDeque<Line>,
    /// The number of the first line that is held.
    first: u64,
    /// Requests that are not over: the number of each's line.
    open: HashMap<RequestId, u64>,
    /// When the first and the last one arrived.
    start: Option<Time>,
    last: Time,
    arrivals: u64,
    lost: u64,
    unfinished: u64,
}

impl Assembler {
    /// Takes the next event.
    pub fn push(&mut self, event: Event) {
        match event {
            Event::Arrived { id, time, app, client, file, op, offset, bytes } => {
                let start = *self.start.get_or_insert(time);
                // Clocks of two threads may be read in another order than the gate's lock is taken.
                let time = since(start, time).max(self.last);
                self.last = time;
                self.open.insert(id, self.first + self.held.len() as u64);
                self.held.push_back(Line { time, app, client, file, op, offset, bytes, done: None, lost: 0 });
                self.arrivals += 1;
            }
            Event::Completed { id, time, .. } => {
                let done = since(self.start.unwrap_or(time), time);
                // Else it arrived before the recording, was lost, or has been given up.
                if let Some(line) = self.open.remove(&id)
                    && let Some(held) = line.checked_sub(self.first)
                    && let Some(line) = self.held.get_mut(held as usize)
                {
                    line.done = Some(done.max(line.time));
                }
            }
            Event::Lost { arrivals } => {
                self.lost += arrivals;
                if let Some(last) = self.held.back_mut() {
                    last.lost += arrivals;
                }
            }
        }
    }

    /// The next line, if one is whole.
    pub fn next_line(&mut self) -> Option<Line> {
        let ready = self.held.len() > 1 && self.held.front()?.done.is_some() || self.held.len() > HELD_MAX;
        if ready { self.pop() } else { None }
    }

    /// What is left, whole or not, at the end.
    pub fn finish(&mut self) -> impl Iterator<Item = Line> + '_ {
        std::iter::from_fn(move || self.pop())
    }

    /// Arrivals so far.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Arrivals that are missing.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Lines that came out without their completion.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    fn pop(&mut self) -> Option<Line> {
        let line = self.held.pop_front()?;
        self.first += 1;
        self.unfinished += u64::from(line.done.is_none());
        Some(line)
    }
}

fn since(start: Time, time: Time) -> Time {
    Time::from_nanos(time.since(start).as_nanos())
}
