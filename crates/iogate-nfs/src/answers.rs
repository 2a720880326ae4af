//! Answers that are kept, so that a call that is sent again is not carried out again.
//!
//! A client repeats what it has no answer to: a second REMOVE would say that there is no such file. A call is known by who sends it, its
//! number, its procedure and its first bytes, as clients use numbers again. Kept is what changes names and attributes; reads and
//! writes may be carried out twice.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of a call that its checksum is of.
const CHECKED_BYTES: usize = 256;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Keeping {
    /// How long an answer is kept at least, while there is room.
    pub time: Duration,
    /// Answers of one client that are kept, whatever their age.
    pub per_client: usize,
    /// Answers of all clients.
    pub answers: usize,
    /// Bytes of all answers.
    pub bytes: usize,
}

impl Default for Keeping {
    fn default() -> Keeping {
        Keeping { time: Duration::from_secs(120), per_client: 256, answers: 65_536, bytes: 16 << 20 }
    }
}

/// What a call is known by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    client: IpAddr,
    xid: u32,
    procedure: u32,
    sum: u64,
}

impl CallKey {
    /// Of a call: all of its bytes, with its credential.
    pub fn new(client: IpAddr, xid: u32, procedure: u32, call: &[u8]) -> CallKey {
        let mut hasher = DefaultHasher::new();
        hasher.write(&call[..call.len().min(CHECKED_BYTES)]);
        hasher.write_usize(call.len());
        CallKey { client, xid, procedure, sum: hasher.finish() }
    }
}

/// What is to be done with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It is new: to be carried out, and [`Answers::done`] to be told.
    New,
    /// It is being carried out: whoever does that answers.
    Underway,
    /// It was carried out: this is the answer.
    Answered(Arc<[u8]>),
}

#[derive(Debug)]
struct Entry {
    answer: Option<Arc<[u8]>>,
}

/// The answers that are kept.
#[derive(Debug)]
pub struct Answers {
    keeping: Keeping,
    calls: HashMap<CallKey, Entry>,
    /// Those that are answered, oldest first.
    order: VecDeque<(Instant, CallKey)>,
    clients: HashMap<IpAddr, usize>,
    bytes: usize,
}

impl Answers {
    /// None yet.
    pub fn new(keeping: Keeping) -> Answers {
        Answers { keeping, calls: HashMap::new(), order: VecDeque::new(), clients: HashMap::new(), bytes: 0 }
    }

    /// Asks about a call, and takes note of a new one.
    pub fn begin(&mut self, key: CallKey) -> Known {
        match self.calls.get(&key) {
            Some(Entry { answer: Some(answer) }) => Known::Answered(Arc::clone(answer)),
            Some(Entry { answer: None }) => Known::Underway,
            None => {
                self.calls.insert(key, Entry { answer: None });
                Known::New
            }
        }
    }

    /// The answer to a call.
    pub fn done(&mut self, key: CallKey, answer: &[u8], now: Instant) {
        let Some(entry) = self.calls.get_mut(&key).filter(|entry| entry.answer.is_none()) else { return };
        entry.answer = Some(answer.into());
        self.bytes += answer.len();
        self.order.push_back((now, key));
        *self.clients.entry(key.client).or_default() += 1;
        self.trim(now);
    }

    /// A call was not carried out: sent again, it is new.
    pub fn forget(&mut self, key: CallKey) {
        if self.calls.get(&key).is_some_and(|entry| entry.answer.is_none()) {
            self.calls.remove(&key);
        }
    }

    /// How many are kept, with those that are underway.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Lets the oldest go: what is too much in any case, then what is old and not among the last of its client.
    fn trim(&mut self, now: Instant) {
        while let Some(&(since, key)) = self.order.front() {
            let is_too_much = self.order.len() > self.keeping.answers || self.bytes > self.keeping.bytes;
            let of_client = self.clients.get(&key.client).copied().unwrap_or_default();
            let is_old = now.saturating_duration_since(since) >= self.keeping.time
                && of_client > self.keeping.per_client;
            if !is_too_much && !is_old {
                return;
            }
            self.order.pop_front();
            let answer = self.calls.remove(&key).and_then(|entry| entry.answer);
            self.bytes -= answer.map_or(0, |answer| answer.len());
            if of_client <= 1 {
                self.clients.remove(&key.client);
            } else {
                self.clients.insert(key.client, of_client - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(client: u8, xid: u32) -> CallKey {
        CallKey::new([10, 0, 0, client].into(), xid, 12, b"remove x")
    }

    #[test]
    fn a_call_is_carried_out_once_and_another_of_its_number_is_another() {
        let (mut answers, now) = (Answers::new(Keeping::default()), Instant::now());
        assert_eq!(answers.begin(key(1, 7)), Known::New);
        assert_eq!(answers.begin(key(1, 7)), Known::Underway);
        assert_eq!(answers.begin(key(2, 7)), Known::New, "another client");
        let other = CallKey::new([10, 0, 0, 1].into(), 7, 12, b"remove y");
        assert_eq!(answers.begin(other), Known::New, "the number is used again");
        answers.done(key(1, 7), b"done", now);
        assert_eq!(answers.begin(key(1, 7)), Known::Answered(b"done"[..].into()));
        answers.done(key(1, 7), b"twice", now);
        assert_eq!(answers.begin(key(1, 7)), Known::Answered(b"done"[..].into()));
        answers.forget(key(1, 7));
        assert_eq!(answers.begin(key(1, 7)), Known::Answered(b"done"[..].into()));
        answers.forget(other);
        assert_eq!(answers.begin(other), Known::New);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let keeping = Keeping { time: Duration::from_secs(10), per_client: 2, answers: 5, bytes: 100 };
        let (mut answers, now) = (Answers::new(keeping), Instant::now());
        let answer = |answers: &mut Answers, client, xid, bytes: usize, at| {
            assert_eq!(answers.begin(key(client, xid)), Known::New);
            answers.done(key(client, xid), &vec![0; bytes], now + Duration::from_secs(at));
        };
        for xid in 0..20 {
            answer(&mut answers, 1, xid, 1, 0);
        }
        assert_eq!(answers.len(), 5, "however young they are");
        answer(&mut answers, 1, 20, 1, 10);
        assert_eq!(answers.len(), 2, "old ones go but for the client's last");
        answer(&mut answers, 2, 0, 99, 11);
        assert_eq!(answers.len(), 2, "as many bytes as there may be");
        assert_eq!(answers.begin(key(1, 20)), Known::Answered([0; 1][..].into()));
        answer(&mut answers, 2, 1, 1000, 11);
        assert!(answers.is_empty(), "what is too long is not kept");
    }
}
