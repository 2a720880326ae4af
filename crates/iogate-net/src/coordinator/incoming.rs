//! Connections come, and bytes from them become requests.

use std::io;
use std::sync::Arc;

use iogate_core::coord::leader::{Asked, Rest};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{Offset, PATH_BYTES_MAX, REQUEST_HEADER_BYTES, Request, RequestHeader, Status};
use rustix::event::epoll;

use super::connection::{Connection, Framed, OUT_BYTES_MAX, READ_BYTES_MAX, Read, State};
use super::reactor::Reactor;
use crate::system::unix_now;
use crate::transport::handshake::PROOF_BYTES_MAX;

/// Most reads in a row from one connection, and connections that are accepted in a row.
const READS_MAX: usize = 4;
/// When a round has so many bytes of answers, what else has come waits for the next one.
const ROUND_BYTES_MAX: usize = 4 << 20;
const ACCEPTS_MAX: usize = 256;
/// Room for the beginning of a message: any header with its fields, and a proof.
const LEFT_BYTES_MAX: usize = REQUEST_HEADER_BYTES + (64 << 10) + PROOF_BYTES_MAX as usize;
/// Room for that and what is read behind it.
pub(super) const SCRATCH_BYTES: usize = LEFT_BYTES_MAX + READ_BYTES_MAX;
/// The numbers of a Hello and of a Status.
const HELLO: u16 = 1;
const STATUS: u16 = Request::Status(Status {}).kind();

