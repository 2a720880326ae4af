//! The requests in the gate: their memory, what has been accounted for of each, and who waits for the result.

use std::io;

use iogate_core::{Op, RequestId};

use super::waiter::Waiter;
use super::{Completion, Transfer};
use crate::origin::Origin;
use crate::store::FileHandle;

/// Who gets a request's result.
pub(super) enum Done {
    /// A caller of `submit`.
    Call(Completion),
    /// A thread in `read_at` or `write_at`.
    Wake(Waiter),
    /// The store, which knows the request by its memory.
    Tell(*mut u8),
}

/// A request in the gate.
pub(super) struct Pending {
    /// None: a dispatch that has all that is left of the request has it.
    pub(super) file: Option<FileHandle>,
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) memory: *mut u8,
    pub(super) origin: Origin,
    pub(super) extends: bool,
    /// Bytes that no finished dispatch has covered yet.
    remaining: u32,
    /// Where the first transfer fell short, from the request's start; `bytes` if none did.
    short_at: u32,
    /// The first failure (by position, not by time), and where it was.
    fault: Option<(u32, io::Error)>,
    pub(super) done: Done,
}

// SAFETY: `memory` belongs to the submitter, who promised not to touch it until the result is there; a `Waiter`
// is `Send`. The table moves both between the threads that share the engine's lock.
unsafe impl Send for Pending {}

impl Pending {
    pub(super) fn new(transfer: Transfer, done: Done) -> Pending {
        let Transfer { file, op, offset, memory, bytes, origin, extends } = transfer;
        Pending {
            file: Some(file),
            op,
            offset,
            memory,
            origin,
            extends,
            remaining: bytes,
            short_at: bytes,
            fault: None,
            done,
        }
    }

    /// The handle for a dispatch that has so many bytes of the request; the request's own, if that is all that is left.
    pub(super) fn handle(&mut self, bytes: u32) -> FileHandle {
        let handle = if bytes == self.remaining { self.file.take() } else { self.file.clone() };
        handle.expect("no other dispatch has all that is left")
    }

    /// Accounts for `bytes` at file offset `offset`, of which `got` were transferred before the end of the file,
    /// a full device, or `error`. True when nothing remains.
    pub(super) fn account(&mut self, offset: u64, bytes: u32, got: u32, error: Option<io::Error>) -> bool {
        self.remaining -= bytes;
        if got < bytes {
            let at = (offset - self.offset) as u32 + got;
            match error {
                None => self.short_at = self.short_at.min(at),
                Some(error) => {
                    if self.fault.as_ref().is_none_or(|(first, _)| at < *first) {
                        self.fault = Some((at, error));
                    }
                }
            }
        }
        self.remaining == 0
    }

    /// The contiguous bytes transferred from the start. A write that failed midway reports what came before,
    /// as `write(2)` does. A read that failed midway is an error, as a short read would mean the end of the file.
    pub(super) fn into_result(mut self) -> (Done, io::Result<usize>) {
        let result = self.take_result();
        (self.done, result)
    }

    /// As [`Pending::into_result`], where it is.
    pub(super) fn take_result(&mut self) -> io::Result<usize> {
        match self.fault.take() {
            Some((at, error)) if at < self.short_at && (at == 0 || self.op == Op::Read) => Err(error),
            Some((at, _)) => Ok(at.min(self.short_at) as usize),
            None => Ok(self.short_at as usize),
        }
    }
}

/// A slab of pending requests. A request's id is its slot's index below its slot's generation, so that an id
/// is not used twice within 2^32 uses of a slot.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    pending: Option<Pending>,
}

fn index(id: RequestId) -> usize {
    (id.0 & u64::from(u32::MAX)) as usize
}

impl Table {
    /// Whether no request is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }

    /// The id that the next [`Table::insert`] fills.
    pub(super) fn vacant(&mut self) -> RequestId {
        let index = *self.free.last().unwrap_or(&(self.slots.len() as u32));
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.generation);
        RequestId(u64::from(generation) << 32 | u64::from(index))
    }

    /// Puts a request at the id that [`Table::vacant`] named.
    pub(super) fn insert(&mut self, pending: Pending) {
        match self.free.pop() {
            Some(index) => self.slots[index as usize].pending = Some(pending),
            None => self.slots.push(Slot { generation: 0, pending: Some(pending) }),
        }
    }

    /// The request with this id.
    ///
    /// # Panics
    /// If there is none: the gate named a request that is not in it.
    pub(super) fn get(&mut self, id: RequestId) -> &mut Pending {
        let slot = &mut self.slots[index(id)];
        debug_assert_eq!(
            u64::from(slot.generation),
            id.0 >> 32,
            "the gate names a request that has completed"
        );
        slot.pending.as_mut().expect("the gate names requests that are in it")
    }

    /// Takes a request out.
    ///
    /// # Panics
    /// As [`Table::get`].
    pub(super) fn remove(&mut self, id: RequestId) -> Pending {
        self.free(id).take().expect("the gate names requests that are in it")
    }

    /// As [`Table::remove`], where nothing is wanted of it any more.
    pub(super) fn discard(&mut self, id: RequestId) {
        *self.free(id) = None;
    }

    /// Frees a slot, and returns what is still in it.
    fn free(&mut self, id: RequestId) -> &mut Option<Pending> {
        let slot = &mut self.slots[index(id)];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index(id) as u32);
        &mut slot.pending
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::Store;
    use crate::store::{NullStore, OpenMode};

    #[test]
    fn only_a_dispatch_with_all_that_is_left_takes_the_handle_along() {
        let file = NullStore::new().open(Path::new("file"), OpenMode::default()).unwrap();
        let transfer = Transfer {
            file: file.clone(),
            op: Op::Read,
            offset: 0,
            memory: std::ptr::dangling_mut(),
            bytes: 3 * 4096,
            origin: Origin::default(),
            extends: false,
        };
        let mut pending = Pending::new(transfer, Done::Tell(std::ptr::dangling_mut()));
        let before = Arc::strong_count(&file);
        // Two stripes are in service at once; one of them falls short, as far behind the beginning as a stripe is long.
        let first = pending.handle(4096);
        let second = pending.handle(4096);
        assert_eq!(Arc::strong_count(&file), before + 2);
        assert!(!pending.account(4096, 4096, 0, None));
        assert!(pending.handle(4096).id() == file.id() && pending.file.is_some());
        assert!(!pending.account(0, 4096, 4096, None));
        drop((first, second));
        let last = pending.handle(4096);
        assert!(pending.file.is_none() && Arc::strong_count(&file) == before);
        drop(last);
        assert!(pending.account(8192, 4096, 4096, None));
    }
}
