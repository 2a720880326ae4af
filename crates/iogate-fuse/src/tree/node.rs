//! One file that the kernel knows, whatever its names.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use iogate_core::wire::{Attr, Identity, attr};
use iogate_vfs::TreeFile;

use crate::append::Appends;
use crate::coherence::Coherence;

/// Tells a file from the others of the tree that are there now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Number {
    pub(super) inode: u64,
    file_system: u32,
}

impl Number {
    pub(super) fn of(attr: &Attr) -> Number {
        Number { inode: attr.inode, file_system: attr.file_system() }
    }
}

/// A file that the kernel has looked up and not yet forgotten.
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) number: Number,
    /// Type and permissions as last seen.
    mode: AtomicU32,
    pub(super) appends: Arc<Appends>,
    pub(super) coherence: Arc<Coherence>,
    /// Known from the first time that it was opened.
    identity: OnceLock<Identity>,
    handles: Mutex<Vec<Handle>>,
    /// Whether it is a directory that hands an access list down, and when that was seen.
    default_list: Mutex<Option<(bool, Instant)>>,
    /// Since when it is known to have no extended attributes.
    bare_since: Mutex<Option<Instant>>,
}

/// An open file, and for what it is open.
struct Handle {
    file: Arc<dyn TreeFile>,
    flags: u32,
}

impl Node {
    pub(super) fn new(id: u64, attr: &Attr) -> Node {
        Node {
            id,
            number: Number::of(attr),
            mode: AtomicU32::new(attr.mode),
            appends: Arc::default(),
            coherence: Arc::default(),
            identity: OnceLock::new(),
            handles: Mutex::default(),
            default_list: Mutex::default(),
            bare_since: Mutex::default(),
        }
    }

    /// Notes attributes that were seen.
    pub(super) fn saw(&self, attr: &Attr) {
        self.mode.store(attr.mode, Ordering::Relaxed);
        let bare = (attr.flags & attr::NO_XATTRS != 0).then(Instant::now);
        *self.bare_since.lock().expect("assigning does not panic") = bare;
    }

    /// Whether it has no extended attributes, as seen in the last `trusted`.
    pub(super) fn has_no_xattrs(&self, trusted: Duration) -> bool {
        let since = *self.bare_since.lock().expect("assigning does not panic");
        since.is_some_and(|since| since.elapsed() < trusted)
    }

    /// Which file it is, as far as that is known: its generation is from the first time that it was opened.
    pub(super) fn identity(&self) -> Identity {
        self.identity.get().copied().unwrap_or(Identity { inode: self.number.inode, generation: 0 })
    }

    /// Type and permissions as last seen.
    pub(super) fn mode(&self) -> u32 {
        self.mode.load(Ordering::Relaxed)
    }

    pub(super) fn is_of_kind(&self, mode: u32) -> bool {
        (self.mode() ^ mode) & libc::S_IFMT == 0
    }

    pub(super) fn is_directory(&self) -> bool {
        self.is_of_kind(libc::S_IFDIR)
    }

    /// Whether an opened file is this one, and not a later one with the same number.
    pub(super) fn is(&self, identity: Identity) -> bool {
        identity.inode == self.number.inode && *self.identity.get_or_init(|| identity) == identity
    }

    /// Remembers an open file, until [`Node::closed`].
    pub(super) fn opened(&self, file: &Arc<dyn TreeFile>, flags: u32) {
        self.handles.lock().expect("no list operation panics").push(Handle { file: file.clone(), flags });
    }

    /// Of a file that was opened for what `flags` say: it may be open for something else too.
    pub(super) fn closed(&self, file: &Arc<dyn TreeFile>, flags: u32) {
        let mut handles = self.handles.lock().expect("no list operation panics");
        let is_closed = |handle: &Handle| Arc::ptr_eq(&handle.file, file) && handle.flags == flags;
        let closed = handles.iter().position(is_closed);
        let closed = closed.map(|at| handles.swap_remove(at));
        drop(handles);
        drop(closed);
    }

    /// An open file that is open for what `flags` say: one that works whatever happened to the names.
    pub(super) fn open_for(&self, flags: u32) -> Option<Arc<dyn TreeFile>> {
        let handles = self.handles.lock().expect("no list operation panics");
        handles.iter().find(|handle| handle.flags & flags == flags).map(|handle| handle.file.clone())
    }

    /// Whether the directory hands an access list down, as seen in the last `trusted` or as `look` now says.
    pub(super) fn has_default_list(&self, trusted: Duration, look: impl FnOnce() -> bool) -> bool {
        let seen = *self.default_list.lock().expect("assigning does not panic");
        match seen {
            Some((has, when)) if when.elapsed() < trusted => has,
            _ => {
                let has = look();
                *self.default_list.lock().expect("assigning does not panic") = Some((has, Instant::now()));
                has
            }
        }
    }

    /// Notes that its access lists may have changed.
    pub(super) fn lists_changed(&self) {
        *self.default_list.lock().expect("assigning does not panic") = None;
        *self.bare_since.lock().expect("assigning does not panic") = None;
    }
}
