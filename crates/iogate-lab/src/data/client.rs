//! A client's end of a connection to a server, on the real [`ClientSession`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::proto::client_session::{Attempt, ClientSession, Demand, SessionConfig};
use iogate_core::unsynced::Unsynced;
use iogate_core::wire::{
    Identity, NO_SESSION, REPLY_HEADER_BYTES, ReplyHeader, Request, RequestHeader, RequestOrigin, Welcome,
};
use iogate_core::{Span, Time};

use super::network::{Event, Net, Sent};
use super::operations::{Outcome, Reply};
use crate::fiber;

/// How long requests wait for a server.
const RETRY_FOR: Span = Span::from_secs(60);
/// What a server lets a client have underway.
pub(super) const CREDITS: u32 = 16;
pub(super) const CREDIT_BYTES: u64 = 1 << 20;

/// Where an answer is put.
pub(super) type Slot = Arc<Mutex<Option<Outcome>>>;

/// A request that is not answered.
pub(super) struct Pending {
    kind: u16,
    fields: Vec<u8>,
    payload: Vec<u8>,
    uid: u32,
    origin: RequestOrigin,
    slot: Slot,
    fiber: Option<usize>,
}

/// What was written to a file and not synced, for all its handles.
#[derive(Default)]
pub(super) struct Written {
    pub(super) unsynced: Unsynced,
    pub(super) losses: u64,
}

/// A process's connection to a server.
pub(super) struct Link {
    number: usize,
    pub(super) server: usize,
    /// Its process is gone.
    pub(super) is_dead: bool,
    /// The process.
    client: [u8; 16],
    last_number: u64,
    wire: Option<u64>,
    session: ClientSession<Pending, ()>,
    left: Vec<u8>,
    pub(super) written: HashMap<Identity, Written>,
}

/// What a server says when it lets somebody in.
pub(super) fn welcome(session: [u8; 16], is_resumed: bool, answers: u64, verifier: u64) -> Welcome {
    Welcome {
        credits: CREDITS,
        credit_bytes: CREDIT_BYTES,
        transfer_bytes_max: 1 << 20,
        append_bytes_max: 1 << 20,
        answers,
        verifier,
        trusted: 1,
        ..Welcome::to(session, is_resumed)
    }
}

/// What the session asks for by itself.
fn own(request: Request<'_>, (): &()) -> Pending {
    let mut fields = Vec::new();
    request.encode(&mut fields);
    let (slot, origin) = (Slot::default(), RequestOrigin::NONE);
    Pending { kind: request.kind(), fields, payload: Vec::new(), uid: 0, origin, slot, fiber: None }
}

impl Link {
    pub(super) fn new(number: usize, server: usize, client: [u8; 16], now: u64) -> Link {
        let config = SessionConfig::new(RETRY_FOR);
        let mut session = ClientSession::new(config, own, welcome(NO_SESSION, false, 0, 0));
        session.lost(Time::from_nanos(now));
        Link {
            number,
            server,
            is_dead: false,
            client,
            last_number: 0,
            wire: None,
            session,
            left: Vec::new(),
            written: HashMap::new(),
        }
    }

    pub(super) fn verifier(&self) -> u64 {
        self.session.welcome().verifier
    }

    /// A number for a file that is about to be opened.
    pub(super) fn new_handle(&mut self, path: &[u8], flags: u32) -> u32 {
        self.session.open_file(path, flags, ())
    }

    pub(super) fn forget_handle(&mut self, handle: u32) {
        self.session.close_file(handle);
    }

    /// Something is about to be renamed.
    pub(super) fn rename_begins(&mut self, from: &[u8], to: &[u8]) {
        self.session.rename_begins(from, to);
    }

    /// It has been, unless that failed: files that are opened again are where they are by now.
    pub(super) fn rename_ended(&mut self, net: &mut Net, from: &[u8], to: &[u8], is_done: bool) {
        if is_done {
            self.session.renamed(from, to, false);
        }
        self.session.rename_ended(from, to);
        self.flush(net);
    }

    /// Begins a request, for another's if that has an origin.
    pub(super) fn begin(
        &mut self,
        net: &mut Net,
        request: &Request<'_>,
        payload: Vec<u8>,
        (uid, origin): (u32, RequestOrigin),
    ) -> Slot {
        let slot = Slot::default();
        if self.is_dead || net.is_over {
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(Err(libc::EIO));
            return slot;
        }
        let mut fields = Vec::new();
        request.encode(&mut fields);
        let mut demand = Demand::of(request);
        let mut own = RequestOrigin::NONE;
        if !demand.repeatable {
            own = if origin.is_some() { origin } else { self.own_origin() };
            demand.has_origin = true;
        }
        demand.bytes = demand.bytes.max(payload.len() as u64);
        let (kind, slot_there, fiber) = (request.kind(), Arc::clone(&slot), fiber::current());
        let pending = Pending { kind, fields, payload, uid, origin: own, slot: slot_there, fiber };
        if let Err(pending) = self.session.submit(pending, demand, Time::from_nanos(net.now)) {
            Link::answer(net, &pending, Err(libc::EIO));
        }
        self.flush(net);
        slot
    }

