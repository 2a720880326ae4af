//! What is done with files that are held by descriptors, and not named by paths: for a front end whose clients name files by handles.
//!
//! As everywhere here, what a caller does is done with its permissions, and what is the server's own is not there. Whoever holds a file may
//! use it wherever it lies: the permissions of the directories above it do not count.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use iogate_core::wire::{Attr, Change, Gone, Identity, set};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom};
use rustix::io::Errno;

use super::beneath::{Dir, Place, ProcPath};
use super::{DirectoryTree, LIST_BYTES, reopen, stat};
use crate::tree::{ObjectName, TreeFile};
use crate::{Caller, private};

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

/// What a descriptor holds (`O_PATH` or not).
pub fn known(held: impl AsFd) -> io::Result<Known> {
    let known = stat::of(held)?;
    Ok(Known { attr: known.attr, identity: known.identity, device: known.device })
}

/// A secret of 16 bytes that nobody can guess.
pub fn random_secret() -> io::Result<[u8; 16]> {
    Ok(private::random()?)
}

/// A secret as [`DirectoryTree::kept_secret`] has it, below another directory.
pub fn secret_below(directory: impl AsFd, name: &str) -> io::Result<[u8; 16]> {
    Ok(private::secret(directory.as_fd(), name)?)
}

/// A folder as [`DirectoryTree::kept_folder`], below another directory.
pub fn folder_below(directory: impl AsFd) -> io::Result<OwnedFd> {
    Ok(private::own_folder(directory.as_fd())?)
}

/// An entry of a directory.
#[derive(Debug)]
pub struct Found<'a> {
    /// Its name; `.` and `..` are entries, too.
    pub name: &'a [u8],
    /// Its number, as the directory has it.
    pub inode: u64,
    /// The position behind it.
    pub next: u64,
    /// What it leads to, if that was asked for and the caller may look.
    pub held: Option<(OwnedFd, Known)>,
}

/// A name that a client may use in a directory: no path, and neither `.` nor `..`.
fn check(name: &[u8]) -> Result<(), Errno> {
    match name {
        b"" | b"." | b".." => Err(Errno::INVAL),
        _ if name.iter().any(|byte| matches!(byte, 0 | b'/')) => Err(Errno::INVAL),
        _ if name.len() > 255 => Err(Errno::NAMETOOLONG),
        _ => Ok(()),
    }
}

