//! A request that is to be answered in time.

use super::exchange::{Event, Exchange, Link, Step};
use super::{Calls, Reply};
use crate::wire::Request;

/// A request that is to be answered in time, over as many connections as that takes, while its session goes on.
#[derive(Clone, Debug)]
pub struct Call {
    deadline: u64,
    link: Link,
    posted: Option<u64>,
    /// It may have been carried out on a connection before this one.
    is_repeated: bool,
    /// A connection was lost already.
    has_lost: bool,
    end: Option<Result<Answer, NoAnswer>>,
}

/// What came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The answer.
    pub reply: Reply,
    /// The request was sent more than once: it may have been carried out before it was refused.
    pub is_repeated: bool,
}

/// Why nothing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoAnswer {
    /// The coordinator does not know the session any more, nor what was claimed in it.
    Forgotten,
    /// No coordinator was reached in time. The request may have been carried out.
    Unreached,
    /// One was reached, and did not answer in time. The request may have been carried out.
    Silent,
}

impl Call {
    /// One that is to be answered within so long from now.
    pub fn new(now: u64, within: u64, is_linked: bool) -> Call {
        let deadline = now.saturating_add(within);
        Call {
            deadline,
            link: Link::new(is_linked),
            posted: None,
            is_repeated: false,
            has_lost: false,
            end: None,
        }
    }
}

impl Exchange for Call {
    type End = Result<Answer, NoAnswer>;

    fn next(&mut self, now: u64, calls: &mut Calls, request: &Request<'_>) -> Step<Self::End> {
        if let Some(end) = self.end.take() {
            return Step::Over(end);
        }
        if now >= self.deadline {
            if self.link.is_up {
                // A connection on which nothing comes is not to be trusted.
                self.link.down(now);
                return Step::Unlink;
            }
            return Step::Over(Err(NoAnswer::Silent));
        }
        match self.link {
            Link { is_up: true, .. } => {
                self.posted.get_or_insert_with(|| calls.post(request));
                Step::Wait { until: self.deadline }
            }
            Link { again_at, .. } if again_at > now => Step::Rest { until: again_at.min(self.deadline) },
            _ => Step::Connect { until: self.deadline },
        }
    }

    fn happened(&mut self, now: u64, event: Event) {
        match event {
            Event::Connected { is_same } => self.connected(is_same),
            Event::Unreached { is_final, random } => self.unreached(now, is_final, random),
            Event::Disconnected { random } => self.disconnected(now, random),
            Event::Answered(reply) => self.answered(reply),
        }
    }
}

impl Call {
    fn connected(&mut self, is_same: bool) {
        self.link.up();
        self.is_repeated |= self.posted.is_some();
        if !is_same {
            self.end = Some(Err(NoAnswer::Forgotten));
        }
    }

    fn unreached(&mut self, now: u64, is_final: bool, random: u8) {
        self.link.failed(now, random);
        if is_final || self.link.again_at >= self.deadline {
            self.end = Some(Err(NoAnswer::Unreached));
        }
    }

    fn disconnected(&mut self, now: u64, random: u8) {
        // The first attempt to come back is made at once.
        match core::mem::replace(&mut self.has_lost, true) {
            false => self.link.down(now),
            true => self.link.failed(now, random),
        }
    }

    fn answered(&mut self, reply: Reply) {
        if self.posted == Some(reply.id) {
            self.end = Some(Ok(Answer { reply, is_repeated: self.is_repeated }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MILLISECOND, SECOND};
    use super::*;
    use crate::wire::Renew;

    const RENEW: Request<'static> = Request::Renew(Renew { token: 1 });

    fn answer(id: u64) -> Reply {
        Reply { id, ..Reply::default() }
    }

    #[test]
    fn a_call_is_answered_over_the_connection_that_there_is() {
        let (mut call, mut calls) = (Call::new(5, SECOND, true), Calls::default());
        assert_eq!(call.next(5, &mut calls, &RENEW), Step::Wait { until: SECOND + 5 });
        assert_eq!(call.next(6, &mut calls, &RENEW), Step::Wait { until: SECOND + 5 });
        assert_eq!(calls.unsent().count(), 1, "it is posted once");
        call.answered(answer(9));
        assert!(matches!(call.next(7, &mut calls, &RENEW), Step::Wait { .. }), "another's answer");
        call.answered(answer(1));
        let end = Answer { reply: answer(1), is_repeated: false };
        assert_eq!(call.next(8, &mut calls, &RENEW), Step::Over(Ok(end)));
    }

    #[test]
    fn a_lost_connection_is_had_again_at_once_and_then_after_pauses() {
        let (mut call, mut calls) = (Call::new(0, SECOND, true), Calls::default());
        call.next(0, &mut calls, &RENEW);
        call.disconnected(1, 255);
        assert_eq!(call.next(1, &mut calls, &RENEW), Step::Connect { until: SECOND });
        call.connected(true);
        assert!(matches!(call.next(2, &mut calls, &RENEW), Step::Wait { .. }));
        call.disconnected(3, 255);
        assert_eq!(call.next(3, &mut calls, &RENEW), Step::Rest { until: 50 * MILLISECOND + 3 });
        let now = 60 * MILLISECOND;
        assert_eq!(call.next(now, &mut calls, &RENEW), Step::Connect { until: SECOND });
        call.unreached(now, false, 255);
        assert_eq!(call.next(now, &mut calls, &RENEW), Step::Rest { until: 160 * MILLISECOND });
        call.connected(true);
        call.answered(answer(1));
        let end = Answer { reply: answer(1), is_repeated: true };
        assert_eq!(call.next(now, &mut calls, &RENEW), Step::Over(Ok(end)));
    }

    #[test]
    fn a_call_without_an_answer_says_why() {
        let mut calls = Calls::default();
        let mut silent = Call::new(0, SECOND, true);
        silent.next(0, &mut calls, &RENEW);
        assert_eq!(silent.next(SECOND, &mut calls, &RENEW), Step::Unlink, "it is not to be trusted");
        assert_eq!(silent.next(SECOND, &mut calls, &RENEW), Step::Over(Err(NoAnswer::Silent)));
        let mut forgotten = Call::new(0, SECOND, false);
        assert_eq!(forgotten.next(0, &mut calls, &RENEW), Step::Connect { until: SECOND });
        forgotten.connected(false);
        assert_eq!(forgotten.next(1, &mut calls, &RENEW), Step::Over(Err(NoAnswer::Forgotten)));
        for (is_final, at) in [(true, 0), (false, SECOND - 1)] {
            let mut unreached = Call::new(0, SECOND, false);
            unreached.unreached(at, is_final, 255);
            assert_eq!(unreached.next(at, &mut calls, &RENEW), Step::Over(Err(NoAnswer::Unreached)));
        }
    }
}
