//! Which dispatch goes on where another one ended, and how many came between.

use alloc::vec::Vec;

use super::Class;
use crate::request::Op;

/// Ends that are remembered: streams beyond these jump.
const STREAMS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Stream {
    file: u64,
    end: u64,
    op: Op,
    number: u64,
}

/// The ends of the streams that were served last.
#[derive(Clone, Debug, Default)]
pub struct Streams {
    ends: Vec<Stream>,
    served: u64,
}

impl Streams {
    /// The class of the next dispatch, which is remembered. Addresses of a whole device are those of one file.
    pub fn class(&mut self, file: u64, op: Op, offset: u64, bytes: u64) -> Class {
        let number = self.served;
        self.served += 1;
        let this = Stream { file, end: offset.wrapping_add(bytes), op, number };
        let goes_on = |stream: &&mut Stream| stream.end == offset && stream.file == file && stream.op == op;
        if let Some(stream) = self.ends.iter_mut().find(goes_on) {
            let others = number - stream.number - 1;
            *stream = this;
            return Class::after(others);
        }
        if self.ends.len() < STREAMS {
            self.ends.push(this);
        } else if let Some(oldest) = self.ends.iter_mut().min_by_key(|stream| stream.number) {
            *oldest = this;
        }
        Class::Jump
    }
}
