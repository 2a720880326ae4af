//! Connections come, and bytes from them become requests.

use std::sync::Arc;

use iogate_core::coord::leader::{Asked, Rest};
use iogate_core::proto::frame::{self, Bounds};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{Kind, Offset, PATH_BYTES_MAX, REQUEST_HEADER_BYTES, Request};
use rustix::event::epoll::EventFlags;

use super::connection::{Connection, OUT_BYTES_MAX, READ_BYTES_MAX, Read, State};
use super::reactor::Reactor;
use crate::system::unix_now;
use crate::transport::handshake::PROOF_BYTES_MAX;
use crate::transport::{may_greet, too_many};

/// Most reads in a row from one connection.
const READS_MAX: usize = 4;
/// When a round has so many bytes of answers, what else has come waits for the next one.
const ROUND_BYTES_MAX: usize = 4 << 20;
/// Room for the beginning of a message: any header with its fields, and a proof.
const LEFT_BYTES_MAX: usize = REQUEST_HEADER_BYTES + (64 << 10) + PROOF_BYTES_MAX as usize;
/// Room for that and what is read behind it.
pub(super) const SCRATCH_BYTES: usize = LEFT_BYTES_MAX + READ_BYTES_MAX;

impl Reactor {
    pub(super) fn accept(&mut self, listener: u64) {
        let Some(at) = self.listeners.get(listener as usize - 1) else { return };
        let mut taken = Vec::new();
        let has_room = at.accept_some(|socket, source| {
            taken.push(Connection::new(socket, Arc::clone(&at.access), source));
        });
        if !has_room {
            // It is tried again in a while.
            let _ = self.poller.ask(at.fd(), listener, EventFlags::empty());
        }
        taken.into_iter().for_each(|connection| self.take(connection));
    }

    /// Takes in a new connection.
    fn take(&mut self, mut connection: Connection) {
        let token = self.next_connection;
        self.next_connection += 1;
        if let Err(error) = self.poller.add(connection.socket.fd(), token, EventFlags::IN) {
            tracing::warn!(%error, "a connection could not be taken");
            return;
        }
        let limits = &self.config.limits;
        let own = self.per_client.entry(connection.source.clone()).or_insert(0);
        let all = (self.connections.len(), limits.connections);
        let of_own = (*own, limits.connections_per_client);
        let mut too_many = too_many("coordinator", all, of_own);
        if may_greet(&*connection.socket, all, of_own) {
            connection.turned_away = too_many.take();
        }
        *own += 1;
        self.connections.insert(token, Box::new(connection));
        if let Some(refusal) = too_many {
            self.refuse(token, &refusal);
        }
    }

    /// The kernel has told something of a connection.
    pub(super) fn on_event(&mut self, token: u64, flags: EventFlags) {
        let over = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        // Nothing is read from it now, and nobody takes what its requests wait for.
        let waits = |connection: &Connection| connection.is_held_back || connection.state == State::Greeting;
        if over && self.connections.get(&token).is_some_and(|connection| waits(connection)) {
            return self.close(token);
        }
        if flags.contains(EventFlags::OUT) || over {
            self.list(token);
        }
        if flags.contains(EventFlags::IN) || over {
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
            let Some((header, fields)) = frame::head(&bytes[at..], connection.state.stage(), bounds)? else {
                break;
            };
            let start = at + REQUEST_HEADER_BYTES + fields.len();
            let end = start + header.payload as usize;
            let Some(payload) = bytes.get(start..end) else { break };
            let State::Session(id) = connection.state else {
                if let Some(refusal) = connection.turned_away.take() {
                    return Err(refusal);
                }
                at = end;
                self.greet(token, connection, &header, fields, payload)?;
                continue;
            };
            if self.holds_back(token, connection, header.kind == Kind::Status as u16) {
                connection.is_held_back = true;
                break;
            }
            at = end;
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
        connection.keep(bytes, at);
        Ok(())
    }
}

/// Most bytes of a request.
fn bounds(kind: Kind) -> Bounds {
    match kind {
        Kind::Hello => Bounds { fields: PATH_BYTES_MAX, payload: PROOF_BYTES_MAX },
        _ => Bounds { fields: usize::from(u16::MAX), payload: 0 },
    }
}
