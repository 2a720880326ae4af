//! The handles of a session: numbers that its client chooses, and the files that they mean.

use alloc::collections::BTreeMap;
use alloc::collections::btree_map::Entry;
use alloc::format;
use alloc::vec::Vec;

use crate::refusal::{Refusal, errno};
use crate::wire::NO_HANDLE;

/// Handles and files. Clients choose the numbers, so nothing here may depend on a hash of them.
#[derive(Debug)]
pub(super) struct Handles<F> {
    most: usize,
    /// `None`: the file is being opened.
    files: BTreeMap<u32, Option<F>>,
}

impl<F> Handles<F> {
    pub(super) fn new(most: usize) -> Handles<F> {
        Handles { most, files: BTreeMap::new() }
    }

    pub(super) fn reserve(&mut self, handle: u32) -> Result<(), Refusal> {
        if handle == NO_HANDLE {
            return Err(Refusal::new(errno::EINVAL, "handle 0 stands for none: expected another number"));
        }
        let (count, most) = (self.files.len(), self.most);
        match self.files.entry(handle) {
            _ if count >= most => {
                let text = format!("{most} files are open in this session, which is the limit");
                Err(Refusal::new(errno::EMFILE, text))
            }
            Entry::Occupied(_) => {
                let text = format!("handle {handle} is in use: expected another number");
                Err(Refusal::new(errno::EINVAL, text))
            }
            Entry::Vacant(entry) => {
                entry.insert(None);
                Ok(())
            }
        }
    }

    pub(super) fn fill(&mut self, handle: u32, file: F) -> Option<F> {
        match self.files.get_mut(&handle) {
            Some(slot @ None) => {
                *slot = Some(file);
                None
            }
            _ => Some(file),
        }
    }

    pub(super) fn release(&mut self, handle: u32) -> bool {
        let is_reserved = matches!(self.files.get(&handle), Some(None));
        if is_reserved {
            self.files.remove(&handle);
        }
        is_reserved
    }

    pub(super) fn get(&self, handle: u32) -> Result<&F, Refusal> {
        self.files.get(&handle).and_then(Option::as_ref).ok_or_else(|| unknown(handle))
    }

    pub(super) fn close(&mut self, handle: u32) -> Result<F, Refusal> {
        self.get(handle)?;
        self.files.remove(&handle).flatten().ok_or_else(|| unknown(handle))
    }

    pub(super) fn len(&self) -> usize {
        self.files.len()
    }

    /// How many there were, and the files.
    pub(super) fn take_all(&mut self) -> (usize, Vec<F>) {
        let files = core::mem::take(&mut self.files);
        (files.len(), files.into_values().flatten().collect())
    }
}

fn unknown(handle: u32) -> Refusal {
    Refusal::new(errno::EBADF, format!("handle {handle} is not open in this session"))
}
