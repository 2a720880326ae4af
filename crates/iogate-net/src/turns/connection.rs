//! One connection to a coordinator: messages go out, answers come in, in the thread that asks. Which, and when, an [`Exchange`] decides.

use std::io::{self, IoSliceMut};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::Duration;

use iogate_core::coord::claimant::{Answer, Call, Calls, Event, Exchange, NoAnswer, Reply, Step};
use iogate_core::wire::{Goodbye, Request};
use rustix::event::{PollFd, PollFlags, poll};

use super::fork::Watched;
use super::{Reach, Unreached, clock, deadline_in, nanoseconds};
use crate::transport::blocking::{flush, send, timespec};
use crate::transport::{Connected, Socket};

/// Bytes that are read at once: a grant has 45.
const READ_BYTES: usize = 512;
/// A message leaves at once, or something is wrong: it is smaller than any socket's memory.
const SEND_MAX: Duration = Duration::from_secs(5);
/// A connection is tried for at least so long, however little time is left.
const LINK_MIN: Duration = Duration::from_millis(1);

/// A session with a coordinator, and the connection that carries it just now, if any.
#[derive(Default)]
pub(super) struct Connection {
    link: Option<Link>,
    calls: Calls,
}

impl Connection {
    pub(super) fn is_linked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.watched.is_own())
    }

    /// Carries a request to its end. `watch` is called, with what was tried last, whenever there is nothing to do but to wait on.
    pub(super) fn carry<E: Exchange>(
        &mut self,
        reach: &Reach,
        exchange: &mut E,
        request: &Request<'_>,
        tried: &mut String,
        mut watch: impl FnMut(&mut E, &str),
    ) -> E::End {
        loop {
            let now = clock();
            let step = exchange.next(now, &mut self.calls, request);
            let sent = self.send();
            let event = match step {
                Step::Connect { until } => match self.link(reach, until.saturating_sub(now)) {
                    Ok(is_same) => Event::Connected { is_same },
                    Err(unreached) => {
                        *tried = unreached.tried;
                        Event::Unreached { is_final: unreached.is_final, random: random() }
                    }
                },
                Step::Wait { until } => match sent.and_then(|()| self.receive(until)) {
                    Ok(Some(reply)) => Event::Answered(reply),
                    Ok(None) => {
                        watch(exchange, tried);
                        continue;
                    }
                    Err(error) => {
                        *tried = error.to_string();
                        Event::Disconnected { random: random() }
                    }
                },
                Step::Rest { until } => {
                    std::thread::sleep(Duration::from_nanos(until.saturating_sub(now)));
                    watch(exchange, tried);
                    continue;
                }
                Step::Unlink => {
                    self.unlink();
                    continue;
                }
                Step::Part => {
                    *self = Connection::default();
                    continue;
                }
                Step::Over(end) => return end,
            };
            exchange.happened(clock(), event);
        }
    }

    /// Asks, and waits for the answer, over lost connections as long as the session goes on. Answers to others are dropped.
    pub(super) fn call(
        &mut self,
        reach: &Reach,
        request: &Request<'_>,
        within: Duration,
    ) -> Result<Answer, (NoAnswer, String)> {
        let mut tried = String::new();
        let mut call = Call::new(clock(), nanoseconds(within), self.is_linked());
        let end = self.carry(reach, &mut call, request, &mut tried, |_, _| {});
        end.map_err(|why| (why, tried))
    }

    /// Connects. True if the session goes on.
    fn link(&mut self, reach: &Reach, within: u64) -> Result<bool, Unreached> {
        self.unlink();
        let within = Duration::from_nanos(within).max(LINK_MIN);
        let Connected { socket, welcome, .. } = reach.connect(self.calls.session(), within)?;
        let watched = Watched::new(socket.fd().as_raw_fd());
        self.link = Some(Link { socket: ManuallyDrop::new(socket), watched, is_drained: false });
        Ok(self.calls.linked(welcome.session, welcome.resumed != 0, (welcome.uid, welcome.gid)))
    }

    /// Closes the connection; the session can go on.
    fn unlink(&mut self) {
        self.link = None;
    }

    /// Ends the session, if the coordinator can be told at once.
    pub(super) fn part(&mut self) {
        if self.is_linked() {
            self.calls.post(&Request::Goodbye(Goodbye {}));
            let _ = self.send();
        }
        *self = Connection::default();
    }

    /// Sends what has not been sent, if there is a connection. If that fails, the connection is closed.
    fn send(&mut self) -> io::Result<()> {
        let Some(link) = &self.link else { return Ok(()) };
        let sent = self.calls.unsent().try_for_each(|bytes| link.send(bytes));
        match sent {
            Ok(()) => self.calls.all_sent(),
            Err(_) => self.unlink(),
        }
        sent
    }

    /// The next answer that arrives; `None` if none does before the deadline, or a signal comes first. The connection is closed when
    /// this fails.
    fn receive(&mut self, deadline: u64) -> io::Result<Option<Reply>> {
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

    fn try_receive(&mut self, deadline: u64) -> io::Result<Option<Reply>> {
        let link = self.link.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
            if let Some(reply) = self.calls.take().map_err(wrong)? {
                return Ok(Some(reply));
            }
            if !link.is_drained {
                let read = link.socket.read(&mut [IoSliceMut::new(self.calls.room(READ_BYTES))]);
                let count = *read.as_ref().unwrap_or(&0);
                self.calls.arrived(READ_BYTES, count);
                link.is_drained = count < READ_BYTES;
                match read {
                    Ok(0) => {
                        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends the connection"));
                    }
                    Ok(_) => continue,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            let left = Duration::from_nanos(deadline.saturating_sub(clock()));
            if link.socket.wants_flush() {
                flush(&**link.socket, deadline_in(left))?;
            }
            let fd = PollFd::from_borrowed_fd(link.socket.fd(), PollFlags::IN);
            match poll(&mut [fd], timespec(left).as_ref()) {
                Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
                Ok(_) => link.is_drained = false,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Some byte, so that not all clients come back at the same time. Without random numbers they do.
fn random() -> u8 {
    let mut random = [0; 1];
    let _ = crate::system::random(&mut random);
    random[0]
}

/// A socket, and what makes children of this process close it.
struct Link {
    socket: ManuallyDrop<Box<dyn Socket>>,
    watched: Watched,
    /// The last read has brought all that there was: there is no use in another one before the kernel says so.
    is_drained: bool,
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
