//! The rules of sessions between clients and servers: machines that decide, over no socket, thread or clock.
//!
//! | module | purpose |
//! |---|---|
//! | [`admission`] | whether a client may go on with a session, or begin one |
//! | [`append_lane`] | in which order records are appended to a file |
//! | [`client_session`] | what a client sends again when connections or servers are lost, when it connects again, and what it opens again |
//! | [`forwarder`] | which forwarders may be there together, and which one ends its predecessor |
//! | [`frame`] | where a request ends, and what its header alone says to be wrong |
//! | [`origins`] | the numbers of a client process's requests |
//! | [`repeats`] | which requests of a lost connection were carried out, so that none is twice while its session lives |
//! | [`ring`] | servers that forward to each other in a ring |
//! | [`server_session`] | a server's side of a session: connections, requests, handles, who waits for the end of a file |

pub mod admission;
pub mod append_lane;
pub mod client_session;
pub mod forwarder;
pub mod frame;
pub mod origins;
pub mod repeats;
pub mod ring;
pub mod server_session;
