//! A journal in a directory of this machine, which one process has at a time.

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use iogate_core::coord::journal::{Log, LogError, Medium, VERSION};
use iogate_vfs::LockedFile;

use super::{Journal, JournalError, Loaded, Record};

/// A journal in a directory.
#[derive(Debug)]
pub struct Local(Log<Folder>);

/// The directory.
#[derive(Debug)]
struct Folder {
    dir: PathBuf,
    /// The same, open for good: making a name durable must not fail for want of descriptors.
    open: File,
    /// Locked while this lives.
    _lock: LockedFile,
    boot: String,
    /// The files that were put in their places, by their names.
    files: BTreeMap<String, File>,
}

impl Local {
    /// Takes a directory, which is made if it is not there, and which nobody else may read. Fails with [`JournalError::InUse`] if another
    /// coordinator has it.
    pub fn open(dir: &Path) -> Result<Local, JournalError> {
        Folder::open(dir).map(|folder| Local(Log::new(folder)))
    }
}

impl Journal for Local {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let loaded = self.0.load();
        self.tell();
        loaded.map_err(|error| explained(error, &self.0.medium().dir))
    }

    fn append(
        &mut self,
        records: &[Record],
        all: &mut dyn FnMut() -> Vec<Record>,
    ) -> Result<(), JournalError> {
        let appended = self.0.append(records, all);
        self.tell();
        appended.map_err(|error| explained(error, &self.0.medium().dir))
    }

    fn place(&self) -> String {
        self.0.medium().dir.display().to_string()
    }
}

impl Local {
    fn tell(&mut self) {
        for notice in self.0.notices() {
            tracing::warn!("{}: {notice}", self.0.medium().dir.display());
        }
    }
}

/// A log's error, with the file's path.
fn explained(error: LogError<JournalError>, dir: &Path) -> JournalError {
    match error {
        LogError::Medium(error) => error,
        LogError::Damaged { name, at, why } => JournalError::Damaged { path: dir.join(name), at, why },
        LogError::Version { found } => {
            JournalError::Version { path: dir.join("journal"), found, expected: VERSION }
        }
    }
}

impl Folder {
    fn open(dir: &Path) -> Result<Folder, JournalError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|source| JournalError::Io { action: "make the directory", path: dir.into(), source })?;
        let path = dir.join("lock");
        let failed = |source| JournalError::Io { action: "lock", path: path.clone(), source };
        let open =
            OpenOptions::new().create(true).truncate(false).write(true).read(true).mode(0o600).open(&path);
        let lock = LockedFile::new(open.map_err(failed)?).map_err(|error| match error {
            TryLockError::WouldBlock => {
                let owner = std::fs::read_to_string(&path).unwrap_or_default();
                JournalError::InUse { dir: dir.into(), owner: owner.trim().into() }
            }
            TryLockError::Error(error) => failed(error),
        })?;
        lock.set_len(0).and_then(|()| writeln!(&*lock, "{}", std::process::id())).map_err(failed)?;
        // Not without it: over a crash of the machine, nobody would hear that a turn may be another's.
        let boot = iogate_vfs::boot_id().map_err(|source| JournalError::Io {
            action: "read",
            path: iogate_vfs::BOOT_ID.into(),
            source,
        })?;
        Ok(Folder {
            dir: dir.into(),
            open: File::open(dir).map_err(|source| JournalError::Io {
                action: "open the directory",
                path: dir.into(),
                source,
            })?,
            _lock: lock,
            boot: boot.trim().into(),
            files: BTreeMap::new(),
        })
    }

    /// Does something with a file that was put in its place.
    fn write(&self, name: &str, act: impl FnOnce(&File) -> io::Result<()>) -> Result<(), JournalError> {
        let missing = || io::Error::new(io::ErrorKind::NotFound, "it was not put in its place");
        self.files.get(name).ok_or_else(missing).and_then(act).map_err(|source| JournalError::Io {
            action: "write",
            path: self.dir.join(name),
            source,
        })
    }
}

impl Medium for Folder {
    type Error = JournalError;

    fn boot(&self) -> &str {
        &self.boot
    }

    fn read(&mut self, name: &str) -> Result<Option<Vec<u8>>, JournalError> {
        let path = self.dir.join(name);
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(JournalError::Io { action: "read", path, source }),
        }
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> Result<Result<(), JournalError>, JournalError> {
        let (path, beside) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        let put = || {
            let file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
            file.write_all_at(bytes, 0)?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)?;
            Ok(file)
        };
        let file =
            put().map_err(|source| JournalError::Io { action: "write", path: path.clone(), source })?;
        self.files.insert(name.into(), file);
        let durable = self.open.sync_all();
        Ok(durable.map_err(|source| JournalError::Io { action: "sync", path: self.dir.clone(), source }))
    }

    fn append(&mut self, name: &str, at: u64, bytes: &[u8]) -> Result<(), JournalError> {
        self.write(name, |file| file.write_all_at(bytes, at))
    }

    fn cut(&mut self, name: &str, bytes: u64) -> Result<(), JournalError> {
        self.write(name, |file| file.set_len(bytes))
    }
}

#[cfg(test)]
mod tests;
