//! Where files are that a client has a handle of, for want of handles of the kernel's: by directory and name, kept over restarts.
//!
//! What is new is appended to a log before its handle is told to anybody, so that a kill of the server loses nothing. It is not synced:
//! after a crash of the machine a handle of the last moments may be stale. A damaged end of the log is left out, and the log is written
//! anew when most of it is out of date.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::hash::Hasher;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use iogate_core::hash::IdHasher;
use iogate_vfs::LockedFile;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::handle::Key;

/// Most files that are known.
const PLACES_MAX: usize = 1 << 20;
/// Most directories between a file and the root.
const DEPTH_MAX: usize = 2048;
/// Records beside those of twice as many files, before the log is written anew.
const SLACK: usize = 65_536;

const LOG: &str = "nfs-places";
const NEW: &str = "nfs-places.new";
/// Held by whoever writes the log: a log that is replaced cannot be what is locked.
const LOCK: &str = "nfs-places.lock";
/// Bytes of a record before the name: file, directory, both as number and generation; whether the directory is the root; the name's length.
const HEAD: usize = 34;
/// And behind it: a checksum.
const SUM: usize = 4;

/// Directory and name of files.
#[derive(Debug, Default)]
pub(super) struct Places {
    places: HashMap<Key, (Key, Vec<u8>)>,
    /// The order in which they came.
    order: VecDeque<Key>,
    log: Option<Log>,
}

#[derive(Debug)]
struct Log {
    folder: OwnedFd,
    file: File,
    records: usize,
    _lock: LockedFile,
}

