//! The first message of a connection: who the client is, which export it wants, and which session it goes on with.

use std::collections::HashMap;
use std::sync::Arc;

use iogate_core::proto::admission::{Newcomer, may_begin, may_resume};
use iogate_core::proto::forwarder::{Forwarder, Relation};
use iogate_core::refusal::Refusal;
use iogate_core::wire::{self, Hello, NO_SESSION, Record, RequestHeader, VERSION, Welcome};
use iogate_vfs::{Caller, Groups};

use super::buffer::Buffer;
use super::connection::Connection;
use super::export::Served;
use super::locks::Locks;
use super::outgoing::Payload;
use super::rights::Rights;
use super::session::Session;
use super::{GREETINGS, Shared, lock};
use crate::system::unix_now;
use crate::transport::auth::{Binding, Policy, User};
use crate::transport::handshake;
use crate::transport::peer_groups;

/// Answers a `Hello`, in another thread: to find out who the client is may take a while. The connection is read from again when
/// that is done.
pub(super) fn greet(
    connection: &Arc<Connection>,
    header: &RequestHeader,
    fields: &[u8],
    proof: Option<Buffer>,
) -> Result<(), Refusal> {
    handshake::read(header, fields)?;
    let (connection, fields, proof_bytes) =
        (Arc::clone(connection), fields.to_vec(), header.payload as usize);
    let control = Arc::clone(&connection.server.control);
    control.run_for(GREETINGS, connection.source.number(), move || {
        let Ok(hello) = Hello::decode(&fields) else { return };
        let proof = proof.as_ref().map_or(&[][..], |proof| &proof.as_slice()[..proof_bytes]);
        match welcome(&connection, &hello, proof) {
            Ok(()) => {}
            Err(refusal) => connection.refuse(&refusal),
        }
    });
    Ok(())
}

fn welcome(connection: &Arc<Connection>, hello: &Hello<'_>, proof: &[u8]) -> Result<(), Refusal> {
    let server = &connection.server;
    let user = identify(connection, hello, proof)?;
    let export = server.export(hello.export)?;
    let rights = Rights::of(hello, &export, &connection.access, user)?;
    let Entered { session, resumed, before } = server.session(connection, hello, export, user, rights)?;
    let limits = &server.limits;
    let striping = session.export.striping;
    let welcome = Welcome {
        version: VERSION,
        resumed: resumed.into(),
        session: session.token,
        instance: server.instance,
        credits: limits.credits,
        credit_bytes: limits.credit_bytes,
        transfer_bytes_max: limits.transfer_bytes_max,
        append_bytes_max: server.append_bytes_max(&session.export),
        answers: session.export.answers(),
        verifier: session.export.tree.verifier(),
        uid: session.user.uid,
        gid: session.user.gid,
        trusted: session.acts_for_others().into(),
        locks: Locks::among(session.export.locks.get()),
        node: server.node,
        nodes: server.nodes,
        striping: wire::Striping {
            first_target: striping.first_target,
            stripe_bytes: striping.stripe_bytes,
            targets: striping.targets,
        },
        time: unix_now(),
    };
    connection.queue(0, 0, |fields| welcome.encode(fields), Payload::None);
    if connection.session.set(session.clone()).is_err() || connection.is_closed() {
        session.detach(connection, false);
    }
    connection.flush();
    match before {
        // What it has read reaches the gate before what this one brings, or is forgotten before it comes again.
        Some(before) => before.close_for(connection),
        None => connection.begin_reading(),
    }
    Ok(())
}

fn identify(connection: &Connection, hello: &Hello<'_>, proof: &[u8]) -> Result<Caller, Refusal> {
    let binding = Binding::of_server(connection.socket.fd(), hello.export).map_err(|error| {
        Refusal::new(error.raw_os_error().unwrap_or(libc::EIO), "the connection has no address")
    })?;
    let (peer, text) = (connection.socket.peer(), connection.peer_text());
    let User { uid, gid, .. } =
        handshake::identify(&connection.access, &peer, &text, &binding, hello.auth, proof)?;
    let caller = Caller::new(uid, gid);
    // The kernel knows the groups of a process on this host.
    let groups = match connection.access.policy {
        Policy::Peer if uid != 0 => peer_groups(connection.socket.fd()),
        _ => None,
    };
    Ok(Caller { groups: groups.map_or(Groups::UNKNOWN, Groups::of), ..caller })
}

