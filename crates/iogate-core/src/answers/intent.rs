//! What is noted before and after a request, and what an intent without an outcome means.

use alloc::vec::Vec;

use crate::wire::codec::{Reader, Record, Value, WireError, record};
use crate::wire::{Identity, Request};

record! {
    /// What is noted before a request that changes names or attributes.
    NameIntent<'a> {
        /// The [request's kind](Request::kind), or [`NameIntent::UNTOLD`].
        kind: u16,
        /// What the path named before; zeros: nothing. Of an extended attribute: whose it is.
        file: Identity,
        /// What the other path named before; zeros: nothing.
        other: Identity,
        /// Of an extended attribute: 1 if it was there.
        had: u8,
        /// The path.
        path: &'a [u8],
        /// Of a link or a rename: the other path. Of an extended attribute: its name.
        to: &'a [u8],
    }
}

record! {
    /// What is noted before a record is appended.
    AppendIntent {
        /// [`Request::WRITE`], so that it is not taken for a [`NameIntent`].
        kind: u16,
        /// To which file.
        file: Identity,
        /// Where it begins, if nobody else appends meanwhile.
        place: u64,
        /// Its bytes.
        bytes: u32,
        /// Their CRC-32.
        crc: u32,
        /// Bytes of it before the first end of a page: a killed process may have written those only.
        head: u32,
        /// Their CRC-32.
        head_crc: u32,
    }
}

record! {
    /// What is noted when a request was carried out.
    Outcome<'a> {
        /// The [request's kind](Request::kind).
        kind: u16,
        /// 0, or why it failed.
        errno: u16,
        /// What it answers.
        fields: &'a [u8],
    }
}

/// What is found of an intent's request afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// What the path names now; zeros: nothing.
    pub file: Identity,
    /// What the other path names now; zeros: nothing.
    pub other: Identity,
    /// Whether the extended attribute is there.
    pub has: bool,
}

/// Whether a request took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It did.
    Done,
    /// It did not: it may be carried out.
    NotDone,
    /// The state does not tell.
    Unknown,
}

const NOBODY: Identity = Identity { inode: 0, generation: 0 };

impl NameIntent<'_> {
    /// In place of a kind, where nobody could look at what was before: then nobody can tell what became of the request.
    pub const UNTOLD: u16 = 0;

    /// Whether the request took effect, by what is found before anybody else could change anything. Exact where only this
    /// server changes the directory, and requests have their names [one at a time](super::Once::begin).
    pub fn judge(&self, found: &Found) -> Verdict {
        let is_done = match self.kind {
            Request::OPEN | Request::MAKE_NODE | Request::SYMLINK => {
                self.file == NOBODY && found.file != NOBODY
            }
            Request::LINK => self.other == NOBODY && self.file != NOBODY && found.other == self.file,
            Request::UNLINK => self.file != NOBODY && found.file != self.file,
            Request::RENAME => return self.judge_rename(found),
            // The name is another file's by now.
            Request::SET_XATTR | Request::REMOVE_XATTR if found.file != self.file => return Verdict::Unknown,
            Request::SET_XATTR => self.had == 0 && found.has,
            Request::REMOVE_XATTR => self.had != 0 && !found.has,
            _ => return Verdict::Unknown,
        };
        if is_done { Verdict::Done } else { Verdict::NotDone }
    }

    /// Whether a request can do nothing, by what it noted: then it need not be in the log, as doing nothing again does no harm. Of an open
    /// that is not known, as it may truncate what is there.
    pub fn does_nothing(&self) -> bool {
        match self.kind {
            Request::MAKE_NODE | Request::SYMLINK => self.file != NOBODY,
            Request::LINK => self.other != NOBODY,
            Request::UNLINK | Request::RENAME => self.file == NOBODY,
            _ => false,
        }
    }

    /// Also right where the two change places.
    fn judge_rename(&self, found: &Found) -> Verdict {
        match () {
            // It was to fail, or to do nothing.
            () if self.file == NOBODY || self.file == self.other => Verdict::NotDone,
            () if found.other == self.file && found.file != self.file => Verdict::Done,
            () if found.file == self.file && found.other == self.other => Verdict::NotDone,
            () => Verdict::Unknown,
        }
    }
}

/// What lies at a record's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// All of it.
    Whole,
    /// Its beginning, up to the file's end: it was torn, and is to be cut off.
    Torn,
    /// Nothing: the file ends before it.
    Nothing,
    /// Something else, or nobody can tell.
    Other,
}

impl AppendIntent {
    /// The intent to append a record, if it begins at `place`, to a file whose pages have `page_bytes` bytes.
    pub fn new(file: Identity, place: u64, record: &[u8], page_bytes: u64) -> AppendIntent {
        let head = (page_bytes - place % page_bytes).min(record.len() as u64) as usize;
        AppendIntent {
            kind: Request::WRITE,
            file,
            place,
            bytes: record.len() as u32,
            crc: crc32fast::hash(record),
            head: head as u32,
            head_crc: crc32fast::hash(&record[..head]),
        }
    }

    /// What lies at the record's place in a file of `size` bytes. `there` are the bytes from that place on, as many as there are and
    /// the record has.
    pub fn judge(&self, size: u64, there: &[u8]) -> Lies {
        let is =
            |bytes: u32, crc| there.get(..bytes as usize).is_some_and(|bytes| crc32fast::hash(bytes) == crc);
        match () {
            () if size <= self.place => Lies::Nothing,
            () if is(self.bytes, self.crc) => Lies::Whole,
            () if size - self.place < u64::from(self.bytes) && is(self.head, self.head_crc) => Lies::Torn,
            () => Lies::Other,
        }
    }
}
