//! Which process an instance is of, at the price of one load.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Failed;

const BYTES: usize = 4096;
/// In a page that the kernel has agreed to empty in children.
const HERE: u32 = 1;

/// A page that is all zero in a child after fork, by whichever way the child was made; else the process by its number.
pub struct Home {
    page: *mut AtomicU32,
    /// Where the kernel does not empty pages (before Linux 4.14), to be compared at each call.
    pid: Option<u32>,
}

// SAFETY: the page is the instance's alone, and its word is atomic.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}

impl Home {
    /// Of this process.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new() -> Result<Home, Failed> {
        // SAFETY: a new mapping, which is nobody else's.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the mapping made above.
        let wiped = unsafe { libc::madvise(page, BYTES, libc::MADV_WIPEONFORK) } == 0;
        let home = Home { page: page.cast(), pid: (!wiped).then(std::process::id) };
        home.word().store(HERE, Ordering::Relaxed);
        Ok(home)
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: mapped until `drop`, aligned, and any bytes are a number.
        unsafe { &*self.page }
    }

    /// Refuses a child of the process that made the instance: locks may be held by threads that it does not have.
    ///
    /// # Errors
    /// `ECHILD`.
    #[inline]
    pub fn check(&self) -> Result<(), Failed> {
        let here = self.word().load(Ordering::Relaxed) == HERE;
        if here && self.pid.is_none_or(|pid| pid == std::process::id()) {
            return Ok(());
        }
        Err(Failed::new(
            libc::ECHILD,
            "the instance is the parent's, and this is its child after fork: make one here",
        ))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nobody uses any more.
        unsafe { libc::munmap(self.page.cast(), BYTES) };
    }
}
