//! A mount or a server that is up, and how it is asked, whatever that is: its status, its accounts, what it does.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::anyhow;
use iogate_core::stats::summary::Summary;
use iogate_fuse::ControlError;
use iogate_net::Endpoint;
use iogate_net::client::Client;
use iogate_net::server::Status;
use iogate_report::metrics::Exposed;

use crate::attempt::{Attempt, Doing};
use crate::commands::serve::ask;
use crate::failure::Failure;
use crate::metrics;

/// How long a server may take to answer, and a mount to change something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Who is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Mount(PathBuf),
    Server(Endpoint),
}

impl Place {
    /// What can be a path of a mount is one: an address on TCP has no `/`, and nothing of its name is there.
    pub(crate) fn of(given: &Path) -> Result<Place, Failure> {
        let address = given.to_str().filter(|text| {
            text.starts_with("unix:") || text.contains(':') && !text.contains('/') && !given.exists()
        });
        match address {
            Some(address) => Ok(Place::Server(address.parse().map_err(Failure::usage)?)),
            None => Ok(Place::Mount(given.into())),
        }
    }

    /// As commands are told it.
    pub(crate) fn name(&self) -> String {
        match self {
            Place::Mount(mountpoint) => mountpoint.display().to_string(),
            Place::Server(endpoint) => endpoint.to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if matches!(self, Place::Mount(_)) { "mount" } else { "server" };
        write!(f, "the {kind} at {}", self.name())
    }
}

/// Asks one place, as often as wanted: the connection to a server is kept.
pub(crate) struct Asker {
    place: Place,
    export: Option<String>,
    client: Option<Client>,
}

/// What there is to ask.
pub(crate) enum Reached<'a> {
    Mount(&'a Path),
    Server(&'a Endpoint, &'a Client),
}

/// How a place is.
pub(crate) enum Said {
    Mount(Box<Summary>),
    Server(Box<Status>),
}

impl Asker {
    /// Of a place, or of that export of a server. It is not asked anything yet.
    pub(crate) fn new(place: Place, export: Option<&str>) -> Result<Asker, Failure> {
        if export.is_some() && matches!(place, Place::Mount(_)) {
            return Err(Failure::usage(anyhow!("--export is for servers: a mount has one gate")));
        }
        Ok(Asker { place, export: export.map(Into::into), client: None })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The export that is asked of; `None`: the first one.
    pub(crate) fn export(&self) -> Option<&str> {
        self.export.as_deref()
    }

    /// Connects to a server, unless that is done.
    pub(crate) fn reach(&mut self) -> Result<Reached<'_>, Failure> {
        let endpoint = match &self.place {
            Place::Mount(mountpoint) => return Ok(Reached::Mount(mountpoint)),
            Place::Server(endpoint) => endpoint,
        };
        let client = match self.client.take() {
            Some(client) => client,
            None => ask::client(endpoint, self.export.as_deref().unwrap_or_default(), PATIENCE)?,
        };
        Ok(Reached::Server(endpoint, self.client.insert(client)))
    }

    /// How it is.
    pub(crate) fn status(&mut self) -> Result<Said, Failure> {
        let answer = match self.reach()? {
            Reached::Mount(mountpoint) => {
                let bytes = iogate_fuse::status(mountpoint).map_err(unanswered)?;
                return Ok(Said::Mount(ask::understood(&self.place, &bytes)?));
            }
            Reached::Server(endpoint, client) => ask::read_status(endpoint, client),
        };
        if answer.is_err() {
            // Asked again, it is connected to anew.
            self.client = None;
        }
        Ok(Said::Server(Box::new(answer?)))
    }

    /// What monitoring is told, as the mount or the server itself would.
    pub(crate) fn exposed(&mut self) -> Result<Exposed, Failure> {
        Ok(match self.status()? {
            Said::Mount(summary) => Exposed { gates: vec![*summary], server: None },
            Said::Server(status) => metrics::of_server(*status),
        })
    }
}

/// A mount does not say what it was asked.
pub(crate) fn unanswered(error: ControlError) -> Failure {
    Failure::failed(anyhow!(error).context(Attempt::new(Doing::Ask, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_mounts_and_addresses_are_servers() {
        let of = |text: &str| Place::of(text.as_ref());
        for text in ["/mnt/scratch", "mount", "a/b:7000", "./io0:7000"] {
            assert_eq!(of(text).unwrap(), Place::Mount(text.into()));
        }
        for text in ["io0:7000", "[::1]:7000", "unix:/run/iogate.socket"] {
            let place = of(text).unwrap();
            assert_eq!(place, Place::Server(text.parse().unwrap()));
            assert_eq!(place.to_string(), format!("the server at {text}"));
        }
        for wrong in ["io0:seven", "unix:", ":7000"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
