//! The numbers of a client process's requests, by which servers know what they have carried out, over sessions and restarts.

use alloc::collections::BTreeSet;

use crate::wire::RequestOrigin;

/// Gives the requests of one process their origins: numbers count up, and say up to where all are answered.
#[derive(Debug)]
pub struct Origins {
    client: [u8; 16],
    next: u64,
    /// Numbers without an answer.
    unanswered: BTreeSet<u64>,
}

impl Origins {
    /// Of a process that has drawn these 128 random bits. A forked one must draw its own, or its requests would pass for repeated ones.
    pub const fn new(client: [u8; 16]) -> Origins {
        Origins { client, next: 1, unanswered: BTreeSet::new() }
    }

    /// The bits.
    pub fn client(&self) -> [u8; 16] {
        self.client
    }

    /// The origin of a new request. To be [`answered`](Origins::answered) once, also if the request fails: nothing after it is forgotten by
    /// servers before that.
    pub fn begin(&mut self) -> RequestOrigin {
        let number = self.next;
        self.next += 1;
        self.unanswered.insert(number);
        let oldest = self.unanswered.first().copied().unwrap_or(number);
        let unanswered = u32::try_from(number - oldest).unwrap_or(u32::MAX);
        RequestOrigin { client: self.client, number, step: 0, unanswered }
    }

    /// Nobody asks again for a request of this process. Others' are left alone.
    pub fn answered(&mut self, origin: &RequestOrigin) {
        if self.client == origin.client {
            self.unanswered.remove(&origin.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_count_up_and_tell_what_is_unanswered() {
        let mut origins = Origins::new([7; 16]);
        let [first, second, third] = [(); 3].map(|()| origins.begin());
        assert_eq!([first, second, third].map(|origin| origin.number), [1, 2, 3]);
        assert_eq!(third.answered_below(), 1);
        origins.answered(&second);
        assert_eq!(origins.begin().answered_below(), 1, "the first one is not answered");
        origins.answered(&first);
        assert_eq!(origins.begin().answered_below(), 3);
        origins.answered(&RequestOrigin { client: [8; 16], ..third });
        assert_eq!(origins.begin().answered_below(), 3, "it was another process's");
    }
}
