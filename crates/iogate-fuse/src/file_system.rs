//! What the transports see of a file system, whatever is behind it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use iogate_engine::{FileHandle, Origin, PathClass};
use rustix::io::Errno;

use crate::abi::op;
use crate::append::AppendGuard;
use crate::coherence::Coherence;
use crate::operations::{Attributes, Directories, Files, Locks, Names, Xattrs};

/// What a mount is asked for.
pub(crate) trait FileSystem:
    Names + Attributes + Files + Locks + Directories + Xattrs + Send + Sync
{
    /// Takes back as many lookups of a node.
    fn forget(&self, node: u64, lookups: u64);

    /// The open file with this handle; `EBADF` if it is not open.
    fn file(&self, handle: u64) -> Result<Arc<dyn Opened>, Errno>;

    /// Where the open file with this handle is now, below the root; `None`: that is not known.
    fn path_of(&self, handle: u64) -> Option<PathBuf>;

    /// Whether an operation may wait for somebody, or usually takes so long that others should not wait behind it.
    fn may_be_slow(&self, opcode: u32) -> bool;

    /// Whether it may be at the other end of a network, which can hang for as long as it likes.
    fn is_far(&self) -> bool {
        false
    }
}

/// An open file, as reads and writes see it.
pub(crate) trait Opened: Send + Sync {
    /// The file as the store knows it.
    fn data(&self) -> &FileHandle;

    /// Its class, where a policy divides by path.
    fn class(&self) -> &PathClass;

    /// The mappings of the file and the direct writes to it, through whatever handle.
    fn coherence(&self) -> &Arc<Coherence>;

    /// Takes set-user-id away, and set-group-id where it means what it says, as a write by somebody else must. Says
    /// whether there was something to take away.
    fn clear_suid_sgid(&self) -> Result<bool, Errno>;

    /// Whether there may be something to take away.
    fn may_have_suid_sgid(&self) -> bool {
        true
    }

    /// The offset of an append, which counts as underway until the guard is dropped.
    fn begin_append(&self, bytes: u32) -> Result<AppendGuard, Errno>;

    /// Appends, where somebody else decides the offset; `None` where [`Opened::begin_append`] does.
    fn append(&self, origin: Origin, bytes: &[u8]) -> Option<Result<usize, Errno>> {
        let _ = (origin, bytes);
        None
    }

    /// Notes that a write to this offset is about to be submitted.
    fn before_write(&self, offset: u64) {
        let _ = offset;
    }

    /// Makes what was written durable: as `fdatasync(2)` with `data_only`, else as `fsync(2)`.
    fn sync(&self, data_only: bool) -> Result<(), Errno>;

    /// Whether anything here but [`Opened::data`] waits for somebody: it is not done in a thread that must not get stuck.
    fn is_far(&self) -> bool {
        false
    }

    /// Whether [`Opened::before_write`] may ask for something.
    fn asks_before_writes(&self) -> bool {
        false
    }
}

/// What the kernel and this side have agreed on that changes how requests look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreed {
    pub(crate) request_bytes_max: u32,
    /// Locks are asked for here, and not the kernel's own.
    pub(crate) shares_locks: bool,
    /// Bytes of a `SetxattrIn`.
    pub(crate) setxattr_in_bytes: usize,
}

/// Whether a request is answered at all.
pub(crate) fn has_reply(opcode: u32) -> bool {
    !matches!(opcode, op::FORGET | op::BATCH_FORGET)
}

/// What the kernel is told of an error.
pub(crate) fn errno_of(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
