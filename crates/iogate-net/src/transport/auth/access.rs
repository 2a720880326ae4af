//! Who may come in at a listener: how they prove who they are, and which of them are let in.

use std::collections::BTreeSet;

use super::{AuthError, Binding, Policy, User};
use crate::transport::Peer;

/// Who may come in at a listener.
#[derive(Clone, Debug)]
pub struct Access {
    /// How they prove who they are.
    pub policy: Policy,
    /// These users and no others. `None`: whomever the server serves.
    pub users: Option<BTreeSet<u32>>,
    /// Permissions of a Unix socket. `None`: everybody may connect where clients prove who they are, else the owner only.
    pub socket_mode: Option<u32>,
}

impl From<Policy> for Access {
    fn from(policy: Policy) -> Access {
        Access { policy, users: None, socket_mode: None }
    }
}

impl Access {
    /// As [`Policy::authenticate`], and whether that user is let in here.
    pub fn authenticate(
        &self,
        peer: &Peer,
        binding: &Binding,
        kind: u8,
        credential: &[u8],
    ) -> Result<User, AuthError> {
        let user = self.policy.authenticate(peer, binding, kind, credential)?;
        match &self.users {
            Some(users) if !users.contains(&user.uid) => Err(AuthError::NotAllowed { user }),
            _ => Ok(user),
        }
    }

    /// The permissions of a Unix socket. To connect takes the permission to write.
    pub(crate) fn socket_mode(&self) -> u32 {
        let everybody = !matches!(self.policy, Policy::None { .. });
        self.socket_mode.unwrap_or(if everybody { 0o666 } else { 0o600 })
    }
}
