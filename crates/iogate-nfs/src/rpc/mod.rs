//! ONC RPC (RFC 5531): what a call is, who makes it, and what it is answered with.

pub mod records;

use crate::xdr::{Reader, Xdr, XdrError, numbers, put_opaque};

/// The version of RPC.
const RPC_VERSION: u32 = 2;
/// Most bytes of a credential or a verifier.
const AUTH_BYTES_MAX: u32 = 400;
/// Most groups in a credential.
pub const GROUPS_MAX: usize = 16;
/// Most bytes of a machine's name.
const MACHINE_BYTES_MAX: u32 = 255;

const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// Who says to make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential {
    /// Nobody.
    None,
    /// A user of the client's machine, if one believes that.
    Sys {
        /// The user.
        uid: u32,
        /// The group.
        gid: u32,
        /// The other groups.
        groups: [u32; GROUPS_MAX],
        /// How many these are.
        group_count: usize,
    },
}

/// A call, without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Its number.
    pub xid: u32,
    /// The program.
    pub program: u32,
    /// Its version.
    pub version: u32,
    /// The procedure.
    pub procedure: u32,
    /// Who makes it.
    pub credential: Credential,
}

numbers! {
    /// Why a credential is refused.
    AuthStatus("a status of authentication") {
        /// It is damaged.
        BadCredential = 1,
        /// It is not enough, or of a kind that is not known here.
        TooWeak = 5,
    }
}

/// What is not a call that could be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// Not the beginning of a call: the stream is of no use.
    #[error("not a call of RPC: {0}")]
    NotACall(#[from] XdrError),
    /// Another version of RPC: see [`put_rpc_mismatch`].
    #[error("a call of another version of RPC")]
    RpcMismatch {
        /// The call's number.
        xid: u32,
    },
    /// See [`put_auth_error`].
    #[error("a credential that is refused")]
    Auth {
        /// The call's number.
        xid: u32,
        /// Why.
        status: AuthStatus,
    },
}

impl Call {
    /// Takes a call off a record, and leaves its arguments.
    pub fn take(from: &mut Reader<'_>) -> Result<Call, CallError> {
        let (xid, kind) = (u32::take(from)?, u32::take(from)?);
        if kind != 0 {
            return Err(XdrError::NoSuchValue { expected: "a call", found: kind }.into());
        }
        if u32::take(from)? != RPC_VERSION {
            return Err(CallError::RpcMismatch { xid });
        }
        let (program, version, procedure) = (u32::take(from)?, u32::take(from)?, u32::take(from)?);
        let (flavor, body) = (u32::take(from)?, from.opaque(AUTH_BYTES_MAX)?);
        // Who has nothing to prove has no verifier; of those that others send nobody here can say whether they are right.
        let _verifier = (u32::take(from)?, from.opaque(AUTH_BYTES_MAX)?);
        let credential = match flavor {
            AUTH_NONE => Credential::None,
            AUTH_SYS => {
                take_sys(body).map_err(|_| CallError::Auth { xid, status: AuthStatus::BadCredential })?
            }
            _ => return Err(CallError::Auth { xid, status: AuthStatus::TooWeak }),
        };
        Ok(Call { xid, program, version, procedure, credential })
    }

    /// Appends it, as a client sends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        for number in [self.xid, 0, RPC_VERSION, self.program, self.version, self.procedure] {
            number.put(out);
        }
        match &self.credential {
            Credential::None => [AUTH_NONE, 0].iter().for_each(|number| number.put(out)),
            Credential::Sys { uid, gid, groups, group_count } => {
                let mut body = Vec::new();
                0u32.put(&mut body);
                put_opaque(&mut body, b"");
                [*uid, *gid, *group_count as u32].iter().for_each(|number| number.put(&mut body));
                groups[..*group_count].iter().for_each(|group| group.put(&mut body));
                AUTH_SYS.put(out);
                put_opaque(out, &body);
            }
        }
        [AUTH_NONE, 0].iter().for_each(|number| number.put(out));
    }
}

fn take_sys(body: &[u8]) -> Result<Credential, XdrError> {
    let mut from = Reader::new(body);
    let _stamp = u32::take(&mut from)?;
    let _machine = from.opaque(MACHINE_BYTES_MAX)?;
    let (uid, gid) = (u32::take(&mut from)?, u32::take(&mut from)?);
    let count = u32::take(&mut from)?;
    if count as usize > GROUPS_MAX {
        return Err(XdrError::TooLong { found: count, max: GROUPS_MAX as u32 });
    }
    let mut groups = [0; GROUPS_MAX];
    for group in &mut groups[..count as usize] {
        *group = u32::take(&mut from)?;
    }
    from.end()?;
    Ok(Credential::Sys { uid, gid, groups, group_count: count as usize })
}

/// What became of a call that was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Its results follow.
    Success,
    /// There is no such program here.
    NoProgram,
    /// There are only these versions of it.
    Versions {
        /// The lowest.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// It has no such procedure.
    NoProcedure,
    /// The arguments cannot be read.
    GarbageArgs,
    /// The server has failed.
    SystemError,
}

/// Appends the head of an answer. Results follow a [`Accepted::Success`], and nothing any other.
pub fn put_accepted(out: &mut Vec<u8>, xid: u32, accepted: Accepted) {
    // A reply, accepted, and no verifier.
    [xid, 1, 0, AUTH_NONE, 0].iter().for_each(|number| number.put(out));
    let status: u32 = match accepted {
        Accepted::Success => 0,
        Accepted::NoProgram => 1,
        Accepted::Versions { .. } => 2,
        Accepted::NoProcedure => 3,
        Accepted::GarbageArgs => 4,
        Accepted::SystemError => 5,
    };
    status.put(out);
    if let Accepted::Versions { low, high } = accepted {
        low.put(out);
        high.put(out);
    }
}

/// Appends the answer to a call of another version of RPC.
pub fn put_rpc_mismatch(out: &mut Vec<u8>, xid: u32) {
    [xid, 1, 1, 0, RPC_VERSION, RPC_VERSION].iter().for_each(|number| number.put(out));
}

/// Appends the answer to a call whose credential is refused.
pub fn put_auth_error(out: &mut Vec<u8>, xid: u32, status: AuthStatus) {
    [xid, 1, 1, 1].iter().for_each(|number| number.put(out));
    status.put(out);
}

/// Takes the head of an answer off, as a client does: its number, and whether results follow.
pub fn take_reply(from: &mut Reader<'_>) -> Result<(u32, Option<Accepted>), XdrError> {
    let (xid, kind) = (u32::take(from)?, u32::take(from)?);
    if kind != 1 {
        return Err(XdrError::NoSuchValue { expected: "a reply", found: kind });
    }
    if u32::take(from)? != 0 {
        return Ok((xid, None));
    }
    let _verifier = (u32::take(from)?, from.opaque(AUTH_BYTES_MAX)?);
    let accepted = match u32::take(from)? {
        0 => Accepted::Success,
        1 => Accepted::NoProgram,
        2 => Accepted::Versions { low: u32::take(from)?, high: u32::take(from)? },
        3 => Accepted::NoProcedure,
        4 => Accepted::GarbageArgs,
        5 => Accepted::SystemError,
        found => return Err(XdrError::NoSuchValue { expected: "what became of a call", found }),
    };
    Ok((xid, Some(accepted)))
}
