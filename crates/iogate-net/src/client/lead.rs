//! Receiving: one thread does it for all, the leader.
//!
//! A thread that waits for its answer leads while nobody else does, and passes that on when it has its own answer: so nobody has to
//! be woken for a lone request. Where somebody waits who is not a thread in a call (an engine), the client's own thread leads.
//! Only the leader answers requests, and gives them up: so nobody touches the memory of a request that is being filled.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iogate_core::proto::client_session::Answered;
use iogate_engine::lock;
use rustix::event::{PollFd, PollFlags, poll};

use super::call::{Answer, Call, Done, Waiter};
use super::receive::{Place, Replies};
use super::session::{Lead, Link, Shared, State, Writer};
use crate::transport::blocking::timespec;

/// How often an idle client looks whether its connection is still there.
const IDLE_LOOK: Duration = Duration::from_secs(1);

impl Shared {
    /// Wakes the leader, if it sleeps in `poll`.
    pub(super) fn wake(&self, state: &State) {
        if state.polls {
            self.waker.wake();
        }
    }

    /// What the client's own thread does.
    pub(super) fn receive_in_background(&self) {
        let mut state = self.lock();
        loop {
            if state.session.is_closed() {
                if state.lead == Lead::Background {
                    self.pass_lead(&mut state);
                }
                return;
            }
            match state.lead {
                Lead::Background => {
                    state = self.lead_once(state, None);
                    if !state.wants_background() && !state.session.is_closed() {
                        self.pass_lead(&mut state);
                    }
                }
                lead => {
                    let (again, waited) =
                        self.wanted.wait_timeout(state, IDLE_LOOK).unwrap_or_else(PoisonError::into_inner);
                    state = again;
                    if lead == Lead::Free && waited.timed_out() && state.lead == Lead::Free {
                        state.lead = Lead::Background;
                        state = self.lead_once(state, Some(Duration::ZERO));
                        self.pass_lead(&mut state);
                    }
                }
            }
        }
    }

    /// Receives until the calling thread has its answer, or another is to receive.
    pub(super) fn lead_as_caller(&self, waiter: &Waiter) {
        let mut state = self.lock();
        while !(waiter.is_answered() || self.has_background() && state.link.is_none()) {
            state = self.lead_once(state, None);
        }
        self.pass_lead(&mut state);
    }

    /// Whoever should receives from now on. Called by the leader.
    fn pass_lead(&self, state: &mut State) {
        if self.has_background() && state.wants_background() && !state.session.is_closed() {
            state.lead = Lead::Background;
            self.wanted.notify_one();
            return;
        }
        let next = state.session.requests().find_map(|call| match &call.done {
            Done::Wake(waiter) => Some(waiter),
            _ => None,
        });
        if let Some(waiter) = next {
            waiter.offer_lead();
            state.lead = Lead::Caller;
        } else {
            state.lead = Lead::Free;
        }
    }

