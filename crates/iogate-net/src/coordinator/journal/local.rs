//! A journal in a directory of this machine: one file that only grows, until it begins anew.
//!
//! A record is a line: its CRC-32 in eight hexadecimal digits, a blank, JSON. A line is given to the kernel before anybody hears of what
//! it says, so a killed coordinator loses nothing. What the machine itself loses when it crashes are turns of which the
//! file `reserve` still bounds the tokens: it is made durable ahead of them, and says under which boot.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::record::{Sum, VERSION};
use super::{Journal, JournalError, Loaded, Record, TOKENS_RESERVED};

/// The file begins anew when it has this many bytes, and four times as many as when it did so last.
const BYTES_MAX: u64 = 16 << 20;
/// A checksum and the blank behind it.
const CHECKSUM_BYTES: usize = 9;

/// A journal in a directory.
#[derive(Debug)]
pub struct Local {
    dir: PathBuf,
    /// The same, open for good: making a name durable must not fail for want of descriptors.
    folder: File,
    /// Locked while this lives.
    _lock: File,
    boot: String,
    /// `None` before it is loaded.
    file: Option<File>,
    /// Up to where the file is whole.
    bytes: u64,
    /// Behind that is the beginning of something that did not fit.
    is_torn: bool,
    /// How large it was when it began anew.
    began_with: u64,
    /// Tokens up to this are reserved.
    reserved: u64,
    token: u64,
    lines: Vec<u8>,
}

/// Which tokens may have been given, and since which boot what is written is in the kernel's memory at least.
#[derive(Debug, Serialize, Deserialize)]
struct Reserve {
    boot: String,
    token: u64,
}

impl Local {
    /// Takes a directory, which is made if it is not there, and which nobody else may read. Fails with [`JournalError::InUse`] if another
    /// coordinator has it.
    pub fn open(dir: &Path) -> Result<Local, JournalError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(|source| JournalError::Io { action: "make the directory", path: dir.into(), source })?;
        let path = dir.join("lock");
        let failed = |source| JournalError::Io { action: "lock", path: path.clone(), source };
        let open =
            OpenOptions::new().create(true).truncate(false).write(true).read(true).mode(0o600).open(&path);
        let mut lock = open.map_err(failed)?;
        if let Err(errno) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if errno != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(errno.into()));
            }
            let owner = std::fs::read_to_string(&path).unwrap_or_default();
            return Err(JournalError::InUse { dir: dir.into(), owner: owner.trim().into() });
        }
        lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id())).map_err(failed)?;
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Ok(Local {
            dir: dir.into(),
            folder: File::open(dir).map_err(|source| JournalError::Io {
                action: "open the directory",
                path: dir.into(),
                source,
            })?,
            _lock: lock,
            boot: boot.trim().into(),
            file: None,
            bytes: 0,
            is_torn: false,
            began_with: 0,
            reserved: 0,
            token: 0,
            lines: Vec::new(),
        })
    }

    /// Puts a file in its place, whole. Fails only if the one before it is still there; what comes after that is told apart, as whoever goes
    /// on must then use the new file.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<Replaced, JournalError> {
        let (path, beside) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        let put = || {
            let file =
                OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&beside)?;
            file.write_all_at(bytes, 0)?;
            file.sync_all()?;
            std::fs::rename(&beside, &path)?;
            Ok(Replaced { file, durable: self.folder.sync_all() })
        };
        put().map_err(|source| JournalError::Io { action: "write", path: path.clone(), source })
    }

    fn journal_path(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// What the file `reserve` says; `None` if it is not there.
    fn read_reserve(&self) -> Result<Option<Reserve>, JournalError> {
        let path = self.dir.join("reserve");
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(JournalError::Io { action: "read", path, source }),
        };
        let reserve = serde_json::from_slice(&bytes);
        reserve.map(Some).map_err(|error| JournalError::Damaged { path, at: 0, why: error.to_string() })
    }

    /// Makes it durable that tokens up to `token` may be given.
    fn reserve(&mut self, token: u64) -> Result<(), JournalError> {
        let reserve = Reserve { boot: self.boot.clone(), token };
        let text = serde_json::to_vec(&reserve).unwrap_or_default();
        let Replaced { durable, .. } = self.replace("reserve", &text)?;
        durable.map_err(|source| JournalError::Io { action: "sync", path: self.dir.clone(), source })?;
        self.reserved = token;
        Ok(())
    }

    /// Begins the file anew, with these records.
    fn begin(&mut self, records: &[Record]) -> Result<(), JournalError> {
        self.lines.clear();
        records.iter().for_each(|record| write_line(&mut self.lines, record));
        let Replaced { file, durable } = self.replace("journal", &self.lines)?;
        // The file before it has no name any more: what is written to that is lost.
        self.file = Some(file);
        self.bytes = self.lines.len() as u64;
        (self.began_with, self.is_torn) = (self.bytes, false);
        durable.map_err(|source| JournalError::Io { action: "sync", path: self.dir.clone(), source })
    }

    fn note_tokens(&mut self, records: &[Record]) {
        for record in records {
            match record {
                Record::Claim(claim) => self.token = self.token.max(claim.held.map_or(0, |held| held.token)),
                Record::Begin { token, .. } => self.token = self.token.max(*token),
                _ => {}
            }
        }
    }
}

