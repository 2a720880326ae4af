//! Which files count as bulk output: globs of names, and of whole paths.
//!
//! A pattern without a slash is for the last component of the path that a program gives. One with a slash is for the
//! whole path as the kernel knows it, without symbolic links; the directories that it begins with are resolved once. To
//! ask the kernel for a path takes longer than most files deserve, so it is asked only for files on the devices where a
//! pattern's files can be.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use iogate_engine::layouts::mounts::Mount;
use rustix::fs::{Mode, OFlags, Stat};

const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// The patterns of `IOGATE_FILES`.
pub(crate) struct Patterns {
    names: Vec<(usize, Pattern)>,
    trees: Vec<Tree>,
    /// Where files of trees can be.
    devices: Vec<u64>,
}

/// A pattern of whole paths.
struct Tree {
    index: usize,
    /// The directories that it begins with, as they were written and as they are.
    written: PathBuf,
    root: PathBuf,
    /// What comes after; `None` is everything.
    rest: Option<Pattern>,
}

impl Patterns {
    /// Reads patterns. Tells `complain` of those that are none; `None` if no other is left.
    pub(crate) fn parse(texts: &[String], complain: impl Fn(String)) -> Option<Patterns> {
        let mut patterns = Patterns { names: Vec::new(), trees: Vec::new(), devices: Vec::new() };
        for (index, text) in texts.iter().enumerate() {
            let read = if text.contains('/') {
                Tree::parse(index, text).map(|tree| patterns.trees.push(tree))
            } else {
                Pattern::new(text)
                    .map(|pattern| patterns.names.push((index, pattern)))
                    .map_err(|error| error.to_string())
            };
            if let Err(error) = read {
                complain(format!("`{text}` is left out: {error}"));
            }
        }
        if !patterns.trees.is_empty() {
            patterns.devices = devices_of(&patterns.trees, &mounts());
        }
        (!patterns.names.is_empty() || !patterns.trees.is_empty()).then_some(patterns)
    }

    /// Which pattern an open file fits, by its number, and by the path that it was opened with; without one, by its own.
    pub(crate) fn find(&self, fd: BorrowedFd<'_>, path: Option<&[u8]>, stat: &Stat) -> Option<usize> {
        let own =
            || rustix::fs::readlinkat(rustix::fs::CWD, crate::page::link_of(fd.as_raw_fd()), Vec::new()).ok();
        let mut resolved = None;
        if !self.names.is_empty() {
            let whole = match path {
                Some(path) => path,
                None => resolved.insert(own()?).to_bytes(),
            };
            let name = String::from_utf8_lossy(whole.rsplit(|byte| *byte == b'/').next().unwrap_or_default());
            let found = self.names.iter().find(|(_, pattern)| pattern.matches_with(&name, OPTIONS));
            if let Some((index, _)) = found {
                return Some(*index);
            }
        }
        let may_fit = self.devices.contains(&stat.st_dev)
            || path.is_some_and(|path| self.trees.iter().any(|tree| tree.seems_to_have(path)));
        if !may_fit {
            return None;
        }
        let resolved = match resolved {
            Some(resolved) => resolved,
            None => own()?,
        };
        let resolved = Path::new(OsStr::from_bytes(resolved.to_bytes()));
        self.trees.iter().find(|tree| tree.has(resolved)).map(|tree| tree.index)
    }
}

impl Tree {
    fn parse(index: usize, text: &str) -> Result<Tree, String> {
        if !text.starts_with('/') && !text.starts_with("**/") {
            return Err("expected a name without a slash, or a path that begins with / or **/".into());
        }
        let mut written = PathBuf::from("/");
        let mut names = text.split('/').filter(|name| !name.is_empty()).peekable();
        while let Some(name) = names.next_if(|name| !name.contains(['*', '?', '['])) {
            if names.peek().is_none() {
                let rest = Some(Pattern::new(name).map_err(|error| error.to_string())?);
                return Ok(Tree { index, root: resolved(&written), written, rest });
            }
            written.push(name);
        }
        let rest = names.collect::<Vec<_>>().join("/");
        let pattern = Pattern::new(&rest).map_err(|error| error.to_string())?;
        Ok(Tree { index, root: resolved(&written), written, rest: (rest != "**").then_some(pattern) })
    }

    fn seems_to_have(&self, path: &[u8]) -> bool {
        path.starts_with(self.written.as_os_str().as_bytes())
    }

    fn has(&self, path: &Path) -> bool {
        match (path.strip_prefix(&self.root), &self.rest) {
            (Err(_), _) => false,
            (Ok(_), None) => true,
            (Ok(rest), Some(pattern)) => pattern.matches_with(&rest.to_string_lossy(), OPTIONS),
        }
    }
}

