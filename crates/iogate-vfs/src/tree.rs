//! What a front end, a server or a client sees of a file system: names, attributes, open files.
//!
//! Calls block, and fail with the errors that Linux has for them ([`io::Error::raw_os_error`]). Paths are relative to the tree's
//! root; the empty one is the root itself. Data does not go through a tree: an [`Engine`] over
//! [`Tree::store`] carries it, by way of [`TreeFile::data`].

use std::hash::Hasher;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iogate_core::hash::IdHasher;
use iogate_core::refusal::Refusal;
use iogate_core::wire::{
    AppendRecord, Attr, Change, Entry, Gone, Identity, Lock, PAYLOAD_BYTES_MAX, Space, Written, open,
};
use iogate_core::{Layout, file_locks};
use iogate_engine::store::AppendFile;
use iogate_engine::{Engine, FileHandle, Origin, Store};

use crate::Caller;
use crate::ends::Given;
use crate::outside::OutsideLocks;

/// How to open a file: [`iogate_core::wire::open`].
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenHow {
    /// Flags of [`iogate_core::wire::open`].
    pub flags: u32,
    /// Permissions of a file that is created.
    pub mode: u32,
    /// With [`AGAIN`](iogate_core::wire::open::AGAIN): the file that it must be.
    pub identity: Identity,
    /// A file without a name for its objects gets one; see [`TreeFile::object`].
    pub stripes: bool,
}

/// Waits for the answer to what has begun.
pub type Waiting<'a, T> = Box<dyn FnOnce() -> io::Result<T> + 'a>;

/// Told of objects that nobody can reach any more. Must not block.
pub type WhenGone = Arc<dyn Fn(Gone) + Send + Sync>;

/// What a file's objects are named by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectName {
    /// The name. Zeros: it has none.
    pub object: [u8; 16],
    /// The file got it when it was opened: there are no objects yet.
    pub is_new: bool,
}

/// Whether a file is the one that is meant. A `meant` one without a generation is any file of its number; zero is any file.
pub(crate) fn is_of(found: Identity, meant: Identity) -> bool {
    meant == Identity::default()
        || found.inode == meant.inode && (meant.generation == 0 || found.generation == meant.generation)
}

