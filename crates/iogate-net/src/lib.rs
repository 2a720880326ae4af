//! Files over the network: what carries requests from clients through forwarders to data servers.
//!
//! | module | purpose |
//! |---|---|
//! | [`tree`] | what a front end, a server or a client sees of a file system: names, attributes, open files |
//! | [`app`] | which application a process belongs to |
//! | [`client`] | files on servers, from any number of threads |
//! | [`coordinator`] | says whose turn it is on shared storage |
//! | [`endpoint`] | where a server listens |
//! | [`auth`] | who the peer is, and what a listener asks for |
//! | [`server`] | serves trees to many clients |
//! | [`socket`] | a connected stream, plain or encrypted |
//! | [`turns`] | the client of a coordinator |
//! | [`users`] | whose ids a client's are on this machine |
//!
//! The messages themselves are in [`iogate_core::wire`].

pub mod app;
pub mod auth;
pub mod client;
mod clock;
pub mod coordinator;
pub mod endpoint;
mod ends;
mod ends_kept;
mod greeting;
pub mod server;
pub mod socket;
pub mod tree;
pub mod turns;
pub mod users;

pub use endpoint::Endpoint;
pub use server::{Server, ServerConfig};
pub use tree::{Caller, Groups, Tree, TreeFile};
pub use users::Users;