/// A path without the symbolic links in what there is of it.
fn resolved(path: &Path) -> PathBuf {
    for above in path.ancestors() {
        if let (Ok(found), Ok(rest)) = (above.canonicalize(), path.strip_prefix(above)) {
            return found.join(rest);
        }
    }
    path.to_owned()
}

/// What is mounted. Not by `std::fs`, whose calls come back to this library.
fn mounts() -> Vec<Mount> {
    let list = rustix::fs::open("/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let mut text = Vec::new();
    if let Ok(list) = list {
        let _ = std::io::Read::read_to_end(&mut std::fs::File::from(list), &mut text);
    }
    Mount::parse_all(&text)
}

/// The devices of the trees' roots, and of what is mounted below them.
fn devices_of(trees: &[Tree], mounts: &[Mount]) -> Vec<u64> {
    let mut devices = Vec::new();
    let mut add = |path: &Path| {
        let known = path.ancestors().find_map(|path| rustix::fs::stat(path).ok());
        devices.extend(known.map(|stat| stat.st_dev));
    };
    for tree in trees {
        add(&tree.root);
    }
    for Mount { point, .. } in mounts {
        if trees.iter().any(|tree| point.starts_with(&tree.root) && *point != tree.root) {
            add(point);
        }
    }
    devices.sort_unstable();
    devices.dedup();
    devices
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    fn find(patterns: &str, given: &Path) -> Option<usize> {
        let patterns: Vec<String> = patterns.split(':').map(str::to_owned).collect();
        let patterns = Patterns::parse(&patterns, |error| panic!("{error}")).unwrap();
        let file = File::create(given).unwrap();
        let stat = rustix::fs::fstat(&file).unwrap();
        let found = patterns.find(file.as_fd(), Some(given.as_os_str().as_bytes()), &stat);
        // A descriptor that a program was started with has no path but its own.
        let link = std::fs::symlink_metadata(given).unwrap().is_symlink();
        assert!(link || patterns.find(file.as_fd(), None, &stat) == found);
        found
    }

    #[test]
    fn names_and_paths_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        let at = |name: &str| dir.join(name);
        assert_eq!(find("*.log:ckpt*", &at("a/ckpt.1")), Some(1));
        assert_eq!(find("ckpt*", &at("a/other")), None);
        let everything = format!("{}/a/**", dir.display());
        assert_eq!(find(&everything, &at("a/b/c")), Some(0));
        assert_eq!(find(&everything, &at("ab")), None);
        let one_level = format!("*.x:{}/*/ckpt-?", dir.display());
        assert_eq!(find(&one_level, &at("a/ckpt-1")), Some(1));
        assert_eq!(find(&one_level, &at("a/b/ckpt-1")), None);
        assert_eq!(find("**/b/*.h5", &at("a/b/c.h5")), Some(0));
        let exactly = format!("{}/a/file", dir.display());
        assert_eq!(find(&exactly, &at("a/file")), Some(0));
        assert_eq!(find(&exactly, &at("a/files")), None);
    }

    #[test]
    fn links_on_either_side_are_followed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        std::fs::create_dir(dir.join("real")).unwrap();
        std::os::unix::fs::symlink(dir.join("real"), dir.join("link")).unwrap();
        for pattern in ["real", "link"] {
            let pattern = format!("{}/{pattern}/**", dir.display());
            for given in ["real", "link"] {
                assert_eq!(find(&pattern, &dir.join(given).join("file")), Some(0), "{pattern} {given}");
            }
        }
    }

    #[test]
    fn what_is_mounted_below_a_tree_counts_whatever_it_is_called() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("a b");
        std::os::unix::fs::symlink("/proc", &at).unwrap();
        let line = format!("9 1 0:5 / {}/a\\040b rw - proc proc rw\n", dir.path().display());
        let tree = Tree::parse(0, &format!("{}/**", dir.path().display())).unwrap();
        let devices = devices_of(&[tree], &Mount::parse_all(line.as_bytes()));
        let device = |path: &Path| rustix::fs::stat(path).unwrap().st_dev;
        assert!(devices.contains(&device(&at)) && devices.contains(&device(dir.path())), "{devices:?}");
    }

    #[test]
    fn what_is_no_pattern_is_left_out_aloud() {
        let said = std::cell::RefCell::new(Vec::new());
        let parse = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            Patterns::parse(&texts, |error| said.borrow_mut().push(error)).is_some()
        };
        assert!(parse(&["[a", "ckpt"]));
        assert!(!parse(&["a/b"]));
        assert!(!parse(&[]));
        let said = said.into_inner();
        assert!(
            said.len() == 2 && said[0].contains("`[a`") && said[1].contains("a path that begins"),
            "{said:?}"
        );
    }
}
