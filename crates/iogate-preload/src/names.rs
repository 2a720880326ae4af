//! Names: making, removing, renaming and resolving them.

use std::cell::OnceCell;
use std::ffi::{c_char, c_int, c_uint};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use libc::{dev_t, mode_t, size_t, ssize_t};
use rustix::io::Errno;

use crate::abi::{In, Memory, Text};
use crate::cwd;
use crate::failed::{Failed, Result, answer, errno_of, fail_as, guarded};
use crate::opening::masked;
use crate::page::Page;
use crate::paths::{self, Place, TreePath};
use crate::table;

fn make(path: &TreePath, mode: u32, device: dev_t) -> Result<c_int> {
    paths::on_tree(path, |tree, caller, path| tree.make_node(caller, path, mode, device as u32))?;
    Ok(0)
}

pub(crate) fn make_dir(path: &TreePath, mode: mode_t) -> Result<c_int> {
    make(path, libc::S_IFDIR | masked(mode), 0)
}

fn make_node(path: &TreePath, mode: mode_t, device: dev_t) -> Result<c_int> {
    let kind = match mode & libc::S_IFMT {
        0 => libc::S_IFREG,
        libc::S_IFDIR => return Err(Errno::PERM.into()),
        kind => kind,
    };
    if path.directory {
        return Err(Errno::NOENT.into());
    }
    make(path, kind | masked(mode), device)
}

fn unlink_at(path: &TreePath, directory: bool) -> Result<c_int> {
    if path.directory && !directory {
        let attr = paths::on_tree(path, |tree, caller, path| tree.attr(caller, path))?;
        path.check(&attr)?;
        return Err(Errno::ISDIR.into());
    }
    paths::on_tree(path, |tree, caller, path| tree.unlink(caller, path, directory))?;
    Ok(0)
}

fn remove_either(path: &TreePath) -> Result<c_int> {
    match unlink_at(path, false) {
        Err(Failed::With(Errno::ISDIR)) => unlink_at(path, true),
        removed => removed,
    }
}

/// The way to both names, without links: the tree may refuse links on the way with the error of a rename between file systems.
fn on_both<T>(
    from: &TreePath,
    to: &TreePath,
    mut operation: impl FnMut(&TreePath, &TreePath) -> Result<T>,
) -> Result<T> {
    match operation(from, to) {
        Err(Failed::With(errno)) if paths::may_be_a_link_out(errno) => {
            let (real_from, real_to) = (paths::without_links(from)?, paths::without_links(to)?);
            if (&real_from, &real_to) == (from, to) {
                return Err(errno.into());
            }
            operation(&real_from, &real_to)
        }
        done => done,
    }
}

fn rename_to(from: &TreePath, to: &TreePath, flags: c_uint) -> Result<c_int> {
    if from.directory || to.directory {
        let attr = paths::on_tree(from, |tree, caller, path| tree.attr(caller, path))?;
        TreePath { path: from.path.clone(), directory: true }.check(&attr)?;
    }
    let link = crate::connect::link()?;
    // By paths that the server takes, as what is open is found again by them.
    let (from, to) = &on_both(from, to, |from, to| {
        link.tree.rename(crate::connect::caller(), &from.path, &to.path, flags)?;
        Ok((from.clone(), to.clone()))
    })?;
    let mut renamed = vec![Renamed::new(from, to)];
    if flags & libc::RENAME_EXCHANGE != 0 {
        renamed.push(Renamed::new(to, from));
    }
    // What was renamed, or is below that, has another path now. The rename is done: a path that there is no room for stays as it was.
    let new_path = |old: &[u8]| renamed.iter().find_map(|renamed| renamed.path_of(&TreePath::new(old).path));
    let set_path = |page: &Page, path: PathBuf| {
        let _ = page.set_path(path.as_os_str().as_bytes());
    };
    for file in table::all() {
        if let Some(path) = file.page.path().ok().and_then(|old| new_path(&old)) {
            set_path(&file.page, path);
        }
    }
    // The working directory must not be held while the server is asked.
    if let Some(old) = cwd::get()
        && let Some(path) = new_path(&old)
    {
        cwd::follow(|page| {
            if page.path().is_ok_and(|path| path == old) {
                set_path(page, path);
            }
        });
    }
    Ok(0)
}

/// A name that is another one now.
struct Renamed<'a> {
    from: &'a TreePath,
    to: &'a TreePath,
    /// `from` without links on the way to it, found out when it is first needed.
    real: OnceCell<Option<TreePath>>,
}

