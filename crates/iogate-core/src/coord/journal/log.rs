//! A journal in files of one medium: one file that only grows, until it begins anew.
//!
//! A record is a line: its CRC-32 in eight hexadecimal digits, a blank, JSON. A line is given to the medium before anybody hears of what
//! it says, so a killed coordinator loses nothing. What the machine itself loses when it crashes are turns of which the
//! file `reserve` still bounds the tokens: it is made durable ahead of them, and says under which boot.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::record::Sum;
use super::{Loaded, Record};
use crate::medium::Medium;

/// Tokens that are reserved at a time, durably: after a crash of the machine, those that may have been given are not given again.
pub const TOKENS_RESERVED: u64 = 1 << 16;
/// The file begins anew when it has this many bytes, if nothing else is said, and four times as many as when it did so last.
const BYTES_MAX: u64 = 16 << 20;
/// A checksum and the blank behind it.
const CHECKSUM_BYTES: usize = 9;
/// The files.
const JOURNAL: &str = "journal";
const RESERVE: &str = "reserve";

/// Why a [`Log`] cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogError<E> {
    /// The medium fails.
    Medium(E),
    /// What is there is not what was written.
    Damaged {
        /// The file.
        name: &'static str,
        /// The byte from which on it is not.
        at: usize,
        /// What is wrong there.
        why: String,
    },
    /// Another version wrote it.
    Version {
        /// What it says.
        found: u32,
    },
}

impl<E> From<E> for LogError<E> {
    fn from(error: E) -> LogError<E> {
        LogError::Medium(error)
    }
}

/// A journal in files of one medium.
#[derive(Debug)]
pub struct Log<M> {
    medium: M,
    /// Up to where the file is whole; `None` before it has begun.
    bytes: Option<u64>,
    /// Behind that is the beginning of something that did not fit.
    is_torn: bool,
    /// How large it was when it began anew.
    began_with: u64,
    bytes_max: u64,
    /// Under which boot the file that is there has begun, as the reserve says; `None` once this one has begun it anew.
    boot_before: Option<String>,
    /// Tokens up to this are reserved.
    reserved: u64,
    token: u64,
    lines: Vec<u8>,
    /// What people should know.
    notices: Vec<String>,
}

/// Which tokens may have been given, and since which boot what is written is in the kernel's memory at least.
#[derive(Debug, Serialize, Deserialize)]
struct Reserve {
    boot: String,
    token: u64,
}

impl<M: Medium> Log<M> {
    /// A journal there. It is to be [loaded](Log::load) first.
    pub fn new(medium: M) -> Log<M> {
        Log {
            medium,
            bytes: None,
            is_torn: false,
            began_with: 0,
            bytes_max: BYTES_MAX,
            boot_before: Some(String::new()),
            reserved: 0,
            token: 0,
            lines: Vec::new(),
            notices: Vec::new(),
        }
    }

    /// Has the file begin anew when it has so many bytes.
    #[must_use]
    pub fn with_bytes_max(self, bytes_max: u64) -> Log<M> {
        Log { bytes_max, ..self }
    }

    /// Where it is.
    pub fn medium(&self) -> &M {
        &self.medium
    }

    /// Where it is, to be changed.
    pub fn medium_mut(&mut self) -> &mut M {
        &mut self.medium
    }

    /// Where it was: nothing is written any more.
    pub fn into_medium(self) -> M {
        self.medium
    }

    /// What people should know: lines for a log.
    pub fn notices(&mut self) -> Vec<String> {
        core::mem::take(&mut self.notices)
    }

