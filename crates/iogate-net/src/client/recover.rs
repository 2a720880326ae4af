//! What happens when a connection or a server is lost.

use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use iogate_core::wire::{Open, Request, open};

use super::call::{Call, Done};
use super::connect::{Connected, NO_SESSION, connect};
use super::session::{Shared, State, limits};

const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A server that is not connected.
pub(super) struct Loss {
    since: Instant,
    pause: Duration,
    next_attempt: Instant,
    /// Requests fail at once.
    gave_up: bool,
}

impl Loss {
    pub(super) fn new(now: Instant) -> Loss {
        Loss { since: now, pause: PAUSE_MIN, next_attempt: now, gave_up: false }
    }

    /// The same loss, if the last attempt to connect was a short time ago, and nothing has been answered since.
    pub(super) fn goes_on(self, now: Instant) -> Option<Loss> {
        (now < self.next_attempt + PAUSE_MAX).then_some(Loss { gave_up: false, ..self })
    }
}

impl Shared {
    /// Whether a new request fails at once, because the server has been gone for too long.
    pub(super) fn refuses(&self, state: &mut State) -> bool {
        let Some(loss) = &state.loss else { return false };
        // Without a thread that looks for the server, a request does now and then.
        let looks = !self.has_background() && Instant::now() >= loss.next_attempt;
        loss.gave_up && !looks
    }

    /// Tries to connect once, when it is time. Called by the leader.
    pub(super) fn reconnect(&self) {
        let wait = {
            let mut state = self.lock();
            let Some(loss) = &state.loss else { return };
            // It takes connections, and loses them before it answers anything.
            let is_over =
                loss.pause > PAUSE_MIN && !loss.gave_up && loss.since.elapsed() >= self.options.retry_for;
            let wait = loss.next_attempt.saturating_duration_since(Instant::now());
            if is_over {
                let given_up = self.give_up_all(&mut state, &"it answers nothing");
                drop(state);
                return fail(given_up);
            }
            wait
        };
        if !wait.is_zero() {
            self.pause(wait);
        }
        let session = {
            let state = self.lock();
            let Some(loss) = &state.loss else { return };
            if state.closed {
                return;
            }
            if loss.gave_up { NO_SESSION } else { state.welcome.session }
        };
        let connected = connect(&self.endpoint, &self.options, session);
        let mut state = self.lock();
        let Some(loss) = &mut state.loss else { return };
        let (gone, gave_up) = (loss.since.elapsed(), loss.gave_up);
        loss.pause = (loss.pause * 2).min(PAUSE_MAX);
        loss.next_attempt = Instant::now() + loss.pause;
        match connected {
            Ok(Connected { socket, welcome, clock }) => {
                let resumed = welcome.resumed != 0 && session != NO_SESSION;
                let before = std::mem::replace(&mut state.welcome, welcome).answers;
                let remembers = before != 0 && before == welcome.answers;
                state.clock = clock;
                self.verifier.store(welcome.verifier, Ordering::Release);
                self.look_at_clock(&mut state);
                let unknown = if resumed {
                    state.requests.resumed();
                    Vec::new()
                } else {
                    self.renew(&mut state, remembers)
                };
                self.install(&mut state, socket);
                if session != NO_SESSION || gave_up {
                    tracing::warn!(server = %self.endpoint, ?gone, resumed, "a server is back");
                }
                Self::give_up(&mut state, &unknown);
                self.write(state);
                fail(unknown);
            }
            Err(error) if gone >= self.options.retry_for || gave_up => {
                let given_up = self.give_up_all(&mut state, &error);
                drop(state);
                fail(given_up);
            }
            Err(_) => {}
        }
    }

    /// The server has been gone for too long. Returns the requests that fail.
    fn give_up_all(&self, state: &mut State, error: &dyn fmt::Display) -> Vec<Call> {
        let given_up = state.requests.give_up();
        Self::give_up(state, &given_up);
        if let Some(loss) = &mut state.loss
            && !loss.gave_up
        {
            loss.gave_up = true;
            let requests = given_up.len();
            tracing::error!(server = %self.endpoint, %error, requests, "a server does not come back: its requests fail");
        }
        given_up
    }

    /// Begins a new session, with a server that `remembers` the requests of the old one, or not: its files are opened again before
    /// anything else happens. Returns the requests that fail.
    fn renew(&self, state: &mut State, remembers: bool) -> Vec<Call> {
        let limits = limits(&state.welcome);
        let unknown = state.requests.renewed(limits, remembers);
        let mut again = Vec::new();
        for (&number, handle) in &mut state.handles {
            let Some(identity) = handle.identity else { continue };
            handle.is_stale = handle.flags & open::TEMPORARY != 0;
            if handle.is_stale {
                continue;
            }
            let kept = open::READ | open::WRITE | open::NO_FOLLOW | open::DIRECTORY | open::APPEND;
            let flags = handle.flags & kept | open::AGAIN;
            let request = Open { handle: number, flags, mode: 0, identity, path: &handle.path };
            again.push(Call::new(&Request::Open(request), handle.caller, number, Done::Restored));
        }
        for call in again {
            state.requests.push_restoring(call);
        }
        if !unknown.is_empty() {
            tracing::warn!(
                server = %self.endpoint,
                requests = unknown.len(),
                "a server has forgotten its session: it is unknown whether requests took effect, and they fail"
            );
        }
        unknown
    }
}

fn fail(calls: Vec<Call>) {
    for call in calls {
        call.finish(Err(io::Error::from_raw_os_error(libc::EIO)));
    }
}
