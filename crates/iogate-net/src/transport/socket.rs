//! A connected stream, plain or encrypted. Never blocks: who wants to wait polls the descriptor.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, sendmsg, shutdown, sockopt};

/// A connected stream socket in non-blocking mode. Reading and writing may happen at the same time, in different threads;
/// two readers, or two writers, must take turns.
pub trait Socket: Send + Sync {
    /// What to poll.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Reads what is there, in the order of the buffers: 0 bytes at the end of the stream, [`io::ErrorKind::WouldBlock`] if
    /// nothing is there yet.
    ///
    /// Poll the descriptor only after that, or after fewer bytes than there was room for: until then, bytes that have left
    /// the kernel may wait inside. And look at [`wants_flush`](Socket::wants_flush): reading may have made something to send.
    fn read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Writes as much as there is room for, at least one byte, or fails with [`io::ErrorKind::WouldBlock`].
    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Whether bytes that `write` has taken still wait to be sent, so that `flush` is to be called when the descriptor is
    /// writable.
    fn wants_flush(&self) -> bool {
        false
    }

    /// Sends what `write` has taken, or as much as there is room for and fails with [`io::ErrorKind::WouldBlock`].
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether something has to come from the other end before what is written leaves.
    fn is_handshaking(&self) -> bool {
        false
    }

    /// Who is at the other end, as far as the socket itself vouches for it.
    fn peer(&self) -> Peer {
        Peer::Unknown
    }
}

/// Who is at the other end of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// The socket does not say.
    Unknown,
    /// A process on this machine.
    Process {
        /// Its user.
        uid: u32,
        /// Its group.
        gid: u32,
        /// Its number.
        pid: i32,
    },
    /// The holder of a certificate that was verified.
    Certificate {
        /// The common name in it.
        name: String,
    },
}

/// Takes a descriptor and returns it, or a copy of it under another number.
pub type Keep = fn(OwnedFd) -> io::Result<OwnedFd>;

static KEEP: OnceLock<Keep> = OnceLock::new();

/// Says what becomes of the descriptors that clients and [`PlainSocket`]s of this process have, before they are used: for a library
/// that must keep them out of the way of the program that it is in. Holds for good; the first call counts.
pub fn keep_descriptors_by(keep: Keep) {
    let _ = KEEP.set(keep);
}

pub(crate) fn kept(fd: OwnedFd) -> io::Result<OwnedFd> {
    match KEEP.get() {
        Some(keep) => keep(fd),
        None => Ok(fd),
    }
}

/// A TCP or Unix socket as it is.
#[derive(Debug)]
pub struct PlainSocket {
    fd: OwnedFd,
    is_unix: bool,
}

impl PlainSocket {
    /// Takes over a connected socket. Makes it non-blocking; of TCP, also switches off the delay of small messages, and has
    /// the kernel give up a peer that has been gone for half a minute.
    pub fn new(fd: OwnedFd) -> io::Result<PlainSocket> {
        use std::time::Duration;
        let fd = kept(fd)?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        let is_unix = sockopt::socket_domain(&fd)? == rustix::net::AddressFamily::UNIX;
        if !is_unix {
            sockopt::set_tcp_nodelay(&fd, true)?;
            sockopt::set_socket_keepalive(&fd, true)?;
            sockopt::set_tcp_keepidle(&fd, Duration::from_secs(10))?;
            sockopt::set_tcp_keepintvl(&fd, Duration::from_secs(5))?;
            sockopt::set_tcp_keepcnt(&fd, 4)?;
            sockopt::set_tcp_user_timeout(&fd, 30_000)?;
        }
        Ok(PlainSocket { fd, is_unix })
    }

    /// Reads into the memory behind a vector's elements, otherwise as [`Socket::read`].
    pub(super) fn read_into(&self, bytes: &mut Vec<u8>) -> io::Result<usize> {
        loop {
            match rustix::io::read(&self.fd, rustix::buffer::spare_capacity(bytes)) {
                Err(Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }
}

impl Socket for PlainSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn read(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            // The kernel has less to do for one buffer.
            let read = match &mut *buffers {
                [one] => recv(&self.fd, &mut **one, RecvFlags::empty()).map(|(count, _)| count),
                many => rustix::io::readv(&self.fd, many),
            };
            match read {
                Err(Errno::INTR) => {}
                read => return Ok(read?),
            }
        }
    }

    fn write(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            // Not `write`: a broken connection is an error, not a signal.
            let written = match buffers {
                [one] => send(&self.fd, one, SendFlags::NOSIGNAL),
                many => {
                    let mut control = rustix::net::SendAncillaryBuffer::default();
                    sendmsg(&self.fd, many, &mut control, SendFlags::NOSIGNAL)
                }
            };
            match written {
                Err(Errno::INTR) => {}
                written => return Ok(written?),
            }
        }
    }

    fn peer(&self) -> Peer {
        if !self.is_unix {
            return Peer::Unknown;
        }
        // Not rustix's, which has no word for a peer outside this process-id namespace: its id is 0.
        let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
        let mut bytes = size_of_val(&peer) as libc::socklen_t;
        // SAFETY: `peer` has `bytes` bytes, of which any values are valid.
        let got = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut peer).cast(),
                &raw mut bytes,
            )
        };
        match got {
            0 => Peer::Process { uid: peer.uid, gid: peer.gid, pid: peer.pid },
            _ => Peer::Unknown,
        }
    }
}

/// Ends a connection, and lets the peer have what was sent last: bytes that nobody has read would make the kernel throw it away.
pub(crate) fn hang_up(socket: BorrowedFd<'_>) {
    let _ = shutdown(socket, Shutdown::Write);
    let mut waste = [0; 4096];
    for _ in 0..64 {
        match rustix::io::read(socket, &mut waste) {
            Ok(count) if count > 0 => {}
            _ => break,
        }
    }
    let _ = shutdown(socket, Shutdown::Both);
}

/// Logs why a connection ends, if it says who was not let in.
pub(crate) fn log_end(error: &io::Error, peer: impl FnOnce() -> String) {
    if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied) {
        tracing::warn!(peer = %peer(), "not let in: {error}");
    }
}

/// The supplementary groups of the process at the other end of a Unix socket, as it had them when it connected. `None` if the kernel does
/// not say.
pub(crate) fn peer_groups(socket: BorrowedFd<'_>) -> Option<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut bytes = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the kernel writes at most `bytes` bytes into the list, and their number.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Some(groups);
        }
        // Too many for the list: the kernel has said how many.
        if io::Error::last_os_error().raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return None;
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_local_peer_is_known_and_its_end_is_noticed() {
        let (one, other) = UnixStream::pair().unwrap();
        let (one, other) = (PlainSocket::new(one.into()).unwrap(), PlainSocket::new(other.into()).unwrap());
        let pid = std::process::id() as i32;
        assert!(matches!(one.peer(), Peer::Process { pid: found, .. } if found == pid));
        let mut memory = [0; 8];
        let nothing = one.read(&mut [IoSliceMut::new(&mut memory)]).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        assert_eq!(other.write(&[IoSlice::new(b"ab"), IoSlice::new(b"c")]).unwrap(), 3);
        assert_eq!(one.read(&mut [IoSliceMut::new(&mut memory)]).unwrap(), 3);
        drop(other);
        assert_eq!(one.read(&mut [IoSliceMut::new(&mut memory)]).unwrap(), 0);
        let broken = one.write(&[IoSlice::new(b"x")]).unwrap_err();
        assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe, "and no signal");
    }
}
