//! The files of a directory, held by descriptors (`O_PATH`).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use iogate_core::wire::{Change, Gone, Identity, Space, set};
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, SeekFrom};
use rustix::io::Errno;

use super::beneath::{Dir, Place, ProcPath};
use super::{DirectoryTree, LIST_BYTES, stat};
use crate::held::{Found, HeldTree, Known};
use crate::outside::OutsideLocks;
use crate::tree::{ObjectName, Tree, TreeFile};
use crate::{Caller, kernel_handle, private};

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

/// Sets what a file in such a folder says, durably: it is replaced as a whole.
pub fn set_file_in(folder: impl AsFd, name: &str, content: &[u8]) -> io::Result<()> {
    Ok(private::set_file_in(folder.as_fd(), name, Some(content))?)
}

/// What a file in such a folder says, if there is one.
pub fn file_in(folder: impl AsFd, name: &str) -> io::Result<Option<Vec<u8>>> {
    Ok(private::file_in(folder.as_fd(), name)?)
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
    /// A secret of 16 bytes that is kept below the root, in the server's own folder, and made when it is first asked for.
    pub fn kept_secret(&self, name: &str) -> io::Result<[u8; 16]> {
        secret_below(&self.root, name)
    }

    /// The server's own folder below the root, made when it is first asked for. Clients neither see nor reach it.
    pub fn kept_folder(&self) -> io::Result<OwnedFd> {
        folder_below(&self.root)
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

    /// Whether a directory is the root.
    fn is_root(&self, dir: BorrowedFd<'_>) -> io::Result<bool> {
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

impl HeldTree for DirectoryTree {
    type Held = OwnedFd;

    fn known(&self, held: &OwnedFd) -> io::Result<Known> {
        let known = stat::of(held)?;
        let identity = self.file_systems.identity(&known, held)?;
        Ok(Known { attr: known.attr, identity, device: known.device })
    }

    fn free_space(&self) -> io::Result<Space> {
        Tree::space(self)
    }

    fn handle_of<R>(&self, held: &OwnedFd, take: impl FnOnce(i32, &[u8]) -> R) -> io::Result<R> {
        kernel_handle::handle_of(held, take)
    }

    fn hold_handle(&self, root: &OwnedFd, kind: i32, handle: &[u8]) -> io::Result<OwnedFd> {
        kernel_handle::hold(root.as_fd(), kind, handle)
    }

    fn hold_root(&self) -> io::Result<OwnedFd> {
        Ok(rustix::io::fcntl_dupfd_cloexec(&self.root, 0)?)
    }

    fn open_root(&self) -> io::Result<OwnedFd> {
        Ok(reopen(&self.root, OFlags::RDONLY | OFlags::DIRECTORY)?)
    }

    fn hold_path(&self, path: &Path) -> io::Result<OwnedFd> {
        if private::contains(path) {
            return Err(Errno::NOENT.into());
        }
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        Ok(hold_in(self.root.as_fd(), path.as_os_str())?)
    }

    fn hold_entry(&self, caller: Caller, dir: &OwnedFd, name: &[u8]) -> io::Result<OwnedFd> {
        if !matches!(name, b"." | b"..") {
            check(name)?;
            self.refuse_own(dir.as_fd(), name)?;
        }
        self.names.look(caller, || match name {
            b".." => {
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                rustix::fs::openat(dir, c"..", flags, Mode::empty())
            }
            name => hold_in(dir.as_fd(), OsStr::from_bytes(name)),
        })
    }

    fn permitted(&self, caller: Caller, held: &OwnedFd, asked: Access) -> io::Result<Access> {
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

    fn open_held_file(&self, caller: Caller, held: &OwnedFd, writes: bool) -> io::Result<Arc<dyn TreeFile>> {
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
        self.files.opened(file.identity, false, false);
        file.counted = Some(Arc::clone(&self.files));
        Ok(Arc::new(file))
    }

    fn outside_locks(&self, held: &OwnedFd) -> io::Result<Option<OutsideLocks>> {
        OutsideLocks::of(held.as_fd()).map(Some)
    }

    fn change_held(&self, caller: Caller, held: &OwnedFd, change: &Change) -> io::Result<()> {
        let resize = |fd: BorrowedFd<'_>, size| stat::truncate_held(fd, size);
        match self.names.act(caller, || stat::change(held.as_fd(), change, resize)) {
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

    fn sync_held(&self, held: &OwnedFd) -> io::Result<()> {
        match FileType::from_raw_mode(stat::of(held)?.attr.mode) {
            FileType::Directory => Ok(rustix::fs::fsync(reopen(held, OFlags::RDONLY)?)?),
            // What fails is told once only, so it must not be overheard here.
            FileType::RegularFile => {
                let known = stat::of(held)?;
                let file = self.file_of(reopen(held, OFlags::RDONLY)?, &known, ObjectName::default())?;
                file.sync(false).map(drop)
            }
            _ => Ok(()),
        }
    }

    fn losses(&self, file: Identity) -> u64 {
        self.verifier.losses(file)
    }

    fn restore_losses(&self, file: Identity, count: u64) {
        self.verifier.restore(file, count);
    }

    fn create_entry(&self, caller: Caller, dir: &OwnedFd, name: &[u8], mode: u32) -> io::Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = self.make(caller, dir.as_fd(), name, |place| {
            rustix::fs::openat(&place.dir, place.name, flags, Mode::from_raw_mode(mode & 0o7777))
        })?;
        // What is held for long must not count as a writer: nobody could execute the file.
        Ok(reopen(&fd, OFlags::PATH)?)
    }

    fn make_entry(
        &self,
        caller: Caller,
        dir: &OwnedFd,
        name: &[u8],
        mode: u32,
        device: u64,
    ) -> io::Result<OwnedFd> {
        let permissions = Mode::from_raw_mode(mode & 0o7777);
        self.make(caller, dir.as_fd(), name, |place| {
            match FileType::from_raw_mode(mode) {
                FileType::Directory => rustix::fs::mkdirat(&place.dir, place.name, permissions)?,
                kind => rustix::fs::mknodat(&place.dir, place.name, kind, permissions, device)?,
            }
            place.hold()
        })
    }

    fn symlink_entry(
        &self,
        caller: Caller,
        dir: &OwnedFd,
        name: &[u8],
        target: &[u8],
    ) -> io::Result<OwnedFd> {
        self.make(caller, dir.as_fd(), name, |place| {
            rustix::fs::symlinkat(target, &place.dir, place.name)?;
            place.hold()
        })
    }

    fn link_entry(&self, caller: Caller, held: &OwnedFd, dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
        let path = ProcPath::new(held);
        self.make(caller, dir.as_fd(), name, |place| {
            rustix::fs::linkat(CWD, path.as_bytes(), &place.dir, place.name, AtFlags::SYMLINK_FOLLOW)
        })
    }

    fn unlink_entry(&self, caller: Caller, dir: &OwnedFd, name: &[u8], directory: bool) -> io::Result<Gone> {
        let place = self.place(dir.as_fd(), name)?;
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        let look = || {
            let held = if directory { None } else { Some(place.hold()?) };
            Ok(((), held))
        };
        self.remove(caller, false, look, |()| rustix::fs::unlinkat(&place.dir, place.name, flags))
    }

    fn rename_entry(
        &self,
        caller: Caller,
        (dir, name): (&OwnedFd, &[u8]),
        (to_dir, to_name): (&OwnedFd, &[u8]),
    ) -> io::Result<Gone> {
        let (from, to) = (self.place(dir.as_fd(), name)?, self.place(to_dir.as_fd(), to_name)?);
        let look = || Ok(((), to.hold().ok()));
        self.remove(caller, true, look, |()| {
            rustix::fs::renameat_with(&from.dir, from.name, &to.dir, to.name, RenameFlags::empty())
        })
    }

    fn read_held_link(&self, caller: Caller, held: &OwnedFd) -> io::Result<Vec<u8>> {
        let target = self.names.look(caller, || rustix::fs::readlinkat(held, c"", Vec::new()))?;
        Ok(target.into_bytes())
    }

    fn list_held(
        &self,
        caller: Caller,
        dir: &OwnedFd,
        after: u64,
        holds: bool,
        each: &mut dyn FnMut(Found<'_, OwnedFd>) -> bool,
    ) -> io::Result<bool> {
        let hides = self.is_root(dir.as_fd())?;
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
                    let known = self.known(&held).ok()?;
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
}

/// Holds a name or a path below a directory: no symbolic link is followed, and no other file system entered (`EXDEV`).
fn hold_in(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
}

/// Opens what is held, for what the flags say.
pub(crate) fn reopen(held: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    // By reference: what is held is held until it is open.
    rustix::fs::openat(CWD, ProcPath::new(&held).as_bytes(), flags | OFlags::CLOEXEC, Mode::empty())
}
