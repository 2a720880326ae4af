//! Memory of transfers that come through the device: page-aligned, in a few sizes, used again.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

/// Sizes are powers of four from one page on; the last one also fits a request with its header.
const PAGE: usize = 4096;
const CLASSES: usize = 6;
/// Bytes of each size that are kept for later.
const KEPT_BYTES: usize = 32 << 20;

/// Buffers that wait to be used again.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    classes: [Mutex<Vec<Memory>>; CLASSES],
}

impl Pool {
    /// A buffer of at least `bytes` bytes, at most 1 MiB and one page.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let class =
            (0..CLASSES).find(|&class| bytes <= class_bytes(class)).expect("requests have at most 1 MiB");
        let memory = self.classes[class].lock().expect("no pool operation panics").pop();
        let memory = memory.unwrap_or_else(|| Memory::new(class_bytes(class)));
        Buffer { memory: Some(memory), class, pool: self.clone() }
    }
}

fn class_bytes(class: usize) -> usize {
    if class + 1 == CLASSES { (1 << 20) + PAGE } else { PAGE << (2 * class) }
}

/// A piece of page-aligned memory that goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Option<Memory>,
    class: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    fn memory(&self) -> &Memory {
        self.memory.as_ref().expect("there until dropped")
    }

    /// The first byte.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory().start.as_ptr()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        let memory = self.memory();
        // SAFETY: the memory is initialised, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(memory.start.as_ptr(), memory.layout.size()) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let memory = self.memory();
        // SAFETY: the memory is initialised, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts_mut(memory.start.as_ptr(), memory.layout.size()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = self.memory.take().expect("dropped once");
        if let Ok(mut kept) = self.pool.classes[self.class].lock()
            && (kept.len() + 1) * memory.layout.size() <= KEPT_BYTES
        {
            kept.push(memory);
        }
    }
}

#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned, and reached through its owner only.
unsafe impl Send for Memory {}

impl Memory {
    fn new(bytes: usize) -> Memory {
        let layout = Layout::from_size_align(bytes, PAGE).expect("a page is a power of two");
        // SAFETY: no size is zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