/// A file system: a directory, several servers, a connection to one.
pub trait Tree: Send + Sync + 'static {
    /// What carries out the reads and writes of this tree's files.
    fn store(&self) -> Arc<dyn Store>;

    /// The [verifier](TreeFile::verifier) of a file of which nothing is known to be lost.
    fn verifier(&self) -> u64 {
        0
    }

    /// A process before knew that writes to a file were lost so often ([`TreeFile::losses`]): its verifier is the same again.
    fn restore_losses(&self, file: Identity, count: u64) {
        let _ = (file, count);
    }

    /// Whether this machine answers the calls, so that it is not worth a thread to have several in flight.
    fn is_local(&self) -> bool {
        false
    }

    /// Whether operations are carried out in their callers' names. If not, all are in this process's own.
    fn acts_for_others(&self) -> bool {
        true
    }

    /// Whether the files here may be names-files of striped ones, whose ends are given here.
    fn gives_ends(&self) -> bool {
        false
    }

    /// Whether [`TreeFile::reserve`] and its like ask somebody.
    fn asks_for_ends(&self) -> bool {
        false
    }

    /// Tells of the gate that the tree's reads and writes pass.
    fn use_engine(&self, engine: &Arc<Engine>) {
        let _ = engine;
    }

    /// Opens a file, or makes one.
    fn open(&self, caller: Caller, path: &Path, how: OpenHow) -> io::Result<Arc<dyn TreeFile>>;

    /// The attributes of what is at a path; a symbolic link is not followed.
    fn attr(&self, caller: Caller, path: &Path) -> io::Result<Attr>;

    /// Begins what [`Tree::attr`] does. Many may be in flight at once.
    fn begin_attr<'a>(&'a self, caller: Caller, path: &'a Path) -> Waiting<'a, Attr> {
        Box::new(move || self.attr(caller, path))
    }

    /// Sets attributes; a symbolic link is not followed. `ESTALE` if the file is not the one of `identity`, unless that is zero; without
    /// a generation, only the number counts.
    fn set_attr(&self, caller: Caller, path: &Path, identity: Identity, change: &Change) -> io::Result<Attr>;

    /// Lists a directory from `after` (0, or the `next` of an entry) on, until `each` returns false; that entry is not taken.
    /// `.` and `..` are left out. Of an entry at which the caller may not look, only the number and the type are known, and
    /// its attributes have no links.
    fn read_dir(
        &self,
        caller: Caller,
        path: &Path,
        after: u64,
        each: &mut dyn FnMut(&Entry, &[u8]) -> bool,
    ) -> io::Result<()>;

    /// Makes a directory, a FIFO, a socket, a device or an empty file, by the type in `mode`.
    fn make_node(&self, caller: Caller, path: &Path, mode: u32, device: u32) -> io::Result<Attr>;

    /// Makes a symbolic link that says `target`.
    fn symlink(&self, caller: Caller, target: &Path, path: &Path) -> io::Result<Attr>;

    /// Gives the file at `path` the further name `to`.
    fn link(&self, caller: Caller, path: &Path, to: &Path) -> io::Result<Attr>;

    /// What a symbolic link says.
    fn read_link(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>>;

    /// Removes a name: of an empty directory, or of anything else. Returns the objects that nobody can reach any more.
    fn unlink(&self, caller: Caller, path: &Path, directory: bool) -> io::Result<Gone>;

    /// Renames, as `renameat2(2)`. Returns the objects of a replaced file that nobody can reach any more.
    fn rename(&self, caller: Caller, path: &Path, to: &Path, flags: u32) -> io::Result<Gone>;

    /// The space of the file system.
    fn space(&self) -> io::Result<Space>;

    /// Reads an extended attribute.
    fn xattr(&self, caller: Caller, path: &Path, name: &[u8]) -> io::Result<Vec<u8>>;

    /// Sets an extended attribute; `flags` as of `setxattr(2)`. `identity` as of [`Tree::set_attr`].
    fn set_xattr(
        &self,
        caller: Caller,
        path: &Path,
        identity: Identity,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> io::Result<()>;

    /// The names of all extended attributes, each followed by a zero byte.
    fn xattrs(&self, caller: Caller, path: &Path) -> io::Result<Vec<u8>>;

    /// Removes an extended attribute. `identity` as of [`Tree::set_attr`].
    fn remove_xattr(&self, caller: Caller, path: &Path, identity: Identity, name: &[u8]) -> io::Result<()>;

    /// Which file has a path; a symbolic link is not followed.
    fn identity(&self, caller: Caller, path: &Path) -> io::Result<Identity> {
        let Attr { inode, .. } = self.attr(caller, path)?;
        Ok(Identity { inode, generation: 0 })
    }

    /// What the servers behind the tree remember of requests with an origin: as long as this is the same, each is carried out once,
    /// however often it is sent. 0: they may not know. Of a server that is not there, what it said last.
    fn answers(&self) -> u64 {
        0
    }

    /// Whether all servers behind the tree are there now. If not, nobody knows what they will remember when they are back.
    fn is_reached(&self) -> bool {
        true
    }

    /// Fails with `ELOOP` if a trail of servers ([`iogate_core::proto::ring`]) goes on over servers behind this tree and comes back to
    /// where it has been; with `EAGAIN` if that cannot be found out now. Asks only servers that are connected to, and may take seconds.
    fn leads_on(&self, trail: &[u8]) -> Result<(), Refusal> {
        let _ = trail;
        Ok(())
    }

    /// Whom to tell of objects that nobody can reach any more, where no call returns them: when the last handle of a file without a name
    /// is dropped. The first call counts.
    fn when_gone(&self, tell: WhenGone) {
        let _ = tell;
    }

    /// To be called when a server begins: its clients may come back within this time, to files that they had open.
    fn begin_grace(&self, time: Duration) -> io::Result<()> {
        let _ = time;
        Ok(())
    }

    /// Whether the files are here, so that a server of the tree can keep its clients' locks, and take them on the files
    /// ([`TreeFile::outside_locks`]).
    fn keeps_locks(&self) -> bool {
        false
    }

    /// Notes, durably, from whom clients may hold locks; `None`: nobody does.
    fn note_locks(&self, note: Option<&file_locks::Note>) -> io::Result<()> {
        let _ = note;
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// What was noted so.
    fn noted_locks(&self) -> io::Result<Option<file_locks::Note>> {
        Ok(None)
    }

    /// Whether the locks of [`TreeFile::set_lock`] hold among all who use the files.
    fn shares_locks(&self) -> bool {
        false
    }

    /// To be called when a server ends whose clients have locks of [`TreeFile::set_lock`]: whoever keeps these is not to give them to
    /// others at once.
    fn leave_locks(&self) {}

    /// Most bytes of a record that is appended as one.
    fn append_bytes_max(&self) -> u32 {
        PAYLOAD_BYTES_MAX
    }

    /// How what carries the tree is; `None`: nothing does, it is here.
    fn state(&self) -> Option<TreeState> {
        None
    }
}

/// How what carries a [`Tree`] is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeState {
    /// In a few words for people: connected to whom, or trying again.
    pub text: String,
    /// Whether all servers are connected to, and none takes long to answer.
    pub is_well: bool,
}

/// An open file of a [`Tree`]. Closed when dropped.
pub trait TreeFile: Send + Sync {
    /// The file as the tree's store knows it, for reads and writes. Whoever submits them sees to it that the file was opened
    /// for them: a gate joins requests of several handles on a file, and one handle then carries them out.
    fn data(&self) -> &FileHandle;

    /// The same for writes to ranges that records were given, which whoever has the file refuses once it is [fenced](crate::fence).
    fn range_data(&self) -> FileHandle {
        FileHandle::clone(self.data())
    }

    /// Its path below the tree's root now, where the tree knows it; of a name that is gone, the one that it was.
    fn path(&self) -> Option<PathBuf> {
        None
    }

    /// Which file it is.
    fn identity(&self) -> Identity;

    /// Its attributes.
    fn attr(&self) -> io::Result<Attr>;

    /// Begins what [`TreeFile::attr`] does.
    fn begin_attr(&self) -> Waiting<'_, Attr> {
        Box::new(|| self.attr())
    }

    /// Its attributes when it was opened, or later ones.
    fn opened_attr(&self) -> io::Result<Attr> {
        self.attr()
    }

    /// What its objects are named by, if it was opened for [`OpenHow::stripes`].
    fn object(&self) -> ObjectName {
        ObjectName::default()
    }

    /// Gives the file up, before it is dropped. Returns the objects that nobody can reach any more.
    fn close(&self) -> Gone {
        Gone::NONE
    }

    /// Sets its attributes.
    fn set_attr(&self, caller: Caller, change: &Change) -> io::Result<Attr>;

    /// Makes what was written durable: as `fdatasync(2)` with `data_only`, else as `fsync(2)`. Returns the [verifier](Self::verifier)
    /// that holds when it is done.
    fn sync(&self, data_only: bool) -> io::Result<u64>;

    /// Changes when data that was written and not synced may have been lost: by a reboot of the machine that had it, or by a write-back
    /// that failed.
    fn verifier(&self) -> u64 {
        0
    }

    /// Whether nothing that this process has written to the file can be lost any more without a word: it is durable, or known to be lost.
    fn is_clean(&self) -> bool {
        true
    }

    /// How often writes to the file that were answered are known to have been lost. Whoever shares this among several handles tells each
    /// of them so once.
    fn losses(&self) -> u64 {
        0
    }

    /// Fails with `EIO`, once, if writes to the file are known to be lost: for a close, which waits for nobody's disk.
    fn tell_losses(&self) -> io::Result<()> {
        Ok(())
    }

    /// Allocates or frees space, as `fallocate(2)`.
    fn allocate(&self, mode: u32, offset: u64, bytes: u64) -> io::Result<()>;

    /// The file, opened in the process's own name, for locks that hold among all who use it, past this program, too. `None`: there are no
    /// such ones.
    fn outside_locks(&self) -> io::Result<Option<OutsideLocks>> {
        Ok(None)
    }

    /// Takes a lock, or gives it back; does not wait for who has it. [`SetLock`](iogate_core::wire::SetLock) has the errors.
    fn set_lock(&self, lock: &Lock) -> io::Result<()> {
        let _ = lock;
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// A lock that is in the way of this one; of no kind: there is none.
    fn get_lock(&self, lock: &Lock) -> io::Result<Lock> {
        let _ = lock;
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Whether nobody can say, without asking, that locks of the file that this process has taken are still its own: what has them was not
    /// reached for a while. Reads and writes that do not go there are then to be [confirmed](TreeFile::confirm_locks) first.
    fn doubts_locks(&self) -> bool {
        false
    }

    /// Asks; waits. Fails with `ESTALE` if locks of the file are lost, and others may have had them since.
    fn confirm_locks(&self) -> io::Result<()> {
        Ok(())
    }

    /// Finds the next hole, or the next data, as `lseek(2)`.
    fn seek(&self, offset: u64, hole: bool) -> io::Result<u64>;

    /// Reads an extended attribute.
    fn xattr(&self, caller: Caller, name: &[u8]) -> io::Result<Vec<u8>> {
        let _ = (caller, name);
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Sets an extended attribute; `flags` as of `setxattr(2)`.
    fn set_xattr(&self, caller: Caller, name: &[u8], value: &[u8], flags: u32) -> io::Result<()> {
        let _ = (caller, name, value, flags);
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// The names of all extended attributes, each followed by a zero byte.
    fn xattrs(&self, caller: Caller) -> io::Result<Vec<u8>> {
        let _ = caller;
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Removes an extended attribute.
    fn remove_xattr(&self, caller: Caller, name: &[u8]) -> io::Result<()> {
        let _ = (caller, name);
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    /// Which target holds a byte, where the tree knows.
    fn layout(&self) -> Option<Layout> {
        None
    }

    /// To be called before each write at an offset: the file may have grown on new targets.
    fn before_write(&self, offset: u64) {
        let _ = offset;
    }

    /// A size that is to be set before anything is written, as who has begun to set it may be dead.
    fn pending_size(&self) -> Option<u64> {
        None
    }

    /// Of a names-file: asks whoever has it for ranges at the end of the striped file; with a ticket, as who has looked and found
    /// that the file has at least so many bytes. Waits. `EINPROGRESS`: finish the size that is begun first. `None`: who asks decides.
    fn reserve(&self, ticket: u64, at_least: u64, records: &[AppendRecord]) -> Option<io::Result<Given>> {
        let _ = (ticket, at_least, records);
        None
    }

    /// As [`TreeFile::reserve`], for the end itself, to set the size; the largest number: to finish what is begun, or just to have the end.
    fn resize(&self, size: u64) -> Option<io::Result<Given>> {
        let _ = size;
        None
    }

    /// Gives the end back: the file has so many bytes; the largest number: it is not known. `waits`: returns when that is noted.
    fn settle(&self, ticket: u64, end: u64, waits: bool) -> Option<io::Result<()>> {
        let _ = (ticket, end, waits);
        None
    }

    /// The file's description for batches at its end, where the kernel decides where that is; opened anew. `None`: it can have none.
    ///
    /// # Errors
    /// If it cannot be opened now: it may be later.
    fn append_file(&self) -> io::Result<Option<Arc<AppendFile>>> {
        Ok(None)
    }

    /// Whether [`append`](TreeFile::append) writes.
    fn appends_elsewhere(&self) -> bool {
        false
    }

    /// Writes at the end of the file, where somebody behind the tree decides where that is. `None`: whoever
    /// calls decides, by the size, and makes sure that appends follow each other.
    fn append(&self, caller: Caller, origin: Origin, bytes: &[u8]) -> Option<io::Result<Written>> {
        let _ = (caller, origin, bytes);
        None
    }
}

/// What [`Tree::set_attr`] does to a file's size, and whatever else: by an open file.
pub fn resize_by_handle(
    tree: &dyn Tree,
    caller: Caller,
    path: &Path,
    identity: Identity,
    change: &Change,
) -> io::Result<Attr> {
    let how = OpenHow { flags: open::WRITE | open::APPEND | open::NO_FOLLOW, ..OpenHow::default() };
    let opened = tree.open(caller, path, how).map_err(|error| match error.raw_os_error() {
        // Not a file, unless something before it is wrong.
        Some(libc::ENXIO | libc::ELOOP) => {
            let is_there = tree.attr(caller, path);
            is_there.err().unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
        }
        _ => error,
    });
    let opened = opened?;
    if !is_of(opened.identity(), identity) {
        return Err(io::Error::from_raw_os_error(libc::ESTALE));
    }
    opened.set_attr(caller, change)
}

/// What several servers together [remember](Tree::answers).
pub fn all_answers(servers: impl Iterator<Item = u64>) -> u64 {
    let mut hasher = IdHasher::default();
    for server in servers {
        if server == 0 {
            return 0;
        }
        hasher.write_u64(server);
    }
    hasher.finish().max(1)
}
