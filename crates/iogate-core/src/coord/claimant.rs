//! A client of a coordinator: what it has asked and has no answer to, and what it knows of a turn that it holds.
//!
//! [`Calls`] are the requests of one session, over as many connections as it takes. [`Lease`] says whether a turn counts, by the holder's own
//! clock. Both act on nothing: the library of `iogate-net` drives them on sockets, `iogate-lab` in a simulated world.

use alloc::string::String;
use alloc::vec::Vec;

use crate::refusal::errno;
use crate::wire::{
    Failure, Granted, NO_SESSION, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Record, ReplyHeader, Request,
    RequestHeader, WireError,
};

/// The requests of one session with a coordinator.
#[derive(Clone, Debug)]
pub struct Calls {
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The request; 0: the connection ends, and this is why.
    pub id: u64,
    /// 0 if it was carried out.
    pub errno: i32,
    /// Why not.
    pub text: String,
    /// What comes of it.
    pub fields: Vec<u8>,
    /// And more of that.
    pub payload: Vec<u8>,
}

impl Default for Calls {
    fn default() -> Calls {
        Calls {
            session: NO_SESSION,
            user: (0, 0),
            next_id: 1,
            links: 0,
            underway: Vec::new(),
            incoming: Vec::new(),
        }
    }
}

impl Calls {
    /// What is to be shown to go on with the session.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// How often it was linked.
    pub fn links(&self) -> u64 {
        self.links
    }

    /// What has no answer: it is to be sent on a connection that goes on with the session.
    pub fn underway(&self) -> impl Iterator<Item = &[u8]> {
        self.underway.iter().map(|(_, bytes)| &bytes[..])
    }

    /// A new connection carries this session, as this user. True if that is the one that there was: what is
    /// [`underway`](Calls::underway) is to be sent again. Otherwise nothing is known of what was asked before.
    pub fn linked(&mut self, session: [u8; 16], is_resumed: bool, user: (u32, u32)) -> bool {
        self.links += 1;
        self.incoming.clear();
        self.user = user;
        if is_resumed && session == self.session {
            return true;
        }
        self.session = session;
        self.next_id = 1;
        self.underway.clear();
        false
    }

    /// Asks: returns the request's number and its bytes, which are to be sent now if there is a connection, and otherwise on the next one.
    pub fn post(&mut self, request: &Request<'_>) -> (u64, &[u8]) {
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
        self.underway.push((id, bytes));
        (id, self.underway.last().map_or(&[], |(_, bytes)| bytes))
    }

    /// Room for bytes that arrive. [`arrived`](Calls::arrived) says how many of them did.
    pub fn room(&mut self, bytes: usize) -> &mut [u8] {
        let before = self.incoming.len();
        self.incoming.resize(before + bytes, 0);
        &mut self.incoming[before..]
    }

    /// So many of the last [`room`](Calls::room)'s bytes have arrived.
    pub fn arrived(&mut self, room: usize, count: usize) {
        self.incoming.truncate(self.incoming.len() - room + count.min(room));
    }

    /// Takes the first whole answer off what has arrived.
    ///
    /// # Errors
    /// If that is none of this protocol: the connection is of no use any more.
    pub fn take(&mut self) -> Result<Option<Reply>, WireError> {
        let Some(header) = self.incoming.first_chunk::<REPLY_HEADER_BYTES>() else { return Ok(None) };
        let header = ReplyHeader::from_bytes(header)?;
        let fields_end = REPLY_HEADER_BYTES + usize::from(header.fields);
        let end = fields_end + header.payload as usize;
        let (Some(fields), Some(payload)) =
            (self.incoming.get(REPLY_HEADER_BYTES..fields_end), self.incoming.get(fields_end..end))
        else {
            return Ok(None);
        };
        let mut reply = Reply { id: header.id, errno: header.errno.into(), ..Reply::default() };
        if header.errno != 0 {
            reply.text = String::from_utf8_lossy(Failure::decode(fields)?.text).into_owned();
        } else {
            reply.fields = fields.to_vec();
            reply.payload = payload.to_vec();
        }
        self.incoming.drain(..end);
        self.underway.retain(|(id, _)| *id != reply.id);
        Ok(Some(reply))
    }
}

/// What a client does about a claim that a coordinator refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// To claim again in a while: there are too many claims.
    Later,
    /// To end the session, and to claim in a new one. A session of its own carries one claim at a time, so another that the coordinator still
    /// knows is one of before a crash of its machine, which lost that it was over.
    NewSession,
    /// Nothing: claimed again, it would be refused again.
    None,
}

impl Remedy {
    /// Against a refusal with this errno.
    pub fn against(refused: i32) -> Remedy {
        match refused {
            errno::EAGAIN => Remedy::Later,
            errno::EDEADLK => Remedy::NewSession,
            _ => Remedy::None,
        }
    }
}

/// Until when a turn counts, by its holder's clock, which never goes back and goes on while the machine sleeps. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How long, as the coordinator said last.
    pub length: u64,
    /// Until when it counts if it is not renewed.
    pub until: u64,
    /// When it is to be renewed.
    pub due: u64,
}

impl Lease {
    /// The lease of a turn that was granted to a claim that was first sent at `sent`, and heard of `now`.
    ///
    /// It runs from the grant, which lies some way back: not before the claim had been sent and had waited as long as the coordinator says.
    pub fn begin(sent: u64, now: u64, granted: &Granted) -> Lease {
        Lease::from(sent.saturating_add(granted.waited).min(now), granted.lease)
    }

    /// The lease after a renewal that was sent at `sent`.
    pub fn from(sent: u64, length: u64) -> Lease {
        Lease { length, until: sent.saturating_add(length), due: sent.saturating_add(length / 3) }
    }

    /// Whether the turn still counts.
    pub fn is_valid(&self, now: u64) -> bool {
        now < self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ping, Renew};

    #[test]
    fn a_lease_runs_from_the_earliest_grant_that_can_be() {
        let granted = Granted { token: 1, lease: 900, waited: 40, share: 1000, admission: 0 };
        let lease = Lease::begin(100, 1_000, &granted);
        assert_eq!((lease.until, lease.due), (1_040, 440));
        assert!(lease.is_valid(1_039) && !lease.is_valid(1_040));
        // What the coordinator says cannot lie ahead of now.
        assert_eq!(Lease::begin(100, 110, &granted).until, 1_010);
    }

    #[test]
    fn what_has_no_answer_is_sent_again_in_its_session_only() {
        let mut calls = Calls::default();
        assert!(!calls.linked([1; 16], false, (7, 8)));
        let (first, _) = calls.post(&Request::Ping(Ping {}));
        let (second, bytes) = calls.post(&Request::Renew(Renew { token: 3 }));
        let bytes = bytes.to_vec();
        let mut answer = ReplyHeader { fields: 0, payload: 0, errno: 0, id: first }.to_bytes().to_vec();
        answer.push(1);
        let room = calls.room(answer.len() + 9);
        room[..answer.len()].copy_from_slice(&answer);
        calls.arrived(answer.len() + 9, answer.len());
        assert_eq!(calls.take().unwrap().unwrap().id, first);
        assert_eq!(calls.take().unwrap(), None, "half an answer");
        assert!(calls.linked([1; 16], true, (7, 8)), "it goes on");
        assert_eq!(calls.underway().collect::<Vec<_>>(), [&bytes[..]]);
        assert_eq!(second, first + 1);
        assert!(!calls.linked([2; 16], false, (7, 8)), "another one");
        assert_eq!(calls.underway().count(), 0);
        assert_eq!(calls.post(&Request::Ping(Ping {})).0, 1);
    }
}
