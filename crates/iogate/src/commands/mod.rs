//! The commands, a file each.

pub(crate) mod advise;
pub(crate) mod bench;
pub(crate) mod cluster;
pub(crate) mod control;
pub(crate) mod coord;
pub(crate) mod demo;
pub(crate) mod layout;
pub(crate) mod lists;
pub(crate) mod manuals;
pub(crate) mod mount;
pub(crate) mod nfs;
pub(crate) mod partial;
pub(crate) mod policy;
pub(crate) mod probe;
pub(crate) mod profile;
pub(crate) mod progress;
pub(crate) mod record;
pub(crate) mod remote;
pub(crate) mod replay;
pub(crate) mod reproduce;
pub(crate) mod run;
pub(crate) mod scenario;
pub(crate) mod serve;
pub(crate) mod sim;
pub(crate) mod turn;
pub(crate) mod why;