    fn own_origin(&mut self) -> RequestOrigin {
        self.last_number += 1;
        let numbers = self.session.requests().map(|pending| pending.origin);
        let own = numbers.filter(|origin| origin.client == self.client).map(|origin| origin.number);
        let unanswered = (self.last_number - own.min().unwrap_or(self.last_number)) as u32;
        RequestOrigin { client: self.client, number: self.last_number, step: 0, unanswered }
    }

    /// Writes what may be written.
    fn flush(&mut self, net: &mut Net) {
        let Some(wire) = self.wire else { return };
        while let Some(next) = self.session.next_to_write() {
            let (id, acked, Pending { kind, fields, payload, uid, origin, .. }) =
                (next.id, next.acked, next.item);
            let header = RequestHeader {
                fields: fields.len() as u16,
                payload: payload.len() as u32,
                kind: *kind,
                id,
                acked,
                uid: *uid,
                gid: *uid,
                groups: 0,
                origin: *origin,
            };
            let bytes = [&header.to_bytes()[..], fields, payload].concat();
            net.send_server(wire, Sent::Bytes(bytes));
        }
    }

    fn answer(net: &mut Net, pending: &Pending, outcome: Outcome) {
        *pending.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        net.ready.extend(pending.fiber);
    }

    fn fail(net: &mut Net, failed: &[Pending]) {
        failed.iter().for_each(|pending| Link::answer(net, pending, Err(libc::EIO)));
    }

    /// Something has come by a connection.
    pub(super) fn arrives(&mut self, net: &mut Net, wire: u64, sent: Sent) {
        if self.wire != Some(wire) || self.is_dead {
            return;
        }
        let now = Time::from_nanos(net.now);
        match sent {
            Sent::Hello(..) => {}
            Sent::Welcome(welcome) => {
                let connected = self.session.connected(*welcome, now);
                Link::fail(net, &connected.failed);
                self.flush(net);
            }
            Sent::Bytes(bytes) => {
                self.left.extend_from_slice(&bytes);
                while self.take(net) {}
                self.flush(net);
            }
            Sent::End => {
                self.wire = None;
                self.left.clear();
                if self.session.is_connected() {
                    self.session.lost(now);
                } else if let Some(given_up) = self.session.could_not_connect(now) {
                    Link::fail(net, &given_up.failed);
                }
                self.connect(net);
            }
        }
    }

    /// Takes in one answer, if it is whole.
    fn take(&mut self, net: &mut Net) -> bool {
        let Some(header) = self.left.first_chunk::<REPLY_HEADER_BYTES>() else { return false };
        let Ok(header) = ReplyHeader::from_bytes(header) else {
            net.found("an answer's header cannot be read");
            return false;
        };
        let payload = REPLY_HEADER_BYTES + usize::from(header.fields);
        let end = payload + header.payload as usize;
        if self.left.len() < end {
            return false;
        }
        let message: Vec<u8> = self.left.drain(..end).collect();
        let (fields, payload) = (message[REPLY_HEADER_BYTES..payload].to_vec(), message[payload..].to_vec());
        let said = if header.errno == 0 { Ok(&fields[..]) } else { Err(header.errno.into()) };
        let Some(answered) = self.session.answered(header.id, said) else {
            net.found(&format!("an answer to request {}, which was not asked for", header.id));
            return false;
        };
        let outcome = answered.errno.map_or(Ok(Reply { fields, payload }), Err);
        Link::answer(net, &answered.call, outcome);
        true
    }

    /// Connects, if it is time to.
    pub(super) fn connect(&mut self, net: &mut Net) {
        if self.is_dead || self.wire.is_some() {
            return;
        }
        match self.session.attempt(Time::from_nanos(net.now)) {
            Attempt::Nothing => {}
            Attempt::WaitUntil(at) => net.at(at.as_nanos(), Event::Connect(self.number)),
            Attempt::Connect(session) => {
                let wire = net.connect(self.number, self.server);
                self.wire = Some(wire);
                net.send_server(wire, Sent::Hello(session, self.client));
            }
            Attempt::GiveUp(given_up) => {
                Link::fail(net, &given_up.failed);
                net.at(net.now + 1, Event::Connect(self.number));
            }
        }
    }

    /// Its process is gone: the system closes its connection, and whoever waits is told that it is over.
    pub(super) fn kill(&mut self, net: &mut Net) {
        self.is_dead = true;
        if let Some(wire) = self.wire.take() {
            net.send_server(wire, Sent::End);
        }
        self.session.requests().for_each(|pending| Link::answer(net, pending, Err(libc::EIO)));
        self.session.close();
    }

    /// What waits, for people.
    pub(super) fn state(&self) -> String {
        let kinds: Vec<u16> = self.session.requests().map(|pending| pending.kind).collect();
        let is_connected = self.session.is_connected();
        format!("link {} to server {}: connected {is_connected}, waiting {kinds:?}", self.number, self.server)
    }
}