    /// Reads what there is, and reserves tokens. The first [`append`](Log::append) after it begins the file anew.
    ///
    /// # Errors
    /// [`LogError::Damaged`] where a crash of the machine does not explain what is there.
    pub fn load(&mut self) -> Result<Loaded, LogError<M::Error>> {
        let reserve = self.read_reserve()?;
        let is_same_boot = reserve.as_ref().is_some_and(|reserve| reserve.boot == self.medium.boot());
        let found = self.medium.read(JOURNAL)?;
        let is_first = found.is_none() && reserve.is_none();
        let is_missing = found.is_none();
        let sum = self.add_up(&found.unwrap_or_default(), is_same_boot)?;
        let mut loaded = sum.finish(is_same_boot);
        loaded.is_incomplete |= !is_first && (is_missing || !is_same_boot);
        if loaded.is_incomplete {
            loaded.token = loaded.token.max(reserve.as_ref().map_or(0, |reserve| reserve.token));
            // Numbers are journalled with the claims that have them, of which some may be lost.
            loaded.number = loaded.number.max(loaded.token);
        }
        self.token = loaded.token;
        self.boot_before = Some(reserve.map_or_else(String::new, |reserve| reserve.boot));
        self.reserve(loaded.token.saturating_add(TOKENS_RESERVED))?;
        Ok(loaded)
    }

    /// Keeps some records; none of them counts before this returns, and if it fails none may have been kept, or the first of them.
    /// They are then to be given again, first. `all` says all that is to be known now, for when the file begins anew.
    ///
    /// # Errors
    /// As the medium fails.
    pub fn append(
        &mut self,
        records: &[Record],
        all: &mut dyn FnMut() -> Vec<Record>,
    ) -> Result<(), LogError<M::Error>> {
        self.note_tokens(records);
        if self.token.saturating_add(TOKENS_RESERVED / 4) > self.reserved {
            self.reserve(self.token.saturating_add(TOKENS_RESERVED))?;
        }
        match self.bytes {
            None => self.begin(&all())?,
            Some(bytes) => self.append_behind(bytes, records, all)?,
        }
        // What is there has begun under this boot, which is not so before: a kill in between must not hide a crash.
        if let Some(before) = self.boot_before.take()
            && let Err(error) = self.reserve(self.reserved)
        {
            self.boot_before = Some(before);
            return Err(error);
        }
        Ok(())
    }

    fn append_behind(
        &mut self,
        bytes: u64,
        records: &[Record],
        all: &mut dyn FnMut() -> Vec<Record>,
    ) -> Result<(), LogError<M::Error>> {
        if self.is_torn {
            self.medium.cut(JOURNAL, bytes)?;
            self.is_torn = false;
        }
        self.lines.clear();
        records.iter().for_each(|record| write_line(&mut self.lines, record));
        if let Err(error) = self.medium.append(JOURNAL, bytes, &self.lines) {
            self.is_torn = self.medium.cut(JOURNAL, bytes).is_err();
            return Err(error.into());
        }
        let bytes = bytes + self.lines.len() as u64;
        self.bytes = Some(bytes);
        if bytes > self.bytes_max.max(4 * self.began_with)
            && let Err(error) = self.begin(&all())
        {
            let why = match error {
                LogError::Medium(error) => error.to_string(),
                LogError::Damaged { why, .. } => why,
                LogError::Version { found } => format!("version {found}"),
            };
            self.notices.push(format!("the journal cannot begin anew, and grows on: {why}"));
            self.began_with = bytes;
        }
        Ok(())
    }

    /// What the file `reserve` says; `None` if it is not there.
    fn read_reserve(&mut self) -> Result<Option<Reserve>, LogError<M::Error>> {
        let Some(bytes) = self.medium.read(RESERVE)? else { return Ok(None) };
        let reserve = serde_json::from_slice(&bytes);
        reserve.map(Some).map_err(|error| LogError::Damaged { name: RESERVE, at: 0, why: error.to_string() })
    }

    /// Makes it durable that tokens up to `token` may be given.
    fn reserve(&mut self, token: u64) -> Result<(), LogError<M::Error>> {
        let boot = self.boot_before.clone().unwrap_or_else(|| self.medium.boot().into());
        let reserve = Reserve { boot, token };
        let text = serde_json::to_vec(&reserve).unwrap_or_default();
        self.medium.replace(RESERVE, &text)??;
        self.reserved = token;
        Ok(())
    }

