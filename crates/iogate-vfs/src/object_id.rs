//! What the objects of a striped file are called, and where that is noted.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The attribute of a names-file that has the name of its objects.
pub(crate) const OBJECT: &[u8] = b"user.iogate.object";
/// The directory of a target that has the objects.
pub(crate) const OBJECTS: &str = "OBJECTS";

/// What a file's objects are called: 128 random bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ObjectId(pub(crate) [u8; 16]);

impl ObjectId {
    pub(crate) fn random() -> io::Result<ObjectId> {
        let mut bytes = [0; 16];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())?;
        }
        Ok(ObjectId(bytes))
    }

    /// Reads what `to_string` wrote.
    pub(crate) fn parse(text: &[u8]) -> Option<ObjectId> {
        let text = std::str::from_utf8(text).ok()?;
        let canonical = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let number = u128::from_str_radix(text, 16).ok()?;
        (canonical && text.len() == 32).then(|| ObjectId(number.to_be_bytes()))
    }

    /// The directory that the object is in.
    pub(crate) fn directory(&self) -> PathBuf {
        PathBuf::from(format!("{OBJECTS}/{:02x}", self.0[0]))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory().join(self.to_string())
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
