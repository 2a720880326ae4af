//! Connections, whatever they carry: files or turns, at either end.
//!
//! | module | purpose |
//! |---|---|
//! | `endpoint` | where a server listens |
//! | `listener` | accepting connections |
//! | `source` | where a connection comes from |
//! | `socket`, `tls`, `certificates` | a connected stream, plain or encrypted |
//! | [`auth`] | who the peer is, and what a listener asks for |
//! | `handshake` | what every server asks of the first message |

pub mod auth;
mod certificates;
mod endpoint;
pub(crate) mod handshake;
mod listener;
mod socket;
mod source;
mod tls;

pub use certificates::{TlsClient, TlsError, TlsServer};
pub use endpoint::{Endpoint, EndpointError};
pub use listener::Listener;
pub use socket::{Keep, Peer, PlainSocket, Socket, keep_descriptors_by};
pub(crate) use socket::{kept, peer_groups};
pub(crate) use source::Source;
pub use tls::TlsSocket;
