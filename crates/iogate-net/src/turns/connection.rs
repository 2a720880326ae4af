//! One connection to a coordinator: a message goes out, its answer comes in, in the thread that asks.

use std::io::{self, IoSliceMut};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use iogate_core::wire::{
    Failure, Goodbye, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Record, ReplyHeader, Request, RequestHeader,
};
use rustix::event::{PollFd, PollFlags, poll};

use super::fork::Watched;
use super::{Pause, Reach, Unreached, deadline_in};
use crate::client::{Connected, NO_SESSION, flush, send, timespec};
use crate::socket::Socket;

/// Bytes that are read at once: a grant has 45.
const READ_BYTES: usize = 512;
/// A message leaves at once, or something is wrong: it is smaller than any socket's memory.
const SEND_MAX: Duration = Duration::from_secs(5);

/// A session with a coordinator, and the connection that carries it just now, if any.
pub(super) struct Connection {
    link: Option<Link>,
    session: [u8; 16],
    /// In whose name: the user that the coordinator takes this client for.
    user: (u32, u32),
    next_id: u64,
    /// How often it was linked.
    links: u64,
    /// What has no answer yet, in the order of its ids: it is sent again on the session's next connection.
    underway: Vec<(u64, Vec<u8>)>,
    /// What has arrived and is not taken yet.
    incoming: Vec<u8>,
}

/// What came for a request.
#[derive(Debug, Default)]
pub(super) struct Reply {
    pub(super) id: u64,
    /// 0 if it was carried out.
    pub(super) errno: i32,
    /// Why not.
    pub(super) text: String,
    pub(super) fields: Vec<u8>,
    pub(super) payload: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum NoAnswer {
    /// The coordinator does not know the session any more, nor what it has claimed in it.
    Forgotten,
    /// No coordinator was reached, or none answered, in time. The request may have been carried out.
    Unreached(Unreached),
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            link: None,
            session: NO_SESSION,
            user: (0, 0),
            next_id: 1,
            links: 0,
            underway: Vec::new(),
            incoming: Vec::new(),
        }
    }
}

impl Connection {
    pub(super) fn is_linked(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.watched.is_own())
    }

    /// How often it has connected.
    pub(super) fn links(&self) -> u64 {
        self.links
    }

    /// Connects. True if the session goes on: what has no answer has then been sent again. Otherwise a new one has begun, in which
    /// nothing was sent.
    pub(super) fn link(&mut self, reach: &Reach, within: Duration) -> Result<bool, Unreached> {
        self.unlink();
        let Connected { socket, welcome, .. } = reach.connect(self.session, within)?;
        let watched = Watched::new(socket.fd().as_raw_fd());
        let link = self.link.insert(Link { socket: ManuallyDrop::new(socket), watched });
        self.links += 1;
        self.incoming.clear();
        self.user = (welcome.uid, welcome.gid);
        if welcome.resumed == 0 || welcome.session != self.session {
            self.session = welcome.session;
            self.next_id = 1;
            self.underway.clear();
            return Ok(false);
        }
        let again = self.underway.iter().try_for_each(|(_, bytes)| link.send(bytes));
        if again.is_err() {
            self.unlink();
        }
        Ok(true)
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
        let id = self.next_id;
        self.next_id += 1;
        let mut bytes = Vec::with_capacity(128);
        bytes.resize(REQUEST_HEADER_BYTES, 0);
        request.encode(&mut bytes);
        let (uid, gid) = self.user;
        let header = RequestHeader {
            // The only long fields are a claim's, which is checked before.
            fields: (bytes.len() - REQUEST_HEADER_BYTES) as u16,
            payload: 0,
            kind: request.kind(),
            id,
            acked: self.underway.first().map_or(id, |(first, _)| *first),
            uid,
            gid,
            ..RequestHeader::default()
        };
        bytes[..REQUEST_HEADER_BYTES].copy_from_slice(&header.to_bytes());
        if self.link.as_ref().is_some_and(|link| link.send(&bytes).is_err()) {
            self.unlink();
        }
        self.underway.push((id, bytes));
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
            Ok(Some(reply)) => self.underway.retain(|(id, _)| *id != reply.id),
            Ok(None) => {}
            Err(_) => self.unlink(),
        }
        received
    }

    fn try_receive(&mut self, deadline: Instant) -> io::Result<Option<Reply>> {
        let link = self.link.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        loop {
            if let Some(reply) = take(&mut self.incoming)? {
                return Ok(Some(reply));
            }
            let before = self.incoming.len();
            self.incoming.resize(before + READ_BYTES, 0);
            let read = link.socket.read(&mut [IoSliceMut::new(&mut self.incoming[before..])]);
            self.incoming.truncate(before + *read.as_ref().unwrap_or(&0));
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

/// Takes the first whole message off what has arrived.
fn take(incoming: &mut Vec<u8>) -> io::Result<Option<Reply>> {
    let wrong = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let Some(header) = incoming.first_chunk::<REPLY_HEADER_BYTES>() else { return Ok(None) };
    let header = ReplyHeader::from_bytes(header).map_err(wrong)?;
    let fields_end = REPLY_HEADER_BYTES + usize::from(header.fields);
    let end = fields_end + header.payload as usize;
    let (Some(fields), Some(payload)) =
        (incoming.get(REPLY_HEADER_BYTES..fields_end), incoming.get(fields_end..end))
    else {
        return Ok(None);
    };
    let mut reply = Reply { id: header.id, errno: header.errno.into(), ..Reply::default() };
    if header.errno != 0 {
        reply.text = String::from_utf8_lossy(Failure::decode(fields).map_err(wrong)?.text).into_owned();
    } else {
        reply.fields = fields.to_vec();
        reply.payload = payload.to_vec();
    }
    incoming.drain(..end);
    Ok(Some(reply))
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
