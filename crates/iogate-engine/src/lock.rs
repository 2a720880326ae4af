//! Locking, for all that stands on this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. What is behind a lock is whole after every statement, so a panic elsewhere does not spoil it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
