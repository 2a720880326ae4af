//! Answers that this process alone remembers: of requests that are too many for a log, and that do no harm when another process
//! carries them out again, as NFS's WRITE.
//!
//! A client's answers go in the order in which they were given: when they are too old, when the client has its share, an eighth of all,
//! and when there is no room for another one. Then the client with most of them loses its oldest ones, a few at once, so that nobody
//! looks for it each time. A busy client takes nothing from one that has less.
//!
//! Each request passes here, by one thread at a time: answers lie one behind the other, and nothing is allocated for one.

use alloc::collections::{BTreeMap, VecDeque};

use super::Key;
use crate::hash::HashMap;

/// Most bytes of an answer: with what it is known by, less than a line of a processor's cache.
pub const RECENT_BYTES: usize = 20;

/// Of all answers, one client may have one part of so many.
const SHARES: usize = 8;
/// How many go at once, at most: no more than half of a client's.
const GO_AT_ONCE: usize = 64;

/// Answers, each by what its request is known by. Times are in seconds, of a clock that does not go back.
#[derive(Debug, Default)]
pub struct Recent {
    entries: usize,
    seconds: u64,
    /// By user and client.
    clients: BTreeMap<(u32, [u8; 16]), Client>,
    len: usize,
}

/// Number and step.
type Id = (u64, u16);

#[derive(Debug, Default)]
struct Client {
    /// The first one first.
    answers: VecDeque<Answer>,
    /// Which of all that there ever were each is.
    places: HashMap<Id, u64>,
    /// Which the first one is.
    first: u64,
}

#[derive(Debug)]
struct Answer {
    number: u64,
    time: u64,
    step: u16,
    len: u8,
    bytes: [u8; RECENT_BYTES],
}

impl Answer {
    fn is_old(&self, seconds: u64, now: u64) -> bool {
        now > self.time.saturating_add(seconds)
    }

    fn set(&mut self, bytes: &[u8]) {
        self.len = bytes.len() as u8;
        self.bytes[..bytes.len()].copy_from_slice(bytes);
    }
}

impl Recent {
    /// Nothing yet; at most so many answers, each for so many seconds.
    pub fn new(entries: usize, seconds: u64) -> Recent {
        Recent { entries, seconds, ..Recent::default() }
    }

    /// The answer of a request, unless it is too old `now`, which is asked for if there is one.
    pub fn look(&self, key: &Key, now: impl FnOnce() -> u64) -> Option<&[u8]> {
        let client = self.clients.get(&(key.uid, key.client))?;
        let answer = client.answers.get(client.index(&(key.number, key.step))?)?;
        (!answer.is_old(self.seconds, now())).then(|| &answer.bytes[..usize::from(answer.len)])
    }

    /// Takes in the answer of a request, which counts from `now` on. One of more than [`RECENT_BYTES`] is not remembered.
    pub fn put(&mut self, key: &Key, bytes: &[u8], now: u64) {
        debug_assert!(bytes.len() <= RECENT_BYTES, "{} bytes", bytes.len());
        if self.entries == 0 || bytes.len() > RECENT_BYTES {
            return;
        }
        let (id, seconds, share) = ((key.number, key.step), self.seconds, (self.entries / SHARES).max(1));
        if let Some(client) = self.clients.get_mut(&(key.uid, key.client)) {
            while client.answers.front().is_some_and(|answer| answer.is_old(seconds, now)) {
                self.len -= client.drop_oldest(1);
            }
            if let Some(index) = client.index(&id) {
                // It has its place.
                client.answers[index].set(bytes);
                return;
            }
            if client.answers.len() >= share {
                self.len -= client.drop_oldest(1);
            }
        }
        if self.len >= self.entries {
            self.make_room();
        }
        let Key { number, step, .. } = *key;
        let mut answer = Answer { number, time: now, step, len: 0, bytes: [0; RECENT_BYTES] };
        answer.set(bytes);
        let client = self.clients.entry((key.uid, key.client)).or_default();
        client.places.insert(id, client.first + client.answers.len() as u64);
        client.answers.push_back(answer);
        self.len += 1;
    }

    /// The client with most answers loses its oldest ones.
    fn make_room(&mut self) {
        let most = self.clients.iter_mut().max_by_key(|(_, client)| client.answers.len());
        let Some((&id, client)) = most else { return };
        self.len -= client.drop_oldest(GO_AT_ONCE.min(client.answers.len().div_ceil(2)));
        if client.answers.is_empty() {
            self.clients.remove(&id);
        }
    }

    /// Answers that are remembered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Client {
    /// Where an answer lies.
    fn index(&self, id: &Id) -> Option<usize> {
        self.places.get(id).map(|place| (place - self.first) as usize)
    }

