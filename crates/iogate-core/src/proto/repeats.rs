//! Which requests of a session are new, in flight or done, so that each takes effect once although connections are lost.
//!
//! Ids count up from 1. The client says with every request up to where it has all replies; from there on it may use as many
//! ids as it has credits, so the window is bounded. After a loss it sends again what has no reply: what is in flight is
//! attached to the new connection, and of what is done the reply is cached, or may be made again.

use alloc::collections::VecDeque;

/// The requests of a session that the client has no reply to yet, as far as the server knows. `R` is a cached reply.
#[derive(Debug)]
pub struct Window<R> {
    /// All smaller ids are answered.
    first: u64,
    credits: u32,
    /// Of the connection in use; counts up.
    connection: u32,
    in_flight: u32,
    /// From `first` on, up to the largest id seen.
    slots: VecDeque<Slot<R>>,
}

#[derive(Debug)]
enum Slot<R> {
    /// Not seen.
    Vacant,
    /// Seen on this connection, not done.
    InFlight(u32),
    /// Done; seen on this connection; the reply, unless the request can be carried out again.
    Done(u32, Option<R>),
}

/// What a request is.
#[derive(Debug, PartialEq, Eq)]
pub enum Admitted<'a, R> {
    /// To be carried out.
    New,
    /// Sent again, and still in flight: it is answered when it is done.
    InFlight,
    /// Sent again, and done: this is the reply.
    Done(&'a R),
}

/// What a client that keeps to the protocol does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// More requests than it has credits.
    #[error(
        "request {id} is beyond the credits: expected less than {first} (the first without a reply) + {credits}"
    )]
    Credits {
        /// The request.
        id: u64,
        /// The first that is not acknowledged.
        first: u64,
        /// Requests that may be in flight.
        credits: u32,
    },
    /// A request whose reply it says it has.
    #[error("request {id} comes after its reply was acknowledged: expected {first} or more")]
    Forgotten {
        /// The request.
        id: u64,
        /// The first that is not acknowledged.
        first: u64,
    },
    /// The same request twice on one connection.
    #[error("request {id} was sent twice on one connection: ids count up")]
    Repeated {
        /// The request.
        id: u64,
    },
    /// The reply to a request that is still in flight.
    #[error("all requests below {acked} are acknowledged, but {id} has not been answered")]
    Unanswered {
        /// Up to where replies are acknowledged.
        acked: u64,
        /// A request that is in flight.
        id: u64,
    },
}

impl<R> Window<R> {
    /// A window of a new session, for at most `credits` requests.
    pub fn new(credits: u32) -> Window<R> {
        Window { first: 1, credits, connection: 0, in_flight: 0, slots: VecDeque::new() }
    }

    /// Another connection takes over: what was sent on an earlier one may be sent again.
    pub fn reconnect(&mut self) {
        self.connection = self.connection.wrapping_add(1);
    }

