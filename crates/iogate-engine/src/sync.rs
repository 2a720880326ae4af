//! What synchronises threads: the standard library's, or shuttle's in tests that try many interleavings (`tests/shuttle.rs`).

#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic},
    thread,
};

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic},
    thread,
};
