//! A panic that would leave requests with nobody ends the process.

use std::process;
use std::thread::panicking;

/// Ends the process if the scope that holds it is left by a panic.
///
/// A panic of the gate or of a store is a defect that leaves requests with nobody to complete them: their submitters,
/// and everything that overlaps them, would wait for ever. When the process ends they all get an error: the
/// kernel fails what a mount has not answered.
pub(super) struct AbortOnUnwind {
    panicking_before: bool,
}

impl AbortOnUnwind {
    pub(super) fn new() -> AbortOnUnwind {
        AbortOnUnwind { panicking_before: panicking() }
    }
}

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        if panicking() && !self.panicking_before {
            tracing::error!(
                "a defect in the gate or its store: the process ends, so that nobody waits for ever"
            );
            process::abort();
        }
    }
}