    /// Takes in a request, and forgets the replies to those below `acked`. After a violation the session cannot go on.
    pub fn admit(&mut self, id: u64, acked: u64) -> Result<Admitted<'_, R>, Violation> {
        self.forget_below(acked)?;
        let (first, credits) = (self.first, self.credits);
        let at = id.checked_sub(first).ok_or(Violation::Forgotten { id, first })?;
        if at >= u64::from(credits) {
            return Err(Violation::Credits { id, first, credits });
        }
        let at = at as usize;
        if self.slots.len() <= at {
            self.slots.resize_with(at + 1, || Slot::Vacant);
        }
        let connection = self.connection;
        let slot = &mut self.slots[at];
        match slot {
            Slot::InFlight(seen) | Slot::Done(seen, _) if *seen == connection => {
                return Err(Violation::Repeated { id });
            }
            Slot::InFlight(seen) => {
                *seen = connection;
                return Ok(Admitted::InFlight);
            }
            Slot::Done(seen, Some(_)) => *seen = connection,
            Slot::Vacant | Slot::Done(_, None) => {
                *slot = Slot::InFlight(connection);
                self.in_flight += 1;
            }
        }
        match &self.slots[at] {
            Slot::Done(_, Some(reply)) => Ok(Admitted::Done(reply)),
            _ => Ok(Admitted::New),
        }
    }

    fn forget_below(&mut self, acked: u64) -> Result<(), Violation> {
        let Some(count) = acked.checked_sub(self.first) else { return Ok(()) };
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.slots.len());
        let in_flight = |slot: &Slot<R>| matches!(slot, Slot::InFlight(_));
        if let Some(at) = self.slots.range(..count).position(in_flight) {
            return Err(Violation::Unanswered { acked, id: self.first + at as u64 });
        }
        self.slots.drain(..count);
        self.first = acked;
        Ok(())
    }

    /// Notes that a request is done; without a `reply` it is carried out again if it is sent again. Returns whether the
    /// reply is to be sent now: if the request has been sent on the connection in use. Else the client will ask.
    pub fn finish(&mut self, id: u64, reply: Option<R>) -> bool {
        let slot = id.checked_sub(self.first).and_then(|at| self.slots.get_mut(usize::try_from(at).ok()?));
        let Some(slot) = slot else { return false };
        let Slot::InFlight(seen) = *slot else { return false };
        *slot = Slot::Done(seen, reply);
        self.in_flight -= 1;
        seen == self.connection
    }

    /// Forgets a request that is in flight, as if it had not been seen: if it is sent again, it is carried out.
    pub fn forget(&mut self, id: u64) {
        let slot = id.checked_sub(self.first).and_then(|at| self.slots.get_mut(usize::try_from(at).ok()?));
        if let Some(slot @ Slot::InFlight(_)) = slot {
            *slot = Slot::Vacant;
            self.in_flight -= 1;
        }
    }

    /// Requests that are not done.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_takes_effect_once() {
        let mut window = Window::new(4);
        assert_eq!(window.admit(1, 1), Ok(Admitted::New));
        assert_eq!(window.admit(2, 1), Ok(Admitted::New));
        assert_eq!(window.admit(3, 1), Ok(Admitted::New));
        assert!(window.finish(1, Some("one")));
        assert!(window.finish(3, None));
        window.reconnect();
        assert_eq!(window.admit(1, 1), Ok(Admitted::Done(&"one")));
        assert_eq!(window.admit(2, 1), Ok(Admitted::InFlight));
        assert_eq!(window.admit(3, 1), Ok(Admitted::New), "may be made again");
        assert!(window.finish(2, Some("two")));
        assert_eq!(window.in_flight(), 1);
    }

    #[test]
    fn a_reply_waits_until_its_request_is_sent_again() {
        let mut window = Window::new(4);
        assert_eq!(window.admit(1, 1), Ok(Admitted::New));
        window.reconnect();
        assert!(!window.finish(1, Some("one")), "the client does not expect it yet");
        assert_eq!(window.admit(1, 1), Ok(Admitted::Done(&"one")));
    }

    #[test]
    fn what_is_forgotten_is_carried_out_when_it_is_sent_again() {
        let mut window = Window::new(4);
        assert_eq!(window.admit(1, 1), Ok(Admitted::New));
        assert_eq!(window.admit(2, 1), Ok(Admitted::New));
        assert!(window.finish(2, Some("two")));
        (1..4).for_each(|id| window.forget(id));
        assert_eq!(window.in_flight(), 0);
        window.reconnect();
        assert_eq!(window.admit(1, 1), Ok(Admitted::New));
        assert_eq!(window.admit(2, 1), Ok(Admitted::Done(&"two")));
        assert!(window.finish(1, Some("one")));
    }

    #[test]
    fn violations_are_told() {
        let mut window = Window::<()>::new(2);
        assert_eq!(window.admit(0, 0), Err(Violation::Forgotten { id: 0, first: 1 }));
        assert_eq!(window.admit(3, 0), Err(Violation::Credits { id: 3, first: 1, credits: 2 }));
        assert_eq!(window.admit(1, 1), Ok(Admitted::New));
        assert_eq!(window.admit(1, 1), Err(Violation::Repeated { id: 1 }));
        assert_eq!(window.admit(2, 2), Err(Violation::Unanswered { acked: 2, id: 1 }));
        window.finish(1, None);
        assert_eq!(window.admit(1, 1), Err(Violation::Repeated { id: 1 }));
        assert_eq!(window.admit(u64::MAX, u64::MAX), Ok(Admitted::New));
        assert_eq!(window.admit(5, 0), Err(Violation::Forgotten { id: 5, first: u64::MAX }));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Admit(u64, u64),
        Finish(u64, Option<u32>),
        Reconnect,
    }

    /// Everything by id, and nothing ever thrown away.
    #[derive(Default)]
    struct Model {
        acked: u64,
        /// Connection on which it was last seen; `None` inside while it is in flight.
        requests: BTreeMap<u64, (u32, Option<Option<u32>>)>,
        connection: u32,
    }

    impl Model {
        /// `None`: a violation. Else what `Admitted` says, as (in flight, reply).
        fn admit(&mut self, id: u64, acked: u64, credits: u32) -> Option<(bool, Option<u32>)> {
            let acked = acked.max(self.acked).max(1);
            if self.requests.range(..acked).any(|(_, (_, done))| done.is_none()) {
                return None;
            }
            self.acked = acked;
            if id < acked || id - acked >= u64::from(credits) {
                return None;
            }
            let request = self.requests.get(&id).copied();
            let (now, admitted) = match request {
                Some((connection, _)) if connection == self.connection => return None,
                Some((_, None)) => (None, (true, None)),
                Some((_, Some(Some(reply)))) => (Some(Some(reply)), (false, Some(reply))),
                None | Some((_, Some(None))) => (None, (false, None)),
            };
            self.requests.insert(id, (self.connection, now));
            Some(admitted)
        }

        fn finish(&mut self, id: u64, reply: Option<u32>) -> bool {
            match self.requests.get_mut(&id) {
                Some((connection, done @ None)) => {
                    *done = Some(reply);
                    *connection == self.connection
                }
                _ => false,
            }
        }
    }

    /// Near the window, which wanders; `agrees_with_a_naive_model` adds where it is.
    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u64..14, 0u64..4).prop_map(|(id, acked)| Step::Admit(id, acked)),
            8 => (0u64..14, any::<Option<u32>>()).prop_map(|(id, reply)| Step::Finish(id, reply)),
            1 => Just(Step::Reconnect),
        ]
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_model(steps in prop::collection::vec(step(), 0..300), credits in 1u32..12) {
            let (mut window, mut model) = (Window::new(credits), Model::default());
            for step in steps {
                match step {
                    Step::Admit(id, acked) => {
                        let (id, acked) = (model.acked + id, model.acked + acked);
                        let found = window.admit(id, acked).ok().map(|admitted| match admitted {
                            Admitted::New => (false, None),
                            Admitted::InFlight => (true, None),
                            Admitted::Done(reply) => (false, Some(*reply)),
                        });
                        prop_assert_eq!(found, model.admit(id, acked, credits));
                    }
                    Step::Finish(id, reply) => {
                        let id = model.acked + id;
                        prop_assert_eq!(window.finish(id, reply), model.finish(id, reply));
                    }
                    Step::Reconnect => {
                        window.reconnect();
                        model.connection += 1;
                    }
                }
                prop_assert!(window.slots.len() <= credits as usize);
                let in_flight = model.requests.values().filter(|(_, done)| done.is_none()).count();
                prop_assert_eq!(window.in_flight() as usize, in_flight);
            }
        }
    }
}
