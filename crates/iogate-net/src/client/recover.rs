//! What is done when a connection or a server is lost, as the session says.

use std::fmt;
use std::io;

use iogate_core::proto::client_session::{Attempt, GivenUp, Reconnected};
use iogate_core::wire::Request;
use iogate_vfs::Caller;

use super::call::{Call, Done};
use super::session::{Shared, State};
use crate::transport::Connected;

impl Shared {
    /// Tries to connect once, or waits until it is time to. Called by the leader.
    pub(super) fn reconnect(&self) {
        let now = self.now();
        let mut state = self.lock();
        if self.ring().is_some()
            && let Some(given_up) = state.session.give_up_at_once(now)
        {
            state.count_asynchronous();
            drop(state);
            return self.fail(given_up.failed);
        }
        match state.session.attempt(now) {
            Attempt::Nothing => {}
            Attempt::WaitUntil(time) => {
                drop(state);
                self.pause(time.since(now).into());
            }
            Attempt::GiveUp(given_up) => {
                self.note_given_up(&mut state, &given_up, &"it answers nothing");
                drop(state);
                self.fail(given_up.failed);
            }
            Attempt::Connect(session) => {
                drop(state);
                if let Err(refusal) = self.is_out_of_ring() {
                    return self.could_not_connect(&refusal);
                }
                match self.options.connect(&self.endpoint, session) {
                    Ok(connected) => self.connected(connected),
                    Err(error) => self.could_not_connect(&error),
                }
            }
        }
    }

    /// There is a connection again.
    fn connected(&self, Connected { socket, welcome, clock }: Connected) {
        let now = self.now();
        let mut state = self.lock();
        let Reconnected { is_resumed, gone, is_news, failed } = state.session.connected(welcome, now);
        state.clock = clock;
        state.count_asynchronous();
        self.said.note(&welcome);
        self.look_at_clock(&mut state);
        self.install(&mut state, socket);
        if is_news {
            tracing::warn!(server = %self.endpoint, %gone, resumed = is_resumed, "a server is back");
        }
        if !failed.is_empty() {
            tracing::warn!(
                server = %self.endpoint,
                requests = failed.len(),
                "a server has forgotten its session: requests fail that may have taken effect, or are larger than it takes now"
            );
        }
        self.write(state);
        self.fail(failed);
        self.look_at_connection();
    }

    fn fail(&self, calls: Vec<Call>) {
        let errno = self.errno();
        for call in calls {
            call.finish(Err(io::Error::from_raw_os_error(errno)));
        }
    }

    fn could_not_connect(&self, error: &dyn fmt::Display) {
        let now = self.now();
        let mut state = self.lock();
        if let Some(given_up) = state.session.could_not_connect(now) {
            self.note_given_up(&mut state, &given_up, error);
            drop(state);
            self.fail(given_up.failed);
        }
    }

    /// The server has been gone for too long.
    fn note_given_up(&self, state: &mut State, given_up: &GivenUp<Call>, error: &dyn fmt::Display) {
        state.count_asynchronous();
        if given_up.is_news {
            let requests = given_up.failed.len();
            tracing::error!(server = %self.endpoint, %error, requests, "a server does not come back: its requests fail");
        }
    }
}

/// What opens files again in a new session.
pub(super) fn own(request: Request<'_>, caller: &Caller) -> Call {
    Call::new(&request, *caller, Done::Restored)
}
