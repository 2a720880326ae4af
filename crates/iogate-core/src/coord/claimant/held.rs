//! A turn, from its grant until the coordinator knows that it is over.

use super::{Answer, Lease, MILLISECOND, NoAnswer};
use crate::refusal::errno;
use crate::wire::{Record, Release, Renew, Renewed, Request};

/// The least time between two attempts to tell the coordinator something.
pub const AGAIN: u64 = 20 * MILLISECOND;

/// A turn that is held, or whose end the coordinator is to be told of.
#[derive(Clone, Debug)]
pub struct HeldTurn {
    token: u64,
    lease: Lease,
    is_lost: bool,
    /// It is over, in which so many bytes were moved, and the coordinator does not know.
    ending: Option<u64>,
}

/// What has come of ending a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is over, and was held until then.
    Over,
    /// It was lost before: others may have had theirs meanwhile.
    Lost,
    /// It was held until then. The coordinator is to be told later.
    Later,
}

impl HeldTurn {
    /// A turn that has begun.
    pub fn new(token: u64, lease: Lease) -> HeldTurn {
        HeldTurn { token, lease, is_lost: false, ending: None }
    }

    /// How long it counts without being renewed.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// Until when it counts; 0 once it is lost.
    pub fn valid_until(&self) -> u64 {
        if self.is_lost { 0 } else { self.lease.until }
    }

    /// What the coordinator is to be asked when something is due.
    pub fn request(&self) -> Request<'static> {
        match self.ending {
            Some(bytes) => Request::Release(Release { token: self.token, bytes }),
            None => Request::Renew(Renew { token: self.token }),
        }
    }

    /// How long its answer may take.
    pub fn within(&self) -> u64 {
        self.lease.length / 3
    }

    /// What has come of that, which was asked at `sent`: when something is due again, if it ever will be.
    pub fn asked(&mut self, now: u64, sent: u64, end: &Result<Answer, NoAnswer>) -> Option<u64> {
        let again = now.saturating_add((self.within() / 3).max(AGAIN));
        if self.ending.is_some() {
            // The lease ends it too.
            let is_open = matches!(end, Err(NoAnswer::Unreached | NoAnswer::Silent));
            return Some(again).filter(|_| is_open && sent < self.lease.until);
        }
        match end {
            Ok(Answer { reply, .. }) if reply.errno == 0 => {
                if let Ok(renewed) = Renewed::decode(&reply.fields) {
                    self.lease = Lease::from(sent, renewed.lease);
                    return Some(self.lease.due);
                }
            }
            Ok(Answer { reply, .. }) if reply.errno != errno::ESTALE => {}
            Err(NoAnswer::Unreached | NoAnswer::Silent) => {}
            Ok(_) | Err(NoAnswer::Forgotten) => {
                self.is_lost = true;
                return None;
            }
        }
        Some(again)
    }

    /// Whether it is [over](HeldTurn::end).
    pub fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// It is over now, after so many bytes: its [`request`](HeldTurn::request) is to be asked.
    pub fn end(&mut self, bytes: u64) {
        self.ending = Some(bytes);
    }

    /// What has come of the first attempt to tell of the end, which was at `since`.
    pub fn ended(&self, since: u64, end: &Result<Answer, NoAnswer>) -> Ended {
        let was_valid = since < self.valid_until();
        match end {
            Ok(Answer { reply, .. }) if reply.errno == 0 => Ended::Over,
            // Sent twice, it may have been carried out the first time.
            Ok(Answer { is_repeated, .. }) if !is_repeated => Ended::Lost,
            _ if !was_valid => Ended::Lost,
            Ok(_) | Err(NoAnswer::Forgotten) => Ended::Over,
            Err(NoAnswer::Unreached | NoAnswer::Silent) => Ended::Later,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Reply, SECOND};
    use super::*;

    const NOTHING: Result<Answer, NoAnswer> = Err(NoAnswer::Silent);
    const FORGOTTEN: Result<Answer, NoAnswer> = Err(NoAnswer::Forgotten);

    fn turn() -> HeldTurn {
        HeldTurn::new(7, Lease::from(0, 9 * SECOND))
    }

    fn answer(errno: i32, is_repeated: bool) -> Result<Answer, NoAnswer> {
        let mut reply = Reply { id: 1, errno, ..Reply::default() };
        Renewed { lease: 9 * SECOND }.encode(&mut reply.fields);
        Ok(Answer { reply, is_repeated })
    }

    #[test]
    fn a_turn_is_renewed_again_and_again_and_ends_by_its_own_clock_if_it_cannot_be() {
        let mut turn = turn();
        assert_eq!(turn.request(), Request::Renew(Renew { token: 7 }));
        assert_eq!(turn.asked(5 * SECOND, 4 * SECOND, &answer(0, false)), Some(7 * SECOND));
        assert_eq!(turn.valid_until(), 13 * SECOND, "from when the renewal was sent");
        for end in [NOTHING, Err(NoAnswer::Unreached), answer(errno::EIO, false)] {
            assert_eq!(turn.asked(8 * SECOND, 7 * SECOND, &end), Some(9 * SECOND));
        }
        assert_eq!(turn.valid_until(), 13 * SECOND);
    }

    #[test]
    fn a_turn_that_the_coordinator_does_not_know_is_lost_for_good() {
        for end in [answer(errno::ESTALE, false), FORGOTTEN] {
            let mut turn = turn();
            assert_eq!(turn.asked(2, 1, &end), None);
            assert_eq!(turn.valid_until(), 0);
            turn.end(5);
            assert_eq!(turn.ended(2, &FORGOTTEN), Ended::Lost);
        }
    }

    #[test]
    fn the_end_of_a_turn_says_whether_it_was_held_until_then() {
        let mut turn = turn();
        turn.end(5);
        assert_eq!(turn.request(), Request::Release(Release { token: 7, bytes: 5 }));
        let (valid, over) = (8 * SECOND, 9 * SECOND);
        for (at, end, expected) in [
            (valid, answer(0, false), Ended::Over),
            (over, answer(0, false), Ended::Over),
            (valid, answer(errno::ESTALE, false), Ended::Lost),
            (valid, answer(errno::ESTALE, true), Ended::Over),
            (over, answer(errno::ESTALE, true), Ended::Lost),
            (valid, FORGOTTEN, Ended::Over),
            (over, FORGOTTEN, Ended::Lost),
            (valid, NOTHING, Ended::Later),
            (over, NOTHING, Ended::Lost),
        ] {
            assert_eq!(turn.ended(at, &end), expected, "{at} {end:?}");
        }
    }

    #[test]
    fn an_end_is_told_until_it_is_heard_or_the_lease_is_over() {
        let mut turn = turn();
        turn.end(5);
        assert_eq!(turn.asked(3 * SECOND, 2 * SECOND, &NOTHING), Some(4 * SECOND));
        assert_eq!(turn.asked(10 * SECOND, 9 * SECOND, &NOTHING), None);
        assert_eq!(turn.asked(3 * SECOND, 2 * SECOND, &FORGOTTEN), None);
        assert_eq!(turn.asked(3 * SECOND, 2 * SECOND, &answer(errno::ESTALE, false)), None);
    }
}
