//! The requests of one session with a coordinator, over as many connections as it takes.

use alloc::string::String;
use alloc::vec::Vec;

use crate::wire::{
    Failure, NO_SESSION, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES, Record, ReplyHeader, Request,
    RequestHeader, WireError,
};

/// The requests of one session with a coordinator.
#[derive(Clone, Debug)]
pub struct Calls {
    session: [u8; 16],
    /// In whose name: the user that the coordinator takes this client for.
    user: (u32, u32),
    next_id: u64,
    /// What has no answer yet, in the order of its ids: it is sent again on the session's next connection.
    underway: Vec<(u64, Vec<u8>)>,
    /// Those of them that have gone out on this connection: the first so many.
    sent: usize,
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
            underway: Vec::new(),
            sent: 0,
            incoming: Vec::new(),
        }
    }
}

impl Calls {
    /// What is to be shown to go on with the session.
    pub fn session(&self) -> [u8; 16] {
        self.session
    }

    /// What is to be sent on this connection and has not been: all that has no answer, after a connection was lost.
    pub fn unsent(&self) -> impl Iterator<Item = &[u8]> {
        self.underway[self.sent..].iter().map(|(_, bytes)| &bytes[..])
    }

    /// All of that has gone out.
    pub fn all_sent(&mut self) {
        self.sent = self.underway.len();
    }

    /// A new connection carries this session, as this user. True if that is the one that there was: what has no answer is to be sent
    /// again. Otherwise nothing is known of what was asked before.
    pub fn linked(&mut self, session: [u8; 16], is_resumed: bool, user: (u32, u32)) -> bool {
        self.incoming.clear();
        self.sent = 0;
        self.user = user;
        if is_resumed && session == self.session {
            return true;
        }
        self.session = session;
        self.next_id = 1;
        self.underway.clear();
        false
    }

    /// Asks, and returns the request's number. It is to be [sent](Calls::unsent) now if there is a connection, and
    /// otherwise on the next one.
    pub fn post(&mut self, request: &Request<'_>) -> u64 {
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
        id
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

    /// How many bytes more there must be before another answer can be [taken](Calls::take); 0: there is one, or what there is
    /// is none.
    pub fn missing(&self) -> usize {
        let found = self.incoming.len();
        let Some(header) = self.incoming.first_chunk::<REPLY_HEADER_BYTES>() else {
            return REPLY_HEADER_BYTES - found;
        };
        let Ok(header) = ReplyHeader::from_bytes(header) else { return 0 };
        let end = REPLY_HEADER_BYTES + usize::from(header.fields) + header.payload as usize;
        end.saturating_sub(found)
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
        if let Some(index) = self.underway.iter().position(|(id, _)| *id == reply.id) {
            self.underway.remove(index);
            self.sent -= usize::from(index < self.sent);
        }
        Ok(Some(reply))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Ping, Renew};

    #[test]
    fn what_has_no_answer_is_sent_again_in_its_session_only() {
        let mut calls = Calls::default();
        assert!(!calls.linked([1; 16], false, (7, 8)));
        let first = calls.post(&Request::Ping(Ping {}));
        let second = calls.post(&Request::Renew(Renew { token: 3 }));
        assert_eq!(calls.unsent().count(), 2);
        calls.all_sent();
        assert_eq!(calls.unsent().count(), 0);
        let mut answer = ReplyHeader { fields: 0, payload: 0, errno: 0, id: first }.to_bytes().to_vec();
        answer.push(1);
        let room = calls.room(answer.len() + 9);
        room[..answer.len()].copy_from_slice(&answer);
        calls.arrived(answer.len() + 9, answer.len());
        assert_eq!(calls.missing(), 0);
        assert_eq!(calls.take().unwrap().unwrap().id, first);
        assert_eq!(calls.missing(), REPLY_HEADER_BYTES - 1);
        assert_eq!(calls.take().unwrap(), None, "half an answer");
        assert_eq!(calls.unsent().count(), 0);
        assert!(calls.linked([1; 16], true, (7, 8)), "it goes on");
        assert_eq!(calls.unsent().count(), 1);
        calls.all_sent();
        assert_eq!(calls.post(&Request::Ping(Ping {})), second + 1);
        assert_eq!(calls.unsent().count(), 1, "what was sent is not sent twice on a connection");
        assert!(!calls.linked([2; 16], false, (7, 8)), "another one");
        assert_eq!(calls.unsent().count(), 0);
        assert_eq!(calls.post(&Request::Ping(Ping {})), 1);
    }
}
