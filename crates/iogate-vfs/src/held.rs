//! A file system whose files are held, and not named by paths: for a front end whose clients name files by handles.
//!
//! What a caller does is done with its permissions, and what is the server's own is not there. Whoever holds a file may use it wherever it
//! lies: the permissions of the directories above it do not count.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use iogate_core::wire::{Attr, Change, Gone, Identity, Space};
use rustix::fs::Access;

pub use crate::directory::held::{file_in, folder_below, random_secret, secret_below, set_file_in};
use crate::outside::OutsideLocks;
use crate::tree::TreeFile;
use crate::{Caller, Clock};

/// What there is to know of a file.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its attributes, without what only extended ones say.
    pub attr: Attr,
    /// Which file it is.
    pub identity: Identity,
    /// The number of its file system.
    pub device: u64,
}

/// An entry of a directory.
#[derive(Debug)]
pub struct Found<'a, H> {
    /// Its name; `.` and `..` are entries, too.
    pub name: &'a [u8],
    /// Its number, as the directory has it.
    pub inode: u64,
    /// The position behind it.
    pub next: u64,
    /// What it leads to, if that was asked for and the caller may look.
    pub held: Option<(H, Known)>,
}

/// A file system whose files are held. Calls fail with the errors that Linux has for them ([`io::Error::raw_os_error`]).
pub trait HeldTree: Send + Sync + 'static {
    /// A file that is held, whatever becomes of its names. Let go when dropped.
    type Held: fmt::Debug + Send + Sync + 'static;

    /// What there is to know of a file. Waits for nobody.
    fn known(&self, held: &Self::Held) -> io::Result<Known>;

    /// By which clock permissions are believed for a while.
    fn clock(&self) -> Clock {
        Clock::REAL
    }

    /// The space of the file system.
    fn free_space(&self) -> io::Result<Space>;

    /// Holds the root.
    fn hold_root(&self) -> io::Result<Self::Held>;

    /// Holds the root as [`HeldTree::hold_handle`] needs it.
    fn open_root(&self) -> io::Result<Self::Held>;

    /// Calls `take` with the type and the bytes of what finds the file again without its name, also after a restart of the machine.
    /// Fails with `EOPNOTSUPP` where there is nothing that does.
    fn handle_of<R>(&self, held: &Self::Held, take: impl FnOnce(i32, &[u8]) -> R) -> io::Result<R>;

    /// Holds what such a handle leads to, by [`HeldTree::open_root`]. `ESTALE` if it is not there any more.
    fn hold_handle(&self, root: &Self::Held, kind: i32, handle: &[u8]) -> io::Result<Self::Held>;

    /// Holds what has a path below the root, in the process's own name. No symbolic link is followed, and no other file system entered.
    fn hold_path(&self, path: &Path) -> io::Result<Self::Held>;

    /// Holds the entry of a directory. The name may be `.`, or `..` unless the directory is the root.
    fn hold_entry(&self, caller: Caller, dir: &Self::Held, name: &[u8]) -> io::Result<Self::Held>;

    /// Which of reading, writing and executing (or searching) the caller may do with a file, of those that are asked for.
    fn permitted(&self, caller: Caller, held: &Self::Held, asked: Access) -> io::Result<Access>;

    /// Opens a regular file for reading, or for writing. Its owner may do both whatever the permissions say, as who has created a file
    /// without permission to write has it open elsewhere; and who may execute it may read it.
    fn open_held_file(
        &self,
        caller: Caller,
        held: &Self::Held,
        writes: bool,
    ) -> io::Result<Arc<dyn TreeFile>>;

    /// A regular file, in the process's own name, for locks that hold among all who use it, past this program, too. `None`: there are no
    /// such ones.
    fn outside_locks(&self, held: &Self::Held) -> io::Result<Option<OutsideLocks>> {
        let _ = held;
        Ok(None)
    }

    /// Sets attributes. The owner may set the size whatever the permissions say.
    fn change_held(&self, caller: Caller, held: &Self::Held, change: &Change) -> io::Result<()>;

    /// Makes durable what was changed of a directory's names, or of a file, in the process's own name. Of what cannot be opened without
    /// doing something (a link, a FIFO, a device) there is nothing to be done.
    fn sync_held(&self, held: &Self::Held) -> io::Result<()>;

    /// How often writes to a file are known to have been lost since the machine was booted: part of its
    /// [verifier](TreeFile::verifier). A sync that fails adds to it.
    fn losses(&self, file: Identity) -> u64;

    /// A process before knew of so many losses.
    fn restore_losses(&self, file: Identity, count: u64);

    /// Creates a regular file where there is nothing, and holds it.
    fn create_entry(
        &self,
        caller: Caller,
        dir: &Self::Held,
        name: &[u8],
        mode: u32,
    ) -> io::Result<Self::Held>;

    /// Makes a directory, a FIFO, a socket or a device, by the type in `mode`, and holds it.
    fn make_entry(
        &self,
        caller: Caller,
        dir: &Self::Held,
        name: &[u8],
        mode: u32,
        device: u64,
    ) -> io::Result<Self::Held>;

    /// Makes a symbolic link that says `target`, and holds it.
    fn symlink_entry(
        &self,
        caller: Caller,
        dir: &Self::Held,
        name: &[u8],
        target: &[u8],
    ) -> io::Result<Self::Held>;

    /// Gives a file a further name.
    fn link_entry(&self, caller: Caller, held: &Self::Held, dir: &Self::Held, name: &[u8]) -> io::Result<()>;

    /// Removes a name: of an empty directory, or of anything else.
    fn unlink_entry(
        &self,
        caller: Caller,
        dir: &Self::Held,
        name: &[u8],
        directory: bool,
    ) -> io::Result<Gone>;

    /// Renames an entry, and replaces what has the other name.
    fn rename_entry(
        &self,
        caller: Caller,
        from: (&Self::Held, &[u8]),
        to: (&Self::Held, &[u8]),
    ) -> io::Result<Gone>;

    /// What a symbolic link says.
    fn read_held_link(&self, caller: Caller, held: &Self::Held) -> io::Result<Vec<u8>>;

    /// Lists a directory from a position on, until `each` returns false; that entry is not taken. With `holds`, what the entries lead to
    /// is held. Returns whether there are no more. `each` runs in the caller's name, and must not wait for anything.
    fn list_held(
        &self,
        caller: Caller,
        dir: &Self::Held,
        after: u64,
        holds: bool,
        each: &mut dyn FnMut(Found<'_, Self::Held>) -> bool,
    ) -> io::Result<bool>;
}
