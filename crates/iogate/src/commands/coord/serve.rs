//! `iogate coord serve`.

use anyhow::{Context, anyhow};
use iogate_net::coordinator::{Coordinator, CoordinatorConfig, Journal, Limits, Local, StartError};
use iogate_net::server::Listener;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::rules;
use crate::cli::{Auth, CoordServeArgs};
use crate::commands::serve::config::{self, Address, Listen};
use crate::commands::serve::{READY, raise_descriptor_limit};
use crate::failure::Failure;
use crate::output::print;

pub(super) fn run(args: &CoordServeArgs) -> Result<(), Failure> {
    if args.with_parent {
        let signal = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(signal).context("the end of the parent")?;
    }
    let places = args.places.iter().map(|place| rules::place(place).context("--place"));
    let config = CoordinatorConfig {
        table: rules::rules(&args.rules).context("--set").map_err(Failure::usage)?,
        places: places.collect::<Result<_, _>>().map_err(Failure::usage)?,
        limits: Limits::default(),
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    // Before it listens, so that no signal finds it without a handler.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("signals cannot be handled")?;
    raise_descriptor_limit();
    // The state first: a second coordinator must not take the place of the first one's socket.
    let journal: Box<dyn Journal> = Box::new(Local::open(&args.state).map_err(Failure::failed)?);
    let listeners = listeners(args)?;
    let coordinator = Coordinator::start(config, listeners, journal).map_err(|error| match error {
        StartError::Settings(_) => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    let mut lines = String::new();
    for endpoint in coordinator.endpoints() {
        lines.push_str(&format!("listening at {endpoint}\n"));
    }
    print(&format!("{lines}{READY}\n"))?;
    signals.forever().next();
    coordinator.shutdown();
    Ok(())
}

/// The sockets, bound.
fn listeners(args: &CoordServeArgs) -> Result<Vec<Listener>, Failure> {
    let auth = args.auth.map(|auth| match auth {
        Auth::None => config::Auth::None,
        Auth::Peer => config::Auth::Peer,
        Auth::Munge => config::Auth::Munge,
        Auth::Tls => config::Auth::Tls,
    });
    let tls = match (&args.tls_certificate, &args.tls_key, &args.tls_clients) {
        (Some(certificate), Some(key), Some(clients)) => Some(config::Tls {
            certificate: certificate.clone(),
            key: key.clone(),
            clients: clients.clone(),
            users: std::collections::BTreeMap::new(),
        }),
        _ => None,
    };
    if (auth == Some(config::Auth::Tls)) != tls.is_some() {
        let error = anyhow!("--auth tls goes with --tls-certificate, --tls-key and --tls-clients");
        return Err(Failure::usage(error));
    }
    let bind = |endpoint: &iogate_net::Endpoint| {
        // On a Unix socket the kernel says who is there, whatever holds for the network.
        let is_unix = matches!(endpoint, iogate_net::Endpoint::Unix(_));
        let listen = Listen {
            at: Address(endpoint.clone()),
            auth: auth.filter(|_| !is_unix || args.listen.iter().all(|other| is_unix_socket(other))),
            tls: tls.clone(),
            anonymous: None,
            munge_socket: args.munge_socket.clone(),
            allow_unauthenticated_network: args.allow_unauthenticated_network,
        };
        listen.auth().context("--auth").map_err(Failure::usage)?;
        Ok(listen.bind()?)
    };
    args.listen.iter().map(bind).collect()
}

fn is_unix_socket(endpoint: &iogate_net::Endpoint) -> bool {
    matches!(endpoint, iogate_net::Endpoint::Unix(_))
}
