//! Whether servers forward to each other in a ring. Who forwards asks each server that it has just connected to where that leads; a ring is
//! complete with its last connection, so whoever has made that one finds it, and does not use it.
//!
//! The question goes over a connection of its own: in a ring, the credits of the others may all be in use by requests that go round.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use iogate_core::proto::ring;
use iogate_core::refusal::Refusal;
use iogate_core::wire::{
    Failure, Goodbye, NO_SESSION, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Record, ReplyHeader, Request,
    RequestHeader, Trail,
};
use iogate_engine::lock;

use super::session::{Client, Shared};
use crate::transport::blocking::{receive, send};
use crate::transport::{Connected, Introduction, Way, connect};

/// How long an answer is waited for by who has asked first, and by servers on the way, who are not to take longer than that.
const OWN_ANSWER: Duration = Duration::from_secs(6);
const OTHERS_ANSWER: Duration = Duration::from_secs(3);
/// Before a server that did not answer is asked again: from the first on twice as long, at most the last.
const PAUSES: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

impl Client {
    /// Fails with `ELOOP` if the way that `trail` has come goes on over this client and comes back to where it has been.
    pub(super) fn leads_on(&self, trail: &[u8]) -> Result<(), Refusal> {
        let trail = self.shared.extended(trail)?;
        // Who connects looks for a ring itself, and who has found one uses it no more.
        if !self.is_connected() { Ok(()) } else { self.shared.ask(&trail, OTHERS_ANSWER) }
    }

    /// The ring that the client is in, and does not use: which servers it is of.
    pub(super) fn ring(&self) -> Option<String> {
        self.shared.ring()
    }
}

impl Shared {
    fn extended(&self, trail: &[u8]) -> Result<Vec<u8>, Refusal> {
        ring::extended(trail, self.link_number, &self.endpoint.to_string())
    }

    pub(super) fn ring(&self) -> Option<String> {
        lock(&self.ring).clone()
    }

    /// What requests fail with while the server is not used.
    pub(super) fn errno(&self) -> i32 {
        if lock(&self.ring).is_some() { libc::ELOOP } else { libc::EIO }
    }

    /// Asks the server now. Only that it is in a ring is an error for whoever connects.
    pub(super) fn look_for_ring(&self) -> Result<(), Refusal> {
        let looked = self.extended(&[]).and_then(|trail| self.ask(&trail, OWN_ANSWER));
        if let Err(refusal) = &looked
            && refusal.errno == libc::ELOOP
        {
            *lock(&self.ring) = Some(refusal.text.clone());
        }
        looked
    }

    /// Whether the server may be connected to: not while it is in a ring, or cannot be asked whether it still is.
    pub(super) fn is_out_of_ring(&self) -> Result<(), Refusal> {
        if lock(&self.ring).is_some() {
            self.look_for_ring()?;
            tracing::warn!(server = %self.endpoint, "a server is not in a ring of servers any more, and is used again");
            *lock(&self.ring) = None;
        }
        Ok(())
    }

    /// There is a connection: has it looked at, in another thread, unless it does not matter to anybody.
    pub(super) fn look_at_connection(&self) {
        self.to_look_at.fetch_add(1, Ordering::AcqRel);
        if !self.options.forwards || self.looks.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.this.clone();
        let looking = thread::Builder::new().name("iogate-ring".into()).spawn(move || watch(&shared));
        if let Err(error) = looking {
            self.looks.store(false, Ordering::Release);
            tracing::warn!(%error, "no thread: whether servers forward in a ring is not looked for");
        }
    }

    /// The server leads back to this one.
    fn leave(&self, refusal: &Refusal) {
        tracing::error!(server = %self.endpoint, "{refusal}: requests fail with ELOOP until it is open");
        // The leader finds that the connection is over, and gives up what waits.
        if let Some(link) = self.lock().link.clone() {
            link.cut();
        }
    }

    /// Asks the server by a connection and a session of its own. `EAGAIN` if it does not answer.
    fn ask(&self, trail: &[u8], timeout: Duration) -> Result<(), Refusal> {
        let unknown = |error: &dyn std::fmt::Display| Refusal::new(libc::EAGAIN, error.to_string());
        let (deadline, options) = (Instant::now() + timeout, &self.options);
        let way =
            Way { dial: &options.dial, timeout: timeout.min(options.connect_timeout), auth: &options.auth };
        let client = Introduction {
            name: &options.name,
            export: &options.export,
            session: NO_SESSION,
            ..Introduction::default()
        };
        let Connected { socket, .. } =
            connect(&self.endpoint, &way, &client).map_err(|error| unknown(&error))?;
        let question = message(1, &Request::Trail(Trail { links: trail }));
        send(&*socket, &question, deadline).map_err(|error| unknown(&error))?;
        let mut header = [0; REPLY_HEADER_BYTES];
        receive(&*socket, &mut header, deadline).map_err(|error| unknown(&error))?;
        let header = ReplyHeader::from_bytes(&header).map_err(|error| unknown(&error))?;
        let mut fields = vec![0; usize::from(header.fields)];
        receive(&*socket, &mut fields, deadline).map_err(|error| unknown(&error))?;
        // Nothing depends on whether it is heard: else the session ends after a while.
        let _ = send(&*socket, &message(2, &Request::Goodbye(Goodbye {})), deadline);
        match i32::from(header.errno) {
            // Of a release that does not know the question, or a server of something else.
            0 | libc::EPROTO | libc::EOPNOTSUPP => Ok(()),
            errno => {
                let text = Failure::decode(&fields).map_err(|error| unknown(&error))?.text;
                Err(Refusal::new(errno, String::from_utf8_lossy(text)))
            }
        }
    }
}

/// A request of a session that has only a few, each after the answer to the one before.
fn message(id: u64, request: &Request<'_>) -> Vec<u8> {
    let mut message = vec![0; REQUEST_HEADER_BYTES];
    request.encode(&mut message);
    let header = RequestHeader {
        fields: (message.len() - REQUEST_HEADER_BYTES) as u16,
        kind: request.kind(),
        id,
        acked: id,
        ..RequestHeader::default()
    };
    message[..REQUEST_HEADER_BYTES].copy_from_slice(&header.to_bytes());
    message
}

/// Looks until it is known of the last connection whether it closes a ring, or the client is gone.
fn watch(shared: &Weak<Shared>) {
    let mut pause = PAUSES.0;
    loop {
        let Some(client) = shared.upgrade() else { return };
        let seen = client.to_look_at.load(Ordering::Acquire);
        // Whom it asks may come to this session, which must not be locked meanwhile.
        let is_closed = client.lock().session.is_closed();
        let looked = if is_closed { Ok(()) } else { client.look_for_ring() };
        match &looked {
            Err(refusal) if refusal.errno != libc::ELOOP => {
                tracing::debug!(server = %client.endpoint, %refusal, "whether a server is in a ring is not known");
            }
            ring => {
                if let Err(refusal) = ring {
                    client.leave(refusal);
                }
                client.looks.store(false, Ordering::Release);
                // Who has connected meanwhile has seen that somebody looks.
                if client.to_look_at.load(Ordering::Acquire) == seen
                    || client.looks.swap(true, Ordering::AcqRel)
                {
                    return;
                }
                continue;
            }
        }
        drop(client);
        thread::sleep(pause);
        pause = (pause * 2).min(PAUSES.1);
    }
}
