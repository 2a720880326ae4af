//! From a configuration to who may do what: listeners' policies, clients' credentials, users.

use anyhow::Context;
use iogate_net::auth::{Credential, Munge, Policy};
use iogate_net::client::{ClientOptions, dial_tls};
use iogate_net::server::Listener;
use iogate_net::socket::{TlsClient, TlsServer};
use iogate_net::{Caller, Endpoint, users};

use super::config::{Auth, Client, Ids, Listen, Squash, Users};

fn caller(ids: &Ids) -> Caller {
    Caller::new(ids.0.0, ids.0.1)
}

impl Listen {
    /// The socket, bound, and who may come in.
    pub(crate) fn bind(&self) -> anyhow::Result<Listener> {
        let policy = match (self.auth()?, &self.tls) {
            (Auth::Peer, _) => Policy::Peer,
            (Auth::Munge, _) => Policy::Munge(Munge::new(self.munge_socket.clone())),
            (Auth::Tls, Some(tls)) => Policy::Tls {
                server: TlsServer::load(&tls.certificate, &tls.key, &tls.clients)?,
                users: tls.users.iter().map(|(name, ids)| (name.clone(), caller(ids))).collect(),
            },
            (Auth::None, _) | (Auth::Tls, None) => Policy::None {
                user: self.anonymous.as_ref().map_or(Caller::NOBODY, caller),
                on_any_network: self.allow_unauthenticated_network,
            },
        };
        Ok(Listener::bind(&self.at.0, policy)?)
    }
}

impl Client {
    /// How to connect to a server.
    pub(crate) fn options(&self, endpoint: &Endpoint) -> anyhow::Result<ClientOptions> {
        let mut options = ClientOptions::default();
        let unix = matches!(endpoint, Endpoint::Unix(_));
        options.auth = match self.auth {
            Some(Auth::Peer | Auth::Tls) => Credential::Socket,
            Some(Auth::Munge) => Credential::Munge(Munge::new(self.munge_socket.clone())),
            Some(Auth::None) => Credential::None,
            None if unix || self.tls.is_some() => Credential::Socket,
            None => Credential::None,
        };
        if let Some(tls) = &self.tls {
            let client = TlsClient::load(&tls.servers, &tls.certificate, &tls.key).context("tls")?;
            options.dial = dial_tls(client, tls.server_name.clone());
        }
        if let Some(time) = &self.retry_for {
            options.retry_for = time.0;
        }
        Ok(options)
    }
}

impl Users {
    pub(super) fn build(&self) -> anyhow::Result<users::Users> {
        let squash = match self.squash {
            Squash::Root => users::Squash::Root,
            Squash::All => users::Squash::All,
            Squash::None => users::Squash::None,
        };
        let nobody = self.nobody.as_ref().map_or(Caller::NOBODY, caller);
        let ranges: Vec<users::IdRange> = self
            .map
            .iter()
            .map(|range| users::IdRange { client: range.client, server: range.server, count: range.count })
            .collect();
        users::Users::new(squash, nobody, ranges.clone(), ranges).context("users.map")
    }
}
