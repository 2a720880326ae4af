//! `iogate coord`: coordinators, and what is asked of them.

mod serve;
mod status;

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow};
use iogate_net::Endpoint;
use iogate_net::client::{Client, ClientError, ClientOptions, Receiving};
use iogate_net::coordinator::{EXPORT, Status};
use iogate_net::transport::ConnectError;
use iogate_turn::Settings;

use crate::cli::{CoordArgs, CoordCommand, CoordReleaseArgs, CoordStatusArgs};
use crate::commands::serve::ask;
use crate::failure::{Failure, in_full};
use crate::output::{print_or_watch, say};

/// How long a coordinator may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one may take that is only asked whether it leads, beside a job.
const GLANCE: Duration = Duration::from_secs(1);

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
    let leads = |endpoint: &Endpoint| ask::client(endpoint, EXPORT, PATIENCE).is_ok();
    warning(coordinators.iter().filter(|endpoint| leads(endpoint)))
}

fn warning<'a>(leading: impl Iterator<Item = &'a Endpoint>) -> Option<String> {
    let leading: Vec<String> = leading.map(Endpoint::to_string).collect();
    (leading.len() > 1).then(|| {
        format!(
            "iogate: {} all lead, and grant the same place at the same time: have them share one etcd (--etcd), or run one of them",
            leading.join(" and ")
        )
    })
}

/// Looks whether several lead of those by which turns are taken, and says so: all are asked at once, beside what else is done.
pub(super) struct Looking(Option<JoinHandle<()>>);

impl Looking {
    /// Begins, if there are several and somebody is to take a turn by them.
    pub(super) fn begin(settings: &Settings) -> Looking {
        let (endpoints, is_asked) = (settings.coordinators.clone(), settings.policy.locks());
        if endpoints.len() < 2 || !is_asked {
            return Looking(None);
        }
        // What is wrong with the options, who takes the turn says.
        let Ok(options) = settings.coordinator_options() else { return Looking(None) };
        let look = move || {
            let leads = |endpoint| {
                let options = ClientOptions {
                    name: options.name.clone(),
                    export: EXPORT.into(),
                    auth: options.auth.clone(),
                    dial: options.dial.clone(),
                    connect_timeout: GLANCE,
                    retry_for: GLANCE,
                    receiving: Receiving::Inline,
                    ..ClientOptions::default()
                };
                Client::connect(endpoint, options).is_ok()
            };
            let leading: Vec<bool> = std::thread::scope(|scope| {
                let asked: Vec<_> =
                    endpoints.iter().map(|endpoint| scope.spawn(move || leads(endpoint))).collect();
                asked.into_iter().map(|asked| asked.join().unwrap_or_default()).collect()
            });
            let leading =
                endpoints.iter().zip(leading).filter_map(|(endpoint, leads)| leads.then_some(endpoint));
            if let Some(warning) = warning(leading) {
                say(warning);
            }
        };
        // Without a thread there is one warning less.
        Looking(std::thread::Builder::new().name("iogate-look".into()).spawn(look).ok())
    }

    /// Waits until that is known, for a second at most.
    pub(super) fn end(self) {
        let _ = self.0.map(JoinHandle::join);
    }
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
