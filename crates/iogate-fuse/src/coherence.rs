//! Keeps the mapped memory of a file and direct writes to it coherent.
//!
//! With direct I/O the kernel drops the cached pages of a range, and then sends the write. Until it is carried out, a mapping
//! may bring a page back as it was before the write, and a store to that page is later written back with all of the page:
//! that would undo the write. So, for each file:
//!
//! - a write-back carries the bytes of the direct writes that are underway, instead of what the page has in their place;
//! - a direct write waits for overlapping write-backs that came before it;
//! - before a direct write is answered, the kernel drops the pages of its range. What it writes back for that, carries
//!   the write's bytes too.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::data::Submission;

/// The cached pages of a file and the writes to it, each of which is started by submitting an `S`. The lock is held for a few
/// comparisons, and for copying what overlaps.
pub(crate) struct Coherence<S = Submission> {
    state: Mutex<State<S>>,
}

struct State<S> {
    /// What the kernel may have cached since the file was looked up, as one range.
    cached: Range<u64>,
    /// Direct writes, in the order in which they came.
    writes: Vec<Write<S>>,
    write_backs: Vec<Underway>,
}

impl<S> Default for Coherence<S> {
    fn default() -> Coherence<S> {
        let state = State { cached: 0..0, writes: Vec::new(), write_backs: Vec::new() };
        Coherence { state: Mutex::new(state) }
    }
}

/// A transfer, known by its memory, which it has to itself for as long as it is underway.
#[derive(Clone)]
struct Underway {
    range: Range<u64>,
    memory: *const u8,
}

// SAFETY: the memory belongs to the transfer, and is only read here, under the lock.
unsafe impl Send for Underway {}

struct Write<S> {
    underway: Underway,
    /// The write-backs that it waits for.
    behind: Vec<Underway>,
    waiting: Option<S>,
}

impl<S> Coherence<S> {
    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a read into the kernel's cache. To be called before the read is submitted.
    pub(crate) fn caching(&self, range: Range<u64>) {
        let mut state = self.lock();
        state.cached = match state.cached.is_empty() {
            true => range,
            false => state.cached.start.min(range.start)..state.cached.end.max(range.end),
        };
    }

    /// Whether the kernel may have cached pages of a range.
    pub(crate) fn may_be_cached(&self, range: &Range<u64>) -> bool {
        overlap(&self.lock().cached, range).is_some()
    }

    /// Takes down a direct write, from memory that is valid until [`Coherence::carried_out`] has returned false or
    /// [`Coherence::end_write`] is called. Gives `write` back where it need not wait for a write-back.
    pub(crate) fn begin_write(&self, range: Range<u64>, memory: *const u8, write: S) -> Option<S> {
        let mut state = self.lock();
        let overlapping = |other: &&Underway| overlap(&other.range, &range).is_some();
        let behind: Vec<Underway> = state.write_backs.iter().filter(overlapping).cloned().collect();
        let underway = Underway { range, memory };
        let (waiting, write) = if behind.is_empty() { (None, Some(write)) } else { (Some(write), None) };
        state.writes.push(Write { underway, behind, waiting });
        write
    }

    /// To be called when a direct write has been carried out. Says whether the kernel has to drop the pages of its range, and
    /// [`Coherence::end_write`] has to be called after that; otherwise the write is forgotten.
    pub(crate) fn carried_out(&self, memory: *const u8) -> bool {
        let mut state = self.lock();
        let Some(at) = state.position(memory) else { return false };
        let drop_pages = overlap(&state.cached, &state.writes[at].underway.range).is_some();
        if !drop_pages {
            state.writes.remove(at);
        }
        drop_pages
    }

    /// Forgets a direct write.
    pub(crate) fn end_write(&self, memory: *const u8) {
        let mut state = self.lock();
        if let Some(at) = state.position(memory) {
            state.writes.remove(at);
        }
    }

