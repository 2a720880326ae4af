//! Open files and directories, by the handle that the kernel sends back.

use std::sync::{Arc, RwLock};

use rustix::io::Errno;

/// Handles: small numbers, used again after release.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    slots: RwLock<Slots<T>>,
}

#[derive(Debug)]
struct Slots<T> {
    used: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Handles { slots: RwLock::new(Slots { used: Vec::new(), free: Vec::new() }) }
    }
}

impl<T> Handles<T> {
    /// Keeps an open file or directory until [`Handles::remove`].
    pub(crate) fn insert(&self, open: T) -> u64 {
        let open = Arc::new(open);
        let mut slots = self.slots.write().expect("no handle operation panics");
        if let Some(slot) = slots.free.pop() {
            slots.used[slot] = Some(open);
            slot as u64
        } else {
            slots.used.push(Some(open));
            slots.used.len() as u64 - 1
        }
    }

    /// The file or directory with this handle; `EBADF` if it is not open.
    pub(crate) fn get(&self, handle: u64) -> Result<Arc<T>, Errno> {
        let slots = self.slots.read().expect("no handle operation panics");
        slots.used.get(handle as usize).and_then(Clone::clone).ok_or(Errno::BADF)
    }

    /// Releases a handle.
    pub(crate) fn remove(&self, handle: u64) -> Result<Arc<T>, Errno> {
        let mut slots = self.slots.write().expect("no handle operation panics");
        let open = slots.used.get_mut(handle as usize).and_then(Option::take).ok_or(Errno::BADF)?;
        slots.free.push(handle as usize);
        Ok(open)
    }
}
