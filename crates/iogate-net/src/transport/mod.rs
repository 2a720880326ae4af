//! Connections, whatever they carry: files or turns, at either end.
//!
//! | module | purpose |
//! |---|---|
//! | `endpoint` | where a server listens |
//! | `listener` | accepting connections |
//! | `source` | where a connection comes from |
//! | `socket`, `tls`, `certificates` | a connected stream, plain or encrypted |
//! | [`auth`] | who the peer is, and what a listener asks for |
//! | `connect` | a client's first message, and what becomes of it |
//! | `handshake` | what every server asks of it |
//! | `identity` | who this process is to all servers, and the numbers of its requests |
//! | `clock` | how far a server's clock is from this one |
//! | `poll` | waiting for many connections at once, and waking who waits |
//! | `blocking` | whole messages, for a thread that waits for them |

pub mod auth;
pub(crate) mod blocking;
mod certificates;
mod clock;
mod connect;
mod endpoint;
pub(crate) mod handshake;
pub(crate) mod identity;
mod listener;
pub(crate) mod poll;
mod socket;
mod source;
mod tls;

pub use certificates::{TlsClient, TlsError, TlsServer};
pub use clock::ClockOffset;
pub use connect::{ConnectError, Dial, dial, dial_tls};
pub(crate) use connect::{Connected, Introduction, Way, connect};
pub use endpoint::{Endpoint, EndpointError};
pub use listener::{Bound, Listener};
pub use socket::{Keep, Peer, PlainSocket, Socket, keep_descriptors_by};
pub(crate) use socket::{hang_up, log_end, peer_groups};
pub(crate) use source::{Source, may_greet, too_many};
pub use tls::TlsSocket;
