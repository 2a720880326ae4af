//! `iogate serve`: a data server or a forwarder.

pub(crate) mod config;
