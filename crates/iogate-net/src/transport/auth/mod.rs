//! Who is who: what a listener asks of those who connect, and what a client shows.
//!
//! A listener has a [`Policy`], which the server asks with each [`Hello`](iogate_core::wire::Hello); a client puts
//! [`Credential::kind`] and [`Credential::prove`] into it. `docs/security.md` says what protects what.

mod access;
mod binding;
mod munge;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use iogate_core::AppId;
use iogate_core::wire::auth;
use iogate_vfs::Caller;
use iogate_vfs::app::{REST_OF_GROUPS, group_of_application, user_of_application};

pub use access::Access;
pub use binding::Binding;
pub use munge::{CREDENTIAL_BYTES_MAX, Decoded, Munge, MungeError};

use crate::transport::Endpoint;
use crate::transport::{Peer, TlsServer};

/// Where munged listens on most systems.
const MUNGE_SOCKET: &str = "/run/munge/munge.socket.2";

/// Who has been authenticated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// Its primary group.
    pub gid: u32,
    /// What people call it: its name on this system or in its certificate, or its number.
    pub name: String,
}

/// What a listener asks of those who connect.
#[derive(Clone, Debug)]
pub enum Policy {
    /// Nothing: everybody who can connect is this user.
    None {
        /// In whose name they act.
        user: Caller,
        /// Not only on loopback addresses and Unix sockets: everybody who can reach the network may do what that user can.
        on_any_network: bool,
    },
    /// The kernel's word: for Unix sockets.
    Peer,
    /// A MUNGE credential.
    Munge(Munge),
    /// A certificate, by TLS.
    Tls {
        /// The server's certificate, and who signs those of clients.
        server: TlsServer,
        /// Users by the name in their certificate: these and no others. If empty, the name is that of a user of this system.
        users: BTreeMap<String, Caller>,
    },
}

/// Why somebody is not let in. The text is for the server's log; the peer is told [`AuthError::for_peer`].
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// Another kind of proof than the listener asks for.
    #[error(
        "expected {expected}, but the client offers {found}: set its `auth` to what this listener asks for"
    )]
    Kind {
        /// What the policy asks for.
        expected: &'static str,
        /// What came.
        found: &'static str,
    },
    /// The socket cannot vouch for the peer.
    #[error(
        "expected {expected}, but the socket knows nothing about its peer: the listener is of another kind"
    )]
    NoPeer {
        /// What the policy asks for.
        expected: &'static str,
    },
    /// The credential proves nothing.
    #[error(transparent)]
    Munge(#[from] MungeError),
    /// The credential is good for something else.
    #[error(
        "the credential of user {uid} was made for `{found}`, expected `{expected}`: another service or server \
         passes it on, or addresses are translated between the hosts (then use TLS)"
    )]
    Binding {
        /// What this connection is.
        expected: String,
        /// What the credential says.
        found: String,
        /// Who made it.
        uid: u32,
    },
    /// The certificate's name is nobody's.
    #[error("the certificate's name `{name}` is not a user here: expected {expected}")]
    UnknownName {
        /// The name.
        name: String,
        /// Where it was looked for.
        expected: &'static str,
    },
    /// A user that the listener does not let in.
    #[error("the user {} ({}) is none of the listener's `users_allowed`", .user.name, .user.uid)]
    NotAllowed {
        /// Who.
        user: User,
    },
    /// The system's users cannot be looked up.
    #[error("cannot look up the user `{name}`: {source}")]
    Lookup {
        /// The name.
        name: String,
        /// Why.
        source: std::io::Error,
    },
}

impl AuthError {
    /// What the peer may know: what it can do about it, and nothing about this host's users, paths or keys.
    pub fn for_peer(&self) -> String {
        match self {
            AuthError::Kind { .. } | AuthError::Munge(MungeError::Expired | MungeError::Rewound) => {
                self.to_string()
            }
            AuthError::Munge(MungeError::NoLibrary(_) | MungeError::NoDaemon { .. })
            | AuthError::NoPeer { .. }
            | AuthError::Lookup { .. } => "the server cannot tell who you are: its log says why".into(),
            AuthError::Munge(_) => {
                "your MUNGE credential is not valid here: the server's log says why".into()
            }
            AuthError::Binding { .. } => "your MUNGE credential was made for another server or export".into(),
            AuthError::NotAllowed { .. } => {
                "you are none of the users that this server lets in (`users_allowed`)".into()
            }
            AuthError::UnknownName { .. } => {
                "the name in your certificate is not a user of this server".into()
            }
        }
    }

