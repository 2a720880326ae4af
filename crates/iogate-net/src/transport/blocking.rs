//! Whole messages over a socket, for a thread that waits until they are through.

use std::io::{self, IoSlice, IoSliceMut};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Socket;

/// A time as `poll` takes it.
pub(crate) fn timespec(time: Duration) -> Option<Timespec> {
    Timespec::try_from(time).ok()
}

fn wait_for(socket: &dyn Socket, what: PollFlags, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let fd = socket.fd();
    match poll(&mut [PollFd::new(&fd, what)], timespec(left).as_ref()) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer")),
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends all of a message.
pub(crate) fn send(socket: &dyn Socket, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        match socket.write(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(socket, PollFlags::OUT, deadline)?;
            }
            Err(error) => return Err(error),
        }
    }
    flush(socket, deadline)
}

/// Sends what the socket has taken.
pub(crate) fn flush(socket: &dyn Socket, deadline: Instant) -> io::Result<()> {
    while socket.wants_flush() {
        match socket.flush() {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(socket, PollFlags::OUT, deadline)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills the memory, and reads nothing behind it.
pub(crate) fn receive(socket: &dyn Socket, mut memory: &mut [u8], deadline: Instant) -> io::Result<()> {
    while !memory.is_empty() {
        match socket.read(&mut [IoSliceMut::new(memory)]) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends the connection")),
            Ok(count) => memory = &mut memory[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                wait_for(socket, PollFlags::IN, deadline)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
