//! A client's end of a connection to a server: sessions over lost connections, on the real [`Outstanding`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use iogate_core::outstanding::{Demand, Limits, Outstanding};
use iogate_core::unsynced::Unsynced;
use iogate_core::wire::{
    Identity, Open, Opened, REPLY_HEADER_BYTES, Record, ReplyHeader, Request, RequestHeader, RequestOrigin,
    open,
};

use super::carry_out::{Outcome, Reply};
use super::net::{Event, MS, Net, Sent};
use crate::fiber;

/// Requests that a client may have underway, and bytes.
pub(super) const CREDITS: u32 = 16;
const CREDIT_BYTES: u64 = 1 << 20;

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
    /// It opens this handle.
    opens: Option<u32>,
}

/// An open file, to be opened again.
struct Handle {
    path: Vec<u8>,
    flags: u32,
    identity: Option<Identity>,
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
    pub(super) wire: Option<u64>,
    session: [u8; 16],
    answers: u64,
    pub(super) verifier: u64,
    requests: Outstanding<Pending>,
    left: Vec<u8>,
    handles: BTreeMap<u32, Handle>,
    last_handle: u32,
    pub(super) written: HashMap<Identity, Written>,
}

impl Link {
    pub(super) fn new(number: usize, server: usize, client: [u8; 16]) -> Link {
        Link {
            number,
            server,
            is_dead: false,
            client,
            last_number: 0,
            wire: None,
            session: [0; 16],
            answers: 0,
            verifier: 0,
            requests: Outstanding::new(),
            left: Vec::new(),
            handles: BTreeMap::new(),
            last_handle: 0,
            written: HashMap::new(),
        }
    }

    /// A number for a file that is about to be opened.
    pub(super) fn new_handle(&mut self, path: &[u8], flags: u32) -> u32 {
        self.last_handle += 1;
        self.handles.insert(self.last_handle, Handle { path: path.to_vec(), flags, identity: None });
        self.last_handle
    }

    pub(super) fn forget_handle(&mut self, handle: u32) {
        self.handles.remove(&handle);
    }

    /// Files that are opened again are where they are by now.
    pub(super) fn renamed(&mut self, from: &[u8], to: &[u8]) {
        self.handles
            .values_mut()
            .filter(|handle| handle.path == from)
            .for_each(|handle| handle.path = to.to_vec());
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
        let repeatable = request.is_idempotent();
        let origin = match origin {
            _ if repeatable => RequestOrigin::NONE,
            origin if origin.is_some() => origin,
            _ => {
                self.last_number += 1;
                let numbers = self.requests.iter().map(|pending| pending.origin.number);
                let oldest = numbers.filter(|&number| number > 0).min().unwrap_or(self.last_number);
                let unanswered = (self.last_number - oldest.min(self.last_number)) as u32;
                RequestOrigin { client: self.client, number: self.last_number, step: 0, unanswered }
            }
        };
        let opens = if let Request::Open(open) = request { Some(open.handle) } else { None };
        let bytes = payload.len() as u64;
        let pending = Pending {
            kind: request.kind(),
            fields,
            payload,
            uid,
            origin,
            slot: Arc::clone(&slot),
            fiber: fiber::current(),
            opens,
        };
        self.requests.push(pending, Demand { bytes, repeatable, has_origin: origin.is_some() });
        self.flush(net);
        slot
    }

    /// Writes what may be written.
    fn flush(&mut self, net: &mut Net) {
        let Some(wire) = self.wire else { return };
        while let Some(next) = self.requests.next_to_write() {
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

    /// Something has come by a connection.
    pub(super) fn arrives(&mut self, net: &mut Net, wire: u64, sent: Sent) {
        if self.wire != Some(wire) || self.is_dead {
            return;
        }
        match sent {
            Sent::Hello(..) => {}
            Sent::Welcome(session, is_resumed, answers, verifier) => {
                let remembers = self.answers != 0 && self.answers == answers;
                (self.session, self.answers, self.verifier) = (session, answers, verifier);
                if is_resumed {
                    self.requests.resumed();
                } else {
                    self.renew(net, remembers);
                }
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
                self.requests.disconnected();
                let pause = net.rng.between(10 * MS, 300 * MS);
                net.at(net.now + pause, Event::Connect(self.number));
            }
        }
    }

    /// A new session: files are opened again before anything else.
    fn renew(&mut self, net: &mut Net, remembers: bool) {
        let limits = Limits { requests: CREDITS, bytes: CREDIT_BYTES };
        for pending in self.requests.renewed(limits, remembers) {
            Link::answer(net, &pending, Err(libc::EIO));
        }
        for (&handle, Handle { path, flags, identity }) in &self.handles {
            let Some(identity) = *identity else { continue };
            let kept = open::READ | open::WRITE | open::APPEND;
            let flags = flags & kept | open::AGAIN;
            let (kind, mut fields) = (Request::OPEN, Vec::new());
            Open { handle, flags, mode: 0, identity, path }.encode(&mut fields);
            self.requests.push_restoring(Pending {
                kind,
                fields,
                payload: Vec::new(),
                uid: 0,
                origin: RequestOrigin::NONE,
                slot: Slot::default(),
                fiber: None,
                opens: None,
            });
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
        let Some(pending) = self.requests.answer(header.id) else {
            net.found(&format!("an answer to request {}, which was not asked for", header.id));
            return false;
        };
        let (fields, payload) = (message[REPLY_HEADER_BYTES..payload].to_vec(), message[payload..].to_vec());
        let outcome = match header.errno {
            0 => Ok(Reply { fields, payload }),
            errno => Err(errno.into()),
        };
        if let Some(number) = pending.opens {
            let opened = outcome.as_ref().ok().and_then(|reply| Opened::decode(&reply.fields).ok());
            match (opened, self.handles.get_mut(&number)) {
                (Some(opened), Some(handle)) => handle.identity = Some(opened.identity),
                _ => drop(self.handles.remove(&number)),
            }
        }
        Link::answer(net, &pending, outcome);
        true
    }

    /// It is time to connect.
    pub(super) fn connect(&mut self, net: &mut Net) {
        if self.is_dead || self.wire.is_some() {
            return;
        }
        let wire = net.connect(self.number, self.server);
        self.wire = Some(wire);
        net.send_server(wire, Sent::Hello(self.session, self.client));
    }

    /// Its process is gone: the system closes its connection, and whoever waits is told that it is over.
    pub(super) fn kill(&mut self, net: &mut Net) {
        self.is_dead = true;
        if let Some(wire) = self.wire.take() {
            net.send_server(wire, Sent::End);
        }
        for pending in self.requests.give_up() {
            Link::answer(net, &pending, Err(libc::EIO));
        }
    }

    /// What waits, for people.
    pub(super) fn state(&self) -> String {
        let kinds: Vec<u16> = self.requests.iter().map(|pending| pending.kind).collect();
        format!(
            "link {} to server {}: connected {}, waiting {kinds:?}",
            self.number,
            self.server,
            self.wire.is_some()
        )
    }
}
