//! Page-aligned memory.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// Bytes of a page, as far as alignment goes.
pub const PAGE_BYTES: usize = 4096;

/// A piece of page-aligned, initialised memory.
#[derive(Debug)]
pub struct PageMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned, and reached through its owner only.
unsafe impl Send for PageMemory {}

impl PageMemory {
    /// Zeros; `bytes` is not 0.
    pub fn new(bytes: usize) -> PageMemory {
        assert!(bytes > 0, "memory of no bytes has no address");
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).expect("a page is a power of two");
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        PageMemory { start, layout }
    }

    /// How much it is.
    pub fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// The first byte.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// All of it.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is initialised, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }

    /// All of it.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is initialised, and borrowed with `self` alone.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}
