//! Servers as a tree, by the flags that say which.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use iogate_net::Endpoint;
use iogate_net::auth::{Credential, Munge};
use iogate_net::client::{self, ClientOptions, Remote, RemoteOptions};
use iogate_net::socket::TlsClient;

use crate::cli::{Auth, RemoteArgs, Spread};
use crate::failure::Failure;

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

/// Connects to servers. Fails in a few seconds if one does not answer.
pub(crate) fn connect(args: &RemoteArgs, endpoints: &[Endpoint]) -> Result<Arc<Remote>, Failure> {
    let local = endpoints.iter().all(|endpoint| matches!(endpoint, Endpoint::Unix(_)));
    let by_default = if args.tls_certificate.is_some() {
        Auth::Tls
    } else if local {
        Auth::Peer
    } else {
        Auth::None
    };
    let auth = args.auth.unwrap_or(by_default);
    let node = rustix::system::uname();
    let mut client = ClientOptions {
        name: format!("{}:{}", node.nodename().to_string_lossy(), std::process::id()),
        export: args.export.clone().unwrap_or_default(),
        auth: match auth {
            Auth::None => Credential::None,
            Auth::Peer | Auth::Tls => Credential::Socket,
            Auth::Munge => Credential::Munge(Munge::new(None)),
        },
        retry_for: args.retry_for.0,
        ..ClientOptions::default()
    };
    let files = (&args.tls_authorities, &args.tls_certificate, &args.tls_key);
    match files {
        (Some(authorities), Some(certificate), Some(key)) => {
            let tls = TlsClient::load(authorities, certificate, key).map_err(Failure::usage)?;
            client.dial = client::dial_tls(tls, args.tls_name.clone());
        }
        _ if auth == Auth::Tls => {
            let error = anyhow!("--auth tls needs --tls-authorities, --tls-certificate and --tls-key");
            return Err(Failure::usage(error));
        }
        _ => {}
    }
    let spread = match args.spread {
        Spread::Client => client::Spread::Client,
        Spread::Process => client::Spread::Process,
        Spread::File => client::Spread::File,
        Spread::Target => client::Spread::Target,
    };
    let options = RemoteOptions { client, spread, server: args.index, ..RemoteOptions::default() };
    // Its message has the cause in it.
    let remote = Remote::connect(endpoints, &options).map_err(|error| anyhow!(error.to_string()))?;
    Ok(Arc::new(remote))
}
