//! The calls and answers of NLM version 4, by which clients lock (RFC 1813, appendix II; X/Open, "Protocols for Interworking: XNFS,
//! Version 3W", chapters 9 to 11), and of NSM version 1, by which machines say that they were started again.

use super::FileHandle;
use crate::xdr::{Reader, Xdr, XdrError, numbers, put_opaque, record};

/// The program of NLM.
pub const LOCK_PROGRAM: u32 = 100_021;
/// Its version for NFS version 3.
pub const LOCK_VERSION: u32 = 4;
/// The program of NSM.
pub const STATUS_PROGRAM: u32 = 100_024;
/// Its version.
pub const STATUS_VERSION: u32 = 1;

const NULL: u32 = 0;
const TEST: u32 = 1;
const LOCK: u32 = 2;
const CANCEL: u32 = 3;
const UNLOCK: u32 = 4;
const GRANTED: u32 = 5;
const SHARE: u32 = 20;
const UNSHARE: u32 = 21;
const NM_LOCK: u32 = 22;
const FREE_ALL: u32 = 23;

const STAT: u32 = 1;
const NOTIFY: u32 = 6;

/// Most bytes of a name, of an owner, and of what a client tells its calls apart by.
const BYTES_MAX: u32 = 1024;

/// A name, or bytes that mean something to the client only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opaque<'a>(pub &'a [u8]);

impl<'a> Xdr<'a> for Opaque<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        put_opaque(out, self.0);
    }

    fn take(from: &mut Reader<'a>) -> Result<Opaque<'a>, XdrError> {
        from.opaque(BYTES_MAX).map(Opaque)
    }
}

numbers! {
    /// What became of a call.
    LockStatus("a status of NLM") {
        /// It is done.
        Granted = 0,
        /// Somebody else has such a lock.
        Denied = 1,
        /// There is no room for another lock.
        NoLocks = 2,
        /// The client is told when it has the lock.
        Blocked = 3,
        /// Locks are kept for who had them before the server was started again.
        Grace = 4,
        /// Clients wait for each other.
        Deadlock = 5,
        /// Nothing can be changed.
        RoFs = 6,
        /// There is no such file.
        Stale = 7,
        /// There are no such bytes.
        FBig = 8,
        /// Anything else.
        Failed = 9,
    }
}

record! {
    /// A lock, and whose it is: a process of a client.
    FileLock<'a> {
        /// The client's name for itself.
        host: Opaque<'a>,
        /// The file.
        file: FileHandle,
        /// What the client calls the owner.
        owner: Opaque<'a>,
        /// The number of the owner there.
        process: u32,
        /// The first byte.
        offset: u64,
        /// How many; zero: all from there on.
        length: u64,
    }
}

record! {
    /// A lock that is in the way.
    Holder<'a> {
        /// Nobody else may have one.
        exclusive: bool,
        /// The number of the owner at its client.
        process: u32,
        /// What that client calls the owner.
        owner: Opaque<'a>,
        /// The first byte.
        offset: u64,
        /// How many; zero: all from there on.
        length: u64,
    }
}

record! {
    /// Which ways to open a file somebody denies to others, as DOS has it.
    Share<'a> {
        /// The client's name for itself.
        host: Opaque<'a>,
        /// The file.
        file: FileHandle,
        /// What the client calls the owner.
        owner: Opaque<'a>,
        /// What is denied to others: 1 for reading, 2 for writing, 3 for both.
        denies: u32,
        /// What the owner does: the same numbers.
        does: u32,
    }
}

/// A call of NLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the specification")]
pub enum LockRequest<'a> {
    /// Nothing.
    Null,
    /// Whether such a lock could be had.
    Test { cookie: Opaque<'a>, exclusive: bool, lock: FileLock<'a> },
    /// Takes a lock; `block`: the client is told when it has it.
    Lock {
        cookie: Opaque<'a>,
        block: bool,
        exclusive: bool,
        lock: FileLock<'a>,
        /// It was had before the server was started again.
        reclaim: bool,
        /// Grows when the client's machine is started again; zero: not known.
        state: u32,
        /// The client is told when the server is started again.
        monitored: bool,
    },
    /// Does not wait for a lock any more.
    Cancel { cookie: Opaque<'a>, block: bool, exclusive: bool, lock: FileLock<'a> },
    /// Gives a lock back.
    Unlock { cookie: Opaque<'a>, lock: FileLock<'a> },
    /// Tells a client that it has a lock that it has waited for.
    Granted { cookie: Opaque<'a>, exclusive: bool, lock: FileLock<'a> },
    /// Denies ways to open a file to others.
    Share { cookie: Opaque<'a>, share: Share<'a>, reclaim: bool },
    /// Does not any more.
    Unshare { cookie: Opaque<'a>, share: Share<'a>, reclaim: bool },
    /// A client's machine was started again, and has no lock.
    FreeAll { host: Opaque<'a>, state: u32 },
}