impl DirectoryTree {
    /// Holds the root.
    pub fn hold_root(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?)
    }

    /// A descriptor of the root that is open for reading.
    pub fn open_root(&self) -> io::Result<OwnedFd> {
        Ok(reopen(&self.root, OFlags::RDONLY | OFlags::DIRECTORY)?)
    }

    /// A secret of 16 bytes that is kept below the root, in the server's own folder, and made when it is first asked for.
    pub fn kept_secret(&self, name: &str) -> io::Result<[u8; 16]> {
        secret_below(&self.root, name)
    }

    /// The server's own folder below the root, made when it is first asked for. Clients neither see nor reach it.
    pub fn kept_folder(&self) -> io::Result<OwnedFd> {
        folder_below(&self.root)
    }

    /// Holds what has a path below the root, in the process's own name. No symbolic link is followed, and no other file system entered.
    pub fn hold_path(&self, path: &Path) -> io::Result<OwnedFd> {
        if private::contains(path) {
            return Err(Errno::NOENT.into());
        }
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(hold_in(self.root.as_fd(), path.as_os_str())?)
    }

    /// Holds the entry of a directory. The name may be `.`, or `..` unless the directory is the root.
    pub fn hold_entry(&self, caller: Caller, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
        if !matches!(name, b"." | b"..") {
            check(name)?;
            self.refuse_own(dir, name)?;
        }
        self.names.look(caller, || match name {
            b".." => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::openat(dir, c"..", flags, Mode::empty())
            }
            name => hold_in(dir, OsStr::from_bytes(name)),
        })
    }

    /// Which of reading, writing and executing (or searching) the caller may do with a file, of those that are asked for.
    pub fn permitted(&self, caller: Caller, held: BorrowedFd<'_>, asked: Access) -> io::Result<Access> {
        let path = ProcPath::new(held);
        self.names.look(caller, || {
            let mut permitted = Access::empty();
            for one in [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
                if !asked.contains(one) {
                    continue;
                }
                match rustix::fs::accessat(CWD, path.as_bytes(), one, AtFlags::EACCESS) {
                    Ok(()) => permitted |= one,
                    Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY) => {}
                    Err(errno) => return Err(errno),
                }
            }
            Ok(permitted)
        })
    }

    /// Opens a regular file for reading, or for writing. Its owner may do both whatever the permissions say, as who has created a file
    /// without permission to write has it open elsewhere; and who may execute it may read it.
    pub fn open_held_file(
        &self,
        caller: Caller,
        held: BorrowedFd<'_>,
        writes: bool,
    ) -> io::Result<Arc<dyn TreeFile>> {
        let known = stat::of(held)?;
        match FileType::from_raw_mode(known.attr.mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Errno::ISDIR.into()),
            _ => return Err(Errno::INVAL.into()),
        }
        let flags = if writes { OFlags::WRONLY } else { OFlags::RDONLY };
        let fd = match self.names.look(caller, || reopen(held, flags)) {
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
                let may = caller.uid == known.attr.uid
                    || !writes && self.permitted(caller, held, Access::EXEC_OK)? == Access::EXEC_OK;
                if !may {
                    return Err(error);
                }
                reopen(held, flags)?
            }
            opened => opened?,
        };
        let mut file = self.file_of(fd, &known, ObjectName::default())?;
        self.files.opened(known.identity, false, false);
        file.counted = Some(Arc::clone(&self.files));
        Ok(Arc::new(file))
    }

    /// Opens a file for a sync, in the process's own name.
    pub fn open_to_sync(&self, held: BorrowedFd<'_>) -> io::Result<Arc<dyn TreeFile>> {
        self.open_held_file(Caller::new(stat::of(held)?.attr.uid, 0), held, false)
    }

    /// Sets attributes. The owner may set the size whatever the permissions say.
    pub fn change_held(&self, caller: Caller, held: BorrowedFd<'_>, change: &Change) -> io::Result<()> {
        let resize = |fd: BorrowedFd<'_>, size| stat::truncate_held(fd, size);
        match self.names.act(caller, || stat::change(held, change, resize)) {
            Err(error)
                if error.raw_os_error() == Some(libc::EACCES)
                    && change.which == set::SIZE
                    && stat::of(held)?.attr.uid == caller.uid =>
            {
                let fd = reopen(held, OFlags::WRONLY)?;
                Ok(rustix::fs::ftruncate(fd, change.size)?)
            }
            done => done,
        }
    }

    /// Makes durable what was changed of a directory's names, or of a file, in the process's own name. Of what cannot be opened without
    /// doing something (a link, a FIFO, a device) there is nothing to be done.
    pub fn sync_held(&self, held: BorrowedFd<'_>) -> io::Result<()> {
        match FileType::from_raw_mode(stat::of(held)?.attr.mode) {
            FileType::Directory | FileType::RegularFile => {
                Ok(rustix::fs::fsync(reopen(held, OFlags::RDONLY)?)?)
            }
            _ => Ok(()),
        }
    }

    /// Creates a regular file where there is nothing, and holds it.
    pub fn create_entry(
        &self,
        caller: Caller,
        dir: BorrowedFd<'_>,
        name: &[u8],
        mode: u32,
    ) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.make(caller, dir, name, |place| {
            rustix::fs::openat(&place.dir, place.name, flags, Mode::from_raw_mode(mode & 0o7777))
        })?;
        // What is held for long must not count as a writer: nobody could execute the file.
        Ok(reopen(&fd, OFlags::PATH)?)
    }

    /// Makes a directory, a FIFO, a socket or a device, by the type in `mode`, and holds it.
    pub fn make_entry(
        &self,
        caller: Caller,
        dir: BorrowedFd<'_>,
        name: &[u8],
        mode: u32,
        device: u64,
    ) -> io::Result<OwnedFd> {
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        self.make(caller, dir, name, |place| {
            match FileType::from_raw_mode(mode) {
                FileType::Directory => rustix::fs::mkdirat(&place.dir, place.name, permissions)?,
                kind => rustix::fs::mknodat(&place.dir, place.name, kind, permissions, device)?,
            }
            place.hold()
        })
    }

    /// Makes a symbolic link that says `target`, and holds it.
    pub fn symlink_entry(
        &self,
        caller: Caller,
        dir: BorrowedFd<'_>,
        name: &[u8],
        target: &[u8],
    ) -> io::Result<OwnedFd> {
        self.make(caller, dir, name, |place| {
            rustix::fs::symlinkat(target, &place.dir, place.name)?;
            place.hold()
        })
    }

    /// Gives a file a further name.
    pub fn link_entry(
        &self,
        caller: Caller,
        held: BorrowedFd<'_>,
        dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> io::Result<()> {
        let path = ProcPath::new(held);
        self.make(caller, dir, name, |place| {
            rustix::fs::linkat(CWD, path.as_bytes(), &place.dir, place.name, AtFlags::SYMLINK_FOLLOW)
        })
    }

    fn make<R>(
        &self,
        caller: Caller,
        dir: BorrowedFd<'_>,
        name: &[u8],
        make: impl FnOnce(&Place<'_>) -> Result<R, Errno>,
    ) -> io::Result<R> {
        let place = self.place(dir, name)?;
        self.names.act(caller, || make(&place))
    }

    /// Removes a name: of an empty directory, or of anything else.
    pub fn unlink_entry(
        &self,
        caller: Caller,
        dir: BorrowedFd<'_>,
        name: &[u8],
        directory: bool,
    ) -> io::Result<Gone> {
        let place = self.place(dir, name)?;
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let look = || {
            let held = if directory { None } else { Some(place.hold()?) };
            Ok(((), held))
        };
        self.remove(caller, false, look, |()| rustix::fs::unlinkat(&place.dir, place.name, flags))
    }

    /// Renames an entry, and replaces what has the other name.
    pub fn rename_entry(
        &self,
        caller: Caller,
        (dir, name): (BorrowedFd<'_>, &[u8]),
        (to_dir, to_name): (BorrowedFd<'_>, &[u8]),
    ) -> io::Result<Gone> {
        let (from, to) = (self.place(dir, name)?, self.place(to_dir, to_name)?);
        let look = || Ok(((), to.hold().ok()));
        self.remove(caller, true, look, |()| {
            rustix::fs::renameat_with(&from.dir, from.name, &to.dir, to.name, RenameFlags::empty())
        })
    }

    /// What a symbolic link says.
    pub fn read_held_link(&self, caller: Caller, held: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
        let target = self.names.look(caller, || rustix::fs::readlinkat(held, c"", Vec::new()))?;
        Ok(target.into_bytes())
    }

    /// Lists a directory from a position on, until `each` returns false; that entry is not taken. With `holds`, what the entries lead to
    /// is held. Returns whether there are no more. `each` runs in the caller's name, and must not wait for anything.
    pub fn list_held(
        &self,
        caller: Caller,
        dir: BorrowedFd<'_>,
        after: u64,
        holds: bool,
        each: &mut dyn FnMut(Found<'_>) -> bool,
    ) -> io::Result<bool> {
        let hides = self.is_root(dir)?;
        let mut buffer = Vec::with_capacity(LIST_BYTES);
        self.names.look(caller, || {
            let open = reopen(dir, OFlags::RDONLY | OFlags::DIRECTORY)?;
            if after != 0 {
                rustix::fs::seek(&open, SeekFrom::Start(after))?;
            }
            let mut list = rustix::fs::RawDir::new(&open, buffer.spare_capacity_mut());
            while let Some(entry) = list.next() {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if hides && name == private::NAME.as_bytes() {
                    continue;
                }
                let held = match holds && !matches!(name, b"." | b"..") {
                    true => hold_in(open.as_fd(), OsStr::from_bytes(name)).ok(),
                    false => None,
                };
                let held = held.and_then(|held| {
                    let known = known(&held).ok()?;
                    Some((held, known))
                });
                let found = Found { name, inode: entry.ino(), next: entry.next_entry_cookie(), held };
                if !each(found) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Whether a directory is the root.
    pub fn is_root(&self, dir: BorrowedFd<'_>) -> io::Result<bool> {
        let (root, dir) = (stat::of(&self.root)?, stat::of(dir)?);
        Ok(root.device == dir.device && root.attr.inode == dir.attr.inode)
    }

    fn place<'a>(&self, dir: BorrowedFd<'a>, name: &'a [u8]) -> io::Result<Place<'a>> {
        check(name)?;
        self.refuse_own(dir, name)?;
        Ok(Place { dir: Dir::Root(dir), name: OsStr::from_bytes(name) })
    }

    /// Fails if this is the server's own folder.
    fn refuse_own(&self, dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
        if name == private::NAME.as_bytes() && self.is_root(dir)? {
            return Err(Errno::NOENT.into());
        }
        Ok(())
    }
}

/// Holds a name or a path below a directory: no symbolic link is followed, and no other file system entered (`EXDEV`).
fn hold_in(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
}
