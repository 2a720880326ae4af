//! Which path is ours, and what it is called in the tree.

use std::ffi::{CStr, CString, OsStr, c_int};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use iogate_core::wire::{Attr, PATH_BYTES_MAX};
use iogate_vfs::{Caller, Tree};
use rustix::io::Errno;

use crate::abi::Text;
use crate::connect;
use crate::cwd;
use crate::failed::{Failed, Result};
use crate::settings;
use crate::table;

/// Symbolic links that are followed for one path, as in Linux.
const LINKS_MAX: usize = 40;

/// A path in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreePath {
    /// From the tree's root, without `.`, `..` and `//`.
    pub(crate) path: PathBuf,
    /// It ended with a slash, so it must be a directory.
    pub(crate) directory: bool,
}

/// Whose a path is.
pub(crate) enum Place {
    /// The C library's, as it is.
    Theirs,
    /// The C library's, as this absolute path.
    Elsewhere(CString),
    /// The tree's.
    Ours(TreePath),
}

impl TreePath {
    pub(crate) fn new(path: &[u8]) -> TreePath {
        TreePath { path: PathBuf::from(OsStr::from_bytes(path)), directory: false }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.path.as_os_str().as_bytes()
    }

    /// Under the prefix.
    pub(crate) fn absolute(&self) -> Vec<u8> {
        let mut whole = settings::get().map(|settings| settings.prefix.clone()).unwrap_or_default();
        if !self.bytes().is_empty() {
            whole.push(b'/');
            whole.extend_from_slice(self.bytes());
        }
        whole
    }

    /// Makes sure that what ended with a slash is a directory.
    pub(crate) fn check(&self, attr: &Attr) -> Result<()> {
        let is_directory = attr.mode & libc::S_IFMT == libc::S_IFDIR;
        if self.directory && !is_directory { Err(Errno::NOTDIR.into()) } else { Ok(()) }
    }
}

/// Whose a path is that a program has given with a directory's descriptor, or `AT_FDCWD`.
#[inline]
pub(crate) fn place(dir: c_int, text: Text) -> Result<Place> {
    if !settings::is_active() {
        return Ok(Place::Theirs);
    }
    match text.get() {
        Some(path) => find_place(dir, path),
        None => Ok(Place::Theirs),
    }
}

fn find_place(dir: c_int, path: &CStr) -> Result<Place> {
    let path = path.to_bytes();
    let Some(settings) = settings::get() else { return Ok(Place::Theirs) };
    if path.first() == Some(&b'/') {
        if let Some(rest) = below(&settings.prefix, path) {
            return join(b"", rest);
        }
        if has_dots(path) {
            let clean = normal(path);
            if let Some(rest) = below(&settings.prefix, &clean) {
                return join(b"", rest);
            }
        }
        return match descriptor_of(path).and_then(table::find) {
            Some(description) => Ok(Place::Ours(description.path()?)),
            None => Ok(Place::Theirs),
        };
    }
    let base = match dir {
        libc::AT_FDCWD => cwd::get(),
        dir => table::find(dir).map(|description| description.page.path()).transpose()?,
    };
    match base {
        Some(_) if path.is_empty() => Err(Errno::NOENT.into()),
        Some(base) => join(&base, path),
        None => match from_outside(&settings.prefix, dir, path) {
            Some(rest) => join(b"", &rest),
            None => Ok(Place::Theirs),
        },
    }
}

/// What is below the prefix of a path that starts in one of the kernel's directories. Only one that has the prefix's last
/// name in it can lead there, which is found out quickly.
fn from_outside(prefix: &[u8], dir: c_int, path: &[u8]) -> Option<Vec<u8>> {
    let name = prefix.rsplit(|byte| *byte == b'/').next()?;
    if !path.windows(name.len()).any(|part| part == name) {
        return None;
    }
    let mut whole = match dir {
        libc::AT_FDCWD => rustix::process::getcwd(Vec::new()),
        dir => rustix::fs::readlinkat(rustix::fs::CWD, crate::page::link_of(dir), Vec::new()),
    }
    .ok()?
    .into_bytes();
    whole.push(b'/');
    whole.extend_from_slice(path);
    let is_directory = path.ends_with(b"/") || path.ends_with(b"/.");
    let mut rest = below(prefix, &normal(&whole))?.to_vec();
    if is_directory {
        rest.push(b'/');
    }
    Some(rest)
}

