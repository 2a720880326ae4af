//! The folder of what is kept: small files, each written whole or not at all, and no more of them than are of use.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use iogate_sim::learnt::BYTES_MAX;
use rustix::fs::{
    Access, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, accessat, flock, fstat, fsync, open,
    openat, renameat, statat, unlinkat,
};

/// The most files: a machine has some tens of file systems at most. The oldest go.
const FILES_MAX: usize = 64;
/// How old a file is in seconds that was begun and not completed, when nobody completes it any more.
const STALE_S: i64 = 3_600;
const ENDING: &str = ".toml";
/// How often one tries to be the only one who writes: a writer takes milliseconds, unless it is stopped in the middle.
const TRIES: u32 = 50;
const PAUSE: Duration = Duration::from_millis(10);

/// An open folder. What is mounted over it later does not come in between.
#[derive(Debug)]
pub(super) struct Folder {
    dir: OwnedFd,
    path: PathBuf,
}

/// Nobody else writes as long as it is there, but one who does not ask.
pub(super) struct Alone<'a>(&'a Folder);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        let _ = flock(&self.0.dir, FlockOperation::Unlock);
    }
}

impl Folder {
    /// One that can be written, made if it is not there; only its user may enter it.
    pub(super) fn make(path: &Path) -> io::Result<Folder> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let folder = Folder::open(path)?;
        accessat(&folder.dir, c".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
        Ok(folder)
    }

    /// One that is there.
    pub(super) fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        Ok(Folder { dir: open(path, flags, Mode::empty())?, path: path.to_owned() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// To be the only one who writes, if that can be had soon.
    pub(super) fn alone(&self) -> Option<Alone<'_>> {
        for _ in 0..TRIES {
            match flock(&self.dir, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Some(Alone(self)),
                Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(PAUSE),
                // Not every file system has locks.
                Err(_) => return None,
            }
        }
        None
    }

    /// The text under a name; none if there is none.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<String>> {
        // A pipe would be waited for, and a link lead anywhere.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.dir, file(name), flags, Mode::empty()) {
            Ok(file) => file,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if FileType::from_raw_mode(fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
        }
        let mut text = String::new();
        // One more, so that it shows that it is too large.
        File::from(file).take(BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// Puts a text under a name, whole or not at all, and lets the oldest go if there are too many.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        let beside = format!(".{}.{}", file(name), std::process::id());
        let _ = unlinkat(&self.dir, &beside, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let put = || -> io::Result<()> {
            let mut out = File::from(openat(&self.dir, &beside, flags, Mode::RUSR | Mode::WUSR)?);
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            renameat(&self.dir, &beside, &self.dir, file(name))?;
            Ok(fsync(&self.dir)?)
        };
        if let Err(error) = put() {
            let _ = unlinkat(&self.dir, &beside, AtFlags::empty());
            return Err(error);
        }
        self.prune()
    }

    /// Removes what is under a name; whether there was something.
    pub(super) fn remove(&self, name: &str) -> io::Result<bool> {
        match unlinkat(&self.dir, file(name), AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The names that have a text, the one that was written last first.
    pub(super) fn names(&self) -> io::Result<Vec<String>> {
        let mut found = self.files()?;
        found.retain(|(_, name)| !name.starts_with('.'));
        found.sort_by(|one, other| other.cmp(one));
        Ok(found.into_iter().filter_map(|(_, name)| Some(name.strip_suffix(ENDING)?.to_owned())).collect())
    }

    /// All files, with the times at which they were written, in seconds.
    fn files(&self) -> io::Result<Vec<(i64, String)>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if let Ok(stat) = statat(&self.dir, name, AtFlags::SYMLINK_NOFOLLOW)
                && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
            {
                found.push((stat.st_mtime, name.to_owned()));
            }
        }
        Ok(found)
    }

    fn prune(&self) -> io::Result<()> {
        for name in self.names()?.iter().skip(FILES_MAX) {
            self.remove(name)?;
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        for (written, name) in self.files()? {
            if name.starts_with('.') && name.contains(ENDING) && written + STALE_S < now {
                let _ = unlinkat(&self.dir, &name, AtFlags::empty());
            }
        }
        Ok(())
    }
}

fn file(name: &str) -> String {
    format!("{name}{ENDING}")
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_text_is_there_whole_and_links_and_pipes_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("a/b");
        let folder = Folder::make(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(folder.read("x").unwrap(), None);
        folder.write("x", "one").unwrap();
        folder.write("x", "two").unwrap();
        assert_eq!(folder.read("x").unwrap().as_deref(), Some("two"));
        assert_eq!(fs::metadata(path.join("x.toml")).unwrap().permissions().mode() & 0o777, 0o600);
        symlink(path.join("x.toml"), path.join("link.toml")).unwrap();
        assert!(folder.read("link").is_err());
        fs::create_dir(path.join("dir.toml")).unwrap();
        assert!(folder.read("dir").unwrap_err().to_string().contains("no regular file"));
        fs::write(path.join("large.toml"), vec![b'x'; 4 * BYTES_MAX]).unwrap();
        assert_eq!(folder.read("large").unwrap().unwrap().len(), BYTES_MAX + 1);
        // What is there in place of a file is replaced, unless it is a folder, and then nothing is left.
        folder.write("link", "three").unwrap();
        assert_eq!(folder.read("x").unwrap().as_deref(), Some("two"));
        assert!(folder.write("dir", "four").is_err());
        let left: Vec<_> = fs::read_dir(&path).unwrap().map(|of| of.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| !name.to_str().unwrap().starts_with('.')), "{left:?}");
        let mut names = folder.names().unwrap();
        names.sort_unstable();
        assert_eq!(names, ["large", "link", "x"]);
        assert_eq!((folder.remove("x").unwrap(), folder.remove("x").unwrap()), (true, false));
    }

    #[test]
    fn the_oldest_go() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::make(place.path()).unwrap();
        let old = |name: &str, seconds: u64| {
            let file = File::create(place.path().join(name)).unwrap();
            file.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
        };
        (0..FILES_MAX as u64 + 6).for_each(|index| old(&format!("{index}.toml"), 1_000 + index));
        old(".x.toml.17", 7_200);
        old(".y.toml.17", 60);
        old("other", 9_000);
        folder.write("new", "text").unwrap();
        let names = folder.names().unwrap();
        assert_eq!((names.len(), names[0].as_str(), names[1].as_str()), (FILES_MAX, "new", "0"));
        assert!(!names.contains(&FILES_MAX.to_string()));
        let is_there = |name: &str| place.path().join(name).exists();
        assert_eq!([".x.toml.17", ".y.toml.17", "other"].map(is_there), [false, true, true]);
    }

    #[test]
    fn one_writes_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let (one, other) = (Folder::make(place.path()).unwrap(), Folder::make(place.path()).unwrap());
        let alone = one.alone();
        assert!(alone.is_some() && other.alone().is_none());
        drop(alone);
        assert!(other.alone().is_some());
    }
}
