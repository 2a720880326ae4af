//! Files over the network: what carries requests from clients through forwarders to data servers.
//!
//! | module | purpose |
//! |---|---|
//! | [`tree`] | what a front end, a server or a client sees of a file system: names, attributes, open files |
//! | [`endpoint`] | where a server listens |
//! | [`socket`] | a connected stream, plain or encrypted |
//! | [`users`] | whose ids a client's are on this machine |
//!
//! The messages themselves are in [`iogate_core::wire`].

pub mod endpoint;
pub mod socket;
pub mod tree;
pub mod users;

pub use endpoint::Endpoint;
pub use tree::{Caller, Tree, TreeFile};
pub use users::Users;