    /// Begins the file anew, with these records.
    fn begin(&mut self, records: &[Record]) -> Result<(), LogError<M::Error>> {
        self.lines.clear();
        records.iter().for_each(|record| write_line(&mut self.lines, record));
        let durable = self.medium.replace(JOURNAL, &self.lines)?;
        // The file before it has no name any more: what is written to that is lost.
        self.began_with = self.lines.len() as u64;
        (self.bytes, self.is_torn) = (Some(self.began_with), false);
        Ok(durable?)
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

    /// Adds up a journal. The end of a line that was cut short is nothing that anybody has heard of. After a boot, that is true of
    /// everything from the first damage on: then it was not written, and its tokens are those of the reserve. But what
    /// a file begins with was made durable before it had its name: a damage there is none of a crash.
    fn add_up(&mut self, bytes: &[u8], is_same_boot: bool) -> Result<Sum, LogError<M::Error>> {
        let mut sum = Sum::default();
        let mut at = 0;
        while let Some(length) = bytes[at..].iter().position(|&byte| byte == b'\n') {
            match read_line(&bytes[at..at + length]) {
                Ok(record) => sum.add(record).map_err(|found| LogError::Version { found })?,
                Err(why) if is_same_boot || !sum.has_begun() => {
                    return Err(LogError::Damaged { name: JOURNAL, at, why });
                }
                Err(why) => {
                    self.notices.push(format!("from byte {at} on it was lost in a crash ({why})"));
                    break;
                }
            }
            at += length + 1;
        }
        if !bytes.is_empty() && !sum.has_begun() {
            let why = "it does not begin with a whole line".into();
            return Err(LogError::Damaged { name: JOURNAL, at: 0, why });
        }
        Ok(sum)
    }
}

fn write_line(out: &mut Vec<u8>, record: &Record) {
    // A record has no keys that are no strings, so that making a text of it does not fail.
    let json = serde_json::to_vec(record).unwrap_or_default();
    out.extend_from_slice(format!("{:08x} ", crc32fast::hash(&json)).as_bytes());
    out.extend_from_slice(&json);
    out.push(b'\n');
}

fn read_line(line: &[u8]) -> Result<Record, String> {
    let (sum, json) = line.split_at_checked(CHECKSUM_BYTES).ok_or("a line is too short")?;
    if sum != format!("{:08x} ", crc32fast::hash(json)).as_bytes() {
        return Err("a checksum is wrong".into());
    }
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;

    use super::*;

    /// A medium with nothing on it.
    struct Empty;

    impl Medium for Empty {
        type Error = String;

        fn boot(&self) -> &str {
            "a boot"
        }

        fn read(&mut self, _: &str) -> Result<Option<Vec<u8>>, String> {
            Ok(None)
        }

        fn replace(&mut self, _: &str, _: &[u8]) -> Result<Result<(), String>, String> {
            Ok(Ok(()))
        }

        fn append(&mut self, _: &str, _: u64, _: &[u8]) -> Result<(), String> {
            Ok(())
        }

        fn cut(&mut self, _: &str, _: u64) -> Result<(), String> {
            Ok(())
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_damage_is_told_or_nothing_is_wrong(at in 0usize..2000, with: u8) {
            let mut lines = Vec::new();
            let begin = Loaded::default().records(0).remove(0);
            let records = [begin, Record::SessionGone(7), Record::TokenGiven(4), Record::Gone(9)];
            records.iter().for_each(|record| write_line(&mut lines, record));
            let at = at % lines.len();
            let is_damage = lines[at] != with;
            lines[at] = with;
            // The end of the last line cannot be told from a line that was cut short.
            let is_told = Log::new(Empty).add_up(&lines, true).is_err();
            prop_assert_eq!(is_told, is_damage && at + 1 < lines.len());
        }
    }
}
