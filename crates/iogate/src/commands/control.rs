//! `iogate umount`, `iogate status`, `iogate set`: what is asked of a mount or a server that is up.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_core::stats::summary::Summary;
use iogate_fuse::{ControlError, MountError};
use iogate_net::Endpoint;
use iogate_net::client::Client;
use iogate_report::metrics::{Exposed, Form, text};
use iogate_report::status;

use crate::attempt::{Attempt, Doing};
use crate::cli::{SetArgs, StatusArgs, UmountArgs};
use crate::commands::policy;
use crate::commands::serve::ask;
use crate::failure::Failure;
use crate::metrics;
use crate::output::{print_or_watch, quoted};

/// How long a server may take to answer.
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
}

pub(crate) fn umount(args: &UmountArgs) -> Result<(), Failure> {
    iogate_fuse::unmount(&args.mountpoint, args.lazy).map_err(|error| match error {
        MountError::InUse { .. } => {
            let again =
                format!("`iogate umount --lazy {}` takes it off at once", quoted(args.mountpoint.display()));
            Failure::failed(error).hint(again)
        }
        error => Failure::failed(error),
    })
}

pub(crate) fn set(args: &SetArgs) -> Result<(), Failure> {
    let settings = asked(&args.settings)?;
    match &Place::of(&args.place)? {
        Place::Mount(_) if args.export.is_some() => {
            Err(Failure::usage(anyhow!("--export is for servers: a mount has one gate")))
        }
        Place::Mount(mountpoint) => iogate_fuse::set(mountpoint, &settings).map_err(|error| match error {
            ControlError::Refused { .. } => Failure::usage(error).hint(what_stays(&settings)),
            _ => unanswered(error),
        }),
        Place::Server(endpoint) => {
            let export = args.export.as_deref().unwrap_or_default();
            ask::configure(endpoint, export, &settings, PATIENCE).map_err(|error| refused(error, &settings))
        }
    }
}

/// A server did not take settings: by its own words, or as it could not be asked.
pub(crate) fn refused(error: anyhow::Error, settings: &str) -> Failure {
    let is_refusal = |error: &std::io::Error| error.kind() == std::io::ErrorKind::InvalidInput;
    if error.downcast_ref().is_some_and(is_refusal) {
        Failure::usage(error).hint(what_stays(settings))
    } else {
        Failure::failed(error)
    }
}

/// What is as it was when settings are refused.
fn what_stays(settings: &str) -> &'static str {
    match settings {
        settings if is_policy(settings) => POLICY_STAYS,
        settings if settings.starts_with(ACCOUNTS) => NOTHING_CHANGED,
        _ => SCHEDULER_STAYS,
    }
}

/// After a scheduler is refused.
const SCHEDULER_STAYS: &str = "`iogate schedulers` lists schedulers and parameters; nothing was changed";
/// After a policy is refused.
const POLICY_STAYS: &str = "`iogate policy check FILE` explains a policy; nothing was changed";

/// After what is neither is refused.
const NOTHING_CHANGED: &str = "nothing was changed";

/// Whether a setting is a policy.
fn is_policy(setting: &str) -> bool {
    setting.starts_with("policy=") || setting.starts_with("fair=")
}

/// Whether accounts are kept.
const ACCOUNTS: &str = "accounts=";

/// What is asked for, as the mount or the server takes it: of a policy its text, as the file may not be there.
pub(crate) fn asked(settings: &[String]) -> Result<String, Failure> {
    if let Some(setting) = settings.iter().find(|setting| setting.starts_with(ACCOUNTS) && settings.len() > 1)
    {
        let error = anyhow!("{setting}: it is set by itself, found {} settings", settings.len());
        return Err(Failure::usage(error).hint(NOTHING_CHANGED));
    }
    let Some(setting) = settings.iter().find(|setting| is_policy(setting)) else {
        return Ok(settings.join(","));
    };
    if settings.len() > 1 {
        let error = anyhow!("{setting}: a policy is set by itself, found {} settings", settings.len());
        return Err(Failure::usage(error).hint(POLICY_STAYS));
    }
    match setting.strip_prefix("policy=").filter(|file| *file != "none") {
        Some(file) => policy::read(Path::new(file))
            .map(|(_, text)| format!("policy={text}"))
            .map_err(|failure| failure.hint(POLICY_STAYS)),
        None => Ok(setting.clone()),
    }
}

pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let place = Place::of(&args.place)?;
    let form = match args {
        StatusArgs { openmetrics: true, .. } => Some(Form::OpenMetrics),
        StatusArgs { prometheus: true, .. } => Some(Form::Prometheus),
        _ => None,
    };
    if let Some(form) = form {
        return print_or_watch(args.watch, true, || Ok(text(&Asker::new(place.clone()).exposed()?, form)));
    }
    print_or_watch(args.watch, args.json, || shown(&place, args.json))
}

/// Asks one place again and again; keeps the connection to a server.
pub(crate) struct Asker {
    place: Place,
    client: Option<Client>,
}

impl Asker {
    pub(crate) fn new(place: Place) -> Asker {
        Asker { place, client: None }
    }

    /// What monitoring is told, as the mount or the server itself would.
    pub(crate) fn exposed(&mut self) -> Result<Exposed, Failure> {
        match &self.place {
            Place::Mount(mountpoint) => {
                let bytes = iogate_fuse::status(mountpoint).map_err(unanswered)?;
                Ok(Exposed { gates: vec![summary(mountpoint, &bytes)?], server: None })
            }
            Place::Server(endpoint) => {
                let client = match self.client.take() {
                    Some(client) => client,
                    None => ask::client(endpoint, "", PATIENCE)?,
                };
                let status = ask::read_status(endpoint, &client)?;
                self.client = Some(client);
                Ok(metrics::of_server(status))
            }
        }
    }
}

/// A mount does not say what it was asked.
pub(crate) fn unanswered(error: ControlError) -> Failure {
    Failure::failed(anyhow!(error).context(Attempt::new(Doing::Ask, "")))
}

/// How the gate of a mount is.
pub(crate) fn summary(mountpoint: &Path, bytes: &[u8]) -> anyhow::Result<Summary> {
    serde_json::from_slice(bytes)
        .with_context(|| format!("the mount at {} answers in another version's words", mountpoint.display()))
}

fn shown(place: &Place, json: bool) -> Result<String, Failure> {
    let mountpoint = match place {
        Place::Mount(mountpoint) => mountpoint,
        Place::Server(endpoint) => {
            let status = ask::status_of(endpoint, PATIENCE)?;
            if json {
                let json = serde_json::to_string(&status).context("the status as JSON")?;
                return Ok(format!("{json}\n"));
            }
            return Ok(ask::shown(&status));
        }
    };
    let bytes = iogate_fuse::status(mountpoint).map_err(unanswered)?;
    if json {
        return Ok(format!("{}\n", String::from_utf8_lossy(&bytes)));
    }
    Ok(status::status(&summary(mountpoint, &bytes)?))
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
            assert_eq!(of(text).unwrap(), Place::Server(text.parse().unwrap()));
        }
        for wrong in ["io0:seven", "unix:", ":7000"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
