//! What a coordinator must not forget: who holds what, who waits in which order, and which tokens were given.

mod etcd;
mod local;

use std::io;
use std::path::PathBuf;

use crate::Endpoint;

pub use etcd::Etcd;
pub use iogate_core::coord::journal::{ClaimRecord, HeldRecord, Loaded, Record, SessionRecord};
pub use local::Local;

/// Where a coordinator keeps what it must not forget.
///
/// What [`append`](Journal::append) has returned from is there when [`load`](Journal::load) is called next, by whichever process that
/// is: nothing is said to a client before.
pub trait Journal: Send {
    /// Whether this coordinator leads now. Called often: it must not block.
    fn standing(&mut self) -> Standing {
        Standing::Leads
    }

    /// Has another coordinator lead, if there is one that can: this one cannot.
    fn resign(&mut self) {}

    /// Reads what there is. Called whenever this coordinator begins to lead, until it succeeds.
    fn load(&mut self) -> Result<Loaded, JournalError>;

    /// Keeps some records; none of them counts before this returns, and if it fails none may have been kept, or the first of them.
    /// They are then given again, first. `all` says all that is to be known now, for a journal that begins anew.
    fn append(
        &mut self,
        records: &[Record],
        all: &mut dyn FnMut() -> Vec<Record>,
    ) -> Result<(), JournalError>;

    /// Where it is, for people.
    fn place(&self) -> String;
}

/// Whether a coordinator leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It does.
    Leads,
    /// Another does, there, as far as is known.
    Follows(Option<Endpoint>),
}

/// Why a journal cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system refuses.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Another coordinator has the directory.
    #[error("another coordinator (process {owner}) keeps its state in {}: stop it first, or give this one a directory of its own", dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process, as far as it has said.
        owner: String,
    },
    /// What is there is not what was written.
    #[error(
        "the journal {} is damaged at byte {at} ({why}): restore it, or move it away to begin with nobody in line; turns that \
         are held now are then forgotten, but none is given before they have ended, and tokens go on", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        at: usize,
        /// What is wrong there.
        why: String,
    },
    /// Another version wrote it.
    #[error("the journal {} has version {found}, expected {expected}: use the release that wrote it until nobody is in line, then move it away", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// What it says.
        found: u32,
        /// What this release writes.
        expected: u32,
    },
    /// Another coordinator leads now.
    #[error("this coordinator does not lead any more")]
    Deposed,
}

impl JournalError {
    /// The errno for clients: none that would mean a mistake of theirs.
    pub(crate) fn errno(&self) -> i32 {
        match self {
            JournalError::Io { source, .. } => match source.raw_os_error() {
                Some(errno @ (libc::ENOSPC | libc::EDQUOT | libc::EROFS)) => errno,
                _ => libc::EIO,
            },
            _ => libc::EIO,
        }
    }
}
