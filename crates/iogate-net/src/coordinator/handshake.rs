//! The first message of a connection: who the client is, and which session it goes on with.

use iogate_core::coord::leader::{Entered, Entering, Leader, User};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{Hello, Record, RequestHeader, Welcome, client_name};

use super::connection::{Connection, State};
use super::reactor::Reactor;
use super::{Call, EXPORT};
use crate::system::unix_now;
use crate::transport::auth::{Binding, User as Known};
use crate::transport::handshake;

/// What a worker has found out.
pub(super) struct Identified {
    pub(super) connection: u64,
    /// Of the `Hello`.
    pub(super) fields: Vec<u8>,
    pub(super) user: Result<Known, Refusal>,
}

impl Reactor {
    /// Has a worker find out who a client is.
    pub(super) fn greet(
        &mut self,
        token: u64,
        connection: &mut Connection,
        header: &RequestHeader,
        fields: &[u8],
        proof: &[u8],
    ) -> Result<(), Refusal> {
        let hello = handshake::read(header, fields)?;
        // An empty name is the first one, as with every server.
        if !hello.export.is_empty() && hello.export != EXPORT.as_bytes() {
            let export = String::from_utf8_lossy(hello.export);
            let text = format!(
                "there is no export `{export}`: this is a coordinator, whose only export is `{EXPORT}`"
            );
            return Err(Refusal::new(libc::ENOENT, text));
        }
        self.check_leads()?;
        let binding = Binding::of_server(connection.socket.fd(), hello.export)
            .map_err(|error| Refusal::new(error.raw_os_error().unwrap_or(libc::EIO), error.to_string()))?;
        let (access, peer, peer_text) =
            (connection.access.clone(), connection.socket.peer(), connection.peer_text());
        let (auth, fields, proof) = (hello.auth, fields.to_vec(), proof.to_vec());
        let caller = self.caller.clone();
        connection.state = State::Greeting;
        self.workers.run(move || {
            let user = handshake::identify(&access, &peer, &peer_text, &binding, auth, &proof);
            caller.call(Call::Identified(Identified { connection: token, fields, user }));
        });
        Ok(())
    }

    /// Says where to go if another coordinator leads.
    fn check_leads(&self) -> Result<(), Refusal> {
        match (&self.leading, &self.leader) {
            (Some(_), _) => Ok(()),
            (None, Some(leader)) => {
                Err(Refusal::new(libc::ECONNREFUSED, format!("coordinator {leader} leads")))
            }
            (None, None) => Err(Refusal::new(libc::ECONNREFUSED, "no coordinator leads just now: try again")),
        }
    }

    /// Lets a client in.
    pub(super) fn welcome(
        &mut self,
        token: u64,
        connection: &mut Connection,
        identified: Identified,
    ) -> Result<(), Refusal> {
        let Known { uid, gid, .. } = identified.user?;
        let hello = Hello::decode(&identified.fields)
            .map_err(|error| Refusal::new(libc::EPROTO, error.to_string()))?;
        self.check_leads()?;
        let now = self.clock.now();
        let instance = self.instance;
        let Some(leading) = &mut self.leading else { return Ok(()) };
        let name = client_name(hello.name);
        let mut fresh = [0; 16];
        crate::system::random(&mut fresh)
            .map_err(|error| Refusal::new(libc::EIO, format!("no random numbers: {error}")))?;
        let user = User { uid, gid };
        let client = Entering { connection: token, shown: hello.session, fresh, user, name: &name };
        let entered = leading.enter(now, &client)?;
        let Entered { session: id, before, .. } = entered;
        let welcome = welcome_of(leading, instance, &entered, user);
        leading.at_once().answer(token, 0, 0, &[], |fields| welcome.encode(fields));
        connection.state = State::Session(id);
        self.budget.change(None, std::mem::take(&mut connection.charged), 0);
        connection.user = Some(uid);
        if let Some(before) = before {
            self.close(before);
        }
        Ok(())
    }
}

fn welcome_of(leading: &Leader, instance: u64, entered: &Entered, user: User) -> Welcome {
    let claims = u32::try_from(leading.config().limits.claims_per_session).unwrap_or(u32::MAX);
    Welcome {
        instance,
        credits: claims.saturating_mul(2),
        uid: user.uid,
        gid: user.gid,
        time: unix_now(),
        ..Welcome::to(entered.secret, entered.is_resumed)
    }
}