impl Reactor {
    pub(super) fn accept(&mut self, listener: u64) {
        let Some(at) = self.listeners.get(listener as usize - 1) else { return };
        let mut taken = Vec::new();
        for _ in 0..ACCEPTS_MAX {
            match at.accept() {
                Ok((socket, source)) => taken.push(Connection::new(socket, Arc::clone(&at.access), source)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                // That one client could not be taken says nothing of the next one.
                Err(error) if error.raw_os_error().is_none() => {
                    tracing::warn!(%error, "a connection at {} could not be taken", at.endpoint());
                }
                Err(error) => {
                    // Most likely no descriptor is left: it is tried again in a while.
                    tracing::warn!(%error, "accepting a connection at {}", at.endpoint());
                    let data = epoll::EventData::new_u64(listener);
                    let _ = epoll::modify(&self.epoll, at.fd(), data, epoll::EventFlags::empty());
                    break;
                }
            }
        }
        taken.into_iter().for_each(|connection| self.take(connection));
    }

    /// Takes in a new connection.
    fn take(&mut self, connection: Connection) {
        let token = self.next_connection;
        self.next_connection += 1;
        let data = epoll::EventData::new_u64(token);
        if let Err(error) = epoll::add(&self.epoll, connection.socket.fd(), data, epoll::EventFlags::IN) {
            tracing::warn!(%error, "a connection could not be taken");
            return;
        }
        let count = self.per_client.entry(connection.source.clone()).or_insert(0);
        *count += 1;
        let (count, limits) = (*count, &self.config.limits);
        let too_many = if self.connections.len() >= limits.connections {
            Some(format!("the coordinator has {} connections, which is the limit", limits.connections))
        } else if count > limits.connections_per_client {
            Some(format!("this client has {} connections, which is the limit", count - 1))
        } else {
            None
        };
        self.connections.insert(token, Box::new(connection));
        if let Some(why) = too_many {
            self.refuse(token, &Refusal::new(libc::EUSERS, why));
        }
    }

    /// The kernel has told something of a connection.
    pub(super) fn told(&mut self, token: u64, flags: epoll::EventFlags) {
        use epoll::EventFlags as Flags;
        let over = flags.intersects(Flags::ERR | Flags::HUP);
        if over && self.connections.get(&token).is_some_and(|connection| connection.is_held_back) {
            // Nobody takes the answers that its requests wait for.
            return self.close(token);
        }
        if flags.contains(Flags::OUT) || over {
            self.list(token);
        }
        if flags.contains(Flags::IN) || over {
            self.read(token);
        }
    }

    /// Reads what is there, and takes it in.
    pub(super) fn read(&mut self, token: u64) {
        let Some(mut connection) = self.connections.remove(&token) else { return };
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut outcome = Ok(());
        let mut read = Read::All(0);
        for _ in 0..READS_MAX {
            if connection.state == State::Greeting || connection.is_ending {
                break;
            }
            let left = connection.left.len();
            scratch[..left].copy_from_slice(&connection.left);
            // What has come before is taken in before there is more of it.
            let was_held_back = connection.is_held_back;
            read = match was_held_back {
                true => Read::Some(0),
                false => connection.read(&mut scratch[left..left + READ_BYTES_MAX]),
            };
            let (Read::All(count) | Read::Some(count)) = read else { break };
            outcome = self.take_in(token, &mut connection, &scratch[..left + count]);
            if outcome.is_err() || connection.is_held_back || matches!(read, Read::All(_)) {
                break;
            }
        }
        self.scratch = scratch;
        // Reading may have made something to send.
        if connection.socket.wants_flush() && !std::mem::replace(&mut connection.is_listed, true) {
            self.listed.push(token);
        }
        // One that is held back for its own answers goes on when they have been sent.
        let goes_on = match connection.is_held_back {
            true => connection.unsent() == 0 && self.owed(token) == 0,
            false => matches!(read, Read::Some(_)),
        };
        if outcome.is_ok() && goes_on {
            self.again.push(token);
        }
        self.connections.insert(token, connection);
        match outcome {
            Err(refusal) => self.refuse(token, &refusal),
            Ok(()) if read == Read::Over => self.close(token),
            Ok(()) => self.ask_kernel(token),
        }
        self.charge(token);
    }

    /// Bytes of answers for a connection that are not even queued.
    pub(super) fn owed(&self, token: u64) -> usize {
        self.leading.as_ref().map_or(0, |leading| leading.owed(token).iter().sum())
    }

    /// Charges what a connection has in memory to its user, and closes it if that is too much: its session can go on by another one.
    pub(super) fn charge(&mut self, token: u64) {
        let owed = self.owed(token);
        let Some(connection) = self.connections.get_mut(&token) else { return };
        let memory = connection.memory() + owed;
        let before = std::mem::replace(&mut connection.charged, memory);
        self.budget.change(connection.user, before, memory);
        if memory > before && self.budget.is_short_of(connection.user, 0) {
            let peer = connection.peer_text();
            tracing::warn!(%peer, "connection cut: too many answers are underway to its user, who takes none");
            self.cut += 1;
            self.close(token);
        }
    }

    /// Whether the next request has to wait for room for its answer.
    fn holds_back(&self, token: u64, connection: &Connection, is_status: bool) -> bool {
        let Some(leading) = &self.leading else { return false };
        let [at_once, kept] = leading.owed(token);
        let ready = connection.unsent() + at_once;
        let most = if is_status { 1 } else { OUT_BYTES_MAX };
        ready >= most || ready + kept >= OUT_BYTES_MAX || leading.ready_bytes() >= ROUND_BYTES_MAX
    }

    /// Takes the messages that are whole, and keeps the rest.
    fn take_in(&mut self, token: u64, connection: &mut Connection, bytes: &[u8]) -> Result<(), Refusal> {
        let mut at = 0;
        connection.is_held_back = false;
        while connection.state != State::Greeting {
            let Some((header, fields, payload, length)) = frame(&bytes[at..], connection.state)? else {
                break;
            };
            let State::Session(id) = connection.state else {
                at += length;
                self.greet(token, connection, &header, fields, payload)?;
                continue;
            };
            if self.holds_back(token, connection, header.kind == STATUS) {
                connection.is_held_back = true;
                break;
            }
            at += length;
            let request = Request::decode(header.kind, fields)
                .map_err(|error| Refusal::new(libc::EPROTO, format!("kind {}: {error}", header.kind)))?;
            let now = self.clock.now();
            let Some(leading) = &mut self.leading else { break };
            let asked = Asked { now, connection: token, session: id, id: header.id };
            match leading.handle(asked, &request) {
                Rest::Nothing => {}
                Rest::Time => leading.at_once().fields(token, header.id, &Offset { offset: unix_now() }),
                Rest::Over => connection.state = State::Parted,
                Rest::Status => self.tell_status(token, connection.user, header.id),
            }
        }
        connection.keep(&bytes[at..]);
        Ok(())
    }
}

/// The message that some bytes begin with; `None` if it is not whole yet.
fn frame(bytes: &[u8], state: State) -> Result<Option<Framed<'_>>, Refusal> {
    let Some(header) = bytes.first_chunk::<REQUEST_HEADER_BYTES>() else { return Ok(None) };
    let protocol = |text: String| Err(Refusal::new(libc::EPROTO, text));
    let header =
        RequestHeader::from_bytes(header).map_err(|error| Refusal::new(libc::EPROTO, error.to_string()))?;
    let is_hello = header.kind == HELLO;
    match state {
        State::New if !is_hello => return protocol("expected a Hello first".into()),
        State::Session(_) if is_hello => return protocol("a second Hello on one connection".into()),
        State::Parted => return protocol("the session has ended: a Goodbye is the last request".into()),
        _ => {}
    }
    let most = if is_hello { PROOF_BYTES_MAX } else { 0 };
    if header.payload > most {
        let (kind, payload) = (header.kind, header.payload);
        return protocol(format!(
            "a request of kind {kind} has {payload} bytes of payload, expected at most {most}"
        ));
    }
    if is_hello && usize::from(header.fields) > PATH_BYTES_MAX {
        return protocol(format!("a Hello has {} bytes of fields", header.fields));
    }
    let fields_end = REQUEST_HEADER_BYTES + usize::from(header.fields);
    let end = fields_end + header.payload as usize;
    match (bytes.get(REQUEST_HEADER_BYTES..fields_end), bytes.get(fields_end..end)) {
        (Some(fields), Some(payload)) => Ok(Some((header, fields, payload, end))),
        _ => Ok(None),
    }
}
