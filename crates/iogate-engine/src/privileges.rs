//! What a thread that does I/O for others must not be able to do, if the process is root: write past disk quotas, and keep a
//! file's set-user-ID bit through a write.
//!
//! Capabilities are each thread's own, and threads inherit them from the one that starts them. Only the effective set is
//! reduced: an operation in root's own name takes back for its time what it needs ([`unlimited`]).

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CapabilitySet, CapabilitySets};

/// What lets a process ignore disk quotas (`CAP_SYS_RESOURCE`), and keeps set-user-ID and set-group-ID bits where they would be
/// cleared (`CAP_FSETID`).
const GIVEN_UP: CapabilitySet = CapabilitySet::SYS_RESOURCE.union(CapabilitySet::FSETID);

/// Whether `CAP_FSETID` is not given up.
static MODE_BITS_ARE_KEPT: AtomicBool = AtomicBool::new(false);

/// Leaves `CAP_FSETID` to the threads of this process that are limited from now on: for a mount of a directory, to which the
/// kernel says of each write whether the bits are to be cleared. It knows the groups of the writer; a file system that sees a
/// thread without that capability would go by the thread's.
pub fn keep_mode_bits() {
    MODE_BITS_ARE_KEPT.store(true, Ordering::Relaxed);
}

fn given_up() -> CapabilitySet {
    match MODE_BITS_ARE_KEPT.load(Ordering::Relaxed) {
        true => GIVEN_UP.difference(CapabilitySet::FSETID),
        false => GIVEN_UP,
    }
}

/// Gives up, in the calling thread and those that it starts from now on, the capabilities that reads and writes for others must
/// not have. May be called again. Fails if the system does not let a thread change its capabilities.
pub fn limit_thread() -> io::Result<()> {
    let sets = rustix::thread::capabilities(None)?;
    let given_up = given_up();
    if sets.effective.intersects(given_up) {
        let effective = sets.effective.difference(given_up);
        rustix::thread::set_capabilities(None, CapabilitySets { effective, ..sets })?;
    }
    Ok(())
}

/// As [`limit_thread`], for threads of which nobody hears how they began: what fails is logged.
pub fn limit_thread_or_warn() {
    if let Err(error) = limit_thread() {
        tracing::warn!(%error, "a thread keeps capabilities that pass disk quotas");
    }
}

/// The sets of a thread, with what [`limit_thread`] gives up taken back as far as the process may have it.
pub fn taken_back(sets: CapabilitySets) -> CapabilitySets {
    let effective = sets.effective.union(sets.permitted.intersection(GIVEN_UP));
    CapabilitySets { effective, ..sets }
}

/// Takes back what [`limit_thread`] gave up, in the calling thread, until the guard is dropped: for an operation in root's own name, or
/// of which the kernel has checked that the caller may do it. In a thread that is not limited, or not of root, it changes nothing.
pub fn unlimited() -> io::Result<Unlimited> {
    let before = rustix::thread::capabilities(None)?;
    let wanted = taken_back(before);
    let is_changed = wanted.effective != before.effective;
    if is_changed {
        rustix::thread::set_capabilities(None, wanted)?;
    }
    Ok(Unlimited { before: is_changed.then_some(before), _of_this_thread: PhantomData })
}

/// See [`unlimited`].
#[derive(Debug)]
#[must_use = "the capabilities are given up again when this is dropped"]
pub struct Unlimited {
    before: Option<CapabilitySets>,
    _of_this_thread: PhantomData<*const ()>,
}

impl Drop for Unlimited {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(error) = rustix::thread::set_capabilities(None, before)
        {
            tracing::error!(%error, "a thread could not give its capabilities up again: the process ends");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective() -> CapabilitySet {
        rustix::thread::capabilities(None).unwrap().effective
    }

    #[test]
    fn a_limited_thread_takes_back_what_it_gave_up_for_a_while() {
        let before = effective();
        // In a thread of its own: the test's thread goes on to other tests.
        std::thread::spawn(move || {
            limit_thread().unwrap();
            assert!(!effective().intersects(GIVEN_UP));
            assert_eq!(effective(), before.difference(GIVEN_UP), "nothing else is given up");
            {
                let _unlimited = unlimited().unwrap();
                let _again = unlimited().unwrap();
                assert_eq!(effective(), before);
            }
            limit_thread().unwrap();
            assert!(!effective().intersects(GIVEN_UP));
            let inherited = std::thread::spawn(effective).join().unwrap();
            assert!(!inherited.intersects(GIVEN_UP));
        })
        .join()
        .unwrap();
        assert_eq!(effective(), before, "other threads keep theirs");
    }
}
