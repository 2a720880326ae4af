//! Files over the network: what carries requests from clients through forwarders to data servers.
//!
//! | module | purpose |
//! |---|---|
//! | [`client`] | files on servers, from any number of threads |
//! | [`coordinator`] | says whose turn it is on shared storage |
//! | [`server`] | serves trees to many clients |
//! | [`transport`] | connections, which these four share: who is there, sockets, what leaves and arrives |
//! | [`turns`] | the client of a coordinator |
//! | `gates` | a gate's way to the coordinator of a policy that it shares with others |
//! | `system` | what all of these take from the system: clocks, random numbers |
//!
//! The messages themselves are in [`iogate_core::wire`].

pub mod client;
pub mod coordinator;
mod gates;
pub mod server;
mod system;
pub mod transport;
pub mod turns;

pub use gates::ThisSystem;
pub use server::{Server, ServerConfig};
pub use transport::{Endpoint, Listener};