impl<'a> Renamed<'a> {
    fn new(from: &'a TreePath, to: &'a TreePath) -> Renamed<'a> {
        Renamed { from, to, real: OnceCell::new() }
    }

    /// What a path is now, if the rename was of it, or of something that it leads through.
    fn path_of(&self, old: &Path) -> Option<PathBuf> {
        let is_renamed = |above: &&Path| *above == self.from.path || self.is_same(above);
        let above = old.ancestors().find(is_renamed)?;
        let rest = old.strip_prefix(above).ok()?;
        Some(if rest.as_os_str().is_empty() { self.to.path.clone() } else { self.to.path.join(rest) })
    }

    /// Whether another path leads to the name, through links. Asks the server only where the last name is the same.
    fn is_same(&self, other: &Path) -> bool {
        let without_links = |path: &TreePath| {
            let found = paths::without_links(path).ok()?;
            Some(TreePath { directory: false, ..found })
        };
        if other.file_name().is_none() || other.file_name() != self.from.path.file_name() {
            return false;
        }
        let real = self.real.get_or_init(|| without_links(self.from));
        real.is_some() && *real == without_links(&TreePath { path: other.into(), directory: false })
    }
}

fn link_to(from: &TreePath, to: &TreePath, follow: bool) -> Result<c_int> {
    let from = if follow { paths::follow(from)?.0 } else { from.clone() };
    let link = crate::connect::link()?;
    on_both(&from, to, |from, to| {
        Ok(link.tree.link(crate::connect::caller(), &from.path, &to.path).map(drop)?)
    })?;
    Ok(0)
}

fn make_link(target: Text, path: &TreePath) -> Result<c_int> {
    let target = TreePath::new(target.bytes()?);
    if target.bytes().is_empty() {
        return Err(Errno::NOENT.into());
    }
    paths::on_tree(path, |tree, caller, path| tree.symlink(caller, &target.path, path))?;
    Ok(0)
}

fn read_link(path: &TreePath, memory: Memory, room: size_t) -> Result<ssize_t> {
    if room == 0 {
        return Err(Errno::INVAL.into());
    }
    let target = paths::on_tree(path, |tree, caller, path| tree.read_link(caller, path))?;
    Ok(memory.fill(room, &target)? as ssize_t)
}

/// What a path such as `/proc/self/fd/3` says, if that is one of ours.
fn read_descriptor(path: Text, memory: Memory, room: size_t) -> Option<ssize_t> {
    let file = paths::descriptor_of(path.get()?.to_bytes()).and_then(table::find)?;
    Some(answer(|| Ok(memory.fill(room, &file.path()?.absolute())? as ssize_t)))
}

/// An operation on two paths: both must be ours, or neither.
fn on_two(
    (from_dir, from): (c_int, Text),
    (to_dir, to): (c_int, Text),
    real: impl Fn(Text, Text) -> c_int,
    ours: impl FnOnce(&TreePath, &TreePath) -> Result<c_int>,
) -> c_int {
    let places = guarded(|| Ok((paths::place(from_dir, from)?, paths::place(to_dir, to)?)));
    match places {
        Ok((Place::Ours(from), Place::Ours(to))) => answer(|| ours(&from, &to)),
        Ok((Place::Ours(_), _) | (_, Place::Ours(_))) => answer(|| Err(Errno::XDEV.into())),
        Ok((Place::Theirs, Place::Theirs)) => real(from, to),
        Ok((Place::Elsewhere(from), Place::Theirs)) => real(Text::of(&from), to),
        Ok((Place::Theirs, Place::Elsewhere(to))) => real(from, Text::of(&to)),
        Ok((Place::Elsewhere(from), Place::Elsewhere(to))) => real(Text::of(&from), Text::of(&to)),
        Err(failed) => fail_as(-1, Err(errno_of(&failed).into())),
    }
}

/// The absolute path without links, in memory given or new.
fn resolve(path: &TreePath, memory: Memory) -> Result<*mut c_char> {
    let links_gone = paths::without_links(path)?;
    let (found, _) = paths::follow(&links_gone)?;
    // The link at the end may have led through others.
    let mut whole = paths::without_links(&found)?.absolute();
    whole.push(0);
    if memory.is_null() {
        return cwd::copy_of(&whole, 0);
    }
    memory.fill(libc::PATH_MAX as usize, &whole)?;
    Ok(memory.pointer().cast())
}

const HERE: c_int = libc::AT_FDCWD;

