//! Files that are open, as NFS has no OPEN: kept for the next call of the same user on the same file, in bounded number.
//!
//! What a user may do is checked again when a file's owner, group or permissions have changed, and after a while in any case, as access
//! control lists can change without that.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use iogate_core::wire::Identity;
use iogate_core::{Span, Time};
use iogate_engine::{PathClass, lock};
use iogate_vfs::answers::{Answers, losses};
use iogate_vfs::held::{HeldTree, Known};
use iogate_vfs::{Caller, Clock, Groups, TreeFile};

use super::lru::Lru;
use super::objects::Object;

/// How long a permission is believed where nothing that is looked at has changed.
const BELIEVED: Span = Span::from_secs(5);

/// A file that is open for a user.
pub(crate) struct OpenFile<H> {
    pub(crate) file: Arc<dyn TreeFile>,
    pub(crate) object: Arc<Object<H>>,
    /// Its class, where a policy divides by path.
    pub(super) class: PathClass,
    /// Permissions, owner and group when it was opened.
    rights: [u32; 3],
    since: Time,
    /// Something was written by it that is not known to be durable.
    is_dirty: AtomicBool,
}

impl<H> OpenFile<H> {
    /// Whether nothing has changed of what a permission depends on.
    pub(crate) fn is_as_opened(&self, known: &Known) -> bool {
        self.rights == rights(known)
    }

    /// Something is written by it that may stay in memory.
    pub(crate) fn soil(&self) {
        self.is_dirty.store(true, Ordering::Release);
    }
}

/// Who has it open, and what for.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    identity: Identity,
    uid: u32,
    gid: u32,
    groups: Groups,
    writes: bool,
}

/// The files that are open.
pub(crate) struct OpenFiles<T: HeldTree> {
    tree: Arc<T>,
    answers: Arc<Answers>,
    clock: Clock,
    files: Mutex<Lru<Key, Arc<OpenFile<T::Held>>>>,
    /// Those that have to be synced before they are closed, as an error would go with them.
    closing: Mutex<Vec<Arc<OpenFile<T::Held>>>>,
}

fn rights(known: &Known) -> [u32; 3] {
    [known.attr.mode, known.attr.uid, known.attr.gid]
}

impl<T: HeldTree> OpenFiles<T> {
    /// None yet; at most so many beside those in use.
    pub(crate) fn new(tree: Arc<T>, answers: Arc<Answers>, most: usize) -> OpenFiles<T> {
        let clock = tree.clock();
        OpenFiles { tree, answers, clock, files: Mutex::new(Lru::new(most)), closing: Mutex::default() }
    }

    /// The file, if it is open for reading in the caller's name, and that is believed if [`OpenFile::is_as_opened`].
    pub(crate) fn opened(&self, caller: Caller, identity: Identity) -> Option<Arc<OpenFile<T::Held>>> {
        let Caller { uid, gid, groups, .. } = caller;
        let key = Key { identity, uid, gid, groups, writes: false };
        let open = lock(&self.files).get(&key).map(Arc::clone)?;
        (self.clock.since(open.since) < BELIEVED).then_some(open)
    }

    /// The file, open for reading or for writing in the caller's name.
    pub(crate) fn open(
        &self,
        caller: Caller,
        object: &Arc<Object<T::Held>>,
        known: &Known,
        writes: bool,
    ) -> io::Result<Arc<OpenFile<T::Held>>> {
        let Caller { uid, gid, groups, .. } = caller;
        let key = Key { identity: object.identity, uid, gid, groups, writes };
        let found = lock(&self.files).get(&key).map(Arc::clone);
        if let Some(open) =
            found.filter(|open| open.is_as_opened(known) && self.clock.since(open.since) < BELIEVED)
        {
            return Ok(open);
        }
        let file = self.tree.open_held_file(caller, &object.held, writes)?;
        let open = Arc::new(OpenFile {
            file,
            object: Arc::clone(object),
            class: PathClass::default(),
            rights: rights(known),
            since: self.clock.now(),
            is_dirty: false.into(),
        });
        let gone = lock(&self.files).put(key, Arc::clone(&open));
        self.close(gone);
        Ok(open)
    }

    /// Makes what was written durable; returns the verifier that holds then.
    pub(crate) fn sync(&self, open: &OpenFile<T::Held>, data_only: bool) -> io::Result<u64> {
        // Before: what is written meanwhile counts again.
        open.is_dirty.store(false, Ordering::Release);
        losses::sync(&self.answers, &*open.file, data_only)
    }

    /// Closes what is open of a file that is about to lose a name, so that it goes from the disk, too; but for what is to be synced if the
    /// file stays: that is given to [`OpenFiles::let_go`] then.
    pub(crate) fn take_out(&self, identity: Identity) -> Vec<Arc<OpenFile<T::Held>>> {
        let mut out = lock(&self.files).remove_if(|key| key.identity == identity);
        out.retain(|open| open.is_dirty.load(Ordering::Acquire));
        out
    }

    /// Closes what was taken out, of a file that has lost the name or not: of one that is gone, nobody asks for what was written.
    pub(crate) fn let_go(&self, out: Vec<Arc<OpenFile<T::Held>>>, has_lost: bool) {
        let is_gone = |file: &dyn TreeFile| has_lost && file.attr().is_ok_and(|attr| attr.links == 0);
        self.close(out.into_iter().filter(|open| !is_gone(&*open.file)));
    }

    /// Closes what was not used since the last sweep.
    pub(crate) fn sweep(&self) {
        let gone = lock(&self.files).sweep();
        self.close(gone);
        self.sync_closing();
    }

    fn sync_closing(&self) {
        let closing = std::mem::take(&mut *lock(&self.closing));
        for open in closing {
            if let Err(error) = self.sync(&open, true) {
                tracing::warn!(%error, inode = open.object.identity.inode, "writes that were not committed are lost");
            }
        }
    }

    /// As many as this, and whoever closes the next one syncs.
    const CLOSING_MAX: usize = 64;

    fn close(&self, gone: impl IntoIterator<Item = Arc<OpenFile<T::Held>>>) {
        let mut is_full = false;
        for open in gone {
            if open.is_dirty.load(Ordering::Acquire) {
                let mut closing = lock(&self.closing);
                closing.push(open);
                is_full = closing.len() > Self::CLOSING_MAX;
            }
        }
        if is_full {
            self.sync_closing();
        }
    }
}