    /// Takes down a write-back and puts the bytes of the direct writes that are underway into it.
    ///
    /// # Safety
    /// The memory is valid for as many bytes as the range has, and the caller's own.
    pub(crate) unsafe fn begin_write_back(&self, range: Range<u64>, memory: *mut u8) {
        let mut state = self.lock();
        for Write { underway: write, .. } in &state.writes {
            let Some(both) = overlap(&write.range, &range) else { continue };
            // SAFETY: both ranges contain the overlap; the memory of a write is valid until it is forgotten, which takes the
            // lock, and two transfers underway have different memory.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    write.memory.add((both.start - write.range.start) as usize),
                    memory.add((both.start - range.start) as usize),
                    (both.end - both.start) as usize,
                );
            }
        }
        state.write_backs.push(Underway { range, memory });
    }

    /// Forgets a write-back that has been carried out; returns what has waited for it and may start now.
    pub(crate) fn end_write_back(&self, memory: *const u8) -> Vec<S> {
        let mut state = self.lock();
        state.write_backs.retain(|write_back| write_back.memory != memory);
        let mut ready = Vec::new();
        for write in &mut state.writes {
            write.behind.retain(|write_back| write_back.memory != memory);
            if write.behind.is_empty() {
                ready.extend(write.waiting.take());
            }
        }
        ready
    }
}

impl<S> State<S> {
    fn position(&self, memory: *const u8) -> Option<usize> {
        self.writes.iter().position(|write| write.underway.memory == memory)
    }
}

impl<S> std::fmt::Debug for Coherence<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Coherence").finish_non_exhaustive()
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> Option<Range<u64>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (!both.is_empty()).then_some(both)
}

#[cfg(test)]
mod tests {
    type Coherence = super::Coherence<&'static str>;

    fn write_back(coherence: &Coherence, start: u64, bytes: &mut [u8]) {
        let range = start..start + bytes.len() as u64;
        // SAFETY: the bytes are as many as the range has, and borrowed.
        unsafe { coherence.begin_write_back(range, bytes.as_mut_ptr()) }
    }

    #[test]
    fn a_write_back_carries_the_bytes_of_the_writes_underway() {
        let coherence = Coherence::default();
        let (first, second, elsewhere) = ([1; 4], [2; 4], [3; 4]);
        assert!(coherence.begin_write(102..106, first.as_ptr(), "write").is_some());
        assert!(coherence.begin_write(104..108, second.as_ptr(), "write").is_some());
        assert!(coherence.begin_write(200..204, elsewhere.as_ptr(), "write").is_some());
        let mut page = [0; 10];
        write_back(&coherence, 100, &mut page);
        assert_eq!(page, [0, 0, 1, 1, 2, 2, 2, 2, 0, 0]);
        assert!(!coherence.carried_out(second.as_ptr()), "nothing is cached");
        let mut part = [0; 4];
        write_back(&coherence, 105, &mut part);
        assert_eq!(part, [1, 0, 0, 0]);
    }

    #[test]
    fn pages_are_dropped_where_some_may_be_cached() {
        let coherence = Coherence::default();
        let bytes = [1; 8];
        coherence.caching(4096..8192);
        coherence.caching(16384..20480);
        for (range, drop_pages) in
            [(0..8, false), (8188..8196, true), (12288..12296, true), (20480..20488, false)]
        {
            assert_eq!(coherence.may_be_cached(&range), drop_pages);
            assert!(coherence.begin_write(range, bytes.as_ptr(), "write").is_some());
            assert_eq!(coherence.carried_out(bytes.as_ptr()), drop_pages);
            // Until the pages are dropped, what is written back must not undo the write.
            let mut page = [0; 20488];
            write_back(&coherence, 0, &mut page);
            assert_eq!(page.iter().filter(|byte| **byte == 1).count(), if drop_pages { 8 } else { 0 });
            coherence.end_write(bytes.as_ptr());
            coherence.end_write_back(page.as_ptr());
        }
    }

    #[test]
    fn a_write_waits_for_the_write_backs_before_it() {
        let coherence = Coherence::default();
        let (mut one, mut other, mut later) = ([0; 8], [0; 8], [0; 16]);
        write_back(&coherence, 0, &mut one);
        write_back(&coherence, 8, &mut other);
        let (across, beside) = ([1; 4], [2; 4]);
        assert!(coherence.begin_write(6..10, across.as_ptr(), "across").is_none());
        assert!(coherence.begin_write(16..20, beside.as_ptr(), "write").is_some());
        write_back(&coherence, 0, &mut later);
        assert_eq!(later[5..11], [0, 1, 1, 1, 1, 0], "also of one that waits");
        assert!(coherence.end_write_back(other.as_ptr()).is_empty());
        assert!(coherence.end_write_back(later.as_ptr()).is_empty(), "that one came behind the write");
        assert_eq!(coherence.end_write_back(one.as_ptr()), ["across"]);
    }
}