impl<'a> LockRequest<'a> {
    /// The procedure by which a server tells a client that it has a lock.
    pub const GRANTED_PROCEDURE: u32 = GRANTED;

    /// Takes the arguments of a procedure; `None`: there is no such procedure here. The forms of calls that are answered by calls, for
    /// clients without connections, are not.
    pub fn take(procedure: u32, from: &mut Reader<'a>) -> Result<Option<LockRequest<'a>>, XdrError> {
        let request = match procedure {
            NULL => LockRequest::Null,
            TEST | GRANTED => {
                let (cookie, exclusive, lock) = (Xdr::take(from)?, Xdr::take(from)?, Xdr::take(from)?);
                match procedure {
                    TEST => LockRequest::Test { cookie, exclusive, lock },
                    _ => LockRequest::Granted { cookie, exclusive, lock },
                }
            }
            LOCK | NM_LOCK => LockRequest::Lock {
                cookie: Xdr::take(from)?,
                block: Xdr::take(from)?,
                exclusive: Xdr::take(from)?,
                lock: Xdr::take(from)?,
                reclaim: Xdr::take(from)?,
                state: Xdr::take(from)?,
                monitored: procedure == LOCK,
            },
            CANCEL => LockRequest::Cancel {
                cookie: Xdr::take(from)?,
                block: Xdr::take(from)?,
                exclusive: Xdr::take(from)?,
                lock: Xdr::take(from)?,
            },
            UNLOCK => LockRequest::Unlock { cookie: Xdr::take(from)?, lock: Xdr::take(from)? },
            SHARE | UNSHARE => {
                let (cookie, share, reclaim) = (Xdr::take(from)?, Xdr::take(from)?, Xdr::take(from)?);
                match procedure {
                    SHARE => LockRequest::Share { cookie, share, reclaim },
                    _ => LockRequest::Unshare { cookie, share, reclaim },
                }
            }
            FREE_ALL => LockRequest::FreeAll { host: Xdr::take(from)?, state: Xdr::take(from)? },
            _ => return Ok(None),
        };
        from.end()?;
        Ok(Some(request))
    }

    /// The procedure's number.
    pub fn procedure(&self) -> u32 {
        match self {
            LockRequest::Null => NULL,
            LockRequest::Test { .. } => TEST,
            LockRequest::Lock { monitored: true, .. } => LOCK,
            LockRequest::Lock { monitored: false, .. } => NM_LOCK,
            LockRequest::Cancel { .. } => CANCEL,
            LockRequest::Unlock { .. } => UNLOCK,
            LockRequest::Granted { .. } => GRANTED,
            LockRequest::Share { .. } => SHARE,
            LockRequest::Unshare { .. } => UNSHARE,
            LockRequest::FreeAll { .. } => FREE_ALL,
        }
    }

    /// The file that it is about.
    pub fn file(&self) -> Option<&FileHandle> {
        match self {
            LockRequest::Null | LockRequest::FreeAll { .. } => None,
            LockRequest::Test { lock, .. }
            | LockRequest::Lock { lock, .. }
            | LockRequest::Cancel { lock, .. }
            | LockRequest::Unlock { lock, .. }
            | LockRequest::Granted { lock, .. } => Some(&lock.file),
            LockRequest::Share { share, .. } | LockRequest::Unshare { share, .. } => Some(&share.file),
        }
    }

    /// Appends the arguments, as who calls sends them.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            LockRequest::Null => {}
            LockRequest::Test { cookie, exclusive, lock }
            | LockRequest::Granted { cookie, exclusive, lock } => {
                cookie.put(out);
                exclusive.put(out);
                lock.put(out);
            }
            LockRequest::Lock { cookie, block, exclusive, lock, reclaim, state, monitored: _ } => {
                cookie.put(out);
                block.put(out);
                exclusive.put(out);
                lock.put(out);
                reclaim.put(out);
                state.put(out);
            }
            LockRequest::Cancel { cookie, block, exclusive, lock } => {
                cookie.put(out);
                block.put(out);
                exclusive.put(out);
                lock.put(out);
            }
            LockRequest::Unlock { cookie, lock } => {
                cookie.put(out);
                lock.put(out);
            }
            LockRequest::Share { cookie, share, reclaim }
            | LockRequest::Unshare { cookie, share, reclaim } => {
                cookie.put(out);
                share.put(out);
                reclaim.put(out);
            }
            LockRequest::FreeAll { host, state } => {
                host.put(out);
                state.put(out);
            }
        }
    }
}

