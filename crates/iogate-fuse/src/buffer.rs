//! Memory of transfers that come through the device: page-aligned, in a few sizes, used again.

use std::sync::{Arc, Mutex};

use iogate_engine::{PAGE_BYTES, PageMemory};

/// Sizes are powers of four from one page on; the last one also fits a request with its header.
const CLASSES: usize = 6;
/// Bytes of each size that are kept for later.
const KEPT_BYTES: usize = 32 << 20;

/// Buffers that wait to be used again.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    classes: [Mutex<Vec<PageMemory>>; CLASSES],
}

impl Pool {
    /// A buffer of at least `bytes` bytes, at most 1 MiB and one page.
    pub(crate) fn take(self: &Arc<Self>, bytes: usize) -> Buffer {
        let class =
            (0..CLASSES).find(|&class| bytes <= class_bytes(class)).expect("requests have at most 1 MiB");
        let memory = self.classes[class].lock().expect("no pool operation panics").pop();
        let memory = memory.unwrap_or_else(|| PageMemory::new(class_bytes(class)));
        Buffer { memory: Some(memory), class, pool: self.clone() }
    }
}

fn class_bytes(class: usize) -> usize {
    if class + 1 == CLASSES { (1 << 20) + PAGE_BYTES } else { PAGE_BYTES << (2 * class) }
}

/// A piece of page-aligned memory that goes back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Option<PageMemory>,
    class: usize,
    pool: Arc<Pool>,
}

impl Buffer {
    fn memory(&mut self) -> &mut PageMemory {
        self.memory.as_mut().expect("there until dropped")
    }

    /// The first byte.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        self.memory().as_mut_ptr()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        self.memory.as_ref().expect("there until dropped").as_slice()
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.memory().as_mut_slice()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = self.memory.take().expect("dropped once");
        if let Ok(mut kept) = self.pool.classes[self.class].lock()
            && (kept.len() + 1) * memory.bytes() <= KEPT_BYTES
        {
            kept.push(memory);
        }
    }
}
