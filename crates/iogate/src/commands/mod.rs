//! The commands, a file each.

pub(crate) mod bench;
pub(crate) mod control;
pub(crate) mod demo;
pub(crate) mod layout;
pub(crate) mod lists;
pub(crate) mod manuals;
pub(crate) mod mount;
pub(crate) mod replay;
pub(crate) mod reproduce;
pub(crate) mod scenario;
pub(crate) mod sim;
