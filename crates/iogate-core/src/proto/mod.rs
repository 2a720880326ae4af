//! The rules of sessions between clients and servers: machines that decide, over no socket, thread or clock.
//!
//! | module | purpose |
//! |---|---|
//! | [`window`] | which requests of a lost connection were carried out, so that none is twice |

pub mod window;
