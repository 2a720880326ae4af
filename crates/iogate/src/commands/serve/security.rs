//! From a configuration to who may do what: listeners' policies, clients' credentials, users.

use anyhow::{Context, anyhow};
use iogate_net::client::ClientOptions;
use iogate_net::transport::auth::{self, Access, Credential, Munge, Policy};
use iogate_net::transport::{TlsClient, TlsServer, dial_tls};
use iogate_net::{Endpoint, Listener};
use iogate_vfs::{Caller, users};

use super::config::{Auth, Client, Export, Ids, Listen, Squash, User, Users};

use crate::attempt::{Attempt, Doing};

fn caller(ids: &Ids) -> Caller {
    Caller::new(ids.0.0, ids.0.1)
}

/// The numbers of users. Fails if one of them is not known here.
pub(super) fn numbers(users: &[User]) -> anyhow::Result<Vec<u32>> {
    let number = |user: &User| match user {
        User::Number(number) => Ok(*number),
        User::Name(name) => match auth::user_number(name) {
            Ok(Some(number)) => Ok(number),
            Ok(None) => Err(anyhow!("there is no user `{name}` on this system: expected a name or a number")),
            Err(error) => Err(anyhow!("the user `{name}` cannot be looked up: {error}")),
        },
    };
    users.iter().map(number).collect()
}

impl Listen {
    /// Refuses a listener whose clients are all a trusted user, without having proved anything.
    pub(super) fn check_anonymous(&self, exports: &[Export]) -> anyhow::Result<()> {
        if self.auth()? != Auth::None || self.allow_unauthenticated_forwarders {
            return Ok(());
        }
        let anonymous = self.anonymous.as_ref().map_or(Caller::NOBODY, caller);
        for export in exports {
            if numbers(&export.forwarders)?.contains(&anonymous.uid) {
                return Err(anyhow!(
                    "listen at {}: everybody who reaches it could act in anybody's name, for auth = \"none\" and `anonymous` is \
                     one of the forwarders of the export `{}`; use \"peer\", \"munge\" or \"tls\" (or say \
                     allow_unauthenticated_forwarders = true)",
                    self.at.0,
                    export.name
                ));
            }
        }
        Ok(())
    }

    /// Who may come in.
    pub(super) fn access(&self) -> anyhow::Result<Access> {
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
        let users = self.users_allowed.as_deref().map(numbers).transpose().context("users_allowed")?;
        Ok(Access {
            policy,
            users: users.map(|users| users.into_iter().collect()),
            socket_mode: self.mode.as_ref().map(|mode| mode.0),
        })
    }

    /// The socket, bound, and who may come in.
    pub(crate) fn bind(&self) -> anyhow::Result<Listener> {
        Listener::bind(&self.at.0, self.access()?).context(Attempt::new(Doing::Listen, ""))
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
