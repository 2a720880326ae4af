//! Which life of this machine it is.

use std::io;

/// Where the kernel says it.
pub const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What the kernel calls the time since the machine was started, with the end of its line: verifiers and logs of earlier releases have
/// that, too.
///
/// # Errors
/// Where it is hidden, as by `ProcSubset=pid` of a service.
pub fn boot_id() -> io::Result<String> {
    std::fs::read_to_string(BOOT_ID)
}
