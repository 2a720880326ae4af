//! Settings that are read from the environment when they are first needed, and cost next to nothing where there are none.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

/// A value that may turn out not to be there.
pub(crate) struct Lazy<T> {
    value: OnceLock<Option<T>>,
    read: fn() -> Option<T>,
    /// 0: not looked yet, 1: not there, 2: there. Saves the look into the lock for calls that are not ours.
    state: AtomicU8,
}

impl<T> Lazy<T> {
    pub(crate) const fn new(read: fn() -> Option<T>) -> Lazy<T> {
        Lazy { value: OnceLock::new(), read, state: AtomicU8::new(0) }
    }

    /// Whether it is there.
    #[inline]
    pub(crate) fn is_there(&self) -> bool {
        match self.state.load(Ordering::Relaxed) {
            0 => self.get().is_some(),
            state => state == 2,
        }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        let value = self.value.get_or_init(self.read).as_ref();
        self.state.store(if value.is_some() { 2 } else { 1 }, Ordering::Relaxed);
        value
    }
}
