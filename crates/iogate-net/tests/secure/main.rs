//! Who is let in by what: credentials, certificates, and both at a server.

mod certificates;
mod daemon;
mod munge;
mod server;
mod tls;

#[path = "../common/mod.rs"]
mod common;
