//! The log of answers on a medium: a header, then notes, of which the last may be torn.
//!
//! A note that was appended is known to the next process. What does not fit is cut off again, so that it cannot be found later behind
//! shorter ones. A log of which most is of no use any more begins anew, with what is remembered now.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use super::{HEADER_BYTES, Header, Note};
use crate::medium::Medium;

/// The file on the medium.
const NAME: &str = "answers";
/// A log below this does not begin anew.
const SHRINK_BYTES: u64 = 4 << 20;

/// A log of answers.
#[derive(Debug)]
pub struct Log<M> {
    medium: M,
    header: Header,
    /// Behind the last whole note.
    end: u64,
    /// Behind that is the beginning of what did not fit.
    is_torn: bool,
    /// It does not begin anew before it is this long.
    shrink_at: u64,
    notices: Vec<String>,
}

impl<M: Medium> Log<M> {
    /// Opens the log, gives each of its notes to `each`, and cuts off a torn end. One of another `boot` is of no use, as it may lack
    /// what a crash has taken: it begins anew, as `id`, which is random. Where appends are durable, `boot` is always the same.
    ///
    /// # Errors
    /// As the medium fails.
    pub fn open(
        mut medium: M,
        boot: [u8; 16],
        id: [u8; 16],
        mut each: impl FnMut(&Note<'_>),
    ) -> Result<Log<M>, M::Error> {
        let bytes = medium.read(NAME)?.unwrap_or_default();
        let mut end = HEADER_BYTES;
        let header = match Header::from_bytes(&bytes).filter(|header| header.boot == boot) {
            Some(header) => {
                let mut rest = &bytes[HEADER_BYTES..];
                while let Some((note, behind)) = Note::split_from(rest) {
                    each(&note);
                    rest = behind;
                }
                end = bytes.len() - rest.len();
                if !rest.is_empty() {
                    medium.cut(NAME, end as u64)?;
                }
                header
            }
            None => {
                let header = Header { id, boot };
                medium.replace(NAME, &header.to_bytes())??;
                header
            }
        };
        let (end, shrink_at) = (end as u64, SHRINK_BYTES);
        Ok(Log { medium, header, end, is_torn: false, shrink_at, notices: Vec::new() })
    }

    /// The same as long as nothing that should be remembered is lost; not zero.
    pub fn number(&self) -> u64 {
        let part = |bytes: &[u8; 16]| bytes.first_chunk().map_or(0, |half| u64::from_le_bytes(*half));
        (part(&self.header.id) ^ part(&self.header.boot).rotate_left(32)).max(1)
    }

    /// Bytes of it.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Where it is.
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

    /// Whether most of it is of no use, if `live` bytes are.
    pub fn is_worth_shrinking(&self, live: usize) -> bool {
        self.end > self.shrink_at && self.end / 4 > live as u64
    }

    /// Writes notes behind the others: all of them, or none. If all that is remembered is given too, these notes among it, the log
    /// begins anew with that; where it cannot, it grows on.
    ///
    /// # Errors
    /// As the medium fails.
    pub fn write(&mut self, notes: &[u8], all: Option<&[u8]>) -> Result<(), M::Error> {
        if let Some(all) = all {
            match self.begin_anew(all) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.notices.push(format!("it cannot begin anew, and grows on: {error}"));
                    self.shrink_at = self.end + SHRINK_BYTES;
                }
            }
        }
        if self.is_torn {
            self.medium.cut(NAME, self.end)?;
            self.is_torn = false;
        }
        if let Err(error) = self.medium.append(NAME, self.end, notes) {
            self.is_torn = self.medium.cut(NAME, self.end).is_err();
            return Err(error);
        }
        self.end += notes.len() as u64;
        Ok(())
    }

    fn begin_anew(&mut self, all: &[u8]) -> Result<(), M::Error> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + all.len());
        bytes.extend_from_slice(&self.header.to_bytes());
        bytes.extend_from_slice(all);
        // From here on the new file is the log, whatever a crash of the machine would find.
        if let Err(error) = self.medium.replace(NAME, &bytes)? {
            self.notices.push(format!("that it began anew is not durable: {error}"));
        }
        (self.end, self.is_torn, self.shrink_at) = (bytes.len() as u64, false, SHRINK_BYTES);
        Ok(())
    }
}