/// What of a path is below a directory.
fn below<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(directory)?;
    (rest.is_empty() || rest[0] == b'/').then_some(rest)
}

fn has_dots(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"//" || pair == b"/.")
}

/// An absolute path without `.`, `..` and `//`, by its words alone.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut names: Vec<&[u8]> = Vec::new();
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    let mut whole = Vec::with_capacity(path.len());
    for name in names {
        whole.push(b'/');
        whole.extend_from_slice(name);
    }
    if whole.is_empty() {
        whole.push(b'/');
    }
    whole
}

/// The descriptor that a path such as `/dev/stdin` and `/proc/self/fd/3` means.
pub(crate) fn descriptor_of(path: &[u8]) -> Option<c_int> {
    match path {
        b"/dev/stdin" => Some(0),
        b"/dev/stdout" => Some(1),
        b"/dev/stderr" => Some(2),
        path => {
            let number = path.strip_prefix(b"/dev/fd/").or_else(|| path.strip_prefix(b"/proc/self/fd/"))?;
            std::str::from_utf8(number).ok()?.parse().ok()
        }
    }
}

/// A path that starts in a directory of the tree.
fn join(base: &[u8], rest: &[u8]) -> Result<Place> {
    if rest.len() >= PATH_BYTES_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    let mut path = PathBuf::from(OsStr::from_bytes(base));
    let mut names = rest.split(|byte| *byte == b'/').peekable();
    let mut directory = false;
    while let Some(name) = names.next() {
        match name {
            b"" | b"." => directory |= names.peek().is_none(),
            b".." => {
                directory |= names.peek().is_none();
                path = real_directory(path)?;
                if !path.pop() {
                    // Out of the prefix; and perhaps into it again.
                    let above: Vec<u8> = names.collect::<Vec<_>>().join(&b'/');
                    return outside(&above);
                }
            }
            name if name.len() > 255 => return Err(Errno::NAMETOOLONG.into()),
            name => path.push(OsStr::from_bytes(name)),
        }
    }
    let directory = directory && !path.as_os_str().is_empty();
    Ok(Place::Ours(TreePath { path, directory }))
}

/// A path that starts above the prefix.
fn outside(rest: &[u8]) -> Result<Place> {
    let prefix = settings::get().map_or(&b"/"[..], |settings| &settings.prefix);
    let mut whole = prefix.to_vec();
    whole.extend_from_slice(b"/../");
    whole.extend_from_slice(rest);
    let mut clean = normal(&whole);
    if let Some(rest) = below(prefix, &clean) {
        return join(b"", rest);
    }
    if rest.ends_with(b"/") && clean.len() > 1 {
        clean.push(b'/');
    }
    Ok(Place::Elsewhere(CString::new(clean).map_err(|_| Errno::INVAL)?))
}

/// What a path in front of `..` really is.
fn real_directory(path: PathBuf) -> Result<PathBuf> {
    if path.as_os_str().is_empty() {
        return Ok(path);
    }
    let (found, attr) = follow(&TreePath { path, directory: false })?;
    TreePath { path: PathBuf::new(), directory: true }.check(&attr)?;
    Ok(found.path)
}

/// Follows symbolic links at the end of a path. Fails with [`Failed::Elsewhere`] if they lead out of the tree.
pub(crate) fn follow(path: &TreePath) -> Result<(TreePath, Attr)> {
    let mut found = path.clone();
    for _ in 0..LINKS_MAX {
        let attr = on_tree(&found, |tree, caller, path| tree.attr(caller, path))?;
        if attr.mode & libc::S_IFMT != libc::S_IFLNK {
            path.check(&attr)?;
            return Ok((found, attr));
        }
        let target = on_tree(&found, |tree, caller, path| tree.read_link(caller, path))?;
        found = next(&found.path, &target)?;
    }
    Err(Errno::LOOP.into())
}

/// What the symbolic link at a path names, whether that is there or not; the path itself if it is no link.
pub(crate) fn target_of(path: &TreePath) -> Result<TreePath> {
    match on_tree(path, |tree, caller, path| tree.read_link(caller, path)) {
        Ok(target) => next(&path.path, &target),
        Err(Failed::With(Errno::INVAL | Errno::NOENT)) => Ok(path.clone()),
        Err(failed) => Err(failed),
    }
}

