//! `iogate serve`: a data server or a forwarder.

pub(crate) mod ask;
mod build;
mod check;
pub(crate) mod config;
pub(crate) mod gate;
mod nfs;
mod security;
pub(crate) mod started;
mod values;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use iogate_net::server::Server;
use iogate_net::{Endpoint, ThisSystem};
use signal_hook::iterator::Signals;

use self::config::{Address, Config};
use crate::cli::{SchedulerArgs, ServeArgs};
use crate::commands::{notify, policy, signals};
use crate::failure::Failure;
use crate::kept::Keeper;
use crate::metrics;
use crate::output::print;

/// The last line on standard output before the server serves.
const READY: &str = "ready";

pub(crate) fn run(args: &ServeArgs) -> Result<(), Failure> {
    if args.with_parent {
        let signal = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(signal).context("the end of the parent")?;
    }
    let config = settings(args)?;
    let shares = policy::of_flags(&args.shares)?;
    // Whether it is only checked or served, it is refused for the same, in the same words.
    let in_file = |failure: Failure| match &args.config {
        Some(file) => failure
            .within(format!("the configuration {}", file.display()))
            .or_help(|| "docs/security.md says how users, keys and certificates are to be".into()),
        None => failure,
    };
    config.check_here().map_err(|error| in_file(Failure::usage(error)))?;
    config.check_directories().map_err(|error| in_file(Failure::failed(error)))?;
    if args.check {
        return print("the configuration is right\n");
    }
    let signals = begin()?;
    let listeners = build::listeners(&config)?;
    let nfs = config.nfs.as_ref().map(|nfs| Ok::<_, Failure>((nfs, nfs.bind()?))).transpose()?;
    let http = args.http.as_ref().map(metrics::Listener::bind).transpose()?;
    let (settings, built) = build::server(&config)?;
    let engines: Vec<_> = built.iter().map(|built| Arc::clone(&built.engine)).collect();
    if let Some(shares) = &shares {
        let set = engines.iter().try_for_each(|engine| shares.set(engine, &ThisSystem));
        set.map_err(|error| Failure::usage(anyhow!(error)))?;
    }
    let server = Arc::new(Server::start(settings, listeners).context("the server cannot be started")?);
    let mut lines = String::new();
    for endpoint in server.endpoints() {
        lines.push_str(&format!("listening at {endpoint}\n"));
    }
    let nfs = match nfs {
        None => None,
        Some((nfs, listener)) => {
            let (server, registered, told) = nfs.start(&config, &built, listener)?;
            lines.push_str(&told);
            Some((server, registered))
        }
    };
    let _serving = match http {
        None => None,
        Some(listener) => {
            lines.push_str(&listener.lines());
            Some(listener.serve_server(&server)?)
        }
    };
    until_stopped(&lines, &lines, signals)?;
    if let Some((nfs, registered)) = nfs {
        drop(registered);
        nfs.shutdown();
    }
    server.shutdown();
    built.into_iter().filter_map(|built| built.keeper).for_each(Keeper::end);
    engines.iter().for_each(|engine| engine.shutdown());
    Ok(())
}

/// What a file says, or what flags say.
fn settings(args: &ServeArgs) -> Result<Config, Failure> {
    let (Some(directory), Some(listen)) = (&args.directory, &args.listen) else {
        let file = args.config.as_deref();
        return Config::read(file.ok_or_else(|| Failure::usage(anyhow!("expected a configuration file")))?);
    };
    let address: Endpoint = listen.parse().map_err(Failure::usage)?;
    let auth = match &address {
        Endpoint::Unix(_) => config::Auth::Peer,
        Endpoint::Tcp { .. } => config::Auth::None,
    };
    if auth == config::Auth::None && !rustix::process::geteuid().is_root() {
        let error = anyhow!(
            "over TCP without authentication, a server that is not root cannot tell its own user from others"
        );
        return Err(Failure::usage(error)
            .hint("listen on unix:PATH, or write a configuration file with auth = \"munge\" or \"tls\""));
    }
    let wished = SchedulerArgs { scheduler: args.scheduler.clone(), params: args.params.clone() };
    let gate = gate::Gate::of(wished.pinned()?, crate::storage::fixed_scheduler(Some(directory)));
    Config::of_directory(PathBuf::from(directory), gate, Address(address), auth, args.read_only)
        .map_err(Failure::usage)
}

/// What a process that serves does before it listens; then no signal finds it without a handler.
pub(crate) fn begin() -> Result<Signals, Failure> {
    log_to_stderr();
    let signals = signals::of_the_end()?;
    raise_descriptor_limit();
    Ok(signals)
}

/// Says where it listens and that it is ready, to whoever reads its output and, as `doing`, to a service manager; returns when it is asked
/// to end.
pub(crate) fn until_stopped(lines: &str, doing: &str, mut signals: Signals) -> Result<(), Failure> {
    print(&format!("{lines}{READY}\n"))?;
    notify::ready(doing);
    signals.forever().next();
    notify::stopping();
    Ok(())
}

/// Messages go to standard error; which, `RUST_LOG` says. Where one cannot be written, nothing is said of that: the library would panic, as
/// it would say so there.
pub(crate) fn log_to_stderr() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false)
        .init();
}

/// Each connection and each open file holds a descriptor.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
