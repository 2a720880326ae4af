//! NFS version 3 (RFC 1813) in front of a directory and its gate: each user of each client is an application.
//!
//! | module | purpose |
//! |---|---|
//! | [`xdr`], [`rpc`], [`wire`] | the messages, from bytes and to bytes; nothing else |
//! | [`handle`] | what a client names a file by |
//! | [`answers`] | by what a call is known that is sent again |
//! | `service` | what calls do |
//! | [`client`] | the other end: a connection to any server, for what measures and tries servers |
//! | [`port_mapper`] | where the server is, for clients that ask this machine's port mapper |
//! | `server` | sockets, threads, and how much of both a client may have |
//!
//! The first four know no file, no socket and no thread.

pub mod answers;
pub mod client;
pub mod handle;
pub mod port_mapper;
pub mod rpc;
mod server;
mod service;
pub mod wire;
pub mod xdr;

pub use server::{Access, Counts, Limits, Network, NetworkError, Server, ServerConfig};
pub use service::{Answer, Asked, Asking, Callbacks, Export, Front, Job, Lasting, Respond, Service, Spawn};