interpose! {
    fn mkdir[real](path: Text, mode: mode_t) -> c_int {
        on_path!(HERE, path, |path| real(path, mode), |path: TreePath| make_dir(&path, mode))
    }

    fn mkdirat[real](dir: c_int, path: Text, mode: mode_t) -> c_int {
        on_path!(dir, path, |path| real(dir, path, mode), |path: TreePath| make_dir(&path, mode))
    }

    fn mknod[real](path: Text, mode: mode_t, device: dev_t) -> c_int {
        on_path!(HERE, path, |path| real(path, mode, device), |path: TreePath| make_node(&path, mode, device))
    }

    fn mknodat[real](dir: c_int, path: Text, mode: mode_t, device: dev_t) -> c_int {
        on_path!(dir, path, |path| real(dir, path, mode, device), |path: TreePath| {
            make_node(&path, mode, device)
        })
    }

    fn __xmknod[real](version: c_int, path: Text, mode: mode_t, device: In<dev_t>) -> c_int {
        on_path!(HERE, path, |path| real(version, path, mode, device), |path: TreePath| {
            make_node(&path, mode, device.get().unwrap_or(0))
        })
    }

    fn mkfifo[real](path: Text, mode: mode_t) -> c_int {
        on_path!(HERE, path, |path| real(path, mode), |path: TreePath| {
            make_node(&path, libc::S_IFIFO | mode & 0o7777, 0)
        })
    }

    fn mkfifoat[real](dir: c_int, path: Text, mode: mode_t) -> c_int {
        on_path!(dir, path, |path| real(dir, path, mode), |path: TreePath| {
            make_node(&path, libc::S_IFIFO | mode & 0o7777, 0)
        })
    }

    fn rmdir[real](path: Text) -> c_int {
        on_path!(HERE, path, real, |path: TreePath| unlink_at(&path, true))
    }

    fn unlink[real](path: Text) -> c_int {
        on_path!(HERE, path, real, |path: TreePath| unlink_at(&path, false))
    }

    fn unlinkat[real](dir: c_int, path: Text, flags: c_int) -> c_int {
        on_path!(dir, path, |path| real(dir, path, flags), |path: TreePath| {
            unlink_at(&path, flags & libc::AT_REMOVEDIR != 0)
        })
    }

    fn remove[real](path: Text) -> c_int {
        on_path!(HERE, path, real, |path: TreePath| remove_either(&path))
    }

    fn rename[real](from: Text, to: Text) -> c_int {
        on_two((HERE, from), (HERE, to), real, |from, to| rename_to(from, to, 0))
    }

    fn renameat[real](from_dir: c_int, from: Text, to_dir: c_int, to: Text) -> c_int {
        let real = |from, to| real(from_dir, from, to_dir, to);
        on_two((from_dir, from), (to_dir, to), real, |from, to| rename_to(from, to, 0))
    }

    fn renameat2[real](from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_uint) -> c_int {
        let real = |from, to| real(from_dir, from, to_dir, to, flags);
        on_two((from_dir, from), (to_dir, to), real, |from, to| rename_to(from, to, flags))
    }

    fn link[real](from: Text, to: Text) -> c_int {
        on_two((HERE, from), (HERE, to), real, |from, to| link_to(from, to, false))
    }

    fn linkat[real](from_dir: c_int, from: Text, to_dir: c_int, to: Text, flags: c_int) -> c_int {
        if flags & libc::AT_EMPTY_PATH != 0 && table::is_special(from_dir) {
            return answer(|| Err(Errno::OPNOTSUPP.into()));
        }
        let real = |from, to| real(from_dir, from, to_dir, to, flags);
        let follow = flags & libc::AT_SYMLINK_FOLLOW != 0;
        on_two((from_dir, from), (to_dir, to), real, |from, to| link_to(from, to, follow))
    }

    fn symlink[real](target: Text, path: Text) -> c_int {
        on_path!(HERE, path, |path| real(target, path), |path: TreePath| make_link(target, &path))
    }

    fn symlinkat[real](target: Text, dir: c_int, path: Text) -> c_int {
        on_path!(dir, path, |path| real(target, dir, path), |path: TreePath| make_link(target, &path))
    }

    fn readlink[real](path: Text, memory: Memory, room: size_t) -> ssize_t {
        if let Some(bytes) = read_descriptor(path, memory, room) {
            return bytes;
        }
        on_path!(HERE, path, |path| real(path, memory, room), |path: TreePath| {
            read_link(&path, memory, room)
        })
    }

    fn __readlink_chk[real](path: Text, memory: Memory, room: size_t, whole: size_t) -> ssize_t {
        on_path!(HERE, path, |path| real(path, memory, room, whole), |path: TreePath| {
            read_link(&path, memory, room)
        })
    }

    fn readlinkat[real](dir: c_int, path: Text, memory: Memory, room: size_t) -> ssize_t {
        if let Some(bytes) = read_descriptor(path, memory, room) {
            return bytes;
        }
        on_path!(dir, path, |path| real(dir, path, memory, room), |path: TreePath| {
            read_link(&path, memory, room)
        })
    }

    fn __readlinkat_chk[real](dir: c_int, path: Text, memory: Memory, room: size_t, whole: size_t) -> ssize_t {
        on_path!(dir, path, |path| real(dir, path, memory, room, whole), |path: TreePath| {
            read_link(&path, memory, room)
        })
    }

    fn realpath[real](path: Text, memory: Memory) -> *mut c_char {
        on_path!(HERE, path, |path| real(path, memory), |path: TreePath| resolve(&path, memory))
    }

    fn __realpath_chk[real](path: Text, memory: Memory, room: size_t) -> *mut c_char {
        on_path!(HERE, path, |path| real(path, memory, room), |path: TreePath| resolve(&path, memory))
    }

    fn canonicalize_file_name[real](path: Text) -> *mut c_char {
        on_path!(HERE, path, real, |path: TreePath| resolve(&path, Memory::NULL))
    }
}
