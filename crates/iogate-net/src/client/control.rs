//! Asking a server how it is, and telling it what to change.

use std::io;

use iogate_core::wire::{Configure, Evict, ReadAccounts, ReadRecording, Request, Status};
use iogate_vfs::Caller;

use super::call::Answer;
use super::session::Client;

impl Client {
    /// The server's state, as JSON: a [`Status`](crate::server::Status).
    pub fn status(&self) -> io::Result<Vec<u8>> {
        match self.call(&Request::Status(Status {}), self.user())? {
            Answer::Other { payload, .. } => Ok(payload),
            Answer::Read(_) | Answer::Written(_) => Err(io::Error::from_raw_os_error(libc::EPROTO)),
        }
    }

    /// Changes the scheduler of the export that the client uses, live: a scheduler with its parameters, or parameters of the
    /// one in force, as in `scheduler=sjf,age_max=1s`. Fails as `PermissionDenied` for other users than root and the
    /// server's own, and as `InvalidInput` if there is no such scheduler; the error's text is the server's.
    pub fn configure(&self, scheduler: &str) -> io::Result<()> {
        let scheduler = scheduler.as_bytes();
        self.call(&Request::Configure(Configure { scheduler }), self.user()).map(drop)
    }

    /// What a recording of the gate of the export that the client uses has from event `from` on, as at most `bytes`
    /// ([`iogate_core::recording`]). From 0 it begins if there is none of this name; with `u64::MAX` it ends. Fails as `PermissionDenied`
    /// for other users than root and the server's own; the error's text is the server's.
    pub fn record(&self, name: u64, from: u64, bytes: u32) -> io::Result<Vec<u8>> {
        match self.call(&Request::ReadRecording(ReadRecording { name, from, bytes }), self.user())? {
            Answer::Other { payload, .. } => Ok(payload),
            Answer::Read(_) | Answer::Written(_) => Err(io::Error::from_raw_os_error(libc::EPROTO)),
        }
    }

    /// Accounts of the gate of the export that the client uses, from number `from` on, as JSON: an optional [`Page`]. Fails as
    /// `Unsupported` at a server of an earlier version.
    ///
    /// [`Page`]: iogate_core::blame::Page
    pub fn accounts(&self, from: u32) -> io::Result<Vec<u8>> {
        match self.call(&Request::ReadAccounts(ReadAccounts { from }), self.user())? {
            Answer::Other { payload, .. } => Ok(payload),
            Answer::Read(_) | Answer::Written(_) => Err(io::Error::from_raw_os_error(libc::EPROTO)),
        }
    }

    /// Takes a turn away from whoever holds it; the server must be a coordinator. Fails as `PermissionDenied` for other users than the
    /// turn's own, the coordinator's and root, and as `ESTALE` if nobody holds it; the error's text is the coordinator's.
    pub fn evict(&self, token: u64) -> io::Result<()> {
        self.call(&Request::Evict(Evict { token }), self.user()).map(drop)
    }

    /// The user that the server takes the client for.
    fn user(&self) -> Caller {
        let welcome = self.welcome();
        Caller::new(welcome.uid, welcome.gid)
    }
}
