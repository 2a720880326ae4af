//! One connection to a coordinator: a message goes out, its answer comes in, in the thread that asks.

use std::io::{self, IoSliceMut};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use iogate_core::coord::claimant::{Calls, Reply};
use iogate_core::wire::{Goodbye, Request};
use rustix::event::{PollFd, PollFlags, poll};

use super::fork::Watched;
use super::{Pause, Reach, Unreached, deadline_in};
use crate::client::{Connected, flush, send, timespec};
use crate::socket::Socket;

/// Bytes that are read at once: a grant has 45.
const READ_BYTES: usize = 512;
/// A message leaves at once, or something is wrong: it is smaller than any socket's memory.
const SEND_MAX: Duration = Duration::from_secs(5);

/// A session with a coordinator, and the connection that carries it just now, if any.
#[derive(Default)]
pub(super) struct Connection {
    link: Option<Link>,
    calls: Calls,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The coordinator does not know the session any more, nor what it has claimed in it.
    Forgotten,
    /// No coordinator was reached, or none answered, in time. The request may have been carried out.
    Unreached(Unreached),
}

impl Connection {
    pub(super) fn is_linked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.watched.is_own())
    }

    /// How often it has connected.
    pub(super) fn links(&self) -> u64 {
        self.calls.links()
    }

    /// Connects. True if the session goes on: what has no answer has then been sent again. Otherwise a new one has begun, in which
    /// nothing was sent.
    pub(super) fn link(&mut self, reach: &Reach, within: Duration) -> Result<bool, Unreached> {
        self.unlink();
        let Connected { socket, welcome, .. } = reach.connect(self.calls.session(), within)?;
        let watched = Watched::new(socket.fd().as_raw_fd());
        let link = self.link.insert(Link { socket: ManuallyDrop::new(socket), watched });
        let user = (welcome.uid, welcome.gid);
        let goes_on = self.calls.linked(welcome.session, welcome.resumed != 0, user);
        if goes_on && self.calls.underway().try_for_each(|bytes| link.send(bytes)).is_err() {
            self.unlink();
        }
        Ok(goes_on)
    }

    /// Closes the connection; the session can go on.
    pub(super) fn unlink(&mut self) {
        self.link = None;
    }

    /// Ends the session, if the coordinator can be told at once.
    pub(super) fn part(&mut self) {
        if self.is_linked() {
            self.post(&Request::Goodbye(Goodbye {}));
        }
        *self = Connection::default();
    }

    /// Sends a request and returns its id. If that fails, the connection is closed: the request is sent again on the next one.
    pub(super) fn post(&mut self, request: &Request<'_>) -> u64 {
        let (id, bytes) = self.calls.post(request);
        if self.link.as_ref().is_some_and(|link| link.send(bytes).is_err()) {
            self.unlink();
        }
        id
    }

    /// The next answer that arrives; `None` if none does before the deadline, or a signal comes first. The connection is closed when
    /// this fails.
    pub(super) fn receive(&mut self, deadline: Instant) -> io::Result<Option<Reply>> {
        let received = self.try_receive(deadline);
        match &received {
            Ok(Some(reply)) if reply.id == 0 => {
                self.unlink();
                let text = format!("the coordinator ends the connection: {}", reply.text);
                return Err(io::Error::new(io::ErrorKind::ConnectionAborted, text));
            }
            Ok(_) => {}
            Err(_) => self.unlink(),
        }
        received
    }

    fn try_receive(&mut self, deadline: Instant) -> io::Result<Option<Reply>> {
        let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            if let Some(reply) = self.calls.take().map_err(wrong)? {
                return Ok(Some(reply));
            }
            let read = link.socket.read(&mut [IoSliceMut::new(self.calls.room(READ_BYTES))]);
            self.calls.arrived(READ_BYTES, *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends the connection")),
                Ok(_) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            if link.socket.wants_flush() {
                flush(&**link.socket, deadline)?;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let fd = PollFd::from_borrowed_fd(link.socket.fd(), PollFlags::IN);
            match poll(&mut [fd], timespec(left).as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends a request and waits for its answer, over lost connections as long as the session goes on. Answers to others are dropped.
    pub(super) fn call(
        &mut self,
        reach: &Reach,
        request: &Request<'_>,
        within: Duration,
    ) -> Result<Reply, NoAnswer> {
        let deadline = deadline_in(within);
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut pause = Pause::new();
        let mut posted = None;
        loop {
            if self.is_linked() {
                let id = *posted.get_or_insert_with(|| self.post(request));
                match self.receive(deadline) {
                    Ok(Some(reply)) if reply.id == id => return Ok(reply),
                    // A connection on which nothing comes is not to be trusted.
                    Ok(None) if left().is_zero() => self.unlink(),
                    _ => {}
                }
            } else {
                match self.link(reach, left()) {
                    Ok(true) => {}
                    Ok(false) => return Err(NoAnswer::Forgotten),
                    Err(unreached) if unreached.is_final => return Err(NoAnswer::Unreached(unreached)),
                    Err(unreached) => {
                        let time = pause.next();
                        if time >= left() {
                            return Err(NoAnswer::Unreached(unreached));
                        }
                        std::thread::sleep(time);
                    }
                }
            }
            if left().is_zero() {
                let tried = "no answer in time".into();
                return Err(NoAnswer::Unreached(Unreached { tried, is_final: false }));
            }
        }
    }
}

/// A socket, and what makes children of this process close it.
struct Link {
    socket: ManuallyDrop<Box<dyn Socket>>,
    watched: Watched,
}

impl Link {
    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        send(&**self.socket, bytes, deadline_in(SEND_MAX))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // In a child it is closed already, and its number may be another file's.
        if self.watched.is_own() {
            self.watched.forget();
            // SAFETY: not used again.
            unsafe { ManuallyDrop::drop(&mut self.socket) };
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("is_linked", &self.is_linked()).finish_non_exhaustive()
    }
}
