//! Servers as a tree, by the flags that say which.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use iogate_core::Span;
use iogate_core::proto::client_session::next_pause;
use iogate_net::Endpoint;
use iogate_net::client::{self, ClientError, ClientOptions, Remote, RemoteOptions};
use iogate_net::transport::auth::{Credential, Munge};
use iogate_net::transport::{TlsClient, dial_tls};

use crate::cli::{Auth, RemoteArgs, Spread};
use crate::failure::Failure;
use crate::output::say;

/// Names servers where no flag does: endpoints, separated by commas.
const FORWARDERS: &str = "IOGATE_FORWARDERS";

/// The servers that the flags name, or else the environment; none if neither does.
pub(crate) fn endpoints(args: &RemoteArgs) -> Result<Vec<Endpoint>, Failure> {
    let named = match std::env::var(FORWARDERS) {
        _ if !args.remote.is_empty() => args.remote.clone(),
        Ok(text) => text
            .split(',')
            .filter(|endpoint| !endpoint.is_empty())
            .map(|endpoint| endpoint.parse::<Endpoint>().context(FORWARDERS))
            .collect::<Result<_, _>>()
            .map_err(Failure::usage)?,
        Err(_) => Vec::new(),
    };
    // Also for later: a mount in the background leaves this working directory, and connects again.
    let named = named.into_iter().map(Endpoint::absolute).collect::<Result<Vec<_>, _>>();
    let named = named.context("there is no working directory, and a server's socket is within it")?;
    match args.index {
        Some(index) if !named.is_empty() && index >= named.len() => Err(Failure::usage(anyhow!(
            "--index {index}: expected a number below that of servers, {}",
            named.len()
        ))),
        _ => Ok(named),
    }
}

/// What people call some servers.
pub(crate) fn name(endpoints: &[Endpoint]) -> String {
    endpoints.iter().map(Endpoint::to_string).collect::<Vec<String>>().join(",")
}

/// Connects to servers. Fails in a few seconds if one does not answer, or after as long as is to be waited for them.
pub(crate) fn connect(args: &RemoteArgs, endpoints: &[Endpoint]) -> Result<Arc<Remote>, Failure> {
    let node = rustix::system::uname();
    let mut client = ClientOptions {
        name: format!("{}:{}", node.nodename().to_string_lossy(), std::process::id()),
        export: args.export.clone().unwrap_or_default(),
        auth: credential(args, endpoints)?,
        retry_for: args.retry_for.0,
        ..ClientOptions::default()
    };
    if let (Some(authorities), Some(certificate), Some(key)) =
        (&args.tls_authorities, &args.tls_certificate, &args.tls_key)
    {
        let tls = TlsClient::load(authorities, certificate, key).map_err(Failure::failed)?;
        client.dial = dial_tls(tls, args.tls_name.clone());
    }
    let spread = match args.spread {
        Spread::Client => client::Spread::Client,
        Spread::Process => client::Spread::Process,
        Spread::File => client::Spread::File,
        Spread::Target => client::Spread::Target,
    };
    let options = RemoteOptions { client, spread, server: args.index, ..RemoteOptions::default() };
    let wait = args.wait.map_or(Duration::ZERO, |wait| wait.0);
    // Its message has the cause in it.
    let remote = reached(wait, || Remote::connect(endpoints, &options));
    Ok(Arc::new(remote.map_err(|error| anyhow!(error.to_string()))?))
}

/// Tries again for a time while servers are not there yet, and says so.
fn reached<T>(wait: Duration, connect: impl Fn() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let since = Instant::now();
    let mut pause = Span::ZERO;
    loop {
        let error = match connect() {
            Err(error) if error.may_pass() => error,
            result => return result,
        };
        let left = wait.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(error);
        }
        if pause == Span::ZERO {
            say(format_args!("waits for at most {wait:?}: {error}"));
        }
        pause = next_pause(pause);
        std::thread::sleep(Duration::from(pause).min(left));
    }
}

/// How the servers are to know who mounts.
fn credential(args: &RemoteArgs, endpoints: &[Endpoint]) -> Result<Credential, Failure> {
    let local = endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Unix(_)));
    let tls = args.tls_authorities.is_some();
    match args.auth {
        Some(Auth::Tls) if !tls => {
            let error = anyhow!("--auth tls: expected --tls-authorities, --tls-certificate and --tls-key");
            Err(Failure::usage(error))
        }
        Some(Auth::Peer) if !local => {
            let error = anyhow!("--auth peer is for Unix sockets, where the kernel says who connects");
            Err(Failure::usage(error).hint("over a network, use --auth munge or certificates"))
        }
        Some(Auth::Peer | Auth::Tls) => Ok(Credential::Socket),
        Some(Auth::Munge) => Ok(Credential::Munge(Munge::new(None))),
        None if tls || local => Ok(Credential::Socket),
        None | Some(Auth::None) => Ok(Credential::None),
    }
}