/// Where a symbolic link at a path leads.
fn next(link: &Path, target: &[u8]) -> Result<TreePath> {
    let prefix = settings::get().map_or(&b"/"[..], |settings| &settings.prefix);
    let place = if target.starts_with(b"/") {
        match below(prefix, target) {
            Some(rest) => join(b"", rest)?,
            None => Place::Elsewhere(CString::new(target).map_err(|_| Errno::INVAL)?),
        }
    } else {
        join(link.parent().unwrap_or(Path::new("")).as_os_str().as_bytes(), target)?
    };
    match place {
        Place::Ours(path) => Ok(path),
        Place::Elsewhere(path) => Err(Failed::Elsewhere(path)),
        Place::Theirs => Err(Errno::NOENT.into()),
    }
}

/// A path without symbolic links on the way to its last name.
pub(crate) fn without_links(path: &TreePath) -> Result<TreePath> {
    let mut names: Vec<Vec<u8>> = path.path.iter().rev().map(|name| name.to_os_string().into_vec()).collect();
    let mut found = PathBuf::new();
    let mut links = 0;
    while let Some(name) = names.pop() {
        found.push(OsStr::from_bytes(&name));
        if names.is_empty() {
            break;
        }
        let link = connect::link()?;
        let attr = link.tree.attr(connect::caller(), &found)?;
        if attr.mode & libc::S_IFMT != libc::S_IFLNK {
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(Errno::LOOP.into());
        }
        let target = link.tree.read_link(connect::caller(), &found)?;
        match next(&found, &target) {
            Ok(place) => {
                names.extend(place.path.iter().rev().map(|name| name.to_os_string().into_vec()));
                found = PathBuf::new();
            }
            Err(Failed::Elsewhere(path)) => {
                let mut whole = path.into_bytes();
                for name in names.iter().rev() {
                    whole.push(b'/');
                    whole.extend_from_slice(name);
                }
                return Err(Failed::Elsewhere(CString::new(whole).map_err(|_| Errno::INVAL)?));
            }
            Err(failed) => return Err(failed),
        }
    }
    Ok(TreePath { path: found, directory: path.directory })
}

/// Whether an error may mean that a symbolic link leads out of the tree, as the server sees it. What such a link means, we
/// know better: it may be written with our prefix.
pub(crate) fn may_be_a_link_out(errno: Errno) -> bool {
    matches!(errno, Errno::XDEV | Errno::ACCESS)
}

/// Carries out an operation on a path; with links that lead out of the tree followed here.
pub(crate) fn on_tree<T>(
    path: &TreePath,
    mut operation: impl FnMut(&dyn Tree, Caller, &Path) -> io::Result<T>,
) -> Result<T> {
    let link = connect::link()?;
    match operation(&*link.tree, connect::caller(), &path.path) {
        Err(error) if Errno::from_io_error(&error).is_some_and(may_be_a_link_out) => {
            let found = without_links(path)?;
            if found == *path {
                return Err(error.into());
            }
            Ok(operation(&*link.tree, connect::caller(), &found.path)?)
        }
        result => Ok(result?),
    }
}

/// Gives a path to the C library or to us, whosever it is.
macro_rules! on_path {
    ($dir:expr, $path:expr, $real:expr, $ours:expr) => {
        on_path!(crate::failed::Returned::FAILED, $dir, $path, $real, $ours)
    };
    ($failure:expr, $dir:expr, $path:expr, $real:expr, $ours:expr) => {{
        let failure = $failure;
        let real = $real;
        match crate::failed::guarded(|| crate::paths::place($dir, $path)) {
            Ok(crate::paths::Place::Theirs) => real($path),
            Ok(crate::paths::Place::Elsewhere(path)) => real(crate::abi::Text::of(&path)),
            Ok(crate::paths::Place::Ours(path)) => match crate::failed::guarded(|| $ours(path)) {
                Err(crate::failed::Failed::Elsewhere(path)) => real(crate::abi::Text::of(&path)),
                result => crate::failed::fail_as(failure, result),
            },
            Err(crate::failed::Failed::Elsewhere(path)) => real(crate::abi::Text::of(&path)),
            Err(failed) => crate::failed::fail_as(failure, Err(failed)),
        }
    }};
}