    /// Drops so many, or all. Returns how many that were.
    fn drop_oldest(&mut self, count: usize) -> usize {
        let count = count.min(self.answers.len());
        for _ in 0..count {
            let oldest = self.answers.pop_front();
            oldest.and_then(|answer| self.places.remove(&(answer.number, answer.step)));
        }
        self.first += count as u64;
        // Room that one client had is not to be kept beside that of the next.
        let len = self.answers.len();
        if len < self.answers.capacity() / 4 {
            self.answers.shrink_to(2 * len);
            self.places.shrink_to(2 * len);
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    fn key(client: u8, number: u64) -> Key {
        Key { uid: 0, client: [client; 16], number, step: 7 }
    }

    fn at(now: u64) -> impl FnOnce() -> u64 {
        move || now
    }

    #[test]
    fn a_busy_client_takes_nothing_from_a_quiet_one() {
        let mut recent = Recent::new(1000, 60);
        for number in 0..100 {
            recent.put(&key(1, number), b"quiet", 0);
        }
        for number in (0..100_000u64).rev() {
            recent.put(&key(2, number), &number.to_le_bytes(), 1);
            assert!(recent.len() <= 1000);
        }
        assert!((0..100).all(|number| recent.look(&key(1, number), at(60)).is_some()));
        assert!((0..125u64).all(|number| recent.look(&key(2, number), at(1)) == Some(&number.to_le_bytes())));
        assert_eq!(recent.look(&key(2, 125), at(1)), None, "more than its share");
        assert_eq!(recent.look(&key(1, 99), at(61)), None, "too old");
    }

    #[test]
    fn many_clients_keep_their_last_and_no_room_for_what_they_had() {
        let mut recent = Recent::new(64, 60);
        for client in 0..=255 {
            for number in 0..64 {
                recent.put(&key(client, number), b"answer", 0);
                assert!(recent.look(&key(client, number), at(0)).is_some() && recent.len() <= 64);
            }
        }
        let room: usize = recent.clients.values().map(|client| client.answers.capacity()).sum();
        assert!(room <= 1024 && recent.clients.len() <= 64, "{room} for {} clients", recent.clients.len());
        let mut nothing = Recent::new(0, 60);
        nothing.put(&key(1, 1), b"answer", 0);
        assert!(nothing.is_empty() && nothing.look(&key(1, 1), at(0)).is_none());
    }

    /// All answers, the first one first.
    struct Naive {
        entries: usize,
        seconds: u64,
        answers: Vec<(Key, Vec<u8>, u64)>,
    }

    impl Naive {
        fn look(&self, key: &Key, now: u64) -> Option<&[u8]> {
            let mut answers = self.answers.iter();
            let (_, bytes, time) = answers.find(|(of, ..)| of == key)?;
            (now <= time + self.seconds).then_some(bytes)
        }

        fn count(&self, client: u8) -> usize {
            self.answers.iter().filter(|(of, ..)| of.client == [client; 16]).count()
        }

        fn put(&mut self, key: Key, bytes: Vec<u8>, now: u64) {
            self.answers.retain(|(of, _, time)| of.client != key.client || now <= time + self.seconds);
            if let Some(answer) = self.answers.iter_mut().find(|(of, ..)| *of == key) {
                answer.1 = bytes;
                return;
            }
            if self.count(key.client[0]) >= (self.entries / 8).max(1) {
                let oldest = self.answers.iter().position(|(of, ..)| of.client == key.client).unwrap();
                self.answers.remove(oldest);
            }
            if self.answers.len() >= self.entries {
                let most = (0..=255).max_by_key(|client| self.count(*client)).unwrap();
                let mut goes = self.count(most).div_ceil(2).min(64);
                self.answers.retain(|(of, ..)| {
                    let stays = of.client != [most; 16] || goes == 0;
                    goes -= usize::from(!stays);
                    stays
                });
            }
            self.answers.push((key, bytes, now));
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_model(
            entries in 1usize..200,
            steps in prop::collection::vec((0u8..12, 0u64..20, 0u64..3), 1..400),
        ) {
            let mut recent = Recent::new(entries, 50);
            let mut naive = Naive { entries, seconds: 50, answers: vec![] };
            let mut now = 0;
            for (index, (client, number, pause)) in steps.into_iter().enumerate() {
                now += pause;
                let (key, bytes) = (key(client, number), index.to_le_bytes());
                prop_assert_eq!(recent.look(&key, at(now)), naive.look(&key, now));
                recent.put(&key, &bytes, now);
                naive.put(key, bytes.to_vec(), now);
                prop_assert_eq!(recent.look(&key, at(now)), naive.look(&key, now));
                prop_assert!(recent.len() == naive.answers.len() && recent.len() <= entries);
            }
            for client in 0..12 {
                for number in 0..20 {
                    let key = key(client, number);
                    prop_assert_eq!(recent.look(&key, at(now)), naive.look(&key, now));
                }
            }
        }
    }
}
