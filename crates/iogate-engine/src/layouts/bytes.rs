//! Fields of a binary record that comes from elsewhere, each checked.

use super::LayoutError;

/// A record, little-endian.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// What it is called where it is refused.
    pub(super) what: &'static str,
    pub(super) bytes: &'a [u8],
}

impl<'a> Record<'a> {
    pub(super) fn u16(&self, at: usize) -> Result<u16, LayoutError> {
        self.field(at).map(u16::from_le_bytes)
    }

    pub(super) fn u32(&self, at: usize) -> Result<u32, LayoutError> {
        self.field(at).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&self, at: usize) -> Result<u64, LayoutError> {
        self.field(at).map(u64::from_le_bytes)
    }

    /// A record inside it.
    pub(super) fn part(&self, at: usize, bytes: usize) -> Result<Record<'a>, LayoutError> {
        let range = at..at.saturating_add(bytes);
        let part = self.bytes.get(range).ok_or_else(|| self.too_short(at, bytes))?;
        Ok(Record { what: self.what, bytes: part })
    }

    pub(super) fn unexpected(&self, expected: &str, got: &str) -> LayoutError {
        LayoutError::Malformed { what: self.what, expected: expected.into(), got: got.into() }
    }

    fn field<const N: usize>(&self, at: usize) -> Result<[u8; N], LayoutError> {
        let field = self.bytes.get(at..).and_then(|rest| rest.first_chunk());
        field.copied().ok_or_else(|| self.too_short(at, N))
    }

    fn too_short(&self, at: usize, bytes: usize) -> LayoutError {
        let got = self.bytes.len().saturating_sub(at);
        self.unexpected(&format!("{bytes} bytes at {at}"), &got.to_string())
    }
}