impl Places {
    /// Those that are kept in a folder, which is this server's as long as it runs.
    pub(super) fn open(folder: OwnedFd) -> io::Result<Places> {
        let lock = File::from(open(&folder, LOCK, OFlags::WRONLY | OFlags::CREATE)?);
        let lock = LockedFile::new(lock).map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("another server of NFS keeps its places there"),
            TryLockError::Error(error) => error,
        })?;
        let mut places = Places::default();
        let file = File::from(open(&folder, LOG, OFlags::RDWR | OFlags::CREATE)?);
        let (records, good) = places.read(BufReader::new(&file))?;
        // What follows a damaged record would be read as part of it.
        file.set_len(good)?;
        let file = File::from(open(&folder, LOG, OFlags::WRONLY | OFlags::APPEND)?);
        places.log = Some(Log { folder, file, records, _lock: lock });
        Ok(places)
    }

    /// Takes in what a log says. Returns the number of records and of their bytes.
    fn read(&mut self, mut from: impl Read) -> io::Result<(usize, u64)> {
        let (mut records, mut good) = (0, 0);
        while let Some((key, dir, name)) = take(&mut from)? {
            good += (HEAD + name.len() + SUM) as u64;
            records += 1;
            self.insert(key, dir, &name);
        }
        Ok((records, good))
    }

    /// Whether a file is known.
    pub(super) fn contains(&self, key: &Key) -> bool {
        self.places.contains_key(key)
    }

    /// A file was found there.
    pub(super) fn put(&mut self, key: Key, dir: Key, name: &[u8]) {
        if self.places.get(&key).is_some_and(|place| place.0 == dir && place.1 == name) {
            return;
        }
        self.insert(key, dir, name);
        let Some(log) = &mut self.log else { return };
        let mut record = Vec::with_capacity(HEAD + name.len() + SUM);
        put(&mut record, key, dir, name);
        log.records += 1;
        let written = log.file.write_all(&record);
        let is_long = log.records > 2 * self.places.len() + SLACK;
        let result = written.and_then(|()| if is_long { self.rewrite() } else { Ok(()) });
        if let Err(error) = result {
            tracing::warn!(%error, "the places of files are not kept any more: handles last until this server ends");
            self.log = None;
        }
    }

    fn insert(&mut self, key: Key, dir: Key, name: &[u8]) {
        if self.places.insert(key, (dir, name.to_vec())).is_none() {
            self.order.push_back(key);
        }
        while self.places.len() > PLACES_MAX {
            let Some(oldest) = self.order.pop_front() else { return };
            self.places.remove(&oldest);
        }
    }

    /// Writes the log anew: nobody sees it before it is whole.
    fn rewrite(&mut self) -> io::Result<()> {
        let Some(log) = &mut self.log else { return Ok(()) };
        let new = open(&log.folder, NEW, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND)?;
        let mut out = BufWriter::new(File::from(new));
        let (mut record, mut records) = (Vec::new(), 0);
        for key in &self.order {
            let Some((dir, name)) = self.places.get(key) else { continue };
            record.clear();
            put(&mut record, *key, *dir, name);
            out.write_all(&record)?;
            records += 1;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_data()?;
        rustix::fs::renameat(&log.folder, NEW, &log.folder, LOG)?;
        (log.file, log.records) = (file, records);
        Ok(())
    }

    /// The path of a file, below the root.
    pub(super) fn path(&self, key: Key) -> Option<PathBuf> {
        let (mut names, mut at) = (Vec::new(), key);
        while at != Key::Root {
            let (dir, name) = self.places.get(&at)?;
            names.push(name);
            at = *dir;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        Some(names.into_iter().rev().map(|name| OsString::from_vec(name.clone())).collect())
    }
}

fn open(folder: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(folder, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
}

/// Appends a record. Only keys that are numbers have places.
fn put(out: &mut Vec<u8>, key: Key, dir: Key, name: &[u8]) {
    let numbers = |key| match key {
        Key::Number { inode, generation } => [inode, generation],
        Key::Root | Key::Kernel(_) => [0; 2],
    };
    for number in numbers(key).into_iter().chain(numbers(dir)) {
        out.extend_from_slice(&number.to_be_bytes());
    }
    // A name has at most 255 bytes.
    out.extend_from_slice(&[(dir == Key::Root).into(), name.len() as u8]);
    out.extend_from_slice(name);
    let sum = sum(&out[out.len() - HEAD - name.len()..]);
    out.extend_from_slice(&sum);
}

/// Takes a record. `None`: there is none, or it is damaged.
fn take(from: &mut impl Read) -> io::Result<Option<(Key, Key, Vec<u8>)>> {
    let mut record = vec![0; HEAD];
    if !fill(from, &mut record)? {
        return Ok(None);
    }
    let bytes = usize::from(record[HEAD - 1]);
    record.resize(HEAD + bytes + SUM, 0);
    if !fill(from, &mut record[HEAD..])? {
        return Ok(None);
    }
    let (said, found) = record.split_at(HEAD + bytes);
    if sum(said) != found {
        return Ok(None);
    }
    let key = |at: usize| {
        let number = |at: usize| said[at..at + 8].iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
        Key::Number { inode: number(at), generation: number(at + 8) }
    };
    let dir = if said[HEAD - 2] == 1 { Key::Root } else { key(16) };
    Ok(Some((key(0), dir, said[HEAD..].to_vec())))
}

/// Reads all of it; false at an end before that.
fn fill(from: &mut impl Read, room: &mut [u8]) -> io::Result<bool> {
    match from.read_exact(room) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn sum(bytes: &[u8]) -> [u8; SUM] {
    let mut hasher = IdHasher::default();
    hasher.write(bytes);
    hasher.write_u64(bytes.len() as u64);
    ((hasher.finish() >> 32) as u32).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(inode: u64) -> Key {
        Key::Number { inode, generation: inode ^ 7 }
    }

    fn folder(at: &tempfile::TempDir) -> OwnedFd {
        File::open(at.path()).unwrap().into()
    }

    #[test]
    fn it_has_paths_and_knows_of_renames() {
        let mut places = Places::default();
        places.put(key(1), Key::Root, b"a");
        places.put(key(2), key(1), b"b");
        assert_eq!(places.path(key(2)), Some("a/b".into()));
        places.put(key(1), Key::Root, b"c");
        assert_eq!(places.path(key(2)), Some("c/b".into()), "a directory was renamed");
        assert_eq!((places.path(Key::Root), places.path(key(3))), (Some("".into()), None));
        places.put(key(1), key(2), b"x");
        assert_eq!(places.path(key(2)), None, "no way to the root");
    }

    #[test]
    fn one_server_at_a_time_keeps_them() {
        let at = tempfile::tempdir().unwrap();
        let first = Places::open(folder(&at)).unwrap();
        assert!(Places::open(folder(&at)).unwrap_err().to_string().contains("another server"));
        drop(first);
        Places::open(folder(&at)).unwrap();
    }

    #[test]
    fn a_long_log_is_written_anew() {
        let at = tempfile::tempdir().unwrap();
        let mut places = Places::open(folder(&at)).unwrap();
        for round in 0..SLACK as u64 + 100 {
            places.put(key(1), Key::Root, if round % 2 == 0 { b"even" } else { b"odd" });
        }
        assert!(places.log.as_ref().unwrap().records < 100);
        places.put(key(2), key(1), b"below");
        drop(places);
        let places = Places::open(folder(&at)).unwrap();
        assert_eq!(places.path(key(2)), Some("odd/below".into()));
    }

    proptest! {
        #[test]
        fn what_was_put_is_there_again_however_the_log_ends(
            puts in prop::collection::vec((1..20u64, 0..20u64, prop::collection::vec(any::<u8>(), 1..=255)), 0..60),
            cut in 0..400usize, damaged: Option<prop::sample::Index>,
        ) {
            let at = tempfile::tempdir().unwrap();
            let mut places = Places::open(folder(&at)).unwrap();
            let mut ends = vec![0];
            let mut states = vec![HashMap::new()];
            for (file, dir, name) in &puts {
                let dir = if *dir == 0 { Key::Root } else { key(*dir) };
                places.put(key(*file), dir, name);
                ends.push(std::fs::metadata(at.path().join(LOG)).unwrap().len() as usize);
                states.push(places.places.clone());
            }
            drop(places);
            let mut bytes = std::fs::read(at.path().join(LOG)).unwrap();
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let mut good = bytes.len();
            if let Some(place) = damaged.filter(|_| !bytes.is_empty()) {
                let place = place.index(bytes.len());
                bytes[place] ^= 0x10;
                good = place;
            }
            std::fs::write(at.path().join(LOG), &bytes).unwrap();
            let mut places = Places::open(folder(&at)).unwrap();
            let last = ends.iter().rposition(|end| *end <= good).unwrap();
            prop_assert_eq!(&places.places, &states[last]);
            places.put(key(99), Key::Root, b"more");
            drop(places);
            prop_assert_eq!(Places::open(folder(&at)).unwrap().path(key(99)), Some("more".into()));
        }
    }
}
