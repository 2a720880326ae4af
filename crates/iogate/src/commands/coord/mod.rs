//! `iogate coord`: coordinators, and what is asked of them.

mod serve;
mod status;

use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_net::Endpoint;
use iogate_net::client::ClientError;
use iogate_net::coordinator::{EXPORT, Status};
use iogate_net::transport::ConnectError;

use crate::cli::{CoordArgs, CoordCommand, CoordReleaseArgs, CoordStatusArgs};
use crate::commands::serve::ask;
use crate::failure::{Failure, in_full};
use crate::output::{print_or_watch, say};

/// How long a coordinator may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a coordinator answers if nobody holds a turn, and if it is not the caller's to release.
const STALE: i32 = rustix::io::Errno::STALE.raw_os_error();
const NOT_PERMITTED: i32 = rustix::io::Errno::PERM.raw_os_error();

pub(crate) fn run(args: &CoordArgs) -> Result<(), Failure> {
    match &args.command {
        CoordCommand::Serve(args) => serve::run(args),
        CoordCommand::Status(args) => status(args),
        CoordCommand::Release(args) => release(args),
    }
}

fn status(args: &CoordStatusArgs) -> Result<(), Failure> {
    let shown = || -> Result<String, Failure> {
        let status = status_of(&args.coord.coordinators)?;
        if let Some(warning) = more_than_one(&args.coord.coordinators) {
            say(warning);
        }
        Ok(match args.json {
            true => format!("{}\n", serde_json::to_string(&status).context("the status as JSON")?),
            false => status::status(&status),
        })
    };
    print_or_watch(args.watch, args.json, shown)
}

fn release(args: &CoordReleaseArgs) -> Result<(), Failure> {
    reach(&args.coordinators)?.evict(args.token).map_err(|error| {
        let token = args.token;
        Failure::failed(match error.raw_os_error() {
            Some(STALE) => anyhow!("nobody holds a turn with token {token}"),
            Some(NOT_PERMITTED) => anyhow!(
                "the turn {token} is another user's: its user, the coordinator's, and root may release it"
            ),
            _ => anyhow::Error::new(error).context(format!("the turn {token} cannot be released")),
        })
    })
}

/// How the coordinator is that leads.
fn status_of(coordinators: &[Endpoint]) -> Result<Status, Failure> {
    let json = reach(coordinators)?.status().context("the coordinator does not say how it is")?;
    Ok(ask::understood("the coordinator", &json)?)
}

/// What to say where several of a list lead: none of them knows whom the others have granted a turn. Who does not lead sends clients away.
fn more_than_one(coordinators: &[Endpoint]) -> Option<String> {
    if coordinators.len() < 2 {
        return None;
    }
    let leads = |endpoint: &&Endpoint| ask::client(endpoint, EXPORT, PATIENCE).is_ok();
    let leading: Vec<String> = coordinators.iter().filter(leads).map(Endpoint::to_string).collect();
    (leading.len() > 1).then(|| {
        format!(
            "iogate: {} all lead, and grant the same place at the same time: have them share one etcd (--etcd), or run one of them",
            leading.join(" and ")
        )
    })
}

/// Connects to the first of some coordinators that leads.
fn reach(coordinators: &[Endpoint]) -> Result<iogate_net::client::Client, Failure> {
    let mut failures = Vec::new();
    for endpoint in coordinators {
        match ask::client(endpoint, EXPORT, PATIENCE) {
            Ok(client) => return Ok(client),
            Err(error) => failures.push(match error.downcast_ref() {
                // Who listens there otherwise is no advice here.
                Some(ClientError::Connect(ConnectError::Unreachable { endpoint, source })) => {
                    format!("{endpoint} cannot be reached ({source})")
                }
                _ => in_full(&error),
            }),
        }
    }
    let error = anyhow!("no coordinator answers: {}", failures.join("; "));
    Err(Failure::failed(error)
        .hint("`iogate coord serve` runs one; check where it is, as given or by IOGATE_COORD"))
}
