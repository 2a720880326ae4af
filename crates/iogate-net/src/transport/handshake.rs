//! What every server asks of a [`Hello`], whatever it serves.

use iogate_core::refusal::Refusal;
use iogate_core::wire::{Hello, MAGIC, Record, RequestHeader, VERSION};

use super::Peer;
use super::auth::{Access, Binding, User};

/// Most bytes of a proof of who a client is: nobody knows yet who makes a server hold them.
pub(crate) const PROOF_BYTES_MAX: u32 = super::auth::CREDENTIAL_BYTES_MAX as u32;

/// Reads a `Hello`, and sees whether its client speaks this protocol.
pub(crate) fn read<'a>(header: &RequestHeader, fields: &'a [u8]) -> Result<Hello<'a>, Refusal> {
    let protocol = |text: String| Refusal::new(libc::EPROTO, text);
    // These two stay where they are in all versions.
    let magic = fields.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
    if magic != Some(MAGIC) {
        return Err(protocol(
            "a Hello does not begin with the magic number: this is another protocol".into(),
        ));
    }
    let version = fields.get(8..).and_then(|rest| rest.first_chunk()).map(|bytes| u16::from_le_bytes(*bytes));
    if version != Some(VERSION) {
        let text = format!(
            "the client speaks version {} of the protocol, this server version {VERSION}: use the same release on both sides",
            version.unwrap_or_default()
        );
        return Err(Refusal::new(libc::EPROTONOSUPPORT, text));
    }
    let hello = Hello::decode(fields).map_err(|error| protocol(error.to_string()))?;
    if header.id != 0 {
        return Err(protocol(format!("a Hello has id {}, expected 0", header.id)));
    }
    Ok(hello)
}

/// Finds out who the client is; `peer_text` is for the log. May block for a second.
pub(crate) fn identify(
    access: &Access,
    peer: &Peer,
    peer_text: &str,
    binding: &Binding,
    auth: u8,
    proof: &[u8],
) -> Result<User, Refusal> {
    match access.authenticate(peer, binding, auth, proof) {
        Ok(user) => {
            tracing::debug!(peer = peer_text, uid = user.uid, gid = user.gid, "{} has connected", user.name);
            Ok(user)
        }
        Err(error) => {
            tracing::warn!(peer = peer_text, "not let in: {error}");
            Err(Refusal::new(error.errno(), error.for_peer()))
        }
    }
}