/// The sessions of this forwarder's process before, which has gone: nothing of theirs may follow what comes now.
///
/// # Errors
/// If it contradicts another forwarder that is connected.
fn predecessors(
    sessions: &HashMap<[u8; 16], Arc<Session>>,
    hello: &Hello<'_>,
    export: &Arc<Served>,
    user: Caller,
) -> Result<Vec<Arc<Session>>, Refusal> {
    let Some(own) = Forwarder::of(hello) else { return Ok(Vec::new()) };
    let mut before = Vec::new();
    for session in sessions.values().filter(|session| Arc::ptr_eq(&session.export, export)) {
        let Some(other) = &session.forwarder else { continue };
        let mut peer = None;
        let is_there = || {
            peer = session.connected_peer();
            peer.is_some()
        };
        match own.relation(other, session.user.uid == user.uid, is_there) {
            Relation::Predecessor => before.push(Arc::clone(session)),
            Relation::None => {}
            Relation::Rival(refusal) => {
                tracing::warn!(
                    node = own.node,
                    nodes = own.nodes,
                    "a forwarder is not let in: `{}` ({}) is {} of {}",
                    session.name,
                    peer.unwrap_or_default(),
                    other.node,
                    other.nodes
                );
                return Err(refusal);
            }
        }
    }
    Ok(before)
}

/// The session that a connection has come to.
struct Entered {
    session: Arc<Session>,
    /// It was there before.
    resumed: bool,
    /// Its connection before this one, unless nobody has to do with it any more.
    before: Option<Arc<Connection>>,
}

impl Shared {
    fn export(&self, name: &[u8]) -> Result<Arc<Served>, Refusal> {
        let names = || self.exports.iter().map(|export| export.name.as_str()).collect::<Vec<_>>().join(", ");
        match (name, &self.exports[..]) {
            (b"", [first, ..]) => Ok(Arc::clone(first)),
            (name, exports) => {
                let found = exports.iter().find(|export| export.name.as_bytes() == name);
                let name = String::from_utf8_lossy(name);
                found.cloned().ok_or_else(|| {
                    Refusal::new(
                        libc::ENOENT,
                        format!("there is no export `{name}`: this server has {}", names()),
                    )
                })
            }
        }
    }

    /// The session that a `Hello` asks for, whether it was there before, and its connection before. The given connection is
    /// the session's from here on: so of two forwarders that must not be here together, one finds the other.
    fn session(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        hello: &Hello<'_>,
        export: Arc<Served>,
        user: Caller,
        rights: Rights,
    ) -> Result<Entered, Refusal> {
        let mut sessions = lock(&self.sessions);
        for before in predecessors(&sessions, hello, &export, user)? {
            if before.has_locks() {
                before.end_but_for_locks_soon();
                continue;
            }
            sessions.remove(&before.token);
            before.end_soon();
        }
        if let Some(session) = sessions.get(&hello.session) {
            let (owner, asking) = ((session.user.uid, session.user.gid), (user.uid, user.gid));
            may_resume(owner, asking, Arc::ptr_eq(&session.export, &export))?;
            let before = session.attach(connection)?;
            return Ok(Entered { session: Arc::clone(session), resumed: true, before });
        }
        if connection.is_closed() || self.is_closing() {
            return Err(Refusal::new(libc::ESHUTDOWN, "the server stops"));
        }
        let had_session = hello.session != NO_SESSION;
        may_begin(&Newcomer {
            uid: user.uid,
            had_session,
            is_reached: !had_session || export.tree.is_reached(),
            sessions: sessions.values().filter(|session| session.user.uid == user.uid).count(),
            sessions_max: 2 * self.limits.connections_per_client,
        })?;
        let mut token = [0; 16];
        crate::system::random(&mut token)
            .map_err(|error| Refusal::new(libc::EIO, format!("no random numbers: {error}")))?;
        let session = Arc::new(Session::new(self, token, export, user, rights, hello));
        session.attach(connection)?;
        sessions.insert(token, Arc::clone(&session));
        Ok(Entered { session, resumed: false, before: None })
    }
}
