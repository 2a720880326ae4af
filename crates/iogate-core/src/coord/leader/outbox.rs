//! Answers on their way to connections, and which of them wait for the journal.

use alloc::vec::Vec;

use crate::hash::HashMap;
use crate::refusal::{Refusal, errno};
use crate::wire::{Failure, Record, ReplyHeader};

/// Answers, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    answers: Vec<Answer>,
    /// Bytes for each connection.
    owed: HashMap<u64, usize>,
}

#[derive(Debug)]
struct Answer {
    connection: u64,
    end: usize,
}

impl Outbox {
    /// Adds an answer whose fields `encode` appends.
    pub fn answer(
        &mut self,
        connection: u64,
        errno: u16,
        id: u64,
        payload: &[u8],
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.bytes.len();
        let mut header = ReplyHeader { fields: 0, payload: payload.len() as u32, errno, id };
        self.bytes.extend_from_slice(&header.to_bytes());
        let fields = self.bytes.len();
        encode(&mut self.bytes);
        header.fields = (self.bytes.len() - fields) as u16;
        self.bytes[start..fields].copy_from_slice(&header.to_bytes());
        self.bytes.extend_from_slice(payload);
        self.answers.push(Answer { connection, end: self.bytes.len() });
        *self.owed.entry(connection).or_default() += self.bytes.len() - start;
    }

    /// Bytes of answers in here for a connection.
    pub fn owed(&self, connection: u64) -> usize {
        self.owed.get(&connection).copied().unwrap_or(0)
    }

    /// Bytes of all answers in here.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// It was done, and there is nothing more to say.
    pub fn done(&mut self, connection: u64, id: u64) {
        self.answer(connection, 0, id, &[], |_| {});
    }

    /// Adds fields.
    pub fn fields<'a>(&mut self, connection: u64, id: u64, record: &impl Record<'a>) {
        self.answer(connection, 0, id, &[], |out| record.encode(out));
    }

    /// Adds a failure.
    pub fn failure(&mut self, connection: u64, id: u64, refusal: &Refusal) {
        let errno = u16::try_from(refusal.errno).unwrap_or(errno::EIO as u16);
        let text = &refusal.text.as_bytes()[..refusal.text.len().min(4096)];
        self.answer(connection, errno, id, &[], |out| Failure { text }.encode(out));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Takes all answers out: a connection, and bytes for it.
    pub fn drain(&mut self, mut take: impl FnMut(u64, &[u8])) {
        let mut start = 0;
        for Answer { connection, end } in self.answers.drain(..) {
            take(connection, &self.bytes[start..end]);
            start = end;
        }
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
        self.owed.clear();
        self.owed.shrink_to(1 << 10);
    }
}