    /// The errno that the peer is told: `EACCES`, or `EAGAIN` if the server is at fault and a later try may succeed.
    pub fn errno(&self) -> i32 {
        match self {
            AuthError::Munge(MungeError::NoLibrary(_) | MungeError::NoDaemon { .. })
            | AuthError::Lookup { .. } => libc::EAGAIN,
            _ => libc::EACCES,
        }
    }
}

/// A listener that would let in whom it should not, or nobody.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListenerError {
    /// No authentication on a network.
    #[error(
        "the listener {endpoint} asks nobody who they are, and {address} is not a loopback address: set `auth` to \
         \"munge\" or \"tls\", listen on 127.0.0.1 or a Unix socket, or set `allow_unauthenticated_network = true` \
         if everybody who can reach this address may do everything"
    )]
    Open {
        /// The listener.
        endpoint: Endpoint,
        /// One of its addresses.
        address: SocketAddr,
    },
    /// Peer credentials where there are none.
    #[error(
        "the listener {endpoint} has `auth = \"peer\"`, expected a Unix socket (unix:PATH): the kernel knows only \
         processes on this host; set `auth` to \"munge\" or \"tls\""
    )]
    PeerOfTcp {
        /// The listener.
        endpoint: Endpoint,
    },
}

impl Policy {
    /// The word for it in configuration files.
    pub fn name(&self) -> &'static str {
        match self {
            Policy::None { .. } => "none",
            Policy::Peer => "peer",
            Policy::Munge(_) => "munge",
            Policy::Tls { .. } => "tls",
        }
    }

    /// Whether this policy may stand before a listener; `addresses` are those that it is or will be bound to, if TCP.
    pub fn check_listener(&self, endpoint: &Endpoint, addresses: &[SocketAddr]) -> Result<(), ListenerError> {
        match (self, endpoint) {
            (Policy::Peer, Endpoint::Tcp { .. }) => {
                Err(ListenerError::PeerOfTcp { endpoint: endpoint.clone() })
            }
            (Policy::None { on_any_network: false, .. }, Endpoint::Tcp { .. }) => {
                match addresses.iter().find(|address| !address.ip().to_canonical().is_loopback()) {
                    Some(&address) => Err(ListenerError::Open { endpoint: endpoint.clone(), address }),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Who is at the other end of a connection, given what its socket says, and the kind of proof and the proof of its
    /// `Hello`. May block for a second: MUNGE and the system's users are asked.
    pub fn authenticate(
        &self,
        peer: &Peer,
        binding: &Binding,
        kind: u8,
        credential: &[u8],
    ) -> Result<User, AuthError> {
        let expect = |expected, wanted| match kind == wanted {
            true => Ok(()),
            false => Err(AuthError::Kind { expected, found: kind_text(kind) }),
        };
        match self {
            Policy::None { user, .. } => {
                expect("no proof (auth = \"none\")", auth::NONE)?;
                Ok(user_of(*user))
            }
            Policy::Peer => {
                let expected = "a process on this host (auth = \"peer\")";
                expect(expected, auth::SOCKET)?;
                match *peer {
                    Peer::Process { uid, gid, .. } => Ok(user_of(Caller::new(uid, gid))),
                    _ => Err(AuthError::NoPeer { expected }),
                }
            }
            Policy::Munge(munge) => {
                expect("a MUNGE credential (auth = \"munge\")", auth::MUNGE)?;
                let Decoded { uid, gid, payload } = munge.decode(credential)?;
                if payload != binding.as_bytes() {
                    return Err(AuthError::Binding {
                        expected: binding.as_bytes().escape_ascii().to_string(),
                        found: payload.escape_ascii().take(200).map(char::from).collect(),
                        uid,
                    });
                }
                Ok(user_of(Caller::new(uid, gid)))
            }
            Policy::Tls { users, .. } => {
                let expected = "a TLS connection with a certificate (auth = \"tls\")";
                expect(expected, auth::SOCKET)?;
                match peer {
                    Peer::Certificate { name } => user_named(name, users),
                    _ => Err(AuthError::NoPeer { expected }),
                }
            }
        }
    }
}

fn kind_text(kind: u8) -> &'static str {
    match kind {
        auth::NONE => "nothing (auth = \"none\")",
        auth::SOCKET => "what the socket says (auth = \"peer\" or \"tls\")",
        auth::MUNGE => "a MUNGE credential (auth = \"munge\")",
        _ => "something unknown: it is of another version",
    }
}

/// A user by number, with its name if it has one here.
fn user_of(Caller { uid, gid, .. }: Caller) -> User {
    let name = match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    };
    User { uid, gid, name }
}

/// The number of a user of this system; `None` if there is none of that name. Fails if the system's users cannot be looked up.
pub fn user_number(name: &str) -> std::io::Result<Option<u32>> {
    Ok(nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// The number of a group of this system, by its name.
pub fn group_number(name: &str) -> std::io::Result<Option<u32>> {
    Ok(nix::unistd::Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// What people call a user or a group of this system that a class is: `user alice`, `group physics`, or with their numbers.
pub fn class_called(app: AppId) -> Option<String> {
    if app == REST_OF_GROUPS {
        return Some("all other groups".into());
    }
    let group = |gid: u32| match nix::unistd::Group::from_gid(gid.into()) {
        Ok(Some(group)) => format!("group {}", group.name),
        _ => format!("group {gid}"),
    };
    user_of_application(app).map(user_called).or_else(|| group_of_application(app).map(group))
}

/// What people call a user of this system: `user alice`, or `user 1000`.
pub fn user_called(uid: u32) -> String {
    match nix::unistd::User::from_uid(uid.into()) {
        Ok(Some(user)) => format!("user {}", user.name),
        _ => format!("user {uid}"),
    }
}

/// A user by the name in its certificate.
fn user_named(name: &str, users: &BTreeMap<String, Caller>) -> Result<User, AuthError> {
    let unknown = |expected| AuthError::UnknownName { name: name.into(), expected };
    let Caller { uid, gid, .. } = if users.is_empty() {
        match nix::unistd::User::from_name(name) {
            Ok(Some(user)) => Caller::new(user.uid.as_raw(), user.gid.as_raw()),
            Ok(None) => return Err(unknown("the name of a user of this system; or list it in `users`")),
            Err(errno) => return Err(AuthError::Lookup { name: name.into(), source: errno.into() }),
        }
    } else {
        *users.get(name).ok_or_else(|| unknown("one of the listener's `users`"))?
    };
    Ok(User { uid, gid, name: name.into() })
}

/// How a client proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// Not at all.
    None,
    /// By the socket: a Unix socket's peer credentials, or TLS with a certificate.
    #[default]
    Socket,
    /// By MUNGE.
    Munge(Munge),
}

impl Credential {
    /// How a client proves who it is at these places where nobody has said how: by the socket if all are on this machine, else by MUNGE if
    /// that is there.
    pub fn usual(places: &[Endpoint]) -> Credential {
        match places.iter().all(|place| matches!(place, Endpoint::Unix(_))) {
            true => Credential::Socket,
            false if Path::new(MUNGE_SOCKET).exists() => Credential::Munge(Munge::new(None)),
            false => Credential::None,
        }
    }

    /// The `auth` of a `Hello`.
    pub fn kind(&self) -> u8 {
        match self {
            Credential::None => auth::NONE,
            Credential::Socket => auth::SOCKET,
            Credential::Munge(_) => auth::MUNGE,
        }
    }

    /// The payload of a `Hello`, a new one for each connection: a MUNGE credential can be used once. May block for a second.
    pub fn prove(&self, binding: &Binding) -> Result<Vec<u8>, MungeError> {
        match self {
            Credential::None | Credential::Socket => Ok(Vec::new()),
            Credential::Munge(munge) => munge.encode(binding.as_bytes()),
        }
    }
}

#[cfg(test)]
mod tests;