    /// Waits until there is something to receive, room to write, or a server to connect to, and does that.
    fn lead_once<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        let Some(link) = state.link.clone() else {
            drop(state);
            self.reconnect();
            return self.lock();
        };
        state.polls = true;
        let wants_room = state.writer == Writer::Leader;
        drop(state);
        let fd = link.socket.fd();
        let what = if wants_room { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(&fd, what), PollFd::new(&self.waker, PollFlags::IN)];
        let timeout = timeout.and_then(timespec);
        let polled = poll(&mut fds, timeout.as_ref());
        let (found, woken) = (fds[0].revents(), fds[1].revents());
        let mut state = self.lock();
        state.polls = false;
        if !woken.is_empty() {
            self.waker.clear();
        }
        if matches!(polled, Err(error) if error != rustix::io::Errno::INTR) {
            tracing::error!(?polled, "a connection cannot be polled");
        }
        if found.contains(PollFlags::OUT) && state.writer == Writer::Leader {
            state.writer = Writer::Busy;
            self.write_all(&link, state);
        } else {
            drop(state);
        }
        if found.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            self.receive(&link);
        }
        self.lock()
    }

    /// Makes the calling thread the leader if nobody is.
    pub(super) fn lead_if_free(&self) -> bool {
        let mut state = self.lock();
        let is_free = state.lead == Lead::Free;
        if is_free {
            state.lead = Lead::Caller;
        }
        is_free
    }

    /// Receives until everything is answered, for at most so long: what a client does before its connection ends, if nobody receives.
    /// A server that cannot send its answers need not read what else was sent, a goodbye for example.
    pub(super) fn settle(&self, at_most: Duration) {
        let deadline = Instant::now() + at_most;
        loop {
            let state = self.lock();
            let Some(link) = state.link.clone().filter(|_| !state.session.is_idle()) else { return };
            drop(state);
            let left = deadline.saturating_duration_since(Instant::now());
            let fd = link.socket.fd();
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], timespec(left).as_ref()) {
                Ok(0) | Err(_) => return,
                Ok(_) => self.receive(&link),
            }
        }
    }

    /// Receives what is there.
    fn receive(&self, link: &Arc<Link>) {
        let mut incoming = lock(&link.incoming);
        loop {
            let mut batch = Batch { shared: self, done: Vec::new() };
            let received = incoming.receive(&*link.socket, &mut batch);
            self.finish(link, batch.done);
            match received {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    drop(incoming);
                    return self.lose(link, &error);
                }
            }
        }
    }

    /// Tells those who wait, and then writes what they submit together.
    fn finish(&self, link: &Arc<Link>, done: Vec<(Call, io::Result<Answer>)>) {
        if done.is_empty() {
            return;
        }
        let mut state = self.lock();
        let corked = state.writer == Writer::Idle;
        if corked {
            state.writer = Writer::Busy;
        }
        drop(state);
        for (call, answer) in done {
            call.finish(answer);
        }
        if corked {
            self.write_all(link, self.lock());
        }
    }

    /// The connection is over. Called by the leader.
    fn lose(&self, link: &Arc<Link>, error: &io::Error) {
        link.cut();
        let mut state = self.lock();
        while state.writer == Writer::Busy {
            state.awaits_writer = true;
            state = self.written.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.awaits_writer = false;
        state.writer = Writer::Idle;
        state.link = None;
        let early = std::mem::take(&mut state.early);
        self.said.losses.fetch_add(1, Ordering::AcqRel);
        if state.session.lost(self.now()) {
            tracing::warn!(server = %self.endpoint, %error, "the connection to a server is lost");
        }
        drop(state);
        early.into_iter().for_each(|(call, answer)| call.finish(answer));
    }

    /// Waits for the waker, for at most so long.
    pub(super) fn pause(&self, time: Duration) {
        {
            let mut state = self.lock();
            if state.session.is_closed() {
                return;
            }
            state.polls = true;
        }
        let _ = poll(&mut [PollFd::new(&self.waker, PollFlags::IN)], timespec(time).as_ref());
        self.waker.clear();
        self.lock().polls = false;
    }
}

/// What is complete of what has been received.
struct Batch<'a> {
    shared: &'a Shared,
    done: Vec<(Call, io::Result<Answer>)>,
}

fn unexpected(id: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("an answer comes to a request {id} that nobody has sent"),
    )
}

impl Replies for Batch<'_> {
    fn place(&mut self, id: u64) -> io::Result<Place> {
        let state = self.shared.lock();
        let call = state.session.get(id).ok_or_else(|| unexpected(id))?;
        Ok(if call.is_read() { Place::Into(call.memory.segments().to_vec()) } else { Place::Own })
    }

    fn take(&mut self, id: u64, outcome: Result<&[u8], i32>) -> io::Result<Answered<Call>> {
        self.shared.lock().session.answered(id, outcome).ok_or_else(|| unexpected(id))
    }

    fn answered(&mut self, id: u64, call: Call, answer: io::Result<Answer>) {
        let mut state = self.shared.lock();
        state.asynchronous -= usize::from(call.is_asynchronous());
        if call.payload_bytes() > 0 && id >= state.written && state.writer != Writer::Idle {
            state.early.push((call, answer));
        } else {
            drop(state);
            self.done.push((call, answer));
        }
    }
}