/// The results of a call of NLM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the specification")]
pub enum LockReply<'a> {
    /// None.
    Nothing,
    /// Whether a lock could be had; who is in the way, if it could not.
    Tested { cookie: Opaque<'a>, result: Result<(), Holder<'a>> },
    /// What became of it.
    Done { cookie: Opaque<'a>, status: LockStatus },
    /// The same, of a share.
    Shared { cookie: Opaque<'a>, status: LockStatus },
}

impl<'a> LockReply<'a> {
    /// Appends the results.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            LockReply::Nothing => {}
            LockReply::Tested { cookie, result } => {
                cookie.put(out);
                match result {
                    Ok(()) => LockStatus::Granted.put(out),
                    Err(holder) => {
                        LockStatus::Denied.put(out);
                        holder.put(out);
                    }
                }
            }
            LockReply::Done { cookie, status } => {
                cookie.put(out);
                status.put(out);
            }
            LockReply::Shared { cookie, status } => {
                cookie.put(out);
                status.put(out);
                // A sequence, which means nothing.
                0u32.put(out);
            }
        }
    }

    /// Takes the results of a procedure, as who has called does. A test that has failed without saying who is in the way is
    /// [`LockReply::Done`].
    pub fn take(procedure: u32, from: &mut Reader<'a>) -> Result<Option<LockReply<'a>>, XdrError> {
        let reply = match procedure {
            NULL | FREE_ALL => LockReply::Nothing,
            TEST => {
                let (cookie, status) = (Xdr::take(from)?, Xdr::take(from)?);
                match status {
                    LockStatus::Granted => LockReply::Tested { cookie, result: Ok(()) },
                    LockStatus::Denied => LockReply::Tested { cookie, result: Err(Xdr::take(from)?) },
                    status => LockReply::Done { cookie, status },
                }
            }
            LOCK | NM_LOCK | CANCEL | UNLOCK | GRANTED => {
                LockReply::Done { cookie: Xdr::take(from)?, status: Xdr::take(from)? }
            }
            SHARE | UNSHARE => {
                let reply = LockReply::Shared { cookie: Xdr::take(from)?, status: Xdr::take(from)? };
                u32::take(from)?;
                reply
            }
            _ => return Ok(None),
        };
        from.end()?;
        Ok(Some(reply))
    }
}

/// A call of NSM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusRequest<'a> {
    /// Nothing.
    Null,
    /// Whether a machine is watched.
    Stat(Opaque<'a>),
    /// A machine was started again.
    Notify {
        /// Its name.
        host: Opaque<'a>,
        /// Has grown since.
        state: u32,
    },
}

impl<'a> StatusRequest<'a> {
    /// Takes the arguments of a procedure; `None`: there is no such procedure here. Nobody can have machines watched.
    pub fn take(procedure: u32, from: &mut Reader<'a>) -> Result<Option<StatusRequest<'a>>, XdrError> {
        let request = match procedure {
            NULL => StatusRequest::Null,
            STAT => StatusRequest::Stat(Xdr::take(from)?),
            NOTIFY => StatusRequest::Notify { host: Xdr::take(from)?, state: Xdr::take(from)? },
            _ => return Ok(None),
        };
        from.end()?;
        Ok(Some(request))
    }

    /// The procedure's number.
    pub fn procedure(&self) -> u32 {
        match self {
            StatusRequest::Null => NULL,
            StatusRequest::Stat(_) => STAT,
            StatusRequest::Notify { .. } => NOTIFY,
        }
    }

    /// Appends the arguments, as who calls sends them.
    pub fn put(&self, out: &mut Vec<u8>) {
        match self {
            StatusRequest::Null => {}
            StatusRequest::Stat(host) => host.put(out),
            StatusRequest::Notify { host, state } => {
                host.put(out);
                state.put(out);
            }
        }
    }
}
