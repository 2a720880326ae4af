//! Waiting for many connections at once, and waking who waits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use super::blocking::timespec;
use super::socket::kept;

/// What the kernel calls the [`Waker`] of a [`Poller`]; its listeners count from 1.
pub(crate) const WAKE: u64 = 0;
/// And its first connection.
pub(crate) const FIRST_CONNECTION: u64 = 1 << 32;

/// What the kernel is to tell of many descriptors.
#[derive(Debug)]
pub(crate) struct Poller(OwnedFd);

impl Poller {
    pub(crate) fn new() -> io::Result<Poller> {
        Ok(Poller(epoll::create(epoll::CreateFlags::CLOEXEC)?))
    }

    /// Begins to tell of a descriptor, by this token.
    pub(crate) fn add(&self, fd: impl AsFd, token: u64, what: EventFlags) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(token), what)?)
    }

    /// Tells something else of it from now on.
    pub(crate) fn ask(&self, fd: impl AsFd, token: u64, what: EventFlags) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, EventData::new_u64(token), what)?)
    }

    /// Tells nothing of it any more.
    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Waits until there is something to tell, for at most so long: as many events as there is room for. None after a signal.
    pub(crate) fn wait(&self, events: &mut Vec<Event>, at_most: Option<Duration>) -> io::Result<()> {
        events.clear();
        let at_most = at_most.and_then(timespec);
        match epoll::wait(&self.0, rustix::buffer::spare_capacity(events), at_most.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Wakes a thread that waits.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        Ok(Waker(kept(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)?))
    }

    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Takes note that it has been woken.
    pub(crate) fn clear(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&self.0, &mut count[..]);
    }

    /// In a child: the parent's is not this one any more. The number stays.
    pub(crate) fn part_from_parent(&self) {
        if let Ok(own) = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK) {
            // SAFETY: both descriptors are open and stay so; the parent's of this number is closed here.
            unsafe { libc::dup3(own.as_raw_fd(), self.0.as_raw_fd(), libc::O_CLOEXEC) };
        }
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