impl Journal for Local {
    fn load(&mut self) -> Result<Loaded, JournalError> {
        let reserve = self.read_reserve()?;
        let is_same_boot = reserve.as_ref().is_some_and(|reserve| reserve.boot == self.boot);
        let path = self.journal_path();
        let found = match std::fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(JournalError::Io { action: "read", path, source }),
        };
        let is_first = found.is_none() && reserve.is_none();
        let is_missing = found.is_none();
        let sum = read(&path, &found.unwrap_or_default(), is_same_boot)?;
        let mut loaded = sum.finish(is_same_boot);
        loaded.is_incomplete |= !is_first && (is_missing || !is_same_boot);
        if loaded.is_incomplete {
            loaded.token = loaded.token.max(reserve.map_or(0, |reserve| reserve.token));
            // Numbers are journalled with the claims that have them, of which some may be lost.
            loaded.number = loaded.number.max(loaded.token);
        }
        self.token = loaded.token;
        self.reserve(loaded.token.saturating_add(TOKENS_RESERVED))?;
        Ok(loaded)
    }

    fn append(
        &mut self,
        records: &[Record],
        all: &mut dyn FnMut() -> Vec<Record>,
    ) -> Result<(), JournalError> {
        self.note_tokens(records);
        if self.token.saturating_add(TOKENS_RESERVED / 4) > self.reserved {
            self.reserve(self.token.saturating_add(TOKENS_RESERVED))?;
        }
        let path = self.journal_path();
        let failed = |source| JournalError::Io { action: "write", path: path.clone(), source };
        let Some(file) = &self.file else { return self.begin(&all()) };
        if self.is_torn {
            file.set_len(self.bytes).map_err(failed)?;
            self.is_torn = false;
        }
        self.lines.clear();
        records.iter().for_each(|record| write_line(&mut self.lines, record));
        if let Err(error) = file.write_all_at(&self.lines, self.bytes) {
            self.is_torn = file.set_len(self.bytes).is_err();
            return Err(failed(error));
        }
        self.bytes += self.lines.len() as u64;
        if self.bytes > BYTES_MAX.max(4 * self.began_with)
            && let Err(error) = self.begin(&all())
        {
            tracing::warn!("the journal cannot begin anew, and grows on: {error}");
            self.began_with = self.bytes;
        }
        Ok(())
    }

    fn place(&self) -> String {
        self.dir.display().to_string()
    }
}

fn write_line(out: &mut Vec<u8>, record: &Record) {
    let start = out.len();
    out.extend_from_slice(&[b' '; CHECKSUM_BYTES]);
    // Writing to memory does not fail, nor does a record have keys that are no strings.
    let _ = serde_json::to_writer(&mut *out, record);
    let sum = crc32fast::hash(&out[start + CHECKSUM_BYTES..]);
    let _ = write!(&mut out[start..], "{sum:08x}");
    out.push(b'\n');
}

fn read_line(line: &[u8]) -> Result<Record, String> {
    let (sum, json) = line.split_at_checked(CHECKSUM_BYTES).ok_or("a line is too short")?;
    if sum != format!("{:08x} ", crc32fast::hash(json)).as_bytes() {
        return Err("a checksum is wrong".into());
    }
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

/// Adds up a journal. The end of a line that was cut short is nothing that anybody has heard of. After a boot, that is true of
/// everything from the first damage on: then it was not written, and its tokens are those of the reserve. But what a file begins with was
/// made durable before it had its name: a damage there is none of a crash.
fn read(path: &Path, bytes: &[u8], is_same_boot: bool) -> Result<Sum, JournalError> {
    let mut sum = Sum::default();
    let mut at = 0;
    while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
        match read_line(&bytes[at..at + length]) {
            Ok(record) => sum.add(record),
            Err(why) if is_same_boot || sum.version.is_none() => {
                return Err(JournalError::Damaged { path: path.into(), at, why });
            }
            Err(why) => {
                tracing::warn!("{}: from byte {at} on it was lost in a crash ({why})", path.display());
                break;
            }
        }
        if let Some(found) = sum.version.filter(|&found| found != VERSION) {
            return Err(JournalError::Version { path: path.into(), found, expected: VERSION });
        }
        at += length + 1;
    }
    if !bytes.is_empty() && sum.version.is_none() {
        let why = "it does not begin with a whole line".into();
        return Err(JournalError::Damaged { path: path.into(), at: 0, why });
    }
    Ok(sum)
}

/// A file that has taken its place under its name.
struct Replaced {
    file: File,
    /// Whether the name is durable. If not, the file before it may be there after a crash of the machine.
    durable: io::Result<()>,
}

#[cfg(test)]
mod tests;
