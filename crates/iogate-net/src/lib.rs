//! Files over the network: what carries requests from clients through forwarders to data servers.
//!
//! | module | purpose |
//! |---|---|
//! | [`client`] | files on servers, from any number of threads |
//! | [`coordinator`] | says whose turn it is on shared storage |
//! | [`endpoint`] | where a server listens |
//! | [`auth`] | who the peer is, and what a listener asks for |
//! | [`server`] | serves trees to many clients |
//! | [`socket`] | a connected stream, plain or encrypted |
//! | [`turns`] | the client of a coordinator |
//!
//! The messages themselves are in [`iogate_core::wire`].

pub mod auth;
pub mod client;
mod clock;
pub mod coordinator;
pub mod endpoint;
mod greeting;
pub mod server;
pub mod socket;
pub mod turns;

pub use endpoint::Endpoint;
pub use server::{Server, ServerConfig};
